/* format/compress/zstd_frames.h: the frames of a zstd file, so that each can be decompressed
 * alone.
 *
 *   file --seek table, or a walk over frame headers--> frames --decompress one--> its bytes
 *
 * Frames follow each other (RFC 8878, 3): pzstd and `split --filter=zstd` write many, zstd one. A
 * seek table (zstd's contrib/seekable_format, a skippable frame at the end) replaces the walk. It
 * is untrusted: a frame that has other sizes than the table states is an error.
 * Pure. Owner: the caller of open, who also keeps the bytes of the file. Threads: any, const after
 * open.
 * Memory: 24 bytes per frame; during decompression the library's.
 * Bound: STK_ZSTD_FRAMES_MAX. */
#ifndef FORMAT_COMPRESS_ZSTD_FRAMES_H
#define FORMAT_COMPRESS_ZSTD_FRAMES_H

#include "base/base.h"

#define STK_ZSTD_FRAMES_MAX (1u << 28)
#define STK_ZSTD_FRAMES_BYTES_MAX (UINT64_C(1) << 56)

struct stk_zstd_frame {
    uint64_t in, in_bytes; /* compressed, in the file */
    uint64_t out;          /* decompressed bytes before it */
};

struct stk_zstd_frames {
    uint64_t out_bytes; /* decompressed, of all frames */
    uint32_t count;
    struct stk_zstd_frame *frames; /* [count + 1]: the last one is empty, at the end; owned */
};

/* True if the file begins with a zstd frame. */
bool stk_zstd_frames_detect(struct stk_view file);
/* Lists the frames; empty ones are left out. A frame that does not state its size is decompressed
 * once. Returns 0, -ENOMEM, or STOKER_ERROR_CORRUPT, _TRUNCATED or _LIMIT. */
int stk_zstd_frames_open(struct stk_zstd_frames *frames, struct stk_view file,
                         struct stoker_error *error);
void stk_zstd_frames_close(struct stk_zstd_frames *frames); /* zeroed is allowed */

static inline uint64_t stk_zstd_frame_bytes(const struct stk_zstd_frames *frames, uint32_t frame)
{
    return frames->frames[frame + 1].out - frames->frames[frame].out;
}
/* Returns the frame that has the decompressed byte at the offset; offset < out_bytes. */
uint32_t stk_zstd_frames_find(const struct stk_zstd_frames *frames, uint64_t offset);
/* Decompresses a frame; out has stk_zstd_frame_bytes. Returns 0, STOKER_ERROR_CORRUPT or -ENOMEM.
 */
int stk_zstd_frames_decompress(const struct stk_zstd_frames *frames, struct stk_view file,
                               uint32_t frame, uint8_t *out, struct stoker_error *error);
/* Decompresses the first bytes only, even of a long frame. Sets *got_out, which is less than
 * `bytes` at the end of the file, and before a damaged frame that is not the first one. */
int stk_zstd_frames_read_head(struct stk_view file, uint8_t *out, size_t bytes, size_t *got_out,
                              struct stoker_error *error);

#endif
