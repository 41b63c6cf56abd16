/* Goal: a schedule without a mix is the order; with one, each source's samples are its range of the
 * data set, by its own order, once an epoch of it, across the epochs of the run; reads in any
 * pieces agree; the identity includes everything in which two schedules can differ.
 * Method: epochs of small schedules are enumerated and counted. Takes a seed as its argument. */
#include "order/schedule/schedule.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES 1000u

static uint64_t seed = 1;
static const uint64_t ends[3] = {500, 620, SAMPLES};
static const uint64_t weights[3] = {2, 1, 3};

static void options_of(struct stk_schedule_options *options, struct stk_mix_options *mix,
                       struct stk_mix_source *sources, uint32_t end)
{
    for (int i = 0; i < 3; i++) {
        uint64_t count = ends[i] - (i ? ends[i - 1] : 0);

        sources[i] = (struct stk_mix_source){count, end == STK_MIX_REPEAT ? 0 : count};
    }
    *mix = (struct stk_mix_options){
        .seed = seed, .sources = sources, .weights = weights, .source_count = 3, .end = end};
    *options = (struct stk_schedule_options){.order = {.sample_count = SAMPLES,
                                                       .block_samples = 10,
                                                       .window_blocks = 4,
                                                       .group_count = 2,
                                                       .shuffle = STOKER_SHUFFLE_BLOCK,
                                                       .seed = seed},
                                             .mix = mix,
                                             .ends = ends};
}

static void test_plain(void)
{
    struct stk_schedule_options options;
    struct stk_mix_source sources[3];
    struct stk_schedule_reader reader;
    struct stk_schedule schedule;
    struct stk_mix_options mix;
    uint64_t samples[SAMPLES];

    options_of(&options, &mix, sources, STK_MIX_REPEAT);
    options.mix = NULL;
    T_EQ("init", stk_schedule_init(&schedule, &options, NULL), 0);
    T_EQ("reader", stk_schedule_reader_init(&reader, &schedule, NULL), 0);
    T_EQ("samples", stk_schedule_epoch_samples(&schedule), SAMPLES);
    T_EQ("identity", schedule.identity, 0);
    T_EQ("epochs", stk_schedule_epoch_max(&schedule), STK_SCHEDULE_EPOCH_MAX);
    for (uint64_t epoch = 0; epoch < 4; epoch++) {
        struct stk_order_epoch keys;
        bool same = true;

        stk_order_epoch_begin(&keys, &schedule.order, epoch);
        stk_schedule_read(&reader, epoch, 0, SAMPLES, samples);
        for (uint64_t i = 0; i < SAMPLES; i++) {
            same &= samples[i] == stk_order_sample(&keys, i);
        }
        T_TRUE("the order", same);
        T_EQ("fingerprint", stk_schedule_fingerprint(&reader, epoch, 3, 900),
             stk_order_fingerprint(&keys, 3, 900));
        for (uint32_t tail = STOKER_TAIL_DROP; tail <= STOKER_TAIL_KEEP; tail++) {
            struct stk_partition partition = {.sample_count = SAMPLES,
                                              .batch_size = 40,
                                              .world_size = 3,
                                              .tail = tail,
                                              .group_count = 2};

            T_EQ("step", stk_schedule_step_fingerprint(&reader, &partition, epoch, 960),
                 stk_partition_fingerprint(&partition, &schedule.order, epoch, 960));
        }
    }
    stk_schedule_reader_deinit(&reader);
    stk_schedule_deinit(&schedule);
}

/* The number of times and the positions at which each sample is read in an epoch are found. */
static void check_find(const char *name, const struct stk_schedule *schedule, uint64_t epoch,
                       const uint64_t *samples)
{
    static uint8_t seen[1 << 16];
    uint64_t count = stk_schedule_epoch_samples(schedule), finds = 0, at;
    bool right = true;

    memset(seen, 0, sizeof seen);
    for (uint64_t sample = 0; sample < SAMPLES; sample++) {
        for (uint64_t skip = 0; stk_schedule_find(schedule, epoch, sample, skip, &at); skip++) {
            right &= at < count && samples[at] == sample && seen[at]++ == 0;
            finds++;
        }
    }
    T_TRUE(name, right);
    T_EQ(name, finds, count);
}

/* Over `epochs` of the run: each source's n-th epoch holds each of its samples once. */
static void walk(const char *name, const struct stk_schedule *schedule, uint64_t epochs,
                 bool is_full)
{
    static uint64_t samples[1 << 16], again[1 << 16];
    uint64_t counts[SAMPLES] = {0}, given[3] = {0};
    uint64_t count = stk_schedule_epoch_samples(schedule), differ = 0;
    struct stk_schedule_reader reader;
    bool even = true, same = true;

    T_TRUE(name, count <= STK_COUNT(samples));
    T_EQ(name, stk_schedule_reader_init(&reader, schedule, NULL), 0);
    for (uint64_t epoch = 0; epoch < epochs; epoch++) {
        differ += epoch > 0 && memcmp(samples, again, count * sizeof *samples) != 0;
        memcpy(again, samples, sizeof again);
        stk_schedule_read(&reader, epoch, 0, count, samples);
        check_find(name, schedule, epoch, samples);
        for (uint64_t i = 0; i < count; i++) {
            int source = samples[i] < ends[0] ? 0 : samples[i] < ends[1] ? 1 : 2;

            counts[samples[i]]++;
            given[source]++;
        }
        for (uint64_t turn = 0; turn < 20; turn++) {
            uint64_t first = stk_random_key(seed, turn) % count;
            uint64_t piece = stk_min(stk_random_key(seed, turn + 100) % 50, count - first),
                     part[50];

            stk_schedule_read(&reader, epoch, first, piece, part);
            same &= memcmp(part, samples + first, piece * sizeof *part) == 0;
        }
        for (uint64_t i = 0; is_full && i < SAMPLES; i++) {
            int source = i < ends[0] ? 0 : i < ends[1] ? 1 : 2;
            uint64_t size = ends[source] - (source ? ends[source - 1] : 0);

            /* Epochs end at borders here, so all due samples were read. */
            even &= counts[i] - given[source] / size <= (given[source] % size > 0);
        }
    }
    T_TRUE(name, even);
    T_TRUE(name, same);
    T_TRUE("epochs differ", differ + 1 >= epochs);
    stk_schedule_reader_deinit(&reader);
}

static void test_mixes(void)
{
    struct stk_schedule_options options;
    struct stk_mix_source sources[3];
    struct stk_schedule schedule;
    struct stk_mix_options mix;

    options_of(&options, &mix, sources, STK_MIX_REPEAT);
    /* 1020 = 170 * 6: frames are 1020 long, so that every epoch of the run ends at a border. */
    options.epoch_samples = 1020;
    T_EQ("endless", stk_schedule_init(&schedule, &options, NULL), 0);
    T_TRUE("identity", schedule.identity != 0);
    T_EQ("border", stk_schedule_change_position(&schedule, 2, 5, 0), 3060);
    T_EQ("epochs", stk_schedule_epoch_max(&schedule), STK_MIX_POSITIONS_MAX / 2 / 1020);
    for (uint64_t sample = 0; sample < SAMPLES; sample++) {
        uint64_t first, count;

        stk_schedule_substitute_range(&schedule, sample, &first, &count);
        T_EQ("peers", first, sample < ends[0] ? 0 : sample < ends[1] ? ends[0] : ends[1]);
        T_TRUE("peers", sample >= first && sample - first < count);
    }
    walk("endless", &schedule, 12, true);
    stk_schedule_deinit(&schedule);
    /* Epochs that end anywhere in a frame, and units that are longer than the rest of a frame. */
    options.epoch_samples = 77;
    mix.unit_samples = 5;
    T_EQ("units", stk_schedule_init(&schedule, &options, NULL), 0);
    T_EQ("complete units", stk_schedule_epoch_samples(&schedule), 80);
    walk("units", &schedule, 90, false);
    stk_schedule_deinit(&schedule);
    options_of(&options, &mix, sources, STK_MIX_RENORMALISE);
    T_EQ("to the end", stk_schedule_init(&schedule, &options, NULL), 0);
    T_EQ("to the end", stk_schedule_epoch_samples(&schedule), SAMPLES);
    T_EQ("epochs", stk_schedule_epoch_max(&schedule), STK_MIX_POSITIONS_MAX / 2 / SAMPLES);
    walk("to the end", &schedule, 4, true);
    stk_schedule_deinit(&schedule);
    /* The first source is exhausted long before the third, which continues in the next epoch. */
    options_of(&options, &mix, sources, STK_MIX_STOP);
    sources[0].sample_limit = 130;
    sources[1].sample_limit = sources[2].sample_limit = 0;
    T_EQ("to the first end", stk_schedule_init(&schedule, &options, NULL), 0);
    T_EQ("to the first end", stk_schedule_epoch_samples(&schedule), 390);
    T_EQ("to the first end", stk_mix_delivered(&schedule.mix, 0), 130);
    walk("to the first end", &schedule, 9, true);
    stk_schedule_deinit(&schedule);
}

/* clang-format off: one row, one line. */
static const struct row {
    const char *name;
    uint64_t weight, seed, unit, epoch_samples, change;
} rows[] = {
    {"weight", 4, 0, 1, 0, 0}, {"seed", 3, 1, 1, 0, 0},   {"unit", 3, 0, 2, 0, 0},
    {"epoch", 3, 0, 1, 77, 0}, {"change", 3, 0, 1, 0, 5},
};
/* clang-format on */

static void test_identity(void)
{
    struct stk_schedule_options options;
    struct stk_mix_source sources[3];
    struct stk_schedule schedule;
    struct stk_mix_options mix;
    uint64_t plain;

    options_of(&options, &mix, sources, STK_MIX_REPEAT);
    mix.unit_samples = 1;
    T_EQ("plain", stk_schedule_init(&schedule, &options, NULL), 0);
    plain = schedule.identity;
    stk_schedule_deinit(&schedule);
    T_EACH(row, row, rows)
    {
        uint64_t changed[3] = {2, 1, row->weight};
        struct stk_mix_change change = {row->change, weights};

        mix.weights = changed;
        mix.seed = seed + row->seed;
        mix.unit_samples = row->unit;
        mix.changes = &change;
        mix.change_count = row->change > 0;
        options.epoch_samples = row->epoch_samples;
        T_EQ(row->name, stk_schedule_init(&schedule, &options, NULL), 0);
        T_TRUE(row->name, schedule.identity != plain);
        stk_schedule_deinit(&schedule);
    }
}

/* Differences that epochs and lengths do not show: other ends, limits, borders between sources, and
 * changes. */
static void test_identity_of_sources(void)
{
    enum { PLAIN, END, LIMITS, BORDERS, CHANGE, LATER, OTHERS, GROUPS, KINDS };
    static const uint64_t moved[3] = {490, 620, SAMPLES}, others[3] = {2, 1, 4};
    struct stk_schedule_options options;
    struct stk_mix_source sources[3];
    struct stk_mix_change change;
    struct stk_schedule schedule;
    struct stk_mix_options mix;
    uint64_t identities[KINDS];

    for (int kind = PLAIN; kind < KINDS; kind++) {
        options_of(&options, &mix, sources, STK_MIX_RENORMALISE);
        mix.end = kind == END ? STK_MIX_REPEAT : STK_MIX_RENORMALISE;
        options.epoch_samples = kind == END ? SAMPLES : 0;
        change =
            (struct stk_mix_change){kind == LATER ? 101 : 100, kind == OTHERS ? others : weights};
        mix.changes = &change;
        mix.change_count = kind >= CHANGE && kind <= OTHERS;
        if (kind == LIMITS) { /* as long, but other sources end first */
            sources[0].sample_limit -= 10;
            sources[2].sample_limit += 10;
        } else if (kind == BORDERS) {
            sources[0].sample_count -= 10;
            sources[1].sample_count += 10;
            options.ends = moved;
        } else if (kind == GROUPS) {
            options.order.group_count = 1; /* it is in the state, with the mix */
        }
        T_EQ("init", stk_schedule_init(&schedule, &options, NULL), 0);
        T_EQ("all are as long", stk_schedule_epoch_samples(&schedule), SAMPLES);
        identities[kind] = schedule.identity;
        stk_schedule_deinit(&schedule);
        for (int other = PLAIN; other < kind; other++) {
            bool is_one = kind == GROUPS && other == PLAIN;

            T_TRUE("another one", (identities[other] == identities[kind]) == is_one);
        }
    }
}

/* Two sources of one length have different sequences, and a repeated mix has other frames: batch
 * mates of one epoch are not those of the next. */
static void test_apart(void)
{
    enum { COUNT = 600 };
    static const uint64_t halves[2] = {COUNT, 2 * COUNT}, alike[2] = {1, 1};
    struct stk_mix_source sources[2] = {{COUNT, COUNT}, {COUNT, COUNT}};
    struct stk_mix_options mix = {
        .seed = seed, .sources = sources, .weights = alike, .source_count = 2, .end = STK_MIX_STOP};
    struct stk_schedule_options options = {
        .order = {.sample_count = 2 * COUNT, .shuffle = STOKER_SHUFFLE_FULL, .seed = seed},
        .mix = &mix,
        .ends = halves};
    struct stk_schedule schedule;
    struct stk_schedule_reader reader;
    struct stk_order_epoch keys[2];
    uint64_t samples[2][2 * COUNT], same_walk = 0, same_source = 0;

    T_EQ("init", stk_schedule_init(&schedule, &options, NULL), 0);
    T_EQ("epoch", stk_schedule_epoch_samples(&schedule), 2 * COUNT);
    T_EQ("reader", stk_schedule_reader_init(&reader, &schedule, NULL), 0);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        stk_schedule_read(&reader, epoch, 0, 2 * COUNT, samples[epoch]);
    }
    for (uint64_t i = 0; i < 2 * COUNT; i++) {
        same_source += (samples[0][i] >= COUNT) == (samples[1][i] >= COUNT);
    }
    for (int source = 0; source < 2; source++) {
        stk_order_epoch_begin(&keys[source], &schedule.orders[source], 0);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        same_walk += stk_order_sample(&keys[0], i) == stk_order_sample(&keys[1], i);
    }
    T_TRUE("sources do not walk alike", same_walk < COUNT / 20);
    T_TRUE("epochs have other frames",
           same_source > COUNT * 8 / 10 && same_source < COUNT * 12 / 10);
    stk_schedule_reader_deinit(&reader);
    stk_schedule_deinit(&schedule);
}

static void test_failures(void)
{
    static const uint64_t wrong[3] = {500, 619, SAMPLES};
    struct stk_schedule_options options;
    struct stk_mix_source sources[3];
    struct stk_schedule schedule;
    struct stk_mix_options mix;
    struct stoker_error error = {0};
    int status = -1;

    options_of(&options, &mix, sources, STK_MIX_REPEAT);
    options.ends = wrong;
    T_EQ("ends", stk_schedule_init(&schedule, &options, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR("ends", &error);
    options.ends = ends;
    options.order.group_count = 100;
    T_EQ("order", stk_schedule_init(&schedule, &options, &error), STOKER_ERROR_ARGUMENT);
    options.order.group_count = 2;
    for (uint64_t n = 1; status < 0 && n < 20; n++) {
        stk_mem_fail_nth(n);
        status = stk_schedule_init(&schedule, &options, NULL);
        stk_mem_fail_nth(0);
        T_TRUE("no memory", status == -12 || status == 0);
        stk_schedule_deinit(&schedule);
    }
    T_EQ("enough memory", status, 0);
    T_EQ("no leak", stk_mem_alive(), 0);
}

int main(int count, char **arguments)
{
    if (count > 1) {
        seed = strtoull(arguments[1], NULL, 0);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    test_plain();
    test_mixes();
    test_identity();
    test_identity_of_sources();
    test_apart();
    test_failures();
    return t_finish();
}
