/* Computes the steps of an epoch and the slices of ranks from positions only. */
#include "order/order.h"

#define RANKS_RATIO_MAX 1024u /* a step of a saved run may be larger than that of this run */

/* a * b mod m without overflow. */
static uint64_t multiply_mod(uint64_t a, uint64_t b, uint64_t m)
{
    __extension__ unsigned __int128 product = a % m;

    return (uint64_t)(product * (b % m) % m);
}

static uint64_t step_size(const struct stk_partition *partition)
{
    return (uint64_t)partition->batch_size * partition->world_size;
}

static uint32_t workers_of(const struct stk_partition *partition)
{
    return partition->worker_count ? partition->worker_count : 1;
}

/* Returns the number of positions in the step, padding included. It is less than a full step only
 * if the tail policy keeps a short tail. */
static uint64_t step_positions(const struct stk_partition *partition, uint64_t position)
{
    uint64_t size = step_size(partition);

    return partition->tail == STOKER_TAIL_KEEP ? stk_min(size, partition->sample_count - position)
                                               : size;
}

/* Returns the item at `index` of the positions first .. first + count - 1, sorted by (position mod
 * groups, position).
 *
 * Each remainder occurs count / groups times. The count % groups remainders from first % groups on
 * occur once more; they may continue after groups - 1 at 0. So the sorted list consists of three
 * runs of remainders, and all remainders in a run occur equally often. */
static uint64_t sorted_position(uint64_t first, uint64_t count, uint64_t groups, uint64_t index)
{
    uint64_t start = first % groups, often = count / groups, more = count % groups;
    uint64_t stop = start + more, remainder = 0;
    bool wraps = stop > groups;
    /* Remainders [0, low), [low, high), [high, groups); the first and the last run have equal
     * counts. */
    uint64_t low = wraps ? stop - groups : start, high = wraps ? start : stop;
    uint64_t outer = often + (wraps ? 1 : 0), inner = often + (wraps ? 0 : 1);
    uint64_t each, turn;

    if (index < low * outer) {
        each = outer;
    } else if (index < low * outer + (high - low) * inner) {
        index -= low * outer;
        remainder = low;
        each = inner;
    } else {
        index -= low * outer + (high - low) * inner;
        remainder = high;
        each = outer;
    }
    remainder += index / each;
    turn = index % each;
    return first + (remainder + groups - start) % groups + turn * groups;
}

/* The inverse of sorted_position: returns the number of positions sorted before first + offset. */
static uint64_t sorted_index(uint64_t first, uint64_t count, uint64_t groups, uint64_t offset)
{
    uint64_t start = first % groups, often = count / groups, more = count % groups;
    uint64_t stop = start + more, remainder = (start + offset % groups) % groups;
    uint64_t before = remainder > start ? stk_min(remainder - start, more) : 0;

    /* Remainders that occur once more begin at start, and may continue at 0. */
    before += stop > groups ? stk_min(remainder, stop - groups) : 0;
    return remainder * often + before + offset / groups;
}

int stk_partition_check(const struct stk_partition *partition, struct stoker_error *error)
{
    if (!partition->batch_size || !partition->world_size || !partition->group_count) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a count of the partition is 0",
                        "give 1 or more of each", "batch_size %u world_size %u group_count %u",
                        partition->batch_size, partition->world_size, partition->group_count);
    }
    if (partition->rank >= partition->world_size) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the rank is outside the world",
                        "ranks count from 0 to world_size - 1", "rank %u of world_size %u",
                        partition->rank, partition->world_size);
    }
    if (partition->worker >= workers_of(partition)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the worker is outside its rank",
                        "workers count from 0 to worker_count - 1", "worker %u of worker_count %u",
                        partition->worker, partition->worker_count);
    }
    if (partition->tail < STOKER_TAIL_DROP || partition->tail > STOKER_TAIL_KEEP) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "unknown tail", "use drop, pad, wrap or keep",
                        "tail %u", partition->tail);
    }
    if (partition->sample_count > STK_ORDER_SAMPLES_MAX ||
        step_size(partition) > STK_ORDER_SAMPLES_MAX / workers_of(partition)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a count of the partition is too large",
                        "use at most 2^56 samples in the data set and in a step of all workers",
                        "sample_count %llu batch_size %u world_size %u worker_count %u",
                        (unsigned long long)partition->sample_count, partition->batch_size,
                        partition->world_size, partition->worker_count);
    }
    return 0;
}

int stk_partition_check_steps(const struct stk_partition *partition, struct stoker_error *error)
{
    if (partition->tail != STOKER_TAIL_DROP || partition->sample_count >= step_size(partition)) {
        return 0;
    }
    return stk_fail(error, STOKER_ERROR_EMPTY, "an epoch has no batch: all samples are dropped",
                    "use tail=\"keep\" or tail=\"pad\", a smaller batch_size, or fewer ranks",
                    "%llu samples, batch_size %u, world_size %u: a step of all ranks takes %llu",
                    (unsigned long long)partition->sample_count, partition->batch_size,
                    partition->world_size, (unsigned long long)step_size(partition));
}

uint64_t stk_partition_first(const struct stk_partition *partition, uint64_t epoch)
{
    uint64_t size = step_size(partition), turn = partition->worker * size, past;

    if (partition->tail != STOKER_TAIL_WRAP) {
        return turn;
    }
    past = multiply_mod(epoch, partition->sample_count, size);
    return turn + (past ? size - past : 0);
}

uint64_t stk_partition_stride(const struct stk_partition *partition)
{
    return step_size(partition) * workers_of(partition);
}

uint64_t stk_partition_slack(const struct stk_partition *partition, uint64_t samples)
{
    uint64_t stride = stk_partition_stride(partition);

    return partition->tail == STOKER_TAIL_DROP
               ? stride - step_size(partition)
               : stk_max(samples, stk_min(stride, STK_ORDER_SAMPLES_MAX / RANKS_RATIO_MAX) *
                                      RANKS_RATIO_MAX);
}

uint64_t stk_partition_steps(const struct stk_partition *partition, uint64_t epoch)
{
    return stk_partition_steps_from(partition, epoch, stk_partition_first(partition, epoch));
}

uint64_t stk_partition_steps_from(const struct stk_partition *partition, uint64_t epoch,
                                  uint64_t position)
{
    uint64_t size = step_size(partition), left, steps;

    (void)epoch; /* not needed: the step's first position is sufficient; for uniform signatures */
    if (position >= partition->sample_count) {
        return 0;
    }
    left = partition->sample_count - position;
    steps = partition->tail == STOKER_TAIL_DROP ? left / size : (left - 1) / size + 1;
    /* `steps` counts those of all workers: this worker takes the first one and each
     * worker_count-th one after it. */
    return steps ? (steps - 1) / workers_of(partition) + 1 : 0;
}

uint32_t stk_partition_batch_slots(const struct stk_partition *partition, uint64_t epoch,
                                   uint64_t position)
{
    uint64_t count = step_positions(partition, position);

    (void)epoch;
    return (uint32_t)(count / partition->world_size +
                      (partition->rank < count % partition->world_size ? 1 : 0));
}

/* Returns the position of slot i of this rank; it may exceed the epoch's end. */
static uint64_t position_of_slot(const struct stk_partition *partition, uint64_t position,
                                 uint32_t slot)
{
    uint64_t count = step_positions(partition, position), world = partition->world_size;
    uint64_t rank = partition->rank;
    uint64_t index = rank * (count / world) + stk_min(rank, count % world) + slot;

    return sorted_position(position, count, partition->group_count, index);
}

static struct stk_order_place place_of(const struct stk_partition *partition, uint64_t epoch,
                                       uint64_t found)
{
    uint64_t samples = partition->sample_count;
    bool wraps = partition->tail == STOKER_TAIL_WRAP;

    if (found < samples) {
        return (struct stk_order_place){.epoch = epoch, .position = found, .real = true};
    }
    return (struct stk_order_place){
        .epoch = epoch + (wraps ? found / samples : 0), .position = found % samples, .real = wraps};
}

void stk_partition_place(const struct stk_partition *partition, uint64_t epoch, uint64_t position,
                         uint32_t slot, struct stk_order_place *place_out)
{
    STK_ASSERT(position < partition->sample_count);
    STK_ASSERT(slot < stk_partition_batch_slots(partition, epoch, position));
    *place_out = place_of(partition, epoch, position_of_slot(partition, position, slot));
}

uint32_t stk_partition_run(const struct stk_partition *partition, uint64_t epoch, uint64_t position,
                           uint32_t slot, struct stk_order_place *first_out)
{
    uint32_t slots = stk_partition_batch_slots(partition, epoch, position);
    uint64_t groups = partition->group_count, found, end, ahead;

    STK_ASSERT(position < partition->sample_count && slot < slots);
    found = position_of_slot(partition, position, slot);
    *first_out = place_of(partition, epoch, found);
    /* The run ends at the last slot, at the end of the step, or where positions restart. */
    end = stk_min(position + step_positions(partition, position),
                  found - first_out->position + partition->sample_count);
    ahead = (end - 1 - found) / groups;
    return (uint32_t)stk_min(slots - slot, ahead + 1);
}

uint64_t stk_partition_next_epoch_start(const struct stk_partition *partition, uint64_t epoch,
                                        uint64_t position)
{
    /* A wrapped step continues in the next epoch, also if the batch size changed during the epoch.
     * In each epoch, the first worker takes the first step. */
    if (partition->tail == STOKER_TAIL_WRAP && position >= partition->sample_count &&
        workers_of(partition) == 1) {
        return position - partition->sample_count;
    }
    return stk_partition_first(partition, epoch + 1);
}

uint64_t stk_partition_fingerprint(const struct stk_partition *partition,
                                   const struct stk_order *order, uint64_t epoch, uint64_t position)
{
    uint64_t left = step_positions(partition, position), sum = 0;

    while (left > 0) {
        struct stk_order_epoch keys;
        uint64_t count = stk_min(left, partition->sample_count - position);

        stk_order_epoch_begin(&keys, order, epoch);
        sum += stk_order_fingerprint(&keys, position, count);
        left = partition->tail == STOKER_TAIL_WRAP ? left - count : 0; /* padding repeats samples */
        position = 0;
        epoch++;
    }
    return sum;
}

bool stk_partition_find(const struct stk_partition *partition, uint64_t epoch, uint64_t position,
                        struct stk_delivery *delivery_out)
{
    uint64_t size = step_size(partition), samples = partition->sample_count;
    uint64_t world = partition->world_size, offset, count, index, longer;
    __extension__ unsigned __int128 run = position;
    struct stk_partition alone = *partition;

    alone.worker = alone.worker_count = 0;
    STK_ASSERT(position < samples);
    if (partition->tail == STOKER_TAIL_WRAP) { /* steps cover the run without gaps */
        __extension__ unsigned __int128 past = (unsigned __int128)epoch * samples;
        run += past;
        offset = (uint64_t)(run % size);
        run -= offset;
        epoch = (uint64_t)(run / samples);
        position = (uint64_t)(run % samples);
    } else {
        offset = position % size;
        position -= offset;
    }
    *delivery_out = (struct stk_delivery){
        .epoch = epoch,
        .step = (position - stk_partition_first(&alone, epoch)) / size,
        .position = position,
    };
    if (stk_partition_steps_from(&alone, epoch, position) == 0) {
        return false;
    }
    count = step_positions(partition, position);
    index = sorted_index(position, count, partition->group_count, offset);
    longer = (count % world) * (count / world + 1); /* slots of the ranks that have one slot more */
    if (index < longer) {
        delivery_out->rank = (uint32_t)(index / (count / world + 1));
        delivery_out->slot = (uint32_t)(index % (count / world + 1));
    } else {
        delivery_out->rank = (uint32_t)(count % world + (index - longer) / (count / world));
        delivery_out->slot = (uint32_t)((index - longer) % (count / world));
    }
    return true;
}
