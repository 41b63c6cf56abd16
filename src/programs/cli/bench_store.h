/* programs/cli/bench_store.h: results of stoker bench store, and its page.
 *
 * Owner: the command. Threads: one. Memory: static. Bound: the numbers below. */
#ifndef PROGRAMS_CLI_BENCH_STORE_H
#define PROGRAMS_CLI_BENCH_STORE_H

#include <stdbool.h>
#include <stdint.h>

#define BENCH_LIST_MAX 12 /* sizes, and concurrencies */
#define BENCH_CELLS_MAX (BENCH_LIST_MAX * BENCH_LIST_MAX)

/* Ranges of one size and concurrency. */
struct bench_cell {
    uint64_t size, at_once;
    uint64_t requests, bytes, failed;
    double seconds, cpu_seconds;
    double first[3], all[3]; /* p50, p90, p99 in seconds; first 0: unknown */
};

/* Objects of one upload. */
struct bench_put {
    uint64_t size, objects;
    double seconds, cpu_seconds;
};

struct bench_sweep {
    const char *url;
    uint64_t sizes[BENCH_LIST_MAX], at_once[BENCH_LIST_MAX];
    uint32_t size_count, at_once_count;
    struct bench_cell cells[BENCH_CELLS_MAX]; /* by size, then at_once; requests 0: not measured */
    uint32_t cell_count;
    struct bench_put puts[2];
    uint32_t put_count;
    uint64_t objects, object_bytes, retries;
    double seconds;
    bool interrupted;
};

/* Return true if the file can be written: PNG needs librsvg's rsvg-convert. */
bool bench_is_drawing(const char *path); /* by its extension */
bool bench_can_draw(const char *path);
/* Writes a page that needs nothing else: charts and a table; of .svg and .png the charts. 0, or
 * errno; what was there stays until the new one is whole. */
int bench_page(const struct bench_sweep *sweep, const char *path);

#endif
