/* sequence/cursor.h: where one rank's stream stands in an order, and what comes there.
 *
 *   open --> [ids of the step at the position --advance-->]* end of the epoch --> the next
 *
 * Owner: the loader or sampler. Threads: one at a time, by its owner's lock.
 * Memory: none but itself, and it must not move. Bound: none. */
#ifndef SEQUENCE_CURSOR_H
#define SEQUENCE_CURSOR_H

#include "order/given.h"

struct stk_cursor {
    struct stk_order order; /* const after open, as the next two */
    struct stk_partition partition;
    uint8_t identity[32]; /* of what a state belongs to */
    uint64_t epoch, position;
    struct stk_given given;         /* since the run's start */
    struct stk_order_epoch keys[2]; /* of the epochs used last; by epoch mod 2 */
    bool has_keys[2];
};

/* ARGUMENT. */
int stk_cursor_open(struct stk_cursor *cursor, const struct stk_order_options *order,
                    const struct stk_partition *partition, const uint8_t identity[32],
                    struct stoker_error *error);

/* One slot of the step at the position. */
struct stk_cursor_slot {
    uint64_t sample;
    uint64_t epoch; /* the sample's: another one than the cursor's behind a wrapped tail */
    bool real;      /* false: padding, a repeat */
};

/* Whether the epoch has a step at the position; if not, it goes to the next epoch. */
bool stk_cursor_begins(struct stk_cursor *cursor);
uint32_t stk_cursor_slots(const struct stk_cursor *cursor);
struct stk_cursor_slot stk_cursor_at(struct stk_cursor *cursor, uint32_t slot);
/* The same of any step. */
struct stk_cursor_slot stk_cursor_slot_at(struct stk_cursor *cursor, uint64_t epoch,
                                          uint64_t position, uint32_t slot);
/* To the next step: this one was given. */
void stk_cursor_advance(struct stk_cursor *cursor);

void stk_cursor_set_epoch(struct stk_cursor *cursor, uint64_t epoch);
/* Time: 15 to 30 ns a sample that all ranks had since the state before. */
void stk_cursor_state(struct stk_cursor *cursor, struct stoker_state *state_out);
/* STATE: it belongs to another stream. */
int stk_cursor_set_state(struct stk_cursor *cursor, const struct stoker_state *state,
                         const struct stk_state_words *words, struct stoker_error *error);

#endif
