/* Fuzz target of bzip2_recover.c: any bytes as part of a bzip2 file. The last byte selects the
 * portions. No crash; every choice of portions gives the same streams; each stream begins like a
 * block and is in the input, and bzlib decompresses it or reports damage. */
#include "base/xxh3.h"
#include "format/compress/bzip2_recover.h"

#include <bzlib.h>
#include <string.h>

enum { OUT_BYTES = 1 << 16, TURNS_MAX = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Some of it: a block can unpack to 46 MB. */
static void unpack(struct stk_view stream)
{
    static char out[OUT_BYTES];
    bz_stream bzip2 = {0};
    int result = BZ_OK;

    STK_ASSERT(BZ2_bzDecompressInit(&bzip2, 0, 0) == BZ_OK);
    bzip2.next_in = (char *)(uintptr_t)stream.data;
    bzip2.avail_in = (unsigned)stream.bytes;
    for (int i = 0; i < TURNS_MAX && result == BZ_OK && bzip2.avail_out == 0; i++) {
        bzip2.next_out = out;
        bzip2.avail_out = sizeof out;
        result = BZ2_bzDecompress(&bzip2);
    }
    STK_ASSERT(result != BZ_DATA_ERROR_MAGIC);
    BZ2_bzDecompressEnd(&bzip2);
}

/* A sum over all streams. */
static uint64_t split(const uint8_t *data, size_t bytes, size_t step, bool unpacking)
{
    struct stk_bzip2_blocks *blocks = NULL;
    uint64_t sum = 0, before = 0;

    if (stk_bzip2_blocks_open(&blocks, 0, NULL, NULL) < 0) {
        return 0;
    }
    for (size_t given = 0; given < bytes;) {
        struct stk_view in = {data + given, stk_min(step, bytes - given)}, stream;
        size_t offered = in.bytes;
        uint64_t at = 0;

        if (stk_bzip2_blocks_next(blocks, &in, &stream, &at)) {
            STK_ASSERT(at >= before && at < bytes && stream.bytes <= bytes + 16);
            STK_ASSERT(memcmp(stream.data, "BZh91AY&SY", 10) == 0);
            sum = sum * 31 + stk_xxh3_64(stream.data, stream.bytes) + at;
            before = at;
            if (unpacking) {
                unpack(stream);
            }
        } else {
            STK_ASSERT(in.bytes == 0);
        }
        given += offered - in.bytes;
    }
    stk_bzip2_blocks_close(blocks);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const size_t steps[] = {1, 7, 13, 512};
    uint64_t sum;

    if (bytes < 1) {
        return 0;
    }
    bytes--;
    sum = split(data, bytes, SIZE_MAX, true);
    STK_ASSERT(split(data, bytes, steps[data[bytes] % 4], false) == sum);
    return 0;
}
