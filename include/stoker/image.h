/* stoker/image.h: transforms of image fields. */
#ifndef STOKER_IMAGE_H
#define STOKER_IMAGE_H

#include <stoker/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The longest side of a result of a transform, in pixels. */
#define STOKER_TRANSFORM_SIDE_MAX 16384u

/* Names, defaults and meaning are those of torchvision.transforms.v2. */
enum stoker_transform_kind {
    STOKER_RANDOM_RESIZED_CROP = 1, /* height, width, scale[2], ratio[2], filter */
    STOKER_RESIZE,                  /* height, width (0: short side = height), filter, max_size */
    STOKER_CENTER_CROP,             /* height, width */
    STOKER_RANDOM_CROP,             /* height, width */
    STOKER_RANDOM_HORIZONTAL_FLIP,  /* probability */
    STOKER_RANDOM_VERTICAL_FLIP,    /* probability */
    STOKER_COLOR_JITTER,            /* brightness, contrast, saturation, hue: [low, high] each */
    STOKER_NORMALIZE,               /* mean[3], std[3], for values in [0, 1] */
};

enum stoker_filter { STOKER_BILINEAR = 1, STOKER_BICUBIC, STOKER_NEAREST };

/* Fields have no default here: the caller sets all fields that the kind lists (as python/stoker
 * does). */
struct stoker_transform {
    uint32_t kind; /* enum stoker_transform_kind */
    uint32_t height, width;
    uint32_t filter; /* enum stoker_filter */
    uint32_t max_size;
    double scale[2], ratio[2];
    double probability;
    double brightness[2], contrast[2], saturation[2]; /* factors; {1, 1}: off */
    double hue[2];                                    /* shift in turns; {0, 0}: off */
    float mean[3], std[3];
};

enum stoker_layout { STOKER_NCHW = 1, STOKER_NHWC };

#ifdef __cplusplus
}
#endif
#endif
