/* bench/crop.h: the time of a thread, and the crops that jpeg.c and png.c decode.
 * Owner: the program. Threads: one. Memory: none. Bound: none. */
#ifndef CROP_H
#define CROP_H

#include <math.h>
#include <stdint.h>
#include <time.h>

/* CPU time of this thread, so that other processes disturb less. */
static inline double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* In [0, 1): the prototype's generator and seed. */
static inline double draw(void)
{
    static uint64_t state = 88172645463325252ull;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) * (1.0 / 9007199254740992.0);
}

struct crop {
    uint32_t x, y, width, height;
};

/* RandomResizedCrop(scale=(0.08, 1), ratio=(3/4, 4/3)), drawn as the prototype draws it; the whole
 * image if ten draws do not fit. */
static inline struct crop draw_crop(uint32_t width, uint32_t height)
{
    struct crop crop = {0, 0, width, height};

    for (int i = 0; i < 10; i++) {
        double area = width * (double)height * (0.08 + 0.92 * draw());
        double ratio = exp(log(.75) + draw() * (log(4 / 3.) - log(.75)));
        uint32_t w = (uint32_t)lrint(sqrt(area * ratio)), h = (uint32_t)lrint(sqrt(area / ratio));

        if (w > 0 && w <= width && h > 0 && h <= height) {
            crop.x = (uint32_t)(draw() * (width - w + 1));
            crop.y = (uint32_t)(draw() * (height - h + 1));
            crop.width = w;
            crop.height = h;
            break;
        }
    }
    return crop;
}

#endif
