/* Goal: every intact block of a damaged bzip2 file is found, wherever reading begins and for any
 * portions; the CRC identifies damaged blocks; no other bytes are returned.
 * Method: noise that bzlib compresses in blocks and streams; each damage at many offsets; each
 * stream decompressed by bzlib and searched in the text. (python/tests/test_verify_compressed.py
 * uses the commands bzip2 and bzip2recover as oracles.) Covers bzip2_recover.c. */
#include "base/mem.h"
#include "format/compress/bzip2_recover.h"

#include "test/t.h"

#include <bzlib.h>
#include <errno.h>
#include <string.h>

enum { TEXT_BYTES = 400000, ROOM = 1 << 19, BLOCK_BYTES = 100000 };

static uint8_t text[TEXT_BYTES], packed[ROOM], damaged[ROOM], out[ROOM];
static unsigned packed_bytes;

/* Half of it compresses; all 64 bytes of it are found once. */
static void make_text(void)
{
    uint32_t state = 1;

    for (size_t i = 0; i < sizeof text; i++) {
        state = state * 1664525 + 1013904223;
        text[i] = (uint8_t)(i % 64 < 32 ? 'a' + (state >> 24) % 4 : state >> 24);
    }
}

/* streams: one after another. */
static void pack(unsigned streams)
{
    packed_bytes = 0;
    for (unsigned i = 0; i < streams; i++) {
        unsigned part = TEXT_BYTES / streams, room = ROOM - packed_bytes;

        T_EQ("pack",
             BZ2_bzBuffToBuffCompress((char *)packed + packed_bytes, &room, (char *)text + i * part,
                                      part, 1, 0, 0),
             BZ_OK);
        packed_bytes += room;
    }
}

struct heard {
    uint32_t blocks, bad; /* returned; of them, those that do not decompress */
    uint64_t bytes;       /* unpacked, that are in the text at their place */
    uint64_t last_end;    /* in the text */
};

static void take(struct stk_view stream, struct heard *heard)
{
    unsigned bytes = sizeof out;
    int result = BZ2_bzBuffToBuffDecompress((char *)out, &bytes, (char *)(uintptr_t)stream.data,
                                            (unsigned)stream.bytes, 0, 0);
    const uint8_t *found;

    heard->blocks++;
    if (result != BZ_OK) {
        heard->bad++;
        return;
    }
    found = memmem(text + heard->last_end, sizeof text - heard->last_end, out, bytes);
    T_TRUE("a complete block is part of the text", found && bytes > 0);
    heard->bytes += bytes;
    heard->last_end = found ? (uint64_t)(found - text) + bytes : 0;
}

/* Reads data[from .. bytes) in portions. */
static struct heard listen(const uint8_t *data, size_t from, size_t bytes, size_t step)
{
    struct stk_bzip2_blocks *blocks = NULL;
    struct heard heard = {0};
    uint64_t before = 0;

    T_EQ("open", stk_bzip2_blocks_open(&blocks, from, NULL, NULL), 0);
    for (size_t given = from; given < bytes;) {
        struct stk_view in = {data + given, stk_min(step, bytes - given)}, stream;
        size_t offered = in.bytes;
        uint64_t at = 0;

        if (stk_bzip2_blocks_next(blocks, &in, &stream, &at)) {
            T_TRUE("in order", at >= from && at < bytes && (at > before || before == 0));
            before = at;
            take(stream, &heard);
        }
        given += offered - in.bytes;
    }
    stk_bzip2_blocks_close(blocks);
    return heard;
}

static void test_undamaged(void)
{
    for (unsigned streams = 1; streams <= 4; streams *= 2) {
        struct heard heard;
        uint32_t blocks;

        pack(streams);
        heard = listen(packed, 0, packed_bytes, SIZE_MAX);
        blocks = heard.blocks;
        T_EQ("all", heard.bytes, TEXT_BYTES);
        T_EQ("none is bad", heard.bad, 0);
        T_TRUE("blocks", blocks >= TEXT_BYTES / BLOCK_BYTES);
        heard = listen(packed, 0, packed_bytes, 1);
        T_EQ("byte by byte", heard.bytes, TEXT_BYTES);
        T_EQ("byte by byte", heard.blocks, blocks);
    }
}

/* From any byte on: all blocks but those that began before it. */
static void test_begin(void)
{
    uint64_t before = TEXT_BYTES;

    pack(2);
    for (size_t from = 0; from < packed_bytes; from += packed_bytes / 17) {
        struct heard heard = listen(packed, from, packed_bytes, 4096);

        T_TRUE("not more", heard.bytes <= before);
        T_TRUE("not less", heard.bytes + from / 4 * 8 + 2 * BLOCK_BYTES >= TEXT_BYTES);
        T_EQ("none is bad", heard.bad, 0);
        before = heard.bytes;
    }
    T_TRUE("fewer and fewer", before < 2 * BLOCK_BYTES);
}

/* A flipped bit costs a block, or two where it hits the magic between them; a burst likewise. */
static void test_damage(void)
{
    uint32_t bad = 0;

    pack(2);
    for (size_t at = 20; at + 300 < packed_bytes; at += packed_bytes / 31) {
        for (size_t bytes = 1; bytes <= 300; bytes += 299) {
            struct heard heard;

            memcpy(damaged, packed, packed_bytes);
            for (size_t i = 0; i < bytes; i++) {
                damaged[at + i] ^= (uint8_t)(bytes == 1 ? 1u << at % 8 : i * 37 | 1);
            }
            heard = listen(damaged, 0, packed_bytes, 4096);
            bad += heard.bad;
            T_TRUE("intact blocks are found", heard.bytes + 2 * BLOCK_BYTES >= TEXT_BYTES);
            T_TRUE("what is damaged is not", heard.bytes < TEXT_BYTES);
            T_TRUE("one or two", heard.bad <= 2);
        }
    }
    T_TRUE("a CRC was wrong", bad > 15);
}

/* Without the magic number of the end, truncated data is not a block. Nothing is found in noise. */
static void test_none(void)
{
    struct heard heard;

    pack(1);
    heard = listen(packed, 0, packed_bytes - 11, 4096);
    T_TRUE("all but the last", heard.bytes >= TEXT_BYTES - BLOCK_BYTES && heard.bad == 0);
    heard = listen(text, 0, sizeof text, 4096);
    T_EQ("noise", heard.blocks, 0);
    /* Longer than a block can be. */
    memcpy(damaged, packed, 20);
    memset(damaged + 20, 0, sizeof damaged - 20);
    T_EQ("cut", listen(damaged, 0, 1000, 100).blocks, 0);
}

static uint8_t large[STK_BZIP2_BLOCKS_BYTES_MAX + (1 << 20)];

static void test_bound(void)
{
    pack(1);
    memcpy(large, packed, 40);
    memcpy(large + sizeof large - packed_bytes, packed, packed_bytes);
    T_EQ("too long for a block", listen(large, 0, sizeof large, 1 << 20).bytes, TEXT_BYTES);
    T_EQ("and dropped", listen(large, 0, sizeof large, 1 << 20).bad, 0);
}

/* The data begin within a block's magic number, behind its bits that are 0: no bit before the first
 * byte is part of it. */
static void test_cut_magic(void)
{
    uint32_t blocks;

    pack(1);
    blocks = listen(packed, 0, packed_bytes, 4096).blocks;
    for (size_t bits = 1; bits <= 2; bits++) {
        struct heard heard;

        for (size_t i = 0; i + 5 < packed_bytes; i++) {
            damaged[i] = (uint8_t)(packed[i + 4] << bits | packed[i + 5] >> (8 - bits));
        }
        heard = listen(damaged, 0, packed_bytes - 5, 4096);
        T_EQ("all but the first", heard.blocks, blocks - 1);
        T_EQ("none is bad", heard.bad, 0);
    }
}

static bool refuse(void *owner, uint64_t bytes)
{
    return owner == NULL && bytes == 0;
}

static void test_no_memory(void)
{
    struct stk_budget_hooks none = {.reserve = refuse};
    struct stk_bzip2_blocks *blocks = NULL;
    struct stoker_error error = {0};

    T_EQ("granted", stk_bzip2_blocks_open(&blocks, 0, &none, &error), STOKER_ERROR_BUDGET);
    T_ERROR("granted", &error);
    for (uint64_t n = 1; n <= 2; n++) {
        error = (struct stoker_error){0};
        stk_mem_fail_nth(n);
        T_EQ("memory", stk_bzip2_blocks_open(&blocks, 0, NULL, &error), -ENOMEM);
        stk_mem_fail_nth(0);
        T_ERROR("memory", &error);
    }
}

int main(void)
{
    make_text();
    test_undamaged();
    test_begin();
    test_damage();
    test_none();
    test_bound();
    test_cut_magic();
    test_no_memory();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
