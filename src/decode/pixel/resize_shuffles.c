/* Outputs in groups of four: where their samples start, and which bytes each takes of them. */
#include "decode/pixel/resize_shuffles.h"

#include <string.h>

#define VECTOR_SAMPLES 16u
#define BLOCK_WEIGHTS (4u * STK_RESIZE_SHUFFLES_OUTPUTS) /* of four taps */

/* Samples of four outputs are at most 3 * 3 and 1 for rounding apart, and one more where they were
 * upsampled; each takes four. */
#define SHRINK_MAX 3u

bool stk_resize_shuffles_fit(const struct stk_resize_axis *plan)
{
    return plan->source <= SHRINK_MAX * (uint64_t)plan->target;
}

static uint64_t block_count(uint32_t count)
{
    return stk_round_up(count, STK_RESIZE_SHUFFLES_OUTPUTS) / STK_RESIZE_SHUFFLES_OUTPUTS;
}

uint64_t stk_resize_shuffles_bytes(uint32_t count, uint32_t taps_max)
{
    return block_count(count) * (sizeof(struct stk_resize_shuffles_block) +
                                 BLOCK_WEIGHTS * sizeof(int16_t) * (taps_max / 4));
}

/* Outputs x .. x + 3, of which those past the last sum nothing. */
static void build_four(const struct stk_resize_shuffles *picks,
                       const struct stk_resize_weights *axis, uint32_t x)
{
    static const int16_t none[2];
    uint32_t vector = x / 4 % 2, half = x / 8 % 2;
    struct stk_resize_shuffles_block *block = &picks->blocks[x / STK_RESIZE_SHUFFLES_OUTPUTS];
    int16_t *to =
        picks->weights + (size_t)(x / STK_RESIZE_SHUFFLES_OUTPUTS) * picks->quads * BLOCK_WEIGHTS;
    uint32_t used = (uint32_t)stk_min(4, axis->count - stk_min(x, axis->count));
    uint32_t first = used ? axis->first[x] : 0;

    for (uint32_t i = 1; i < used; i++) {
        first = (uint32_t)stk_min(first, axis->first[x + i]);
    }
    block->first[vector][half] = first;
    to += vector * 32;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t at = i < used ? axis->first[x + i] - first : 0, place = half * 16 + i * 4;
        /* at, nothing, at + 1, nothing: little-endian as all vectors that pick. */
        uint32_t front = 0x80018000u + at * 0x00010001u, back = front + 0x00020002u;

        STK_ASSERT(at + 4 <= VECTOR_SAMPLES);
        memcpy(&block->pairs[vector][0][place], &front, sizeof(front));
        memcpy(&block->pairs[vector][1][place], &back, sizeof(back));
    }
    for (uint32_t i = 0; i < 4; i++) {
        const int16_t *from = axis->weights + (size_t)(x + i) * axis->stride;
        int16_t *pairs = to + half * 8 + i * 2;

        for (uint32_t q = 0; q < picks->quads; q++, from += 4, pairs += BLOCK_WEIGHTS) {
            memcpy(pairs, i < used ? from : none, 2 * sizeof(*pairs));
            memcpy(pairs + 16, i < used ? from + 2 : none, 2 * sizeof(*pairs));
        }
    }
}

void stk_resize_shuffles_build(struct stk_resize_shuffles *picks,
                               const struct stk_resize_weights *axis, void *memory)
{
    uint64_t blocks = block_count(axis->count);

    STK_ASSERT(axis->mode == STK_RESIZE_WEIGHTS_FILTER);
    *picks = (struct stk_resize_shuffles){
        .count = axis->count, .quads = axis->stride / 4, .shift = axis->shift};
    picks->blocks = memory;
    picks->weights = (int16_t *)(void *)((uint8_t *)memory + blocks * sizeof(*picks->blocks));
    for (uint32_t x = 0; x < blocks * STK_RESIZE_SHUFFLES_OUTPUTS; x += 4) {
        build_four(picks, axis, x);
    }
}
