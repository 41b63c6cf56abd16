/* Goal: with home groups a mix has the same samples as without, frame by frame; nearly all of them
 * are at positions of their group, drawn among those without a pattern; so a node that caches its
 * share of the data finds most of every epoch there, for any number of nodes.
 * Method: frames of mixes with and without groups are compared as sets; home positions are counted
 * and compared with their expected number; chi-square over the positions of a group; the blocks
 * that nodes read in an epoch of a run are compared with those of the epoch before. Takes a seed as
 * its argument. */
#include "base/mem.h"
#include "order/schedule/schedule.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define SOURCES 8u
#define WALK 300000u

static uint64_t seed = 1;

/* clang-format off: one row, one line. */
static const struct row {
    const char *name;
    uint32_t source_count, groups;
    uint64_t unit, weights[SOURCES], samples[SOURCES];
    double away; /* at most this share of the samples is not at home */
} rows[] = {
    {"two", 2, 4, 1, {1, 1}, {40000, 60000}, 0.01},
    {"uneven", 3, 16, 1, {500009, 300007, 199999}, {40000, 10000, 50000}, 0.03},
    {"eight",
     8,
     64,
     1,
     {10, 20, 5, 5, 30, 15, 14, 1},
     {90001, 80003, 70007, 60011, 50021, 40031, 30047, 20051},
     0.015},
    {"a rare one", 2, 8, 1, {1, 9999}, {400, 100000}, 0.01},
    /* Its epochs end within frames: positions after such an end are distributed as anywhere. */
    {"short epochs", 2, 16, 1, {1, 1}, {333, 100000}, 0.03},
    {"more groups than a frame is long for", 2, 2048, 1, {2, 1}, {900000, 450000}, 0.02},
    {"batches of one source", 3, 8, 256, {5, 3, 2}, {40000, 10001, 50000}, 0.02},
    {"batches that groups do not divide", 3, 16, 250, {5, 3, 2}, {40000, 10001, 50000}, 0.06},
};
/* clang-format on */

static void open_mix(const struct row *row, uint32_t groups, struct stk_mix *mix)
{
    struct stk_mix_source sources[SOURCES];
    struct stk_mix_options options = {.seed = seed,
                                      .sources = sources,
                                      .weights = row->weights,
                                      .source_count = row->source_count,
                                      .unit_samples = row->unit,
                                      .group_count = groups};

    for (uint32_t i = 0; i < row->source_count; i++) {
        sources[i] = (struct stk_mix_source){row->samples[i], 0};
    }
    T_EQ(row->name, stk_mix_init(mix, &options, NULL), 0);
}

static int compare(const void *a, const void *b)
{
    const uint64_t *one = a, *two = b;

    return (*one > *two) - (*one < *two);
}

static void read_all(const struct row *row, const struct stk_mix *mix, uint64_t first,
                     uint64_t count, struct stk_mix_item *items)
{
    struct stk_order orders[SOURCES];
    struct stk_mix_reader reader;

    for (uint32_t i = 0; i < row->source_count; i++) {
        struct stk_order_options options = {.sample_count = row->samples[i],
                                            .shuffle = STOKER_SHUFFLE_NONE};
        T_EQ(row->name, stk_order_init(&orders[i], &options, NULL), 0);
    }
    T_EQ(row->name, stk_mix_reader_init(&reader, mix, orders, NULL), 0);
    stk_mix_read(&reader, first, count, items);
    stk_mix_reader_deinit(&reader);
}

/* Up to a border: the same samples as without groups, in another sequence; and where they stand. */
static void test_homes(const struct row *row)
{
    struct stk_mix_item *items = stk_alloc(WALK, sizeof *items);
    uint64_t *all[2] = {stk_alloc(WALK, 8), stk_alloc(WALK, 8)};
    struct stk_mix plain, mix;
    uint64_t border, away = 0, differ = 0;

    open_mix(row, 1, &plain);
    open_mix(row, row->groups, &mix);
    border = stk_mix_change_position(&mix, WALK / 2);
    T_TRUE(row->name, border <= WALK);
    for (int i = 0; i < 2; i++) {
        read_all(row, i ? &plain : &mix, 0, border, items);
        for (uint64_t p = 0; p < border; p++) {
            const struct stk_mix_draw *draw = &items[p].draw;

            all[i][p] = (draw->epoch * row->samples[draw->source] + draw->position) * SOURCES +
                        draw->source;
            away += i == 0 && draw->position % row->groups != p % row->groups;
            differ += i == 1 && draw->position % row->groups != p % row->groups;
        }
        qsort(all[i], border, 8, compare);
    }
    if (border == stk_mix_change_position(&plain, border)) { /* frames with groups may be longer */
        T_TRUE(row->name, memcmp(all[0], all[1], border * 8) == 0);
    }
    if (!T_TRUE(row->name, (double)away <= row->away * (double)border) ||
        !T_TRUE("without groups few are at home", row->unit > 1 || differ > border / 2)) {
        printf("%s: %llu of %llu are not at home\n", row->name, (unsigned long long)away,
               (unsigned long long)border);
    }
    stk_mix_deinit(&plain);
    stk_mix_deinit(&mix);
    stk_free(items);
    stk_free(all[0]);
    stk_free(all[1]);
}

/* Whose a place is hangs neither on the place, nor on the frame, nor on the group. Within a group
 * and frame draws are without replacement: their counts vary less than fair ones. */
static void test_fairness(void)
{
    enum { GROUPS = 8, FRAMES = 3000, SLOTS = 1024 };
    static const struct row row = {"fair", 4, GROUPS, 1, {1, 1, 1, 1}, {1003, 1007, 1011, 997}, 1};
    static uint32_t slots[SLOTS][4], ranks[GROUPS][8][4];
    double chi = 0, want = FRAMES / 4.0;
    struct stk_mix mix;

    open_mix(&row, GROUPS, &mix);
    T_EQ("a frame", mix.segments[0].frame.number, SLOTS);
    for (uint32_t i = 0; i < SLOTS * FRAMES; i++) {
        struct stk_mix_draw draw;

        stk_mix_draw_at(&mix, i, &draw);
        slots[i % SLOTS][draw.source]++;
        ranks[i % GROUPS][i / SLOTS % 8][draw.source]++;
    }
    for (int i = 0; i < SLOTS * 4; i++) {
        double off = slots[i / 4][i % 4] - want;
        chi += off * off / want;
    }
    T_TRUE("slots", t_is_fair("slots", chi, SLOTS * 3));
    T_TRUE("slots are not dealt alike either", chi > SLOTS * 3 * 0.8);
    chi = 0;
    for (int i = 0; i < GROUPS * 8 * 4; i++) {
        double expected = (double)FRAMES / 8 * SLOTS / GROUPS / 4;
        double off = ranks[i / 32][i / 4 % 8][i % 4] - expected;
        chi += off * off / expected;
    }
    T_TRUE("ranks", t_is_fair("ranks", chi, GROUPS * 8 * 3));
    stk_mix_deinit(&mix);
}

#define SAMPLES 96000u
#define BLOCK 10u
#define BLOCKS (SAMPLES / BLOCK)
#define STEP 240u

/* Returns how many samples of epoch 3 have a block that their node read in epoch 2 as well; and the
 * largest number of blocks that a node reads in an epoch. */
struct met {
    uint64_t again, blocks;
};

static struct met follow(const struct stk_schedule *schedule, uint32_t groups, uint32_t nodes)
{
    static uint8_t seen[2][16][BLOCKS];
    struct stk_partition partition = {.sample_count = stk_schedule_epoch_samples(schedule),
                                      .batch_size = STEP / nodes,
                                      .world_size = nodes,
                                      .tail = STOKER_TAIL_DROP,
                                      .group_count = groups};
    struct stk_schedule_reader reader;
    struct met met = {0, 0};

    memset(seen, 0, sizeof seen);
    T_EQ("reader", stk_schedule_reader_init(&reader, schedule, NULL), 0);
    for (uint64_t epoch = 2; epoch < 4; epoch++) {
        static uint64_t samples[SAMPLES + 1000];

        stk_schedule_read(&reader, epoch, 0, partition.sample_count, samples);
        for (uint64_t step = 0; step < stk_partition_steps(&partition, epoch); step++) {
            for (uint32_t i = 0; i < STEP; i++) {
                struct stk_order_place place;
                uint64_t block;

                partition.rank = i / partition.batch_size;
                stk_partition_place(&partition, epoch, step * STEP, i % partition.batch_size,
                                    &place);
                block = samples[place.position] / BLOCK;
                seen[epoch & 1][partition.rank][block] = 1;
                met.again += epoch == 3 && seen[0][partition.rank][block];
            }
        }
    }
    for (uint32_t node = 0; node < nodes; node++) {
        uint64_t blocks = 0;

        for (uint32_t i = 0; i < BLOCKS; i++) {
            blocks += seen[0][node][i];
        }
        met.blocks = stk_max(met.blocks, blocks);
    }
    stk_schedule_reader_deinit(&reader);
    return met;
}

/* Three sources by their sizes, and a small one, which has no groups; the run's epochs are theirs.
 */
static void test_locality(void)
{
    static const uint64_t ends[4] = {50000, 80000, 95500, SAMPLES}, weights[4] = {500, 300, 155, 5};
    struct stoker_mix_options mix = {
        .struct_size = sizeof mix, .ends = ends, .weights = weights, .source_count = 4};
    struct stk_order_options order = {.sample_count = SAMPLES,
                                      .block_samples = BLOCK,
                                      .window_blocks = 8,
                                      .group_count = 24,
                                      .shuffle = STOKER_SHUFFLE_BLOCK,
                                      .seed = seed};
    struct stk_schedule_request request = {.mix = &mix};
    struct stk_schedule schedule;
    struct stoker_error error = {0};

    T_EQ("open", stk_schedule_open(&schedule, &order, &request, NULL), 0);
    T_EQ("epochs begin at the first group", stk_schedule_epoch_samples(&schedule) % 24, 0);
    for (uint32_t nodes = 1; nodes <= 12; nodes += nodes < 4 ? 1 : 4) {
        struct met met = follow(&schedule, 24, nodes);
        double share =
            (double)met.again / (double)(stk_schedule_epoch_samples(&schedule) / STEP * STEP);

        if (!T_TRUE("blocks are met again", share > 0.9) ||
            !T_TRUE("by few nodes", met.blocks < BLOCKS * 13 / 10 / nodes + 400)) {
            printf("%u nodes: %.3f again, %llu of %u blocks\n", nodes, share,
                   (unsigned long long)met.blocks, BLOCKS);
        }
    }
    stk_schedule_deinit(&schedule);
    order.group_count = 1;
    T_EQ("open", stk_schedule_open(&schedule, &order, &request, NULL), 0);
    T_TRUE("without groups a node meets most blocks",
           follow(&schedule, 1, 4).blocks > BLOCKS * 8 / 10);
    stk_schedule_deinit(&schedule);
    order.group_count = 1300;
    T_EQ("no source has so many", stk_schedule_open(&schedule, &order, &request, &error),
         STOKER_ERROR_ARGUMENT);
    T_ERROR("no source has so many", &error);
    T_HAS("no source has so many", error.what, "groups for the sources");
}

static void test_memory(void)
{
    static const uint64_t weight = 1;
    struct stk_mix_source source = {40, 0};
    struct stk_mix_options options = {
        .sources = &source, .weights = &weight, .source_count = 1, .group_count = 3};
    struct stk_order_options order_options = {.sample_count = 40, .shuffle = STOKER_SHUFFLE_FULL};
    struct stk_mix_reader reader;
    struct stk_order order;
    struct stk_mix mix;

    T_EQ("mix", stk_mix_init(&mix, &options, NULL), 0);
    T_EQ("order", stk_order_init(&order, &order_options, NULL), 0);
    for (uint64_t n = 1; n <= 4; n++) {
        stk_mem_fail_nth(n);
        T_EQ("reader", stk_mix_reader_init(&reader, &mix, &order, NULL), n < 4 ? -12 : 0);
        stk_mem_fail_nth(0);
        stk_mix_reader_deinit(&reader);
    }
    stk_mix_deinit(&mix);
}

int main(int count, char **arguments)
{
    if (count > 1) {
        seed = strtoull(arguments[1], NULL, 0);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    T_EACH(row, row, rows)
    {
        test_homes(row);
    }
    test_fairness();
    test_locality();
    test_memory();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
