/* Goal: every sample comes exactly once an epoch for any settings, and the inverse finds its
 * position; positions in bulk equal single ones; blocks stay near their groups; windows bound the
 * memory and replace each other gradually; no sample is dropped in every epoch; contradicting
 * options are refused.
 * Method: tables of settings, each enumerated over complete epochs and counted; then random
 * settings from a seed that is printed and may be given as the argument. */
#include "order/order.h"

#include "base/random.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES_MAX 40000

static uint8_t seen[SAMPLES_MAX];

static const struct order_row {
    const char *name;
    uint64_t samples, block;
    uint32_t window, groups, shuffle;
} order_rows[] = {
    {"none of nothing", 0, 8, 4, 1, STOKER_SHUFFLE_NONE},
    {"full of nothing", 0, 8, 4, 1, STOKER_SHUFFLE_FULL},
    {"block of nothing", 0, 8, 4, 1, STOKER_SHUFFLE_BLOCK},
    {"one sample", 1, 8, 4, 1, STOKER_SHUFFLE_BLOCK},
    {"one sample, full", 1, 8, 4, 1, STOKER_SHUFFLE_FULL},
    {"less than a block", 7, 8, 4, 1, STOKER_SHUFFLE_BLOCK},
    {"one block", 8, 8, 4, 1, STOKER_SHUFFLE_BLOCK},
    {"one block and one", 9, 8, 4, 1, STOKER_SHUFFLE_BLOCK},
    {"less than a window", 31, 8, 4, 1, STOKER_SHUFFLE_BLOCK},
    {"one window", 32, 8, 4, 1, STOKER_SHUFFLE_BLOCK},
    {"windows of two lengths", 8 * 11 + 3, 8, 4, 1, STOKER_SHUFFLE_BLOCK},
    {"blocks of one", 257, 1, 16, 1, STOKER_SHUFFLE_BLOCK},
    {"windows of one", 255, 4, 1, 1, STOKER_SHUFFLE_BLOCK},
    {"huge window", 1023, 16, UINT32_MAX, 1, STOKER_SHUFFLE_BLOCK},
    {"huge block", 1025, STK_ORDER_SAMPLES_MAX, 1, 1, STOKER_SHUFFLE_BLOCK},
    {"2^10 - 1", 1023, 16, 8, 4, STOKER_SHUFFLE_BLOCK},
    {"2^10", 1024, 16, 8, 4, STOKER_SHUFFLE_BLOCK},
    {"2^10 + 1", 1025, 16, 8, 4, STOKER_SHUFFLE_BLOCK},
    {"fewest blocks a group", 4 * 7 * 5 + 4, 5, 3, 7, STOKER_SHUFFLE_BLOCK},
    {"groups and left-over blocks", 9999, 13, 8, 32, STOKER_SHUFFLE_BLOCK},
    {"2^15 + 1, full", 32769, 13, 8, 1, STOKER_SHUFFLE_FULL},
    {"2^15 + 1, none", 32769, 13, 8, 1, STOKER_SHUFFLE_NONE},
};

static uint32_t version; /* of the orders under test */

static bool begin(struct stk_order *order, struct stk_order_epoch *epoch,
                  const struct order_row *row, uint64_t seed, uint64_t number)
{
    struct stk_order_options options = {
        .sample_count = row->samples,
        .block_samples = row->block,
        .window_blocks = row->window,
        .group_count = row->groups,
        .shuffle = row->shuffle,
        .version = version,
        .seed = seed,
    };
    int status = stk_order_init(order, &options, NULL);

    stk_order_epoch_begin(epoch, order, number);
    return T_EQ(row->name, status, 0);
}

static bool is_exactly_once(const struct stk_order_epoch *epoch, uint64_t samples)
{
    memset(seen, 0, samples);
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t sample = stk_order_sample(epoch, i);
        if (sample >= samples || seen[sample] || stk_order_position(epoch, sample) != i) {
            return false;
        }
        seen[sample] = 1;
    }
    return true;
}

/* Ranges of positions of all lengths, also over the ends of the pool, have the same samples as
 * single positions; and their fingerprints add up to that of the epoch. */
static bool is_alike_in_bulk(const struct stk_order_epoch *epoch, uint64_t samples, uint64_t key)
{
    static uint64_t stretch[SAMPLES_MAX];
    uint64_t sum = 0;
    bool alike = true;

    for (uint64_t first = 0, count; first < samples; first += count) {
        count = stk_min(1 + stk_random_key(key, first) % 700, samples - first);
        stk_order_samples(epoch, first, count, stretch);
        for (uint64_t i = 0; i < count; i++) {
            alike &= stretch[i] == stk_order_sample(epoch, first + i);
        }
        sum += stk_order_fingerprint(epoch, first, count);
    }
    stk_order_samples(epoch, 0, samples, stretch);
    for (uint64_t i = 0; i < samples; i++) {
        alike &= stretch[i] == stk_order_sample(epoch, i);
    }
    return alike && sum == stk_order_fingerprint(epoch, 0, samples);
}

/* So have positions that stand group_count apart, from any place in any number. */
static bool is_alike_strided(const struct stk_order_epoch *epoch, uint64_t samples, uint64_t key)
{
    static uint64_t strided[SAMPLES_MAX];
    uint64_t groups = epoch->order->options.group_count;
    bool alike = true;

    for (uint64_t i = 0; i < stk_min(samples, 40); i++) {
        uint64_t first = i < 20 ? i * samples / 20 : stk_random_key(key, i) % samples;
        uint64_t most = (samples - 1 - first) / groups + 1;
        uint64_t count = i % 2 ? most : 1 + stk_random_key(key, i + 100) % most;

        stk_order_samples_strided(epoch, first, count, strided);
        for (uint64_t k = 0; k < count; k++) {
            alike &= strided[k] == stk_order_sample(epoch, first + k * groups);
        }
    }
    return alike;
}

static void test_rows(void)
{
    static const uint64_t epochs[] = {0, 1, 2, 77, UINT64_MAX};

    T_EACH(order_row, row, order_rows)
    {
        struct stk_order order;
        struct stk_order_epoch epoch;

        for (size_t i = 0; i < STK_COUNT(epochs); i++) {
            for (uint64_t seed = 0; seed < 3; seed++) {
                begin(&order, &epoch, row, seed, epochs[i]);
                T_TRUE(row->name, is_exactly_once(&epoch, row->samples));
                T_TRUE(row->name, is_alike_in_bulk(&epoch, row->samples, seed));
                T_TRUE(row->name, is_alike_strided(&epoch, row->samples, seed));
            }
        }
    }
}

static void test_random(uint64_t seed)
{
    for (uint64_t turn = 0; turn < T_HISTORIES(400); turn++) {
        uint64_t key = stk_random_key(seed, turn);
        struct order_row row = {
            .name = "random",
            .samples = stk_random_key(key, 1) % 5000,
            .block = 1 + stk_random_key(key, 2) % 40,
            .window = (uint32_t)(1 + stk_random_key(key, 3) % 20),
            .groups = 1,
            .shuffle = STOKER_SHUFFLE_BLOCK,
        };
        struct stk_order order;
        struct stk_order_epoch epoch;
        uint64_t groups = row.samples / row.block / STK_ORDER_GROUP_BLOCKS_MIN;

        row.groups = (uint32_t)(1 + (groups > 0 ? stk_random_key(key, 4) % groups : 0));
        begin(&order, &epoch, &row, key, turn);
        if (!T_TRUE(row.name, is_exactly_once(&epoch, row.samples) &&
                                  is_alike_in_bulk(&epoch, row.samples, key))) {
            printf("samples %llu block %llu window %u groups %u turn %llu\n",
                   (unsigned long long)row.samples, (unsigned long long)row.block, row.window,
                   row.groups, (unsigned long long)turn);
        }
    }
}

static void test_none_and_difference(void)
{
    struct stk_order order;
    struct stk_order_epoch a, b, c;
    const uint64_t count = 1000;

    for (uint32_t shuffle = STOKER_SHUFFLE_BLOCK; shuffle <= STOKER_SHUFFLE_NONE; shuffle++) {
        struct order_row row = {"difference", count, 10, 8, 4, shuffle};
        struct stk_order other;
        uint64_t epochs_alike = 0, seeds_alike = 0;

        begin(&order, &a, &row, 1, 0);
        stk_order_epoch_begin(&b, &order, 1);
        begin(&other, &c, &row, 2, 0);
        for (uint64_t i = 0; i < count; i++) {
            epochs_alike += stk_order_sample(&a, i) == stk_order_sample(&b, i);
            seeds_alike += stk_order_sample(&a, i) == stk_order_sample(&c, i);
        }
        if (shuffle == STOKER_SHUFFLE_NONE) {
            T_EQ("none is the identity", stk_order_sample(&a, 77), 77);
            T_EQ("in each epoch", epochs_alike, (long long)count);
        } else {
            T_TRUE("epochs differ", epochs_alike < 20);
            T_TRUE("seeds differ", seeds_alike < 20);
        }
    }
}

/* Group of each block in an epoch, by the positions that meet it; UINT32_MAX: left over. */
static void groups_of_blocks(const struct stk_order_epoch *epoch, uint32_t *groups)
{
    const struct stk_order_options *options = &epoch->order->options;
    uint64_t count = options->sample_count;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t block = stk_order_sample(epoch, i) / options->block_samples;
        uint32_t group = (uint32_t)(i % options->group_count);

        if (i < options->group_count || groups[block] == group) {
            groups[block] = group;
        } else {
            groups[block] = groups[block] == UINT32_MAX - 1 ? group : UINT32_MAX;
        }
    }
}

static void test_homes(void)
{
    struct order_row row = {"homes", 10 * 403 + 7, 10, 8, 8, STOKER_SHUFFLE_BLOCK};
    struct stk_order order;
    struct stk_order_epoch epoch;
    uint32_t now[404], before[404];
    uint32_t stayed, left_over, strided, ever[404] = {0};
    bool all = true;

    for (uint64_t number = 0; number < 403; number++) {
        begin(&order, &epoch, &row, 5, number);
        for (size_t i = 0; i < STK_COUNT(now); i++) {
            now[i] = UINT32_MAX - 1;
        }
        groups_of_blocks(&epoch, now);
        stayed = left_over = 0;
        for (size_t i = 0; i < 403; i++) {
            left_over += now[i] == UINT32_MAX;
            ever[i] += now[i] == UINT32_MAX;
            stayed += number > 0 && now[i] == before[i];
        }
        T_EQ("403 mod 8 blocks are left over", left_over, 3);
        T_TRUE("nearly all blocks stay at home", number == 0 || stayed >= 403 - 8 - 6);
        strided = 0;
        for (size_t i = 0; i + 8 < 403; i++) {
            strided += now[i] == now[i + 8];
        }
        T_TRUE("a group's blocks lie anywhere, not in strides", strided < 100);
        memcpy(before, now, sizeof now);
    }
    for (size_t i = 0; i < 403; i++) {
        all &= ever[i] == 3;
    }
    T_TRUE("in F epochs each block is left over F mod H times", all);
}

/* Returns whether every stretch of rows of every column has as many left-overs as each other
 * stretch of the same length, or one more or less. */
static bool is_even(const struct stk_order_epoch *epoch, uint64_t rows)
{
    uint64_t groups = epoch->order->options.group_count,
             samples = epoch->order->options.sample_count;
    uint64_t total = 0;
    bool even = true;

    for (uint64_t column = 0; column < groups; column++) {
        uint64_t least = UINT64_MAX, most = 0, found = 0;

        for (uint64_t row = 0, position = column; position < samples; row++, position += groups) {
            bool left_over = stk_order_left_over_distance(epoch, position) == 0;

            total += left_over;
            found += left_over;
            if (row >= rows) {
                found -= stk_order_left_over_distance(epoch, position - rows * groups) == 0;
            }
            if (row + 1 >= rows) {
                least = stk_min(least, found);
                most = stk_max(most, found);
            }
        }
        even = even && most - least <= 1;
    }
    return even && total == epoch->order->pool_samples;
}

/* In version 1, the left-overs are contiguous. In version 2, they are at equal distances. */
static void test_left_overs(void)
{
    static const struct order_row rows[] = {
        {"a short block", 6000, 256, 64, 1, STOKER_SHUFFLE_BLOCK},
        {"blocks and a short block", 10 * 403 + 7, 10, 8, 8, STOKER_SHUFFLE_BLOCK},
        {"many groups", 32 * 4 * 13 + 31 * 13 + 12, 13, 8, 32, STOKER_SHUFFLE_BLOCK},
        {"no complete block", 99, 100, 8, 1, STOKER_SHUFFLE_BLOCK},
        {"one left-over", 1001, 10, 8, 5, STOKER_SHUFFLE_BLOCK},
        {"none", 1000, 10, 8, 5, STOKER_SHUFFLE_BLOCK},
    };

    T_EACH(order_row, row, rows)
    {
        for (uint64_t number = 0; number < 3; number++) {
            struct stk_order order;
            struct stk_order_epoch epoch;
            bool in_pool = true;

            begin(&order, &epoch, row, 5, number);
            if (version > 1) {
                T_TRUE(row->name, is_even(&epoch, 1) && is_even(&epoch, 7) && is_even(&epoch, 50));
                continue;
            }
            for (uint64_t position = 0; position < row->samples; position++) {
                in_pool &= (stk_order_left_over_distance(&epoch, position) == 0) ==
                           (position >= epoch.pool_first &&
                            position < epoch.pool_first + order.pool_samples);
            }
            T_TRUE(row->name, in_pool);
        }
    }
}

/* In version 2, a left-over is at every position with equal probability. */
static void test_left_over_places(void)
{
    enum { EPOCHS = 4000, BINS = 10 };
    struct order_row row = {"places", 10 * 43 + 7, 10, 4, 4, STOKER_SHUFFLE_BLOCK};
    struct stk_order order;
    uint32_t counts[BINS] = {0};
    double chi = 0, want = EPOCHS / (double)BINS;

    for (uint64_t number = 0; number < EPOCHS; number++) {
        struct stk_order_epoch epoch;

        begin(&order, &epoch, &row, 9, number);
        counts[stk_order_position(&epoch, 433) * BINS / row.samples]++;
    }
    for (int i = 0; i < BINS; i++) {
        chi += (counts[i] - want) * (counts[i] - want) / want;
    }
    T_TRUE("uniform", t_is_fair("places of a left-over", chi, BINS - 1));
}

static void test_windows(void)
{
    struct order_row row = {"windows", 12 * 8 * 64 + 5, 12, 8, 8, STOKER_SHUFFLE_BLOCK};
    struct stk_order order;
    struct stk_order_epoch epoch;
    uint32_t left[513], fresh[64] = {0};
    uint32_t open = 0, open_max = 0, fresh_max = 0, same = 0;
    uint64_t last = UINT64_MAX, stretch = row.block * row.window * row.groups / 4;

    begin(&order, &epoch, &row, 9, 4);
    for (size_t i = 0; i < STK_COUNT(left); i++) {
        left[i] = i < 512 ? 12 : 5;
    }
    for (uint64_t i = 0; i < row.samples; i++) {
        uint64_t block = stk_order_sample(&epoch, i) / row.block;

        same += block == last;
        last = block;
        open += left[block] == (block < 512 ? 12 : 5);
        fresh[i / stretch] += left[block] == (block < 512 ? 12 : 5);
        open_max = open > open_max ? open : open_max;
        open -= --left[block] == 0;
    }
    for (size_t i = 4; i < row.samples / stretch; i++) { /* the first window is read at once */
        fresh_max = fresh[i] > fresh_max ? fresh[i] : fresh_max;
    }
    T_TRUE("no more blocks open than H * W and the tail", open_max <= 8 * 8 + 1);
    T_TRUE("a quarter of a window brings a quarter of its blocks", fresh_max <= 2 * 8 * 8 / 4);
    T_TRUE("neighbours are of other blocks", same < row.samples / 16);
}

/* A batch size that does not divide the data set drops other samples each epoch. */
static void test_dropped(uint32_t groups, uint64_t samples)
{
    struct order_row row = {"dropped", samples, 10, 4, groups, STOKER_SHUFFLE_BLOCK};
    struct stk_order order;
    struct stk_order_epoch epoch;
    uint32_t dropped[500] = {0}, most = 0, epochs = 400;

    for (uint64_t number = 0; number < epochs; number++) {
        begin(&order, &epoch, &row, 3, number);
        for (uint64_t i = samples - 8; i < samples; i++) {
            dropped[stk_order_sample(&epoch, i)]++;
        }
    }
    for (size_t i = 0; i < samples; i++) {
        most = dropped[i] > most ? dropped[i] : most;
    }
    /* 8 of some 400 samples an epoch: 8 times on average. */
    T_TRUE("no sample is dropped much more often than others", most <= 40);
}

static const struct refused_row {
    const char *name;
    uint64_t samples, block;
    uint32_t window, groups, shuffle;
    int want;
    const char *want_where;
} refused_rows[] = {
    {"good", 100, 5, 4, 5, STOKER_SHUFFLE_BLOCK, 0, ""},
    {"one group too many", 99, 5, 4, 5, STOKER_SHUFFLE_BLOCK, STOKER_ERROR_ARGUMENT,
     "5 groups; 19 complete blocks: 4 groups at most"},
    {"groups without blocks", 3, 5, 4, 2, STOKER_SHUFFLE_BLOCK, STOKER_ERROR_ARGUMENT,
     "0 complete blocks: 1 groups at most"},
    {"groups do not matter", 3, 5, 4, 2, STOKER_SHUFFLE_FULL, 0, ""},
    {"most samples", STK_ORDER_SAMPLES_MAX, 5, 4, 5, STOKER_SHUFFLE_BLOCK, 0, ""},
    {"too many samples", STK_ORDER_SAMPLES_MAX + 1, 5, 4, 5, STOKER_SHUFFLE_NONE,
     STOKER_ERROR_ARGUMENT, "sample_count"},
    {"no block", 100, 0, 4, 1, STOKER_SHUFFLE_BLOCK, STOKER_ERROR_ARGUMENT, "block_samples 0"},
    {"no window", 100, 5, 0, 1, STOKER_SHUFFLE_BLOCK, STOKER_ERROR_ARGUMENT, "window_blocks 0"},
    {"no group", 100, 5, 4, 0, STOKER_SHUFFLE_BLOCK, STOKER_ERROR_ARGUMENT, "group_count 0"},
    {"no shuffle", 100, 5, 4, 1, 0, STOKER_ERROR_ARGUMENT, "shuffle 0"},
    {"unknown shuffle", 100, 5, 4, 1, 4, STOKER_ERROR_ARGUMENT, "shuffle 4"},
};

static void test_unknown_version(void)
{
    struct stk_order_options options = {.sample_count = 10, .shuffle = STOKER_SHUFFLE_FULL};
    struct stk_order order;
    struct stoker_error error = {0};

    options.version = STOKER_ORDER_VERSION + 1;
    T_EQ("version", stk_order_init(&order, &options, &error), STOKER_ERROR_ARGUMENT);
    T_HAS("version", error.where, "order version 3");
    options.version = 0;
    T_EQ("newest", stk_order_init(&order, &options, &error), 0);
    T_EQ("newest", order.options.version, STOKER_ORDER_VERSION);
}

static void test_refused(void)
{
    T_EACH(refused_row, row, refused_rows)
    {
        struct stk_order_options options = {
            .sample_count = row->samples,
            .block_samples = row->block,
            .window_blocks = row->window,
            .group_count = row->groups,
            .shuffle = row->shuffle,
        };
        struct stk_order order;
        struct stoker_error error = {0};
        uint64_t sample;

        T_EQ(row->name, stk_order_init(&order, &options, &error), row->want);
        T_HAS(row->name, error.where, row->want_where);
        if (row->want < 0) {
            T_ERROR(row->name, &error);
        }
        T_EQ(row->name,
             stoker_order_at(row->samples, row->block, row->window, row->groups, row->shuffle, 0, 0,
                             0, &sample),
             row->want);
    }
}

static void test_order_at(void)
{
    struct order_row row = {"order_at", 1000, 10, 8, 4, STOKER_SHUFFLE_BLOCK};
    struct stk_order order;
    struct stk_order_epoch epoch;
    uint64_t sample = 0;
    bool same = true;

    begin(&order, &epoch, &row, 11, 6);
    for (uint64_t i = 0; i < row.samples; i++) {
        same &= stoker_order_at(1000, 10, 8, 4, row.shuffle, 11, 6, i, &sample) == 0 &&
                sample == stk_order_sample(&epoch, i);
    }
    T_TRUE("as the loader sees it", same);
    T_EQ("past the end", stoker_order_at(1000, 10, 8, 4, row.shuffle, 11, 6, 1000, &sample),
         STOKER_ERROR_ARGUMENT);
    T_EQ("of nothing", stoker_order_at(0, 10, 8, 1, row.shuffle, 11, 6, 0, &sample),
         STOKER_ERROR_ARGUMENT);
    T_EQ("nowhere to put it", stoker_order_at(1000, 10, 8, 4, row.shuffle, 11, 6, 0, NULL),
         STOKER_ERROR_ARGUMENT);
}

/* The fingerprints of two orders differ, also if only two samples are exchanged. */
static void test_fingerprint(void)
{
    struct order_row row = {"fingerprint", 1000, 10, 8, 4, STOKER_SHUFFLE_BLOCK};
    struct stk_order orders[3];
    struct stk_order_epoch epochs[4];
    uint64_t prints[4];

    begin(&orders[0], &epochs[0], &row, 1, 0);
    begin(&orders[0], &epochs[1], &row, 1, 1);
    begin(&orders[1], &epochs[2], &row, 2, 0);
    row.window = 9;
    begin(&orders[2], &epochs[3], &row, 1, 0);
    for (size_t i = 0; i < STK_COUNT(prints); i++) {
        prints[i] = stk_order_fingerprint(&epochs[i], 0, 1000);
        for (size_t k = 0; k < i; k++) {
            T_TRUE("epoch, seed and window tell in it", prints[i] != prints[k]);
        }
    }
    T_EQ("of nothing", stk_order_fingerprint(&epochs[0], 1000, 0), 0);
    T_TRUE("where positions begin tells in it", stk_order_fingerprint(&epochs[0], 0, 500) !=
                                                    stk_order_fingerprint(&epochs[0], 500, 500));
    row.shuffle = STOKER_SHUFFLE_NONE;
    begin(&orders[0], &epochs[0], &row, 1, 0);
    row.shuffle = STOKER_SHUFFLE_FULL;
    row.samples = 2; /* the two orders of two samples: some seed has the other one */
    for (uint64_t seed = 0;; seed++) {
        begin(&orders[1], &epochs[1], &row, seed, 0);
        if (stk_order_sample(&epochs[1], 0) == 1) {
            break;
        }
    }
    T_TRUE("two samples that change places",
           stk_order_fingerprint(&epochs[0], 0, 2) != stk_order_fingerprint(&epochs[1], 0, 2));
}

int main(int count, char **arguments)
{
    uint64_t seed = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;

    printf("seed %llu\n", (unsigned long long)seed);
    for (version = 1; version <= STOKER_ORDER_VERSION; version++) {
        test_rows();
        test_random(seed);
        test_none_and_difference();
        test_homes();
        test_left_overs();
        if (version > 1) {
            test_left_over_places();
        }
        test_windows();
        test_dropped(1, 408);
        test_dropped(4, 487);
        test_fingerprint();
    }
    version = STOKER_ORDER_VERSION;
    test_refused();
    test_unknown_version();
    test_order_at();
    return t_finish();
}
