/* Goal: a cursor's fingerprint is that of the steps that it returned, however states, epochs and
 * jumps fall between them; a step costs the same in a world of one and of a million.
 * Method: random walks of steps, turns, jumps and states, with the sum computed step by step in
 * parallel; pending runs are counted: nothing is computed before a state is requested. */
#include "loader/tokens/order_cursor.h"

#include "base/random.h"
#include "test/t.h"

#include <string.h>

static const struct stk_state_labels words = {
    .samples = "number of windows",
    .block_samples = "windows a block",
    .identity = "identity",
    .advice = "take the right one",
};

static void open_cursor(struct stk_order_cursor *cursor, uint64_t samples, uint32_t batch,
                        uint32_t world, uint32_t tail)
{
    struct stk_order_cursor_options options = {
        .order = {.sample_count = samples,
                  .block_samples = 4,
                  .window_blocks = 3,
                  .group_count = 2,
                  .shuffle = STOKER_SHUFFLE_BLOCK,
                  .seed = 3},
        .partition = {.batch_size = batch, .world_size = world, .tail = tail, .group_count = 2},
        .identity = {7},
    };

    T_EQ("open", stk_order_cursor_open(cursor, &options, NULL), 0);
}

/* One step; its fingerprint is added to *sum. */
static void step(struct stk_order_cursor *cursor, uint64_t *sum)
{
    while (!stk_order_cursor_begin_step(cursor)) {
    }
    *sum += stk_partition_fingerprint(&cursor->partition, &cursor->schedule.order, cursor->epoch,
                                      cursor->position);
    stk_order_cursor_next(cursor);
}

static void test_walk(uint64_t key)
{
    static struct stk_order_cursor cursor;
    struct stoker_state state;
    uint64_t sum = 0, drawn = 0;
    bool same = true;

    open_cursor(&cursor, 32 + stk_random_key(key, drawn++) % 60, (uint32_t)(1 + key % 5),
                (uint32_t)(1 + key % 3), (uint32_t)(STOKER_TAIL_DROP + key % 4));
    for (int i = 0; i < 600; i++) {
        uint64_t what = stk_random_key(key, drawn++) % 40;

        if (what == 0) {
            stk_order_cursor_state(&cursor, &state);
            same &= state.fingerprint == sum && cursor.delivered.run_count == 0;
        } else if (what == 1) {
            T_EQ("epoch",
                 stk_order_cursor_set_epoch(&cursor, stk_random_key(key, drawn++) % 9, NULL), 0);
        } else if (what == 2) {
            stk_order_cursor_state(&cursor, &state);
            state.position = stk_random_key(key, drawn++) % 30;
            state.fingerprint = sum = stk_random_key(key, drawn++);
            step(&cursor, &(uint64_t){0}); /* is forgotten */
            T_EQ("set", stk_order_cursor_set_state(&cursor, &state, &words, NULL), 0);
        } else {
            step(&cursor, &sum);
        }
    }
    stk_order_cursor_state(&cursor, &state);
    T_TRUE("the sum of all steps", same && state.fingerprint == sum);
}

/* More runs than there is room for. */
static void test_many_runs(void)
{
    static struct stk_order_cursor cursor;
    struct stoker_state state;
    uint64_t sum = 0;

    open_cursor(&cursor, 40, 4, 1, STOKER_TAIL_DROP);
    for (uint64_t epoch = 0; epoch < 3 * STK_DELIVERED_RUNS_MAX; epoch++) {
        T_EQ("epoch", stk_order_cursor_set_epoch(&cursor, epoch * 7, NULL), 0);
        step(&cursor, &sum);
        step(&cursor, &sum);
    }
    T_EQ("as many as there is room for", cursor.delivered.run_count, STK_DELIVERED_RUNS_MAX);
    stk_order_cursor_state(&cursor, &state);
    T_TRUE("none was lost", state.fingerprint == sum);
}

/* 10^6 ranks of 64 windows: a step's fingerprint takes a second, the step must not. */
static void test_large_world(void)
{
    static struct stk_order_cursor cursor;

    open_cursor(&cursor, UINT64_C(1) << 50, 64, 1000000, STOKER_TAIL_DROP);
    for (int i = 0; i < 100000; i++) {
        stk_order_cursor_next(&cursor);
    }
    T_TRUE("nothing was worked out",
           cursor.delivered.fingerprint == 0 && cursor.delivered.run_count == 1);
    T_EQ("all wait", cursor.delivered.runs[0].steps, 100000);
}

/* A cursor of defaults continues at the state of a run in another order; the settings of the caller
 * stay. */
static void test_adopt(bool is_mix)
{
    static struct stk_order_cursor run, other;
    uint64_t ends[2] = {700, 1000}, weights[2] = {1, 1};
    struct stoker_mix_options mix = {.struct_size = sizeof mix,
                                     .ends = ends,
                                     .weights = weights,
                                     .source_count = 2,
                                     .epoch_samples = 300};
    struct stk_order_cursor_options options = {
        .order = {.sample_count = 1000,
                  .block_samples = 7,
                  .window_blocks = 5,
                  .group_count = 1,
                  .shuffle = STOKER_SHUFFLE_BLOCK,
                  .version = 1,
                  .seed = 3},
        .partition = {.batch_size = 10,
                      .world_size = 1,
                      .tail = STOKER_TAIL_DROP,
                      .group_count = 1},
        .mix = is_mix ? &mix : NULL,
        .identity = {7},
    };
    struct stoker_state state, own;
    struct stoker_error error = {0};
    bool same = true;

    T_EQ("run", stk_order_cursor_open(&run, &options, NULL), 0);
    options.order.version = 0;
    options.order.shuffle = STOKER_SHUFFLE_FULL;
    options.order.block_samples = 4;
    options.order.window_blocks = 64;
    T_EQ("set", stk_order_cursor_open(&other, &options, NULL), 0);
    stk_order_cursor_next(&run);
    stk_order_cursor_state(&run, &state);
    T_EQ("refused", stk_order_cursor_set_state(&other, &state, &words, &error), STOKER_ERROR_STATE);
    T_ERROR("refused", &error);
    stk_order_cursor_close(&other);
    options.defaults = (struct stk_order_defaults){true, true, true, true};
    T_EQ("left out", stk_order_cursor_open(&other, &options, NULL), 0);
    weights[0] = weights[1] = ends[0] = 0; /* they were borrowed during open */
    T_EQ("adopted", stk_order_cursor_set_state(&other, &state, &words, NULL), 0);
    for (int i = 0; i < 100; i++) {
        bool is_step = stk_order_cursor_begin_step(&run);

        same &= stk_order_cursor_begin_step(&other) == is_step;
        for (uint32_t slot = 0; is_step && slot < 10; slot++) {
            same &= stk_order_cursor_get(&run, slot).sample ==
                    stk_order_cursor_get(&other, slot).sample;
        }
        if (is_step) {
            stk_order_cursor_next(&run);
            stk_order_cursor_next(&other);
        }
    }
    T_TRUE("the same samples", same);
    stk_order_cursor_state(&run, &state);
    stk_order_cursor_state(&other, &own);
    T_TRUE("the same state", memcmp(&state, &own, sizeof own) == 0);
    stk_order_cursor_close(&run);
    stk_order_cursor_close(&other);
}

int main(void)
{
    for (uint64_t key = 0; key < 60; key++) {
        test_walk(key);
    }
    test_many_runs();
    test_large_world();
    test_adopt(false);
    test_adopt(true);
    return t_finish();
}
