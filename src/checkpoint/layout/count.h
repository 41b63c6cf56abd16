/* checkpoint/layout/count.h: counts NaN, Inf and pages of zeros in the bytes of a tensor.
 *
 *   dtype, bytes of a block -> counts, added to those of the tensor by any thread
 *
 * A page is STK_COUNT_PAGE_BYTES of the buffer of the file, and is in one tensor. A tensor that
 * had no page of zeros when it was written, and has one when it is read, has a hole.
 * Owner: the caller. Threads: any. Memory: none. Bound: the bytes. */
#ifndef CHECKPOINT_LAYOUT_COUNT_H
#define CHECKPOINT_LAYOUT_COUNT_H

#include "base/base.h"

#include <stdatomic.h>

#define STK_COUNT_PAGE_BYTES 4096u

struct stk_tensor_counts {
    _Atomic uint64_t nan, inf, zero_pages;
};

/* Adds the counts of bytes of a tensor that begin at an offset of the buffer, with an element. */
void stk_tensor_count(struct stk_tensor_counts *counts, const char *dtype, uint64_t offset,
                      struct stk_view bytes);
/* Returns the first page of zeros in bytes that begin at an offset of the buffer, as an offset of
 * the buffer; UINT64_MAX: there is none. */
uint64_t stk_tensor_zero_page(uint64_t offset, struct stk_view bytes);

#endif
