/* How well an order mixes, and what it costs: blocks open at once, requests, hits of a cache. The
 * mixing is looked at in steps spread over eight epochs; blocks are followed through whole epochs,
 * one to fill the caches and the next to count. */
#include "plan/setup.h"

#include "base/hash.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS 512u
#define LOOK_EPOCHS 8u
#define LOOK_MAX (1u << 20) /* samples of a step that are looked at */
#define WALK_DEFAULT (UINT64_C(1) << 24)
#define CHUNK 1024u
#define NODES_LOOKED_AT (1u << 20) /* one by one; each of more may have samples of all groups */
#define EPOCH_FILLED 0u            /* caches hold what this epoch left */
#define EPOCH_COUNTED 1u

struct mixing {
    uint64_t samples, block_samples; /* of the data set */
    uint64_t steps, distances, placed, pairs, same, met, beside;
    double distance, displacement;
    uint64_t *sorted; /* [LOOK_MAX at most] */
};

/* Samples of a block that a node has in an epoch: [block * nodes + node]. */
struct walk {
    const struct stoker_order *order;
    uint64_t blocks, nodes, ranks; /* ranks of a node */
    uint32_t *before, *now, *sorted;
    uint64_t *open;
    struct stk_schedule_reader reader;
};

static double apart(uint64_t a, uint64_t b)
{
    return a > b ? (double)(a - b) : (double)(b - a);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

static int compare_down(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return left > right ? -1 : left < right;
}

/* ---- the mixing ---- */

/* One step: `samples` by position, from `position` on. */
static void look(struct mixing *mixing, const uint64_t *samples, uint64_t count, uint64_t position)
{
    uint64_t *sorted = mixing->sorted, run = 0;

    for (uint64_t i = 0; i < count; i++) {
        mixing->displacement += apart(samples[i], position + i);
        mixing->distance += i > 0 ? apart(samples[i], samples[i - 1]) : 0;
    }
    mixing->placed += count;
    mixing->distances += count > 0 ? count - 1 : 0;
    memcpy(sorted, samples, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_u64);
    for (uint64_t i = 0; i < count; i++) {
        bool after_one = i > 0 && sorted[i] == sorted[i - 1] + 1;
        bool before_one = i + 1 < count && sorted[i + 1] == sorted[i] + 1;
        bool alike =
            i > 0 && sorted[i] / mixing->block_samples == sorted[i - 1] / mixing->block_samples;

        mixing->beside += after_one || before_one;
        run = alike ? run + 1 : 0;
        mixing->same += run; /* pairs with those before it in its block */
    }
    mixing->met += count;
    mixing->pairs += count * (count > 0 ? count - 1 : 0) / 2;
}

static int look_at_order(struct mixing *mixing, const struct stoker_order *order, uint64_t *samples,
                         uint64_t size)
{
    struct stk_schedule_reader reader;
    uint64_t stride = stk_partition_stride(&order->partition);
    uint64_t steps = stk_max(mixing->samples / stride, 1);
    uint64_t each = stk_min(steps, LOOKS / LOOK_EPOCHS);
    int status = stk_schedule_reader_init(&reader, &order->schedule, NULL);

    for (uint64_t epoch = 0; epoch < LOOK_EPOCHS && status == 0; epoch++) {
        for (uint64_t i = 0; i < each; i++) {
            uint64_t position = i * steps / each * stride;
            uint64_t count = stk_min(size, mixing->samples - position);

            stk_schedule_read(&reader, epoch, position, count, samples);
            look(mixing, samples, count, position);
        }
    }
    status = status < 0 ? status : stk_schedule_reader_take(&reader, NULL);
    stk_schedule_reader_deinit(&reader);
    return status;
}

/* A buffer that is filled in storage order; each draw takes one of it at random. */
static int look_at_buffer(struct mixing *mixing, const struct stoker_order *order,
                          uint64_t buffer_samples, uint64_t *samples, uint64_t size)
{
    uint64_t stride = stk_partition_stride(&order->partition);
    uint64_t total = stk_min(mixing->samples, WALK_DEFAULT), room = stk_min(buffer_samples, total);
    uint64_t steps = stk_max(total / stride, 1), every = stk_max(steps / LOOKS, 1);
    uint64_t *buffer = stk_alloc(room, sizeof *buffer), next = room, left = room;

    if (!buffer) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < room; i++) {
        buffer[i] = i;
    }
    for (uint64_t position = 0; position < total; position++) {
        uint64_t drawn = stk_key(order->schedule.order.key_run, position) % left,
                 place = position % stride;

        if (place < size) {
            samples[place] = buffer[drawn];
        }
        if (next < total) {
            buffer[drawn] = next++;
        } else {
            buffer[drawn] = buffer[--left];
        }
        if (place + 1 == size && position / stride % every == 0) {
            look(mixing, samples, size, position - place);
        }
    }
    stk_free(buffer);
    return 0;
}

static int measure_mixing(const struct stoker_order *order, uint64_t buffer_samples,
                          struct stoker_order_measures *measures)
{
    struct mixing mixing = {.samples = order->partition.sample_count,
                            .block_samples =
                                stk_max(order->schedule.order.options.block_samples, 1)};
    uint64_t size =
        stk_min(stk_min(stk_partition_stride(&order->partition), LOOK_MAX), mixing.samples);
    uint64_t *samples = stk_alloc(stk_max(size, 1), sizeof *samples);
    int status = 0;

    mixing.sorted = stk_alloc(stk_max(size, 1), sizeof *mixing.sorted);
    if (!samples || !mixing.sorted) {
        status = -ENOMEM;
    } else if (size > 0 && buffer_samples > 0) {
        status = look_at_buffer(&mixing, order, buffer_samples, samples, size);
    } else if (size > 0) {
        status = look_at_order(&mixing, order, samples, size);
    }
    if (status == 0 && size > 0) {
        double all = (double)mixing.samples;

        measures->distance = mixing.distance / (double)stk_max(mixing.distances, 1) / all;
        measures->displacement = mixing.displacement / (double)mixing.placed / all;
        measures->same_block = (double)mixing.same / (double)stk_max(mixing.pairs, 1);
        measures->neighbours = (double)mixing.beside / (double)mixing.met;
    }
    stk_free(mixing.sorted);
    stk_free(samples);
    return status;
}

/* ---- blocks that are open at once ---- */

/* Samples of the largest shard. */
static uint64_t largest_shard(const struct stk_stages *stages)
{
    uint64_t largest = 0, before = 0;

    for (uint32_t i = 0; i < stages->shard_count; i++) {
        largest = stk_max(largest, stages->ends[i] - before);
        before = stages->ends[i];
    }
    return largest;
}

/* Home groups of which a node has samples. Steps are cut in equal slices of the positions sorted by
 * group; where a step does not hold as many of each group, borders move from step to step. */
static uint64_t groups_met(const struct stoker_order *order, uint64_t nodes)
{
    uint64_t step = stk_partition_stride(&order->partition), met = 0;
    uint64_t groups = order->schedule.order.options.group_count;
    uint64_t often = step / groups, more = step % groups;

    if (nodes == 1 || often == 0 || nodes > NODES_LOOKED_AT) {
        return groups;
    }
    for (uint64_t node = 0; node < nodes && met < groups; node++) {
        uint64_t begin = step / nodes * node, end = begin + step / nodes;
        uint64_t behind = stk_min((end - 1) / often + 1, groups); /* group k begins at k * often, */
        uint64_t first = begin / (often + (more > 0)); /* and a bit later in some steps */

        while (first < groups && (first + 1) * often + stk_min(first + 1, more) <= begin) {
            first++;
        }
        met = stk_max(met, behind - stk_min(first, behind));
    }
    return met;
}

/* Samples of other nodes' groups that a node has all the same: a last step that is short, or one
 * that goes on from the epoch before, is dealt in other slices. */
static uint64_t strangers(const struct stoker_order *order, uint64_t nodes)
{
    uint64_t step = stk_partition_stride(&order->partition);
    uint32_t tail = order->partition.tail;

    return nodes > 1 && (tail == STOKER_TAIL_WRAP || tail == STOKER_TAIL_KEEP) ? step / nodes : 0;
}

uint64_t stk_plan_open_bound(const struct stoker_order *order, uint64_t nodes, uint64_t windows)
{
    const struct stk_order *inner = &order->schedule.order;
    const struct stk_order_options *options = &inner->options;
    uint64_t samples = options->sample_count, block = options->block_samples;
    uint64_t blocks = samples / block + (samples % block > 0), groups = options->group_count;
    uint64_t pooled, window, met, bound;

    if (options->shuffle == STOKER_SHUFFLE_FULL) {
        return blocks;
    }
    if (order->schedule.stages.ends) { /* a shard's, and those that two shards share */
        const struct stk_stages *stages = &order->schedule.stages;

        return stk_min(largest_shard(stages) / block + 2 + stages->shard_count, blocks);
    }
    if (options->shuffle == STOKER_SHUFFLE_NONE) {
        return stk_min(blocks, 1);
    }
    /* The pool: each node has a share of its samples, of which each may lie in another block. */
    pooled = blocks - inner->group_blocks * groups;
    met = groups_met(order, nodes);
    if (stk_partition_stride(&order->partition) % groups == 0 && groups % nodes == 0) {
        pooled = stk_min(pooled, ((inner->pool_samples + groups - 1) / groups) * met);
    }
    window = stk_min(inner->window_base + (inner->window_extra > 0), inner->group_blocks);
    window = windows < inner->windows ? windows * window : inner->group_blocks;
    if (stk_multiply(met, window, &bound) && stk_add(bound, pooled, &bound) &&
        stk_add(bound, strangers(order, nodes), &bound)) {
        return stk_min(bound, blocks);
    }
    return blocks;
}

/* ---- blocks, followed through an epoch ---- */

/* Calls for each delivered position of an epoch: its cell of the table, and its node. */
static void each_cell(struct walk *walk, uint64_t epoch,
                      void (*visit)(struct walk *walk, uint64_t cell, uint64_t node))
{
    const struct stk_partition *partition = &walk->order->partition;
    uint64_t samples[CHUNK];

    for (uint64_t first = 0, count; first < partition->sample_count; first += count) {
        count = stk_min(CHUNK, partition->sample_count - first);
        stk_schedule_read(&walk->reader, epoch, first, count, samples);
        for (uint64_t i = 0; i < count; i++) {
            struct stk_delivery found;

            if (stk_partition_find(partition, epoch, first + i, &found)) {
                uint64_t block = samples[i] / walk->order->schedule.order.options.block_samples;
                uint64_t node = found.rank / walk->ranks;

                visit(walk, block * walk->nodes + node, node);
            }
        }
    }
}

static void count_before(struct walk *walk, uint64_t cell, uint64_t node)
{
    (void)node;
    walk->before[cell]++;
}

static void count_now(struct walk *walk, uint64_t cell, uint64_t node)
{
    (void)node;
    walk->now[cell]++;
}

/* `now` counts down what is left, `before` is what there was; open: now, and the most. */
static void count_open(struct walk *walk, uint64_t cell, uint64_t node)
{
    uint64_t *open = &walk->open[2 * node];

    open[0] += walk->now[cell] == walk->before[cell];
    open[1] = stk_max(open[0], open[1]);
    open[0] -= --walk->now[cell] == 0;
}

/* The cache keeps the blocks that this node had most of: 1 / nodes of all. */
static void count_cached(struct walk *walk, uint64_t node, struct stoker_order_measures *measures,
                         uint64_t *hits)
{
    uint64_t room = (walk->blocks - 1) / walk->nodes + 1, border = 0;
    uint32_t least;

    for (uint64_t block = 0; block < walk->blocks; block++) {
        walk->sorted[block] = walk->before[block * walk->nodes + node];
    }
    qsort(walk->sorted, walk->blocks, sizeof *walk->sorted, compare_down);
    least = walk->sorted[room - 1];
    for (uint64_t i = 0; i < room; i++) {
        border += walk->sorted[i] == least; /* of those that had just so many, the first ones */
    }
    for (uint64_t block = 0; block < walk->blocks; block++) {
        uint64_t cell = block * walk->nodes + node;
        bool kept = walk->before[cell] > least;

        if (walk->before[cell] == least && least > 0 && border > 0) {
            kept = true;
            border--;
        }
        measures->requests += walk->now[cell] > 0;
        measures->requests_cached += walk->now[cell] > 0 && !kept;
        *hits += kept ? walk->now[cell] : 0;
    }
}

static void walk_through(struct walk *walk, struct stoker_order_measures *measures)
{
    uint64_t cells = walk->blocks * walk->nodes, hits = 0, all = 0;

    each_cell(walk, EPOCH_FILLED, count_before);
    each_cell(walk, EPOCH_COUNTED, count_now);
    for (uint64_t cell = 0; cell < cells; cell++) {
        all += walk->now[cell];
    }
    for (uint64_t node = 0; node < walk->nodes; node++) {
        count_cached(walk, node, measures, &hits);
    }
    measures->cache_share = (double)hits / (double)stk_max(all, 1);
    memcpy(walk->before, walk->now, cells * sizeof *walk->now);
    each_cell(walk, EPOCH_COUNTED, count_open);
    for (uint64_t node = 0; node < walk->nodes; node++) {
        measures->open_blocks_max = stk_max(measures->open_blocks_max, walk->open[2 * node + 1]);
    }
    measures->walked = 1;
}

static int measure_walk(const struct stoker_order *order, uint32_t nodes, uint64_t walk_max,
                        struct stoker_order_measures *measures)
{
    struct walk walk = {
        .order = order,
        .blocks = measures->block_count,
        .nodes = nodes,
        .ranks = order->partition.world_size / nodes,
    };
    uint64_t cells;
    int status = 0;

    if (order->partition.sample_count > walk_max || walk.blocks == 0 ||
        !stk_multiply(walk.blocks, nodes, &cells) || cells > STK_PLAN_BYTES_MAX / 8) {
        return 0;
    }
    walk.before = stk_alloc(cells, sizeof *walk.before);
    walk.now = stk_alloc(cells, sizeof *walk.now);
    walk.sorted = stk_alloc(walk.blocks, sizeof *walk.sorted);
    walk.open = stk_alloc(nodes, 2 * sizeof *walk.open);
    status = walk.before && walk.now && walk.sorted && walk.open
                 ? stk_schedule_reader_init(&walk.reader, &order->schedule, NULL)
                 : -ENOMEM;
    if (status == 0) {
        walk_through(&walk, measures);
        status = stk_schedule_reader_take(&walk.reader, NULL);
    }
    stk_schedule_reader_deinit(&walk.reader);
    stk_free(walk.open);
    stk_free(walk.sorted);
    stk_free(walk.now);
    stk_free(walk.before);
    return status;
}

/* All samples, each once an epoch: by one order, or by two levels. */
static bool is_measurable(const struct stk_schedule *schedule)
{
    const struct stk_stages *stages = &schedule->stages;

    return stk_schedule_is_plain(schedule) ||
           (stages->ends && stages->stage_count == 1 && stages->times == 1 &&
            schedule->subset_identity == 0 && schedule->draws_identity == 0 &&
            stages->epoch_samples == schedule->order.options.sample_count);
}

static uint64_t window_of(const struct stoker_order *order, uint64_t buffer_samples)
{
    const struct stk_order_options *settings = &order->schedule.order.options;
    uint64_t window, samples = settings->sample_count;

    if (buffer_samples > 0) {
        return stk_min(buffer_samples, samples);
    }
    if (order->schedule.stages.ends) {
        return largest_shard(&order->schedule.stages);
    }
    switch (settings->shuffle) {
    case STOKER_SHUFFLE_FULL:
        return samples;
    case STOKER_SHUFFLE_NONE:
        return 1;
    default:
        window = (uint64_t)settings->window_blocks * settings->block_samples;
        return stk_min(window, samples);
    }
}

int stoker_order_measure(const struct stoker_order *order,
                         const struct stoker_order_measure_options *given,
                         struct stoker_order_measures *measures_out, struct stoker_error *error)
{
    const struct stk_order_options *settings = &order->schedule.order.options;
    struct stoker_order_measure_options options;
    struct stoker_order_measures full = {0};
    size_t bytes = measures_out->struct_size;
    int status = stk_plan_options(&options, sizeof options, given, error);

    if (status < 0) {
        return status;
    }
    if (!is_measurable(&order->schedule)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                        "neither a mix nor chosen samples are measured",
                        "measure the order of each source, or of all samples", "%u sources",
                        order->schedule.mix.source_count);
    }
    options.nodes = options.nodes ? options.nodes : 1;
    if (bytes < sizeof bytes || bytes > sizeof full ||
        order->partition.world_size % options.nodes != 0 || settings->block_samples == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the order cannot be measured like this",
                        "give nodes of as many ranks each, and the samples of a block",
                        "nodes %u of world_size %u", options.nodes, order->partition.world_size);
    }
    full.struct_size = bytes;
    full.nodes = options.nodes;
    full.block_count = settings->sample_count / settings->block_samples +
                       (settings->sample_count % settings->block_samples > 0);
    full.window_blocks_max = stk_plan_open_bound(order, options.nodes, 1);
    full.window_samples = window_of(order, options.buffer_samples);
    status = measure_mixing(order, options.buffer_samples, &full);
    if (status == 0 && options.buffer_samples == 0) {
        status = measure_walk(order, options.nodes,
                              options.walk_max ? options.walk_max : WALK_DEFAULT, &full);
    }
    if (status < 0) {
        return stk_fail(error, status, "cannot measure an order", "free memory", "measure");
    }
    memcpy(measures_out, &full, bytes);
    return 0;
}
