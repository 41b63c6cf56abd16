/* cli/order_prove.h: what the files of `stoker order` share.
 *
 *   cmd_order.c: settings, the table, places, differences    order_prove.c: proofs, simulations
 *
 * Owner: run() of cmd_order.c. Threads: one. Memory: what the library's objects take.
 * Bound: none. */
#ifndef CLI_ORDER_PROVE_H
#define CLI_ORDER_PROVE_H

#include "cli/args.h"

struct setup {
    const struct args *args;
    struct stoker_engine *engine;   /* NULL: a data set that is only planned */
    struct stoker_dataset *dataset; /* NULL likewise */
    struct stoker_dataset_info info;
    struct stoker_order_options options;
    struct stoker_order *order;
};

/* The settings of an order: the data set's, and those of args. */
struct stoker_order_options order_settings(const struct setup *setup, const struct args *args);
/* Cells of a table, of 20 columns: bytes of so many blocks (their number, where a block's bytes are
 * not known); a count, or "-". */
void order_cell_bytes(const struct setup *setup, uint64_t blocks);
void order_cell_count(uint64_t count, bool known);

/* `--verify` and `--simulate`; exit statuses. */
int order_verify(const struct setup *setup);
int order_simulate(const struct setup *setup);

#endif
