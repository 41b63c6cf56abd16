/* Goal: the report of labels matches the order; a full permutation mixes as well as chance; a
 * larger window is found if it helps.
 * Method: sorted classes; the classes of batches, runs and shares counted here from
 * stoker_order_slots. Covers order_mixing.c, too. */
#include "base/mem.h"
#include "order/analysis/order_object.h"
#include "test/t.h"

#include <stoker/mixing.h>

#include <stdlib.h>
#include <string.h>

#define SAMPLES_MAX 6000

static int64_t labels[SAMPLES_MAX];

static const struct row {
    const char *name;
    uint64_t samples, classes, block;
    uint32_t window, groups, batch, world, shuffle, version;
} rows[] = {
    {"one rank", 6000, 10, 256, 64, 1, 32, 1, STOKER_SHUFFLE_BLOCK, 2},
    {"a small window", 6000, 100, 50, 4, 1, 64, 1, STOKER_SHUFFLE_BLOCK, 2},
    {"ranks and groups", 5990, 30, 20, 8, 8, 16, 4, STOKER_SHUFFLE_BLOCK, 2},
    {"version 1", 6000, 10, 256, 64, 1, 32, 1, STOKER_SHUFFLE_BLOCK, 1},
    {"full", 5000, 200, 10, 64, 1, 32, 2, STOKER_SHUFFLE_FULL, 2},
    {"storage order", 3000, 7, 10, 64, 1, 32, 1, STOKER_SHUFFLE_NONE, 2},
    {"one class", 500, 1, 10, 64, 1, 32, 1, STOKER_SHUFFLE_FULL, 2},
};

static struct stoker_order_options options_of(const struct row *row)
{
    for (uint64_t i = 0; i < row->samples; i++) { /* labels are not dense */
        labels[i] = (int64_t)(i * row->classes / row->samples) * 1000003 - 5;
    }
    return (struct stoker_order_options){.struct_size = sizeof(struct stoker_order_options),
                                         .sample_count = row->samples,
                                         .block_samples = row->block,
                                         .window_blocks = row->window,
                                         .group_count = row->groups,
                                         .batch_size = row->batch,
                                         .world_size = row->world,
                                         .shuffle = row->shuffle,
                                         .order_version = row->version,
                                         .seed = 7};
}

/* Counts one batch. */
static void count_batch(const struct stoker_slot *slots, int count, uint64_t *classes_out,
                        uint64_t *most_out)
{
    *classes_out = *most_out = 0;
    for (int i = 0; i < count; i++) {
        uint64_t same = 0;
        bool is_first = true;

        for (int k = 0; k < count; k++) {
            bool alike = labels[slots[k].sample] == labels[slots[i].sample];

            same += alike;
            is_first &= !(alike && k < i);
        }
        *classes_out += is_first;
        *most_out = stk_max(*most_out, same);
    }
}

static int by_position(const void *a, const void *b)
{
    const struct stoker_slot *left = a, *right = b;

    return left->position < right->position ? -1 : left->position > right->position;
}

static void check_row(const struct row *row)
{
    struct stoker_order_options options = options_of(row);
    struct stoker_mixing_options how = {
        .struct_size = sizeof how, .order = &options, .labels = labels, .steps_max = 1 << 20};
    struct stoker_mixing mixing = {.struct_size = sizeof mixing};
    uint64_t batches = 0, sum = 0, least = UINT64_MAX, longest = 0, run = 0;
    struct stoker_error error = {0};
    struct stoker_order *order;
    int64_t last = 0;
    double share = 0;

    T_EQ(row->name, stoker_mixing_measure(&how, &mixing, &error), 0);
    T_EQ(row->name, stoker_order_open(&order, &options, &error), 0);
    for (uint64_t step = 0; step < stoker_order_steps(order, 0); step++) {
        static struct stoker_slot slots[256];
        int count = stoker_order_slots(order, 0, step, STOKER_ALL_RANKS, 0, slots, 256);

        for (uint32_t rank = 0; rank < row->world; rank++) {
            uint64_t classes, most;

            count_batch(slots + rank * row->batch, (int)row->batch, &classes, &most);
            batches++;
            sum += classes;
            least = stk_min(least, classes);
            share = (double)most / row->batch > share ? (double)most / row->batch : share;
        }
        qsort(slots, (size_t)count, sizeof *slots, by_position);
        for (int i = 0; i < count; i++) {
            int64_t label = labels[slots[i].sample];

            run = run && label == last ? run + 1 : 1;
            last = label;
            longest = stk_max(longest, run);
        }
    }
    T_EQ(row->name, mixing.classes, (long long)row->classes);
    T_TRUE(row->name, mixing.batch_classes == (double)sum / (double)batches);
    T_EQ(row->name, mixing.batch_classes_min, (long long)least);
    T_TRUE(row->name, mixing.batch_share_max == share);
    T_EQ(row->name, mixing.run_max, (long long)longest);
    T_HAS(row->name, mixing.note, "classes per batch; a full shuffle gives");
    T_TRUE(row->name, mixing.full_chi_square < 2);
    if (row->shuffle == STOKER_SHUFFLE_FULL) {
        T_TRUE(row->name, mixing.batch_classes > 0.9 * mixing.full_batch_classes &&
                              mixing.batch_classes < 1.1 * mixing.full_batch_classes);
        T_TRUE("another permutation",
               row->classes == 1 || mixing.chi_square != mixing.full_chi_square);
    }
    if (row->shuffle == STOKER_SHUFFLE_NONE) {
        T_TRUE(row->name, mixing.chi_square > 100 && mixing.stretch_classes_min < 4);
    }
    stoker_order_close(order);
}

/* A window with which batches have 95 % of the classes. */
static void test_window(void)
{
    struct stoker_order_options options = options_of(&rows[1]);
    struct stoker_mixing_options how = {
        .struct_size = sizeof how, .order = &options, .labels = labels};
    struct stoker_mixing mixing = {.struct_size = sizeof mixing};
    char want[64];

    T_EQ("measure", stoker_mixing_measure(&how, &mixing, NULL), 0);
    T_TRUE("found", mixing.better_window > 4 && mixing.better_window <= 120);
    T_TRUE("it mixes", mixing.better_batch_classes >= 0.95 * mixing.full_batch_classes);
    T_TRUE("this does not", mixing.batch_classes < 0.5 * mixing.full_batch_classes);
    snprintf(want, sizeof want, "; window=%u gives", mixing.better_window);
    T_HAS("note", mixing.note, want);
}

/* Rows of test_no_step: batches of 32, of the samples of an epoch. */
static const struct no_step_row {
    const char *name;
    uint64_t samples, selected, steps; /* selected 0: all samples; steps 0: none is delivered */
    uint32_t world, tail;
    bool is_mix;
} no_step_rows[] = {
    {"all samples", 20, 0, 0, 1, 0, false},
    {"two ranks", 60, 0, 0, 2, STOKER_TAIL_DROP, false},
    {"a selection", 500, 20, 0, 1, 0, false},
    {"a selection, keep", 500, 20, 1, 1, STOKER_TAIL_KEEP, false},
    {"a selection of two batches", 500, 64, 2, 1, 0, false},
    {"a mix", 30, 0, 0, 1, 0, true},
    {"a mix, keep", 30, 0, 1, 1, STOKER_TAIL_KEEP, true},
    {"a mix of one batch", 32, 0, 1, 1, 0, true},
};

/* An epoch without a full step has a note in place of numbers. */
static void test_no_step(void)
{
    T_EACH(no_step_row, row, no_step_rows)
    {
        struct row base = {"", row->samples, 2, 10, 4, 1, 32, row->world, 0, 2};
        struct stoker_sampling_options sampling = {.struct_size = sizeof sampling,
                                                   .epoch_samples = row->selected};
        uint64_t ends[2] = {row->samples / 2, row->samples}, weights[2] = {1, 1};
        struct stoker_mix_options mix = {
            .struct_size = sizeof mix, .ends = ends, .weights = weights, .source_count = 2};
        struct stoker_order_options options = options_of(&base);
        struct stoker_mixing_options how = {
            .struct_size = sizeof how, .order = &options, .labels = labels};
        struct stoker_mixing mixing = {.struct_size = sizeof mixing};
        struct stoker_error error = {0};

        options.tail = row->tail;
        options.sampling = row->selected > 0 ? &sampling : NULL;
        options.mix = row->is_mix ? &mix : NULL;
        T_EQ(row->name, stoker_mixing_measure(&how, &mixing, &error), 0);
        T_EQ(row->name, mixing.steps, (long long)row->steps);
        T_EQ(row->name, mixing.classes > 0, row->steps > 0);
        T_EQ(row->name, strstr(mixing.note, "an epoch has 0 full steps of ") != NULL,
             row->steps == 0);
    }
}

static int no_label(void *context, uint64_t sample, int64_t *label_out)
{
    (void)label_out;
    return sample == *(uint64_t *)context ? STOKER_ERROR_MISSING : 0;
}

static void test_refused(void)
{
    struct stoker_order_options options = options_of(&rows[0]);
    struct stoker_mixing_options how = {.struct_size = sizeof how, .order = &options};
    struct stoker_mixing mixing = {.struct_size = sizeof mixing};
    struct stoker_order_mixing_options of_order = {.struct_size = sizeof of_order};
    struct stoker_order_mixing result = {.struct_size = sizeof result};
    struct stoker_error error = {0};
    struct stoker_order *order;
    uint64_t sample = 17;

    T_EQ("no labels", stoker_mixing_measure(&how, &mixing, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR("no labels", &error);
    T_EQ("order", stoker_order_open(&order, &options, &error), 0);
    T_EQ("no function", stoker_order_mixing(order, &of_order, &result, &error),
         STOKER_ERROR_ARGUMENT);
    T_ERROR("no function", &error);
    of_order.label_of = no_label;
    of_order.context = &sample;
    T_EQ("a sample without", stoker_order_mixing(order, &of_order, &result, &error),
         STOKER_ERROR_MISSING);
    T_ERROR("a sample without", &error);
    for (uint64_t n = 1; n < 8; n++) {
        sample = UINT64_MAX;
        stk_mem_fail_nth(n);
        T_EQ("no memory", stoker_order_mixing(order, &of_order, &result, &error), -12);
        stk_mem_fail_nth(0);
    }
    stoker_order_close(order);
}

int main(void)
{
    T_EACH(row, row, rows)
    {
        check_row(row);
    }
    test_window();
    test_no_step();
    test_refused();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
