/* Goal: rows of a PNG equal libpng's in each byte up to the last wanted column, with vectors and
 * without; damage never gives rows for which libpng would warn or fail.
 * Method: images made here by libpng over colours, depths, sizes, filters, sizes of IDAT, levels
 * and strategies; each read by libpng with its defaults, and by png_chunks.c, png_stream.c,
 * png_filters.c, png_filters_avx2.c and png_rows.c over corners and random boxes; files with bits
 * flipped, bytes changed, ends cut, with the old checksums and with new ones. Takes a seed as its
 * argument. */
#include "base/random.h"
#include "decode/png/libpng_test.h"
#include "decode/png/png_filters.h"
#include "test/t.h"

#define FILE_BYTES_MAX (8u << 20)
#define SIDE_MAX 700u
#define WIDE 17000u /* pixels of 4 bytes: a row is larger than a band */
#define ROW_BYTES_MAX (4 * WIDE)

static const struct kind {
    const char *name;
    int color, depth, channels;
} kinds[] = {
    {"rgb", PNG_COLOR_TYPE_RGB, 8, 3},           {"rgba", PNG_COLOR_TYPE_RGBA, 8, 4},
    {"grey", PNG_COLOR_TYPE_GRAY, 8, 1},         {"palette", PNG_COLOR_TYPE_PALETTE, 8, 1},
    {"grey alpha", PNG_COLOR_TYPE_GA, 8, 2},     {"rgb 16", PNG_COLOR_TYPE_RGB, 16, 3},
    {"rgba 16", PNG_COLOR_TYPE_RGBA, 16, 4},     {"grey 16", PNG_COLOR_TYPE_GRAY, 16, 1},
    {"grey alpha 16", PNG_COLOR_TYPE_GA, 16, 2}, {"grey 1", PNG_COLOR_TYPE_GRAY, 1, 1},
    {"grey 2", PNG_COLOR_TYPE_GRAY, 2, 1},       {"grey 4", PNG_COLOR_TYPE_GRAY, 4, 1},
    {"palette 1", PNG_COLOR_TYPE_PALETTE, 1, 1}, {"palette 4", PNG_COLOR_TYPE_PALETTE, 4, 1},
};

static struct made {
    uint8_t file[FILE_BYTES_MAX];
    size_t bytes;
    const struct kind *kind;
    uint32_t width, height;
    uint32_t content, filter, idat_bytes;
    bool interlaced;
} made;
static struct libpng libpng;
static uint64_t seed = 1, draws, boxes, given_rows, damaged_rows;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(stk_random_key(seed, draws++) % below);
}

static struct stk_view view_of_made(void)
{
    return (struct stk_view){made.file, made.bytes};
}

static void append(png_structp writer, png_bytep data, size_t bytes)
{
    (void)writer;
    STK_ASSERT(bytes <= sizeof made.file - made.bytes);
    memcpy(made.file + made.bytes, data, bytes);
    made.bytes += bytes;
}

/* Pictures of one row have no row above: libpng then takes another filter. */
static void on_warning(png_structp writer, png_const_charp text)
{
    (void)writer, (void)text;
}

static void draw_row(uint8_t *row, size_t bytes, uint32_t y)
{
    uint32_t step = (uint32_t)(made.kind->channels * made.kind->depth + 7) / 8;

    for (size_t i = 0; i < bytes; i++) {
        uint32_t slow = (uint32_t)(i / step * 3 + y * (2 + i % step));

        row[i] = (uint8_t)(made.content == 0   ? slow + draw(6)
                           : made.content == 1 ? draw(256)
                           : made.content == 2 ? y / 5 * 30
                                               : draw(2) * 255);
    }
}

/* The usual filters of libpng, one for all rows, or another for each. */
static int filters_of_row(void)
{
    static const int filters[] = {PNG_FILTER_NONE, PNG_FILTER_SUB, PNG_FILTER_UP, PNG_FILTER_AVG,
                                  PNG_FILTER_PAETH};

    return made.filter == 0   ? PNG_ALL_FILTERS
           : made.filter <= 5 ? filters[made.filter - 1]
                              : filters[draw(5)];
}

static void write_rows(png_structp writer)
{
    static uint8_t row[ROW_BYTES_MAX + 8];
    size_t bytes = ((size_t)made.width * (size_t)(made.kind->channels * made.kind->depth) + 7) / 8;

    int passes = png_set_interlace_handling(writer);

    for (int pass = 0; pass < passes; pass++) {
        for (uint32_t y = 0; y < made.height; y++) {
            draw_row(row, bytes, y);
            png_set_filter(writer, 0, filters_of_row());
            png_write_row(writer, row);
        }
    }
}

static void encode(void)
{
    png_structp writer = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, on_warning);
    png_infop info = png_create_info_struct(writer);
    png_color palette[256];

    for (int i = 0; i < 256; i++) {
        palette[i] = (png_color){(png_byte)draw(256), (png_byte)draw(256), (png_byte)draw(256)};
    }
    made.bytes = 0;
    png_set_check_for_invalid_index(writer, 0); /* colours that the palette has not */
    png_set_write_fn(writer, NULL, append, NULL);
    png_set_IHDR(writer, info, made.width, made.height, made.kind->depth, made.kind->color,
                 made.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (made.kind->color == PNG_COLOR_TYPE_PALETTE || draw(5) == 0) {
        png_set_PLTE(writer, info, palette,
                     made.kind->depth < 8 ? 1 << made.kind->depth : 1 + (int)draw(256));
    }
    if (draw(3) == 0) {
        png_set_gAMA(writer, info, 0.45);
        png_set_pHYs(writer, info, 1, 2, 0);
    }
    png_set_compression_level(writer, (int)draw(10));
    png_set_compression_strategy(writer, (int)draw(5));
    png_set_compression_buffer_size(writer, made.idat_bytes);
    png_set_filter(writer, 0, PNG_ALL_FILTERS); /* so that it keeps the rows that all need */
    png_write_info(writer, info);
    write_rows(writer);
    png_write_end(writer, NULL);
    png_destroy_write_struct(&writer, &info);
}

static void draw_picture(uint32_t side_max)
{
    made.kind = &kinds[draw(draw(2) ? 3 : (uint32_t)STK_COUNT(kinds))];
    made.width = 1 + draw(draw(3) ? side_max : 20);
    made.height = 1 + draw(draw(3) ? side_max : 20);
    made.content = draw(4);
    made.filter = draw(9);
    made.idat_bytes = draw(3) ? 8192 : 6 + draw(draw(2) ? 60 : 200000);
    made.interlaced = false;
    encode();
}

static const char *describe(const struct stk_png_box *box)
{
    static char text[240];

    snprintf(text, sizeof text, "%s %ux%u content %u filter %u idat %u box %u,%u %ux%u: %.60s",
             made.kind->name, made.width, made.height, made.content, made.filter, made.idat_bytes,
             box->x, box->y, box->width, box->height, libpng.text);
    return text;
}

static struct stk_png_box random_box(void)
{
    struct stk_png_box box = {.x = draw(made.width), .y = draw(made.height)};

    box.width = 1 + draw(made.width - box.x);
    box.height = 1 + draw(made.height - box.y);
    return box;
}

/* One box by both versions, which must return all of its rows. */
static void check_box(const struct stk_png_box *box)
{
    static const uint32_t vectors[] = {STOKER_SIMD_NONE, STOKER_SIMD_AUTO};

    for (int i = 0; i < 2; i++) {
        uint32_t given;
        const char *wrong = libpng_compare(&libpng, view_of_made(), box, vectors[i], &given);

        T_STR(describe(box), wrong ? wrong : "", "");
        T_EQ(describe(box), given, box->height);
        boxes++;
        given_rows += given;
    }
}

static void check_picture(void)
{
    uint32_t w = made.width, h = made.height;
    struct stk_png_box corners[] = {
        {0, 0, w, h},           {0, 0, 1, 1},         {w - 1, 0, 1, 1},
        {0, h - 1, 1, 1},       {w - 1, h - 1, 1, 1}, {w / 2, h / 2, w - w / 2, h - h / 2},
        {0, 0, w, (h + 1) / 2},
    };

    libpng_decode(&libpng, view_of_made());
    T_STR(describe(&corners[0]), libpng.text, "");
    for (uint32_t i = 0; i < STK_COUNT(corners) + 3; i++) {
        struct stk_png_box box = i < STK_COUNT(corners) ? corners[i] : random_box();

        check_box(&box);
    }
}

static void test_boxes(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        draw_picture(i % 20 ? 150 : SIDE_MAX);
        check_picture();
    }
}

/* Each width up to twelve pixels and each height up to nine, with incomplete groups of rows. */
static void test_sizes(void)
{
    for (uint32_t width = 1; width <= 12; width++) {
        for (uint32_t height = 1; height <= 9; height++) {
            draw_picture(10);
            made.kind = &kinds[draw(2)];
            made.width = width;
            made.height = height;
            encode();
            check_picture();
        }
    }
}

static size_t find_chunk(const char *name)
{
    size_t at = 8;

    while (memcmp(made.file + at + 4, name, 4) != 0) {
        at += 12 + (size_t)png_get_uint_32(made.file + at);
        STK_ASSERT(at < made.bytes);
    }
    return at;
}

/* Bands that fill their buffer to the byte, and rows that do not fill complete groups of them. */
static void test_bands(void)
{
    for (int i = 0; i < 4; i++) {
        draw_picture(10);
        made.kind = &kinds[1];
        made.width = 640;
        made.height = (uint32_t)(100 + i);
        made.filter = 7;
        encode();
        check_picture();
    }
}

/* Rows larger than a band, all in one IDAT, which is larger than libpng accepts for a small image;
 * and one that is exactly as large as the image. */
static void test_wide(void)
{
    uint64_t idat_bytes;

    do {
        draw_picture(10);
        made.kind = &kinds[1];
        made.width = WIDE;
        made.height = 40;
        made.content = 0;
        made.filter = 7;
        made.idat_bytes = 4u << 20;
        encode();
        idat_bytes = png_get_uint_32(made.file + find_chunk("IDAT"));
    } while (idat_bytes > 4 * (uint64_t)made.width * made.height); /* not packed at all */
    T_TRUE("one large chunk", idat_bytes > 1u << 20);
    check_picture();
    made.content = 1; /* cannot be packed */
    made.filter = 1;
    made.idat_bytes = (4 * made.width + 1) * made.height;
    encode();
    T_EQ("as large", png_get_uint_32(made.file + find_chunk("IDAT")), made.idat_bytes);
    check_picture();
}

static void test_left(void)
{
    struct stk_png_frame frame;

    draw_picture(60);
    T_TRUE("one of ours", stk_png_frame_read(view_of_made(), &frame));
    made.interlaced = true;
    encode();
    T_TRUE("interlaced", !stk_png_frame_read(view_of_made(), &frame));
    made.interlaced = false;
    encode();
    for (size_t bytes = 0; bytes < made.bytes; bytes++) {
        uint8_t *copy = malloc(bytes ? bytes : 1); /* exactly: for sanitizers */

        memcpy(copy, made.file, bytes);
        stk_png_frame_read((struct stk_view){copy, bytes}, &frame);
        free(copy);
    }
}

static void damage(void)
{
    for (uint32_t n = draw(4); n > 0; n--) {
        size_t at = draw(draw(3) ? (uint32_t)made.bytes : 100) % made.bytes;

        made.file[at] = draw(2) ? (uint8_t)draw(256) : (uint8_t)(made.file[at] ^ 1u << draw(8));
    }
    made.bytes = draw(4) ? made.bytes : draw((uint32_t)made.bytes);
    if (draw(3)) {
        libpng_fix_checksums(made.file, made.bytes);
    }
}

/* An image that stoker leaves to libpng is decoded without a complaint. */
static void test_damage(uint32_t count)
{
    static uint8_t full_file[FILE_BYTES_MAX];
    size_t full_bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct stk_png_box box;
        const char *wrong;
        uint32_t given;

        if (i % 30 == 0) {
            draw_picture(90);
            memcpy(full_file, made.file, made.bytes);
            full_bytes = made.bytes;
        }
        memcpy(made.file, full_file, full_bytes);
        made.bytes = full_bytes;
        damage();
        box = random_box();
        libpng_decode(&libpng, view_of_made());
        if (libpng.width != made.width || libpng.height != made.height) {
            continue; /* the header changed: the box may be outside */
        }
        wrong = libpng_compare(&libpng, view_of_made(), &box, STOKER_SIMD_AUTO, &given);
        T_STR(describe(&box), wrong ? wrong : "", "");
        damaged_rows += given;
    }
}

/* A chunk of zeros, its checksum not yet right. */
static void insert_chunk(size_t at, const char *name, size_t bytes)
{
    STK_ASSERT(made.bytes + bytes + 12 <= sizeof made.file);
    memmove(made.file + at + bytes + 12, made.file + at, made.bytes - at);
    memset(made.file + at, 0, bytes + 12);
    png_save_uint_32(made.file + at, (png_uint_32)bytes);
    memcpy(made.file + at + 4, name, 4);
    made.bytes += bytes + 12;
}

/* Chunks that libpng warns of, or refuses, and those that it passes over. */
static const struct chunk_row {
    const char *name, *chunk;
    size_t bytes;
    const char *before;
    bool taken;
} chunk_rows[] = {
    {"text", "tEXt", 3, "IDAT", true},
    {"of an unknown chunk type", "abCd", 3, "IDAT", true},
    {"large", "abCd", (1u << 20) + 1, "IDAT", false},
    {"critical", "ABCD", 3, "IDAT", false},
    {"no letters", "a[Cd", 3, "IDAT", false},
    {"a digit", "a1Cd", 3, "IDAT", false},
    {"before A", "a@Cd", 3, "IDAT", false},
    {"before a", "a`Cd", 3, "IDAT", false},
    {"behind z", "a{Cd", 3, "IDAT", false},
    {"the first letters", "aAAa", 3, "IDAT", true},
    {"the last letters", "zZZz", 3, "IDAT", true},
    {"second palette", "PLTE", 6, "IDAT", false},
    {"first palette", "PLTE", 6, "PLTE", false},
};

static void check_changed(const char *name, bool taken)
{
    struct stk_png_box box = {0, 0, made.width, made.height};
    const char *wrong;
    uint32_t given;

    libpng_fix_checksums(made.file, made.bytes);
    libpng_decode(&libpng, view_of_made());
    wrong = libpng_compare(&libpng, view_of_made(), &box, STOKER_SIMD_AUTO, &given);
    T_STR(name, wrong ? wrong : "", "");
    T_EQ(name, given == made.height, taken);
}

static void draw_palette_picture(void)
{
    do {
        draw_picture(20);
    } while (made.kind->color != PNG_COLOR_TYPE_PALETTE);
}

static void test_chunks(void)
{
    T_EACH(chunk_row, row, chunk_rows)
    {
        draw_palette_picture();
        insert_chunk(find_chunk(row->before), row->chunk, row->bytes);
        check_changed(row->name, row->taken);
    }
    draw_palette_picture();
    memcpy(made.file + find_chunk("PLTE") + 4, "tEXt", 4);
    check_changed("no palette", false);
    draw_palette_picture();
    made.bytes = find_chunk("IEND");
    check_changed("no end", true);
    draw_palette_picture();
    made.height++; /* as it is in the file: one less */
    encode();
    made.height--;
    png_save_uint_32(made.file + 20, made.height);
    libpng_fix_checksums(made.file, made.bytes);
    check_changed("more rows than the header says", false);
    draw_palette_picture();
    made.height++;
    png_save_uint_32(made.file + 20, made.height);
    check_changed("fewer rows than the header says", false);
}

/* A picture in many chunks of a few bytes. */
static size_t draw_pieces(void)
{
    do {
        draw_picture(30);
        made.idat_bytes = 6 + draw(12);
        encode();
    } while (made.bytes < 300);
    return find_chunk("IDAT");
}

/* Any data between two chunks of the image data ends it, however short. */
static void test_between(void)
{
    static const char *const names[] = {"IDAT", "tEXt", "IDAt", "IDaT", "IEND", "abCd"};

    for (size_t i = 0; i < STK_COUNT(names); i++) {
        size_t at = draw_pieces();

        insert_chunk(at + 12 + png_get_uint_32(made.file + at), names[i], 0);
        check_changed(names[i], i == 0);
    }
}

/* A bit of each byte of the data's last two chunks, which hold its checksum and perhaps a bit
 * before that; or the last is not there. */
static void test_ends(void)
{
    for (uint32_t n = 0; n < 8; n++) {
        size_t end, last[2] = {0}, refused = 0;

        for (size_t at = draw_pieces(); (end = find_chunk("IEND")) > at;) {
            last[0] = last[1];
            last[1] = at;
            at += 12 + png_get_uint_32(made.file + at);
        }
        for (size_t k = 0; k < 2; k++) {
            for (uint32_t i = 0; i < png_get_uint_32(made.file + last[k]); i++) {
                made.file[last[k] + 8 + i] ^= (uint8_t)(1u << n);
                libpng_fix_checksums(made.file, made.bytes);
                libpng_decode(&libpng, view_of_made());
                check_changed("another end", !libpng.complained);
                refused += libpng.complained;
                made.file[last[k] + 8 + i] ^= (uint8_t)(1u << n);
            }
        }
        T_TRUE("a checksum of four bytes", refused >= 4);
        memmove(made.file + last[1], made.file + end, made.bytes - end);
        made.bytes -= end - last[1];
        check_changed("no end", false);
    }
}

/* Data that continues after the last row by so many bytes. */
static void test_longer(void)
{
    for (size_t more = 0; more < 4; more++) {
        uint8_t *data;
        uLongf packed = 4096;
        size_t at, bytes;

        draw_palette_picture();
        bytes = (1 + (size_t)(made.width * (uint32_t)made.kind->depth + 7) / 8) * made.height;
        data = calloc(bytes + more, 1);
        at = find_chunk("IDAT");
        made.bytes = at;
        insert_chunk(at, "IDAT", packed);
        T_EQ("pack", compress(made.file + at + 8, &packed, data, bytes + more), Z_OK);
        png_save_uint_32(made.file + at, (png_uint_32)packed);
        made.bytes = at + 12 + packed;
        insert_chunk(made.bytes, "IEND", 0);
        check_changed("bytes behind the last row", more == 0);
        free(data);
    }
}

/* Headers, of which libpng takes these: PNG specification, 11.2.2. */
static const struct header_row {
    const char *name;
    uint8_t at, value; /* in the file */
    bool taken;
} header_rows[] = {
    {"as it is", 12, 'I', true},
    {"another signature", 1, 'M', false},
    {"another first chunk", 12, 'i', false},
    {"no columns", 19, 0, false},
    {"no rows", 23, 0, false},
    {"too many columns", 17, 16, false},
    {"too many rows", 21, 16, false},
    {"another compression", 26, 1, false},
    {"another family of filters", 27, 64, false},
    {"interlaced", 28, 1, false},
    {"interlaced otherwise", 28, 2, false},
};

static void test_headers(void)
{
    /* A bit for each depth, by colour. */
    static const uint32_t depths[8] = {0x10116, 0, 0x10100, 0x116, 0x10100, 0, 0x10100, 0};
    struct stk_png_frame frame;

    T_EACH(header_row, row, header_rows)
    {
        draw_palette_picture();
        made.file[row->at] = row->value;
        libpng_fix_checksums(made.file, made.bytes);
        T_EQ(row->name, stk_png_frame_read(view_of_made(), &frame), row->taken);
    }
    draw_palette_picture();
    for (uint32_t kind = 0; kind < 8 * 20; kind++) {
        uint8_t color = (uint8_t)(kind / 20), depth = (uint8_t)(kind % 20);
        bool palette = color != 0 && color != 4; /* the file has one, which those may not have */

        made.file[24] = depth;
        made.file[25] = color;
        libpng_fix_checksums(made.file, made.bytes);
        T_EQ("colour and depth", stk_png_frame_read(view_of_made(), &frame),
             palette && depths[color] >> depth & 1);
    }
    made.file[24] = 8;
    made.file[25] = 2;
    for (uint32_t side = 1000000; side <= 1000001; side++) { /* libpng's own limit */
        png_save_uint_32(made.file + 16, side);
        png_save_uint_32(made.file + 20, 2000001 - side);
        libpng_fix_checksums(made.file, made.bytes);
        T_TRUE("long sides", !stk_png_frame_read(view_of_made(), &frame));
        png_save_uint_32(made.file + 20, 1000000);
        libpng_fix_checksums(made.file, made.bytes);
        T_EQ("long sides", stk_png_frame_read(view_of_made(), &frame), side == 1000000);
    }
}

/* Palettes of invalid sizes. */
static void test_palettes(void)
{
    static const size_t sizes[] = {0, 3, 5, 767, 768, 769, 771};

    for (size_t i = 0; i < STK_COUNT(sizes); i++) {
        struct stk_png_frame frame;
        bool is = sizes[i] > 0 && sizes[i] <= 768 && sizes[i] % 3 == 0;

        draw_palette_picture();
        memcpy(made.file + find_chunk("PLTE") + 4, "teXt", 4);
        insert_chunk(find_chunk("IDAT"), "PLTE", sizes[i]);
        libpng_fix_checksums(made.file, made.bytes);
        T_EQ("palette", stk_png_frame_read(view_of_made(), &frame), is);
    }
}

/* Bytes in the last chunk after the end of the data: few, which may be read with it, or more than
 * libpng accepts in a chunk: each row alone, with and without reaching the end. */
static void test_behind(void)
{
    static const uint32_t counts[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2,  2,   2,
                                      2, 3, 4, 5, 6, 7, 7, 7, 8, 9, 16, 100, (1u << 20) + 100000};

    for (size_t i = 0; i < STK_COUNT(counts); i++) {
        size_t at, end;

        draw_picture(60);
        made.idat_bytes = 200000;
        encode();
        at = find_chunk("IDAT");
        end = at + 8 + png_get_uint_32(made.file + at);
        memmove(made.file + end + counts[i], made.file + end, made.bytes - end);
        memset(made.file + end, 0x55, counts[i]);
        png_save_uint_32(made.file + at, png_get_uint_32(made.file + at) + counts[i]);
        made.bytes += counts[i];
        libpng_fix_checksums(made.file, made.bytes);
        libpng_decode(&libpng, view_of_made());
        T_TRUE("libpng sees them", libpng.complained);
        for (uint32_t y = 0; y < made.height; y++) {
            struct stk_png_box box = {0, y, made.width, 1};
            const char *wrong;
            uint32_t given;

            wrong = libpng_compare(&libpng, view_of_made(), &box, STOKER_SIMD_AUTO, &given);
            T_STR(describe(&box), wrong ? wrong : "", "");
            T_TRUE("the last row", y + 1 < made.height || given == 0);
        }
    }
}

/* Each start of a zlib stream whose own check is right: other windows, a dictionary, undefined
 * methods; in the first chunk, or after an empty one. */
static void check_zlib_headers(bool behind_empty)
{
    uint32_t taken = 0;
    size_t at;

    draw_picture(20);
    at = find_chunk("IDAT");
    if (behind_empty) {
        insert_chunk(at, "IDAT", 0);
        at += 12;
    }
    for (uint32_t header = 0; header < 65536; header += 31) {
        struct stk_png_box box = {0, 0, made.width, 1};
        const char *wrong;
        uint32_t given;

        made.file[at + 8] = (uint8_t)(header >> 8);
        made.file[at + 9] = (uint8_t)header;
        libpng_fix_checksums(made.file, made.bytes);
        libpng_decode(&libpng, view_of_made());
        wrong = libpng_compare(&libpng, view_of_made(), &box, STOKER_SIMD_AUTO, &given);
        T_STR(describe(&box), wrong ? wrong : "", "");
        taken += given;
    }
    T_TRUE("some are right", taken >= 8);
}

/* Four rows at once are four rows one by one. */
static void test_four(void)
{
    const struct stk_png_kernels *kernels = stk_png_kernels_get(STOKER_SIMD_AUTO);

    T_STR("none", stk_png_kernels_get(STOKER_SIMD_NONE)->name, "none");
    T_TRUE("the best", kernels == stk_png_kernels_get(STOKER_SIMD_AVX2) || !kernels->unfilter_four);
#if defined(__x86_64__)
    T_EQ("the best", kernels->unfilter_four != NULL, __builtin_cpu_supports("avx2") != 0);
#endif
    for (uint32_t i = 0; kernels->unfilter_four && i < 4000; i++) {
        uint32_t unit = 3 + draw(2);
        size_t bytes = (size_t)unit * (1 + draw(i % 9 ? 12 : 300)), stride = bytes + 1 + draw(9);
        uint8_t above[1200], same[1200], *rows = malloc(4 * stride), *want = malloc(4 * stride);

        for (size_t k = 0; k < 4 * stride; k++) {
            rows[k] = (uint8_t)(draw(3) ? draw(256) : draw(2) * 255);
        }
        for (size_t k = 0; k < bytes; k++) {
            above[k] = same[k] = (uint8_t)draw(256);
        }
        for (size_t k = 0; k < 4; k++) {
            rows[k * stride] = (uint8_t)draw(5);
        }
        memcpy(want, rows, 4 * stride);
        for (size_t k = 0; k < 4; k++) {
            stk_png_unfilter(want + k * stride + 1, k ? want + (k - 1) * stride + 1 : above, bytes,
                             unit);
        }
        kernels->unfilter_four(rows + 1, stride, above, bytes, unit);
        T_TRUE("four rows", memcmp(rows, want, 4 * stride) == 0);
        T_TRUE("not the one above", memcmp(above, same, bytes) == 0);
        free(rows);
        free(want);
    }
}

int main(int count, char **arguments)
{
    const char *text = getenv("STOKER_TEST_LONG");
    bool is_long = text && text[0];

    seed = count > 1 ? strtoull(arguments[1], NULL, 0) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    test_four();
    test_left();
    test_chunks();
    test_headers();
    test_palettes();
    test_between();
    test_ends();
    test_longer();
    test_behind();
    test_bands();
    test_wide();
    check_zlib_headers(false);
    check_zlib_headers(true);
    test_sizes();
    test_boxes(is_long ? 6000 : 250);
    test_damage(is_long ? 200000 : 3000);
    printf("%llu boxes, %llu rows; %llu of damaged files\n", (unsigned long long)boxes,
           (unsigned long long)given_rows, (unsigned long long)damaged_rows);
    free(libpng.rows);
    return t_finish();
}
