/* Seek points: collected while a shard is decompressed, and validated before they are used. */
#include "format/compress/seek_points.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "format/compress/decompress.h"

#include <errno.h>
#include <string.h>
#define ZSTD_STATIC_LINKING_ONLY /* for contexts that allocate by us */
#include <zstd.h>

enum { WINDOW_LEVEL = 1, POINTS_FIRST = 64, WINDOWS_FIRST = 1 << 18 };

struct stk_seek_points_builder {
    struct stk_seek_points_head head;
    uint64_t spacing;
    bool windows;
    struct stk_xxh3 *sum;          /* owned: of the segment so far */
    struct stk_seek_point *points; /* owned; window_at counts from the first window */
    uint64_t point_capacity;
    uint8_t *texts; /* owned: windows, end to end */
    uint64_t text_bytes, text_capacity;
    ZSTD_CCtx *packer; /* owned; NULL: no windows */
    uint8_t *room;     /* owned: of a compressed window */
    size_t room_bytes;
    int status;
};

static void *alloc_zstd(void *unused, size_t bytes)
{
    (void)unused;
    return stk_alloc(bytes, 1);
}

static void free_zstd(void *unused, void *block)
{
    (void)unused;
    stk_free(block);
}

static const ZSTD_customMem zstd_memory = {alloc_zstd, free_zstd, NULL};

static int no_memory(struct stoker_error *error)
{
    return stk_fail(error, -ENOMEM, "no memory for seek points",
                    "free memory, or use a larger --seek-points", "compressed shard");
}

int stk_seek_points_builder_open(struct stk_seek_points_builder **builder_out, uint32_t compression,
                                 uint64_t spacing, bool windows, struct stoker_error *error)
{
    struct stk_seek_points_builder *builder = stk_alloc(1, sizeof *builder);
    bool complete = false;

    STK_ASSERT(compression == STK_COMPRESSION_GZIP || compression == STK_COMPRESSION_ZSTD);
    *builder_out = NULL;
    if (builder) {
        builder->head.compression = compression;
        builder->spacing = stk_max(spacing ? spacing : STK_SEEK_POINTS_SPACING_DEFAULT,
                                   STK_SEEK_POINTS_SPACING_MIN);
        builder->windows = windows && compression == STK_COMPRESSION_GZIP;
        builder->sum = stk_xxh3_open();
        complete = builder->sum;
    }
    if (complete && builder->windows) {
        builder->room_bytes = ZSTD_compressBound(STK_SEEK_POINTS_WINDOW_BYTES);
        builder->room = stk_alloc(builder->room_bytes, 1);
        builder->packer = ZSTD_createCCtx_advanced(zstd_memory);
        complete = builder->room && builder->packer;
    }
    if (!complete) {
        stk_seek_points_builder_close(builder);
        return no_memory(error);
    }
    *builder_out = builder;
    return 0;
}

void stk_seek_points_builder_close(struct stk_seek_points_builder *builder)
{
    if (builder) {
        stk_xxh3_close(builder->sum);
        ZSTD_freeCCtx(builder->packer);
        stk_free(builder->points);
        stk_free(builder->texts);
        stk_free(builder->room);
        stk_free(builder);
    }
}

void stk_seek_points_builder_add_bytes(struct stk_seek_points_builder *builder,
                                       struct stk_view bytes)
{
    stk_xxh3_add(builder->sum, bytes.data, bytes.bytes);
    builder->head.out_bytes += bytes.bytes;
}

/* The place of the segment that is being filled. */
static uint64_t segment_start(const struct stk_seek_points_builder *builder)
{
    return builder->head.point_count > 0 ? builder->points[builder->head.point_count - 1].out : 0;
}

bool stk_seek_points_builder_is_due(const struct stk_seek_points_builder *builder, bool inside)
{
    return builder->status == 0 && (builder->windows || !inside) &&
           (builder->head.point_count == 0 ||
            builder->head.out_bytes - segment_start(builder) >= builder->spacing);
}

/* Ends the segment that is being filled, if there is one. */
static void end_segment(struct stk_seek_points_builder *builder)
{
    uint64_t bytes = builder->head.out_bytes - segment_start(builder);

    if (builder->head.point_count > 0) {
        builder->points[builder->head.point_count - 1].checksum = stk_xxh3_done(builder->sum);
        builder->head.segment_bytes_max = stk_max(builder->head.segment_bytes_max, bytes);
    }
}

/* Makes space for one more point and window, within the limits of an image. */
static int grow(struct stk_seek_points_builder *builder)
{
    uint64_t count = builder->head.point_count;
    uint64_t image =
        stk_seek_points_offset(count + 1) + builder->text_bytes + STK_SEEK_POINTS_WINDOW_BYTES;

    if (image > STK_SEEK_POINTS_IMAGE_MAX) {
        return STOKER_ERROR_LIMIT;
    }
    if (count == builder->point_capacity) {
        uint64_t capacity = count ? 2 * count : POINTS_FIRST;
        void *points = stk_realloc(builder->points, count, capacity, sizeof *builder->points);

        if (!points) {
            return -ENOMEM;
        }
        builder->points = points;
        builder->point_capacity = capacity;
    }
    if (builder->windows &&
        builder->text_capacity - builder->text_bytes < STK_SEEK_POINTS_WINDOW_BYTES) {
        uint64_t capacity = builder->text_capacity ? 2 * builder->text_capacity : WINDOWS_FIRST;
        uint8_t *texts = stk_realloc(builder->texts, builder->text_capacity, capacity, 1);

        if (!texts) {
            return -ENOMEM;
        }
        builder->texts = texts;
        builder->text_capacity = capacity;
    }
    return 0;
}

void stk_seek_points_builder_add_point(struct stk_seek_points_builder *builder, uint64_t in,
                                       uint32_t bits, struct stk_view window)
{
    struct stk_seek_point *point;

    STK_ASSERT(window.bytes <= STK_SEEK_POINTS_WINDOW_BYTES &&
               (builder->windows || window.bytes == 0));
    builder->status = builder->status < 0 ? builder->status : grow(builder);
    if (builder->status < 0) {
        return;
    }
    end_segment(builder);
    point = &builder->points[builder->head.point_count++];
    *point = (struct stk_seek_point){
        .out = builder->head.out_bytes, .in = in, .bits = bits, .kind = STK_SEEK_POINT_STREAM};
    if (window.bytes > 0) {
        size_t packed = ZSTD_compressCCtx(builder->packer, builder->room, builder->room_bytes,
                                          window.data, window.bytes, WINDOW_LEVEL);
        bool smaller = !ZSTD_isError(packed) && packed < window.bytes;

        point->kind = smaller ? STK_SEEK_POINT_COMPRESSED : STK_SEEK_POINT_RAW;
        point->window_at = builder->text_bytes;
        point->window_bytes = smaller ? packed : window.bytes;
        memcpy(builder->texts + builder->text_bytes, smaller ? builder->room : window.data,
               point->window_bytes);
        builder->text_bytes += point->window_bytes;
    }
}

int stk_seek_points_builder_finish(struct stk_seek_points_builder *builder, uint64_t in_bytes,
                                   struct stk_view *image_out, struct stoker_error *error)
{
    struct stk_seek_points_head *head = &builder->head;
    uint64_t texts_at, bytes;
    uint8_t *image;

    *image_out = (struct stk_view){0};
    if (builder->status == STOKER_ERROR_LIMIT) {
        return stk_fail(error, builder->status, "too many seek points for one shard",
                        "ask for fewer: a larger --seek-points", "%u points", head->point_count);
    }
    if (builder->status < 0) {
        return no_memory(error);
    }
    if (head->point_count > 0 && segment_start(builder) == head->out_bytes) {
        head->point_count--; /* as before a frame with nothing in it */
        builder->text_bytes -= builder->points[head->point_count].window_bytes;
    } else {
        end_segment(builder);
    }
    if (head->point_count == 0) {
        return 0;
    }
    head->in_bytes = in_bytes;
    texts_at = stk_seek_points_offset(head->point_count);
    bytes = texts_at + builder->text_bytes;
    image = stk_alloc(bytes, 1);
    if (!image) {
        return no_memory(error);
    }
    for (uint32_t i = 0; i < head->point_count; i++) {
        struct stk_seek_point *point = &builder->points[i];

        point->window_at = point->window_bytes > 0 ? point->window_at + texts_at : 0;
    }
    memcpy(image, head, sizeof *head);
    memcpy(image + sizeof *head, builder->points, head->point_count * sizeof *builder->points);
    if (builder->text_bytes > 0) {
        memcpy(image + texts_at, builder->texts, builder->text_bytes);
    }
    *image_out = (struct stk_view){image, bytes};
    return 0;
}

bool stk_seek_points_head_is_valid(const struct stk_seek_points_head *head, uint64_t image_bytes,
                                   uint32_t compression, uint64_t in_bytes)
{
    return image_bytes >= sizeof *head && head->compression == compression &&
           (compression == STK_COMPRESSION_GZIP || compression == STK_COMPRESSION_ZSTD) &&
           head->in_bytes == in_bytes && head->point_count > 0 &&
           stk_seek_points_offset(head->point_count) <= image_bytes &&
           head->segment_bytes_max > 0 && head->segment_bytes_max <= head->out_bytes;
}

bool stk_seek_points_is_random_access(const struct stk_seek_points_head *head)
{
    return head->segment_bytes_max <= STK_SEEK_POINTS_SEGMENT_MAX;
}

bool stk_seek_points_segment(const struct stk_seek_points_head *head, uint64_t image_bytes,
                             uint64_t number, const struct stk_seek_point *point,
                             const struct stk_seek_point *next, uint64_t *out_end)
{
    bool inside = point->kind == STK_SEEK_POINT_RAW || point->kind == STK_SEEK_POINT_COMPRESSED;
    uint64_t window_end;

    *out_end = next ? next->out : head->out_bytes;
    if (point->in >= head->in_bytes || point->out >= *out_end || *out_end > head->out_bytes ||
        *out_end - point->out > head->segment_bytes_max || point->bits > 7 ||
        (number == 0 && (point->in | point->out | point->bits) != 0)) {
        return false;
    }
    if (!inside) {
        return point->kind == STK_SEEK_POINT_STREAM && (point->window_at | point->bits) == 0 &&
               point->window_bytes == 0;
    }
    return head->compression == STK_COMPRESSION_GZIP && point->window_bytes > 0 &&
           point->window_bytes <= STK_SEEK_POINTS_WINDOW_BYTES &&
           point->window_at >= stk_seek_points_offset(head->point_count) &&
           stk_add(point->window_at, point->window_bytes, &window_end) && window_end <= image_bytes;
}

int stk_seek_points_window(const struct stk_seek_point *point, struct stk_view stored,
                           uint8_t window_out[STK_SEEK_POINTS_WINDOW_BYTES], size_t *bytes_out)
{
    ZSTD_DCtx *unpacker;
    size_t bytes;

    *bytes_out = 0;
    if (stored.bytes != point->window_bytes || stored.bytes > STK_SEEK_POINTS_WINDOW_BYTES) {
        return STOKER_ERROR_CORRUPT;
    }
    if (point->kind != STK_SEEK_POINT_COMPRESSED) {
        if (stored.bytes > 0) {
            memcpy(window_out, stored.data, stored.bytes);
        }
        *bytes_out = stored.bytes;
        return 0;
    }
    unpacker = ZSTD_createDCtx_advanced(zstd_memory);
    if (!unpacker) {
        return -ENOMEM;
    }
    bytes = ZSTD_decompressDCtx(unpacker, window_out, STK_SEEK_POINTS_WINDOW_BYTES, stored.data,
                                stored.bytes);
    ZSTD_freeDCtx(unpacker);
    *bytes_out = ZSTD_isError(bytes) ? 0 : bytes;
    return ZSTD_isError(bytes) ? STOKER_ERROR_CORRUPT : 0;
}
