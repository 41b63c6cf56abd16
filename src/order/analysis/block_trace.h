/* order/analysis/block_trace.h: follows the blocks of an order through epochs: how many blocks are
 * open on a node, and how many it requests.
 *
 *   epoch 0 --samples a node had of each block--> what its cache holds
 *   epoch 1 --the same, by pass--> requests, hits --once more, counting down--> blocks open
 *
 * Owner: the caller. Threads: one. Memory: 16 bytes a block and node, and 8 more for each further
 * pass of a part in the epoch. Bound: STK_ORDER_ANALYSIS_BYTES_MAX. */
#ifndef ORDER_ANALYSIS_BLOCK_TRACE_H
#define ORDER_ANALYSIS_BLOCK_TRACE_H

#include "order/analysis/order_parts.h"

/* A part of the walk. */
struct stk_block_trace_part {
    struct stk_order_part part;
    uint64_t first_cell, first_pass, passes; /* in the epoch; cells: blocks of each pass */
    uint64_t samples, hits, requests, requests_cached, open_max;
};

struct stk_block_trace {
    const struct stoker_order *order;
    uint64_t blocks, cells, nodes, ranks; /* ranks of a node */
    uint64_t epoch, block_samples;
    uint32_t part_count;
    struct stk_block_trace_part *parts;
    uint32_t *filled, *held, *sorted; /* [block * nodes + node]; passes of it that are open; ... */
    uint32_t *now, *left;             /* [cell * nodes + node] */
    uint64_t *open;                   /* [(part * nodes + node)]: now; the whole after the parts */
    uint64_t open_max, samples, hits, requests, requests_cached;
    struct stk_order_parts_reader reader;
};

/* Returns 1 if it is open, 0 if it would exceed its bound or the epoch is empty, -ENOMEM.
 * Determines the passes of `epoch`. */
int stk_block_trace_open(struct stk_block_trace *trace, const struct stoker_order *order,
                         uint64_t nodes, uint64_t epoch);
void stk_block_trace_close(struct stk_block_trace *trace); /* a zeroed one is allowed */
/* Reads the epoch before (of epoch 0: epoch 0 itself) and the epoch. */
int stk_block_trace_run(struct stk_block_trace *trace);

/* The same step by step: first count the samples of a node in the epoch, in any sequence; then add
 * them one by one, in the sequence of its ranks. */
uint64_t stk_block_trace_block(const struct stk_block_trace *trace,
                               const struct stk_order_part_sample *visit);
uint64_t stk_block_trace_cell(const struct stk_block_trace *trace,
                              const struct stk_order_part_sample *visit, uint64_t node);
/* Returns true if the sample is in a block that was not open on the node. */
bool stk_block_trace_add(struct stk_block_trace *trace, const struct stk_order_part_sample *visit,
                         uint64_t node);

/* ---- order_simulate_parts.c ---- */

/* stoker_order_simulate for a mix or chosen samples, with checked options. Returns 0 on success,
 * STOKER_ERROR_LIMIT, -ENOMEM. */
int stk_order_simulate_parts(const struct stoker_order *order,
                             const struct stoker_order_simulate_options *options,
                             struct stoker_order_simulation *result, struct stoker_error *error);

#endif
