/* programs/cli/sampling_args.h: selection of samples on the command line: --subset, --weights,
 * --balance and the like.
 *
 *   struct args --sampling_args_open--> samplers, scanned with progress --> sampling options
 *
 * Owner: run() of a command. Threads: one. Memory: what the samplers take. Bound:
 * SAMPLING_ARGS_STAGES_MAX stages. */
#ifndef PROGRAMS_CLI_SAMPLING_ARGS_H
#define PROGRAMS_CLI_SAMPLING_ARGS_H

#include "programs/cli/args.h"

#define SAMPLING_ARGS_STAGES_MAX 32
#define SAMPLING_ARGS_TEXT_MAX 4096

struct sampling_args {
    struct stoker_sampling_options options;
    struct stoker_sampling_stage stages[SAMPLING_ARGS_STAGES_MAX];
    struct stoker_sampler *samplers[SAMPLING_ARGS_STAGES_MAX]; /* owned */
    char names[SAMPLING_ARGS_STAGES_MAX][64];                  /* of the stages, for the table */
    bool is_there, is_drawn;
};

/* Builds a sampler, with a live line. Returns 0 on success, 1 if interrupted by a signal, or the
 * library's status. */
int sampling_args_scan(struct stoker_sampler *sampler, struct stoker_error *error);
/* Opens the samplers of args; dataset NULL: a planned data set, which has no samplers. Returns an
 * exit status. */
int sampling_args_open(struct sampling_args *choice, const struct args *args,
                       struct stoker_dataset *dataset);
void sampling_args_close(struct sampling_args *choice); /* a zeroed one is allowed */

#endif
