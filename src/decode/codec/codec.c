/* Selects the library for an image, and identifies files that are not images. */
#include "decode/codec/codec.h"

#include "base/mem.h"
#include "base/text/text_match.h"
#include "decode/codec/codec_backend.h"
#include "decode/jpeg/jpeg.h"

#include <errno.h>
#include <string.h>

struct stk_codec {
    uint32_t kind;      /* of the image in progress; 0: none */
    uint32_t last_kind; /* of the current image */
    uint32_t rows_left; /* of its box */
    bool last_row;      /* the box has the image's last row */
    bool failed;        /* no more rows come */
    struct stk_codec_arena arena;
    struct stk_codec_jpeg *jpeg;                      /* owned */
    struct stk_codec_png *png;                        /* owned */
    struct stk_codec_webp *webp;                      /* owned */
    struct stk_codec_raw *raw;                        /* owned */
    const struct stk_jpeg_entry_points *entry_points; /* borrowed: of the next image */
};

static const struct magic_row {
    const char *name;
    uint8_t kind; /* enum stk_codec_kind; 0: not read here */
    uint8_t offset;
    uint8_t bytes;
    const char *magic;
} magic_rows[] = {
    {"a JPEG", STK_CODEC_JPEG, 0, 3, "\xff\xd8\xff"},
    {"a PNG", STK_CODEC_PNG, 0, 8, "\x89PNG\r\n\x1a\n"},
    {"a WebP", STK_CODEC_WEBP, 8, 4, "WEBP"},
    {"a GIF", 0, 0, 4, "GIF8"},
    {"a BMP", STK_CODEC_BMP, 0, 2, "BM"},
    {"a PBM", STK_CODEC_PNM, 0, 2, "P1"},
    {"a PGM", STK_CODEC_PNM, 0, 2, "P2"},
    {"a PPM", STK_CODEC_PNM, 0, 2, "P3"},
    {"a PBM", STK_CODEC_PNM, 0, 2, "P4"},
    {"a PGM", STK_CODEC_PNM, 0, 2, "P5"},
    {"a PPM", STK_CODEC_PNM, 0, 2, "P6"},
    {"a TIFF", 0, 0, 4, "II*\0"},
    {"a TIFF", 0, 0, 4, "MM\0*"},
    {"an AVIF", 0, 4, 8, "ftypavif"},
    {"a HEIC", 0, 4, 7, "ftyphei"},
    {"an MP4 or HEIF", 0, 4, 4, "ftyp"},
    {"a JPEG 2000", 0, 4, 4, "jP  "},
    {"a JPEG 2000", 0, 0, 4, "\xff\x4f\xff\x51"},
    {"a JPEG XL", 0, 0, 2, "\xff\x0a"},
    {"a JPEG XL", 0, 4, 4, "JXL "},
    {"an icon", 0, 0, 4, "\0\0\1\0"},
    {"a Photoshop file", 0, 0, 4, "8BPS"},
    {"a PDF", 0, 0, 5, "%PDF-"},
    {"a zip", 0, 0, 4, "PK\3\4"},
    {"gzip data", 0, 0, 2, "\x1f\x8b"},
    {"zstd data", 0, 0, 4, "\x28\xb5\x2f\xfd"},
    {"a NumPy array", 0, 0, 6, "\x93NUMPY"},
    {"an AppleDouble file of macOS", 0, 0, 4, "\0\5\x16\7"},
};

#define TEXT_BYTES_MAX 512 /* looked at to call something text */

/* Skips spaces and a byte order mark, and compares without case. */
static bool text_begins(const char *text, size_t bytes, const char *word)
{
    size_t length = strlen(word);
    size_t at = stk_view_mark_bytes((struct stk_view){(const uint8_t *)text, bytes});

    while (at < bytes &&
           (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t')) {
        at++;
    }
    return bytes - at >= length && strncasecmp(text + at, word, length) == 0;
}

static const char *name_text(const char *text, size_t bytes)
{
    if (text_begins(text, bytes, "<!doctype html") || text_begins(text, bytes, "<html")) {
        return "an HTML page";
    }
    if (text_begins(text, bytes, "<svg")) {
        return "an SVG";
    }
    if (text_begins(text, bytes, "<")) {
        return "XML or HTML";
    }
    if (text_begins(text, bytes, "version https://git-lfs")) {
        return "a Git LFS pointer";
    }
    return text_begins(text, bytes, "{") ? "JSON" : "text";
}

/* Describes bytes that are not an image. */
static const char *name_other(struct stk_view bytes)
{
    size_t looked = stk_min(bytes.bytes, TEXT_BYTES_MAX);
    size_t printable = 0, zeros = 0;

    for (size_t i = 0; i < looked; i++) {
        uint8_t byte = bytes.data[i];

        printable += (byte >= 0x20 && byte != 0x7f) || byte == '\n' || byte == '\r' ||
                     byte == '\t' || byte == '\f';
        zeros += byte == 0;
    }
    if (looked == 0) {
        return "an empty file";
    }
    if (zeros == looked) {
        return "a block of zeros";
    }
    return printable == looked ? name_text((const char *)bytes.data, looked) : "unknown data";
}

/* After "P6" follows a space or a comment. */
static bool is_pnm(struct stk_view bytes)
{
    return bytes.bytes > 2 && memchr(" \t\n\v\f\r#", bytes.data[2], 7);
}

static const struct magic_row *find_magic(struct stk_view bytes)
{
    for (size_t i = 0; i < STK_COUNT(magic_rows); i++) {
        const struct magic_row *row = &magic_rows[i];

        if (bytes.bytes >= (size_t)row->offset + row->bytes &&
            memcmp(bytes.data + row->offset, row->magic, row->bytes) == 0 &&
            (row->kind != STK_CODEC_PNM || is_pnm(bytes)) &&
            (row->kind != STK_CODEC_WEBP || memcmp(bytes.data, "RIFF", 4) == 0)) {
            return row;
        }
    }
    return NULL;
}

static int fail_format(struct stk_view bytes, const struct magic_row *row,
                       struct stoker_error *error)
{
    const char *name = row ? row->name : name_other(bytes);
    char start[3 * 12 + 1] = "";

    for (size_t i = 0; i < 12 && i < bytes.bytes; i++) {
        static const char digits[] = "0123456789abcdef";

        start[3 * i] = ' ';
        start[3 * i + 1] = digits[bytes.data[i] >> 4];
        start[3 * i + 2] = digits[bytes.data[i] & 15];
        start[3 * i + 3] = '\0';
    }
    return stk_fail(error, STOKER_ERROR_FORMAT, "this is not a JPEG, PNG, WebP, BMP or PNM image",
                    "convert it, take it out of the data set, or choose other extensions",
                    "it looks like %s of %zu bytes%s%s", name, bytes.bytes,
                    bytes.bytes ? ", beginning" : "", start);
}

int stk_codec_probe(struct stk_view bytes, uint64_t pixels_max, struct stk_codec_info *info_out,
                    struct stoker_error *error)
{
    const struct magic_row *row = find_magic(bytes);
    struct stk_codec_info info = {0};
    int status;

    if (!row || row->kind == 0) {
        return fail_format(bytes, row, error);
    }
    if (row->kind == STK_CODEC_JPEG) {
        status = stk_codec_jpeg_probe(bytes, &info, error);
    } else if (row->kind == STK_CODEC_PNG) {
        status = stk_codec_png_probe(bytes, &info, error);
    } else if (row->kind == STK_CODEC_WEBP) {
        status = stk_codec_webp_probe(bytes, &info, error);
    } else {
        status = stk_codec_raw_probe(bytes, row->kind, &info, error);
    }
    if (status < 0) {
        return status;
    }
    if ((uint64_t)info.width * info.height > pixels_max) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the image has too many pixels",
                        "raise pixels_max if the image is meant to be so large",
                        "%ux%u, more than %llu pixels", info.width, info.height,
                        (unsigned long long)pixels_max);
    }
    *info_out = info;
    return 0;
}

int stk_codec_open(struct stk_codec **codec_out, struct stoker_error *error)
{
    struct stk_codec *codec = stk_alloc(1, sizeof *codec);
    int status;

    if (!codec) {
        return stk_fail_errno(error, ENOMEM, "cannot make an image decoder",
                              "give the process more memory", "%zu bytes", sizeof *codec);
    }
    status = stk_codec_jpeg_open(&codec->jpeg, &codec->arena, error);
    if (status == 0) {
        status = stk_codec_png_open(&codec->png, &codec->arena, error);
    }
    if (status == 0) {
        status = stk_codec_webp_open(&codec->webp, &codec->arena, error);
    }
    if (status == 0) {
        status = stk_codec_raw_open(&codec->raw, &codec->arena, error);
    }
    if (status < 0) {
        stk_codec_close(codec);
        return status;
    }
    *codec_out = codec;
    return 0;
}

void stk_codec_close(struct stk_codec *codec)
{
    if (!codec) {
        return;
    }
    stk_codec_end(codec);
    stk_codec_jpeg_close(codec->jpeg);
    stk_codec_png_close(codec->png);
    stk_codec_webp_close(codec->webp);
    stk_codec_raw_close(codec->raw);
    stk_codec_arena_trim(&codec->arena, 0);
    stk_free(codec);
}

int stk_codec_begin(struct stk_codec *codec, struct stk_view bytes,
                    const struct stk_codec_info *info, const struct stk_codec_box *box,
                    uint64_t memory_bytes_max, uint32_t *row_pixels_out, uint32_t *skip_out,
                    struct stoker_error *error)
{
    struct stk_codec_request request = {.bytes = bytes,
                                        .info = info,
                                        .box = *box,
                                        .memory_bytes_max = memory_bytes_max,
                                        .entry_points = codec->entry_points};
    struct stk_codec_row_shape shape = {0};
    int status;

    codec->entry_points = NULL;
    STK_ASSERT(codec->kind == 0);
    STK_ASSERT(info->kind >= STK_CODEC_JPEG && info->kind < STK_CODEC_KIND_END);
    STK_ASSERT(box->width > 0 && box->x < info->width && box->width <= info->width - box->x);
    STK_ASSERT(box->height > 0 && box->y < info->height && box->height <= info->height - box->y);
    if (info->memory_bytes > memory_bytes_max) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the image takes too much memory to decode",
                        "raise decode_bytes_max, or leave the image out",
                        "%ux%u may take %llu bytes, allowed are %llu", info->width, info->height,
                        (unsigned long long)info->memory_bytes,
                        (unsigned long long)memory_bytes_max);
    }
    codec->kind = codec->last_kind = info->kind;
    codec->rows_left = box->height;
    codec->last_row = box->y + box->height == info->height;
    codec->failed = false;
    if (info->kind == STK_CODEC_JPEG) {
        status = stk_codec_jpeg_begin(codec->jpeg, &request, &shape, error);
    } else if (info->kind == STK_CODEC_PNG) {
        status = stk_codec_png_begin(codec->png, &request, &shape, error);
    } else if (info->kind == STK_CODEC_WEBP) {
        status = stk_codec_webp_begin(codec->webp, &request, &shape, error);
    } else {
        status = stk_codec_raw_begin(codec->raw, &request, &shape, error);
    }
    if (status < 0) {
        stk_codec_end(codec);
        return status;
    }
    *row_pixels_out = shape.row_pixels;
    *skip_out = shape.skip_pixels;
    return 0;
}

int stk_codec_rows(struct stk_codec *codec, uint8_t *const *rows, uint32_t count,
                   struct stoker_error *error)
{
    int status;

    STK_ASSERT(codec->kind != 0 && !codec->failed);
    STK_ASSERT(codec->rows_left > 0 && count > 0);
    count = (uint32_t)stk_min(stk_min(count, codec->rows_left), INT32_MAX);
    if (codec->kind == STK_CODEC_JPEG) {
        status = stk_codec_jpeg_rows(codec->jpeg, rows, count, error);
    } else if (codec->kind == STK_CODEC_PNG) {
        status = stk_codec_png_rows(codec->png, rows, count, error);
    } else if (codec->kind == STK_CODEC_WEBP) {
        status = stk_codec_webp_rows(codec->webp, rows, count, error);
    } else {
        status = stk_codec_raw_rows(codec->raw, rows, count, error);
    }
    codec->failed = status < 0;
    codec->rows_left -= status < 0 ? 0 : (uint32_t)status;
    return status;
}

uint32_t stk_codec_planes(const struct stk_codec *codec, struct stk_jpeg_plane planes_out[3])
{
    STK_ASSERT(codec->kind != 0 && !codec->failed);
    return codec->kind == STK_CODEC_JPEG ? stk_codec_jpeg_planes(codec->jpeg, planes_out) : 0;
}

bool stk_codec_band(struct stk_codec *codec, struct stk_jpeg_band *band_out, bool *more_out)
{
    STK_ASSERT(codec->kind == STK_CODEC_JPEG && !codec->failed);
    codec->failed = !stk_codec_jpeg_band(codec->jpeg, band_out, more_out);
    return !codec->failed;
}

void stk_codec_to_rgbx(const struct stk_codec *codec, const uint8_t *const samples[3],
                       uint32_t count, uint8_t *out)
{
    stk_codec_jpeg_to_rgbx(codec->jpeg, samples, count, out);
}

void stk_codec_set_entry_points(struct stk_codec *codec,
                                const struct stk_jpeg_entry_points *entry_points)
{
    codec->entry_points = entry_points;
}

int stk_codec_finish(struct stk_codec *codec, struct stoker_error *error)
{
    int status = 0;

    STK_ASSERT(codec->kind != 0 && !codec->failed);
    if (codec->last_row && codec->kind == STK_CODEC_JPEG) {
        status = stk_codec_jpeg_finish(codec->jpeg, error);
    }
    codec->failed = true; /* no more rows */
    return status;
}

bool stk_codec_is_damaged(const struct stk_codec *codec)
{
    return stk_codec_warning(codec) &&
           (codec->last_kind == STK_CODEC_JPEG ? stk_codec_jpeg_is_damaged(codec->jpeg)
                                               : stk_codec_png_is_damaged(codec->png));
}

const char *stk_codec_warning(const struct stk_codec *codec)
{
    const char *text = NULL;

    if (codec->last_kind == STK_CODEC_JPEG) {
        text = stk_codec_jpeg_warning(codec->jpeg);
    } else if (codec->last_kind == STK_CODEC_PNG) {
        text = stk_codec_png_warning(codec->png);
    }
    return text && text[0] ? text : NULL;
}

void stk_codec_end(struct stk_codec *codec)
{
    if (codec->kind == STK_CODEC_JPEG) {
        stk_codec_jpeg_end(codec->jpeg);
    } else if (codec->kind == STK_CODEC_PNG) {
        stk_codec_png_end(codec->png);
    } else if (codec->kind == STK_CODEC_WEBP) {
        stk_codec_webp_end(codec->webp);
    }
    codec->kind = 0;
    stk_codec_arena_reset(&codec->arena);
}

uint64_t stk_codec_bytes(const struct stk_codec *codec)
{
    return codec->arena.bytes + stk_codec_jpeg_bytes(codec->jpeg);
}

uint32_t stk_codec_decoded_by(const struct stk_codec *codec)
{
    if (codec->last_kind == STK_CODEC_PNG) {
        return stk_codec_png_is_fallback(codec->png) ? STK_CODEC_BY_LIBPNG : STK_CODEC_BY_PNG;
    }
    return codec->last_kind == STK_CODEC_JPEG ? 1 + stk_codec_jpeg_fallback(codec->jpeg) : 0;
}

_Static_assert(STK_JPEG_REASON_COUNT <= STOKER_JPEG_REASONS, "each has a count");
_Static_assert(STOKER_JPEG_REASONS < STK_CODEC_BY_PNG, "each has its number");

const char *stoker_jpeg_reason(uint32_t i)
{
    return i > 0 && i < STK_JPEG_REASON_COUNT ? stk_jpeg_reason_name(i) : NULL;
}

void stk_codec_trim(struct stk_codec *codec, uint64_t keep_bytes)
{
    STK_ASSERT(codec->kind == 0);
    stk_codec_arena_trim(&codec->arena, keep_bytes);
    stk_codec_jpeg_trim(codec->jpeg, keep_bytes);
}
