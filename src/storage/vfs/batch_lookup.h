/* storage/vfs/batch_lookup.h: metadata and listings of many URLs at once, since one request after
 * the other would take a round trip each.
 * Owner: the call. Threads: any; the calls wait. Memory: one block a request in flight.
 * Bound: 256 HEAD requests, or 64 listings, at once. */
#ifndef STORAGE_VFS_BATCH_LOOKUP_H
#define STORAGE_VFS_BATCH_LOOKUP_H

#include "storage/vfs/remote_file.h"

/* Sends HEAD requests for the URLs that are not in the metadata cache, and waits. paths: NUL-ended,
 * one after the other. Errors are ignored: the first use of the path reports them. */
void stk_batch_lookup_stat(struct stk_remote_fs *fs, const char *paths, size_t count);
/* Lists folders. A listing without memory failed, or is empty. */
void stk_batch_lookup_list(struct stk_remote_fs *fs, const char *paths, size_t count,
                           struct stk_listing *listings_out);

#endif
