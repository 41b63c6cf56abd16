/* Checks all data of an image: its structure, and what its library says about the data. */
#include "decode/codec/codec_backend.h"

#include "base/mem.h"
#include "decode/png/png_stream.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* A row of the check: the width of the image, and what libjpeg adds to a row. */
#define ROW_MARGIN 64u

static int fail_warning(const char *warning, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, "the image's data is damaged",
                    STK_CODEC_ADVICE_DAMAGED, "the decoder warns: %s", warning);
}

int stk_codec_check_damage(const struct stk_codec *codec, struct stoker_error *error)
{
    return stk_codec_is_damaged(codec) ? fail_warning(stk_codec_warning(codec), error) : 0;
}

uint64_t stk_codec_check_bytes(const struct stk_codec_info *info)
{
    return 4 * ((uint64_t)info->width + ROW_MARGIN);
}

static const char *name_chunk(const uint8_t *from, char name_out[5])
{
    for (int i = 0; i < 4; i++) {
        name_out[i] = isalnum(from[i]) ? (char)from[i] : '?';
    }
    name_out[4] = '\0';
    return name_out;
}

/* The chunks follow each other, each with its right CRC, up to IEND (PNG specification, 5). */
static int check_png(struct stk_view bytes, struct stoker_error *error)
{
    uint64_t at = 8;

    while (at + 12 <= bytes.bytes) {
        const uint8_t *chunk = bytes.data + at;
        uint32_t length = stk_big32(chunk);
        char name[5];

        if (length > bytes.bytes - at - 12) {
            break;
        }
        if (stk_png_crc(chunk + 4, 4 + (uint64_t)length) != stk_big32(chunk + 8 + length)) {
            return stk_fail(error, STOKER_ERROR_CORRUPT, "a chunk of the png has a wrong CRC",
                            STK_CODEC_ADVICE_DAMAGED, "%s at byte %llu",
                            name_chunk(chunk + 4, name), (unsigned long long)at);
        }
        if (memcmp(chunk + 4, "IEND", 4) == 0) {
            return 0;
        }
        at += 12 + (uint64_t)length;
    }
    return stk_fail(error, STOKER_ERROR_TRUNCATED, "the png ends before its last chunk",
                    STK_CODEC_ADVICE_DAMAGED, "%zu bytes", bytes.bytes);
}

/* Segments and scans up to the end marker (ITU-T T.81, B.1): a cut picture has none. */
static int check_jpeg(struct stk_view bytes, struct stoker_error *error)
{
    uint64_t at = 2;

    while (at + 1 < bytes.bytes) {
        const uint8_t *found = memchr(bytes.data + at, 0xff, bytes.bytes - 1 - at);
        uint8_t marker;

        if (!found) {
            break;
        }
        at = (uint64_t)(found - bytes.data) + 1;
        marker = *(found + 1);
        if (marker == 0xd9) {
            return 0;
        }
        if (marker == 0xff) {
            continue; /* fill */
        }
        at++;
        if (marker == 0 || marker == 1 || (marker >= 0xd0 && marker <= 0xd8)) {
            continue; /* a byte of a scan, or a marker that stands alone */
        }
        if (bytes.bytes - at < 2) {
            break;
        }
        at += stk_big16(bytes.data + at);
    }
    return stk_fail(error, STOKER_ERROR_TRUNCATED, "the jpeg has no end marker: it was cut short",
                    STK_CODEC_ADVICE_DAMAGED, "%zu bytes", bytes.bytes);
}

/* The chunks fill the RIFF chunk (WebP container specification). */
static int check_webp(struct stk_view bytes, struct stoker_error *error)
{
    uint64_t end = 8 + (uint64_t)stk_little32(bytes.data + 4), at = 12;

    while (at + 8 <= end) {
        uint64_t length = stk_little32(bytes.data + at + 4);
        char name[5];

        if (length > end - at - 8) {
            return stk_fail(error, STOKER_ERROR_CORRUPT, "a chunk of the webp passes its end",
                            STK_CODEC_ADVICE_DAMAGED, "%s at byte %llu",
                            name_chunk(bytes.data + at, name), (unsigned long long)at);
        }
        at += 8 + length + (length & 1);
    }
    return 0;
}

int stk_codec_check_structure(struct stk_view bytes, uint32_t kind, struct stoker_error *error)
{
    switch (kind) {
    case STK_CODEC_JPEG:
        return check_jpeg(bytes, error);
    case STK_CODEC_PNG:
        return check_png(bytes, error);
    case STK_CODEC_WEBP:
        return check_webp(bytes, error);
    default:
        return 0; /* decoding finds what is missing */
    }
}

/* Reads the rows of the box, and the data after them. */
static int read_rows(struct stk_codec *codec, uint32_t count, uint32_t row_pixels,
                     struct stoker_error *error)
{
    uint8_t *row = stk_alloc(row_pixels, 4);
    int status =
        row ? 0
            : stk_fail_errno(error, ENOMEM, "cannot check an image", "give the process more memory",
                             "%u pixels a row", row_pixels);

    for (uint32_t y = 0; y < count && status >= 0; y++) {
        status = stk_codec_rows(codec, &row, 1, error);
    }
    if (status >= 0) {
        status = stk_codec_finish(codec, error);
    }
    stk_free(row);
    return status;
}

int stk_codec_check(struct stk_codec *codec, struct stk_view bytes,
                    const struct stk_codec_info *info, uint64_t memory_bytes_max,
                    struct stoker_error *error)
{
    /* For the last row the decoders read all data before it, except of formats with a fixed place
     * for each row. */
    struct stk_codec_box box = info->kind == STK_CODEC_BMP || info->kind == STK_CODEC_PNM
                                   ? (struct stk_codec_box){info->width - 1, 0, 1, info->height}
                                   : (struct stk_codec_box){0, info->height - 1, 1, 1};
    const char *warning;
    uint32_t row_pixels, skip;
    int status = stk_codec_check_structure(bytes, info->kind, error);

    stk_codec_set_entry_points(codec, NULL);
    if (status == 0) {
        status =
            stk_codec_begin(codec, bytes, info, &box, memory_bytes_max, &row_pixels, &skip, error);
    }
    if (status < 0) {
        return status;
    }
    status = read_rows(codec, box.height, row_pixels, error);
    warning = stk_codec_warning(codec);
    if (status == 0 && warning) {
        status = fail_warning(warning, error);
    }
    stk_codec_end(codec);
    if (status == 0 && info->kind == STK_CODEC_WEBP) {
        status = stk_codec_webp_check_frames(bytes, memory_bytes_max, error);
    }
    return status;
}
