/* programs/cli/order_prove.h: `stoker order --verify` and --simulate.
 *
 *   setup --order_verify--> proof by enumeration        setup --order_simulate--> open blocks
 *
 * Owner: run() of cmd_order.c. Threads: one (the library's, for a simulation). Memory: what the
 * library needs. Bound: 64 world sizes, 64 segments. */
#ifndef PROGRAMS_CLI_ORDER_PROVE_H
#define PROGRAMS_CLI_ORDER_PROVE_H

#include "programs/cli/order_args.h"

/* Verifies the order. Returns an exit status: EXIT_FINDINGS if a part failed. */
int order_verify(const struct order_setup *setup);
/* Simulates an epoch. Returns an exit status: EXIT_FINDINGS if a bound is exceeded. */
int order_simulate(const struct order_setup *setup);

#endif
