/* tools/inspect/location.h: compares the location of a bucket with that of this machine, and what
 * reading across them costs.
 *
 *   URL --request to the store--> region, zone of the bucket --\
 *   metadata service of the cloud --> those of the machine -----+--stk_location_compare--> kind,
 * cost
 *
 * Pure but for stoker_location_check and stk_machine_location_find. Owner: values. Threads: any.
 * Memory: none is kept. Bound: one request to the bucket, three to the metadata service. */
#ifndef TOOLS_INSPECT_LOCATION_H
#define TOOLS_INSPECT_LOCATION_H

#include "base/base.h"

struct stk_http;

struct stk_machine_location {
    const char *cloud;         /* "Amazon", "Google"; "": unknown; static */
    char region[64], zone[64]; /* "us-west-2", "usw2-az1"; "us-central1", "us-central1-a" */
    char source[256];          /* which service says so, or why it is unknown; for people */
};
/* Asks the metadata service of the machine's cloud (version 2 at Amazon), as the variables for
 * credentials configure it. Waits a second if there is none, a few if it is slow. */
void stk_machine_location_find(struct stk_http *http, struct stk_machine_location *location_out);

/* Sets kind, dollars_per_gb, what, reason and advice by service, bucket_... and machine_.... url:
 * the data, for the advice. */
void stk_location_compare(struct stoker_location *where, const char *url);

#endif
