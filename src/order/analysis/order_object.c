/* An order as an object: finds the slot of a sample, and the sample of a slot. */
#include "order/analysis/order_object.h"

#include "base/mem.h"
#include "base/options.h"
#include "order/schedule/order_default.h"

#include <errno.h>
#include <string.h>

int stoker_order_open(struct stoker_order **order_out, const struct stoker_order_options *given,
                      struct stoker_error *error)
{
    struct stoker_order_options options;
    struct stk_order_options settings;
    struct stoker_order *order;
    int status = stk_options_read(&options, sizeof options, sizeof options.struct_size, given,
                                  "order options", error);

    *order_out = NULL;
    if (status < 0) {
        return status;
    }
    order = stk_alloc(1, sizeof *order);
    if (!order) {
        return stk_fail_memory(error, "order");
    }
    settings = (struct stk_order_options){
        .sample_count = options.sample_count,
        .block_samples = options.block_samples,
        .window_blocks = options.window_blocks ? options.window_blocks : STK_ORDER_WINDOW_DEFAULT,
        .group_count = options.group_count ? options.group_count : 1,
        .shuffle = options.shuffle ? options.shuffle : STOKER_SHUFFLE_BLOCK,
        .version = options.order_version,
        .seed = options.seed,
    };
    order->partition = (struct stk_partition){
        .batch_size = options.batch_size,
        .world_size = options.world_size ? options.world_size : 1,
        .tail = options.tail ? options.tail : STOKER_TAIL_DROP,
        .group_count = settings.group_count,
    };
    status =
        stk_schedule_open(&order->schedule, &settings,
                          &(struct stk_schedule_request){options.mix, options.sampling,
                                                         options.shard_ends, options.shard_count},
                          error);
    if (status == 0) {
        order->partition.sample_count = stk_schedule_epoch_samples(&order->schedule);
        status = stk_partition_check(&order->partition, error);
    }
    if (status < 0) {
        stoker_order_close(order);
        return status;
    }
    *order_out = order;
    return 0;
}

void stoker_order_close(struct stoker_order *order)
{
    if (order) {
        stk_schedule_deinit(&order->schedule);
    }
    stk_free(order);
}

uint64_t stoker_order_samples(const struct stoker_order *order)
{
    return order->partition.sample_count;
}

uint64_t stoker_order_steps(const struct stoker_order *order, uint64_t epoch)
{
    return stk_partition_steps(&order->partition, epoch);
}

int stoker_order_slots(const struct stoker_order *order, uint64_t epoch, uint64_t step,
                       uint32_t rank, uint64_t skip, struct stoker_slot *slots_out,
                       uint32_t capacity)
{
    struct stk_partition partition = order->partition;
    uint64_t position = stk_partition_first(&partition, epoch);
    uint32_t rank_end = partition.world_size, filled = 0;
    struct stk_schedule_reader reader;
    int status;

    if (epoch > stk_schedule_epoch_max(&order->schedule) ||
        step >= stk_partition_steps(&partition, epoch) || capacity > INT32_MAX ||
        (rank != STOKER_ALL_RANKS && rank >= partition.world_size)) {
        return STOKER_ERROR_ARGUMENT;
    }
    position += step * stk_partition_stride(&partition);
    partition.rank = rank == STOKER_ALL_RANKS ? 0 : rank;
    rank_end = rank == STOKER_ALL_RANKS ? partition.world_size : rank + 1;
    status = stk_schedule_reader_init(&reader, &order->schedule, NULL);
    if (status < 0) {
        return status;
    }
    for (; partition.rank < rank_end && filled < capacity; partition.rank++) {
        uint32_t slots = stk_partition_batch_slots(&partition, epoch, position);

        for (uint64_t slot = skip; slot < slots && filled < capacity; slot++) {
            struct stk_order_place place;

            stk_partition_place(&partition, epoch, position, (uint32_t)slot, &place);
            slots_out[filled] = (struct stoker_slot){
                .step_epoch = epoch,
                .step = step,
                .rank = partition.rank,
                .slot = (uint32_t)slot,
                .epoch = place.epoch,
                .position = place.position,
                .real = place.real,
            };
            stk_schedule_read(&reader, place.epoch, place.position, 1, &slots_out[filled++].sample);
        }
        skip -= stk_min(skip, slots);
    }
    status = stk_schedule_reader_end(&reader, 0, NULL);
    return status < 0 ? status : (int)filled;
}

int stoker_order_find(const struct stoker_order *order, uint64_t epoch, uint64_t sample,
                      uint64_t skip, struct stoker_slot *slot_out)
{
    struct stk_delivery found;
    uint64_t position;

    if (sample >= order->schedule.order.options.sample_count ||
        epoch > stk_schedule_epoch_max(&order->schedule)) {
        return STOKER_ERROR_ARGUMENT;
    }
    if (!stk_schedule_find(&order->schedule, epoch, sample, skip, &position)) {
        return STOKER_ERROR_MISSING;
    }
    if (!stk_partition_find(&order->partition, epoch, position, &found)) {
        return 0;
    }
    *slot_out = (struct stoker_slot){
        .step_epoch = found.epoch,
        .step = found.step,
        .rank = found.rank,
        .slot = found.slot,
        .epoch = epoch,
        .position = position,
        .sample = sample,
        .real = 1,
    };
    return 1;
}

int stoker_order_fingerprint(const struct stoker_order *order, uint64_t epoch, uint64_t step,
                             uint64_t count, uint64_t *sum_out)
{
    const struct stk_partition *partition = &order->partition;
    uint64_t steps = stk_partition_steps(partition, epoch);
    uint64_t stride = stk_partition_stride(partition), sum = 0;
    uint64_t position = stk_partition_first(partition, epoch) + step * stride;
    struct stk_schedule_reader reader;
    int status;

    if (epoch > stk_schedule_epoch_max(&order->schedule) || step > steps || count > steps - step) {
        return STOKER_ERROR_ARGUMENT;
    }
    status = stk_schedule_reader_init(&reader, &order->schedule, NULL);
    if (status < 0) {
        return status;
    }
    for (; count > 0; count--, position += stride) {
        sum += stk_schedule_step_fingerprint(&reader, partition, epoch, position);
    }
    *sum_out = sum;
    return stk_schedule_reader_end(&reader, 0, NULL);
}
