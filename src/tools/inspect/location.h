/* tools/inspect/location.h: where a bucket is and where this machine is, and what it costs that
 * they differ.
 *
 *   URL --the store asks--> region, zone of the bucket --\
 *   metadata of the cloud --> those of the machine -------+--stk_near_judge--> kind, words, dollars
 *
 * Pure but for stoker_where_is. Owner: values. Threads: any. Memory: none is kept.
 * Bound: a request of the bucket, three of the metadata. */
#ifndef TOOLS_INSPECT_LOCATION_H
#define TOOLS_INSPECT_LOCATION_H

#include "base/base.h"

/* From service, bucket_..., machine_...: kind, gigabyte, what, reason, advice. url: of the data. */
void stk_near_judge(struct stoker_where *where, const char *url);

#endif
