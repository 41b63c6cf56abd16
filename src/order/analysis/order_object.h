/* order/analysis/order_object.h: `struct stoker_order` of the public header: predicts what a run
 * will do, by arithmetic only.
 *
 *   settings --open--> order + partition --slots, find, fingerprint--> places of samples
 *                                        --measure--> mixing, memory, requests (order_measure.c,
 *                                            block_trace.c, order_parts.c)
 *                                        --verify, diff--> enumerations (order_proof.c,
 *                                        order_compare.c)
 *                                        --simulate--> an epoch of a cluster (order_simulate.c,
 *                                            order_simulate_parts.c)
 *
 * Owner: the caller of stoker_order_open. Threads: any, const after open.
 * Memory: the object; a walk of measure, and verify, two counters a sample or block; simulate, one
 * bit a sample and thread. Bound: STK_ORDER_ANALYSIS_BYTES_MAX for a walk. */
#ifndef ORDER_ANALYSIS_ORDER_OBJECT_H
#define ORDER_ANALYSIS_ORDER_OBJECT_H

#include "order/schedule/schedule.h"

#define STK_ORDER_ANALYSIS_BYTES_MAX (UINT64_C(1) << 30)

struct stoker_order {
    struct stk_schedule schedule;
    struct stk_partition partition; /* of its epochs; rank 0: others are copies with another rank */
};

#endif
