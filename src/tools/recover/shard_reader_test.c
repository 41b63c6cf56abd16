/* Goal: a reader returns the tar's bytes, wherever the compressed data is damaged: data after an
 * exact gap has its offset; data under a wrong checksum is doubted; a second read returns the same;
 * no wrong data is returned without an error; a wrong end of a stream loses nothing, and a wrong
 * seek table is detected. Method: tars of noise compressed by compress.c over simulated files,
 * damaged by bursts, cuts and flips; pieces compared with the tar; an index of the complete shard;
 * fail-nth. Covers shard_reader.c, resume_points.c, seek_table_check.c. */
#include "tools/recover/shard_reader.h"

#include "base/mem.h"
#include "format/compress/compress.h"
#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"
#include "io/sim/sim.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { MEMBERS = 60, ROOM = 4 << 20 };

static struct t_tar tar;
static uint8_t packed[ROOM], tail[ROOM];

static const struct reader_row {
    const char *name;
    uint32_t packing;
    uint64_t frame_bytes;
    bool index; /* with access points */
    bool no_table;
    bool exact; /* gaps have an end that is known */
} reader_rows[] = {
    {"gzip", STK_COMPRESSION_GZIP, 0, false, false, false},
    {"gzip, members", STK_COMPRESSION_GZIP, 65536, false, false, false},
    {"gzip, index", STK_COMPRESSION_GZIP, 0, true, false, true},
    {"zstd", STK_COMPRESSION_ZSTD, 0, false, false, false},
    {"zstd, table", STK_COMPRESSION_ZSTD, 65536, false, false, true},
    {"zstd, frames", STK_COMPRESSION_ZSTD, 65536, false, true, false},
    {"zstd, index", STK_COMPRESSION_ZSTD, 65536, true, false, true},
    {"bzip2", STK_COMPRESSION_BZIP2, 65536, false, false, false},
    {"bzip2, blocks", STK_COMPRESSION_BZIP2, 0, false, false, false},
    {"xz", STK_COMPRESSION_XZ, 0, false, false, false},
};

static void make_tar(void)
{
    static uint8_t value[20000];
    uint32_t state = 1;

    for (int i = 0; i < MEMBERS; i++) {
        char name[32];
        size_t bytes = 500 + (size_t)i * 7919 % 19000;

        for (size_t b = 0; b < bytes; b++) {
            state = state * 1664525 + 1013904223;
            value[b] = (uint8_t)(b % 512 < 256 ? 'a' + (state >> 24) % 4 : state >> 24);
        }
        snprintf(name, sizeof name, "%03d.bin", i);
        t_tar_add(&tar, name, value, bytes);
    }
    t_tar_end(&tar);
}

static size_t pack(const struct reader_row *row)
{
    int level = row->packing == STK_COMPRESSION_BZIP2 ? 1 : 0; /* blocks of 100,000 bytes */
    struct stk_compress_options options = {row->packing, level, row->frame_bytes, NULL};
    struct stk_compress_output room = {packed, ROOM, 0};
    struct stk_view in = {tar.data, tar.bytes};
    struct stk_compress *packer = NULL;

    T_EQ(row->name, stk_compress_open(&packer, &options, NULL), 0);
    T_EQ(row->name, stk_compress_run(packer, &in, true, &room, NULL), 0);
    stk_compress_close(packer);
    return room.used - (row->no_table ? 4 : 0); /* a table without its end is invalid */
}

struct rig {
    struct stk_io *world;
    struct stoker_engine *engine;
    struct stk_index *index; /* of the whole shard, with seek points; or NULL */
};

/* As the indexer makes it, without members. */
static void make_index(struct rig *rig, const struct reader_row *row, size_t bytes)
{
    static uint8_t out[ROOM];
    struct stk_index_options options = {.shard_count = 1};
    struct stk_index_shard_builder *builder = NULL;
    struct stk_seek_points_builder *maker = NULL;
    struct stk_decompress *unpack = NULL;
    struct stk_view in = {packed, bytes}, image;
    size_t written, total = 0;
    int more = 1;

    T_EQ("maker", stk_seek_points_builder_open(&maker, row->packing, 65536, true, NULL), 0);
    T_EQ("unpack",
         stk_decompress_open(&unpack, row->packing, &(struct stk_decompress_limits){0}, NULL), 0);
    T_EQ("mark", stk_decompress_set_builder(unpack, maker, NULL), 0);
    while (more == 1) {
        more = stk_decompress_run(unpack, &in, true, out + total, ROOM - total, &written, NULL);
        total += written;
    }
    T_EQ("unpacked", total, tar.bytes);
    T_EQ("points", stk_seek_points_builder_finish(maker, bytes, &image, NULL), 0);
    T_EQ("index", stk_index_open(&rig->index, &options, NULL), 0);
    T_EQ("shard", stk_index_shard_begin(rig->index, 0, "/damaged", &builder, NULL), 0);
    T_EQ("member",
         stk_index_shard_add(builder, (struct stk_view){(const uint8_t *)"a.bin", 5}, 512, 1, NULL),
         0);
    stk_index_shard_set_seek_points(builder, image);
    T_EQ("end", stk_index_shard_end(builder, bytes, row->packing, NULL), 0);
    T_EQ("finish", stk_index_finish(rig->index, 0, NULL), 0);
    stk_decompress_close(unpack);
    stk_seek_points_builder_close(maker);
}

static void rig_open(struct rig *rig, const struct reader_row *row, size_t bytes)
{
    struct stk_io_options io = {.depth = 8, .read_timeout_ms = 1000};
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 1, .memory_bytes_max = 64u << 20};

    *rig = (struct rig){0};
    T_EQ("world", stk_sim_open(&rig->world, 1, &io, NULL), 0);
    T_EQ("engine", stk_engine_open_with_io(&rig->engine, rig->world, &options, NULL), 0);
    if (row->index) {
        make_index(rig, row, bytes);
    }
}

static void rig_close(struct rig *rig)
{
    stk_index_close(rig->index);
    stoker_engine_close(rig->engine);
}

/* The output of a reader. */
struct heard {
    uint64_t good, lost;          /* bytes of the tar in their place; those of gaps that end */
    uint64_t before, from;        /* bytes that the last gap does not doubt; their start */
    uint64_t behind;              /* bytes in `tail`: returned since the last gap */
    uint64_t sum;                 /* over all pieces and gaps */
    uint64_t doubtful;            /* bytes of wrongs */
    uint32_t gaps, wrongs, kinds; /* kinds: a bit for each of wrongs */
    uint64_t unpacked;
    const char *lie;
    bool ended_early, doubted, exact;
    int status;
};

static bool is_wrong(const struct stk_shard_reader *shard_reader, uint64_t at)
{
    for (uint32_t i = 0; i < shard_reader->error_count; i++) {
        if (at >= shard_reader->errors[i].from && at < shard_reader->errors[i].to) {
            return true;
        }
    }
    return false;
}

/* exact: whether offsets are the tar's own. first_bad: a byte that is not the tar's, or the end. */
static void compare(const struct stk_shard_reader *shard_reader, struct heard *heard, bool exact,
                    uint64_t *first_bad)
{
    for (size_t i = 0; exact && i < shard_reader->piece.bytes; i++) {
        uint64_t at = shard_reader->offset + i;

        if (at < tar.bytes && shard_reader->piece.data[i] == tar.data[at]) {
            heard->good++;
        } else if (at < *first_bad) {
            *first_bad = at;
        }
    }
}

/* All of the file was hashed and counted, each byte once, also where it was read again. */
static void check_digest(const char *name, struct stk_sha256 *heard, uint64_t bytes)
{
    uint8_t digest[32], want[32];
    struct stk_sha256 sha;

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, packed, stk_min(bytes, ROOM));
    stk_sha256_done(&sha, want);
    stk_sha256_done(heard, digest);
    T_TRUE(name, bytes > 0 && memcmp(digest, want, sizeof want) == 0);
}

static void listen(const char *name, struct rig *rig, struct heard *heard)
{
    struct stk_shard_reader_options options = {
        .decompressed_bytes_max = 1ull << 40, .decompression_ratio_max = 1100, .index = rig->index};
    struct stk_read_ahead reader;
    struct stk_shard_reader shard_reader = {0};
    struct stoker_error error = {0};
    struct stk_sha256 sha;
    _Atomic uint64_t counter = 0;
    uint64_t first_bad = UINT64_MAX;
    bool exact = true;
    int event;

    *heard = (struct heard){0};
    stk_sha256_init(&sha);
    options.sha = &sha;
    options.counter = &counter;
    stk_read_ahead_init(&reader, rig->engine);
    event = stk_read_ahead_start(&reader, "/damaged", &error);
    event = event < 0 ? event : stk_shard_reader_start(&shard_reader, &reader, &options, &error);
    event = event < 0 ? event : STK_SHARD_READER_PIECE;
    while (event > 0) {
        event = stk_shard_reader_next(&shard_reader, &error);
        if (event == STK_SHARD_READER_PIECE) {
            T_TRUE(name, shard_reader.piece.bytes > 0);
            compare(&shard_reader, heard, exact, &first_bad);
            memcpy(tail + heard->behind, shard_reader.piece.data, shard_reader.piece.bytes);
            heard->behind += shard_reader.piece.bytes;
            heard->sum = heard->sum * 31 +
                         stk_xxh3_64(shard_reader.piece.data, shard_reader.piece.bytes) +
                         shard_reader.offset;
        } else if (event == STK_SHARD_READER_GAP) {
            exact = exact && shard_reader.gap.exact;
            heard->exact = shard_reader.gap.exact;
            heard->gaps++;
            heard->before = shard_reader.gap.doubted_from;
            heard->from = shard_reader.gap.from;
            heard->behind = 0;
            heard->ended_early = shard_reader.gap.to == UINT64_MAX;
            heard->lost += heard->ended_early ? 0 : shard_reader.gap.to - shard_reader.gap.from;
            heard->doubted |= shard_reader.gap.doubted_from < shard_reader.gap.from;
            heard->sum = heard->sum * 31 + shard_reader.gap.from + shard_reader.gap.to;
            T_ERROR(name, &shard_reader.gap.error);
            T_TRUE(name, shard_reader.gap.from % 512 == 0 &&
                             shard_reader.gap.doubted_from <= shard_reader.gap.from);
            /* A wrong byte before the gap is in the doubted range, or a checksum of the index
             * detects it; gzip may detect damage late. */
            T_TRUE(name, first_bad >= shard_reader.gap.doubted_from ||
                             is_wrong(&shard_reader, first_bad) ||
                             (shard_reader.compression == STK_COMPRESSION_GZIP && !rig->index));
            first_bad = UINT64_MAX;
        }
    }
    T_TRUE(name, event < 0 || first_bad == UINT64_MAX || is_wrong(&shard_reader, first_bad));
    heard->wrongs = shard_reader.error_count;
    for (uint32_t i = 0; i < shard_reader.error_count; i++) {
        heard->kinds |= 1u << shard_reader.errors[i].kind;
        heard->doubtful += shard_reader.errors[i].to - shard_reader.errors[i].from;
    }
    heard->lie = shard_reader.mismatch.what;
    heard->unpacked = shard_reader.bytes;
    heard->status = event;
    if (event == 0 && stk_shard_reader_drain(&shard_reader, &error) == 0) {
        check_digest(name, &sha, counter);
    }
    stk_shard_reader_stop(&shard_reader);
    stk_read_ahead_deinit(&reader);
}

static void test_undamaged(void)
{
    T_EACH(reader_row, row, reader_rows)
    {
        struct heard heard;
        struct rig rig;
        size_t bytes = pack(row);

        rig_open(&rig, row, bytes);
        stk_sim_add(rig.world, "/damaged", packed, bytes);
        listen(row->name, &rig, &heard);
        T_EQ(row->name, heard.good, tar.bytes);
        T_EQ(row->name, heard.gaps, row->no_table ? 1 : 0);
        T_TRUE(row->name, !heard.lie);
        rig_close(&rig);
    }
}

/* A burst in the middle, at many places. */
static void test_damage(void)
{
    T_EACH(reader_row, row, reader_rows)
    {
        size_t bytes = pack(row);
        uint32_t exact = 0, gaps = 0;

        for (size_t at = bytes / 5; at < bytes * 4 / 5; at += bytes / 5) {
            struct heard heard, again;
            struct rig rig;

            bytes = pack(row);
            rig_open(&rig, row, bytes);
            for (size_t i = 0; i < 700; i++) {
                packed[at + i] ^= (uint8_t)(i * 37 | 1);
            }
            stk_sim_add(rig.world, "/damaged", packed, bytes);
            listen(row->name, &rig, &heard);
            listen(row->name, &rig, &again);
            T_EQ(row->name, heard.status, 0);
            T_EQ("again the same", heard.sum, again.sum);
            T_TRUE(row->name, heard.gaps > 0 || heard.wrongs > 0);
            gaps += heard.gaps - row->no_table;
            exact += heard.gaps > 0 && !heard.ended_early;
            if (row->exact) { /* nothing but the damaged part is missing, or doubted */
                T_TRUE(row->name, heard.good + heard.lost + 300000 >= tar.bytes);
                T_TRUE(row->name, heard.good > tar.bytes / 2);
            }
            rig_close(&rig);
        }
        T_TRUE(row->name, gaps > 0);
        T_TRUE(row->name, exact > 0 || row->frame_bytes == 0 || row->no_table);
    }
}

/* Blocks after a damaged one of a single stream: all but that one. */
static void test_blocks(void)
{
    static const struct reader_row row = {
        "bzip2, blocks", STK_COMPRESSION_BZIP2, 0, false, false, false};
    size_t bytes = pack(&row);

    for (size_t at = bytes / 4; at < bytes * 3 / 4; at += bytes / 8) {
        struct heard heard;
        struct rig rig;

        packed[at] ^= 0x10;
        rig_open(&rig, &row, bytes);
        stk_sim_add(rig.world, "/damaged", packed, bytes);
        listen(row.name, &rig, &heard);
        T_EQ(row.name, heard.gaps, 1);
        T_TRUE(row.name, !heard.ended_early);
        T_TRUE("a block and a member", heard.before + heard.behind + 130000 >= tar.bytes);
        T_TRUE("no more", heard.before + heard.behind < tar.bytes);
        T_TRUE("the rest of the tar",
               memcmp(tail, tar.data + tar.bytes - heard.behind, heard.behind) == 0);
        packed[at] ^= 0x10;
        rig_close(&rig);
    }
}

/* The bytes are all there, and the end of a stream is wrong. */
static void test_ends(void)
{
    static const struct end_row {
        const char *name;
        struct reader_row row;
        int from_end; /* the byte that is flipped */
        uint32_t kind;
        uint64_t doubtful; /* at least */
    } rows[] = {
        {"gzip, CRC",
         {"", STK_COMPRESSION_GZIP, 0, false, false, false},
         8,
         STK_SHARD_ERROR_CHECKSUM,
         500000},
        {"gzip, size",
         {"", STK_COMPRESSION_GZIP, 0, false, false, false},
         1,
         STK_SHARD_ERROR_STREAM_END,
         0},
        {"a gzip member",
         {"", STK_COMPRESSION_GZIP, 65536, false, false, false},
         6,
         STK_SHARD_ERROR_CHECKSUM,
         1},
        {"gzip, index",
         {"", STK_COMPRESSION_GZIP, 0, true, false, true},
         8,
         STK_SHARD_ERROR_STREAM_END,
         0},
        {"bzip2",
         {"", STK_COMPRESSION_BZIP2, 0, false, false, false},
         3,
         STK_SHARD_ERROR_STREAM_END,
         0},
    };

    T_EACH(end_row, row, rows)
    {
        size_t bytes = pack(&row->row);
        struct heard heard;
        struct rig rig;

        rig_open(&rig, &row->row, bytes);
        packed[bytes - (size_t)row->from_end] ^= 1;
        stk_sim_add(rig.world, "/damaged", packed, bytes);
        listen(row->name, &rig, &heard);
        T_EQ(row->name, heard.gaps, 0);
        T_EQ(row->name, heard.good, tar.bytes);
        T_EQ(row->name, heard.kinds, 1u << row->kind);
        T_TRUE(row->name, row->kind != STK_SHARD_ERROR_CHECKSUM ||
                              (heard.doubtful >= row->doubtful && heard.doubtful <= tar.bytes));
        rig_close(&rig);
    }
}

/* A wrong seek table costs nothing, and is reported: whatever its entries or its footer contain. */
static void test_table(void)
{
    static const struct reader_row row = {"table", STK_COMPRESSION_ZSTD, 65536, false, false, true};
    size_t bytes = pack(&row), entries;
    struct heard heard;
    struct rig rig;

    entries = bytes - 9 - 8 * (size_t)(packed[bytes - 9] | packed[bytes - 8] << 8);
    for (size_t at = entries; at < bytes - 4; at += at < bytes - 12 ? 3 : 1) {
        bool reserved = at == bytes - 5; /* flags: bits of it mean nothing */

        packed[at] ^= (uint8_t)(reserved ? 4 : 1 << at % 8);
        rig_open(&rig, &row, bytes);
        stk_sim_add(rig.world, "/damaged", packed, bytes);
        listen(row.name, &rig, &heard);
        T_EQ(row.name, heard.good, tar.bytes);
        T_EQ(row.name, heard.gaps, 0);
        T_TRUE("it lies", heard.lie);
        packed[at] ^= (uint8_t)(reserved ? 4 : 1 << at % 8);
        rig_close(&rig);
    }
}

/* A table that was wrong is not used after damage: the next data is a frame that was found. */
static void test_table_that_lied(void)
{
    static const struct reader_row row = {"table", STK_COMPRESSION_ZSTD, 65536, false, false, true};

    for (int lies = 0; lies < 2; lies++) {
        size_t bytes = pack(&row);
        size_t entries = bytes - 9 - 8 * (size_t)(packed[bytes - 9] | packed[bytes - 8] << 8);
        struct heard heard;
        struct rig rig;

        packed[entries + 4] ^= lies ? 1 : 0;     /* bytes of the first frame */
        memset(packed + bytes / 2, 0xa5, 70000); /* with the begin of a frame */
        rig_open(&rig, &row, bytes);
        stk_sim_add(rig.world, "/damaged", packed, bytes);
        listen(row.name, &rig, &heard);
        T_TRUE(row.name, heard.gaps > 0);
        T_EQ("exact", heard.exact, !lies);
        T_TRUE("lies", !heard.lie == !lies);
        T_TRUE("the rest of the tar",
               heard.behind > tar.bytes / 5 && heard.behind < tar.bytes &&
                   memcmp(tail, tar.data + tar.bytes - heard.behind, heard.behind) == 0);
        rig_close(&rig);
    }
}

/* The table ends a frame early, and is as it should be otherwise. */
static void test_table_too_short(void)
{
    static const struct reader_row row = {"table", STK_COMPRESSION_ZSTD, 65536, false, false, true};
    size_t bytes = pack(&row), count = packed[bytes - 9], entries = bytes - 9 - 8 * count;
    struct heard heard;
    struct rig rig;

    memmove(packed + bytes - 17, packed + bytes - 9, 9);
    bytes -= 8;
    packed[bytes - 9]--;
    T_EQ("its size", packed[entries - 4] | packed[entries - 3] << 8, 8 * count + 9);
    packed[entries - 4] = (uint8_t)(8 * count + 1);
    packed[entries - 3] = (uint8_t)((8 * count + 1) >> 8);
    rig_open(&rig, &row, bytes);
    stk_sim_add(rig.world, "/damaged", packed, bytes);
    listen(row.name, &rig, &heard);
    T_EQ(row.name, heard.good, tar.bytes);
    T_TRUE("it lies", heard.lie && strstr(heard.lie, "does not list all"));
    rig_close(&rig);
}

/* A frame without a checksum, of noise in raw blocks: damage that a block shows may have begun in
 * the one before. */
static void test_block_before(void)
{
    static const struct reader_row row = {
        "zstd, no checksum", STK_COMPRESSION_ZSTD, 0, false, false, false};
    size_t bytes = ZSTD_compress(packed, ROOM, tar.data, tar.bytes, 3);
    struct heard heard;
    struct rig rig;

    T_TRUE("packed", !ZSTD_isError(bytes));
    memset(packed + bytes / 2, 0xff, 100000); /* with a block header of an undefined kind */
    rig_open(&rig, &row, bytes);
    stk_sim_add(rig.world, "/damaged", packed, bytes);
    listen(row.name, &rig, &heard);
    T_EQ(row.name, heard.gaps, 1);
    T_EQ(row.name, heard.from / 512 - heard.before / 512, 256);
    rig_close(&rig);
}

/* A wrong checksum of data without a header, which is left out, says nothing about the data before
 * it. */
static void test_wrong_in_a_gap(void)
{
    static const struct reader_row row = {
        "gzip, members", STK_COMPRESSION_GZIP, 65536, false, false, false};
    static uint8_t value[500000];
    struct t_tar noise = tar;
    size_t bytes, starts[64], count = 0;
    struct heard heard;
    struct rig rig;
    uint32_t state = 7;

    for (size_t i = 0; i < sizeof value; i++) {
        state = state * 1664525 + 1013904223;
        value[i] = (uint8_t)(state >> 24);
    }
    tar = (struct t_tar){0};
    t_tar_add(&tar, "large.bin", value, sizeof value);
    t_tar_add(&tar, "small.bin", value, 1000);
    t_tar_end(&tar);
    bytes = pack(&row);
    for (size_t at = 0; at + 4 < bytes && count < STK_COUNT(starts); at++) {
        if (memcmp(packed + at, "\x1f\x8b\x08\0", 4) == 0) {
            starts[count++] = at;
        }
    }
    if (T_TRUE("members", count > 6)) {
        memset(packed + starts[2] + 10, 0xff, 16); /* no block of deflate begins so */
        packed[starts[5] - 8] ^= 1;                /* the CRC of the fifth */
        rig_open(&rig, &row, bytes);
        stk_sim_add(rig.world, "/damaged", packed, bytes);
        listen(row.name, &rig, &heard);
        T_EQ(row.name, heard.gaps, 1);
        T_EQ(row.name, heard.wrongs, 0);
        T_TRUE("small.bin is there", heard.behind >= 512 + 1000);
        rig_close(&rig);
    }
    t_tar_free(&tar);
    tar = noise;
}

/* Blocks that a few bytes unpack to are not unpacked for ever, also after a damaged one. */
static void test_blocks_of_zeros(void)
{
    static const struct reader_row row = {"bzip2, zeros", STK_COMPRESSION_BZIP2, 0, false, false,
                                          false};
    struct t_tar noise = tar;
    struct heard heard;
    struct rig rig;
    size_t bytes;

    tar = (struct t_tar){.data = calloc(1, 64u << 20), .bytes = 64u << 20};
    bytes = pack(&row);
    T_TRUE("small", tar.data && bytes < tar.bytes / 2000);
    packed[20] ^= 1;
    rig_open(&rig, &row, bytes);
    stk_sim_add(rig.world, "/damaged", packed, bytes);
    listen(row.name, &rig, &heard);
    T_EQ("status", heard.status, 0);
    T_TRUE("it ends there", heard.ended_early && heard.unpacked > 0);
    T_TRUE("bounded", heard.unpacked < 1101 * bytes + (2u << 20));
    rig_close(&rig);
    free(tar.data);
    tar = noise;
}

/* The data before a cut is returned; the end is a gap without an end. */
static void test_cut(void)
{
    T_EACH(reader_row, row, reader_rows)
    {
        size_t bytes = pack(row);
        struct heard heard;
        struct rig rig;

        rig_open(&rig, row, bytes);
        stk_sim_add(rig.world, "/damaged", packed, bytes / 2);
        listen(row->name, &rig, &heard);
        T_EQ(row->name, heard.gaps, 1);
        T_TRUE(row->name, heard.ended_early && !heard.doubted);
        /* bzip2 returns a block once it has all of it. */
        T_TRUE(row->name, heard.good > tar.bytes / 4 && heard.good < tar.bytes);
        rig_close(&rig);
    }
}

static void test_no_memory(void)
{
    T_EACH(reader_row, row, reader_rows)
    {
        size_t bytes = pack(row);
        struct heard heard;
        struct rig rig;
        uint64_t calls, alive;

        rig_open(&rig, row, bytes);
        memset(packed + bytes / 3, 0xa5, 700);
        stk_sim_add(rig.world, "/damaged", packed, bytes);
        alive = stk_mem_alive();
        calls = stk_mem_calls();
        listen(row->name, &rig, &heard);
        calls = stk_mem_calls() - calls;
        for (uint64_t n = 1; n <= stk_min(calls, 20); n++) {
            stk_mem_fail_nth(n);
            listen(row->name, &rig, &heard);
            stk_mem_fail_nth(0);
            T_TRUE(row->name, heard.status == -ENOMEM || heard.status == 0);
            T_EQ("no leak", stk_mem_alive(), alive);
        }
        rig_close(&rig);
    }
}

int main(void)
{
    make_tar();
    test_undamaged();
    test_damage();
    test_blocks();
    test_ends();
    test_table();
    test_table_that_lied();
    test_table_too_short();
    test_wrong_in_a_gap();
    test_block_before();
    test_blocks_of_zeros();
    test_cut();
    test_no_memory();
    t_tar_free(&tar);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
