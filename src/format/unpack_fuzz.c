/* Fuzz: any bytes as a packed stream, in portions. The last two bytes choose the packing and the
 * portions. No crash, no hang, no byte past the limits. */
#include "base/base.h"
#include "format/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { BYTES_MAX = 1 << 18, ROOM_BYTES = 1 << 14 };
    static const size_t steps[] = {SIZE_MAX, 1, 13, 512};
    static uint8_t out[ROOM_BYTES];
    struct stk_unpack *unpack = NULL;
    struct stoker_error error = {0};
    size_t given = 0, total = 0;
    int more = 1;

    if (bytes < 2) {
        return 0;
    }
    bytes -= 2;
    if (stk_unpack_open(&unpack, STK_GZIP + data[bytes] % 4,
                        &(struct stk_unpack_limits){BYTES_MAX, 100, NULL}, &error) < 0) {
        return 0;
    }
    while (more > 0) {
        size_t step = stk_min(steps[data[bytes + 1] % 4], bytes - given);
        size_t room = data[bytes + 1] & 4 ? 100 : ROOM_BYTES;
        struct stk_view in = {data + given, step};
        size_t written;

        more = stk_unpack_run(unpack, &in, given + step == bytes, out, room, &written, &error);
        STK_ASSERT(more <= 0 || in.bytes == 0 || written == room);
        given += step - in.bytes;
        total += written;
    }
    STK_ASSERT(total <= BYTES_MAX && given <= bytes);
    STK_ASSERT(more == 0 ||
               (error.status == more && error.what[0] && error.where[0] && error.advice[0]));
    stk_unpack_close(unpack);
    return 0;
}
