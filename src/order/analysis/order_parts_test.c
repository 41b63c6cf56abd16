/* Goal: the figures of measure and simulate for mixes and for sampled data are right, in total and
 * for each source or stage: requests, open blocks within their bound, the mixing; a broken order is
 * detected.
 * Method: random mixes, subsets, repeats and curricula; requests counted again by slots and a set
 * of (node, part, block); full permutations compared with arithmetic; every allocation fails once;
 * orders that the test breaks in memory. */
#include "order/analysis/block_trace.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SOURCES_MAX 5
#define SEEN_MAX (1u << 18)

static uint64_t random_key, drawn;

static uint64_t below(uint64_t count)
{
    return stk_random_key(random_key, drawn++) % count;
}

/* ---- measured values ---- */

struct rig {
    struct stoker_order_options options;
    struct stoker_mix_options mix;
    struct stoker_sampling_options sampling;
    struct stoker_sampling_stage stages[3];
    struct stk_sampling_source choosers[3]; /* how samplers begin */
    struct stk_subset subsets[3];
    uint64_t ends[SOURCES_MAX], weights[SOURCES_MAX];
    struct stoker_order *order;
    uint32_t nodes;
};

static void draw_settings(struct rig *rig)
{
    uint32_t ranks = (uint32_t)(1 + below(3));

    memset(rig, 0, sizeof *rig);
    rig->nodes = (uint32_t)(1 + below(4));
    rig->options = (struct stoker_order_options){
        .struct_size = sizeof rig->options,
        .sample_count = 200 + below(2500),
        .block_samples = 1 + below(12),
        .seed = random_key,
        .shuffle = (uint32_t)(below(6) ? STOKER_SHUFFLE_BLOCK : STOKER_SHUFFLE_FULL + below(2)),
        .tail = (uint32_t)(STOKER_TAIL_DROP + (below(2) ? 0 : below(4))),
        .window_blocks = (uint32_t)(1 + below(9)),
        .batch_size = (uint32_t)(1 + below(30)),
        .world_size = rig->nodes * ranks,
    };
}

static void add_mix(struct rig *rig)
{
    uint32_t count = (uint32_t)(1 + below(SOURCES_MAX));

    rig->mix = (struct stoker_mix_options){.struct_size = sizeof rig->mix,
                                           .ends = rig->ends,
                                           .weights = rig->weights,
                                           .source_count = count,
                                           .end = (uint32_t)(STOKER_MIX_REPEAT + below(3)),
                                           .unit_samples = below(3) ? 1 : 1 + below(20)};
    rig->options.sample_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        rig->options.sample_count += 20 + below(below(2) ? 60 : 900);
        rig->ends[i] = rig->options.sample_count;
        rig->weights[i] = 1 + below(9);
    }
    if (rig->mix.end == STOKER_MIX_REPEAT) {
        rig->mix.epoch_samples = 300 + below(2000);
    }
    rig->options.mix = &rig->mix;
}

static void add_stages(struct rig *rig)
{
    uint64_t count = rig->options.sample_count, first = 0;

    rig->sampling = (struct stoker_sampling_options){
        .struct_size = sizeof rig->sampling, .stages = rig->stages, .stage_count = 1 + below(3)};
    if (below(3) == 0) {
        rig->sampling.repeats = (uint32_t)(2 + below(3));
        rig->sampling.repeat_distance = (uint32_t)(1 + below(80));
    }
    if (below(3) == 0) {
        rig->sampling.epoch_samples = 200 + below(3000);
    }
    for (size_t i = 0; i < rig->sampling.stage_count; i++) {
        struct stk_sampling_source *chooser = &rig->choosers[i];

        T_EQ("subset", stk_subset_init(&rig->subsets[i], count, NULL), 0);
        for (uint64_t sample = 0, step = 1 + below(6); sample < count; sample += 1 + below(step)) {
            stk_subset_add(&rig->subsets[i], sample);
        }
        stk_subset_freeze(&rig->subsets[i]);
        *chooser = (struct stk_sampling_source){.sample_count = count, .is_made = true};
        chooser->rule.subset = below(4) ? &rig->subsets[i] : NULL;
        chooser->rule.replacement = below(5) == 0;
        rig->stages[i] = (struct stoker_sampling_stage){first, (const void *)chooser};
        first += 1 + below(3 * count);
    }
    rig->options.sampling = &rig->sampling;
}

static bool rig_open(struct rig *rig)
{
    struct stoker_error error = {0};

    return stoker_order_open(&rig->order, &rig->options, &error) == 0 ||
           T_STR(error.where, error.what, "");
}

static void rig_close(struct rig *rig)
{
    stoker_order_close(rig->order);
    for (int i = 0; i < 3; i++) {
        stk_subset_deinit(&rig->subsets[i]);
    }
}

/* ---- the same values, counted again ---- */

/* For a position of the run: which part, and which of its passes. */
static void part_of(const struct rig *rig, uint64_t epoch, uint64_t position, uint64_t *part,
                    uint64_t *pass)
{
    const struct stk_schedule *schedule = &rig->order->schedule;
    uint64_t at = epoch * schedule->epoch_samples + position;
    struct stk_mix_draw draw;

    *part = *pass = 0;
    if (rig->options.mix) {
        struct stk_schedule_reader reader;
        uint64_t sample;

        T_EQ("reader", stk_schedule_reader_init(&reader, schedule, NULL), 0);
        stk_schedule_read(&reader, epoch, position, 1, &sample);
        stk_mix_draw_at(&reader.mix, schedule->is_endless ? at : position, &draw);
        stk_schedule_reader_deinit(&reader);
        *part = draw.source;
        *pass = draw.epoch;
        return;
    }
    while (*part + 1 < rig->sampling.stage_count && rig->stages[*part + 1].position <= at) {
        (*part)++;
    }
    if (!rig->choosers[*part].rule.replacement) {
        uint64_t size = schedule->stages.items[*part].count * schedule->stages.times;

        *pass = (at - rig->stages[*part].position) / size;
    }
}

/* A sample of epoch 1: its block on its node, and the pass that has it there. */
struct had {
    uint64_t block, pass, number; /* number: of its slot */
};

static int compare_had(const void *a, const void *b)
{
    const struct had *left = a, *right = b;

    return left->block != right->block    ? (left->block < right->block ? -1 : 1)
           : left->number < right->number ? -1
                                          : left->number > right->number;
}

static uint64_t list_samples(const struct rig *rig, struct had *list)
{
    uint32_t ranks = rig->options.world_size / rig->nodes;
    uint64_t before = stoker_order_steps(rig->order, 0), count = 0;

    /* In epoch 0 as well: a wrapped step of it may contain samples of epoch 1. */
    for (uint64_t i = 0; i < before + stoker_order_steps(rig->order, 1); i++) {
        uint64_t step = i < before ? i : i - before;
        struct stoker_slot slot;

        for (uint64_t skip = 0; stoker_order_slots(rig->order, i >= before, step, STOKER_ALL_RANKS,
                                                   skip, &slot, 1) == 1;
             skip++) {
            uint64_t part, pass, number = slot.sample;

            if (!slot.real || slot.epoch != 1) {
                continue;
            }
            part_of(rig, 1, slot.position, &part, &pass);
            if (rig->options.mix) {
                number -= part ? rig->ends[part - 1] : 0;
            } else if (rig->choosers[part].rule.subset) {
                number = stk_subset_rank(&rig->subsets[part], number);
            }
            number /= rig->options.block_samples;
            list[count] = (struct had){
                stk_random_key(stk_random_key(slot.rank / ranks, part), number), pass, count};
            count++;
        }
    }
    return count;
}

/* A node requests a block that is not open there: none of its current passes has begun it and still
 * needs it. Block by block, in the sequence of its samples. */
static uint64_t count_requests(const struct rig *rig)
{
    static struct had list[SEEN_MAX];
    uint64_t count = list_samples(rig, list), requests = 0, end;

    qsort(list, count, sizeof *list, compare_had);
    for (uint64_t first = 0; first < count; first = end) {
        uint64_t open_until = 0; /* the last sample of the passes that are open */

        for (end = first; end < count && list[end].block == list[first].block; end++) {
        }
        for (uint64_t i = first; i < end; i++) {
            requests += i == first || i > open_until;
            for (uint64_t j = i; j < end; j++) {
                open_until = list[j].pass == list[i].pass ? stk_max(open_until, j) : open_until;
            }
        }
    }
    return requests;
}

/* ---- rows ---- */

static void check_parts(const struct stoker_order_measures *total,
                        const struct stoker_order_measures *parts)
{
    uint64_t samples = 0, requests = 0, cached = 0, blocks = 0;

    for (uint64_t i = 0; i < total->part_count; i++) {
        samples += parts[i].samples;
        requests += parts[i].requests;
        cached += parts[i].requests_cached;
        blocks += parts[i].block_count;
        T_TRUE("a part within its bound", parts[i].open_blocks_max <= parts[i].window_blocks_max);
        T_TRUE("shares", parts[i].cache_share >= 0 && parts[i].cache_share <= 1 &&
                             parts[i].same_block >= 0 && parts[i].same_block <= 1);
        T_TRUE("a part is open within the whole",
               parts[i].open_blocks_max <= total->open_blocks_max);
    }
    T_EQ("samples of the parts", samples, (long long)total->samples);
    T_EQ("requests of the parts", requests, (long long)total->requests);
    T_EQ("requests past caches", cached, (long long)total->requests_cached);
    T_EQ("blocks of the parts", blocks, (long long)total->block_count);
}

static void check_simulation(const struct rig *rig, const struct stoker_order_measures *measured)
{
    struct stoker_order_simulate_options options = {
        .struct_size = sizeof options, .nodes = rig->nodes, .epoch = 1};
    struct stoker_order_simulation got = {.struct_size = sizeof got};
    struct stoker_error error = {0};
    int status = stoker_order_simulate(rig->order, &options, &got, &error);

    if (rig->options.tail == STOKER_TAIL_WRAP) {
        T_EQ("wrap", status, STOKER_ERROR_ARGUMENT);
        return;
    }
    T_EQ(error.what, status, 0);
    T_EQ("missing", got.missing, 0);
    T_EQ("repeated", got.repeated, 0);
    T_EQ("samples", got.samples, (long long)measured->samples);
    T_EQ("requests as measured", got.requests, (long long)measured->requests);
    T_EQ("open as measured", got.open_blocks_max, (long long)measured->open_blocks_max);
    T_TRUE("open within its bound", got.open_blocks_max <= got.open_blocks_bound);
    if (!T_TRUE("steps within theirs", got.step_blocks_max <= got.step_blocks_bound)) {
        printf("key %llu: %llu of %llu\n", (unsigned long long)random_key,
               (unsigned long long)got.step_blocks_max, (unsigned long long)got.step_blocks_bound);
    }
}

static bool check_rig(struct rig *rig)
{
    struct stoker_order_measures parts[SOURCES_MAX], total = {.struct_size = sizeof total};
    struct stoker_order_measure_options options = {.struct_size = sizeof options,
                                                   .nodes = rig->nodes,
                                                   .parts = parts,
                                                   .part_max = SOURCES_MAX};
    bool is_close;

    if (!rig_open(rig)) {
        return false;
    }
    T_EQ("measure", stoker_order_measure(rig->order, &options, &total, NULL), 0);
    T_EQ("walked", total.walked, 1);
    T_EQ("requests", total.requests, (long long)count_requests(rig));
    if (!T_TRUE("within its bound", total.open_blocks_max <= total.window_blocks_max)) {
        printf("key %llu: %llu open, bound %llu\n", (unsigned long long)random_key,
               (unsigned long long)total.open_blocks_max,
               (unsigned long long)total.window_blocks_max);
    }
    check_parts(&total, parts);
    check_simulation(rig, &total);
    is_close = total.open_blocks_max * 3 >= total.window_blocks_max;
    rig_close(rig);
    return is_close;
}

static void test_random(void)
{
    uint64_t rows = 120, is_close = 0;

    for (random_key = 1; random_key <= rows; random_key++) {
        static struct rig rig;

        drawn = 0;
        draw_settings(&rig);
        if (random_key % 2) {
            add_mix(&rig);
        } else {
            add_stages(&rig);
        }
        is_close += check_rig(&rig);
    }
    T_TRUE("bounds are not far off", is_close > rows / 2);
}

/* 4,000 and 36,000 samples, as often one as the other. */
static void two_sources(struct rig *rig, uint32_t shuffle)
{
    memset(rig, 0, sizeof *rig);
    rig->nodes = 1;
    rig->ends[0] = 4000;
    rig->ends[1] = 40000;
    rig->weights[0] = rig->weights[1] = 1;
    rig->mix = (struct stoker_mix_options){.struct_size = sizeof rig->mix,
                                           .ends = rig->ends,
                                           .weights = rig->weights,
                                           .source_count = 2,
                                           .end = STOKER_MIX_REPEAT};
    rig->options = (struct stoker_order_options){
        .struct_size = sizeof rig->options,
        .sample_count = 40000,
        .block_samples = 10,
        .shuffle = shuffle,
        .window_blocks = 8,
        .batch_size = 200,
        .mix = &rig->mix,
    };
}

/* A full permutation of each source: a third apart, mates of a block by chance. */
static void test_mixing(void)
{
    static struct rig rig;
    struct stoker_order_measures parts[2], total = {.struct_size = sizeof total};
    struct stoker_order_measure_options options = {
        .struct_size = sizeof options, .parts = parts, .part_max = 2};
    double alike;

    two_sources(&rig, STOKER_SHUFFLE_FULL);
    T_TRUE("open", rig_open(&rig));
    T_EQ("measure", stoker_order_measure(rig.order, &options, &total, NULL), 0);
    alike = 9.0 / 3999; /* of 3,999 others, 9 are in the block */
    T_TRUE("mates of the small source's blocks",
           parts[0].same_block > 0.7 * alike && parts[0].same_block < 1.3 * alike);
    T_TRUE("fewer of the large one's", parts[1].same_block < parts[0].same_block / 4);
    /* A quarter of a step's pairs are of the one, a quarter of the other. */
    alike = (parts[0].same_block + parts[1].same_block) / 4;
    T_TRUE("of all", total.same_block > 0.8 * alike && total.same_block < 1.2 * alike);
    for (int i = 0; i < 2; i++) {
        T_TRUE("a third apart", parts[i].distance > 0.32 && parts[i].distance < 0.345);
        T_TRUE("a third away", parts[i].displacement > 0.32 && parts[i].displacement < 0.345);
        T_TRUE("halves", parts[i].samples + 1000 > 20000 && parts[i].samples < 21000);
    }
    T_EQ("two sources", total.part_count, 2);
    T_EQ("and 40,000 samples", total.chosen, 40000);
    rig_close(&rig);
}

/* Storage order of a subset: each of its blocks once, all neighbours. */
static void test_storage_order(void)
{
    static struct rig rig;
    struct stoker_order_measures total = {.struct_size = sizeof total};
    struct stoker_order_measure_options options = {.struct_size = sizeof options};

    random_key = 11;
    draw_settings(&rig);
    rig.options.sample_count = 4000;
    rig.options.shuffle = STOKER_SHUFFLE_NONE;
    rig.options.block_samples = 10;
    rig.options.batch_size = 100;
    rig.options.world_size = rig.nodes = 1;
    rig.options.tail = STOKER_TAIL_KEEP;
    T_EQ("subset", stk_subset_init(&rig.subsets[0], 4000, NULL), 0);
    for (uint64_t sample = 1; sample < 4000; sample += 4) {
        stk_subset_add(&rig.subsets[0], sample);
    }
    stk_subset_freeze(&rig.subsets[0]);
    rig.choosers[0] = (struct stk_sampling_source){
        .sample_count = 4000, .is_made = true, .rule.subset = &rig.subsets[0]};
    rig.stages[0] = (struct stoker_sampling_stage){0, (const void *)&rig.choosers[0]};
    rig.sampling = (struct stoker_sampling_options){
        .struct_size = sizeof rig.sampling, .stages = rig.stages, .stage_count = 1};
    rig.options.sampling = &rig.sampling;
    T_TRUE("open", rig_open(&rig));
    T_EQ("measure", stoker_order_measure(rig.order, &options, &total, NULL), 0);
    T_EQ("a thousand are chosen", total.chosen, 1000);
    T_EQ("blocks of them", total.block_count, 100);
    T_EQ("each requested once", total.requests, 100);
    T_EQ("one open", total.open_blocks_max, 1);
    T_TRUE("all beside each other", total.neighbours == 1 && total.displacement == 0);
    rig_close(&rig);
}

/* ---- errors ---- */

static void test_broken(void)
{
    static struct rig rig;
    struct stoker_order_simulate_options options = {.struct_size = sizeof options};
    struct stoker_order_simulation got = {.struct_size = sizeof got};

    two_sources(&rig, STOKER_SHUFFLE_BLOCK);
    rig.options.mix = NULL;
    rig.options.group_count = 8;
    rig.sampling = (struct stoker_sampling_options){.struct_size = sizeof rig.sampling,
                                                    .epoch_samples = 80000};
    rig.options.sampling = &rig.sampling;
    T_TRUE("open", rig_open(&rig));
    T_EQ("right", stoker_order_simulate(rig.order, &options, &got, NULL), 0);
    T_TRUE("nothing is found", got.samples == 80000 && got.repeated == 0 && got.missing == 0);
    /* Not a bijection any more: blocks are repeated. */
    rig.order->schedule.stages.items[0].order.deal.factor[0] &= ~UINT64_C(1);
    T_EQ("wrong", stoker_order_simulate(rig.order, &options, &got, NULL), 0);
    T_TRUE("a sample came twice in a pass", got.repeated > 0);
    rig_close(&rig);
}

static void test_refused(void)
{
    static struct rig rig;
    struct stoker_order_measures parts[SOURCES_MAX], got = {.struct_size = sizeof got};
    struct stoker_order_measure_options options = {
        .struct_size = sizeof options, .parts = parts, .part_max = SOURCES_MAX};
    struct stoker_order_simulate_options simulate = {.struct_size = sizeof simulate};
    struct stoker_order_simulation simulation = {.struct_size = sizeof simulation};
    struct stoker_error error = {0};
    int status;

    random_key = 5;
    drawn = 0;
    draw_settings(&rig);
    rig.options.tail = STOKER_TAIL_DROP;
    add_mix(&rig);
    T_TRUE("open", rig_open(&rig));
    options.buffer_samples = 10;
    T_EQ("a buffer", stoker_order_measure(rig.order, &options, &got, &error),
         STOKER_ERROR_UNSUPPORTED);
    options.buffer_samples = 0;
    for (uint64_t n = 1;; n++) {
        stk_mem_fail_nth(n);
        status = stoker_order_measure(rig.order, &options, &got, &error);
        stk_mem_fail_nth(0);
        if (status == 0) {
            T_TRUE("allocations", n > 10);
            break;
        }
        T_EQ("no memory", status, -ENOMEM);
    }
    for (uint64_t n = 1;; n++) {
        stk_mem_fail_nth(n);
        status = stoker_order_simulate(rig.order, &simulate, &simulation, &error);
        stk_mem_fail_nth(0);
        if (status == 0) {
            T_TRUE("allocations", n > 10);
            break;
        }
        T_EQ("no memory", status, -ENOMEM);
    }
    simulate.nodes = 1u << 27;
    rig.order->partition.world_size = 1u << 27;
    T_EQ("too much", stoker_order_simulate(rig.order, &simulate, &simulation, &error),
         STOKER_ERROR_LIMIT);
    rig.order->partition.world_size = rig.options.world_size;
    rig_close(&rig);
}

int main(void)
{
    test_random();
    test_mixing();
    test_storage_order();
    test_broken();
    test_refused();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
