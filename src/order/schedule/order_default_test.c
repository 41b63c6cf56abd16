/* Goal: a window fits in memory and is the same for almost equal memory; settings that were left
 * out become those of a state, others never do; a schedule of a copied mix is the same. Method:
 * rows; a mix whose options are overwritten after the copy. Covers mix_copy.c. */
#include "order/schedule/order_default.h"

#include "base/mem.h"
#include "order/schedule/mix_copy.h"
#include "test/t.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static const struct window_row {
    const char *name;
    uint64_t memory, block;
    uint32_t want;
} window_rows[] = {
    {"16 GiB", 16 * GIB, 8 * MIB, 1024},
    {"a little less", 16 * GIB - 1, 8 * MIB, 512},
    {"20 GiB", 20 * GIB, 8 * MIB, 1024},
    {"little memory", 64 * MIB, 8 * MIB, 64},
    {"large blocks", GIB, 4 * GIB, 64},
    {"small blocks", 1024 * GIB, 1, STK_ORDER_WINDOW_MAX},
    {"blocks of no bytes", GIB, 0, STK_ORDER_WINDOW_MAX},
};

static const struct adopt_row {
    const char *name;
    struct stk_order_defaults defaults;
    uint32_t version, shuffle, window; /* of the state */
    uint64_t block;
    bool differs;
    struct stk_order_options want;
} adopt_rows[] = {
    {"nothing left out",
     {0},
     1,
     STOKER_SHUFFLE_BLOCK,
     7,
     9,
     false,
     {.block_samples = 5, .window_blocks = 64, .shuffle = STOKER_SHUFFLE_FULL, .version = 2}},
    {"all left out",
     {true, true, true, true},
     1,
     STOKER_SHUFFLE_BLOCK,
     7,
     9,
     true,
     {.block_samples = 9, .window_blocks = 7, .shuffle = STOKER_SHUFFLE_BLOCK, .version = 1}},
    {"only the version",
     {.version = true},
     1,
     STOKER_SHUFFLE_BLOCK,
     7,
     9,
     true,
     {.block_samples = 5, .window_blocks = 64, .shuffle = STOKER_SHUFFLE_FULL, .version = 1}},
    {"the same",
     {true, true, true, true},
     2,
     STOKER_SHUFFLE_FULL,
     64,
     5,
     false,
     {.block_samples = 5, .window_blocks = 64, .shuffle = STOKER_SHUFFLE_FULL, .version = 2}},
    {"a later version",
     {.version = true},
     3,
     STOKER_SHUFFLE_FULL,
     64,
     5,
     false,
     {.block_samples = 5, .window_blocks = 64, .shuffle = STOKER_SHUFFLE_FULL, .version = 2}},
    {"no shuffle",
     {true, true, true, true},
     2,
     STOKER_SHUFFLE_NONE,
     64,
     5,
     true,
     {.block_samples = 5, .window_blocks = 64, .shuffle = STOKER_SHUFFLE_NONE, .version = 2}},
    {"two-level",
     {true, true, true, true},
     2,
     STOKER_SHUFFLE_TWO_LEVEL,
     64,
     5,
     true,
     {.block_samples = 5, .window_blocks = 64, .shuffle = STOKER_SHUFFLE_TWO_LEVEL, .version = 2}},
    {"an unknown shuffle",
     {true, true, true, true},
     2,
     STOKER_SHUFFLE_TWO_LEVEL + 1,
     64,
     5,
     false,
     {.block_samples = 5, .window_blocks = 64, .shuffle = STOKER_SHUFFLE_FULL, .version = 2}},
    {"zeros",
     {true, true, true, true},
     0,
     0,
     0,
     0,
     false,
     {.block_samples = 5, .window_blocks = 64, .shuffle = STOKER_SHUFFLE_FULL, .version = 2}},
};

static void test_adopt(void)
{
    T_EACH(adopt_row, row, adopt_rows)
    {
        struct stk_order_options order = {
            .block_samples = 5, .window_blocks = 64, .shuffle = STOKER_SHUFFLE_FULL, .version = 2};
        struct stoker_state state = {.order_version = row->version,
                                     .shuffle = row->shuffle,
                                     .window_blocks = row->window,
                                     .block_samples = row->block};

        T_EQ(row->name, stk_order_adopt(&order, &row->defaults, &state), row->differs);
        T_EQ(row->name, order.version, row->want.version);
        T_EQ(row->name, order.shuffle, row->want.shuffle);
        T_EQ(row->name, order.window_blocks, row->want.window_blocks);
        T_EQ(row->name, order.block_samples, (long long)row->want.block_samples);
    }
}

static void read_samples(const struct stoker_mix_options *mix, uint32_t version, uint64_t *samples)
{
    struct stk_order_options order = {.sample_count = 1000,
                                      .block_samples = 10,
                                      .window_blocks = 4,
                                      .group_count = 1,
                                      .shuffle = STOKER_SHUFFLE_BLOCK,
                                      .version = version};
    struct stk_schedule_request request = {.mix = mix};
    struct stk_schedule_reader reader;
    struct stk_schedule schedule;

    T_EQ("open", stk_schedule_open(&schedule, &order, &request, NULL), 0);
    T_EQ("reader", stk_schedule_reader_init(&reader, &schedule, NULL), 0);
    stk_schedule_read(&reader, 1, 0, 1000, samples);
    stk_schedule_reader_deinit(&reader);
    stk_schedule_deinit(&schedule);
}

static void test_copy(void)
{
    uint64_t ends[3] = {500, 620, 1000}, weights[3] = {5, 3, 2}, changed[3] = {1, 0, 7};
    static uint64_t want[1000], samples[1000];
    struct stoker_mix_change change = {1200, changed};
    struct stoker_mix_options mix = {.struct_size = sizeof mix,
                                     .ends = ends,
                                     .weights = weights,
                                     .changes = &change,
                                     .change_count = 1,
                                     .source_count = 3};
    struct stoker_error error = {0};
    struct stk_mix_copy copy;

    for (uint32_t version = 1; version <= 2; version++) {
        read_samples(&mix, version, want);
        T_EQ("copy", stk_mix_copy_open(&copy, &mix, NULL), 0);
        memset(ends, 0, sizeof ends);
        memset(weights, 0, sizeof weights);
        memset(changed, 0, sizeof changed);
        memset(&change, 0, sizeof change);
        read_samples(stk_mix_copy_get(&copy), version, samples);
        T_TRUE("the same samples", memcmp(want, samples, sizeof want) == 0);
        memcpy(ends, copy.options.ends, sizeof ends);
        memcpy(weights, copy.options.weights, sizeof weights);
        memcpy(changed, copy.options.changes[0].weights, sizeof changed);
        change = (struct stoker_mix_change){1200, changed};
        stk_mix_copy_close(&copy);
    }
    T_EQ("none", stk_mix_copy_open(&copy, NULL, NULL), 0);
    T_TRUE("none", !stk_mix_copy_get(&copy));
    stk_mem_fail_nth(1);
    T_EQ("no memory", stk_mix_copy_open(&copy, &mix, &error), -12);
    stk_mem_fail_nth(0);
    T_ERROR("no memory", &error);
    T_EQ("no leak", stk_mem_alive(), 0);
}

int main(void)
{
    T_EACH(window_row, row, window_rows)
    {
        T_EQ(row->name, stk_order_window_within(row->memory, row->block), row->want);
    }
    test_adopt();
    test_copy();
    return t_finish();
}
