/* Counts the samples that each node has of each block: up, then down again. */
#include "order/analysis/block_trace.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int compare_down(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return left > right ? -1 : left < right;
}

/* ---- opening ---- */

/* Computes which passes of each part the epoch contains. */
static int find_passes(struct stk_block_trace *trace)
{
    struct stk_order_part_sample visits[STK_ORDER_PARTS_CHUNK];
    uint64_t samples = trace->order->partition.sample_count;

    if (stk_schedule_is_plain(&trace->order->schedule)) {
        trace->parts[0].first_pass = trace->epoch;
        trace->parts[0].passes = 1;
        return 0;
    }
    for (uint64_t first = 0, count; first < samples; first += count) {
        count = stk_min(STK_ORDER_PARTS_CHUNK, samples - first);
        stk_order_parts_read(&trace->reader, trace->epoch, first, count, visits);
        for (uint64_t i = 0; i < count; i++) {
            struct stk_block_trace_part *part = &trace->parts[visits[i].part];
            uint64_t pass = visits[i].pass, end = part->first_pass + part->passes;

            if (part->passes == 0) {
                part->first_pass = pass;
                end = pass + 1;
            }
            end = stk_max(end, pass + 1);
            part->first_pass = stk_min(part->first_pass, pass);
            part->passes = end - part->first_pass;
        }
    }
    return stk_schedule_reader_error(&trace->reader.reader, NULL);
}

static bool number_cells(struct stk_block_trace *trace)
{
    uint64_t blocks, cells, bytes;

    for (uint32_t i = 0; i < trace->part_count; i++) {
        struct stk_block_trace_part *part = &trace->parts[i];

        part->first_cell = trace->cells;
        if (!stk_multiply(part->part.blocks, part->passes, &cells) ||
            !stk_add(trace->cells, cells, &trace->cells)) {
            return false;
        }
    }
    return stk_multiply(trace->blocks, trace->nodes * 8, &blocks) &&
           stk_multiply(trace->cells, trace->nodes * 8, &cells) && stk_add(blocks, cells, &bytes) &&
           bytes <= STK_ORDER_ANALYSIS_BYTES_MAX;
}

int stk_block_trace_open(struct stk_block_trace *trace, const struct stoker_order *order,
                         uint64_t nodes, uint64_t epoch)
{
    int status;

    *trace = (struct stk_block_trace){.order = order,
                                      .blocks = stk_order_parts_blocks(order),
                                      .nodes = nodes,
                                      .ranks = order->partition.world_size / nodes,
                                      .epoch = epoch,
                                      .block_samples = order->schedule.order.options.block_samples,
                                      .part_count = stk_order_parts_count(order)};
    if (trace->blocks == 0 || trace->blocks > STK_ORDER_ANALYSIS_BYTES_MAX / 16 / nodes) {
        return 0;
    }
    trace->parts = stk_alloc(trace->part_count, sizeof *trace->parts);
    status = trace->parts ? stk_order_parts_reader_init(&trace->reader, order) : -ENOMEM;
    for (uint32_t i = 0; status == 0 && i < trace->part_count; i++) {
        stk_order_parts_get(order, i, nodes, 0, &trace->parts[i].part);
    }
    status = status < 0 ? status : find_passes(trace);
    if (status < 0 || !number_cells(trace)) {
        stk_block_trace_close(trace);
        return status < 0 ? status : 0;
    }
    trace->filled = stk_alloc(trace->blocks * nodes, sizeof *trace->filled);
    trace->held = stk_alloc(trace->blocks * nodes, sizeof *trace->held);
    trace->now = stk_alloc(stk_max(trace->cells, 1) * nodes, sizeof *trace->now);
    trace->left = stk_alloc(stk_max(trace->cells, 1) * nodes, sizeof *trace->left);
    trace->sorted = stk_alloc(trace->blocks, sizeof *trace->sorted);
    trace->open = stk_alloc((trace->part_count + 1) * nodes, sizeof *trace->open);
    if (!trace->filled || !trace->held || !trace->now || !trace->left || !trace->sorted ||
        !trace->open) {
        stk_block_trace_close(trace);
        return -ENOMEM;
    }
    return 1;
}

void stk_block_trace_close(struct stk_block_trace *trace)
{
    stk_order_parts_reader_deinit(&trace->reader);
    stk_free(trace->parts);
    stk_free(trace->filled);
    stk_free(trace->held);
    stk_free(trace->now);
    stk_free(trace->left);
    stk_free(trace->sorted);
    stk_free(trace->open);
    *trace = (struct stk_block_trace){0};
}

/* ---- counting ---- */

uint64_t stk_block_trace_block(const struct stk_block_trace *trace,
                               const struct stk_order_part_sample *visit)
{
    return trace->parts[visit->part].part.first_block + visit->number / trace->block_samples;
}

uint64_t stk_block_trace_cell(const struct stk_block_trace *trace,
                              const struct stk_order_part_sample *visit, uint64_t node)
{
    const struct stk_block_trace_part *part = &trace->parts[visit->part];
    uint64_t cell =
        (visit->pass - part->first_pass) * part->part.blocks + visit->number / trace->block_samples;

    return (part->first_cell + cell) * trace->nodes + node;
}

bool stk_block_trace_add(struct stk_block_trace *trace, const struct stk_order_part_sample *visit,
                         uint64_t node)
{
    struct stk_block_trace_part *part = &trace->parts[visit->part];
    uint64_t cell = stk_block_trace_cell(trace, visit, node);
    uint32_t *held = &trace->held[stk_block_trace_block(trace, visit) * trace->nodes + node];
    uint64_t *of_part = &trace->open[visit->part * trace->nodes + node];
    uint64_t *of_all = &trace->open[trace->part_count * trace->nodes + node];
    bool begun = trace->left[cell] == trace->now[cell], is_new = begun && *held == 0;

    *held += begun; /* by as many passes as have begun it and not finished */
    *of_part += is_new;
    *of_all += is_new;
    part->open_max = stk_max(part->open_max, *of_part);
    trace->open_max = stk_max(trace->open_max, *of_all);
    if (--trace->left[cell] == 0 && --*held == 0) {
        --*of_part;
        --*of_all;
    }
    return is_new;
}

enum mode { FILL, COUNT, OPEN };

static void visit_one(struct stk_block_trace *trace, const struct stk_order_part_sample *visit,
                      uint64_t node, enum mode mode)
{
    if (mode == FILL) {
        trace->filled[stk_block_trace_block(trace, visit) * trace->nodes + node]++;
    } else if (mode == COUNT) {
        trace->now[stk_block_trace_cell(trace, visit, node)]++;
    } else if (stk_block_trace_add(trace, visit, node)) {
        struct stk_block_trace_part *part = &trace->parts[visit->part];

        part->requests++;
        part->requests_cached +=
            !trace->filled[stk_block_trace_block(trace, visit) * trace->nodes + node];
    }
}

/* Visits each delivered position of an epoch. */
static void run_pass(struct stk_block_trace *trace, uint64_t epoch, enum mode mode)
{
    const struct stk_partition *partition = &trace->order->partition;
    struct stk_order_part_sample visits[STK_ORDER_PARTS_CHUNK];

    for (uint64_t first = 0, count; first < partition->sample_count; first += count) {
        count = stk_min(STK_ORDER_PARTS_CHUNK, partition->sample_count - first);
        stk_order_parts_read(&trace->reader, epoch, first, count, visits);
        for (uint64_t i = 0; i < count; i++) {
            struct stk_delivery found;

            if (stk_partition_find(partition, epoch, first + i, &found)) {
                visit_one(trace, &visits[i], found.rank / trace->ranks, mode);
            }
        }
    }
}

/* ---- a node's cache ---- */

/* Counts the samples that a node finds in a cached block. */
static void count_block(struct stk_block_trace *trace, struct stk_block_trace_part *part,
                        uint64_t block, uint64_t node, bool reused)
{
    for (uint64_t pass = 0; pass < part->passes; pass++) {
        uint64_t cell = (part->first_cell + pass * part->part.blocks + block) * trace->nodes + node;

        part->samples += trace->now[cell];
        part->hits += reused ? trace->now[cell] : 0;
    }
}

/* The cache contains the blocks of which this node had most samples: 1 / nodes of all blocks.
 * `filled` then marks them. */
static void count_cached(struct stk_block_trace *trace, uint64_t node)
{
    uint64_t room = (trace->blocks - 1) / trace->nodes + 1, border = 0;
    uint32_t least;

    for (uint64_t block = 0; block < trace->blocks; block++) {
        trace->sorted[block] = trace->filled[block * trace->nodes + node];
    }
    qsort(trace->sorted, trace->blocks, sizeof *trace->sorted, compare_down);
    least = trace->sorted[room - 1];
    for (uint64_t i = 0; i < room; i++) {
        border += trace->sorted[i] == least; /* of blocks with equal counts, the first ones */
    }
    for (uint32_t i = 0; i < trace->part_count; i++) {
        struct stk_block_trace_part *part = &trace->parts[i];

        for (uint64_t block = 0; block < part->part.blocks; block++) {
            uint32_t *had = &trace->filled[(part->part.first_block + block) * trace->nodes + node];
            bool reused = *had > least;

            if (*had == least && least > 0 && border > 0) {
                reused = true;
                border--;
            }
            *had = reused;
            count_block(trace, part, block, node, reused);
        }
    }
}

int stk_block_trace_run(struct stk_block_trace *trace)
{
    run_pass(trace, trace->epoch - (trace->epoch > 0), FILL);
    run_pass(trace, trace->epoch, COUNT);
    memcpy(trace->left, trace->now, trace->cells * trace->nodes * sizeof *trace->now);
    for (uint64_t node = 0; node < trace->nodes; node++) {
        count_cached(trace, node);
    }
    run_pass(trace, trace->epoch, OPEN);
    for (uint32_t i = 0; i < trace->part_count; i++) {
        trace->samples += trace->parts[i].samples;
        trace->hits += trace->parts[i].hits;
        trace->requests += trace->parts[i].requests;
        trace->requests_cached += trace->parts[i].requests_cached;
    }
    return stk_schedule_reader_error(&trace->reader.reader, NULL);
}
