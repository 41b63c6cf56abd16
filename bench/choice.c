/* Nanoseconds for one position of a run of chosen samples, single positions far apart and in bulk,
 * with the bytes of its table and the seconds that making it took:
 *
 *     sampling_args CASE SAMPLES     CASE: each, subset, replacement, weights, classes, two-level
 *
 * bench/run.py sampling compiles and runs it. Prints two JSON lines. The weights' table needs 12
 * bytes a sample while it is made. */
#include "order/sampling/curriculum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POSITIONS 2000000u
#define STEP 2048u
#define CLASSES 1000u
#define SHARD 10000u /* samples of one, two-level */

struct tables {
    struct stk_subset subset;
    struct stk_alias_table alias;
    struct stk_class_balance classes;
    uint64_t *ends;
    double bytes;
};

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); /* others may use the machine too */
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A number a sample that looks like none of its neighbours. */
static uint32_t number_of(uint64_t sample)
{
    return (uint32_t)((sample + 1) * UINT64_C(0x9E3779B97F4A7C15) >> 33);
}

static int make_subset(struct tables *tables, uint64_t samples)
{
    int status = stk_subset_init(&tables->subset, samples, NULL);

    for (uint64_t i = 0; status == 0 && i < samples; i++) {
        if (number_of(i) & 1) {
            stk_subset_add(&tables->subset, i);
        }
    }
    if (status == 0) {
        stk_subset_freeze(&tables->subset);
        tables->bytes = 8.0 * (double)(stk_subset_words(samples) + stk_subset_ranks(samples) +
                                       stk_subset_selects(tables->subset.count));
    }
    return status;
}

static int make_numbered(struct tables *tables, uint64_t samples, bool is_class)
{
    uint32_t *numbers = malloc(samples * sizeof *numbers);
    int status = numbers ? 0 : -1;

    for (uint64_t i = 0; numbers && i < samples; i++) {
        numbers[i] = is_class ? number_of(i) % CLASSES : number_of(i);
    }
    if (status == 0 && is_class) {
        status = stk_class_balance_init(&tables->classes, numbers, samples, CLASSES, NULL);
        tables->bytes = 4.0 * (double)samples + 8.0 * (CLASSES + 1);
    } else if (status == 0) {
        status = stk_alias_table_init(&tables->alias, numbers, samples, NULL);
        tables->bytes = 8.0 * (double)samples;
    }
    free(numbers);
    return status;
}

static int make_shards(struct tables *tables, struct stk_curriculum_options *options,
                       uint64_t samples)
{
    options->shard_count = (uint32_t)((samples + SHARD - 1) / SHARD);
    tables->ends = malloc(options->shard_count * sizeof *tables->ends);
    if (!tables->ends) {
        return -1;
    }
    for (uint32_t i = 0; i < options->shard_count; i++) {
        uint64_t end = (i + (uint64_t)1) * SHARD;
        tables->ends[i] = end < samples ? end : samples;
    }
    options->ends = tables->ends;
    options->order.shuffle = STOKER_SHUFFLE_TWO_LEVEL;
    tables->bytes = 40.0 * options->shard_count;
    return 0;
}

/* The tables of a case, as `sampling_args` and `options` want them. */
static int make(const char *name, uint64_t samples, struct tables *tables,
                struct stk_sampling_rule *choice, struct stk_curriculum_options *options)
{
    choice->subset_identity = choice->draws_identity = 1;
    if (!strcmp(name, "subset")) {
        choice->subset = &tables->subset;
        return make_subset(tables, samples);
    }
    if (!strcmp(name, "weights")) {
        choice->alias = &tables->alias;
        return make_numbered(tables, samples, false);
    }
    if (!strcmp(name, "classes")) {
        choice->classes = &tables->classes;
        return make_numbered(tables, samples, true);
    }
    if (!strcmp(name, "two-level")) {
        return make_shards(tables, options, samples);
    }
    choice->replacement = !strcmp(name, "replacement");
    return choice->replacement || !strcmp(name, "each") ? 0 : -1;
}

static void time_reads(const char *name, uint64_t samples, const struct stk_curriculum *stages,
                       const char *more)
{
    static uint64_t out[STEP];
    struct stk_curriculum_reader reader;
    uint64_t sum = 0, many = samples / 3;
    double begin;

    if (stk_curriculum_reader_init(&reader, stages, NULL) < 0) {
        exit(1);
    }
    stk_curriculum_read(&reader, 0, STEP, out); /* two-level: the cost of a pass, once */
    begin = seconds();
    for (uint64_t i = 0; i < POSITIONS; i++) {
        stk_curriculum_read(&reader, i * 7919 % many, 1, out);
        sum += out[0];
    }
    printf("{\"case\": \"%s\", \"samples\": %llu, \"way\": \"singly\", \"ns\": %.1f, %s, "
           "\"check\": %llu}\n",
           name, (unsigned long long)samples, (seconds() - begin) / POSITIONS * 1e9, more,
           (unsigned long long)sum);
    begin = seconds();
    for (uint64_t i = 0; i < POSITIONS; i += STEP) {
        stk_curriculum_read(&reader, i % (many - STEP), STEP, out);
        sum += out[i / STEP % STEP];
    }
    printf("{\"case\": \"%s\", \"samples\": %llu, \"way\": \"in bulk\", \"ns\": %.1f, %s, "
           "\"check\": %llu}\n",
           name, (unsigned long long)samples, (seconds() - begin) / POSITIONS * 1e9, more,
           (unsigned long long)sum);
    stk_curriculum_reader_deinit(&reader);
}

int main(int count, char **arguments)
{
    uint64_t samples = count > 2 ? strtoull(arguments[2], NULL, 10) : 0;
    struct tables tables = {0};
    struct stk_curriculum_stage stage = {0};
    struct stk_curriculum stages = {0};
    struct stk_curriculum_options options = {.order = {.sample_count = samples,
                                                       .block_samples = 86,
                                                       .window_blocks = 64,
                                                       .group_count = 1,
                                                       .shuffle = STOKER_SHUFFLE_BLOCK,
                                                       .seed = 1},
                                             .stages = &stage,
                                             .stage_count = 1};
    double begin = seconds();
    char more[96];

    if (samples < 10 * STEP || make(arguments[1], samples, &tables, &stage.choice, &options) < 0 ||
        stk_curriculum_init(&stages, &options, NULL) < 0) {
        fprintf(stderr, "choice: %s of %llu samples: too little memory, or no such case\n",
                count > 1 ? arguments[1] : "none", (unsigned long long)samples);
        return 1;
    }
    snprintf(more, sizeof more, "\"table_mb\": %.1f, \"made_s\": %.2f", tables.bytes / 1e6,
             seconds() - begin);
    time_reads(arguments[1], samples, &stages, more);
    stk_curriculum_deinit(&stages);
    stk_subset_deinit(&tables.subset);
    stk_alias_table_deinit(&tables.alias);
    stk_class_balance_deinit(&tables.classes);
    free(tables.ends);
    return 0;
}
