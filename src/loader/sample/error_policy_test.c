/* Goal: the bad-data policy: the substitute of a damaged sample is a function of its position, so
 * that threads, ranks, restarts and earlier knowledge of damage change nothing; failures of storage
 * are retried, then raised.
 * Method: tars with damaged samples in the simulator, streamed by different threads, world sizes
 * and start positions, and compared with each other. Covers read_retry.c, sample_read.c,
 * sample_work.c and substitute.c. */
#include "loader/pending/error_policy_test.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/idle_blocks.h"

/* The stream of all ranks: their slices joined step by step. */
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
    static const struct stk_sim_rule cold = {.fault = STK_SIM_FAULT_COLD};

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
            stk_sim_add_rule(rig.world, &cold);
        }
        stream_ranks(&rig, row->world_size, row->batch, &got);
        rig_close(&rig);
        same(row->name, &got, &want);
        for (uint64_t i = 0; i < got.count; i++) {
            T_TRUE(row->name, !is_damaged((uint32_t)got.ids[i], row->every));
        }
    }
}

/* The order's sample at each position: a loader that reads no member finds no damage. */
static void scheduled(struct rig *rig, struct stoker_loader_options options, uint64_t ids[STREAM])
{
    static const struct stoker_field_options numbers = {.name = "id", .kind = STOKER_FIELD_SAMPLE};
    struct stoker_loader *loader = NULL;
    struct stoker_batch *batch;
    uint64_t count = 0;

    options.struct_size = sizeof options;
    options.fields = &numbers;
    options.field_count = 1;
    T_EQ("order", stoker_loader_open(&loader, rig->dataset, &options, NULL), 0);
    for (uint32_t epoch = 0; epoch < EPOCHS;) {
        int status = stoker_loader_next(loader, 20000, &batch, NULL);

        epoch += status != 1;
        for (uint32_t i = 0; status == 1 && i < stoker_batch_samples(batch); i++) {
            ids[count++ % STREAM] = stoker_batch_ids(batch)[i];
        }
        stoker_batch_close(status == 1 ? batch : NULL);
    }
    T_EQ("order", count, STREAM);
    stoker_loader_close(loader);
}

/* The function itself, computed here: of seed, epoch, position and attempt, and of nothing else. It
 * is frozen: a run that resumes with a newer version of this library returns what the older version
 * would have returned. */
static void test_function(void)
{
    static struct trace trace;
    static uint64_t order[STREAM];
    const uint64_t seed = 11;
    const struct stoker_loader_options options = {.batch_size = 24,
                                                  .shuffle = STOKER_SHUFFLE_FULL,
                                                  .tail = STOKER_TAIL_KEEP,
                                                  .window_blocks = 2,
                                                  .seed = seed};
    struct stoker_error error = {0};
    struct stoker_loader *loader;
    struct rig rig;
    uint32_t again = 0;

    trace.count = 0;
    if (!rig_open(&rig, 2, 5, false)) {
        return;
    }
    scheduled(&rig, options, order);
    loader = open_loader(&rig, options);
    T_EQ("stream", stream(loader, EPOCHS, &trace, &error), 0);
    T_EQ("all of it", trace.count, STREAM);
    for (uint64_t i = 0; i < trace.count; i++) {
        uint64_t epoch = i / SAMPLES, position = i % SAMPLES, want = order[i];

        for (uint64_t attempt = 1; is_damaged((uint32_t)want, 5); attempt++) {
            uint64_t key = stk_random_key(stk_random_key(seed, epoch), position);

            want = stk_random_key(key, UINT64_C(0x73756273) << 8 | attempt) % SAMPLES; /* "subs" */
            again += attempt > 1;
        }
        T_EQ("substitute", trace.ids[i], want);
    }
    T_TRUE("second attempts, too", again > 20);
    stoker_loader_close(loader);
    rig_close(&rig);
}

/* A loader that continues in the middle of a later epoch knows no damage, and returns the same. */
static void test_resume(void)
{
    for (uint32_t threads = 1; threads <= 3; threads++) {
        static struct trace full_run, head, rest;
        struct stoker_loader_options options = {.batch_size = 16, .seed = 9};
        struct stoker_state state;
        struct stoker_error error = {0};
        struct stoker_loader *loader;
        struct rig rig;

        full_run.count = head.count = rest.count = 0;
        if (!rig_open(&rig, threads, 7, false)) {
            return;
        }
        loader = open_loader(&rig, options);
        T_EQ("complete", stream(loader, EPOCHS, &full_run, &error), 0);
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
        T_EQ("both", head.count + rest.count, full_run.count);
        T_EQ("head", memcmp(head.ids, full_run.ids, head.count * sizeof head.ids[0]), 0);
        T_EQ("rest", memcmp(rest.ids, full_run.ids + head.count, rest.count * sizeof rest.ids[0]),
             0);
        stoker_loader_close(loader);
        rig_close(&rig);
    }
}

static const struct retry_row {
    const char *name;
    struct stk_sim_rule rule;
    uint32_t retries;
    bool cold, packed;
    int want;
} retry_rows[] = {
    {"EIO twice", {.fault = STK_SIM_FAULT_EIO, .times = 2}, 0, false, false, 0},
    {"EIO twice, cold", {.fault = STK_SIM_FAULT_EIO, .times = 2}, 0, true, false, 0},
    {"EIO twice, packed", {.fault = STK_SIM_FAULT_EIO, .times = 2}, 0, false, true, 0},
    {"EIO for ever",
     {.path = "/data/train-002.tar", .fault = STK_SIM_FAULT_EIO},
     0,
     false,
     false,
     -EIO},
    {"EIO for ever, cold",
     {.path = "/data/train-002.tar", .fault = STK_SIM_FAULT_EIO},
     2,
     true,
     false,
     -EIO},
    {"EIO for ever, packed",
     {.path = "/data/train-002.tar.gz", .fault = STK_SIM_FAULT_EIO},
     0,
     false,
     true,
     -EIO},
    {"EIO once, no retry",
     {.fault = STK_SIM_FAULT_EIO, .times = 1},
     STOKER_NO_RETRIES,
     true,
     false,
     -EIO},
};

/* Failures of the machine are never skipped: retried, then raised. */
static void test_retries(void)
{
    static const struct stk_sim_rule cold = {.fault = STK_SIM_FAULT_COLD};

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
        stk_sim_add_rule(rig.world, &row->rule);
        if (row->cold) {
            stk_sim_add_rule(rig.world, &cold);
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
    static const struct stk_sim_rule eio = {.fault = STK_SIM_FAULT_EIO};
    struct stoker_stats stats = {.struct_size = sizeof stats};
    struct stoker_batch *batch;
    struct stoker_loader *loader;
    struct rig rig;

    if (!rig_open(&rig, 2, 0, false)) {
        return;
    }
    stk_sim_add_rule(rig.world, &eio);
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
    int64_t alive = t_idle_blocks();
    uint64_t calls = run_failing(0);

    for (uint64_t n = 1; n <= calls; n += 1 + calls / T_SPREAD(200)) {
        run_failing(n);
    }
    T_EQ("no leak", t_idle_blocks(), alive);
}

int main(void)
{
    test_same();
    test_function();
    test_resume();
    test_retries();
    test_close_while_waiting();
    test_raise();
    test_all_damaged();
    test_fail_nth();
    return t_finish();
}
