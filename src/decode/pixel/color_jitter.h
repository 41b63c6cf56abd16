/* decode/pixel/color_jitter.h: brightness, contrast, saturation and hue of a decoded RGBX image.
 *
 * The definitions are those of torchvision v2 for uint8 tensors (each step ends in 8 bits,
 * fractions are cut off). The arithmetic is integer with 16 fraction bits, so that all machines
 * agree. One step differs from torchvision's floats by at most 1/255, hue by at most 2/255. Owner:
 * values. Threads: any. Memory: none. Bound: factors in [0, STK_COLOR_JITTER_FACTOR_MAX]. */
#ifndef DECODE_PIXEL_COLOR_JITTER_H
#define DECODE_PIXEL_COLOR_JITTER_H

#include "base/base.h"

struct stk_pixel_kernels;

/* 16 fraction bits, times 255, stay below 1 << 31. */
#define STK_COLOR_JITTER_FACTOR_MAX 64.0

enum stk_color_jitter_step {
    STK_COLOR_JITTER_BRIGHTNESS,
    STK_COLOR_JITTER_CONTRAST,
    STK_COLOR_JITTER_SATURATION,
    STK_COLOR_JITTER_HUE
};
#define STK_COLOR_JITTER_STEPS 4

struct stk_color_jitter {
    uint8_t order[STK_COLOR_JITTER_STEPS]; /* enum stk_color_jitter_step, each once */
    double value[STK_COLOR_JITTER_STEPS]; /* by step: factors (1: off); hue: turns in [-0.5, 0.5] */
};

/* Applies the steps that are not off, in their order. */
void stk_color_jitter_apply(const struct stk_color_jitter *jitter,
                            const struct stk_pixel_kernels *kernels, uint8_t *rgbx,
                            uint64_t pixels);

/* One step, as the kernels take it. */
struct stk_color_transform {
    bool hue;
    /* Not hue: each channel becomes clamp((channel * own + grey * grey_share + add) >> 16). */
    int32_t own, grey_share, add;
    /* Hue: turned by so many sixths of a turn (16 fraction bits); 1 << 24 through each range. */
    int32_t turn;
    int32_t reciprocal[256];
};

#define STK_COLOR_HUE_SIXTH (1 << 16) /* a sixth of a turn */
#define STK_COLOR_HUE_CIRCLE (6 * STK_COLOR_HUE_SIXTH)

/* torchvision's grey, floor(0.2989 R + 0.587 G + 0.114 B), exactly. The quotient by 10,000 is
 * made by a multiplication that is at most 1 too low, and then put right. */
static inline int32_t stk_color_grey(int32_t red, int32_t green, int32_t blue)
{
    int32_t sum = 2989 * red + 5870 * green + 1140 * blue;
    int32_t quotient = ((sum >> 4) * 13421) >> 23; /* 2^23 / 625 = 13421.77 */

    return quotient + (sum - quotient * 10000 >= 10000);
}

#endif
