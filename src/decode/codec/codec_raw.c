/* BMP and PNM (PBM, PGM, PPM; binary and plain). They are not compressed, or by runs of palette
 * indexes only, so rows are converted from the file; a BMP of runs is expanded first.
 *
 * Formats: Microsoft's BITMAPINFOHEADER pages; netpbm's pbm(5), pgm(5) and ppm(5). Samples of other
 * depths are scaled to 8 bits. */
#include "decode/codec/codec_backend.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

#define SIDE_MAX 1000000u
#define FIXED_BYTES (4u << 10)
#define BMP_HEADER_BYTES 14u /* the file header, before the header of the image */

enum bmp_compression { BMP_PLAIN, BMP_RUNS_8, BMP_RUNS_4, BMP_MASKS, BMP_MASKS_ALPHA = 6 };

struct bmp {
    uint32_t bits, compression, colors, color_bytes;
    uint64_t palette_at, data_at, stride;
    bool top_down;
    uint32_t masks[3];
};

struct pnm {
    uint32_t kind, samples; /* '1' to '6'; of a pixel */
    uint32_t value_max;
    uint64_t data_at, stride; /* stride: binary kinds */
};

struct stk_codec_raw {
    struct stk_codec_arena *arena; /* borrowed */
    struct stk_view bytes;         /* valid until end */
    struct stk_codec_box box;
    uint32_t kind, width, height, y; /* y: the next row of the image */
    struct bmp bmp;
    struct pnm pnm;
    uint64_t at;      /* plain PNM: the next number */
    uint8_t *indexes; /* BMP of runs: the image, a byte a pixel, top down */
};

static int fail_header(struct stoker_error *error, const char *detail)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, "the image's header is damaged",
                    STK_CODEC_ADVICE_DAMAGED, "%s", detail);
}

static int fail_unsupported(struct stoker_error *error, const char *detail)
{
    return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the image uses a feature that is not read",
                    STK_CODEC_ADVICE_CONVERT, "%s", detail);
}

static int fail_end(struct stoker_error *error, uint64_t at)
{
    return stk_fail(error, STOKER_ERROR_TRUNCATED, "the image's data ends too early",
                    STK_CODEC_ADVICE_DAMAGED, "after %llu bytes", (unsigned long long)at);
}

/* ---- BMP ---------------------------------------------------------------------------------- */

static int read_bmp_core(struct stk_view bytes, struct bmp *bmp, int64_t sides_out[2],
                         struct stoker_error *error)
{
    const uint8_t *header = bytes.data + BMP_HEADER_BYTES;
    uint32_t header_bytes;

    if (bytes.bytes < BMP_HEADER_BYTES + 12) {
        return fail_end(error, bytes.bytes);
    }
    header_bytes = stk_little32(header);
    if (header_bytes != 12 && (header_bytes < 40 || header_bytes > 256)) {
        return fail_unsupported(error, "a BMP header of an unknown size");
    }
    if (bytes.bytes - BMP_HEADER_BYTES < header_bytes) {
        return fail_end(error, bytes.bytes);
    }
    bmp->data_at = stk_little32(bytes.data + 10);
    bmp->palette_at = BMP_HEADER_BYTES + header_bytes;
    if (header_bytes == 12) {
        sides_out[0] = stk_little16(header + 4);
        sides_out[1] = stk_little16(header + 6);
        bmp->bits = stk_little16(header + 10);
        bmp->color_bytes = 3;
        return 0;
    }
    sides_out[0] = (int32_t)stk_little32(header + 4);
    sides_out[1] = (int32_t)stk_little32(header + 8);
    bmp->bits = stk_little16(header + 14);
    bmp->compression = stk_little32(header + 16);
    bmp->colors = stk_little32(header + 32);
    bmp->color_bytes = 4;
    if (bmp->compression == BMP_MASKS || bmp->compression == BMP_MASKS_ALPHA) {
        if (bytes.bytes < BMP_HEADER_BYTES + 52) {
            return fail_end(error, bytes.bytes);
        }
        for (int i = 0; i < 3; i++) { /* after a header of 40 bytes, or in a longer one */
            bmp->masks[i] = stk_little32(header + 40 + 4 * i);
        }
    }
    return 0;
}

static int read_bmp(struct stk_view bytes, struct bmp *bmp, uint32_t *width_out,
                    uint32_t *height_out, struct stoker_error *error)
{
    int64_t sides[2] = {0, 0};
    int status;

    *bmp = (struct bmp){0};
    status = read_bmp_core(bytes, bmp, sides, error);
    if (status < 0) {
        return status;
    }
    bmp->top_down = sides[1] < 0;
    sides[1] = sides[1] < 0 ? -sides[1] : sides[1];
    if (sides[0] <= 0 || sides[1] == 0 || sides[0] > SIDE_MAX || sides[1] > SIDE_MAX) {
        return fail_header(error, "impossible width or height");
    }
    if (bmp->compression == BMP_PLAIN && bmp->bits == 16) {
        memcpy(bmp->masks, (uint32_t[]){0x7c00, 0x3e0, 0x1f}, sizeof bmp->masks);
    } else if (bmp->compression == BMP_PLAIN && bmp->bits == 32) {
        memcpy(bmp->masks, (uint32_t[]){0xff0000, 0xff00, 0xff}, sizeof bmp->masks);
    }
    switch (bmp->compression) {
    case BMP_PLAIN:
        if (bmp->bits != 1 && bmp->bits != 4 && bmp->bits != 8 && bmp->bits != 16 &&
            bmp->bits != 24 && bmp->bits != 32) {
            return fail_unsupported(error, "a BMP of an unknown depth");
        }
        break;
    case BMP_RUNS_8:
    case BMP_RUNS_4:
        if (bmp->bits != (bmp->compression == BMP_RUNS_8 ? 8 : 4) || bmp->top_down) {
            return fail_header(error, "runs do not fit the depth");
        }
        break;
    case BMP_MASKS:
    case BMP_MASKS_ALPHA:
        if ((bmp->bits != 16 && bmp->bits != 32) || !bmp->masks[0] || !bmp->masks[1] ||
            !bmp->masks[2]) {
            return fail_header(error, "the masks of the colours are impossible");
        }
        break;
    default:
        return fail_unsupported(error, "a BMP that holds a JPEG or PNG");
    }
    if (bmp->bits <= 8) {
        uint32_t most = 1u << bmp->bits;

        bmp->colors = bmp->colors == 0 || bmp->colors > most ? most : bmp->colors;
        if (bytes.bytes - bmp->palette_at < (uint64_t)bmp->colors * bmp->color_bytes) {
            return fail_end(error, bytes.bytes);
        }
    }
    *width_out = (uint32_t)sides[0];
    *height_out = (uint32_t)sides[1];
    bmp->stride = ((uint64_t)*width_out * bmp->bits + 31) / 32 * 4;
    return 0;
}

static void put(uint8_t *to, uint32_t red, uint32_t green, uint32_t blue)
{
    to[0] = (uint8_t)red;
    to[1] = (uint8_t)green;
    to[2] = (uint8_t)blue;
    to[3] = 255;
}

/* The bits of a mask, scaled to a byte. */
static uint32_t masked(uint32_t pixel, uint32_t mask)
{
    uint32_t shift = (uint32_t)__builtin_ctz(mask), most = mask >> shift;

    return (uint32_t)((uint64_t)((pixel & mask) >> shift) * 255 / most);
}

static void put_color(const struct stk_codec_raw *raw, uint32_t index, uint8_t *to)
{
    const struct bmp *bmp = &raw->bmp;
    const uint8_t *color = raw->bytes.data + bmp->palette_at + (uint64_t)index * bmp->color_bytes;

    if (index < bmp->colors) {
        put(to, color[2], color[1], color[0]);
    } else {
        put(to, 0, 0, 0);
    }
}

static int convert_bmp(const struct stk_codec_raw *raw, uint8_t *to, struct stoker_error *error)
{
    const struct bmp *bmp = &raw->bmp;
    uint64_t row = bmp->top_down ? raw->y : raw->height - 1 - raw->y;
    uint64_t at = bmp->data_at + row * bmp->stride;
    uint64_t used = ((uint64_t)(raw->box.x + raw->box.width) * bmp->bits + 7) / 8;
    const uint8_t *from = raw->bytes.data + at;

    if (raw->indexes) {
        for (uint32_t i = 0; i < raw->box.width; i++, to += 4) {
            put_color(raw, raw->indexes[(uint64_t)raw->y * raw->width + raw->box.x + i], to);
        }
        return 0;
    }
    if (at > raw->bytes.bytes || raw->bytes.bytes - at < used) {
        return fail_end(error, raw->bytes.bytes);
    }
    for (uint32_t i = 0; i < raw->box.width; i++, to += 4) {
        uint64_t x = raw->box.x + i;

        if (bmp->bits <= 8) {
            uint64_t bit = x * bmp->bits;

            put_color(raw, from[bit / 8] >> (8 - bmp->bits - bit % 8) & ((1u << bmp->bits) - 1),
                      to);
        } else if (bmp->bits == 24) {
            put(to, from[3 * x + 2], from[3 * x + 1], from[3 * x]);
        } else {
            uint32_t pixel =
                bmp->bits == 16 ? stk_little16(from + 2 * x) : stk_little32(from + 4 * x);

            put(to, masked(pixel, bmp->masks[0]), masked(pixel, bmp->masks[1]),
                masked(pixel, bmp->masks[2]));
        }
    }
    return 0;
}

/* Writes runs to the rows: pixels outside the image are dropped. */
struct runs {
    struct stk_codec_raw *raw;
    uint64_t x, y; /* y: from the bottom */
};

static void put_index(struct runs *runs, uint32_t index)
{
    struct stk_codec_raw *raw = runs->raw;

    if (runs->x < raw->width && runs->y < raw->height) {
        raw->indexes[(raw->height - 1 - runs->y) * raw->width + runs->x] = (uint8_t)index;
    }
    runs->x++;
}

static void put_run(struct runs *runs, const uint8_t *values, uint32_t count, bool repeated)
{
    for (uint32_t i = 0; i < count; i++) {
        if (runs->raw->bmp.bits == 8) {
            put_index(runs, values[repeated ? 0 : i]);
        } else {
            uint8_t two = values[repeated ? 0 : i / 2];

            put_index(runs, i % 2 ? two & 15u : two >> 4);
        }
    }
}

/* Pairs of bytes: a run, or after a 0 the end of a row, of the image, a move, or stored pixels. */
static int expand_runs(struct stk_codec_raw *raw, struct stoker_error *error)
{
    struct runs runs = {.raw = raw};
    struct stk_view bytes = raw->bytes;
    uint64_t at = raw->bmp.data_at;

    while (at <= bytes.bytes && bytes.bytes - at >= 2) {
        uint32_t count = bytes.data[at], value = bytes.data[at + 1];
        uint64_t stored = raw->bmp.bits == 8 ? value : (value + 1) / 2;

        at += 2;
        if (count > 0) {
            put_run(&runs, &(uint8_t){(uint8_t)value}, count, true);
        } else if (value == 0) {
            runs.x = 0;
            runs.y++;
        } else if (value == 1) {
            return 0;
        } else if (value == 2) {
            if (bytes.bytes - at < 2) {
                break;
            }
            runs.x += bytes.data[at];
            runs.y += bytes.data[at + 1];
            at += 2;
        } else {
            if (bytes.bytes - at < stored) {
                break;
            }
            put_run(&runs, bytes.data + at, value, false);
            at += stored + (stored & 1);
        }
    }
    return runs.y + 1 >= raw->height && runs.x >= raw->width ? 0 : fail_end(error, bytes.bytes);
}

/* ---- PNM ---------------------------------------------------------------------------------- */

static bool is_space(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* A number after spaces and comments. `digit`: a single one, as bits of a plain PBM may follow
 * each other without a space. Returns false at the end or at another byte. */
static bool read_number(struct stk_view bytes, uint64_t *at, bool digit, uint32_t *number_out)
{
    uint64_t number = 0, begin;

    while (*at < bytes.bytes && (is_space(bytes.data[*at]) || bytes.data[*at] == '#')) {
        if (bytes.data[*at] == '#') {
            while (*at < bytes.bytes && bytes.data[*at] != '\n') {
                (*at)++;
            }
        } else {
            (*at)++;
        }
    }
    begin = *at;
    while (*at < bytes.bytes && bytes.data[*at] >= '0' && bytes.data[*at] <= '9' &&
           number < SIDE_MAX * 10ull && !(digit && *at > begin)) {
        number = number * 10 + (bytes.data[(*at)++] - '0');
    }
    *number_out = (uint32_t)stk_min(number, UINT32_MAX);
    return *at > begin;
}

static int read_pnm(struct stk_view bytes, struct pnm *pnm, uint32_t *width_out,
                    uint32_t *height_out, struct stoker_error *error)
{
    uint64_t at = 2;
    bool bitmap;

    *pnm = (struct pnm){.kind = bytes.data[1], .value_max = 1};
    bitmap = pnm->kind == '1' || pnm->kind == '4';
    pnm->samples = pnm->kind == '3' || pnm->kind == '6' ? 3 : 1;
    if (!read_number(bytes, &at, false, width_out) || !read_number(bytes, &at, false, height_out) ||
        (!bitmap && !read_number(bytes, &at, false, &pnm->value_max))) {
        return at >= bytes.bytes ? fail_end(error, bytes.bytes)
                                 : fail_header(error, "a number is missing");
    }
    if (*width_out == 0 || *height_out == 0 || *width_out > SIDE_MAX || *height_out > SIDE_MAX) {
        return fail_header(error, "impossible width or height");
    }
    if (pnm->value_max == 0 || pnm->value_max > 65535) {
        return fail_header(error, "the largest value is not 1 to 65535");
    }
    pnm->data_at = at + 1; /* one space */
    pnm->stride = pnm->kind == '4'
                      ? (*width_out + 7) / 8
                      : (uint64_t)*width_out * pnm->samples * (pnm->value_max > 255 ? 2 : 1);
    return 0;
}

static uint32_t scaled(const struct pnm *pnm, uint32_t value)
{
    return value >= pnm->value_max ? 255 : (value * 255 + pnm->value_max / 2) / pnm->value_max;
}

static int convert_binary(const struct stk_codec_raw *raw, uint8_t *to, struct stoker_error *error)
{
    const struct pnm *pnm = &raw->pnm;
    uint64_t at = pnm->data_at + (uint64_t)raw->y * pnm->stride;
    const uint8_t *from = raw->bytes.data + at;
    uint32_t wide = pnm->value_max > 255 ? 2 : 1;

    if (at > raw->bytes.bytes || raw->bytes.bytes - at < pnm->stride) {
        return fail_end(error, raw->bytes.bytes);
    }
    for (uint32_t i = 0; i < raw->box.width; i++, to += 4) {
        uint64_t x = raw->box.x + i;
        uint32_t values[3] = {0};

        if (pnm->kind == '4') {
            values[0] = from[x / 8] >> (7 - x % 8) & 1 ? 0 : 255;
        }
        for (uint32_t c = 0; c < pnm->samples && pnm->kind != '4'; c++) {
            const uint8_t *sample = from + (x * pnm->samples + c) * wide;

            values[c] = scaled(pnm, wide == 2 ? stk_big16(sample) : sample[0]);
        }
        put(to, values[0], values[pnm->samples > 1 ? 1 : 0], values[pnm->samples > 1 ? 2 : 0]);
    }
    return 0;
}

/* A row of numbers. to: NULL: it is skipped. */
static int convert_plain(struct stk_codec_raw *raw, uint8_t *to, struct stoker_error *error)
{
    const struct pnm *pnm = &raw->pnm;

    for (uint32_t x = 0; x < raw->width; x++) {
        uint32_t values[3] = {0};

        for (uint32_t c = 0; c < pnm->samples; c++) {
            if (!read_number(raw->bytes, &raw->at, pnm->kind == '1', &values[c])) {
                return raw->at >= raw->bytes.bytes
                           ? fail_end(error, raw->bytes.bytes)
                           : stk_fail(error, STOKER_ERROR_CORRUPT, "the image's data is damaged",
                                      STK_CODEC_ADVICE_DAMAGED, "byte %llu is no digit",
                                      (unsigned long long)raw->at);
            }
            values[c] = pnm->kind == '1' ? (values[c] ? 0 : 255) : scaled(pnm, values[c]);
        }
        if (to && x >= raw->box.x && x - raw->box.x < raw->box.width) {
            put(to + 4 * (size_t)(x - raw->box.x), values[0], values[pnm->samples > 1 ? 1 : 0],
                values[pnm->samples > 1 ? 2 : 0]);
        }
    }
    return 0;
}

/* ---- the backend -------------------------------------------------------------------------- */

int stk_codec_raw_probe(struct stk_view bytes, uint32_t kind, struct stk_codec_info *info_out,
                        struct stoker_error *error)
{
    struct bmp bmp = {0};
    struct pnm pnm;
    int status = kind == STK_CODEC_BMP
                     ? read_bmp(bytes, &bmp, &info_out->width, &info_out->height, error)
                     : read_pnm(bytes, &pnm, &info_out->width, &info_out->height, error);
    bool runs = bmp.compression == BMP_RUNS_8 || bmp.compression == BMP_RUNS_4;

    info_out->kind = kind;
    info_out->orientation = 1;
    info_out->memory_bytes = FIXED_BYTES;
    if (status == 0 && runs) {
        info_out->memory_bytes += (uint64_t)info_out->width * info_out->height;
    }
    return status;
}

int stk_codec_raw_open(struct stk_codec_raw **raw_out, struct stk_codec_arena *arena,
                       struct stoker_error *error)
{
    struct stk_codec_raw *raw = stk_alloc(1, sizeof *raw);

    if (!raw) {
        return stk_fail_errno(error, ENOMEM, "cannot make a decoder of BMP and PNM",
                              "give the process more memory", "%zu bytes", sizeof *raw);
    }
    raw->arena = arena;
    *raw_out = raw;
    return 0;
}

void stk_codec_raw_close(struct stk_codec_raw *raw)
{
    stk_free(raw);
}

static int begin_runs(struct stk_codec_raw *raw, uint64_t memory_bytes_max,
                      struct stoker_error *error)
{
    uint64_t pixels = (uint64_t)raw->width * raw->height;
    int status =
        stk_codec_arena_begin(raw->arena, memory_bytes_max, pixels + STK_CODEC_ARENA_ALIGN, error);

    if (status < 0) {
        return status;
    }
    raw->indexes = stk_codec_arena_alloc(raw->arena, pixels);
    if (!raw->indexes) {
        return stk_codec_arena_fail(raw->arena, error);
    }
    memset(raw->indexes, 0, pixels);
    return expand_runs(raw, error);
}

int stk_codec_raw_begin(struct stk_codec_raw *raw, const struct stk_codec_request *request,
                        struct stk_codec_row_shape *shape_out, struct stoker_error *error)
{
    int status;

    raw->bytes = request->bytes;
    raw->box = request->box;
    raw->kind = request->info->kind;
    raw->y = request->box.y;
    raw->indexes = NULL;
    *shape_out = (struct stk_codec_row_shape){request->box.width, 0};
    if (raw->kind == STK_CODEC_BMP) {
        status = read_bmp(raw->bytes, &raw->bmp, &raw->width, &raw->height, error);
        return status == 0 &&
                       (raw->bmp.compression == BMP_RUNS_8 || raw->bmp.compression == BMP_RUNS_4)
                   ? begin_runs(raw, request->memory_bytes_max, error)
                   : status;
    }
    status = read_pnm(raw->bytes, &raw->pnm, &raw->width, &raw->height, error);
    raw->at = status == 0 ? raw->pnm.data_at : 0;
    for (uint32_t y = 0; y < raw->y && status == 0 && raw->pnm.kind <= '3'; y++) {
        status = convert_plain(raw, NULL, error);
    }
    return status;
}

int stk_codec_raw_rows(struct stk_codec_raw *raw, uint8_t *const *rows, uint32_t count,
                       struct stoker_error *error)
{
    int status = 0;

    for (uint32_t i = 0; i < count && status == 0; i++) {
        status = raw->kind == STK_CODEC_BMP ? convert_bmp(raw, rows[i], error)
                 : raw->pnm.kind <= '3'     ? convert_plain(raw, rows[i], error)
                                            : convert_binary(raw, rows[i], error);
        raw->y++;
    }
    return status < 0 ? status : (int)count;
}
