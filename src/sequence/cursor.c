/* A position in an order, and what a rank gets there. */
#include "sequence/cursor.h"

#include <string.h>

int stk_cursor_open(struct stk_cursor *cursor, const struct stk_order_options *order,
                    const struct stk_partition *partition, const uint8_t identity[32],
                    struct stoker_error *error)
{
    int status = stk_partition_check(partition, error);

    memset(cursor, 0, sizeof *cursor);
    status = status < 0 ? status : stk_order_init(&cursor->order, order, error);
    if (status == 0) {
        cursor->partition = *partition;
        memcpy(cursor->identity, identity, sizeof cursor->identity);
        stk_cursor_set_epoch(cursor, 0);
    }
    return status;
}

bool stk_cursor_begins(struct stk_cursor *cursor)
{
    const struct stk_partition *partition = &cursor->partition;

    if (stk_partition_steps_from(partition, cursor->epoch, cursor->position) > 0) {
        return true;
    }
    cursor->position = stk_partition_following(partition, cursor->epoch, cursor->position);
    cursor->epoch++;
    return false;
}

uint32_t stk_cursor_slots(const struct stk_cursor *cursor)
{
    return stk_partition_slots(&cursor->partition, cursor->epoch, cursor->position);
}

static const struct stk_order_epoch *keys_of(struct stk_cursor *cursor, uint64_t epoch)
{
    struct stk_order_epoch *keys = &cursor->keys[epoch % 2];

    if (!cursor->has_keys[epoch % 2] || keys->epoch != epoch) {
        stk_order_begin(keys, &cursor->order, epoch);
        cursor->has_keys[epoch % 2] = true;
    }
    return keys;
}

struct stk_cursor_slot stk_cursor_slot_at(struct stk_cursor *cursor, uint64_t epoch,
                                          uint64_t position, uint32_t slot)
{
    struct stk_place place;

    stk_partition_place(&cursor->partition, epoch, position, slot, &place);
    return (struct stk_cursor_slot){stk_order_sample(keys_of(cursor, place.epoch), place.position),
                                    place.epoch, place.real};
}

struct stk_cursor_slot stk_cursor_at(struct stk_cursor *cursor, uint32_t slot)
{
    return stk_cursor_slot_at(cursor, cursor->epoch, cursor->position, slot);
}

/* All that was given becomes part of the fingerprint. */
static void settle(struct stk_cursor *cursor)
{
    const struct stk_partition *partition = &cursor->partition;
    struct stk_given copy = cursor->given;
    struct stk_given_span span;
    uint64_t sum = 0;

    while (stk_given_next(&copy, partition, &span)) {
        for (; span.steps > 0; span.steps--) {
            sum += stk_partition_fingerprint(partition, &cursor->order, span.epoch, span.position);
            span.position += stk_partition_stride(partition);
        }
    }
    copy = cursor->given;
    stk_given_settle(&cursor->given, &copy, sum);
}

void stk_cursor_advance(struct stk_cursor *cursor)
{
    const struct stk_partition *partition = &cursor->partition;

    if (!stk_given_add(&cursor->given, partition, cursor->epoch, cursor->position)) {
        settle(cursor);
        stk_given_add(&cursor->given, partition, cursor->epoch, cursor->position);
    }
    cursor->position += stk_partition_stride(partition);
}

void stk_cursor_set_epoch(struct stk_cursor *cursor, uint64_t epoch)
{
    cursor->epoch = epoch;
    cursor->position = stk_partition_first(&cursor->partition, epoch);
}

void stk_cursor_state(struct stk_cursor *cursor, struct stoker_state *state_out)
{
    settle(cursor);
    stk_state_of(state_out, &cursor->order, &cursor->partition, cursor->identity);
    state_out->epoch = cursor->epoch;
    state_out->position = cursor->position;
    state_out->fingerprint = cursor->given.fingerprint;
}

int stk_cursor_set_state(struct stk_cursor *cursor, const struct stoker_state *state,
                         const struct stk_state_words *words, struct stoker_error *error)
{
    struct stoker_state own;
    int status;

    stk_state_of(&own, &cursor->order, &cursor->partition, cursor->identity);
    status = stk_state_check(state, &own, words, error);
    if (status == 0) {
        cursor->epoch = state->epoch;
        cursor->position = state->position;
        cursor->given = (struct stk_given){.fingerprint = state->fingerprint};
    }
    return status;
}
