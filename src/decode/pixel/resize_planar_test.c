/* Goal: planes that are resized as they are stored give the result of upsampling and resizing, on
 * every path, in whatever pieces their rows are pushed.
 * Method: random plans, planes of all ratios; sums in doubles over upsampled samples, reimplemented
 * here, differ by the roundings in between; a plane that is not subsampled gives the bytes of
 * resize.c; plain C against AVX2, between guards; limits and fail-nth. usage: resize_planar_test
 * [seed]. Covers resize_shuffles.c. */
#include "base/mem.h"
#include "base/random.h"
#include "decode/pixel/pixel_kernels_inner.h"
#include "decode/pixel/resize_planar.h"
#include "test/t.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 20261122;

static uint32_t draw(uint32_t low, uint32_t high)
{
    static uint64_t count;

    return low + (uint32_t)(stk_random_key(seed, count++) % (high - low + 1));
}

struct plane {
    struct stk_resize_plane shape;
    size_t stride;
    uint8_t *samples; /* slack after each row */
};

static struct plane make_plane(uint32_t width, uint32_t height, uint32_t h_ratio, uint32_t v_ratio)
{
    struct plane plane = {
        .shape = {(width + h_ratio - 1) / h_ratio, (height + v_ratio - 1) / v_ratio, h_ratio,
                  v_ratio, h_ratio == 2 && draw(0, 3) > 0, v_ratio == 2 && draw(0, 3) > 0}};

    plane.stride = plane.shape.width + STK_RESIZE_PLANAR_ROW_SLACK;
    plane.samples = stk_alloc(plane.stride, plane.shape.height);
    for (size_t i = 0; i < plane.stride * plane.shape.height; i++) {
        plane.samples[i] = (uint8_t)stk_random_key(seed, i);
    }
    return plane;
}

/* A random resize of a part of a picture of width x height. */
static struct stk_resize_planar_plan draw_plan(uint32_t width, uint32_t height)
{
    struct stk_resize_planar_plan plan = {
        .resize = {.source_width = draw(1, width),
                   .source_height = draw(1, height),
                   .target_width = draw(1, 90),
                   .target_height = draw(1, 90),
                   .filter = draw(0, 2) ? STOKER_BILINEAR : STOKER_BICUBIC,
                   .flip = draw(0, 1)}};
    struct stk_resize_plan *resize = &plan.resize;
    uint32_t x0, x1, y0, y1;

    if (draw(0, 7) == 0) {
        resize->target_width = resize->source_width = draw(1, width < 90 ? width : 90);
    }
    if (draw(0, 7) == 0) {
        resize->target_height = resize->source_height = draw(1, height < 90 ? height : 90);
    }
    resize->window_width = draw(1, resize->target_width);
    resize->window_height = draw(1, resize->target_height);
    resize->window_x = draw(0, resize->target_width - resize->window_width);
    resize->window_y = draw(0, resize->target_height - resize->window_height);
    stk_resize_region(resize, &x0, &x1, &y0, &y1);
    plan.x = x0 + draw(0, width - resize->source_width);
    plan.y = y0 + draw(0, height - resize->source_height);
    return plan;
}

/* All rows of the window, planes one after the other, fed in bands as a decoder would. */
static void run(struct stk_resize_planar *planar, const struct stk_resize_planar_plan *plan,
                const struct plane *planes, uint8_t *out)
{
    size_t width = plan->resize.window_width, height = plan->resize.window_height;
    /* Rows of the picture: a multiple of each ratio, of which no plane has too many. */
    uint32_t band = 0, size = draw(1, 2) * 12;

    T_EQ("begin",
         stk_resize_planar_begin(planar, plan, stk_resize_planar_memory_bytes(&plan->resize), NULL),
         0);
    for (uint32_t y = 0; y < height; y++) {
        const uint8_t *samples[3];

        for (; stk_resize_planar_needs(planar, y); band++) {
            for (uint32_t i = 0; i < plan->plane_count; i++) {
                const struct stk_resize_plane *shape = &planes[i].shape;
                uint32_t count = size / shape->v_ratio, from = band * count;
                uint32_t end = (uint32_t)stk_min(from + count, shape->height);
                uint32_t column = plan->x / shape->h_ratio;

                column = column > 1 && draw(0, 1) ? column - 1 : 0;
                if (from < end) {
                    stk_resize_planar_push(planar, i,
                                           &(struct stk_resize_planar_rows){
                                               planes[i].samples + from * planes[i].stride + column,
                                               planes[i].stride, from, end - from, column});
                }
            }
        }
        stk_resize_planar_row(planar, y, samples);
        for (uint32_t i = 0; i < plan->plane_count; i++) {
            memcpy(out + (i * height + y) * width, samples[i], width);
        }
    }
}

/* ---- in doubles ---- */

static double filter_value(uint32_t filter, double x)
{
    x = fabs(x);
    if (filter == STOKER_BILINEAR) {
        return x < 1 ? 1 - x : 0;
    }
    return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

/* Weights of output i of an axis over pixels 0 .. source - 1. */
static void weigh(uint32_t source, uint32_t target, uint32_t filter, uint32_t i, double *weights)
{
    double scale = (double)source / target, stretch = scale > 1 ? scale : 1, total = 0;
    double reach = (filter == STOKER_BICUBIC ? 2 : 1) * stretch, center = scale * (i + 0.5);

    for (uint32_t p = 0; p < source; p++) {
        bool in = p >= (int64_t)(center - reach + 0.5) && p < (int64_t)(center + reach + 0.5);

        weights[p] = source == target ? p == i
                     : in             ? filter_value(filter, (p - center + 0.5) / stretch)
                                      : 0;
        total += weights[p];
    }
    for (uint32_t p = 0; p < source; p++) {
        weights[p] /= total;
    }
}

/* Pixel i of an upsampled line, of which sample j is at(j). */
static double upsampled(const double *line, uint32_t count, uint32_t ratio, bool smooth, uint32_t i)
{
    int64_t j = i / ratio, beside = j + (i % 2 ? 1 : -1);

    beside = beside < 0 ? 0 : beside >= count ? count - 1 : beside;
    return smooth ? 0.75 * line[j] + 0.25 * line[beside] : line[j];
}

/* Output x, y of the window. */
static double expected(const struct stk_resize_planar_plan *plan, const struct plane *plane,
                       uint32_t x, uint32_t y)
{
    static double across[512], down[512], line[512], column[512];
    const struct stk_resize_plan *resize = &plan->resize;
    const struct stk_resize_plane *shape = &plane->shape;
    uint32_t x0, x1, y0, y1;
    double sum = 0;

    stk_resize_region(resize, &x0, &x1, &y0, &y1);
    x = resize->window_x + (resize->flip ? resize->window_width - 1 - x : x);
    weigh(resize->source_width, resize->target_width, resize->filter, x, across);
    weigh(resize->source_height, resize->target_height, resize->filter, resize->window_y + y, down);
    for (uint32_t j = 0; j < shape->height; j++) {
        column[j] = 0;
        for (uint32_t i = 0; i < shape->width; i++) {
            line[i] = plane->samples[j * plane->stride + i];
        }
        for (uint32_t p = 0; p < resize->source_width; p++) {
            if (across[p] != 0) {
                column[j] += across[p] * upsampled(line, shape->width, shape->h_ratio,
                                                   shape->smooth_x, plan->x - x0 + p);
            }
        }
        column[j] = column[j] < 0 ? 0 : column[j] > 255 ? 255 : column[j];
    }
    for (uint32_t p = 0; p < resize->source_height; p++) {
        sum += down[p] == 0 ? 0
                            : down[p] * upsampled(column, shape->height, shape->v_ratio,
                                                  shape->smooth_y, plan->y - y0 + p);
    }
    return sum < 0 ? 0 : sum > 255 ? 255 : sum;
}

static void test_sums(struct stk_resize_planar *const *planars)
{
    static uint8_t out[2][3 * 90 * 90];
    double worst = 0;

    for (int n = 0; n < 300; n++) {
        uint32_t width = draw(1, 200), height = draw(1, 200);
        uint32_t h_ratio = draw(1, 4), v_ratio = draw(1, 4);
        uint32_t h_other = draw(0, 2) ? h_ratio : draw(1, 4);
        uint32_t v_other = draw(0, 2) ? v_ratio : draw(1, 4);
        struct stk_resize_planar_plan plan = draw_plan(width, height);
        struct plane planes[3] = {make_plane(width, height, 1, 1),
                                  make_plane(width, height, h_ratio, v_ratio),
                                  make_plane(width, height, h_other, v_other)};
        size_t bytes = (size_t)plan.resize.window_width * plan.resize.window_height;
        char name[64];

        snprintf(name, sizeof(name), "plan %d", n);
        plan.plane_count = draw(0, 3) ? 3 : 1;
        for (uint32_t i = 0; i < plan.plane_count; i++) {
            plan.planes[i] = planes[i].shape;
        }
        for (int path = 0; path < 2 && planars[path]; path++) {
            run(planars[path], &plan, planes, out[path]);
        }
        T_TRUE(name, !planars[1] || memcmp(out[0], out[1], plan.plane_count * bytes) == 0);
        for (int k = 0; k < 40; k++) {
            uint32_t i = draw(0, plan.plane_count - 1);
            uint32_t x = draw(0, plan.resize.window_width - 1);
            uint32_t y = draw(0, plan.resize.window_height - 1);
            double want = expected(&plan, &planes[i], x, y);
            double got = out[0][i * bytes + (size_t)y * plan.resize.window_width + x];

            worst = fabs(got - want) > worst ? fabs(got - want) : worst;
        }
        for (int i = 0; i < 3; i++) {
            stk_free(planes[i].samples);
        }
    }
    printf("furthest from the sums in doubles: %.3f\n", worst);
    /* Half a level at the end, half of one in between (times 1.3 or so if bicubic weights are
     * negative), and the error of weights with 16 bits. */
    T_TRUE("rounding only", worst < 1.2);
}

/* ---- bytes of resize.c ---- */

static void test_same_as_rows(struct stk_resize_planar *planar,
                              const struct stk_pixel_kernels *kernels)
{
    static uint8_t out[3 * 90 * 90], row[4 * 90];
    struct stk_resize *resize = NULL;

    T_EQ("open", stk_resize_open(&resize, kernels, NULL), 0);
    for (int n = 0; n < 200; n++) {
        uint32_t width = draw(1, 300), height = draw(1, 300), x0, x1, y0, y1;
        struct stk_resize_planar_plan plan = draw_plan(width, height);
        struct plane plane = make_plane(width, height, 1, 1);
        bool same = true;
        uint32_t next = plan.y;

        plan.plane_count = 1;
        plan.planes[0] = plane.shape;
        run(planar, &plan, &plane, out);
        stk_resize_region(&plan.resize, &x0, &x1, &y0, &y1);
        T_EQ("rows", stk_resize_begin(resize, &plan.resize, x1 - x0, 0, UINT64_MAX, NULL), 0);
        for (uint32_t y = 0; y < plan.resize.window_height; y++) {
            uint8_t *wanted;

            while (stk_resize_wanted(resize, y, &wanted, 1) > 0) {
                for (uint32_t x = 0; x < x1 - x0; x++) {
                    memset(wanted + 4 * x, plane.samples[next * plane.stride + plan.x + x], 4);
                }
                next++;
                stk_resize_push(resize, 1);
            }
            stk_resize_row(resize, y, row);
            for (uint32_t x = 0; x < plan.resize.window_width; x++) {
                same = same && row[4 * x] == out[y * plan.resize.window_width + x];
            }
        }
        T_TRUE("the bytes of rows", same);
        stk_free(plane.samples);
    }
    stk_resize_close(resize);
}

/* Between guards: rows are written to their last sample, and not past it. */
static void test_weaving(void)
{
    const struct stk_pixel_kernels *paths[] = {stk_pixel_kernels_get(STOKER_SIMD_NONE),
                                               stk_pixel_kernels_get(STOKER_SIMD_AUTO)};

    for (uint32_t count = 1; count <= 70; count++) {
        for (size_t path = 0; path < STK_COUNT(paths); path++) {
            uint8_t in[4][128], woven[4 * 128], back[4][128];
            const uint8_t *from[4] = {in[0], in[1], in[2], in[3]};
            uint8_t *to[4] = {back[0], back[1], back[2], back[3]};
            bool good = true;

            memset(back, 0xa5, sizeof(back));
            for (size_t i = 0; i < sizeof(in); i++) {
                in[i / 128][i % 128] = (uint8_t)stk_random_key(seed, i);
            }
            paths[path]->interleave(from, count, woven);
            paths[path]->deinterleave(woven, count, to);
            for (uint32_t i = 0; i < 4 * count; i++) {
                good = good && woven[i] == in[i % 4][i / 4];
            }
            for (int r = 0; r < 4; r++) {
                good = good && memcmp(in[r], back[r], count) == 0 && back[r][count] == 0xa5;
            }
            T_TRUE("woven and back", good);
        }
    }
}

static void test_limits(struct stk_resize_planar *planar)
{
    struct stk_resize_planar_plan plan = draw_plan(100, 100);
    struct plane plane = make_plane(100, 100, 1, 1);
    uint64_t ticket = stk_resize_planar_memory_bytes(&plan.resize);
    struct stoker_error error = {0};
    struct stk_resize_planar *none = planar;

    plan.plane_count = 1;
    plan.planes[0] = plane.shape;
    stk_mem_fail_nth(1);
    T_EQ("no memory", stk_resize_planar_open(&none, stk_pixel_kernels_get(0), &error), -ENOMEM);
    T_ERROR("no memory", &error);
    T_TRUE("none", !none);
    stk_resize_planar_trim(planar, 0);
    T_EQ("trimmed", stk_resize_planar_bytes(planar), 0);
    T_EQ("too much", stk_resize_planar_begin(planar, &plan, ticket - 1, &error),
         STOKER_ERROR_LIMIT);
    T_ERROR("too much", &error);
    stk_mem_fail_nth(1);
    T_TRUE("no memory", stk_resize_planar_begin(planar, &plan, ticket, &error) < 0);
    T_ERROR("no memory", &error);
    stk_mem_fail_nth(0);
    T_EQ("enough", stk_resize_planar_begin(planar, &plan, ticket, &error), 0);
    T_EQ("what was said", stk_resize_planar_bytes(planar), ticket);
    plan.resize.source_width = 1u << 25;
    T_EQ("too long", stk_resize_planar_begin(planar, &plan, UINT64_MAX, &error),
         STOKER_ERROR_LIMIT);
    T_ERROR("too long", &error);
    stk_free(plane.samples);
}

int main(int argc, char **argv)
{
    const struct stk_pixel_kernels *vectors = stk_pixel_kernels_get(STOKER_SIMD_AVX2);
    struct stk_resize_planar *planars[2] = {NULL};
    int64_t alive = stk_mem_alive();

    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    T_EQ("open", stk_resize_planar_open(&planars[0], stk_pixel_kernels_get(STOKER_SIMD_NONE), NULL),
         0);
    if (vectors) {
        T_EQ("open", stk_resize_planar_open(&planars[1], vectors, NULL), 0);
        test_same_as_rows(planars[1], vectors);
        test_sums(planars);
    }
    if (stk_pixel_kernels_simd()) { /* against plain C */
        stk_resize_planar_close(planars[1]);
        T_EQ("open", stk_resize_planar_open(&planars[1], stk_pixel_kernels_simd(), NULL), 0);
        test_sums(planars);
    }
    test_same_as_rows(planars[0], stk_pixel_kernels_get(STOKER_SIMD_NONE));
    test_weaving();
    test_limits(planars[0]);
    stk_resize_planar_close(planars[0]);
    stk_resize_planar_close(planars[1]);
    stk_resize_planar_close(NULL);
    T_EQ("no leak", stk_mem_alive(), alive);
    return t_finish();
}
