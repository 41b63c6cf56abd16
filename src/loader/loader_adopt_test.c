/* Goal: a loader that was opened without settings of the order continues a run with other settings
 * from its state, also while it reads ahead; settings of the caller are never changed.
 * Method: runs in each order on tars of the simulator return the rest of an epoch and the next one;
 * a loader with default settings, from which batches were taken, must return the same samples. */
#include "loader/pending/error_policy_test.h"
#include "test/idle_blocks.h"

static const uint64_t ends[2] = {80, SAMPLES}, weights[2] = {1, 2};

static const struct run_row {
    const char *name;
    uint32_t version, shuffle, window, threads;
    bool is_mix;
} rows[] = {
    {"version 1", 1, STOKER_SHUFFLE_BLOCK, 3, 2, false},
    {"blocks", 2, STOKER_SHUFFLE_BLOCK, 2, 3, false},
    {"another window", 2, STOKER_SHUFFLE_BLOCK, 300, 1, false},
    {"full, version 1", 1, STOKER_SHUFFLE_FULL, 64, 2, false},
    {"mix, version 1", 1, STOKER_SHUFFLE_BLOCK, 2, 3, true},
    {"mix, full, version 1", 1, STOKER_SHUFFLE_FULL, 64, 1, true},
};

static struct stoker_loader *open_plain(struct rig *rig, struct stoker_loader_options options)
{
    struct stoker_loader *loader = NULL;

    options.struct_size = sizeof options;
    options.fields = fields;
    options.field_count = STK_COUNT(fields);
    options.batch_size = 12;
    options.tail = STOKER_TAIL_WRAP;
    options.seed = 5;
    T_EQ("open", stoker_loader_open(&loader, rig->dataset, &options, NULL), 0);
    return loader;
}

static uint64_t walk(struct stoker_loader *loader, struct trace *trace)
{
    struct stoker_error error = {0};
    uint64_t ends_seen = 0;

    trace->count = 0;
    while (ends_seen < 2) {
        int status = take(loader, trace, &error);

        if (status < 0) {
            T_STR(error.where, error.what, "");
            break;
        }
        ends_seen += status == 0;
    }
    return trace->count;
}

static void check_run(const struct run_row *row)
{
    static struct trace want, got;
    struct stoker_mix_options mix = {.struct_size = sizeof mix,
                                     .ends = ends,
                                     .weights = weights,
                                     .source_count = 2,
                                     .epoch_samples = 110};
    struct stoker_loader_options with = {.shuffle = row->shuffle,
                                         .window_blocks = row->window,
                                         .order_version = row->version,
                                         .mix = row->is_mix ? &mix : NULL};
    struct stoker_loader_options without = {.mix = with.mix};
    struct stoker_order_options settings = {.struct_size = sizeof settings, .mix = with.mix};
    struct stoker_loader *run, *other;
    struct stoker_state state, adopted;
    struct stoker_error error = {0};
    struct rig rig;

    if (!rig_open(&rig, row->threads, 0, false)) {
        return;
    }
    run = open_plain(&rig, with);
    other = open_plain(&rig, without);
    want.count = got.count = 0;
    for (int i = 0; i < 3; i++) {
        T_EQ(row->name, take(run, &want, &error), 1);
        T_EQ(row->name, take(other, &got, &error), 1);
    }
    T_EQ(row->name, stoker_loader_state(run, &state), 0);
    T_EQ(row->name, stoker_loader_set_state(other, &state, &error), 0);
    T_EQ(row->name, stoker_loader_state(other, &adopted), 0);
    T_TRUE(row->name, memcmp(&state, &adopted, sizeof state) == 0);
    T_EQ(row->name, stoker_loader_order(other, &settings), 0);
    T_EQ(row->name, settings.order_version, row->version);
    T_EQ(row->name, settings.shuffle, row->shuffle);
    T_EQ(row->name, (long long)walk(run, &want), (long long)walk(other, &got));
    T_TRUE(row->name, want.count > 100 && memcmp(want.ids, got.ids, want.count * 8) == 0);
    T_EQ(row->name, stoker_loader_state(run, &state), 0);
    T_EQ(row->name, stoker_loader_state(other, &adopted), 0);
    T_EQ(row->name, (long long)adopted.fingerprint, (long long)state.fingerprint);
    stoker_loader_close(run);
    stoker_loader_close(other);
    rig_close(&rig);
}

/* Settings of the caller, and differences that no default explains, are refused; the stream of the
 * loader does not change. */
static void test_refused(void)
{
    struct stoker_loader_options settings[4] = {{.shuffle = STOKER_SHUFFLE_FULL},
                                                {.window_blocks = 5},
                                                {.order_version = 2},
                                                {.shuffle = STOKER_SHUFFLE_BLOCK, .seed = 5}};
    static const char *const names[4] = {"shuffle:", "window:", "order version:", "seed:"};
    struct stoker_loader *run, *other;
    struct stoker_state state, before, after;
    struct rig rig;

    if (!rig_open(&rig, 2, 0, false)) {
        return;
    }
    run = open_plain(&rig, (struct stoker_loader_options){.shuffle = STOKER_SHUFFLE_BLOCK,
                                                          .window_blocks = 3,
                                                          .order_version = 1});
    T_EQ("state", stoker_loader_state(run, &state), 0);
    for (int i = 0; i < 4; i++) {
        struct stoker_error error = {0};

        other = open_plain(&rig, settings[i]);
        state.seed = i == 3 ? 6 : 5;
        T_EQ("before", stoker_loader_state(other, &before), 0);
        T_EQ(names[i], stoker_loader_set_state(other, &state, &error), STOKER_ERROR_STATE);
        T_HAS(names[i], error.where, names[i]);
        T_ERROR(names[i], &error);
        T_EQ("after", stoker_loader_state(other, &after), 0);
        T_TRUE(names[i], memcmp(&before, &after, sizeof before) == 0);
        stoker_loader_close(other);
    }
    stoker_loader_close(run);
    rig_close(&rig);
}

int main(void)
{
    T_EACH(run_row, row, rows)
    {
        check_run(row);
    }
    test_refused();
    T_EQ("no leak", t_idle_blocks(), 0);
    return t_finish();
}
