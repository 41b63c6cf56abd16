/* Goal: bad input is a typed error, takes little memory and time; no data of one image reaches the
 * next; memory is bounded and reused.
 * Method: rows of known bytes; files cut at every byte and damaged at random; headers with wrong
 * sizes; fail-nth on allocation. Takes a seed as its argument. Covers codec_jpeg.c, jpeg_header.c,
 * jpeg_memory.c, codec_arena.c, codec_png.c, codec_webp.c and exif.c. */
#include "decode/codec/picture_test.h"

#include "base/mem.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

/* ---- bad input -------------------------------------------------------------------------- */

static const struct format_row {
    const char *name, *bytes;
    size_t length;
    const char *where;
} format_rows[] = {
    {"empty", "", 0, "an empty file"},
    {"text", "hello, this is no picture\n", 26, "text of 26 bytes, beginning 68 65"},
    {"html", "\r\n <!DOCTYPE html><html>", 23, "an HTML page"},
    {"xml", "<?xml version='1.0'?>", 21, "XML or HTML"},
    {"json", "{\"error\": 404}", 14, "JSON"},
    {"lfs", "version https://git-lfs.github.com/spec/v1\n", 43, "a Git LFS pointer"},
    {"gif", "GIF89a......", 12, "a GIF"},
    {"tiff", "II*\0........", 12, "a TIFF"},
    {"avif",
     "\0\0\0\x1c"
     "ftypavif",
     12, "an AVIF"},
    {"zeros", "\0\0\0\0\0\0\0\0", 8, "a block of zeros"},
    {"riff", "RIFF\4\0\0\0WAVE", 12, "unknown data"},
    {"one byte", "\xff", 1, "text"},
    {"binary", "\1\2\3\4\5", 5, "unknown data of 5 bytes, beginning 01 02 03 04 05"},
};

static void test_formats(void)
{
    T_EACH(format_row, row, format_rows)
    {
        struct stk_view bytes = {(const uint8_t *)row->bytes, row->length};
        struct stk_codec_info info;
        struct stoker_error error = {0};

        T_EQ(row->name, stk_codec_probe(bytes, PIXELS_MAX, &info, &error), STOKER_ERROR_FORMAT);
        T_ERROR(row->name, &error);
        T_HAS(row->name, error.where, row->where);
    }
}

#define JPEG_START "\xff\xd8\xff"
#define JPEG_FRAME "\xc0\0\x0b\10\0\x10\0\x10\1\1\x11\0" /* 16x16, grey */
#define PNG_START "\x89PNG\r\n\x1a\n\0\0\0\rIHDR"

static const struct header_row {
    const char *name, *bytes;
    size_t length;
    int status;
    const char *what;
} header_rows[] = {
#define ROW(name, bytes, status, what) {name, bytes, sizeof(bytes) - 1, status, what}
    ROW("no scan", JPEG_START JPEG_FRAME, STOKER_ERROR_TRUNCATED, "ends inside its header"),
    ROW("cut frame", JPEG_START "\xc0\0\x0b\10\0", STOKER_ERROR_TRUNCATED, "ends inside"),
    ROW("huge segment", JPEG_START "\xe1\xff\xff\0\0\0", STOKER_ERROR_TRUNCATED, "ends inside"),
    ROW("only the start", JPEG_START, STOKER_ERROR_TRUNCATED, "ends inside"),
    ROW("lossless", JPEG_START "\xc3\0\x0b\10\0\x10\0\x10\1\1\x11\0", STOKER_ERROR_UNSUPPORTED,
        "lossless"),
    ROW("12 bits", JPEG_START "\xc1\0\x0b\14\0\x10\0\x10\1\1\x11\0", STOKER_ERROR_UNSUPPORTED,
        "8 bits"),
    ROW("2 components", JPEG_START "\xc0\0\x0e\10\0\x10\0\x10\2\1\x11\0\2\x11\0",
        STOKER_ERROR_UNSUPPORTED, "not grey, colour or CMYK"),
    ROW("too wide", JPEG_START "\xc0\0\x0b\10\0\x10\xff\xdd\1\1\x11\0", STOKER_ERROR_UNSUPPORTED,
        "longer than libjpeg reads"),
    ROW("height behind the scan", JPEG_START "\xc0\0\x0b\10\0\0\0\x10\1\1\x11\0",
        STOKER_ERROR_UNSUPPORTED, "DNL"),
    ROW("no columns", JPEG_START "\xc0\0\x0b\10\0\x10\0\0\1\1\x11\0", STOKER_ERROR_CORRUPT,
        "no pixels"),
    ROW("CgBI", "\x89PNG\r\n\x1a\n\0\0\0\4CgBI0\0 \2________________________",
        STOKER_ERROR_UNSUPPORTED, "CgBI"),
    ROW("sampling 0", JPEG_START "\xc0\0\x0b\10\0\x10\0\x10\1\1\x10\0", STOKER_ERROR_CORRUPT,
        "sampling factors"),
    ROW("short frame", JPEG_START "\xc0\0\x0a\10\0\x10\0\x10\1\1\x11\0", STOKER_ERROR_CORRUPT,
        "too short"),
    ROW("two frames", JPEG_START JPEG_FRAME "\xff" JPEG_FRAME, STOKER_ERROR_CORRUPT,
        "two frame headers"),
    ROW("length 1", JPEG_START "\xe0\0\1\0\0", STOKER_ERROR_CORRUPT, "impossible length"),
    ROW("end first", JPEG_START "\xd9", STOKER_ERROR_CORRUPT, "no image"),
    ROW("scan first", JPEG_START "\xda\0\3\1", STOKER_ERROR_CORRUPT, "before its frame"),
    ROW("png start", PNG_START, STOKER_ERROR_TRUNCATED, "ends too early"),
    ROW("png 0 wide", PNG_START "\0\0\0\0\0\0\0\1\10\2\0\0\0____", STOKER_ERROR_CORRUPT,
        "header is damaged"),
    ROW("png 2^31 wide", PNG_START "\x80\0\0\0\0\0\0\1\10\2\0\0\0____", STOKER_ERROR_CORRUPT,
        "header is damaged"),
    ROW("png colour 5", PNG_START "\0\0\0\1\0\0\0\1\10\5\0\0\0____", STOKER_ERROR_CORRUPT,
        "header is damaged"),
    ROW("png depth 3", PNG_START "\0\0\0\1\0\0\0\1\3\0\0\0\0____", STOKER_ERROR_CORRUPT,
        "png is damaged"),
    ROW("webp cut", "RIFF\xff\0\0\0WEBP", STOKER_ERROR_TRUNCATED, "ends too early"),
    ROW("webp garbage", "RIFF\x20\0\0\0WEBPVP8 \x14\0\0\0____________________",
        STOKER_ERROR_CORRUPT, "webp is damaged"),
#undef ROW
};

static void test_headers(void)
{
    T_EACH(header_row, row, header_rows)
    {
        struct stk_view bytes = {(const uint8_t *)row->bytes, row->length};
        struct stoker_error error = {0};

        T_EQ(row->name, decode_box(bytes, &made, &(struct stk_codec_box){0, 0, 1, 1}, &error),
             row->status);
        T_ERROR(row->name, &error);
        T_HAS(row->name, error.what, row->what);
    }
}

/* Every prefix of `made`: an error, or (the end may be dispensable) the right pixels. The bytes are
 * in a block of exactly their size, so that a sanitizer detects a read past their end. */
static void check_prefixes(const char *name)
{
    struct stk_codec_box box = {0, 0, made.width, made.height};
    int truncated = 0, corrupt = 0, complete = 0, wrong = 0;

    for (size_t bytes = 0; bytes < made.bytes; bytes++) {
        uint8_t *copy = stk_alloc(bytes ? bytes : 1, 1);
        struct stoker_error error = {0};
        int status;

        memcpy(copy, made.file, bytes);
        status = decode_box((struct stk_view){copy, bytes}, &made, &box, &error);
        truncated += status == STOKER_ERROR_TRUNCATED;
        corrupt += status == STOKER_ERROR_CORRUPT || status == STOKER_ERROR_FORMAT;
        complete += status == 0;
        wrong += status > 0;
        if (status < 0) {
            T_ERROR(name, &error);
        }
        stk_free(copy);
    }
    T_EQ(name, wrong, 0);
    T_TRUE(name, truncated > (int)made.bytes * 9 / 10);
    T_TRUE(name, complete < 20 && truncated + corrupt + complete == (int)made.bytes);
}

static void test_truncation(void)
{
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        make_jpeg(&made, &sampling_rows[2], (enum jpeg_mode)mode, 37, 29);
        check_prefixes(mode_names[mode]);
    }
    make_png(&made, &png_rows[5], false, 20, 20);
    check_prefixes("png");
    make_png(&made, &png_rows[13], true, 15, 20);
    check_prefixes("interlaced png");
    for (int mode = 0; mode < WEBP_MODE_COUNT; mode++) {
        make_webp(&made, (enum webp_mode)mode, 33, 21);
        check_prefixes(webp_names[mode]);
    }
}

/* An end marker that is too early leaves rows grey: this is an error. */
static void test_early_end(void)
{
    struct stoker_error error = {0};
    size_t half;

    make_jpeg(&made, &sampling_rows[2], (enum jpeg_mode)0, 37, 29);
    half = made.bytes * 3 / 4;
    made.file[half] = 0xff;
    made.file[half + 1] = 0xd9;
    T_EQ("early end",
         decode_box((struct stk_view){made.file, half + 2}, &made,
                    &(struct stk_codec_box){0, 0, made.width, made.height}, &error),
         STOKER_ERROR_TRUNCATED);
    T_ERROR("early end", &error);
}

/* Damage anywhere: any answer but a crash or an empty error. */
static void test_damage(void)
{
    for (int i = 0; i < 3000; i++) {
        struct stoker_error error = {0};
        struct stk_codec_box box = {0, 0, 1, 1};
        int status;

        if (i % 100 == 0) {
            uint32_t kind = draw(3);

            if (kind == 0) {
                make_jpeg(&other, &sampling_rows[draw(STK_COUNT(sampling_rows))],
                          (enum jpeg_mode)draw(MODE_COUNT), 1 + draw(60), 1 + draw(60));
            } else if (kind == 1) {
                make_png(&other, &png_rows[draw(STK_COUNT(png_rows))], draw(2), 1 + draw(60),
                         1 + draw(60));
            } else {
                make_webp(&other, (enum webp_mode)draw(WEBP_MODE_COUNT), 1 + draw(60),
                          1 + draw(60));
            }
        }
        memcpy(made.file, other.file, other.bytes);
        made.bytes = other.bytes;
        for (uint32_t n = 1 + draw(4); n > 0; n--) {
            made.file[draw(draw(2) ? 64 : (uint32_t)made.bytes)] = (uint8_t)draw(256);
        }
        status = decode_box(view_of(&made), &made, &box, &error);
        if (status < 0) {
            T_ERROR("damaged", &error);
        }
    }
}

/* ---- limits ------------------------------------------------------------------------------- */

/* Writes a side into the frame header, and finds where the scan begins. */
static void set_jpeg_sides(struct made *picture, uint32_t side)
{
    for (size_t i = 2; i + 9 < picture->bytes;
         i += 2 + (size_t)(picture->file[i + 2] << 8 | picture->file[i + 3])) {
        if (picture->file[i + 1] == 0xc0 || picture->file[i + 1] == 0xc2) {
            picture->file[i + 5] = picture->file[i + 7] = (uint8_t)(side >> 8);
            picture->file[i + 6] = picture->file[i + 8] = (uint8_t)side;
            return;
        }
    }
}

static void test_huge(void)
{
    struct stk_codec_info info = {0};
    struct stoker_error error = {0};
    struct stk_codec_box box = {100, 50000, 10, 10};
    uint32_t row_pixels, skip;

    make_jpeg(&made, &sampling_rows[2], PROGRESSIVE, 32, 32);
    set_jpeg_sides(&made, 60000);
    T_EQ("pixels", stk_codec_probe(view_of(&made), PIXELS_MAX, &info, &error), STOKER_ERROR_LIMIT);
    T_HAS("pixels", error.where, "60000x60000");
    T_EQ("allowed", stk_codec_probe(view_of(&made), UINT64_MAX, &info, &error), 0);
    T_TRUE("estimate", info.memory_bytes > UINT64_C(3) * 60000 * 60000);
    stk_codec_trim(codec, 0);
    T_EQ(
        "memory",
        stk_codec_begin(codec, view_of(&made), &info, &box, MEMORY_MAX, &row_pixels, &skip, &error),
        STOKER_ERROR_LIMIT);
    T_ERROR("memory", &error);
    T_EQ("nothing taken", stk_codec_bytes(codec), 0);

    /* A header that misleads the estimate is still subject to the bound. */
    info.memory_bytes = 0;
    T_EQ(
        "hard bound",
        stk_codec_begin(codec, view_of(&made), &info, &box, MEMORY_MAX, &row_pixels, &skip, &error),
        STOKER_ERROR_LIMIT);
    T_ERROR("hard bound", &error);
    T_TRUE("little taken", stk_codec_bytes(codec) < (4u << 20));

    make_jpeg(&made, &sampling_rows[2], BASELINE, 32, 32);
    set_jpeg_sides(&made, 60000);
    T_EQ("baseline", stk_codec_probe(view_of(&made), UINT64_MAX, &info, &error), 0);
    T_TRUE("a baseline picture needs rows only", info.memory_bytes < (8u << 20));
    /* Its end marker is too early: libjpeg and PIL would return grey rows; here it is an error. */
    T_EQ(
        "early end",
        stk_codec_begin(codec, view_of(&made), &info, &box, MEMORY_MAX, &row_pixels, &skip, &error),
        STOKER_ERROR_TRUNCATED);
    made.bytes -= 2;
    T_EQ(
        "no end",
        stk_codec_begin(codec, view_of(&made), &info, &box, MEMORY_MAX, &row_pixels, &skip, &error),
        STOKER_ERROR_TRUNCATED);

    make_png(&made, &png_rows[5], true, 8, 8);
    memcpy(made.file + 16, "\0\0\xea\x60\0\0\xea\x60", 8);
    T_EQ("png", stk_codec_probe(view_of(&made), PIXELS_MAX, &info, &error), STOKER_ERROR_LIMIT);
    T_EQ("png", stk_codec_probe(view_of(&made), UINT64_MAX, &info, &error), 0);
    T_TRUE("png estimate", info.memory_bytes > UINT64_C(3) * 60000 * 60000);
}

static void put_png_chunk(const char *name, const void *content, size_t bytes, uint32_t damage)
{
    uint8_t *to = made.file + made.bytes;
    uint32_t sum;

    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(bytes >> (24 - 8 * i));
    }
    memcpy(to + 4, name, 4);
    memcpy(to + 8, content, bytes);
    sum = (uint32_t)crc32(0, to + 4, (uInt)bytes + 4) ^ damage;
    for (int i = 0; i < 4; i++) {
        to[8 + bytes + i] = (uint8_t)(sum >> (24 - 8 * i));
    }
    made.bytes += bytes + 12;
}

/* A PNG of 2x1 grey zeros, followed by 16 MiB of zeros; the expensive part is not read: its second
 * chunk is damaged. */
static void test_too_much_data(bool interlaced)
{
    static const size_t zeros_bytes = 16u << 20, first = 40000;
    uint8_t header[13] = {0, 0, 0, 2, 0, 0, 0, 1, 8, 0, 0, 0, interlaced};
    uLong bytes = compressBound(zeros_bytes);
    uint8_t *zeros = calloc(zeros_bytes, 1), *packed = malloc(bytes);
    struct stoker_error error = {0};
    const char *warning;

    T_EQ("zlib", compress2(packed, &bytes, zeros, zeros_bytes, 1), Z_OK);
    T_TRUE("enough", bytes > first + 1000 && bytes < sizeof made.file / 2);
    made.width = 2;
    made.height = 1;
    memset(made.pixels, 0, 2 * sizeof made.pixels[0]);
    memcpy(made.file, "\x89PNG\r\n\x1a\n", 8);
    made.bytes = 8;
    put_png_chunk("IHDR", header, sizeof header, 0);
    put_png_chunk("IDAT", packed, first, 0);
    put_png_chunk("IDAT", packed + first, bytes - first, 1);
    put_png_chunk("IEND", "", 0, 0);
    T_EQ("too much", decode_box(view_of(&made), &made, &(struct stk_codec_box){0, 0, 2, 1}, &error),
         0);
    warning = stk_codec_warning(codec);
    T_HAS("too much", warning ? warning : "", "Too much image data");
    T_EQ("by libpng", stk_codec_decoded_by(codec), STK_CODEC_BY_LIBPNG);
    free(zeros);
    free(packed);
}

/* A progressive picture with its last scan sent 600 times. */
static void test_scans(void)
{
    struct stoker_error error = {0};
    size_t scan = 0, length;

    make_jpeg(&made, &sampling_rows[0], PROGRESSIVE, 8, 8);
    for (size_t i = 0; i + 1 < made.bytes; i++) {
        scan = made.file[i] == 0xff && made.file[i + 1] == 0xda ? i : scan;
    }
    length = made.bytes - 2 - scan;
    for (int i = 0; i < 600; i++) {
        memmove(made.file + made.bytes - 2 + length, made.file + made.bytes - 2, 2);
        memcpy(made.file + made.bytes - 2, made.file + scan, length);
        made.bytes += length;
    }
    T_EQ("600 scans",
         decode_box(view_of(&made), &made, &(struct stk_codec_box){0, 0, 8, 8}, &error),
         STOKER_ERROR_LIMIT);
    T_HAS("600 scans", error.what, "too many scans");
}

static int begin_stored(uint32_t stored)
{
    struct stk_codec_box box = {0, 0, made.width, made.height};
    struct stk_codec_info info = {0};
    struct stoker_error error = {0};
    uint32_t row_pixels, skip;
    int status = stk_codec_probe(view_of(&made), PIXELS_MAX, &info, &error);

    info.pixel_format = stored;
    status = status < 0 ? status
                        : stk_codec_begin(codec, view_of(&made), &info, &box, MEMORY_MAX,
                                          &row_pixels, &skip, &error);
    if (status == 0) {
        stk_codec_end(codec);
    }
    return status;
}

/* Values are requested where an image has colours: refused, not converted. */
static void test_stored(void)
{
    T_EACH(png_row, row, png_rows)
    {
        bool values = row->color == PNG_COLOR_TYPE_GRAY || row->color == PNG_COLOR_TYPE_PALETTE;

        make_png(&made, row, false, 9, 7);
        T_EQ(row->name, begin_stored(STK_CODEC_VALUES), values ? 0 : STOKER_ERROR_UNSUPPORTED);
        T_EQ(row->name, begin_stored(STK_CODEC_RGB_IDS),
             row->depth < 16 ? 0 : STOKER_ERROR_UNSUPPORTED);
    }
}

/* Marks are for one picture: those of another leave it to libjpeg-turbo, and the next is ours. */
static void test_marks_end(void)
{
    static const uint8_t zeros[10];
    const struct stk_jpeg_entry_points marks = {0, {zeros, sizeof zeros}};

    make_jpeg(&made, &sampling_rows[2], BASELINE, 40, 40);
    stk_codec_set_entry_points(codec, &marks);
    T_EQ("wrong marks", begin_stored(STK_CODEC_RGB), 0);
    T_EQ("left", stk_codec_decoded_by(codec), 1 + STK_JPEG_ENTRY_POINTS);
    T_EQ("without", begin_stored(STK_CODEC_RGB), 0);
    T_EQ("ours", stk_codec_decoded_by(codec), 1);
}

/* Without its tables an image fails, also right after one that had them. */
static void test_history(void)
{
    struct stk_codec_box box = {0, 0, 16, 16};
    struct stoker_error error = {0};
    size_t at = 2;

    make_jpeg(&other, &sampling_rows[2], BASELINE, 16, 16);
    made = other;
    while (made.file[at + 1] != 0xdb) {
        at += 2 + (size_t)(made.file[at + 2] << 8 | made.file[at + 3]);
    }
    made.file[at + 1] = 0xfe; /* a comment in place of the first quantisation table */
    T_EQ("complete", decode_box(view_of(&other), &other, &box, &error), 0);
    T_EQ("no table", decode_box(view_of(&made), &made, &box, &error), STOKER_ERROR_CORRUPT);
    T_HAS("no table", error.where, "uantization table");
}

/* ---- orientation ------------------------------------------------------------------------- */

static const struct exif_row {
    const char *name, *bytes;
    size_t length;
    int want;
} exif_rows[] = {
    {"little 6", "II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0", 22, 6},
    {"big 8", "MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\10\0\0", 22, 8},
    {"long", "MM\0*\0\0\0\10\0\1\1\x12\0\4\0\0\0\1\0\0\0\3", 22, 3},
    {"nine", "II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\11\0\0\0", 22, 1},
    {"two values", "II*\0\10\0\0\0\1\0\x12\1\3\0\2\0\0\0\6\0\0\0", 22, 1},
    {"cut", "II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0", 21, 1},
    {"offset out", "II*\0\xff\xff\xff\xff\1\0\x12\1\3\0\1\0\0\0\6\0\0\0", 22, 1},
    {"many entries", "II*\0\10\0\0\0\xff\xff\x13\1\3\0\1\0\0\0\6\0\0\0", 22, 1},
    {"no tiff", "IM*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0", 22, 1},
    {"tiny", "II*\0", 4, 1},
};

static int orientation_of(struct stk_view bytes)
{
    struct stk_codec_info info = {0};

    return stk_codec_probe(bytes, PIXELS_MAX, &info, NULL) < 0 ? -1 : info.orientation;
}

/* The rows as APP1 of a JPEG, eXIf of a PNG and EXIF of a WebP. */
static void test_orientation(void)
{
    T_EACH(exif_row, row, exif_rows)
    {
        uint8_t segment[64] = {0xff, 0xe1, 0, (uint8_t)(row->length + 8), 'E', 'x', 'i', 'f'};
        size_t bytes = row->length + 10;

        memcpy(segment + 10, row->bytes, row->length);
        make_jpeg(&made, &sampling_rows[0], BASELINE, 8, 8);
        memmove(made.file + 2 + bytes, made.file + 2, made.bytes - 2);
        memcpy(made.file + 2, segment, bytes);
        made.bytes += bytes;
        T_EQ(row->name, orientation_of(view_of(&made)), row->want);

        memcpy(segment, (const uint8_t[8]){0, 0, 0, (uint8_t)row->length, 'e', 'X', 'I', 'f'}, 8);
        memcpy(segment + 8, row->bytes, row->length);
        make_png(&made, &png_rows[3], false, 8, 8);
        memmove(made.file + 33 + row->length + 12, made.file + 33, made.bytes - 33);
        memcpy(made.file + 33, segment, row->length + 12);
        made.bytes += row->length + 12;
        T_EQ(row->name, orientation_of(view_of(&made)), row->want);
        T_EQ(row->name,
             decode_box(view_of(&made), &made, &(struct stk_codec_box){0, 0, 8, 8}, NULL), 0);

        make_webp(&made, LOSSY, 8, 8);
        made.bytes += put_chunk(made.file + made.bytes, "EXIF", (const uint8_t *)row->bytes,
                                (uint32_t)row->length);
        made.file[4] = (uint8_t)(made.bytes - 8);
        made.file[5] = (uint8_t)((made.bytes - 8) >> 8);
        T_EQ(row->name, orientation_of(view_of(&made)), row->want);
    }
}

static const struct xmp_row {
    const char *name, *packet;
    int want;
} xmp_rows[] = {
    {"attribute", "<rdf:Description tiff:Orientation=\"8\"/>", 8},
    {"element", "<tiff:Orientation>6</tiff:Orientation>", 6},
    {"second", "tiff:Orientation tiff:Orientation=\"3\"", 3},
    {"zero", "<tiff:Orientation>0</tiff:Orientation>", 1},
    {"cut", "<tiff:Orientation>", 1},
    {"cut attribute", "tiff:Orientation=\"", 1},
    {"absent", "<rdf:Description/>", 1},
};

/* XMP speaks where EXIF is silent. */
static void test_xmp(void)
{
    static const char start[] = "http://ns.adobe.com/xap/1.0/"; /* and its zero */

    T_EACH(xmp_row, row, xmp_rows)
    {
        size_t bytes = sizeof start + strlen(row->packet);
        uint8_t segment[128] = {0xff, 0xe1, 0, (uint8_t)(bytes + 2)};

        memcpy(segment + 4, start, sizeof start);
        memcpy(segment + 4 + sizeof start, row->packet, strlen(row->packet));
        make_jpeg(&made, &sampling_rows[0], BASELINE, 8, 8);
        memmove(made.file + 2 + 4 + bytes, made.file + 2, made.bytes - 2);
        memcpy(made.file + 2, segment, 4 + bytes);
        made.bytes += 4 + bytes;
        T_EQ(row->name, orientation_of(view_of(&made)), row->want);

        make_webp(&made, LOSSY, 8, 8);
        made.bytes += put_chunk(made.file + made.bytes, "XMP ", (const uint8_t *)row->packet,
                                (uint32_t)strlen(row->packet));
        made.file[4] = (uint8_t)(made.bytes - 8);
        made.file[5] = (uint8_t)((made.bytes - 8) >> 8);
        T_EQ(row->name, orientation_of(view_of(&made)), row->want);
    }
}

/* ---- memory ------------------------------------------------------------------------------- */

static void make_kind(int kind)
{
    if (kind == 0) {
        make_jpeg(&made, &sampling_rows[2], PROGRESSIVE, 150, 150);
    } else if (kind == 1) {
        make_png(&made, &png_rows[5], true, 150, 150);
    } else {
        make_webp(&made, LOSSY, 150, 150);
    }
}

static void test_fail_nth(void)
{
    struct stk_codec_box box = {10, 20, 100, 100};
    struct stk_codec *first_codec = codec;
    int64_t alive = stk_mem_alive();

    for (int kind = 0; kind < 3; kind++) {
        int status = -1;
        int n;

        make_kind(kind);
        for (n = 1; status < 0 && n < 100; n++) {
            struct stoker_error error = {0};

            codec = NULL;
            stk_mem_fail_nth((uint64_t)n);
            status = stk_codec_open(&codec, &error);
            if (status == 0) {
                status = decode_box(view_of(&made), &made, &box, &error);
            }
            stk_mem_fail_nth(0);
            if (status < 0) {
                T_ERROR("failed allocation", &error);
                T_EQ("failed allocation", error.status, -ENOMEM);
            }
            if (codec) {
                T_EQ("usable", decode_box(view_of(&made), &made, &box, &error), 0);
            }
            stk_codec_close(codec);
            T_EQ("no leak", stk_mem_alive(), alive);
        }
        T_EQ("in the end", status, 0);
        T_TRUE("several were failed", n > 4);
    }
    codec = first_codec;
}

static void test_reuse(void)
{
    struct stk_codec_box box = {10, 20, 100, 100};

    for (int kind = 0; kind < 3; kind++) {
        uint64_t calls;

        make_kind(kind);
        T_EQ("first", decode_box(view_of(&made), &made, &box, NULL), 0);
        T_TRUE("scratch is retained", stk_codec_bytes(codec) > 0);
        calls = stk_mem_calls();
        T_EQ("second", decode_box(view_of(&made), &made, &box, NULL), 0);
        T_EQ("no allocation when warm", stk_mem_calls(), calls);
        stk_codec_trim(codec, UINT64_MAX);
        T_TRUE("trim keeps", stk_codec_bytes(codec) > 0);
        stk_codec_trim(codec, 0);
        T_EQ("trim frees", stk_codec_bytes(codec), 0);
    }
}

/* Behind a PNG a small JPEG takes no more scratch, but a decoder of ours, which counts. */
static void test_bytes(void)
{
    uint64_t before;

    make_png(&made, &png_rows[5], false, 20, 20);
    T_EQ("png", decode_box(view_of(&made), &made, &(struct stk_codec_box){0, 0, 20, 20}, NULL), 0);
    before = stk_codec_bytes(codec);
    make_jpeg(&made, &sampling_rows[2], BASELINE, 8, 8);
    T_EQ("jpeg", decode_box(view_of(&made), &made, &(struct stk_codec_box){0, 0, 8, 8}, NULL), 0);
    T_TRUE("counted", stk_codec_bytes(codec) >= before + stk_jpeg_decoder_bytes());
}

int main(int count, char **arguments)
{
    struct stoker_error error = {0};
    int64_t alive = stk_mem_alive();

    seed = count > 1 ? strtoull(arguments[1], NULL, 0) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    T_EQ("open", stk_codec_open(&codec, &error), 0);
    test_formats();
    test_headers();
    test_truncation();
    test_early_end();
    test_damage();
    test_huge();
    test_too_much_data(false);
    test_too_much_data(true);
    test_scans();
    test_stored();
    test_marks_end();
    test_history();
    test_orientation();
    test_xmp();
    test_fail_nth();
    test_reuse();
    test_bytes();
    stk_codec_close(codec);
    stk_codec_close(NULL);
    T_EQ("no leak", stk_mem_alive(), alive);
    return t_finish();
}
