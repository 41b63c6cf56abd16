/* plan/setup.h: what a run will do, by arithmetic alone: `struct stoker_order` of stoker.h.
 *
 *   settings --open--> order + partition --slots, find, fingerprint--> places of samples
 *                                        --measure--> mixing, memory, requests (quality.c)
 *                                        --verify, diff--> enumerations (prove.c, compare.c)
 *                                        --simulate--> an epoch of a cluster (simulate.c)
 *
 * Owner: the caller of stoker_order_open. Threads: any, const after open.
 * Memory: the object; a walk of measure, and verify, two counters a sample or block; simulate, one
 * bit a sample and thread. Bound: STK_PLAN_BYTES_MAX for a walk. */
#ifndef PLAN_SETUP_H
#define PLAN_SETUP_H

#include "mix/schedule.h"

#define STK_PLAN_BYTES_MAX (UINT64_C(1) << 30)

struct stoker_order {
    struct stk_schedule  schedule;
    struct stk_partition partition; /* of its epochs; rank 0: others are copies with another rank */
};

/* Copies what the caller's struct has of an options struct of `bytes`, the rest stays 0. ARGUMENT
 * when struct_size, its first member, was not set. */
int stk_plan_options(void *options_out, size_t bytes, const void *given,
                     struct stoker_error *error);
/* Blocks that a node has begun and not finished, at most, with so many windows of a group at once:
 * the memory that reading whole blocks takes. */
uint64_t stk_plan_open_bound(const struct stoker_order *order, uint64_t nodes, uint64_t windows);

#endif
