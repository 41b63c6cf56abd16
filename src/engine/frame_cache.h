/* engine/frame_cache.h: unpacked frames of packed files: kept while there is room, and unpacked
 * ahead by the engine's workers.
 *
 *   empty --want: queued--> a worker unpacks --> here --the longest unused, for room--> empty
 *     `---------read: the caller unpacks---------^
 *
 * Owner: whoever holds the files, which outlive it. Threads: any; copies take turns, unpacking does
 * not. Lock order: its own before the engine's; a worker comes with neither.
 * Memory: frames, from the engine's budget, up to bytes_max and one more for each thread that
 * reads; 40 bytes each frame. Bound: bytes_max, of which half may wait to be read first;
 * STK_FRAME_CACHE_PREFETCH_MAX in the queue. */
#ifndef ENGINE_FRAME_CACHE_H
#define ENGINE_FRAME_CACHE_H

#include "base/piece_cache.h"
#include "engine/engine.h"
#include "format/compress/zstd_frames.h"

#define STK_FRAME_CACHE_PREFETCH_MAX 1024u
/* Another thread unpacks the frame that is wanted: longer than this it does not take. */
#define STK_FRAME_CACHE_WAIT_MS 60000u

/* A packed file. */
struct stk_zstd_file {
    struct stk_view view; /* lent */
    struct stk_zstd_frames frames;
    uint64_t first_frame; /* frames of the files before it */
};

struct stk_frame_cache;

/* frames: of all files. LIMIT, -ENOMEM. */
int stk_frame_cache_open(struct stk_frame_cache **cache_out, struct stoker_engine *engine,
                         uint64_t frames, uint64_t bytes_max, struct stoker_error *error);
void stk_frame_cache_close(struct stk_frame_cache *cache); /* NULL is fine; nobody reads any more */
/* Unpacked bytes of a file, which has so many. CORRUPT, BUDGET, TIMEOUT, -ENOMEM. */
int stk_frame_cache_read(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                         uint64_t offset, uint64_t bytes, uint8_t *out, struct stoker_error *error);
/* They will be read, after those that were wanted before. false: there is no room for all of them
 * now; want them again when something was read. What cannot be unpacked says so when it is read. */
bool stk_frame_cache_prefetch(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                              uint64_t offset, uint64_t bytes);
/* How many were unpacked before they were read, so far. */
uint64_t stk_frame_cache_prefetched(struct stk_frame_cache *cache);

#endif
