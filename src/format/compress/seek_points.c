/* Access points: collected while a shard is unpacked, and looked at without trust. */
#include "format/compress/seek_points.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "format/compress/decompress.h"

#include <errno.h>
#include <string.h>
#define ZSTD_STATIC_LINKING_ONLY /* for contexts that allocate by us */
#include <zstd.h>

enum { WINDOW_LEVEL = 1, POINTS_FIRST = 64, WINDOWS_FIRST = 1 << 18 };

struct stk_access_maker {
    struct stk_access_head head;
    uint64_t spacing;
    bool windows;
    struct stk_sum *sum;             /* owned: of the segment so far */
    struct stk_access_point *points; /* owned; window_at counts from the first window */
    uint64_t point_capacity;
    uint8_t *texts; /* owned: windows, end to end */
    uint64_t text_bytes, text_capacity;
    ZSTD_CCtx *packer; /* owned; NULL: no windows */
    uint8_t *room;     /* owned: of a packed window */
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
    return stk_fail(error, -ENOMEM, "no memory for access points",
                    "free memory, or ask for fewer: a larger --access", "packed shard");
}

int stk_access_maker_open(struct stk_access_maker **maker_out, uint32_t packing, uint64_t spacing,
                          bool windows, struct stoker_error *error)
{
    struct stk_access_maker *maker = stk_alloc(1, sizeof *maker);
    bool complete = false;

    STK_ASSERT(packing == STK_GZIP || packing == STK_ZSTD);
    *maker_out = NULL;
    if (maker) {
        maker->head.packing = packing;
        maker->spacing =
            stk_max(spacing ? spacing : STK_ACCESS_SPACING_DEFAULT, STK_ACCESS_SPACING_MIN);
        maker->windows = windows && packing == STK_GZIP;
        maker->sum = stk_sum_open();
        complete = maker->sum;
    }
    if (complete && maker->windows) {
        maker->room_bytes = ZSTD_compressBound(STK_ACCESS_WINDOW);
        maker->room = stk_alloc(maker->room_bytes, 1);
        maker->packer = ZSTD_createCCtx_advanced(zstd_memory);
        complete = maker->room && maker->packer;
    }
    if (!complete) {
        stk_access_maker_close(maker);
        return no_memory(error);
    }
    *maker_out = maker;
    return 0;
}

void stk_access_maker_close(struct stk_access_maker *maker)
{
    if (maker) {
        stk_sum_close(maker->sum);
        ZSTD_freeCCtx(maker->packer);
        stk_free(maker->points);
        stk_free(maker->texts);
        stk_free(maker->room);
        stk_free(maker);
    }
}

void stk_access_maker_bytes(struct stk_access_maker *maker, struct stk_view bytes)
{
    stk_sum_add(maker->sum, bytes.data, bytes.bytes);
    maker->head.out_bytes += bytes.bytes;
}

/* Where the segment that is being filled begins. */
static uint64_t segment_start(const struct stk_access_maker *maker)
{
    return maker->head.point_count > 0 ? maker->points[maker->head.point_count - 1].out : 0;
}

bool stk_access_maker_wants(const struct stk_access_maker *maker, bool inside)
{
    return maker->status == 0 && (maker->windows || !inside) &&
           (maker->head.point_count == 0 ||
            maker->head.out_bytes - segment_start(maker) >= maker->spacing);
}

/* Ends the segment that is being filled, if there is one. */
static void end_segment(struct stk_access_maker *maker)
{
    uint64_t bytes = maker->head.out_bytes - segment_start(maker);

    if (maker->head.point_count > 0) {
        maker->points[maker->head.point_count - 1].sum = stk_sum_done(maker->sum);
        maker->head.segment_bytes_max = stk_max(maker->head.segment_bytes_max, bytes);
    }
}

/* Room for one more of both; what an image may have is checked here. */
static int grow(struct stk_access_maker *maker)
{
    uint64_t count = maker->head.point_count;
    uint64_t image = stk_access_point_at(count + 1) + maker->text_bytes + STK_ACCESS_WINDOW;

    if (image > STK_ACCESS_IMAGE_MAX) {
        return STOKER_ERROR_LIMIT;
    }
    if (count == maker->point_capacity) {
        uint64_t capacity = count ? 2 * count : POINTS_FIRST;
        void *points = stk_realloc(maker->points, count, capacity, sizeof *maker->points);

        if (!points) {
            return -ENOMEM;
        }
        maker->points = points;
        maker->point_capacity = capacity;
    }
    if (maker->windows && maker->text_capacity - maker->text_bytes < STK_ACCESS_WINDOW) {
        uint64_t capacity = maker->text_capacity ? 2 * maker->text_capacity : WINDOWS_FIRST;
        uint8_t *texts = stk_realloc(maker->texts, maker->text_capacity, capacity, 1);

        if (!texts) {
            return -ENOMEM;
        }
        maker->texts = texts;
        maker->text_capacity = capacity;
    }
    return 0;
}

void stk_access_maker_point(struct stk_access_maker *maker, uint64_t in, uint32_t bits,
                            struct stk_view window)
{
    struct stk_access_point *point;

    STK_ASSERT(window.bytes <= STK_ACCESS_WINDOW && (maker->windows || window.bytes == 0));
    maker->status = maker->status < 0 ? maker->status : grow(maker);
    if (maker->status < 0) {
        return;
    }
    end_segment(maker);
    point = &maker->points[maker->head.point_count++];
    *point = (struct stk_access_point){
        .out = maker->head.out_bytes, .in = in, .bits = bits, .kind = STK_ACCESS_STREAM};
    if (window.bytes > 0) {
        size_t packed = ZSTD_compressCCtx(maker->packer, maker->room, maker->room_bytes,
                                          window.data, window.bytes, WINDOW_LEVEL);
        bool smaller = !ZSTD_isError(packed) && packed < window.bytes;

        point->kind = smaller ? STK_ACCESS_PACKED : STK_ACCESS_RAW;
        point->window_at = maker->text_bytes;
        point->window_bytes = smaller ? packed : window.bytes;
        memcpy(maker->texts + maker->text_bytes, smaller ? maker->room : window.data,
               point->window_bytes);
        maker->text_bytes += point->window_bytes;
    }
}

int stk_access_maker_done(struct stk_access_maker *maker, uint64_t in_bytes,
                          struct stk_view *image_out, struct stoker_error *error)
{
    struct stk_access_head *head = &maker->head;
    uint64_t texts_at, bytes;
    uint8_t *image;

    *image_out = (struct stk_view){0};
    if (maker->status == STOKER_ERROR_LIMIT) {
        return stk_fail(error, maker->status, "too many access points for one shard",
                        "ask for fewer: a larger --access", "%u points", head->point_count);
    }
    if (maker->status < 0) {
        return no_memory(error);
    }
    if (head->point_count > 0 && segment_start(maker) == head->out_bytes) {
        head->point_count--; /* as before a frame with nothing in it */
        maker->text_bytes -= maker->points[head->point_count].window_bytes;
    } else {
        end_segment(maker);
    }
    if (head->point_count == 0) {
        return 0;
    }
    head->in_bytes = in_bytes;
    texts_at = stk_access_point_at(head->point_count);
    bytes = texts_at + maker->text_bytes;
    image = stk_alloc(bytes, 1);
    if (!image) {
        return no_memory(error);
    }
    for (uint32_t i = 0; i < head->point_count; i++) {
        struct stk_access_point *point = &maker->points[i];

        point->window_at = point->window_bytes > 0 ? point->window_at + texts_at : 0;
    }
    memcpy(image, head, sizeof *head);
    memcpy(image + sizeof *head, maker->points, head->point_count * sizeof *maker->points);
    if (maker->text_bytes > 0) {
        memcpy(image + texts_at, maker->texts, maker->text_bytes);
    }
    *image_out = (struct stk_view){image, bytes};
    return 0;
}

bool stk_access_head_good(const struct stk_access_head *head, uint64_t image_bytes,
                          uint32_t packing, uint64_t in_bytes)
{
    return image_bytes >= sizeof *head && head->packing == packing &&
           (packing == STK_GZIP || packing == STK_ZSTD) && head->in_bytes == in_bytes &&
           head->point_count > 0 && stk_access_point_at(head->point_count) <= image_bytes &&
           head->segment_bytes_max > 0 && head->segment_bytes_max <= head->out_bytes;
}

bool stk_access_reaches(const struct stk_access_head *head)
{
    return head->segment_bytes_max <= STK_ACCESS_SEGMENT_MAX;
}

bool stk_access_segment(const struct stk_access_head *head, uint64_t image_bytes, uint64_t number,
                        const struct stk_access_point *point, const struct stk_access_point *next,
                        uint64_t *out_end)
{
    bool inside = point->kind == STK_ACCESS_RAW || point->kind == STK_ACCESS_PACKED;
    uint64_t window_end;

    *out_end = next ? next->out : head->out_bytes;
    if (point->in >= head->in_bytes || point->out >= *out_end || *out_end > head->out_bytes ||
        *out_end - point->out > head->segment_bytes_max || point->bits > 7 ||
        (number == 0 && (point->in | point->out | point->bits) != 0)) {
        return false;
    }
    if (!inside) {
        return point->kind == STK_ACCESS_STREAM && (point->window_at | point->bits) == 0 &&
               point->window_bytes == 0;
    }
    return head->packing == STK_GZIP && point->window_bytes > 0 &&
           point->window_bytes <= STK_ACCESS_WINDOW &&
           point->window_at >= stk_access_point_at(head->point_count) &&
           stk_add(point->window_at, point->window_bytes, &window_end) && window_end <= image_bytes;
}

int stk_access_window(const struct stk_access_point *point, struct stk_view stored,
                      uint8_t window_out[STK_ACCESS_WINDOW], size_t *bytes_out)
{
    ZSTD_DCtx *unpacker;
    size_t bytes;

    *bytes_out = 0;
    if (stored.bytes != point->window_bytes || stored.bytes > STK_ACCESS_WINDOW) {
        return STOKER_ERROR_CORRUPT;
    }
    if (point->kind != STK_ACCESS_PACKED) {
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
    bytes = ZSTD_decompressDCtx(unpacker, window_out, STK_ACCESS_WINDOW, stored.data, stored.bytes);
    ZSTD_freeDCtx(unpacker);
    *bytes_out = ZSTD_isError(bytes) ? 0 : bytes;
    return ZSTD_isError(bytes) ? STOKER_ERROR_CORRUPT : 0;
}
