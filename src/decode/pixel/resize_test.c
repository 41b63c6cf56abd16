/* Goal: a resized image is torchvision's, on every path and in whatever pieces its rows are pushed.
 * Method: digests of the results of torch 2.13 for fixed images (torch.nn.functional.interpolate of
 * uint8, antialias=True); random plans against sums in doubles, reimplemented here; plain C against
 * AVX2; windows and flips against parts of the complete result; limits and fail-nth. usage:
 * resize_test [seed]. Covers resize_weights.c. */
#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/random.h"
#include "decode/pixel/pixel_kernels_inner.h"
#include "decode/pixel/resize.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

static uint64_t seed = 20260801;

static uint32_t draw(uint32_t low, uint32_t high)
{
    static uint64_t count;

    return low + (uint32_t)(stk_random_key(seed, count++) % (high - low + 1));
}

/* The bytes that the golden digests were made of. */
static uint8_t *make_picture(uint32_t width, uint32_t height)
{
    size_t bytes = 4 * (size_t)width * height;
    uint8_t *picture = stk_alloc(bytes, 1);

    for (size_t i = 0; i < bytes; i++) {
        picture[i] = (uint8_t)stk_mix64(i);
    }
    return picture;
}

/* Feeds the rows, at most `chunk` at a time, with `skip` strange pixels on both sides. */
static int run(struct stk_resize *resize, const struct stk_resize_plan *plan,
               const uint8_t *picture, uint32_t chunk, uint32_t skip, uint8_t *out)
{
    uint32_t x0, x1, y0, y1, count;
    uint8_t *rows[64];
    int status;

    stk_resize_region(plan, &x0, &x1, &y0, &y1);
    status = stk_resize_begin(resize, plan, x1 - x0 + 2 * skip, skip, 1 << 30, NULL);
    for (uint32_t row = 0; status == 0 && row < plan->window_height; row++) {
        while ((count = stk_resize_wanted(resize, row, rows, chunk)) > 0) {
            T_TRUE("libjpeg-turbo would pass by the caches", (uintptr_t)rows[0] % 32 != 0);
            for (uint32_t i = 0; i < count; i++, y0++) {
                memset(rows[i], 0xee, 4 * (size_t)(x1 - x0 + 2 * skip));
                memcpy(rows[i] + 4 * skip, picture + 4 * ((size_t)y0 * plan->source_width + x0),
                       4 * (size_t)(x1 - x0));
            }
            stk_resize_push(resize, count);
        }
        stk_resize_row(resize, row, out + 4 * (size_t)row * plan->window_width);
    }
    T_TRUE("no row past the region", y0 <= y1);
    return status;
}

static struct stk_resize_plan full_plan(uint32_t width, uint32_t height, uint32_t target_width,
                                        uint32_t target_height, uint32_t filter)
{
    return (struct stk_resize_plan){.source_width = width,
                                    .source_height = height,
                                    .target_width = target_width,
                                    .target_height = target_height,
                                    .window_width = target_width,
                                    .window_height = target_height,
                                    .filter = filter};
}

static const struct golden_row {
    const char *name;
    uint32_t width, height, target_width, target_height;
    const char *want[3]; /* bilinear, bicubic, nearest: SHA-256 of the RGB bytes, its first half */
} golden_rows[] = {
    {"photo crop",
     316,
     237,
     224,
     224,
     {"ecdaff8b800022ce", "65c1c8f99c94fa7e", "8cea0164b785286a"}},
    {"halved", 64, 48, 32, 24, {"92515e47ae80701f", "4fb6caaa8dbdc7f3", "975bce219e5a7d95"}},
    {"much smaller", 301, 211, 7, 5, {"4520ee0e247972a7", "10cb529926faff40", "75534a5c3fe79cf7"}},
    {"larger", 9, 7, 31, 40, {"f6af939049ba90a6", "f7143a75d0f905bd", "64d9ccd9b1068224"}},
    {"one pixel wide", 1, 50, 16, 20, {"0dfcd0fa43cada27", "a19f8fcdd25af4fb", "0c97a03ddd188080"}},
    {"one pixel high", 50, 1, 20, 16, {"e7e439f1249402c8", "13b620d4b989ef3a", "6891a71d3bc8d5ab"}},
    {"to one pixel", 37, 53, 1, 1, {"56a6cf151104556b", "56a6cf151104556b", "4d8c6767905f94f6"}},
    {"from one pixel", 1, 1, 5, 4, {"eb45fb51c08d9990", "eb45fb51c08d9990", "eb45fb51c08d9990"}},
    {"only across", 40, 30, 23, 30, {"4836690af225d751", "bbbbc8492047dcc3", "5bd649cfd4e947d6"}},
    {"only down", 40, 30, 40, 17, {"1855a7b89190c4af", "6d894bb97d38b756", "9b1c4430ce6d6486"}},
    {"doubled", 11, 13, 22, 26, {"725e14bd5932b173", "c77c14b50b9a2241", "02c3e801b43bb482"}},
    {"as it is", 12, 9, 12, 9, {"68c622e5acc2b2fd", "68c622e5acc2b2fd", "68c622e5acc2b2fd"}},
};

static void rgb_digest(const uint8_t *rgbx, size_t pixels, char *hex_out)
{
    struct stk_sha256 sha;
    uint8_t digest[32];

    stk_sha256_init(&sha);
    for (size_t i = 0; i < pixels; i++) {
        stk_sha256_add(&sha, rgbx + 4 * i, 3);
    }
    stk_sha256_done(&sha, digest);
    for (int i = 0; i < 8; i++) {
        snprintf(hex_out + 2 * i, 3, "%02x", digest[i]);
    }
}

static void test_golden(struct stk_resize *resize)
{
    T_EACH(golden_row, row, golden_rows)
    {
        uint8_t *picture = make_picture(row->width, row->height);
        size_t pixels = (size_t)row->target_width * row->target_height;
        uint8_t *out = stk_alloc(pixels, 4);

        for (uint32_t filter = STOKER_BILINEAR; filter <= STOKER_NEAREST; filter++) {
            struct stk_resize_plan plan =
                full_plan(row->width, row->height, row->target_width, row->target_height, filter);
            char hex[17];

            T_EQ(row->name, run(resize, &plan, picture, 64, 0, out), 0);
            rgb_digest(out, pixels, hex);
            T_STR(row->name, hex, row->want[filter - STOKER_BILINEAR]);
        }
        stk_free(picture);
        stk_free(out);
    }
}

static double weight(uint32_t filter, double x)
{
    x = x < 0 ? -x : x;
    if (filter == STOKER_BILINEAR) {
        return x < 1 ? 1 - x : 0;
    }
    return x < 1   ? 1.5 * x * x * x - 2.5 * x * x + 1
           : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2
                   : 0;
}

/* One output of one axis, over all samples: slow and plain. */
static double exact_sum(const double *samples, uint32_t stride, uint32_t count, uint32_t target,
                        uint32_t i, uint32_t filter)
{
    double scale = (double)count / target, wide = scale > 1 ? scale : 1, sum = 0, total = 0;

    if (count == target) {
        return samples[(size_t)i * stride];
    }
    for (uint32_t t = 0; t < count; t++) {
        double w = weight(filter, (t + 0.5 - scale * (i + 0.5)) / wide);

        sum += w * samples[(size_t)t * stride];
        total += w;
    }
    sum /= total;
    return sum < 0 ? 0 : sum > 255 ? 255 : sum; /* torch cuts between the two passes, too */
}

/* The largest distance of any channel to the exact value. */
static double worst_distance(const struct stk_resize_plan *plan, const uint8_t *picture,
                             const uint8_t *out)
{
    uint32_t width = plan->source_width, height = plan->source_height;
    uint32_t wide = plan->target_width, high = plan->target_height;
    double *samples = stk_alloc((size_t)width * height, sizeof(double)), worst = 0;
    double *narrow = stk_alloc((size_t)wide * height, sizeof(double));

    for (int c = 0; c < 3; c++) {
        for (size_t i = 0; i < (size_t)width * height; i++) {
            samples[i] = picture[4 * i + c];
        }
        for (uint32_t i = 0; i < wide * height; i++) {
            narrow[i] = exact_sum(samples + (size_t)(i / wide) * width, 1, width, wide, i % wide,
                                  plan->filter);
        }
        for (uint32_t i = 0; i < wide * high; i++) {
            double want = exact_sum(narrow + i % wide, wide, height, high, i / wide, plan->filter);
            double distance = want - out[4 * (size_t)i + c];

            distance = distance < 0 ? -distance : distance;
            worst = distance > worst ? distance : worst;
        }
    }
    stk_free(samples);
    stk_free(narrow);
    return worst;
}

static uint32_t draw_side(void)
{
    return draw(0, 5) == 0 ? draw(1, 3) : draw(1, 90);
}

/* A random window of the plan, flipped or not, in pieces, on both paths: the same part of
 * `out`. */
static void check_window(struct stk_resize *const *resizes, const struct stk_resize_plan *all,
                         const uint8_t *picture, const uint8_t *out)
{
    struct stk_resize_plan plan = *all;
    uint8_t *part = stk_alloc((size_t)all->target_width * all->target_height, 4);
    bool same = true;

    plan.flip = draw(0, 1);
    plan.window_width = draw(1, all->target_width);
    plan.window_height = draw(1, all->target_height);
    plan.window_x = draw(0, all->target_width - plan.window_width);
    plan.window_y = draw(0, all->target_height - plan.window_height);
    for (int path = 0; path < 2 && resizes[path]; path++) {
        T_EQ("window", run(resizes[path], &plan, picture, draw(1, 20), draw(0, 9), part), 0);
        for (uint32_t i = 0; i < plan.window_width * plan.window_height; i++) {
            uint32_t x = i % plan.window_width, y = plan.window_y + i / plan.window_width;

            x = plan.window_x + (plan.flip ? plan.window_width - 1 - x : x);
            same = same && memcmp(part + 4 * (size_t)i,
                                  out + 4 * ((size_t)y * all->target_width + x), 3) == 0;
        }
    }
    T_TRUE("window is a part of the whole", same);
    stk_free(part);
}

static void test_random(struct stk_resize *const *resizes)
{
    double worst = 0;

    for (int round = 0; round < 250; round++) {
        struct stk_resize_plan plan = full_plan(draw_side(), draw_side(), draw_side(), draw_side(),
                                                draw(STOKER_BILINEAR, STOKER_NEAREST));
        size_t pixels = (size_t)plan.target_width * plan.target_height;
        uint8_t *picture = make_picture(plan.source_width, plan.source_height);
        uint8_t *out = stk_alloc(pixels, 4), *other = stk_alloc(pixels, 4);
        double distance = 0;

        T_EQ("complete", run(resizes[0], &plan, picture, 64, 0, out), 0);
        if (plan.filter != STOKER_NEAREST) {
            distance = worst_distance(&plan, picture, out);
        }
        worst = distance > worst ? distance : worst;
        /* Half a level from each of the two roundings; bicubic weights enlarge the first. */
        if (!T_TRUE("near the exact value", distance < 1.25)) {
            printf("%ux%u to %ux%u filter %u: %f\n", plan.source_width, plan.source_height,
                   plan.target_width, plan.target_height, plan.filter, distance);
        }
        if (resizes[1]) {
            T_EQ("complete", run(resizes[1], &plan, picture, 3, 2, other), 0);
            T_TRUE("same bytes", memcmp(out, other, 4 * pixels) == 0);
        }
        check_window(resizes, &plan, picture, out);
        stk_free(picture);
        stk_free(out);
        stk_free(other);
    }
    printf("worst distance to the exact value: %.3f of 255\n", worst);
}

/* A white picture stays white: the rounded weights add up well enough, whatever the sizes. */
static void test_white(struct stk_resize *resize)
{
    static const uint32_t sides[][2] = {{1, 1000}, {20000, 3}, {4096, 4095}, {777, 5}};
    uint8_t *picture = stk_alloc(20000, 4), *out = stk_alloc(4096, 4);

    memset(picture, 255, 4 * 20000);
    for (size_t i = 0; i < STK_COUNT(sides); i++) {
        for (uint32_t filter = STOKER_BILINEAR; filter <= STOKER_NEAREST; filter++) {
            struct stk_resize_plan plan = full_plan(sides[i][0], 1, sides[i][1], 1, filter);
            bool white = true;

            T_EQ("across", run(resize, &plan, picture, 1, 0, out), 0);
            for (uint32_t k = 0; k < 4 * sides[i][1]; k++) {
                white = white && out[k] == 255;
            }
            plan = full_plan(1, sides[i][0], 1, sides[i][1], filter);
            T_EQ("down", run(resize, &plan, picture, 7, 0, out), 0);
            for (uint32_t k = 0; k < 4 * sides[i][1]; k++) {
                white = white && out[k] == 255;
            }
            T_TRUE("white", white);
        }
    }
    stk_free(picture);
    stk_free(out);
}

static void test_limits(void)
{
    struct stk_resize_plan plan = full_plan(300, 300, 20, 20, STOKER_BICUBIC);
    struct stk_resize *resize = (void *)&plan;
    struct stoker_error error = {0};
    int64_t alive = stk_mem_alive();
    uint64_t ticket = stk_resize_memory_bytes(&plan, 300);

    stk_mem_fail_nth(1);
    T_EQ("no memory", stk_resize_open(&resize, stk_pixel_kernels_get(0), &error), -12);
    T_ERROR("no memory", &error);
    T_TRUE("nothing given", resize == NULL);
    T_EQ("open", stk_resize_open(&resize, stk_pixel_kernels_get(0), &error), 0);
    T_EQ("too small", stk_resize_begin(resize, &plan, 300, 0, ticket - 1, &error),
         STOKER_ERROR_LIMIT);
    T_ERROR("too small", &error);
    stk_mem_fail_nth(1);
    T_EQ("no memory", stk_resize_begin(resize, &plan, 300, 0, ticket, &error), -12);
    T_ERROR("no memory", &error);
    T_EQ("fits", stk_resize_begin(resize, &plan, 300, 0, ticket, &error), 0);
    T_EQ("holds", (long long)stk_resize_bytes(resize), (long long)ticket);
    stk_resize_trim(resize, ticket);
    T_EQ("retained", (long long)stk_resize_bytes(resize), (long long)ticket);
    stk_resize_trim(resize, 1);
    T_EQ("given back", (long long)stk_resize_bytes(resize), 0);
    plan = full_plan(3, 20000000, 3, 4, STOKER_BILINEAR);
    T_EQ("too long", stk_resize_begin(resize, &plan, 3, 0, UINT64_MAX, &error), STOKER_ERROR_LIMIT);
    T_ERROR("too long", &error);
    stk_resize_close(resize);
    stk_resize_close(NULL);
    T_EQ("no leak", stk_mem_alive(), alive);
}

int main(int argc, char **argv)
{
    const struct stk_pixel_kernels *kernels[2] = {stk_pixel_kernels_get(STOKER_SIMD_NONE),
                                                  stk_pixel_kernels_get(STOKER_SIMD_AVX2)};
    struct stk_resize *resizes[2] = {NULL};

    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int path = 0; path < 2 && kernels[path]; path++) {
        T_EQ("open", stk_resize_open(&resizes[path], kernels[path], NULL), 0);
        test_golden(resizes[path]);
        test_white(resizes[path]);
    }
    test_random(resizes);
    if (stk_pixel_kernels_simd()) {
        stk_resize_close(resizes[1]);
        T_EQ("open", stk_resize_open(&resizes[1], stk_pixel_kernels_simd(), NULL), 0);
        test_golden(resizes[1]);
        test_white(resizes[1]);
        test_random(resizes);
    }
    stk_resize_close(resizes[0]);
    stk_resize_close(resizes[1]);
    test_limits();
    return t_finish();
}
