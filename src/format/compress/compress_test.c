/* Goal: compressed data decompresses to the original for any portions, and the same input gives the
 * same bytes; reading can begin at frames, as the seek table says; a lack of memory is an error
 * without a leak.
 * Method: each compression, as one stream and in frames, decompressed by decompress.c; the table
 * against the frames that libzstd finds; every allocation fails once.
 * python/tests/test_seek_points.py tests that other programs read it. Covers compress.c,
 * zstd_seek_table.c. */
#include "format/compress/compress.h"

#include "base/mem.h"
#include "format/compress/decompress.h"
#include "format/compress/zstd_seek_table.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { DATA_BYTES = 300000, ROOM = 1 << 20 };

static uint8_t data[DATA_BYTES], packed[ROOM], again[ROOM], out[ROOM];

static const struct packer_row {
    const char *name;
    uint32_t packing;
    int level;
    uint64_t frame_bytes;
    size_t bytes;     /* of the data */
    uint64_t streams; /* that decompression finds; 0: not compared */
} packer_rows[] = {
    {"gzip", STK_COMPRESSION_GZIP, 0, 0, DATA_BYTES, 1},
    {"gzip, fast", STK_COMPRESSION_GZIP, 1, 0, DATA_BYTES, 1},
    {"gzip, members", STK_COMPRESSION_GZIP, 9, STK_COMPRESS_FRAME_MIN, DATA_BYTES, 5},
    {"gzip, members that fill", STK_COMPRESSION_GZIP, 0, STK_COMPRESS_FRAME_MIN,
     2 * STK_COMPRESS_FRAME_MIN, 2},
    {"gzip, nothing", STK_COMPRESSION_GZIP, 0, 0, 0, 1},
    {"zstd", STK_COMPRESSION_ZSTD, 0, 0, DATA_BYTES, 1},
    {"zstd, level 9", STK_COMPRESSION_ZSTD, 9, 0, DATA_BYTES, 1},
    {"zstd, frames", STK_COMPRESSION_ZSTD, 0, STK_COMPRESS_FRAME_MIN, DATA_BYTES,
     6}, /* and the table */
    {"zstd, frames that fill", STK_COMPRESSION_ZSTD, 0, STK_COMPRESS_FRAME_MIN,
     2 * STK_COMPRESS_FRAME_MIN, 3},
    {"zstd, small frames", STK_COMPRESSION_ZSTD, 0, 1, 70000, 3},
    {"bzip2", STK_COMPRESSION_BZIP2, 0, 0, DATA_BYTES, 1},
    {"bzip2, streams", STK_COMPRESSION_BZIP2, 1, STK_COMPRESS_FRAME_MIN, DATA_BYTES, 5},
    {"bzip2, streams that fill", STK_COMPRESSION_BZIP2, 0, STK_COMPRESS_FRAME_MIN,
     2 * STK_COMPRESS_FRAME_MIN, 2},
    {"xz", STK_COMPRESSION_XZ, 0, 0, DATA_BYTES, 1},
    {"xz, blocks", STK_COMPRESSION_XZ, 1, STK_COMPRESS_FRAME_MIN, DATA_BYTES, 1},
    {"xz, blocks that fill", STK_COMPRESSION_XZ, 0, STK_COMPRESS_FRAME_MIN,
     2 * STK_COMPRESS_FRAME_MIN, 1},
};

static void fill_data(void)
{
    uint32_t state = 1;

    for (size_t i = 0; i < DATA_BYTES; i++) {
        state = state * 1664525 + 1013904223;
        data[i] = (uint8_t)(i % 4096 < 2048 ? i / 100 : state >> 24);
    }
}

/* Compresses; returns the size, or a failure. in_step, out_step: of each call; 0: all. */
static int64_t pack(const struct packer_row *row, size_t in_step, size_t out_step, uint8_t *to)
{
    struct stk_compress_options options = {row->packing, row->level, row->frame_bytes, NULL};
    struct stk_compress *packer = NULL;
    struct stoker_error error = {0};
    struct stk_view in = {data, 0};
    struct stk_compress_output room;
    size_t given = 0, total = 0;
    int more = stk_compress_open(&packer, &options, &error);

    for (more = more < 0 ? more : 1; more == 1;) {
        size_t step = stk_min(in_step ? in_step : DATA_BYTES, row->bytes - given);

        in.bytes += step;
        given += step;
        room = (struct stk_compress_output){to + total,
                                            stk_min(out_step ? out_step : ROOM, ROOM - total), 0};
        more = stk_compress_run(packer, &in, given == row->bytes, &room, &error);
        total += more < 0 ? 0 : room.used;
    }
    if (more < 0) {
        T_ERROR(row->name, &error);
    }
    stk_compress_close(packer);
    return more < 0 ? more : (int64_t)total;
}

static void unpack(const struct packer_row *row, size_t bytes)
{
    struct stk_view in = {packed, bytes};
    struct stk_decompress *unpack = NULL;
    struct stoker_error error = {0};
    size_t total = 0, written = 0;
    int more = 1;

    T_EQ(row->name, stk_compression_detect(in), row->packing);
    T_EQ(row->name,
         stk_decompress_open(&unpack, row->packing, &(struct stk_decompress_limits){0}, &error), 0);
    while (more == 1) {
        more = stk_decompress_run(unpack, &in, true, out + total, ROOM - total, &written, &error);
        total += written;
    }
    T_EQ(row->name, more, 0);
    T_EQ(row->name, total, row->bytes);
    T_TRUE(row->name, memcmp(out, data, row->bytes) == 0);
    T_EQ(row->name, stk_decompress_stream_count(unpack), row->streams);
    stk_decompress_close(unpack);
}

/* The table compared with libzstd's information of each frame. */
static void check_table(const struct packer_row *row, size_t bytes)
{
    struct stk_zstd_seek_table table;
    uint64_t at = 0, done = 0;

    if (!T_EQ(row->name,
              stk_zstd_seek_table_read_footer((struct stk_view){packed + bytes - 9, 9}, bytes,
                                              &table, NULL),
              1)) {
        return;
    }
    T_TRUE(row->name, stk_zstd_seek_table_head_is_valid(&table, packed + table.at));
    for (uint32_t i = 0; i < table.frame_count; i++) {
        uint32_t packed_bytes, plain_bytes;

        stk_zstd_seek_table_read_entry(packed + stk_zstd_seek_table_entry_offset(&table, i),
                                       &packed_bytes, &plain_bytes);
        T_EQ(row->name, packed_bytes, ZSTD_findFrameCompressedSize(packed + at, bytes - at));
        T_EQ(row->name, plain_bytes, ZSTD_getFrameContentSize(packed + at, bytes - at));
        at += packed_bytes;
        done += plain_bytes;
    }
    T_EQ(row->name, at, table.at);
    T_EQ(row->name, done, row->bytes);
}

static void test_rows(void)
{
    static const size_t steps[][2] = {{1, 0}, {0, 7}, {513, 100}, {4096, 65536}};

    T_EACH(packer_row, row, packer_rows)
    {
        int64_t bytes = pack(row, 0, 0, packed);

        if (!T_TRUE(row->name, bytes > 0)) {
            continue;
        }
        unpack(row, (size_t)bytes);
        if (row->packing == STK_COMPRESSION_ZSTD && row->frame_bytes) {
            check_table(row, (size_t)bytes);
        }
        for (size_t i = 0; i < STK_COUNT(steps); i++) {
            T_EQ("portions", pack(row, steps[i][0], steps[i][1], again), bytes);
            T_TRUE("the same bytes", memcmp(packed, again, (size_t)bytes) == 0);
        }
    }
}

/* Compression with the level that the stream reports gives the same stream. */
static void test_level(void)
{
    static const struct packer_row rows[] = {
        {"gzip 1", STK_COMPRESSION_GZIP, 1, 0, 5000, 1},
        {"gzip 9", STK_COMPRESSION_GZIP, 9, 0, 5000, 1},
        {"gzip 6", STK_COMPRESSION_GZIP, 0, 0, 5000, 1},
        {"bzip2 3", STK_COMPRESSION_BZIP2, 3, 0, 5000, 1},
        {"zstd says nothing", STK_COMPRESSION_ZSTD, 0, 0, 5000, 1},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        int64_t bytes = pack(&rows[i], 0, 0, packed);

        T_EQ(rows[i].name,
             stk_compress_detect_level(rows[i].packing, (struct stk_view){packed, (size_t)bytes}),
             rows[i].level);
        T_EQ("of nothing", stk_compress_detect_level(rows[i].packing, (struct stk_view){packed, 2}),
             0);
    }
}

static void test_no_memory(void)
{
    T_EACH(packer_row, row, packer_rows)
    {
        uint64_t alive = stk_mem_alive(), before = stk_mem_calls(), calls;

        pack(row, 0, 0, again);
        calls = stk_min(stk_mem_calls() - before, 40);
        for (uint64_t n = 1; n <= calls; n++) {
            stk_mem_fail_nth(n);
            T_EQ(row->name, pack(row, 0, 0, again), -ENOMEM);
            stk_mem_fail_nth(0);
            T_EQ("no leak", stk_mem_alive(), alive);
        }
    }
}

static const struct foot_row {
    const char *name;
    uint8_t foot[9];
    uint64_t file_bytes;
    int want;
} foot_rows[] = {
    {"a table", {2, 0, 0, 0, 0, 0xb1, 0xea, 0x92, 0x8f}, 1000, 1},
    {"with checksums", {2, 0, 0, 0, 0x80, 0xb1, 0xea, 0x92, 0x8f}, 1000, 1},
    {"unused bits", {2, 0, 0, 0, 3, 0xb1, 0xea, 0x92, 0x8f}, 1000, 1},
    {"reserved bits", {2, 0, 0, 0, 4, 0xb1, 0xea, 0x92, 0x8f}, 1000, STOKER_ERROR_CORRUPT},
    {"no table", {2, 0, 0, 0, 0, 0xb1, 0xea, 0x92, 0x8e}, 1000, 0},
    {"too many frames for the file",
     {200, 0, 0, 0, 0, 0xb1, 0xea, 0x92, 0x8f},
     1000,
     STOKER_ERROR_CORRUPT},
    {"too many frames for any",
     {1, 0, 0, 8, 0, 0xb1, 0xea, 0x92, 0x8f},
     UINT64_MAX / 2,
     STOKER_ERROR_CORRUPT},
    {"larger than the file", {0, 0, 0, 0, 0, 0xb1, 0xea, 0x92, 0x8f}, 16, STOKER_ERROR_CORRUPT},
};

static void test_foot(void)
{
    T_EACH(foot_row, row, foot_rows)
    {
        struct stk_zstd_seek_table table;
        struct stoker_error error = {0};
        int status = stk_zstd_seek_table_read_footer((struct stk_view){row->foot, 9},
                                                     row->file_bytes, &table, &error);

        T_EQ(row->name, status, row->want);
        if (status < 0) {
            T_ERROR(row->name, &error);
        }
        T_TRUE(row->name, status == 1 || table.frame_count == 0);
        T_TRUE(row->name, status != 1 || table.at + table.bytes == row->file_bytes);
    }
}

int main(void)
{
    fill_data();
    test_rows();
    test_level();
    test_no_memory();
    test_foot();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
