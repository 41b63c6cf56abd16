/* Goal: a loader computes its fingerprint on request, and not before: the value is the order's, in
 * a large world, for a mix, on any threads, also for a position some steps ago; without memory it
 * returns an error, and nothing is lost.
 * Method: streams compared with stoker_order_fingerprint of the same settings; the test reads the
 * pending steps in the loader. Covers loader/sampler/run_fingerprint.c too. */
#include "base/mem.h"
#include "loader/pending/error_policy_test.h"

#include "loader/pending/pending_batch.h"

static uint64_t print_of(const struct stoker_loader *loader, const struct stoker_mix_options *mix,
                         uint64_t first, uint64_t steps)
{
    struct stoker_order_options options = {.struct_size = sizeof options, .mix = mix};
    struct stoker_order *order = NULL;
    uint64_t sum = 0;

    T_EQ("settings", stoker_loader_order(loader, &options), 0);
    T_EQ("order", stoker_order_open(&order, &options, NULL), 0);
    for (uint64_t epoch = 0; steps > 0; epoch++) {
        uint64_t there = stoker_order_steps(order, epoch), count, part = 0;

        count = first < there ? stk_min(there - first, steps) : 0;
        T_EQ("fingerprint",
             stoker_order_fingerprint(order, epoch, first < there ? first : 0, count, &part), 0);
        sum += part;
        steps -= count;
        first -= stk_min(first, there);
    }
    stoker_order_close(order);
    return sum;
}

static void take_some(struct stoker_loader *loader, int batches)
{
    static struct trace trace;
    struct stoker_error error = {0};

    trace.count = 0;
    while (batches > 0) {
        batches -= T_TRUE("batch", take(loader, &trace, &error) >= 0) && trace.count > 0;
        trace.count = 0;
    }
}

static const struct waiting_row {
    const char *name;
    uint32_t threads, batch, world, tail;
    bool is_mix;
} waiting_rows[] = {
    {"one rank", 1, 16, 1, STOKER_TAIL_DROP, false},
    {"1,024 ranks", 1, 150, 1024, STOKER_TAIL_WRAP, false},
    {"1,024 ranks, 3 threads", 3, 150, 1024, STOKER_TAIL_WRAP, false},
    {"a mix, 1,024 ranks", 3, 150, 1024, STOKER_TAIL_WRAP, true},
    {"padded", 2, 16, 3, STOKER_TAIL_PAD, false},
};

static void test_waiting(const struct waiting_row *row)
{
    static const uint64_t ends[2] = {50, SAMPLES}, weights[2] = {3, 1};
    struct stoker_mix_options mix = {
        .struct_size = sizeof mix, .ends = ends, .weights = weights, .source_count = 2};
    struct stoker_loader_options options = {.batch_size = row->batch,
                                            .world_size = row->world,
                                            .tail = row->tail,
                                            .seed = 9,
                                            .mix = row->is_mix ? &mix : NULL};
    struct stoker_state state, back;
    struct stoker_stats stats = {.struct_size = sizeof stats};
    struct stoker_loader *loader;
    uint64_t epoch, position, epoch_now, position_now;
    struct rig rig;

    if (!rig_open(&rig, row->threads, 0, false)) {
        return;
    }
    loader = open_loader(&rig, options);
    take_some(loader, 2);
    T_EQ(row->name, stoker_loader_position(loader, &epoch, &position), 0);
    take_some(loader, 3);
    T_EQ(row->name, loader->locked.delivered_steps.run_count, 1);
    T_TRUE("nothing was worked out", loader->locked.delivered_steps.fingerprint == 0);
    T_EQ(row->name, stoker_loader_state(loader, &state), 0);
    T_TRUE(row->name, state.fingerprint == print_of(loader, options.mix, 0, 5));
    T_EQ("all is", loader->locked.delivered_steps.run_count, 0);
    T_EQ("once", loader->locked.delivered_steps.fingerprint, (long long)state.fingerprint);
    T_EQ("place", stoker_loader_position(loader, &epoch_now, &position_now), 0);
    T_TRUE("of the state", epoch_now == state.epoch && position_now == state.position);
    /* As it was three batches ago. */
    T_EQ(row->name, stoker_loader_state_at(loader, epoch, position, &back), 0);
    T_TRUE(row->name, back.fingerprint == print_of(loader, options.mix, 0, 2));
    T_TRUE("there", back.epoch == epoch && back.position == position);
    T_EQ("never there", stoker_loader_state_at(loader, epoch, position + 1, &back),
         STOKER_ERROR_ARGUMENT);
    take_some(loader, 1);
    T_EQ(row->name, stoker_loader_stats(loader, &stats), 0);
    T_TRUE("stats too", stats.fingerprint == print_of(loader, options.mix, 0, 6));
    T_EQ("back", stoker_loader_set_state(loader, &state, NULL), 0);
    take_some(loader, 1);
    T_EQ(row->name, stoker_loader_state(loader, &back), 0);
    T_EQ("a state's counts on", back.fingerprint, (long long)stats.fingerprint);
    stoker_loader_close(loader);
    rig_close(&rig);
}

/* Each jump is a run; more of them than there is room for are worked out on the way. */
static void test_jumps(void)
{
    struct stoker_loader_options options = {.batch_size = 16, .tail = STOKER_TAIL_DROP};
    uint64_t sum = 0, part = 0, most = 0;
    struct stoker_order_options settings = {.struct_size = sizeof settings};
    struct stoker_order *order = NULL;
    struct stoker_loader *loader;
    struct stoker_state state;
    struct rig rig;

    if (!rig_open(&rig, 2, 0, false)) {
        return;
    }
    loader = open_loader(&rig, options);
    T_EQ("settings", stoker_loader_order(loader, &settings), 0);
    T_EQ("order", stoker_order_open(&order, &settings, NULL), 0);
    for (uint64_t epoch = 0; epoch < 2 * STK_DELIVERED_RUNS_MAX; epoch++) {
        T_EQ("turn", stoker_loader_set_epoch(loader, epoch * 2 + 1, NULL), 0);
        take_some(loader, 1);
        T_EQ("step", stoker_order_fingerprint(order, epoch * 2 + 1, 0, 1, &part), 0);
        sum += part;
        most = stk_max(most, loader->locked.delivered_steps.run_count);
    }
    T_TRUE("many wait, and room is left", most > 8 && most < STK_DELIVERED_RUNS_MAX);
    T_EQ("state", stoker_loader_state(loader, &state), 0);
    T_TRUE("none was lost", state.fingerprint == sum);
    stoker_order_close(order);
    stoker_loader_close(loader);
    rig_close(&rig);
}

/* Steps of a mix need memory to be repeated. */
static void test_no_memory(void)
{
    static const uint64_t ends[2] = {50, SAMPLES}, weights[2] = {3, 1};
    struct stoker_mix_options mix = {
        .struct_size = sizeof mix, .ends = ends, .weights = weights, .source_count = 2};
    struct stk_order_options order = {.sample_count = SAMPLES,
                                      .block_samples = 10,
                                      .window_blocks = 2,
                                      .group_count = 1,
                                      .shuffle = STOKER_SHUFFLE_BLOCK};
    struct stk_partition partition = {.sample_count = SAMPLES,
                                      .batch_size = 10,
                                      .world_size = 1,
                                      .tail = STOKER_TAIL_DROP,
                                      .group_count = 1};
    struct stk_schedule schedule = {0};
    struct stk_delivered given = {0};
    uint64_t sum = 0;
    struct rig rig;

    if (!rig_open(&rig, 1, 0, false)) {
        return;
    }
    T_EQ("schedule",
         stk_schedule_open(&schedule, &order, &(struct stk_schedule_request){.mix = &mix}, NULL),
         0);
    stk_delivered_add(&given, &partition, 0, 0);
    for (uint64_t n = 1;; n++) {
        int status;

        stk_mem_fail_nth(n);
        status = stk_run_fingerprint_get(rig.engine, &schedule, &partition, &given, &sum);
        stk_mem_fail_nth(0);
        if (status == 0) {
            T_TRUE("some allocations", n > 1);
            break;
        }
        T_EQ("no memory", status, -ENOMEM);
    }
    T_TRUE("then it is there", sum != 0 && given.run_count == 1);
    stk_schedule_deinit(&schedule);
    rig_close(&rig);
}

int main(void)
{
    T_EACH(waiting_row, row, waiting_rows)
    {
        test_waiting(row);
    }
    test_jumps();
    test_no_memory();
    return t_finish();
}
