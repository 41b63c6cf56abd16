/* Divides messages among the lanes of the best kernel of this processor. */
#include "base/crypto/sha256_many.h"

#include <string.h>
#if defined(__x86_64__)
#    include <cpuid.h>
#endif

/* Calls that allocate nothing and cannot fail; the state of a context can be set. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#define BLOCK_BYTES 64u

const uint32_t stk_sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

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
    SHA256(data, bytes, digest_out);
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
