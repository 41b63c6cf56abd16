/* programs/cli/info_location.h: regions of the buckets of URLs and of this machine, for stoker
 * info.
 *
 *   URLs --info_location_open--> one row a bucket --print | json--> findings
 *
 * Owner: the command. Threads: one. Memory: the caller's. Bound: INFO_LOCATIONS_MAX buckets. */
#ifndef PROGRAMS_CLI_INFO_LOCATION_H
#define PROGRAMS_CLI_INFO_LOCATION_H

#include "programs/cli/args.h"

#define INFO_LOCATIONS_MAX 8u

struct info_location {
    struct stoker_location rows[INFO_LOCATIONS_MAX];
    char buckets[INFO_LOCATIONS_MAX][128]; /* "s3://bucket" */
    uint32_t count;
};

/* Failed requests are reported as unknown; they do not fail the command. */
void info_location_open(struct info_location *locations, struct stoker_engine *engine,
                        const struct args *args);
void info_location_print(const struct info_location *locations);
/* Prints the member "where": [...] of the current JSON object. */
void info_location_json(const struct info_location *locations);
/* Returns EXIT_FINDINGS if bucket and machine are in different regions. */
int info_location_status(const struct info_location *locations);

#endif
