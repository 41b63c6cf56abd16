/* Goal: the sample kernels in plain C (planes.c), in AVX2, and in SSE2 or NEON (planes_simd.c) give
 * the same bytes, of hostile coefficients too, and write nothing beside them; so does unstuffing.
 * Approach: random blocks, samples and counts through the kernels of each kind, compared; needs no
 * library, so that scripts/arm64 runs it too. Takes a seed as its argument. */
#include "base/hash.h"
#include "jpeg/planes.h"
#include "jpeg/segment.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define SIDE 64u   /* before and behind what is compared */
#define COUNT 200u /* samples at most */
#define ROW (4 * COUNT + 2 * SIDE)

static uint64_t seed = 1, draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(stk_key(seed, draws++) % below);
}

static void fill(uint8_t *bytes, size_t count)
{
    bool extreme = draw(4) == 0;

    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(extreme ? draw(2) * 255 : draw(256));
    }
}

/* What rows of `count` values look like behind both; plain's are of the first. */
static void same(const char *name, uint8_t got[2][ROW], size_t bytes, size_t slack)
{
    T_TRUE(name, memcmp(got[0] + SIDE, got[1] + SIDE, bytes) == 0);
    for (size_t i = 0; i < ROW; i++) {
        bool inside = i >= SIDE && i < SIDE + bytes + slack;

        if (!inside && got[1][i] != 0xa5 && !T_TRUE(name, false)) {
            break;
        }
    }
}

/* ---- blocks ---- */

/* Of as many coefficients as a picture may have, or of any 16 bits. */
static void draw_block(int16_t rows[64], int16_t quantiser[64])
{
    uint32_t dense = 1 + draw(64), bits = 1 + draw(16);

    for (uint32_t i = 0; i < 64; i++) {
        int16_t value = (int16_t)(draw(1u << bits) - (1u << bits) / 2);

        rows[i] = draw(64) < dense ? value : 0;
        quantiser[i] = (int16_t)(draw(4) ? 1 + draw(255) : draw(65536));
    }
    if (draw(4) == 0) {
        memset(rows + 8, 0, 56 * sizeof *rows); /* one row alone: another way through */
    }
}

static void test_transforms(const struct stk_jpeg_kernels *const two[2], uint32_t count)
{
    for (uint32_t n = 0; n < count; n++) {
        int16_t rows[64], factors[64];
        uint8_t got[2][ROW];
        uint32_t stride = 8 + draw(60);

        draw_block(rows, factors);
        memset(got, 0xa5, sizeof got);
        for (int k = 0; k < 2; k++) {
            int16_t block[STK_JPEG_BLOCK_COUNT] __attribute__((aligned(64))) = {0};
            int16_t quantiser[64] __attribute__((aligned(64)));

            for (uint32_t i = 0; i < 64; i++) {
                uint32_t place = two[k]->place(i / 8, i % 8);

                block[place] = rows[i];
                quantiser[place] = factors[i];
            }
            two[k]->transform(block, quantiser, got[k] + SIDE, stride);
        }
        same(two[1]->name, got, 7 * (size_t)stride + 8, 0);
    }
}

/* ---- rows ---- */

static void upsample(const struct stk_jpeg_kernels *const two[2], uint32_t which, uint32_t count)
{
    uint8_t near[COUNT + 2 * SIDE], far[COUNT + 2 * SIDE], got[2][ROW];
    bool below = draw(2);

    fill(near, sizeof near);
    fill(far, sizeof far);
    memset(got, 0xa5, sizeof got);
    for (int k = 0; k < 2; k++) {
        if (which == 0) {
            two[k]->wide(near + SIDE, count, got[k] + SIDE);
        } else if (which == 1) {
            two[k]->high(near + SIDE, far + SIDE, below, count, got[k] + SIDE);
        } else {
            two[k]->wide_and_high(near + SIDE, far + SIDE, count, got[k] + SIDE);
        }
    }
    same(two[1]->name, got, which == 1 ? count : 2 * (size_t)count, STK_JPEG_ROW_SLACK);
}

static void color(const struct stk_jpeg_kernels *const two[2], bool copies, uint32_t count)
{
    uint8_t in[3][COUNT + 2 * SIDE], got[2][ROW];

    fill(in[0], sizeof in);
    memset(got, 0xa5, sizeof got);
    for (int k = 0; k < 2; k++) {
        if (copies) {
            two[k]->copy(in[0], in[1], in[2], count, got[k] + SIDE);
        } else {
            two[k]->colors(in[0], in[1], in[2], count, got[k] + SIDE);
        }
    }
    same(two[1]->name, got, 4 * (size_t)count, 0);
}

static void test_rows(const struct stk_jpeg_kernels *const two[2])
{
    for (uint32_t count = 1; count <= COUNT; count++) {
        for (uint32_t which = 0; which < 3; which++) {
            upsample(two, which, count);
        }
        color(two, false, count);
        color(two, true, count);
    }
}

/* ---- stuffing ---- */

/* By the words of T.81 B.1.1.5, up to a marker. */
static size_t unstuffed(const uint8_t *from, size_t bytes, uint8_t *to)
{
    size_t count = 0, at = 0;

    for (; at < bytes && (from[at] != 0xff || (at + 1 < bytes && from[at + 1] == 0)); at++) {
        to[count++] = from[at];
        at += from[at] == 0xff;
    }
    return count;
}

/* Segments of all small lengths, an FF in one of `rare` bytes, half of them with their 00. */
static void test_unstuffing(uint32_t rare)
{
    static uint8_t window[STK_JPEG_WINDOW_BYTES];
    uint8_t in[3 * COUNT], want[3 * COUNT];

    for (size_t bytes = 0; bytes <= sizeof in; bytes++) {
        struct stk_jpeg_segment segment;
        size_t count;

        fill(in, sizeof in);
        for (size_t i = 0; i + 1 < sizeof in; i++) {
            if (draw(rare) == 0) {
                in[i] = 0xff;
                in[i + 1] = draw(16) ? 0 : in[i + 1];
            } else if (in[i] == 0xff && draw(16)) {
                in[i] = 0xfe;
            }
        }
        count = unstuffed(in, bytes, want);
        stk_jpeg_segment_begin(&segment, (struct stk_view){in, bytes}, window);
        T_EQ("unstuffed", segment.filled - window, count);
        T_TRUE("unstuffed", memcmp(window, want, count) == 0 && segment.whole);
    }
}

int main(int count, char **arguments)
{
    const struct stk_jpeg_kernels *plain = stk_jpeg_kernels_get(STOKER_VECTOR_NONE);
    const struct stk_jpeg_kernels *others[2] = {stk_jpeg_kernels_get(STOKER_VECTOR_AVX2),
                                                stk_jpeg_kernels_simd()};

    seed = count > 1 ? strtoull(arguments[1], NULL, 0) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    T_STR("plain", plain->name, "none");
    test_unstuffing(4);
    test_unstuffing(64);
    test_unstuffing(100000);
    for (int i = 0; i < 2; i++) {
        const struct stk_jpeg_kernels *const two[2] = {plain, others[i]};

        if (others[i]) {
            printf("%s\n", others[i]->name);
            test_transforms(two, 20000);
            test_rows(two);
        } else {
            printf("this machine has no %s\n", i ? "SSE2 or NEON" : "AVX2");
        }
    }
    return t_finish();
}
