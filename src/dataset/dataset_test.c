/* Goal: a data set's samples can be looked up and read singly, with few files open, plain or
 * packed; jobs of the engine report the lowest failed round; wrong options are errors.
 * Method: tars in the simulated world; rows of damage; counts. Covers dataset.c,
 * dataset_read.c, dataset_change.c, dataset_scan.c, shard_scan.c, shard_stream.c, open_files.c,
 * engine.c and worker.c. */
#include "dataset/dataset.h"
#include "io/sim/sim.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <string.h>

#define SHARDS 12

static struct stoker_engine *open_engine(struct stk_io **world_out)
{
    struct stk_io_options io = {.depth = 8, .read_timeout_ms = 1000};
    struct stoker_engine_options options = {.struct_size = sizeof options,
                                            .threads = 2,
                                            .memory_bytes_max = 64u << 20,
                                            .open_files_max = 2};
    struct stoker_engine *engine = NULL;

    T_EQ("world", stk_sim_open(world_out, 1, &io, NULL), 0);
    T_EQ("engine", stk_engine_open_with_io(&engine, *world_out, &options, NULL), 0);
    return engine;
}

static int open_dataset(struct stoker_engine *engine, const char *url,
                        struct stoker_dataset **dataset_out, struct stoker_error *error)
{
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = &url, .url_count = 1};

    return stoker_dataset_open(dataset_out, engine, &options, error);
}

static void make_shard(struct t_tar *tar, int shard)
{
    char name[32], text[32];

    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "k%d-%d.txt", shard, i);
        snprintf(text, sizeof text, "value %d of %d", i, shard);
        t_tar_add(tar, name, text, strlen(text));
        snprintf(name, sizeof name, "k%d-%d.num", shard, i);
        t_tar_add(tar, name, "7", 1);
    }
    t_tar_end(tar);
}

static void check_reads(const char *name, struct stoker_dataset *dataset)
{
    for (uint64_t sample = 0; sample < 3 * SHARDS; sample++) {
        struct stoker_member_info members[4];
        struct stoker_error error = {0};
        size_t count = STK_COUNT(members), bytes = 0;
        char key[32], want[32], text[64] = "";

        T_EQ(name, stoker_dataset_sample(dataset, sample, key, sizeof key, members, &count, &error),
             0);
        snprintf(want, sizeof want, "k%d-%d", (int)sample / 3, (int)sample % 3);
        T_STR(name, key, want);
        T_EQ(name, count, 2);
        T_STR(name, members[1].extension, "num");
        T_EQ(name, stoker_dataset_read(dataset, sample, "txt", text, sizeof text, &bytes, &error),
             0);
        snprintf(want, sizeof want, "value %d of %d", (int)sample % 3, (int)sample / 3);
        T_STR(name, text, want);
        T_EQ(name, bytes, strlen(want));
        T_EQ(name, stoker_dataset_read(dataset, sample, "txt", text, 3, &bytes, &error),
             STOKER_ERROR_LIMIT);
        T_EQ(name, bytes, strlen(want));
        T_EQ(name, stoker_dataset_read(dataset, sample, "jpg", text, 3, &bytes, &error),
             STOKER_ERROR_MISSING);
        T_STR(name, error.key, key);
        T_ERROR(name, &error);
    }
}

static void test_reads(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world);
    struct stoker_dataset *dataset = NULL;
    struct stoker_error error = {0};
    char name[64];

    for (int shard = 0; shard < SHARDS; shard++) {
        struct t_tar tar = {0}, packed;

        make_shard(&tar, shard);
        t_tar_gzip(&tar, &packed);
        snprintf(name, sizeof name, "/plain/s-%02d.tar", shard);
        stk_sim_add(world, name, tar.data, tar.bytes);
        snprintf(name, sizeof name, "/packed/s-%02d.tar.gz", shard);
        stk_sim_add(world, name, packed.data, packed.bytes);
        t_tar_free(&tar);
        t_tar_free(&packed);
    }
    T_EQ("plain", open_dataset(engine, "/plain", &dataset, &error), 0);
    check_reads("plain", dataset);
    T_TRUE("few files are open", dataset->files.locked.open_count <= 2);
    stoker_dataset_close(dataset);
    T_EQ("packed", open_dataset(engine, "/packed/*.tar.gz", &dataset, &error), 0);
    check_reads("packed", dataset);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

static const struct damage_row {
    const char *name;
    size_t offset, length; /* bytes written over */
    const char *bytes;
    size_t cut; /* the shard's size; 0: complete */
    int want;
} damage_rows[] = {
    {"complete", 0, 0, "", 0, 0},
    {"checksum", 1024, 1, "z", 0, STOKER_ERROR_CORRUPT},
    {"name", 0, 8, "garbage!", 0, STOKER_ERROR_CORRUPT}, /* the checksum detects it */
    {"cut in a member", 0, 0, "", 700, STOKER_ERROR_TRUNCATED},
    {"cut in a header", 0, 0, "", 1300, STOKER_ERROR_TRUNCATED},
    {"no bytes", 0, 0, "", 1, STOKER_ERROR_TRUNCATED},
};

static void test_damage(void)
{
    T_EACH(damage_row, row, damage_rows)
    {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world);
        struct stoker_dataset *dataset = NULL;
        struct stoker_error error = {0};
        struct t_tar tar = {0};
        int status;

        make_shard(&tar, 0);
        stk_sim_add(world, "/data/a.tar", tar.data, tar.bytes);
        memcpy(tar.data + row->offset, row->bytes, row->length);
        stk_sim_add(world, "/data/b.tar", tar.data, row->cut ? row->cut : tar.bytes);
        t_tar_free(&tar);
        status = open_dataset(engine, "/data/{a,b}.tar", &dataset, &error);
        if (row->want) {
            T_TRUE(row->name, status == row->want || row->cut == 1);
            T_ERROR(row->name, &error);
            T_STR(row->name, error.shard, "/data/b.tar");
        } else {
            T_EQ(row->name, status, 0);
        }
        stoker_dataset_close(dataset);
        stoker_engine_close(engine);
    }
}

static int odd_rounds_fail(void *context, uint64_t round, struct stoker_error *error)
{
    atomic_fetch_add((_Atomic uint64_t *)context, 1);
    return round >= 5 && round % 2 ? stk_fail(error, -EIO, "round failed", "none", "round %llu",
                                              (unsigned long long)round)
                                   : 0;
}

static void test_parallel(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world);

    for (int run = 0; run < 200; run++) {
        _Atomic uint64_t rounds = 0;
        struct stoker_error error = {0};

        T_EQ("lowest", stk_engine_parallel(engine, 100, odd_rounds_fail, &rounds, &error), -EIO);
        T_STR("lowest", error.where, "round 5");
        T_TRUE("stops early", rounds >= 6 && rounds < 100);
        rounds = 0;
        T_EQ("all", stk_engine_parallel(engine, 5, odd_rounds_fail, &rounds, &error), 0);
        T_EQ("all", rounds, 5);
    }
    stoker_engine_close(engine);
}

static void test_options(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world), *other = NULL;
    struct stoker_engine_options options = {.struct_size = sizeof options, .threads = 5000};
    struct stoker_dataset *dataset = NULL;
    struct stoker_error error = {0};
    struct stoker_engine_info info = {.struct_size = sizeof info};

    T_EQ("threads", stoker_engine_open(&other, &options, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR("threads", &error);
    options.struct_size = 0;
    T_EQ("struct_size", stoker_engine_open(&other, &options, &error), STOKER_ERROR_ARGUMENT);
    T_EQ("no urls", stoker_dataset_open(&dataset, engine, NULL, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR("no urls", &error);
    T_EQ("absent", open_dataset(engine, "/nothing/here.tar", &dataset, &error), -ENOENT);
    T_ERROR("absent", &error);
    T_EQ("info", stoker_engine_info(engine, &info), 0);
    T_EQ("threads", info.threads, 2);
    T_TRUE("vector", strcmp(info.simd, "avx2") == 0 || strcmp(info.simd, "sse2") == 0 ||
                         strcmp(info.simd, "neon") == 0 || strcmp(info.simd, "none") == 0);
    info.struct_size = 1u << 20;
    T_EQ("newer caller", stoker_engine_info(engine, &info), STOKER_ERROR_ARGUMENT);
    stoker_engine_close(engine);
}

int main(void)
{
    test_reads();
    test_damage();
    test_parallel();
    test_options();
    return t_finish();
}
