/* Goal: decompression from a seek point gives the same bytes as decompression from the start, for
 * every point of every kind of stream; the image does not depend on the portions of the input; a
 * false image never gives wrong bytes.
 * Method: streams made by zlib and libzstd, in tables: levels, stored blocks, flushes, many members
 * with padding between them, many frames, one frame. Decompression starts at every point. Every
 * byte of an image is changed in turn. */
#include "base/mem.h"
#include "base/xxh3.h"
#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { DATA_BYTES = 3 << 20, ROOM_BYTES = DATA_BYTES + (1 << 20), SPACING = 256 << 10 };
static uint8_t data[DATA_BYTES], packed[ROOM_BYTES], out[ROOM_BYTES];

enum mix { TEXT, NOISE, BOTH };

static void fill_data(enum mix mix)
{
    uint32_t state = 7;

    for (int i = 0; i < DATA_BYTES; i++) {
        bool noise = mix == NOISE || (mix == BOTH && (i >> 15) % 2);

        state = state * 1664525 + 1013904223;
        data[i] = noise ? state >> 24 : (uint8_t)"the quick brown fox "[(state >> 29) + i % 13];
    }
}

struct shape {
    const char *name;
    uint32_t packing;
    int level;
    size_t member_bytes; /* 0: one member or frame */
    size_t flush_bytes;  /* 0: none */
    size_t padding;      /* zeros between members */
    bool skippable;      /* zstd: a skippable frame after each */
    enum mix mix;
    bool inside; /* points inside of members are needed to reach */
};

static size_t pack_gzip(const struct shape *shape, const uint8_t *bytes, size_t count, uint8_t *to)
{
    z_stream stream = {.next_in = (uint8_t *)(uintptr_t)bytes,
                       .next_out = to,
                       .avail_out = packed + ROOM_BYTES - to};
    size_t step = shape->flush_bytes ? shape->flush_bytes : count;

    T_EQ(shape->name,
         deflateInit2(&stream, shape->level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
         Z_OK);
    for (size_t at = 0; at < count; at += step) {
        stream.avail_in = stk_min(step, count - at);
        deflate(&stream, at + step < count ? Z_SYNC_FLUSH : Z_FINISH);
    }
    deflateEnd(&stream);
    return stream.total_out;
}

static size_t pack_zstd(const struct shape *shape, const uint8_t *bytes, size_t count, uint8_t *to)
{
    size_t used = ZSTD_compress(to, packed + ROOM_BYTES - to, bytes, count, shape->level);

    T_TRUE(shape->name, !ZSTD_isError(used));
    if (shape->skippable) {
        memcpy(to + used, "\x5e\x2a\x4d\x18\x03\0\0\0abc", 11);
        used += 11;
    }
    return used;
}

static size_t pack(const struct shape *shape)
{
    size_t step = shape->member_bytes ? shape->member_bytes : DATA_BYTES, used = 0;

    for (size_t at = 0; at < DATA_BYTES; at += step) {
        size_t count = stk_min(step, DATA_BYTES - at);

        used += shape->packing == STK_COMPRESSION_GZIP
                    ? pack_gzip(shape, data + at, count, packed + used)
                    : pack_zstd(shape, data + at, count, packed + used);
        memset(packed + used, 0, shape->padding);
        used += shape->padding;
    }
    return used;
}

/* Decompresses all in portions and returns the image. */
static int make(const struct shape *shape, size_t used, size_t in_step, size_t out_step,
                struct stk_view *image, struct stoker_error *error)
{
    struct stk_seek_points_builder *maker = NULL;
    struct stk_decompress *unpack = NULL;
    size_t given = 0, written = 0, count;
    int more = 1,
        status = stk_seek_points_builder_open(&maker, shape->packing, SPACING, true, error);

    *image = (struct stk_view){0};
    status = status < 0 ? status
                        : stk_decompress_open(&unpack, shape->packing,
                                              &(struct stk_decompress_limits){0}, error);
    status = status < 0 ? status : stk_decompress_set_builder(unpack, maker, error);
    while (status == 0 && more > 0) {
        struct stk_view in = {packed + given, stk_min(in_step, used - given)};

        more = stk_decompress_run(unpack, &in, given + in.bytes == used, out + written,
                                  stk_min(out_step, ROOM_BYTES - written), &count, error);
        status = more < 0 ? more : 0;
        given = in.data - packed;
        written += count;
    }
    if (status == 0) {
        T_EQ(shape->name, written, DATA_BYTES);
        T_TRUE(shape->name, memcmp(out, data, DATA_BYTES) == 0);
        status = stk_seek_points_builder_finish(maker, used, image, error);
    }
    stk_decompress_close(unpack);
    stk_seek_points_builder_close(maker);
    return status;
}

/* Decompresses segment `number` into `out`; returns its bytes, 0: refused. Uses only the image, as
 * a data set does. */
static size_t enter(struct stk_view image, uint64_t number, uint32_t packing, size_t used)
{
    struct stk_seek_points_head head = {0};
    struct stk_seek_point point, next;
    struct stk_decompress *unpack = NULL;
    static uint8_t window[STK_SEEK_POINTS_WINDOW_BYTES];
    struct stoker_error error = {0};
    size_t window_bytes, written = 0, count;
    uint64_t end;
    int status;

    memcpy(&head, image.data, stk_min(sizeof head, image.bytes));
    if (!stk_seek_points_head_is_valid(&head, image.bytes, packing, used) ||
        !stk_seek_points_is_random_access(&head) || number >= head.point_count) {
        return 0;
    }
    memcpy(&point, image.data + stk_seek_points_offset(number), sizeof point);
    if (number + 1 < head.point_count) {
        memcpy(&next, image.data + stk_seek_points_offset(number + 1), sizeof next);
    }
    if (!stk_seek_points_segment(&head, image.bytes, number, &point,
                                 number + 1 < head.point_count ? &next : NULL, &end)) {
        return 0;
    }
    status = stk_seek_points_window(
        &point, (struct stk_view){image.data + point.window_at, point.window_bytes}, window,
        &window_bytes);
    if (status < 0 || end - point.out > ROOM_BYTES) {
        return 0;
    }
    status = stk_decompress_open(&unpack, packing, &(struct stk_decompress_limits){0}, &error);
    status = status < 0 ? status
                        : stk_decompress_start_at(unpack, &point,
                                                  (struct stk_view){window, window_bytes}, &error);
    for (uint64_t at = point.in; status == 0 && written < end - point.out;) {
        struct stk_view in = {packed + at, stk_min(1000, used - at)};

        status = stk_decompress_run(unpack, &in, at + in.bytes == used, out + written,
                                    end - point.out - written, &count, &error);
        written += count;
        at = in.data - packed;
        status = status == 1 ? 0 : status == 0 && written < end - point.out ? -1 : status;
    }
    stk_decompress_close(unpack);
    return status == 0 && stk_xxh3_64(out, written) == point.checksum ? written : 0;
}

static const struct shape shapes[] = {
    {"gzip of text", STK_COMPRESSION_GZIP, 6, 0, 0, 0, false, TEXT, true},
    {"gzip, fast", STK_COMPRESSION_GZIP, 1, 0, 0, 0, false, BOTH, true},
    {"gzip, stored blocks", STK_COMPRESSION_GZIP, 0, 0, 0, 0, false, NOISE, true},
    {"gzip of noise", STK_COMPRESSION_GZIP, 6, 0, 0, 0, false, NOISE, true},
    {"gzip, flushed", STK_COMPRESSION_GZIP, 6, 0, 5000, 0, false, BOTH, true},
    {"gzip, many members", STK_COMPRESSION_GZIP, 6, 50000, 0, 0, false, BOTH, false},
    {"gzip, few members and padding", STK_COMPRESSION_GZIP, 6, 1300000, 0, 777, false, BOTH, true},
    {"zstd, many frames", STK_COMPRESSION_ZSTD, 3, 60000, 0, 0, false, BOTH, false},
    {"zstd, skippable frames", STK_COMPRESSION_ZSTD, 3, 60000, 0, 0, true, TEXT, false},
    {"zstd, one frame", STK_COMPRESSION_ZSTD, 3, 0, 0, 0, false, BOTH, false},
};

static void test_points(void)
{
    T_EACH(shape, shape, shapes)
    {
        struct stoker_error error = {0};
        struct stk_view image, again;
        struct stk_seek_points_head head;
        uint64_t at = 0;
        size_t used;

        fill_data(shape->mix);
        used = pack(shape);
        T_EQ(shape->name, make(shape, used, SIZE_MAX, SIZE_MAX, &image, &error), 0);
        memcpy(&head, image.data, sizeof head);
        T_EQ(shape->name, head.out_bytes, DATA_BYTES);
        T_EQ(shape->name, head.in_bytes, used);
        if (shape->packing == STK_COMPRESSION_ZSTD && shape->member_bytes == 0) {
            T_EQ(shape->name, head.point_count, 1);
            T_EQ(shape->name, head.segment_bytes_max, DATA_BYTES);
        } else {
            T_TRUE(shape->name, head.point_count >= DATA_BYTES / (2 * SPACING));
            T_TRUE(shape->name, head.segment_bytes_max < 2 * SPACING);
        }
        for (uint32_t i = 0; i < head.point_count; i++) {
            size_t got = enter(image, i, shape->packing, used);

            T_TRUE(shape->name, got > 0);
            T_TRUE(shape->name, at + got <= DATA_BYTES && memcmp(out, data + at, got) == 0);
            at += got;
        }
        T_EQ(shape->name, at, DATA_BYTES);
        /* For any portions: the same image. */
        T_EQ(shape->name, make(shape, used, 7001, 3001, &again, &error), 0);
        T_EQ(shape->name, again.bytes, image.bytes);
        T_TRUE(shape->name,
               again.bytes == image.bytes && memcmp(again.data, image.data, image.bytes) == 0);
        stk_free((void *)(uintptr_t)image.data);
        stk_free((void *)(uintptr_t)again.data);
    }
}

/* Without windows gzip has points at members only. */
static void test_no_windows(void)
{
    struct stk_seek_points_builder *maker = NULL;
    struct stoker_error error = {0};

    T_EQ("open", stk_seek_points_builder_open(&maker, STK_COMPRESSION_GZIP, 0, false, &error), 0);
    T_TRUE("inside", !stk_seek_points_builder_is_due(maker, true));
    T_TRUE("begin", stk_seek_points_builder_is_due(maker, false));
    stk_seek_points_builder_close(maker);
}

/* A false image: refused, or the true bytes. `at`: one byte of it, xor `flip`. */
static void try_false(const struct shape *shape, struct stk_view image, size_t used, size_t at,
                      uint8_t flip)
{
    uint8_t *bytes = (uint8_t *)(uintptr_t)image.data;
    struct stk_seek_points_head head;

    bytes[at] ^= flip;
    memcpy(&head, bytes, sizeof head);
    for (uint64_t i = 0; i < 3; i++) {
        struct stk_seek_point point;
        size_t got = enter(image, i, shape->packing, used);

        if (got > 0) {
            memcpy(&point, bytes + stk_seek_points_offset(i), sizeof point);
            T_TRUE(shape->name,
                   point.out + got <= DATA_BYTES && memcmp(out, data + point.out, got) == 0);
        }
    }
    bytes[at] ^= flip;
}

static void test_false_images(void)
{
    static const struct shape *const rows[] = {&shapes[1], &shapes[8]};

    for (size_t row = 0; row < STK_COUNT(rows); row++) {
        struct stoker_error error = {0};
        struct stk_view image;
        size_t used, points;

        fill_data(rows[row]->mix);
        used = pack(rows[row]);
        T_EQ("image", make(rows[row], used, SIZE_MAX, SIZE_MAX, &image, &error), 0);
        points = stk_seek_points_offset(3);
        for (size_t at = 0; at < points; at++) {
            try_false(rows[row], image, used, at, 1 << at % 8);
            try_false(rows[row], image, used, at, 0xff);
        }
        for (size_t at = points; at < image.bytes; at += 997) {
            try_false(rows[row], image, used, at, 0x10);
        }
        /* Another shard of the same size. */
        for (size_t i = used / 2; i < used; i += 50) {
            packed[i] ^= 0x40;
        }
        T_EQ("another shard", enter(image, 2 * DATA_BYTES / SPACING / 3, rows[row]->packing, used),
             0);
        T_EQ("cut", enter((struct stk_view){image.data, 31}, 0, rows[row]->packing, used), 0);
        T_EQ("another size", enter(image, 0, rows[row]->packing, used - 1), 0);
        stk_free((void *)(uintptr_t)image.data);
    }
}

static void test_memory(void)
{
    const struct shape *shape = &shapes[0];
    int64_t alive = stk_mem_alive();
    struct stoker_error error;
    struct stk_view image;
    int status = -ENOMEM;
    uint64_t n = 0;

    fill_data(TEXT);
    size_t used = pack(shape);
    while (status == -ENOMEM && n < 1000) {
        error = (struct stoker_error){0};
        stk_mem_fail_nth(++n);
        status = make(shape, used, SIZE_MAX, SIZE_MAX, &image, &error);
        stk_mem_fail_nth(0);
        if (status < 0) {
            T_ERROR("memory", &error);
            T_EQ("alive", stk_mem_alive(), alive);
        }
    }
    T_EQ("at last", status, 0);
    T_TRUE("some calls", n > 5);
    stk_free((void *)(uintptr_t)image.data);
    T_EQ("alive", stk_mem_alive(), alive);
}

int main(void)
{
    test_points();
    test_no_windows();
    test_false_images();
    test_memory();
    return t_finish();
}
