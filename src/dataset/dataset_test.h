/* dataset/dataset_test.h: shared by the tests of data sets and their indexes: tars in a simulator,
 * an indexing run to its end, the contents of a data set as text. Owner: the test. Threads: one.
 * Memory: the test's. Bound: T_TEXT_BYTES_MAX of text. */
#ifndef DATASET_DATASET_TEST_H
#define DATASET_DATASET_TEST_H

#include "base/mem.h"
#include "dataset/dataset.h"
#include "io/sim/sim.h"
#include "io/write.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <string.h>

#define T_TEXT_BYTES_MAX (1u << 18)

static inline struct stoker_engine *t_engine(struct stk_io **world_out, uint32_t threads)
{
    struct stk_io_options io = {.depth = 8, .read_timeout_ms = 1000};
    struct stoker_engine_options options = {.struct_size = sizeof options,
                                            .threads = threads,
                                            .memory_bytes_max = 64u << 20,
                                            .open_files_max = 2};
    struct stoker_engine *engine = NULL;

    T_EQ("world", stk_sim_open(world_out, 1, &io, NULL), 0);
    T_EQ("engine", stk_engine_open_with_io(&engine, *world_out, &options, NULL), 0);
    return engine;
}

/* Replaces the file, as a program does: with a new mtime. */
static inline int t_put(struct stk_io *world, const char *path, const void *data, size_t bytes)
{
    struct stk_output *out = NULL;
    int status = stk_io_create(world, path, false, &out, NULL);

    status = status < 0 ? status : stk_io_write(world, out, data, bytes, NULL);
    status = status < 0 ? status : stk_io_sync_output(world, out, NULL);
    stk_io_close_output(world, out);
    return status;
}

/* A shard of `samples`: key SHARD-NUMBER, a text of `bytes` and a label. */
static inline void t_shard(struct stk_io *world, const char *path, int shard, int samples,
                           size_t bytes)
{
    struct t_tar tar = {0};
    uint8_t *text = stk_alloc(bytes + 1, 1);
    char name[64], label[16];

    memset(text, 'a' + shard % 26, bytes);
    for (int i = 0; i < samples; i++) {
        snprintf(name, sizeof name, "k%03d-%04d.txt", shard, i);
        t_tar_add(&tar, name, text, bytes);
        snprintf(name, sizeof name, "k%03d-%04d.cls", shard, i);
        snprintf(label, sizeof label, "%d\n", shard * 10 + i);
        t_tar_add(&tar, name, label, strlen(label));
    }
    t_tar_end(&tar);
    T_EQ(path, t_put(world, path, tar.data, tar.bytes), 0);
    t_tar_free(&tar);
    stk_free(text);
}

/* /data/s-000.tar ... */
static inline void t_shards(struct stk_io *world, int first, int count)
{
    char path[64];

    if (first == 0) {
        T_EQ("folder", stk_sim_add(world, "/data", NULL, 0), 0);
    }
    for (int i = first; i < first + count; i++) {
        snprintf(path, sizeof path, "/data/s-%03d.tar", i);
        t_shard(world, path, i, 3 + i % 3, 1000);
    }
}

static inline int t_open(struct stoker_engine *engine, const char *url, uint32_t use,
                         struct stoker_dataset **dataset_out, struct stoker_error *error)
{
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = &url, .url_count = 1, .index = use};

    return stoker_dataset_open(dataset_out, engine, &options, error);
}

/* An indexing run to its end. options, progress, error: may be NULL. */
static inline int t_index(struct stoker_engine *engine, const char *url,
                          const struct stoker_indexer_options *options,
                          struct stoker_indexer_progress *progress, struct stoker_error *error)
{
    struct stoker_dataset_options dataset = {
        .struct_size = sizeof dataset, .urls = &url, .url_count = 1};
    struct stoker_indexer_progress own = {0};
    struct stoker_indexer *indexer = NULL;
    int status = stoker_indexer_open(&indexer, engine, &dataset, options, error);

    progress = progress ? progress : &own;
    if (status == 0) {
        do {
            progress->struct_size = sizeof *progress;
            status = stoker_indexer_next(indexer, 1000, progress, error);
        } while (status == 1);
    }
    progress->path = NULL; /* valid until close */
    stoker_indexer_close(indexer);
    return status;
}

/* The bytes of a file, to be freed; NULL: it is not there. */
static inline struct stk_view t_bytes(struct stk_io *world, const char *path)
{
    struct stk_view view = {NULL, 0};
    struct stk_file *file = NULL;
    struct stk_stat about;

    if (stk_io_open_file(world, path, &file, NULL) == 0 &&
        stk_io_stat_file(file, &about, NULL) == 0) {
        uint8_t *data = stk_alloc(about.bytes + 1, 1);

        stk_io_read_wait(file, 0, data, about.bytes);
        view = (struct stk_view){data, about.bytes};
    }
    if (file) {
        stk_io_close_file(file);
    }
    return view;
}

static inline void t_drop(struct stk_view view)
{
    stk_free((void *)(uintptr_t)view.data);
}

static inline bool t_same(struct stk_view left, struct stk_view right)
{
    return left.data && right.data && left.bytes == right.bytes &&
           memcmp(left.data, right.data, left.bytes) == 0;
}

/* The contents of a data set, except the blocks of its order: returns 0, or the first failure. */
static inline int t_tell(struct stoker_dataset *dataset, char text[T_TEXT_BYTES_MAX],
                         struct stoker_error *error)
{
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    size_t used;
    int status = stoker_dataset_info(dataset, &info);

    used = snprintf(text, T_TEXT_BYTES_MAX, "%s %llu %llu %llu %llu %d %02x%02x\n", info.kind,
                    (unsigned long long)info.sample_count, (unsigned long long)info.member_count,
                    (unsigned long long)info.shard_count, (unsigned long long)info.bytes,
                    info.sequential, info.identity[0], info.identity[31]);
    for (uint64_t i = 0; status == 0 && i < info.class_count; i++) {
        const char *name = "";

        status = stoker_dataset_class(dataset, i, &name);
        used += snprintf(text + used, T_TEXT_BYTES_MAX - used, "class %s\n", name);
    }
    for (uint64_t i = 0; status == 0 && i < info.sample_count; i++) {
        struct stoker_member_info members[4];
        size_t count = STK_COUNT(members);
        char key[64];

        status = stoker_dataset_sample(dataset, i, key, sizeof key, members, &count, error);
        used += snprintf(text + used, T_TEXT_BYTES_MAX - used, "%s", key);
        for (size_t m = 0; status == 0 && m < count && m < STK_COUNT(members); m++) {
            used +=
                snprintf(text + used, T_TEXT_BYTES_MAX - used, " %s:%s@%llu+%llu", members[m].shard,
                         members[m].extension, (unsigned long long)members[m].offset,
                         (unsigned long long)members[m].bytes);
        }
        used += snprintf(text + used, T_TEXT_BYTES_MAX - used, "\n");
    }
    T_TRUE("the text has room", used < T_TEXT_BYTES_MAX);
    return status;
}

#endif
