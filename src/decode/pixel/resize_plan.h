/* decode/pixel/resize_plan.h: the axes and the memory block that resize.c and resize_planar.c
 * share; private to this folder. Tables and rows of an image are cut from one block. Owner: each
 * has a block of its own. Threads: one. Memory: stk_alloc, grown and kept. Bound: bytes_max of
 * reserve.
 */
#ifndef DECODE_PIXEL_RESIZE_PLAN_H
#define DECODE_PIXEL_RESIZE_PLAN_H

#include "base/mem.h"
#include "decode/pixel/resize.h"
#include "decode/pixel/resize_weights.h"

#include <errno.h>

static inline struct stk_resize_axis stk_resize_plan_horizontal(const struct stk_resize_plan *plan)
{
    return (struct stk_resize_axis){plan->source_width, plan->target_width, plan->window_x,
                                    plan->window_width, plan->filter,       plan->flip};
}

static inline struct stk_resize_axis stk_resize_plan_vertical(const struct stk_resize_plan *plan)
{
    return (struct stk_resize_axis){plan->source_height, plan->target_height, plan->window_y,
                                    plan->window_height, plan->filter,        false};
}

#define STK_RESIZE_BLOCK_ALIGN 64u /* of a block's start; in addition to the parts of the block */

struct stk_resize_block {
    uint8_t *memory; /* owned; NULL: none yet */
    uint64_t bytes;
};

/* Frees the memory if it is larger than keep_bytes. */
static inline void stk_resize_block_trim(struct stk_resize_block *block, uint64_t keep_bytes)
{
    if (block->bytes > keep_bytes) {
        stk_free(block->memory);
        *block = (struct stk_resize_block){NULL, 0};
    }
}

/* Reserves `bytes` after the start; the previous content is lost. Returns 0 on success, LIMIT if
 * the size exceeds bytes_max. */
static inline int stk_resize_block_reserve(struct stk_resize_block *block, uint64_t bytes,
                                           uint64_t bytes_max, struct stoker_error *error)
{
    bytes += STK_RESIZE_BLOCK_ALIGN;
    if (bytes > bytes_max) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "resizing the image takes too much memory",
                        "raise decode_bytes_max, or crop the image first",
                        "%llu bytes needed, %llu granted", (unsigned long long)bytes,
                        (unsigned long long)bytes_max);
    }
    if (bytes > block->bytes) {
        stk_resize_block_trim(block, 0);
        block->memory = stk_alloc(bytes, 1);
        if (!block->memory) {
            return stk_fail_errno(error, ENOMEM, "cannot resize the image",
                                  "lower decode_bytes_max or the number of threads",
                                  "%llu bytes of memory", (unsigned long long)bytes);
        }
        block->bytes = bytes;
    }
    return 0;
}

static inline uint8_t *stk_resize_block_start(const struct stk_resize_block *block)
{
    return (uint8_t *)stk_round_up((uintptr_t)block->memory, STK_RESIZE_BLOCK_ALIGN);
}

#endif
