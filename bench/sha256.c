/* Prints, as JSON, GB/s of SHA-256 over leaves of 1 MiB on one core, by CPU time: the library's
 * kernels for many messages that this processor has, and libcrypto. For bench/run_checkpoint.py,
 * which compiles it with libstoker-all.a. */
#include "base/crypto/sha256_many.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LEAVES 16u
#define LEAF_BYTES ((size_t)1 << 20)
#define TURNS 20u

static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(void)
{
    static const char *const names[] = {"chosen", "libcrypto", "SHA-NI", "AVX2", "AVX-512"};
    uint8_t *data = malloc(LEAVES * LEAF_BYTES), digests[LEAVES][32];
    struct stk_sha256_message messages[LEAVES];
    double seconds[5] = {0};

    if (!data) {
        return 1;
    }
    for (size_t i = 0; i < LEAVES * LEAF_BYTES; i++) {
        data[i] = (uint8_t)(i * 2654435761u >> 24);
    }
    for (uint32_t i = 0; i < LEAVES; i++) {
        messages[i] = (struct stk_sha256_message){data + i * LEAF_BYTES, LEAF_BYTES, digests[i]};
    }
    for (uint32_t turn = 0; turn < TURNS; turn++) { /* in turns */
        for (uint32_t kernel = STK_SHA256_AUTO; kernel <= STK_SHA256_AVX512; kernel++) {
            double begin = cpu_seconds();

            if (kernel == STK_SHA256_PLAIN) {
                for (uint32_t i = 0; i < LEAVES; i++) {
                    (void)SHA256(messages[i].data, LEAF_BYTES, digests[i]);
                }
            } else if (!stk_sha256_many_with(kernel, messages, LEAVES)) {
                continue;
            }
            seconds[kernel] += cpu_seconds() - begin;
        }
    }
    printf("{\"kernel\": \"%s\"", names[stk_sha256_many_kernel()]);
    for (uint32_t kernel = STK_SHA256_AUTO; kernel <= STK_SHA256_AVX512; kernel++) {
        if (seconds[kernel] > 0) {
            printf(", \"%s\": %.3f", names[kernel],
                   TURNS * LEAVES * (double)LEAF_BYTES / 1e9 / seconds[kernel]);
        }
    }
    puts("}");
    free(data);
    return 0;
}
