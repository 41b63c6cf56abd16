/* Goal: digests equal SHA-256, and their hexadecimal text is parsed.
 * Method: rows with known answers (FIPS 180-4 examples) and rows of texts that are not digits. */
#include "base/crypto/digest.h"

#include "test/t.h"

#include <string.h>

static const struct digest_row {
    const char *name, *text, *want_hex;
} digest_rows[] = {
    {"empty", "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"two blocks", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
};

static void test_digests(void)
{
    T_EACH(digest_row, row, digest_rows)
    {
        struct stk_sha256 sha;
        uint8_t digest[32];
        char hex[65];

        stk_sha256_init(&sha);
        stk_sha256_add(&sha, row->text, strlen(row->text));
        stk_sha256_done(&sha, digest);
        stk_hex(digest, sizeof digest, hex);
        T_STR(row->name, hex, row->want_hex);
    }
}

static void test_hex(void)
{
    static const struct hex_row {
        const char *text;
        bool want;
    } hex_rows[] = {{"00ff1a", true},  {"00ff1", false},  {"00ff1a0", false},
                    {"00FF1A", false}, {"00fg1a", false}, {"", false}};

    T_EACH(hex_row, row, hex_rows)
    {
        uint8_t bytes[3] = {0};
        char back[7];

        T_EQ(row->text, stk_hex_decode(row->text, bytes, sizeof bytes), row->want);
        if (row->want) {
            stk_hex(bytes, sizeof bytes, back);
            T_STR(row->text, back, row->text);
        }
    }
    for (int letter = 0; letter < 256; letter++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *at = letter ? strchr(digits, letter) : NULL;

        T_EQ("digit", stk_hex_digit((char)letter), at ? (at - digits) % 16 : -1);
    }
}

static void test_base64(void)
{
    static const struct base64_row {
        const char *text;
        size_t bytes; /* that the caller wants */
        bool want;
    } base64_rows[] = {{"", 0, true},        {"AQ==", 1, true},  {"AQI=", 2, true},
                       {"AQID", 3, true},    {"+/8A", 3, true},  {"AR==", 1, false},
                       {"AQJ=", 2, false},   {"AQ=", 1, false},  {"AQI=", 3, false},
                       {"AQIDBA", 4, false}, {"AQ I", 3, false}, {"A===", 1, false}};

    T_EACH(base64_row, row, base64_rows)
    {
        struct stk_view text = {(const uint8_t *)row->text, strlen(row->text)};
        uint8_t bytes[8] = {0};
        char back[STK_BASE64_BYTES];

        T_EQ(row->text, stk_base64_decode(text, bytes, row->bytes), row->want);
        if (row->want) {
            stk_base64(bytes, row->bytes, back);
            T_STR(row->text, back, row->text);
        }
    }
}

int main(void)
{
    test_digests();
    test_hex();
    test_base64();
    return t_finish();
}
