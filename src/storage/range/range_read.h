/* storage/range/range_read.h: one read of an object, split into parts that are read side by side: a
 * part is one range request of at most STK_STORE_RANGE_BYTES, since several requests are faster
 * than one and a request that fails repeats less; or, if the object may be in the node cache, one
 * block or less (storage/range/block_reader.h).
 *
 *   new --start--> parts in flight --the last one ends--> done(): result in status --free-->
 *
 * Owner: the caller. Threads: the caller; done() runs on the reactor or on a thread of the block
 * reader.
 * Memory: one block a read; each read is a user of its source. Bound: the caller's. */
#ifndef STORAGE_RANGE_RANGE_READ_H
#define STORAGE_RANGE_RANGE_READ_H

#include "storage/cache/node_cache.h"
#include "storage/object/store.h"

struct stk_block_reader;
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
    struct stk_block_reader
        *reader; /* of the node cache; borrowed; NULL: the object is not cached */
    struct stk_cache_object cached; /* with reader: its identity in the cache */
};

/* A range of a read. */
struct stk_range_part {
    struct stk_operation operation; /* first; started only if the bytes come from the store */
    struct stk_range_read *read;
    struct stk_store *store;     /* of the block reader, as the next two */
    struct stk_range_part *next; /* of a list of parts that wait */
    uint64_t block;              /* its block in the object */
};

struct stk_range_read {
    struct stk_range_read *next, *previous, *arrived_next; /* of the caller's lists */
    uint64_t offset;
    uint8_t *buffer;
    struct stk_range_source *source;           /* retained */
    void (*done)(struct stk_range_read *read); /* after all parts have ended */
    void *owner;
    const _Atomic bool *stop;  /* cancels the requests, see storage/object/store.h; NULL: never */
    struct stk_read *read;     /* the caller's */
    uint64_t bytes;            /* wanted */
    _Atomic int status;        /* of the first part that failed */
    struct stoker_error error; /* of that part */
    uint32_t count;            /* parts; 0: the read waits for a prefetch */
    _Atomic uint32_t remaining;
    struct stk_range_part parts[];
};

/* Returns NULL if there is no memory. offset and bytes are within the file, bytes > 0. */
struct stk_range_read *stk_range_read_new(struct stk_range_source *source, uint64_t offset,
                                          uint64_t bytes, uint8_t *buffer);
/* The same without requests, for stk_prefetch_wait: its bytes are being prefetched. */
struct stk_range_read *stk_range_read_new_waiting(struct stk_range_source *source, uint64_t offset,
                                                  uint64_t bytes, uint8_t *buffer);
void stk_range_read_start(struct stk_range_read *read, struct stk_store *store);
/* Marks the parts as cancelled; the caller then calls stk_store_cancel_marked, and
 * stk_block_reader_cancel_marked. */
void stk_range_read_cancel(struct stk_range_read *read);
/* For the block reader: ends a part that did not become a request. error: NULL if status is 0. */
void stk_range_part_end(struct stk_range_part *part, int status, const struct stoker_error *error);
void stk_range_read_free(struct stk_range_read *read); /* NULL is allowed */

#endif
