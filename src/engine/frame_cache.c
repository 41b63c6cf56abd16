/* Decompresses frames at their first use, or ahead, and caches them. The order mixes samples of a
 * window of blocks, so if the frames of a window fit, each is decompressed about once an epoch. */
#include "engine/frame_cache.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

#define CLOSE_POLL_NS 50000000u
#define QUEUED 1u /* flag of a piece: its frame is in the queue of the workers */

struct request {
    const struct stk_zstd_file *file;
    uint32_t frame;
};

struct stk_frame_cache {
    struct stk_engine_client client; /* first: the workers' view of it */
    struct stoker_engine *engine;    /* const after open */
    struct stk_piece_cache pieces;   /* by the number of the frame */
    struct {                         /* under pieces.lock */
        uint64_t ahead_count;        /* frames that workers decompressed */
        uint32_t queued_count;
    } locked;
    struct { /* under the engine's lock */
        struct request queue[STK_FRAME_CACHE_PREFETCH_MAX];
        uint32_t first, count, running;
        bool closing;
    } work;
};

static bool step_locked(struct stk_engine_client *client, struct stk_worker *worker);
static uint64_t trim_locked(struct stk_engine_client *client);

int stk_frame_cache_open(struct stk_frame_cache **cache_out, struct stoker_engine *engine,
                         uint64_t frames, uint64_t bytes_max, struct stoker_error *error)
{
    struct stk_frame_cache *cache = NULL;

    *cache_out = NULL;
    if (frames >= STK_PIECE_NONE) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "too many frames in compressed token files",
                        "compress them in larger frames, or open fewer files", "%llu frames",
                        (unsigned long long)frames);
    }
    cache = stk_alloc(1, sizeof *cache);
    if (!cache ||
        stk_piece_cache_init(&cache->pieces, &engine->budget, (uint32_t)frames, bytes_max) < 0) {
        stk_free(cache);
        return stk_fail(error, -ENOMEM, "cannot open token files", "free memory", "%llu frames",
                        (unsigned long long)frames);
    }
    cache->engine = engine;
    cache->client.step_locked = step_locked;
    cache->client.trim_locked = trim_locked;
    stk_engine_lock(engine, NULL);
    stk_engine_add_client_locked(engine, &cache->client);
    stk_engine_unlock(engine);
    *cache_out = cache;
    return 0;
}

void stk_frame_cache_close(struct stk_frame_cache *cache)
{
    if (!cache) {
        return;
    }
    stk_engine_lock(cache->engine, NULL);
    stk_engine_remove_client_locked(cache->engine, &cache->client);
    cache->work.count = 0;
    cache->work.closing = true;
    while (cache->work.running > 0) { /* at most the time to decompress one frame */
        struct timespec until = stk_engine_deadline(CLOSE_POLL_NS);

        pthread_cond_timedwait(&cache->engine->done, &cache->engine->lock, &until);
    }
    stk_engine_unlock(cache->engine);
    stk_piece_cache_deinit(&cache->pieces);
    stk_free(cache);
}

/* ---- frames ---- */

struct frame {
    const struct stk_zstd_file *file;
    uint32_t number; /* in the file */
};

static int decompress(void *context, uint8_t *data, struct stoker_error *error)
{
    const struct frame *frame = context;

    return stk_zstd_frames_decompress(&frame->file->frames, frame->file->view, frame->number, data,
                                      error);
}

/* Reserves memory for a frame, for which others are evicted. Workers keep frames that are wanted
 * and stay within the bound. A caller may pass the bound once all others are evicted, so that a
 * frame larger than the bound can be read. */
static int reserve_locked(struct stk_frame_cache *cache, uint64_t bytes, bool by_worker,
                          struct stoker_error *error)
{
    return stk_piece_cache_reserve_locked(&cache->pieces, bytes, by_worker) ? 0
           : by_worker ? STOKER_ERROR_BUDGET
                       : stk_engine_reserve(cache->engine, bytes, 0,
                                            "a frame of a compressed token file", error);
}

/* Decompresses a frame that is not cached. Releases the lock meanwhile. */
static int load_locked(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                       uint32_t number, bool by_worker, struct stoker_error *error)
{
    struct frame frame = {file, number};
    struct stk_piece_fill fill = {.bytes = stk_zstd_frame_bytes(&file->frames, number),
                                  .reserved = true,
                                  .what = "cannot decompress tokens",
                                  .run = decompress,
                                  .context = &frame};
    int status = reserve_locked(cache, fill.bytes, by_worker, error);

    return status < 0 ? status
                      : stk_piece_cache_fill_locked(
                            &cache->pieces, (uint32_t)(file->first_frame + number), &fill, error);
}

/* Decompresses a frame, or waits for the thread that does. */
static int load_wait_locked(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                            uint32_t frame, struct stoker_error *error)
{
    uint32_t number = (uint32_t)(file->first_frame + frame);
    const struct stk_piece *piece = &cache->pieces.locked.pieces[number];
    struct timespec until = {0};
    bool waited = false, late = false;

    while (piece->state == STK_PIECE_LOADING && !late) {
        if (!waited) {
            until = stk_engine_deadline(STK_FRAME_CACHE_WAIT_MS * UINT64_C(1000000));
            waited = true;
        }
        late = !stk_piece_cache_wait_locked(&cache->pieces, &until);
    }
    if (piece->state == STK_PIECE_LOADING) {
        return stk_fail(error, STOKER_ERROR_TIMEOUT, "a frame was not decompressed in time",
                        "check that the disk responds", "%u ms", STK_FRAME_CACHE_WAIT_MS);
    }
    if (piece->state == STK_PIECE_EMPTY) {
        return load_locked(cache, file, frame, false, error);
    }
    stk_piece_cache_touch_locked(&cache->pieces, number);
    return 0;
}

int stk_frame_cache_read(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                         uint64_t offset, uint64_t bytes, uint8_t *out, struct stoker_error *error)
{
    int status = 0;

    STK_ASSERT(offset <= file->frames.out_bytes && bytes <= file->frames.out_bytes - offset);
    pthread_mutex_lock(&cache->pieces.lock);
    while (status == 0 && bytes > 0) {
        uint32_t frame = stk_zstd_frames_find(&file->frames, offset);
        uint64_t frame_bytes = stk_zstd_frame_bytes(&file->frames, frame);
        uint64_t skip = offset - file->frames.frames[frame].out;
        uint64_t part = stk_min(frame_bytes - skip, bytes);
        uint32_t number = (uint32_t)(file->first_frame + frame);

        status = load_wait_locked(cache, file, frame, error);
        stk_piece_cache_unwant_locked(&cache->pieces, number, frame_bytes);
        if (status == 0) {
            memcpy(out, cache->pieces.locked.pieces[number].data + skip, part);
            out += part;
            offset += part;
            bytes -= part;
        }
    }
    pthread_mutex_unlock(&cache->pieces.lock);
    return status;
}

/* ---- ahead ---- */

/* True if the frame is cached, being decompressed, or may be decompressed ahead. In the last case
 * *push_out says whether it must be put into the queue. A cached one becomes the newest. */
static bool admit_locked(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                         uint32_t frame, bool *push_out)
{
    struct stk_piece_cache *pieces = &cache->pieces;
    uint32_t number = (uint32_t)(file->first_frame + frame);
    struct stk_piece *piece = &pieces->locked.pieces[number];
    uint64_t bytes = stk_zstd_frame_bytes(&file->frames, frame), half = pieces->bytes_max / 2;

    *push_out = false;
    if (piece->state == STK_PIECE_READY) {
        stk_piece_cache_touch_locked(pieces, number);
        return true;
    }
    if (piece->state == STK_PIECE_LOADING || piece->wanted) {
        return true;
    }
    if (bytes > half || pieces->locked.wanted_bytes > half - bytes ||
        cache->locked.queued_count == STK_FRAME_CACHE_PREFETCH_MAX) {
        return false;
    }
    stk_piece_cache_want_locked(pieces, number, bytes);
    *push_out = !(piece->flags & QUEUED);
    cache->locked.queued_count += *push_out;
    piece->flags |= QUEUED;
    return true;
}

bool stk_frame_cache_prefetch(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                              uint64_t offset, uint64_t bytes)
{
    uint64_t end = offset + bytes;

    while (offset < end) {
        uint32_t frame = stk_zstd_frames_find(&file->frames, offset);
        bool push, admitted;

        pthread_mutex_lock(&cache->pieces.lock);
        admitted = admit_locked(cache, file, frame, &push);
        pthread_mutex_unlock(&cache->pieces.lock);
        if (!admitted) {
            return false;
        }
        if (push) {
            stk_engine_lock(cache->engine, NULL);
            STK_ASSERT(cache->work.count < STK_FRAME_CACHE_PREFETCH_MAX);
            cache->work
                .queue[(cache->work.first + cache->work.count++) % STK_FRAME_CACHE_PREFETCH_MAX] =
                (struct request){file, frame};
            stk_engine_signal_locked(cache->engine, 1);
            stk_engine_unlock(cache->engine);
        }
        offset = file->frames.frames[frame + 1].out;
    }
    return true;
}

uint64_t stk_frame_cache_prefetched(struct stk_frame_cache *cache)
{
    uint64_t count;

    pthread_mutex_lock(&cache->pieces.lock);
    count = cache->locked.ahead_count;
    pthread_mutex_unlock(&cache->pieces.lock);
    return count;
}

/* Decompresses a frame of the queue, unless a caller did so in the meantime. */
static void decompress_queued(struct stk_frame_cache *cache, const struct request *request)
{
    uint32_t number = (uint32_t)(request->file->first_frame + request->frame);
    struct stk_piece *piece = &cache->pieces.locked.pieces[number];

    pthread_mutex_lock(&cache->pieces.lock);
    piece->flags = 0;
    cache->locked.queued_count--;
    if (piece->state == STK_PIECE_EMPTY && piece->wanted) {
        if (load_locked(cache, request->file, request->frame, true, NULL) == 0) {
            cache->locked.ahead_count++;
        } else {
            stk_piece_cache_unwant_locked(
                &cache->pieces, number,
                stk_zstd_frame_bytes(&request->file->frames, request->frame));
        }
    }
    pthread_mutex_unlock(&cache->pieces.lock);
}

static bool step_locked(struct stk_engine_client *client, struct stk_worker *worker)
{
    struct stk_frame_cache *cache = (struct stk_frame_cache *)(void *)client;
    struct request request;

    if (cache->work.count == 0) {
        return false;
    }
    request = cache->work.queue[cache->work.first];
    cache->work.first = (cache->work.first + 1) % STK_FRAME_CACHE_PREFETCH_MAX;
    cache->work.count--;
    cache->work.running++;
    stk_engine_unlock(cache->engine);
    decompress_queued(cache, &request);
    stk_engine_lock(cache->engine, worker);
    cache->work.running--;
    if (cache->work.closing) {
        pthread_cond_broadcast(&cache->engine->done);
    }
    return true;
}

/* The cache keeps to its own bound. */
static uint64_t trim_locked(struct stk_engine_client *client)
{
    (void)client;
    return 0;
}
