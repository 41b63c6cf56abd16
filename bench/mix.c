/* Nanoseconds for one position of a mix of 8 sources with 10^9 samples together: singly and in
 * bulk, the draw alone and with the sample that the source's own order has there. Prints one JSON
 * line a case. Compiled like bench/order.c. */
#include "order/mix/mix.h"

#include <stdio.h>
#include <time.h>

#define POSITIONS 4000000u
#define SOURCES 8
#define BATCH 4096u

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); /* others may use the machine too */
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void say(const char *name, const char *what, double begin, uint64_t sum)
{
    printf("{\"case\": \"%s, %s\", \"ns\": %.1f, \"check\": %llu}\n", name, what,
           (seconds() - begin) / POSITIONS * 1e9, (unsigned long long)sum);
}

static void time_draws(const char *name, const struct stk_mix *mix)
{
    static struct stk_mix_draw draws[BATCH];
    double begin = seconds();
    uint64_t sum = 0;

    for (uint64_t i = 0; i < POSITIONS; i++) {
        struct stk_mix_draw draw;

        stk_mix_draw_at(mix, 700000000 + i * 23, &draw);
        sum += draw.source + draw.epoch + draw.position;
    }
    say(name, "draw, singly", begin, sum);
    begin = seconds();
    sum = 0;
    for (uint64_t i = 0; i < POSITIONS; i += BATCH) {
        stk_mix_draw_range(mix, 700000000 + i, BATCH, draws);
        for (uint32_t k = 0; k < BATCH; k++) {
            sum += draws[k].source + draws[k].epoch + draws[k].position;
        }
    }
    say(name, "draw, in bulk", begin, sum);
}

/* With the sources' orders: a full shuffle, and blocks of 86 samples in windows of 64. */
static int time_items(const char *name, const struct stk_mix *mix, uint32_t shuffle)
{
    static struct stk_mix_item items[BATCH];
    struct stk_order orders[SOURCES];
    struct stk_mix_reader reader;
    double begin;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < SOURCES; i++) {
        struct stk_order_options options = {.sample_count = mix->samples[i].number,
                                            .block_samples = 86,
                                            .window_blocks = 64,
                                            .group_count = (uint32_t)mix->groups.number,
                                            .shuffle = shuffle,
                                            .seed = i};
        if (stk_order_init(&orders[i], &options, NULL) < 0) {
            return 1;
        }
    }
    if (stk_mix_reader_init(&reader, mix, orders, NULL) < 0) {
        return 1;
    }
    begin = seconds();
    for (uint64_t i = 0; i < POSITIONS; i++) {
        stk_mix_read(&reader, 700000000 + i * 1000003 % 500000000, 1, items);
        sum += items[0].sample;
    }
    say(name, shuffle == STOKER_SHUFFLE_FULL ? "full sample, singly" : "block sample, singly",
        begin, sum);
    begin = seconds();
    sum = 0;
    for (uint64_t i = 0; i < POSITIONS; i += BATCH) {
        stk_mix_read(&reader, 700000000 + i, BATCH, items);
        for (uint32_t k = 0; k < BATCH; k++) {
            sum += items[k].sample;
        }
    }
    say(name, shuffle == STOKER_SHUFFLE_FULL ? "full sample, in bulk" : "block sample, in bulk",
        begin, sum);
    stk_mix_reader_deinit(&reader);
    return 0;
}

int main(void)
{
    static const struct {
        const char *name;
        uint32_t groups;
        uint64_t weights[SOURCES];
    } cases[] = {
        {"mix, even frames", 1, {10, 20, 5, 5, 30, 15, 14, 1}},
        {"mix, uneven frames", 1, {100003, 200003, 50021, 50023, 300007, 150001, 140009, 10007}},
        {"mix, 64 home groups", 64, {10, 20, 5, 5, 30, 15, 14, 1}},
    };
    static const uint64_t counts[SOURCES] = {400000000, 200000000, 100000000, 100000000,
                                             80000000,  70000000,  40000000,  10000000};
    struct stk_mix_source sources[SOURCES];

    for (int i = 0; i < SOURCES; i++) {
        sources[i] = (struct stk_mix_source){counts[i], 0};
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stk_mix_options options = {.seed = 1,
                                          .sources = sources,
                                          .weights = cases[i].weights,
                                          .source_count = SOURCES,
                                          .group_count = cases[i].groups};
        struct stk_mix mix;

        if (stk_mix_init(&mix, &options, NULL) < 0) {
            return 1;
        }
        time_draws(cases[i].name, &mix);
        if (time_items(cases[i].name, &mix, STOKER_SHUFFLE_FULL) ||
            time_items(cases[i].name, &mix, STOKER_SHUFFLE_BLOCK)) {
            return 1;
        }
        stk_mix_deinit(&mix);
    }
    return 0;
}
