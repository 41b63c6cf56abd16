/* programs/cli/info_location.h: where the buckets of URLs are, and where this machine is, for
 * stoker info.
 *
 *   URLs --placed_open--> one row a bucket --print | json--> findings
 *
 * Owner: the command. Threads: one. Memory: the caller's. Bound: PLACED_MAX buckets. */
#ifndef PROGRAMS_CLI_INFO_LOCATION_H
#define PROGRAMS_CLI_INFO_LOCATION_H

#include "programs/cli/args.h"

#define PLACED_MAX 8u

struct placed {
    struct stoker_where rows[PLACED_MAX];
    char buckets[PLACED_MAX][128]; /* "s3://bucket" */
    uint32_t count;
};

/* What cannot be asked is told as not known: it is no reason to tell nothing of the data. */
void placed_open(struct placed *placed, struct stoker_engine *engine, const struct args *args);
void placed_print(const struct placed *placed);
/* "where": [...] of an object that is open. */
void placed_json(const struct placed *placed);
/* EXIT_FINDINGS: data and machine are apart. */
int placed_status(const struct placed *placed);

#endif
