/* decode/png/png_stream.h: reads one chunk; inflates the IDAT chunks as one stream; private to this
 * folder.
 *
 *   chunk_read;   begin -> read ... -> end
 *
 * Owner: stk_codec_png_rows. Threads: one. Memory: the stream is in the workspace. Bound: its
 * size, which is fixed. */
#ifndef DECODE_PNG_PNG_STREAM_H
#define DECODE_PNG_PNG_STREAM_H

#include "base/base.h"

struct stk_png_chunk {
    const uint8_t *name; /* 4 letters */
    struct stk_view content;
};

uint32_t stk_png_crc(const uint8_t *data, uint64_t bytes);
/* Returns false if the chunk is incomplete, has an invalid name or a wrong checksum. */
bool stk_png_chunk_read(struct stk_view bytes, uint64_t at, struct stk_png_chunk *chunk_out);

struct stk_png_stream;
uint64_t stk_png_stream_bytes(void); /* of one */
void stk_png_stream_begin(struct stk_png_stream *stream, struct stk_view bytes, uint64_t at,
                          uint64_t chunk_bytes_max);
/* Reads exactly this number of bytes. Returns false if the data is damaged or too short. */
bool stk_png_stream_read(struct stk_png_stream *stream, uint8_t *to, uint64_t bytes);
/* Returns whether the data ends here with a correct checksum. */
bool stk_png_stream_end(struct stk_png_stream *stream);

#endif
