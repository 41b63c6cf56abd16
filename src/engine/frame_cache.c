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

struct wanted {
    const struct stk_framed *file;
    uint32_t frame;
};

struct stk_kept {
    struct stk_client client;     /* first: the workers' view of it */
    struct stoker_engine *engine; /* const after open, as the next two */
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
        struct wanted queue[STK_KEPT_WANTED_MAX];
        uint32_t first, count, running;
        bool closing;
    } work;
};

static bool step_locked(struct stk_client *client, struct stk_worker *worker);
static uint64_t trim_locked(struct stk_client *client);

static void init_locks(struct stk_kept *kept)
{
    pthread_condattr_t monotonic;

    pthread_mutex_init(&kept->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&kept->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int stk_kept_open(struct stk_kept **kept_out, struct stoker_engine *engine, uint64_t frames,
                  uint64_t bytes_max, struct stoker_error *error)
{
    struct stk_kept *kept = NULL;

    *kept_out = NULL;
    if (frames >= NONE) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "too many frames in packed token files",
                        "pack them in larger frames, or open fewer files", "%llu frames",
                        (unsigned long long)frames);
    }
    kept = stk_alloc(1, sizeof *kept);
    if (kept) {
        kept->locked.slots = stk_alloc(frames, sizeof *kept->locked.slots);
    }
    if (!kept || !kept->locked.slots) {
        stk_free(kept);
        return stk_fail(error, -ENOMEM, "cannot open token files", "free memory", "%llu frames",
                        (unsigned long long)frames);
    }
    init_locks(kept);
    kept->engine = engine;
    kept->frames = frames;
    kept->bytes_max = bytes_max;
    kept->locked.newest = kept->locked.oldest = NONE;
    kept->client.step_locked = step_locked;
    kept->client.trim_locked = trim_locked;
    stk_engine_lock(engine, NULL);
    stk_engine_add_locked(engine, &kept->client);
    stk_engine_unlock(engine);
    *kept_out = kept;
    return 0;
}

/* ---- the ring ---- */

static void unlink_locked(struct stk_kept *kept, uint32_t number)
{
    const struct slot *slot = &kept->locked.slots[number];

    *(slot->newer == NONE ? &kept->locked.newest : &kept->locked.slots[slot->newer].older) =
        slot->older;
    *(slot->older == NONE ? &kept->locked.oldest : &kept->locked.slots[slot->older].newer) =
        slot->newer;
}

static void link_locked(struct stk_kept *kept, uint32_t number)
{
    struct slot *slot = &kept->locked.slots[number];

    slot->newer = NONE;
    slot->older = kept->locked.newest;
    *(slot->older == NONE ? &kept->locked.oldest : &kept->locked.slots[slot->older].newer) = number;
    kept->locked.newest = number;
}

static void touch_locked(struct stk_kept *kept, uint32_t number)
{
    if (kept->locked.newest != number) {
        unlink_locked(kept, number);
        link_locked(kept, number);
    }
}

/* It is not waited for any more. */
static void settle_locked(struct stk_kept *kept, struct slot *slot, uint64_t bytes)
{
    if (slot->ahead) {
        slot->ahead = false;
        kept->locked.ahead_bytes -= bytes;
    }
}

static void drop_locked(struct stk_kept *kept, uint32_t number)
{
    struct slot *slot = &kept->locked.slots[number];

    unlink_locked(kept, number);
    settle_locked(kept, slot, slot->bytes);
    stk_free(slot->data);
    stk_budget_release(&kept->engine->budget, slot->bytes);
    kept->locked.bytes -= slot->bytes;
    slot->data = NULL;
    slot->bytes = 0;
}

void stk_kept_close(struct stk_kept *kept)
{
    if (!kept) {
        return;
    }
    stk_engine_lock(kept->engine, NULL);
    stk_engine_remove_locked(kept->engine, &kept->client);
    kept->work.count = 0;
    kept->work.closing = true;
    while (kept->work.running > 0) { /* as long as a frame takes to unpack */
        struct timespec until = stk_engine_after(CLOSE_POLL_NS);

        pthread_cond_timedwait(&kept->engine->done, &kept->engine->lock, &until);
    }
    stk_engine_unlock(kept->engine);
    while (kept->locked.newest != NONE) {
        drop_locked(kept, kept->locked.newest);
    }
    pthread_cond_destroy(&kept->changed);
    pthread_mutex_destroy(&kept->lock);
    stk_free(kept->locked.slots);
    stk_free(kept);
}

/* ---- frames ---- */

/* The one to drop for room; NONE. What is wanted stays, unless a caller needs the room. */
static uint32_t victim_locked(const struct stk_kept *kept, bool by_worker)
{
    uint32_t oldest = kept->locked.oldest;

    return oldest != NONE && by_worker && kept->locked.slots[oldest].ahead ? NONE : oldest;
}

/* Room in the bound and in the budget, made by dropping the oldest; with nothing left to drop a
 * caller passes the bound, so that a frame larger than it can be read. */
static int make_room_locked(struct stk_kept *kept, uint64_t bytes, bool by_worker,
                            struct stoker_error *error)
{
    uint32_t victim = victim_locked(kept, by_worker);
    bool fits;

    while (!(fits = bytes <= kept->bytes_max && kept->locked.bytes <= kept->bytes_max - bytes) &&
           victim != NONE) {
        drop_locked(kept, victim);
        victim = victim_locked(kept, by_worker);
    }
    if (!fits && by_worker) {
        return STOKER_ERROR_BUDGET;
    }
    while (!stk_budget_reserve(&kept->engine->budget, bytes)) {
        if (victim == NONE) {
            return by_worker ? STOKER_ERROR_BUDGET
                             : stk_engine_reserve(kept->engine, bytes, 0,
                                                  "a frame of a packed token file", error);
        }
        drop_locked(kept, victim);
        victim = victim_locked(kept, by_worker);
    }
    return 0;
}

/* Unpacks an empty slot; the lock is let go meanwhile. */
static int load_locked(struct stk_kept *kept, const struct stk_framed *file, uint32_t frame,
                       bool by_worker, struct stoker_error *error)
{
    uint32_t number = (uint32_t)(file->before + frame);
    struct slot *slot = &kept->locked.slots[number];
    uint64_t bytes = stk_frame_bytes(&file->frames, frame);
    int status = make_room_locked(kept, bytes, by_worker, error);
    uint8_t *data;

    if (status < 0) {
        return status;
    }
    kept->locked.bytes += bytes;
    slot->busy = true;
    pthread_mutex_unlock(&kept->lock);
    data = stk_alloc(bytes, 1);
    status = data ? stk_frames_unpack(&file->frames, file->view, frame, data, error)
                  : stk_fail(error, -ENOMEM, "cannot unpack tokens", "free memory", "%llu bytes",
                             (unsigned long long)bytes);
    pthread_mutex_lock(&kept->lock);
    slot->busy = false;
    pthread_cond_broadcast(&kept->changed);
    if (status < 0) {
        stk_free(data);
        stk_budget_release(&kept->engine->budget, bytes);
        kept->locked.bytes -= bytes;
        return status;
    }
    slot->data = data;
    slot->bytes = bytes;
    link_locked(kept, number);
    return 0;
}

/* Until the slot is here: unpacked by this thread, or by the one that is at it. */
static int hold_locked(struct stk_kept *kept, const struct stk_framed *file, uint32_t frame,
                       struct stoker_error *error)
{
    uint32_t number = (uint32_t)(file->before + frame);
    struct slot *slot = &kept->locked.slots[number];
    struct timespec until = {0};
    bool waited = false;
    int late = 0;

    while (slot->busy && late == 0) {
        if (!waited) {
            until = stk_engine_after(STK_KEPT_WAIT_MS * UINT64_C(1000000));
            waited = true;
        }
        late = pthread_cond_timedwait(&kept->changed, &kept->lock, &until);
    }
    if (slot->busy) {
        return stk_fail(error, STOKER_ERROR_TIMEOUT, "a frame is not unpacked in time",
                        "look whether the disk answers", "%u ms", STK_KEPT_WAIT_MS);
    }
    if (!slot->data) {
        return load_locked(kept, file, frame, false, error);
    }
    touch_locked(kept, number);
    return 0;
}

int stk_kept_read(struct stk_kept *kept, const struct stk_framed *file, uint64_t offset,
                  uint64_t bytes, uint8_t *out, struct stoker_error *error)
{
    int status = 0;

    STK_ASSERT(offset <= file->frames.out_bytes && bytes <= file->frames.out_bytes - offset);
    pthread_mutex_lock(&kept->lock);
    while (status == 0 && bytes > 0) {
        uint32_t frame = stk_frames_find(&file->frames, offset);
        uint64_t frame_bytes = stk_frame_bytes(&file->frames, frame);
        uint64_t skip = offset - file->frames.frames[frame].out;
        uint64_t part = stk_min(frame_bytes - skip, bytes);
        struct slot *slot = &kept->locked.slots[file->before + frame];

        status = hold_locked(kept, file, frame, error);
        settle_locked(kept, slot, frame_bytes);
        if (status == 0) {
            memcpy(out, slot->data + skip, part);
            out += part;
            offset += part;
            bytes -= part;
        }
    }
    pthread_mutex_unlock(&kept->lock);
    return status;
}

/* ---- ahead ---- */

/* Whether the frame is here, on its way, or may be: then *push_out says whether it is to be put in
 * the queue. One that is here becomes the newest. */
static bool admit_locked(struct stk_kept *kept, const struct stk_framed *file, uint32_t frame,
                         bool *push_out)
{
    uint32_t number = (uint32_t)(file->before + frame);
    struct slot *slot = &kept->locked.slots[number];
    uint64_t bytes = stk_frame_bytes(&file->frames, frame), half = kept->bytes_max / 2;

    *push_out = false;
    if (slot->data) {
        touch_locked(kept, number);
        return true;
    }
    if (slot->busy || slot->ahead) {
        return true;
    }
    if (bytes > half || kept->locked.ahead_bytes > half - bytes ||
        kept->locked.queued_count == STK_KEPT_WANTED_MAX) {
        return false;
    }
    slot->ahead = true;
    kept->locked.ahead_bytes += bytes;
    *push_out = !slot->queued;
    kept->locked.queued_count += *push_out;
    slot->queued = true;
    return true;
}

bool stk_kept_want(struct stk_kept *kept, const struct stk_framed *file, uint64_t offset,
                   uint64_t bytes)
{
    uint64_t end = offset + bytes;

    while (offset < end) {
        uint32_t frame = stk_frames_find(&file->frames, offset);
        bool push, admitted;

        pthread_mutex_lock(&kept->lock);
        admitted = admit_locked(kept, file, frame, &push);
        pthread_mutex_unlock(&kept->lock);
        if (!admitted) {
            return false;
        }
        if (push) {
            stk_engine_lock(kept->engine, NULL);
            STK_ASSERT(kept->work.count < STK_KEPT_WANTED_MAX);
            kept->work.queue[(kept->work.first + kept->work.count++) % STK_KEPT_WANTED_MAX] =
                (struct wanted){file, frame};
            stk_engine_signal_locked(kept->engine, 1);
            stk_engine_unlock(kept->engine);
        }
        offset = file->frames.frames[frame + 1].out;
    }
    return true;
}

uint64_t stk_kept_ahead(struct stk_kept *kept)
{
    uint64_t count;

    pthread_mutex_lock(&kept->lock);
    count = kept->locked.ahead_count;
    pthread_mutex_unlock(&kept->lock);
    return count;
}

/* One frame of the queue, unless somebody was faster. */
static void unpack_wanted(struct stk_kept *kept, const struct wanted *wanted)
{
    struct slot *slot = &kept->locked.slots[wanted->file->before + wanted->frame];

    pthread_mutex_lock(&kept->lock);
    slot->queued = false;
    kept->locked.queued_count--;
    if (!slot->data && !slot->busy && slot->ahead) {
        if (load_locked(kept, wanted->file, wanted->frame, true, NULL) == 0) {
            kept->locked.ahead_count++;
        } else {
            settle_locked(kept, slot, stk_frame_bytes(&wanted->file->frames, wanted->frame));
        }
    }
    pthread_mutex_unlock(&kept->lock);
}

static bool step_locked(struct stk_client *client, struct stk_worker *worker)
{
    struct stk_kept *kept = (struct stk_kept *)(void *)client;
    struct wanted wanted;

    if (kept->work.count == 0) {
        return false;
    }
    wanted = kept->work.queue[kept->work.first];
    kept->work.first = (kept->work.first + 1) % STK_KEPT_WANTED_MAX;
    kept->work.count--;
    kept->work.running++;
    stk_engine_unlock(kept->engine);
    unpack_wanted(kept, &wanted);
    stk_engine_lock(kept->engine, worker);
    kept->work.running--;
    if (kept->work.closing) {
        pthread_cond_broadcast(&kept->engine->done);
    }
    return true;
}

/* What is kept is bounded by itself. */
static uint64_t trim_locked(struct stk_client *client)
{
    (void)client;
    return 0;
}
