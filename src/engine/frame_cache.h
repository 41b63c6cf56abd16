/* engine/frame_cache.h: cache of decompressed frames of zstd files, which the engine's workers can
 * decompress ahead.
 *
 *   empty --prefetch: queued--> a worker decompresses --> cached --evicted, oldest use--> empty
 *     `-----------read: the caller decompresses----------^
 *
 * Owner: the object that holds the files, which must outlive the cache. Threads: any. Copies are
 * made under the lock; frames are decompressed in parallel. Lock order: this lock before the
 * engine's; a worker calls in with neither.
 * Memory: frames, from the engine's budget, up to bytes_max and one more for each reading thread;
 * 32 bytes for each frame of a file. Bound: bytes_max, of which prefetched frames that were not
 * read yet take at most half; STK_FRAME_CACHE_PREFETCH_MAX frames in the queue. */
#ifndef ENGINE_FRAME_CACHE_H
#define ENGINE_FRAME_CACHE_H

#include "base/piece_cache.h"
#include "engine/engine.h"
#include "format/compress/zstd_frames.h"

#define STK_FRAME_CACHE_PREFETCH_MAX 1024u
/* Longest wait for another thread that decompresses the frame. */
#define STK_FRAME_CACHE_WAIT_MS 60000u

/* A file of zstd frames. */
struct stk_zstd_file {
    struct stk_view view; /* borrowed */
    struct stk_zstd_frames frames;
    uint64_t first_frame; /* frames of the files before it */
};

struct stk_frame_cache;

/* frames: their number in all files. Returns 0 on success, STOKER_ERROR_LIMIT, or -ENOMEM. */
int stk_frame_cache_open(struct stk_frame_cache **cache_out, struct stoker_engine *engine,
                         uint64_t frames, uint64_t bytes_max, struct stoker_error *error);
/* NULL is allowed. No thread may read any more. */
void stk_frame_cache_close(struct stk_frame_cache *cache);
/* Copies decompressed bytes; offset + bytes must not exceed the decompressed size. Returns 0 on
 * success, STOKER_ERROR_CORRUPT, STOKER_ERROR_BUDGET, STOKER_ERROR_TIMEOUT, or -ENOMEM. */
int stk_frame_cache_read(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                         uint64_t offset, uint64_t bytes, uint8_t *out, struct stoker_error *error);
/* Queues the frames of these bytes for the workers. Returns false if there is no space for all of
 * them now: call it again after a read. Errors are reported when the bytes are read. */
bool stk_frame_cache_prefetch(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                              uint64_t offset, uint64_t bytes);
/* Number of frames that workers decompressed before they were read. */
uint64_t stk_frame_cache_prefetched(struct stk_frame_cache *cache);

#endif
