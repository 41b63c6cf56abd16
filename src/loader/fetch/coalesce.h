/* loader/fetch/coalesce.h: which fetches form one read, and in which order reads are issued.
 *
 *   fetches, in any order --sort by file and offset--> runs of neighbours --oldest push first-->
 * list
 *
 * Pure: looks at files (by identity), spans, read sizes and push numbers of the fetches alone.
 * Owner: the caller. Threads: one. Memory: none; lists are linked again. Bound: the list. */
#ifndef LOADER_FETCH_COALESCE_H
#define LOADER_FETCH_COALESCE_H

#include "loader/fetch/fetch.h"

/* Whether a fetch needs a read at all. */
typedef bool stk_coalesce_needs_read(const struct stk_fetch *fetch);

/* Returns the list sorted by shard and offset, stable. */
struct stk_fetch *stk_coalesce_sort(struct stk_fetch *list);
/* Reorders the list so that fetches which form one read are neighbours, in as few reads as their
 * sizes allow; the read with the oldest push comes first. Returns the link after the last one. */
struct stk_fetch **stk_coalesce_list(struct stk_fetch **list, stk_coalesce_needs_read *needs_read);
/* Returns the end offset of the read that begins with the first fetch of the list, which needs a
 * read: the following fetches that can join do. Sets *is_alone_out to true if none does. */
uint64_t stk_coalesce_end(const struct stk_fetch *first, stk_coalesce_needs_read *needs_read,
                          bool *is_alone_out);

#endif
