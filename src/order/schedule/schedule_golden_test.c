/* Goal: versions 1 and 2 of mixing, and sampling, do not change: a saved state means the same
 * samples in all later releases.
 * Method: values written down once. Do not correct a row that fails: a mix that differs needs
 * STK_MIX_VERSION 3 beside the others, and rows of its own. */
#include "base/crypto/digest.h"
#include "order/sampling/sampling.h"
#include "order/schedule/schedule.h"
#include "test/t.h"

#define WALK 5000u

/* clang-format off: one row, two lines. */
static const struct row {
    const char *name;
    uint32_t end;
    uint64_t unit, weights[3], limits[3], change, seed;
    const char *want_digest; /* first bytes of SHA-256 over 5000 draws, or all, little endian */
    uint64_t want_end;
    struct stk_mix_draw want[3]; /* at the positions 0, 1000, 4321 (or the last) */
} rows[] = {
    {"even",
     0,
     1,
     {5, 3, 2},
     {0},
     0,
     0,
     "6f2d9276d055ddf5",
     STK_MIX_POSITIONS_MAX,
     {{1, 0, 140}, {1, 0, 29}, {1, 1, 233}}},
    {"uneven",
     0,
     1,
     {500009, 300007, 199999},
     {0},
     0,
     UINT64_MAX,
     "bbf40ec7c362e7f7",
     STK_MIX_POSITIONS_MAX,
     {{1, 0, 18}, {0, 0, 436}, {0, 0, 2505}}},
    {"batches",
     0,
     64,
     {5, 3, 2},
     {0},
     0,
     1,
     "609f0dcc9acff2b0",
     STK_MIX_POSITIONS_MAX,
     {{2, 0, 64}, {0, 0, 360}, {2, 1, 184}}},
    {"change",
     0,
     1,
     {5, 3, 2},
     {0},
     2345,
     1,
     "a5a944140118a630",
     STK_MIX_POSITIONS_MAX,
     {{0, 0, 207}, {0, 0, 379}, {2, 2, 590}}},
    {"stop",
     STK_MIX_STOP,
     1,
     {5, 3, 2},
     {4000, 1003, 0},
     0,
     1,
     "c103626f283443f5",
     3343,
     {{0, 0, 207}, {0, 0, 379}, {1, 0, 944}}},
    {"renormalise",
     STK_MIX_RENORMALISE,
     1,
     {5, 3, 2},
     {1000, 2006, 1234},
     0,
     1,
     "499bd83ff30672ef",
     4240,
     {{0, 0, 207}, {0, 0, 379}, {1, 1, 853}}},
};
/* clang-format on */

static void add(struct stk_sha256 *sha, uint64_t word)
{
    uint8_t bytes[8];

    for (int k = 0; k < 8; k++) {
        bytes[k] = (uint8_t)(word >> 8 * k);
    }
    stk_sha256_add(sha, bytes, sizeof bytes);
}

static void digest_of(const struct stk_mix *mix, char hex[17])
{
    struct stk_sha256 sha;
    uint8_t digest[32];

    stk_sha256_init(&sha);
    for (uint64_t i = 0; i < stk_min(WALK, mix->end); i++) {
        struct stk_mix_draw draw;

        stk_mix_draw_at(mix, i, &draw);
        add(&sha, draw.source);
        add(&sha, draw.epoch);
        add(&sha, draw.position);
    }
    stk_sha256_done(&sha, digest);
    for (int i = 0; i < 8; i++) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
}

/* At the positions 0, 1, 2, 1000 and 10^15; shards at 0, 1, 2, 100 and 299 of epoch 7. */
static const uint64_t want_alias[5] = {184, 43, 126, 142, 20},
                      want_classes[5] = {90, 194, 3, 7, 256},
                      want_shards[5] = {100, 191, 190, 239, 79};

static void test_sampling(void)
{
    static const uint64_t positions[5] = {0, 1, 2, 1000, 1000000000000000};
    static const uint64_t counts[3] = {100, 1, 199}, places[5] = {0, 1, 2, 100, 299};
    uint32_t weights[300], labels[300];
    struct stk_alias_table alias;
    struct stk_class_balance classes;
    struct stk_two_level shards;

    for (uint32_t i = 0; i < 300; i++) {
        weights[i] = i * i % 257;
        labels[i] = i * i % 7;
    }
    T_EQ("alias", stk_alias_table_init(&alias, weights, 300, NULL), 0);
    T_EQ("classes", stk_class_balance_init(&classes, labels, 300, 7, NULL), 0);
    T_EQ("shards", stk_two_level_init(&shards, counts, 3, 42, NULL), 0);
    stk_two_level_begin(&shards, 7);
    for (int i = 0; i < 5; i++) {
        T_EQ("alias", stk_alias_table_draw(&alias, stk_draw_key(42, 1), positions[i]),
             want_alias[i]);
        T_EQ("classes",
             stk_class_balance_draw(&classes, stk_draw_key(42, STK_DRAW_USE_CLASSES), positions[i]),
             want_classes[i]);
        T_EQ("shards", stk_two_level_sample(&shards, places[i]), want_shards[i]);
    }
    stk_alias_table_deinit(&alias);
    stk_class_balance_deinit(&classes);
    stk_two_level_deinit(&shards);
}

/* Ids of complete mixes, as loaders have them: epochs 0 to 2, every source by its own order. */
/* clang-format off: one row, one line. */
static const struct schedule_row {
    const char *name;
    uint32_t version, shuffle, end;
    uint64_t unit, change;
    uint32_t groups;
    const char *want_digest;
    uint64_t want_samples, want_identity;
} schedule_rows[] = {
    {"repeat", 1, STOKER_SHUFFLE_BLOCK, STOKER_MIX_REPEAT, 1, 0, 1, "be0a00f60e3c916b", 1000,
     UINT64_C(15986868261085115971)},
    {"single, changed", 1, STOKER_SHUFFLE_BLOCK, STOKER_MIX_REPEAT, 24, 480, 1, "f9621c005b3e4eca",
     1008, UINT64_C(2831034909350091788)},
    {"stop", 1, STOKER_SHUFFLE_BLOCK, STOKER_MIX_STOP, 1, 0, 1, "9c40643fe06c5a5e", 400,
     UINT64_C(9671591516488992240)},
    {"renormalise, changed", 1, STOKER_SHUFFLE_BLOCK, STOKER_MIX_RENORMALISE, 1, 333, 1,
     "05ecd42baf30af0e", 980, UINT64_C(6619226010871695636)},
    {"repeat, groups", 1, STOKER_SHUFFLE_BLOCK, STOKER_MIX_REPEAT, 1, 0, 3, "15165636bcf581ac",
     1002, UINT64_C(13519394285570119329)},
    {"single, changed, groups", 1, STOKER_SHUFFLE_BLOCK, STOKER_MIX_REPEAT, 24, 480, 3,
     "1ef163339ef74987", 1008, UINT64_C(2831034909350091788)},
    {"stop, groups", 1, STOKER_SHUFFLE_BLOCK, STOKER_MIX_STOP, 1, 0, 7, "4fe5be2f2f5ca381", 400,
     UINT64_C(9671591516488992240)},
    {"repeat", 2, STOKER_SHUFFLE_BLOCK, STOKER_MIX_REPEAT, 1, 0, 1, "95a54aafb581e9f6", 1000,
     UINT64_C(15986868261085115971)},
    {"single, changed", 2, STOKER_SHUFFLE_BLOCK, STOKER_MIX_REPEAT, 24, 480, 1, "08f5cb64ac26d632",
     1008, UINT64_C(2831034909350091788)},
    {"stop", 2, STOKER_SHUFFLE_BLOCK, STOKER_MIX_STOP, 1, 0, 1, "3827ad4b81f20e54", 400,
     UINT64_C(9671591516488992240)},
    {"renormalise, changed", 2, STOKER_SHUFFLE_BLOCK, STOKER_MIX_RENORMALISE, 1, 333, 1,
     "4cdaecf4d1f78ab1", 980, UINT64_C(6619226010871695636)},
    {"repeat, groups", 2, STOKER_SHUFFLE_BLOCK, STOKER_MIX_REPEAT, 1, 0, 3, "2bed5bfffbef396d",
     1002, UINT64_C(13519394285570119329)},
    {"single, changed, groups", 2, STOKER_SHUFFLE_BLOCK, STOKER_MIX_REPEAT, 24, 480, 3,
     "fc846cac06228837", 1008, UINT64_C(2831034909350091788)},
    {"stop, groups", 2, STOKER_SHUFFLE_BLOCK, STOKER_MIX_STOP, 1, 0, 7, "effe7adab6f5ef29", 400,
     UINT64_C(9671591516488992240)},
    {"sequence", 2, STOKER_SHUFFLE_NONE, STOKER_MIX_REPEAT, 1, 333, 1, "074281df32f4f630", 1000,
     UINT64_C(7924117566641565370)},
    {"sequence, stop", 2, STOKER_SHUFFLE_NONE, STOKER_MIX_STOP, 1, 0, 1, "f4a3da9ed8718ed2", 400,
     UINT64_C(9671591516488992240)},
    {"full", 2, STOKER_SHUFFLE_FULL, STOKER_MIX_REPEAT, 1, 0, 1, "86cb0fbefce702ae", 1000,
     UINT64_C(15986868261085115971)},
};
/* clang-format on */

static void test_schedules(void)
{
    static const uint64_t ends[3] = {500, 620, 1000}, weights[3] = {5, 3, 2},
                          changed[3] = {1, 0, 7};
    struct stk_order_options order = {.sample_count = 1000,
                                      .block_samples = 10,
                                      .window_blocks = 4,
                                      .shuffle = STOKER_SHUFFLE_BLOCK,
                                      .seed = 42};

    T_EACH(schedule_row, row, schedule_rows)
    {
        struct stoker_mix_change change = {row->change, changed};
        struct stoker_mix_options mix = {.struct_size = sizeof mix,
                                         .ends = ends,
                                         .weights = weights,
                                         .changes = &change,
                                         .change_count = row->change > 0,
                                         .source_count = 3,
                                         .end = row->end,
                                         .unit_samples = row->unit};
        struct stk_schedule_request request = {.mix = &mix};
        struct stk_schedule_reader reader;
        struct stk_schedule schedule;
        struct stk_sha256 sha;
        uint8_t digest[32];
        char hex[17];

        order.group_count = row->groups;
        order.version = row->version;
        order.shuffle = row->shuffle;
        T_EQ(row->name, stk_schedule_open(&schedule, &order, &request, NULL), 0);
        T_EQ(row->name, stk_schedule_reader_init(&reader, &schedule, NULL), 0);
        stk_sha256_init(&sha);
        for (uint64_t i = 0; i < 3 * stk_schedule_epoch_samples(&schedule); i++) {
            uint64_t sample;

            stk_schedule_read(&reader, i / stk_schedule_epoch_samples(&schedule),
                              i % stk_schedule_epoch_samples(&schedule), 1, &sample);
            add(&sha, sample);
        }
        stk_sha256_done(&sha, digest);
        for (int i = 0; i < 8; i++) {
            snprintf(hex + 2 * i, 3, "%02x", digest[i]);
        }
        T_STR(row->name, hex, row->want_digest);
        T_EQ(row->name, stk_schedule_epoch_samples(&schedule), row->want_samples);
        T_EQ(row->name, schedule.identity, (long long)row->want_identity);
        stk_schedule_reader_deinit(&reader);
        stk_schedule_deinit(&schedule);
    }
}

int main(void)
{
    static const uint64_t samples[3] = {4000, 1003, 617}, changed[3] = {1, 0, 7};

    T_EQ("the newest version of these rows", STK_MIX_VERSION, 2);
    T_EACH(row, row, rows)
    {
        struct stk_mix_source sources[3];
        struct stk_mix_change change = {row->change, changed};
        struct stk_mix_options options = {.seed = row->seed,
                                          .sources = sources,
                                          .weights = row->weights,
                                          .changes = &change,
                                          .source_count = 3,
                                          .change_count = row->change > 0,
                                          .end = row->end,
                                          .unit_samples = row->unit,
                                          .version = 1};
        struct stk_mix mix;
        char hex[17];

        for (int i = 0; i < 3; i++) {
            sources[i] = (struct stk_mix_source){samples[i], row->limits[i]};
        }
        T_EQ(row->name, stk_mix_init(&mix, &options, NULL), 0);
        T_EQ(row->name, mix.end, row->want_end);
        for (int i = 0; i < 3; i++) {
            const uint64_t at[] = {0, 1000, stk_min(4321, mix.end - 1)};
            struct stk_mix_draw draw;

            stk_mix_draw_at(&mix, at[i], &draw);
            T_EQ(row->name, draw.source, row->want[i].source);
            T_EQ(row->name, draw.epoch, row->want[i].epoch);
            T_EQ(row->name, draw.position, row->want[i].position);
        }
        digest_of(&mix, hex);
        T_STR(row->name, hex, row->want_digest);
        stk_mix_deinit(&mix);
    }
    test_sampling();
    test_schedules();
    return t_finish();
}
