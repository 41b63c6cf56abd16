/* Simulates an epoch of a cluster, rank by rank of each node: marks every sample, and counts the
 * blocks that a node has begun and not finished, step by step.
 *
 * A block belongs to one home group, and here a group to one node. So nodes are simulated one after
 * the other, a complete epoch each: the open blocks of a node fit in the processor's cache, and
 * threads take nodes without a lock. Each thread has a bitmap; together they must be full. */
#include "order/analysis/block_trace.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/options.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define THREADS_MAX 256u
#define CHUNK STK_PERMUTE_STRIDE

struct simulation {
    const struct stoker_order *order;
    struct stk_order_epoch epoch;
    uint64_t nodes, steps;
    uint32_t node_ranks;
};

/* A thread's nodes. */
struct part {
    const struct simulation *simulation;
    uint64_t first_node, end_node;
    uint64_t *bits;   /* one a sample: it was read */
    uint64_t *pooled; /* a block of the pool: when a node last had a sample of it */
    uint64_t slots, real, requests, open_max, step_max;
    pthread_t thread;
    bool threaded;
};

/* The blocks that a node uses. */
struct node {
    uint64_t open;  /* blocks begun and not finished */
    uint64_t begun; /* these, as the step found them, and those that it began */
    uint64_t alone; /* blocks of the pool that it needs only for this step */
    uint64_t now;   /* unique to the node and its step; > 0 */
};

static uint64_t bits_in(const uint64_t *bits, uint64_t first, uint64_t count)
{
    uint64_t found = 0;

    while (count > 0) {
        uint64_t offset = first % 64, piece = stk_min(count, 64 - offset);
        uint64_t word = bits[first / 64] >> offset;

        word &= ~UINT64_C(0) >> (64 - piece);
        found += (uint64_t)__builtin_popcountll(word);
        first += piece;
        count -= piece;
    }
    return found;
}

/* The left-overs are distributed to all nodes, so no node keeps their blocks. */
static bool is_first_of_pool(struct part *part, const struct node *node, uint64_t position)
{
    uint64_t *last = &part->pooled[stk_order_left_over_block(&part->simulation->epoch, position)];
    bool first = *last != node->now;

    *last = node->now;
    return first;
}

static void visit_sample(struct part *part, struct node *node, uint64_t position, uint64_t sample,
                         bool is_left_over)
{
    const struct stk_order_epoch *epoch = &part->simulation->epoch;
    uint64_t block_samples = epoch->order->options.block_samples, seen;

    part->bits[sample / 64] |= UINT64_C(1) << sample % 64;
    part->real++;
    if (is_left_over) {
        bool first = is_first_of_pool(part, node, position);

        node->alone += first;
        part->requests += first;
        part->open_max = stk_max(part->open_max, node->open + node->alone);
        return;
    }
    seen = bits_in(part->bits, sample - sample % block_samples, block_samples);
    node->open += seen == 1;
    node->begun += seen == 1;
    part->requests += seen == 1;
    part->open_max = stk_max(part->open_max, node->open + node->alone);
    node->open -= seen == block_samples;
}

/* One rank's slots of a step. */
static void run_rank(struct part *part, struct node *node, const struct stk_partition *partition,
                     uint64_t position)
{
    const struct simulation *simulation = part->simulation;
    const struct stk_order_epoch *epoch = &simulation->epoch;
    uint64_t samples[CHUNK];
    uint32_t slots = stk_partition_batch_slots(partition, epoch->epoch, position), run;

    for (uint32_t slot = 0; slot < slots; slot += run) {
        struct stk_order_place place;

        run = stk_partition_run(partition, epoch->epoch, position, slot, &place);
        run = (uint32_t)stk_min(run, CHUNK);
        if (!place.real) {
            continue;
        }
        stk_order_samples_strided(epoch, place.position, run, samples);
        for (uint64_t i = 0, next = 0; i < run; i++) {
            uint64_t at = place.position + i * partition->group_count;
            bool is_left_over = false;

            if (i == next) {
                uint64_t distance = stk_order_left_over_distance(epoch, at);

                is_left_over = distance == 0;
                next = i + stk_max(1, stk_min(distance, CHUNK));
            }
            visit_sample(part, node, at, samples[i], is_left_over);
        }
    }
    part->slots += slots;
}

static void run_node(struct part *part, uint64_t number)
{
    const struct simulation *simulation = part->simulation;
    struct stk_partition partition = simulation->order->partition;
    uint64_t position = stk_partition_first(&partition, simulation->epoch.epoch);
    uint32_t first = (uint32_t)(number * simulation->node_ranks);
    struct node node = {0};

    for (uint64_t step = 0; step < simulation->steps; step++) {
        node = (struct node){node.open, node.open, 0, number * simulation->steps + step + 1};
        for (uint32_t i = 0; i < simulation->node_ranks; i++) {
            partition.rank = first + i;
            run_rank(part, &node, &partition, position);
        }
        part->step_max = stk_max(part->step_max, node.begun + node.alone);
        position += stk_partition_stride(&partition);
    }
}

static void *run_part(void *argument)
{
    struct part *part = argument;

    for (uint64_t node = part->first_node; node < part->end_node; node++) {
        run_node(part, node);
    }
    return NULL;
}

/* The caller simulates the first part, and the parts for which no thread could start. */
static void run_parts(struct part *parts, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        parts[i].threaded = stk_thread_start(&parts[i].thread, NULL, run_part, &parts[i]) == 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!parts[i].threaded) {
            run_part(&parts[i]);
        }
    }
    for (uint32_t i = 1; i < count; i++) {
        if (parts[i].threaded) {
            pthread_join(parts[i].thread, NULL);
        }
    }
}

static void add_up(const struct simulation *simulation, const struct part *parts, uint32_t count,
                   struct stoker_order_simulation *result)
{
    const struct stk_partition *partition = &simulation->order->partition;
    uint64_t words = (partition->sample_count + 63) / 64, distinct = 0, real = 0;
    uint64_t due = partition->sample_count;

    for (uint64_t word = 0; word < words; word++) {
        uint64_t seen = 0;

        for (uint32_t i = 0; i < count; i++) {
            seen |= parts[i].bits[word];
        }
        distinct += (uint64_t)__builtin_popcountll(seen);
    }
    for (uint32_t i = 0; i < count; i++) {
        real += parts[i].real;
        result->slots += parts[i].slots;
        result->requests += parts[i].requests;
        result->open_blocks_max = stk_max(result->open_blocks_max, parts[i].open_max);
        result->step_blocks_max = stk_max(result->step_blocks_max, parts[i].step_max);
    }
    if (partition->tail == STOKER_TAIL_DROP) {
        due = simulation->steps * stk_partition_stride(partition);
    }
    result->steps = simulation->steps;
    result->samples = distinct;
    result->repeated = real - distinct;
    result->missing = due - stk_min(distinct, due);
}

static void set_bounds(const struct stoker_order *order, uint64_t nodes,
                       struct stoker_order_simulation *result)
{
    struct stk_order_part part;

    stk_order_parts_get(order, 0, nodes, 0, &part);
    result->open_blocks_bound = part.open_bound;
    stk_order_parts_get(order, 0, nodes, stk_partition_stride(&order->partition), &part);
    result->step_blocks_bound = part.open_bound;
}

static int check_options(const struct stoker_order *order,
                         const struct stoker_order_simulate_options *options,
                         struct stoker_error *error)
{
    const struct stk_partition *partition = &order->partition;
    uint64_t stride = stk_partition_stride(partition), groups = partition->group_count;
    const char *advice = NULL;

    if (options->epoch > stk_schedule_epoch_max(&order->schedule)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "there is no such epoch",
                        "simulate an earlier one", "epoch %llu, the last one is %llu",
                        (unsigned long long)options->epoch,
                        (unsigned long long)stk_schedule_epoch_max(&order->schedule));
    }
    if (!stk_schedule_is_plain(&order->schedule)) {
        if (partition->world_size % options->nodes != 0) {
            advice = "give a number of nodes that divides the ranks";
        } else if (partition->tail == STOKER_TAIL_WRAP) {
            advice = "take the tail drop, pad or keep";
        }
    } else if (order->schedule.order.options.shuffle != STOKER_SHUFFLE_BLOCK ||
               order->schedule.order.group_blocks == 0) {
        advice = "use the block shuffle, and at least one complete block for each group";
    } else if (partition->world_size % options->nodes != 0 || groups % options->nodes != 0) {
        advice = "give a number of nodes that divides the ranks and the groups";
    } else if (stride % groups != 0) {
        advice = "give a global batch that is a multiple of the groups";
    } else if (partition->tail != STOKER_TAIL_DROP && partition->tail != STOKER_TAIL_PAD) {
        advice = "take the tail drop or pad";
    } else if (options->threads > THREADS_MAX) {
        advice = "take at most 256 threads";
    }
    return advice ? stk_fail(error, STOKER_ERROR_ARGUMENT,
                             stk_schedule_is_plain(&order->schedule)
                                 ? "blocks do not stay on one node in such an epoch"
                                 : "such an epoch cannot be simulated",
                             advice, "%u nodes of world_size %u, %llu groups, %llu samples a step",
                             options->nodes, partition->world_size, (unsigned long long)groups,
                             (unsigned long long)stride)
                  : 0;
}

int stoker_order_simulate(const struct stoker_order *order,
                          const struct stoker_order_simulate_options *given,
                          struct stoker_order_simulation *simulation_out,
                          struct stoker_error *error)
{
    struct stoker_order_simulate_options options;
    struct stoker_order_simulation full = {0};
    struct simulation simulation = {.order = order};
    struct part parts[THREADS_MAX];
    size_t bytes;
    uint32_t count;
    int status = stk_options_read(&options, sizeof options, sizeof options.struct_size, given,
                                  "simulation options", error);

    options.nodes = options.nodes ? options.nodes : 1;
    options.threads = options.threads ? options.threads : 1;
    status = status < 0 ? status : check_options(order, &options, error);
    status = status < 0 ? status
                        : stk_options_check_output(simulation_out, sizeof full,
                                                   sizeof full.struct_size, "simulation", error);
    if (status == 0 && !stk_schedule_is_plain(&order->schedule)) {
        status = stk_order_simulate_parts(order, &options, &full, error);
        return status < 0 ? status
                          : stk_options_write_output(simulation_out, &full, sizeof full,
                                                     "simulation", error);
    }
    if (status < 0) {
        return status;
    }
    memset(parts, 0, sizeof parts);
    count = (uint32_t)stk_min(options.threads, options.nodes);
    simulation.nodes = options.nodes;
    simulation.node_ranks = order->partition.world_size / options.nodes;
    simulation.steps = stk_partition_steps(&order->partition, options.epoch);
    stk_order_epoch_begin(&simulation.epoch, &order->schedule.order, options.epoch);
    bytes = (order->partition.sample_count + 63) / 64 * 8;
    for (uint32_t i = 0; i < count; i++) {
        parts[i].simulation = &simulation;
        parts[i].first_node = (uint64_t)options.nodes * i / count;
        parts[i].end_node = (uint64_t)options.nodes * (i + 1) / count;
        parts[i].bits = stk_pages_alloc(bytes);
        parts[i].pooled =
            stk_alloc(order->schedule.order.options.group_count + 1u, sizeof(uint64_t));
        status = parts[i].bits && parts[i].pooled ? status : -ENOMEM;
    }
    if (status == 0) {
        run_parts(parts, count);
        add_up(&simulation, parts, count, &full);
        set_bounds(order, options.nodes, &full);
        status = stk_options_write_output(simulation_out, &full, sizeof full, "simulation", error);
    } else {
        stk_fail(error, status, "cannot simulate an epoch", "free memory, or use fewer threads",
                 "a bit for each of %llu samples, %u times",
                 (unsigned long long)order->partition.sample_count, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        stk_free(parts[i].pooled);
        stk_pages_free(parts[i].bits, bytes);
    }
    return status;
}
