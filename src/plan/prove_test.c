/* Goal: verify finds nothing in the real order, enumerates what it says, and finds an order that
 * repeats, loses or moves samples; diff names the first place.
 * Method: settings in a table; orders made wrong by hand (counts and keys of the struct changed
 * behind the library's back); differences set up at a known place. */
#include "plan/setup.h"

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
        .worlds = worlds,
        .world_count = STK_COUNT(worlds),
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

/* What a broken order, or a broken cut, looks like. */
static void test_false(void)
{
    struct stoker_order *order = open_order(1001, 5, STOKER_TAIL_KEEP, 12, 1);
    struct stoker_order_proof proof;

    order->order.full_blocks--; /* the last block comes again behind the short tail's place */
    proof = verify(order, 0);
    T_TRUE("a block comes twice, another never", proof.failures >= 2 * 2 * 7);
    T_HAS("a block comes twice, another never", proof.failure, "a sample ");
    T_HAS("and where", proof.failure, "world size 1, epoch 0, position ");
    stoker_order_close(order);
    order = open_order(1001, 1, STOKER_TAIL_KEEP, 12, 1);
    order->order.options.shuffle = STOKER_SHUFFLE_FULL;
    order->order.options.sample_count = 1100; /* more than there are */
    proof = verify(order, 2);
    T_TRUE("a sample that is not there", proof.failures > 0);
    T_HAS("a sample that is not there", proof.failure, "is not there");
    stoker_order_close(order);
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
        .struct_size = sizeof options, .worlds = five, .world_count = 1};
    struct stoker_order_proof proof = {.struct_size = sizeof proof};
    struct stoker_error error = {0};

    T_EQ("world", stoker_order_verify(order, &options, &proof, &error), STOKER_ERROR_ARGUMENT);
    T_HAS("world", error.where, "world size 5, 12 samples a step");
    options.world_count = 0;
    options.histories = 1;
    T_EQ("no world", stoker_order_verify(order, &options, &proof, &error), STOKER_ERROR_ARGUMENT);
    options.histories = 0;
    options.epochs = 65;
    T_EQ("epochs", stoker_order_verify(order, &options, &proof, &error), STOKER_ERROR_ARGUMENT);
    options.epochs = 1;
    stk_mem_fail_nth(1);
    T_EQ("memory", stoker_order_verify(order, &options, &proof, &error), -ENOMEM);
    stk_mem_fail_nth(0);
    stoker_order_close(order);
}

int main(void)
{
    test_true();
    test_false();
    test_diff();
    test_diff_place();
    test_refused();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
