/* Goal: every kernel of this processor computes SHA-256 of many messages.
 * Method: NIST's answers (FIPS 180-4 examples, and a million letters), in each lane; all lengths
 * around block boundaries and mixed lengths against libcrypto, also at odd addresses. Covers
 * sha256_many.c, sha256_ni.c, sha256_lanes_avx2.c, sha256_lanes_avx512.c. */
#include "base/crypto/digest.h"
#include "base/crypto/sha256_lanes.h"
#include "base/crypto/sha256_many.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MESSAGES 40
#define COPIES (STK_SHA256_LANES_MAX + 1)
#define BYTES_MAX 70000

static const struct kernel_row {
    const char *name;
    uint32_t kernel;
} kernel_rows[] = {{"auto", STK_SHA256_AUTO},
                   {"plain", STK_SHA256_PLAIN},
                   {"sha-ni", STK_SHA256_NI},
                   {"avx2", STK_SHA256_AVX2},
                   {"avx512", STK_SHA256_AVX512}};

static void test_nist(void)
{
    static const struct answer_row {
        const char *name, *text;
        size_t repeats;
        const char *want_hex;
    } answer_rows[] = {
        {"empty", "", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"two blocks", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"896 bits",
         "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
         "lmnopqrsmnopqrstnopqrstu",
         1, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
        {"a million letters", "aaaaaaaaaa", 100000,
         "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    char *text = malloc(1000000);

    T_EACH(answer_row, row, answer_rows)
    {
        size_t length = strlen(row->text);

        for (size_t i = 0; i < row->repeats; i++) {
            memcpy(text + i * length, row->text, length);
        }
        T_EACH(kernel_row, kernel, kernel_rows)
        {
            struct stk_sha256_message messages[COPIES];
            uint8_t digests[COPIES][32];
            char hex[65];

            for (size_t i = 0; i < COPIES; i++) {
                messages[i] = (struct stk_sha256_message){(const uint8_t *)text,
                                                          length * row->repeats, digests[i]};
            }
            if (!stk_sha256_many_with(kernel->kernel, messages, COPIES)) {
                continue;
            }
            for (size_t i = 0; i < COPIES; i++) {
                stk_hex(digests[i], 32, hex);
                T_STR(row->name, hex, row->want_hex);
            }
        }
    }
    free(text);
}

/* Message i has first + i * step bytes and begins at an odd address. */
static void check_lengths(const uint8_t *data, size_t first, size_t step)
{
    T_EACH(kernel_row, kernel, kernel_rows)
    {
        struct stk_sha256_message messages[MESSAGES];
        uint8_t digests[MESSAGES][32], want[32];
        bool equal = true;

        for (size_t i = 0; i < MESSAGES; i++) {
            messages[i] =
                (struct stk_sha256_message){data + i * 7 + 1, first + i * step, digests[i]};
        }
        if (!stk_sha256_many_with(kernel->kernel, messages, MESSAGES)) {
            continue;
        }
        for (size_t i = 0; i < MESSAGES; i++) {
            stk_sha256_one(messages[i].data, messages[i].bytes, want);
            equal = equal && memcmp(digests[i], want, 32) == 0;
        }
        T_TRUE(kernel->name, equal);
    }
}

static void test_lengths(void)
{
    uint8_t *data = malloc(BYTES_MAX + 1024);
    uint32_t state = 1;

    for (size_t i = 0; i < BYTES_MAX + 1024; i++) {
        state = state * 1664525u + 1013904223u;
        data[i] = (uint8_t)(state >> 24);
    }
    for (size_t bytes = 0; bytes < 200; bytes++) {
        check_lengths(data, bytes, 0);
    }
    check_lengths(data, 65536, 0);
    check_lengths(data, 0, 13);
    check_lengths(data, 4000, 64);
    free(data);
}

/* With a number as the argument: GB/s of each kernel over messages of 1 MiB. */
static void measure(void)
{
    size_t bytes = 64u << 20, count = bytes >> 20;
    uint8_t *data = aligned_alloc(4096, bytes);
    struct stk_sha256_message messages[64];
    static uint8_t digests[64][32];

    memset(data, 7, bytes);
    for (size_t i = 0; i < count; i++) {
        messages[i] = (struct stk_sha256_message){data + (i << 20), 1u << 20, digests[i]};
    }
    T_EACH(kernel_row, kernel, kernel_rows)
    {
        struct timespec from, to;

        for (int pass = 0; pass < 2; pass++) {
            clock_gettime(CLOCK_MONOTONIC, &from);
            if (!stk_sha256_many_with(kernel->kernel, messages, count)) {
                break;
            }
            clock_gettime(CLOCK_MONOTONIC, &to);
            if (pass == 1) {
                printf("%s %.2f GB/s\n", kernel->name,
                       (double)bytes / ((double)(to.tv_sec - from.tv_sec) * 1e9 +
                                        (double)(to.tv_nsec - from.tv_nsec)));
            }
        }
    }
    free(data);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        measure();
    }
    test_nist();
    test_lengths();
    T_TRUE("a kernel", stk_sha256_many_kernel() != STK_SHA256_AUTO);
    return t_finish();
}
