/* Counters of what each node has of each block, up and down. */
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

/* Which passes of each part the epoch has. */
static int look_up_passes(struct stk_walk *walk)
{
    struct stk_plan_visit visits[STK_PLAN_CHUNK];
    uint64_t samples = walk->order->partition.sample_count;

    if (stk_schedule_is_plain(&walk->order->schedule)) {
        walk->parts[0].first_pass = walk->epoch;
        walk->parts[0].passes = 1;
        return 0;
    }
    for (uint64_t first = 0, count; first < samples; first += count) {
        count = stk_min(STK_PLAN_CHUNK, samples - first);
        stk_plan_read(&walk->reader, walk->epoch, first, count, visits);
        for (uint64_t i = 0; i < count; i++) {
            struct stk_walk_part *part = &walk->parts[visits[i].part];
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
    return stk_schedule_reader_take(&walk->reader.reader, NULL);
}

static bool number_cells(struct stk_walk *walk)
{
    uint64_t blocks, cells, bytes;

    for (uint32_t i = 0; i < walk->part_count; i++) {
        struct stk_walk_part *part = &walk->parts[i];

        part->first_cell = walk->cells;
        if (!stk_multiply(part->part.blocks, part->passes, &cells) ||
            !stk_add(walk->cells, cells, &walk->cells)) {
            return false;
        }
    }
    return stk_multiply(walk->blocks, walk->nodes * 8, &blocks) &&
           stk_multiply(walk->cells, walk->nodes * 8, &cells) && stk_add(blocks, cells, &bytes) &&
           bytes <= STK_PLAN_BYTES_MAX;
}

int stk_walk_open(struct stk_walk *walk, const struct stoker_order *order, uint64_t nodes,
                  uint64_t epoch)
{
    int status;

    *walk = (struct stk_walk){.order = order,
                              .blocks = stk_plan_blocks(order),
                              .nodes = nodes,
                              .ranks = order->partition.world_size / nodes,
                              .epoch = epoch,
                              .block_samples = order->schedule.order.options.block_samples,
                              .part_count = stk_plan_parts(order)};
    if (walk->blocks == 0 || walk->blocks > STK_PLAN_BYTES_MAX / 16 / nodes) {
        return 0;
    }
    walk->parts = stk_alloc(walk->part_count, sizeof *walk->parts);
    status = walk->parts ? stk_plan_reader_init(&walk->reader, order) : -ENOMEM;
    for (uint32_t i = 0; status == 0 && i < walk->part_count; i++) {
        stk_plan_part(order, i, nodes, 0, &walk->parts[i].part);
    }
    status = status < 0 ? status : look_up_passes(walk);
    if (status < 0 || !number_cells(walk)) {
        stk_walk_close(walk);
        return status < 0 ? status : 0;
    }
    walk->filled = stk_alloc(walk->blocks * nodes, sizeof *walk->filled);
    walk->held = stk_alloc(walk->blocks * nodes, sizeof *walk->held);
    walk->now = stk_alloc(stk_max(walk->cells, 1) * nodes, sizeof *walk->now);
    walk->left = stk_alloc(stk_max(walk->cells, 1) * nodes, sizeof *walk->left);
    walk->sorted = stk_alloc(walk->blocks, sizeof *walk->sorted);
    walk->open = stk_alloc((walk->part_count + 1) * nodes, sizeof *walk->open);
    if (!walk->filled || !walk->held || !walk->now || !walk->left || !walk->sorted || !walk->open) {
        stk_walk_close(walk);
        return -ENOMEM;
    }
    return 1;
}

void stk_walk_close(struct stk_walk *walk)
{
    stk_plan_reader_deinit(&walk->reader);
    stk_free(walk->parts);
    stk_free(walk->filled);
    stk_free(walk->held);
    stk_free(walk->now);
    stk_free(walk->left);
    stk_free(walk->sorted);
    stk_free(walk->open);
    *walk = (struct stk_walk){0};
}

/* ---- counting ---- */

uint64_t stk_walk_block(const struct stk_walk *walk, const struct stk_plan_visit *visit)
{
    return walk->parts[visit->part].part.first_block + visit->number / walk->block_samples;
}

uint64_t stk_walk_cell(const struct stk_walk *walk, const struct stk_plan_visit *visit,
                       uint64_t node)
{
    const struct stk_walk_part *part = &walk->parts[visit->part];
    uint64_t cell =
        (visit->pass - part->first_pass) * part->part.blocks + visit->number / walk->block_samples;

    return (part->first_cell + cell) * walk->nodes + node;
}

bool stk_walk_visit(struct stk_walk *walk, const struct stk_plan_visit *visit, uint64_t node)
{
    struct stk_walk_part *part = &walk->parts[visit->part];
    uint64_t cell = stk_walk_cell(walk, visit, node);
    uint32_t *held = &walk->held[stk_walk_block(walk, visit) * walk->nodes + node];
    uint64_t *of_part = &walk->open[visit->part * walk->nodes + node];
    uint64_t *of_all = &walk->open[walk->part_count * walk->nodes + node];
    bool begun = walk->left[cell] == walk->now[cell], is_new = begun && *held == 0;

    *held += begun; /* by as many passes as have begun it and not finished */
    *of_part += is_new;
    *of_all += is_new;
    part->open_max = stk_max(part->open_max, *of_part);
    walk->open_max = stk_max(walk->open_max, *of_all);
    if (--walk->left[cell] == 0 && --*held == 0) {
        --*of_part;
        --*of_all;
    }
    return is_new;
}

enum mode { FILL, COUNT, OPEN };

static void visit_one(struct stk_walk *walk, const struct stk_plan_visit *visit, uint64_t node,
                      enum mode mode)
{
    if (mode == FILL) {
        walk->filled[stk_walk_block(walk, visit) * walk->nodes + node]++;
    } else if (mode == COUNT) {
        walk->now[stk_walk_cell(walk, visit, node)]++;
    } else if (stk_walk_visit(walk, visit, node)) {
        struct stk_walk_part *part = &walk->parts[visit->part];

        part->requests++;
        part->requests_cached += !walk->filled[stk_walk_block(walk, visit) * walk->nodes + node];
    }
}

/* Each position of an epoch that is delivered. */
static void go(struct stk_walk *walk, uint64_t epoch, enum mode mode)
{
    const struct stk_partition *partition = &walk->order->partition;
    struct stk_plan_visit visits[STK_PLAN_CHUNK];

    for (uint64_t first = 0, count; first < partition->sample_count; first += count) {
        count = stk_min(STK_PLAN_CHUNK, partition->sample_count - first);
        stk_plan_read(&walk->reader, epoch, first, count, visits);
        for (uint64_t i = 0; i < count; i++) {
            struct stk_delivery found;

            if (stk_partition_find(partition, epoch, first + i, &found)) {
                visit_one(walk, &visits[i], found.rank / walk->ranks, mode);
            }
        }
    }
}

/* ---- a node's cache ---- */

/* Samples that a node finds in a block that it kept. */
static void count_block(struct stk_walk *walk, struct stk_walk_part *part, uint64_t block,
                        uint64_t node, bool kept)
{
    for (uint64_t pass = 0; pass < part->passes; pass++) {
        uint64_t cell = (part->first_cell + pass * part->part.blocks + block) * walk->nodes + node;

        part->samples += walk->now[cell];
        part->hits += kept ? walk->now[cell] : 0;
    }
}

/* The cache keeps the blocks that this node had most of: 1 / nodes of all. `filled` says then which
 * they are. */
static void count_cached(struct stk_walk *walk, uint64_t node)
{
    uint64_t room = (walk->blocks - 1) / walk->nodes + 1, border = 0;
    uint32_t least;

    for (uint64_t block = 0; block < walk->blocks; block++) {
        walk->sorted[block] = walk->filled[block * walk->nodes + node];
    }
    qsort(walk->sorted, walk->blocks, sizeof *walk->sorted, compare_down);
    least = walk->sorted[room - 1];
    for (uint64_t i = 0; i < room; i++) {
        border += walk->sorted[i] == least; /* of those that had just so many, the first ones */
    }
    for (uint32_t i = 0; i < walk->part_count; i++) {
        struct stk_walk_part *part = &walk->parts[i];

        for (uint64_t block = 0; block < part->part.blocks; block++) {
            uint32_t *had = &walk->filled[(part->part.first_block + block) * walk->nodes + node];
            bool kept = *had > least;

            if (*had == least && least > 0 && border > 0) {
                kept = true;
                border--;
            }
            *had = kept;
            count_block(walk, part, block, node, kept);
        }
    }
}

int stk_walk_through(struct stk_walk *walk)
{
    go(walk, walk->epoch - (walk->epoch > 0), FILL);
    go(walk, walk->epoch, COUNT);
    memcpy(walk->left, walk->now, walk->cells * walk->nodes * sizeof *walk->now);
    for (uint64_t node = 0; node < walk->nodes; node++) {
        count_cached(walk, node);
    }
    go(walk, walk->epoch, OPEN);
    for (uint32_t i = 0; i < walk->part_count; i++) {
        walk->samples += walk->parts[i].samples;
        walk->hits += walk->parts[i].hits;
        walk->requests += walk->parts[i].requests;
        walk->requests_cached += walk->parts[i].requests_cached;
    }
    return stk_schedule_reader_take(&walk->reader.reader, NULL);
}
