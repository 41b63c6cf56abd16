/* One image: header, geometry, rows from the codec into the resizer, finished rows into the slot.
 * For an image that EXIF turns, the whole region is decoded first; a jittered image is finished in
 * 8 bits first. */
#include "decode/image/image_decode.h"

#include "base/mem.h"
#include "decode/codec/codec.h"
#include "decode/image/crop_geometry.h"
#include "decode/image/random_draw.h"
#include "decode/image/transform_plan.h"
#include "decode/pixel/color_jitter.h"
#include "decode/pixel/resize.h"
#include "decode/pixel/resize_planar.h"

#include <string.h>

/* Rows requested from the codec per call. */
#define ROWS_MAX 16u

/* Pixels that a codec's row may have outside the image (an MCU on both sides, and more). */
#define ROW_MARGIN 128u

/* Draws of a ColorJitter: a value for each step, then the order. */
#define DRAW_ORDER STK_COLOR_JITTER_STEPS

struct buffer {
    uint8_t *data; /* owned */
    uint64_t bytes;
};

struct stk_image_decoder {
    const struct stk_pixel_kernels *kernels;
    struct stk_codec *codec;
    struct stk_resize *resize;
    struct stk_resize_planar *planar;
    struct buffer stored; /* the region as it is stored, before it is turned */
    struct buffer output; /* rows of the output: one, or all to be jittered */
    uint32_t by;          /* see stk_image_decoder_decoded_by */
};

/* The image in hand. */
struct job {
    struct stk_image_decoder *decoder;
    const struct stk_transform_plan *plan;
    uint64_t key;
    uint8_t orientation;
    struct stk_codec_info info;
    uint32_t width, height; /* of the turned image */
    struct stk_crop_geometry geometry;
    struct stk_resize_plan resize;
    struct stk_codec_box box;        /* of the turned image: the pixels that are read */
    uint32_t x0, y0, x1, y1;         /* of the source canvas: the window's input */
    uint32_t first_row;              /* of the source canvas: the box's */
    uint32_t pad_left, pad_right;    /* zeros of the source canvas outside the box */
    uint32_t next_row;               /* of the source canvas */
    uint32_t skip;                   /* pixels before x0 in a row pushed to the resizer */
    struct stk_orientation turn;     /* bytes in decoder->stored; not used by orientation 1 */
    struct stk_jpeg_plane planes[3]; /* that are resized, */
    uint32_t plane_count;            /* 0: rows are */
    bool more;                       /* of their bands are to be read */
    bool damaged;                    /* planes are no good: rows are to be tried */
    uint8_t *canvas;                 /* the place of all finished rows; NULL: they are converted */
};

/* ---- decoder ---- */

const char *stk_image_decode_vector(uint32_t vector)
{
    const struct stk_pixel_kernels *kernels = stk_pixel_kernels_get(vector);

    return kernels ? kernels->name : "none";
}

int stk_image_decoder_open(struct stk_image_decoder **decoder_out, uint32_t vector,
                           struct stoker_error *error)
{
    const struct stk_pixel_kernels *kernels = stk_pixel_kernels_get(vector);
    struct stk_image_decoder *decoder = NULL;
    int status = 0;

    *decoder_out = NULL;
    if (!kernels) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "this machine has no such vectors",
                        "leave vector at auto", "vector %u", vector);
    }
    decoder = stk_alloc(1, sizeof(*decoder));
    if (!decoder) {
        return stk_fail_errno(error, 12, "cannot make a decoder", "close other programs", "memory");
    }
    decoder->kernels = kernels;
    status = stk_codec_open(&decoder->codec, error);
    if (status == 0) {
        status = stk_resize_open(&decoder->resize, kernels, error);
    }
    if (status == 0) {
        status = stk_resize_planar_open(&decoder->planar, kernels, error);
    }
    if (status == 0) {
        *decoder_out = decoder;
        decoder = NULL;
    }
    stk_image_decoder_close(decoder);
    return status;
}

void stk_image_decoder_close(struct stk_image_decoder *decoder)
{
    if (decoder) {
        stk_codec_close(decoder->codec);
        stk_resize_close(decoder->resize);
        stk_resize_planar_close(decoder->planar);
        stk_free(decoder->stored.data);
        stk_free(decoder->output.data);
        stk_free(decoder);
    }
}

uint64_t stk_image_decoder_bytes(const struct stk_image_decoder *decoder)
{
    return stk_codec_bytes(decoder->codec) + stk_resize_bytes(decoder->resize) +
           stk_resize_planar_bytes(decoder->planar) + decoder->stored.bytes + decoder->output.bytes;
}

void stk_image_decoder_set_entry_points(struct stk_image_decoder *decoder,
                                        const struct stk_jpeg_entry_points *entry_points)
{
    stk_codec_set_entry_points(decoder->codec, entry_points);
}

_Static_assert(STK_IMAGE_DECODED_PNG == STK_CODEC_BY_PNG &&
                   STK_IMAGE_DECODED_LIBPNG == STK_CODEC_BY_LIBPNG,
               "the codec's");

uint32_t stk_image_decoder_decoded_by(const struct stk_image_decoder *decoder)
{
    return decoder->by;
}

static void buffer_trim(struct buffer *buffer, uint64_t keep_bytes)
{
    if (buffer->bytes > keep_bytes) {
        stk_free(buffer->data);
        *buffer = (struct buffer){0};
    }
}

void stk_image_decoder_trim(struct stk_image_decoder *decoder, uint64_t keep_bytes)
{
    if (stk_image_decoder_bytes(decoder) > keep_bytes) {
        /* Each part keeps a fair share, so that the sum does not pass keep_bytes. */
        stk_codec_trim(decoder->codec, keep_bytes / 4);
        stk_resize_trim(decoder->resize, keep_bytes / 8);
        stk_resize_planar_trim(decoder->planar, keep_bytes / 8);
        buffer_trim(&decoder->stored, keep_bytes / 4);
        buffer_trim(&decoder->output, keep_bytes / 4);
    }
}

static int fail_memory_limit(uint64_t bytes, uint64_t bytes_max, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_LIMIT, "decoding the image takes too much memory",
                    "raise decode_bytes_max, or leave the image out",
                    "%llu bytes needed, %llu granted", (unsigned long long)bytes,
                    (unsigned long long)bytes_max);
}

static int buffer_reserve(struct buffer *buffer, uint64_t bytes, uint64_t bytes_max,
                          struct stoker_error *error)
{
    if (bytes > bytes_max) {
        return fail_memory_limit(bytes, bytes_max, error);
    }
    if (bytes > buffer->bytes) {
        stk_free(buffer->data);
        buffer->bytes = 0;
        buffer->data = stk_alloc(bytes, 1);
        if (!buffer->data) {
            return stk_fail_errno(error, 12, "cannot decode the image",
                                  "lower decode_bytes_max or the number of threads",
                                  "%llu bytes of memory", (unsigned long long)bytes);
        }
        buffer->bytes = bytes;
    }
    return 0;
}

/* ---- rows and columns to read -------------------------------------------------------------- */

static uint64_t output_bytes(const struct stk_transform_plan *plan)
{
    uint64_t row_bytes = 4 * (uint64_t)plan->shape.width;

    return plan->jitters ? row_bytes * plan->shape.height : row_bytes;
}

/* Header and boxes: fills info, orientation, the turned sides and geometry. */
static int read_header_and_geometry(struct job *job, struct stk_view bytes,
                                    struct stoker_error *error)
{
    const struct stk_transform_plan *plan = job->plan;
    int status = stk_codec_probe(bytes, plan->pixels_max, &job->info, error);
    bool swaps;

    if (status < 0) {
        return status;
    }
    if (plan->pixel_format && job->info.kind != STK_CODEC_PNG) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "a mask is not a PNG",
                        "save the mask as a grey or palette PNG, which loses nothing", "mask");
    }
    job->info.pixel_format = plan->pixel_format;
    job->orientation = plan->exif ? job->info.orientation : 1;
    swaps = stk_orientation_swaps_sides(job->orientation);
    job->width = swaps ? job->info.height : job->info.width;
    job->height = swaps ? job->info.width : job->info.height;
    return stk_crop_geometry_init(&job->geometry, plan->transforms, plan->transform_count,
                                  job->width, job->height, job->key, error);
}

/* The part of [start, end) that [part, part + length) covers. */
static bool overlap(uint32_t start, uint32_t end, uint32_t part, uint32_t length, uint32_t *low_out,
                    uint32_t *high_out)
{
    *low_out = (uint32_t)stk_max(start, part);
    *high_out = (uint32_t)stk_min(end, (uint64_t)part + length);
    return *low_out < *high_out;
}

static struct stk_resize_plan resize_plan(const struct stk_crop_geometry *geometry)
{
    const struct stk_crop_canvas *source = &geometry->source, *output = &geometry->output;

    return (struct stk_resize_plan){
        .source_width = source->width,
        .source_height = source->height,
        .target_width = geometry->target_width,
        .target_height = geometry->target_height,
        .window_x = output->from_x,
        .window_y = output->from_y,
        .window_width = output->visible.width,
        .window_height = output->visible.height,
        .filter = geometry->filter,
        .flip = geometry->flip_horizontal,
    };
}

/* From the window back to the box of the image. False: the output shows nothing of it. */
static bool locate(struct job *job)
{
    const struct stk_crop_canvas *source = &job->geometry.source;
    uint32_t left, right, top, bottom;

    if (job->geometry.output.visible.width == 0 || job->geometry.output.visible.height == 0) {
        return false;
    }
    job->resize = resize_plan(&job->geometry);
    stk_resize_region(&job->resize, &job->x0, &job->x1, &job->y0, &job->y1);
    if (!overlap(job->x0, job->x1, source->visible.x, source->visible.width, &left, &right) ||
        !overlap(job->y0, job->y1, source->visible.y, source->visible.height, &top, &bottom)) {
        return false;
    }
    job->box = (struct stk_codec_box){source->from_x + (left - source->visible.x),
                                      source->from_y + (top - source->visible.y), right - left,
                                      bottom - top};
    job->first_row = top;
    job->next_row = job->y0;
    job->pad_left = left - job->x0;
    job->pad_right = job->x1 - right;
    return true;
}

/* ---- reading ---- */

/* Decodes the box's stored pixels, all of them, and prepares to read them turned. */
static int decode_stored(struct job *job, const struct stk_codec_box *stored, uint32_t row_pixels,
                         uint64_t bytes_max, struct stoker_error *error)
{
    struct buffer *buffer = &job->decoder->stored;
    uint64_t stride = 4 * (uint64_t)row_pixels;
    int status = buffer_reserve(buffer, stride * stored->height, bytes_max, error);

    for (uint32_t y = 0; y < stored->height && status >= 0; y += (uint32_t)status) {
        uint32_t count = (uint32_t)stk_min(ROWS_MAX, stored->height - y);
        uint8_t *rows[ROWS_MAX];

        for (uint32_t i = 0; i < count; i++) {
            rows[i] = buffer->data + (y + i) * stride;
        }
        status = stk_codec_rows(job->decoder->codec, rows, count, error);
    }
    job->turn =
        stk_orientation_steps(job->orientation, stored->width, stored->height, 4, (int64_t)stride);
    job->turn.start += 4 * (int64_t)job->skip;
    return status < 0 ? status : 0;
}

/* Starts to resize the image's planes instead of its rows, and sets plane_count. Does nothing if
 * the image must be turned, has padding, or is resized by nearest. Returns 0 or an error. */
static int begin_planar(struct job *job, uint64_t bytes_max, struct stoker_error *error)
{
    struct stk_resize_planar_plan plan = {.resize = job->resize, .x = job->box.x, .y = job->box.y};

    job->plane_count = 0;
    if (!job->plan->planar || job->damaged || job->orientation != 1 ||
        job->resize.filter == STOKER_NEAREST || job->box.width != job->x1 - job->x0 ||
        job->box.height != job->y1 - job->y0) {
        return 0;
    }
    job->more = true;
    job->plane_count = stk_codec_planes(job->decoder->codec, job->planes);
    for (uint32_t i = 0; i < job->plane_count; i++) {
        const struct stk_jpeg_plane *plane = &job->planes[i];

        plan.planes[i] =
            (struct stk_resize_plane){plane->width,   plane->height,   plane->h_ratio,
                                      plane->v_ratio, plane->smooth_x, plane->smooth_y};
    }
    plan.plane_count = job->plane_count;
    return job->plane_count ? stk_resize_planar_begin(job->decoder->planar, &plan, bytes_max, error)
                            : 0;
}

/* Begins the codec and the resizer. The caller ends the codec. */
static int begin(struct job *job, struct stk_view bytes, struct stoker_error *error)
{
    struct stk_image_decoder *decoder = job->decoder;
    struct stk_codec_box stored =
        stk_orientation_box(job->orientation, job->info.width, job->info.height, &job->box);
    uint64_t left = job->plan->memory_bytes_max, used = output_bytes(job->plan);
    uint32_t row_pixels = 0;
    int status;

    if (used > left) {
        return fail_memory_limit(used, left, error);
    }
    left -= used;
    status = stk_codec_begin(decoder->codec, bytes, &job->info, &stored, left, &row_pixels,
                             &job->skip, error);
    if (status < 0) {
        return status;
    }
    left -= stk_min(left, stk_codec_bytes(decoder->codec));
    if (job->orientation != 1) {
        status = decode_stored(job, &stored, row_pixels, left, error);
        if (status < 0) {
            return status;
        }
        left -= stk_min(left, decoder->stored.bytes);
        row_pixels = job->box.width;
        job->skip = 0;
    }
    status = begin_planar(job, left, error);
    if (status < 0 || job->plane_count > 0) {
        return status;
    }
    return stk_resize_begin(decoder->resize, &job->resize,
                            job->pad_left + row_pixels + job->pad_right, job->skip, left, error);
}

static void orient_row(const struct job *job, uint8_t *to)
{
    const uint8_t *from = job->decoder->stored.data + job->turn.start +
                          (int64_t)(job->next_row - job->first_row) * job->turn.step_y;

    for (uint32_t x = 0; x < job->box.width; x++, from += job->turn.step_x) {
        memcpy(to + 4 * (size_t)x, from, 4);
    }
}

/* The next rows of the source canvas, at most count; returns how many. */
static int read_source_rows(struct job *job, uint8_t *const *rows, uint32_t count,
                            struct stoker_error *error)
{
    uint32_t before = job->skip + job->pad_left; /* pixels before the box */
    uint32_t end = job->first_row + job->box.height;
    uint8_t *inner[ROWS_MAX];
    int status = 1;

    if (job->next_row < job->first_row || job->next_row >= end) {
        memset(rows[0], 0, 4 * (size_t)(job->skip + job->x1 - job->x0));
        job->next_row++;
        return 1;
    }
    count = (uint32_t)stk_min(count, end - job->next_row);
    for (uint32_t i = 0; i < count; i++) {
        inner[i] = rows[i] + 4 * (size_t)job->pad_left;
    }
    if (job->orientation == 1) {
        status = stk_codec_rows(job->decoder->codec, inner, count, error);
    } else {
        orient_row(job, inner[0]);
    }
    for (int i = 0; i < status; i++) {
        memset(rows[i] + 4 * (size_t)job->skip, 0, 4 * (size_t)job->pad_left);
        memset(rows[i] + 4 * (size_t)(before + job->box.width), 0, 4 * (size_t)job->pad_right);
    }
    job->next_row += status > 0 ? (uint32_t)status : 0;
    return status;
}

/* Row `row` of the window into rgbx, from the source's rows. */
static int resize_rows(struct job *job, uint32_t row, uint8_t *rgbx, struct stoker_error *error)
{
    uint8_t *rows[ROWS_MAX];
    uint32_t count;

    while ((count = stk_resize_wanted(job->decoder->resize, row, rows, ROWS_MAX)) > 0) {
        int status = read_source_rows(job, rows, count, error);

        if (status < 0) {
            return status;
        }
        stk_resize_push(job->decoder->resize, (uint32_t)status);
    }
    stk_resize_row(job->decoder->resize, row, rgbx);
    return 0;
}

/* The same from planes. PLANES_DAMAGED: rows are to be tried. */
#define PLANES_DAMAGED 1

static int resize_planes(struct job *job, uint32_t row, uint8_t *rgbx)
{
    struct stk_resize_planar *planar = job->decoder->planar;
    const uint8_t *samples[3] = {NULL};

    /* Behind the last row, too, damage is found as it would be for rows. */
    while (stk_resize_planar_needs(planar, row) ||
           (job->more && row + 1 == job->resize.window_height)) {
        struct stk_jpeg_band band;

        if (!stk_codec_band(job->decoder->codec, &band, &job->more)) {
            return PLANES_DAMAGED;
        }
        for (uint32_t i = 0; i < job->plane_count; i++) {
            stk_resize_planar_push(planar, i,
                                   &(struct stk_resize_planar_rows){band.rows[i], band.strides[i],
                                                                    band.y[i], band.counts[i],
                                                                    job->planes[i].first});
        }
    }
    stk_resize_planar_row(planar, row, samples);
    stk_codec_to_rgbx(job->decoder->codec, samples, job->resize.window_width, rgbx);
    return 0;
}

/* ---- output ---- */

/* Row y of the output canvas, before the vertical flip. shown: false if all of it is zero. */
static int make_row(struct job *job, uint32_t y, bool shown, uint8_t *rgbx,
                    struct stoker_error *error)
{
    const struct stk_crop_canvas *canvas = &job->geometry.output;
    const struct stk_codec_box *part = &canvas->visible;
    uint32_t row = y - part->y, left = part->x, right;
    int status;

    if (!shown || y < part->y || row >= part->height) {
        memset(rgbx, 0, 4 * (size_t)canvas->width);
        return 0;
    }
    right = canvas->width - part->width - left;
    if (job->geometry.flip_horizontal) {
        left = right;
        right = part->x;
    }
    memset(rgbx, 0, 4 * (size_t)left);
    rgbx += 4 * (size_t)left;
    status =
        job->plane_count > 0 ? resize_planes(job, row, rgbx) : resize_rows(job, row, rgbx, error);
    if (status != 0) {
        return status;
    }
    memset(rgbx + 4 * (size_t)part->width, 0, 4 * (size_t)right);
    return 0;
}

/* Values and order of one ColorJitter. */
static struct stk_color_jitter draw_jitter(const struct stoker_transform *transform,
                                           struct stk_random_draw draw)
{
    const double *ranges[] = {[STK_COLOR_JITTER_BRIGHTNESS] = transform->brightness,
                              [STK_COLOR_JITTER_CONTRAST] = transform->contrast,
                              [STK_COLOR_JITTER_SATURATION] = transform->saturation,
                              [STK_COLOR_JITTER_HUE] = transform->hue};
    struct stk_color_jitter jitter;

    for (uint8_t step = 0; step < STK_COLOR_JITTER_STEPS; step++) {
        jitter.value[step] = stk_random_draw_between(draw, step, ranges[step]);
        jitter.order[step] = step;
    }
    for (uint32_t i = STK_COLOR_JITTER_STEPS - 1; i > 0; i--) {
        uint32_t other = stk_random_draw_below(draw, DRAW_ORDER + i, i + 1);
        uint8_t step = jitter.order[i];

        jitter.order[i] = jitter.order[other];
        jitter.order[other] = step;
    }
    return jitter;
}

static void recolor(const struct job *job, uint8_t *rgbx)
{
    const struct stk_transform_plan *plan = job->plan;
    uint64_t pixels = (uint64_t)plan->shape.width * plan->shape.height;
    uint32_t nth = 0;

    for (size_t i = 0; i < plan->transform_count; i++) {
        if (plan->transforms[i].kind == STOKER_COLOR_JITTER) {
            struct stk_random_draw draw =
                stk_random_draw_begin(job->key, STOKER_COLOR_JITTER, nth++);
            struct stk_color_jitter jitter = draw_jitter(&plan->transforms[i], draw);

            stk_color_jitter_apply(&jitter, job->decoder->kernels, rgbx, pixels);
        }
    }
}

/* The place of row y of the output. */
static uint32_t oriented_row(const struct job *job, uint32_t y)
{
    return job->geometry.flip_vertical ? job->plan->shape.height - 1 - y : y;
}

/* A row of a mask: the codec put each value into the first bytes of its pixel. */
static void put_values(const struct stk_image_shape *shape, uint32_t y, const uint8_t *row,
                       void *slot)
{
    uint64_t first = (uint64_t)y * shape->width;

    for (uint32_t x = 0; x < shape->width; x++, row += 4) {
        if (shape->dtype == STOKER_INT64) {
            ((int64_t *)slot)[first + x] = row[0] | row[1] << 8 | row[2] << 16;
        } else {
            ((uint8_t *)slot)[first + x] = row[0];
        }
    }
}

static void convert_row(const struct stk_image_decoder *decoder,
                        const struct stk_transform_plan *plan, uint32_t y, const uint8_t *rgbx,
                        void *slot)
{
    if (plan->pixel_format) {
        put_values(&plan->shape, y, rgbx, slot);
    } else {
        decoder->kernels->convert(&plan->convert, rgbx, y, slot);
    }
}

/* Whether a mask's row fits its dtype. */
static int check_row(const struct job *job, const uint8_t *row, struct stoker_error *error)
{
    const struct stk_image_shape *shape = &job->plan->shape;

    for (uint32_t x = 0;
         job->plan->pixel_format && shape->dtype == STOKER_UINT8 && x < shape->width;
         x++, row += 4) {
        if (row[1] != 0 || row[2] != 0) {
            return stk_fail(error, STOKER_ERROR_FORMAT, "a mask has a value above 255",
                            "ask for dtype int64", "value %d", row[0] | row[1] << 8 | row[2] << 16);
        }
    }
    return 0;
}

static void put_row(const struct job *job, uint32_t y, const uint8_t *rgbx, void *slot)
{
    convert_row(job->decoder, job->plan, oriented_row(job, y), rgbx, slot);
}

/* All rows into the canvas, turned and recolored. */
static int produce_canvas(struct job *job, bool shown, struct stoker_error *error)
{
    uint64_t stride = 4 * (uint64_t)job->plan->shape.width;
    int status = 0;

    for (uint32_t y = 0; y < job->plan->shape.height && status == 0; y++) {
        uint8_t *row = job->canvas + oriented_row(job, y) * stride;

        status = make_row(job, y, shown, row, error);
        status = status ? status : check_row(job, row, error);
    }
    if (status == 0 && job->plan->jitters) { /* a mask has its image's transforms, but no colours */
        recolor(job, job->canvas);
    }
    return status;
}

static int produce(struct job *job, bool shown, void *slot, struct stoker_error *error)
{
    const struct stk_transform_plan *plan = job->plan;
    struct buffer *output = &job->decoder->output;
    int status = buffer_reserve(output, output_bytes(plan), plan->memory_bytes_max, error);

    if (status == 0 && plan->jitters) {
        job->canvas = output->data;
        status = produce_canvas(job, shown, error);
        if (status == 0) {
            stk_image_decode_convert(job->decoder, plan, job->canvas, slot);
        }
        return status;
    }
    for (uint32_t y = 0; y < plan->shape.height && status == 0; y++) {
        status = make_row(job, y, shown, output->data, error);
        status = status ? status : check_row(job, output->data, error);
        if (status == 0) {
            put_row(job, y, output->data, slot);
        }
    }
    return status;
}

/* All rows were decoded: reads the end of the image too, if the box reached its last row. */
static int check_decoded(const struct job *job, struct stoker_error *error)
{
    struct stk_codec *codec = job->decoder->codec;
    int status;

    if (job->plan->check == 0 || job->plan->check == STOKER_CHECK_TOLERANT) {
        return 0;
    }
    status = stk_codec_finish(codec, error);
    return status == 0 ? stk_codec_check_damage(codec, error) : status;
}

/* The image that was located, once through. */
static int decode_visible(struct job *job, struct stk_view bytes, bool shown, void *slot,
                          struct stoker_error *error)
{
    int status = shown ? begin(job, bytes, error) : 0;

    if (status == 0) {
        status = slot ? produce(job, shown, slot, error) : produce_canvas(job, shown, error);
        if (status == 0 && shown) {
            status = check_decoded(job, error);
        }
        job->decoder->by = shown ? stk_codec_decoded_by(job->decoder->codec) : 0;
        job->decoder->by += job->plane_count > 0 ? STK_IMAGE_DECODED_PLANAR : 0;
    }
    stk_codec_end(job->decoder->codec);
    return status;
}

/* Into the slot, or without one into job->canvas. */
static int decode(struct job *job, struct stk_view bytes, void *slot, struct stoker_error *error)
{
    bool shown;
    int status = read_header_and_geometry(job, bytes, error);

    job->decoder->by = 0;
    if (status < 0) {
        return status;
    }
    shown = locate(job);
    status = decode_visible(job, bytes, shown, slot, error);
    if (status == PLANES_DAMAGED) {
        job->damaged = true;
        stk_resize_planar_trim(job->decoder->planar, 0);
        status = decode_visible(job, bytes, shown, slot, error);
    }
    if (status == 0 && job->plan->check == STOKER_CHECK_WHOLE) {
        status = stk_codec_check(job->decoder->codec, bytes, &job->info,
                                 job->plan->memory_bytes_max, error);
    }
    return status;
}

int stk_image_decode(struct stk_image_decoder *decoder, const struct stk_transform_plan *plan,
                     struct stk_view bytes, uint64_t key, void *slot, struct stoker_error *error)
{
    struct job job = {.decoder = decoder, .plan = plan, .key = key};

    return decode(&job, bytes, slot, error);
}

uint64_t stk_image_decode_canvas_bytes(const struct stk_transform_plan *plan)
{
    return 4 * (uint64_t)plan->shape.width * plan->shape.height;
}

int stk_image_decode_canvas(struct stk_image_decoder *decoder,
                            const struct stk_transform_plan *plan, struct stk_view bytes,
                            uint64_t key, uint8_t *canvas, struct stoker_error *error)
{
    struct job job = {.decoder = decoder, .plan = plan, .key = key, .canvas = canvas};

    return decode(&job, bytes, NULL, error);
}

void stk_image_decode_convert(const struct stk_image_decoder *decoder,
                              const struct stk_transform_plan *plan, const uint8_t *canvas,
                              void *slot)
{
    uint64_t stride = 4 * (uint64_t)plan->shape.width;

    for (uint32_t y = 0; y < plan->shape.height; y++) {
        convert_row(decoder, plan, y, canvas + y * stride, slot);
    }
}

int stk_image_decode_memory_bytes(const struct stk_transform_plan *plan, struct stk_view bytes,
                                  uint64_t *memory_bytes_out, struct stoker_error *error)
{
    struct job job = {.plan = plan};
    struct stk_resize_plan resize;
    uint64_t memory_bytes = output_bytes(plan), tables = 0;
    int status = read_header_and_geometry(&job, bytes, error);

    *memory_bytes_out = 0;
    if (status < 0) {
        return status;
    }
    /* A random box is not larger than the image; a larger source never takes less memory, except
     * that a source of the target's size needs no weights. */
    resize = resize_plan(&job.geometry);
    for (uint32_t more = 0; more < 2 && resize.window_width > 0 && resize.window_height > 0;
         more++) {
        resize.source_width = (uint32_t)stk_max(resize.source_width, job.width + more);
        resize.source_height = (uint32_t)stk_max(resize.source_height, job.height + more);
        tables =
            stk_max(tables, stk_resize_memory_bytes(&resize, resize.source_width + ROW_MARGIN));
        tables = stk_max(tables, plan->planar ? stk_resize_planar_memory_bytes(&resize) : 0);
    }
    memory_bytes += job.info.memory_bytes + tables;
    if (plan->check == STOKER_CHECK_WHOLE) {
        memory_bytes += stk_codec_check_bytes(&job.info);
    }
    if (job.orientation != 1) {
        memory_bytes += 4 * ((uint64_t)job.info.width + ROW_MARGIN) * job.info.height;
    }
    *memory_bytes_out = memory_bytes;
    return 0;
}

int stk_image_decode_sides(const struct stk_transform_plan *plan, struct stk_view bytes,
                           uint32_t *width_out, uint32_t *height_out, struct stoker_error *error)
{
    struct stk_codec_info info;
    int status = stk_codec_probe(bytes, plan->pixels_max, &info, error);
    bool swaps;

    if (status < 0) {
        return status;
    }
    swaps = plan->exif && stk_orientation_swaps_sides(info.orientation);
    *width_out = swaps ? info.height : info.width;
    *height_out = swaps ? info.width : info.height;
    return 0;
}

int stk_image_boxes_transform(const struct stk_transform_plan *plan, uint64_t key,
                              struct stk_image_boxes *boxes, struct stoker_error *error)
{
    struct stk_crop_geometry geometry;
    int status = stk_crop_geometry_init(&geometry, plan->transforms, plan->transform_count,
                                        boxes->width, boxes->height, key, error);

    for (uint64_t i = 0; i < boxes->count && status == 0; i++) {
        boxes->is_visible[i] = stk_crop_geometry_box(&geometry, boxes->corners[i]);
    }
    return status;
}
