/* index/foreign/header_check.h: compares the headers before a member of a tar with the entry of a
 * foreign index.
 *
 *   end of the member before | headers of members without a sample | headers of the member | data
 *                            '-------------------- the bytes that are compared ---------'
 *
 * Only for tars, since foreign indexes are of tars.
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

#endif
