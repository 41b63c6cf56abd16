/* Fuzz target: any bytes as a compressed stream, in portions. The last two bytes select the
 * compression and the portions. No crash, no hang, no byte beyond the limits; if the complete input
 * decompresses, each of its streams gives the same bytes and has a right checksum. Covers
 * decompress.c, decompress_gzip.c, decompress_zstd.c, decompress_bzip2.c and decompress_xz.c. */
#include "base/base.h"
#include "format/compress/decompress.h"

enum { BYTES_MAX = 1 << 18, ROOM_BYTES = 1 << 14 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct outcome {
    int more; /* of the last run */
    uint64_t total, sum;
    bool wrong;
};

static struct outcome unpack_all(const uint8_t *data, size_t bytes, bool by_stream)
{
    static const size_t steps[] = {SIZE_MAX, 1, 13, 512};
    static uint8_t out[ROOM_BYTES];
    struct outcome outcome = {.more = 1};
    struct stk_decompress *unpack = NULL;
    struct stoker_error error = {0};
    uint64_t streams = 0, ended_out = 0;
    size_t given = 0;

    if (stk_decompress_open(&unpack, STK_COMPRESSION_GZIP + data[bytes] % 4,
                            &(struct stk_decompress_limits){BYTES_MAX, 100, NULL}, &error) < 0) {
        return (struct outcome){0};
    }
    if (by_stream) {
        stk_decompress_by_stream(unpack);
    }
    while (outcome.more > 0) {
        size_t step = stk_min(steps[data[bytes + 1] % 4], bytes - given);
        size_t room = data[bytes + 1] & 4 ? 100 : ROOM_BYTES;
        struct stk_view in = {data + given, step};
        struct stk_decompress_end ended;
        size_t written;
        bool has_ended;

        outcome.more =
            stk_decompress_run(unpack, &in, given + step == bytes, out, room, &written, &error);
        has_ended = stk_decompress_stream_end(unpack, &ended);
        STK_ASSERT(outcome.more <= 0 || in.bytes == 0 || written == room || has_ended);
        given += step - in.bytes;
        outcome.total += written;
        for (size_t i = 0; i < written; i++) {
            outcome.sum = (outcome.sum ^ out[i]) * UINT64_C(0x100000001b3);
        }
        if (has_ended) {
            STK_ASSERT(by_stream && ended.in == given && ended.out == outcome.total);
            STK_ASSERT(ended.bytes <= ended.out - ended_out &&
                       ended.check >= STK_DECOMPRESS_CHECK_NONE);
            ended_out = ended.out;
            outcome.wrong |= ended.check == STK_DECOMPRESS_CHECK_MISMATCH ||
                             ended.check == STK_DECOMPRESS_CHECK_BAD_TRAILER;
            streams++;
        }
    }
    STK_ASSERT(outcome.total <= BYTES_MAX && given <= bytes);
    STK_ASSERT(stk_decompress_error_offset(unpack) <= given + 4 &&
               streams <= stk_decompress_stream_count(unpack));
    STK_ASSERT(outcome.more == 0 || (error.status == outcome.more && error.what[0] &&
                                     error.where[0] && error.advice[0]));
    stk_decompress_close(unpack);
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct outcome plain, streams; /* FNV-1a over the bytes: portions do not count */

    if (bytes < 2) {
        return 0;
    }
    bytes -= 2;
    plain = unpack_all(data, bytes, false);
    streams = unpack_all(data, bytes, true);
    if (plain.more == 0) {
        STK_ASSERT(streams.more == 0 && streams.total == plain.total && !streams.wrong);
        STK_ASSERT(streams.sum == plain.sum);
    } else {
        STK_ASSERT(streams.more != 0 || streams.wrong);
    }
    return 0;
}
