/* Divides messages among the lanes of the best kernel of this processor. */
#include "base/crypto/sha256_many.h"

#include "base/crypto/sha256_lanes.h"

#include <string.h>
#if defined(__x86_64__)
#    include <cpuid.h>
#endif

/* Calls that allocate nothing and cannot fail; the state of a context can be set. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#define BLOCK_BYTES 64u

static const uint32_t initial_state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

struct kernel {
    uint32_t kernel, lanes;
    void (*blocks)(struct stk_sha256_lanes *lanes, size_t blocks);
};

/* Best first: with four messages, SHA-NI is faster than 16 lanes (3.2 to 4.0 against 3.2 to 3.4
 * GB/s of a Zen 5 core). */
static const struct kernel kernels[] = {
#if defined(__x86_64__)
    {STK_SHA256_NI, 4, stk_sha256_blocks_ni},
    {STK_SHA256_AVX512, 16, stk_sha256_blocks_avx512},
    {STK_SHA256_AVX2, 8, stk_sha256_blocks_avx2},
#endif
    {STK_SHA256_PLAIN, 1, NULL},
};

static bool has(uint32_t kernel)
{
#if defined(__x86_64__)
    unsigned eax, ebx, ecx, edx;

    switch (kernel) {
    case STK_SHA256_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    case STK_SHA256_AVX2:
        return __builtin_cpu_supports("avx2");
    case STK_SHA256_NI:
        return __builtin_cpu_supports("sse4.1") &&
               __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & bit_SHA) != 0;
    default:
        break;
    }
#endif
    return kernel == STK_SHA256_PLAIN;
}

void stk_sha256_one(const void *data, size_t bytes, uint8_t digest_out[STK_SHA256_BYTES])
{
    SHA256_CTX context;

    SHA256_Init(&context);
    SHA256_Update(&context, data, bytes);
    SHA256_Final(digest_out, &context);
}

/* Adds the rest of a message to the state of its lane, and pads it. */
static void finish_lane(const struct stk_sha256_lanes *lanes, uint32_t lane, size_t done,
                        const struct stk_sha256_message *message)
{
    SHA256_CTX context;
    uint64_t bits = (uint64_t)done * 8;

    SHA256_Init(&context);
    for (uint32_t i = 0; i < 8; i++) {
        context.h[i] = lanes->state[i][lane];
    }
    context.Nl = (SHA_LONG)bits;
    context.Nh = (SHA_LONG)(bits >> 32);
    SHA256_Update(&context, message->data + done, message->bytes - done);
    SHA256_Final(message->digest_out, &context);
}

/* All lanes of the kernel have a message. */
static void hash_lanes(const struct kernel *kernel, const struct stk_sha256_message *messages)
{
    struct stk_sha256_lanes lanes;
    size_t blocks = SIZE_MAX;

    for (uint32_t lane = 0; lane < kernel->lanes; lane++) {
        for (uint32_t i = 0; i < 8; i++) {
            lanes.state[i][lane] = initial_state[i];
        }
        lanes.data[lane] = messages[lane].data;
        blocks = (size_t)stk_min(blocks, messages[lane].bytes / BLOCK_BYTES);
    }
    kernel->blocks(&lanes, blocks);
    for (uint32_t lane = 0; lane < kernel->lanes; lane++) {
        finish_lane(&lanes, lane, blocks * BLOCK_BYTES, &messages[lane]);
    }
}

static size_t hash_with(const struct kernel *kernel, const struct stk_sha256_message *messages,
                        size_t count)
{
    size_t done = 0;

    while (kernel->blocks && count - done >= kernel->lanes) {
        hash_lanes(kernel, messages + done);
        done += kernel->lanes;
    }
    return done;
}

bool stk_sha256_many_with(uint32_t kernel, const struct stk_sha256_message *messages, size_t count)
{
    size_t done = 0;

    if (kernel != STK_SHA256_AUTO && !has(kernel)) {
        return false;
    }
    for (size_t i = 0; i < STK_COUNT(kernels); i++) {
        if (kernel == STK_SHA256_AUTO ? has(kernels[i].kernel) : kernels[i].kernel == kernel) {
            done += hash_with(&kernels[i], messages + done, count - done);
        }
    }
    for (; done < count; done++) {
        stk_sha256_one(messages[done].data, messages[done].bytes, messages[done].digest_out);
    }
    return true;
}

void stk_sha256_many(const struct stk_sha256_message *messages, size_t count)
{
    (void)stk_sha256_many_with(STK_SHA256_AUTO, messages, count);
}

uint32_t stk_sha256_many_kernel(void)
{
    size_t i = 0;

    while (!has(kernels[i].kernel)) {
        i++;
    }
    return kernels[i].kernel;
}
