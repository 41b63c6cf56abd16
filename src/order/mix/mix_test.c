/* Goal: a mix gives every source its share at every frame end, each of its samples once an epoch
 * and in no fixed pattern; past samples do not change when weights change; the mix ends as
 * configured.
 * Method: mixes (rows, and random ones) are enumerated and counted, and compared with shares
 * computed here in 128 bits; far positions compared with the same formula; chi-square over the
 * slots of frames. Covers mix_segments.c, mix_sequence.c and mix_reader.c too (epochs:
 * mix_epoch_test.c). Takes a seed as its argument. */
#include "order/mix/mix.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define SOURCES 8
#define WALK 60000u
#define SEEN (2 * WALK) /* a frame may begin before the end of a walk, and end after it */
#define UNLIKELY 16.0   /* a fair draw fails with a chance below e^-16 */

__extension__ typedef __int128 wide;

static uint64_t seed = 1;
static uint32_t groups = 1;  /* home groups of the rows */
static uint64_t epoch_units; /* units of an epoch of the rows; 0: frames do not follow epochs */
static bool in_sequence;     /* each source of the rows in its own sequence */

/* With groups a draw takes longer; all mixes with an end are shorter than this. */
static uint64_t walk_end(void)
{
    return groups == 1 ? WALK : 20000;
}

/* clang-format off: one row, one line. */
static const struct mix_row {
    const char *name;
    uint32_t source_count, end;
    uint64_t unit, weights[SOURCES], samples[SOURCES], limits[SOURCES];
    uint64_t change, changed[SOURCES]; /* 0: no change */
} mix_rows[] = {
    {"one source", 1, 0, 1, {3}, {777}, {0}, 0, {0}},
    {"two", 2, 0, 1, {1, 1}, {100, 1000}, {0}, 0, {0}},
    {"even frames", 3, 0, 1, {5, 3, 2}, {400, 100, 5000}, {0}, 0, {0}},
    {"uneven frames", 3, 0, 1, {500009, 300007, 199999}, {400, 100, 5000}, {0}, 0, {0}},
    {"a rare one", 4, 0, 1, {1, 5000, 1, 3001}, {7, 900, 3, 40000}, {0}, 0, {0}},
    {"limits do not end a repeat", 2, 0, 1, {5, 3}, {40, 100}, {40, 100}, 0, {0}},
    {"one left out", 3, 0, 1, {4, 0, 3}, {400, 100, 5000}, {0}, 0, {0}},
    {"eight", 8, 0, 1, {10, 20, 5, 5, 30, 15, 14, 1}, {9, 8, 7, 6, 5, 4, 3, 2}, {0}, 0, {0}},
    {"large weights",
     3,
     0,
     1,
     {(UINT64_C(1) << 55) - 1, UINT64_C(1) << 54, 12345678901234567},
     {4000, 100, 5000},
     {0},
     0,
     {0}},
    {"batches of one source", 3, 0, 64, {5, 3, 2}, {400, 100, 5000}, {0}, 0, {0}},
    {"stop", 3, STK_MIX_STOP, 1, {5, 3, 2}, {4001, 1003, 5000}, {4001, 1003, 0}, 0, {0}},
    {"stop: counts",
     3,
     STK_MIX_STOP,
     1,
     {4001, 1003, 5000},
     {4001, 1003, 5000},
     {4001, 1003, 5000},
     0,
     {0}},
    {"stop: epochs", 2, STK_MIX_STOP, 1, {70, 31}, {1000, 900}, {3000, 900}, 0, {0}},
    {"stop soon", 2, STK_MIX_STOP, 1, {70, 31}, {5, 1}, {5, 1}, 0, {0}},
    {"stop: batches", 3, STK_MIX_STOP, 32, {5, 3, 2}, {4001, 1003, 5000}, {4001, 1003, 0}, 0, {0}},
    {"renormalise",
     4,
     STK_MIX_RENORMALISE,
     1,
     {5, 3, 2, 1},
     {4001, 1003, 5000, 17},
     {4001, 1003, 5000, 17},
     0,
     {0}},
    {"renormalise, uneven",
     3,
     STK_MIX_RENORMALISE,
     1,
     {500009, 300007, 199999},
     {4001, 1003, 5000},
     {4001, 3009, 5000},
     0,
     {0}},
    /* The last frame has to contain more than fits: 3 units, and 4 that are due. */
    {"stop in a full frame",
     4,
     STK_MIX_STOP,
     1,
     {235222, 235222, 235222, 66543},
     {625, 625, 625, 100},
     {625, 625, 625, 0},
     0,
     {0}},
    {"stop in no frame",
     4,
     STK_MIX_STOP,
     1,
     {235222, 235222, 235222, 66543},
     {624, 624, 624, 100},
     {624, 624, 624, 0},
     0,
     {0}},
    {"change", 3, 0, 1, {5, 3, 2}, {400, 100, 5000}, {0}, 12345, {1, 0, 7}},
    {"change, uneven", 3, 0, 1, {500009, 300007, 199999}, {400, 100, 5000}, {0}, 11113, {1, 0, 7}},
    {"change of a rare one",
     4,
     0,
     1,
     {1, 5000, 1, 3001},
     {7, 900, 3, 40000},
     {0},
     12345,
     {5000, 1, 3001, 1}},
    {"change and renormalise",
     3,
     STK_MIX_RENORMALISE,
     1,
     {5, 3, 0},
     {4001, 1003, 5000},
     {4001, 1003, 5000},
     2222,
     {1, 2, 7}},
};
/* clang-format on */

static void options_of(const struct mix_row *row, struct stk_mix_source *sources,
                       struct stk_mix_change *change, struct stk_mix_options *options)
{
    for (uint32_t i = 0; i < row->source_count; i++) {
        sources[i] = (struct stk_mix_source){row->samples[i], row->limits[i]};
    }
    *change = (struct stk_mix_change){row->change, row->changed};
    *options = (struct stk_mix_options){
        .seed = seed,
        .sources = sources,
        .weights = row->weights,
        .changes = change,
        .source_count = row->source_count,
        .change_count = row->change > 0,
        .end = row->end,
        .unit_samples = row->unit,
        .group_count = groups,
        .epoch_samples = row->end == STK_MIX_REPEAT ? epoch_units * row->unit : 0,
        .in_sequence = in_sequence,
    };
}

/* The state of a walk: which samples of each source were read, counted from its start. */
struct walk {
    uint64_t given[SOURCES], first[SOURCES]; /* so far; and when the segment began */
    uint64_t high[SOURCES];                  /* one past the largest that was read */
    uint8_t *seen[SOURCES];                  /* by sample from the source's start */
    const uint64_t *weights;                 /* of the segment */
    uint64_t begin;                          /* of the segment */
};

/* Every run of neighbouring sources is less than `slack` units away from its share. */
static bool has_shares(const struct walk *walk, const struct mix_row *row, uint64_t position,
                       int slack)
{
    wide total = 0, units = (wide)((position - walk->begin) / row->unit);

    for (uint32_t i = 0; i < row->source_count; i++) {
        total += walk->weights[i];
    }
    for (uint32_t i = 0; i < row->source_count; i++) {
        wide weights = 0, given = 0;

        for (uint32_t k = i; k < row->source_count; k++) {
            wide off;

            weights += walk->weights[k];
            given += (wide)((walk->given[k] - walk->first[k]) / row->unit);
            off = given * total - units * weights;
            if (off >= slack * total || -off >= slack * total) {
                return false;
            }
            if (slack > 1) { /* a cut frame promises single sources alone */
                break;
            }
        }
    }
    return true;
}

/* At a border a source has delivered its first samples, all of them. */
static bool has_each_sample(const struct walk *walk, const struct mix_row *row)
{
    for (uint32_t i = 0; i < row->source_count; i++) {
        if (walk->high[i] != walk->given[i]) {
            return false;
        }
    }
    return true;
}

/* Whether the draw is a new one. */
static bool take(struct walk *walk, const struct mix_row *row, const struct stk_mix_draw *draw)
{
    uint64_t index = draw->epoch * row->samples[draw->source] + draw->position;
    bool is_new = draw->source < row->source_count && draw->position < row->samples[draw->source] &&
                  walk->weights[draw->source] > 0 && index < SEEN &&
                  !walk->seen[draw->source][index];

    if (is_new) {
        walk->seen[draw->source][index] = 1;
        walk->given[draw->source]++;
        walk->high[draw->source] = stk_max(walk->high[draw->source], index + 1);
    }
    return is_new;
}

/* Follows the mix to its end or so, and looks at all that is promised at borders. */
static void walk_through(const struct stk_mix *mix, const struct mix_row *row, struct walk *walk)
{
    uint64_t end = stk_min(mix->end, walk_end()), border = 0;
    uint64_t live[SOURCES];
    bool all_new = true, all_complete = true, all_shared = true;
    uint32_t segment = 0;

    for (uint64_t position = 0; position <= end; position++) {
        struct stk_mix_draw draw;
        bool is_end = position == mix->end;
        bool is_next = !is_end && segment + 1 < mix->segment_count &&
                       mix->segments[segment + 1].first * row->unit == position;

        if (position == border && position > 0) {
            all_complete &= has_each_sample(walk, row);
            all_shared &= has_shares(walk, row, position, is_next || is_end ? 2 : 1);
        }
        if (position == end) {
            break;
        }
        segment += is_next;
        if (position == 0 || is_next) {
            const uint64_t *weights =
                row->change && position >= row->change ? row->changed : row->weights;

            for (uint32_t i = 0; i < row->source_count; i++) {
                bool is_out = row->limits[i] && row->end != STK_MIX_REPEAT &&
                              walk->given[i] == row->limits[i] / row->unit * row->unit;
                live[i] = is_out ? 0 : weights[i];
                walk->first[i] = walk->given[i];
            }
            walk->weights = live;
            walk->begin = position;
        }
        if (position == border) {
            border = stk_mix_change_position(mix, position + 1);
        }
        stk_mix_draw_at(mix, position, &draw);
        all_new &= take(walk, row, &draw);
    }
    T_TRUE(row->name, all_new);
    T_TRUE(row->name, all_complete);
    T_TRUE(row->name, all_shared);
}

/* Ends: under stop a source has delivered all, under renormalise all sources have; none delivers
 * more. */
static void check_end(const struct stk_mix *mix, const struct mix_row *row, const struct walk *walk)
{
    uint32_t out = 0, limited = 0;

    for (uint32_t i = 0; i < row->source_count; i++) {
        uint64_t limit = row->limits[i] / row->unit * row->unit;

        limited += limit > 0;
        out += limit > 0 && walk->given[i] == limit;
        T_TRUE(row->name, row->end == STK_MIX_REPEAT || !limit || walk->given[i] <= limit);
    }
    if (row->end == STK_MIX_REPEAT) {
        T_EQ(row->name, mix->end, STK_MIX_POSITIONS_MAX / row->unit * row->unit);
    } else {
        T_TRUE(row->name, mix->end < WALK);
        T_TRUE(row->name, row->end == STK_MIX_STOP ? out > 0 : out == limited);
    }
}

static void check_bulk(const struct stk_mix *mix, const struct mix_row *row)
{
    static struct stk_mix_draw draws[5000];
    uint64_t end = stk_min(mix->end, walk_end());
    bool same = true;

    for (uint64_t turn = 0; turn < 12; turn++) {
        uint64_t first = stk_random_key(seed, turn) % end;
        uint64_t count = stk_min(stk_random_key(seed + 1, turn) % STK_COUNT(draws), end - first);

        stk_mix_draw_range(mix, first, count, draws);
        for (uint64_t i = 0; i < count; i++) {
            struct stk_mix_draw draw;

            stk_mix_draw_at(mix, first + i, &draw);
            same &= memcmp(&draw.epoch, &draws[i].epoch, 16) == 0 && draw.source == draws[i].source;
        }
    }
    T_TRUE(row->name, same);
}

/* A reader returns what the draw and the source's own order define, read in any pieces. */
static void check_reader(const struct stk_mix *mix, const struct mix_row *row)
{
    static struct stk_mix_item items[5000];
    uint64_t end = stk_min(mix->end, walk_end()), first = 0;
    struct stk_order orders[SOURCES];
    struct stk_mix_reader reader;
    bool same = true;

    for (uint32_t i = 0; i < row->source_count; i++) {
        struct stk_order_options options = {.sample_count = row->samples[i],
                                            .block_samples = 7,
                                            .window_blocks = 5,
                                            .group_count = 1,
                                            .shuffle =
                                                i % 2 ? STOKER_SHUFFLE_FULL : STOKER_SHUFFLE_BLOCK,
                                            .seed = seed + i};
        T_EQ(row->name, stk_order_init(&orders[i], &options, NULL), 0);
    }
    T_EQ(row->name, stk_mix_reader_init(&reader, mix, orders, NULL), 0);
    for (uint64_t turn = 0; turn < 24 && end > 0; turn++) {
        /* Some pieces continue where the last one ended, some do not; some are short. */
        uint64_t longest = turn % 3 ? STK_COUNT(items) : 40;
        uint64_t count = stk_random_key(seed + 2, turn) % longest;

        first = turn % 2 && first < end ? first : stk_random_key(seed + 3, turn) % end;
        count = stk_min(count, end - first);
        stk_mix_read(&reader, first, count, items);
        for (uint64_t i = 0; i < count; i++) {
            struct stk_order_epoch epoch;
            struct stk_mix_draw draw;

            stk_mix_draw_at(mix, first + i, &draw);
            stk_order_epoch_begin(&epoch, &orders[draw.source], draw.epoch);
            same &= items[i].draw.source == draw.source && items[i].draw.epoch == draw.epoch &&
                    items[i].draw.position == draw.position &&
                    items[i].sample == stk_order_sample(&epoch, draw.position);
        }
        first += count;
    }
    T_TRUE(row->name, same);
    stk_mix_reader_deinit(&reader);
}

/* Each draw is found at its position, also distant ones; a sample that a source does not deliver is
 * not found. */
static void check_find(const struct stk_mix *mix, const struct mix_row *row)
{
    uint64_t end = stk_min(mix->end, walk_end()), at;
    bool found = true;

    for (uint64_t i = 0; i < end + 100; i++) {
        uint64_t position = i < end ? i : stk_random_key(seed + 4, i) % mix->end;
        struct stk_mix_draw draw;

        stk_mix_draw_at(mix, position, &draw);
        found &= stk_mix_find(mix, draw.source,
                              draw.epoch * row->samples[draw.source] + draw.position, &at) &&
                 at == position;
    }
    T_TRUE(row->name, found);
    for (uint32_t i = 0; mix->end < STK_MIX_POSITIONS_MAX && i < row->source_count; i++) {
        T_TRUE("no more are given", !stk_mix_find(mix, i, stk_mix_delivered(mix, i), &at));
    }
}

static void check_row(const struct mix_row *row)
{
    struct stk_mix_source sources[SOURCES];
    struct stk_mix_change change;
    struct stk_mix_options options;
    struct stoker_error error = {0};
    struct walk walk = {0};
    struct stk_mix mix;

    options_of(row, sources, &change, &options);
    if (!T_EQ(row->name, stk_mix_init(&mix, &options, &error), 0)) {
        printf("%s: %s: %s\n", row->name, error.what, error.where);
        return;
    }
    for (int i = 0; i < SOURCES; i++) {
        walk.seen[i] = stk_alloc(SEEN, 1);
    }
    walk_through(&mix, row, &walk);
    check_end(&mix, row, &walk);
    check_bulk(&mix, row);
    check_reader(&mix, row);
    check_find(&mix, row);
    for (int i = 0; i < SOURCES; i++) {
        stk_free(walk.seen[i]);
    }
    stk_mix_deinit(&mix);
}

static uint64_t roll(uint64_t *state, uint64_t below)
{
    return stk_random_key(seed, ++*state) % below;
}

static void test_random(void)
{
    uint64_t state = (seed << 20) + groups + (epoch_units << 8);

    for (int turn = 0; turn < T_HISTORIES(groups == 1 ? 60 : 20); turn++) {
        char name[32];
        struct mix_row row = {.name = name};

        snprintf(name, sizeof name, "random %d", turn);
        row.source_count = 1 + (uint32_t)roll(&state, SOURCES);
        row.end = (uint32_t)roll(&state, 3);
        row.unit = roll(&state, 2) ? 1 : 1 + roll(&state, 20);
        for (uint32_t i = 0; i < row.source_count; i++) {
            row.weights[i] = 1 + roll(&state, roll(&state, 2) ? 10 : 1000);
            row.changed[i] = 1 + roll(&state, 100);
            row.samples[i] = 1 + roll(&state, 3000);
            row.limits[i] = row.end ? row.unit + roll(&state, groups == 1 ? 5000 : 2000) : 0;
        }
        row.change = roll(&state, 2) ? row.unit * (1 + roll(&state, 2000)) : 0;
        check_row(&row);
    }
}

/* A run is at `given`; weights are changed at the border, or later: no earlier draw changes. */
static void test_change_keeps(void)
{
    static const uint64_t weights[2][3] = {{500009, 300007, 199999}, {1, 2, 3}};
    struct stk_mix_source sources[3] = {{1000, 0}, {2000, 0}, {3000, 0}};
    struct stk_mix_options options = {
        .seed = seed, .sources = sources, .weights = weights[0], .source_count = 3};
    struct stk_mix before;

    T_EQ("init", stk_mix_init(&before, &options, NULL), 0);
    for (uint64_t given = 1; given < 6000; given += 617) {
        uint64_t border = stk_mix_change_position(&before, given);

        T_TRUE("not before what was given", border >= given);
        for (uint64_t late = 0; late < 2000; late += 777) {
            struct stk_mix_change change = {border + late, weights[1]};
            struct stk_mix after;
            bool unchanged = true;

            options.changes = &change;
            options.change_count = 1;
            T_EQ("changed", stk_mix_init(&after, &options, NULL), 0);
            for (uint64_t i = 0; i < border; i++) {
                struct stk_mix_draw old, new;

                stk_mix_draw_at(&before, i, &old);
                stk_mix_draw_at(&after, i, &new);
                unchanged &= old.source == new.source && old.epoch == new.epoch &&
                             old.position == new.position;
            }
            T_TRUE("retained", unchanged);
            stk_mix_deinit(&after);
        }
    }
    stk_mix_deinit(&before);
}

/* Also at large positions: in a frame each source has its counts, and its position is that of the
 * formula. */
static void test_large_positions(void)
{
    static const uint64_t weights[3] = {500009, 300007, 199999};
    struct stk_mix_source sources[3] = {{1000000007, 0}, {3, 0}, {UINT64_C(1) << 50, 0}};
    struct stk_mix_options options = {
        .seed = seed, .sources = sources, .weights = weights, .source_count = 3};
    static const uint64_t starts[] = {0, 1000000000, UINT64_C(1) << 40,
                                      STK_MIX_POSITIONS_MAX - 5000};
    struct stk_mix mix;

    T_EQ("init", stk_mix_init(&mix, &options, NULL), 0);
    T_TRUE("uneven", !mix.segments[0].is_even);
    for (size_t k = 0; k < STK_COUNT(starts); k++) {
        uint64_t first = starts[k] ? stk_mix_change_position(&mix, starts[k]) : 0;
        uint64_t end = stk_mix_change_position(&mix, first + 1), sum = 0;
        uint64_t seen[3] = {0};
        bool inside = true;

        for (uint64_t i = first; i < end; i++) {
            struct stk_mix_draw draw;
            wide low = 0, high = 0;
            uint64_t index;

            stk_mix_draw_at(&mix, i, &draw);
            sum = 0;
            for (uint32_t s = 0; s <= draw.source; s++) {
                low = (wide)first * (wide)sum / 1000015;
                sum += weights[s];
            }
            high = (wide)end * (wide)sum / 1000015 -
                   (wide)end * (wide)(sum - weights[draw.source]) / 1000015;
            low = (wide)first * (wide)sum / 1000015 - low;
            index = draw.epoch * sources[draw.source].sample_count + draw.position;
            inside &= index >= (uint64_t)low && index < (uint64_t)high;
            seen[draw.source]++;
        }
        T_TRUE("inside its stretch", inside);
        T_EQ("the frame is full", seen[0] + seen[1] + seen[2], end - first);
    }
    stk_mix_deinit(&mix);
}

static bool is_fair(const char *name, double chi, double freedom)
{
    double above = chi - freedom - 2 * UNLIKELY;
    bool fair = above <= 0 || above * above < 4 * freedom * UNLIKELY;

    if (!fair) {
        printf("%s: chi-square %.1f with %.0f degrees of freedom\n", name, chi, freedom);
    }
    return fair;
}

/* Whose a slot is does not hang on the slot, nor on the slot before, nor on its rank. In a frame
 * without replacement the counts vary less than in fair draws, so the bound is on one side. */
static void test_fairness(void)
{
    enum { SLOTS = 1024, FRAMES = 2000 };
    static const uint64_t weights[4] = {1, 1, 1, 1};
    static uint32_t slots[SLOTS][4], pairs[4][4], ranks[8][8][4];
    struct stk_mix_source sources[4] = {{1000, 0}, {1000, 0}, {1000, 0}, {1000, 0}};
    struct stk_mix_options options = {
        .seed = seed, .sources = sources, .weights = weights, .source_count = 4};
    double chi = 0, want = FRAMES / 4.0;
    struct stk_mix mix;
    uint32_t last = 0;

    T_EQ("init", stk_mix_init(&mix, &options, NULL), 0);
    T_EQ("a frame", mix.segments[0].frame.number, SLOTS);
    for (uint32_t i = 0; i < SLOTS * FRAMES; i++) {
        struct stk_mix_draw draw;

        stk_mix_draw_at(&mix, i, &draw);
        slots[i % SLOTS][draw.source]++;
        pairs[last][draw.source] += i % SLOTS > 0;
        ranks[i % 8][i / SLOTS % 8][draw.source]++;
        last = draw.source;
    }
    for (int i = 0; i < SLOTS * 4; i++) {
        double off = slots[i / 4][i % 4] - want;
        chi += off * off / want;
    }
    T_TRUE("slots", is_fair("slots", chi, SLOTS * 3));
    T_TRUE("slots are not dealt alike either", chi > SLOTS * 3 * 0.8);
    chi = 0;
    for (int i = 0; i < 16; i++) {
        /* 255 of the 1023 other slots are of the same source, 256 of each other source. */
        double expected = (double)FRAMES * (SLOTS - 1) / 4 * (i / 4 == i % 4 ? 255 : 256) / 1023;
        double off = pairs[i / 4][i % 4] - expected;
        chi += off * off / expected;
    }
    T_TRUE("neighbours", is_fair("neighbours", chi, 9));
    chi = 0;
    for (int i = 0; i < 256; i++) {
        double expected = (double)FRAMES / 8 * SLOTS / 8 / 4;
        double off = ranks[i / 32][i / 4 % 8][i % 4] - expected;
        chi += off * off / expected;
    }
    T_TRUE("ranks", is_fair("ranks", chi, 192));
    stk_mix_deinit(&mix);
}

/* clang-format off: one row, one line. */
static const struct refused_row {
    const char *name;
    uint32_t source_count, end;
    uint64_t unit, weights[2], samples, limit, change;
    int want;
    const char *what;
} refused_rows[] = {
    {"good", 2, 1, 1, {1, 2}, 10, 10, 5, 0, ""},
    {"no source", 0, 0, 1, {1, 2}, 10, 0, 0, STOKER_ERROR_ARGUMENT, "sources"},
    {"many sources", 257, 0, 1, {1, 2}, 10, 0, 0, STOKER_ERROR_ARGUMENT, "sources"},
    {"no such end", 2, 3, 1, {1, 2}, 10, 0, 0, STOKER_ERROR_ARGUMENT, "setting"},
    {"empty source", 2, 0, 1, {1, 2}, 0, 0, 0, STOKER_ERROR_ARGUMENT, "samples"},
    {"less than a unit", 2, 1, 11, {1, 2}, 10, 10, 0, STOKER_ERROR_ARGUMENT, "samples"},
    {"no weight", 2, 0, 1, {0, 0}, 10, 0, 0, STOKER_ERROR_ARGUMENT, "all weights"},
    {"large weights", 2, 0, 1, {STK_MIX_WEIGHTS_MAX, 1}, 10, 0, 0, STOKER_ERROR_ARGUMENT, "large"},
    {"too rare", 2, 0, 1, {1, UINT64_C(1) << 33}, 10, 0, 0, STOKER_ERROR_ARGUMENT, "small"},
    {"change inside a unit", 2, 0, 4, {1, 2}, 10, 0, 6, STOKER_ERROR_ARGUMENT, "out of place"},
};
/* clang-format on */

static void test_refused(void)
{
    static const uint64_t changed[2] = {1, 1};

    T_EACH(refused_row, row, refused_rows)
    {
        struct stk_mix_source sources[2] = {{row->samples, row->limit}, {row->samples, row->limit}};
        struct stk_mix_change change = {row->change, changed};
        struct stk_mix_options options = {
            .sources = sources,
            .weights = row->weights,
            .changes = &change,
            .source_count = row->source_count,
            .change_count = row->change > 0,
            .end = row->end,
            .unit_samples = row->unit,
        };
        struct stoker_error error = {0};
        struct stk_mix mix;

        T_EQ(row->name, stk_mix_init(&mix, &options, &error), row->want);
        if (row->want < 0) {
            T_ERROR(row->name, &error);
            T_HAS(row->name, error.what, row->what);
        }
        stk_mix_deinit(&mix);
    }
}

static void test_memory(void)
{
    static const uint64_t weights[3] = {5, 3, 2};
    struct stk_mix_source sources[3] = {{40, 40}, {50, 50}, {60, 60}};
    struct stk_mix_options options = {
        .sources = sources, .weights = weights, .source_count = 3, .end = STK_MIX_RENORMALISE};
    int status = -1;

    for (uint64_t n = 1; status < 0 && n < 20; n++) {
        struct stoker_error error = {0};
        struct stk_mix mix;

        stk_mem_fail_nth(n);
        status = stk_mix_init(&mix, &options, &error);
        stk_mem_fail_nth(0);
        if (status < 0) {
            T_EQ("no memory", status, -12);
            T_ERROR("no memory", &error);
        }
        stk_mix_deinit(&mix);
    }
    T_EQ("enough memory", status, 0);
}

static void test_reader_failures(void)
{
    static const uint64_t weight = 1;
    struct stk_mix_source source = {40, 0};
    struct stk_mix_options options = {.sources = &source, .weights = &weight, .source_count = 1};
    struct stk_order_options order_options = {.sample_count = 40, .shuffle = STOKER_SHUFFLE_FULL};
    struct stk_mix_reader reader;
    struct stk_order order;
    struct stk_mix mix;

    T_EQ("mix", stk_mix_init(&mix, &options, NULL), 0);
    T_EQ("order", stk_order_init(&order, &order_options, NULL), 0);
    for (uint64_t n = 1; n <= 3; n++) {
        struct stoker_error error = {0};

        order.options.sample_count = n == 3 ? 41 : 40;
        stk_mem_fail_nth(n % 3);
        T_EQ("failure", stk_mix_reader_init(&reader, &mix, &order, &error),
             n == 3 ? STOKER_ERROR_ARGUMENT : -12);
        T_ERROR("failure", &error);
        stk_mix_reader_deinit(&reader);
    }
    stk_mix_deinit(&mix);
}

int main(int count, char **arguments)
{
    static const uint32_t group_counts[] = {1, 3, 16};

    if (count > 1) {
        seed = strtoull(arguments[1], NULL, 0);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < STK_COUNT(group_counts); i++) {
        groups = group_counts[i];
        T_EACH(mix_row, row, mix_rows)
        {
            check_row(row);
        }
        test_random();
    }
    groups = 1;
    for (epoch_units = 15; epoch_units < 3000; epoch_units += 2548) {
        T_EACH(mix_row, row, mix_rows)
        {
            check_row(row);
        }
    }
    test_random();
    in_sequence = true;
    test_random();
    epoch_units = 0;
    test_random();
    test_change_keeps();
    test_large_positions();
    test_fairness();
    test_refused();
    test_memory();
    test_reader_failures();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
