/* Goal: verify finds no fault in a correct order, enumerates what it reports, and detects an order,
 * a mix or a sampling that repeats, loses or moves samples; diff reports the first difference.
 * Method: settings in a table; orders broken by hand (counts and keys of the struct changed in
 * memory); runs whose slots are counted by hand; differences at a known position. */
#include "order/analysis/order_object.h"

#include "base/mem.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>

static const uint32_t worlds[] = {1, 2, 3, 4, 6, 12};

static struct stoker_order *open_order(uint64_t samples, uint32_t groups, uint32_t tail,
                                       uint32_t batch, uint32_t world)
{
    struct stoker_order_options options = {
        .struct_size = sizeof options,
        .sample_count = samples,
        .block_samples = 7,
        .seed = 3,
        .tail = tail,
        .window_blocks = 4,
        .group_count = groups,
        .batch_size = batch,
        .world_size = world,
    };
    struct stoker_order *order = NULL;

    T_EQ("open", stoker_order_open(&order, &options, NULL), 0);
    return order;
}

static struct stoker_order_proof verify(const struct stoker_order *order, uint32_t histories)
{
    struct stoker_order_verify_options options = {
        .struct_size = sizeof options,
        .world_sizes = worlds,
        .world_size_count = STK_COUNT(worlds),
        .histories = histories,
        .seed = 5,
    };
    struct stoker_order_proof proof = {.struct_size = sizeof proof};

    T_EQ("verify", stoker_order_verify(order, &options, &proof, NULL), 0);
    return proof;
}

static void test_true(void)
{
    static const uint64_t counts[] = {0, 1, 11, 12, 13, 500, 1001};

    for (size_t i = 0; i < STK_COUNT(counts); i++) {
        for (uint32_t tail = STOKER_TAIL_DROP; tail <= STOKER_TAIL_KEEP; tail++) {
            struct stoker_order *order = open_order(counts[i], 1, tail, 12, 1);
            struct stoker_order_proof proof = verify(order, 10);

            T_EQ("no failure", proof.failures, 0);
            T_STR("nor a word", proof.failure, "");
            if (counts[i] > 500) {
                T_EQ("histories", proof.histories, 10);
                T_TRUE("with changes", proof.resizes > 10 && proof.kills > 10);
                T_TRUE("all was enumerated",
                       proof.slots >= 2 * (STK_COUNT(worlds) + 9) * (counts[i] - 12));
            }
            stoker_order_close(order);
        }
    }
}

/* Settings of users. Slots are computed by hand. */
static const struct run_row {
    const char *name;
    uint32_t tail;
    struct stoker_order_segment stretches[4];
    size_t stretch_count;
    uint64_t resizes, kills, slots;
} run_rows[] = {
    {"one segment", STOKER_TAIL_DROP, {{2, 6, 0, 0}}, 1, 0, 0, 83 * 12},
    {"its steps do not end the last one", STOKER_TAIL_KEEP, {{2, 6, 3, 0}}, 1, 0, 0, 1001},
    {"a resize", STOKER_TAIL_DROP, {{2, 6, 10, 0}, {1, 7, 0, 0}}, 2, 1, 0, 120 + 125 * 7},
    {"a kill", STOKER_TAIL_DROP, {{2, 6, 10, 3}, {1, 7, 0, 0}}, 2, 1, 1, 120 + 131 * 7},
    {"nothing was saved", STOKER_TAIL_PAD, {{5, 3, 10, 10}, {1, 7, 0, 0}}, 2, 1, 1, 150 + 1001},
    {"killed behind the end",
     STOKER_TAIL_KEEP,
     {{1, 100, 11, 4}, {3, 2, 0, 0}},
     2,
     1,
     1,
     1001 + 301},
    {"up, down, killed twice",
     STOKER_TAIL_WRAP,
     {{2, 6, 9, 1}, {8, 6, 4, 4}, {3, 1, 5, 0}, {1, 1, 0, 0}},
     4,
     3,
     2,
     108 + 192 + 15 + 1001 - 96 - 15},
};

static void test_runs(void)
{
    T_EACH(run_row, row, run_rows)
    {
        struct stoker_order *order = open_order(1001, 5, row->tail, 12, 1);
        struct stoker_order_verify_options options = {
            .struct_size = sizeof options,
            .epochs = 1,
            .segments = row->stretches,
            .segment_count = row->stretch_count,
        };
        struct stoker_order_proof proof = {.struct_size = sizeof proof};

        T_EQ(row->name, stoker_order_verify(order, &options, &proof, NULL), 0);
        T_EQ(row->name, proof.failures, 0);
        T_STR(row->name, proof.failure, "");
        T_EQ(row->name, proof.resizes, (long long)row->resizes);
        T_EQ(row->name, proof.kills, (long long)row->kills);
        T_EQ(row->name, proof.slots, (long long)row->slots);
        options.epochs = 3; /* also over the ends of epochs */
        T_EQ(row->name, stoker_order_verify(order, &options, &proof, NULL), 0);
        T_EQ(row->name, proof.failures, 0);
        order->schedule.order.full_blocks--;
        T_EQ(row->name, stoker_order_verify(order, &options, &proof, NULL), 0);
        T_TRUE(row->name, proof.failures > 0);
        stoker_order_close(order);
    }
}

/* Histories in parts are those of one call. */
static void test_parts(void)
{
    struct stoker_order *order = open_order(500, 1, STOKER_TAIL_WRAP, 12, 1);
    struct stoker_order_proof full_proof = verify(order, 7), part = {.struct_size = sizeof part};
    uint64_t kills = 0, slots = verify(order, 0).slots;
    struct stoker_order_verify_options options = {
        .struct_size = sizeof options,
        .world_sizes = worlds,
        .world_size_count = STK_COUNT(worlds),
        .histories = 1,
        .histories_only = 1,
        .seed = 5,
    };

    for (; options.first_history < 7; options.first_history++) {
        T_EQ("part", stoker_order_verify(order, &options, &part, NULL), 0);
        kills += part.kills;
        slots += part.slots;
    }
    T_EQ("kills", kills, (long long)full_proof.kills);
    T_EQ("slots", slots, (long long)full_proof.slots);
    stoker_order_close(order);
}

/* Faults of an order, or of its partition. */
static void test_false(void)
{
    struct stoker_order *order = open_order(1001, 5, STOKER_TAIL_KEEP, 12, 1);
    struct stoker_order_proof proof;

    order->schedule.order
        .full_blocks--; /* the last block is repeated after the place of the short tail */
    proof = verify(order, 0);
    T_TRUE("a block comes twice, another never", proof.failures >= 2 * 2 * 7);
    T_HAS("a block comes twice, another never", proof.failure, "a sample ");
    T_HAS("and where", proof.failure, "world size 1, epoch 0, position ");
    stoker_order_close(order);
    order = open_order(1001, 1, STOKER_TAIL_KEEP, 12, 1);
    order->schedule.order.options.shuffle = STOKER_SHUFFLE_FULL;
    order->schedule.order.options.sample_count = 1100; /* more than there are */
    proof = verify(order, 2);
    T_TRUE("a sample that is not there", proof.failures > 0);
    T_HAS("a sample that is not there", proof.failure, "is not there");
    stoker_order_close(order);
}

/* A mix of three sources, whose weights change. */
static struct stoker_order *open_mix(uint32_t end)
{
    static const uint64_t ends[] = {300, 500, 1001}, weights[] = {5, 1, 3}, later[] = {1, 2, 1};
    static const struct stoker_mix_change change = {.position = 400, .weights = later};
    const struct stoker_mix_options mix = {
        .struct_size = sizeof mix,
        .ends = ends,
        .weights = weights,
        .changes = &change,
        .change_count = 1,
        .source_count = STK_COUNT(ends),
        .end = end,
    };
    struct stoker_order_options options = {
        .struct_size = sizeof options,
        .sample_count = 1001,
        .block_samples = 7,
        .seed = 3,
        .tail = STOKER_TAIL_KEEP,
        .window_blocks = 4,
        .group_count = 4,
        .batch_size = 12,
        .mix = &mix,
    };
    struct stoker_order *order = NULL;

    T_EQ("open", stoker_order_open(&order, &options, NULL), 0);
    return order;
}

/* Faults inside a mix: each rank agrees with its own report, and the mix is wrong all the same. */
static void test_false_mix(void)
{
    for (uint32_t end = STOKER_MIX_REPEAT; end <= STOKER_MIX_RENORMALISE; end++) {
        struct stoker_order *order = open_mix(end);
        struct stk_schedule *schedule = &order->schedule;
        struct stoker_order_proof proof = verify(order, 2);

        T_EQ("no failure", proof.failures, 0);
        T_STR("no failure", proof.failure, "");
        schedule->orders[1].deal.factor[0] ^= 1; /* no bijection any more */
        proof = verify(order, 0);
        T_TRUE("a source repeats a block", proof.failures >= 7);
        T_HAS("a source repeats a block", proof.failure, "source or stage 1, pass 0, sample ");
        schedule->orders[1].deal.factor[0] ^= 1;
        schedule->mix.segments[1].before[2]++;
        schedule->mix.segments[1].rest_before[2]++;
        proof = verify(order, 0);
        T_TRUE("a change of weights loses a sample", proof.failures > 0);
        T_HAS("a change of weights loses a sample", proof.failure, "a sample ");
        stoker_order_close(order);
    }
}

/* Chosen samples: passes, copies, a curriculum's later stage, and draws, which promise nothing. */
static void test_false_choice(void)
{
    for (uint32_t times = 1; times <= 3; times++) {
        static struct stk_subset subset;
        struct stk_sampling_source chooser = {.sample_count = 1001, .is_made = true};
        struct stk_sampling_source drawn = {
            .sample_count = 1001, .is_made = true, .rule.replacement = true};
        const struct stoker_sampling_stage stages[] = {
            {0, NULL}, {2500, (const void *)&drawn}, {3000, (const void *)&chooser}};
        const struct stoker_sampling_options sampling = {.struct_size = sizeof sampling,
                                                         .stages = stages,
                                                         .stage_count = STK_COUNT(stages),
                                                         .repeats = times,
                                                         .repeat_distance = 5,
                                                         .epoch_samples = 2700};
        struct stoker_order_options options = {.struct_size = sizeof options,
                                               .sample_count = 1001,
                                               .block_samples = 7,
                                               .tail = STOKER_TAIL_KEEP,
                                               .window_blocks = 4,
                                               .group_count = 4,
                                               .batch_size = 12,
                                               .sampling = &sampling};
        struct stoker_order *order = NULL;
        struct stoker_order_proof proof;

        T_EQ("subset", stk_subset_init(&subset, 1001, NULL), 0);
        for (uint64_t sample = 0; sample < 1001; sample += 3) {
            stk_subset_add(&subset, sample);
        }
        stk_subset_freeze(&subset);
        chooser.rule.subset = &subset;
        T_EQ("open", stoker_order_open(&order, &options, NULL), 0);
        proof = verify(order, 2);
        T_EQ("no failure", proof.failures, 0);
        for (uint32_t stage = 0; stage < 3; stage += 2) {
            order->schedule.stages.items[stage].order.deal.factor[0] ^= 1;
            proof = verify(order, 0);
            T_TRUE("a stage repeats a block", proof.failures >= 7);
            T_HAS("a stage repeats a block", proof.failure,
                  stage ? "stage 2, pass 0, sample " : "stage 0, pass 0, sample ");
            order->schedule.stages.items[stage].order.deal.factor[0] ^= 1;
        }
        stoker_order_close(order);
        stk_subset_deinit(&subset);
    }
}

static const struct diff_row {
    const char *name;
    uint64_t samples;
    uint32_t tail, batch, world;
    bool order, step, rank;
    uint64_t step_number, rank_step;
} diff_rows[] = {
    {"the same", 1001, STOKER_TAIL_DROP, 6, 2, false, false, false, 0, 0},
    {"another world", 1001, STOKER_TAIL_DROP, 3, 4, false, false, true, 0, 0},
    {"another batch", 1001, STOKER_TAIL_DROP, 7, 2, false, true, true, 0, 0},
    {"another tail", 1001, STOKER_TAIL_KEEP, 6, 2, false, true, true, 83, 83},
    {"one sample less", 1000, STOKER_TAIL_DROP, 6, 2, true, true, true, 0, 0},
};

static void test_diff(void)
{
    T_EACH(diff_row, row, diff_rows)
    {
        struct stoker_order *a = open_order(1001, 1, STOKER_TAIL_DROP, 6, 2);
        struct stoker_order *b = open_order(row->samples, 1, row->tail, row->batch, row->world);
        struct stoker_order_difference got = {.struct_size = sizeof got};

        T_EQ(row->name, stoker_order_diff(a, b, 2, &got, NULL), 0);
        T_EQ(row->name, got.order, row->order);
        T_EQ(row->name, got.step, row->step);
        T_EQ(row->name, got.rank, row->rank);
        if (!row->order) {
            T_EQ(row->name, got.step_number, (long long)row->step_number);
            T_EQ(row->name, got.rank_step, (long long)row->rank_step);
        }
        stoker_order_close(a);
        stoker_order_close(b);
    }
}

/* Two storage orders of which one is longer differ where the shorter ends. */
static void test_diff_place(void)
{
    struct stoker_order_options options = {.struct_size = sizeof options,
                                           .sample_count = 100,
                                           .block_samples = 10,
                                           .shuffle = STOKER_SHUFFLE_NONE,
                                           .batch_size = 8};
    struct stoker_order_difference got = {.struct_size = sizeof got};
    struct stoker_order *a = NULL, *b = NULL;

    T_EQ("a", stoker_order_open(&a, &options, NULL), 0);
    options.sample_count = 90;
    T_EQ("b", stoker_order_open(&b, &options, NULL), 0);
    T_EQ("diff", stoker_order_diff(a, b, 1, &got, NULL), 0);
    T_TRUE("differ", got.order && got.step && got.rank);
    T_EQ("where", got.order_position, 90);
    T_EQ("one has it", got.sample_a, 90);
    T_TRUE("the other has none", got.sample_b == STOKER_NO_SAMPLE);
    T_EQ("its step", got.step_number, 11);
    stk_mem_fail_nth(2);
    T_EQ("no memory", stoker_order_diff(a, b, 1, &got, NULL), -ENOMEM);
    stk_mem_fail_nth(0);
    stoker_order_close(a);
    stoker_order_close(b);
}

static void test_refused(void)
{
    static const uint32_t five[] = {5};
    struct stoker_order *order = open_order(1001, 1, STOKER_TAIL_DROP, 12, 1);
    struct stoker_order_verify_options options = {
        .struct_size = sizeof options, .world_sizes = five, .world_size_count = 1};
    struct stoker_order_proof proof = {.struct_size = sizeof proof};
    struct stoker_error error = {0};

    T_EQ("world", stoker_order_verify(order, &options, &proof, &error), STOKER_ERROR_ARGUMENT);
    T_HAS("world", error.where, "world size 5, 12 samples a step");
    options.world_size_count = 0;
    options.histories = 1;
    T_EQ("no world", stoker_order_verify(order, &options, &proof, &error), STOKER_ERROR_ARGUMENT);
    options.histories = 0;
    options.epochs = 65;
    T_EQ("epochs", stoker_order_verify(order, &options, &proof, &error), STOKER_ERROR_ARGUMENT);
    options.epochs = 1;
    options.segments = &(struct stoker_order_segment){2, 3, 4, 5};
    options.segment_count = 1;
    T_EQ("lost", stoker_order_verify(order, &options, &proof, &error), STOKER_ERROR_ARGUMENT);
    T_HAS("lost", error.where, "segment 1 of 1: 4 steps, 5 lost");
    options.segments = (struct stoker_order_segment[]){{2, 6, 84, 1}, {1, 7, 0, 0}};
    options.segment_count = 2;
    T_EQ("short", stoker_order_verify(order, &options, &proof, &error), STOKER_ERROR_ARGUMENT);
    T_HAS("short", error.where, "segment 1 of 2 needs 84 steps; 1 epochs end after 83");
    options.segments = (struct stoker_order_segment[]){{2, 6, 83, 0}, {2, 6, 0, 0}};
    T_EQ("none", stoker_order_verify(order, &options, &proof, &error), STOKER_ERROR_ARGUMENT);
    T_HAS("none", error.where, "segment 2 of 2 needs 1 steps; 1 epochs end after 0");
    options.segments = (struct stoker_order_segment[]){{2, 6, 0, 0}, {2, 6, 0, 0}};
    T_EQ("endless", stoker_order_verify(order, &options, &proof, &error), STOKER_ERROR_ARGUMENT);
    T_HAS("endless", error.where, "segment 1 of 2 goes on to the end of the run");
    options.segments = (struct stoker_order_segment[]){{2, 6, 5, 0}, {2, 6, 0, 0}};
    T_EQ("restart", stoker_order_verify(order, &options, &proof, &error), 0);
    T_EQ("a restart is no resize", proof.resizes + proof.kills, 0);
    options.segment_count = 1;
    options.segments = &(struct stoker_order_segment){0, 3, 4, 0};
    T_EQ("no server", stoker_order_verify(order, &options, &proof, &error), STOKER_ERROR_ARGUMENT);
    options.segment_count = 0;
    stoker_order_close(order);
    order = open_mix(STOKER_MIX_REPEAT);
    for (uint64_t n = 1;; n++) {
        int status;

        stk_mem_fail_nth(n);
        status = stoker_order_verify(order, &options, &proof, &error);
        stk_mem_fail_nth(0);
        if (status == 0) {
            T_TRUE("allocations", n > 5);
            break;
        }
        T_EQ("memory", status, -ENOMEM);
    }
    stoker_order_close(order);
}

int main(void)
{
    test_true();
    test_runs();
    test_parts();
    test_false();
    test_false_mix();
    test_false_choice();
    test_diff();
    test_diff_place();
    test_refused();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
