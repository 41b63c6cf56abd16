/* index/foreign/header_check.h: whether what an index tells of a member is what the tar says.
 *
 *   end of the member before | headers of what is no part of a sample | headers of the member |
 * data
 *                            '-------------------- the bytes that are looked at -------------'
 *
 * Pure. Owner: values. Threads: any. Memory: a parser's, for the call. Bound: the bytes given. */
#ifndef INDEX_FOREIGN_HEADER_CHECK_H
#define INDEX_FOREIGN_HEADER_CHECK_H

#include "base/base.h"

struct stk_header_claim {
    struct stk_view key, extension; /* of either case */
    uint64_t bytes;
};

/* 0: the headers end with this member's, and none before it belongs to a sample. 1: they do not:
 * *why_out is lent for ever. -ENOMEM. */
int stk_header_check(struct stk_view headers, const struct stk_header_claim *claim,
                     const char **why_out);

#endif
