/* Goal: the sample kernels in plain C (jpeg_planes.c), in AVX2, and in SSE2 or NEON
 * (jpeg_planes_simd.c) give the same bytes, for arbitrary coefficients too, and write nothing
 * outside their output; so does unstuffing.
 * Approach: random blocks, samples and counts through the kernels of each kind, compared; needs no
 * library, so that scripts/arm64 runs it too. Takes a seed as its argument. */
#include "base/random.h"
#include "decode/jpeg/jpeg_planes.h"
#include "decode/jpeg/jpeg_segment.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define SIDE 64u   /* before and after the compared bytes */
#define COUNT 200u /* samples at most */
#define ROW (4 * COUNT + 2 * SIDE)

static uint64_t seed = 1, draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(stk_random_key(seed, draws++) % below);
}

static void fill(uint8_t *bytes, size_t count)
{
    bool extreme = draw(4) == 0;

    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(extreme ? draw(2) * 255 : draw(256));
    }
}

/* The expected rows of `count` values after both; plain's are of the first. */
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

/* Blocks of as many coefficients as an image may have, or of any 16 bits. */
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
            int16_t block[STK_JPEG_BLOCK_VALUES] __attribute__((aligned(64))) = {0};
            int16_t quantiser[64] __attribute__((aligned(64)));

            for (uint32_t i = 0; i < 64; i++) {
                uint32_t place = two[k]->coefficient_index(i / 8, i % 8);

                block[place] = rows[i];
                quantiser[place] = factors[i];
            }
            two[k]->idct(block, quantiser, got[k] + SIDE, stride);
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
            two[k]->upsample_h2v1(near + SIDE, count, got[k] + SIDE);
        } else if (which == 1) {
            two[k]->upsample_h1v2(near + SIDE, far + SIDE, below, count, got[k] + SIDE);
        } else {
            two[k]->upsample_h2v2(near + SIDE, far + SIDE, count, got[k] + SIDE);
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
            two[k]->interleave(in[0], in[1], in[2], count, got[k] + SIDE);
        } else {
            two[k]->to_rgbx(in[0], in[1], in[2], count, got[k] + SIDE);
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
        memset(window, 0xa5, sizeof window);
        stk_jpeg_segment_begin(&segment, (struct stk_view){in, bytes}, window);
        T_EQ("unstuffed", segment.filled - window, count);
        T_TRUE("unstuffed", memcmp(window, want, count) == 0 && segment.complete);
        T_TRUE("all may be read", segment.limit == segment.filled);
        for (size_t i = 0; i < STK_JPEG_MCU_BYTES_MAX; i++) {
            if (!T_EQ("zeros behind", window[count + i], 0)) {
                break;
            }
        }
    }
}

/* Windows of one long segment: their bytes, the position of each in the file, and the bytes that
 * may be read. */
static void test_windows(uint32_t rare)
{
    static uint8_t window[STK_JPEG_WINDOW_BYTES], in[1u << 17], want[1u << 17];
    static const uint8_t *from[(1u << 17) + 1];
    struct stk_jpeg_segment segment;
    size_t count = 0, at = 0;

    for (size_t i = 0; i < sizeof in; i++) {
        in[i] = (uint8_t)(draw(rare) ? draw(255) : 255);
        if (in[i] == 255) {
            in[i + 1 < sizeof in ? ++i : i] = 0;
        }
    }
    for (size_t i = 0; i < sizeof in; i += in[i] == 255 ? 2 : 1) {
        from[count] = in + i;
        want[count++] = in[i];
    }
    from[count] = in + sizeof in;
    stk_jpeg_segment_begin(&segment, (struct stk_view){in, sizeof in}, window);
    while (at < count) {
        size_t there = (size_t)(segment.filled - window), used_bits = draw(8), full_bytes = draw(8);
        size_t start = (size_t)(segment.bits.at - window) - segment.bits.count / 8;
        size_t more = there - start - (segment.complete ? 0 : draw(STK_JPEG_MCU_BYTES_MAX));
        uint32_t used, again;

        start -= segment.bits.count % 8 > 0; /* a byte that is begun */
        more = segment.complete ? more : more - 8;
        T_TRUE("a window", there <= STK_JPEG_WINDOW_BYTES - STK_JPEG_MCU_BYTES_MAX);
        T_EQ("what may be read", segment.filled - segment.limit,
             segment.complete ? 0 : STK_JPEG_MCU_BYTES_MAX);
        T_TRUE("its bytes", memcmp(window + start, want + at, there - start) == 0);
        if (segment.complete) {
            T_EQ("the end", at + there - start, count);
            break;
        }
        at += more;
        start += more;
        segment.bits.at = window + start + full_bytes + (used_bits > 0);
        segment.bits.count = (uint32_t)(8 * full_bytes + (8 - used_bits) % 8);
        T_TRUE("place", stk_jpeg_segment_position(&segment, &used) == from[at]);
        T_EQ("bits", used, used_bits);
        T_TRUE("more", stk_jpeg_segment_refill(&segment));
        T_TRUE("place", stk_jpeg_segment_position(&segment, &again) == from[at]);
        T_EQ("bits", again, used);
    }
}

/* The data after a segment, all of whose bits were used. */
static const struct restart_row {
    const char *name;
    uint8_t bytes[6];
    size_t count;
    bool used, want;
} restart_rows[] = {
    {"a marker", {1, 0xff, 0xd3, 7}, 4, true, true},
    {"at the end", {1, 0xff, 0xd3}, 3, true, true},
    {"behind fill bytes", {1, 0xff, 0xff, 0xff, 0xd3, 7}, 6, true, true},
    {"another marker", {1, 0xff, 0xd4, 7}, 4, true, false},
    {"no restart", {1, 0xff, 0xd9, 7}, 4, true, false},
    {"a byte is left", {1, 0xff, 0xd3, 7}, 4, false, false},
    {"nothing", {1}, 1, true, false},
    {"half a marker", {1, 0xff}, 2, true, false},
    {"fill bytes alone", {1, 0xff, 0xff, 0xff}, 4, true, false},
};

static void test_restarts(void)
{
    static uint8_t window[STK_JPEG_WINDOW_BYTES];

    T_EACH(restart_row, row, restart_rows)
    {
        uint8_t *data = malloc(row->count); /* exactly: for sanitizers */
        struct stk_jpeg_segment segment;

        memcpy(data, row->bytes, row->count);
        stk_jpeg_segment_begin(&segment, (struct stk_view){data, row->count}, window);
        T_EQ(row->name, segment.filled - window, 1);
        segment.bits.at += row->used;
        T_EQ(row->name, stk_jpeg_segment_restart(&segment, 11), row->want);
        T_TRUE(row->name, !row->want || segment.bits.at == window);
        T_EQ(row->name, row->want ? segment.filled - window : 0, row->want && window[0] == 7);
        free(data);
    }
}

/* AUTO selects the best kernels; NONE is requested elsewhere. */
static void test_choice(void)
{
    const struct stk_jpeg_kernels *best = stk_jpeg_kernels_get(STOKER_SIMD_AVX2);

#if defined(__x86_64__)
    T_EQ("AVX2", best != NULL, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"));
#endif
    best = best ? best : stk_jpeg_kernels_simd();
    best = best ? best : stk_jpeg_kernels_get(STOKER_SIMD_NONE);
    T_TRUE("the best", stk_jpeg_kernels_get(STOKER_SIMD_AUTO) == best);
}

int main(int count, char **arguments)
{
    const struct stk_jpeg_kernels *plain = stk_jpeg_kernels_get(STOKER_SIMD_NONE);
    const struct stk_jpeg_kernels *others[2] = {stk_jpeg_kernels_get(STOKER_SIMD_AVX2),
                                                stk_jpeg_kernels_simd()};

    seed = count > 1 ? strtoull(arguments[1], NULL, 0) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    T_STR("plain", plain->name, "none");
    test_unstuffing(4);
    test_unstuffing(64);
    test_unstuffing(100000);
    for (uint32_t rare = 1; rare < 1u << 20; rare *= 2) {
        test_windows(rare);
    }
    test_restarts();
    test_choice();
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
