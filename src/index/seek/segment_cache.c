/* Random reads of packed shards: unpacks full segments between access points and caches them. */
#include "index/seek/segment_cache.h"

#include "base/mem.h"
#include "base/piece_cache.h"
#include "base/xxh3.h"
#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"

#include <errno.h>
#include <string.h>

enum { IN_BYTES = 128 << 10 };

/* The segment that a piece of the cache holds, unless the piece is empty. */
struct key {
    uint64_t segment;
    uint32_t shard;
};

struct stk_segment_cache {
    struct stk_io *io; /* const, as options */
    struct stk_segment_cache_options options;
    _Atomic uint64_t unpacked_bytes;
    struct stk_piece_cache pieces;
    struct key keys[STK_SEGMENT_CACHE_SEGMENTS_MAX]; /* of pieces; under pieces.lock */
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
                       uint32_t *number_out, struct stoker_error *error);
static int decompress(struct stk_segment_cache *cache, const struct segment *segment, uint8_t *to,
                      struct stoker_error *error);

int stk_segment_cache_open(struct stk_segment_cache **cache_out, struct stk_io *io,
                           struct stk_budget *budget,
                           const struct stk_segment_cache_options *options,
                           struct stoker_error *error)
{
    struct stk_segment_cache *cache = stk_alloc(1, sizeof *cache);

    *cache_out = NULL;
    if (!cache || stk_piece_cache_init(&cache->pieces, budget, STK_SEGMENT_CACHE_SEGMENTS_MAX,
                                       options->bytes_max) < 0) {
        stk_free(cache);
        return stk_fail(error, -ENOMEM, "cannot open a data set", "free memory",
                        "compressed shards");
    }
    cache->io = io;
    cache->options = *options;
    *cache_out = cache;
    return 0;
}

void stk_segment_cache_close(struct stk_segment_cache *cache)
{
    if (cache) {
        stk_piece_cache_deinit(&cache->pieces);
        stk_free(cache);
    }
}

uint64_t stk_segment_cache_trim(struct stk_segment_cache *cache)
{
    return stk_piece_cache_trim(&cache->pieces);
}

uint64_t stk_segment_cache_decompressed_bytes(const struct stk_segment_cache *cache)
{
    return atomic_load_explicit(&cache->unpacked_bytes, memory_order_relaxed);
}

int stk_segment_cache_read(struct stk_segment_cache *cache,
                           const struct stk_segment_cache_source *from, uint64_t offset,
                           struct stk_segment_buffer *buffer, struct stoker_error *error)
{
    buffer->got = 0;
    /* Each round goes one segment further. */
    while (buffer->got < buffer->bytes) {
        struct segment segment;
        const struct stk_piece *piece;
        uint64_t at, count;
        uint32_t number;
        int status = find(from, offset + buffer->got, &segment, error);

        if (status <= 0) {
            return status;
        }
        status = pin_segment(cache, &segment, &number, error);
        if (status < 0) {
            return status;
        }
        piece = &cache->pieces.locked.pieces[number]; /* pinned: it does not change */
        at = offset + buffer->got - segment.point.out;
        count = stk_min(buffer->bytes - buffer->got, piece->bytes - at);
        memcpy(buffer->data + buffer->got, piece->data + at, count);
        buffer->got += count;
        stk_piece_cache_unpin(&cache->pieces, number);
    }
    return 0;
}

static int damaged(struct stoker_error *error, const char *detail)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, "a compressed shard and its index do not match",
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
        return damaged(error, "it has no seek points");
    }
    memcpy(&segment->head, head, sizeof segment->head);
    if (!stk_seek_points_head_is_valid(&segment->head, bytes,
                                       stk_index_shard_compression(index, shard),
                                       stk_index_shard_bytes(index, shard)) ||
        !stk_seek_points_is_random_access(&segment->head)) {
        return damaged(error, "its seek points do not match it");
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
        return damaged(error, "a seek point does not match the others");
    }
    segment->from = from;
    segment->number = low;
    segment->in_next = is_last ? segment->head.in_bytes : next.in + 1;
    return 1;
}

/* The piece of the segment, which is ready or being filled; STK_PIECE_NONE if there is none. */
static uint32_t find_piece_locked(const struct stk_segment_cache *cache,
                                  const struct segment *segment)
{
    for (uint32_t i = 0; i < STK_SEGMENT_CACHE_SEGMENTS_MAX; i++) {
        if (cache->keys[i].segment == segment->number &&
            cache->keys[i].shard == segment->from->shard &&
            cache->pieces.locked.pieces[i].state != STK_PIECE_EMPTY) {
            return i;
        }
    }
    return STK_PIECE_NONE;
}

/* Returns an empty piece, for which the least recently used one is evicted if needed;
 * STK_PIECE_NONE if all are being filled or pinned. */
static uint32_t find_empty_locked(struct stk_segment_cache *cache)
{
    for (uint32_t i = 0; i < STK_SEGMENT_CACHE_SEGMENTS_MAX; i++) {
        if (cache->pieces.locked.pieces[i].state == STK_PIECE_EMPTY) {
            return i;
        }
    }
    return stk_piece_cache_evict_locked(&cache->pieces, false);
}

struct decompression {
    struct stk_segment_cache *cache;
    const struct segment *segment;
};

static int fill_piece(void *context, uint8_t *data, struct stoker_error *error)
{
    const struct decompression *decompression = context;

    return decompress(decompression->cache, decompression->segment, data, error);
}

/* Without a reservation the piece is freed with its last pin. */
static int load_locked(struct stk_segment_cache *cache, const struct segment *segment,
                       uint32_t number, struct stoker_error *error)
{
    struct decompression decompression = {cache, segment};
    struct stk_piece_fill fill = {.bytes = segment->out_end - segment->point.out,
                                  .what = "cannot decompress a shard",
                                  .run = fill_piece,
                                  .context = &decompression};

    fill.reserved = stk_piece_cache_reserve_locked(&cache->pieces, fill.bytes, false);
    cache->keys[number] = (struct key){segment->number, segment->from->shard};
    return stk_piece_cache_fill_locked(&cache->pieces, number, &fill, error);
}

/* Finds the segment's piece, or waits for it, or fills one; pins it. */
static int pin_segment(struct stk_segment_cache *cache, const struct segment *segment,
                       uint32_t *number_out, struct stoker_error *error)
{
    struct stk_piece_cache *pieces = &cache->pieces;
    uint32_t number;
    int status = 0;

    pthread_mutex_lock(&pieces->lock);
    /* A thread that fills a piece ends: its reads have a deadline. Pins last for a copy. */
    while ((number = find_piece_locked(cache, segment)) == STK_PIECE_NONE ||
           pieces->locked.pieces[number].state != STK_PIECE_READY) {
        if (number == STK_PIECE_NONE) {
            number = find_empty_locked(cache);
            if (number != STK_PIECE_NONE) {
                status = load_locked(cache, segment, number, error);
                break;
            }
        }
        stk_piece_cache_wait_locked(pieces, NULL);
    }
    if (status == 0) {
        stk_piece_cache_touch_locked(pieces, number);
        stk_piece_cache_pin_locked(pieces, number);
    }
    pthread_mutex_unlock(&pieces->lock);
    *number_out = number;
    return status;
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
            return stk_fail(error, status, "cannot decompress a shard", "free memory", "window");
        }
        if (status < 0) {
            return damaged(error, "the window of a seek point is damaged");
        }
    }
    status = stk_decompress_open(decompress_out, segment->head.compression,
                                 &(struct stk_decompress_limits){options->decompressed_bytes_max,
                                                                 options->decompression_ratio_max,
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
                stk_io_read_wait(segment->from->file, at, in,
                                 stk_min(stk_min(want, IN_BYTES), segment->head.in_bytes - at));

            if (got < 0) {
                return stk_fail(error, (int)got, "cannot read a compressed shard",
                                "check the file and its disk", "%s", stoker_status_text((int)got));
            }
            if (got == 0) {
                return stk_fail(error, STOKER_ERROR_TRUNCATED, "a compressed shard ends too early",
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
               : stk_fail(error, -ENOMEM, "cannot decompress a shard", "free memory", "buffer");

    if (status == 0) {
        status = decompress_segment(cache, segment, decompress, buffer, to, error);
    }
    stk_decompress_close(decompress);
    stk_free(buffer);
    return status;
}
