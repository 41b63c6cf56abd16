/* IDAT chunks, one after the other, inflated by ISA-L; each chunk's checksum is looked at before
 * its bytes are. */
#include "decode/png/png_stream.h"

#include <isa-l/igzip_lib.h>
#include <string.h>

struct stk_png_stream {
    struct inflate_state state;
    struct stk_view bytes; /* borrowed from the file */
    uint64_t at;           /* the next chunk */
    uint64_t chunk_bytes_max;
    bool begun; /* the first byte of the data was read */
};

_Static_assert(sizeof(struct stk_png_stream) <= (104u << 10), "fits into STK_PNG_FIXED_BYTES");

uint64_t stk_png_stream_bytes(void)
{
    return sizeof(struct stk_png_stream);
}

void stk_png_stream_begin(struct stk_png_stream *stream, struct stk_view bytes, uint64_t at,
                          uint64_t chunk_bytes_max)
{
    isal_inflate_init(&stream->state);
    stream->state.crc_flag = ISAL_ZLIB;
    stream->bytes = bytes;
    stream->at = at;
    stream->chunk_bytes_max = chunk_bytes_max;
    stream->begun = false;
}

/* True if zlib accepts the data's first byte: ISA-L does not check the size of the window (RFC
 * 1950, CINFO). */
static bool begins(struct stk_png_stream *stream, const struct stk_view *content)
{
    if (stream->begun || content->bytes == 0) {
        return true;
    }
    stream->begun = true;
    return content->data[0] >> 4 <= 7;
}

/* The next IDAT's bytes become the input. */
static bool next_chunk(struct stk_png_stream *stream)
{
    union { /* ISA-L only reads them, but its type does not say so */
        const uint8_t *given;
        uint8_t *wanted;
    } in;
    struct stk_png_chunk chunk;

    if (!stk_png_chunk_read(stream->bytes, stream->at, &chunk) ||
        memcmp(chunk.name, "IDAT", 4) != 0 || chunk.content.bytes > stream->chunk_bytes_max ||
        !begins(stream, &chunk.content)) {
        return false;
    }
    in.given = chunk.content.data;
    stream->state.next_in = in.wanted;
    stream->state.avail_in = (uint32_t)chunk.content.bytes;
    stream->at += 12 + chunk.content.bytes;
    return true;
}

/* Inflates as much as possible. Returns false if the data is damaged or the chunks end before the
 * data does. */
static bool inflate_more(struct stk_png_stream *stream)
{
    struct inflate_state *state = &stream->state;
    uint32_t wanted = state->avail_out;

    if (isal_inflate(state) != ISAL_DECOMP_OK) {
        return false;
    }
    if (state->block_state == ISAL_BLOCK_FINISH || state->avail_out < wanted) {
        return true;
    }
    return state->avail_in == 0 && next_chunk(stream);
}

bool stk_png_stream_read(struct stk_png_stream *stream, uint8_t *to, uint64_t bytes)
{
    struct inflate_state *state = &stream->state;

    STK_ASSERT(bytes <= UINT32_MAX);
    state->next_out = to;
    state->avail_out = (uint32_t)bytes;
    while (state->avail_out > 0) {
        if (state->block_state == ISAL_BLOCK_FINISH || !inflate_more(stream)) {
            return false;
        }
    }
    return true;
}

bool stk_png_stream_end(struct stk_png_stream *stream)
{
    struct inflate_state *state = &stream->state;
    uint8_t more;

    state->next_out = &more;
    state->avail_out = 1;
    while (state->block_state != ISAL_BLOCK_FINISH) {
        if (!inflate_more(stream)) {
            return false;
        }
    }
    /* libpng warns of more. */
    return state->avail_out == 1 && state->avail_in == 0 && state->read_in_length < 8;
}
