/* Goal: the public order equals the pure functions: each slot of each step, the position of a
 * sample, and the fingerprint; wrong arguments are refused without a leak.
 * Method: settings in a table; complete epochs enumerated by slots, each slot looked up again by
 * find, and read in pieces of every size. */
#include "order/analysis/order_object.h"

#include "base/mem.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>

#define SLOTS_MAX 4096

static const struct plan_row {
    const char *name;
    uint64_t samples, block;
    uint32_t window, groups, shuffle, tail, batch, world;
} plan_rows[] = {
    {"defaults", 1000, 10, 0, 0, 0, 0, 8, 0},
    {"groups and ranks", 1237, 10, 4, 6, STOKER_SHUFFLE_BLOCK, STOKER_TAIL_KEEP, 8, 4},
    {"padded", 1237, 10, 4, 6, STOKER_SHUFFLE_BLOCK, STOKER_TAIL_PAD, 8, 3},
    {"wrapped", 1237, 10, 4, 6, STOKER_SHUFFLE_FULL, STOKER_TAIL_WRAP, 8, 3},
    {"wrapped within a step", 11, 2, 4, 1, STOKER_SHUFFLE_BLOCK, STOKER_TAIL_WRAP, 8, 5},
    {"in order", 100, 10, 4, 1, STOKER_SHUFFLE_NONE, STOKER_TAIL_DROP, 7, 3},
    {"nothing", 0, 10, 4, 1, STOKER_SHUFFLE_BLOCK, STOKER_TAIL_PAD, 7, 3},
};

static struct stoker_order *open_row(const struct plan_row *row)
{
    struct stoker_order_options options = {
        .struct_size = sizeof options,
        .sample_count = row->samples,
        .block_samples = row->block,
        .seed = 5,
        .shuffle = row->shuffle,
        .tail = row->tail,
        .window_blocks = row->window,
        .group_count = row->groups,
        .batch_size = row->batch,
        .world_size = row->world,
    };
    struct stoker_order *order = NULL;

    T_EQ(row->name, stoker_order_open(&order, &options, NULL), 0);
    return order;
}

/* The slots of a step in pieces, and of each rank, are those of all at once. */
static bool is_alike_in_pieces(const struct stoker_order *order, uint64_t step,
                               const struct stoker_slot *slots, int count)
{
    static struct stoker_slot some[SLOTS_MAX];
    bool alike = true;
    int ranks = 0;

    for (uint32_t capacity = 1; capacity <= 7; capacity += 3) {
        int skip = 0, got;

        while ((got = stoker_order_slots(order, 1, step, STOKER_ALL_RANKS, (uint64_t)skip, some,
                                         capacity)) > 0) {
            alike &= memcmp(some, slots + skip, (size_t)got * sizeof *some) == 0;
            skip += got;
        }
        alike &= skip == count && got == 0;
    }
    for (uint32_t rank = 0; rank < order->partition.world_size; rank++) {
        int got = stoker_order_slots(order, 1, step, rank, 0, some, SLOTS_MAX);

        alike &= got >= 0 && memcmp(some, slots + ranks, (size_t)got * sizeof *some) == 0;
        ranks += got;
    }
    return alike && ranks == count;
}

static bool is_found(const struct stoker_order *order, const struct stoker_slot *slot)
{
    struct stoker_slot found;

    memset(&found, 0, sizeof found);
    return stoker_order_find(order, slot->epoch, slot->sample, 0, &found) == 1 &&
           found.step_epoch == slot->step_epoch && found.step == slot->step &&
           found.rank == slot->rank && found.slot == slot->slot && found.epoch == slot->epoch &&
           found.position == slot->position && found.sample == slot->sample && found.real;
}

static void test_row(const struct plan_row *row)
{
    static struct stoker_slot slots[SLOTS_MAX];
    struct stoker_order *order = open_row(row);
    uint64_t steps = order ? stoker_order_steps(order, 1) : 0, print = 0, full_order = 1, real = 0;
    bool found = true, alike = true, ends = true;

    for (uint64_t step = 0; order && step < steps; step++) {
        int count = stoker_order_slots(order, 1, step, STOKER_ALL_RANKS, 0, slots, SLOTS_MAX);
        uint64_t one;

        T_EQ(row->name, stoker_order_fingerprint(order, 1, step, 1, &one), 0);
        print += one;
        ends &= count > 0;
        for (int i = 0; i < count; i++) {
            found &= slots[i].real == 0 || is_found(order, &slots[i]);
            real += slots[i].real;
        }
        alike &= is_alike_in_pieces(order, step, slots, count);
    }
    T_TRUE(row->name, found && alike && ends);
    if (order && order->partition.tail != STOKER_TAIL_WRAP) {
        uint64_t lost = 0;
        struct stoker_slot slot;

        for (uint64_t sample = 0; sample < row->samples; sample++) {
            lost += stoker_order_find(order, 1, sample, 0, &slot) == 0;
        }
        T_EQ(row->name, real + lost, (long long)row->samples);
        T_TRUE(row->name, lost == 0 || order->partition.tail == STOKER_TAIL_DROP);
    }
    T_EQ(row->name, stoker_order_fingerprint(order, 1, 0, steps, &full_order), 0);
    T_EQ(row->name, full_order, (long long)print);
    T_EQ(row->name, stoker_order_fingerprint(order, 1, 1, steps, &full_order),
         STOKER_ERROR_ARGUMENT);
    T_EQ(row->name, stoker_order_slots(order, 1, steps, STOKER_ALL_RANKS, 0, slots, 1),
         STOKER_ERROR_ARGUMENT);
    T_EQ(row->name, stoker_order_find(order, 1, row->samples, 0, slots), STOKER_ERROR_ARGUMENT);
    stoker_order_close(order);
}

static void test_refused(void)
{
    struct stoker_order_options good = {
        .struct_size = sizeof good, .sample_count = 100, .block_samples = 10, .batch_size = 8};
    struct stoker_order_options options;
    struct stoker_error error = {0};
    struct stoker_order *order;

    options = good;
    options.struct_size = 0;
    T_EQ("no size", stoker_order_open(&order, &options, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR("no size", &error);
    options = good;
    options.batch_size = 0;
    T_EQ("no batch", stoker_order_open(&order, &options, &error), STOKER_ERROR_ARGUMENT);
    T_HAS("no batch", error.where, "batch_size 0");
    options = good;
    options.group_count = 50;
    T_EQ("groups", stoker_order_open(&order, &options, &error), STOKER_ERROR_ARGUMENT);
    T_TRUE("nothing was given", order == NULL);
    stk_mem_fail_nth(1);
    T_EQ("no memory", stoker_order_open(&order, &good, &error), -ENOMEM);
    stk_mem_fail_nth(0);
    T_EQ("good", stoker_order_open(&order, &good, &error), 0);
    T_EQ("rank", stoker_order_slots(order, 0, 0, 1, 0, NULL, 0), STOKER_ERROR_ARGUMENT);
    stoker_order_close(order);
    stoker_order_close(NULL);
}

/* Epochs after the last one are wrong arguments, never a wrong order or the end of the process. */
static void test_epochs(void)
{
    static const uint64_t ends[] = {60, 100}, weights[] = {3, 1};
    struct stoker_mix_options mix = {
        .struct_size = sizeof mix, .ends = ends, .weights = weights, .source_count = 2};
    struct stoker_order_options options = {
        .struct_size = sizeof options, .sample_count = 100, .block_samples = 10, .batch_size = 8};

    for (int mixed = 0; mixed < 2; mixed++) {
        struct stoker_order *order = NULL;
        struct stoker_error error = {0};
        uint64_t last;

        options.mix = mixed ? &mix : NULL;
        T_EQ("open", stoker_order_open(&order, &options, &error), 0);
        last = order ? stk_schedule_epoch_max(&order->schedule) : 0;
        for (int i = 0; order && i < 66; i++) {
            uint64_t epoch = i == 65 ? UINT64_MAX : i == 64 ? last : UINT64_C(1) << i, sum;
            int want = epoch > last ? STOKER_ERROR_ARGUMENT : 0;
            struct stoker_slot slots[8];
            int got = stoker_order_slots(order, epoch, 0, 0, 0, slots, 8);

            T_EQ("slots", got, want < 0 ? want : 8);
            T_EQ("fingerprint", stoker_order_fingerprint(order, epoch, 0, 1, &sum), want);
            got = stoker_order_find(order, epoch, 5, 0, slots);
            T_TRUE("find", want < 0 ? got == want : got >= 0 || got == STOKER_ERROR_MISSING);
        }
        stoker_order_close(order);
    }
}

int main(void)
{
    test_epochs();
    T_EACH(plan_row, row, plan_rows)
    {
        test_row(row);
    }
    test_refused();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
