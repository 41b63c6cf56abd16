/* Checks one image: format, header, chunks and end; with `deep`, all its pixels. */
#include "base/byte_order.h"
#include "base/mem.h"
#include "tools/verify/verify.h"

#include "format/tar/wds_name.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

static int decode(struct stoker_verify *verify, struct stk_codec **codec, struct stk_view bytes,
                  const struct stk_codec_info *info, struct stoker_error *error);

/* Returns the format by the text after the last dot, so that "left.png" is one; 0: no image. */
static uint32_t kind_of(const char *extension)
{
    static const struct {
        const char *name;
        uint32_t kind;
    } rows[] = {{"jpg", STK_CODEC_JPEG},  {"jpeg", STK_CODEC_JPEG}, {"jpe", STK_CODEC_JPEG},
                {"jfif", STK_CODEC_JPEG}, {"png", STK_CODEC_PNG},   {"webp", STK_CODEC_WEBP},
                {"bmp", STK_CODEC_BMP},   {"pbm", STK_CODEC_PNM},   {"pgm", STK_CODEC_PNM},
                {"ppm", STK_CODEC_PNM},   {"pnm", STK_CODEC_PNM}};
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
    static const char *const names[STK_CODEC_KIND_END] = {"", "JPEG", "PNG", "WebP", "BMP", "PNM"};
    struct stk_codec_info info = {0};
    uint32_t named = kind_of(extension);
    int status = stk_codec_probe(bytes, verify->options.pixels_max, &info, error);

    *kind_out = STOKER_FINDING_PICTURE;
    if (status == 0) {
        status = stk_codec_check_structure(bytes, info.kind, error);
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

bool stk_verify_picture_has_checksum(struct stk_view bytes)
{
    uint64_t at = 8;

    while (bytes.bytes >= 8 && memcmp(bytes.data, "\x89PNG\r\n\x1a\n", 8) == 0 &&
           at + 12 <= bytes.bytes && stk_big32(bytes.data + at) <= bytes.bytes - at - 12) {
        bool last = memcmp(bytes.data + at + 4, "IEND", 4) == 0;

        at += 12 + (uint64_t)stk_big32(bytes.data + at);
        if (last) {
            return at == bytes.bytes; /* no CRC covers the data after it */
        }
    }
    return false;
}

static int decode(struct stoker_verify *verify, struct stk_codec **codec, struct stk_view bytes,
                  const struct stk_codec_info *info, struct stoker_error *error)
{
    struct stoker_engine *engine = verify->engine;
    uint64_t reserved = info->memory_bytes + stk_codec_check_bytes(info);
    int status = *codec ? 0 : stk_codec_open(codec, error);

    if (status == 0 && info->memory_bytes <= verify->options.decode_bytes_max) {
        status = stk_engine_reserve(engine, reserved, engine->options.read_timeout_ms,
                                    "decoding an image", error);
    } else {
        reserved = 0;
    }
    if (status == 0) {
        status = stk_codec_check(*codec, bytes, info, verify->options.decode_bytes_max, error);
    }
    if (*codec) {
        stk_codec_trim(*codec, 1u << 20);
    }
    stk_budget_release(&engine->budget, reserved);
    return status;
}
