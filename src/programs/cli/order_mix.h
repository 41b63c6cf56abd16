/* programs/cli/order_mix.h: the sources and weights of `stoker order --mix`.
 *
 *   paths --order_open_sources--> data set --order_mix_open--> mix of the setup
 *
 * Owner: run() of cmd_order.c. Threads: one. Memory: the data set. Bound: ORDER_SOURCES_MAX
 * sources. */
#ifndef PROGRAMS_CLI_ORDER_MIX_H
#define PROGRAMS_CLI_ORDER_MIX_H

#include "programs/cli/order_args.h"

/* Opens the data set of the paths; with --mix a path may be a class folder. Returns an exit
 * status. */
int order_open_sources(const struct args *args, struct stoker_engine **engine_out,
                       struct stoker_dataset **dataset_out);
/* Parses --mix into the setup, whose data set is open, and replaces its mix. Returns an exit
 * status. */
int order_mix_open(struct order_setup *setup, const struct args *args);

#endif
