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

struct stk_cursor_slot stk_cursor_at(struct stk_cursor *cursor, uint32_t slot)
{
    struct stk_place place;

    stk_partition_place(&cursor->partition, cursor->epoch, cursor->position, slot, &place);
    return (struct stk_cursor_slot){stk_order_sample(keys_of(cursor, place.epoch), place.position),
                                    place.epoch, place.real};
}

/* The oldest run becomes part of the fingerprint, which is a sum: any order will do. */
static void settle(struct stk_cursor *cursor)
{
    struct stk_cursor_run run = cursor->runs[0];

    for (; run.steps > 0; run.steps--) {
        cursor->fingerprint +=
            stk_partition_fingerprint(&cursor->partition, &cursor->order, run.epoch, run.position);
        run.position += stk_partition_stride(&cursor->partition);
    }
    cursor->run_count--;
    memmove(cursor->runs, cursor->runs + 1, cursor->run_count * sizeof *cursor->runs);
}

void stk_cursor_advance(struct stk_cursor *cursor)
{
    uint64_t stride = stk_partition_stride(&cursor->partition);
    struct stk_cursor_run *last = &cursor->runs[cursor->run_count - (cursor->run_count > 0)];

    if (cursor->run_count > 0 && last->epoch == cursor->epoch &&
        last->position + last->steps * stride == cursor->position) {
        last->steps++;
    } else {
        if (cursor->run_count == STK_CURSOR_RUNS_MAX) {
            settle(cursor);
        }
        cursor->runs[cursor->run_count++] =
            (struct stk_cursor_run){cursor->epoch, cursor->position, 1};
    }
    cursor->position += stride;
}

void stk_cursor_set_epoch(struct stk_cursor *cursor, uint64_t epoch)
{
    cursor->epoch = epoch;
    cursor->position = stk_partition_first(&cursor->partition, epoch);
}

void stk_cursor_state(struct stk_cursor *cursor, struct stoker_state *state_out)
{
    while (cursor->run_count > 0) {
        settle(cursor);
    }
    stk_state_of(state_out, &cursor->order, &cursor->partition, cursor->identity);
    state_out->epoch = cursor->epoch;
    state_out->position = cursor->position;
    state_out->fingerprint = cursor->fingerprint;
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
        cursor->fingerprint = state->fingerprint;
        cursor->run_count = 0;
    }
    return status;
}
