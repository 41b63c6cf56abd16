/* Measures how well an order mixes and what it costs (open blocks, requests, cache hits), in total
 * and for each source or stage. Mixing is measured in steps of eight epochs; blocks are followed
 * through complete epochs (block_trace.c): one fills the caches, the next is counted. */
#include "order/analysis/block_trace.h"

#include "base/compare.h"
#include "base/mem.h"
#include "base/options.h"
#include "base/random.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MEASURED_STEPS 512u
#define MEASURED_EPOCHS 8u
#define MEASURED_MAX (1u << 20)            /* samples of a step that are measured */
#define MEASURED_TOTAL (UINT64_C(1) << 22) /* samples of all steps; but a step an epoch */
#define TRACE_DEFAULT (UINT64_C(1) << 24)
#define TRACE_BLOCKS_MAX (UINT64_C(1) << 22) /* each one is a cache miss, or several */
#define EPOCH_COUNTED 1u /* the caches contain the blocks of the previous epoch */

/* Sums over the measured steps. */
struct sums {
    uint64_t distances, placed, pairs, same, met, beside;
    double distance, displacement; /* in samples of the part; of all parts in parts of each */
};

struct mixing {
    const struct stoker_order *order;
    uint64_t samples, block_samples; /* of an epoch */
    uint64_t steps;                  /* that were measured */
    uint32_t part_count;
    uint64_t *sizes;            /* [part_count]: samples that a part has; owned, as the rest */
    struct sums *sums, all;     /* [part_count] */
    uint64_t *firsts;           /* [part_count + 1]: of the parts in a step */
    uint64_t *numbers, *sorted; /* [MEASURED_MAX at most]: of a step, part by part */
    struct stk_order_part_sample *visits;
};

static double distance_of(uint64_t a, uint64_t b)
{
    return a > b ? (double)(a - b) : (double)(b - a);
}

/* ---- the mixing ---- */

/* Measures the samples of one part in a step, by position. */
static void measure_part(struct mixing *mixing, uint32_t number, uint64_t count)
{
    const uint64_t *numbers = mixing->numbers + mixing->firsts[number];
    uint64_t *sorted = mixing->sorted, run = 0;
    struct sums *sums = &mixing->sums[number];

    for (uint64_t i = 1; i < count; i++) {
        sums->distance += distance_of(numbers[i], numbers[i - 1]);
    }
    sums->distances += count > 0 ? count - 1 : 0;
    memcpy(sorted, numbers, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, stk_compare_u64);
    for (uint64_t i = 0; i < count; i++) {
        bool after_one = i > 0 && sorted[i] == sorted[i - 1] + 1;
        bool before_one = i + 1 < count && sorted[i + 1] == sorted[i] + 1;
        bool alike =
            i > 0 && sorted[i] / mixing->block_samples == sorted[i - 1] / mixing->block_samples;

        sums->beside += after_one || before_one;
        run = alike ? run + 1 : 0;
        sums->same += run; /* pairs with those before it in its block */
    }
    sums->met += count;
    sums->pairs += count * (count > 0 ? count - 1 : 0) / 2;
}

/* Measures one step; its samples are sorted by position. */
static void measure_step(struct mixing *mixing, uint64_t count)
{
    uint64_t *firsts = mixing->firsts;

    memset(firsts, 0, (mixing->part_count + 1u) * sizeof *firsts);
    for (uint64_t i = 0; i < count; i++) {
        const struct stk_order_part_sample *visit = &mixing->visits[i];

        firsts[visit->part + 1]++;
        mixing->sums[visit->part].displacement += distance_of(visit->number, visit->place);
        mixing->sums[visit->part].placed++;
    }
    for (uint32_t part = 0; part < mixing->part_count; part++) {
        firsts[part + 1] += firsts[part];
    }
    for (uint64_t i = 0; i < count; i++) { /* moves each first to the next part's */
        mixing->numbers[firsts[mixing->visits[i].part]++] = mixing->visits[i].number;
    }
    memmove(firsts + 1, firsts, mixing->part_count * sizeof *firsts);
    firsts[0] = 0;
    for (uint32_t part = 0; part < mixing->part_count; part++) {
        measure_part(mixing, part, firsts[part + 1] - firsts[part]);
    }
    mixing->all.pairs += count * (count > 0 ? count - 1 : 0) / 2;
    mixing->steps++;
}

/* Limits the samples that are measured, so that large steps take no longer. */
static uint64_t most_steps(uint64_t size)
{
    return stk_max(stk_min(MEASURED_STEPS, MEASURED_TOTAL / stk_max(size, 1)), MEASURED_EPOCHS);
}

/* Returns the step that is measured. If few are, they lie in other places of each epoch. */
static uint64_t step_at(uint64_t steps, uint64_t each, uint64_t epoch, uint64_t i)
{
    uint64_t first = i * steps / each;

    return each == steps || each == MEASURED_STEPS / MEASURED_EPOCHS
               ? first
               : first + steps / each * (2 * epoch + 1) / (2 * MEASURED_EPOCHS);
}

static int measure_order(struct mixing *mixing, uint64_t size)
{
    struct stk_order_parts_reader reader;
    uint64_t stride = stk_partition_stride(&mixing->order->partition);
    uint64_t steps = stk_max(mixing->samples / stride, 1);
    uint64_t each = stk_min(steps, most_steps(size) / MEASURED_EPOCHS);
    int status = stk_order_parts_reader_init(&reader, mixing->order);

    for (uint64_t epoch = 0; epoch < MEASURED_EPOCHS && status == 0; epoch++) {
        for (uint64_t i = 0; i < each; i++) {
            uint64_t position = step_at(steps, each, epoch, i) * stride;
            uint64_t count = stk_min(size, mixing->samples - position);

            for (uint64_t at = 0, piece; at < count; at += piece) {
                piece = stk_min(count - at, STK_ORDER_PARTS_CHUNK);
                stk_order_parts_read(&reader, epoch, position + at, piece, mixing->visits + at);
            }
            measure_step(mixing, count);
        }
    }
    status = status < 0 ? status : stk_schedule_reader_error(&reader.reader, NULL);
    stk_order_parts_reader_deinit(&reader);
    return status;
}

/* Simulates a buffer that is filled in storage order. Each draw takes a random sample from it.
 * Visits all samples once. */
static int measure_buffer(struct mixing *mixing, uint64_t buffer_samples, uint64_t size)
{
    uint64_t stride = stk_partition_stride(&mixing->order->partition);
    uint64_t total = stk_min(mixing->samples, TRACE_DEFAULT), room = stk_min(buffer_samples, total);
    uint64_t steps = stk_max(total / stride, 1), every = stk_max(steps / most_steps(size), 1);
    uint64_t *buffer = stk_alloc(room, sizeof *buffer), next = room, left = room;

    if (!buffer) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < room; i++) {
        buffer[i] = i;
    }
    for (uint64_t position = 0; position < total; position++) {
        uint64_t drawn = stk_random_key(mixing->order->schedule.order.key_run, position) % left,
                 place = position % stride;

        if (place < size) {
            mixing->visits[place] = (struct stk_order_part_sample){0, 0, position, buffer[drawn]};
        }
        if (next < total) {
            buffer[drawn] = next++;
        } else {
            buffer[drawn] = buffer[--left];
        }
        if (place + 1 == size && position / stride % every == 0) {
            measure_step(mixing, size);
        }
    }
    stk_free(buffer);
    return 0;
}

static void write_result(const struct sums *sums, struct stoker_order_measures *measures)
{
    measures->distance = sums->distance / (double)stk_max(sums->distances, 1);
    measures->displacement = sums->displacement / (double)stk_max(sums->placed, 1);
    measures->same_block = (double)sums->same / (double)stk_max(sums->pairs, 1);
    measures->neighbours = (double)sums->beside / (double)stk_max(sums->met, 1);
}

static void write_results(struct mixing *mixing, const struct stoker_order_measure_options *options,
                          struct stoker_order_measures *measures)
{
    struct sums *all = &mixing->all;

    for (uint32_t i = 0; i < mixing->part_count; i++) {
        struct sums *sums = &mixing->sums[i];

        sums->distance /= (double)stk_max(mixing->sizes[i], 1);
        sums->displacement /= (double)stk_max(mixing->sizes[i], 1);
        all->distance += sums->distance;
        all->displacement += sums->displacement;
        all->distances += sums->distances;
        all->placed += sums->placed;
        all->same += sums->same;
        all->met += sums->met;
        all->beside += sums->beside;
        if (i < options->part_max) {
            write_result(sums, &options->parts[i]);
        }
    }
    write_result(all, measures);
}

static int measure_mixing(const struct stoker_order *order,
                          const struct stoker_order_measure_options *options,
                          struct stoker_order_measures *measures)
{
    struct mixing mixing = {.order = order,
                            .samples = order->partition.sample_count,
                            .part_count = stk_order_parts_count(order),
                            .block_samples =
                                stk_max(order->schedule.order.options.block_samples, 1)};
    uint64_t size =
        stk_min(stk_min(stk_partition_stride(&order->partition), MEASURED_MAX), mixing.samples);
    int status = 0;

    mixing.sizes = stk_alloc(mixing.part_count, sizeof *mixing.sizes);
    mixing.sums = stk_alloc(mixing.part_count, sizeof *mixing.sums);
    mixing.firsts = stk_alloc(mixing.part_count + 1u, sizeof *mixing.firsts);
    mixing.numbers = stk_alloc(stk_max(size, 1), sizeof *mixing.numbers);
    mixing.sorted = stk_alloc(stk_max(size, 1), sizeof *mixing.sorted);
    mixing.visits = stk_alloc(stk_max(size, 1), sizeof *mixing.visits);
    if (!mixing.sizes || !mixing.sums || !mixing.firsts || !mixing.numbers || !mixing.sorted ||
        !mixing.visits) {
        status = -ENOMEM;
    } else if (size > 0) {
        status = options->buffer_samples > 0
                     ? measure_buffer(&mixing, options->buffer_samples, size)
                     : measure_order(&mixing, size);
    }
    for (uint32_t i = 0; status == 0 && i < mixing.part_count; i++) {
        struct stk_order_part part;

        stk_order_parts_get(order, i, 1, 0, &part);
        mixing.sizes[i] = part.samples;
    }
    if (status == 0) {
        write_results(&mixing, options, measures);
        measures->steps_measured = mixing.steps;
        measures->step_samples_measured = size;
    }
    stk_free(mixing.visits);
    stk_free(mixing.sorted);
    stk_free(mixing.numbers);
    stk_free(mixing.firsts);
    stk_free(mixing.sums);
    stk_free(mixing.sizes);
    return status;
}

/* ---- all measures ---- */

static void write_trace(const struct stk_block_trace *trace,
                        const struct stoker_order_measure_options *options,
                        struct stoker_order_measures *measures)
{
    measures->samples = trace->samples;
    measures->requests = trace->requests;
    measures->requests_cached = trace->requests_cached;
    measures->cache_share = (double)trace->hits / (double)stk_max(trace->samples, 1);
    measures->open_blocks_max = trace->open_max;
    measures->walked = 1;
    for (uint32_t i = 0; i < stk_min(trace->part_count, options->part_max); i++) {
        const struct stk_block_trace_part *part = &trace->parts[i];
        struct stoker_order_measures *own = &options->parts[i];

        own->samples = part->samples;
        own->requests = part->requests;
        own->requests_cached = part->requests_cached;
        own->cache_share = (double)part->hits / (double)stk_max(part->samples, 1);
        own->open_blocks_max = part->open_max;
        own->walked = 1;
    }
}

static int measure_trace(const struct stoker_order *order,
                         const struct stoker_order_measure_options *options,
                         struct stoker_order_measures *measures)
{
    struct stk_block_trace trace;
    int status;

    if (order->partition.sample_count > options->walk_max ||
        stk_order_parts_blocks(order) > TRACE_BLOCKS_MAX) {
        return 0;
    }
    status = stk_block_trace_open(&trace, order, options->nodes, EPOCH_COUNTED);
    if (status == 1) {
        status = stk_block_trace_run(&trace);
        if (status == 0) {
            write_trace(&trace, options, measures);
        }
        stk_block_trace_close(&trace);
    }
    return status;
}

/* Computes the values that need no measurement: of each part, and of all parts. */
static void write_sizes(const struct stoker_order *order,
                        const struct stoker_order_measure_options *options,
                        struct stoker_order_measures *measures)
{
    bool is_mix = order->schedule.orders != NULL;
    uint64_t open = 0, window = 0;

    measures->block_count = stk_order_parts_blocks(order);
    measures->part_count = stk_order_parts_count(order);
    for (uint32_t i = 0; i < measures->part_count; i++) {
        struct stk_order_part part;

        /* Sources are open at the same time, stages one after the other. */
        stk_order_parts_get(order, i, options->nodes, 0, &part);
        open = is_mix ? open + part.open_bound : stk_max(open, part.open_bound);
        window = is_mix ? window + part.window_samples : stk_max(window, part.window_samples);
        if (i < options->part_max) {
            options->parts[i] = (struct stoker_order_measures){
                .struct_size = sizeof *options->parts,
                .nodes = options->nodes,
                .block_count = part.blocks,
                .window_samples = part.window_samples,
                .window_blocks_max = part.open_bound,
                .chosen = part.samples,
            };
        }
        measures->chosen += part.samples;
    }
    measures->window_blocks_max = open;
    measures->window_samples =
        options->buffer_samples > 0 ? stk_min(options->buffer_samples, measures->chosen) : window;
}

/* The structs of the caller's array have the size that *measures_out specifies. */
static void copy_parts(void *parts_out, const struct stoker_order_measures *parts, size_t count,
                       size_t struct_size)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t *part = (uint8_t *)parts_out + i * struct_size;

        memcpy(part, &struct_size, sizeof struct_size);
        stk_options_write_output(part, &parts[i], sizeof *parts, "measures", NULL);
    }
}

static int measure_all(const struct stoker_order *order,
                       const struct stoker_order_measure_options *options,
                       struct stoker_order_measures *measures)
{
    int status;

    measures->nodes = options->nodes;
    write_sizes(order, options, measures);
    status = measure_mixing(order, options, measures);
    return status < 0 || options->buffer_samples > 0 ? status
                                                     : measure_trace(order, options, measures);
}

int stoker_order_measure(const struct stoker_order *order,
                         const struct stoker_order_measure_options *given,
                         struct stoker_order_measures *measures_out, struct stoker_error *error)
{
    struct stoker_order_measure_options options;
    struct stoker_order_measures full = {0}, *parts_out;
    int status = stk_options_read(&options, sizeof options, sizeof options.struct_size, given,
                                  "measure options", error);

    status = status < 0 ? status
                        : stk_options_check_output(measures_out, sizeof full,
                                                   sizeof full.struct_size, "measures", error);
    if (status < 0) {
        return status;
    }
    if (options.buffer_samples > 0 && !stk_schedule_is_plain(&order->schedule)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                        "a shuffle buffer is measured over all samples, once",
                        "measure it for an order without mix, chosen samples and two levels",
                        "%u parts", stk_order_parts_count(order));
    }
    options.nodes = options.nodes ? options.nodes : 1;
    options.walk_max = options.walk_max ? options.walk_max : TRACE_DEFAULT;
    if (order->partition.world_size % options.nodes != 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT,
                        "the number of ranks is not a multiple of the number of nodes",
                        "use a number of nodes that divides the ranks", "nodes %u of world_size %u",
                        options.nodes, order->partition.world_size);
    }
    if (order->schedule.order.options.block_samples == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the order has no blocks to measure",
                        "set block_samples of the order", "block_samples 0");
    }
    parts_out = options.parts;
    options.part_max = parts_out ? stk_min(options.part_max, stk_order_parts_count(order)) : 0;
    options.parts = options.part_max ? stk_alloc(options.part_max, sizeof *options.parts) : NULL;
    status = options.parts || options.part_max == 0 ? measure_all(order, &options, &full) : -ENOMEM;
    if (status == 0) {
        copy_parts(parts_out, options.parts, options.part_max, measures_out->struct_size);
    }
    stk_free(options.parts);
    if (status < 0) {
        return stk_fail(error, status, "cannot measure an order", "free memory", "measure");
    }
    return stk_options_write_output(measures_out, &full, sizeof full, "measures", error);
}
