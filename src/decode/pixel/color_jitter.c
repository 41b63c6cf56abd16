/* Colour jitter: the numbers of each step; the pixels are the kernels' work. */
#include "decode/pixel/color_jitter.h"

#include "decode/pixel/pixel_kernels.h"

#define ONE 65536

/* torchvision multiplies in float32, where a product with an exact integer value is exact; with a
 * factor of 16 fraction bits it is too low or too high by up to 255 / 2: half of that is added
 * before the cut. */
#define NUDGE 64

/* Half away from zero. */
static int32_t fixed(double value)
{
    return (int32_t)(value * ONE + (value < 0.0 ? -0.5 : 0.5));
}

static void hue_step(struct stk_color_transform *recolor, double turns)
{
    recolor->hue = true;
    recolor->turn = fixed(turns * 6.0);
    for (int32_t range = 1; range < 256; range++) {
        recolor->reciprocal[range] = ((1 << 24) + range / 2) / range;
    }
}

static void factor_step(struct stk_color_transform *recolor, uint8_t step, double factor,
                        double mean)
{
    recolor->own = fixed(factor);
    recolor->add = NUDGE;
    if (step == STK_COLOR_JITTER_CONTRAST) {
        recolor->add += fixed(mean * (1.0 - factor));
    } else if (step == STK_COLOR_JITTER_SATURATION) {
        recolor->grey_share = ONE - recolor->own; /* grey pixels stay as they are */
    }
}

void stk_color_jitter_apply(const struct stk_color_jitter *jitter,
                            const struct stk_pixel_kernels *kernels, uint8_t *rgbx, uint64_t pixels)
{
    for (int i = 0; i < STK_COLOR_JITTER_STEPS && pixels > 0; i++) {
        uint8_t step = jitter->order[i];
        double value = jitter->value[step], mean = 0.0;
        struct stk_color_transform recolor = {0};

        if (value == (step == STK_COLOR_JITTER_HUE ? 0.0 : 1.0)) {
            continue;
        }
        if (step == STK_COLOR_JITTER_HUE) {
            STK_ASSERT(value >= -0.5 && value <= 0.5);
            hue_step(&recolor, value);
        } else {
            STK_ASSERT(value >= 0.0 && value <= STK_COLOR_JITTER_FACTOR_MAX);
            if (step == STK_COLOR_JITTER_CONTRAST) {
                mean = (double)kernels->grey_sum(rgbx, pixels) / (double)pixels;
            }
            factor_step(&recolor, step, value, mean);
        }
        kernels->recolor(&recolor, rgbx, pixels);
    }
}
