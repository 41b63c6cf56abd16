/* Goal: sampled data comes as often as its settings say: each sample of a subset once a pass, for
 * any world sizes and resumes; copies as configured; draws by weight and class; a curriculum's
 * stages at their positions. Reads in any pieces agree, and a damaged table is an error, never a
 * wrong sample.
 * Method: small runs are enumerated and counted; random histories change world and batch, and
 * resume; chi-square of draws. Takes a seed as its argument. */
#include "base/mem.h"
#include "base/random.h"
#include "order/schedule/schedule.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES 3000u
#define READS_MAX 40000u
#define HISTORIES 300

static uint64_t seed = 1;
static uint64_t samples[READS_MAX];
static const uint64_t shard_ends[] = {400, 400, 1000, 1007, 2500, SAMPLES};

struct rig {
    struct stk_subset subset;
    struct stk_alias_table alias;
    struct stk_class_balance classes;
    uint32_t weights[SAMPLES], labels[SAMPLES]; /* of the subset's */
    struct stk_curriculum_stage stages[4];
    struct stk_curriculum_options stages_options;
    struct stk_schedule_options options;
    struct stk_schedule schedule;
    struct stk_schedule_reader reader;
};

/* A subset of about of_1000 in a thousand samples; 1000: there is none. */
static void rig_prepare(struct rig *rig, uint64_t of_1000, uint32_t shuffle)
{
    memset(rig, 0, sizeof *rig);
    T_EQ("subset", stk_subset_init(&rig->subset, SAMPLES, NULL), 0);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        if (stk_random_key(seed, i) % 1000 < of_1000) {
            stk_subset_add(&rig->subset, i);
        }
    }
    stk_subset_freeze(&rig->subset);
    for (uint64_t i = 0; i < rig->subset.count; i++) {
        rig->weights[i] = (uint32_t)(i % 5);
        rig->labels[i] = (uint32_t)(i % 7 % 3);
    }
    T_EQ("alias", stk_alias_table_init(&rig->alias, rig->weights, rig->subset.count, NULL), 0);
    T_EQ("classes", stk_class_balance_init(&rig->classes, rig->labels, rig->subset.count, 3, NULL),
         0);
    rig->stages[0].rule.subset = of_1000 < 1000 ? &rig->subset : NULL;
    rig->stages[0].rule.subset_identity = of_1000 < 1000 ? 7 : 0;
    rig->stages_options = (struct stk_curriculum_options){.stages = rig->stages,
                                                          .stage_count = 1,
                                                          .ends = shard_ends,
                                                          .shard_count = STK_COUNT(shard_ends)};
    rig->options = (struct stk_schedule_options){.order = {.sample_count = SAMPLES,
                                                           .block_samples = 10,
                                                           .window_blocks = 4,
                                                           .group_count = 2,
                                                           .shuffle = shuffle,
                                                           .seed = seed},
                                                 .stages = &rig->stages_options};
}

static void rig_open(struct rig *rig)
{
    struct stoker_error error = {0};

    T_EQ("init", stk_schedule_init(&rig->schedule, &rig->options, &error), 0);
    T_EQ("reader", stk_schedule_reader_init(&rig->reader, &rig->schedule, &error), 0);
}

static void rig_close(struct rig *rig)
{
    T_EQ("no failure", stk_schedule_reader_error(&rig->reader, NULL), 0);
    stk_schedule_reader_deinit(&rig->reader);
    stk_schedule_deinit(&rig->schedule);
    stk_subset_deinit(&rig->subset);
    stk_alias_table_deinit(&rig->alias);
    stk_class_balance_deinit(&rig->classes);
}

/* One epoch, at once and in random pieces from the end to the start: the same. */
static uint64_t read_epoch(const char *name, struct rig *rig, uint64_t epoch)
{
    uint64_t count = stk_schedule_epoch_samples(&rig->schedule), end = count, part[64];
    bool same = true;

    T_TRUE(name, count <= READS_MAX);
    stk_schedule_read(&rig->reader, epoch, 0, count, samples);
    for (uint64_t turn = 0; end > 0; turn++) {
        uint64_t piece = 1 + stk_random_key(seed, turn) % stk_min(end, STK_COUNT(part));

        end -= piece;
        stk_schedule_read(&rig->reader, epoch, end, piece, part);
        same &= memcmp(part, samples + end, piece * sizeof *part) == 0;
    }
    T_TRUE(name, same);
    return count;
}

/* clang-format off: one row, one line. */
static const struct row {
    const char *name;
    uint64_t of_1000;
    uint32_t shuffle, times, apart;
} rows[] = {
    {"block", 300, STOKER_SHUFFLE_BLOCK, 1, 1},
    {"full", 300, STOKER_SHUFFLE_FULL, 1, 1},
    {"none", 300, STOKER_SHUFFLE_NONE, 1, 1},
    {"two-level", 300, STOKER_SHUFFLE_TWO_LEVEL, 1, 1},
    {"two-level, all", 1000, STOKER_SHUFFLE_TWO_LEVEL, 1, 1},
    {"rare", 40, STOKER_SHUFFLE_FULL, 1, 1},
    {"thrice in a row", 300, STOKER_SHUFFLE_BLOCK, 3, 1},
    {"twice, 16 apart", 300, STOKER_SHUFFLE_FULL, 2, 16},
    {"4 times in storage order", 500, STOKER_SHUFFLE_NONE, 4, 5},
    {"two-level, twice", 900, STOKER_SHUFFLE_TWO_LEVEL, 2, 3},
};
/* clang-format on */

static void test_rows(void)
{
    T_EACH(row, row, rows)
    {
        static struct rig rig;
        static uint64_t before[READS_MAX];
        uint64_t differ = 0, count = 0;
        bool is_even = true;

        rig_prepare(&rig, row->of_1000, row->shuffle);
        rig.stages_options.times = row->times;
        rig.stages_options.spacing = row->apart;
        rig_open(&rig);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            uint32_t seen[SAMPLES] = {0};

            count = read_epoch(row->name, &rig, epoch);
            T_EQ(row->name, count, (row->of_1000 < 1000 ? rig.subset.count : SAMPLES) * row->times);
            for (uint64_t i = 0; i < count; i++) {
                seen[samples[i]]++;
            }
            for (uint64_t i = 0; i < SAMPLES; i++) {
                bool is_in = row->of_1000 == 1000 || stk_subset_has(&rig.subset, i);

                is_even &= seen[i] == (is_in ? row->times : 0);
            }
            for (uint64_t i = 0; i + row->apart < count / 2; i++) {
                uint64_t turn = (uint64_t)row->times * row->apart;

                is_even &= row->times == 1 || i % turn >= turn - row->apart ||
                           samples[i] == samples[i + row->apart];
            }
            differ += epoch > 0 && memcmp(before, samples, count * sizeof *before) != 0;
            memcpy(before, samples, count * sizeof *before);
        }
        T_TRUE(row->name, is_even);
        T_EQ(row->name, differ, row->shuffle == STOKER_SHUFFLE_NONE ? 0 : 2);
        for (uint64_t i = 0; row->shuffle == STOKER_SHUFFLE_NONE && i + 1 < count; i++) {
            is_even &= row->times > 1 || samples[i] < samples[i + 1];
        }
        T_TRUE("storage order", is_even);
        rig_close(&rig);
    }
}

/* A stage that chooses everything is the order of a run without stages. */
static void test_all(void)
{
    static struct rig rig;

    for (uint32_t shuffle = STOKER_SHUFFLE_BLOCK; shuffle <= STOKER_SHUFFLE_NONE; shuffle++) {
        struct stk_order order;
        bool same = true;

        rig_prepare(&rig, 1000, shuffle);
        rig_open(&rig);
        T_EQ("identity", rig.schedule.subset_identity | rig.schedule.draws_identity, 0);
        T_EQ("order", stk_order_init(&order, &rig.options.order, NULL), 0);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            struct stk_order_epoch keys;

            stk_order_epoch_begin(&keys, &order, epoch);
            read_epoch("all", &rig, epoch);
            for (uint64_t i = 0; i < SAMPLES; i++) {
                same &= samples[i] == stk_order_sample(&keys, i);
            }
        }
        T_TRUE("the order", same);
        rig_close(&rig);
    }
}

/* Shards in one piece each, another sequence of them each pass. */
static void test_shards(void)
{
    static struct rig rig;
    uint64_t first[2] = {0};

    rig_prepare(&rig, 600, STOKER_SHUFFLE_TWO_LEVEL);
    rig_open(&rig);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        uint64_t count = read_epoch("shards", &rig, epoch), turns = 0, last = UINT64_MAX;
        uint64_t rising = 0;

        for (uint64_t i = 0; i < count; i++) {
            uint64_t shard = 0;

            while (shard_ends[shard] <= samples[i]) {
                shard++;
            }
            turns += shard != last;
            rising += i > 0 && samples[i] > samples[i - 1];
            last = shard;
        }
        T_EQ("in one piece", turns, STK_COUNT(shard_ends) - 1); /* one is empty */
        T_TRUE("shuffled inside", rising > count / 3 && rising < count * 2 / 3);
        first[epoch] = samples[0];
    }
    T_TRUE("another sequence", first[0] != first[1]);
    rig_close(&rig);
}

/* ---- draws ---- */

static void test_weights(void)
{
    static struct rig rig;
    uint32_t seen[SAMPLES] = {0};
    double chi = 0, sum = 0, freedom = -1;
    uint64_t draws = 0;

    rig_prepare(&rig, 300, STOKER_SHUFFLE_BLOCK);
    rig.stages[0].rule.alias = &rig.alias;
    rig.stages[0].rule.draws_identity = 9;
    rig_open(&rig);
    T_TRUE("identity", rig.schedule.draws_identity != 0);
    for (uint64_t epoch = 0; epoch < 100; epoch++) {
        uint64_t count = read_epoch("weights", &rig, epoch);

        T_EQ("epoch", count, rig.subset.count);
        for (uint64_t i = 0; i < count; i++) {
            seen[samples[i]]++;
        }
        draws += count;
    }
    for (uint64_t i = 0; i < rig.subset.count; i++) {
        sum += rig.weights[i];
    }
    for (uint64_t i = 0; i < SAMPLES; i++) {
        bool is_in = stk_subset_has(&rig.subset, i);
        double weight = is_in ? rig.weights[stk_subset_rank(&rig.subset, i)] : 0;
        double want = (double)draws * weight / sum;

        T_TRUE("never", want > 0 || seen[i] == 0);
        chi += want > 0 ? (seen[i] - want) * (seen[i] - want) / want : 0;
        freedom += want > 0;
    }
    T_TRUE("weights", t_is_fair("weights", chi, freedom));
    rig_close(&rig);
}

static void test_replacement(void)
{
    static struct rig rig;
    uint32_t seen[SAMPLES] = {0};
    double chi = 0, want;
    uint64_t twice = 0, draws = 0;

    rig_prepare(&rig, 300, STOKER_SHUFFLE_BLOCK);
    rig.stages[0].rule.replacement = true;
    rig.stages[0].rule.draws_identity = 9;
    rig.stages_options.times = 2; /* copies of draws */
    rig_open(&rig);
    for (uint64_t epoch = 0; epoch < 50; epoch++) {
        uint64_t count = read_epoch("replacement", &rig, epoch);

        for (uint64_t i = 0; i < count; i += 2) {
            twice += samples[i] == samples[i + 1];
            seen[samples[i]]++;
            draws++;
        }
    }
    T_EQ("copies", twice, draws);
    want = (double)draws / (double)rig.subset.count;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        bool is_in = stk_subset_has(&rig.subset, i);

        T_TRUE("never", is_in || seen[i] == 0);
        chi += is_in ? (seen[i] - want) * (seen[i] - want) / want : 0;
    }
    T_TRUE("fair", t_is_fair("replacement", chi, (double)rig.subset.count - 1));
    rig_close(&rig);
}

/* Every three positions have one sample of each class, though classes have different sizes. */
static void test_balance(void)
{
    static struct rig rig;
    bool is_even = true;

    rig_prepare(&rig, 300, STOKER_SHUFFLE_BLOCK);
    rig.stages[0].rule.classes = &rig.classes;
    rig.stages_options.epoch_samples = 3000;
    rig_open(&rig);
    read_epoch("balance", &rig, 5);
    for (uint64_t i = 0; i < 3000; i += 3) {
        uint32_t met = 0;

        for (uint64_t j = i; j < i + 3; j++) {
            is_even &= stk_subset_has(&rig.subset, samples[j]);
            met |= 1u << rig.labels[stk_subset_rank(&rig.subset, samples[j])];
        }
        is_even &= met == 7;
    }
    T_TRUE("each class once", is_even);
    rig_close(&rig);
}

/* ---- stages ---- */

static void test_curriculum(void)
{
    static struct rig rig;
    uint32_t seen[SAMPLES] = {0};
    uint64_t count, others = 0;
    bool is_right = true;

    rig_prepare(&rig, 300, STOKER_SHUFFLE_FULL);
    count = rig.subset.count;
    rig.stages[1] =
        (struct stk_curriculum_stage){2 * count + 100, {.subset_identity = 3}}; /* all */
    rig.stages[2] = (struct stk_curriculum_stage){2 * count + 100 + SAMPLES, {.replacement = true}};
    rig.stages_options.stage_count = 3;
    rig_open(&rig);
    T_EQ("epoch", stk_schedule_epoch_samples(&rig.schedule), SAMPLES); /* the largest */
    read_epoch("curriculum", &rig, 0);
    for (uint64_t i = 0; i < 2 * count + 100 && i < SAMPLES; i++) {
        seen[samples[i]]++;
        is_right &= stk_subset_has(&rig.subset, samples[i]);
        others = stk_schedule_substitute(&rig.schedule, 0, i, samples[i], stk_random_key(seed, i));
        is_right &= stk_subset_has(&rig.subset, others);
    }
    T_TRUE("the first stage", is_right);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        is_right &= !stk_subset_has(&rig.subset, i) || seen[i] == 2 || seen[i] == 3;
        seen[i] = 0;
    }
    T_TRUE("two passes and a part", is_right);
    for (uint64_t i = 2 * count + 100; i < 2 * count + 100 + SAMPLES;
         i++) { /* over the epoch's end */
        uint64_t sample;

        stk_schedule_read(&rig.reader, i / SAMPLES, i % SAMPLES, 1, &sample);
        seen[sample]++;
    }
    for (uint64_t i = 0; i < SAMPLES; i++) {
        is_right &= seen[i] == 1;
    }
    T_TRUE("the second stage: all once", is_right);
    rig_close(&rig);
}

/* Two stages of the same samples have different sequences; the subset, the way of drawing and the
 * start are in the identities, each in its own. */
static void test_apart(void)
{
    enum { PLAIN, SUBSET, POSITION, SECOND, DRAWS, KINDS };
    static struct rig rig;
    struct {
        uint64_t subset, draws;
    } identities[KINDS];
    uint64_t alike = 0;

    rig_prepare(&rig, 300, STOKER_SHUFFLE_FULL);
    rig.stages[0].rule = (struct stk_sampling_rule){.subset_identity = 1};
    rig.stages[1] = (struct stk_curriculum_stage){SAMPLES, {.subset_identity = 1}};
    rig.stages_options.stage_count = 2;
    rig_open(&rig);
    read_epoch("stage 0", &rig, 0);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        uint64_t sample;

        stk_schedule_read(&rig.reader, 1, i, 1, &sample);
        alike += sample == samples[i];
    }
    T_TRUE("stages do not walk alike", alike < SAMPLES / 20);
    rig_close(&rig);
    for (int kind = PLAIN; kind < KINDS; kind++) {
        rig_prepare(&rig, 300, STOKER_SHUFFLE_FULL);
        rig.stages[0].rule.subset_identity = kind == SUBSET ? 8 : 7;
        rig.stages[1] = (struct stk_curriculum_stage){kind == POSITION ? 60 : 50,
                                                      {.subset_identity = kind == SECOND ? 6 : 5,
                                                       .replacement = kind == DRAWS,
                                                       .draws_identity = kind == DRAWS}};
        rig.stages_options.stage_count = 2;
        rig_open(&rig);
        identities[kind].subset = rig.schedule.subset_identity;
        identities[kind].draws = rig.schedule.draws_identity;
        T_TRUE("chosen", identities[kind].subset != 0);
        T_TRUE("drawn", (identities[kind].draws != 0) == (kind == DRAWS));
        for (int other = PLAIN; other < kind; other++) {
            bool is_one = kind == DRAWS && other == PLAIN;

            T_TRUE("another choice",
                   (identities[other].subset == identities[kind].subset) == is_one);
        }
        rig_close(&rig);
    }
}

/* The positions of a sample: as many as it was read, in rising order. */
static void test_find(void)
{
    static struct rig rig;
    bool is_right = true;

    rig_prepare(&rig, 300, STOKER_SHUFFLE_FULL);
    rig.stages_options.times = 2;
    rig.stages_options.spacing = 7;
    rig_open(&rig);
    for (uint64_t sample = 0; sample < SAMPLES; sample += 11) {
        bool is_in = stk_subset_has(&rig.subset, sample);
        uint64_t places[2] = {0, 0}, got;

        is_right &= stk_schedule_find(&rig.schedule, 3, sample, 0, &places[0]) == is_in;
        is_right &= stk_schedule_find(&rig.schedule, 3, sample, 1, &places[1]) == is_in;
        is_right &= !stk_schedule_find(&rig.schedule, 3, sample, 2, &got);
        for (int i = 0; i < 2 && is_in; i++) {
            stk_schedule_read(&rig.reader, 3, places[i], 1, &got);
            is_right &= got == sample && places[0] < places[1];
        }
    }
    T_TRUE("both copies", is_right);
    rig_close(&rig);
}

/* ---- histories: other worlds and batches, kills, resumes ---- */

/* One run of two passes of the subset; every stretch of a world and a batch ends with a kill, and a
 * new reader continues at the position. */
static bool history(struct rig *rig, uint64_t number, uint32_t tail)
{
    uint64_t key = stk_random_key(seed, number),
             epoch_samples = stk_schedule_epoch_samples(&rig->schedule);
    uint64_t epoch = 0, position = 0;
    uint8_t seen[2][SAMPLES] = {{0}};

    for (uint64_t stretch = 0; epoch < 2; stretch++) {
        static const uint32_t worlds[] = {1, 2, 3, 4, 8};
        uint64_t draw = stk_random_key(key, stretch), steps = 1 + draw % 9;
        struct stk_partition partition = {.sample_count = epoch_samples,
                                          .batch_size = 1 + (uint32_t)(draw >> 8) % 40,
                                          .world_size = worlds[(draw >> 16) % 5],
                                          .tail = tail,
                                          .group_count = 2};

        stk_schedule_reader_deinit(&rig->reader);
        stk_schedule_reader_init(&rig->reader, &rig->schedule, NULL);
        for (; steps > 0 && epoch < 2; steps--) {
            if (stk_partition_steps_from(&partition, epoch, position) == 0) {
                position = stk_partition_next_epoch_start(&partition, epoch, position);
                epoch++;
                continue;
            }
            for (partition.rank = 0; partition.rank < partition.world_size; partition.rank++) {
                uint32_t slots = stk_partition_batch_slots(&partition, epoch, position);

                for (uint32_t slot = 0; slot < slots; slot++) {
                    struct stk_order_place place;
                    uint64_t sample;

                    stk_partition_place(&partition, epoch, position, slot, &place);
                    stk_schedule_read(&rig->reader, place.epoch, place.position, 1, &sample);
                    if (place.epoch < 2) {
                        seen[place.epoch][sample] += place.real;
                    }
                }
            }
            position += stk_partition_stride(&partition);
        }
    }
    for (uint64_t i = 0; i < SAMPLES; i++) {
        uint8_t want = stk_subset_has(&rig->subset, i);

        if (seen[0][i] != want || seen[1][i] != want) {
            printf("history %llu: sample %llu came %u and %u times\n", (unsigned long long)number,
                   (unsigned long long)i, seen[0][i], seen[1][i]);
            return false;
        }
    }
    return true;
}

static void test_histories(void)
{
    static struct rig rig;
    static const uint32_t shuffles[] = {STOKER_SHUFFLE_BLOCK, STOKER_SHUFFLE_FULL,
                                        STOKER_SHUFFLE_TWO_LEVEL};
    uint64_t good = 0;

    for (uint64_t i = 0; i < HISTORIES; i++) {
        rig_prepare(&rig, 100 + i % 9 * 50, shuffles[i % 3]);
        rig_open(&rig);
        good += history(&rig, i, i % 2 ? STOKER_TAIL_KEEP : STOKER_TAIL_WRAP);
        rig_close(&rig);
    }
    T_EQ("exactly once", good, HISTORIES);
}

/* ---- damage ---- */

static int64_t good_left;

static bool good_for_a_while(const void *context, const void *at, size_t bytes)
{
    (void)context;
    (void)at;
    (void)bytes;
    return good_left-- > 0;
}

static int tell(const void *context, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, "damaged", "make it anew", "%s",
                    (const char *)context);
}

static void test_damage(void)
{
    static const struct stk_mapped_table mapped = {good_for_a_while, tell, "a table"};
    static struct rig rig;
    struct stoker_error error = {0};

    for (int i = 0; i < 4; i++) {
        rig_prepare(&rig, 300, i == 3 ? STOKER_SHUFFLE_TWO_LEVEL : STOKER_SHUFFLE_BLOCK);
        rig.stages[0].rule.alias = i == 1 ? &rig.alias : NULL;
        rig.stages[0].rule.classes = i == 2 ? &rig.classes : NULL;
        rig.subset.mapped = rig.alias.mapped = rig.classes.mapped = mapped;
        good_left = 100000000;
        rig_open(&rig);
        for (uint64_t n = 0; n < 20; n++) {
            good_left = (int64_t)n;
            error = (struct stoker_error){0};
            stk_schedule_read(&rig.reader, 1 + n, 0, 20, samples);
            T_EQ("damaged", stk_schedule_reader_error(&rig.reader, &error), STOKER_ERROR_CORRUPT);
            T_STR("damaged", error.where, "a table");
            T_EQ("once", stk_schedule_reader_error(&rig.reader, &error), 0);
        }
        good_left = 100000000;
        read_epoch("healed", &rig, 30);
        rig_close(&rig);
    }
}

/* clang-format off: one row, one line. */
static const struct refusal {
    const char *name;
    uint64_t second; /* stage */
    uint32_t stages, times, shards;
    int status;
} refusals[] = {
    {"no stage", 5, 0, 1, 6, STOKER_ERROR_ARGUMENT},
    {"too many", 5, STK_CURRICULUM_STAGES_MAX + 1, 1, 6, STOKER_ERROR_ARGUMENT},
    {"sequence", 0, 2, 1, 6, STOKER_ERROR_ARGUMENT},
    {"times", 5, 2, 1u << 17, 6, STOKER_ERROR_ARGUMENT},
    {"shards", 5, 2, 1, 5, STOKER_ERROR_ARGUMENT},
    {"empty", 5, 3, 1, 6, STOKER_ERROR_EMPTY},
};
/* clang-format on */

static void test_refusals(void)
{
    static struct rig rig;
    struct stk_subset empty;
    struct stoker_error error;
    int status = -1;

    T_EQ("empty", stk_subset_init(&empty, SAMPLES, NULL), 0);
    stk_subset_freeze(&empty);
    rig_prepare(&rig, 300, STOKER_SHUFFLE_TWO_LEVEL);
    T_EACH(refusal, row, refusals)
    {
        error = (struct stoker_error){0};
        rig.stages[1] = (struct stk_curriculum_stage){row->second, {0}};
        rig.stages[2] = (struct stk_curriculum_stage){row->second + 1, {.subset = &empty}};
        rig.stages_options.stage_count = row->stages;
        rig.stages_options.times = row->times;
        rig.stages_options.shard_count = row->shards;
        T_EQ(row->name, stk_schedule_init(&rig.schedule, &rig.options, &error), row->status);
        T_ERROR(row->name, &error);
    }
    rig.stages_options.stage_count = rig.stages_options.times = 1;
    rig.stages_options.shard_count = STK_COUNT(shard_ends);
    for (uint64_t n = 1; status < 0 && n < 20; n++) {
        stk_mem_fail_nth(n);
        status = stk_schedule_init(&rig.schedule, &rig.options, NULL);
        status = status < 0 ? status : stk_schedule_reader_init(&rig.reader, &rig.schedule, NULL);
        if (status == 0) {
            stk_schedule_read(&rig.reader, 0, 0, 5, samples);
            status = stk_schedule_reader_error(&rig.reader, NULL);
        }
        stk_mem_fail_nth(0);
        T_TRUE("no memory", status == -12 || status == 0);
        stk_schedule_reader_deinit(&rig.reader);
        stk_schedule_deinit(&rig.schedule);
    }
    T_EQ("enough memory", status, 0);
    stk_subset_deinit(&empty);
    rig_close(&rig);
    T_EQ("no leak", stk_mem_alive(), 0);
}

int main(int count, char **arguments)
{
    if (count > 1) {
        seed = strtoull(arguments[1], NULL, 0);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    test_rows();
    test_all();
    test_shards();
    test_weights();
    test_replacement();
    test_balance();
    test_curriculum();
    test_apart();
    test_find();
    test_histories();
    test_damage();
    test_refusals();
    return t_finish();
}
