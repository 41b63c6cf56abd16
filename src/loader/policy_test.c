/* Goal: bad data is a contract: what replaces a damaged sample is a function of its position, so
 * that threads, ranks, restarts and what was learned before change nothing; failures of storage are
 * tried again, then raised; the list and the limits follow what was delivered.
 * Method: tars with damaged samples in the simulated world, streamed by different threads, world
 * sizes and places to begin at, and compared with each other. Covers quarantine.c, retry.c. */
#include "base/mem.h"
#include "engine/engine.h"
#include "test/t.h"
#include "test/tars.h"
#include "world/world.h"

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

/* What a stream gave: the ids, slot by slot (values are checked as they come). */
struct trace {
    uint64_t ids[STREAM];
    uint64_t count;
};

static const struct stoker_field_options fields[] = {
    {.name = "bin", .kind = STOKER_FIELD_BYTES, .extensions = "bin"},
    {.name = "label", .kind = STOKER_FIELD_LABEL},
};

static size_t value_of(uint32_t sample, uint8_t value[2048])
{
    size_t bytes = 40 + sample * 37 % 1500;

    for (size_t i = 0; i < bytes; i++) {
        value[i] = (uint8_t)(sample * 31 + i * 7);
    }
    return bytes;
}

/* Every n-th sample's label is no number; its neighbour has none at all. */
static bool is_damaged(uint32_t sample, uint32_t every)
{
    return every && (sample % every == 3 || sample % every == 4);
}

static void add_shards(struct stk_io *world, uint32_t every, bool packed)
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
             stk_world_add(world, name, packed ? gzip.data : tar.data,
                           packed ? gzip.bytes : tar.bytes),
             0);
        t_tar_free(&tar);
        t_tar_free(&gzip);
    }
}

static bool rig_open(struct rig *rig, uint32_t threads, uint32_t every, bool packed)
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
    if (stk_world_open(&rig->world, 1, &io, &error) < 0) {
        return T_STR("world", error.what, "");
    }
    add_shards(rig->world, every, packed);
    if (stk_engine_open_on(&rig->engine, rig->world, &engine, &error) < 0 ||
        stoker_dataset_open(&rig->dataset, rig->engine, &dataset, &error) < 0) {
        stoker_engine_close(rig->engine);
        return T_STR(error.where, error.what, "");
    }
    return true;
}

static void rig_close(struct rig *rig)
{
    stoker_dataset_close(rig->dataset);
    stoker_engine_close(rig->engine);
}

static struct stoker_loader *open_loader(struct rig *rig, struct stoker_loader_options options)
{
    struct stoker_loader *loader = NULL;
    struct stoker_error error = {0};

    options.struct_size = sizeof options;
    options.fields = fields;
    options.field_count = STK_COUNT(fields);
    options.window_blocks = 2;
    options.tail = options.tail ? options.tail : STOKER_TAIL_KEEP;
    options.on_error = options.on_error ? options.on_error : STOKER_ON_ERROR_SKIP;
    options.io_retry_wait_ms = options.io_retry_wait_ms ? options.io_retry_wait_ms : 1;
    if (stoker_loader_open(&loader, rig->dataset, &options, &error) < 0) {
        T_STR(error.where, error.what, "");
    }
    return loader;
}

/* Gives one batch to the trace: 1, 0 at the end, or the status. */
static int take(struct stoker_loader *loader, struct trace *trace, struct stoker_error *error)
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
static int stream(struct stoker_loader *loader, uint64_t epochs, struct trace *trace,
                  struct stoker_error *error)
{
    int status = 0;

    while (epochs > 0 && status >= 0) {
        status = take(loader, trace, error);
        epochs -= status == 0;
    }
    return status;
}

static bool same(const char *name, const struct trace *a, const struct trace *b)
{
    return T_EQ(name, a->count, b->count) &&
           T_EQ(name, memcmp(a->ids, b->ids, a->count * sizeof a->ids[0]), 0);
}

/* The list, checked against what is damaged; returns how many are listed. */
static uint64_t check_list(const char *name, const struct stoker_loader *loader, uint32_t every)
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

/* One stream of the whole world: the ranks' slices put side by side again, step by step. */
static void stream_ranks(struct rig *rig, uint32_t world_size, uint32_t batch, struct trace *trace)
{
    struct stoker_loader *loaders[4];
    struct stoker_error error = {0};
    uint32_t ended = 0;
    int status = 1;

    for (uint32_t r = 0; r < world_size; r++) {
        loaders[r] = open_loader(rig, (struct stoker_loader_options){.batch_size = batch,
                                                                     .rank = r,
                                                                     .world_size = world_size,
                                                                     .tail = STOKER_TAIL_DROP,
                                                                     .seed = 3});
    }
    while (ended < EPOCHS && status >= 0) {
        for (uint32_t r = 0; r < world_size && status >= 0; r++) {
            status = take(loaders[r], trace, &error);
        }
        ended += status == 0;
    }
    T_EQ("ranks end together", status, 0);
    for (uint32_t r = 0; r < world_size; r++) {
        stoker_loader_close(loaders[r]);
    }
}

static const struct same_row {
    const char *name;
    uint32_t threads, world_size, batch, every;
    bool cold, packed;
} same_rows[] = {
    {"2 threads", 2, 1, 24, 20, false, false},
    {"3 threads", 3, 1, 24, 20, false, false},
    {"2 ranks", 1, 2, 12, 20, false, false},
    {"3 ranks, 2 threads", 2, 3, 8, 20, false, false},
    {"cold, 2 threads", 2, 1, 24, 20, true, false},
    {"2 of 5 damaged", 3, 2, 12, 5, false, false},
    {"2 of 5 damaged, cold", 2, 3, 8, 5, true, false},
};

static void test_same(void)
{
    static const struct stk_world_rule cold = {.fault = STK_FAULT_COLD};

    T_EACH(same_row, row, same_rows)
    {
        static struct trace want, got;
        struct rig rig;

        want.count = got.count = 0;
        if (!rig_open(&rig, 1, row->every, false)) {
            return;
        }
        stream_ranks(&rig, 1, 24, &want);
        rig_close(&rig);
        if (!rig_open(&rig, row->threads, row->every, row->packed)) {
            return;
        }
        if (row->cold) {
            stk_world_rule(rig.world, &cold);
        }
        stream_ranks(&rig, row->world_size, row->batch, &got);
        rig_close(&rig);
        same(row->name, &got, &want);
        for (uint64_t i = 0; i < got.count; i++) {
            T_TRUE(row->name, !is_damaged((uint32_t)got.ids[i], row->every));
        }
    }
}

/* A loader that goes on in the middle of a later epoch knows of no damage, and gives the same. */
static void test_resume(void)
{
    for (uint32_t threads = 1; threads <= 3; threads++) {
        static struct trace whole, head, rest;
        struct stoker_loader_options options = {.batch_size = 16, .seed = 9};
        struct stoker_state state;
        struct stoker_error error = {0};
        struct stoker_loader *loader;
        struct rig rig;

        whole.count = head.count = rest.count = 0;
        if (!rig_open(&rig, threads, 7, false)) {
            return;
        }
        loader = open_loader(&rig, options);
        T_EQ("whole", stream(loader, EPOCHS, &whole, &error), 0);
        stoker_loader_close(loader);

        loader = open_loader(&rig, options);
        T_EQ("first epoch", stream(loader, 1, &head, &error), 0);
        for (int i = 0; i < 5; i++) {
            T_EQ("next", take(loader, &head, &error), 1);
        }
        stoker_loader_state(loader, &state);
        stoker_loader_close(loader);
        loader = open_loader(&rig, options);
        T_EQ("state", stoker_loader_set_state(loader, &state, &error), 0);
        T_EQ("rest", stream(loader, EPOCHS - 1, &rest, &error), 0);
        T_EQ("both", head.count + rest.count, whole.count);
        T_EQ("head", memcmp(head.ids, whole.ids, head.count * sizeof head.ids[0]), 0);
        T_EQ("rest", memcmp(rest.ids, whole.ids + head.count, rest.count * sizeof rest.ids[0]), 0);
        stoker_loader_close(loader);
        rig_close(&rig);
    }
}

/* The list: each damaged sample once, in the same order whatever the threads. */
static void test_list(void)
{
    uint64_t order[SAMPLES] = {0}, expected = 0;

    for (uint32_t i = 0; i < SAMPLES; i++) {
        expected += is_damaged(i, 10);
    }
    for (uint32_t threads = 1; threads <= 3; threads++) {
        static struct trace trace;
        struct stoker_stats stats = {.struct_size = sizeof stats};
        struct stoker_loader *loader;
        struct rig rig;

        if (!rig_open(&rig, threads, 10, false)) {
            return;
        }
        trace.count = 0;
        loader = open_loader(&rig, (struct stoker_loader_options){.batch_size = 16, .seed = 2});
        T_EQ("one epoch", stream(loader, 1, &trace, NULL), 0);
        T_EQ("all are met in an epoch", check_list("list", loader, 10), expected);
        for (uint64_t i = 0; i < expected; i++) {
            struct stoker_quarantine_entry entry = {.struct_size = sizeof entry};
            stoker_loader_quarantine(loader, i, &entry);
            T_TRUE("same order", threads == 1 || order[i] == entry.sample);
            order[i] = entry.sample;
        }
        stoker_loader_stats(loader, &stats);
        T_EQ("bad", stats.bad_samples, expected);
        T_EQ("second epoch", stream(loader, 1, &trace, NULL), 0);
        stoker_loader_stats(loader, &stats);
        T_EQ("replaced in both", stats.substituted, 2 * expected);
        T_EQ("once each", check_list("list", loader, 10), expected);
        stoker_loader_close(loader);
        rig_close(&rig);
    }
}

/* Another data set for the rig: a shard that has damaged labels only, after the good ones or alone.
 */
static void open_bad_shard(struct rig *rig, bool with_good)
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
    T_EQ("add", stk_world_add(rig->world, "/all/bad.tar", tar.data, tar.bytes), 0);
    t_tar_free(&tar);
    T_EQ("open", stoker_dataset_open(&rig->dataset, rig->engine, &options, NULL), 0);
}

/* What is known to be damaged is not read again: its shard may fail after the first epoch. */
static void test_not_read_again(void)
{
    static const struct stk_world_rule rules[] = {
        {.path = "/all/bad.tar", .fault = STK_FAULT_EIO},
        {.path = "/all/bad.tar", .fault = STK_FAULT_DENIED},
        {.fault = STK_FAULT_COLD},
    };

    for (uint64_t cold = 0; cold < 2; cold++) {
        struct stoker_batch *batch;
        struct stoker_error error = {0};
        struct stoker_loader *loader;
        struct rig rig;
        int status = 1;

        if (!rig_open(&rig, 2, 0, false)) {
            return;
        }
        open_bad_shard(&rig, true);
        loader = open_loader(&rig, (struct stoker_loader_options){.batch_size = 16});
        for (int epoch = 0; epoch < 3 && status >= 0; epoch++) {
            while ((status = stoker_loader_next(loader, 20000, &batch, &error)) == 1) {
                stoker_batch_close(batch);
            }
            for (uint64_t i = 0; i < 2 + cold; i++) {
                stk_world_rule(rig.world, &rules[i]);
            }
        }
        T_EQ("not read again", status, 0);
        T_EQ("all known", stoker_loader_quarantine_count(loader), 20);
        stoker_loader_close(loader);
        rig_close(&rig);
    }
}

static void test_list_bound(void)
{
    static struct trace trace;
    struct stoker_stats stats = {.struct_size = sizeof stats};
    struct stoker_loader *loader;
    struct rig rig;

    if (!rig_open(&rig, 2, 10, false)) {
        return;
    }
    trace.count = 0;
    loader = open_loader(&rig, (struct stoker_loader_options){.batch_size = 16, .bad_list_max = 3});
    T_EQ("stream", stream(loader, 2, &trace, NULL), 0);
    T_EQ("bounded", check_list("bounded", loader, 10), 3);
    stoker_loader_stats(loader, &stats);
    T_TRUE("the rest is counted", stats.bad_samples > 20);
    stoker_loader_close(loader);
    rig_close(&rig);
}

static const struct limit_row {
    const char *name;
    uint64_t samples_max;
    double share_max;
    uint32_t every;
    uint64_t want; /* samples delivered before LIMIT; 0: none is passed */
} limit_rows[] = {
    {"no limit", 0, 0, 10, 0},
    {"count, not reached", 40, 0, 10, 0},
    {"count", 5, 0, 10, UINT64_MAX}, /* the same for all threads */
    {"share, not reached", 0, 0.3, 10, 0},
    {"share", 0, 0.1, 10, 992}, /* the batch with which the samples become 1,000 */
};

static void test_limits(void)
{
    T_EACH(limit_row, row, limit_rows)
    {
        uint64_t before = 0;

        for (uint32_t threads = 1; threads <= 3; threads++) {
            struct stoker_stats stats = {.struct_size = sizeof stats};
            struct stoker_state state, again;
            struct stoker_error error = {0};
            struct stoker_batch *batch;
            struct stoker_loader *loader;
            struct rig rig;
            int status = 0;

            if (!rig_open(&rig, threads, row->every, false)) {
                return;
            }
            loader = open_loader(&rig,
                                 (struct stoker_loader_options){.batch_size = 16,
                                                                .seed = 4,
                                                                .tail = STOKER_TAIL_WRAP,
                                                                .bad_samples_max = row->samples_max,
                                                                .bad_share_max = row->share_max});
            for (int epoch = 0; epoch < 6 && status >= 0; epoch++) {
                while ((status = stoker_loader_next(loader, 20000, &batch, &error)) == 1) {
                    stoker_batch_close(batch);
                }
            }
            T_EQ(row->name, status, row->want ? STOKER_ERROR_LIMIT : 0);
            stoker_loader_stats(loader, &stats);
            if (status < 0) {
                T_ERROR(row->name, &error);
                T_HAS(row->name, error.where, "train-");
                T_TRUE(row->name, row->want == UINT64_MAX || stats.samples == row->want);
                T_TRUE(row->name, threads == 1 || stats.samples == before);
                T_TRUE(row->name, check_list(row->name, loader, row->every) > row->samples_max);
                stoker_loader_state(loader, &state);
                T_EQ("it stays", stoker_loader_next(loader, 20000, &batch, NULL),
                     STOKER_ERROR_LIMIT);
                stoker_loader_state(loader, &again);
                T_EQ("before that batch", again.position, state.position);
            }
            before = stats.samples;
            stoker_loader_close(loader);
            rig_close(&rig);
        }
    }
}

static const struct retry_row {
    const char *name;
    struct stk_world_rule rule;
    uint32_t retries;
    bool cold, packed;
    int want;
} retry_rows[] = {
    {"EIO twice", {.fault = STK_FAULT_EIO, .times = 2}, 0, false, false, 0},
    {"EIO twice, cold", {.fault = STK_FAULT_EIO, .times = 2}, 0, true, false, 0},
    {"EIO twice, packed", {.fault = STK_FAULT_EIO, .times = 2}, 0, false, true, 0},
    {"EIO for ever",
     {.path = "/data/train-002.tar", .fault = STK_FAULT_EIO},
     0,
     false,
     false,
     -EIO},
    {"EIO for ever, cold",
     {.path = "/data/train-002.tar", .fault = STK_FAULT_EIO},
     2,
     true,
     false,
     -EIO},
    {"EIO for ever, packed",
     {.path = "/data/train-002.tar.gz", .fault = STK_FAULT_EIO},
     0,
     false,
     true,
     -EIO},
    {"EIO once, no retry",
     {.fault = STK_FAULT_EIO, .times = 1},
     STOKER_NO_RETRIES,
     true,
     false,
     -EIO},
};

/* What the machine does is never skipped: tried again, then raised. */
static void test_retries(void)
{
    static const struct stk_world_rule cold = {.fault = STK_FAULT_COLD};

    T_EACH(retry_row, row, retry_rows)
    {
        static struct trace trace;
        struct stoker_stats stats = {.struct_size = sizeof stats};
        struct stoker_error error = {0};
        struct stoker_loader *loader;
        struct rig rig;

        if (!rig_open(&rig, 2, 0, row->packed)) {
            return;
        }
        stk_world_rule(rig.world, &row->rule);
        if (row->cold) {
            stk_world_rule(rig.world, &cold);
        }
        trace.count = 0;
        loader = open_loader(
            &rig, (struct stoker_loader_options){.batch_size = 16, .io_retries = row->retries});
        T_EQ(row->name, stream(loader, 1, &trace, &error), row->want);
        stoker_loader_stats(loader, &stats);
        T_EQ(row->name, stats.substituted, 0);
        T_EQ(row->name, stoker_loader_quarantine_count(loader), 0);
        if (row->want) {
            bool none = row->retries == STOKER_NO_RETRIES;

            T_ERROR(row->name, &error);
            T_TRUE(row->name, (stats.retries > 0) != none);
            T_TRUE(row->name, (strstr(error.what, "retries") != NULL) != none);
            T_HAS(row->name, error.shard, "/data/train-");
        } else {
            T_EQ(row->name, trace.count, SAMPLES);
            T_TRUE(row->name, stats.retries >= 1);
        }
        stoker_loader_close(loader);
        rig_close(&rig);
    }
}

/* A long wait before a retry does not hold up close, nor the end of the engine's threads. */
static void test_close_while_waiting(void)
{
    static const struct stk_world_rule eio = {.fault = STK_FAULT_EIO};
    struct stoker_stats stats = {.struct_size = sizeof stats};
    struct stoker_batch *batch;
    struct stoker_loader *loader;
    struct rig rig;

    if (!rig_open(&rig, 2, 0, false)) {
        return;
    }
    stk_world_rule(rig.world, &eio);
    loader = open_loader(
        &rig, (struct stoker_loader_options){.batch_size = 16, .io_retry_wait_ms = 10000});
    T_EQ("waits", stoker_loader_next(loader, 100, &batch, NULL), STOKER_ERROR_AGAIN);
    stoker_loader_stats(loader, &stats);
    stoker_loader_close(loader);
    rig_close(&rig); /* joins the threads: the harness ends a test that takes too long */
}

static void test_raise(void)
{
    static struct trace trace;
    struct stoker_error error = {0};
    struct stoker_loader *loader;
    struct rig rig;

    if (!rig_open(&rig, 2, 50, false)) {
        return;
    }
    trace.count = 0;
    loader = open_loader(&rig, (struct stoker_loader_options){.batch_size = 4,
                                                              .shuffle = STOKER_SHUFFLE_NONE,
                                                              .on_error = STOKER_ON_ERROR_RAISE});
    T_EQ("raised", stream(loader, 1, &trace, &error), STOKER_ERROR_CORRUPT);
    T_EQ("listed", check_list("raise", loader, 50), 1);
    T_EQ("again", stream(loader, 1, &trace, &error), STOKER_ERROR_CORRUPT);
    T_STR("the same", error.key, "s00003");
    T_EQ("listed once", check_list("raise", loader, 50), 1);
    stoker_loader_close(loader);
    rig_close(&rig);
}

/* Nothing is left to take instead: an error, found or known. */
static void test_all_damaged(void)
{
    static struct trace trace;
    struct stoker_error error = {0}, again = {0};
    struct stoker_loader *loader;
    struct rig rig;

    if (!rig_open(&rig, 2, 5, false)) {
        return;
    }
    open_bad_shard(&rig, false);
    loader = open_loader(&rig, (struct stoker_loader_options){.batch_size = 4});
    T_EQ("found", take(loader, &trace, &error), STOKER_ERROR_CORRUPT);
    stoker_loader_set_epoch(loader, 1, NULL);
    T_EQ("known", take(loader, &trace, &again), STOKER_ERROR_CORRUPT);
    T_STR("what", again.what, error.what);
    T_STR("shard", again.shard, error.shard);
    T_HAS("key", again.where, "key 'x");
    stoker_loader_close(loader);
    rig_close(&rig);
}

static int64_t settled_alive(void)
{
    int64_t alive = stk_mem_alive();

    for (int quiet = 0; quiet < 20; quiet++) {
        usleep(10000);
        if (stk_mem_alive() != alive) {
            alive = stk_mem_alive();
            quiet = 0;
        }
    }
    return alive;
}

/* Streams on through failures that a next call gets over; the calls of the allocator. */
static uint64_t run_failing(uint64_t fail_at)
{
    static struct trace trace, want;
    struct stoker_error error = {0};
    struct stoker_loader *loader;
    struct rig rig;
    uint64_t before;
    int status = 1, failures = 0;

    trace.count = 0;
    if (!rig_open(&rig, 1, 10, false)) {
        return 0;
    }
    loader = open_loader(&rig, (struct stoker_loader_options){.batch_size = 50});
    before = stk_mem_calls();
    stk_mem_fail_nth(fail_at);
    while (status != 0 && failures < 5) {
        status = take(loader, &trace, &error);
        failures += status < 0;
        if (status < 0) {
            T_ERROR("fail-nth", &error);
        }
    }
    stk_mem_fail_nth(0);
    T_EQ("comes to the end", status, 0);
    if (fail_at == 0) {
        want = trace;
    }
    same("fail-nth", &trace, &want);
    uint64_t calls = stk_mem_calls() - before;
    stoker_loader_close(loader);
    rig_close(&rig);
    return calls;
}

static void test_fail_nth(void)
{
    int64_t alive = settled_alive();
    uint64_t calls = run_failing(0);

    for (uint64_t n = 1; n <= calls; n += 1 + calls / 200) {
        run_failing(n);
    }
    T_EQ("no leak", settled_alive(), alive);
}

int main(void)
{
    test_same();
    test_resume();
    test_list();
    test_not_read_again();
    test_list_bound();
    test_limits();
    test_retries();
    test_close_while_waiting();
    test_raise();
    test_all_damaged();
    test_fail_nth();
    return t_finish();
}
