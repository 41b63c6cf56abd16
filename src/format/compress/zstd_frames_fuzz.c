/* Fuzz of zstd_frames.c: any bytes as a file compressed by zstd. No crash, and every accepted frame
 * decompresses to its stated number of bytes, or is refused. */
#include "format/compress/zstd_frames.h"

#define FRAME_BYTES_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static uint8_t out[FRAME_BYTES_MAX];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_view file = {data, bytes};
    struct stk_zstd_frames frames;
    struct stoker_error error = {0};
    uint64_t sum = 0, end = 0;
    size_t got = 0;

    if (stk_zstd_frames_read_head(file, out, 4096, &got, &error) < 0) {
        STK_ASSERT(error.status < 0 && error.what[0] && error.where[0] && error.advice[0]);
    }
    STK_ASSERT(got <= 4096);
    if (stk_zstd_frames_open(&frames, file, &error) < 0) {
        STK_ASSERT(error.status < 0 && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    for (uint32_t i = 0; i < frames.count; i++) {
        const struct stk_zstd_frame *frame = &frames.frames[i];
        uint64_t frame_bytes = stk_zstd_frame_bytes(&frames, i);

        STK_ASSERT(frame->in >= end && frame->in + frame->in_bytes <= bytes && frame_bytes > 0);
        STK_ASSERT(stk_zstd_frames_find(&frames, frame->out) == i);
        end = frame->in + frame->in_bytes;
        sum += frame_bytes;
        if (frame_bytes <= FRAME_BYTES_MAX) {
            stk_zstd_frames_decompress(&frames, file, i, out, &error);
        }
    }
    STK_ASSERT(sum == frames.out_bytes);
    stk_zstd_frames_close(&frames);
    return 0;
}
