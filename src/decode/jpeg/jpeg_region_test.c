/* Goal: a box of a JPEG equals libjpeg-turbo's full decode in each sample, or there is no answer
 * and a reason; damage never gives rows for which libjpeg would warn.
 * Method: images made here by libjpeg over sizes, samplings, qualities, restart intervals, tables
 * and fillers, and by random coefficients; each decoded by libjpeg with its defaults, and by
 * jpeg_markers.c, jpeg_huffman.c, jpeg_segment.c, jpeg_planes.c and jpeg_region.c, plain, with AVX2
 * and with SSE2 or NEON (jpeg_planes_simd.c), over corners and random boxes; planes are upsampled
 * here as jdsample.c does. Takes a seed as its argument. */
#include "base/mem.h"
#include "base/random.h"
#include "decode/jpeg/jpeg_entropy.h"
#include "decode/jpeg/jpeg_oracle_test.h"
#include "decode/jpeg/jpeg_planes.h"
#include "test/t.h"

#include <errno.h>

#define FILE_BYTES_MAX (8u << 20)

enum content { SMOOTH, NOISE, EXTREMES, FLAT, COEFFICIENTS, CONTENT_COUNT };

static const struct sampling {
    const char *name;
    int components;
    int h[3], v[3];
} samplings[] = {
    {"4:2:0", 3, {2, 1, 1}, {2, 1, 1}},  {"4:2:2", 3, {2, 1, 1}, {1, 1, 1}},
    {"4:4:4", 3, {1, 1, 1}, {1, 1, 1}},  {"grey", 1, {1}, {1}},
    {"4:4:0", 3, {1, 1, 1}, {2, 1, 1}},  {"4:1:1", 3, {4, 1, 1}, {1, 1, 1}},
    {"4:1:0", 3, {4, 1, 1}, {2, 1, 1}},  {"1x4", 3, {1, 1, 1}, {4, 1, 1}},
    {"grey, factor 2", 1, {2}, {2}},     {"luma smaller", 3, {1, 2, 1}, {1, 2, 1}},
    {"mixed", 3, {2, 1, 2}, {1, 2, 2}},  {"two and two", 3, {2, 2, 2}, {1, 1, 1}},
    {"4 to 2", 3, {4, 2, 1}, {1, 1, 1}}, {"4 to 2 down", 3, {1, 1, 1}, {4, 2, 2}},
    {"thirds", 3, {3, 1, 1}, {1, 1, 1}},
};
#define USUAL_SAMPLINGS 4u

struct made {
    uint8_t file[FILE_BYTES_MAX];
    size_t bytes;
    uint32_t width, height;
    const struct sampling *sampling;
    uint32_t quality, content;
    bool optimized, progressive, arithmetic, wide_tables, rgb;
    uint32_t restart;
    size_t scan; /* the place after SOI where a segment may be inserted */
};

static struct made made;
static struct oracle oracle;
static struct stk_jpeg_decoder *decoders[2]; /* plain, and the best that there is */
static uint64_t seed = 1, draws, samples, boxes, answers;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(stk_random_key(seed, draws++) % below);
}

static void draw_row(uint8_t *row, uint32_t y)
{
    uint32_t bytes = made.width * (uint32_t)made.sampling->components;

    for (uint32_t i = 0; i < bytes; i++) {
        uint32_t x = i / (uint32_t)made.sampling->components;
        uint32_t c = i % (uint32_t)made.sampling->components;
        uint32_t noise = made.content == SMOOTH || made.content == NOISE ? draw(256) : 0;

        row[i] = made.content == NOISE      ? (uint8_t)noise
                 : made.content == EXTREMES ? (uint8_t)(draw(2) * 255)
                 : made.content == FLAT     ? (uint8_t)(y / 16 * 40 + x / 24 * 70 + c * 60)
                                            : (uint8_t)(x * 3 + y * (c + 1) * 2 + noise / 8);
    }
}

static void set_shape(struct jpeg_compress_struct *cinfo)
{
    cinfo->image_width = made.width;
    cinfo->image_height = made.height;
    cinfo->input_components = made.sampling->components;
    cinfo->in_color_space = made.sampling->components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(cinfo);
    if (made.rgb && made.sampling->components == 3) {
        jpeg_set_colorspace(cinfo, JCS_RGB);
    }
    jpeg_set_quality(cinfo, (int)made.quality, made.wide_tables ? FALSE : TRUE);
    for (int i = 0; i < made.sampling->components; i++) {
        cinfo->comp_info[i].h_samp_factor = made.sampling->h[i];
        cinfo->comp_info[i].v_samp_factor = made.sampling->v[i];
    }
    cinfo->restart_interval = made.restart;
    cinfo->optimize_coding = made.optimized;
    cinfo->arith_code = made.arithmetic;
    if (made.progressive) {
        jpeg_simple_progression(cinfo);
    }
}

/* Coefficients up to the largest that the code can express, and quantisers that make their products
 * wrap. */
static void write_coefficients(struct jpeg_compress_struct *cinfo)
{
    jvirt_barray_ptr arrays[3];
    uint32_t bits = 1 + draw(10), dense = 1 + draw(40);

    for (int i = 0; i < made.sampling->components; i++) {
        jpeg_component_info *info = &cinfo->comp_info[i];
        /* jcmaster.c, initial_setup: padded to whole MCUs. */
        uint32_t h = (uint32_t)info->h_samp_factor, v = (uint32_t)info->v_samp_factor;
        uint32_t wide = (made.width + 7) / 8 * h + 4 * h, high = (made.height + 7) / 8 * v + 4 * v;

        arrays[i] =
            cinfo->mem->request_virt_barray((j_common_ptr)cinfo, JPOOL_IMAGE, TRUE, wide, high, v);
        for (int k = 0; k < DCTSIZE2 && draw(2); k++) {
            cinfo->quant_tbl_ptrs[info->quant_tbl_no]->quantval[k] =
                (UINT16)(1 + draw(made.wide_tables ? 65535 : 255));
        }
    }
    cinfo->mem->realize_virt_arrays((j_common_ptr)cinfo);
    jpeg_write_coefficients(cinfo, arrays);
    for (int i = 0; i < made.sampling->components; i++) {
        jpeg_component_info *info = &cinfo->comp_info[i];

        for (uint32_t y = 0; y < info->height_in_blocks; y++) {
            JBLOCKARRAY rows =
                cinfo->mem->access_virt_barray((j_common_ptr)cinfo, arrays[i], y, 1, TRUE);

            for (uint32_t n = 0; n < info->width_in_blocks * dense; n++) {
                int limit = 1 << bits;

                rows[0][draw(info->width_in_blocks)][draw(DCTSIZE2)] =
                    (JCOEF)((int)draw(2 * (uint32_t)limit - 1) - limit + 1);
            }
        }
    }
}

static void encode(void)
{
    static uint8_t row[3 * 2000];
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *file = made.file;
    unsigned long bytes = sizeof made.file;

    cinfo.err = jpeg_std_error(&errors);
    errors.output_message = oracle_ignore; /* tables of 16 bits are meant */
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &file, &bytes);
    set_shape(&cinfo);
    if (made.content == COEFFICIENTS) {
        write_coefficients(&cinfo);
    } else {
        jpeg_start_compress(&cinfo, TRUE);
        while (cinfo.next_scanline < cinfo.image_height) {
            JSAMPROW rows = row;

            draw_row(row, cinfo.next_scanline);
            jpeg_write_scanlines(&cinfo, &rows, 1);
        }
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    STK_ASSERT(file == made.file);
    made.bytes = bytes;
}

static struct stk_view view_of_made(void)
{
    return (struct stk_view){made.file, made.bytes};
}

/* Puts bytes into the file. */
static void insert(size_t at, const uint8_t *bytes, size_t count)
{
    memmove(made.file + at + count, made.file + at, made.bytes - at);
    memcpy(made.file + at, bytes, count);
    made.bytes += count;
}

/* Fill bytes before markers, segments that say nothing, and bytes after the end. */
static void decorate(void)
{
    static const uint8_t exif[12] = {0xff, 0xe1, 0, 10, 'E', 'x', 'i', 'f', 0, 0, 0xff, 0xda};
    static const uint8_t comment[8] = {0xff, 0xff, 0xff, 0xfe, 0, 4, 0xff, 0xd9};
    struct stk_jpeg_frame frame;
    uint32_t few = draw(3);

    T_EQ("one of ours", stk_jpeg_frame_read(view_of_made(), &frame), 0);
    for (size_t at = made.bytes - 2; made.file + at > frame.scan.data && few > 0; at--) {
        bool restart =
            made.file[at] == 0xff && made.file[at + 1] >= 0xd0 && made.file[at + 1] <= 0xd7;

        if (restart && draw(few)) {
            insert(at, (const uint8_t[2]){0xff, 0xff}, 1 + draw(2));
        }
    }
    if (draw(2)) {
        insert(2, exif, sizeof exif);
    }
    if (draw(2)) {
        insert(2, comment, sizeof comment);
    }
    for (uint32_t n = draw(3) * draw(30); n > 0; n--) {
        made.file[made.bytes++] = (uint8_t)draw(256);
    }
}

static struct stk_jpeg_box random_box(void)
{
    struct stk_jpeg_box box = {.x = draw(made.width), .y = draw(made.height)};

    box.width = 1 + draw(made.width - box.x);
    box.height = 1 + draw(made.height - box.y);
    return box;
}

static const char *describe(const struct stk_jpeg_box *box)
{
    static char text[200];

    snprintf(text, sizeof text, "%s %ux%u q%u content %u restart %u box %u,%u %ux%u: %.40s",
             made.sampling->name, made.width, made.height, made.quality, made.content, made.restart,
             box->x, box->y, box->width, box->height, oracle.text);
    return text;
}

/* One box by both decoders, which must answer. */
static void check_box(const struct stk_jpeg_box *box)
{
    for (int i = 0; i < 2; i++) {
        uint32_t reason;
        const char *wrong =
            oracle_compare(&oracle, decoders[i], view_of_made(), box, NULL, &reason);

        T_STR(describe(box), wrong ? wrong : "", "");
        T_STR(describe(box), stk_jpeg_reason_name(reason), "fine");
        samples += 3 * (uint64_t)box->width * box->height;
        boxes++;
    }
}

/* The same boxes with marks, a row or some MCUs apart: the same pixels; marks of which a bit is
 * another one are refused, at the latest when all of the picture is read. */
static void check_marked(const struct stk_jpeg_box *given, size_t count)
{
    struct stk_jpeg_entry_points marks[2];
    uint32_t mcus = draw(3) ? draw(6) : 0, reason;
    uint8_t *bytes[2];

    for (int d = 0; d < 2; d++) {
        bytes[d] = oracle_marks(decoders[d], view_of_made(), mcus, &marks[d], &reason);
        T_STR("marks", stk_jpeg_reason_name(reason), made.restart ? "side index" : "fine");
    }
    for (size_t i = 0; bytes[0] && bytes[1] && i < count; i++) {
        const char *wrong = oracle_compare(&oracle, decoders[i % 2], view_of_made(), &given[i],
                                           &marks[i % 2], &reason);

        T_STR(describe(&given[i]), wrong ? wrong : "", "");
        T_STR(describe(&given[i]), stk_jpeg_reason_name(reason), "fine");
        boxes++;
    }
    if (bytes[0] && bytes[1]) {
        T_TRUE("same marks", memcmp(bytes[0], bytes[1], marks[0].bytes.bytes) == 0);
    }
    for (uint32_t i = 0; bytes[0] && marks[0].bytes.bytes && i < 4; i++) {
        uint8_t *byte = &bytes[0][draw((uint32_t)marks[0].bytes.bytes)];
        uint8_t before = *byte;

        *byte ^= (uint8_t)(1u << draw(8));
        oracle_compare(&oracle, decoders[0], view_of_made(), &given[0], &marks[0], &reason);
        T_TRUE("refused", reason == STK_JPEG_ENTRY_POINTS);
        *byte = before;
    }
    free(bytes[0]);
    free(bytes[1]);
}

static void check_picture(uint32_t random_count)
{
    uint32_t w = made.width, h = made.height;
    struct stk_jpeg_box corners[] = {
        {0, 0, w, h},     {0, 0, 1, 1},         {w - 1, 0, 1, 1},
        {0, h - 1, 1, 1}, {w - 1, h - 1, 1, 1}, {w / 2, h / 2, w - w / 2, h - h / 2},
    };

    oracle_decode(&oracle, view_of_made(), h);
    if (!T_TRUE(describe(&corners[0]), !oracle.warned && !oracle.failed)) {
        return;
    }
    for (uint32_t i = 0; i < STK_COUNT(corners) + random_count; i++) {
        struct stk_jpeg_box box = i < STK_COUNT(corners) ? corners[i] : random_box();

        check_box(&box);
    }
    check_marked(corners, STK_COUNT(corners));
}

static void draw_picture(uint32_t side_max)
{
    uint32_t usual = draw(3);

    made.sampling = &samplings[draw(usual ? USUAL_SAMPLINGS : (uint32_t)STK_COUNT(samplings))];
    made.width = 1 + draw(draw(3) ? side_max : 40);
    made.height = 1 + draw(draw(3) ? side_max : 40);
    made.quality = 1 + draw(100);
    made.content = draw(CONTENT_COUNT);
    made.optimized = draw(3) == 0;
    made.wide_tables = draw(4) == 0;
    made.rgb = draw(8) == 0;
    made.restart = draw(3) ? 0 : 1 + draw(draw(2) ? 3 : 40);
    made.progressive = made.arithmetic = false;
    encode();
}

/* Pictures of all kinds, and boxes of them. */
static void test_boxes(uint32_t count, uint32_t side_max)
{
    for (uint32_t i = 0; i < count; i++) {
        draw_picture(side_max);
        decorate();
        check_picture(2);
    }
}

/* Each width and height up to two MCUs and more, in each sampling. */
static void test_sizes(void)
{
    T_EACH(sampling, row, samplings)
    {
        for (uint32_t side = 1; side <= 36; side++) {
            draw_picture(40);
            made.sampling = row;
            made.width = side;
            made.height = 1 + (side * 23 + draw(36)) % 36;
            made.restart = 0;
            encode();
            check_picture(1);
        }
    }
}

/* MCUs of a few bits each, a mark for each one, over some windows: whatever bits are left of a byte
 * where a window ends, its place is known. */
static void test_small_mcus(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        struct stk_jpeg_entry_points marks[2];
        uint8_t *bytes[2];
        uint32_t reason;

        made.sampling = &samplings[3];
        made.width = 2400;
        made.height = 2400 - 16 * i;
        made.quality = 50;
        made.content = FLAT;
        made.optimized = true;
        made.progressive = made.arithmetic = made.wide_tables = made.rgb = false;
        made.restart = 0;
        encode();
        for (uint32_t d = 0; d < 2; d++) {
            bytes[d] = oracle_marks(decoders[d], view_of_made(), 1, &marks[d], &reason);
            T_STR("marks of small MCUs", stk_jpeg_reason_name(reason), "fine");
        }
        if (bytes[0] && bytes[1]) {
            struct stk_jpeg_box box = {1000, 0, 200, made.height};

            T_TRUE("same marks", memcmp(bytes[0], bytes[1], marks[0].bytes.bytes) == 0);
            oracle_decode(&oracle, view_of_made(), made.height);
            T_TRUE("box",
                   !oracle_compare(&oracle, decoders[1], view_of_made(), &box, marks, &reason));
            T_STR("box", stk_jpeg_reason_name(reason), "fine");
        }
        free(bytes[0]);
        free(bytes[1]);
    }
}

/* Bits flipped, bytes changed, ends cut: if stoker returns rows, libjpeg does so without a
 * warning. */
static void test_damage(uint32_t count)
{
    static uint8_t full_file[FILE_BYTES_MAX];
    size_t full_bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct stk_jpeg_box box;

        if (i % 50 == 0) {
            draw_picture(120);
            memcpy(full_file, made.file, made.bytes);
            full_bytes = made.bytes;
        }
        memcpy(made.file, full_file, full_bytes);
        made.bytes = full_bytes;
        for (uint32_t n = draw(3); n > 0; n--) {
            size_t at = draw(draw(3) ? (uint32_t)made.bytes : 700) % made.bytes;

            made.file[at] = draw(2) ? (uint8_t)draw(256) : (uint8_t)(made.file[at] ^ 1u << draw(8));
        }
        made.bytes = draw(4) ? made.bytes : draw((uint32_t)made.bytes);
        box = random_box();
        oracle_decode(&oracle, view_of_made(), box.y + box.height);
        if (oracle.width != made.width || oracle.height != made.height) {
            continue; /* the header changed: the box may be outside */
        }
        for (int d = 0; d < 2; d++) {
            uint32_t reason;
            const char *wrong =
                oracle_compare(&oracle, decoders[d], view_of_made(), &box, NULL, &reason);

            T_STR(describe(&box), wrong ? wrong : "", "");
            answers += reason == STK_JPEG_DECODED;
        }
    }
}

/* ---- no answer ------------------------------------------------------------------------------ */

static uint32_t reason_of_made(void)
{
    struct stk_jpeg_frame frame;

    return stk_jpeg_frame_read(view_of_made(), &frame);
}

static void test_reasons(void)
{
    made.sampling = &samplings[0];
    made.width = made.height = 40;
    made.quality = 90;
    made.content = SMOOTH;
    made.optimized = made.wide_tables = made.rgb = false;
    made.restart = 0;
    made.progressive = true;
    encode();
    T_STR("progressive", stk_jpeg_reason_name(reason_of_made()), "progressive");
    made.progressive = false;
    made.arithmetic = true;
    encode();
    T_STR("arithmetic", stk_jpeg_reason_name(reason_of_made()), "arithmetic coding");
    made.arithmetic = false;
    encode();
    T_STR("baseline", stk_jpeg_reason_name(reason_of_made()), "fine");
    for (size_t bytes = 0; bytes < made.bytes; bytes++) {
        struct stk_jpeg_frame frame;
        uint8_t *copy = malloc(bytes ? bytes : 1); /* exactly: for sanitizers */

        memcpy(copy, made.file, bytes);
        stk_jpeg_frame_read((struct stk_view){copy, bytes}, &frame);
        free(copy);
    }
    insert(2, (const uint8_t[1]){'x'}, 1);
    T_STR("a byte between segments", stk_jpeg_reason_name(reason_of_made()), "odd header");
}

/* More tables than are cached, used in turn: each image is right all the same. */
static void test_table_cache(void)
{
    for (uint32_t i = 0; i < 24; i++) {
        draw_picture(30);
        made.optimized = i % 2;
        made.content = i % 3 ? NOISE : SMOOTH;
        made.quality = 10 + 8 * (i % 7);
        encode();
        check_picture(0);
    }
}

static void test_memory(void)
{
    int64_t alive = stk_mem_alive();
    struct stk_jpeg_decoder *decoder = NULL;
    struct stoker_error error = {0};

    stk_mem_fail_nth(1);
    T_EQ("no memory", stk_jpeg_decoder_open(&decoder, STOKER_SIMD_AUTO, &error), -ENOMEM);
    T_ERROR("no memory", &error);
    stk_mem_fail_nth(0);
    stk_jpeg_decoder_close(decoder);
    T_EQ("no leak", stk_mem_alive(), alive);
}

/* ---- planes --------------------------------------------------------------------------------- */

#define PLANE_SIDE 160u

static uint8_t plane_samples[3][PLANE_SIDE][PLANE_SIDE];

static int sample_at(const struct stk_jpeg_plane *planes, uint32_t c, int64_t i, int64_t j)
{
    i = i < 0 ? 0 : i < planes[c].height ? i : planes[c].height - 1;
    j = j < 0 ? 0 : j < planes[c].width ? j : planes[c].width - 1;
    return plane_samples[c][i][j];
}

/* Component c under a pixel, as in jdsample.c. */
static uint8_t upsampled(const struct stk_jpeg_plane *planes, uint32_t c, uint32_t x, uint32_t y)
{
    const struct stk_jpeg_plane *plane = &planes[c];
    int64_t i = y / plane->v_ratio, j = x / plane->h_ratio;
    int64_t far = y % 2 ? i + 1 : i - 1, side = x % 2 ? j + 1 : j - 1;
    int here = sample_at(planes, c, i, j), there = sample_at(planes, c, i, side);

    if (plane->smooth_x && plane->smooth_y) {
        here = 3 * here + sample_at(planes, c, far, j);
        there = 3 * there + sample_at(planes, c, far, side);
        return (uint8_t)((3 * here + there + (x % 2 ? 7 : 8)) >> 4);
    }
    if (plane->smooth_y) {
        there = sample_at(planes, c, far, j);
        return (uint8_t)((3 * here + there + (y % 2 ? 2 : 1)) >> 2);
    }
    return (uint8_t)(plane->smooth_x ? (3 * here + there + (x % 2 ? 2 : 1)) >> 2 : here);
}

/* All bands that a box needs; of them the samples under it and next to it. */
static void take_bands(struct stk_jpeg_decoder *decoder, const struct stk_jpeg_plane *planes,
                       uint32_t count, const struct stk_jpeg_box *box)
{
    bool more = true;

    memset(plane_samples, 0x5a, sizeof plane_samples);
    while (more) {
        struct stk_jpeg_band band;

        if (!T_EQ("band", stk_jpeg_decoder_band(decoder, &band, &more), STK_JPEG_DECODED)) {
            return;
        }
        for (uint32_t c = 0; c < count; c++) {
            uint32_t last = (box->x + box->width - 1) / planes[c].h_ratio + 1;

            last = (uint32_t)stk_min(last, planes[c].width - 1);
            T_TRUE("rows of it",
                   band.counts[c] == 0 || band.y[c] + band.counts[c] <= planes[c].height);
            for (uint32_t y = 0; y < band.counts[c]; y++) {
                memcpy(&plane_samples[c][band.y[c] + y][planes[c].first],
                       band.rows[c] + y * band.strides[c], last + 1 - planes[c].first);
            }
        }
    }
}

/* Upsampled and converted here, the planes under a box are the pixels of libjpeg. */
static void check_planes(struct stk_jpeg_decoder *decoder, const struct stk_jpeg_box *box)
{
    struct stk_jpeg_plane planes[3];
    struct stk_jpeg_frame frame;
    uint32_t count, wrong = 0;
    void *space;

    T_EQ("one of ours", stk_jpeg_frame_read(view_of_made(), &frame), STK_JPEG_DECODED);
    space = aligned_alloc(64, stk_round_up(stk_jpeg_workspace_bytes(&frame, box), 64));
    T_EQ("begin", stk_jpeg_decoder_begin(decoder, &frame, box, space, NULL), STK_JPEG_DECODED);
    count = stk_jpeg_decoder_planes(decoder, planes);
    T_EQ("planes", count, made.sampling->components);
    take_bands(decoder, planes, count, box);
    for (uint32_t y = box->y; y < box->y + box->height; y++) {
        uint8_t rows[3][PLANE_SIDE], pixels[4 * PLANE_SIDE];
        const uint8_t *want = oracle.pixels + ((size_t)y * oracle.width + box->x) * 4;

        for (uint32_t c = 0; c < count; c++) {
            for (uint32_t x = 0; x < box->width; x++) {
                rows[c][x] = upsampled(planes, c, box->x + x, y);
            }
        }
        stk_jpeg_decoder_to_rgbx(decoder, rows[0], count > 1 ? rows[1] : NULL, rows[2], box->width,
                                 pixels);
        for (uint32_t x = 0; x < box->width; x++) {
            wrong += memcmp(pixels + 4 * (size_t)x, want + 4 * (size_t)x, 3) != 0;
        }
    }
    T_EQ(describe(box), wrong, 0);
    free(space);
}

static void test_planes(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct stk_jpeg_box box;

        draw_picture(PLANE_SIDE - 16);
        if (i % 2) {
            made.sampling = &samplings[i / 2 % STK_COUNT(samplings)];
        }
        made.rgb = false;
        encode();
        oracle_decode(&oracle, view_of_made(), made.height);
        box = i % 3 ? random_box() : (struct stk_jpeg_box){0, 0, made.width, made.height};
        check_planes(decoders[i % 2], &box);
    }
}

/* An image that is stored as RGB has no planes. */
static void test_no_planes(void)
{
    struct stk_jpeg_plane planes[3];
    struct stk_jpeg_frame frame;
    struct stk_jpeg_box box = {0, 0, 1, 1};
    void *space;

    draw_picture(40);
    made.sampling = &samplings[2];
    made.rgb = true;
    encode();
    T_EQ("one of ours", stk_jpeg_frame_read(view_of_made(), &frame), STK_JPEG_DECODED);
    space = aligned_alloc(64, stk_round_up(stk_jpeg_workspace_bytes(&frame, &box), 64));
    T_EQ("begin", stk_jpeg_decoder_begin(decoders[0], &frame, &box, space, NULL), STK_JPEG_DECODED);
    T_EQ("none", stk_jpeg_decoder_planes(decoders[0], planes), 0);
    free(space);
}

/* The same tests with the SSE2 or NEON kernels in place of AVX2. */
static void test_simd(bool is_long)
{
    struct stk_jpeg_decoder *other = decoders[1];

    if (stk_jpeg_kernels_simd()) {
        T_EQ("open",
             stk_jpeg_decoder_open_with_kernels(&decoders[1], stk_jpeg_kernels_simd(), NULL), 0);
        test_boxes(is_long ? 5000 : 200, is_long ? 1100 : 300);
        test_damage(is_long ? 40000 : 1500);
        stk_jpeg_decoder_close(decoders[1]);
        decoders[1] = other;
    }
}

int main(int count, char **arguments)
{
    const char *text = getenv("STOKER_TEST_LONG");
    bool is_long = text && text[0];
    struct stoker_error error = {0};

    seed = count > 1 ? strtoull(arguments[1], NULL, 0) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    T_EQ("open", stk_jpeg_decoder_open(&decoders[0], STOKER_SIMD_NONE, &error), 0);
    T_EQ("open", stk_jpeg_decoder_open(&decoders[1], STOKER_SIMD_AUTO, &error), 0);
    test_reasons();
    test_sizes();
    test_small_mcus();
    test_table_cache();
    test_boxes(is_long ? 20000 : 600, is_long ? 1100 : 300);
    test_damage(is_long ? 400000 : 6000);
    test_planes(is_long ? 3000 : 150);
    test_no_planes();
    test_simd(is_long);
    test_memory();
    printf("%llu boxes, %llu samples; %llu damaged ones answered\n", (unsigned long long)boxes,
           (unsigned long long)samples, (unsigned long long)answers);
    stk_jpeg_decoder_close(decoders[0]);
    stk_jpeg_decoder_close(decoders[1]);
    stk_jpeg_decoder_close(NULL);
    free(oracle.pixels);
    return t_finish();
}
