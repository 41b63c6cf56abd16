/* storage/vfs/prefetch.h: objects that are fetched into memory before they are read, as a whole or
 * their first bytes, in large ranges side by side.
 *
 *   block: absent --start--> in flight --arrived--> full --read, or trimmed--> absent
 *                               `--failed--> absent: reads that wait for it fail
 *
 * A read frees the memory of the blocks that it used up. Memory is reserved from the budget, at
 * most half of it. Owner: struct stk_vfs. Threads: any; ranges arrive on the reactor. Memory: one
 * block an object, and pages for the blocks that are in flight or full. Bound: half of the budget.
 */
#ifndef STORAGE_VFS_PREFETCH_H
#define STORAGE_VFS_PREFETCH_H

#include "base/memory_budget.h"
#include "storage/range/range_read.h"

struct stk_prefetch;

/* Returns 0 or -ENOMEM. The budget must outlive the prefetch. */
int stk_prefetch_open(struct stk_prefetch **prefetch_out, struct stk_budget *budget);
/* Takes prefetch; NULL is allowed. store: the store of the ranges in flight; NULL: none was used.
 */
void stk_prefetch_close(struct stk_prefetch *prefetch, struct stk_store *store);
/* The key of a version of an object. */
uint64_t stk_prefetch_key(const struct stk_object_url *url, const struct stk_object_info *info);
/* Starts to fetch the first block, or the whole object. Does nothing if there is no memory. */
void stk_prefetch_start(struct stk_prefetch *prefetch, struct stk_store *store,
                        struct stk_range_source *source, const void *owner, bool entire);
/* Returns a source of the same version that is fetched as a whole, retained; NULL if there is none.
 * Its checksum covers all bytes, so files that are opened now share it. */
struct stk_range_source *stk_prefetch_find_source(struct stk_prefetch *prefetch,
                                                  const struct stk_range_source *like);
/* Returns true if all bytes of the range are in memory or in flight. */
bool stk_prefetch_has(struct stk_prefetch *prefetch, const struct stk_range_source *source,
                      uint64_t offset, uint64_t bytes);
/* Reads `bytes`, fewer at the end of the object. Returns -EAGAIN if some of them are not in memory.
 * offset is within the object. peek: the bytes will be read again, so they stay. */
int64_t stk_prefetch_read(struct stk_prefetch *prefetch, const struct stk_range_source *source,
                          uint64_t offset, uint8_t *buffer, uint64_t bytes, bool peek);
/* If a block of the range is in flight, returns true and calls read->done on the reactor when none
 * is any more: then the bytes are in memory, or read->status says why not, or they were dropped.
 * Returns false if no block is in flight. */
bool stk_prefetch_wait(struct stk_prefetch *prefetch, struct stk_range_read *read);
/* Returns true if done will not be called; false if it was called or will be called soon. */
bool stk_prefetch_cancel_wait(struct stk_prefetch *prefetch, struct stk_range_read *read);
/* Drops the objects of this owner; NULL: of all owners. store: as in close. */
void stk_prefetch_release(struct stk_prefetch *prefetch, struct stk_store *store,
                          const void *owner);
/* Frees some objects that are not in use. Returns the number of bytes. */
uint64_t stk_prefetch_trim(struct stk_prefetch *prefetch);

#endif
