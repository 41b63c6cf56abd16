/* Boxes and sizes, as torchvision v2 computes them, and the eight orientations of EXIF. */
#include "decode/image/crop_geometry.h"

#include "decode/image/random_draw.h"

/* torchvision: so many tries, then the middle. */
#define ATTEMPTS 10

/* Draws of a RandomResizedCrop: ATTEMPTS times these. */
enum { DRAW_AREA, DRAW_RATIO, DRAW_TOP, DRAW_LEFT, DRAWS_OF_ATTEMPT };

/* How a crop moves one side: `at` may be negative and the end may be outside. */
static void crop_side(uint32_t *part, uint32_t *part_length, uint32_t *from, int64_t at,
                      uint32_t length)
{
    int64_t start = *part, end = start + *part_length, stop = at + length;
    int64_t low = start > at ? start : at, high = end < stop ? end : stop;

    if (high <= low) {
        *part = 0;
        *part_length = 0;
        return;
    }
    *from += (uint32_t)(low - start);
    *part = (uint32_t)(low - at);
    *part_length = (uint32_t)(high - low);
}

static void crop(struct stk_crop_canvas *canvas, int64_t x, int64_t y, uint32_t width,
                 uint32_t height)
{
    crop_side(&canvas->visible.x, &canvas->visible.width, &canvas->from_x, x, width);
    crop_side(&canvas->visible.y, &canvas->visible.height, &canvas->from_y, y, height);
    canvas->width = width;
    canvas->height = height;
}

static struct stk_crop_canvas full_canvas(uint32_t width, uint32_t height)
{
    return (struct stk_crop_canvas){
        .width = width, .height = height, .visible = {0, 0, width, height}};
}

/* center_crop: pads before it crops; the smaller half of the padding is first, the middle of an odd
 * rest is rounded to even. */
static int64_t center(uint32_t length, uint32_t wanted)
{
    if (wanted > length) {
        return -(int64_t)((wanted - length) / 2);
    }
    return stk_rounded((double)(length - wanted) / 2.0);
}

static int random_crop(struct stk_crop_canvas *canvas, const struct stoker_transform *transform,
                       struct stk_random_draw draw, struct stoker_error *error)
{
    uint32_t width = transform->width, height = transform->height;

    if (width > canvas->width || height > canvas->height) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "image is smaller than its RandomCrop",
                        "put a Resize before RandomCrop, or use RandomResizedCrop",
                        "%ux%u, wanted %ux%u (width x height)", canvas->width, canvas->height,
                        width, height);
    }
    crop(canvas, stk_random_draw_below(draw, 1, canvas->width - width + 1),
         stk_random_draw_below(draw, 0, canvas->height - height + 1), width, height);
    return 0;
}

/* The central crop when no attempt fits: the largest within the ratios. */
static void middle_crop(struct stk_crop_canvas *canvas, const double ratio[2])
{
    uint32_t width = canvas->width, height = canvas->height;
    double in_ratio = (double)width / (double)height;
    int64_t most = width, high = height;

    if (in_ratio < ratio[0]) {
        high = stk_rounded((double)width / ratio[0]);
    } else if (in_ratio > ratio[1]) {
        most = stk_rounded((double)height * ratio[1]);
    }
    /* Very narrow images produce an empty box, on which torchvision would fail. */
    width = (uint32_t)stk_min(stk_max((uint64_t)most, 1), width);
    height = (uint32_t)stk_min(stk_max((uint64_t)high, 1), height);
    crop(canvas, (canvas->width - width) / 2, (canvas->height - height) / 2, width, height);
}

/* RandomResizedCrop.make_params: an area uniform, a ratio uniform in its logarithm. */
static void random_resized_crop(struct stk_crop_canvas *canvas,
                                const struct stoker_transform *transform,
                                struct stk_random_draw draw)
{
    double area = (double)canvas->width * (double)canvas->height;
    double logs[2] = {stk_log(transform->ratio[0]), stk_log(transform->ratio[1])};

    for (uint32_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        uint32_t number = attempt * DRAWS_OF_ATTEMPT;
        double wanted = area * stk_random_draw_between(draw, number + DRAW_AREA, transform->scale);
        double ratio = stk_exp(stk_random_draw_between(draw, number + DRAW_RATIO, logs));
        int64_t width = stk_root_rounded(wanted * ratio);
        int64_t height = stk_root_rounded(wanted / ratio);

        if (width > 0 && width <= canvas->width && height > 0 && height <= canvas->height) {
            uint32_t rows = canvas->height - (uint32_t)height + 1;
            uint32_t columns = canvas->width - (uint32_t)width + 1;

            crop(canvas, stk_random_draw_below(draw, number + DRAW_LEFT, columns),
                 stk_random_draw_below(draw, number + DRAW_TOP, rows), (uint32_t)width,
                 (uint32_t)height);
            return;
        }
    }
    middle_crop(canvas, transform->ratio);
}

/* Resize(int): the short side becomes `height`, the long one follows, cut to max_size. */
static void resized(const struct stoker_transform *transform, uint32_t width, uint32_t height,
                    uint32_t *width_out, uint32_t *height_out)
{
    bool tall = width <= height;
    uint64_t small = tall ? width : height, large = tall ? height : width;
    uint64_t new_small = transform->height, new_large;

    if (transform->width > 0) {
        *width_out = transform->width;
        *height_out = transform->height;
        return;
    }
    new_large = new_small * large / small;
    if (transform->max_size > 0 && new_large > transform->max_size) {
        new_small = stk_max(transform->max_size * new_small / new_large, 1);
        new_large = transform->max_size;
    }
    new_large = stk_min(new_large, UINT32_MAX); /* the resizer refuses it, by name */
    *width_out = (uint32_t)(tall ? new_small : new_large);
    *height_out = (uint32_t)(tall ? new_large : new_small);
}

static void resample(struct stk_crop_geometry *geometry, const struct stoker_transform *transform)
{
    /* The preceding crops were applied to the output canvas; they belong to the source. */
    geometry->source = geometry->output;
    geometry->filter = transform->filter;
    if (transform->kind == STOKER_RESIZE) {
        resized(transform, geometry->source.width, geometry->source.height, &geometry->target_width,
                &geometry->target_height);
    } else {
        geometry->target_width = transform->width;
        geometry->target_height = transform->height;
    }
    geometry->output = full_canvas(geometry->target_width, geometry->target_height);
}

int stk_crop_geometry_init(struct stk_crop_geometry *geometry,
                           const struct stoker_transform *transforms, size_t count, uint32_t width,
                           uint32_t height, uint64_t key, struct stoker_error *error)
{
    uint32_t nth[STOKER_NORMALIZE + 1] = {0};
    struct stk_crop_canvas *canvas = &geometry->output;
    int status = 0;

    *geometry = (struct stk_crop_geometry){.source = full_canvas(width, height),
                                           .target_width = width,
                                           .target_height = height,
                                           .filter = STOKER_NEAREST,
                                           .output = full_canvas(width, height)};
    for (size_t i = 0; i < count && status == 0; i++) {
        const struct stoker_transform *transform = &transforms[i];
        uint32_t kind = transform->kind;
        struct stk_random_draw draw = stk_random_draw_begin(key, kind, nth[kind]++);
        bool yes = stk_random_draw_unit(draw, 0) < transform->probability;

        if (kind == STOKER_RANDOM_RESIZED_CROP) {
            random_resized_crop(canvas, transform, draw);
            resample(geometry, transform);
        } else if (kind == STOKER_RESIZE) {
            resample(geometry, transform);
        } else if (kind == STOKER_CENTER_CROP) {
            crop(canvas, center(canvas->width, transform->width),
                 center(canvas->height, transform->height), transform->width, transform->height);
        } else if (kind == STOKER_RANDOM_CROP) {
            status = random_crop(canvas, transform, draw, error);
        } else if (kind == STOKER_RANDOM_HORIZONTAL_FLIP) {
            geometry->flip_horizontal ^= yes;
        } else if (kind == STOKER_RANDOM_VERTICAL_FLIP) {
            geometry->flip_vertical ^= yes;
        }
    }
    return status;
}

/* One side of a box on a canvas: shifted by the start of the canvas's part, and clipped to the
 * part. */
static void canvas_side(double *low, double *high, uint32_t part, uint32_t length, uint32_t from)
{
    double shift = (double)part - (double)from, first = part, last = (double)part + length;

    *low = *low + shift < first ? first : *low + shift > last ? last : *low + shift;
    *high = *high + shift < first ? first : *high + shift > last ? last : *high + shift;
}

static void canvas_box(const struct stk_crop_canvas *canvas, double box[4])
{
    canvas_side(&box[0], &box[2], canvas->visible.x, canvas->visible.width, canvas->from_x);
    canvas_side(&box[1], &box[3], canvas->visible.y, canvas->visible.height, canvas->from_y);
}

static void mirror(double *low, double *high, uint32_t length)
{
    double before = *low;

    *low = (double)length - *high;
    *high = (double)length - before;
}

bool stk_crop_geometry_box(const struct stk_crop_geometry *geometry, double box[4])
{
    double across = (double)geometry->target_width / (double)geometry->source.width;
    double down = (double)geometry->target_height / (double)geometry->source.height;

    canvas_box(&geometry->source, box);
    box[0] *= across;
    box[1] *= down;
    box[2] *= across;
    box[3] *= down;
    canvas_box(&geometry->output, box);
    if (geometry->flip_horizontal) {
        mirror(&box[0], &box[2], geometry->output.width);
    }
    if (geometry->flip_vertical) {
        mirror(&box[1], &box[3], geometry->output.height);
    }
    return box[0] < box[2] && box[1] < box[3];
}

bool stk_orientation_swaps_sides(uint8_t orientation)
{
    return orientation >= 5;
}

/* Which sides of the stored image run backwards in the turned one. */
static bool backwards_x(uint8_t orientation)
{
    return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

static bool backwards_y(uint8_t orientation)
{
    return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}

struct stk_codec_box stk_orientation_box(uint8_t orientation, uint32_t width, uint32_t height,
                                         const struct stk_codec_box *box)
{
    struct stk_codec_box stored = *box;

    if (stk_orientation_swaps_sides(orientation)) {
        stored = (struct stk_codec_box){box->y, box->x, box->height, box->width};
    }
    if (backwards_x(orientation)) {
        stored.x = width - stored.x - stored.width;
    }
    if (backwards_y(orientation)) {
        stored.y = height - stored.y - stored.height;
    }
    return stored;
}

struct stk_orientation stk_orientation_steps(uint8_t orientation, uint32_t width, uint32_t height,
                                             int64_t pixel, int64_t stride)
{
    int64_t across = backwards_x(orientation) ? -pixel : pixel;
    int64_t down = backwards_y(orientation) ? -stride : stride;
    struct stk_orientation turn = {0, across, down};

    if (stk_orientation_swaps_sides(orientation)) {
        turn.step_x = down;
        turn.step_y = across;
    }
    turn.start += across < 0 ? (int64_t)(width - 1) * pixel : 0;
    turn.start += down < 0 ? (int64_t)(height - 1) * stride : 0;
    return turn;
}
