/* Frames of packed token files, unpacked when they are first wanted and kept while there is room.
 * The order mixes samples of some blocks, so where the frames of a window fit, each is unpacked
 * about once an epoch. */
#include "sequence/sequence.h"

#include <errno.h>
#include <string.h>

#define NONE UINT32_MAX

/* A ring of what is kept, the newest first: `newer` of the oldest is NONE, and so on. */
struct slot {
    uint8_t *data; /* owned; NULL: not kept */
    uint64_t bytes;
    uint32_t newer, older;
};

struct stk_kept {
    struct stoker_engine *engine; /* const after open, as the next two */
    uint64_t bytes_max;
    uint64_t frames;
    pthread_mutex_t lock;
    struct {
        struct slot *slots; /* [frames] */
        uint32_t newest, oldest;
        uint64_t bytes;
    } locked;
};

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
    pthread_mutex_init(&kept->lock, NULL);
    kept->engine = engine;
    kept->frames = frames;
    kept->bytes_max = bytes_max;
    kept->locked.newest = kept->locked.oldest = NONE;
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

static void drop_locked(struct stk_kept *kept, uint32_t number)
{
    struct slot *slot = &kept->locked.slots[number];

    unlink_locked(kept, number);
    stk_free(slot->data);
    stk_budget_release(&kept->engine->budget, slot->bytes);
    kept->locked.bytes -= slot->bytes;
    *slot = (struct slot){0};
}

void stk_kept_close(struct stk_kept *kept)
{
    if (!kept) {
        return;
    }
    while (kept->locked.newest != NONE) {
        drop_locked(kept, kept->locked.newest);
    }
    pthread_mutex_destroy(&kept->lock);
    stk_free(kept->locked.slots);
    stk_free(kept);
}

/* ---- frames ---- */

/* Room in the bound and in the budget, made by dropping the oldest; with nothing left to drop the
 * bound is passed, so that a frame larger than it can be read. */
static int make_room_locked(struct stk_kept *kept, uint64_t bytes, struct stoker_error *error)
{
    while (kept->locked.oldest != NONE &&
           (bytes > kept->bytes_max || kept->locked.bytes > kept->bytes_max - bytes)) {
        drop_locked(kept, kept->locked.oldest);
    }
    while (!stk_budget_reserve(&kept->engine->budget, bytes)) {
        if (kept->locked.oldest == NONE) {
            return stk_engine_reserve(kept->engine, bytes, 0, "a frame of a packed token file",
                                      error);
        }
        drop_locked(kept, kept->locked.oldest);
    }
    return 0;
}

static int load_locked(struct stk_kept *kept, const struct stk_token_file *file, uint32_t frame,
                       struct stoker_error *error)
{
    uint32_t number = (uint32_t)(file->frames_before + frame);
    struct slot *slot = &kept->locked.slots[number];
    uint64_t bytes = stk_frame_bytes(&file->frames, frame);
    int status;

    if (slot->data) {
        if (kept->locked.newest != number) {
            unlink_locked(kept, number);
            link_locked(kept, number);
        }
        return 0;
    }
    status = make_room_locked(kept, bytes, error);
    if (status < 0) {
        return status;
    }
    slot->data = stk_alloc(bytes, 1);
    status = slot->data ? stk_frames_unpack(&file->frames, file->view, frame, slot->data, error)
                        : stk_fail(error, -ENOMEM, "cannot unpack tokens", "free memory",
                                   "%llu bytes", (unsigned long long)bytes);
    if (status < 0) {
        stk_free(slot->data);
        slot->data = NULL;
        stk_budget_release(&kept->engine->budget, bytes);
        return status;
    }
    slot->bytes = bytes;
    kept->locked.bytes += bytes;
    link_locked(kept, number);
    return 0;
}

int stk_kept_read(struct stk_kept *kept, const struct stk_token_file *file, uint64_t offset,
                  uint64_t bytes, uint8_t *out, struct stoker_error *error)
{
    int status = 0;

    STK_ASSERT(offset <= file->frames.out_bytes && bytes <= file->frames.out_bytes - offset);
    pthread_mutex_lock(&kept->lock);
    while (status == 0 && bytes > 0) {
        uint32_t frame = stk_frames_find(&file->frames, offset);
        uint64_t skip = offset - file->frames.frames[frame].out;
        uint64_t part = stk_min(stk_frame_bytes(&file->frames, frame) - skip, bytes);

        status = load_locked(kept, file, frame, error);
        if (status == 0) {
            memcpy(out, kept->locked.slots[file->frames_before + frame].data + skip, part);
            out += part;
            offset += part;
            bytes -= part;
        }
    }
    pthread_mutex_unlock(&kept->lock);
    return status;
}
