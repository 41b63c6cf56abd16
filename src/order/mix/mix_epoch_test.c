/* Goal: an epoch of a mix has the share of each source; a source delivers each of its samples
 * equally often there; and without a shuffle each source stays in its own sequence.
 * Method: epochs of small sources are enumerated and counted. Takes a seed as its argument. */
#include "order/mix/mix.h"

#include "test/t.h"

#include <stdlib.h>

static uint64_t seed = 1;

/* Epochs of the length of a small source, alone and with others: each has all of its samples, once,
 * also after a change of weights in the middle of an epoch. */
static const struct epoch_row {
    const char *name;
    uint64_t samples[3], weights[3], epoch, unit;
    uint64_t change, changed[3];
} epoch_rows[] = {
    {"one source", {100, 0, 0}, {1, 0, 0}, 100, 1, 0, {0}},
    {"half of it", {100, 5000, 0}, {1, 1, 0}, 200, 1, 0, {0}},
    {"a tenth", {100, 5000, 70000}, {100, 300, 600}, 1000, 1, 0, {0}},
    {"many frames", {1000, 90000, 7}, {1, 10, 1}, 12000, 1, 0, {0}},
    {"twice an epoch", {50, 5000, 0}, {1, 1, 0}, 100, 1, 0, {0}},
    {"batches", {128, 5000, 0}, {1, 3, 0}, 512, 32, 0, {0}},
    {"a change", {100, 5000, 0}, {1, 1, 0}, 200, 1, 770, {1, 1, 0}},
};

static void test_epochs(void)
{
    T_EACH(epoch_row, row, epoch_rows)
    {
        struct stk_mix_source sources[3] = {
            {row->samples[0], 0}, {row->samples[1], 0}, {row->samples[2], 0}};
        struct stk_mix_change change = {row->change, row->changed};
        struct stk_mix_options options = {.seed = seed,
                                          .sources = sources,
                                          .weights = row->weights,
                                          .changes = &change,
                                          .source_count =
                                              1u + (row->weights[1] > 0) + (row->weights[2] > 0),
                                          .change_count = row->change > 0,
                                          .unit_samples = row->unit,
                                          .epoch_samples = row->epoch};
        uint64_t from = row->change ? row->change / row->epoch + 1 : 0;
        bool once = true;
        struct stk_mix mix;

        T_EQ(row->name, stk_mix_init(&mix, &options, NULL), 0);
        for (uint64_t e = from; e < from + 20; e++) {
            uint32_t seen[1000] = {0}, times = 0;

            for (uint64_t i = 0; i < row->epoch; i++) {
                struct stk_mix_draw draw;

                stk_mix_draw_at(&mix, e * row->epoch + i, &draw);
                if (draw.source == 0) {
                    times++;
                    seen[draw.position]++;
                }
            }
            for (uint64_t i = 0; i < row->samples[0] && !row->change; i++) {
                once &= seen[i] == times / row->samples[0];
            }
            T_EQ(row->name, times % (row->change ? 1 : row->samples[0]), 0);
            T_EQ(row->name, times,
                 row->epoch * row->weights[0] /
                     (row->weights[0] + row->weights[1] + row->weights[2]));
        }
        T_TRUE(row->name, once);
        stk_mix_deinit(&mix);
    }
}

/* In sequence: each source delivers 0, 1, 2, ... at increasing positions, evenly spread. */
static void test_sequence(void)
{
    static const uint64_t weights[4] = {1, 5, 300, 44};
    struct stk_mix_source sources[4] = {{90, 0}, {91, 0}, {92, 0}, {93, 0}};
    struct stk_mix_options options = {.seed = seed,
                                      .sources = sources,
                                      .weights = weights,
                                      .source_count = 4,
                                      .epoch_samples = 3001,
                                      .in_sequence = true};
    uint64_t next[4] = {0}, last[4] = {0}, longest[4] = {0};
    bool in_turn = true;
    struct stk_mix mix;

    T_EQ("init", stk_mix_init(&mix, &options, NULL), 0);
    for (uint64_t i = 0; i < 12000; i++) {
        struct stk_mix_draw draw;

        stk_mix_draw_at(&mix, i, &draw);
        in_turn &=
            draw.epoch * sources[draw.source].sample_count + draw.position == next[draw.source]++;
        longest[draw.source] = stk_max(longest[draw.source], i - last[draw.source]);
        last[draw.source] = i;
    }
    T_TRUE("in sequence", in_turn);
    for (int i = 0; i < 4; i++) { /* the last of a frame and the first of the next: twice that */
        T_TRUE("evenly spread", longest[i] <= 3 * (350 / weights[i] + 1));
    }
    stk_mix_deinit(&mix);
}

/* The length of an epoch is a multiple of the unit and of the groups; one without such a multiple
 * below 2^64 is refused. */
static void test_lengths(void)
{
    static const struct length_row {
        uint64_t given, unit;
        uint32_t groups;
        uint64_t length;
    } lengths[] = {
        {100, 1, 1, 100},
        {101, 8, 1, 104},
        {101, 8, 12, 120},
        {101, 0, 0, 101},
        {UINT64_MAX, 1, 1, UINT64_MAX},
        {UINT64_MAX, 8, 1, UINT64_MAX},
        {UINT64_MAX - 2, 1, 1u << 20, UINT64_MAX},
    };

    T_EACH(length_row, row, lengths)
    {
        T_TRUE("length", stk_mix_epoch_samples(row->given, row->unit, row->groups) == row->length);
    }
}

static void test_refused_settings(void)
{
    static const uint64_t weights[1] = {1};
    struct stk_mix_source source = {10, 0};
    const struct stk_mix_options base = {
        .sources = &source, .weights = weights, .source_count = 1, .unit_samples = 4};
    struct stk_mix_options rows[4] = {base, base, base, base};
    struct stoker_error error = {0};
    struct stk_mix mix;

    rows[0].version = STK_MIX_VERSION + 1;
    rows[1].epoch_samples = 6;
    rows[2].in_sequence = true;
    rows[2].group_count = 2;
    rows[3].epoch_samples = stk_mix_epoch_samples(UINT64_MAX, rows[3].unit_samples, 1);
    for (int i = 0; i < 4; i++) {
        T_EQ("refused", stk_mix_init(&mix, &rows[i], &error), STOKER_ERROR_ARGUMENT);
        T_ERROR("refused", &error);
    }
}

int main(int count, char **arguments)
{
    if (count > 1) {
        seed = strtoull(arguments[1], NULL, 0);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    test_epochs();
    test_sequence();
    test_lengths();
    test_refused_settings();
    return t_finish();
}
