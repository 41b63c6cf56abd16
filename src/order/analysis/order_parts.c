/* Parts of an order: the sample at a position, and a bound of the open blocks. */
#include "order/analysis/order_parts.h"

#define NODES_LOOKED_AT (1u << 20) /* one by one; each of more may have samples of all groups */

/* An order over the samples of one part, and the ranks that share it. */
struct span {
    const struct stk_order *order;
    const struct stk_partition *partition;
    uint64_t nodes;     /* 1: any node may have samples of all groups */
    uint64_t positions; /* so many of the part may come out of sequence; 0: none */
};

/* ---- blocks that are open at once ---- */

/* Home groups of which a node has samples. Steps are cut into equal slices of the positions sorted
 * by group; if a step does not have equally many of each group, borders move from step to step. */
static uint64_t groups_read(const struct span *span)
{
    uint64_t step = stk_partition_stride(span->partition), read_groups = 0;
    uint64_t groups = span->order->options.group_count, nodes = span->nodes;
    uint64_t often = step / groups, more = step % groups;

    if (nodes == 1 || often == 0 || nodes > NODES_LOOKED_AT) {
        return groups;
    }
    for (uint64_t node = 0; node < nodes && read_groups < groups; node++) {
        uint64_t begin = step / nodes * node, end = begin + step / nodes;
        uint64_t behind = stk_min((end - 1) / often + 1, groups); /* group k begins at k * often, */
        uint64_t first = begin / (often + (more > 0)); /* and a bit later in some steps */

        while (first < groups && (first + 1) * often + stk_min(first + 1, more) <= begin) {
            first++;
        }
        read_groups = stk_max(read_groups, behind - stk_min(first, behind));
    }
    return read_groups;
}

/* Samples of other nodes' groups that a node has all the same: a last step that is short, or one
 * that continues from the epoch before, is distributed in other slices. */
static uint64_t other_group_blocks(const struct span *span)
{
    uint64_t step = stk_partition_stride(span->partition);
    uint32_t tail = span->partition->tail;

    return span->nodes > 1 && (tail == STOKER_TAIL_WRAP || tail == STOKER_TAIL_KEEP)
               ? step / span->nodes
               : 0;
}

/* Windows of a group that may contain so many positions. */
static uint64_t windows_of(const struct span *span)
{
    const struct stk_order *order = span->order;
    uint64_t turns = span->positions / order->options.group_count;
    uint64_t size = stk_max(order->window_base * order->options.block_samples, 1);

    return span->positions == 0 ? 1 : (stk_max(turns, 1) - 1) / size + 2;
}

static uint64_t bound_of(const struct span *span)
{
    const struct stk_order *inner = span->order;
    const struct stk_order_options *options = &inner->options;
    uint64_t samples = options->sample_count, block = options->block_samples;
    uint64_t blocks = samples / block + (samples % block > 0), groups = options->group_count;
    uint64_t pooled, window, read_groups, bound, windows = windows_of(span);

    if (options->shuffle == STOKER_SHUFFLE_FULL) {
        return blocks;
    }
    if (options->shuffle == STOKER_SHUFFLE_NONE) {
        return stk_min(blocks, 1 + (span->positions ? span->positions / block + 1 : 0));
    }
    /* The pool: each node has a share of its samples, of which each may be in another block. */
    pooled = blocks - inner->group_blocks * groups;
    read_groups = groups_read(span);
    if (stk_partition_stride(span->partition) % groups == 0 && groups % span->nodes == 0) {
        pooled = stk_min(pooled, ((inner->pool_samples + groups - 1) / groups) * read_groups);
    }
    window = stk_min(inner->window_base + (inner->window_extra > 0), inner->group_blocks);
    window = windows < inner->windows ? windows * window : inner->group_blocks;
    if (stk_multiply(read_groups, window, &bound) && stk_add(bound, pooled, &bound) &&
        stk_add(bound, other_group_blocks(span), &bound)) {
        return stk_min(bound, blocks);
    }
    return blocks;
}

static uint64_t window_of(const struct stk_order *order)
{
    uint64_t samples = order->options.sample_count;

    switch (order->options.shuffle) {
    case STOKER_SHUFFLE_FULL:
        return samples;
    case STOKER_SHUFFLE_NONE:
        return 1;
    default:
        return stk_min((uint64_t)order->options.window_blocks * order->options.block_samples,
                       samples);
    }
}

/* ---- parts ---- */

uint32_t stk_order_parts_count(const struct stoker_order *order)
{
    const struct stk_schedule *schedule = &order->schedule;

    return schedule->orders         ? schedule->mix.source_count
           : schedule->stages.items ? schedule->stages.stage_count
                                    : 1;
}

static uint64_t samples_of(const struct stoker_order *order, uint32_t number)
{
    const struct stk_schedule *schedule = &order->schedule;

    return schedule->orders         ? schedule->orders[number].options.sample_count
           : schedule->stages.items ? schedule->stages.items[number].count
                                    : schedule->order.options.sample_count;
}

static uint64_t blocks_of(const struct stoker_order *order, uint32_t number)
{
    uint64_t block = order->schedule.order.options.block_samples;
    uint64_t samples = samples_of(order, number);

    return samples / block + (samples % block > 0);
}

uint64_t stk_order_parts_blocks(const struct stoker_order *order)
{
    uint64_t blocks = 0;

    for (uint32_t i = 0; i < stk_order_parts_count(order); i++) {
        blocks += blocks_of(order, i);
    }
    return blocks;
}

/* Samples of a source that may be out of sequence: those of a frame. */
static uint64_t frame_of(const struct stk_mix *mix, uint32_t source)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < mix->segment_count; i++) {
        const struct stk_mix_segment *segment = &mix->segments[i];
        uint64_t quota = segment->quota[source] - (source ? segment->quota[source - 1] : 0);
        uint64_t rest =
            segment->rest_quota[source] - (source ? segment->rest_quota[source - 1] : 0);

        most = stk_max(most, stk_max(quota + 2, rest)); /* remainders of two sources may add one */
    }
    return most * mix->unit.number;
}

/* A shard's, and those that two shards share. */
static void two_level(const struct stoker_order *order, const struct stk_curriculum_item *item,
                      struct stk_order_part *part)
{
    const struct stk_curriculum *stages = &order->schedule.stages;
    const struct stk_subset *subset = item->rule.subset;
    uint64_t block = order->schedule.order.options.block_samples, largest = 0, before = 0;

    for (uint32_t i = 0; i < stages->shard_count; i++) {
        uint64_t end = subset ? stk_subset_rank(subset, stages->ends[i]) : stages->ends[i];

        if (end == STK_MAPPED_TABLE_DAMAGED || end < before) { /* the reader reports it */
            end = before;
        }
        largest = stk_max(largest, end - before);
        before = end;
    }
    part->window_samples = largest;
    part->open_bound = stk_min(largest / block + 2 + stages->shard_count, part->blocks);
}

static void stage(const struct stoker_order *order, uint32_t number, struct span *span,
                  struct stk_order_part *part)
{
    const struct stk_curriculum *stages = &order->schedule.stages;
    const struct stk_curriculum_item *item = &stages->items[number];
    bool is_drawn = item->rule.alias || item->rule.classes || item->rule.replacement;

    part->once = !is_drawn && stages->times == 1;
    if (is_drawn) {
        part->window_samples = part->samples;
        part->open_bound = part->blocks;
    } else if (stages->ends) {
        two_level(order, item, part);
    } else {
        span->order = &item->order;
        /* Passes that are not epochs begin at any group. */
        if (stages->stage_count > 1 || stages->times > 1 || item->count != stages->epoch_samples) {
            span->nodes = 1;
        }
        span->positions += stages->times > 1 ? stages->spacing : 0;
        part->window_samples = window_of(span->order);
        part->open_bound = bound_of(span);
    }
}

void stk_order_parts_get(const struct stoker_order *order, uint32_t number, uint64_t nodes,
                         uint64_t positions, struct stk_order_part *part_out)
{
    const struct stk_schedule *schedule = &order->schedule;
    struct span span = {&schedule->order, &order->partition, nodes, positions};

    *part_out = (struct stk_order_part){
        .samples = samples_of(order, number), .blocks = blocks_of(order, number), .once = true};
    for (uint32_t i = 0; i < number; i++) {
        part_out->first_block += blocks_of(order, i);
    }
    if (schedule->stages.items) {
        stage(order, number, &span, part_out);
        return;
    }
    if (schedule->orders) { /* its samples may be at positions of any group */
        const struct stk_sampling_rule *choice = stk_schedule_rule(schedule, number);

        span.order = &schedule->orders[number];
        span.nodes = 1;
        span.positions += frame_of(&schedule->mix, number);
        if (choice && stk_sampling_rule_is_random(choice)) { /* any block at any time */
            part_out->once = false;
            part_out->window_samples = part_out->samples;
            part_out->open_bound = part_out->blocks;
            return;
        }
    }
    part_out->window_samples = window_of(span.order);
    part_out->open_bound = bound_of(&span);
}

/* ---- reading ---- */

int stk_order_parts_reader_init(struct stk_order_parts_reader *reader,
                                const struct stoker_order *order)
{
    reader->order = order;
    return stk_schedule_reader_init(&reader->reader, &order->schedule, NULL);
}

void stk_order_parts_reader_deinit(struct stk_order_parts_reader *reader)
{
    stk_schedule_reader_deinit(&reader->reader);
}

/* A draw's number is not that of its place, and draws have no passes. */
static void number_draw(const struct stk_schedule *schedule, uint64_t sample,
                        struct stk_order_part_sample *visit)
{
    const struct stk_sampling_rule *choice = stk_schedule_rule(schedule, visit->part);

    if (choice && stk_sampling_rule_is_random(choice)) {
        uint64_t count = schedule->orders[visit->part].options.sample_count;

        sample -= schedule->firsts[visit->part];
        visit->number = choice->subset ? stk_subset_rank(choice->subset, sample) : sample;
        visit->number = visit->number < count ? visit->number : 0; /* a damaged table */
        visit->pass = 0;
    }
}

static void read_mix(struct stk_order_parts_reader *reader, uint64_t epoch, uint64_t first,
                     uint64_t count, const uint64_t *samples, struct stk_order_part_sample *visits)
{
    const struct stk_schedule *schedule = &reader->order->schedule;
    struct stk_mix_item items[STK_ORDER_PARTS_CHUNK];

    /* The last read moved the reader to this epoch. */
    first += schedule->is_endless ? epoch * schedule->epoch_samples : 0;
    stk_mix_read(&reader->reader.reader, first, count, items);
    for (uint64_t i = 0; i < count; i++) {
        visits[i] = (struct stk_order_part_sample){items[i].draw.source, items[i].draw.epoch,
                                                   items[i].draw.position, items[i].sample};
        number_draw(schedule, samples[i], &visits[i]);
    }
}

static struct stk_order_part_sample visit_of(const struct stk_curriculum *stages, uint64_t position,
                                             uint64_t sample)
{
    struct stk_order_part_sample visit = {.number = sample};
    const struct stk_curriculum_item *item;
    uint64_t place;

    while (visit.part + 1 < stages->stage_count &&
           stages->items[visit.part + 1].first <= position) {
        visit.part++;
    }
    item = &stages->items[visit.part];
    place = (position - item->first) / stages->times;
    visit.place = place % item->count;
    if (!item->rule.alias && !item->rule.classes && !item->rule.replacement) {
        visit.pass = place / item->count;
    }
    if (item->rule.subset) {
        visit.number = stk_subset_rank(item->rule.subset, sample);
        visit.number = visit.number < item->count ? visit.number : 0; /* a damaged table */
    }
    return visit;
}

void stk_order_parts_read(struct stk_order_parts_reader *reader, uint64_t epoch, uint64_t first,
                          uint64_t count, struct stk_order_part_sample *visits_out)
{
    const struct stk_schedule *schedule = &reader->order->schedule;
    uint64_t samples[STK_ORDER_PARTS_CHUNK];

    stk_schedule_read(&reader->reader, epoch, first, count, samples);
    if (schedule->orders) {
        read_mix(reader, epoch, first, count, samples, visits_out);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        visits_out[i] = schedule->stages.items
                            ? visit_of(&schedule->stages,
                                       epoch * schedule->epoch_samples + first + i, samples[i])
                            : (struct stk_order_part_sample){0, epoch, first + i, samples[i]};
    }
}
