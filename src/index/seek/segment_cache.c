/* Random reads of packed shards: segments between access points, unpacked whole and kept. */
#include "index/seek/segment_cache.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

enum { IN_BYTES = 128 << 10 };

enum slot_state { FREE = 0, LOADING, READY };

struct slot {
    uint32_t shard, state; /* enum slot_state */
    uint64_t number, used; /* of the segment; clock of the last use */
    uint8_t *data;         /* owned */
    uint64_t bytes;
    uint32_t pins;
    bool reserved; /* in the budget; else it goes with its last pin */
};

struct stk_segment_cache {
    struct stk_io *io; /* const, as the next two */
    struct stk_budget *budget;
    struct stk_segment_cache_options options;
    _Atomic uint64_t unpacked_bytes;
    pthread_mutex_t lock;
    pthread_cond_t loaded;
    struct {
        struct slot slots[STK_SEGMENT_CACHE_SEGMENTS_MAX];
        uint64_t clock, bytes;
    } locked;
};

/* A segment, as the image tells it. */
struct segment {
    const struct stk_segment_cache_source *from;
    uint64_t number, out_end;
    uint64_t in_next; /* where the next one begins; of the last: the shard's end */
    struct stk_seek_points_head head;
    struct stk_seek_point point;
};

static int find(const struct stk_segment_cache_source *from, uint64_t offset,
                struct segment *segment, struct stoker_error *error);
static int pin_segment(struct stk_segment_cache *cache, const struct segment *segment,
                       struct slot **slot_out, struct stoker_error *error);
static int decompress(struct stk_segment_cache *cache, const struct segment *segment, uint8_t *to,
                      struct stoker_error *error);

int stk_segment_cache_open(struct stk_segment_cache **cache_out, struct stk_io *io,
                           struct stk_budget *budget,
                           const struct stk_segment_cache_options *options,
                           struct stoker_error *error)
{
    struct stk_segment_cache *cache = stk_alloc(1, sizeof *cache);

    *cache_out = NULL;
    if (!cache) {
        return stk_fail(error, -ENOMEM, "cannot open a data set", "free memory", "packed shards");
    }
    cache->io = io;
    cache->budget = budget;
    cache->options = *options;
    pthread_mutex_init(&cache->lock, NULL);
    pthread_cond_init(&cache->loaded, NULL);
    *cache_out = cache;
    return 0;
}

static void drop_locked(struct stk_segment_cache *cache, struct slot *slot)
{
    if (slot->reserved) {
        cache->locked.bytes -= slot->bytes;
        stk_budget_release(cache->budget, slot->bytes);
    }
    stk_free(slot->data);
    *slot = (struct slot){0};
}

void stk_segment_cache_close(struct stk_segment_cache *cache)
{
    if (cache) {
        for (uint32_t i = 0; i < STK_SEGMENT_CACHE_SEGMENTS_MAX; i++) {
            STK_ASSERT(cache->locked.slots[i].pins == 0);
            drop_locked(cache, &cache->locked.slots[i]);
        }
        pthread_cond_destroy(&cache->loaded);
        pthread_mutex_destroy(&cache->lock);
        stk_free(cache);
    }
}

uint64_t stk_segment_cache_trim(struct stk_segment_cache *cache)
{
    uint64_t before;

    pthread_mutex_lock(&cache->lock);
    before = cache->locked.bytes;
    for (uint32_t i = 0; i < STK_SEGMENT_CACHE_SEGMENTS_MAX; i++) {
        struct slot *slot = &cache->locked.slots[i];

        if (slot->state == READY && slot->pins == 0) {
            drop_locked(cache, slot);
        }
    }
    before -= cache->locked.bytes;
    pthread_mutex_unlock(&cache->lock);
    return before;
}

uint64_t stk_segment_cache_decompressed_bytes(const struct stk_segment_cache *cache)
{
    return atomic_load_explicit(&cache->unpacked_bytes, memory_order_relaxed);
}

static void unpin(struct stk_segment_cache *cache, struct slot *slot)
{
    pthread_mutex_lock(&cache->lock);
    if (--slot->pins == 0 && !slot->reserved) {
        drop_locked(cache, slot);
    }
    pthread_cond_broadcast(&cache->loaded);
    pthread_mutex_unlock(&cache->lock);
}

int stk_segment_cache_read(struct stk_segment_cache *cache,
                           const struct stk_segment_cache_source *from, uint64_t offset,
                           struct stk_segment_buffer *buffer, struct stoker_error *error)
{
    buffer->got = 0;
    /* Each round goes one segment further. */
    while (buffer->got < buffer->bytes) {
        struct segment segment;
        struct slot *slot;
        uint64_t at, count;
        int status = find(from, offset + buffer->got, &segment, error);

        if (status <= 0) {
            return status;
        }
        status = pin_segment(cache, &segment, &slot, error);
        if (status < 0) {
            return status;
        }
        at = offset + buffer->got - segment.point.out;
        count = stk_min(buffer->bytes - buffer->got, slot->bytes - at);
        memcpy(buffer->data + buffer->got, slot->data + at, count);
        buffer->got += count;
        unpin(cache, slot);
    }
    return 0;
}

static int damaged(struct stoker_error *error, const char *detail)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, "a packed shard and its index do not fit",
                    "check the shard; rebuild the index: 'stoker index --force --seek-points'",
                    "%s", detail);
}

static int read_point(const struct stk_index *index, uint32_t shard, uint64_t number,
                      struct stk_seek_point *point, struct stoker_error *error)
{
    const void *at =
        stk_index_seek_points(index, shard, stk_seek_points_offset(number), sizeof *point, error);

    if (!at) {
        return STOKER_ERROR_CORRUPT;
    }
    memcpy(point, at, sizeof *point);
    return 0;
}

/* The segment that holds the offset. 1: found; 0: the shard ends before it. */
static int find(const struct stk_segment_cache_source *from, uint64_t offset,
                struct segment *segment, struct stoker_error *error)
{
    const struct stk_index *index = from->index;
    uint32_t shard = from->shard;
    uint64_t bytes = stk_index_seek_points_bytes(index, shard);
    struct stk_seek_point next = {0};
    uint64_t low = 0, high;
    bool is_last;
    int status = 0;
    const void *head = bytes < sizeof segment->head
                           ? NULL
                           : stk_index_seek_points(index, shard, 0, sizeof segment->head, error);

    if (!head) {
        return damaged(error, "it has no access points");
    }
    memcpy(&segment->head, head, sizeof segment->head);
    if (!stk_seek_points_head_is_valid(&segment->head, bytes,
                                       stk_index_shard_compression(index, shard),
                                       stk_index_shard_bytes(index, shard)) ||
        !stk_seek_points_is_random_access(&segment->head)) {
        return damaged(error, "its access points contradict it");
    }
    if (offset >= segment->head.out_bytes) {
        return 0;
    }
    /* The last point at or before the offset; whether that is true is checked below. */
    for (high = segment->head.point_count; status == 0 && high - low > 1;) {
        uint64_t middle = low + (high - low) / 2;

        status = read_point(index, shard, middle, &next, error);
        *(next.out <= offset ? &low : &high) = middle;
    }
    is_last = low + 1 == segment->head.point_count;
    status = status < 0 ? status : read_point(index, shard, low, &segment->point, error);
    if (status == 0 && !is_last) {
        status = read_point(index, shard, low + 1, &next, error);
    }
    if (status < 0) {
        return status;
    }
    if (!stk_seek_points_segment(&segment->head, bytes, low, &segment->point,
                                 is_last ? NULL : &next, &segment->out_end) ||
        offset < segment->point.out || offset >= segment->out_end) {
        return damaged(error, "an access point contradicts the others");
    }
    segment->from = from;
    segment->number = low;
    segment->in_next = is_last ? segment->head.in_bytes : next.in + 1;
    return 1;
}

/* A free slot, and room for the bytes, *reserved, as far as it can be had: those used longest ago
 * go. NULL: all slots are in hand. */
static struct slot *evict_locked(struct stk_segment_cache *cache, uint64_t bytes, bool *reserved)
{
    struct slot *slots = cache->locked.slots, *oldest, *vacant;

    do {
        oldest = vacant = NULL;
        for (uint32_t i = 0; i < STK_SEGMENT_CACHE_SEGMENTS_MAX; i++) {
            struct slot *slot = &slots[i];

            if (slot->state == FREE) {
                vacant = slot;
            } else if (slot->state == READY && slot->pins == 0 &&
                       (!oldest || slot->used < oldest->used)) {
                oldest = slot;
            }
        }
        *reserved = vacant && cache->locked.bytes + bytes <= cache->options.bytes_max &&
                    stk_budget_reserve(cache->budget, bytes);
        if (vacant && (*reserved || !oldest)) {
            return vacant;
        }
        if (oldest) {
            drop_locked(cache, oldest);
        }
    } while (oldest);
    return NULL;
}

static struct slot *find_slot_locked(struct stk_segment_cache *cache, const struct segment *segment)
{
    for (uint32_t i = 0; i < STK_SEGMENT_CACHE_SEGMENTS_MAX; i++) {
        struct slot *slot = &cache->locked.slots[i];

        if (slot->state != FREE && slot->shard == segment->from->shard &&
            slot->number == segment->number) {
            return slot;
        }
    }
    return NULL;
}

/* Unpacks into a slot that is LOADING, so nobody else's. */
static int load(struct stk_segment_cache *cache, const struct segment *segment, struct slot *slot,
                struct stoker_error *error)
{
    uint64_t bytes = segment->out_end - segment->point.out;
    uint8_t *data = stk_alloc(bytes, 1);
    int status = data ? decompress(cache, segment, data, error)
                      : stk_fail(error, -ENOMEM, "cannot unpack a shard", "free memory",
                                 "%llu bytes", (unsigned long long)bytes);

    pthread_mutex_lock(&cache->lock);
    if (status == 0) {
        slot->data = data;
        slot->state = READY;
        slot->pins = 1;
    } else {
        drop_locked(cache, slot);
        stk_free(data);
    }
    pthread_cond_broadcast(&cache->loaded);
    pthread_mutex_unlock(&cache->lock);
    return status;
}

/* The segment's slot, pinned. */
static int pin_segment(struct stk_segment_cache *cache, const struct segment *segment,
                       struct slot **slot_out, struct stoker_error *error)
{
    uint64_t bytes = segment->out_end - segment->point.out;
    struct slot *slot;
    bool reserved;

    pthread_mutex_lock(&cache->lock);
    /* Whoever loads ends: its reads have a deadline. Pins last for a copy. */
    for (;;) {
        slot = find_slot_locked(cache, segment);
        if (slot && slot->state == READY) {
            slot->pins++;
            slot->used = ++cache->locked.clock;
            pthread_mutex_unlock(&cache->lock);
            *slot_out = slot;
            return 0;
        }
        if (!slot) {
            slot = evict_locked(cache, bytes, &reserved);
            if (slot) {
                break;
            }
        }
        pthread_cond_wait(&cache->loaded, &cache->lock);
    }
    *slot = (struct slot){.shard = segment->from->shard,
                          .number = segment->number,
                          .state = LOADING,
                          .bytes = bytes,
                          .used = ++cache->locked.clock,
                          .reserved = reserved};
    cache->locked.bytes += reserved ? bytes : 0;
    pthread_mutex_unlock(&cache->lock);
    *slot_out = slot;
    return load(cache, segment, slot, error);
}

static int start(const struct stk_segment_cache *cache, const struct segment *segment,
                 struct stk_decompress **decompress_out, uint8_t *window,
                 struct stoker_error *error)
{
    const struct stk_seek_point *point = &segment->point;
    const struct stk_segment_cache_options *options = &cache->options;
    struct stk_view stored = {NULL, point->window_bytes};
    size_t window_bytes = 0;
    int status;

    if (point->window_bytes > 0) {
        stored.data = stk_index_seek_points(segment->from->index, segment->from->shard,
                                            point->window_at, point->window_bytes, error);
        if (!stored.data) {
            return STOKER_ERROR_CORRUPT;
        }
        status = stk_seek_points_window(point, stored, window, &window_bytes);
        if (status == -ENOMEM) {
            return stk_fail(error, status, "cannot unpack a shard", "free memory", "window");
        }
        if (status < 0) {
            return damaged(error, "the window of an access point is damaged");
        }
    }
    status = stk_decompress_open(decompress_out, segment->head.compression,
                                 &(struct stk_decompress_limits){options->unpacked_bytes_max,
                                                                 options->unpacked_ratio_max,
                                                                 options->grant},
                                 error);
    return status < 0 ? status
                      : stk_decompress_start_at(*decompress_out, point,
                                                (struct stk_view){window, window_bytes}, error);
}

/* The packed bytes of a segment through the unpacker. */
static int decompress_segment(struct stk_segment_cache *cache, const struct segment *segment,
                              struct stk_decompress *decompress, uint8_t *in, uint8_t *to,
                              struct stoker_error *error)
{
    uint64_t bytes = segment->out_end - segment->point.out, done = 0, at = segment->point.in;
    struct stk_view rest = {in, 0};
    int more = 1;

    while (more > 0 && done < bytes) {
        size_t written;

        if (rest.bytes == 0 && at < segment->head.in_bytes) {
            /* To the next segment, and beyond only if that is not enough. */
            uint64_t want = at < segment->in_next ? segment->in_next - at : 512;
            int64_t got =
                stk_io_read_wait(cache->io, segment->from->file, at, in,
                                 stk_min(stk_min(want, IN_BYTES), segment->head.in_bytes - at));

            if (got < 0) {
                return stk_fail(error, (int)got, "cannot read a packed shard",
                                "check the file and its disk", "%s", stoker_status_text((int)got));
            }
            if (got == 0) {
                return stk_fail(error, STOKER_ERROR_TRUNCATED, "a packed shard ends too early",
                                "fetch the shard again", "at byte %llu", (unsigned long long)at);
            }
            rest = (struct stk_view){in, (size_t)got};
            at += (uint64_t)got;
        }
        more = stk_decompress_run(decompress, &rest, at >= segment->head.in_bytes, to + done,
                                  bytes - done, &written, error);
        done += written;
    }
    atomic_fetch_add_explicit(&cache->unpacked_bytes, done, memory_order_relaxed);
    if (more < 0) {
        return more;
    }
    if (done < bytes || stk_xxh3_64(to, bytes) != segment->point.checksum) {
        return damaged(error, "what is unpacked is not what was indexed");
    }
    return 0;
}

static int decompress(struct stk_segment_cache *cache, const struct segment *segment, uint8_t *to,
                      struct stoker_error *error)
{
    uint8_t *buffer = stk_alloc(IN_BYTES + STK_SEEK_POINTS_WINDOW_BYTES, 1);
    struct stk_decompress *decompress = NULL;
    int status =
        buffer ? start(cache, segment, &decompress, buffer + IN_BYTES, error)
               : stk_fail(error, -ENOMEM, "cannot unpack a shard", "free memory", "room to read");

    if (status == 0) {
        status = decompress_segment(cache, segment, decompress, buffer, to, error);
    }
    stk_decompress_close(decompress);
    stk_free(buffer);
    return status;
}
