/* Goal: samples are drawn by their weights, classes in turns, shards completely, and copies at
 * their positions.
 * Method: the table of weights is added up exactly; draws are counted, and compared by chi-square;
 * classes, shards and copies are enumerated. Takes a seed as its argument. */
#include "order/sampling/sampling.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define WEIGHTS_MAX 1000u
#define DRAWS 400000u
#define UNLIKELY 16.0 /* a fair draw fails with a chance below e^-16 */

static uint64_t seed = 1;

static bool is_fair(const char *name, double chi, double freedom)
{
    double above = chi - freedom - 2 * UNLIKELY;
    bool fair = above <= 0 || above * above < 4 * freedom * UNLIKELY;

    if (!fair) {
        printf("%s: chi-square %.1f with %.0f degrees of freedom\n", name, chi, freedom);
    }
    return fair;
}

/* clang-format off: one row, one line. */
static const struct alias_row {
    const char *name;
    uint64_t count, below; /* weights are random numbers below this, or equal if 0 */
    uint32_t weights[4];   /* if not 0 */
} alias_rows[] = {
    {"one", 1, 0, {7}},
    {"two", 2, 0, {1, 3}},
    {"a zero", 3, 0, {1, 0, 3}},
    {"all but one zero", 4, 0, {0, 0, 5, 0}},
    {"largest", 4, 0, {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}},
    {"equal", 1000, 0, {0}},
    {"zeros and ones", 999, 2, {0}},
    {"small", 1000, 10, {0}},
    {"large", 257, UINT32_MAX, {0}},
};
/* clang-format on */

/* Chances, in 2^-32 of a column, as the table has them. */
static void check_table(const char *name, const struct stk_alias_table *alias,
                        const uint32_t *weights, uint64_t sum)
{
    static double chances[WEIGHTS_MAX];
    double unit = 4294967296.0 * (double)alias->count, off = 0;
    bool no_zeros = true;

    memset(chances, 0, sizeof chances);
    for (uint64_t i = 0; i < alias->count; i++) {
        chances[i] += alias->thresholds[i];
        chances[alias->aliases[i]] += 4294967296.0 - alias->thresholds[i];
    }
    for (uint64_t i = 0; i < alias->count; i++) {
        double this = chances[i] / unit - (double)weights[i] / (double)sum;

        off = this > off ? this : -this > off ? -this : off;
        no_zeros &= weights[i] > 0 || chances[i] == 0;
    }
    T_TRUE(name, off < 1 / 4294967296.0);
    T_TRUE(name, no_zeros);
}

static void check_draws(const char *name, const struct stk_alias_table *alias,
                        const uint32_t *weights, uint64_t sum)
{
    static uint32_t seen[WEIGHTS_MAX];
    uint64_t key = stk_draw_key(seed, 1);
    double chi = 0, freedom = -1;
    bool no_zeros = true;

    memset(seen, 0, sizeof seen);
    for (uint64_t i = 0; i < DRAWS; i++) {
        seen[stk_alias_table_draw(alias, key, i)]++;
    }
    for (uint64_t i = 0; i < alias->count; i++) {
        double want = (double)DRAWS * weights[i] / (double)sum;

        no_zeros &= weights[i] > 0 || seen[i] == 0;
        if (want >= 20) { /* chi-square is for counts that are not small */
            chi += (seen[i] - want) * (seen[i] - want) / want;
            freedom++;
        }
    }
    T_TRUE(name, no_zeros);
    T_TRUE(name, is_fair(name, chi, freedom + 1));
}

static void test_alias(void)
{
    T_EACH(alias_row, row, alias_rows)
    {
        static uint32_t weights[WEIGHTS_MAX];
        struct stk_alias_table alias;
        uint64_t sum = 0;

        for (uint64_t i = 0; i < row->count; i++) {
            weights[i] = row->below       ? (uint32_t)(stk_random_key(seed, i) % row->below)
                         : row->count > 4 ? 3
                                          : row->weights[i];
            sum += weights[i];
        }
        T_EQ(row->name, stk_alias_table_init(&alias, weights, row->count, NULL), 0);
        check_table(row->name, &alias, weights, sum);
        check_draws(row->name, &alias, weights, sum);
        stk_alias_table_deinit(&alias);
    }
}

/* Every frame has each class once; in every |class| frames each of its samples once. */
static void test_classes(void)
{
    enum { SAMPLES = 500, LABELS = 9, FRAMES = 1200 };
    uint32_t labels[SAMPLES], counts[LABELS] = {0};
    static uint32_t seen[SAMPLES];
    struct stk_class_balance classes;
    uint64_t key = stk_draw_key(seed, STK_DRAW_USE_CLASSES);
    bool once = true, once_each = true;
    uint32_t slots[8][8] = {{0}};
    static uint16_t walk[FRAMES]; /* of the largest class */
    uint32_t alike = 0, epoch;
    double chi = 0;

    for (uint32_t i = 0; i < SAMPLES; i++) {
        uint32_t label = (uint32_t)(stk_random_key(seed, i) % (LABELS * LABELS));

        for (labels[i] = 0; label >= (labels[i] + 1) * (labels[i] + 1); labels[i]++) {
        }
        labels[i] = labels[i] == 4 ? 5 : labels[i]; /* no sample has label 4 */
    }
    labels[0] = 0; /* the rarest has one at least */
    for (uint32_t i = 0; i < SAMPLES; i++) {
        counts[labels[i]]++;
    }
    T_EQ("init", stk_class_balance_init(&classes, labels, SAMPLES, LABELS, NULL), 0);
    T_EQ("classes", classes.class_count, LABELS - 1);
    for (uint64_t frame = 0; frame < FRAMES; frame++) {
        uint32_t met = 0;

        for (uint32_t slot = 0; slot < LABELS - 1; slot++) {
            uint64_t sample = stk_class_balance_draw(&classes, key, frame * (LABELS - 1) + slot);
            uint32_t label = labels[sample];

            if (label == LABELS - 1) {
                walk[frame] = (uint16_t)sample;
            }
            once &= !(met >> label & 1);
            met |= 1u << label;
            seen[sample]++;
            slots[slot][label - (label > 4)]++;
            /* In its n-th epoch a sample is read for the n-th time. */
            once_each &= seen[sample] == frame / counts[label] + 1;
        }
    }
    epoch = counts[LABELS - 1];
    for (uint32_t i = 0; i < epoch; i++) {
        alike += walk[i] == walk[i + epoch];
    }
    T_TRUE("its next epoch is another", epoch > 50 && alike < epoch / 4);
    for (int i = 0; i < 64; i++) {
        double want = FRAMES / 8.0;
        chi += (slots[i / 8][i % 8] - want) * (slots[i / 8][i % 8] - want) / want;
    }
    T_TRUE("each class once a frame", once);
    T_TRUE("each sample once an epoch of its class", once_each);
    T_TRUE("no fixed place in a frame", is_fair("slots", chi, 49));
    stk_class_balance_deinit(&classes);
}

static void test_shards(void)
{
    static const uint64_t counts[] = {100, 1, 0, 77, 300, 0, 5};
    uint64_t first_positions[2][STK_COUNT(counts)];
    struct stk_two_level shards;
    uint8_t seen[483];
    bool differs = false;

    T_EQ("init", stk_two_level_init(&shards, counts, STK_COUNT(counts), seed, NULL), 0);
    T_EQ("samples", shards.sample_count, sizeof seen);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        uint64_t last = UINT64_MAX, changes = 0, in_place = 0;
        bool once = true;

        stk_two_level_begin(&shards, epoch);
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < sizeof seen; i++) {
            uint64_t sample = stk_two_level_sample(&shards, i), shard = 0;

            once &= sample < sizeof seen && !seen[sample];
            seen[sample] = 1;
            while (shards.starts[shard + 1] <= sample) {
                shard++;
            }
            if (shard != last) {
                changes++;
                first_positions[epoch][shard] = i;
            }
            in_place += shard == last && sample == stk_two_level_sample(&shards, i - 1) + 1;
            last = shard;
        }
        T_TRUE("each sample once", once);
        T_EQ("each shard in one piece", changes, 5);
        T_TRUE("and shuffled inside", in_place < 20);
    }
    for (size_t i = 0; i < STK_COUNT(counts); i++) {
        differs |= counts[i] > 0 && first_positions[0][i] != first_positions[1][i];
    }
    T_TRUE("another order of shards", differs);
    stk_two_level_deinit(&shards);
}

/* clang-format off: one row, one line. */
static const struct repeats_row {
    const char *name;
    struct stk_repeats repeats;
    uint64_t want[12];
} repeats_rows[] = {
    {"once", {4, 1, 2}, {0, 1, 2, 3}},
    {"neighbours", {3, 3, 1}, {0, 0, 0, 1, 1, 1, 2, 2, 2}},
    {"spread", {4, 2, 2}, {0, 1, 0, 1, 2, 3, 2, 3}},
    {"short end", {4, 3, 3}, {0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 3, 3}},
    {"short end of two", {5, 2, 3}, {0, 1, 2, 0, 1, 2, 3, 4, 3, 4}},
};
/* clang-format on */

static void test_repeats(void)
{
    T_EACH(repeats_row, row, repeats_rows)
    {
        uint64_t end = row->repeats.position_count * row->repeats.times;

        for (uint64_t i = 0; i < end; i++) {
            T_EQ(row->name, stk_repeats_position(&row->repeats, i), row->want[i]);
        }
    }
}

static void test_failures(void)
{
    static const uint32_t zeros[3] = {0, 0, 0}, ones[3] = {1, 1, 1};
    static const uint64_t counts[2] = {STK_ORDER_SAMPLES_MAX, 1};
    struct stoker_error error[4] = {{0}};
    struct stk_class_balance classes;
    struct stk_two_level shards;
    struct stk_alias_table alias;

    T_EQ("zeros", stk_alias_table_init(&alias, zeros, 3, &error[0]), STOKER_ERROR_ARGUMENT);
    T_EQ("no samples", stk_class_balance_init(&classes, ones, 0, 2, &error[1]),
         STOKER_ERROR_ARGUMENT);
    T_EQ("labels", stk_class_balance_init(&classes, ones, 3, 1, &error[2]), STOKER_ERROR_ARGUMENT);
    T_EQ("shards", stk_two_level_init(&shards, counts, 2, 0, &error[3]), STOKER_ERROR_ARGUMENT);
    T_EACH(stoker_error, one, error)
    {
        T_ERROR("refused", one);
    }
    for (uint64_t n = 1; n <= 2; n++) {
        struct stoker_error none[3] = {{0}};

        stk_mem_fail_nth(n);
        T_EQ("no memory", stk_alias_table_init(&alias, ones, 3, &none[0]), -12);
        stk_mem_fail_nth(n);
        T_EQ("no memory", stk_class_balance_init(&classes, ones, 3, 2, &none[1]), -12);
        stk_mem_fail_nth(n);
        T_EQ("no memory", stk_two_level_init(&shards, counts, 1, 0, &none[2]), -12);
        T_EACH(stoker_error, one, none)
        {
            T_ERROR("no memory", one);
        }
    }
    stk_mem_fail_nth(0);
    T_EQ("no leak", stk_mem_alive(), 0);
}

int main(int count, char **arguments)
{
    if (count > 1) {
        seed = strtoull(arguments[1], NULL, 0);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    test_alias();
    test_classes();
    test_shards();
    test_repeats();
    test_failures();
    return t_finish();
}
