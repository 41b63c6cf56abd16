/* storage/vfs/remote_checksum.h: the checksum of an object that is read by ranges. S3 does not
 * report it with the response to a range request, so opening the object requests it.
 *
 *   fetch: coverage of the source set, and maybe a request in flight --reply--> known; wait
 *
 * Owner: struct stk_remote_file. Threads: any; the reply runs on the reactor.
 * Memory: one block while the request is in flight. Bound: one request an object. */
#ifndef STORAGE_VFS_REMOTE_CHECKSUM_H
#define STORAGE_VFS_REMOTE_CHECKSUM_H

#include "storage/range/range_read.h"

#include <pthread.h>

struct stk_remote_checksum {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct {
        bool requested;                /* the request is in flight */
        struct stk_checksum composite; /* the object's checksum, if it cannot be computed from the
                                          checksums of ranges */
    } locked;
};

void stk_remote_checksum_init(struct stk_remote_checksum *checksum);
void stk_remote_checksum_deinit(struct stk_remote_checksum *checksum);
/* Sets the coverage of the source if the object's checksum can be verified, and requests the
 * checksum if the server reports it only on request. Does not wait. required: also request it if
 * the object is unlikely to have one. */
void stk_remote_checksum_fetch(struct stk_remote_checksum *checksum,
                               struct stk_range_source *source, struct stk_store *store,
                               bool required);
/* Adds the checksums that a response reported. */
void stk_remote_checksum_add(struct stk_remote_checksum *checksum,
                             const struct stk_response_checksums *reported);
/* Waits until the request has ended, or the cancel flag of this thread is set. */
void stk_remote_checksum_wait(struct stk_remote_checksum *checksum);
/* Returns the checksum that cannot be computed from ranges; kind NONE: there is none, or it is not
 * known yet. */
struct stk_checksum stk_remote_checksum_composite(struct stk_remote_checksum *checksum);

#endif
