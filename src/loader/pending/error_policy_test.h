/* loader/pending/error_policy_test.h: tars with damaged samples in the simulated file system, and
 * streams of their batches.
 *
 *   rig_open -> open_loader -> take | stream -> trace -> same; check_list
 *
 * Owner: the test that includes it. Threads: one. Memory: the rig's. Bound: STREAM samples. */
#ifndef LOADER_PENDING_ERROR_POLICY_TEST_H
#define LOADER_PENDING_ERROR_POLICY_TEST_H

#include "engine/engine.h"
#include "io/sim/sim.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define SHARDS 4
#define SHARD_SAMPLES 50
#define SAMPLES (SHARDS * SHARD_SAMPLES)
#define EPOCHS 3
#define STREAM (EPOCHS * SAMPLES)

struct rig {
    struct stk_io *world; /* the engine's */
    struct stoker_engine *engine;
    struct stoker_dataset *dataset;
};

/* The result of a stream: the ids, slot by slot (values are checked when they arrive). */
struct trace {
    uint64_t ids[STREAM];
    uint64_t count;
};

static const struct stoker_field_options fields[] = {
    {.name = "bin", .kind = STOKER_FIELD_BYTES, .extensions = "bin"},
    {.name = "label", .kind = STOKER_FIELD_LABEL},
};

static inline size_t value_of(uint32_t sample, uint8_t value[2048])
{
    size_t bytes = 40 + sample * 37 % 1500;

    for (size_t i = 0; i < bytes; i++) {
        value[i] = (uint8_t)(sample * 31 + i * 7);
    }
    return bytes;
}

/* Every n-th sample's label is no number; its neighbour has none at all. */
static inline bool is_damaged(uint32_t sample, uint32_t every)
{
    return every && (sample % every == 3 || sample % every == 4);
}

static inline void add_shards(struct stk_io *world, uint32_t every, bool packed)
{
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        struct t_tar tar = {0}, gzip = {0};
        char name[64];

        for (uint32_t i = 0; i < SHARD_SAMPLES; i++) {
            uint32_t sample = shard * SHARD_SAMPLES + i;
            uint8_t value[2048];
            size_t bytes = value_of(sample, value);

            snprintf(name, sizeof name, "s%05u.bin", sample);
            t_tar_add(&tar, name, value, bytes);
            snprintf(name, sizeof name, "s%05u.cls", sample);
            if (!is_damaged(sample, every)) {
                t_tar_add(&tar, name, "7", 1);
            } else if (sample % every == 3) {
                t_tar_add(&tar, name, "cat", 3);
            }
        }
        t_tar_end(&tar);
        t_tar_gzip(&tar, &gzip);
        snprintf(name, sizeof name, "/data/train-%03u.tar%s", shard, packed ? ".gz" : "");
        T_EQ("add",
             stk_sim_add(world, name, packed ? gzip.data : tar.data,
                         packed ? gzip.bytes : tar.bytes),
             0);
        t_tar_free(&tar);
        t_tar_free(&gzip);
    }
}

static inline bool rig_open(struct rig *rig, uint32_t threads, uint32_t every, bool packed)
{
    struct stk_io_options io = {.depth = 16, .read_timeout_ms = 5000};
    struct stoker_engine_options engine = {.struct_size = sizeof engine,
                                           .threads = threads,
                                           .io_depth = 16,
                                           .read_timeout_ms = 5000,
                                           .memory_bytes_max = 256u << 20};
    const char *urls[] = {packed ? "/data/train-{000..003}.tar.gz" : "/data/train-{000..003}.tar"};
    struct stoker_dataset_options dataset = {
        .struct_size = sizeof dataset, .urls = urls, .url_count = 1, .block_bytes = 8192};
    struct stoker_error error = {0};

    memset(rig, 0, sizeof *rig);
    if (stk_sim_open(&rig->world, 1, &io, &error) < 0) {
        return T_STR("world", error.what, "");
    }
    add_shards(rig->world, every, packed);
    if (stk_engine_open_with_io(&rig->engine, rig->world, &engine, &error) < 0 ||
        stoker_dataset_open(&rig->dataset, rig->engine, &dataset, &error) < 0) {
        stoker_engine_close(rig->engine);
        return T_STR(error.where, error.what, "");
    }
    return true;
}

static inline void rig_close(struct rig *rig)
{
    stoker_dataset_close(rig->dataset);
    stoker_engine_close(rig->engine);
}

static inline struct stoker_loader *open_loader(struct rig *rig,
                                                struct stoker_loader_options options)
{
    struct stoker_loader *loader = NULL;
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    struct stoker_error error = {0};

    stoker_dataset_info(rig->dataset, &info);
    options.struct_size = sizeof options;
    options.fields = fields;
    options.field_count = STK_COUNT(fields);
    options.window_blocks = info.sequential ? 0 : 2; /* refused for shards without seek points */
    options.tail = options.tail ? options.tail : STOKER_TAIL_KEEP;
    options.on_error = options.on_error ? options.on_error : STOKER_ON_ERROR_SKIP;
    options.io_retry_wait_ms = options.io_retry_wait_ms ? options.io_retry_wait_ms : 1;
    if (stoker_loader_open(&loader, rig->dataset, &options, &error) < 0) {
        T_STR(error.where, error.what, "");
    }
    return loader;
}

/* Appends one batch to the trace: returns 1, 0 at the end, or the status. */
static inline int take(struct stoker_loader *loader, struct trace *trace,
                       struct stoker_error *error)
{
    struct stoker_batch *batch;
    struct stoker_array values;
    int status = stoker_loader_next(loader, 20000, &batch, error);

    if (status != 1) {
        return status;
    }
    stoker_batch_array(batch, 0, &values);
    for (uint32_t i = 0; i < stoker_batch_samples(batch) && trace->count < STREAM; i++) {
        uint64_t id = stoker_batch_ids(batch)[i], bytes = values.offsets[i + 1] - values.offsets[i];
        uint8_t value[2048];

        T_EQ("length", bytes, value_of((uint32_t)id, value));
        T_EQ("value", memcmp((uint8_t *)values.data + values.offsets[i], value, bytes), 0);
        trace->ids[trace->count] = id;
        trace->count++;
    }
    stoker_batch_close(batch);
    return 1;
}

/* Streams to the end of `epochs` epochs; the last status. */
static inline int stream(struct stoker_loader *loader, uint64_t epochs, struct trace *trace,
                         struct stoker_error *error)
{
    int status = 0;

    while (epochs > 0 && status >= 0) {
        status = take(loader, trace, error);
        epochs -= status == 0;
    }
    return status;
}

static inline bool same(const char *name, const struct trace *a, const struct trace *b)
{
    return T_EQ(name, a->count, b->count) &&
           T_EQ(name, memcmp(a->ids, b->ids, a->count * sizeof a->ids[0]), 0);
}

/* Checks the list against the damaged samples; returns its length. */
static inline uint64_t check_list(const char *name, const struct stoker_loader *loader,
                                  uint32_t every)
{
    uint64_t count = stoker_loader_quarantine_count(loader);
    bool seen[SAMPLES] = {false};

    for (uint64_t i = 0; i < count; i++) {
        struct stoker_quarantine_entry entry = {.struct_size = sizeof entry};
        char key[16], shard[32];

        T_EQ(name, stoker_loader_quarantine(loader, i, &entry), 0);
        if (!T_TRUE(name, entry.sample < SAMPLES && !seen[entry.sample]) ||
            !T_TRUE(name, is_damaged((uint32_t)entry.sample, every))) {
            break;
        }
        seen[entry.sample] = true;
        snprintf(key, sizeof key, "s%05u", (unsigned)entry.sample);
        snprintf(shard, sizeof shard, "/data/train-%03u.tar",
                 (unsigned)(entry.sample / SHARD_SAMPLES));
        T_STR(name, entry.key, key);
        T_STR(name, entry.shard, shard);
        T_TRUE(name, entry.reason[0] != 0);
        T_EQ(name, entry.status,
             entry.sample % every == 3 ? STOKER_ERROR_CORRUPT : STOKER_ERROR_MISSING);
    }
    struct stoker_quarantine_entry none = {.struct_size = sizeof none};
    T_EQ(name, stoker_loader_quarantine(loader, count, &none), STOKER_ERROR_ARGUMENT);
    return count;
}

/* Another data set for the rig: a shard that has damaged labels only, after the good ones or alone.
 */
static inline void open_bad_shard(struct rig *rig, bool with_good)
{
    const char *urls[] = {"/all/bad.tar", "/data/train-{000..003}.tar"};
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = urls, .url_count = with_good ? 2 : 1};
    struct t_tar tar = {0};

    stoker_dataset_close(rig->dataset);
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "x%02d.bin", i);
        t_tar_add(&tar, name, "a", 1);
        snprintf(name, sizeof name, "x%02d.cls", i);
        t_tar_add(&tar, name, "b", 1);
    }
    t_tar_end(&tar);
    T_EQ("add", stk_sim_add(rig->world, "/all/bad.tar", tar.data, tar.bytes), 0);
    t_tar_free(&tar);
    T_EQ("open", stoker_dataset_open(&rig->dataset, rig->engine, &options, NULL), 0);
}

#endif
