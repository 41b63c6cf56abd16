/* Fuzz target: any bytes as an image of seek points, and the rest as the shard. Decompression
 * starts at every point. No crash, no hang, no byte outside the image's bounds. */
#include "base/base.h"
#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static uint64_t enter(const struct stk_seek_points_head *head, struct stk_view image,
                      uint64_t number, struct stk_view shard)
{
    enum { ROOM_BYTES = 1 << 16 };
    static uint8_t window[STK_SEEK_POINTS_WINDOW_BYTES], out[ROOM_BYTES];
    struct stk_seek_point point, next;
    struct stk_decompress *unpack = NULL;
    struct stk_view in;
    uint64_t end, left;
    size_t window_bytes, written;
    bool is_last = number + 1 == head->point_count;
    int more;

    memcpy(&point, image.data + stk_seek_points_offset(number), sizeof point);
    if (!is_last) {
        memcpy(&next, image.data + stk_seek_points_offset(number + 1), sizeof next);
    }
    if (!stk_seek_points_segment(head, image.bytes, number, &point, is_last ? NULL : &next, &end) ||
        stk_seek_points_window(&point,
                               (struct stk_view){image.data + point.window_at, point.window_bytes},
                               window, &window_bytes) < 0 ||
        stk_decompress_open(&unpack, head->compression,
                            &(struct stk_decompress_limits){1 << 20, 100, NULL}, NULL) < 0) {
        return 0;
    }
    STK_ASSERT(end > point.out && window_bytes <= sizeof window);
    more = stk_decompress_start_at(unpack, &point, (struct stk_view){window, window_bytes}, NULL);
    in = (struct stk_view){shard.data + point.in, shard.bytes - point.in};
    left = end - point.out;
    for (more = more < 0 ? more : 1; more > 0 && left > 0; left -= written) {
        size_t room = stk_min(left, sizeof out);

        more = stk_decompress_run(unpack, &in, true, out, room, &written, NULL);
        STK_ASSERT(written <= room && in.bytes <= shard.bytes);
    }
    stk_decompress_close(unpack);
    return end - point.out - left;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_seek_points_head head;
    struct stk_view image, shard;
    uint16_t image_bytes;

    if (bytes < sizeof image_bytes) {
        return 0;
    }
    memcpy(&image_bytes, data + bytes - sizeof image_bytes, sizeof image_bytes);
    bytes -= sizeof image_bytes;
    image = (struct stk_view){data, stk_min(image_bytes, bytes)};
    shard = (struct stk_view){data + image.bytes, bytes - image.bytes};
    if (image.bytes < sizeof head) {
        return 0;
    }
    memcpy(&head, image.data, sizeof head);
    head.in_bytes = shard.bytes; /* else hardly any input gets further */
    if (!stk_seek_points_head_is_valid(&head, image.bytes, head.compression, shard.bytes)) {
        return 0;
    }
    for (uint64_t i = 0; i < stk_min(head.point_count, 64); i++) {
        enter(&head, image, i, shard);
    }
    return 0;
}
