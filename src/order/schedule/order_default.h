/* order/schedule/order_default.h: the settings of an order that a caller left out: their choice,
 * and their adoption from the state of another run.
 *
 *   storage, memory --choose--> shuffle, window --state--> a later run --adopt--> the same order
 *
 * Pure. Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef ORDER_SCHEDULE_ORDER_DEFAULT_H
#define ORDER_SCHEDULE_ORDER_DEFAULT_H

#include "order/order.h"

/* Blocks of a window if a block shuffle was requested, and the least that is chosen. */
#define STK_ORDER_WINDOW_DEFAULT 64u
#define STK_ORDER_WINDOW_MAX (UINT32_C(1) << 20)
#define STK_ORDER_VERSION_MIN 1u

/* Which settings the caller left out. */
struct stk_order_defaults {
    bool shuffle, window, block, version;
};

/* The largest power of two of blocks that fill at most half of the memory, at least
 * STK_ORDER_WINDOW_DEFAULT: ranks with almost equal memory choose the same. */
uint32_t stk_order_window_within(uint64_t memory_bytes, uint64_t block_bytes);
/* Sets the settings that were left out to those of a state that may be of another storage or
 * version. Returns whether any differs. The caller then compares the state with the result. A
 * two-level shuffle needs shards: a caller without them clears defaults->shuffle for it. */
bool stk_order_adopt(struct stk_order_options *order, const struct stk_order_defaults *defaults,
                     const struct stoker_state *state);

#endif
