/* decode/image/transform_plan.h: the plan that stk_transform_plan_open makes of the transforms.
 * Owner: the caller that opened it. Threads: any; const after open. Memory: a copy of the
 * transforms. Bound: STK_TRANSFORM_PLAN_MAX transforms, outputs up to SIDE_MAX pixels a side. */
#ifndef DECODE_IMAGE_TRANSFORM_PLAN_H
#define DECODE_IMAGE_TRANSFORM_PLAN_H

#include "decode/image/image_decode.h"
#include "decode/pixel/pixel_kernels.h"

#define STK_TRANSFORM_PLAN_MAX 32

struct stk_transform_plan {
    struct stoker_transform *transforms; /* owned */
    size_t transform_count;
    struct stk_image_shape shape;
    struct stk_pixel_convert convert;
    bool exif, planar;
    bool jitters;          /* there is a ColorJitter */
    uint32_t pixel_format; /* enum stk_codec_pixel_format; not 0: a mask's */
    uint32_t check;        /* enum stoker_image_check; 0: TOLERANT */
    uint64_t pixels_max, memory_bytes_max;
};

#endif
