/* programs/cli/order_args.h: the settings of `stoker order`, as the library takes them.
 *
 *   struct args + data set --order_settings--> options --order_open--> order
 *
 * Owner: run() of cmd_order.c. Threads: one. Memory: the order and samplers. Bound:
 * ORDER_SOURCES_MAX sources, ORDER_CHANGES_MAX changes of a mix. */
#ifndef PROGRAMS_CLI_ORDER_ARGS_H
#define PROGRAMS_CLI_ORDER_ARGS_H

#include "programs/cli/sampling_args.h"

#define ORDER_SOURCES_MAX 64
#define ORDER_CHANGES_MAX 15

/* A mix, and the arrays that its options point to. */
struct order_mix {
    struct stoker_mix_options options;
    struct stoker_mix_change changes[ORDER_CHANGES_MAX];
    size_t change_count;
    uint64_t ends[ORDER_SOURCES_MAX], weights[ORDER_CHANGES_MAX + 1][ORDER_SOURCES_MAX];
};

struct order_setup {
    const struct args *args;
    struct stoker_engine *engine;   /* NULL: a planned data set */
    struct stoker_dataset *dataset; /* NULL likewise */
    struct stoker_dataset_info info;
    struct stoker_order_options options;
    struct stoker_order *order;
    struct order_mix mix;
    bool has_mix;
    struct sampling_args choice; /* points into itself: do not copy an order_setup */
    uint64_t *shard_ends;        /* owned; NULL: not tars */
};

/* Returns the settings of an order: those of the data set and of args. */
struct stoker_order_options order_settings(const struct order_setup *setup,
                                           const struct args *args);
/* Opens the order of these settings with the mix and the samplers of the setup. Returns an exit
 * status. */
int order_open(const struct order_setup *setup, const struct args *args,
               struct stoker_order **order_out);
/* Checks that the data set has samples, and the order of --shuffle. Prints an error. Returns an
 * exit status. */
int order_check(const struct command *command, const struct args *args,
                const struct stoker_dataset *dataset, const struct stoker_dataset_info *info);
/* Parses a number that is followed by one of `ends` or by the end of the text, and moves *text past
 * it. Returns false if there is none. */
bool order_take_number(const char **text, const char *ends, uint64_t *value_out);

#endif
