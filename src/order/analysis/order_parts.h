/* order/analysis/order_parts.h: the parts of an order (sources of a mix, stages of chosen samples,
 * or one part for a plain order), and the block at a position.
 *
 *   position --schedule--> part, its pass, place in that pass, number among the part's samples
 *                                                                --/ block_samples--> block
 *
 * A block is block_samples adjacent samples among those that a part delivers: with chosen samples
 * it spans more samples on disk.
 *
 * Owner: the caller. Threads: an order: any; a reader: one. Memory: that of schedule readers.
 * Bound: STK_ORDER_PARTS_CHUNK positions at a time. */
#ifndef ORDER_ANALYSIS_ORDER_PARTS_H
#define ORDER_ANALYSIS_ORDER_PARTS_H

#include "order/analysis/order_object.h"

#define STK_ORDER_PARTS_CHUNK 1024u

struct stk_order_part {
    uint64_t samples;             /* different samples of the part */
    uint64_t first_block, blocks; /* numbered over all parts */
    uint64_t window_samples;      /* mixed with each other */
    uint64_t open_bound;          /* blocks begun and not finished, of any node, at most */
    bool once;                    /* each sample is read once a pass */
};

struct stk_order_part_sample {
    uint32_t part;
    uint64_t pass, place, number;
};

uint32_t stk_order_parts_count(const struct stoker_order *order);
/* open_bound is for nodes that read all positions in sequence, or any part of `positions` positions
 * (of a step, which its ranks share); 0: none. */
void stk_order_parts_get(const struct stoker_order *order, uint32_t number, uint64_t nodes,
                         uint64_t positions, struct stk_order_part *part_out);
/* Blocks of all parts. */
uint64_t stk_order_parts_blocks(const struct stoker_order *order);

struct stk_order_parts_reader {
    const struct stoker_order *order; /* borrowed */
    struct stk_schedule_reader reader;
};
int stk_order_parts_reader_init(struct stk_order_parts_reader *reader,
                                const struct stoker_order *order);
void stk_order_parts_reader_deinit(
    struct stk_order_parts_reader *reader); /* a zeroed one is allowed */
/* Writes the samples at first to first + count - 1 of the epoch. count <= STK_ORDER_PARTS_CHUNK. */
void stk_order_parts_read(struct stk_order_parts_reader *reader, uint64_t epoch, uint64_t first,
                          uint64_t count, struct stk_order_part_sample *visits_out);

#endif
