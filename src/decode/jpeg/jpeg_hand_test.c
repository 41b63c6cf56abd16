/* Goal: each unusual element of a JPEG's header has its reason, and no table or count in it reaches
 * past its place; entry points of another image, or that cut it elsewhere, are refused; tables are
 * built once.
 * Method: small images written by hand, byte by byte, each with one thing changed; the answer is
 * compared with libjpeg-turbo. Covers parts of jpeg_markers.c, jpeg_huffman.c and jpeg_region.c
 * that no encoder produces. */
#include "base/mem.h"
#include "decode/jpeg/jpeg_huffman.h"
#include "decode/jpeg/jpeg_oracle_test.h"
#include "test/t.h"

#define SIDE 40u

static uint8_t file[1u << 16];
static size_t file_bytes;
static struct oracle oracle;
static struct stk_jpeg_decoder *decoder;

static void put(const void *bytes, size_t count)
{
    STK_ASSERT(file_bytes + count <= sizeof file);
    memcpy(file + file_bytes, bytes, count);
    file_bytes += count;
}

static void put_segment(uint8_t marker, const void *content, size_t bytes)
{
    const uint8_t head[4] = {0xff, marker, (uint8_t)((bytes + 2) >> 8), (uint8_t)(bytes + 2)};

    put(head, sizeof head);
    put(content, bytes);
}

/* A table of codes: 0 is the code of the first symbol, 10 of the second. */
static void put_codes(uint8_t name, uint8_t first, uint8_t second)
{
    uint8_t content[1 + 16 + 2] = {name, 1, 1};

    content[17] = first;
    content[18] = second;
    put_segment(0xc4, content, sizeof content);
}

/* ---- reasons -------------------------------------------------------------------------------- */

/* SIDE x SIDE of one colour: each MCU is zeros, two bits a block. */
static void put_picture(void)
{
    static const uint8_t jfif[14] = {'J', 'F', 'I', 'F', 0, 1, 1, 0, 0, 1, 0, 1, 0, 0};
    static const uint8_t adobe[12] = {'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 1};
    static const uint8_t frame[15] = {8, 0,   SIDE, 0, SIDE, 3,    'R', 0x21,
                                      0, 'G', 0x11, 0, 'B',  0x11, 0};
    static const uint8_t scan[10] = {3, 'R', 0, 'G', 0, 'B', 0, 0, 63, 0};
    static const uint8_t zeros[100];
    uint8_t quantiser[65];

    memset(quantiser, 1, sizeof quantiser);
    quantiser[0] = 0;
    file_bytes = 0;
    put("\xff\xd8", 2);
    put_segment(0xe0, jfif, sizeof jfif);
    put_segment(0xee, adobe, sizeof adobe);
    put_segment(0xdb, quantiser, sizeof quantiser);
    put_segment(0xdd, "\0\0", 2);
    put_segment(0xc0, frame, sizeof frame);
    put_codes(0x00, 0, 1);
    put_codes(0x10, 0, 1);
    put_segment(0xda, scan, sizeof scan);
    put(zeros, sizeof zeros);
    put("\xff\xd9", 2);
}

/* One byte of the first segment of a kind is another; bytes go in before a segment. */
static const struct reason_row {
    const char *name;
    uint8_t marker, at, value; /* `at` from the marker's own byte on: 0 is the marker */
    const char *before;        /* inserted before the segment */
    uint8_t before_bytes;
    const char *want;
} reason_rows[] = {
    {"as it is", 0xe0, 0, 0xe0, "", 0, "fine"},
    {"JFIF 2", 0xe0, 8, 2, "", 0, "odd header"},
    {"JFIF 2, a byte short", 0xe0, 0, 0xe0, "\xff\xe0\0\17JFIF\0\2\0\0\0\0\0\0\0", 17, "fine"},
    {"JFIF 2 elsewhere", 0xe0, 0, 0xe0, "\xff\xe1\0\20JFIF\0\2\0\0\0\0\0\0\0\0", 18, "fine"},
    {"JFXX 2", 0xe0, 0, 0xe0, "\xff\xe0\0\20JFXX\0\2\0\0\0\0\0\0\0\0", 18, "fine"},
    {"JFIF before Adobe", 0xee, 14, 2, "", 0, "fine"},
    {"Adobe's RGB behind JFIF", 0xee, 14, 0, "", 0, "fine"},
    {"Adobe's own transform", 0xe0, 3, 'X', "", 0, "fine"},
    {"quantiser of 2 and more", 0xdb, 3, 0x20, "", 0, "odd tables"},
    {"fifth quantiser", 0xdb, 3, 4, "", 0, "odd tables"},
    {"short quantiser", 0xdb, 3, 0x10, "", 0, "odd tables"},
    {"a restart interval of 3 bytes", 0xdd, 0, 0xdd, "\xff\xdd\0\5\0\0\0", 7, "odd header"},
    {"arithmetic conditions", 0xdd, 0, 0xcc, "", 0, "arithmetic coding"},
    {"12 bits", 0xc0, 3, 12, "", 0, "not 8 bits"},
    {"extended", 0xc0, 0, 0xc1, "", 0, "fine"},
    {"progressive", 0xc0, 0, 0xc2, "", 0, "progressive"},
    {"lossless", 0xc0, 0, 0xc3, "", 0, "lossless or hierarchical"},
    {"arithmetic, lossless", 0xc0, 0, 0xcf, "", 0, "lossless or hierarchical"},
    {"no components", 0xc0, 0, 0xc0, "\xff\xc0\0\10\10\0\1\0\1\0", 10, "not grey or three colours"},
    {"differential", 0xc0, 0, 0xc5, "", 0, "lossless or hierarchical"},
    {"arithmetic", 0xc0, 0, 0xc9, "", 0, "arithmetic coding"},
    {"arithmetic, progressive", 0xc0, 0, 0xca, "", 0, "arithmetic coding"},
    {"no rows", 0xc0, 5, 0, "", 0, "odd header"},
    {"no columns", 0xc0, 7, 0, "", 0, "odd header"},
    {"four components", 0xc0, 8, 4, "", 0, "odd header"},
    {"two of one name", 0xc0, 12, 'R', "", 0, "odd header"},
    {"factor 0", 0xc0, 10, 0x20, "", 0, "odd header"},
    {"factor 5", 0xc0, 10, 0x51, "", 0, "odd header"},
    {"factor 5 down", 0xc0, 10, 0x25, "", 0, "odd header"},
    {"factors that do not divide", 0xc0, 13, 0x31, "", 0, "odd sampling"},
    {"down, too", 0xc0, 13, 0x23, "", 0, "fine"},
    {"16 blocks", 0xc0, 10, 0x44, "", 0, "odd sampling"},
    {"8 blocks", 0xc0, 10, 0x42, "", 0, "fine"},
    {"quantiser that is not there", 0xc0, 11, 1, "", 0, "odd tables"},
    {"quantiser that cannot be", 0xc0, 11, 200, "", 0, "odd tables"},
    {"a frame before", 0xc0, 0, 0xc0, "\xff\xc0\0\13\10\0\1\0\1\1\1\x11\0", 13, "odd header"},
    {"codes of a third kind", 0xc4, 3, 0x20, "", 0, "odd tables"},
    {"fifth table", 0xc4, 3, 4, "", 0, "odd tables"},
    {"more symbols than bytes", 0xc4, 19, 200, "", 0, "odd tables"},
    {"15 counts", 0xc4, 0, 0xc4, "\xff\xc4\0\22\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20,
     "odd tables"}, /* the next marker's FF would be the 16th */
    {"no table of that name", 0xda, 5, 0x10, "", 0, "odd tables"},
    {"fifth table of a scan", 0xda, 5, 0x40, "", 0, "odd tables"},
    {"fifth AC table of a scan", 0xda, 5, 0x04, "", 0, "odd tables"},
    {"a scan of one component", 0xda, 0, 0xda, "\xff\xda\0\10\1R\0\0\77\0", 10, "several scans"},
    {"a scan of none before the frame", 0xdb, 0, 0xdb, "\xff\xda\0\6\0\0\77\0", 8, "odd header"},
    {"another component's scan", 0xda, 4, 'X', "", 0, "odd header"},
    {"from the second coefficient", 0xda, 10, 1, "", 0, "several scans"},
    {"not to the last", 0xda, 11, 62, "", 0, "several scans"},
    {"by parts of bits", 0xda, 12, 1, "", 0, "several scans"},
    {"the last application segment", 0xdb, 0, 0xdb, "\xff\xef\0\2", 4, "fine"},
    {"a reserved marker", 0xdb, 0, 0xdb, "\xff\2\0\2", 4, "odd header"},
    {"a marker between", 0xdb, 0, 0xdb, "\xff\xd9", 2, "odd header"},
    {"a length of 1", 0xdb, 2, 1, "", 0, "odd header"},
    {"a byte between", 0xdb, 0, 0xdb, "x", 1, "odd header"},
};

static uint8_t *find_segment(uint8_t marker)
{
    uint8_t *at = file + 2;

    while (at[1] != marker) {
        at += 2 + ((size_t)at[2] << 8 | at[3]);
    }
    return at;
}

static void change(const struct reason_row *row)
{
    uint8_t *at;

    put_picture();
    at = find_segment(row->marker);
    at[1 + row->at] = row->value;
    memmove(at + row->before_bytes, at, file_bytes - (size_t)(at - file));
    memcpy(at, row->before, row->before_bytes);
    file_bytes += row->before_bytes;
}

static struct stk_view view(void)
{
    return (struct stk_view){file, file_bytes};
}

static void test_reasons(void)
{
    T_EACH(reason_row, row, reason_rows)
    {
        struct stk_jpeg_box box = {0, 0, SIDE, SIDE};
        struct stk_jpeg_frame frame;
        const char *wrong;
        uint32_t reason;

        change(row);
        reason = stk_jpeg_frame_read(view(), &frame);
        T_STR(row->name, stk_jpeg_reason_name(reason), row->want);
        if (reason == STK_JPEG_DECODED) {
            oracle_decode(&oracle, view(), SIDE);
            wrong = oracle_compare(&oracle, decoder, view(), &box, NULL, &reason);
            T_STR(row->name, wrong ? wrong : "", "");
            T_STR(row->name, stk_jpeg_reason_name(reason), "fine");
            T_TRUE(row->name, !oracle.warned && !oracle.failed);
        }
    }
}

static void test_long_side(void)
{
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t side = 65500 + i % 2;
        struct stk_jpeg_frame frame;
        uint8_t *at;

        put_picture();
        at = find_segment(0xc0) + (i < 2 ? 5 : 7);
        at[0] = (uint8_t)(side >> 8);
        at[1] = (uint8_t)side;
        T_STR("side", stk_jpeg_reason_name(stk_jpeg_frame_read(view(), &frame)),
              side == 65500 ? "fine" : "odd header");
    }
}

/* Segments that are cut short by their length and by the file's end: nothing after is read. */
static void test_short_segments(void)
{
    static const uint8_t markers[] = {0xc0, 0xc4, 0xda, 0xdb, 0xdd, 0xe0, 0xee, 0xff};

    for (size_t i = 0; i < sizeof markers; i++) {
        for (uint32_t bytes = 0; bytes < 20; bytes++) {
            static const uint8_t content[20];
            struct stk_jpeg_frame frame;
            uint8_t *copy;

            put_picture();
            file_bytes = (size_t)(find_segment(markers[i] == 0xc0 ? 0xc0 : 0xda) - file);
            put_segment(markers[i], content, bytes);
            copy = malloc(file_bytes); /* exactly: for sanitizers */
            memcpy(copy, file, file_bytes);
            T_TRUE("short", stk_jpeg_frame_read((struct stk_view){copy, file_bytes}, &frame));
            free(copy);
        }
    }
}

/* The colour space, defined by names and segments: libjpeg's pixels. */
static const struct color_row {
    const char *name;
    uint8_t ids[3];
    bool jfif, adobe;
    uint8_t marker; /* of the data after the Adobe segment; 0: nothing */
    const char *content;
    const char *want;
    bool rgb;
} color_rows[] = {
    {"RGB by name", "RGB", false, false, 0, "", "fine", true},
    {"RXB", "RXB", false, false, 0, "", "fine", false},
    {"RGX", "RGX", false, false, 0, "", "fine", false},
    {"JFIF says it", "RGB", true, false, 0, "", "fine", false},
    {"Adobe says it", "RGB", false, true, 0, "", "fine", false},
    {"Adobe in APP13", "RGB", false, true, 0xed, "Adobe\0\144\0\0\0\0\2", "fine", false},
    {"APP14 of others", "RGB", false, true, 0xee, "Xdobe\0\144\0\0\0\0\2", "fine", false},
    {"Adobe, RGB", "XYZ", false, true, 0xee, "Adobe\0\144\0\0\0\0\0", "fine", true},
    {"Adobe, YCCK", "RGB", false, true, 0xee, "Adobe\0\144\0\0\0\0\2", "not grey or three colours",
     false},
    {"Adobe, YCCK behind JFIF", "RGB", true, true, 0xee, "Adobe\0\144\0\0\0\0\2", "fine", false},
};

static void check_colors(const struct color_row *row)
{
    struct stk_jpeg_box box = {0, 0, SIDE, SIDE};
    struct stk_jpeg_frame frame;
    const char *wrong;
    uint32_t reason = stk_jpeg_frame_read(view(), &frame);

    T_STR(row->name, stk_jpeg_reason_name(reason), row->want);
    if (reason == STK_JPEG_DECODED) {
        T_EQ(row->name, frame.rgb, row->rgb);
        oracle_decode(&oracle, view(), SIDE);
        wrong = oracle_compare(&oracle, decoder, view(), &box, NULL, &reason);
        T_STR(row->name, wrong ? wrong : "", "");
    }
}

static void test_colors(void)
{
    T_EACH(color_row, row, color_rows)
    {
        uint8_t tail[1000];
        uint8_t *at;
        size_t bytes;

        put_picture();
        for (int i = 0; i < 3; i++) {
            find_segment(0xc0)[1 + 9 + 3 * i] = row->ids[i];
            find_segment(0xda)[1 + 4 + 2 * i] = row->ids[i];
        }
        find_segment(0xe0)[1] = row->jfif ? 0xe0 : 0xe1;
        find_segment(0xee)[1] = row->adobe ? 0xee : 0xe2;
        at = find_segment(0xdb);
        bytes = file_bytes - (size_t)(at - file);
        memcpy(tail, at, bytes);
        file_bytes -= bytes;
        if (row->marker) {
            put_segment(row->marker, row->content, 12);
        }
        put(tail, bytes);
        check_colors(row);
    }
}

/* Faults that need two changes. */
static void test_pairs(void)
{
    struct stk_jpeg_frame frame;
    uint8_t wide[129] = {0x20};

    put_picture();
    find_segment(0xc0)[1 + 10] = 0x13;
    find_segment(0xc0)[1 + 13] = 0x12;
    T_STR("factors that do not divide, down",
          stk_jpeg_reason_name(stk_jpeg_frame_read(view(), &frame)), "odd sampling");
    put_picture();
    find_segment(0xc0)[1 + 12] = 'R';
    find_segment(0xda)[1 + 6] = 'R';
    T_STR("two of one name, and in the scan",
          stk_jpeg_reason_name(stk_jpeg_frame_read(view(), &frame)), "odd header");
    file_bytes = 2;
    put_segment(0xdb, wide, sizeof wide);
    T_STR("a whole quantiser of 2 and more",
          stk_jpeg_reason_name(stk_jpeg_frame_read(view(), &frame)), "odd tables");
}

/* A workspace has the columns of MCUs that a box needs, with a sample on each side; the largest one
 * of an image is that of the complete image. */
static void test_workspace(void)
{
    static const uint8_t h[4] = {2, 1, 1, 200}, v[4] = {1, 1, 1, 200};
    const struct stk_jpeg_box full_box = {0, 0, 640, SIDE}, left = {0, 0, 14, 8};
    const struct stk_jpeg_box right = {626, 0, 14, 8};
    struct stk_jpeg_frame frame;
    uint64_t one;

    put_picture();
    memcpy(find_segment(0xc0) + 7, "\2\200", 2); /* 640 wide */
    stk_jpeg_frame_read(view(), &frame);
    one = stk_jpeg_workspace_bytes(&frame, &left);
    T_EQ("complete", stk_jpeg_workspace_bytes(&frame, &full_box),
         stk_jpeg_workspace_max(640, h, v, 3));
    T_EQ("the last column", stk_jpeg_workspace_bytes(&frame, &right), one);
    T_TRUE("of forty", one < stk_jpeg_workspace_max(320, h, v, 3));
}

/* ---- tables --------------------------------------------------------------------------------- */

static uint32_t reason_of_table(const uint8_t *counts, const uint8_t *symbols, size_t symbol_count,
                                uint8_t name)
{
    struct stk_jpeg_box box = {0, 0, SIDE, SIDE};
    uint8_t content[1 + 16 + 300] = {name};
    uint8_t tail[400];
    uint8_t *at;
    size_t tail_bytes;
    uint32_t reason;

    memcpy(content + 1, counts, 16);
    memcpy(content + 17, symbols, symbol_count);
    put_picture();
    at = find_segment(0xda);
    tail_bytes = file_bytes - (size_t)(at - file);
    memcpy(tail, at, tail_bytes);
    file_bytes -= tail_bytes;
    put_segment(0xc4, content, 17 + symbol_count);
    put(tail, tail_bytes);
    oracle_decode(&oracle, view(), SIDE);
    T_TRUE("no row of a picture that libjpeg refuses",
           !oracle_compare(&oracle, decoder, view(), &box, NULL, &reason));
    return reason;
}

static void test_odd_tables(void)
{
    static const uint8_t symbols[300];
    static const uint8_t sixteen[2] = {0, 16};

    T_STR("two codes",
          stk_jpeg_reason_name(reason_of_table((const uint8_t[16]){1, 1}, symbols, 2, 0x10)),
          "fine");
    T_STR("a code that is all ones",
          stk_jpeg_reason_name(reason_of_table((const uint8_t[16]){2}, symbols, 2, 0x10)),
          "odd tables");
    T_STR("more codes than there are",
          stk_jpeg_reason_name(reason_of_table((const uint8_t[16]){1, 3}, symbols, 4, 0x10)),
          "odd tables");
    T_STR("no codes",
          stk_jpeg_reason_name(reason_of_table((const uint8_t[16]){0}, symbols, 0, 0x10)),
          "damaged data");
    T_STR("256 symbols",
          stk_jpeg_reason_name(
              reason_of_table((const uint8_t[16]){1, [15] = 255}, symbols, 256, 0x10)),
          "fine");
    T_STR("256 symbols of DC",
          stk_jpeg_reason_name(
              reason_of_table((const uint8_t[16]){1, [15] = 255}, symbols, 256, 0x00)),
          "fine");
    T_STR("257 symbols",
          stk_jpeg_reason_name(
              reason_of_table((const uint8_t[16]){1, [14] = 1, [15] = 255}, symbols, 257, 0x10)),
          "odd tables");
    T_STR("a difference of 16 bits",
          stk_jpeg_reason_name(reason_of_table((const uint8_t[16]){1, 1}, sixteen, 2, 0x00)),
          "odd tables");
}

/* A look-up has as many symbols as fit its bits: a coefficient that fills them, two, or a
 * coefficient and a block's end; so has one that only parses. Nothing else would detect that it is
 * slower. */
static void test_look_ups(void)
{
    static struct stk_jpeg_huffman_cache tables;
    static const uint8_t bytes[16 + 3] = {1, 1, 1, [16] = 0x09, 0x01, 0x00};
    const struct stk_jpeg_huffman_table *table =
        stk_jpeg_huffman_get(&tables, 1, (struct stk_view){bytes, 19});
    const struct stk_jpeg_lookup *nine = &table->lookup[0x1ff], *two = &table->lookup[0x2d0];
    const struct stk_jpeg_lookup *end = &table->lookup[0x2e0];

    /* 0 and 9 bits; 10 1, 10 1 and half a code; 10 1 and 110. */
    T_TRUE("all of them", nine->bits == 10 && nine->value == 511 && nine->advance2 == 0);
    T_TRUE("two", two->bits == 6 && two->bits1 == 3 && two->value == 1 && two->value2 == 1 &&
                      two->advance == 1 && two->advance2 == 1);
    T_TRUE("an end", end->bits == 6 && end->advance2 == STK_JPEG_END_OF_BLOCK);
    T_TRUE("four", table->skip[0xb6d].bits == 12 && table->skip[0xb6d].advance == 4);
}

/* A table is built once, while no more tables than the cache holds were used after it; an invalid
 * one leaves nothing behind. */
static void test_reused_tables(void)
{
    static struct stk_jpeg_huffman_cache tables, others;
    const struct stk_jpeg_huffman_table *made[6], *again, *fresh;
    uint8_t sources[6][18];

    for (uint32_t i = 0; i < 6; i++) {
        memset(sources[i], 0, sizeof sources[i]);
        sources[i][0] = sources[i][1] = 1;
        sources[i][17] = (uint8_t)i;
    }
    for (uint32_t i = 0; i < STK_JPEG_HUFFMAN_CACHED; i++) {
        made[i] = stk_jpeg_huffman_get(&tables, 1, (struct stk_view){sources[i], 18});
    }
    for (uint32_t i = STK_JPEG_HUFFMAN_CACHED; i-- > 0;) {
        T_TRUE("the same",
               stk_jpeg_huffman_get(&tables, 1, (struct stk_view){sources[i], 18}) == made[i]);
    }
    made[4] = stk_jpeg_huffman_get(&tables, 1, (struct stk_view){sources[4], 18});
    T_TRUE("instead of the oldest", made[4] == made[3]);
    sources[5][0] = 3;
    T_TRUE("no code", !stk_jpeg_huffman_get(&tables, 1, (struct stk_view){sources[5], 18}));
    T_TRUE("nor is it cached",
           !stk_jpeg_huffman_get(&tables, 1, (struct stk_view){sources[5], 18}));
    again = stk_jpeg_huffman_get(&tables, 1, (struct stk_view){sources[2], 18});
    fresh = stk_jpeg_huffman_get(&others, 1, (struct stk_view){sources[2], 18});
    T_TRUE("made again", again && memcmp(&again->codes, &fresh->codes, sizeof fresh->codes) == 0);
}

/* ---- marks ---------------------------------------------------------------------------------- */

/* Grey, rows of MCUs, each of which is `bits` (0 and 1), but 0 bits up to the last byte. */
static void put_rows(const char *bits, uint32_t mcus, uint32_t rows, uint32_t interval)
{
    uint8_t frame[9] = {
        8, 0, (uint8_t)(8 * rows), (uint8_t)(8 * mcus >> 8), (uint8_t)(8 * mcus), 1, 1, 0x11, 0};
    uint8_t restart[2] = {0, (uint8_t)interval}, quantiser[65] = {0, 1};
    uint32_t length = (uint32_t)strlen(bits), byte = 0, count = 0;

    file_bytes = 0;
    put("\xff\xd8", 2);
    put_segment(0xdb, quantiser, sizeof quantiser);
    put_segment(0xdd, restart, sizeof restart);
    put_segment(0xc0, frame, sizeof frame);
    put_codes(0x00, 0, 15);
    put_codes(0x10, 0, 1);
    put_segment(0xda, (const uint8_t[6]){1, 1, 0, 0, 63, 0}, 6);
    for (uint32_t i = 0; i < length * mcus * rows; i++) {
        byte = byte << 1 | (uint32_t)(bits[i % length] - '0');
        if (++count == 8) {
            put(&(uint8_t){(uint8_t)byte}, 1);
            put("", byte == 0xff);
            byte = count = 0;
        }
    }
    put(&(uint8_t){(uint8_t)(byte << (8 - count) | 0xff >> count)}, count > 0);
    put("\xff\xd9", 2);
}

/* A grey image has no colours, whatever its header says of them. */
static void test_grey(void)
{
    struct stk_jpeg_frame frame;
    uint8_t tail[200];
    size_t bytes;

    put_rows("00", 6, 1, 0);
    bytes = file_bytes - 2;
    memcpy(tail, file + 2, bytes);
    file_bytes = 2;
    put_segment(0xee, "Adobe\0\144\0\0\0\0\2", 12);
    put(tail, bytes);
    T_STR("grey", stk_jpeg_reason_name(stk_jpeg_frame_read(view(), &frame)), "fine");
}

static uint32_t reason_with(const struct stk_jpeg_entry_points *marks,
                            const struct stk_jpeg_box *box)
{
    uint32_t reason;
    const char *wrong = oracle_compare(&oracle, decoder, view(), box, marks, &reason);

    T_STR("marks", wrong ? wrong : "", "");
    return reason;
}

static void test_wrong_marks(void)
{
    struct stk_jpeg_box box = {0, 0, 40, 8}, part = {0, 0, 12, 8};
    struct stk_jpeg_entry_points marks, given;
    uint8_t *made, moved[10];
    uint32_t reason, place;

    put_rows("00", 6, 1, 0);
    oracle_decode(&oracle, view(), 8);
    made = oracle_marks(decoder, view(), 3, &marks, &reason);
    if (!T_TRUE("made", made && marks.bytes.bytes == 10)) {
        return;
    }
    T_STR("right", stk_jpeg_reason_name(reason_with(&marks, &box)), "fine");
    given = (struct stk_jpeg_entry_points){3, {made, 9}};
    T_STR("too few", stk_jpeg_reason_name(reason_with(&given, &part)), "side index");
    given = (struct stk_jpeg_entry_points){2, {made, 10}};
    T_STR("of other MCUs", stk_jpeg_reason_name(reason_with(&given, &part)), "side index");
    given = (struct stk_jpeg_entry_points){3, {NULL, 0}};
    T_STR("none", stk_jpeg_reason_name(reason_with(&given, &part)), "side index");

    /* The entry point after the box, which the decoder does not reach, is before the box's end. */
    memcpy(moved, made, 10);
    T_STR("complete", stk_jpeg_reason_name(reason_with(&marks, &part)), "fine");
    place = 2;
    memcpy(moved, &place, 4);
    given = (struct stk_jpeg_entry_points){3, {moved, 10}};
    T_STR("cut before the box's end", stk_jpeg_reason_name(reason_with(&given, &box)),
          "side index");
    place = 1u << 31;
    memcpy(moved, &place, 4);
    T_STR("a large offset", stk_jpeg_reason_name(reason_with(&given, &part)), "side index");
    free(made);

    put_rows("00", 6, 1, 200);
    oracle_decode(&oracle, view(), 8);
    T_TRUE("restarts", !oracle_marks(decoder, view(), 3, &marks, &reason));
    T_STR("restarts", stk_jpeg_reason_name(reason), "side index");
    memset(moved, 0, sizeof moved);
    moved[0] = 6;
    given = (struct stk_jpeg_entry_points){3, {moved, 10}};
    T_STR("of a picture with restarts", stk_jpeg_reason_name(reason_with(&given, &box)),
          "side index");
}

/* A cut segment whose bits do not reach the box is refused, though the entry point itself is not
 * passed: 17 bits an MCU, and the next entry point after the first's. */
static void test_short_segment(void)
{
    struct stk_jpeg_box part = {0, 0, 16, 8};
    struct stk_jpeg_entry_points marks;
    uint32_t reason, place;
    uint8_t *made;

    put_rows("01011011011011010", 6, 1, 0);
    oracle_decode(&oracle, view(), 8);
    made = oracle_marks(decoder, view(), 3, &marks, &reason);
    if (T_TRUE("made", made != NULL)) {
        T_STR("complete", stk_jpeg_reason_name(reason_with(&marks, &part)), "fine");
        place = 2 << 3; /* in the first MCU, two of which are in the box */
        memcpy(made, &place, 4);
        T_STR("short", stk_jpeg_reason_name(reason_with(&marks, &part)), "side index");
        part.width = 8; /* and nothing is read after it */
        T_STR("a bit", stk_jpeg_reason_name(reason_with(&marks, &part)), "side index");
    }
    free(made);
}

/* Damage after the last mark that is passed. */
static void test_damage_behind_marks(void)
{
    struct stk_jpeg_box part = {24, 0, 16, 8};
    struct stk_jpeg_entry_points marks;
    uint32_t reason;
    uint8_t *made;

    put_rows("00", 6, 1, 0);
    oracle_decode(&oracle, view(), 8);
    made = oracle_marks(decoder, view(), 3, &marks, &reason);
    if (T_TRUE("made", made != NULL)) {
        T_STR("complete", stk_jpeg_reason_name(reason_with(&marks, &part)), "fine");
        file[file_bytes - 3] |= 0xc0; /* the fifth MCU begins with an invalid code */
        oracle_decode(&oracle, view(), 8);
        T_TRUE("libjpeg sees it", oracle.warned);
        T_STR("damaged", stk_jpeg_reason_name(reason_with(&marks, &part)), "side index");
    }
    free(made);
}

/* The same where two rows are read side by side: in the second, no code of DC, or none of AC. A box
 * of the first row alone does not read it. */
static void test_damage_in_two_rows(void)
{
    struct stk_jpeg_box part = {0, 0, 16, 16};

    for (int i = 0; i < 2; i++) {
        struct stk_jpeg_entry_points marks;
        uint32_t reason;
        uint8_t *made;

        put_rows("00", 6, 2, 0);
        oracle_decode(&oracle, view(), 16);
        made = oracle_marks(decoder, view(), 0, &marks, &reason);
        if (T_TRUE("made", made != NULL)) {
            T_STR("complete", stk_jpeg_reason_name(reason_with(&marks, &part)), "fine");
            file[file_bytes - 4] |= i ? 1 : 3; /* 12 bits a row: the second MCU's */
            file[file_bytes - 3] |= i ? 0x80 : 0;
            oracle_decode(&oracle, view(), 16);
            T_TRUE("libjpeg sees it", oracle.warned);
            T_STR("damaged", stk_jpeg_reason_name(reason_with(&marks, &part)), "side index");
            part.height = 8;
            T_STR("not needed", stk_jpeg_reason_name(reason_with(&marks, &part)), "fine");
            part.height = 16;
        }
        free(made);
    }
}

/* The second mark stands before the first: nothing is read between them, nor after the file. */
static void test_marks_go_back(void)
{
    struct stk_jpeg_box part = {24, 0, 16, 8};
    struct stk_jpeg_entry_points marks;
    uint8_t *made, *copy;
    uint32_t reason;

    put_rows("01011011011011010", 9, 1, 0);
    oracle_decode(&oracle, view(), 8);
    made = oracle_marks(decoder, view(), 3, &marks, &reason);
    copy = malloc(file_bytes); /* exactly: for sanitizers */
    memcpy(copy, file, file_bytes);
    if (T_TRUE("made", made != NULL)) {
        struct stk_view bytes = {copy, file_bytes};

        memset(made + STK_JPEG_ENTRY_POINT_BYTES, 0, 4);
        T_TRUE("no row", !oracle_compare(&oracle, decoder, bytes, &part, &marks, &reason));
        T_STR("back", stk_jpeg_reason_name(reason), "side index");
    }
    free(copy);
    free(made);
}

/* Predictors that grow past 16 bits: the library decodes it, marks cannot be. */
static void test_large_predictors(void)
{
    struct stk_jpeg_box box = {0, 0, 8, 8};
    struct stk_jpeg_entry_points marks;
    uint32_t reason;

    put_rows("101111111111111110", 6, 1, 0);
    oracle_decode(&oracle, view(), 8);
    T_TRUE("none", !oracle_marks(decoder, view(), 2, &marks, &reason));
    T_STR("none", stk_jpeg_reason_name(reason), "side index");
    box.width = 48;
    T_STR("but pixels", stk_jpeg_reason_name(reason_with(NULL, &box)), "fine");
}

int main(void)
{
    int64_t alive = stk_mem_alive();

    T_EQ("open", stk_jpeg_decoder_open(&decoder, STOKER_SIMD_AUTO, NULL), 0);
    test_reasons();
    test_long_side();
    test_short_segments();
    test_colors();
    test_grey();
    test_pairs();
    test_workspace();
    test_odd_tables();
    test_look_ups();
    test_reused_tables();
    test_wrong_marks();
    test_short_segment();
    test_damage_behind_marks();
    test_damage_in_two_rows();
    test_marks_go_back();
    test_large_predictors();
    stk_jpeg_decoder_close(decoder);
    T_EQ("no leak", stk_mem_alive(), alive);
    free(oracle.pixels);
    return t_finish();
}
