/* storage/vfs/spool.h: copies of remote files whose server sends no ranges, or no size. Each read
 * of a part would fetch the object from its begin; so the object is fetched once, into a temporary
 * file, and all reads are served from that.
 *
 *   open --none of this version--> fetch (others wait) --> ready --last release--> freed
 *    ^                                |                 `-- size was unknown: kept for a minute
 *    `--others, if it was cancelled --'
 *
 * Owner: struct stk_remote_fs. Threads: any. Memory: one block a spool; the bytes are on disk.
 * Bound: bytes_max of an object whose size is unknown; the free space of the disk, less a tenth;
 * STK_SPOOL_IDLE_MAX unused spools. */
#ifndef STORAGE_VFS_SPOOL_H
#define STORAGE_VFS_SPOOL_H

#include "storage/object/store.h"

#include <pthread.h>

#define STK_SPOOL_IDLE_MAX 4u
#define STK_SPOOL_IDLE_S 60u

struct stk_spool;

struct stk_spools {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t bytes_max;
    struct {
        struct stk_spool *first;
    } locked;
};

/* bytes_max: of an object whose server reports no size, so that a body without an end is an error.
 */
void stk_spools_init(struct stk_spools *spools, uint64_t bytes_max);
void stk_spools_deinit(struct stk_spools *spools); /* all must be released */

/* Whether an object is to be read by a spool. */
static inline bool stk_spool_is_needed(const struct stk_object_info *info)
{
    return info->no_ranges || info->chunked;
}

/* Fetches an object, or finds it. Sets info->bytes if the server does not report it. Returns 0 on
 * success, -ENOSPC if the disk has no room, STOKER_ERROR_CLOSED soon after the cancel flag of this
 * thread is set, or the error of the request. */
int stk_spool_open(struct stk_spools *spools, struct stk_store *store,
                   const struct stk_object_url *object, struct stk_object_info *info,
                   struct stk_spool **spool_out, struct stoker_error *error);
/* As stk_temporary_file_read. */
int64_t stk_spool_read(const struct stk_spool *spool, uint64_t offset, void *buffer,
                       uint64_t bytes);
void stk_spool_release(struct stk_spools *spools, struct stk_spool *spool); /* NULL is allowed */

#endif
