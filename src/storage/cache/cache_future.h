/* storage/cache/cache_future.h: when the jobs of this machine will use the blocks of a cache. A
 * loader knows its order, so an eviction can choose the block whose next use is farthest away.
 *
 *   loader --begin, add ..., end--> FOLDER/stoker-cache.future-N <--next-- eviction, any process
 *          `-advance: where it is now
 *
 * A file belongs to one loader, which holds a lock on it; the kernel releases the lock when its
 * process ends, and the next process that looks removes the file. A file has, for each block, the
 * 64ths of two epochs in which the block is used. It is only advice: a wrong one costs downloads,
 * never bytes.
 * Owner: struct stoker_cache has the files of all jobs; a loader has its own. Threads: any; a
 * future: one at a time. Memory: mappings, 24 bytes a block. Bound: STK_CACHE_JOBS_MAX files of
 * STK_CACHE_USES_MAX blocks, within the quota; more jobs, and more blocks, are not known. */
#ifndef STORAGE_CACHE_CACHE_FUTURE_H
#define STORAGE_CACHE_CACHE_FUTURE_H

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

#define STK_CACHE_JOBS_MAX 64u
#define STK_CACHE_USES_MAX (1u << 20)
#define STK_CACHE_EPOCH_PARTS 64u
#define STK_CACHE_NEVER UINT64_MAX
#define STK_CACHE_FUTURE_NAME "stoker-cache.future-"

struct stk_cache_future_file;

/* The futures of all jobs, as this process sees them. */
struct stk_cache_futures {
    pthread_mutex_t lock; /* after the lock of an index */
    int folder;           /* borrowed; -1: none */
    uint64_t looked_ns;   /* when the files were listed; 0: never */
    struct {
        const struct stk_cache_future_file *file; /* NULL: none */
        uint64_t map_bytes;
        int fd;
    } jobs[STK_CACHE_JOBS_MAX];
    uint32_t count; /* entries of jobs up to the last one with a file */
};

void stk_cache_futures_init(struct stk_cache_futures *futures, int folder);
void stk_cache_futures_deinit(struct stk_cache_futures *futures);
/* Lists the files again if that was done long ago, removes those of jobs that ended, and sets
 * *bytes_out (NULL: not) to the bytes of all files. Returns whether some job has a future. */
bool stk_cache_futures_look(struct stk_cache_futures *futures, uint64_t now_ns,
                            _Atomic uint64_t *bytes_out);
/* The next look lists the files in any case. */
void stk_cache_futures_look_again(struct stk_cache_futures *futures);

/* When a block is used next. */
struct stk_cache_next {
    uint64_t ns;   /* from now on; STK_CACHE_NEVER: not in the epochs that are known */
    bool is_known; /* some job lists the block */
};
/* The first use by any job. is_incoming: the block is being read now, so its next use is after that
 * read. place: of the block, see stk_cache_place. */
struct stk_cache_next stk_cache_futures_next(struct stk_cache_futures *futures, uint32_t place,
                                             bool is_incoming);

/* ---- the future of one loader ---- */

struct stk_cache_future {
    struct stk_cache_future_file *file; /* mapped; NULL: none */
    uint64_t map_bytes;
    int fd;
    uint64_t started_ns, started_epoch; /* of the first advance */
    double started_at;
};

/* Bytes of the file of a future of so many blocks. */
uint64_t stk_cache_future_bytes(uint64_t blocks);
/* Makes the file in a folder. Returns 0; -EBUSY: there are too many jobs; -errno. */
int stk_cache_future_open(struct stk_cache_future *future, int folder, uint64_t blocks);
void stk_cache_future_close(struct stk_cache_future *future); /* a zeroed one is allowed */
/* Forgets what it says of the epochs of this parity. */
void stk_cache_future_begin(struct stk_cache_future *future, uint64_t epoch);
/* Adds a use in a part of the epoch. Returns false if there is no space for the block. */
bool stk_cache_future_add(struct stk_cache_future *future, uint64_t epoch, uint32_t place,
                          uint32_t part);
/* From now on others see the epoch. */
void stk_cache_future_end(struct stk_cache_future *future, uint64_t epoch);
/* Whether the epoch was added. */
bool stk_cache_future_has(const struct stk_cache_future *future, uint64_t epoch);
/* Says where the loader is: what it delivered, and what it has begun to read, as parts of an epoch
 * from 0 to 1. front >= delivered, in the same epoch. */
void stk_cache_future_advance(struct stk_cache_future *future, uint64_t epoch, double delivered,
                              double front);

/* The place of a block: a hash of the URL (url_hash) and the number. Never 0. Two blocks may share
 * one. */
static inline uint32_t stk_cache_place(uint64_t url_hash, uint64_t number)
{
    uint64_t mixed = (url_hash ^ (number + 1) * 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;

    mixed ^= mixed >> 32;
    return (uint32_t)(mixed * 0xd6e8feb86659fd93ull >> 32) | 1u;
}

#endif
