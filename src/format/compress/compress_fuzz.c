/* Fuzz: any bytes are packed, in portions, and unpacked again: the same bytes. The last three bytes
 * choose packing, frames, level and portions. Covers compress.c, and with its output decompress.c.
 */
#include "base/base.h"
#include "format/compress/compress.h"
#include "format/compress/decompress.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { BYTES_MAX = 1 << 18, ROOM_BYTES = 1 << 19 };

static size_t pack(const struct stk_compress_options *options, struct stk_view from, size_t step,
                   uint8_t *to)
{
    struct stk_compress *packer = NULL;
    struct stk_view in = {from.data, 0};
    size_t given = 0, total = 0;
    int more = stk_compress_open(&packer, options, NULL);

    STK_ASSERT(more == 0);
    do {
        struct stk_compress_output room = {to + total, stk_min(ROOM_BYTES - total, step), 0};
        size_t part = stk_min(step, from.bytes - given);

        in.bytes += part;
        given += part;
        more = stk_compress_run(packer, &in, given == from.bytes, &room, NULL);
        STK_ASSERT(more >= 0 && room.used <= room.bytes);
        STK_ASSERT(more == 0 || in.bytes == 0 || room.used == room.bytes);
        total += room.used;
    } while (more == 1);
    stk_compress_close(packer);
    return total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const size_t steps[] = {ROOM_BYTES, 100, 4096, 70000};
    static uint8_t packed[ROOM_BYTES], out[BYTES_MAX + 1];
    struct stk_compress_options options = {0};
    struct stk_decompress *unpack = NULL;
    struct stk_view in;
    size_t total = 0, written;
    int more = 1;

    if (bytes < 3 || bytes > BYTES_MAX) {
        return 0;
    }
    bytes -= 3;
    options.compression = STK_COMPRESSION_GZIP + data[bytes] % 4;
    options.level = options.compression == STK_COMPRESSION_XZ ? 1 : data[bytes + 1] % 4;
    options.frame_bytes = data[bytes + 1] & 16 ? STK_COMPRESS_FRAME_MIN : 0;
    in = (struct stk_view){
        packed, pack(&options, (struct stk_view){data, bytes}, steps[data[bytes + 2] % 4], packed)};
    STK_ASSERT(stk_decompress_open(&unpack, options.compression,
                                   &(struct stk_decompress_limits){.ratio_max = 10000}, NULL) == 0);
    while (more == 1) {
        more =
            stk_decompress_run(unpack, &in, true, out + total, sizeof out - total, &written, NULL);
        total += written;
    }
    STK_ASSERT(more == 0 && total == bytes && memcmp(out, data, bytes) == 0);
    stk_decompress_close(unpack);
    return 0;
}
