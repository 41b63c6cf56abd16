/* Nanoseconds of CPU time for one position of the order, singly, in bulk (a step of 2,048 samples)
 * and with its fingerprint, in every kind of shuffle, in versions 2 and 1; for the inverse; and for
 * one of grain's, whose library (libindex_shuffle.so of its wheel) the first argument names.
 * bench/run.py order compiles and runs it. Prints one JSON line a case: one timing of POSITIONS
 * positions. */
#include "order/order.h"

#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

#define POSITIONS 4000000u
#define STEP 2048u
#define FOUND 50000u

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now); /* other programs run, too */
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int time_case(const char *name, const struct stk_order_options *options)
{
    struct stk_order order;
    struct stk_order_epoch epoch;
    uint64_t sum = 0, position = 0;
    double begin;

    if (stk_order_init(&order, options, NULL) < 0) {
        return 1;
    }
    stk_order_epoch_begin(&epoch, &order, 3);
    begin = seconds();
    for (uint64_t i = 0; i < POSITIONS; i++) {
        sum += stk_order_sample(&epoch, position);
        position += 23;
        position -= position >= options->sample_count ? options->sample_count : 0;
    }
    printf("{\"case\": \"%s\", \"ns\": %.1f, \"check\": %llu}\n", name,
           (seconds() - begin) / POSITIONS * 1e9, (unsigned long long)sum);
    return 0;
}

/* The work of a worker for a step, and of stoker order --find for a sample. */
static int time_steps(const char *name, const struct stk_order_options *options)
{
    struct stk_order order;
    struct stk_order_epoch epoch;
    static uint64_t samples[STEP];
    uint64_t sum = 0;
    double begin, bulk, fingerprint;

    if (stk_order_init(&order, options, NULL) < 0) {
        return 1;
    }
    stk_order_epoch_begin(&epoch, &order, 3);
    begin = seconds();
    for (uint64_t i = 0; i + STEP <= POSITIONS && i + STEP <= options->sample_count; i += STEP) {
        stk_order_samples(&epoch, i, STEP, samples);
        sum += samples[i % STEP];
    }
    bulk = seconds() - begin;
    begin = seconds();
    for (uint64_t i = 0; i + STEP <= POSITIONS && i + STEP <= options->sample_count; i += STEP) {
        sum += stk_order_fingerprint(&epoch, i, STEP);
    }
    fingerprint = seconds() - begin;
    begin = seconds();
    for (uint64_t i = 0; i < FOUND; i++) {
        sum += stk_order_position(&epoch, i * 23);
    }
    uint64_t done = options->sample_count < POSITIONS ? options->sample_count : POSITIONS;
    printf("{\"case\": \"%s, in bulk\", \"ns\": %.1f, \"check\": %llu}\n", name,
           bulk / (double)done * 1e9, (unsigned long long)sum);
    printf("{\"case\": \"%s, fingerprint\", \"ns\": %.1f}\n", name,
           fingerprint / (double)done * 1e9);
    printf("{\"case\": \"%s, inverse\", \"ns\": %.1f}\n", name, (seconds() - begin) / FOUND * 1e9);
    return 0;
}

/* grain::random::index_shuffle(index, max_index, seed, rounds), with the rounds that grain uses. */
static int time_grain(const char *library, uint64_t samples)
{
    typedef uint64_t (*shuffle)(uint64_t, uint64_t, uint32_t, uint32_t);
    void *handle = dlopen(library, RTLD_NOW);
    shuffle index_shuffle =
        handle ? (shuffle)dlsym(handle, "_ZN5grain6random13index_shuffleEmmjj") : NULL;
    uint64_t sum = 0;
    double begin = seconds();

    if (!index_shuffle) {
        fprintf(stderr, "order: %s\n", dlerror());
        return 1;
    }
    for (uint64_t i = 0; i < POSITIONS; i++) {
        sum += index_shuffle(i * 23 % samples, samples - 1, 3, 4);
    }
    printf("{\"case\": \"grain, full, %llu M samples\", \"ns\": %.1f, \"check\": %llu}\n",
           (unsigned long long)(samples / 1000000), (seconds() - begin) / POSITIONS * 1e9,
           (unsigned long long)sum);
    return 0;
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        uint64_t samples;
        uint32_t shuffle, groups, version;
    } cases[] = {
        {"block, 1.28 M samples", 1281167, STOKER_SHUFFLE_BLOCK, 1, 2},
        {"block, 1.28 M samples, version 1", 1281167, STOKER_SHUFFLE_BLOCK, 1, 1},
        {"block, 100 M samples", 100000000, STOKER_SHUFFLE_BLOCK, 1, 2},
        {"block, 100 M samples, version 1", 100000000, STOKER_SHUFFLE_BLOCK, 1, 1},
        {"block, 100 M samples, 8 groups", 100000000, STOKER_SHUFFLE_BLOCK, 8, 2},
        {"block, 100 M samples, 8 groups, version 1", 100000000, STOKER_SHUFFLE_BLOCK, 8, 1},
        {"full, 100 M samples", 100000000, STOKER_SHUFFLE_FULL, 1, 2},
        {"full, 100 M samples, version 1", 100000000, STOKER_SHUFFLE_FULL, 1, 1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stk_order_options options = {.sample_count = cases[i].samples,
                                            .block_samples = 86,
                                            .window_blocks = 64,
                                            .group_count = cases[i].groups,
                                            .shuffle = cases[i].shuffle,
                                            .version = cases[i].version,
                                            .seed = 1};
        if (time_case(cases[i].name, &options) || time_steps(cases[i].name, &options)) {
            return 1;
        }
    }
    return count > 1 ? time_grain(arguments[1], 1281167) | time_grain(arguments[1], 100000000) : 0;
}
