/* Each source in its own sequence (shuffle none): the units of a frame alternate evenly.
 *
 * The sources of a frame are split in two halves, and these again, down to single sources. Of the n
 * places of a part, a belong to its first half: place p does if floor((p + 1) * a / n) is larger
 * than floor(p * a / n), and is then the floor(p * a / n)-th place of that half. So both halves
 * keep their sequence, and each is spread over all of the n places. */
#include "order/mix/mix_private.h"

#define HALVES_MAX 8 /* 2^8 sources */

_Static_assert(STK_MIX_SOURCES_MAX <= 1u << HALVES_MAX, "a path has one half for each level");

static uint64_t units_before(const struct stk_mix_segment *segment, uint32_t source, uint64_t frame)
{
    return source ? stk_mix_frame_units_up_to(segment, source - 1, frame) : 0;
}

static inline uint64_t floor_of(uint64_t place, uint64_t part, uint64_t places)
{
    return (uint64_t)((stk_u128)place * part / places);
}

uint64_t stk_mix_sequence_draw(const struct stk_mix_segment *segment, uint32_t source_count,
                               uint64_t frame, uint64_t offset)
{
    uint32_t low = 0, high = source_count;
    uint64_t begin = 0, end = stk_mix_frame_units(segment, frame);

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        uint64_t border = units_before(segment, middle, frame);
        uint64_t first_half = border - begin;
        uint64_t before = floor_of(offset, first_half, end - begin);

        if (floor_of(offset + 1, first_half, end - begin) > before) {
            offset = before;
            high = middle;
            end = border;
        } else {
            offset -= before;
            low = middle;
            begin = border;
        }
    }
    return begin + offset;
}

uint64_t stk_mix_sequence_offset(const struct stk_mix_segment *segment, uint32_t source_count,
                                 uint64_t frame, uint64_t drawn)
{
    struct {
        uint64_t places, part; /* part: of the half that was taken */
        bool is_first;
    } path[HALVES_MAX];
    uint32_t low = 0, high = source_count, depth = 0;
    uint64_t begin = 0, end = stk_mix_frame_units(segment, frame), offset;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        uint64_t border = units_before(segment, middle, frame);

        path[depth].places = end - begin;
        path[depth].is_first = drawn < border;
        if (drawn < border) {
            high = middle;
            end = border;
        } else {
            low = middle;
            begin = border;
        }
        path[depth++].part = end - begin;
    }
    for (offset = drawn - begin; depth > 0;) {
        uint64_t places = path[--depth].places, part = path[depth].part;

        /* The first place p with floor((p + 1) * part / places) > offset; in the second half the
         * one with ceil(p * part / places) = offset. */
        offset = path[depth].is_first
                     ? (uint64_t)(((stk_u128)(offset + 1) * places + part - 1) / part) - 1
                     : floor_of(offset, places, part);
    }
    return offset;
}
