/* Finds the first difference of two orders: in the sequence of samples, in the samples of a step,
 * in the samples of a rank. This is the sequence in which to compare two runs with different
 * losses. */
#include "order/analysis/order_object.h"

#include "base/compare.h"
#include "base/mem.h"
#include "base/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 1024u
#define STEP_MAX (UINT64_C(1) << 27) /* slots of a step that are sorted: 1 GiB */

static void diff_order(const struct stoker_order *const orders[2],
                       struct stk_schedule_reader readers[2], uint64_t epoch,
                       struct stoker_order_difference *difference)
{
    uint64_t counts[2], both, samples[2][CHUNK];

    for (int i = 0; i < 2; i++) {
        counts[i] = orders[i]->partition.sample_count;
    }
    both = stk_min(counts[0], counts[1]);
    for (uint64_t first = 0, count; first < both; first += count) {
        count = stk_min(CHUNK, both - first);
        stk_schedule_read(&readers[0], epoch, first, count, samples[0]);
        stk_schedule_read(&readers[1], epoch, first, count, samples[1]);
        for (uint64_t i = 0; i < count; i++) {
            if (samples[0][i] != samples[1][i]) {
                difference->order = 1;
                difference->order_epoch = epoch;
                difference->order_position = first + i;
                difference->sample_a = samples[0][i];
                difference->sample_b = samples[1][i];
                return;
            }
        }
    }
    if (counts[0] != counts[1]) {
        difference->order = 1;
        difference->order_epoch = epoch;
        difference->order_position = both;
        difference->sample_a = difference->sample_b = STOKER_NO_SAMPLE;
        if (counts[0] > both) {
            stk_schedule_read(&readers[0], epoch, both, 1, &difference->sample_a);
        } else {
            stk_schedule_read(&readers[1], epoch, both, 1, &difference->sample_b);
        }
    }
}

/* Sorts the ids of a step's real slots, and returns their number. Sets `ends` to where each rank's
 * ids begin in the unsorted list. */
static uint64_t step_ids(const struct stoker_order *order, uint64_t epoch, uint64_t step,
                         uint32_t rank, uint64_t *ids, int *status)
{
    struct stoker_slot slots[64];
    uint64_t count = 0, skip = 0;
    int got;

    while ((got = stoker_order_slots(order, epoch, step, rank, skip, slots, STK_COUNT(slots))) >
           0) {
        for (int i = 0; i < got; i++) {
            ids[count] = slots[i].sample;
            count += slots[i].real;
        }
        skip += (uint64_t)got;
    }
    *status = got < 0 ? got : *status;
    return count;
}

/* Reports that the samples of one rank, or of all ranks, differ in a step. Within a rank, the
 * sequence must be equal, too. */
static bool is_other(const struct stoker_order *const orders[2], uint64_t epoch, uint64_t step,
                     uint32_t rank, uint64_t *ids[2], int *status)
{
    uint64_t counts[2] = {0};

    for (int i = 0; i < 2; i++) {
        if (step < stoker_order_steps(orders[i], epoch)) {
            counts[i] = step_ids(orders[i], epoch, step, rank, ids[i], status);
        }
        if (rank == STOKER_ALL_RANKS) {
            qsort(ids[i], counts[i], sizeof *ids[i], stk_compare_u64);
        }
    }
    return counts[0] != counts[1] || memcmp(ids[0], ids[1], counts[0] * sizeof *ids[0]) != 0;
}

/* Returns 0, or an error of an order, whose differences then mean nothing. */
static int diff_steps(const struct stoker_order *const orders[2], uint64_t epoch, uint64_t *ids[2],
                      struct stoker_order_difference *difference)
{
    uint64_t steps =
        stk_max(stoker_order_steps(orders[0], epoch), stoker_order_steps(orders[1], epoch));
    uint32_t worlds[2] = {orders[0]->partition.world_size, orders[1]->partition.world_size};
    int status = 0;

    for (uint64_t step = 0; step < steps && !difference->step && status == 0; step++) {
        if (is_other(orders, epoch, step, STOKER_ALL_RANKS, ids, &status)) {
            difference->step = 1;
            difference->step_epoch = epoch;
            difference->step_number = step;
        }
        for (uint32_t rank = 0; rank < stk_max(worlds[0], worlds[1]) && !difference->rank; rank++) {
            if (rank >= stk_min(worlds[0], worlds[1]) ||
                is_other(orders, epoch, step, rank, ids, &status)) {
                difference->rank = 1;
                difference->rank_epoch = epoch;
                difference->rank_step = step;
                difference->rank_number = rank;
            }
        }
    }
    return status;
}

int stoker_order_diff(const struct stoker_order *a, const struct stoker_order *b, uint64_t epochs,
                      struct stoker_order_difference *difference_out, struct stoker_error *error)
{
    const struct stoker_order *const orders[2] = {a, b};
    struct stoker_order_difference full = {0};
    struct stk_schedule_reader readers[2] = {0};
    uint64_t *ids[2] = {NULL, NULL};
    int status = stk_options_check_output(difference_out, sizeof full, sizeof full.struct_size,
                                          "order difference", error);

    if (status < 0) {
        return status;
    }
    if (stk_partition_stride(&a->partition) > STEP_MAX ||
        stk_partition_stride(&b->partition) > STEP_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the orders cannot be compared",
                        "use at most 2^27 samples in a step of all ranks", "two orders");
    }
    for (int i = 0; i < 2; i++) {
        if (epochs > 0 && epochs - 1 > stk_schedule_epoch_max(&orders[i]->schedule)) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "an order has fewer epochs",
                            "compare fewer epochs", "%llu epochs", (unsigned long long)epochs);
        }
    }
    for (int i = 0; i < 2; i++) {
        ids[i] = stk_alloc(stk_partition_stride(&orders[i]->partition), sizeof *ids[i]);
        status = status < 0 || !ids[i]
                     ? -ENOMEM
                     : stk_schedule_reader_init(&readers[i], &orders[i]->schedule, NULL);
    }
    for (uint64_t epoch = 0; status == 0 && epoch < epochs && !full.step; epoch++) {
        if (!full.order) {
            diff_order(orders, readers, epoch, &full);
        }
        status = diff_steps(orders, epoch, ids, &full);
    }
    for (int i = 0; i < 2; i++) {
        status = stk_schedule_reader_end(&readers[i], status, NULL);
        stk_free(ids[i]);
    }
    if (status < 0) {
        return stk_fail(error, status, "cannot compare two orders",
                        status == STOKER_ERROR_CORRUPT
                            ? "a table of samples is damaged: remove it, it will be created again"
                            : "free memory, or compare fewer epochs",
                        "diff");
    }
    return stk_options_write_output(difference_out, &full, sizeof full, "order difference", error);
}
