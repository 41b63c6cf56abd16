/* index/foreign/header_check.h: compares the headers before a member of a tar with the entry of an
 * index.
 *
 *   end of the member before | headers of members without a sample | headers of the member | data
 *                            '-------------------- the bytes that are compared ---------'
 *
 * Only for tars: foreign indexes are of tars, and other containers have no such headers.
 * Pure. Owner: values. Threads: any.
 * Memory: a parser, during the call.
 * Bound: the bytes given. */
#ifndef INDEX_FOREIGN_HEADER_CHECK_H
#define INDEX_FOREIGN_HEADER_CHECK_H

#include "base/base.h"

struct stk_header_claim {
    struct stk_view key, extension; /* in upper or lower case */
    uint64_t bytes;
};

/* Returns 0 if the headers end with this member's, and none before it belongs to a sample; 1 if
 * not, with the reason in *why_out; or -ENOMEM. */
int stk_header_check(struct stk_view headers, const struct stk_header_claim *claim,
                     const char **why_out);

#define STK_HEADER_BLOCK_BYTES 512u

/* Compares only the block that directly precedes the member's data, for an index that leaves other
 * members out. Ignores what an extended header may replace: a long or unusual name, a large size.
 * Returns 0 if the block can be the member's header, 1 if not, or -ENOMEM. */
int stk_header_block_check(const uint8_t block[STK_HEADER_BLOCK_BYTES],
                           const struct stk_header_claim *claim);

#endif
