/* storage/range/block_reader_private.h: what block_reader.c (threads, parts) and block_flight.c
 * (blocks that are not in the cache) share.
 * block_reader.c, block_flight.c and range_read.c are one state machine, that of a part, and call
 * each other: a read starts its parts, a part waits for a flight, and a flight ends parts or makes
 * them requests.
 * Owner: struct stk_vfs. Threads: any. Memory: as in block_reader.h. Bound: as in block_reader.h.
 */
#ifndef STORAGE_RANGE_BLOCK_READER_PRIVATE_H
#define STORAGE_RANGE_BLOCK_READER_PRIVATE_H

#include "storage/range/block_reader.h"

#include <pthread.h>

#define STK_BLOCK_READER_BUCKETS 256u

/* A block that is not in the cache, and the parts that wait for it. */
struct stk_block_flight {
    struct stk_operation operation;             /* first: the download */
    struct stk_block_flight *next, *queue_next; /* in its bucket; in one queue */
    struct stk_block_reader *reader;
    struct stk_range_source *source; /* retained */
    struct stk_store *store;
    struct stk_cache_block block;
    struct stk_cache_fill fill;
    struct stk_range_part *waiters;                /* by next; with the lock */
    uint8_t *buffer;                               /* pages; NULL: none */
    uint64_t since_ns, poll_ns, pause_ns, turn_ns; /* of waiting for another process */
};

struct stk_flight_queue {
    struct stk_block_flight *first, *last;
};

struct stk_block_reader {
    struct stoker_cache *cache; /* retained */
    struct stk_budget *budget;
    uint32_t flights_max;
    _Atomic bool closing;
    pthread_mutex_t lock;
    pthread_cond_t work, ended; /* monotonic */
    struct {
        struct stk_range_part *first, **last; /* parts to look up */
        struct stk_block_flight *buckets[STK_BLOCK_READER_BUCKETS];
        struct stk_flight_queue arrived, pending, polling;
        uint32_t flights, with_memory, threads, idle;
        uint32_t woken; /* of the idle ones */
        uint64_t sweep_ns;
        bool has_timer;     /* one idle thread waits with a timeout */
        bool pending_ready; /* memory was returned since a flight got none */
    } locked;
    pthread_t threads[STK_BLOCK_READER_THREADS];
};

/* ---- queues of flights; with the lock ---- */

void stk_flight_push_locked(struct stk_flight_queue *queue, struct stk_block_flight *flight);
struct stk_block_flight *stk_flight_pop_locked(struct stk_flight_queue *queue);
/* Wakes a thread for new work, or starts one. */
void stk_block_reader_signal_locked(struct stk_block_reader *reader);
struct stk_block_flight **stk_flight_bucket_locked(struct stk_block_reader *reader,
                                                   const struct stk_cache_block *block);

/* ---- parts ---- */

/* Whether the part was cancelled. */
bool stk_range_part_is_unwanted(const struct stk_range_part *part);
void stk_range_part_end_closed(struct stk_range_part *part);
/* The parts of a list become requests to the store. */
void stk_block_reader_bypass(struct stk_block_reader *reader, struct stk_range_part *list);
/* Adds bytes of the cache to the checksum of the object. Returns 0, or STOKER_ERROR_CORRUPT after
 * all blocks of the object were dropped. */
int stk_block_reader_add_coverage(struct stk_block_reader *reader, struct stk_store *store,
                                  const struct stk_range_source *source, uint64_t offset,
                                  struct stk_view bytes, struct stoker_error *error);

/* ---- flights; without the lock ---- */

/* A new flight, or one whose memory or turn may have come. */
void stk_flight_start(struct stk_block_flight *flight);
void stk_flight_finish(struct stk_block_flight *flight); /* its download has ended */
/* Whether the checksum of its object did not match: no more parts may join it. */
bool stk_flight_is_damaged(const struct stk_block_flight *flight);
void stk_flight_poll(struct stk_block_flight *flight); /* another process downloads its block */

#endif
