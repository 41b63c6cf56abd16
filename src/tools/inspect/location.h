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

/* From service, bucket_..., machine_...: kind, gigabyte, what, reason, advice. url: of the data. */
void stk_location_compare(struct stoker_location *where, const char *url);

#endif
