/* programs/cli/order_prove.h: what the files of `stoker order` share.
 *
 *   cmd_order.c: settings, the table, places, differences    order_prove.c: proofs, simulations
 *   order_mix.c: sources and weights                            order_table.c: the table
 *
 * Owner: run() of cmd_order.c. Threads: one. Memory: what the library's objects take.
 * Bound: none. */
#ifndef PROGRAMS_CLI_ORDER_PROVE_H
#define PROGRAMS_CLI_ORDER_PROVE_H

#include "programs/cli/sampling_args.h"

#define ORDER_SOURCES_MAX 64
#define ORDER_CHANGES_MAX 15

/* A mix, and what its options point to. */
struct order_mix {
    struct stoker_mix_options options;
    struct stoker_mix_change changes[ORDER_CHANGES_MAX];
    size_t change_count;
    uint64_t ends[ORDER_SOURCES_MAX], weights[ORDER_CHANGES_MAX + 1][ORDER_SOURCES_MAX];
};

struct order_setup {
    const struct args *args;
    struct stoker_engine *engine;   /* NULL: a data set that is only planned */
    struct stoker_dataset *dataset; /* NULL likewise */
    struct stoker_dataset_info info;
    struct stoker_order_options options;
    struct stoker_order *order;
    struct order_mix mix;
    bool has_mix;
    struct sampling_args choice; /* a order_setup is not copied */
    uint64_t *shard_ends;        /* owned: of tars; NULL: there are none */
};

/* The settings of an order: the data set's, and those of args. */
struct stoker_order_options order_settings(const struct order_setup *setup,
                                           const struct args *args);
/* Cells of a table, of 20 columns: bytes of so many blocks (their number, where a block's bytes are
 * not known); a count, or "-". */
void order_cell_bytes(const struct order_setup *setup, uint64_t blocks);
void order_cell_count(uint64_t count, bool known);

/* The order of these settings, and of the set-up's mix and sampling_args; an exit status. */
int order_open(const struct order_setup *setup, const struct args *args,
               struct stoker_order **order_out);
/* Without a question: what the order costs, and how it mixes; an exit status. */
int order_report(struct order_setup *setup);

/* A number that one of `ends` follows, or the end of the text; then *text stands behind it. */
bool order_take_number(const char **text, const char *ends, uint64_t *value_out);
/* The data set of the paths; with `--mix` a path may be a class folder. An exit status. */
int order_open_sources(const struct args *args, struct stoker_engine **engine_out,
                       struct stoker_dataset **dataset_out);
/* `--mix` into the set-up, whose data set is open, in place of the one there; an exit status. */
int order_mix_open(struct order_setup *setup, const struct args *args);
/* `--verify` and `--simulate`; exit statuses. */
int order_verify(const struct order_setup *setup);
int order_simulate(const struct order_setup *setup);

#endif
