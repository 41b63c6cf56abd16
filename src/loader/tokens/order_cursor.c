/* The position of a stream in an order, and the samples of a rank there. */
#include "loader/tokens/order_cursor.h"

#include <string.h>

int stk_order_cursor_open(struct stk_order_cursor *cursor,
                          const struct stk_order_cursor_options *options,
                          struct stoker_error *error)
{
    const struct stk_schedule_request request = {.mix = options->mix};
    int status;

    memset(cursor, 0, sizeof *cursor);
    cursor->defaults = options->defaults;
    status = stk_schedule_open(&cursor->schedule, &options->order, &request, error);
    status = status < 0 ? status : stk_mix_copy_open(&cursor->mix, options->mix, error);
    if (status == 0) {
        cursor->partition = options->partition;
        cursor->partition.sample_count = stk_schedule_epoch_samples(&cursor->schedule);
        memcpy(cursor->identity, options->identity, sizeof cursor->identity);
        status = stk_partition_check(&cursor->partition, error);
    }
    status = status < 0 ? status : stk_partition_check_steps(&cursor->partition, error);
    if (status == 0) {
        status = stk_schedule_reader_init(&cursor->reader, &cursor->schedule, error);
    }
    if (status < 0) {
        stk_order_cursor_close(cursor);
        return status;
    }
    return stk_order_cursor_set_epoch(cursor, 0, error);
}

void stk_order_cursor_close(struct stk_order_cursor *cursor)
{
    stk_schedule_reader_deinit(&cursor->reader);
    stk_schedule_deinit(&cursor->schedule);
    stk_mix_copy_close(&cursor->mix);
}

bool stk_order_cursor_begin_step(struct stk_order_cursor *cursor)
{
    const struct stk_partition *partition = &cursor->partition;

    if (stk_partition_steps_from(partition, cursor->epoch, cursor->position) > 0) {
        return true;
    }
    cursor->position = stk_partition_next_epoch_start(partition, cursor->epoch, cursor->position);
    cursor->epoch++;
    return false;
}

uint32_t stk_order_cursor_slots(const struct stk_order_cursor *cursor)
{
    return stk_partition_batch_slots(&cursor->partition, cursor->epoch, cursor->position);
}

struct stk_order_cursor_slot stk_order_cursor_get_at(struct stk_order_cursor *cursor,
                                                     uint64_t epoch, uint64_t position,
                                                     uint32_t slot)
{
    struct stk_order_place place;
    uint64_t sample;

    stk_partition_place(&cursor->partition, epoch, position, slot, &place);
    stk_schedule_read(&cursor->reader, place.epoch, place.position, 1, &sample);
    return (struct stk_order_cursor_slot){sample, place.epoch, place.position, place.real};
}

struct stk_order_cursor_slot stk_order_cursor_get(struct stk_order_cursor *cursor, uint32_t slot)
{
    return stk_order_cursor_get_at(cursor, cursor->epoch, cursor->position, slot);
}

int stk_order_cursor_error(struct stk_order_cursor *cursor, struct stoker_error *error)
{
    return stk_schedule_reader_error(&cursor->reader, error);
}

/* Returns the fingerprint of these steps. */
static uint64_t sum_steps(struct stk_order_cursor *cursor, const struct stk_delivered *delivered)
{
    const struct stk_partition *partition = &cursor->partition;
    struct stk_delivered copy = *delivered;
    struct stk_delivered_span span;
    uint64_t sum = 0;

    while (stk_delivered_next(&copy, partition, &span)) {
        for (; span.steps > 0; span.steps--) {
            sum += stk_schedule_step_fingerprint(&cursor->reader, partition, span.epoch,
                                                 span.position);
            span.position += stk_partition_stride(partition);
        }
    }
    return sum;
}

/* Adds all delivered steps to the fingerprint. */
static void update_fingerprint(struct stk_order_cursor *cursor)
{
    uint64_t sum = sum_steps(cursor, &cursor->delivered);
    struct stk_delivered copy = cursor->delivered;

    stk_delivered_fold(&cursor->delivered, &copy, sum);
}

void stk_order_cursor_next(struct stk_order_cursor *cursor)
{
    const struct stk_partition *partition = &cursor->partition;

    if (!stk_delivered_add(&cursor->delivered, partition, cursor->epoch, cursor->position)) {
        update_fingerprint(cursor);
        stk_delivered_add(&cursor->delivered, partition, cursor->epoch, cursor->position);
    }
    cursor->position += stk_partition_stride(partition);
}

int stk_order_cursor_set_epoch(struct stk_order_cursor *cursor, uint64_t epoch,
                               struct stoker_error *error)
{
    if (epoch > stk_schedule_epoch_max(&cursor->schedule)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "there is no such epoch",
                        "a mix has 2^61 positions, other runs 2^63 epochs; take a smaller epoch",
                        "epoch %llu", (unsigned long long)epoch);
    }
    cursor->epoch = epoch;
    cursor->position = stk_partition_first(&cursor->partition, epoch);
    return 0;
}

uint64_t stk_order_cursor_boundary(const struct stk_order_cursor *cursor, uint64_t least)
{
    return stk_schedule_change_position(&cursor->schedule, cursor->epoch, cursor->position, least);
}

static void identify(const struct stk_order_cursor *cursor, const struct stk_schedule *schedule,
                     struct stoker_state *state_out)
{
    stk_state_make(state_out, &schedule->order, &cursor->partition, cursor->identity);
    stk_schedule_write_state(schedule, 0, state_out);
}

static int compare(const struct stk_order_cursor *cursor, const struct stk_schedule *schedule,
                   const struct stoker_state *state, const struct stk_state_labels *words,
                   struct stoker_error *error)
{
    struct stk_state_labels full = *words;
    struct stoker_state own;

    full.positions = stk_schedule_epoch_samples(schedule);
    full.slack = stk_partition_slack(&cursor->partition, full.positions);
    full.epoch_max = stk_schedule_epoch_max(schedule);
    identify(cursor, schedule, &own);
    return stk_state_validate(state, &own, &full, error);
}

/* Replaces the order by that of the state. On failure nothing changes. */
static int adopt(struct stk_order_cursor *cursor, const struct stk_order_options *order,
                 const struct stoker_state *state, const struct stk_state_labels *words,
                 struct stoker_error *error)
{
    const struct stk_schedule_request request = {.mix = stk_mix_copy_get(&cursor->mix)};
    struct stk_schedule schedule;
    int status = stk_schedule_open(&schedule, order, &request, error);

    if (status < 0) {
        return status;
    }
    status = compare(cursor, &schedule, state, words, error);
    status = status < 0
                 ? status
                 : stk_schedule_exchange(&cursor->schedule, &cursor->reader, &schedule, error);
    stk_schedule_deinit(&schedule);
    if (status == 0) {
        cursor->partition.sample_count = stk_schedule_epoch_samples(&cursor->schedule);
    }
    return status;
}

int stk_order_cursor_state(struct stk_order_cursor *cursor, struct stoker_state *state_out)
{
    update_fingerprint(cursor);
    identify(cursor, &cursor->schedule, state_out);
    state_out->epoch = cursor->epoch;
    state_out->position = cursor->position;
    state_out->fingerprint = cursor->delivered.fingerprint;
    return stk_order_cursor_error(cursor, NULL);
}

int stk_order_cursor_state_at(struct stk_order_cursor *cursor, uint64_t epoch, uint64_t position,
                              struct stoker_state *state_out)
{
    struct stk_delivered_span to = {epoch, position, STK_ORDER_CURSOR_BACK_MAX};
    struct stk_delivered_span now = {.epoch = cursor->epoch, .position = cursor->position};
    struct stk_delivered between;
    int status = stk_order_cursor_state(cursor, state_out);

    if (status < 0) {
        return status;
    }
    if (!stk_delivered_between(&between, &cursor->partition, &to, &now)) {
        return STOKER_ERROR_ARGUMENT;
    }
    state_out->epoch = epoch;
    state_out->position = position;
    state_out->fingerprint -= sum_steps(cursor, &between);
    return stk_order_cursor_error(cursor, NULL);
}

int stk_order_cursor_set_state(struct stk_order_cursor *cursor, const struct stoker_state *state,
                               const struct stk_state_labels *words, struct stoker_error *error)
{
    struct stk_order_options order = cursor->schedule.order.options;
    struct stk_order_defaults defaults = cursor->defaults;
    int status;

    defaults.shuffle = defaults.shuffle && state->shuffle != STOKER_SHUFFLE_TWO_LEVEL;
    status = stk_order_adopt(&order, &defaults, state)
                 ? adopt(cursor, &order, state, words, error)
                 : compare(cursor, &cursor->schedule, state, words, error);
    if (status == 0) {
        cursor->epoch = state->epoch;
        cursor->position = state->position;
        cursor->delivered = (struct stk_delivered){.fingerprint = state->fingerprint};
    }
    return status;
}
