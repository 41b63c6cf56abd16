/* Checks transforms once, so that decoding meets only plans that make sense. */
#include "decode/image/transform_plan.h"

#include "base/mem.h"
#include "decode/codec/codec.h"
#include "decode/pixel/color_jitter.h"

#include <string.h>

#define SIDE_MAX STOKER_TRANSFORM_SIDE_MAX
#define RATIO_MAX 1000.0
#define SCALE_MAX 1000.0
#define STD_MAX 1e6

static const char order_advice[] =
    "write crops and at most one Resize or RandomResizedCrop, then flips and ColorJitter, then "
    "Normalize";

static const char *const names[] = {
    [STOKER_RANDOM_RESIZED_CROP] = "RandomResizedCrop",
    [STOKER_RESIZE] = "Resize",
    [STOKER_CENTER_CROP] = "CenterCrop",
    [STOKER_RANDOM_CROP] = "RandomCrop",
    [STOKER_RANDOM_HORIZONTAL_FLIP] = "RandomHorizontalFlip",
    [STOKER_RANDOM_VERTICAL_FLIP] = "RandomVerticalFlip",
    [STOKER_COLOR_JITTER] = "ColorJitter",
    [STOKER_NORMALIZE] = "Normalize",
};

/* The state of the walk over the transforms. */
struct walk {
    size_t index;
    const char *name;
    int stage;              /* 0: geometry, 1: flips and colours, 2: Normalize */
    bool resamples;         /* a Resize or RandomResizedCrop was found */
    uint32_t width, height; /* fixed from here on; 0: depends on the image */
    const float *mean, *std;
    struct stoker_error *error;
};

static int fail_transform(const struct walk *walk, const char *what, const char *advice)
{
    return stk_fail(walk->error, STOKER_ERROR_ARGUMENT, what, advice, "transform %zu (%s)",
                    walk->index, walk->name);
}

/* NaN is not within anything. */
static bool within(const double range[2], double low, double high)
{
    return range[0] >= low && range[0] <= range[1] && range[1] <= high;
}

static int check_size(const struct walk *walk, const struct stoker_transform *transform)
{
    bool square = walk->name == names[STOKER_RESIZE] && transform->width == 0;

    if (transform->height == 0 || (transform->width == 0 && !square)) {
        return fail_transform(walk, "a size of zero", "give height and width, at least 1");
    }
    if (transform->height > SIDE_MAX || transform->width > SIDE_MAX ||
        transform->max_size > SIDE_MAX) {
        return fail_transform(walk, "a size above 16,384", "give a smaller height and width");
    }
    return 0;
}

static int check_resample(struct walk *walk, const struct stoker_transform *transform)
{
    bool short_side = transform->kind == STOKER_RESIZE && transform->width == 0;

    if (walk->resamples) {
        return fail_transform(walk, "a second resize", order_advice);
    }
    walk->resamples = true;
    if (transform->filter < STOKER_BILINEAR || transform->filter > STOKER_NEAREST) {
        return fail_transform(walk, "an unknown filter", "use bilinear, bicubic or nearest");
    }
    if (transform->kind == STOKER_RESIZE) {
        if (transform->max_size > 0 && (!short_side || transform->max_size <= transform->height)) {
            return fail_transform(walk, "max_size does not go with the size",
                                  "give max_size only with one size, and larger than it");
        }
        return 0;
    }
    if (!within(transform->scale, 0.0, SCALE_MAX) || transform->scale[1] <= 0.0) {
        return fail_transform(walk, "scale is not a range of areas",
                              "use something like (0.08, 1.0)");
    }
    if (!within(transform->ratio, 1.0 / RATIO_MAX, RATIO_MAX)) {
        return fail_transform(walk, "ratio is not a range of ratios",
                              "use something like (3/4, 4/3)");
    }
    return 0;
}

static int check_geometry(struct walk *walk, const struct stoker_transform *transform)
{
    bool resamples =
        transform->kind == STOKER_RANDOM_RESIZED_CROP || transform->kind == STOKER_RESIZE;
    int status = check_size(walk, transform);

    if (status == 0 && resamples) {
        status = check_resample(walk, transform);
    }
    if (status < 0) {
        return status;
    }
    if (transform->kind == STOKER_RANDOM_CROP && walk->width > 0 &&
        (transform->width > walk->width || transform->height > walk->height)) {
        return fail_transform(walk, "a crop larger than what it crops",
                              "crop less, or resize to more before it");
    }
    walk->width = transform->width; /* 0 after Resize of the short side */
    walk->height = transform->width ? transform->height : 0;
    return 0;
}

static int check_jitter(const struct walk *walk, const struct stoker_transform *transform)
{
    if (!within(transform->brightness, 0.0, STK_COLOR_JITTER_FACTOR_MAX) ||
        !within(transform->contrast, 0.0, STK_COLOR_JITTER_FACTOR_MAX) ||
        !within(transform->saturation, 0.0, STK_COLOR_JITTER_FACTOR_MAX)) {
        return fail_transform(walk, "a factor is not a range within [0, 64]",
                              "give brightness, contrast and saturation like (0.6, 1.4)");
    }
    if (!within(transform->hue, -0.5, 0.5)) {
        return fail_transform(walk, "hue is not a range within [-0.5, 0.5]",
                              "give hue like (-0.1, 0.1)");
    }
    return 0;
}

static int check_normalize(struct walk *walk, const struct stoker_transform *transform)
{
    if (walk->mean) {
        return fail_transform(walk, "a second Normalize", "keep one of them");
    }
    for (int c = 0; c < 3; c++) {
        double mean = (double)transform->mean[c], std = (double)transform->std[c];

        if (!(mean >= -STD_MAX && mean <= STD_MAX && std >= 1.0 / STD_MAX && std <= STD_MAX)) {
            return fail_transform(walk, "mean or std is not usable",
                                  "give means and positive deviations of values in [0, 1]");
        }
    }
    walk->mean = transform->mean;
    walk->std = transform->std;
    return 0;
}

static int check(struct walk *walk, const struct stoker_transform *transform)
{
    uint32_t kind = transform->kind;
    int stage;

    if (kind < STOKER_RANDOM_RESIZED_CROP || kind > STOKER_NORMALIZE) {
        walk->name = "unknown";
        return fail_transform(walk, "an unknown transform", order_advice);
    }
    walk->name = names[kind];
    stage = kind == STOKER_NORMALIZE ? 2 : kind >= STOKER_RANDOM_HORIZONTAL_FLIP ? 1 : 0;
    if (stage < walk->stage) {
        return fail_transform(walk, "transforms in an order that is not understood", order_advice);
    }
    walk->stage = stage;
    if (stage == 0) {
        return check_geometry(walk, transform);
    }
    if (stage == 2) {
        return check_normalize(walk, transform);
    }
    if (kind == STOKER_COLOR_JITTER) {
        return check_jitter(walk, transform);
    }
    if (!(transform->probability >= 0.0 && transform->probability <= 1.0)) {
        return fail_transform(walk, "a probability outside [0, 1]", "use something like 0.5");
    }
    return 0;
}

/* The type and layout: defaults, and invalid combinations. */
static int choose_output(struct stk_transform_plan *plan,
                         const struct stk_transform_plan_options *options, const struct walk *walk)
{
    uint32_t dtype = options->dtype, layout = options->layout;

    dtype = dtype ? dtype : walk->mean ? STOKER_FLOAT32 : STOKER_UINT8;
    layout = layout ? layout : STOKER_NCHW;
    if (stk_pixel_bytes(dtype) == 0 || layout > STOKER_NHWC) {
        return stk_fail(walk->error, STOKER_ERROR_ARGUMENT, "an image cannot have this type",
                        "use uint8, float32, float16 or bfloat16, and NCHW or NHWC",
                        "dtype %u layout %u", dtype, layout);
    }
    if (walk->mean && dtype == STOKER_UINT8) {
        return stk_fail(walk->error, STOKER_ERROR_ARGUMENT, "normalised values are not uint8",
                        "ask for float32, float16 or bfloat16, or leave Normalize out", "dtype %u",
                        dtype);
    }
    plan->shape =
        (struct stk_image_shape){dtype, layout, walk->height, walk->width,
                                 (uint64_t)walk->height * walk->width * 3 * stk_pixel_bytes(dtype)};
    plan->convert.dtype = dtype;
    plan->convert.layout = layout;
    plan->convert.width = walk->width;
    plan->convert.height = walk->height;
    stk_pixel_convert_init(&plan->convert, walk->mean, walk->std);
    return 0;
}

/* A mask's: resized by nearest; colours are left as they are. */
static int choose_mask_output(struct stk_transform_plan *plan,
                              const struct stk_transform_plan_options *options,
                              const struct walk *walk)
{
    uint32_t dtype = options->dtype ? options->dtype : STOKER_UINT8;

    if (dtype != STOKER_UINT8 && dtype != STOKER_INT64) {
        return stk_fail(walk->error, STOKER_ERROR_ARGUMENT, "a mask cannot have this dtype",
                        "use uint8 or int64", "dtype %u", dtype);
    }
    for (size_t i = 0; i < plan->transform_count; i++) {
        plan->transforms[i].filter = STOKER_NEAREST;
    }
    plan->jitters = false;
    plan->pixel_format = options->pixel_format;
    plan->shape = (struct stk_image_shape){dtype, STOKER_NCHW, walk->height, walk->width,
                                           (uint64_t)walk->height * walk->width *
                                               (dtype == STOKER_INT64 ? sizeof(int64_t) : 1)};
    return 0;
}

/* Fills a plan whose transforms were copied. */
static int fill(struct stk_transform_plan *plan, const struct stk_transform_plan_options *options,
                struct stoker_error *error)
{
    struct walk walk = {.name = "none", .error = error};
    int status;

    for (; walk.index < plan->transform_count; walk.index++) {
        const struct stoker_transform *transform = &plan->transforms[walk.index];

        status = check(&walk, transform);
        if (status < 0) {
            return status;
        }
        plan->jitters = plan->jitters || transform->kind == STOKER_COLOR_JITTER;
    }
    if (walk.width == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT,
                        "the transforms do not give images of one size",
                        "end the geometry with RandomResizedCrop, CenterCrop, RandomCrop or a "
                        "Resize to (height, width)",
                        "%zu transforms", plan->transform_count);
    }
    return options->pixel_format ? choose_mask_output(plan, options, &walk)
                                 : choose_output(plan, options, &walk);
}

int stk_transform_plan_open(struct stk_transform_plan **plan_out,
                            const struct stk_transform_plan_options *options,
                            struct stoker_error *error)
{
    struct stk_transform_plan *plan = NULL;
    size_t count = options->transform_count;
    int status;

    *plan_out = NULL;
    if (count > STK_TRANSFORM_PLAN_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many transforms", order_advice,
                        "%zu transforms, most %d", count, STK_TRANSFORM_PLAN_MAX);
    }
    plan = stk_alloc(1, sizeof(*plan));
    if (plan) {
        plan->transforms = stk_alloc(count, sizeof(*plan->transforms));
    }
    if (!plan || !plan->transforms) {
        status = stk_fail_errno(error, 12, "cannot make a decode plan", "close other programs",
                                "memory");
        goto done;
    }
    if (count > 0) {
        memcpy(plan->transforms, options->transforms, count * sizeof(*plan->transforms));
    }
    plan->transform_count = count;
    plan->exif = options->exif;
    plan->planar = options->planar && !options->pixel_format;
    plan->check = options->check;
    plan->pixels_max = options->pixels_max;
    plan->memory_bytes_max = options->memory_bytes_max;
    status = fill(plan, options, error);
    if (status == 0) {
        *plan_out = plan;
        plan = NULL;
    }
done:
    stk_transform_plan_close(plan);
    return status;
}

int stk_transform_plan_link(struct stk_transform_plan **plan_out,
                            const struct stk_transform_plan *image, bool rgb_ids, uint32_t dtype,
                            struct stoker_error *error)
{
    struct stk_transform_plan_options options = {.transforms = image->transforms,
                                                 .transform_count = image->transform_count,
                                                 .dtype = dtype,
                                                 .pixel_format =
                                                     rgb_ids ? STK_CODEC_RGB_IDS : STK_CODEC_VALUES,
                                                 .check = image->check,
                                                 .pixels_max = image->pixels_max,
                                                 .memory_bytes_max = image->memory_bytes_max};

    return stk_transform_plan_open(plan_out, &options, error);
}

void stk_transform_plan_close(struct stk_transform_plan *plan)
{
    if (plan) {
        stk_free(plan->transforms);
        stk_free(plan);
    }
}

void stk_transform_plan_shape(const struct stk_transform_plan *plan,
                              struct stk_image_shape *shape_out)
{
    *shape_out = plan->shape;
}
