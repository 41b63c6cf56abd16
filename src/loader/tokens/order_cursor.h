/* loader/tokens/order_cursor.h: where one rank's stream stands in an order, or a mix, and what
 * comes there.
 *
 *   open --> [ids of the step at the position --advance-->]* end of the epoch --> the next
 *
 * Owner: the loader or sampler. Threads: one at a time, by its owner's lock.
 * Memory: its own, which must not move; of a mix what a schedule and its reader take
 * (order/schedule/schedule.h). Bound: none. */
#ifndef LOADER_TOKENS_ORDER_CURSOR_H
#define LOADER_TOKENS_ORDER_CURSOR_H

#include "order/delivered.h"
#include "order/schedule/schedule.h"

struct stk_order_cursor {
    struct stk_schedule schedule; /* const after open, as the next two */
    struct stk_partition partition;
    uint8_t identity[32]; /* of what a state belongs to */
    struct stk_schedule_reader reader;
    uint64_t epoch, position;
    struct stk_delivered delivered; /* since the run's start */
};

/* What a stream has: the order's options, how ranks share it (the samples of an epoch are filled
 * in), and what a state of it belongs to. */
struct stk_order_cursor_options {
    struct stk_order_options order;
    struct stk_partition partition;
    const struct stoker_mix_options *mix; /* lent during open; NULL: one order of all */
    uint8_t identity[32];
};

/* ARGUMENT, ENOMEM. */
int stk_order_cursor_open(struct stk_order_cursor *cursor,
                          const struct stk_order_cursor_options *options,
                          struct stoker_error *error);
void stk_order_cursor_close(struct stk_order_cursor *cursor); /* zeroed is fine */

/* One slot of the step at the position. */
struct stk_order_cursor_slot {
    uint64_t sample;
    uint64_t epoch;    /* the sample's: another one than the cursor's behind a wrapped tail */
    uint64_t position; /* in that epoch */
    bool is_real;      /* false: padding, a repeat */
};

/* Whether the epoch has a step at the position; if not, it goes to the next epoch. */
bool stk_order_cursor_begin_step(struct stk_order_cursor *cursor);
uint32_t stk_order_cursor_slots(const struct stk_order_cursor *cursor);
struct stk_order_cursor_slot stk_order_cursor_get(struct stk_order_cursor *cursor, uint32_t slot);
/* The same of any step. */
struct stk_order_cursor_slot stk_order_cursor_get_at(struct stk_order_cursor *cursor,
                                                     uint64_t epoch, uint64_t position,
                                                     uint32_t slot);
/* To the next step: this one was given. */
void stk_order_cursor_next(struct stk_order_cursor *cursor);

/* ARGUMENT: a mix has no such epoch. */
int stk_order_cursor_set_epoch(struct stk_order_cursor *cursor, uint64_t epoch,
                               struct stoker_error *error);
/* Where the weights of a mix may change so that all that was given stays. */
uint64_t stk_order_cursor_boundary(const struct stk_order_cursor *cursor, uint64_t least);
/* Time: 15 to 30 ns a sample that all ranks had since the state before. */
void stk_order_cursor_state(struct stk_order_cursor *cursor, struct stoker_state *state_out);
/* STATE: it belongs to another stream. How many positions and epochs there are is filled in. */
int stk_order_cursor_set_state(struct stk_order_cursor *cursor, const struct stoker_state *state,
                               const struct stk_state_labels *words, struct stoker_error *error);

#endif
