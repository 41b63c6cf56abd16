/* Reads the chunks of a PNG up to its image data (PNG specification, 5 and 11). If libpng would
 * warn or fail, the image is left to libpng. */
#include "decode/png/png.h"

#include "base/byte_order.h"
#include "decode/png/png_stream.h"

#include <isa-l/crc.h>
#include <string.h>

uint32_t stk_png_crc(const uint8_t *data, uint64_t bytes)
{
    return crc32_gzip_refl(0, data, bytes);
}

#define SIGNATURE_BYTES 8u
#define HEADER_BYTES 13u
#define CHUNK_COUNT_MAX 65536u
#define PALETTE_BYTES_MAX 768u
#define SIDE_MAX 1000000u /* libpng's default bound (see png_set_user_limits) */
/* Larger ones libpng warns of, as it is set up here (png_set_chunk_malloc_max). */
#define CHUNK_BYTES_MAX (1u << 20)

enum color { GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGBA = 6 };

static bool is_letter(uint8_t byte)
{
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
}

bool stk_png_chunk_read(struct stk_view bytes, uint64_t at, struct stk_png_chunk *chunk_out)
{
    const uint8_t *data = bytes.data + at;
    uint32_t length;

    if (at > bytes.bytes || bytes.bytes - at < 12) {
        return false;
    }
    length = stk_big32(data);
    if (length > bytes.bytes - at - 12) {
        return false;
    }
    for (int i = 4; i < 8; i++) {
        if (!is_letter(data[i])) {
            return false;
        }
    }
    chunk_out->name = data + 4;
    chunk_out->content = (struct stk_view){data + 8, length};
    return stk_png_crc(data + 4, 4 + (uint64_t)length) == stk_big32(data + 8 + length);
}

/* Samples a pixel of a colour type, if it may have so many bits each; else 0 (11.2.2). */
static uint32_t count_samples(uint32_t color, uint32_t depth)
{
    bool small = depth == 1 || depth == 2 || depth == 4, bytes = depth == 8 || depth == 16;

    switch (color) {
    case GREY:
        return small || bytes ? 1 : 0;
    case PALETTE:
        return small || depth == 8 ? 1 : 0;
    case RGB:
        return bytes ? 3 : 0;
    case GREY_ALPHA:
        return bytes ? 2 : 0;
    case RGBA:
        return bytes ? 4 : 0;
    default:
        return 0;
    }
}

/* IHDR: not interlaced, and only methods that the specification defines. */
static bool read_header(struct stk_png_frame *frame, const struct stk_png_chunk *chunk)
{
    const uint8_t *data = chunk->content.data;
    uint32_t samples;

    if (memcmp(chunk->name, "IHDR", 4) != 0 || chunk->content.bytes != HEADER_BYTES ||
        data[10] != 0 || data[11] != 0 || data[12] != 0) {
        return false;
    }
    frame->width = stk_big32(data);
    frame->height = stk_big32(data + 4);
    frame->depth = data[8];
    frame->color = data[9];
    samples = count_samples(frame->color, frame->depth);
    if (samples == 0 || frame->width < 1 || frame->width > SIDE_MAX || frame->height < 1 ||
        frame->height > SIDE_MAX) {
        return false;
    }
    frame->pixel_bits = samples * frame->depth;
    frame->row_bytes = ((uint64_t)frame->width * frame->pixel_bits + 7) / 8;
    return true;
}

/* PLTE, once, and not for grey. */
static bool read_palette(struct stk_png_frame *frame, const struct stk_view *content)
{
    if (frame->palette.data || frame->color == GREY || frame->color == GREY_ALPHA ||
        content->bytes == 0 || content->bytes > PALETTE_BYTES_MAX || content->bytes % 3) {
        return false;
    }
    frame->palette = *content;
    return true;
}

bool stk_png_frame_read(struct stk_view bytes, struct stk_png_frame *frame_out)
{
    uint64_t at = SIGNATURE_BYTES;
    struct stk_png_chunk chunk;

    *frame_out = (struct stk_png_frame){0};
    if (bytes.bytes < SIGNATURE_BYTES ||
        memcmp(bytes.data, "\x89PNG\r\n\x1a\n", SIGNATURE_BYTES) != 0 ||
        !stk_png_chunk_read(bytes, at, &chunk) || !read_header(frame_out, &chunk)) {
        return false;
    }
    for (uint32_t i = 0; i < CHUNK_COUNT_MAX; i++) {
        at += 12 + chunk.content.bytes;
        /* An IDAT's own checksum is verified at its end. */
        if (bytes.bytes >= 8 && at <= bytes.bytes - 8 &&
            memcmp(bytes.data + at + 4, "IDAT", 4) == 0) {
            frame_out->data_at = at;
            return frame_out->color != PALETTE || frame_out->palette.data;
        }
        if (!stk_png_chunk_read(bytes, at, &chunk) || chunk.content.bytes > CHUNK_BYTES_MAX) {
            return false;
        }
        if (memcmp(chunk.name, "PLTE", 4) == 0) {
            if (!read_palette(frame_out, &chunk.content)) {
                return false;
            }
        } else if (!(chunk.name[0] & 32)) { /* critical, and not known here */
            return false;
        }
    }
    return false;
}
