/* Checks one image: format, header, chunks and end; with `deep`, all its pixels. */
#include "base/mem.h"
#include "tools/verify/verify.h"

#include "format/tar/wds_name.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

enum { ROWS = 16 };

static const char advice_damaged[] = "fetch the file again, or leave the sample out (--repair)";

static int check_png(struct stk_view bytes, struct stoker_error *error);
static int check_jpeg(struct stk_view bytes, struct stoker_error *error);
static int decode(struct stoker_verify *verify, struct stk_codec **codec, struct stk_view bytes,
                  const struct stk_codec_info *info, struct stoker_error *error);

/* Returns the format by the text after the last dot, so that "left.png" is one; 0: no image. */
static uint32_t kind_of(const char *extension)
{
    static const struct {
        const char *name;
        uint32_t kind;
    } rows[] = {{"jpg", STK_CODEC_JPEG},  {"jpeg", STK_CODEC_JPEG}, {"jpe", STK_CODEC_JPEG},
                {"jfif", STK_CODEC_JPEG}, {"png", STK_CODEC_PNG},   {"webp", STK_CODEC_WEBP}};
    const char *dot = strrchr(extension, '.');

    extension = dot ? dot + 1 : extension;
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        if (strcasecmp(extension, rows[i].name) == 0) {
            return rows[i].kind;
        }
    }
    return 0;
}

bool stk_verify_is_picture(const char *extension)
{
    return kind_of(extension) != 0;
}

int stk_verify_picture(struct stoker_verify *verify, struct stk_codec **codec,
                       struct stk_view bytes, const char *extension, uint32_t *kind_out,
                       struct stoker_error *error)
{
    static const char *const names[] = {"", "JPEG", "PNG", "WebP"};
    struct stk_codec_info info = {0};
    uint32_t named = kind_of(extension);
    int status = stk_codec_probe(bytes, verify->options.pixels_max, &info, error);

    *kind_out = STOKER_FINDING_PICTURE;
    if (status == 0 && info.kind == STK_CODEC_PNG) {
        status = check_png(bytes, error);
    } else if (status == 0 && info.kind == STK_CODEC_JPEG) {
        status = check_jpeg(bytes, error);
    }
    if (status == 0 && verify->options.deep) {
        *kind_out = STOKER_FINDING_PIXELS;
        status = decode(verify, codec, bytes, &info, error);
    }
    if (status == 0 && named != info.kind) {
        *kind_out = STOKER_FINDING_MISNAMED;
        status = stk_fail(error, STOKER_ERROR_FORMAT,
                          "a valid image with the extension of another format",
                          "stoker reads it; rename it if other programs rely on the extension",
                          "a %s file has the extension .%s", names[info.kind], extension);
    }
    return status < 0 && !stk_verify_is_process_error(status) ? 1 : status;
}

static uint32_t big32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* The chunks follow each other, each with its right CRC, up to IEND (PNG specification, 5). */
static int check_png(struct stk_view bytes, struct stoker_error *error)
{
    uint64_t at = 8;

    while (at + 12 <= bytes.bytes) {
        const uint8_t *chunk = bytes.data + at;
        uint32_t length = big32(chunk);

        if (length > bytes.bytes - at - 12) {
            break;
        }
        if (crc32(0, chunk + 4, length + 4) != big32(chunk + 8 + length)) {
            char name[8];

            stk_wds_name_text((struct stk_view){chunk + 4, 4}, name, sizeof name);
            return stk_fail(error, STOKER_ERROR_CORRUPT, "a chunk of the png has a wrong CRC",
                            advice_damaged, "%s at byte %llu", name, (unsigned long long)at);
        }
        if (memcmp(chunk + 4, "IEND", 4) == 0) {
            return 0;
        }
        at += 12 + (uint64_t)length;
    }
    return stk_fail(error, STOKER_ERROR_TRUNCATED, "the png ends before its last chunk",
                    advice_damaged, "%zu bytes", bytes.bytes);
}

bool stk_verify_picture_has_checksum(struct stk_view bytes)
{
    uint64_t at = 8;

    while (bytes.bytes >= 8 && memcmp(bytes.data, "\x89PNG\r\n\x1a\n", 8) == 0 &&
           at + 12 <= bytes.bytes && big32(bytes.data + at) <= bytes.bytes - at - 12) {
        bool last = memcmp(bytes.data + at + 4, "IEND", 4) == 0;

        at += 12 + (uint64_t)big32(bytes.data + at);
        if (last) {
            return at == bytes.bytes; /* no CRC covers what follows */
        }
    }
    return false;
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
        at += (uint64_t)bytes.data[at] << 8 | bytes.data[at + 1];
    }
    return stk_fail(error, STOKER_ERROR_TRUNCATED, "the jpeg has no end marker: it was cut short",
                    advice_damaged, "%zu bytes", bytes.bytes);
}

static int read_rows(struct stk_codec *codec, const struct stk_codec_info *info, uint8_t *space,
                     uint32_t row_pixels, struct stoker_error *error)
{
    uint8_t *rows[ROWS];
    const char *warning;

    for (uint32_t i = 0; i < ROWS; i++) {
        rows[i] = space + (size_t)i * row_pixels * 4;
    }
    for (uint32_t y = 0; y < info->height;) {
        int got = stk_codec_rows(codec, rows, ROWS, error);
        if (got < 0) {
            return got;
        }
        y += (uint32_t)got;
    }
    warning = stk_codec_warning(codec);
    return !warning ? 0
                    : stk_fail(error, STOKER_ERROR_CORRUPT, "the image decodes with a warning",
                               advice_damaged, "%s", warning);
}

static int decode(struct stoker_verify *verify, struct stk_codec **codec, struct stk_view bytes,
                  const struct stk_codec_info *info, struct stoker_error *error)
{
    struct stoker_engine *engine = verify->engine;
    struct stk_codec_box box = {0, 0, info->width, info->height};
    /* Rows are at most the picture's width. */
    uint64_t reserved = info->memory_bytes + (uint64_t)info->width * 4 * ROWS;
    uint32_t row_pixels, skip;
    uint8_t *space;
    int status = *codec ? 0 : stk_codec_open(codec, error);

    if (status == 0 && info->memory_bytes <= verify->options.decode_bytes_max) {
        status = stk_engine_reserve(engine, reserved, engine->options.read_timeout_ms,
                                    "decoding a picture", error);
    } else {
        reserved = 0;
    }
    if (status == 0) {
        status = stk_codec_begin(*codec, bytes, info, &box, verify->options.decode_bytes_max,
                                 &row_pixels, &skip, error);
    }
    if (status == 0) {
        space = stk_alloc((size_t)row_pixels * ROWS, 4);
        status = space ? read_rows(*codec, info, space, row_pixels, error)
                       : stk_fail(error, -ENOMEM, "cannot decode an image", "free memory",
                                  "%u pixels a row", row_pixels);
        stk_free(space);
        stk_codec_end(*codec);
    }
    if (*codec) {
        stk_codec_trim(*codec, 1u << 20);
    }
    stk_budget_release(&engine->budget, reserved);
    return status;
}
