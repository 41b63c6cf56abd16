/* The resizer: two axes, a ring of narrow rows between them. */
#include "decode/pixel/resize.h"

#include "decode/pixel/pixel_kernels.h"
#include "decode/pixel/resize_plan.h"

#include <string.h>

/* Maximum number of source rows per push: a few rows of a codec's group, still in the L1 cache when
 * they are resized horizontally. */
#define STAGE_ROWS 8u

/* Rows that a codec writes begin so many bytes after a multiple of 64: into rows that are aligned
 * to 32 bytes libjpeg-turbo stores past the caches (vmovntdq), and fetching them from memory
 * again doubles the time of the resize. */
#define ROW_SHIFT 16u

struct stk_resize {
    const struct stk_pixel_kernels *kernels;
    struct stk_resize_block block; /* owned; everything below is cut from it */

    /* Of the current image. */
    struct stk_resize_weights across, down;
    const uint8_t **taps; /* [most taps of an output row] */
    uint8_t *stage;       /* STAGE_ROWS source rows; not used when `across` copies */
    uint8_t *ring;        /* ring_rows narrow rows; full source rows when `across` copies */
    uint64_t stage_stride, ring_stride; /* bytes */
    uint32_t ring_rows, region_rows, skip, width;
    uint32_t given;  /* source rows of the region so far */
    uint32_t wanted; /* no row before it is needed any more */
};

/* How the memory of a plan is cut up: offsets, and the end. */
struct layout {
    uint64_t across, down, taps, stage, ring, end;
    uint64_t stage_stride, ring_stride;
    uint32_t ring_rows;
};

/* The sides are at most STK_RESIZE_SIDE_MAX, so nothing here wraps. */
static struct layout layout_of(const struct stk_resize_plan *plan, uint32_t row_pixels)
{
    struct stk_resize_axis across = stk_resize_plan_horizontal(plan),
                           down = stk_resize_plan_vertical(plan);
    uint64_t across_taps = stk_resize_weights_taps_max(&across);
    uint64_t down_taps = stk_resize_weights_taps_max(&down);
    bool copies = stk_resize_weights_mode(&across) == STK_RESIZE_WEIGHTS_COPY;
    struct layout layout = {.ring_rows = (uint32_t)down_taps + STAGE_ROWS};

    /* The horizontal pass reads full groups of taps, past the end of a row. */
    layout.stage_stride = stk_round_up(4 * (row_pixels + across_taps) + ROW_SHIFT, 64);
    layout.ring_stride =
        copies ? layout.stage_stride : stk_round_up(4 * (uint64_t)plan->window_width, 64);
    layout.down = layout.across + stk_resize_weights_bytes(&across, true);
    layout.taps = layout.down + stk_resize_weights_bytes(&down, false);
    layout.stage = layout.taps + stk_round_up(down_taps * sizeof(uint8_t *), 64);
    layout.ring = layout.stage + (copies ? 0 : STAGE_ROWS * layout.stage_stride);
    layout.end = layout.ring + layout.ring_rows * layout.ring_stride;
    return layout;
}

int stk_resize_open(struct stk_resize **resize_out, const struct stk_pixel_kernels *kernels,
                    struct stoker_error *error)
{
    struct stk_resize *resize = stk_alloc(1, sizeof(*resize));

    *resize_out = NULL;
    if (!resize) {
        return stk_fail_errno(error, ENOMEM, "cannot make a resizer", "close other programs",
                              "memory");
    }
    resize->kernels = kernels;
    *resize_out = resize;
    return 0;
}

void stk_resize_close(struct stk_resize *resize)
{
    if (resize) {
        stk_resize_block_trim(&resize->block, 0);
        stk_free(resize);
    }
}

uint64_t stk_resize_bytes(const struct stk_resize *resize)
{
    return resize->block.bytes;
}

void stk_resize_trim(struct stk_resize *resize, uint64_t keep_bytes)
{
    stk_resize_block_trim(&resize->block, keep_bytes);
}

void stk_resize_region(const struct stk_resize_plan *plan, uint32_t *x0, uint32_t *x1, uint32_t *y0,
                       uint32_t *y1)
{
    struct stk_resize_axis across = stk_resize_plan_horizontal(plan),
                           down = stk_resize_plan_vertical(plan);

    stk_resize_weights_range(&across, x0, x1);
    stk_resize_weights_range(&down, y0, y1);
}

uint64_t stk_resize_memory_bytes(const struct stk_resize_plan *plan, uint32_t row_pixels)
{
    return layout_of(plan, row_pixels).end + STK_RESIZE_BLOCK_ALIGN;
}

int stk_resize_check(const struct stk_resize_plan *plan, struct stoker_error *error)
{
    uint32_t longest = plan->source_width;

    longest = (uint32_t)stk_max(longest, plan->source_height);
    longest = (uint32_t)stk_max(longest, plan->target_width);
    longest = (uint32_t)stk_max(longest, plan->target_height);
    if (longest > STK_RESIZE_SIDE_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "cannot resize to or from so long a side",
                        "crop the image, or give Resize a max_size", "%ux%u to %ux%u, most %u",
                        plan->source_width, plan->source_height, plan->target_width,
                        plan->target_height, STK_RESIZE_SIDE_MAX);
    }
    return 0;
}

static bool copies_across(const struct stk_resize *resize)
{
    return resize->across.mode == STK_RESIZE_WEIGHTS_COPY;
}

int stk_resize_begin(struct stk_resize *resize, const struct stk_resize_plan *plan,
                     uint32_t row_pixels, uint32_t skip, uint64_t memory_bytes_max,
                     struct stoker_error *error)
{
    struct stk_resize_axis across = stk_resize_plan_horizontal(plan),
                           down = stk_resize_plan_vertical(plan);
    struct layout layout;
    uint8_t *start;
    uint32_t first, end;
    int status = stk_resize_check(plan, error);

    if (status < 0) {
        return status;
    }
    layout = layout_of(plan, row_pixels);
    status = stk_resize_block_reserve(&resize->block, layout.end, memory_bytes_max, error);
    if (status < 0) {
        return status;
    }
    stk_resize_weights_range(&across, &first, &end);
    STK_ASSERT((uint64_t)skip + (end - first) <= row_pixels);
    stk_resize_weights_range(&down, &first, &end);
    start = stk_resize_block_start(&resize->block);
    stk_resize_weights_build(&resize->across, &across, true, start + layout.across);
    stk_resize_weights_build(&resize->down, &down, false, start + layout.down);
    resize->taps = (const uint8_t **)(void *)(start + layout.taps);
    resize->stage = start + layout.stage + ROW_SHIFT;
    resize->ring = start + layout.ring + (copies_across(resize) ? ROW_SHIFT : 0);
    resize->stage_stride = layout.stage_stride;
    resize->ring_stride = layout.ring_stride;
    resize->ring_rows = layout.ring_rows;
    resize->region_rows = end - first;
    resize->skip = skip;
    resize->width = plan->window_width;
    resize->given = 0;
    resize->wanted = 0;
    return 0;
}

static uint8_t *ring_row(const struct stk_resize *resize, uint32_t source_row)
{
    return resize->ring + (source_row % resize->ring_rows) * resize->ring_stride;
}

uint32_t stk_resize_wanted(struct stk_resize *resize, uint32_t row, uint8_t **rows_out,
                           uint32_t capacity)
{
    uint32_t end, count;

    STK_ASSERT(row < resize->down.count);
    end = resize->down.first[row] + resize->down.taps[row];
    resize->wanted = resize->down.first[row];
    if (resize->given >= end) {
        return 0;
    }
    /* The ring holds the taps of this row and STAGE_ROWS more. */
    count = (uint32_t)stk_min(capacity, stk_min(STAGE_ROWS, resize->region_rows - resize->given));
    for (uint32_t i = 0; i < count; i++) {
        rows_out[i] = copies_across(resize) ? ring_row(resize, resize->given + i)
                                            : resize->stage + i * resize->stage_stride;
    }
    return count;
}

static void narrow(const struct stk_resize *resize, const uint8_t *from, uint8_t *to)
{
    const struct stk_resize_weights *across = &resize->across;

    if (across->mode == STK_RESIZE_WEIGHTS_FILTER) {
        resize->kernels->horizontal(across, from, to);
        return;
    }
    for (uint32_t x = 0; x < across->count; x++) {
        memcpy(to + 4 * (size_t)x, from + 4 * (size_t)across->first[x], 4);
    }
}

void stk_resize_push(struct stk_resize *resize, uint32_t count)
{
    STK_ASSERT(count <= STAGE_ROWS && count <= resize->region_rows - resize->given);
    for (uint32_t i = 0; i < count; i++, resize->given++) {
        const uint8_t *from = resize->stage + i * resize->stage_stride + 4 * (size_t)resize->skip;

        /* Nearest jumps over rows: those are not worth the work. */
        if (!copies_across(resize) && resize->given >= resize->wanted) {
            narrow(resize, from, ring_row(resize, resize->given));
        }
    }
}

void stk_resize_row(struct stk_resize *resize, uint32_t row, uint8_t *rgbx_out)
{
    const struct stk_resize_weights *down = &resize->down;
    size_t offset = copies_across(resize) ? 4 * (size_t)resize->skip : 0;
    uint32_t first = down->first[row], taps = down->taps[row];

    STK_ASSERT(resize->given >= first + taps);
    for (uint32_t t = 0; t < taps; t++) {
        resize->taps[t] = ring_row(resize, first + t) + offset;
    }
    if (down->mode == STK_RESIZE_WEIGHTS_FILTER) {
        resize->kernels->vertical(resize->taps, down->weights + (size_t)row * down->stride, taps,
                                  down->shift, 4 * resize->width, rgbx_out);
    } else {
        memcpy(rgbx_out, resize->taps[0], 4 * (size_t)resize->width);
    }
}
