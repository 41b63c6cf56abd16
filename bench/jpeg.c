/* Microseconds a picture for a random resized crop on one core: by libjpeg-turbo (whole, and its
 * region decode), and by our decoder, stage after stage: a case leaves the stages after it out, so
 * that the difference of two is what a stage takes. The same crops for all; pictures in memory.
 *
 * usage: jpeg FOLDER ROUNDS COUNT auto|sse2|none
 *
 * FOLDER: JPEGs; the crops of the first COUNT of them are those of the prototype (its generator,
 * its seed), so that its numbers stand beside these. Prints one JSON line a case and round; time of
 * the thread, so that a busy machine disturbs less. bench/run.py jpeg compiles and runs it. */
#include "crop.h"
#include "decode/jpeg/jpeg_planes.h"
#include "decode/pixel/pixel_kernels_inner.h"
#include "decode/pixel/resize_planar.h"

#include <stdio.h>

#include <dirent.h>
#include <jpeglib.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX 4096
#define SIDE 224
#define BAND 8 /* rows at a time */
#define CROP_MARGIN 32

struct picture {
    struct stk_view bytes;
    struct stk_jpeg_box box;
    uint32_t width, height;
    struct stk_jpeg_entry_points marks[2]; /* a row apart, 4 MCUs apart; owned */
    bool flip;
};

static const uint32_t marks_mcus[2] = {0, 4};

static struct picture pictures[COUNT_MAX];
static uint32_t count;
static struct stk_jpeg_decoder *decoders[4];
static struct stk_resize *resize;
static struct stk_resize_planar *planar;
static const struct stk_pixel_kernels *pixel_kernels;
static struct stk_pixel_convert convert;
static uint8_t *band[BAND], *workspace;
static float *slot;

/* ---- pictures and crops ---- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_jpeg(const struct dirent *entry)
{
    return strstr(entry->d_name, ".jpg") != NULL;
}

static void load(const char *folder, uint32_t wanted)
{
    struct dirent **entries;
    int found = scandir(folder, &entries, is_jpeg, by_name);

    for (int i = 0; i < found && count < wanted && count < COUNT_MAX; i++) {
        struct picture *picture = &pictures[count];
        struct stk_jpeg_frame frame;
        struct crop crop;
        static char path[4096];
        FILE *file;
        long bytes;
        uint8_t *data;

        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        file = fopen(path, "rb");
        fseek(file, 0, SEEK_END);
        bytes = ftell(file);
        rewind(file);
        data = malloc((size_t)bytes);
        picture->bytes = (struct stk_view){data, fread(data, 1, (size_t)bytes, file)};
        fclose(file);
        if (stk_jpeg_frame_read(picture->bytes, &frame)) {
            fprintf(stderr, "jpeg: %s is left to libjpeg: not measured\n", path);
            continue;
        }
        picture->width = frame.width;
        picture->height = frame.height;
        crop = draw_crop(frame.width, frame.height);
        picture->box = (struct stk_jpeg_box){crop.x, crop.y, crop.width, crop.height};
        picture->flip = draw() < .5;
        count++;
    }
}

/* ---- where rows go: nowhere, or through the resizer into a slot ---- */

typedef void get_rows(void *from, uint8_t *const *rows, uint32_t wanted);

static struct stk_resize_plan plan_of(const struct picture *picture)
{
    return (struct stk_resize_plan){.source_width = picture->box.width,
                                    .source_height = picture->box.height,
                                    .target_width = SIDE,
                                    .target_height = SIDE,
                                    .window_width = SIDE,
                                    .window_height = SIDE,
                                    .filter = STOKER_BILINEAR,
                                    .flip = picture->flip};
}

static void drain(const struct picture *picture, get_rows *get, void *from, bool resized)
{
    struct stk_resize_plan plan = plan_of(picture);
    static uint8_t row[SIDE * 4];

    if (!resized) {
        for (uint32_t y = 0; y < picture->box.height; y += BAND) {
            get(from, band, (uint32_t)stk_min(BAND, picture->box.height - y));
        }
        return;
    }
    STK_ASSERT(
        stk_resize_begin(resize, &plan, picture->box.width + CROP_MARGIN, 0, 1u << 30, NULL) == 0);
    for (uint32_t y = 0; y < SIDE; y++) {
        uint8_t *rows[BAND];
        uint32_t wanted;

        while ((wanted = stk_resize_wanted(resize, y, rows, BAND)) > 0) {
            get(from, rows, wanted);
            stk_resize_push(resize, wanted);
        }
        stk_resize_row(resize, y, row);
        pixel_kernels->convert(&convert, row, y, slot);
    }
}

/* ---- libjpeg-turbo ---- */

static struct jpeg_decompress_struct cinfo;
static uint32_t left_skip; /* pixels before the crop in a row */
static uint8_t *wide_rows[BAND];

static void library_rows(void *from, uint8_t *const *rows, uint32_t wanted)
{
    const struct picture *picture = from;

    for (uint32_t done = 0; done < wanted;) {
        done += jpeg_read_scanlines(&cinfo, wide_rows + done, wanted - done);
    }
    for (uint32_t i = 0; i < wanted && rows != band; i++) {
        memcpy(rows[i], wide_rows[i] + 4 * (size_t)left_skip, 4 * (size_t)picture->box.width);
    }
}

static void library_begin(const struct picture *picture)
{
    jpeg_mem_src(&cinfo, picture->bytes.data, picture->bytes.bytes);
    jpeg_read_header(&cinfo, TRUE);
    cinfo.out_color_space = JCS_EXT_RGBX;
    jpeg_start_decompress(&cinfo);
}

static void library_full(struct picture *picture, bool resized)
{
    library_begin(picture);
    left_skip = picture->box.x;
    while (cinfo.output_scanline < picture->box.y) {
        jpeg_read_scanlines(&cinfo, wide_rows,
                            (JDIMENSION)stk_min(BAND, picture->box.y - cinfo.output_scanline));
    }
    drain(picture, library_rows, picture, resized);
    while (cinfo.output_scanline < cinfo.output_height) {
        jpeg_read_scanlines(&cinfo, wide_rows, BAND);
    }
    jpeg_finish_decompress(&cinfo);
}

static void library_region(struct picture *picture, bool resized)
{
    JDIMENSION x = picture->box.x, width = picture->box.width;

    library_begin(picture);
    jpeg_crop_scanline(&cinfo, &x, &width);
    left_skip = picture->box.x - x;
    if (picture->box.y) {
        jpeg_skip_scanlines(&cinfo, picture->box.y);
    }
    drain(picture, library_rows, picture, resized);
    jpeg_abort_decompress(&cinfo);
}

/* ---- ours ---- */

static void our_rows(void *from, uint8_t *const *rows, uint32_t wanted)
{
    uint32_t done;

    STK_ASSERT(stk_jpeg_decoder_rows(from, rows, wanted, &done) == 0 && done == wanted);
}

static void ours(const struct picture *picture, struct stk_jpeg_decoder *decoder,
                 const struct stk_jpeg_entry_points *marks, bool resized)
{
    struct stk_jpeg_frame frame;

    stk_jpeg_frame_read(picture->bytes, &frame);
    STK_ASSERT(stk_jpeg_decoder_begin(decoder, &frame, &picture->box, workspace, marks) == 0);
    drain(picture, our_rows, decoder, resized);
}

/* Planes resized as they are stored, then converted to colours: exact=False. */
static void ours_planar(const struct picture *picture, const struct stk_jpeg_entry_points *marks)
{
    struct stk_jpeg_decoder *decoder = decoders[3];
    struct stk_resize_planar_plan plan = {
        .resize = plan_of(picture), .x = picture->box.x, .y = picture->box.y};
    struct stk_jpeg_plane planes[3];
    struct stk_jpeg_frame frame;
    static uint8_t row[SIDE * 4];

    stk_jpeg_frame_read(picture->bytes, &frame);
    STK_ASSERT(stk_jpeg_decoder_begin(decoder, &frame, &picture->box, workspace, marks) == 0);
    plan.plane_count = stk_jpeg_decoder_planes(decoder, planes);
    for (uint32_t i = 0; i < plan.plane_count; i++) {
        plan.planes[i] =
            (struct stk_resize_plane){planes[i].width,   planes[i].height,   planes[i].h_ratio,
                                      planes[i].v_ratio, planes[i].smooth_x, planes[i].smooth_y};
    }
    STK_ASSERT(stk_resize_planar_begin(planar, &plan, 1u << 30, NULL) == 0);
    for (uint32_t y = 0; y < SIDE; y++) {
        const uint8_t *samples[3] = {NULL};

        while (stk_resize_planar_needs(planar, y)) {
            struct stk_jpeg_band part;
            bool more;

            STK_ASSERT(stk_jpeg_decoder_band(decoder, &part, &more) == 0);
            for (uint32_t i = 0; i < plan.plane_count; i++) {
                stk_resize_planar_push(
                    planar, i,
                    &(struct stk_resize_planar_rows){part.rows[i], part.strides[i], part.y[i],
                                                     part.counts[i], planes[i].first});
            }
        }
        stk_resize_planar_row(planar, y, samples);
        stk_jpeg_decoder_to_rgbx(decoder, samples[0], samples[1], samples[2], SIDE, row);
        pixel_kernels->convert(&convert, row, y, slot);
    }
}

static void mark(struct picture *picture, int i)
{
    struct stk_jpeg_frame frame;
    uint8_t *bytes;
    size_t size;

    stk_jpeg_frame_read(picture->bytes, &frame);
    size = stk_jpeg_entry_point_count(&frame, marks_mcus[i]) * STK_JPEG_ENTRY_POINT_BYTES;
    bytes = picture->marks[i].bytes.data ? (void *)(uintptr_t)picture->marks[i].bytes.data
                                         : malloc(size + 1);
    STK_ASSERT(stk_jpeg_decoder_index(decoders[3], &frame, marks_mcus[i], workspace, bytes) == 0);
    picture->marks[i] = (struct stk_jpeg_entry_points){marks_mcus[i], {bytes, size}};
}

/* ---- stages that do nothing ---- */

static void no_transform(const int16_t *block, const int16_t *quantiser, uint8_t *to, size_t stride)
{
    (void)block, (void)quantiser, (void)to, (void)stride;
}

static void no_wide(const uint8_t *in, uint32_t samples, uint8_t *out)
{
    (void)in, (void)samples, (void)out;
}

static void no_high(const uint8_t *row_near, const uint8_t *row_far, bool below, uint32_t samples,
                    uint8_t *out)
{
    (void)row_near, (void)row_far, (void)below, (void)samples, (void)out;
}

static void no_both(const uint8_t *row_near, const uint8_t *row_far, uint32_t samples, uint8_t *out)
{
    (void)row_near, (void)row_far, (void)samples, (void)out;
}

static void no_colors(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint32_t samples,
                      uint8_t *out)
{
    (void)y, (void)cb, (void)cr, (void)samples, (void)out;
}

/* Decoders that stop after the bits, the transform, the upsampling, and a complete one. */
static void open_decoders(const struct stk_jpeg_kernels *kernels)
{
    static struct stk_jpeg_kernels stages[STK_COUNT(decoders)];

    for (size_t i = 0; i < STK_COUNT(decoders); i++) {
        stages[i] = *kernels;
        stages[i].transform = i < 1 ? no_transform : stages[i].transform;
        stages[i].wide = i < 2 ? no_wide : stages[i].wide;
        stages[i].high = i < 2 ? no_high : stages[i].high;
        stages[i].wide_and_high = i < 2 ? no_both : stages[i].wide_and_high;
        stages[i].colors = i < 3 ? no_colors : stages[i].colors;
        STK_ASSERT(stk_jpeg_decoder_open_with_kernels(&decoders[i], &stages[i], NULL) == 0);
    }
}

/* ---- cases ---- */

enum {
    FULL,
    REGION,
    HEADER,
    BITS,
    TRANSFORM,
    UPSAMPLE,
    OURS,
    ROWS,
    MCUS,
    MARK_ROWS,
    MARK_MCUS,
    FULL_RESIZE,
    REGION_RESIZE,
    OURS_RESIZE,
    ROWS_RESIZE,
    MCUS_RESIZE,
    OURS_PLANAR,
    ROWS_PLANAR,
    MCUS_PLANAR,
    CASE_COUNT
};

static const char *const names[CASE_COUNT] = {
    [FULL] = "libjpeg-turbo, whole",
    [REGION] = "libjpeg-turbo, region",
    [HEADER] = "ours: header",
    [BITS] = "ours: + bits",
    [TRANSFORM] = "ours: + transform",
    [UPSAMPLE] = "ours: + upsampling",
    [OURS] = "ours: + colours, the crop",
    [ROWS] = "ours, marks of rows",
    [MCUS] = "ours, marks of 4 MCUs",
    [MARK_ROWS] = "making marks of rows",
    [MARK_MCUS] = "making marks of 4 MCUs",
    [FULL_RESIZE] = "libjpeg-turbo, whole, resized",
    [REGION_RESIZE] = "libjpeg-turbo, region, resized",
    [OURS_RESIZE] = "ours, resized",
    [ROWS_RESIZE] = "ours, marks of rows, resized",
    [MCUS_RESIZE] = "ours, marks of 4 MCUs, resized",
    [OURS_PLANAR] = "ours, planes resized",
    [ROWS_PLANAR] = "ours, marks of rows, planes resized",
    [MCUS_PLANAR] = "ours, marks of 4 MCUs, planes resized",
};

static void run(int which, struct picture *picture)
{
    struct stk_jpeg_frame frame;

    switch (which) {
    case FULL:
    case FULL_RESIZE:
        library_full(picture, which == FULL_RESIZE);
        break;
    case REGION:
    case REGION_RESIZE:
        library_region(picture, which == REGION_RESIZE);
        break;
    case HEADER:
        stk_jpeg_frame_read(picture->bytes, &frame);
        break;
    case MARK_ROWS:
    case MARK_MCUS:
        mark(picture, which - MARK_ROWS);
        break;
    case ROWS:
    case MCUS:
        ours(picture, decoders[3], &picture->marks[which - ROWS], false);
        break;
    case OURS_RESIZE:
        ours(picture, decoders[3], NULL, true);
        break;
    case ROWS_RESIZE:
    case MCUS_RESIZE:
        ours(picture, decoders[3], &picture->marks[which - ROWS_RESIZE], true);
        break;
    case OURS_PLANAR:
        ours_planar(picture, NULL);
        break;
    case ROWS_PLANAR:
    case MCUS_PLANAR:
        ours_planar(picture, &picture->marks[which - ROWS_PLANAR]);
        break;
    default:
        ours(picture, decoders[which - BITS], NULL, false);
        break;
    }
}

static void prepare(const char *vector)
{
    bool sse2 = strcmp(vector, "sse2") == 0;
    uint32_t requested = strcmp(vector, "none") == 0 ? STOKER_SIMD_NONE : STOKER_SIMD_AUTO;
    static struct jpeg_error_mgr errors;
    static const float mean[3] = {.485f, .456f, .406f}, std[3] = {.229f, .224f, .225f};
    size_t workspace_bytes = 0, row_bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct stk_jpeg_frame frame;

        stk_jpeg_frame_read(pictures[i].bytes, &frame);
        workspace_bytes =
            stk_max(workspace_bytes, stk_jpeg_workspace_bytes(&frame, &pictures[i].box));
        row_bytes = stk_max(row_bytes, 4 * (size_t)frame.width + 4 * CROP_MARGIN);
    }
    workspace = aligned_alloc(64, stk_round_up(workspace_bytes, 64));
    for (int i = 0; i < BAND; i++) {
        band[i] = malloc(row_bytes);
        wide_rows[i] = malloc(row_bytes + 16);
        wide_rows[i] += 16; /* not aligned to 32: see decode/pixel/resize.c */
    }
    slot = aligned_alloc(64, sizeof *slot * 3 * SIDE * SIDE);
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&cinfo);
    open_decoders(sse2 ? stk_jpeg_kernels_simd() : stk_jpeg_kernels_get(requested));
    pixel_kernels = sse2 ? stk_pixel_kernels_simd() : stk_pixel_kernels_get(requested);
    STK_ASSERT(stk_resize_open(&resize, pixel_kernels, NULL) == 0);
    STK_ASSERT(stk_resize_planar_open(&planar, pixel_kernels, NULL) == 0);
    convert = (struct stk_pixel_convert){
        .dtype = STOKER_FLOAT32, .layout = STOKER_NCHW, .width = SIDE, .height = SIDE};
    stk_pixel_convert_init(&convert, mean, std);
}

int main(int argument_count, char **arguments)
{
    double bytes = 0, pixels = 0, crops = 0, marks[2] = {0};
    long rounds;

    if (argument_count != 5) {
        fprintf(stderr, "usage: jpeg FOLDER ROUNDS COUNT auto|sse2|none\n");
        return 2;
    }
    rounds = strtol(arguments[2], NULL, 10);
    load(arguments[1], (uint32_t)strtoul(arguments[3], NULL, 10));
    if (count == 0) {
        fprintf(stderr, "jpeg: no pictures in %s\n", arguments[1]);
        return 3;
    }
    prepare(arguments[4]);
    for (uint32_t i = 0; i < count; i++) {
        bytes += (double)pictures[i].bytes.bytes;
        pixels += (double)pictures[i].width * pictures[i].height;
        crops += (double)pictures[i].box.width * pictures[i].box.height;
        for (int k = 0; k < 2; k++) {
            mark(&pictures[i], k);
            marks[k] += (double)pictures[i].marks[k].bytes.bytes;
        }
    }
    printf("{\"pictures\": %u, \"bytes\": %.0f, \"pixels\": %.0f, \"crop_pixels\": %.0f, "
           "\"marks_rows_percent\": %.3f, \"marks_4_percent\": %.3f}\n",
           count, bytes / count, pixels / count, crops / count, 100 * marks[0] / bytes,
           100 * marks[1] / bytes);
    for (long round = -1; round < rounds; round++) { /* the first one warms up */
        for (int which = 0; which < CASE_COUNT; which++) {
            double begin = seconds();

            for (uint32_t i = 0; i < count; i++) {
                run(which, &pictures[i]);
            }
            if (round >= 0) {
                double us = (seconds() - begin) * 1e6 / count;

                printf("{\"case\": \"%s\", \"round\": %ld, \"us\": %.2f, \"ns_pixel\": %.3f}\n",
                       names[which], round, us, us * 1e3 / (crops / count));
            }
        }
    }
    return 0;
}
