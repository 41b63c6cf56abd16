/* Reads a mix: complete frames source by source, or positions one by one. */
#include "order/mix/mix_private.h"

#include "base/mem.h"

/* Units of the longest frame that is cached */
static uint64_t cached_units_max(const struct stk_mix *mix)
{
    uint64_t longest = STK_MIX_FRAME_CACHED;

    for (uint32_t i = 0; i < mix->segment_count && mix->deals_groups; i++) {
        const struct stk_mix_segment *segment = &mix->segments[i];

        longest = stk_max(longest,
                          stk_max(segment->frames > 0 ? segment->frame.number : 0, segment->rest));
    }
    return stk_min(longest, STK_MIX_FRAME_CACHED_GROUPS);
}

int stk_mix_reader_init(struct stk_mix_reader *reader, const struct stk_mix *mix,
                        const struct stk_order *orders, struct stoker_error *error)
{
    *reader = (struct stk_mix_reader){.mix = mix, .orders = orders, .frame_first = UINT64_MAX};
    for (uint32_t i = 0; i < mix->source_count; i++) {
        if (orders[i].options.sample_count != mix->samples[i].number) {
            *reader = (struct stk_mix_reader){0};
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "an order does not belong to its source",
                            "create the orders and the mix with the same counts",
                            "source %u: %llu samples, order: %llu", i,
                            (unsigned long long)mix->samples[i].number,
                            (unsigned long long)orders[i].options.sample_count);
        }
    }
    reader->epochs = stk_alloc(mix->source_count, sizeof *reader->epochs);
    reader->cached_max = cached_units_max(mix);
    reader->items = stk_alloc(reader->cached_max, sizeof *reader->items);
    if (mix->deals_groups) {
        reader->frame.drawn = stk_alloc(4 * reader->cached_max, sizeof *reader->frame.drawn);
    }
    if (!reader->epochs || !reader->items || (mix->deals_groups && !reader->frame.drawn)) {
        stk_mix_reader_deinit(reader);
        return stk_fail_memory(error, "mix, %u sources", mix->source_count);
    }
    if (mix->deals_groups) {
        reader->frame.draws = reader->frame.drawn + reader->cached_max;
        reader->frame.holes = reader->frame.draws + reader->cached_max;
        reader->frame.excess = reader->frame.holes + reader->cached_max;
    }
    return 0;
}

void stk_mix_reader_deinit(struct stk_mix_reader *reader)
{
    stk_free(reader->epochs);
    stk_free(reader->items);
    stk_free(reader->frame.drawn);
    *reader = (struct stk_mix_reader){0};
}

static const struct stk_order_epoch *epoch_of(struct stk_mix_reader *reader, uint32_t source,
                                              uint64_t epoch)
{
    struct stk_order_epoch *cached = &reader->epochs[source][epoch & 1];

    if (!cached->order || cached->epoch != epoch) {
        stk_order_epoch_begin(cached, &reader->orders[source], epoch);
    }
    return cached;
}

/* `count` neighbours of a source, from a draw on. */
static void read_run(struct stk_mix_reader *reader, struct stk_mix_draw draw, uint64_t count,
                     struct stk_mix_item *items_out)
{
    uint64_t samples[STK_PERMUTE_STRIDE];
    uint64_t epoch_samples = reader->mix->samples[draw.source].number;

    while (count > 0) {
        uint64_t piece = stk_min(stk_min(count, epoch_samples - draw.position), STK_PERMUTE_STRIDE);

        stk_order_samples(epoch_of(reader, draw.source, draw.epoch), draw.position, piece, samples);
        for (uint64_t i = 0; i < piece; i++) {
            *items_out++ = (struct stk_mix_item){draw, samples[i]};
            draw.position++;
        }
        if (draw.position == epoch_samples) {
            draw.position = 0;
            draw.epoch++;
        }
        count -= piece;
    }
}

/* All of a frame, source by source: in the sequence of draws, before they are permuted. */
static void cache_frame(struct stk_mix_reader *reader, const struct stk_mix_segment *segment,
                        uint64_t frame)
{
    uint64_t units = stk_mix_frame_units(segment, frame), drawn = 0;

    while (drawn < units) {
        struct stk_mix_pick pick =
            stk_mix_pick_at(segment, reader->mix->source_count, frame, drawn);
        uint64_t end = stk_mix_frame_units_up_to(segment, pick.source, frame);

        read_run(reader, stk_mix_sample(reader->mix, pick, 0), end - drawn, reader->items + drawn);
        drawn = end;
    }
    if (reader->mix->deals_groups) {
        stk_mix_group_frame(reader->mix, segment, frame, &reader->frame);
    }
    reader->frame_first = segment->first + stk_mix_frame_begin(segment, frame);
}

/* One by one. */
static void read_singly(struct stk_mix_reader *reader, uint64_t first, uint64_t count,
                        struct stk_mix_item *items_out)
{
    struct stk_mix_draw draws[STK_PERMUTE_STRIDE];

    while (count > 0) {
        uint64_t piece = stk_min(count, STK_PERMUTE_STRIDE);

        stk_mix_draw_range(reader->mix, first, piece, draws);
        for (uint64_t i = 0; i < piece; i++) {
            const struct stk_order_epoch *epoch = epoch_of(reader, draws[i].source, draws[i].epoch);

            *items_out++ =
                (struct stk_mix_item){draws[i], stk_order_sample(epoch, draws[i].position)};
        }
        first += piece;
        count -= piece;
    }
}

/* Positions of one frame, of units of one sample. */
static void read_frame(struct stk_mix_reader *reader, const struct stk_mix_segment *segment,
                       struct stk_quotient at, uint64_t count, struct stk_mix_item *items_out)
{
    uint64_t drawn[STK_PERMUTE_STRIDE];
    uint64_t first = segment->first + stk_mix_frame_begin(segment, at.quotient);

    if (reader->frame_first != first) {
        cache_frame(reader, segment, at.quotient);
    }
    if (reader->mix->deals_groups) {
        for (uint64_t i = 0; i < count; i++) {
            items_out[i] = reader->items[reader->frame.drawn[at.remainder + i]];
        }
        return;
    }
    while (count > 0) {
        uint64_t piece = stk_min(count, STK_PERMUTE_STRIDE);

        stk_mix_deal(reader->mix, segment, at.quotient, at.remainder, piece, drawn);
        for (uint64_t i = 0; i < piece; i++) {
            *items_out++ = reader->items[drawn[i]];
        }
        at.remainder += piece;
        count -= piece;
    }
}

void stk_mix_read(struct stk_mix_reader *reader, uint64_t first, uint64_t count,
                  struct stk_mix_item *items_out)
{
    const struct stk_mix *mix = reader->mix;

    STK_ASSERT(count <= mix->end && first <= mix->end - count);
    for (uint64_t piece; count > 0; first += piece, count -= piece, items_out += piece) {
        struct stk_quotient unit = stk_divide(first, &mix->unit);
        const struct stk_mix_segment *segment = stk_mix_segment_of(mix, unit.quotient);
        struct stk_quotient at = stk_mix_frame_of(segment, unit.quotient);
        uint64_t units = stk_mix_frame_units(segment, at.quotient);

        if (mix->unit.number > 1) { /* each unit is a run already */
            struct stk_mix_draw draw;

            piece = stk_min(count, stk_mix_draw_run(mix, first, &draw));
            read_run(reader, draw, piece, items_out);
            continue;
        }
        piece = stk_min(count, units - at.remainder);
        /* Other positions of a cached frame cost almost nothing; computing a frame for few
         * positions is slow. */
        if (units <= reader->cached_max &&
            (piece >= units / 8 || reader->frame_first == unit.quotient - at.remainder)) {
            read_frame(reader, segment, at, piece, items_out);
        } else {
            read_singly(reader, first, piece, items_out);
        }
    }
}
