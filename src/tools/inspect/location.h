/* tools/inspect/location.h: where a bucket is and where this machine is, and what it costs that
 * they differ.
 *
 *   URL --the store asks--> region, zone of the bucket --\
 *   metadata of the cloud --> those of the machine -------+--stk_location_compare--> kind, words,
 * dollars
 *
 * Pure but for stoker_location_check. Owner: values. Threads: any. Memory: none is kept.
 * Bound: a request of the bucket, three of the metadata. */
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

/* From service, bucket_..., machine_...: kind, gigabyte, what, reason, advice. url: of the data. */
void stk_location_compare(struct stoker_location *where, const char *url);

#endif
