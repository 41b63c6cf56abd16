/* The resizer of planes: two axes and a ring of narrow rows for each. */
#include "decode/pixel/resize_planar.h"

#include "decode/pixel/pixel_kernels.h"
#include "decode/pixel/resize_plan.h"
#include "decode/pixel/resize_shuffles.h"

#include <string.h>

#define ALIGN_BYTES 64u
#define GROUP 4u /* rows that are narrowed together */

/* Rows that a ring holds in addition to the taps of an output row: those that are pushed together
 * while another plane, which is less than a band behind, is incomplete. */
#define RING_MORE (2 * STK_RESIZE_PLANAR_ROWS)

struct part {
    struct stk_resize_weights across, down;
    struct stk_resize_shuffles picks; /* of `across`, when the image is picked */
    uint32_t x0, y0, y1; /* samples that are needed: columns from x0 on, rows [y0, y1) */
    uint32_t width;      /* of the columns */
    uint32_t given;      /* the row after the last pushed one, y0 at least */
    uint8_t *ring;       /* ring_rows narrow rows */
    uint8_t *out;        /* one finished row */
};

struct stk_resize_planar {
    const struct stk_pixel_kernels *kernels;
    struct stk_resize_block block; /* owned; everything below is cut from it */

    /* Of the current image. */
    struct part parts[STK_RESIZE_PLANES_MAX];
    uint32_t part_count, width;
    const uint8_t **taps; /* [most taps of an output row] */
    uint8_t *woven;       /* GROUP rows, sample by sample */
    uint8_t *narrow;      /* the same, narrow */
    uint64_t ring_stride;
    uint32_t ring_rows;
    bool picks; /* rows are narrowed one by one: kernels->narrow */
};

/* How the memory of a plan is cut up: offsets, and the end. A plane has as many taps as the pixels
 * have, and less than 4 more. */
struct layout {
    uint64_t across, down, taps, woven, narrow, parts, end;
    uint64_t part_across, part_picks, part_down, part_ring, part_out, part_end; /* inside a part */
    uint64_t ring_stride;
    uint32_t ring_rows;
};

static struct layout layout_of(const struct stk_resize_plan *plan)
{
    struct stk_resize_axis across = stk_resize_plan_horizontal(plan),
                           down = stk_resize_plan_vertical(plan);
    uint64_t across_taps = stk_resize_weights_taps_max(&across) + 8ull;
    uint64_t down_taps = stk_resize_weights_taps_max(&down) + 8ull;
    struct layout layout = {.ring_rows = (uint32_t)down_taps + RING_MORE};

    layout.ring_stride = stk_round_up(plan->window_width + 4ull, ALIGN_BYTES);
    layout.down = layout.across + stk_resize_weights_bytes(&across, true);
    layout.taps = layout.down + stk_resize_weights_bytes(&down, false);
    layout.woven = layout.taps + stk_round_up(down_taps * sizeof(uint8_t *), ALIGN_BYTES);
    /* Interleaving and the horizontal pass use complete vectors and groups of taps. */
    layout.narrow =
        layout.woven +
        stk_round_up(GROUP * (plan->source_width + across_taps + STK_RESIZE_PLANAR_ROW_SLACK),
                     ALIGN_BYTES);
    layout.parts = layout.narrow + GROUP * layout.ring_stride;
    layout.part_picks = layout.part_across + stk_resize_weights_compose_bytes(&across, true);
    layout.part_down =
        layout.part_picks + stk_resize_shuffles_bytes(plan->window_width, (uint32_t)across_taps);
    layout.part_ring = layout.part_down + stk_resize_weights_compose_bytes(&down, false);
    layout.part_out = layout.part_ring + layout.ring_rows * layout.ring_stride;
    layout.part_end = layout.part_out + layout.ring_stride;
    layout.end = layout.parts + STK_RESIZE_PLANES_MAX * layout.part_end;
    return layout;
}

int stk_resize_planar_open(struct stk_resize_planar **planar_out,
                           const struct stk_pixel_kernels *kernels, struct stoker_error *error)
{
    struct stk_resize_planar *planar = stk_alloc(1, sizeof(*planar));

    *planar_out = NULL;
    if (!planar) {
        return stk_fail_errno(error, ENOMEM, "cannot make a resizer", "close other programs",
                              "memory");
    }
    planar->kernels = kernels;
    *planar_out = planar;
    return 0;
}

void stk_resize_planar_close(struct stk_resize_planar *planar)
{
    if (planar) {
        stk_resize_block_trim(&planar->block, 0);
        stk_free(planar);
    }
}

uint64_t stk_resize_planar_bytes(const struct stk_resize_planar *planar)
{
    return planar->block.bytes;
}

void stk_resize_planar_trim(struct stk_resize_planar *planar, uint64_t keep_bytes)
{
    stk_resize_block_trim(&planar->block, keep_bytes);
}

uint64_t stk_resize_planar_memory_bytes(const struct stk_resize_plan *plan)
{
    return layout_of(plan).end + STK_RESIZE_BLOCK_ALIGN;
}

/* Of one image: sizes follow from ratios. */
static bool same_plane(const struct stk_resize_plane *a, const struct stk_resize_plane *b)
{
    return a->h_ratio == b->h_ratio && a->v_ratio == b->v_ratio && a->smooth_x == b->smooth_x &&
           a->smooth_y == b->smooth_y;
}

/* The axes of plane i; those of two planes of one shape are the same. */
static void build_part(struct stk_resize_planar *planar, const struct stk_resize_planar_plan *plan,
                       uint32_t i, const struct stk_resize_weights axes[2], uint8_t *memory,
                       const struct layout *layout)
{
    const struct stk_resize_plane *plane = &plan->planes[i];
    struct stk_resize_axis across = stk_resize_plan_horizontal(&plan->resize),
                           down = stk_resize_plan_vertical(&plan->resize);
    struct stk_resize_subsampling x = {.count = plane->width,
                                       .ratio = plane->h_ratio,
                                       .is_smooth = plane->smooth_x,
                                       .pixel = plan->x};
    struct stk_resize_subsampling y = {.count = plane->height,
                                       .ratio = plane->v_ratio,
                                       .is_smooth = plane->smooth_y,
                                       .pixel = plan->y};
    struct part *part = &planar->parts[i];

    if (i > 0 && same_plane(plane, &plan->planes[i - 1])) {
        *part = planar->parts[i - 1];
    } else {
        stk_resize_weights_compose(&part->across, &across, &axes[0], &x,
                                   memory + layout->part_across);
        stk_resize_weights_compose(&part->down, &down, &axes[1], &y, memory + layout->part_down);
        if (planar->picks) {
            stk_resize_shuffles_build(&part->picks, &part->across, memory + layout->part_picks);
        }
        part->x0 = x.start;
        part->width = x.end - x.start;
        part->y0 = y.start;
        part->y1 = y.end;
    }
    part->given = part->y0;
    part->ring = memory + layout->part_ring;
    part->out = memory + layout->part_out;
}

int stk_resize_planar_begin(struct stk_resize_planar *planar,
                            const struct stk_resize_planar_plan *plan, uint64_t memory_bytes_max,
                            struct stoker_error *error)
{
    struct stk_resize_axis across = stk_resize_plan_horizontal(&plan->resize),
                           down = stk_resize_plan_vertical(&plan->resize);
    struct layout layout;
    struct stk_resize_weights axes[2];
    uint8_t *start;
    int status = stk_resize_check(&plan->resize, error);

    STK_ASSERT(plan->plane_count == 1 || plan->plane_count == STK_RESIZE_PLANES_MAX);
    if (status < 0) {
        return status;
    }
    layout = layout_of(&plan->resize);
    status = stk_resize_block_reserve(&planar->block, layout.end, memory_bytes_max, error);
    if (status < 0) {
        return status;
    }
    start = stk_resize_block_start(&planar->block);
    planar->picks = planar->kernels->horizontal_one && stk_resize_shuffles_fit(&across);
    stk_resize_weights_build(&axes[0], &across, !planar->picks, start + layout.across);
    stk_resize_weights_build(&axes[1], &down, false, start + layout.down);
    planar->part_count = plan->plane_count;
    for (uint32_t i = 0; i < planar->part_count; i++) {
        build_part(planar, plan, i, axes, start + layout.parts + i * layout.part_end, &layout);
    }
    planar->taps = (const uint8_t **)(void *)(start + layout.taps);
    planar->woven = start + layout.woven;
    planar->narrow = start + layout.narrow;
    planar->ring_stride = layout.ring_stride;
    planar->ring_rows = layout.ring_rows;
    planar->width = plan->resize.window_width;
    return 0;
}

static uint32_t row_end(const struct part *part, uint32_t row)
{
    return part->y0 + part->down.first[row] + part->down.taps[row];
}

bool stk_resize_planar_needs(const struct stk_resize_planar *planar, uint32_t row)
{
    bool lacks = false;

    for (uint32_t i = 0; i < planar->part_count; i++) {
        STK_ASSERT(row < planar->parts[i].down.count);
        lacks = lacks || planar->parts[i].given < row_end(&planar->parts[i], row);
    }
    return lacks;
}

static uint8_t *ring_row(const struct stk_resize_planar *planar, const struct part *part,
                         uint32_t y)
{
    return part->ring + y % planar->ring_rows * planar->ring_stride;
}

static void narrow_one(struct stk_resize_planar *planar, const struct part *part, uint32_t y,
                       const uint8_t *from)
{
    planar->kernels->horizontal_one(&part->picks, from, ring_row(planar, part, y));
}

/* `count` (1 .. GROUP) rows from row y on; the last stands in for those that are not there. */
static void narrow_group(struct stk_resize_planar *planar, const struct part *part, uint32_t y,
                         const uint8_t *from, size_t stride, uint32_t count)
{
    const uint8_t *rows[GROUP];
    uint8_t *to[GROUP];

    for (uint32_t i = 0; i < GROUP; i++) {
        uint32_t row = (uint32_t)stk_min(i, count - 1);

        rows[i] = from + row * stride;
        to[i] = ring_row(planar, part, y + row);
    }
    planar->kernels->interleave(rows, part->width, planar->woven);
    planar->kernels->horizontal(&part->across, planar->woven, planar->narrow);
    planar->kernels->deinterleave(planar->narrow, planar->width, to);
}

void stk_resize_planar_push(struct stk_resize_planar *planar, uint32_t plane,
                            const struct stk_resize_planar_rows *rows)
{
    struct part *part = &planar->parts[plane];
    uint32_t end = (uint32_t)stk_min(rows->y + (uint64_t)rows->count, part->y1);

    STK_ASSERT(rows->count <= STK_RESIZE_PLANAR_ROWS &&
               (rows->y <= part->given || part->given == part->y1));
    while (part->given < end) {
        uint32_t count = planar->picks ? 1 : (uint32_t)stk_min(GROUP, end - part->given);
        const uint8_t *from = rows->data + (part->given - rows->y) * rows->stride;

        STK_ASSERT(rows->column <= part->x0);
        from += part->x0 - rows->column;
        if (planar->picks) {
            narrow_one(planar, part, part->given, from);
        } else {
            narrow_group(planar, part, part->given, from, rows->stride, count);
        }
        part->given += count;
    }
}

void stk_resize_planar_row(struct stk_resize_planar *planar, uint32_t row,
                           const uint8_t *samples_out[3])
{
    for (uint32_t i = 0; i < planar->part_count; i++) {
        const struct part *part = &planar->parts[i];
        const struct stk_resize_weights *down = &part->down;
        uint32_t taps = down->taps[row], end = row_end(part, row);

        STK_ASSERT(part->given >= end && part->given - (end - taps) <= planar->ring_rows);
        for (uint32_t t = 0; t < taps; t++) {
            planar->taps[t] = ring_row(planar, part, end - taps + t);
        }
        planar->kernels->vertical(planar->taps, down->weights + (size_t)row * down->stride, taps,
                                  down->shift, planar->width, part->out);
        samples_out[i] = part->out;
    }
}
