/* Goal: ranks share each step so that every position comes exactly once; all ranks have the same
 * number of steps; the samples of a step do not depend on the number of ranks; workers that take
 * turns make the same steps as one; the slot of a position is found; the fingerprint of steps
 * equals that of their positions.
 * Method: a table of shapes times every tail, world size and epoch, each slot compared with a plain
 * sort of the step's positions; steps then resumed from every position, and distributed to workers.
 */
#include "order/order.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES_MAX 512
#define STEP_MAX 512
#define EPOCHS 6

static const char *const tail_names[] = {"", "drop", "pad", "wrap", "keep"};

static const struct shape_row {
    const char *name;
    uint64_t samples;
    uint32_t step; /* batch_size * world_size */
    uint32_t groups;
} shape_rows[] = {
    {"nothing", 0, 12, 1},
    {"one sample", 1, 12, 1},
    {"one less than a step", 11, 12, 4},
    {"one step", 12, 12, 4},
    {"one more than a step", 13, 12, 4},
    {"half a step", 6, 12, 3},
    {"2^8 - 1", 255, 24, 5},
    {"2^8", 256, 24, 8},
    {"2^8 + 1", 257, 24, 7},
    {"complete steps", 240, 24, 24},
    {"more groups than a step", 200, 12, 64},
    {"more groups than samples", 100, 12, 1000},
    {"step of one", 9, 1, 2},
};

static const uint32_t worlds[] = {1, 2, 3, 4, 6, 12};

static struct stk_partition partition_of(const struct shape_row *row, uint32_t tail, uint32_t rank,
                                         uint32_t world)
{
    return (struct stk_partition){
        .sample_count = row->samples,
        .batch_size = row->step / world,
        .rank = rank,
        .world_size = world,
        .tail = tail,
        .group_count = row->groups,
    };
}

static uint32_t sort_groups;

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    if (left % sort_groups != right % sort_groups) {
        return left % sort_groups < right % sort_groups ? -1 : 1;
    }
    return left < right ? -1 : left > right;
}

/* The runs of a rank's slots are its places, and as long as can be. */
static bool is_run_right(const struct stk_partition *partition, uint64_t epoch, uint64_t position)
{
    uint32_t slots = stk_partition_batch_slots(partition, epoch, position), run;
    bool right = true;

    for (uint32_t slot = 0; slot < slots; slot += run) {
        struct stk_order_place first, place;

        run = stk_partition_run(partition, epoch, position, slot, &first);
        if (run == 0 || run > slots - slot) {
            return false;
        }
        for (uint32_t i = 0; i <= run && slot + i < slots; i++) {
            bool next;

            stk_partition_place(partition, epoch, position, slot + i, &place);
            next = place.position == first.position + (uint64_t)i * partition->group_count &&
                   place.epoch == first.epoch && place.real == first.real;
            right &= next == (i < run);
        }
    }
    return right;
}

/* Compares all ranks of a step with the plain sort, and each real place with where it is found;
 * counts the real ones in counts. */
static bool is_step_right(const struct shape_row *row, uint32_t tail, uint32_t world,
                          uint64_t epoch, uint64_t position, uint32_t counts[][SAMPLES_MAX])
{
    struct stk_partition one_rank = partition_of(row, tail, 0, world);
    uint64_t first = stk_partition_first(&one_rank, epoch);
    bool uncut = position >= first && (position - first) % row->step == 0;
    uint64_t sorted[STEP_MAX], count = row->step, index = 0;
    uint32_t slots_min = UINT32_MAX, slots_max = 0;
    bool right = true;

    if (tail == STOKER_TAIL_KEEP && row->samples - position < count) {
        count = row->samples - position;
    }
    for (uint64_t i = 0; i < count; i++) {
        sorted[i] = position + i;
    }
    sort_groups = row->groups;
    qsort(sorted, count, sizeof sorted[0], compare);
    for (uint32_t rank = 0; rank < world; rank++) {
        struct stk_partition partition = partition_of(row, tail, rank, world);
        uint32_t slots = stk_partition_batch_slots(&partition, epoch, position);

        right &= is_run_right(&partition, epoch, position);
        slots_min = slots < slots_min ? slots : slots_min;
        slots_max = slots > slots_max ? slots : slots_max;
        for (uint32_t slot = 0; slot < slots && index < count; slot++, index++) {
            struct stk_order_place place;
            bool past = sorted[index] >= row->samples;

            stk_partition_place(&partition, epoch, position, slot, &place);
            right &= place.position == sorted[index] % row->samples;
            right &= place.real == (!past || tail == STOKER_TAIL_WRAP);
            right &= place.epoch ==
                     epoch + (tail == STOKER_TAIL_WRAP ? sorted[index] / row->samples : 0);
            if (place.real && place.epoch < EPOCHS) {
                counts[place.epoch][place.position]++;
            }
            if (place.real && uncut) {
                struct stk_delivery found;

                right &= stk_partition_find(&partition, place.epoch, place.position, &found);
                right &= found.epoch == epoch && found.position == position;
                right &= found.rank == rank && found.slot == slot;
                right &=
                    found.step == (position - stk_partition_first(&partition, epoch)) / row->step;
            }
        }
    }
    right &= index == count;
    right &= tail == STOKER_TAIL_KEEP ? slots_max - slots_min <= 1
                                      : slots_min == slots_max && slots_max * world == row->step;
    return right;
}

/* The samples that drop leaves out of an epoch; the other tails leave out nothing. */
static uint64_t left_out(const struct shape_row *row, uint32_t tail)
{
    return tail == STOKER_TAIL_DROP ? row->samples % row->step : 0;
}

static bool is_dropped_unfound(const struct shape_row *row, uint32_t tail, uint32_t world)
{
    struct stk_partition partition = partition_of(row, tail, 0, world);
    struct stk_delivery found;
    bool right = true;

    for (uint64_t i = 0; i < row->samples; i++) {
        right &= stk_partition_find(&partition, 3, i, &found) ==
                 (i < row->samples - left_out(row, tail));
    }
    return right;
}

static void test_shape(const struct shape_row *row, uint32_t tail, uint32_t world)
{
    static uint32_t counts[EPOCHS][SAMPLES_MAX];
    uint64_t run_steps = 0;
    char name[96];
    bool right = true, once = true;

    memset(counts, 0, sizeof counts);
    snprintf(name, sizeof name, "%s, %s, world %u", row->name, tail_names[tail], world);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        struct stk_partition partition = partition_of(row, tail, 0, world);
        uint64_t first = stk_partition_first(&partition, epoch);
        uint64_t steps = stk_partition_steps(&partition, epoch);

        for (uint32_t rank = 1; rank < world; rank++) {
            partition.rank = rank;
            T_EQ(name, stk_partition_first(&partition, epoch), (long long)first);
            T_EQ(name, stk_partition_steps(&partition, epoch), (long long)steps);
        }
        for (uint64_t step = 0; step < steps; step++) {
            uint64_t position = first + step * row->step;
            T_EQ(name, stk_partition_steps_from(&partition, epoch, position),
                 (long long)(steps - step));
            right &= is_step_right(row, tail, world, epoch, position, counts);
        }
        T_EQ(name, stk_partition_steps_from(&partition, epoch, row->samples), 0);
        if (tail == STOKER_TAIL_WRAP && row->samples > 0) {
            T_EQ(name, epoch * row->samples + first, (long long)(run_steps * row->step));
        }
        run_steps += steps;
    }
    T_TRUE(name, right);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        for (uint64_t i = 0; i < row->samples; i++) {
            once &= counts[epoch][i] == (i < row->samples - left_out(row, tail) ? 1 : 0);
        }
    }
    T_TRUE(name, once);
    T_TRUE(name, is_dropped_unfound(row, tail, world));
}

static void test_shapes(void)
{
    T_EACH(shape_row, row, shape_rows)
    {
        for (uint32_t tail = STOKER_TAIL_DROP; tail <= STOKER_TAIL_KEEP; tail++) {
            for (size_t i = 0; i < STK_COUNT(worlds); i++) {
                if (row->step % worlds[i] == 0) {
                    test_shape(row, tail, worlds[i]);
                }
            }
        }
    }
}

/* The steps of one worker, one after the other, are those of several that take turns. */
static void test_turns(const struct shape_row *row, uint32_t tail, uint32_t workers)
{
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        struct stk_partition one = partition_of(row, tail, 0, 1), each = one;
        uint64_t position = stk_partition_first(&one, epoch), dealt = 0, places[8];
        uint64_t steps = stk_partition_steps(&one, epoch);
        bool right = true;

        each.worker_count = workers;
        for (each.worker = 0; each.worker < workers; each.worker++) {
            places[each.worker] = stk_partition_first(&each, epoch);
            dealt += stk_partition_steps(&each, epoch);
        }
        T_EQ(row->name, dealt, (long long)steps);
        for (uint64_t step = 0; step < steps; step++, position += stk_partition_stride(&one)) {
            each.worker = (uint32_t)(step % workers);
            right &= places[each.worker] == position;
            right &= stk_partition_steps_from(&each, epoch, position) ==
                     (steps - step - 1) / workers + 1;
            places[each.worker] += stk_partition_stride(&each);
        }
        for (each.worker = 0; each.worker < workers; each.worker++) {
            right &= stk_partition_steps_from(&each, epoch, places[each.worker]) == 0;
        }
        T_TRUE(row->name, right);
    }
}

static void test_workers(void)
{
    T_EACH(shape_row, row, shape_rows)
    {
        for (uint32_t tail = STOKER_TAIL_DROP; tail <= STOKER_TAIL_KEEP; tail++) {
            for (uint32_t workers = 1; workers <= 8; workers++) {
                test_turns(row, tail, workers);
            }
        }
    }
}

/* Steps of all ranks, of every world, have the fingerprint of the positions that they hold. */
static void test_fingerprint(const struct shape_row *row, uint32_t tail)
{
    struct stk_order_options options = {.sample_count = row->samples,
                                        .block_samples = 4,
                                        .window_blocks = 3,
                                        .group_count = 1,
                                        .shuffle = STOKER_SHUFFLE_BLOCK,
                                        .seed = 5};
    struct stk_partition partition = partition_of(row, tail, 0, 1), halves;
    uint64_t sum = 0, half_sum = 0, want = 0, delivered = 0;
    struct stk_order order;
    struct stk_order_epoch keys;

    T_EQ(row->name, stk_order_init(&order, &options, NULL), 0);
    halves = partition;
    halves.worker_count = 2;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        uint64_t first = stk_partition_first(&partition, epoch);
        uint64_t steps = stk_partition_steps(&partition, epoch);

        for (uint64_t step = 0; step < steps; step++) {
            uint64_t position = first + step * row->step;

            sum += stk_partition_fingerprint(&partition, &order, epoch, position);
            halves.worker = (uint32_t)(step % 2);
            half_sum += stk_partition_fingerprint(&halves, &order, epoch, position);
            delivered += row->step;
        }
    }
    for (uint64_t epoch = 0; epoch < 2 * EPOCHS + STEP_MAX && row->samples > 0; epoch++) {
        uint64_t count = row->samples - left_out(row, tail);

        if (tail == STOKER_TAIL_WRAP) {
            count = stk_min(row->samples, delivered);
            delivered -= count;
        } else if (epoch >= EPOCHS) {
            break;
        }
        stk_order_epoch_begin(&keys, &order, epoch);
        want += stk_order_fingerprint(&keys, 0, count);
    }
    T_EQ(row->name, sum, (long long)want);
    T_EQ(row->name, half_sum, (long long)want);
}

static void test_fingerprints(void)
{
    T_EACH(shape_row, row, shape_rows)
    {
        for (uint32_t tail = STOKER_TAIL_DROP; tail <= STOKER_TAIL_KEEP; tail++) {
            test_fingerprint(row, tail);
        }
    }
}

static const struct steps_row {
    const char *name;
    uint64_t samples;
    uint32_t batch, world, tail;
    uint64_t epoch, want_first, want_steps;
} steps_rows[] = {
    {"drop of nothing", 0, 4, 2, STOKER_TAIL_DROP, 3, 0, 0},
    {"pad of nothing", 0, 4, 2, STOKER_TAIL_PAD, 3, 0, 0},
    {"wrap of nothing", 0, 4, 2, STOKER_TAIL_WRAP, 3, 0, 0},
    {"keep of nothing", 0, 4, 2, STOKER_TAIL_KEEP, 3, 0, 0},
    {"drop of half a step", 4, 4, 2, STOKER_TAIL_DROP, 0, 0, 0},
    {"pad of half a step", 4, 4, 2, STOKER_TAIL_PAD, 0, 0, 1},
    {"keep of half a step", 4, 4, 2, STOKER_TAIL_KEEP, 0, 0, 1},
    {"wrap begins a step", 4, 4, 2, STOKER_TAIL_WRAP, 0, 0, 1},
    {"wrap has no step left", 4, 4, 2, STOKER_TAIL_WRAP, 1, 4, 0},
    {"wrap begins again", 4, 4, 2, STOKER_TAIL_WRAP, 2, 0, 1},
    {"wrap, late first step", 10, 4, 2, STOKER_TAIL_WRAP, 1, 6, 1},
    {"wrap, a large epoch", 10, 4, 2, STOKER_TAIL_WRAP, (UINT64_C(1) << 62) + 1, 6, 1},
    {"wrap, largest numbers", STK_ORDER_SAMPLES_MAX - 1, 1u << 31, 1u << 25, STOKER_TAIL_WRAP,
     UINT64_MAX, STK_ORDER_SAMPLES_MAX - 1, 0},
    {"drop, largest numbers", STK_ORDER_SAMPLES_MAX, 1u << 31, 1u << 25, STOKER_TAIL_DROP, 9, 0, 1},
};

static void test_steps(void)
{
    T_EACH(steps_row, row, steps_rows)
    {
        struct stk_partition partition = {
            .sample_count = row->samples,
            .batch_size = row->batch,
            .world_size = row->world,
            .tail = row->tail,
            .group_count = 1,
        };
        T_EQ(row->name, stk_partition_first(&partition, row->epoch), (long long)row->want_first);
        T_EQ(row->name, stk_partition_steps(&partition, row->epoch), (long long)row->want_steps);
    }
}

/* Another batch and world size continue at any position, and the rest is read exactly once. */
static void test_resume(void)
{
    const struct shape_row row = {"resume", 100, 24, 8};

    for (uint32_t tail = STOKER_TAIL_DROP; tail <= STOKER_TAIL_KEEP; tail++) {
        for (uint64_t start = 0; start < row.samples; start++) {
            static uint32_t counts[EPOCHS][SAMPLES_MAX];
            struct stk_partition partition = partition_of(&row, tail, 0, 4);
            uint64_t steps = stk_partition_steps_from(&partition, 0, start);
            uint64_t end = start + steps * row.step;
            bool right = true;

            memset(counts, 0, sizeof counts);
            for (uint64_t step = 0; step < steps; step++) {
                right &= is_step_right(&row, tail, 4, 0, start + step * row.step, counts);
            }
            for (uint64_t i = 0; i < row.samples; i++) {
                right &= counts[0][i] == (i >= start && i < end);
            }
            T_TRUE(tail_names[tail], right);
            T_TRUE("no more than a step is dropped",
                   end + (tail == STOKER_TAIL_DROP ? row.step : 0) >= row.samples);
        }
    }
}

static const struct check_row {
    const char *name;
    struct stk_partition partition;
    int want;
    const char *want_where;
} check_rows[] = {
    {"good", {100, 8, 1, 2, STOKER_TAIL_PAD, 1, 2, 3}, 0, ""},
    {"no batch", {100, 0, 0, 1, STOKER_TAIL_PAD, 1, 0, 0}, STOKER_ERROR_ARGUMENT, "batch_size 0"},
    {"no world", {100, 8, 0, 0, STOKER_TAIL_PAD, 1, 0, 0}, STOKER_ERROR_ARGUMENT, "world_size 0"},
    {"no group", {100, 8, 0, 1, STOKER_TAIL_PAD, 0, 0, 0}, STOKER_ERROR_ARGUMENT, "group_count 0"},
    {"rank", {100, 8, 2, 2, STOKER_TAIL_PAD, 1, 0, 0}, STOKER_ERROR_ARGUMENT, "rank 2 of"},
    {"tail", {100, 8, 0, 1, 5, 1, 0, 0}, STOKER_ERROR_ARGUMENT, "tail 5"},
    {"worker", {100, 8, 0, 1, STOKER_TAIL_PAD, 1, 3, 3}, STOKER_ERROR_ARGUMENT, "worker 3 of"},
    {"worker of none", {100, 8, 0, 1, STOKER_TAIL_PAD, 1, 1, 0}, STOKER_ERROR_ARGUMENT, "worker 1"},
    {"samples",
     {STK_ORDER_SAMPLES_MAX + 1, 8, 0, 1, STOKER_TAIL_PAD, 1, 0, 0},
     STOKER_ERROR_ARGUMENT,
     "sample_count"},
    {"step",
     {100, 1u << 31, 0, 1u << 31, STOKER_TAIL_PAD, 1, 0, 0},
     STOKER_ERROR_ARGUMENT,
     "world_size 2147483648"},
    {"step of all workers",
     {100, 1u << 30, 0, 1u << 20, STOKER_TAIL_PAD, 1, 0, 128},
     STOKER_ERROR_ARGUMENT,
     "worker_count 128"},
};

static void test_check(void)
{
    T_EACH(check_row, row, check_rows)
    {
        struct stoker_error error = {0};

        T_EQ(row->name, stk_partition_check(&row->partition, &error), row->want);
        T_HAS(row->name, error.where, row->want_where);
        if (row->want < 0) {
            T_ERROR(row->name, &error);
        }
    }
}

/* Epochs without a step, and those with one: {samples, batch, rank, world, tail, groups, worker} */
static const struct empty_row {
    const char *name;
    struct stk_partition partition;
    int want;
    const char *want_where;
} empty_rows[] = {
    {"one batch", {8, 8, 0, 1, STOKER_TAIL_DROP, 1, 0, 0}, 0, ""},
    {"one sample short", {7, 8, 0, 1, STOKER_TAIL_DROP, 1, 0, 0}, STOKER_ERROR_EMPTY, "7 samples"},
    {"two ranks", {7, 6, 1, 2, STOKER_TAIL_DROP, 1, 0, 0}, STOKER_ERROR_EMPTY, "world_size 2"},
    {"the last worker of few steps", {16, 8, 0, 1, STOKER_TAIL_DROP, 1, 7, 8}, 0, ""},
    {"keep", {7, 8, 0, 1, STOKER_TAIL_KEEP, 1, 0, 0}, 0, ""},
    {"pad", {7, 8, 0, 2, STOKER_TAIL_PAD, 1, 0, 0}, 0, ""},
    {"wrap", {7, 8, 0, 2, STOKER_TAIL_WRAP, 1, 0, 0}, 0, ""},
};

static void test_check_steps(void)
{
    T_EACH(empty_row, row, empty_rows)
    {
        struct stoker_error error = {0};

        T_EQ(row->name, stk_partition_check_steps(&row->partition, &error), row->want);
        T_HAS(row->name, error.where, row->want_where);
        if (row->want < 0) {
            T_ERROR(row->name, &error);
            T_HAS(row->name, error.advice, "keep");
        }
    }
}

int main(void)
{
    test_check_steps();
    test_shapes();
    test_steps();
    test_resume();
    test_workers();
    test_fingerprints();
    test_check();
    return t_finish();
}
