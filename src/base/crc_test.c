/* Goal: CRCs equal the published ones for any split of the input, and CRCs of parts combine.
 * Method: the check values of the CRC catalogues ("123456789"); every split and alignment of random
 * bytes, compared with a bit-by-bit computation, by tables and by folding. `crc_test speed`
 * measures. */
#include "base/crc.h"

#include "base/random.h"
#include "test/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES 900u

static const struct kind {
    const char *name;
    uint64_t poly, ones, check;
} kinds[] = {{"crc32", 0xedb88320u, 0xffffffffu, 0xcbf43926u},
             {"crc32c", 0x82f63b78u, 0xffffffffu, 0xe3069283u},
             {"crc64nvme", 0x9a6c9329ac4bc9b5ull, ~0ull, 0xae8b14860a799888ull}};

static uint64_t sum(size_t kind, uint64_t crc, const void *data, size_t bytes)
{
    return kind == 0   ? stk_crc32((uint32_t)crc, data, bytes)
           : kind == 1 ? stk_crc32c((uint32_t)crc, data, bytes)
                       : stk_crc64(crc, data, bytes);
}

static uint64_t join(size_t kind, uint64_t first, uint64_t second, uint64_t bytes)
{
    return kind == 0   ? stk_crc32_combine((uint32_t)first, (uint32_t)second, bytes)
           : kind == 1 ? stk_crc32c_combine((uint32_t)first, (uint32_t)second, bytes)
                       : stk_crc64_combine(first, second, bytes);
}

/* The next value of `crc` after the byte, bit by bit; reversed at both ends. */
static uint64_t by_bits(const struct kind *kind, uint64_t crc, uint8_t byte)
{
    crc = (crc ^ kind->ones) ^ byte;
    for (int bit = 0; bit < 8; bit++) {
        crc = (crc >> 1) ^ (crc & 1 ? kind->poly : 0);
    }
    return crc ^ kind->ones;
}

static void measure(void)
{
    size_t bytes = 8u << 20;
    uint8_t *data = calloc(1, bytes);

    for (size_t kind = 0; data && kind < STK_COUNT(kinds); kind++) {
        clock_t start = clock();
        uint64_t last = 0;

        for (int i = 0; i < 128; i++) {
            last ^= sum(kind, last, data, bytes);
        }
        printf("%s: %.2f s of CPU for a GB (%llx)\n", kinds[kind].name,
               (double)(clock() - start) / CLOCKS_PER_SEC / (128 * (double)bytes) * 1e9,
               (unsigned long long)last);
    }
    free(data);
}

int main(int argc, char **argv)
{
    uint8_t data[BYTES];

    if (argc > 1 && strcmp(argv[1], "speed") == 0) {
        measure();
        return 0;
    }
    for (uint32_t i = 0; i < BYTES; i++) {
        data[i] = (uint8_t)stk_random_key(7, i);
    }
    for (size_t kind = 0; kind < STK_COUNT(kinds); kind++) {
        bool same = true, joined = true;

        T_TRUE(kinds[kind].name, sum(kind, 0, "123456789", 9) == kinds[kind].check);
        T_TRUE(kinds[kind].name, sum(kind, 0, "", 0) == 0);
        for (size_t begin = 0; begin < 17; begin++) {
            uint64_t want = 0;

            for (size_t end = begin; end < BYTES; end++) {
                same = same && sum(kind, 0, data + begin, end - begin) == want;
                want = by_bits(&kinds[kind], want, data[end]);
            }
        }
        T_EQ("each cut is as bit by bit", same, 1);
        for (size_t cut = 0; cut <= BYTES; cut++) {
            uint64_t first = sum(kind, 0, data, cut), all = sum(kind, 0, data, BYTES);

            joined = joined && sum(kind, first, data + cut, BYTES - cut) == all;
            joined = joined &&
                     join(kind, first, sum(kind, 0, data + cut, BYTES - cut), BYTES - cut) == all;
        }
        T_EQ("pieces join", joined, 1);
    }
    return t_finish();
}
