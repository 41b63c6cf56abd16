/* Goal: whatever kind of picture an encoder may write, each sample of each box of it is
 * libjpeg-turbo's, by vectors and without, with marks and without; and none is left to the
 * library.
 * Method: pictures of 1 to 1,100 pixels a side made here by libjpeg over samplings (those that
 * have a name, and any factors), qualities, restart intervals, colour spaces, quantisers of 8 and
 * 16 bits, one to three Huffman tables that are the standard's, optimised or drawn by chance;
 * their segments then taken apart, put together, repeated, shuffled and filled up. 20,000 of them
 * with STOKER_TEST_LONG. Arguments: a seed, and how many. */
#include "decode/jpeg/jpeg_corners_test.h"
#include "test/t.h"

#define FILE_BYTES_MAX (16u << 20)
#define SIDE_MAX 1100u
#define SEGMENTS_MAX 64u

enum content { SMOOTH, NOISE, EXTREMES, FLAT, CONTENT_COUNT };
enum huffman { STANDARD, OPTIMISED, BY_CHANCE, HUFFMAN_COUNT };
enum space { JFIF, ADOBE, ADOBE_RGB, BARE, BARE_RGB, SPACE_COUNT };

static const struct sampling {
    const char *name;
    int components;
    int h[3], v[3];
} samplings[] = {
    {"4:2:0", 3, {2, 1, 1}, {2, 1, 1}},   {"4:2:2", 3, {2, 1, 1}, {1, 1, 1}},
    {"4:4:4", 3, {1, 1, 1}, {1, 1, 1}},   {"grey", 1, {1}, {1}},
    {"4:4:0", 3, {1, 1, 1}, {2, 1, 1}},   {"4:1:1", 3, {4, 1, 1}, {1, 1, 1}},
    {"4:1:0", 3, {4, 1, 1}, {2, 1, 1}},   {"4:4:1", 3, {1, 1, 1}, {4, 1, 1}},
    {"2x2 all", 3, {2, 2, 2}, {1, 1, 1}}, {"blue full", 3, {2, 2, 1}, {2, 1, 1}},
};
#define USUAL_SAMPLINGS 4u

static struct made {
    uint8_t file[FILE_BYTES_MAX];
    size_t bytes;
    struct sampling sampling;
    uint32_t width, height, quality, restart;
    uint32_t content, huffman, space;
    bool wide_tables, odd_segments;
} made;
static struct corners corners;

static uint32_t draw(uint32_t below)
{
    return corners_draw(&corners, below);
}

/* ---- properties of an image ---------------------------------------------------------------- */

/* Blocks of an MCU; 0: factors that do not divide the largest, which libjpeg cannot do. */
static int blocks_of(const struct sampling *sampling)
{
    int h = 1, v = 1, blocks = 0;

    for (int i = 0; i < sampling->components; i++) {
        h = sampling->h[i] > h ? sampling->h[i] : h;
        v = sampling->v[i] > v ? sampling->v[i] : v;
        blocks += sampling->h[i] * sampling->v[i];
    }
    for (int i = 0; i < sampling->components; i++) {
        if (h % sampling->h[i] || v % sampling->v[i]) {
            return 0;
        }
    }
    return blocks;
}

/* Named ones, and any factors that an MCU of 10 blocks has room for. */
static void draw_sampling(struct sampling *sampling)
{
    *sampling = samplings[draw(draw(2) ? USUAL_SAMPLINGS : (uint32_t)STK_COUNT(samplings))];
    if (draw(6)) {
        return;
    }
    sampling->name = "any factors";
    sampling->components = draw(4) ? 3 : 1;
    do {
        for (int i = 0; i < sampling->components; i++) {
            sampling->h[i] = 1 + (int)draw(4);
            sampling->v[i] = 1 + (int)draw(4);
        }
    } while (blocks_of(sampling) < 1 || blocks_of(sampling) > 10);
}

static void draw_made(uint32_t side_max)
{
    bool large = draw(8) == 0;

    draw_sampling(&made.sampling);
    made.width = 1 + draw(large || draw(2) ? side_max : 64);
    made.height = 1 + draw(large || made.width <= 64 ? side_max : 64);
    made.quality = 1 + draw(100);
    made.content = draw(CONTENT_COUNT);
    made.huffman = draw(HUFFMAN_COUNT);
    made.space = draw(SPACE_COUNT);
    made.restart = draw(3) ? 0 : 1 + draw(draw(2) ? 3 : 70);
    made.wide_tables = draw(4) == 0;
    made.odd_segments = draw(2);
}

static void draw_row(uint8_t *row, uint32_t y)
{
    uint32_t parts = (uint32_t)made.sampling.components, bytes = made.width * parts;

    for (uint32_t i = 0; i < bytes; i++) {
        uint32_t x = i / parts, c = i % parts;
        uint32_t noise = made.content == SMOOTH || made.content == NOISE ? draw(256) : 0;

        row[i] = made.content == NOISE      ? (uint8_t)noise
                 : made.content == EXTREMES ? (uint8_t)(draw(2) * 255)
                 : made.content == FLAT     ? (uint8_t)(y / 16 * 40 + x / 24 * 70 + c * 60)
                                            : (uint8_t)(x * 3 + y * (c + 1) * 2 + noise / 8);
    }
}

/* ---- tables --------------------------------------------------------------------------------- */

/* Lengths of a prefix code of `symbols` codes, without the code of all ones: all 16 bits or less at
 * first, then shortened at random as far as possible (Kraft). */
static void draw_lengths(uint32_t symbols, uint8_t *counts)
{
    uint32_t lengths[256], room = 0xffff; /* in codes of 16 bits, but for the last */

    for (uint32_t i = 0; i < symbols; i++) {
        lengths[i] = 16;
        room--;
    }
    for (uint32_t tries = draw(40) * symbols; tries > 0; tries--) {
        uint32_t i = draw(symbols), cost = 1u << (16 - lengths[i]);

        if (lengths[i] > 1 && room > cost) {
            lengths[i]--;
            room -= cost;
        }
    }
    memset(counts, 0, 17);
    for (uint32_t i = 0; i < symbols; i++) {
        counts[lengths[i]]++;
    }
}

/* A table that cannot be taken for a standard one: all possible symbols, in random order. */
static void draw_table(j_compress_ptr cinfo, JHUFF_TBL **table, bool ac)
{
    static const uint32_t dc_symbols = 12;
    uint8_t symbols[256];
    uint32_t count = 0;

    for (uint32_t i = 0; i < (ac ? 256 : dc_symbols); i++) {
        bool used = !ac || (i & 15 && (i & 15) <= 10) || i == 0 || i == 0xf0;

        if (used || draw(3) == 0) {
            symbols[count++] = (uint8_t)i;
        }
    }
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t j = draw(i + 1);
        uint8_t other = symbols[i];

        symbols[i] = symbols[j];
        symbols[j] = other;
    }
    if (!*table) {
        *table = jpeg_alloc_huff_table((j_common_ptr)cinfo);
    }
    memcpy((*table)->huffval, symbols, count);
    draw_lengths(count, (*table)->bits);
    (*table)->sent_table = FALSE;
}

static void set_tables(j_compress_ptr cinfo)
{
    for (int i = 0; i < cinfo->num_components; i++) {
        jpeg_component_info *info = &cinfo->comp_info[i];

        if (made.huffman == BY_CHANCE) {
            info->dc_tbl_no = (int)draw(4);
            info->ac_tbl_no = (int)draw(4);
            draw_table(cinfo, &cinfo->dc_huff_tbl_ptrs[info->dc_tbl_no], false);
            draw_table(cinfo, &cinfo->ac_huff_tbl_ptrs[info->ac_tbl_no], true);
        }
        if (draw(3) == 0) {
            info->quant_tbl_no = (int)draw(4);
        }
        if (!cinfo->quant_tbl_ptrs[info->quant_tbl_no]) {
            cinfo->quant_tbl_ptrs[info->quant_tbl_no] = jpeg_alloc_quant_table((j_common_ptr)cinfo);
            for (int k = 0; k < DCTSIZE2; k++) {
                cinfo->quant_tbl_ptrs[info->quant_tbl_no]->quantval[k] =
                    (UINT16)(1 + draw(made.wide_tables ? 300 : 255));
            }
        }
    }
}

static void set_space(j_compress_ptr cinfo)
{
    bool rgb = made.space == ADOBE_RGB || made.space == BARE_RGB;

    if (made.sampling.components == 3) {
        jpeg_set_colorspace(cinfo, rgb ? JCS_RGB : JCS_YCbCr);
    }
    cinfo->write_JFIF_header = made.space == JFIF;
    cinfo->write_Adobe_marker = made.space == ADOBE || made.space == ADOBE_RGB;
    if (made.space == JFIF) {
        cinfo->JFIF_minor_version = (UINT8)draw(4);
        cinfo->density_unit = (UINT8)draw(3);
        cinfo->X_density = (UINT16)draw(65536);
    }
}

static void set_shape(j_compress_ptr cinfo)
{
    cinfo->image_width = made.width;
    cinfo->image_height = made.height;
    cinfo->input_components = made.sampling.components;
    cinfo->in_color_space = made.sampling.components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(cinfo);
    set_space(cinfo);
    jpeg_set_quality(cinfo, (int)made.quality, made.wide_tables ? FALSE : TRUE);
    for (int i = 0; i < made.sampling.components; i++) {
        cinfo->comp_info[i].h_samp_factor = made.sampling.h[i];
        cinfo->comp_info[i].v_samp_factor = made.sampling.v[i];
    }
    cinfo->dct_method = JDCT_ISLOW;
    cinfo->optimize_coding = made.huffman == OPTIMISED;
    cinfo->restart_interval = draw(2) ? made.restart : 0;
    cinfo->restart_in_rows = cinfo->restart_interval ? 0 : (int)(made.restart % 4);
    made.restart = cinfo->restart_interval ? made.restart : made.restart % 4;
    set_tables(cinfo);
}

static void on_encode_error(j_common_ptr cinfo)
{
    char text[JMSG_LENGTH_MAX];

    cinfo->err->format_message(cinfo, text);
    fprintf(stderr, "cannot make a picture: %s\n", text);
    exit(1);
}

static void encode(void)
{
    static uint8_t row[3 * SIDE_MAX];
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *file = made.file;
    unsigned long bytes = sizeof made.file;

    cinfo.err = jpeg_std_error(&errors);
    errors.output_message = oracle_ignore; /* tables of 16 bits are meant */
    errors.error_exit = on_encode_error;
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &file, &bytes);
    set_shape(&cinfo);
    jpeg_start_compress(&cinfo, TRUE);
    while (cinfo.next_scanline < cinfo.image_height) {
        JSAMPROW rows = row;

        draw_row(row, cinfo.next_scanline);
        jpeg_write_scanlines(&cinfo, &rows, 1);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    STK_ASSERT(file == made.file);
    made.bytes = bytes;
}

/* ---- segments ------------------------------------------------------------------------------- */

static uint8_t out[FILE_BYTES_MAX];
static size_t out_bytes;

static void put(const void *bytes, size_t count)
{
    STK_ASSERT(out_bytes + count <= sizeof out);
    memcpy(out + out_bytes, bytes, count);
    out_bytes += count;
}

static void put_segment(uint8_t marker, const uint8_t *content, size_t bytes)
{
    const uint8_t head[4] = {0xff, marker, (uint8_t)((bytes + 2) >> 8), (uint8_t)(bytes + 2)};

    for (uint32_t fill = draw(3) ? 0 : draw(5); fill > 0; fill--) {
        put("\xff", 1);
    }
    put(head, sizeof head);
    put(content, bytes);
}

/* EXIF with an orientation, a profile, a note, an Adobe segment that is too short to be one. */
static void put_noise(void)
{
    uint8_t exif[] = {'E',  'x', 'i', 'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0,
                      0x12, 1,   3,   0,   1, 0, 0,   0,   6,  0, 0, 0, 0, 0, 0, 0};
    uint8_t content[900];
    uint32_t bytes = draw(sizeof content);

    for (uint32_t i = 0; i < bytes; i++) {
        content[i] = draw(3) ? (uint8_t)draw(256) : 0xff;
    }
    exif[24] = (uint8_t)draw(10);
    switch (draw(5)) {
    case 0:
        put_segment(0xe1, exif, sizeof exif);
        break;
    case 1:
        put_segment((uint8_t)(0xe1 + draw(13)), content, bytes);
        break;
    case 2:
        put_segment(0xfe, content, bytes);
        break;
    case 3:
        put_segment(0xee, (const uint8_t *)"Adobe\0\x64\0\0\0", 10);
        break;
    default:
        put_segment(0xdd, (const uint8_t[2]){0, 0}, 2); /* no restarts, so far */
        break;
    }
}

/* Length of the first table of a DQT or DHT. */
static size_t table_bytes(uint8_t marker, const uint8_t *content)
{
    size_t bytes = 17;

    if (marker == 0xdb) {
        return content[0] >> 4 ? 129 : 65;
    }
    for (int i = 1; i <= 16; i++) {
        bytes += content[i];
    }
    return bytes;
}

/* Tables one a segment, as they were, or before them others under the same names. */
static void put_tables(uint8_t marker, const uint8_t *content, size_t bytes)
{
    uint8_t other[1100];

    if (draw(2)) {
        STK_ASSERT(bytes <= sizeof other);
        memcpy(other, content, bytes);
        for (size_t at = 0; at < bytes; at += table_bytes(marker, content + at)) {
            size_t skip = marker == 0xdb ? 1 : 17;

            for (size_t i = at + skip; i < at + table_bytes(marker, content + at); i++) {
                other[i] = marker == 0xdb ? (uint8_t)(1 + draw(255)) : (uint8_t)draw(12);
            }
        }
        put_segment(marker, other, bytes);
    }
    if (draw(2)) {
        put_segment(marker, content, bytes);
        return;
    }
    for (size_t at = 0; at < bytes; at += table_bytes(marker, content + at)) {
        put_segment(marker, content + at, table_bytes(marker, content + at));
    }
}

/* Padding that is not all ones, or could be the end of a code: it may have one more byte than a
 * code can take, which libjpeg notices or not, as it has read ahead. */
static void change_end(uint8_t *byte)
{
    uint8_t changed = *byte & (uint8_t)(draw(8) ? 0xff : 0xff << draw(8));

    corners.may_leave |= changed != *byte;
    *byte = changed;
}

/* The picture's data: fill bytes before its markers, other bits in the last byte before them. */
static void put_data(const uint8_t *data, size_t bytes)
{
    size_t from = 0;

    for (size_t at = 0; at + 1 < bytes; at++) {
        if (data[at] != 0xff || data[at + 1] == 0) {
            continue;
        }
        put(data + from, at - from);
        change_end(&out[out_bytes - 1]);
        for (uint32_t fill = draw(4) ? 0 : draw(4); fill > 0; fill--) {
            put("\xff", 1);
        }
        from = at++;
    }
    put(data + from, draw(10) ? bytes - from : 0); /* without its end */
    for (uint32_t n = draw(3) * draw(300); n > 0; n--) {
        uint8_t byte = (uint8_t)draw(256);

        put(&byte, 1);
    }
}

/* Takes the file apart at its markers. */
static void rewrite(void)
{
    size_t at = 2;
    uint8_t marker = 0;

    out_bytes = 0;
    put(made.file, 2);
    while (marker != 0xda) {
        const uint8_t *segment = made.file + at;
        size_t bytes = (size_t)segment[2] << 8 | segment[3];

        marker = segment[1];
        for (uint32_t n = draw(3) ? 0 : draw(3); n > 0 && (marker != 0xe0 && marker != 0xda); n--) {
            put_noise();
        }
        if (marker == 0xdb || marker == 0xc4) {
            put_tables(marker, segment + 4, bytes - 2);
        } else {
            put_segment(marker, segment + 4, bytes - 2);
        }
        at += 2 + bytes;
    }
    put_data(made.file + at, made.bytes - at);
    memcpy(made.file, out, out_bytes);
    made.bytes = out_bytes;
}

/* ---- a run ---------------------------------------------------------------------------------- */

static void check_one(uint32_t i)
{
    const char *wrong;
    uint32_t reason;
    char name[200];

    wrong = corners_check(&corners, (struct stk_view){made.file, made.bytes}, &reason);
    snprintf(name, sizeof name, "%u: %s %ux%u q%u content %u huffman %u space %u restart %u%s%s", i,
             made.sampling.name, made.width, made.height, made.quality, made.content, made.huffman,
             made.space, made.restart, made.wide_tables ? " wide" : "",
             made.odd_segments ? " odd segments" : "");
    T_STR(name, wrong ? wrong : "", "");
    T_TRUE(name, reason == STK_JPEG_DECODED || corners.oracle.warned || corners.may_leave);
}

int main(int count, char **arguments)
{
    const char *text = getenv("STOKER_TEST_LONG");
    uint32_t pictures = text && text[0] ? 20000 : 250;

    corners.seed = count > 1 ? strtoull(arguments[1], NULL, 0) : 1;
    pictures = count > 2 ? (uint32_t)strtoul(arguments[2], NULL, 0) : pictures;
    printf("seed %llu\n", (unsigned long long)corners.seed);
    corners_open(&corners);
    for (uint32_t i = 0; i < pictures; i++) {
        corners.draws = (uint64_t)i << 32; /* each by itself, for a closer look */
        draw_made(pictures > 250 ? SIDE_MAX : 300);
        encode();
        corners.may_leave = false;
        if (made.odd_segments) {
            rewrite();
        }
        check_one(i);
    }
    printf("%u pictures, %llu boxes, %llu samples; %llu with a warning of libjpeg's\n", pictures,
           (unsigned long long)corners.boxes, (unsigned long long)corners.samples,
           (unsigned long long)corners.warned);
    for (uint32_t i = 0; i < STK_JPEG_REASON_COUNT; i++) {
        if (corners.reasons[i]) {
            printf("%8llu %s\n", (unsigned long long)corners.reasons[i], stk_jpeg_reason_name(i));
        }
    }
    corners_close(&corners);
    return t_finish();
}
