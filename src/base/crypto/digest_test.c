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

int main(void)
{
    test_digests();
    test_hex();
    return t_finish();
}
