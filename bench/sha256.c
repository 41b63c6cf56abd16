/* Prints GB/s of SHA-256 over leaves of 1 MiB on one core, by CPU time: the library's kernel for
 * many messages, and libcrypto. For bench/run_checkpoint.py, which compiles it with
 * libstoker-all.a. */
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
    uint8_t *data = malloc(LEAVES * LEAF_BYTES), digests[LEAVES][32];
    struct stk_sha256_message messages[LEAVES];
    double seconds[2] = {0, 0};

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
        double begin = cpu_seconds();

        stk_sha256_many(messages, LEAVES);
        seconds[0] += cpu_seconds() - begin;
        begin = cpu_seconds();
        for (uint32_t i = 0; i < LEAVES; i++) {
            (void)SHA256(messages[i].data, LEAF_BYTES, digests[i]);
        }
        seconds[1] += cpu_seconds() - begin;
    }
    printf("%u %.3f %.3f\n", stk_sha256_many_kernel(),
           TURNS * LEAVES * (double)LEAF_BYTES / 1e9 / seconds[0],
           TURNS * LEAVES * (double)LEAF_BYTES / 1e9 / seconds[1]);
    free(data);
    return 0;
}
