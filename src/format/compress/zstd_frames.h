/* format/compress/zstd_frames.h: a file that zstd packed in frames, as places to begin unpacking.
 * Pure.
 *
 *   packed file --seek table, or a walk over frame headers--> frames --unpack one--> its bytes
 *
 * Frames follow each other (RFC 8878, 3): pzstd and `split --filter=zstd` write many, zstd one.
 * A seek table (zstd's contrib/seekable_format, a skippable frame at the end) spares the walk; it
 * is believed only as far as frames turn out to have the bytes that it says.
 * Owner: whoever opened them; they lend the file's bytes to nobody. Threads: any, const after open.
 * Memory: 24 bytes a frame; while one is unpacked the library's. Bound: STK_ZSTD_FRAMES_MAX. */
#ifndef FORMAT_COMPRESS_ZSTD_FRAMES_H
#define FORMAT_COMPRESS_ZSTD_FRAMES_H

#include "base/base.h"

#define STK_ZSTD_FRAMES_MAX (1u << 28)
#define STK_ZSTD_FRAMES_BYTES_MAX (UINT64_C(1) << 56)

struct stk_zstd_frame {
    uint64_t in, in_bytes; /* packed; lies in the file */
    uint64_t out;          /* unpacked bytes before it */
};

struct stk_zstd_frames {
    uint64_t out_bytes; /* unpacked, of all */
    uint32_t count;
    struct stk_zstd_frame *frames; /* [count + 1]: the last one is empty, at the end; owned */
};

/* Whether a file begins as zstd's do. */
bool stk_zstd_frames_detect(struct stk_view file);
/* Frames without bytes are left out. One that does not say its size is unpacked once. CORRUPT,
 * TRUNCATED, LIMIT, -ENOMEM. */
int stk_zstd_frames_open(struct stk_zstd_frames *frames, struct stk_view file,
                         struct stoker_error *error);
void stk_zstd_frames_close(struct stk_zstd_frames *frames); /* zeroed is fine */

static inline uint64_t stk_zstd_frame_bytes(const struct stk_zstd_frames *frames, uint32_t frame)
{
    return frames->frames[frame + 1].out - frames->frames[frame].out;
}
/* The frame that holds an unpacked byte; offset < out_bytes. */
uint32_t stk_zstd_frames_find(const struct stk_zstd_frames *frames, uint64_t offset);
/* All of a frame; out: stk_zstd_frame_bytes. CORRUPT, -ENOMEM. */
int stk_zstd_frames_decompress(const struct stk_zstd_frames *frames, struct stk_view file,
                               uint32_t frame, uint8_t *out, struct stoker_error *error);
/* The first bytes, by a stream: of a long frame no more than those. *got_out: fewer at the end. */
int stk_zstd_frames_read_head(struct stk_view file, uint8_t *out, size_t bytes, size_t *got_out,
                              struct stoker_error *error);

#endif
