/* checkpoint/layout/dtype.h: the dtypes of safetensors and their sizes.
 * Owner: constants. Threads: any. Memory: none. Bound: none. */
#ifndef CHECKPOINT_LAYOUT_DTYPE_H
#define CHECKPOINT_LAYOUT_DTYPE_H

#include "base/base.h"

/* Returns the bits of an element, or 0 if the dtype is unknown. *name_out (may be NULL): the name,
 * valid forever. */
uint32_t stk_checkpoint_dtype_bits(const char *dtype, const char **name_out);
/* Computes the bytes of a tensor. Returns false if they overflow, or are not whole bytes. */
bool stk_checkpoint_tensor_bytes(uint32_t bits, const uint64_t *shape, uint32_t dimension_count,
                                 uint64_t *bytes_out);

#endif
