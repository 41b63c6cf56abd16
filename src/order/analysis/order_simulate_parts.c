/* A simulated epoch of a mix or of chosen samples: every position must come exactly once, and in
 * each pass of a source or stage no sample twice; blocks are followed by block_trace.c, in the
 * sequence in which the ranks of each node request their slots. */
#include "order/analysis/block_trace.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

struct simulation {
    const struct stoker_order *order;
    struct stk_block_trace walk;
    uint64_t *positions; /* owned: a bit each, as the next */
    uint64_t *numbers;   /* of each pass of each part */
    uint64_t *firsts;    /* owned: [part]: its first bit in numbers */
    uint64_t *begun;     /* owned: [node]: blocks that its step found open, and those it began */
    uint64_t bits, real, distinct, twice, slots, step_max, requests;
    uint32_t step; /* modulo 2^32: > 0 where it matters */
};

static bool set(uint64_t *bits, uint64_t at)
{
    bool was = bits[at / 64] >> at % 64 & 1;

    bits[at / 64] |= UINT64_C(1) << at % 64;
    return !was;
}

static void visit_sample(struct simulation *simulation, uint64_t position,
                         const struct stk_order_part_sample *visit, uint64_t node)
{
    struct stk_block_trace *walk = &simulation->walk;
    const struct stk_block_trace_part *part = &walk->parts[visit->part];
    uint64_t pass = visit->pass - part->first_pass;

    simulation->real++;
    simulation->distinct += set(simulation->positions, position);
    walk->now[stk_block_trace_cell(walk, visit, node)]++;
    if (part->part.once) {
        simulation->twice +=
            !set(simulation->numbers,
                 simulation->firsts[visit->part] + pass * part->part.samples + visit->number);
    }
}

static void follow(struct simulation *simulation, const struct stk_order_part_sample *visit,
                   uint64_t node)
{
    struct stk_block_trace *walk = &simulation->walk;
    /* The step in which the node last used the block: no block counts twice in a step. */
    uint32_t *step = &walk->filled[stk_block_trace_block(walk, visit) * walk->nodes + node];
    bool is_new = stk_block_trace_add(walk, visit, node);

    simulation->requests += is_new;
    simulation->begun[node] += is_new && *step != simulation->step;
    *step = simulation->step;
    simulation->step_max = stk_max(simulation->step_max, simulation->begun[node]);
}

/* The samples of a rank in a step. */
static void run_rank(struct simulation *simulation, const struct stk_partition *partition,
                     uint64_t position, bool follows)
{
    struct stk_block_trace *walk = &simulation->walk;
    uint32_t slots = stk_partition_batch_slots(partition, walk->epoch, position), run;
    struct stk_order_part_sample visits[STK_ORDER_PARTS_CHUNK];
    uint64_t node = partition->rank / walk->ranks;

    for (uint32_t slot = 0; slot < slots; slot += run) {
        struct stk_order_place place;
        uint64_t span;

        run = stk_partition_run(partition, walk->epoch, position, slot, &place);
        run = (uint32_t)stk_min(run, (STK_ORDER_PARTS_CHUNK - 1) / partition->group_count + 1);
        span = (uint64_t)(run - 1) * partition->group_count + 1;
        if (!place.real) {
            continue;
        }
        stk_order_parts_read(&walk->reader, place.epoch, place.position, span, visits);
        for (uint64_t i = 0; i < span; i += partition->group_count) {
            if (follows) {
                follow(simulation, &visits[i], node);
            } else {
                visit_sample(simulation, place.position + i, &visits[i], node);
            }
        }
    }
    simulation->slots += follows ? slots : 0;
}

static void run_steps(struct simulation *simulation, bool follows)
{
    struct stk_block_trace *walk = &simulation->walk;
    struct stk_partition partition = simulation->order->partition;
    uint64_t position = stk_partition_first(&partition, walk->epoch);
    uint64_t steps = stk_partition_steps(&partition, walk->epoch);

    for (; steps > 0; steps--, simulation->step++, position += stk_partition_stride(&partition)) {
        memcpy(simulation->begun, walk->open + walk->part_count * walk->nodes,
               walk->nodes * sizeof *simulation->begun);
        for (partition.rank = 0; partition.rank < partition.world_size; partition.rank++) {
            run_rank(simulation, &partition, position, follows);
        }
    }
}

static int open_bits(struct simulation *simulation)
{
    struct stk_block_trace *walk = &simulation->walk;
    uint64_t words = simulation->order->partition.sample_count / 64 + 1;

    simulation->firsts = stk_alloc(walk->part_count, sizeof *simulation->firsts);
    for (uint32_t i = 0; simulation->firsts && i < walk->part_count; i++) {
        const struct stk_block_trace_part *part = &walk->parts[i];

        simulation->firsts[i] = simulation->bits;
        simulation->bits += part->part.once ? part->passes * part->part.samples : 0;
    }
    simulation->positions = stk_alloc(words, sizeof *simulation->positions);
    simulation->numbers = stk_alloc(simulation->bits / 64 + 1, sizeof *simulation->numbers);
    simulation->begun = stk_alloc(walk->nodes, sizeof *simulation->begun);
    return simulation->firsts && simulation->positions && simulation->numbers && simulation->begun
               ? 0
               : -ENOMEM;
}

static void write_result(const struct simulation *simulation,
                         struct stoker_order_simulation *result)
{
    const struct stk_partition *partition = &simulation->order->partition;
    const struct stk_block_trace *walk = &simulation->walk;
    uint64_t steps = stk_partition_steps(partition, walk->epoch), due = partition->sample_count;
    bool is_mix = simulation->order->schedule.orders != NULL;

    if (partition->tail == STOKER_TAIL_DROP) {
        due = steps * stk_partition_stride(partition);
    }
    result->steps = steps;
    result->slots = simulation->slots;
    result->samples = simulation->distinct;
    result->repeated = simulation->real - simulation->distinct + simulation->twice;
    result->missing = due - stk_min(simulation->distinct, due);
    result->requests = simulation->requests;
    result->open_blocks_max = walk->open_max;
    result->step_blocks_max = simulation->step_max;
    for (uint32_t i = 0; i < walk->part_count; i++) {
        uint64_t open = walk->parts[i].part.open_bound, *bound = &result->open_blocks_bound;
        struct stk_order_part part;

        stk_order_parts_get(simulation->order, i, walk->nodes, stk_partition_stride(partition),
                            &part);
        *bound = is_mix ? *bound + open : stk_max(*bound, open);
        bound = &result->step_blocks_bound; /* a step may include the end of a stage and the start
                                               of the next */
        *bound = *bound + part.open_bound;
    }
}

int stk_order_simulate_parts(const struct stoker_order *order,
                             const struct stoker_order_simulate_options *options,
                             struct stoker_order_simulation *result, struct stoker_error *error)
{
    struct simulation simulation = {.order = order, .step = 1};
    int status = stk_block_trace_open(&simulation.walk, order, options->nodes, options->epoch);

    if (status == 0) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "too many blocks and nodes to simulate",
                        "use fewer nodes, or larger blocks: 16 bytes for each pair, 1 GiB in all",
                        "%llu blocks, %u nodes", (unsigned long long)stk_order_parts_blocks(order),
                        options->nodes);
    }
    status = status < 0 ? status : open_bits(&simulation);
    if (status == 0) {
        struct stk_block_trace *walk = &simulation.walk;

        run_steps(&simulation, false);
        memcpy(walk->left, walk->now, walk->cells * walk->nodes * sizeof *walk->now);
        run_steps(&simulation, true);
        status = stk_schedule_reader_error(&walk->reader.reader, NULL);
    }
    if (status == 0) {
        write_result(&simulation, result);
    } else {
        stk_fail(error, status, "cannot simulate an epoch", "free memory", "%llu samples an epoch",
                 (unsigned long long)order->partition.sample_count);
    }
    stk_free(simulation.firsts);
    stk_free(simulation.positions);
    stk_free(simulation.numbers);
    stk_free(simulation.begun);
    stk_block_trace_close(&simulation.walk);
    return status;
}
