/* storage/vfs/range_read.h: one read of an object, sent as several range requests of at most
 * STK_STORE_RANGE_BYTES side by side: they are faster than one request, and a request that fails
 * repeats less.
 *
 *   new --start--> requests in flight --the last one ends--> done(): result in status --free-->
 *
 * Owner: the caller. Threads: the caller; done() runs on the reactor.
 * Memory: one block a read; each read is a user of its source. Bound: the caller's. */
#ifndef STORAGE_VFS_RANGE_READ_H
#define STORAGE_VFS_RANGE_READ_H

#include "storage/object/store.h"

struct stk_range_source;
struct stk_read;

/* The functions of the struct that embeds a source. */
struct stk_range_source_ops {
    void (*retain)(struct stk_range_source *source);
    void (*release)(struct stk_range_source *source);
    /* A request failed. */
    void (*set_error)(struct stk_range_source *source, const struct stoker_error *error);
    /* A request succeeded: the checksums that the server reported. */
    void (*add_checksums)(struct stk_range_source *source,
                          const struct stk_response_checksums *checksums);
};

/* A version of an object that reads refer to. Embedded in a struct that counts its users. */
struct stk_range_source {
    const struct stk_range_source_ops *ops;
    struct stk_object_url *object; /* owned by the embedding struct */
    struct stk_object_info info;
    uint64_t key;                        /* a hash of URL, size and ETag: stk_prefetch_key */
    struct stk_range_coverage *coverage; /* the bytes received so far; NULL: no checksum. Owned by
                                            the embedding struct */
};

struct stk_range_read {
    struct stk_range_read *next, *previous, *arrived_next; /* of the caller's lists */
    uint64_t offset;
    uint8_t *buffer;
    struct stk_range_source *source;           /* retained */
    void (*done)(struct stk_range_read *read); /* on the reactor, after all requests have ended */
    void *owner;
    const _Atomic bool *stop; /* cancels the requests, see storage/object/store.h; NULL: never */
    struct stk_read *read;    /* the caller's */
    uint64_t bytes;           /* wanted */
    int status;               /* of the first request that failed */
    uint32_t count;           /* requests; 0: the read waits for a prefetch */
    _Atomic uint32_t remaining;
    struct stk_operation parts[];
};

/* Returns NULL if there is no memory. offset and bytes are within the file, bytes > 0. */
struct stk_range_read *stk_range_read_new(struct stk_range_source *source, uint64_t offset,
                                          uint64_t bytes, uint8_t *buffer);
/* The same without requests, for stk_prefetch_wait: its bytes are being prefetched. */
struct stk_range_read *stk_range_read_new_waiting(struct stk_range_source *source, uint64_t offset,
                                                  uint64_t bytes, uint8_t *buffer);
void stk_range_read_start(struct stk_range_read *read, struct stk_store *store);
/* Marks the requests as cancelled; the caller then calls stk_store_cancel_marked. */
void stk_range_read_cancel(struct stk_range_read *read);
void stk_range_read_free(struct stk_range_read *read); /* NULL is allowed */

#endif
