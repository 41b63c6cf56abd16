/* Goal: the list of damaged samples, its file and the limits follow the delivered batches, whatever
 * the threads; samples that are known to be damaged are not read again.
 * Method: streams of tars with damaged samples in the simulator, with faults of the file. Covers
 * quarantine.c, and io/write.h as it is used for it. */
#include "loader/pending/error_policy_test.h"

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

/* A sample that is known to be damaged is not read again: its shard may fail after the first
 * epoch. */
static void test_not_read_again(void)
{
    static const struct stk_sim_rule rules[] = {
        {.path = "/all/bad.tar", .fault = STK_SIM_FAULT_EIO},
        {.path = "/all/bad.tar", .fault = STK_SIM_FAULT_DENIED},
        {.fault = STK_SIM_FAULT_COLD},
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
                stk_sim_add_rule(rig.world, &rules[i]);
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

/* A file of the simulator as text; "" if there is none. */
static char *read_file(struct stk_io *io, const char *path)
{
    static char text[1 << 16];
    struct stk_file *file = NULL;
    int64_t count = 0;

    if (stk_io_open_file(io, path, &file, NULL) == 0) {
        count = stk_io_read_wait(file, 0, text, sizeof text - 1);
        stk_io_close_file(file);
    }
    text[count > 0 ? count : 0] = 0;
    return text;
}

/* The file's lines, each checked to be the list's entry. */
static void check_file(const char *name, struct stk_io *io, const char *path,
                       const struct stoker_loader *loader)
{
    uint64_t count = stoker_loader_quarantine_count(loader);
    char *text = read_file(io, path);

    T_TRUE(name, count > 5);
    for (uint64_t i = 0; i < count; i++) {
        struct stoker_quarantine_entry entry = {.struct_size = sizeof entry};
        char want[512], offset[32] = "null", *end = strchr(text, '\n');

        if (!T_TRUE(name, end != NULL)) {
            return;
        }
        *end = 0;
        stoker_loader_quarantine(loader, i, &entry);
        if (entry.offset != STOKER_NO_OFFSET) {
            snprintf(offset, sizeof offset, "%llu", (unsigned long long)entry.offset);
        }
        snprintf(want, sizeof want,
                 "{\"shard\": \"%s\", \"key\": \"%s\", \"offset\": %s, \"status\": \"%s\", "
                 "\"reason\": \"%s\", \"sample\": %llu}",
                 entry.shard, entry.key, offset, stoker_status_name(entry.status), entry.reason,
                 (unsigned long long)entry.sample);
        T_STR(name, text, want);
        text = end + 1;
    }
    T_STR(name, text, "");
}

static const struct file_row {
    const char *name;
    const char *before; /* in the file */
    struct stk_sim_rule rule;
    uint32_t ranks;
    int want; /* of the first failure; then the rule is used up */
} file_rows[] = {
    {"new", NULL, {0}, 1, 0},
    {"torn", "{\"shard\": \"/da", {0}, 1, 0},
    {"ranks", NULL, {0}, 2, 0},
    {"write fails once", NULL, {.fault = STK_SIM_FAULT_WRITE, .times = 1}, 1, -EIO},
};

static void test_file(void)
{
    T_EACH(file_row, row, file_rows)
    {
        for (uint32_t rank = 0; rank < row->ranks; rank++) {
            static struct trace trace;
            char path[64];
            struct stoker_error error = {0};
            struct stoker_loader *loader;
            struct rig rig;
            int status = 1, failed = 0;

            if (!rig_open(&rig, 2, 10, false)) {
                return;
            }
            stk_sim_add(rig.world, "/log", NULL, 0);
            snprintf(path, sizeof path, row->ranks > 1 ? "/log/bad.rank%u" : "/log/bad", rank);
            if (row->before) {
                stk_sim_add(rig.world, path, row->before, strlen(row->before));
            }
            loader = open_loader(&rig, (struct stoker_loader_options){.batch_size = 16,
                                                                      .rank = rank,
                                                                      .world_size = row->ranks,
                                                                      .quarantine = "/log/bad"});
            if (row->rule.fault) {
                stk_sim_add_rule(rig.world, &row->rule);
            }
            trace.count = 0;
            while (status != 0 && failed < 2) {
                status = take(loader, &trace, &error);
                failed += status < 0;
                T_TRUE(row->name, status >= 0 || (status == row->want && error.advice[0]));
            }
            T_EQ(row->name, failed, row->want < 0);
            T_EQ(row->name, trace.count, SAMPLES / row->ranks); /* no batch is lost */
            check_list(row->name, loader, 10);
            check_file(row->name, rig.world, path, loader);
            stoker_loader_close(loader);
            rig_close(&rig);
        }
    }
}

/* A run continues in another loader, as after a refresh: samples that were listed stay listed, are
 * not written again, and count for the limits, once each. */
static void test_after(void)
{
    static struct trace trace;
    struct stoker_loader_options options = {
        .batch_size = 16, .quarantine = "/log/bad", .bad_samples_max = 40, .bad_share_max = 0.3};
    struct stoker_stats stats = {.struct_size = sizeof stats};
    struct stoker_error error = {0};
    struct stoker_loader *first, *second, *third;
    struct rig rig;

    if (!rig_open(&rig, 2, 10, false)) {
        return;
    }
    stk_sim_add(rig.world, "/log", NULL, 0);
    first = open_loader(&rig, options);
    trace.count = 0;
    T_EQ("the first", stream(first, 1, &trace, NULL), 0);
    T_EQ("all are met", check_list("first", first, 10), 40);
    options.continues_from = first;
    second = open_loader(&rig, options);
    stoker_loader_close(first);
    T_EQ("still listed", check_list("second", second, 10), 40);
    trace.count = 0;
    T_EQ("met again", stream(second, 1, &trace, &error), 0);
    T_EQ("once each", check_list("second", second, 10), 40);
    check_file("a line each", rig.world, "/log/bad", second);
    stoker_loader_stats(second, &stats);
    T_EQ("counted once", stats.bad_samples, 40);
    T_EQ("its own", stats.samples, SAMPLES);
    /* In the run: 600 samples, 120 replaced, are too few to compute a share; 1,000 are enough. */
    options.continues_from = second;
    options.bad_share_max = 0.1;
    third = open_loader(&rig, options);
    stoker_loader_close(second);
    trace.count = 0;
    T_EQ("too few", stream(third, 1, &trace, &error), 0);
    trace.count = 0;
    T_EQ("too few", stream(third, 1, &trace, &error), 0);
    trace.count = 0;
    T_EQ("share of the run", stream(third, 1, &trace, &error), STOKER_ERROR_LIMIT);
    T_HAS("share of the run", error.where, "of 1000 replaced");
    options.bad_share_max = 0;
    options.bad_samples_max = 39;
    options.continues_from = third;
    second = open_loader(&rig, options);
    stoker_loader_close(third);
    T_EQ("count of the run", stream(second, 1, &trace, &error), STOKER_ERROR_LIMIT);
    T_HAS("count of the run", error.where, "40 damaged, 39 allowed");
    stoker_loader_close(second);
    rig_close(&rig);
}

static void test_refused(void)
{
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = fields,
                                            .field_count = STK_COUNT(fields),
                                            .batch_size = 4,
                                            .quarantine = "/absent/bad"};
    struct stoker_loader *loader = NULL;
    struct stoker_error error = {0};
    struct rig rig;

    if (!rig_open(&rig, 1, 0, false)) {
        return;
    }
    T_EQ("no folder", stoker_loader_open(&loader, rig.dataset, &options, &error), -ENOENT);
    T_ERROR("no folder", &error);
    options.quarantine = NULL;
    options.bad_share_max = 1.5;
    T_EQ("no share", stoker_loader_open(&loader, rig.dataset, &options, &error),
         STOKER_ERROR_ARGUMENT);
    T_HAS("no share", error.advice, "bad_share_max");
    rig_close(&rig);
}

int main(void)
{
    test_list();
    test_not_read_again();
    test_list_bound();
    test_limits();
    test_file();
    test_after();
    test_refused();
    return t_finish();
}
