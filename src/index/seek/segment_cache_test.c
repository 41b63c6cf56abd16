/* Goal: any bytes of a compressed shard are read correctly, whatever is cached and for any readers;
 * the bytes that a read decompresses are bounded; a damaged shard or seek point is an error, never
 * wrong bytes.
 * Method: a shard compressed by zlib in the simulated file system, with seek points of the builder;
 * random reads (seeded) compared with the data; a count of decompressed bytes; every byte of the
 * shard damaged, I/O calls and allocations fail once; threads. */
#include "base/mem.h"
#include "index/seek/segment_cache.h"

#include "base/random.h"
#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"
#include "io/sim/sim.h"
#include "test/t.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { DATA_BYTES = 2 << 20, SPACING = 64 << 10, READ_BYTES = 40000, READS = 400 };

static uint8_t data[DATA_BYTES], packed[DATA_BYTES + 65536];
static size_t packed_bytes;

static void fill(void)
{
    z_stream stream = {
        .next_in = data, .avail_in = DATA_BYTES, .next_out = packed, .avail_out = sizeof packed};
    uint32_t state = 3;

    for (size_t i = 0; i < DATA_BYTES; i++) {
        state = state * 1664525 + 1013904223;
        data[i] = i >> 16 & 1 ? state >> 24 : (uint8_t)"words of a text "[state >> 28];
    }
    T_EQ("deflate", deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, 0), Z_OK);
    T_EQ("deflate", deflate(&stream, Z_FINISH), Z_STREAM_END);
    packed_bytes = stream.total_out;
    deflateEnd(&stream);
}

static struct stk_view make_image(void)
{
    static uint8_t out[DATA_BYTES + 1];
    struct stk_seek_points_builder *maker;
    struct stk_decompress *unpack;
    struct stk_view image = {NULL, 0}, in = {packed, packed_bytes};
    size_t written;

    T_EQ("maker", stk_seek_points_builder_open(&maker, STK_COMPRESSION_GZIP, SPACING, true, NULL),
         0);
    T_EQ("unpack",
         stk_decompress_open(&unpack, STK_COMPRESSION_GZIP, &(struct stk_decompress_limits){0},
                             NULL),
         0);
    T_EQ("mark", stk_decompress_set_builder(unpack, maker, NULL), 0);
    T_EQ("run", stk_decompress_run(unpack, &in, true, out, sizeof out, &written, NULL), 0);
    T_EQ("image", stk_seek_points_builder_finish(maker, packed_bytes, &image, NULL), 0);
    stk_decompress_close(unpack);
    stk_seek_points_builder_close(maker);
    return image;
}

/* A shard of one member that is all of the data. */
struct rig {
    struct stk_io *world;
    struct stk_index *index;
    struct stk_budget budget;
    struct stk_segment_cache *reach;
    struct stk_segment_cache_source from;
    struct stk_seek_points_head head;
};

static void rig_open(struct rig *rig, uint64_t bytes_max, uint64_t budget_bytes, uint8_t flip,
                     size_t flip_at)
{
    struct stk_io_options io = {.depth = 8, .read_timeout_ms = 1000};
    struct stk_index_options options = {.shard_count = 1};
    struct stk_segment_cache_options reach = {
        .bytes_max = bytes_max, .decompressed_bytes_max = 1 << 30, .decompression_ratio_max = 1100};
    struct stk_index_shard_builder *builder;
    struct stk_view image = make_image();

    *rig = (struct rig){.budget = {.bytes_max = budget_bytes}};
    memcpy(&rig->head, image.data, sizeof rig->head);
    T_EQ("world", stk_sim_open(&rig->world, 1, &io, NULL), 0);
    packed[flip_at] ^= flip;
    T_EQ("add", stk_sim_add(rig->world, "/s.gz", packed, packed_bytes), 0);
    packed[flip_at] ^= flip;
    T_EQ("index", stk_index_open(&rig->index, &options, NULL), 0);
    T_EQ("shard", stk_index_shard_begin(rig->index, 0, "/s.gz", &builder, NULL), 0);
    T_EQ("member",
         stk_index_shard_add(builder, (struct stk_view){(const uint8_t *)"a.x", 3}, 0, DATA_BYTES,
                             NULL),
         0);
    stk_index_shard_set_seek_points(builder, image);
    T_EQ("end", stk_index_shard_end(builder, packed_bytes, STK_COMPRESSION_GZIP, NULL), 0);
    T_EQ("finish", stk_index_finish(rig->index, 0, NULL), 0);
    T_TRUE("reaches",
           stk_index_is_random_access(rig->index, 0) && !stk_index_is_sequential(rig->index));
    T_EQ("reach", stk_segment_cache_open(&rig->reach, rig->world, &rig->budget, &reach, NULL), 0);
    rig->from = (struct stk_segment_cache_source){.index = rig->index};
    T_EQ("file", stk_io_open_file(rig->world, "/s.gz", &rig->from.file, NULL), 0);
}

static void rig_close(struct rig *rig)
{
    stk_segment_cache_close(rig->reach);
    T_EQ("budget", rig->budget.bytes, 0);
    stk_io_close_file(rig->from.file);
    stk_index_close(rig->index);
    stk_io_close(rig->world);
}

/* One read compared with the data. */
static bool read_one(struct rig *rig, uint64_t offset, size_t bytes)
{
    static _Thread_local uint8_t buffer[DATA_BYTES + 1000];
    struct stk_segment_buffer room = {buffer, bytes, 0};
    struct stoker_error error = {0};
    size_t want = stk_min(bytes, DATA_BYTES - stk_min(offset, DATA_BYTES));

    return stk_segment_cache_read(rig->reach, &rig->from, offset, &room, &error) == 0 &&
           room.got == want && memcmp(buffer, data + stk_min(offset, DATA_BYTES), want) == 0;
}

static void test_reads(void)
{
    static const struct keep {
        const char *name;
        uint64_t bytes_max, budget_bytes;
    } rows[] = {
        {"nothing is retained", 0, 1 << 30}, {"a few are cached", 5 * SPACING, 1 << 30},
        {"all is cached", 1 << 30, 1 << 30}, {"a small budget", 1 << 30, 3 * SPACING},
        {"no budget", 1 << 30, 0},
    };

    T_EACH(keep, row, rows)
    {
        struct rig rig;
        uint64_t key = 5;

        rig_open(&rig, row->bytes_max, row->budget_bytes, 0, 0);
        for (int i = 0; i < READS; i++) {
            uint64_t before = stk_segment_cache_decompressed_bytes(rig.reach);
            uint64_t offset = (key = stk_random_key(key, i)) % DATA_BYTES;
            uint64_t bytes = (key >> 32) % READ_BYTES;

            T_TRUE(row->name, read_one(&rig, offset, bytes));
            /* At most the ends of two segments are decompressed in addition to the wanted bytes. */
            T_TRUE(row->name, stk_segment_cache_decompressed_bytes(rig.reach) - before <=
                                  bytes + 2 * rig.head.segment_bytes_max);
            T_TRUE(row->name, rig.budget.bytes <= stk_min(row->bytes_max, row->budget_bytes));
        }
        if (row->bytes_max > DATA_BYTES && row->budget_bytes > DATA_BYTES) {
            T_TRUE(row->name, read_one(&rig, 0, DATA_BYTES));
            T_EQ("each once", stk_segment_cache_decompressed_bytes(rig.reach), DATA_BYTES);
            T_EQ("trim", stk_segment_cache_trim(rig.reach), DATA_BYTES);
            T_EQ("trimmed", rig.budget.bytes, 0);
        }
        T_TRUE("over the end", read_one(&rig, DATA_BYTES - 10, 500));
        T_TRUE("behind it", read_one(&rig, DATA_BYTES, 5) && read_one(&rig, UINT64_MAX - 9, 5));
        T_TRUE("nothing", read_one(&rig, 77, 0));
        rig_close(&rig);
    }
}

/* A changed byte of the shard: an error, or it did not matter. */
static void test_damage(void)
{
    uint32_t errors = 0, rounds = 0;

    for (size_t at = 0; at < packed_bytes; at += packed_bytes / 60) {
        uint8_t buffer[1000];
        struct rig rig;

        rig_open(&rig, 1 << 30, 1 << 30, 0x11, at);
        for (uint64_t offset = 0; offset < DATA_BYTES; offset += SPACING / 2) {
            struct stk_segment_buffer room = {buffer, sizeof buffer, 0};
            struct stoker_error error = {0};
            int status = stk_segment_cache_read(rig.reach, &rig.from, offset, &room, &error);

            errors += status < 0;
            if (status < 0) {
                T_EQ("damage", status, STOKER_ERROR_CORRUPT);
                T_ERROR("damage", &error);
            } else {
                T_TRUE("true bytes", memcmp(buffer, data + offset, sizeof buffer) == 0);
            }
        }
        rounds++;
        rig_close(&rig);
    }
    T_TRUE("damage is found", errors >= rounds - 2);
}

static void test_failures(void)
{
    for (int memory = 0; memory < 2; memory++) {
        uint32_t failed = 0;

        for (uint64_t n = 1; n <= 60; n++) {
            uint8_t buffer[3 * SPACING];
            struct stk_segment_buffer room = {buffer, sizeof buffer, 0};
            struct stoker_error error = {0};
            struct rig rig;
            int status;

            rig_open(&rig, 1 << 30, 1 << 30, 0, 0);
            if (memory) {
                stk_mem_fail_nth(n);
            } else {
                stk_sim_fail_nth(rig.world, n);
            }
            status = stk_segment_cache_read(rig.reach, &rig.from, 1234, &room, &error);
            stk_mem_fail_nth(0);
            stk_sim_fail_nth(rig.world, 0);
            if (status < 0) {
                failed++;
                T_EQ("failure", status, memory ? -ENOMEM : -EIO);
                T_ERROR("failure", &error);
            }
            T_TRUE("again", read_one(&rig, 1234, sizeof buffer));
            rig_close(&rig);
        }
        T_TRUE("failures", failed >= 3);
    }
}

struct reader {
    struct rig *rig;
    uint64_t seed;
    uint32_t wrong;
};

static void *read_many(void *argument)
{
    struct reader *reader = argument;

    for (uint64_t i = 0; i < 150; i++) {
        reader->seed = stk_random_key(reader->seed, i);
        reader->wrong += !read_one(reader->rig, reader->seed % DATA_BYTES, READ_BYTES);
    }
    return NULL;
}

static void test_threads(void)
{
    static const uint64_t keeps[] = {1 << 30, 4 * SPACING, 0};

    for (size_t k = 0; k < STK_COUNT(keeps); k++) {
        struct reader readers[6];
        pthread_t threads[6];
        struct rig rig;

        rig_open(&rig, keeps[k], 1 << 30, 0, 0);
        for (uint32_t i = 0; i < STK_COUNT(readers); i++) {
            readers[i] = (struct reader){&rig, i, 0};
            T_EQ("thread", pthread_create(&threads[i], NULL, read_many, &readers[i]), 0);
        }
        for (uint32_t i = 0; i < STK_COUNT(readers); i++) {
            pthread_join(threads[i], NULL);
            T_EQ("wrong", readers[i].wrong, 0);
        }
        if (keeps[k] > DATA_BYTES) {
            T_TRUE("each once at most",
                   stk_segment_cache_decompressed_bytes(rig.reach) <= DATA_BYTES);
        }
        rig_close(&rig);
    }
}

int main(void)
{
    fill();
    test_reads();
    test_damage();
    test_failures();
    test_threads();
    return t_finish();
}
