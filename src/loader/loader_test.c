/* Goal: batches are returned in the order's order, once each, with the same bytes whatever the
 * threads, the faults and the restarts; memory stays in its budget; everything can be closed at any
 * time.
 * Method: tars of numbered samples in the simulator, read as bytes, labels and keys. Covers
 * loader.c, loader_close.c, loader_state.c and worker_steps.c, and the files below them. */
#include "base/mem.h"
#include "engine/engine.h"
#include "io/sim/sim.h"
#include "test/idle_blocks.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARDS 4
#define SHARD_SAMPLES 50
#define SAMPLES (SHARDS * SHARD_SAMPLES)
#define BATCH 16

struct rig {
    struct stk_io *world; /* the engine's */
    struct stoker_engine *engine;
    struct stoker_dataset *dataset;
};

struct rig_options {
    uint32_t threads, damaged_sample; /* damaged: its label is no number; 0: none */
    uint64_t memory_bytes_max;
    uint32_t read_timeout_ms;
    bool packed;
};

/* The value of a sample: its length and bytes follow from its number. */
static size_t value_of(uint32_t sample, uint8_t value[4096])
{
    size_t bytes = 40 + sample * 37 % 1500;

    for (size_t i = 0; i < bytes; i++) {
        value[i] = (uint8_t)(sample * 31 + i * 7);
    }
    return bytes;
}

static void add_shards(struct stk_io *world, const struct rig_options *options)
{
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        struct t_tar tar = {0}, packed = {0};
        char name[64];

        for (uint32_t i = 0; i < SHARD_SAMPLES; i++) {
            uint32_t sample = shard * SHARD_SAMPLES + i;
            uint8_t value[4096];
            char label[32];
            size_t bytes = value_of(sample, value);

            snprintf(name, sizeof name, "s%05u.bin", sample);
            t_tar_add(&tar, name, value, bytes);
            snprintf(name, sizeof name, "s%05u.cls", sample);
            snprintf(label, sizeof label, "%u", sample % 10);
            if (options->damaged_sample && options->damaged_sample == sample) {
                snprintf(label, sizeof label, "cat");
            }
            t_tar_add(&tar, name, label, strlen(label));
        }
        t_tar_end(&tar);
        snprintf(name, sizeof name, "/data/train-%03u.tar%s", shard, options->packed ? ".gz" : "");
        t_tar_gzip(&tar, &packed);
        T_EQ("add",
             stk_sim_add(world, name, options->packed ? packed.data : tar.data,
                         options->packed ? packed.bytes : tar.bytes),
             0);
        t_tar_free(&tar);
        t_tar_free(&packed);
    }
}

static bool rig_open(struct rig *rig, const struct rig_options *options)
{
    struct stk_io_options io = {
        .depth = 16, .read_timeout_ms = options->read_timeout_ms ? options->read_timeout_ms : 5000};
    struct stoker_engine_options engine = {
        .struct_size = sizeof engine,
        .threads = options->threads,
        .io_depth = 16,
        .read_timeout_ms = io.read_timeout_ms,
        .memory_bytes_max = options->memory_bytes_max ? options->memory_bytes_max : 256u << 20};
    const char *urls[] = {options->packed ? "/data/train-{000..003}.tar.gz"
                                          : "/data/train-{000..003}.tar"};
    struct stoker_dataset_options dataset = {
        .struct_size = sizeof dataset, .urls = urls, .url_count = 1, .block_bytes = 8192};
    struct stoker_error error = {0};

    memset(rig, 0, sizeof *rig);
    if (stk_sim_open(&rig->world, 1, &io, &error) < 0) {
        T_STR("world", error.what, "");
        return false;
    }
    add_shards(rig->world, options);
    if (stk_engine_open_with_io(&rig->engine, rig->world, &engine, &error) < 0 ||
        stoker_dataset_open(&rig->dataset, rig->engine, &dataset, &error) < 0) {
        T_STR(error.where, error.what, "");
        stoker_engine_close(rig->engine);
        return false;
    }
    return true;
}

static void rig_close(struct rig *rig)
{
    stoker_dataset_close(rig->dataset);
    stoker_engine_close(rig->engine);
}

static const struct stoker_field_options fields[] = {
    {.name = "bin", .kind = STOKER_FIELD_BYTES, .extensions = "bin"},
    {.name = "label", .kind = STOKER_FIELD_LABEL},
    {.name = "key", .kind = STOKER_FIELD_KEY},
};

static struct stoker_loader *open_loader(struct rig *rig, struct stoker_loader_options options)
{
    struct stoker_loader *loader = NULL;
    struct stoker_error error = {0};

    options.struct_size = sizeof options;
    options.fields = fields;
    options.field_count = STK_COUNT(fields);
    options.batch_size = options.batch_size ? options.batch_size : BATCH;
    options.window_blocks = 2;
    if (stoker_loader_open(&loader, rig->dataset, &options, &error) < 0) {
        T_STR(error.where, error.what, "");
    }
    return loader;
}

static int next(struct stoker_loader *loader, struct stoker_batch **batch,
                struct stoker_error *error)
{
    return stoker_loader_next(loader, 20000, batch, error);
}

/* Every slot holds the value, label and key of its id. */
static bool check_batch(const char *name, const struct stoker_batch *batch)
{
    struct stoker_array values, labels, keys;
    bool good = true;

    stoker_batch_array(batch, 0, &values);
    stoker_batch_array(batch, 1, &labels);
    stoker_batch_array(batch, 2, &keys);
    for (uint32_t i = 0; i < stoker_batch_samples(batch) && good; i++) {
        uint32_t sample = (uint32_t)stoker_batch_ids(batch)[i];
        uint8_t value[4096];
        char key[32];
        size_t bytes = value_of(sample, value);
        const uint8_t *got = (const uint8_t *)values.data + values.offsets[i];

        good = good && T_EQ(name, values.offsets[i + 1] - values.offsets[i], bytes) &&
               T_EQ(name, memcmp(got, value, bytes), 0);
        good = good && T_EQ(name, ((int64_t *)labels.data)[i], sample % 10);
        snprintf(key, sizeof key, "s%05u", sample);
        good = good && T_EQ(name, keys.offsets[i + 1] - keys.offsets[i], strlen(key)) &&
               T_EQ(name, memcmp((char *)keys.data + keys.offsets[i], key, strlen(key)), 0);
    }
    return good;
}

/* Streams the rest of an epoch; appends ids; returns how many, or a negative status. */
static int64_t stream(const char *name, struct stoker_loader *loader, uint64_t *ids)
{
    struct stoker_batch *batch;
    struct stoker_error error = {0};
    int64_t count = 0;
    int status;

    while ((status = next(loader, &batch, &error)) == 1) {
        check_batch(name, batch);
        memcpy(ids + count, stoker_batch_ids(batch), stoker_batch_samples(batch) * sizeof *ids);
        count += stoker_batch_samples(batch);
        stoker_batch_close(batch);
    }
    if (status < 0) {
        T_ERROR(name, &error);
    }
    return status < 0 ? status : count;
}

static const struct order_row {
    const char *name;
    uint32_t shuffle, tail, threads, batch;
    int64_t want;
    bool packed;
} order_rows[] = {
    {"block, drop, 1 thread", STOKER_SHUFFLE_BLOCK, STOKER_TAIL_DROP, 1, 16, 192, false},
    {"block, keep, 3 threads", STOKER_SHUFFLE_BLOCK, STOKER_TAIL_KEEP, 3, 16, 200, false},
    {"block, pad, 2 threads", STOKER_SHUFFLE_BLOCK, STOKER_TAIL_PAD, 2, 16, 208, false},
    {"full, keep, 4 threads", STOKER_SHUFFLE_FULL, STOKER_TAIL_KEEP, 4, 7, 200, false},
    {"none, wrap, 2 threads", STOKER_SHUFFLE_NONE, STOKER_TAIL_WRAP, 2, 16, 208, false},
    {"one batch", STOKER_SHUFFLE_FULL, STOKER_TAIL_KEEP, 2, 500, 200, false},
    {"packed", STOKER_SHUFFLE_NONE, STOKER_TAIL_KEEP, 3, 16, 200, true},
};

static void test_order(void)
{
    T_EACH(order_row, row, order_rows)
    {
        struct rig rig;
        struct stoker_dataset_info info = {.struct_size = sizeof info};
        struct stoker_loader *loader;
        uint64_t ids[2 * SAMPLES];
        uint32_t shuffle = row->shuffle;

        if (!rig_open(&rig,
                      &(struct rig_options){.threads = row->threads, .packed = row->packed})) {
            continue;
        }
        stoker_dataset_info(rig.dataset, &info);
        T_EQ(row->name, info.sample_count, SAMPLES);
        T_EQ(row->name, info.sequential, row->packed);
        loader = open_loader(&rig, (struct stoker_loader_options){.shuffle = row->shuffle,
                                                                  .tail = row->tail,
                                                                  .seed = 5,
                                                                  .batch_size = row->batch});
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            int64_t count = stream(row->name, loader, ids);
            int64_t want = row->tail == STOKER_TAIL_WRAP && epoch == 1 ? 192 : row->want;
            uint64_t begin = row->tail == STOKER_TAIL_WRAP ? epoch * 8 % 16 : 0;

            T_EQ(row->name, count, want);
            for (int64_t i = 0; i < count && (uint64_t)i + begin < SAMPLES; i++) {
                uint64_t sample;
                stoker_order_at(SAMPLES, info.block_samples, 2, 1, shuffle, 5, epoch,
                                begin + (uint64_t)i, &sample);
                if (!T_EQ(row->name, ids[i], sample)) {
                    break;
                }
            }
        }
        stoker_loader_close(loader);
        rig_close(&rig);
    }
}

static const struct fault_row {
    const char *name;
    struct stk_sim_rule rule;
    int want; /* 0: the same bytes; else the status */
} fault_rows[] = {
    {"cold", {.fault = STK_SIM_FAULT_COLD}, 0},
    {"short reads", {.fault = STK_SIM_FAULT_SHORT, .every = 3}, 0},
    {"slow", {.fault = STK_SIM_FAULT_SLOW, .every = 2, .latency_ns = 800000}, 0},
    {"EIO", {.path = "/data/train-002.tar", .fault = STK_SIM_FAULT_EIO}, -EIO},
    {"truncated",
     {.path = "/data/train-001.tar", .fault = STK_SIM_FAULT_TRUNCATED, .offset = 9000},
     STOKER_ERROR_TRUNCATED},
    {"hang", {.path = "/data/train-003.tar", .fault = STK_SIM_FAULT_HANG}, STOKER_ERROR_TIMEOUT},
};

static void test_faults(void)
{
    static const struct stk_sim_rule cold = {.fault = STK_SIM_FAULT_COLD};

    T_EACH(fault_row, row, fault_rows)
    {
        struct rig rig;
        struct stoker_loader *loader;
        uint64_t ids[SAMPLES];
        int64_t count;

        if (!rig_open(&rig, &(struct rig_options){.threads = 2, .read_timeout_ms = 400})) {
            continue;
        }
        stk_sim_add_rule(rig.world, &cold);
        stk_sim_add_rule(rig.world, &row->rule);
        loader = open_loader(&rig, (struct stoker_loader_options){.shuffle = STOKER_SHUFFLE_FULL,
                                                                  .tail = STOKER_TAIL_KEEP});
        count = stream(row->name, loader, ids);
        T_EQ(row->name, count, row->want ? row->want : SAMPLES);
        stoker_loader_close(loader);
        rig_close(&rig);
    }
}

/* A state of another data set, setting or order version is refused, and the difference named.
 */
static void test_other_states(struct stoker_loader *loader, const struct stoker_state *good)
{
    struct stoker_state others[10];
    static const char *const names[] = {"order version:",
                                        "shuffle:",
                                        "tail:",
                                        "window:",
                                        "groups:",
                                        "seed: 10 in the state, 9 here",
                                        "number of samples:",
                                        "samples a block:",
                                        "identity of the data set",
                                        "position past the end"};

    for (size_t i = 0; i < STK_COUNT(others); i++) {
        others[i] = *good;
    }
    others[0].order_version++;
    others[1].shuffle++;
    others[2].tail++;
    others[3].window_blocks++;
    others[4].group_count++;
    others[5].seed++;
    others[6].sample_count++;
    others[7].block_samples = 0;
    others[8].identity[31] ^= 1;
    others[9].position = 1ull << 40;
    for (size_t i = 0; i < STK_COUNT(others); i++) {
        struct stoker_error error = {0};

        T_EQ(names[i], stoker_loader_set_state(loader, &others[i], &error), STOKER_ERROR_STATE);
        T_HAS(names[i], error.where, names[i]);
        T_ERROR(names[i], &error);
    }
}

static void test_resume(void)
{
    uint64_t full_run[SAMPLES], rest[SAMPLES];
    struct rig rig;
    struct stoker_loader *loader;
    struct stoker_state state;
    struct stoker_batch *batch;
    struct stoker_error error = {0};
    struct stoker_stats stats = {.struct_size = sizeof stats};

    if (!rig_open(&rig, &(struct rig_options){.threads = 3})) {
        return;
    }
    loader = open_loader(&rig, (struct stoker_loader_options){.seed = 9});
    stoker_loader_set_epoch(loader, 4, NULL);
    T_EQ("complete", stream("complete", loader, full_run), 192);
    stoker_loader_set_epoch(loader, 4, NULL);
    for (int i = 0; i < 5; i++) {
        T_EQ("next", next(loader, &batch, &error), 1);
        stoker_batch_close(batch);
    }
    stoker_loader_state(loader, &state);
    T_EQ("position", state.position, 5 * BATCH);
    stoker_loader_close(loader);
    rig_close(&rig);

    if (!rig_open(&rig, &(struct rig_options){.threads = 1})) {
        return;
    }
    loader = open_loader(&rig, (struct stoker_loader_options){.seed = 9});
    T_EQ("set state", stoker_loader_set_state(loader, &state, &error), 0);
    stoker_loader_set_epoch(loader, 4, NULL); /* as a training script does: saves the position */
    T_EQ("rest", stream("rest", loader, rest), 192 - 5 * BATCH);
    T_EQ("same", memcmp(rest, full_run + 5 * BATCH, (192 - 5 * BATCH) * sizeof rest[0]), 0);
    stoker_loader_stats(loader, &stats);
    T_EQ("delivered", stats.samples, 192 - 5 * BATCH);

    test_other_states(loader, &state);
    stoker_loader_close(loader);
    rig_close(&rig);
}

/* A wrapped run that continues with another batch size: still each sample once in N positions. */
static void test_wrap_resized(void)
{
    struct stoker_loader_options options = {.tail = STOKER_TAIL_WRAP, .batch_size = 30};
    struct rig rig;
    struct stoker_loader *loader;
    struct stoker_state state;
    struct stoker_batch *batch;
    uint32_t seen[SAMPLES] = {0};
    uint64_t ids[2 * SAMPLES], run = 0;

    if (!rig_open(&rig, &(struct rig_options){.threads = 2})) {
        return;
    }
    loader = open_loader(&rig, options);
    for (; run < 90; run += 30) {
        T_EQ("next", next(loader, &batch, NULL), 1);
        memcpy(ids + run, stoker_batch_ids(batch), 30 * sizeof ids[0]);
        stoker_batch_close(batch);
    }
    stoker_loader_state(loader, &state);
    stoker_loader_close(loader);
    options.batch_size = 16;
    loader = open_loader(&rig, options);
    T_EQ("state", stoker_loader_set_state(loader, &state, NULL), 0);
    run += (uint64_t)stream("first epoch", loader, ids + run);
    T_TRUE("over the end", run > SAMPLES);
    while (run < 2 * SAMPLES - 16) {
        T_EQ("second epoch", next(loader, &batch, NULL), 1);
        memcpy(ids + run, stoker_batch_ids(batch), 16 * sizeof ids[0]);
        stoker_batch_close(batch);
        run += 16;
    }
    for (uint64_t i = 0; i < run; i++) {
        seen[ids[i]]++;
    }
    for (uint64_t i = 0; i < SAMPLES; i++) {
        T_TRUE("once in the first epoch, at most twice in both", seen[i] == 1 || seen[i] == 2);
    }
    stoker_loader_close(loader);
    rig_close(&rig);
}

static void test_held(void)
{
    struct rig rig;
    struct stoker_loader *loader;
    struct stoker_batch *held[64] = {NULL};
    struct stoker_error error = {0};
    struct stoker_engine_info info = {.struct_size = sizeof info};
    int status = 1, count = 0;

    if (!rig_open(&rig, &(struct rig_options){.threads = 2, .memory_bytes_max = 1000000})) {
        return;
    }
    loader = open_loader(&rig,
                         (struct stoker_loader_options){.batch_size = 4, .tail = STOKER_TAIL_KEEP});
    while (count < 64 && (status = next(loader, &held[count], &error)) == 1) {
        count++;
    }
    T_EQ("the caller holds all", status, STOKER_ERROR_BUDGET);
    T_ERROR("held", &error);
    T_TRUE("several came", count > 4);
    for (int i = 0; i < count; i++) {
        /* the memory of a batch that the caller keeps is never reused */
        check_batch("retained", held[i]);
    }
    stoker_batch_close(held[0]);
    stoker_batch_close(held[1]);
    T_EQ("goes on", next(loader, &held[0], &error), 1);
    stoker_engine_info(rig.engine, &info);
    T_TRUE("in budget", info.memory_bytes_peak <= 1000000);
    stoker_loader_close(loader);
    rig_close(&rig);
    for (int i = 2; i < count; i++) {
        check_batch("after close", held[i]);
        stoker_batch_close(held[i]);
    }
    stoker_batch_close(held[0]);
}

/* One batch is larger than the budget: an error at open. */
static void test_small_budget(void)
{
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = fields,
                                            .field_count = STK_COUNT(fields),
                                            .batch_size = 1u << 20,
                                            .tail = STOKER_TAIL_KEEP};
    struct rig rig;
    struct stoker_loader *loader = NULL;
    struct stoker_error error = {0};

    if (!rig_open(&rig, &(struct rig_options){.threads = 1, .memory_bytes_max = 1000000})) {
        return;
    }
    T_EQ("small", stoker_loader_open(&loader, rig.dataset, &options, &error), STOKER_ERROR_BUDGET);
    T_ERROR("small", &error);
    T_TRUE("none", loader == NULL);
    rig_close(&rig);
}

static void test_skip(void)
{
    uint64_t first[SAMPLES], again[SAMPLES];

    for (int run = 0; run < 2; run++) {
        struct rig rig;
        struct stoker_loader *loader;
        struct stoker_stats stats = {.struct_size = sizeof stats};
        bool seen = false;

        if (!rig_open(&rig, &(struct rig_options){.threads = run ? 1 : 3, .damaged_sample = 77})) {
            return;
        }
        loader = open_loader(&rig, (struct stoker_loader_options){
                                       .tail = STOKER_TAIL_KEEP, .on_error = STOKER_ON_ERROR_SKIP});
        T_EQ("skip", stream("skip", loader, run ? again : first), SAMPLES);
        for (int i = 0; i < SAMPLES; i++) {
            seen = seen || (run ? again : first)[i] == 77;
        }
        T_TRUE("the damaged one is not delivered", !seen);
        stoker_loader_stats(loader, &stats);
        T_EQ("substituted", stats.substituted, 1);
        stoker_loader_close(loader);
        rig_close(&rig);
    }
    T_EQ("deterministic", memcmp(first, again, sizeof first), 0);
}

static void test_raise(void)
{
    struct rig rig;
    struct stoker_loader *loader;
    struct stoker_batch *batch;
    struct stoker_error error = {0};

    if (!rig_open(&rig, &(struct rig_options){.threads = 2, .damaged_sample = 3})) {
        return;
    }
    loader = open_loader(&rig, (struct stoker_loader_options){.shuffle = STOKER_SHUFFLE_NONE});
    T_EQ("raise", next(loader, &batch, &error), STOKER_ERROR_CORRUPT);
    T_STR("shard", error.shard, "/data/train-000.tar");
    T_STR("key", error.key, "s00003");
    T_TRUE("offset", error.offset != STOKER_NO_OFFSET && error.offset > 512);
    T_ERROR("raise", &error);
    T_EQ("again", next(loader, &batch, &error), STOKER_ERROR_CORRUPT);
    stoker_loader_close(loader);
    rig_close(&rig);
}

/* A read that hangs for 49 days of the world's clock: longer than the test. */
#define LONG_TIMEOUT_MS UINT32_MAX

/* Opens a loader on a world whose `path` (NULL: every file) does not answer. */
static struct stoker_loader *open_hanging(struct rig *rig, const char *path,
                                          struct stoker_loader_options options)
{
    struct stk_sim_rule hang = {.path = path, .fault = STK_SIM_FAULT_HANG};
    struct stk_sim_rule cold = {.fault = STK_SIM_FAULT_COLD};

    if (!rig_open(rig, &(struct rig_options){.threads = 2, .read_timeout_ms = LONG_TIMEOUT_MS})) {
        return NULL;
    }
    stk_sim_add_rule(rig->world, &hang);
    stk_sim_add_rule(rig->world, &cold);
    return open_loader(rig, options);
}

/* The first shard does not answer: the samples after it are worked on, none overtakes. */
static void test_slow_sample(void)
{
    const uint64_t behind = 6 * BATCH - SHARD_SAMPLES;
    struct rig rig;
    struct stoker_batch *batch;
    struct stoker_stats stats = {.struct_size = sizeof stats};
    struct stoker_loader *loader = open_hanging(
        &rig, "/data/train-000.tar",
        (struct stoker_loader_options){.shuffle = STOKER_SHUFFLE_NONE, .batches_ahead = 6});

    for (int i = 0; loader && i < 1000 && stats.cold_reads < behind; i++) {
        T_EQ("nothing overtakes", stoker_loader_next(loader, 5, &batch, NULL), STOKER_ERROR_AGAIN);
        stoker_loader_stats(loader, &stats);
    }
    T_TRUE("what is behind it is done", stats.cold_reads == behind);
    stoker_loader_close(loader);
    rig_close(&rig);
}

/* Storage that does not answer in time: more reads are put under way; warm data needs none. */
static void test_depth(void)
{
    struct rig rig;
    struct stoker_batch *batch;
    struct stoker_stats stats = {.struct_size = sizeof stats};
    struct stoker_loader *loader;
    uint32_t begin;

    if (!rig_open(&rig, &(struct rig_options){.threads = 2})) {
        return;
    }
    loader = open_loader(&rig, (struct stoker_loader_options){.batch_size = 2});
    stoker_loader_stats(loader, &stats);
    begin = stats.batches_ahead;
    stoker_loader_close(loader);
    rig_close(&rig);

    loader = open_hanging(&rig, NULL, (struct stoker_loader_options){.batch_size = 2});
    for (int i = 0; loader && i < 1000 && stats.batches_ahead < begin + 4; i++) {
        T_EQ("hangs", stoker_loader_next(loader, 5, &batch, NULL), STOKER_ERROR_AGAIN);
        stoker_loader_stats(loader, &stats);
    }
    T_TRUE("deeper", stats.batches_ahead >= begin + 4);
    stoker_loader_close(loader);
    rig_close(&rig);

    /* An explicit batches_ahead is not changed. */
    loader = open_hanging(&rig, NULL,
                          (struct stoker_loader_options){.batch_size = 2, .batches_ahead = 3});
    for (int i = 0; loader && i < 20; i++) {
        stoker_loader_next(loader, 5, &batch, NULL);
    }
    stoker_loader_stats(loader, &stats);
    T_EQ("requested", stats.batches_ahead, 3);
    stoker_loader_close(loader);
    rig_close(&rig);
}

static void test_two_loaders(void)
{
    struct rig rig;
    struct stoker_loader *train, *validation;
    uint64_t ids[SAMPLES];
    struct stoker_batch *batch;

    if (!rig_open(&rig, &(struct rig_options){.threads = 2})) {
        return;
    }
    train = open_loader(&rig, (struct stoker_loader_options){.seed = 1});
    validation = open_loader(&rig, (struct stoker_loader_options){.shuffle = STOKER_SHUFFLE_NONE,
                                                                  .tail = STOKER_TAIL_KEEP});
    T_EQ("train", next(train, &batch, NULL), 1);
    stoker_batch_close(batch);
    T_EQ("validation", stream("validation", validation, ids), SAMPLES);
    T_EQ("train goes on", stream("train", train, ids), 192 - BATCH);
    stoker_loader_close(train);
    stoker_loader_close(validation);
    rig_close(&rig);
}

static void test_fork(void)
{
    struct rig rig;
    struct stoker_loader *loader;
    int status = 0;
    pid_t child;

    if (!rig_open(&rig, &(struct rig_options){.threads = 2})) {
        return;
    }
    loader = open_loader(&rig, (struct stoker_loader_options){.seed = 1});
    child = fork();
    if (child == 0) {
        struct stoker_batch *batch;
        struct stoker_error error = {0};
        int good = next(loader, &batch, &error) == STOKER_ERROR_FORKED;
        stoker_loader_close(loader);
        rig_close(&rig);
        _exit(good ? 42 : 1);
    }
    waitpid(child, &status, 0);
    T_EQ("child", WIFEXITED(status) ? WEXITSTATUS(status) : -1, 42);
    stoker_loader_close(loader);
    rig_close(&rig);
}

/* Opens, takes three batches and closes; allocation `fail_at` fails (0: none). Returns how many
 * allocations there were. */
static uint64_t run_failing(uint64_t fail_at)
{
    struct stk_io_options io = {.depth = 8, .read_timeout_ms = 300};
    struct stoker_engine_options engine_options = {.struct_size = sizeof engine_options,
                                                   .threads = 1,
                                                   .read_timeout_ms = 300,
                                                   .memory_bytes_max = 64u << 20};
    const char *urls[] = {"/data/train-{000..003}.tar"};
    struct stoker_dataset_options dataset_options = {
        .struct_size = sizeof dataset_options, .urls = urls, .url_count = 1};
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = fields,
                                            .field_count = STK_COUNT(fields),
                                            .batch_size = 50};
    struct stk_io *world = NULL;
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset = NULL;
    struct stoker_loader *loader = NULL;
    struct stoker_batch *batch = NULL;
    struct stoker_error error = {0};
    uint64_t before;
    int status;

    T_EQ("world", stk_sim_open(&world, 1, &io, NULL), 0);
    add_shards(world, &(struct rig_options){.threads = 1});
    before = stk_mem_calls();
    stk_mem_fail_nth(fail_at);
    status = stk_engine_open_with_io(&engine, world, &engine_options, &error);
    status = status < 0 ? status : stoker_dataset_open(&dataset, engine, &dataset_options, &error);
    status = status < 0 ? status : stoker_loader_open(&loader, dataset, &options, &error);
    for (int i = 0; i < 3 && status >= 0; i++) {
        status = next(loader, &batch, &error);
        if (status == 1) {
            check_batch("fail-nth", batch);
            stoker_batch_close(batch);
        }
    }
    T_TRUE("an error or a result", fail_at > 0 || status == 1);
    if (status < 0) {
        T_ERROR("fail-nth", &error);
    }
    stk_mem_fail_nth(0);
    stoker_loader_close(loader);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
    return stk_mem_calls() - before;
}

/* Each allocation fails once: an error or a right result, never a leak or a crash. */
static void test_fail_nth(void)
{
    int64_t alive = t_idle_blocks();
    uint64_t calls = run_failing(0);

    for (uint64_t n = 1; n <= calls; n += 1 + calls / T_SPREAD(400)) {
        run_failing(n);
    }
    T_EQ("no leak", t_idle_blocks(), alive);
}

int main(void)
{
    test_order();
    test_faults();
    test_resume();
    test_wrap_resized();
    test_held();
    test_small_budget();
    test_skip();
    test_raise();
    test_two_loaders();
    test_fork();
    test_fail_nth();
    test_slow_sample();
    test_depth();
    return t_finish();
}
