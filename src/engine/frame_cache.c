/* Frames of packed files, unpacked when they are first wanted and kept while there is room. The
 * order mixes samples of some blocks, so where the frames of a window fit, each is unpacked
 * about once an epoch. */
#include "engine/frame_cache.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

#define NONE UINT32_MAX
#define CLOSE_POLL_NS 50000000u

/* A ring of what is kept, the newest first: `newer` of the oldest is NONE, and so on. */
struct slot {
    uint8_t *data; /* owned; NULL: not kept */
    uint64_t bytes;
    uint32_t newer, older;
    bool busy;   /* a thread unpacks it */
    bool queued; /* a worker will find it in the queue */
    bool ahead;  /* wanted, and not read since; counted in ahead_bytes */
};

struct request {
    const struct stk_zstd_file *file;
    uint32_t frame;
};

struct stk_frame_cache {
    struct stk_engine_client client; /* first: the workers' view of it */
    struct stoker_engine *engine;    /* const after open, as the next two */
    uint64_t bytes_max;
    uint64_t frames;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a slot is not busy any more; with lock */
    struct {
        struct slot *slots; /* [frames] */
        uint32_t newest, oldest;
        uint64_t bytes;       /* of the kept and the busy ones */
        uint64_t ahead_bytes; /* of those that are wanted */
        uint64_t ahead_count; /* that workers unpacked */
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

static void init_locks(struct stk_frame_cache *cache)
{
    pthread_condattr_t monotonic;

    pthread_mutex_init(&cache->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&cache->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int stk_frame_cache_open(struct stk_frame_cache **cache_out, struct stoker_engine *engine,
                         uint64_t frames, uint64_t bytes_max, struct stoker_error *error)
{
    struct stk_frame_cache *cache = NULL;

    *cache_out = NULL;
    if (frames >= NONE) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "too many frames in packed token files",
                        "pack them in larger frames, or open fewer files", "%llu frames",
                        (unsigned long long)frames);
    }
    cache = stk_alloc(1, sizeof *cache);
    if (cache) {
        cache->locked.slots = stk_alloc(frames, sizeof *cache->locked.slots);
    }
    if (!cache || !cache->locked.slots) {
        stk_free(cache);
        return stk_fail(error, -ENOMEM, "cannot open token files", "free memory", "%llu frames",
                        (unsigned long long)frames);
    }
    init_locks(cache);
    cache->engine = engine;
    cache->frames = frames;
    cache->bytes_max = bytes_max;
    cache->locked.newest = cache->locked.oldest = NONE;
    cache->client.step_locked = step_locked;
    cache->client.trim_locked = trim_locked;
    stk_engine_lock(engine, NULL);
    stk_engine_add_client_locked(engine, &cache->client);
    stk_engine_unlock(engine);
    *cache_out = cache;
    return 0;
}

/* ---- the ring ---- */

static void unlink_locked(struct stk_frame_cache *cache, uint32_t number)
{
    const struct slot *slot = &cache->locked.slots[number];

    *(slot->newer == NONE ? &cache->locked.newest : &cache->locked.slots[slot->newer].older) =
        slot->older;
    *(slot->older == NONE ? &cache->locked.oldest : &cache->locked.slots[slot->older].newer) =
        slot->newer;
}

static void link_locked(struct stk_frame_cache *cache, uint32_t number)
{
    struct slot *slot = &cache->locked.slots[number];

    slot->newer = NONE;
    slot->older = cache->locked.newest;
    *(slot->older == NONE ? &cache->locked.oldest : &cache->locked.slots[slot->older].newer) =
        number;
    cache->locked.newest = number;
}

static void mark_newest_locked(struct stk_frame_cache *cache, uint32_t number)
{
    if (cache->locked.newest != number) {
        unlink_locked(cache, number);
        link_locked(cache, number);
    }
}

/* It is not waited for any more. */
static void end_prefetch_locked(struct stk_frame_cache *cache, struct slot *slot, uint64_t bytes)
{
    if (slot->ahead) {
        slot->ahead = false;
        cache->locked.ahead_bytes -= bytes;
    }
}

static void drop_locked(struct stk_frame_cache *cache, uint32_t number)
{
    struct slot *slot = &cache->locked.slots[number];

    unlink_locked(cache, number);
    end_prefetch_locked(cache, slot, slot->bytes);
    stk_free(slot->data);
    stk_budget_release(&cache->engine->budget, slot->bytes);
    cache->locked.bytes -= slot->bytes;
    slot->data = NULL;
    slot->bytes = 0;
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
    while (cache->work.running > 0) { /* as long as a frame takes to unpack */
        struct timespec until = stk_engine_deadline(CLOSE_POLL_NS);

        pthread_cond_timedwait(&cache->engine->done, &cache->engine->lock, &until);
    }
    stk_engine_unlock(cache->engine);
    while (cache->locked.newest != NONE) {
        drop_locked(cache, cache->locked.newest);
    }
    pthread_cond_destroy(&cache->changed);
    pthread_mutex_destroy(&cache->lock);
    stk_free(cache->locked.slots);
    stk_free(cache);
}

/* ---- frames ---- */

/* The one to drop for room; NONE. What is wanted stays, unless a caller needs the room. */
static uint32_t victim_locked(const struct stk_frame_cache *cache, bool by_worker)
{
    uint32_t oldest = cache->locked.oldest;

    return oldest != NONE && by_worker && cache->locked.slots[oldest].ahead ? NONE : oldest;
}

/* Room in the bound and in the budget, made by dropping the oldest; with nothing left to drop a
 * caller passes the bound, so that a frame larger than it can be read. */
static int evict_locked(struct stk_frame_cache *cache, uint64_t bytes, bool by_worker,
                        struct stoker_error *error)
{
    uint32_t victim = victim_locked(cache, by_worker);
    bool fits;

    while (!(fits = bytes <= cache->bytes_max && cache->locked.bytes <= cache->bytes_max - bytes) &&
           victim != NONE) {
        drop_locked(cache, victim);
        victim = victim_locked(cache, by_worker);
    }
    if (!fits && by_worker) {
        return STOKER_ERROR_BUDGET;
    }
    while (!stk_budget_reserve(&cache->engine->budget, bytes)) {
        if (victim == NONE) {
            return by_worker ? STOKER_ERROR_BUDGET
                             : stk_engine_reserve(cache->engine, bytes, 0,
                                                  "a frame of a packed token file", error);
        }
        drop_locked(cache, victim);
        victim = victim_locked(cache, by_worker);
    }
    return 0;
}

/* Unpacks an empty slot; the lock is let go meanwhile. */
static int load_locked(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                       uint32_t frame, bool by_worker, struct stoker_error *error)
{
    uint32_t number = (uint32_t)(file->first_frame + frame);
    struct slot *slot = &cache->locked.slots[number];
    uint64_t bytes = stk_zstd_frame_bytes(&file->frames, frame);
    int status = evict_locked(cache, bytes, by_worker, error);
    uint8_t *data;

    if (status < 0) {
        return status;
    }
    cache->locked.bytes += bytes;
    slot->busy = true;
    pthread_mutex_unlock(&cache->lock);
    data = stk_alloc(bytes, 1);
    status = data ? stk_zstd_frames_decompress(&file->frames, file->view, frame, data, error)
                  : stk_fail(error, -ENOMEM, "cannot unpack tokens", "free memory", "%llu bytes",
                             (unsigned long long)bytes);
    pthread_mutex_lock(&cache->lock);
    slot->busy = false;
    pthread_cond_broadcast(&cache->changed);
    if (status < 0) {
        stk_free(data);
        stk_budget_release(&cache->engine->budget, bytes);
        cache->locked.bytes -= bytes;
        return status;
    }
    slot->data = data;
    slot->bytes = bytes;
    link_locked(cache, number);
    return 0;
}

/* Until the slot is here: unpacked by this thread, or by the one that is at it. */
static int load_wait_locked(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                            uint32_t frame, struct stoker_error *error)
{
    uint32_t number = (uint32_t)(file->first_frame + frame);
    struct slot *slot = &cache->locked.slots[number];
    struct timespec until = {0};
    bool waited = false;
    int late = 0;

    while (slot->busy && late == 0) {
        if (!waited) {
            until = stk_engine_deadline(STK_FRAME_CACHE_WAIT_MS * UINT64_C(1000000));
            waited = true;
        }
        late = pthread_cond_timedwait(&cache->changed, &cache->lock, &until);
    }
    if (slot->busy) {
        return stk_fail(error, STOKER_ERROR_TIMEOUT, "a frame is not unpacked in time",
                        "look whether the disk answers", "%u ms", STK_FRAME_CACHE_WAIT_MS);
    }
    if (!slot->data) {
        return load_locked(cache, file, frame, false, error);
    }
    mark_newest_locked(cache, number);
    return 0;
}

int stk_frame_cache_read(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                         uint64_t offset, uint64_t bytes, uint8_t *out, struct stoker_error *error)
{
    int status = 0;

    STK_ASSERT(offset <= file->frames.out_bytes && bytes <= file->frames.out_bytes - offset);
    pthread_mutex_lock(&cache->lock);
    while (status == 0 && bytes > 0) {
        uint32_t frame = stk_zstd_frames_find(&file->frames, offset);
        uint64_t frame_bytes = stk_zstd_frame_bytes(&file->frames, frame);
        uint64_t skip = offset - file->frames.frames[frame].out;
        uint64_t part = stk_min(frame_bytes - skip, bytes);
        struct slot *slot = &cache->locked.slots[file->first_frame + frame];

        status = load_wait_locked(cache, file, frame, error);
        end_prefetch_locked(cache, slot, frame_bytes);
        if (status == 0) {
            memcpy(out, slot->data + skip, part);
            out += part;
            offset += part;
            bytes -= part;
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return status;
}

/* ---- ahead ---- */

/* Whether the frame is here, on its way, or may be: then *push_out says whether it is to be put in
 * the queue. One that is here becomes the newest. */
static bool admit_locked(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                         uint32_t frame, bool *push_out)
{
    uint32_t number = (uint32_t)(file->first_frame + frame);
    struct slot *slot = &cache->locked.slots[number];
    uint64_t bytes = stk_zstd_frame_bytes(&file->frames, frame), half = cache->bytes_max / 2;

    *push_out = false;
    if (slot->data) {
        mark_newest_locked(cache, number);
        return true;
    }
    if (slot->busy || slot->ahead) {
        return true;
    }
    if (bytes > half || cache->locked.ahead_bytes > half - bytes ||
        cache->locked.queued_count == STK_FRAME_CACHE_PREFETCH_MAX) {
        return false;
    }
    slot->ahead = true;
    cache->locked.ahead_bytes += bytes;
    *push_out = !slot->queued;
    cache->locked.queued_count += *push_out;
    slot->queued = true;
    return true;
}

bool stk_frame_cache_prefetch(struct stk_frame_cache *cache, const struct stk_zstd_file *file,
                              uint64_t offset, uint64_t bytes)
{
    uint64_t end = offset + bytes;

    while (offset < end) {
        uint32_t frame = stk_zstd_frames_find(&file->frames, offset);
        bool push, admitted;

        pthread_mutex_lock(&cache->lock);
        admitted = admit_locked(cache, file, frame, &push);
        pthread_mutex_unlock(&cache->lock);
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

    pthread_mutex_lock(&cache->lock);
    count = cache->locked.ahead_count;
    pthread_mutex_unlock(&cache->lock);
    return count;
}

/* One frame of the queue, unless somebody was faster. */
static void decompress_queued(struct stk_frame_cache *cache, const struct request *request)
{
    struct slot *slot = &cache->locked.slots[request->file->first_frame + request->frame];

    pthread_mutex_lock(&cache->lock);
    slot->queued = false;
    cache->locked.queued_count--;
    if (!slot->data && !slot->busy && slot->ahead) {
        if (load_locked(cache, request->file, request->frame, true, NULL) == 0) {
            cache->locked.ahead_count++;
        } else {
            end_prefetch_locked(cache, slot,
                                stk_zstd_frame_bytes(&request->file->frames, request->frame));
        }
    }
    pthread_mutex_unlock(&cache->lock);
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

/* What is kept is bounded by itself. */
static uint64_t trim_locked(struct stk_engine_client *client)
{
    (void)client;
    return 0;
}
