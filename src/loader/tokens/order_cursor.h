/* loader/tokens/order_cursor.h: the position of one rank's stream in an order or a mix, and the
 * samples at that position.
 *
 *   open --> [samples of the step at the position --next-->]* end of the epoch --> next epoch
 *
 * Owner: the loader or sampler. Threads: one at a time, by its owner's lock.
 * Memory: its own size, at a fixed address; for a mix a schedule and its reader
 * (order/schedule/schedule.h). Bound: none. */
#ifndef LOADER_TOKENS_ORDER_CURSOR_H
#define LOADER_TOKENS_ORDER_CURSOR_H

#include "order/delivered.h"
#include "order/schedule/mix_copy.h"
#include "order/schedule/order_default.h"
#include "order/schedule/schedule.h"

struct stk_order_cursor {
    struct stk_schedule schedule; /* constant after open, as the next ones, but for set_state */
    struct stk_partition partition;
    struct stk_order_defaults defaults;
    struct stk_mix_copy mix;
    uint8_t identity[32]; /* that a state belongs to */
    struct stk_schedule_reader reader;
    uint64_t epoch, position;
    struct stk_delivered delivered; /* since the run's start */
};

/* The options of the order, the partition among ranks (open sets its samples of an epoch), and the
 * identity of the stream's states. */
struct stk_order_cursor_options {
    struct stk_order_options order;
    struct stk_partition partition;
    const struct stoker_mix_options *mix; /* borrowed during open; NULL: one order of all samples */
    uint8_t identity[32];
    struct stk_order_defaults defaults; /* settings of the order that the caller left out */
};

/* Returns 0 on success, STOKER_ERROR_ARGUMENT or -ENOMEM. */
int stk_order_cursor_open(struct stk_order_cursor *cursor,
                          const struct stk_order_cursor_options *options,
                          struct stoker_error *error);
void stk_order_cursor_close(struct stk_order_cursor *cursor); /* may be zeroed */

/* One slot of the step at the position. */
struct stk_order_cursor_slot {
    uint64_t sample;
    uint64_t epoch;    /* of the sample: differs from the cursor's after a wrapped tail */
    uint64_t position; /* in that epoch */
    bool is_real;      /* false: padding, a repeat */
};

/* Returns whether the epoch has a step at the position; if not, moves to the next epoch. */
bool stk_order_cursor_begin_step(struct stk_order_cursor *cursor);
uint32_t stk_order_cursor_slots(const struct stk_order_cursor *cursor);
struct stk_order_cursor_slot stk_order_cursor_get(struct stk_order_cursor *cursor, uint32_t slot);
/* The same for any step. */
struct stk_order_cursor_slot stk_order_cursor_get_at(struct stk_order_cursor *cursor,
                                                     uint64_t epoch, uint64_t position,
                                                     uint32_t slot);
/* Moves to the next step; the current one was delivered. */
void stk_order_cursor_next(struct stk_order_cursor *cursor);

/* Returns 0 on success, STOKER_ERROR_ARGUMENT if a mix has no such epoch. */
int stk_order_cursor_set_epoch(struct stk_order_cursor *cursor, uint64_t epoch,
                               struct stoker_error *error);
/* Returns the first position where the weights of a mix may change without a change of what was
 * delivered. */
uint64_t stk_order_cursor_boundary(const struct stk_order_cursor *cursor, uint64_t least);
/* Takes 15 to 30 ns for each sample that all ranks had since the last state. */
int stk_order_cursor_state(struct stk_order_cursor *cursor, struct stoker_state *state_out);
/* The state at an earlier position, at most STK_ORDER_CURSOR_BACK_MAX steps ago. Returns 0 on
 * success, STOKER_ERROR_ARGUMENT if the stream did not pass that position. */
#define STK_ORDER_CURSOR_BACK_MAX 4096u
int stk_order_cursor_state_at(struct stk_order_cursor *cursor, uint64_t epoch, uint64_t position,
                              struct stoker_state *state_out);
/* Returns an error if samples of this cursor could not be found since the last call: discard
 * them. */
int stk_order_cursor_error(struct stk_order_cursor *cursor, struct stoker_error *error);
/* Settings of the order that the caller left out become those of the state. Returns 0 on success,
 * STOKER_ERROR_STATE if the state belongs to another stream, or -ENOMEM. Sets the numbers of
 * positions and epochs in the labels. */
int stk_order_cursor_set_state(struct stk_order_cursor *cursor, const struct stoker_state *state,
                               const struct stk_state_labels *words, struct stoker_error *error);

#endif
