/* order/mix/mix_private.h: arithmetic that the files of this room share: segment, frame and source
 * of a unit. Letters as in mix.c.
 * Owner: values. Threads: any. Memory: none. Bound: that of mix.h. */
#ifndef ORDER_MIX_MIX_PRIVATE_H
#define ORDER_MIX_MIX_PRIVATE_H

#include "order/mix/mix.h"

#include "base/random.h"
#include "order/division.h"

/* A unit of a source. */
struct stk_mix_pick {
    uint32_t source;
    uint64_t index;
};

/* Whose the drawn-th unit of the frame is: the sources have theirs one after the other. */
struct stk_mix_pick stk_mix_pick_at(const struct stk_mix_segment *segment, uint32_t source_count,
                                    uint64_t frame, uint64_t drawn);
/* Writes the draws that the `count` offsets of the frame from `offset` on have, and the inverse for
 * one of them. In a random sequence, or each source in its own. count <= STK_PERMUTE_STRIDE. */
void stk_mix_deal(const struct stk_mix *mix, const struct stk_mix_segment *segment, uint64_t frame,
                  uint64_t offset, uint64_t count, uint64_t *drawn_out);
uint64_t stk_mix_undeal(const struct stk_mix *mix, const struct stk_mix_segment *segment,
                        uint64_t frame, uint64_t drawn);
/* The same for one offset, each source in its own sequence. */
uint64_t stk_mix_sequence_draw(const struct stk_mix_segment *segment, uint32_t source_count,
                               uint64_t frame, uint64_t offset);
uint64_t stk_mix_sequence_offset(const struct stk_mix_segment *segment, uint32_t source_count,
                                 uint64_t frame, uint64_t drawn);
/* Sets *draw_out. Returns how many draws from there on are adjacent in the source and in the same
 * unit. */
uint64_t stk_mix_draw_run(const struct stk_mix *mix, uint64_t position,
                          struct stk_mix_draw *draw_out);
/* With home groups, and units of one sample: which draw an offset of the frame has; its inverse;
 * and all of a frame. With longer units: which sample of the unit that begins at a position an
 * offset has, as the unit is turned so that its samples are at home. */
uint64_t stk_mix_group_draw(const struct stk_mix *mix, const struct stk_mix_segment *segment,
                            uint64_t number, uint64_t offset);
uint64_t stk_mix_group_offset(const struct stk_mix *mix, const struct stk_mix_segment *segment,
                              uint64_t number, uint64_t drawn);
void stk_mix_group_frame(const struct stk_mix *mix, const struct stk_mix_segment *segment,
                         uint64_t number, struct stk_mix_frame *out);
uint64_t stk_mix_group_unit(const struct stk_mix *mix, uint64_t first, struct stk_mix_pick pick,
                            uint64_t offset);

/* Number of units of the frame that belong to this source and the sources before it. */
uint64_t stk_mix_frame_units_up_to(const struct stk_mix_segment *segment, uint32_t source,
                                   uint64_t frame);
/* Whether the frame has one unit of the source more than its quota. */
bool stk_mix_frame_has_more(const struct stk_mix_segment *segment, uint32_t source, uint64_t frame);

/* The segment of a unit. */
static inline const struct stk_mix_segment *stk_mix_segment_of(const struct stk_mix *mix,
                                                               uint64_t unit)
{
    uint32_t low = 0, count = mix->segment_count;

    while (count > 1) {
        uint32_t half = count / 2;

        low += mix->segments[low + half].first <= unit ? half : 0;
        count -= half;
    }
    return &mix->segments[low];
}

/* The frame of a unit, and which of its units it is. The last frame may be longer than the others
 * by a few. */
static inline struct stk_quotient stk_mix_frame_of(const struct stk_mix_segment *segment,
                                                   uint64_t unit)
{
    struct stk_quotient at, inner;
    uint64_t longer;

    if (segment->period.number == 0) {
        at = stk_divide(unit - segment->first, &segment->frame);
        if (at.quotient > segment->frames) {
            at.remainder += (at.quotient - segment->frames) * segment->frame.number;
            at.quotient = segment->frames;
        }
        return at;
    }
    at = stk_divide(unit - segment->first, &segment->period);
    longer = segment->period_extra * segment->longer.number;
    if (at.remainder < longer) {
        inner = stk_divide(at.remainder, &segment->longer);
    } else {
        inner = stk_divide(at.remainder - longer, &segment->base);
        inner.quotient += segment->period_extra;
    }
    inner.quotient += at.quotient * segment->period_frames.number;
    return inner;
}

/* Units of the segment before a frame. */
static inline uint64_t stk_mix_frame_begin(const struct stk_mix_segment *segment, uint64_t frame)
{
    struct stk_quotient at;

    if (segment->period.number == 0) {
        return frame * segment->frame.number;
    }
    at = stk_divide(frame, &segment->period_frames);
    return at.quotient * segment->period.number + at.remainder * segment->base.number +
           stk_min(at.remainder, segment->period_extra);
}

static inline uint64_t stk_mix_frame_units(const struct stk_mix_segment *segment, uint64_t frame)
{
    if (frame >= segment->frames) {
        return segment->rest;
    }
    return segment->period.number == 0
               ? segment->frame.number
               : segment->base.number +
                     (stk_divide(frame, &segment->period_frames).remainder < segment->period_extra);
}

static inline uint64_t stk_mix_frame_key(const struct stk_mix *mix,
                                         const struct stk_mix_segment *segment, uint64_t frame)
{
    return stk_random_key(mix->key, segment->first + stk_mix_frame_begin(segment, frame));
}

/* Samples that a source delivered in the turns before. */
static inline uint64_t stk_mix_earlier_samples(const struct stk_mix *mix, uint32_t source)
{
    return mix->cycle > 0 ? mix->cycle * mix->cycle_samples[source] : 0;
}

/* A source's running index as an epoch and a position in it. */
static inline struct stk_mix_draw stk_mix_sample(const struct stk_mix *mix,
                                                 struct stk_mix_pick pick, uint64_t offset)
{
    uint64_t index =
        pick.index * mix->unit.number + offset + stk_mix_earlier_samples(mix, pick.source);
    struct stk_quotient at = stk_divide(index, &mix->samples[pick.source]);

    return (struct stk_mix_draw){pick.source, at.quotient, at.remainder};
}

/* floor(units * S_i / T) */
static inline uint64_t stk_mix_share_up_to(const struct stk_mix_segment *segment, uint32_t source,
                                           uint64_t units)
{
    stk_u128 product = (stk_u128)units * segment->sums[source];

    return product >> 64 ? (uint64_t)(product / segment->total)
                         : (uint64_t)product / segment->total;
}

/* F_i(frame) */
static inline uint64_t stk_mix_units_up_to(const struct stk_mix_segment *segment, uint32_t source,
                                           uint64_t frame)
{
    uint64_t units;

    if (segment->period.number > 0) {
        return stk_mix_share_up_to(segment, source, stk_mix_frame_begin(segment, frame));
    }
    units = frame * segment->quota[source];
    return segment->is_even
               ? units
               : units + (uint64_t)((stk_u128)frame * segment->remainder[source] / segment->total);
}

#endif
