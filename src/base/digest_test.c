/* Goal: digests are SHA-256.
 * Method: rows with known answers (FIPS 180-4 examples). */
#include "base/hash.h"

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

int main(void)
{
    test_digests();
    return t_finish();
}
