/* An epoch of a large cluster, simulated: 10^9 samples of 1 MB, 4,096 nodes of 8 ranks. Asserts
 * that each sample occurs exactly once and that no node has more blocks open than the formula says.
 * Arguments: samples, nodes, threads. bench/run.py simulate compiles and runs it; prints one JSON
 * line, exits with 1 where an assertion does not hold. */
#include <stdio.h>
#include <stdlib.h>
#include <stoker/stoker.h>
#include <sys/resource.h>
#include <time.h>

#define RANKS 8         /* a node */
#define BATCH 32        /* samples a rank and step */
#define BLOCK_SAMPLES 8 /* of 1 MB each: a request of 8 MB */
#define WINDOW 64       /* blocks */
#define SAMPLE_BYTES 1e6

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int fail(const char *what, const struct stoker_error *error)
{
    fprintf(stderr, "simulate: %s: %s: %s\n", what, error->what, error->where);
    return 1;
}

int main(int count, char **arguments)
{
    uint64_t samples = count > 1 ? strtoull(arguments[1], NULL, 10) : 1000000000;
    uint32_t nodes = count > 2 ? (uint32_t)strtoul(arguments[2], NULL, 10) : 4096;
    struct stoker_order_options options = {
        .struct_size = sizeof options,
        .sample_count = samples,
        .block_samples = BLOCK_SAMPLES,
        .seed = 1,
        .tail = STOKER_TAIL_PAD,
        .window_blocks = WINDOW,
        .group_count = nodes,
        .batch_size = BATCH,
        .world_size = nodes * RANKS,
    };
    struct stoker_order_simulate_options how = {
        .struct_size = sizeof how,
        .epoch = 1,
        .nodes = nodes,
        .threads = count > 3 ? (uint32_t)strtoul(arguments[3], NULL, 10) : 2,
    };
    struct stoker_order_simulation got = {.struct_size = sizeof got};
    struct stoker_error error = {0};
    struct stoker_order *order;
    struct rusage usage;
    double begin = seconds(), took;

    if (stoker_order_open(&order, &options, &error) < 0) {
        return fail("open", &error);
    }
    if (stoker_order_simulate(order, &how, &got, &error) < 0) {
        return fail("simulate", &error);
    }
    took = seconds() - begin;
    stoker_order_close(order);
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"seconds\": %.2f, \"memory_mb\": %.1f, \"samples\": %llu, \"steps\": %llu, "
           "\"ranks\": %u, \"missing\": %llu, \"repeated\": %llu, \"requests\": %llu, ",
           took, (double)usage.ru_maxrss * 1024 / 1e6, (unsigned long long)got.samples,
           (unsigned long long)got.steps, options.world_size, (unsigned long long)got.missing,
           (unsigned long long)got.repeated, (unsigned long long)got.requests);
    printf("\"open_mb\": %.0f, \"open_bound_mb\": %.0f, \"step_mb\": %.0f, "
           "\"step_bound_mb\": %.0f}\n",
           (double)got.open_blocks_max * BLOCK_SAMPLES * SAMPLE_BYTES / 1e6,
           (double)got.open_blocks_bound * BLOCK_SAMPLES * SAMPLE_BYTES / 1e6,
           (double)got.step_blocks_max * BLOCK_SAMPLES * SAMPLE_BYTES / 1e6,
           (double)got.step_blocks_bound * BLOCK_SAMPLES * SAMPLE_BYTES / 1e6);
    if (got.samples != samples || got.missing || got.repeated ||
        got.open_blocks_max > got.open_blocks_bound ||
        got.step_blocks_max > got.step_blocks_bound) {
        fprintf(stderr, "simulate: a sample is missing or repeated, or a node has too much open\n");
        return 1;
    }
    return 0;
}
