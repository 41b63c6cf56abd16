/* Decodes PNGs with decode/png, and with libpng if decode/png cannot, row by row and without
 * libpng's transformations. This file converts the pixels of the box to RGBX, as PIL's modes and
 * convert("RGB") do. Rows of decode/png equal libpng's rows, so libpng continues below them. */
#include "decode/codec/codec_backend.h"

#include "base/mem.h"
#include "decode/png/png.h"

#include <errno.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#define HEADER_BYTES 33u       /* the signature and the IHDR chunk */
#define CHUNK_COUNT_MAX 65536u /* walked to find the orientation */
#define PALETTE_COUNT 256u
/* zlib's window and tables (zlib.h: about 44 kB), libpng's structs and read buffer. */
#define FIXED_BYTES (256u << 10)
#define CHUNK_BYTES_MAX (1u << 20) /* stored in memory; PLTE needs 768 bytes */
/* Number of bytes after those of the last row that libpng receives, so that it reports excess data.
 * libpng would inflate all of them, up to a thousandfold. */
#define SPARE_BYTES_MAX (16u << 10)
#define SPARE_ENDED 1 /* all rows are there; the rest of the data was not looked at */
#define PASSES 7      /* of an interlaced image */

struct stk_codec_png {
    struct stk_codec_arena *arena; /* borrowed */
    png_structp reader;            /* is in the scratch, as all it points to */
    png_infop info;
    jmp_buf jump;
    int status;
    struct stoker_error *error; /* borrowed during a call */
    struct stk_view bytes;      /* valid until end */
    uint64_t at, spare;         /* bytes passed to libpng; those since its last row was complete */

    struct stk_codec_request request; /* its info: the one below */
    struct stk_codec_info picture;
    struct stk_png_frame frame;
    struct stk_png_rows own;
    bool by_own; /* rows are decoded by decode/png */
    struct stk_codec_box box;
    uint32_t stored; /* enum stk_codec_pixel_format */
    uint32_t height;
    uint32_t y; /* the next row of the image */
    int color, depth;
    uint8_t *row;    /* one row as it is in the file */
    uint8_t **image; /* interlaced: all of them; else NULL */
    uint8_t palette[PALETTE_COUNT][4];
    uint8_t *const *rows; /* borrowed by rows */
    uint32_t row_count;
    char warning[128]; /* the first; "": none */
};

static int step_begin(struct stk_codec_png *png);
static int step_rows(struct stk_codec_png *png);
static void convert(const struct stk_codec_png *png, const uint8_t *from, uint8_t *to);

/* The one setjmp: see codec_jpeg.c. */
static int guarded(struct stk_codec_png *png, int (*step)(struct stk_codec_png *),
                   struct stoker_error *error)
{
    png->error = error;
    if (setjmp(png->jump)) {
        return png->status;
    }
    return step(png);
}

static int fail_end(struct stoker_error *error, uint64_t at)
{
    return stk_fail(error, STOKER_ERROR_TRUNCATED, "the png's data ends too early",
                    STK_CODEC_ADVICE_DAMAGED, "after %llu bytes", (unsigned long long)at);
}

static int fail_header(struct stoker_error *error, const char *detail)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, "the png's header is damaged",
                    STK_CODEC_ADVICE_DAMAGED, "%s", detail);
}

/* 0: PNG has no such colour type (PNG specification, 11.2.2). */
static uint32_t channels(uint8_t color)
{
    static const uint8_t counts[7] = {1, 0, 3, 1, 2, 0, 4};

    return color < sizeof counts ? counts[color] : 0;
}

/* Orientation: eXIf, or XMP in a plain iTXt; both may follow the image. */
static uint8_t find_orientation(struct stk_view bytes)
{
    static const char xmp[] = "XML:com.adobe.xmp\0\0"; /* keyword, not compressed */
    uint64_t at = 8;
    uint8_t from_xmp = 0;

    for (uint32_t i = 0; i < CHUNK_COUNT_MAX && at + 12 <= bytes.bytes; i++) {
        uint64_t length = stk_big32(bytes.data + at);
        const uint8_t *name = bytes.data + at + 4;
        struct stk_view content = {bytes.data + at + 8, length};

        if (length > bytes.bytes - at - 12) {
            break;
        }
        if (memcmp(name, "eXIf", 4) == 0) {
            uint8_t orientation = stk_exif_orientation(content);

            if (orientation) {
                return orientation;
            }
        } else if (memcmp(name, "iTXt", 4) == 0 && length >= sizeof xmp &&
                   memcmp(content.data, xmp, sizeof xmp - 1) == 0) {
            from_xmp = stk_xmp_orientation(content);
        }
        at += 12 + length;
    }
    return from_xmp;
}

int stk_codec_png_probe(struct stk_view bytes, struct stk_codec_info *info_out,
                        struct stoker_error *error)
{
    const uint8_t *header = bytes.data + 16; /* after signature, length and name of IHDR */
    uint64_t row_bytes;
    uint8_t orientation;

    if (bytes.bytes < HEADER_BYTES) {
        return fail_end(error, bytes.bytes);
    }
    if (memcmp(bytes.data + 12, "CgBI", 4) == 0) {
        return stk_fail(
            error, STOKER_ERROR_UNSUPPORTED, "the png is in the variant of Apple's tools (CgBI)",
            "revert it with 'pngcrush -revert-iphone-optimizations'", "its first chunk is CgBI");
    }
    if (memcmp(bytes.data + 8, "\0\0\0\rIHDR", 8) != 0) {
        return fail_header(error, "its first chunk is not IHDR");
    }
    info_out->width = stk_big32(header);
    info_out->height = stk_big32(header + 4);
    if (info_out->width == 0 || info_out->height == 0 || info_out->width > PNG_UINT_31_MAX ||
        info_out->height > PNG_UINT_31_MAX) {
        return fail_header(error, "impossible width or height");
    }
    if (channels(header[9]) == 0 || header[8] > 16 || header[12] > 1) {
        return fail_header(error, "impossible colour type, depth or interlacing");
    }
    orientation = find_orientation(bytes);
    info_out->kind = STK_CODEC_PNG;
    info_out->orientation = orientation ? orientation : 1;
    /* Below 2^31 * 64 bits: cannot wrap. libpng allocates two padded rows; this file allocates a
     * third. */
    row_bytes = ((uint64_t)info_out->width * channels(header[9]) * header[8] + 7) / 8 + 128;
    info_out->memory_bytes = FIXED_BYTES + 4 * row_bytes;
    if (header[12]) {
        info_out->memory_bytes += (row_bytes + sizeof(void *)) * info_out->height;
    }
    return 0;
}

int stk_codec_png_open(struct stk_codec_png **png_out, struct stk_codec_arena *arena,
                       struct stoker_error *error)
{
    struct stk_codec_png *png = stk_alloc(1, sizeof *png);

    if (!png) {
        return stk_fail_errno(error, ENOMEM, "cannot make a png decoder",
                              "give the process more memory", "%zu bytes", sizeof *png);
    }
    png->arena = arena;
    *png_out = png;
    return 0;
}

void stk_codec_png_close(struct stk_codec_png *png)
{
    stk_free(png);
}

/* Checks that the mask has pixels of this kind; otherwise its values cannot be read as
 * requested. */
static bool is_stored(uint32_t stored, uint32_t color, uint32_t depth)
{
    if (stored == STK_CODEC_VALUES) {
        return color == PNG_COLOR_TYPE_PALETTE || color == PNG_COLOR_TYPE_GRAY;
    }
    return stored != STK_CODEC_RGB_IDS || depth < 16;
}

static int begin_scratch(struct stk_codec_png *png, struct stoker_error *error)
{
    return stk_codec_arena_begin(png->arena, png->request.memory_bytes_max,
                                 png->picture.memory_bytes, error);
}

/* Returns whether decode/png decodes the image. Unsupported requests are left to the libpng path,
 * which refuses them. */
static bool begin_native(struct stk_codec_png *png)
{
    const struct stk_png_box box = {png->box.x, png->box.y, png->box.width, png->box.height};
    struct stk_png_frame *frame = &png->frame;
    void *space;

    if (!stk_png_frame_read(png->bytes, frame) || frame->width != png->picture.width ||
        frame->height != png->picture.height ||
        !is_stored(png->stored, frame->color, frame->depth)) {
        return false;
    }
    space = stk_codec_arena_alloc(png->arena, stk_png_workspace_bytes(frame));
    if (!space ||
        !stk_png_rows_begin(&png->own, frame, png->bytes, &box, space, STOKER_SIMD_AUTO)) {
        return false;
    }
    png->color = (int)frame->color;
    png->depth = (int)frame->depth;
    memset(png->palette, 0, sizeof png->palette);
    for (size_t i = 0; i < frame->palette.bytes / 3 && i < (size_t)1 << frame->depth; i++) {
        memcpy(png->palette[i], frame->palette.data + 3 * i, 3);
    }
    return true;
}

/* Starts libpng, with a scratch of its own, at the first row of the box that is left. */
static int begin_library(struct stk_codec_png *png, struct stoker_error *error)
{
    int status;

    png->by_own = false;
    png->at = png->spare = 0;
    png->y = 0;
    stk_codec_arena_reset(png->arena);
    status = begin_scratch(png, error);
    status = status < 0 ? status : guarded(png, step_begin, error);
    return status < 0 ? status : 0;
}

int stk_codec_png_begin(struct stk_codec_png *png, const struct stk_codec_request *request,
                        struct stk_codec_row_shape *shape_out, struct stoker_error *error)
{
    int status;

    png->request = *request;
    png->picture = *request->info;
    png->request.info = &png->picture;
    png->box = request->box;
    png->bytes = request->bytes;
    png->stored = request->info->pixel_format;
    png->image = NULL;
    png->warning[0] = '\0';
    *shape_out = (struct stk_codec_row_shape){png->box.width, 0};
    status = begin_scratch(png, error);
    if (status < 0) {
        return status;
    }
    png->by_own = begin_native(png);
    return png->by_own ? 0 : begin_library(png, error);
}

/* Reads rows until the box ends, or libpng must continue; returns how many. */
static uint32_t rows_native(struct stk_codec_png *png, uint8_t *const *rows, uint32_t count)
{
    uint32_t done = 0;

    for (; done < count; done++) {
        const uint8_t *row = stk_png_rows_next(&png->own);

        if (!row) {
            break;
        }
        convert(png, row, rows[done]);
    }
    png->box.y += done;
    png->box.height -= done;
    return done;
}

int stk_codec_png_rows(struct stk_codec_png *png, uint8_t *const *rows, uint32_t count,
                       struct stoker_error *error)
{
    uint32_t done = png->by_own ? rows_native(png, rows, count) : 0;
    int status = 0;

    if (done == count) {
        return (int)count;
    }
    if (png->by_own) {
        status = begin_library(png, error);
    }
    png->rows = rows + done;
    png->row_count = count - done;
    status = status < 0 ? status : guarded(png, step_rows, error);
    if (status == SPARE_ENDED) {
        convert(png, png->row, rows[count - 1]);
    }
    return status < 0 ? status : (int)count;
}

const char *stk_codec_png_warning(const struct stk_codec_png *png)
{
    return png->warning;
}

/* Warnings about other chunks say nothing about the pixels. */
bool stk_codec_png_is_damaged(const struct stk_codec_png *png)
{
    return strncmp(png->warning, "IDAT", 4) == 0;
}

bool stk_codec_png_is_fallback(const struct stk_codec_png *png)
{
    return !png->by_own;
}

void stk_codec_png_end(struct stk_codec_png *png)
{
    /* libpng frees its blocks one at a time; the arena releases them together. */
    png->reader = NULL;
    png->info = NULL;
    png->image = NULL;
}

/* ---- callbacks of libpng ------------------------------------------------------------------ */

_Noreturn static void jump_end(struct stk_codec_png *png)
{
    png->status = fail_end(png->error, png->bytes.bytes);
    longjmp(png->jump, 1);
}

_Noreturn static void jump_scratch(struct stk_codec_png *png)
{
    png->status = stk_codec_arena_fail(png->arena, png->error);
    longjmp(png->jump, 1);
}

static void check_stored(struct stk_codec_png *png)
{
    if (is_stored(png->stored, (uint32_t)png->color, (uint32_t)png->depth)) {
        return;
    }
    if (png->stored == STK_CODEC_VALUES) {
        png->status = stk_fail(png->error, STOKER_ERROR_UNSUPPORTED,
                               "the png has colours or alpha, not one value a pixel",
                               "save the mask as a grey or palette PNG, or ask for rgb_ids",
                               "colour type %d", png->color);
    } else {
        png->status = stk_fail(png->error, STOKER_ERROR_UNSUPPORTED,
                               "the png has 16 bits a channel, and ids of colours have 8",
                               "save the mask with 8 bits a channel, or leave rgb_ids out",
                               "colour type %d", png->color);
    }
    longjmp(png->jump, 1);
}

_Noreturn static void on_error(png_structp reader, png_const_charp text)
{
    struct stk_codec_png *png = png_get_error_ptr(reader);

    if (png->arena->status) {
        jump_scratch(png);
    }
    png->status = stk_fail(png->error, STOKER_ERROR_CORRUPT, "the png is damaged",
                           STK_CODEC_ADVICE_DAMAGED, "libpng: %s", text);
    longjmp(png->jump, 1);
}

static void on_warning(png_structp reader, png_const_charp text)
{
    struct stk_codec_png *png = png_get_error_ptr(reader); /* the caller decides about it */

    if (!png->warning[0] || (!stk_codec_png_is_damaged(png) && strncmp(text, "IDAT", 4) == 0)) {
        snprintf(png->warning, sizeof png->warning, "%s", text);
    }
}

/* Whether libpng has all rows, and only looks for the end of their data. */
static bool has_rows(png_structp reader, const struct stk_codec_png *png)
{
    return png->image ? png_get_current_pass_number(reader) >= PASSES
                      : png_get_current_row_number(reader) >= png->height;
}

static void on_read(png_structp reader, png_bytep to, size_t bytes)
{
    struct stk_codec_png *png = png_get_io_ptr(reader);

    png->spare += has_rows(reader, png) ? bytes : 0;
    if (png->spare > SPARE_BYTES_MAX) {
        on_warning(reader, "IDAT: Too much image data");
        png->status = SPARE_ENDED;
        longjmp(png->jump, 1);
    }
    if (bytes > png->bytes.bytes - png->at) {
        jump_end(png);
    }
    memcpy(to, png->bytes.data + png->at, bytes);
    png->at += bytes;
}

static png_voidp on_alloc(png_structp reader, png_alloc_size_t bytes)
{
    struct stk_codec_png *png = png_get_mem_ptr(reader);

    return stk_codec_arena_alloc(png->arena, bytes);
}

static void on_free(png_structp reader, png_voidp piece)
{
    (void)reader, (void)piece; /* the arena is reset at once */
}

/* ---- the steps, which may jump ---------------------------------------------------------- */

static void *take(struct stk_codec_png *png, uint64_t bytes)
{
    void *piece = stk_codec_arena_alloc(png->arena, bytes);

    if (!piece) {
        jump_scratch(png);
    }
    return piece;
}

/* Chunks that do not affect the pixels are skipped: text, profiles and gamma may be large,
 * compressed or damaged. */
static void open_reader(struct stk_codec_png *png)
{
    static const png_byte passed[] = "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0"
                                     "sBIT\0sCAL\0sPLT\0sRGB\0sTER\0tEXt\0tIME\0tRNS\0zTXt";

    png->height = png->request.info->height;
    png->reader = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, png, on_error, on_warning, png,
                                           on_alloc, on_free);
    png->info = png->reader ? png_create_info_struct(png->reader) : NULL;
    if (!png->info) {
        if (png->arena->status == 0) {
            png->arena->status = -ENOMEM;
        }
        jump_scratch(png);
    }
    png_set_read_fn(png->reader, png, on_read);
    png_set_keep_unknown_chunks(png->reader, PNG_HANDLE_CHUNK_NEVER, NULL, 0);
    png_set_keep_unknown_chunks(png->reader, PNG_HANDLE_CHUNK_NEVER, passed, sizeof passed / 5);
    png_set_user_limits(png->reader, png->request.info->width, png->request.info->height);
    png_set_chunk_malloc_max(png->reader, CHUNK_BYTES_MAX);
    png_set_benign_errors(png->reader, 1);
    /* Some writers understate the window in the zlib header; PIL reads them. */
    png_set_option(png->reader, PNG_MAXIMUM_INFLATE_WINDOW, PNG_OPTION_ON);
}

/* Colours that the palette does not name are black, as in PIL. */
static void read_palette(struct stk_codec_png *png)
{
    png_colorp colors = NULL;
    int count = 0;

    memset(png->palette, 0, sizeof png->palette);
    png_get_PLTE(png->reader, png->info, &colors, &count);
    for (int i = 0; i < count && i < (int)PALETTE_COUNT; i++) {
        png->palette[i][0] = colors[i].red;
        png->palette[i][1] = colors[i].green;
        png->palette[i][2] = colors[i].blue;
    }
}

static void read_interlaced(struct stk_codec_png *png, size_t row_bytes)
{
    png->image = take(png, (uint64_t)png->height * sizeof *png->image);
    for (uint32_t y = 0; y < png->height; y++) {
        png->image[y] = take(png, row_bytes);
        memset(png->image[y], 0, row_bytes);
    }
    png_read_image(png->reader, png->image);
}

static int step_begin(struct stk_codec_png *png)
{
    png_uint_32 width, height;
    int interlaced;

    open_reader(png);
    png_read_info(png->reader, png->info);
    png_get_IHDR(png->reader, png->info, &width, &height, &png->depth, &png->color, &interlaced,
                 NULL, NULL);
    if (width != png->request.info->width || height != png->request.info->height) {
        png->status = fail_header(png->error, "it has two headers");
        longjmp(png->jump, 1);
    }
    check_stored(png);
    if (png->color == PNG_COLOR_TYPE_PALETTE) {
        read_palette(png);
    }
    if (interlaced == PNG_INTERLACE_NONE) {
        png->row = take(png, png_get_rowbytes(png->reader, png->info));
        png_start_read_image(png->reader);
        for (; png->y < png->box.y; png->y++) {
            png_read_row(png->reader, png->row, NULL);
        }
    } else {
        png->y = png->box.y;
        read_interlaced(png, png_get_rowbytes(png->reader, png->info));
    }
    return 0;
}

static int step_rows(struct stk_codec_png *png)
{
    for (uint32_t i = 0; i < png->row_count; i++) {
        const uint8_t *from = png->row;

        if (png->image) {
            from = png->image[png->y];
        } else {
            png_read_row(png->reader, png->row, NULL);
        }
        convert(png, from, png->rows[i]);
        png->y++;
    }
    return 0;
}

/* ---- pixels ------------------------------------------------------------------------------- */

static void put(uint8_t *to, uint8_t red, uint8_t green, uint8_t blue)
{
    to[0] = red;
    to[1] = green;
    to[2] = blue;
    to[3] = 255;
}

/* 1, 2 and 4 bits, first pixel in the high bits: the sample at pixel x. */
static uint8_t packed(const uint8_t *from, uint32_t x, uint32_t depth)
{
    uint64_t bit = (uint64_t)x * depth;

    return (uint8_t)(from[bit / 8] >> (8 - depth - bit % 8)) & ((1u << depth) - 1);
}

static void convert_packed(const struct stk_codec_png *png, const uint8_t *from, uint8_t *to)
{
    uint32_t depth = (uint32_t)png->depth;
    uint8_t scale = (uint8_t)(255 / ((1u << depth) - 1)); /* 255, 85, 17 */

    for (uint32_t i = 0; i < png->box.width; i++, to += 4) {
        uint8_t value = packed(from, png->box.x + i, depth);

        if (png->color == PNG_COLOR_TYPE_PALETTE) {
            memcpy(to, png->palette[value], 4);
        } else {
            value = (uint8_t)(value * scale);
            put(to, value, value, value);
        }
    }
}

static void convert_8(const struct stk_codec_png *png, const uint8_t *from, uint8_t *to)
{
    uint32_t step = channels((uint8_t)png->color);

    from += (size_t)png->box.x * step;
    for (uint32_t i = 0; i < png->box.width; i++, from += step, to += 4) {
        if (png->color == PNG_COLOR_TYPE_PALETTE) {
            memcpy(to, png->palette[*from], 4);
        } else if (png->color & PNG_COLOR_MASK_COLOR) {
            put(to, from[0], from[1], from[2]);
        } else {
            put(to, from[0], from[0], from[0]);
        }
    }
}

/* 16 bits, big-endian: the high byte is the value scaled to 8 bits. PIL clips plain grey (mode
 * I;16) instead; torchvision scales it, and both scale colours. */
static void convert_16(const struct stk_codec_png *png, const uint8_t *from, uint8_t *to)
{
    uint32_t step = 2 * channels((uint8_t)png->color);

    from += (size_t)png->box.x * step;
    for (uint32_t i = 0; i < png->box.width; i++, from += step, to += 4) {
        if (png->color & PNG_COLOR_MASK_COLOR) {
            put(to, from[0], from[2], from[4]);
        } else {
            put(to, from[0], from[0], from[0]);
        }
    }
}

/* Grey or palette: the value as it is in the file, low byte first. */
static void convert_stored(const struct stk_codec_png *png, const uint8_t *from, uint8_t *to)
{
    for (uint32_t i = 0; i < png->box.width; i++, to += 4) {
        uint32_t x = png->box.x + i;

        memset(to, 0, 4);
        if (png->depth == 16) {
            to[0] = from[2 * (size_t)x + 1];
            to[1] = from[2 * (size_t)x];
        } else {
            to[0] = png->depth == 8 ? from[x] : packed(from, x, (uint32_t)png->depth);
        }
    }
}

static void convert(const struct stk_codec_png *png, const uint8_t *from, uint8_t *to)
{
    if (png->stored == STK_CODEC_VALUES) {
        convert_stored(png, from, to);
    } else if (png->depth < 8) {
        convert_packed(png, from, to);
    } else if (png->depth == 8) {
        convert_8(png, from, to);
    } else {
        convert_16(png, from, to);
    }
}
