/* base/piece_cache.h: cache of pieces of data that are costly to make: decompressed segments and
 * frames, fetched blocks.
 *
 *   empty --fill: one thread, without the lock--> ready --evict: least recently used--> empty
 *     ^------------------failed-----' `pinned, or prefetched and not yet read: stays
 *
 * The user numbers the pieces and knows what each number stands for. A thread that needs a piece
 * which another thread fills waits for it, so each piece is filled once.
 * Owner: the cache that embeds it. Threads: any; functions and fields named locked need `lock`,
 * and only stk_piece_cache_fill_locked() releases it for a while. Lock order: this lock before the
 * engine's.
 * Memory: ready and loading pieces, reserved in the budget; 32 bytes for each number.
 * Bound: bytes_max, except for pieces that are filled without a reservation or with one by the
 * user. */
#ifndef BASE_PIECE_CACHE_H
#define BASE_PIECE_CACHE_H

#include "base/memory_budget.h"

#include <pthread.h>
#include <time.h>

#define STK_PIECE_NONE UINT32_MAX

enum stk_piece_state { STK_PIECE_EMPTY = 0, STK_PIECE_LOADING, STK_PIECE_READY };

struct stk_piece {
    uint8_t *data; /* owned; set if ready */
    uint64_t bytes;
    uint32_t newer, older; /* in the list of ready pieces, by their last use */
    uint32_t pins;         /* readers that use data without the lock */
    uint8_t state;         /* enum stk_piece_state */
    bool reserved;         /* in the budget; else it is freed with its last pin */
    bool wanted;   /* prefetched, or soon to be, and not read since; counted in wanted_bytes */
    uint8_t flags; /* set by the user; eviction does not change them */
};

struct stk_piece_cache {
    struct stk_budget *budget; /* borrowed; const after init, as the next two */
    uint64_t bytes_max;
    uint32_t count; /* of piece numbers */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a piece was filled, failed or unpinned; monotonic clock; with lock */
    struct {
        struct stk_piece *pieces; /* [count] */
        uint32_t newest, oldest;
        uint64_t bytes;        /* reserved by ready and loading pieces */
        uint64_t wanted_bytes; /* of wanted pieces, in each state */
    } locked;
};

/* Returns 0 on success, or -ENOMEM. */
int stk_piece_cache_init(struct stk_piece_cache *cache, struct stk_budget *budget, uint32_t count,
                         uint64_t bytes_max);
/* Frees all pieces. No thread may use the cache any more. A zeroed cache is allowed. */
void stk_piece_cache_deinit(struct stk_piece_cache *cache);

/* Makes a ready piece the most recently used. */
void stk_piece_cache_touch_locked(struct stk_piece_cache *cache, uint32_t number);
/* Empties the least recently used piece that is not pinned. keep_wanted: stops at a wanted piece
 * instead of emptying it. Returns its number, or STK_PIECE_NONE. */
uint32_t stk_piece_cache_evict_locked(struct stk_piece_cache *cache, bool keep_wanted);
/* Reserves bytes within bytes_max and the budget, and evicts pieces until they fit. Returns false,
 * without a reservation, if nothing more can be evicted. */
bool stk_piece_cache_reserve_locked(struct stk_piece_cache *cache, uint64_t bytes,
                                    bool keep_wanted);

struct stk_piece_fill {
    uint64_t bytes;   /* at least 1 */
    bool reserved;    /* bytes are reserved in the budget: the piece takes them over */
    const char *what; /* of an error for lack of memory: "cannot decompress a shard" */
    /* Writes all bytes of the piece. Called without the lock. Returns 0 or an error. */
    int (*run)(void *context, uint8_t *data, struct stoker_error *error);
    void *context;
};
/* Fills an empty piece and makes it the most recently used. Releases the lock meanwhile: the piece
 * is loading. Returns 0, -ENOMEM, or the error of run; then the piece is empty again. */
int stk_piece_cache_fill_locked(struct stk_piece_cache *cache, uint32_t number,
                                const struct stk_piece_fill *fill, struct stoker_error *error);
/* Waits until a piece changes. until: a time of CLOCK_MONOTONIC; NULL: no limit. Returns false at
 * that time. */
bool stk_piece_cache_wait_locked(struct stk_piece_cache *cache, const struct timespec *until);

/* pin: prevents the eviction of a piece. unpin: frees a piece without a reservation when its last
 * pin is released. */
void stk_piece_cache_pin_locked(struct stk_piece_cache *cache, uint32_t number);
void stk_piece_cache_unpin(struct stk_piece_cache *cache, uint32_t number);

/* want: marks a piece of `bytes` bytes that will be read soon. unwant: removes the mark when the
 * piece is read or is not needed any more; no effect on a piece without the mark. */
void stk_piece_cache_want_locked(struct stk_piece_cache *cache, uint32_t number, uint64_t bytes);
void stk_piece_cache_unwant_locked(struct stk_piece_cache *cache, uint32_t number, uint64_t bytes);

/* Empties all pieces that are ready and not pinned. Returns the bytes that this released. */
uint64_t stk_piece_cache_trim(struct stk_piece_cache *cache);

#endif
