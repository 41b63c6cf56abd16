/* Nanoseconds for one position of the order, singly: 100 million samples, all three shuffles.
 * cc -O2 -D_GNU_SOURCE -Iinclude -Isrc bench/order.c build/libstoker-all.a -o order && ./order
 * (bench/run.py order does that.) Prints one JSON line a shuffle: median of 5. */
#include "order/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define POSITIONS 4000000u
#define RUNS      5

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(void)
{
    static const char *const names[] = { "", "block", "full", "none" };

    for (uint32_t shuffle = STOKER_SHUFFLE_BLOCK; shuffle <= STOKER_SHUFFLE_NONE; shuffle++) {
        struct stk_order_options options = { .sample_count = 100000000, .block_samples = 86,
                                             .window_blocks = 64, .group_count = 8,
                                             .shuffle = shuffle, .seed = 1 };
        struct stk_order         order;
        struct stk_order_epoch   epoch;
        double                   ns[RUNS];
        uint64_t                 sum = 0;

        if (stk_order_init(&order, &options, NULL) < 0) {
            return 1;
        }
        for (int run = 0; run < RUNS; run++) {
            double begin = seconds();
            stk_order_begin(&epoch, &order, (uint64_t)run);
            for (uint64_t i = 0; i < POSITIONS; i++) {
                sum += stk_order_sample(&epoch, i * 23);
            }
            ns[run] = (seconds() - begin) / POSITIONS * 1e9;
        }
        qsort(ns, RUNS, sizeof ns[0], ascending);
        printf("{\"shuffle\": \"%s\", \"ns_a_position\": %.1f, \"min\": %.1f, \"max\": %.1f, "
               "\"check\": %llu}\n", names[shuffle], ns[RUNS / 2], ns[0], ns[RUNS - 1],
               (unsigned long long)sum);
    }
    return 0;
}
