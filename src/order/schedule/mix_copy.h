/* order/schedule/mix_copy.h: a copy of the options of a mix, from which its schedule can be opened
 * again in another version of the order.
 *
 * Owner: the loader. Threads: any after open. Memory: one block: 24 bytes a source, and 8 for each
 * source and change. Bound: STK_MIX_SOURCES_MAX sources, STK_MIX_CHANGES_MAX changes. */
#ifndef ORDER_SCHEDULE_MIX_COPY_H
#define ORDER_SCHEDULE_MIX_COPY_H

#include "order/schedule/schedule.h"

struct stk_mix_copy {
    struct stoker_mix_options options; /* struct_size 0: none */
    void *memory;                      /* owned: what its pointers refer to */
};

/* given: options that a schedule was opened with, or NULL for none. The samplers stay borrowed.
 * Returns 0 or -ENOMEM. */
int stk_mix_copy_open(struct stk_mix_copy *copy, const struct stoker_mix_options *given,
                      struct stoker_error *error);
void stk_mix_copy_close(struct stk_mix_copy *copy); /* a zeroed one is allowed */
/* The options; NULL: none. */
static inline const struct stoker_mix_options *stk_mix_copy_get(const struct stk_mix_copy *copy)
{
    return copy->memory ? &copy->options : NULL;
}

#endif
