/* One folder of the node cache: reads, fills, evictions. cache_folder.c opens it. */
#include "storage/cache/cache_disk.h"

#include "io/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define METADATA_BYTES 4096u /* accounted for a block beside its region: extents of the file */
#define KEEP_MINUTES 1440u   /* a block that was used later is evicted only if it must be */
#define IDLE_MINUTES 10u     /* a block that was used later is kept from jobs with a known order */
#define SEARCH_SLOTS 8192u   /* examined for one fill */
#define CANDIDATES_MAX 256u  /* whose next use is looked up for one fill */
#define FUTURE_SHARE 16u     /* of the quota: a future has at most one such part */
#define VICTIMS_MAX 8u       /* evicted for one fill */
#define NS_PER_MS 1000000ull

/* How urgent an eviction is. */
enum pressure {
    PRESSURE_NONE = 0,
    PRESSURE_QUOTA, /* the quota is used up: keep what is in use */
    PRESSURE_MUST,  /* over the quota, or below the floor */
};

static uint32_t minute_now(void)
{
    return (uint32_t)(stk_clock_wall_ns() / (60000ull * NS_PER_MS));
}

static uint64_t region_max(const struct stk_cache_disk *disk)
{
    return stk_cache_region_bytes(disk->index.block_bytes);
}

static uint64_t region_at(const struct stk_cache_disk *disk, uint32_t slot)
{
    return slot / STK_CACHE_FILES * region_max(disk);
}

static int data_of(const struct stk_cache_disk *disk, uint32_t slot)
{
    return disk->data[slot % STK_CACHE_FILES];
}

static uint64_t accounted(uint32_t bytes)
{
    return stk_cache_region_bytes(bytes) + METADATA_BYTES;
}

static int fault(const struct stk_cache_disk *disk, enum stk_cache_call call)
{
    return disk->options.fault ? disk->options.fault(call) : 0;
}

uint64_t stk_cache_disk_used(const struct stk_cache_disk *disk)
{
    return disk->status < 0
               ? 0
               : disk->index.map_bytes +
                     atomic_load_explicit(&disk->index.head->used_bytes, memory_order_relaxed) +
                     atomic_load_explicit(&disk->index.head->future_bytes, memory_order_relaxed);
}

uint64_t stk_cache_disk_quota(const struct stk_cache_disk *disk)
{
    return disk->status < 0
               ? 0
               : atomic_load_explicit(&disk->index.head->quota_bytes, memory_order_relaxed);
}

static void pause_fills(struct stk_cache_disk *disk)
{
    atomic_fetch_add_explicit(&disk->failures, 1, memory_order_relaxed);
    atomic_store_explicit(&disk->paused_until, stk_clock_ns() + STK_CACHE_PAUSE_MS * NS_PER_MS,
                          memory_order_relaxed);
}

static bool is_paused(const struct stk_cache_disk *disk)
{
    return stk_clock_ns() < atomic_load_explicit(&disk->paused_until, memory_order_relaxed);
}

/* ---- removing ---- */

/* Removes the data of a slot, then frees it: a process that ends between leaves a slot that is
 * accounted and has no owner. */
static int free_slot_locked(struct stk_cache_disk *disk, uint32_t slot)
{
    stk_cache_index_begin_free_locked(&disk->index, slot);
    if (fallocate(data_of(disk, slot), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)region_at(disk, slot), (off_t)region_max(disk)) < 0) {
        return -errno;
    }
    stk_cache_index_free_locked(&disk->index, slot);
    return 0;
}

static bool is_filled_here_locked(const struct stk_cache_disk *disk, uint32_t slot)
{
    const struct stk_cache_fill *fill = disk->fills;

    while (fill && fill->slot != slot) {
        fill = fill->next;
    }
    return fill != NULL;
}

/* Returns true if the process that filled the slot has ended; its byte is locked then. */
static bool take_over_locked(struct stk_cache_disk *disk, uint32_t slot)
{
    return !is_filled_here_locked(disk, slot) && stk_cache_index_lock_slot(&disk->index, slot);
}

static bool may_evict_locked(struct stk_cache_disk *disk, uint32_t slot, enum pressure pressure,
                             uint32_t now)
{
    struct stk_cache_slot *it = &disk->index.slots[slot];
    uint64_t state = atomic_load_explicit(&it->state, memory_order_relaxed);
    uint32_t used = atomic_load_explicit(&it->used_minute, memory_order_relaxed);

    switch (stk_cache_state_kind(state)) {
    case STK_CACHE_FREE:
        return false;
    case STK_CACHE_VALID:
        return pressure != PRESSURE_NONE && !stk_cache_state_is_pinned(state) &&
               (pressure == PRESSURE_MUST || (now > used && now - used > KEEP_MINUTES));
    default: /* also a kind that no version writes */
        if (!take_over_locked(disk, slot)) {
            return false;
        }
        stk_cache_index_unlock_slot(&disk->index, slot);
        return true;
    }
}

/* Frees a slot that may be evicted and has this state. Returns the freed bytes. */
static uint64_t evict_slot_locked(struct stk_cache_disk *disk, uint32_t slot, uint64_t state)
{
    if (free_slot_locked(disk, slot) < 0) {
        return 0;
    }
    atomic_fetch_add_explicit(&disk->evicted, stk_cache_state_kind(state) == STK_CACHE_VALID,
                              memory_order_relaxed);
    return stk_cache_state_bytes(state);
}

/* Frees slots in [first, end) that may be evicted until `wanted` accounted bytes are free. Returns
 * the freed bytes. */
static uint64_t evict_range_locked(struct stk_cache_disk *disk, uint32_t first, uint32_t end,
                                   uint64_t wanted, enum pressure pressure)
{
    uint32_t now = minute_now();
    uint64_t freed = 0;

    for (uint32_t slot = first; slot < end && freed < wanted; slot++) {
        uint64_t state = atomic_load_explicit(&disk->index.slots[slot].state, memory_order_relaxed);

        if (may_evict_locked(disk, slot, pressure, now)) {
            freed += evict_slot_locked(disk, slot, state);
        }
    }
    return freed;
}

/* Continues where the last search ended, so that all blocks of equal age are treated alike. */
static uint64_t sweep_locked(struct stk_cache_disk *disk, uint64_t wanted, enum pressure pressure)
{
    uint32_t count = disk->index.slot_count;
    uint32_t hand = atomic_load_explicit(&disk->index.head->hand, memory_order_relaxed) % count;
    uint32_t left = (uint32_t)stk_min(count, SEARCH_SLOTS);
    uint64_t freed = 0;

    while (left > 0 && freed < wanted) {
        uint32_t part = (uint32_t)stk_min(stk_min(left, STK_CACHE_BUCKET), count - hand);

        freed += evict_range_locked(disk, hand, hand + part, wanted - freed, pressure);
        hand = (hand + part) % count;
        left -= part;
    }
    atomic_store_explicit(&disk->index.head->hand, hand, memory_order_relaxed);
    return freed;
}

/* A block that may be evicted, and when it is used next. */
struct victim {
    uint64_t state, next_ns;
    uint32_t slot;
};

/* The time until the next use of a cached block. One that no job lists is not used again, unless a
 * process without a known order uses it. */
static uint64_t next_use(const struct stk_cache_disk *disk, const struct stk_cache_slot *slot,
                         uint32_t now)
{
    struct stk_cache_next next = stk_cache_futures_next(
        disk->options.futures, atomic_load_explicit(&slot->place, memory_order_relaxed), false);
    uint32_t used = atomic_load_explicit(&slot->used_minute, memory_order_relaxed);

    return next.is_known || now > used + IDLE_MINUTES ? next.ns : 0;
}

/* Adds to a list that begins with the farthest next use. Returns the new length. */
static uint32_t add_victim(struct victim *victims, uint32_t count, const struct victim *more)
{
    uint32_t i;

    if (count == VICTIMS_MAX && victims[count - 1].next_ns >= more->next_ns) {
        return count;
    }
    i = count < VICTIMS_MAX ? count++ : count - 1;
    for (; i > 0 && victims[i - 1].next_ns < more->next_ns; i--) {
        victims[i] = victims[i - 1];
    }
    victims[i] = *more;
    return count;
}

/* Frees the blocks whose next use is farthest away, of those that one search finds, and later than
 * the one of the block that needs the space: `after_ns`. */
static uint64_t evict_farthest_locked(struct stk_cache_disk *disk, uint64_t wanted,
                                      uint64_t after_ns)
{
    struct victim victims[VICTIMS_MAX] = {{0}};
    uint32_t slots = disk->index.slot_count, now = minute_now(), count = 0;
    uint32_t hand = atomic_load_explicit(&disk->index.head->hand, memory_order_relaxed) % slots;
    uint32_t left = (uint32_t)stk_min(slots, SEARCH_SLOTS), seen = 0;
    uint64_t freed = 0;

    for (; left > 0 && seen < CANDIDATES_MAX; left--, hand = (hand + 1) % slots) {
        struct stk_cache_slot *slot = &disk->index.slots[hand];
        struct victim it = {.slot = hand};

        it.state = atomic_load_explicit(&slot->state, memory_order_relaxed);
        if (may_evict_locked(disk, hand, PRESSURE_MUST, now)) {
            bool is_left = stk_cache_state_kind(it.state) != STK_CACHE_VALID;

            it.next_ns = is_left ? STK_CACHE_NEVER : next_use(disk, slot, now);
            seen++;
            if (is_left || it.next_ns > after_ns) {
                count = add_victim(victims, count, &it);
            }
        }
    }
    atomic_store_explicit(&disk->index.head->hand, hand, memory_order_relaxed);
    for (uint32_t i = 0; i < count && freed < wanted; i++) {
        freed += evict_slot_locked(disk, victims[i].slot, victims[i].state);
    }
    return freed;
}

/* Lists the futures of the jobs. Returns whether there are any. */
static bool look_at_futures_locked(struct stk_cache_disk *disk)
{
    struct stk_cache_futures *futures = disk->options.futures;

    return futures && stk_cache_futures_look(
                          futures, stk_clock_ns(),
                          disk->options.has_futures ? &disk->index.head->future_bytes : NULL);
}

/* Frees blocks for the one that needs the space; NULL: for something else. */
static uint64_t evict_locked(struct stk_cache_disk *disk, uint64_t wanted, enum pressure pressure,
                             const struct stk_cache_block *block)
{
    struct stk_cache_next next = {.ns = 0};
    uint64_t freed = 0;

    if (look_at_futures_locked(disk)) {
        next = block ? stk_cache_futures_next(disk->options.futures, block->place, true) : next;
        if (pressure == PRESSURE_MUST || next.is_known) {
            freed = evict_farthest_locked(disk, wanted, pressure == PRESSURE_MUST ? 0 : next.ns);
        }
        if (pressure != PRESSURE_MUST && next.is_known) {
            return freed; /* the blocks that stay are used sooner */
        }
    }
    return freed < wanted ? freed + sweep_locked(disk, wanted - freed, pressure) : freed;
}

/* The bytes that are missing until the file system has its floor and `bytes`. */
static uint64_t below_floor(const struct stk_cache_disk *disk, uint64_t bytes)
{
    struct statvfs space;
    uint64_t free_bytes;

    if (fstatvfs(disk->folder, &space) < 0) {
        return 0; /* the write will say so */
    }
    free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    return free_bytes >= disk->floor_bytes + bytes ? 0 : disk->floor_bytes + bytes - free_bytes;
}

/* Makes sure that accounted bytes fit. block: that needs them; NULL: something else. */
static bool make_space_locked(struct stk_cache_disk *disk, uint64_t bytes,
                              const struct stk_cache_block *block)
{
    uint64_t quota = stk_cache_disk_quota(disk), used = stk_cache_disk_used(disk), missing;

    if (used > quota || bytes > quota - used) {
        uint64_t over = used > quota ? used - quota : 0;

        evict_locked(disk, over > 0 ? over + bytes : bytes,
                     over > 0 || !block ? PRESSURE_MUST : PRESSURE_QUOTA, block);
        used = stk_cache_disk_used(disk);
        if (used > quota || bytes > quota - used) {
            return false;
        }
    }
    missing = below_floor(disk, bytes);
    return missing == 0 || evict_locked(disk, missing, PRESSURE_MUST, block) >= missing;
}

int stk_cache_disk_open_future(struct stk_cache_disk *disk, struct stk_cache_future *future,
                               uint64_t blocks)
{
    uint64_t bytes = stk_cache_future_bytes(blocks);
    int status;

    memset(future, 0, sizeof *future);
    if (disk->status < 0 || disk->options.read_only ||
        bytes > stk_cache_disk_quota(disk) / FUTURE_SHARE) {
        return -ENOSPC;
    }
    status = stk_cache_index_lock(&disk->index, STK_CACHE_LOCK_MS);
    if (status < 0) {
        return status;
    }
    status = make_space_locked(disk, bytes, NULL) ? 0 : -ENOSPC;
    status = status < 0 ? status : stk_cache_future_open(future, disk->folder, blocks);
    if (status == 0) {
        atomic_fetch_add_explicit(&disk->index.head->future_bytes, bytes, memory_order_relaxed);
        stk_cache_futures_look_again(disk->options.futures);
    }
    stk_cache_index_unlock(&disk->index);
    return status;
}

/* ---- reading ---- */

static void drop_damaged(struct stk_cache_disk *disk, uint32_t slot, uint64_t state)
{
    if (stk_cache_disk_drop(disk, slot, state) == 0) {
        atomic_fetch_add_explicit(&disk->dropped, 1, memory_order_relaxed);
    }
}

int stk_cache_disk_read(struct stk_cache_disk *disk, const struct stk_cache_block *block,
                        const struct stk_cache_part *part)
{
    uint64_t state = 0;
    uint32_t slot = disk->status < 0 ? STK_CACHE_NO_SLOT
                                     : stk_cache_index_find(&disk->index, &block->key, &state);
    int status;

    if (slot == STK_CACHE_NO_SLOT || stk_cache_state_kind(state) != STK_CACHE_VALID) {
        return -ENOENT;
    }
    status = fault(disk, STK_CACHE_CALL_READ);
    status = status < 0
                 ? status
                 : stk_cache_block_read(data_of(disk, slot), region_at(disk, slot), block, part);
    if (status == 0) {
        stk_cache_index_touch(&disk->index, slot, minute_now());
        return 0;
    }
    if (status == -EAGAIN) {
        return -EAGAIN;
    }
    if (status == -EBADMSG) { /* or it was evicted meanwhile: then the state is another */
        drop_damaged(disk, slot, state);
    } else {
        pause_fills(disk);
    }
    return -ENOENT;
}

/* ---- filling ---- */

/* Finds a slot for a block that is not in the index. */
static uint32_t new_slot_locked(struct stk_cache_disk *disk, const struct stk_cache_block *block)
{
    uint64_t bytes = accounted(block->bytes);
    uint32_t slot = STK_CACHE_NO_SLOT;

    if (!make_space_locked(disk, bytes, block)) {
        return STK_CACHE_NO_SLOT;
    }
    slot = stk_cache_index_free_slot_locked(&disk->index, &block->key);
    for (uint32_t which = 0; slot == STK_CACHE_NO_SLOT && which < 2; which++) {
        uint32_t first, end = stk_cache_index_bucket(&disk->index, &block->key, which, &first);

        evict_range_locked(disk, first, end, 1, PRESSURE_QUOTA);
        slot = stk_cache_index_free_slot_locked(&disk->index, &block->key);
    }
    return slot != STK_CACHE_NO_SLOT && take_over_locked(disk, slot) ? slot : STK_CACHE_NO_SLOT;
}

static enum stk_cache_turn begin_locked(struct stk_cache_disk *disk,
                                        const struct stk_cache_block *block,
                                        struct stk_cache_fill *fill)
{
    uint64_t state = 0;
    uint32_t slot = stk_cache_index_find(&disk->index, &block->key, &state);

    if (slot == STK_CACHE_NO_SLOT) {
        slot = new_slot_locked(disk, block);
        if (slot == STK_CACHE_NO_SLOT) {
            return STK_CACHE_TURN_REFUSED;
        }
    } else if (stk_cache_state_kind(state) == STK_CACHE_VALID) {
        return STK_CACHE_TURN_PRESENT;
    } else if (!take_over_locked(disk, slot)) {
        return STK_CACHE_TURN_BUSY;
    }
    *fill = (struct stk_cache_fill){
        .disk = disk,
        .slot = slot,
        .state = stk_cache_index_fill_locked(&disk->index, slot, block, accounted(block->bytes)),
        .next = disk->fills,
    };
    disk->fills = fill;
    return STK_CACHE_TURN_MINE;
}

/* Reserves the region, so that the write cannot find the disk full. */
static int reserve(struct stk_cache_disk *disk, uint32_t slot, uint32_t bytes)
{
    uint64_t at = region_at(disk, slot), region = stk_cache_region_bytes(bytes);
    int fd = data_of(disk, slot), status = fault(disk, STK_CACHE_CALL_RESERVE);

    if (status == 0 && region < region_max(disk) &&
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(at + region),
                  (off_t)(region_max(disk) - region)) < 0) {
        status = -errno;
    }
    if (status == 0 && fallocate(fd, 0, (off_t)at, (off_t)region) < 0) {
        status = -errno;
    }
    return status;
}

enum stk_cache_turn stk_cache_disk_begin(struct stk_cache_disk *disk,
                                         const struct stk_cache_block *block,
                                         struct stk_cache_fill *fill_out)
{
    enum stk_cache_turn turn;

    *fill_out = (struct stk_cache_fill){.disk = NULL};
    if (disk->status < 0 || disk->options.read_only || is_paused(disk) ||
        block->bytes > disk->index.block_bytes) {
        return STK_CACHE_TURN_REFUSED;
    }
    if (stk_cache_index_lock(&disk->index, STK_CACHE_LOCK_MS) < 0) {
        pause_fills(disk);
        return STK_CACHE_TURN_REFUSED;
    }
    turn = begin_locked(disk, block, fill_out);
    stk_cache_index_unlock(&disk->index);
    if (turn == STK_CACHE_TURN_MINE && reserve(disk, fill_out->slot, block->bytes) < 0) {
        stk_cache_disk_abandon(fill_out);
        pause_fills(disk);
        return STK_CACHE_TURN_REFUSED;
    }
    return turn;
}

/* Ends a fill. The slot cannot be another fill's: the lock of its byte is still held. Without the
 * lock of the index the slot stays until another process takes it over. */
static bool end_fill(struct stk_cache_fill *fill, bool commit)
{
    struct stk_cache_disk *disk = fill->disk;
    struct stk_cache_fill **link = &disk->fills;
    bool locked = stk_cache_index_lock(&disk->index, STK_CACHE_LOCK_MS) == 0, done = false;

    if (!locked) {
        pthread_mutex_lock(&disk->index.lock);
    }
    while (*link != fill) {
        link = &(*link)->next;
    }
    *link = fill->next;
    if (locked && commit) {
        done = stk_cache_index_commit_locked(&disk->index, fill->slot, fill->state);
    }
    if (locked && !done) { /* abandoned, or invalidated meanwhile */
        (void)free_slot_locked(disk, fill->slot);
    }
    stk_cache_index_unlock_slot(&disk->index, fill->slot);
    if (locked) {
        stk_cache_index_unlock(&disk->index);
    } else {
        pthread_mutex_unlock(&disk->index.lock);
    }
    fill->disk = NULL;
    return done;
}

int stk_cache_disk_write(struct stk_cache_fill *fill, const struct stk_cache_block *block,
                         const uint8_t *data)
{
    struct stk_cache_disk *disk = fill->disk;
    int status = fault(disk, STK_CACHE_CALL_WRITE);

    status = status < 0 ? status
                        : stk_cache_block_write(data_of(disk, fill->slot),
                                                region_at(disk, fill->slot), block, data);
    if (status < 0) {
        stk_cache_disk_abandon(fill);
        pause_fills(disk);
        return status;
    }
    stk_cache_index_touch(&disk->index, fill->slot, minute_now());
    return end_fill(fill, true) ? 0 : -ETIMEDOUT;
}

void stk_cache_disk_abandon(struct stk_cache_fill *fill)
{
    if (fill->disk) {
        (void)end_fill(fill, false);
    }
}

void stk_cache_disk_invalidate(struct stk_cache_disk *disk, const struct stk_cache_block *block)
{
    uint64_t state = 0;
    uint32_t slot;

    if (disk->status < 0 || stk_cache_index_lock(&disk->index, STK_CACHE_LOCK_MS) < 0) {
        return;
    }
    slot = stk_cache_index_find(&disk->index, &block->key, &state);
    if (slot != STK_CACHE_NO_SLOT && stk_cache_state_kind(state) == STK_CACHE_FILLING) {
        stk_cache_index_begin_free_locked(&disk->index, slot); /* the commit of the fill fails */
    }
    stk_cache_index_unlock(&disk->index);
}

/* ---- for tools ---- */

int stk_cache_disk_head(struct stk_cache_disk *disk, uint32_t slot, struct stk_cache_head *head_out,
                        uint64_t *state_out)
{
    uint8_t head[STK_CACHE_HEAD_BYTES];
    uint64_t state = atomic_load_explicit(&disk->index.slots[slot].state, memory_order_acquire);

    *state_out = state;
    if (stk_cache_state_kind(state) != STK_CACHE_VALID) {
        return 0;
    }
    return pread(data_of(disk, slot), head, sizeof head, (off_t)region_at(disk, slot)) ==
                       (ssize_t)sizeof head &&
                   stk_cache_head_decode(head, head_out)
               ? 1
               : -EBADMSG;
}

int stk_cache_disk_drop(struct stk_cache_disk *disk, uint32_t slot, uint64_t state)
{
    int status =
        disk->options.read_only ? -EROFS : stk_cache_index_lock(&disk->index, STK_CACHE_LOCK_MS);

    if (status < 0) {
        return status;
    }
    status = atomic_load_explicit(&disk->index.slots[slot].state, memory_order_relaxed) == state
                 ? free_slot_locked(disk, slot)
                 : -ESTALE;
    stk_cache_index_unlock(&disk->index);
    return status;
}

int stk_cache_disk_pin(struct stk_cache_disk *disk, uint32_t slot, uint64_t state, bool pinned)
{
    int status = stk_cache_index_lock(&disk->index, STK_CACHE_LOCK_MS);

    if (status < 0) {
        return status;
    }
    status = atomic_load_explicit(&disk->index.slots[slot].state, memory_order_relaxed) == state
                 ? 0
                 : -ESTALE;
    if (status == 0) {
        stk_cache_index_pin_locked(&disk->index, slot, pinned);
    }
    stk_cache_index_unlock(&disk->index);
    return status;
}

int64_t stk_cache_disk_collect(struct stk_cache_disk *disk)
{
    uint32_t count = disk->status < 0 ? 0 : disk->index.slot_count;
    int64_t freed = 0;

    for (uint32_t first = 0; first < count; first += STK_CACHE_BUCKET) {
        uint32_t end = (uint32_t)stk_min(count, (uint64_t)first + STK_CACHE_BUCKET);
        uint64_t quota, used, over;
        int status = stk_cache_index_lock(&disk->index, STK_CACHE_LOCK_MS);

        if (status < 0) {
            return status;
        }
        quota = stk_cache_disk_quota(disk);
        used = stk_cache_disk_used(disk);
        over = stk_max(used > quota ? used - quota : 0, below_floor(disk, 0));
        for (uint32_t slot = first; slot < end; slot++) {
            freed += evict_range_locked(disk, slot, slot + 1, UINT64_MAX, PRESSURE_NONE) > 0;
        }
        if (over > 0) {
            used = stk_cache_disk_used(disk);
            freed += evict_range_locked(disk, first, end, over, PRESSURE_MUST) > 0;
        }
        stk_cache_index_unlock(&disk->index);
    }
    return freed;
}
