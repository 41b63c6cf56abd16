/* programs/cli/sampling_args.h: samples that the command line chooses: --subset, --weights,
 * --balance and the like.
 *
 *   struct args --chosen_open--> samplers, scanned with progress --> sampling options
 *
 * Owner: run() of a command. Threads: one. Memory: what the samplers take. Bound: CHOSEN_STAGES_MAX
 * stages. */
#ifndef PROGRAMS_CLI_SAMPLING_ARGS_H
#define PROGRAMS_CLI_SAMPLING_ARGS_H

#include "programs/cli/args.h"

#define CHOSEN_STAGES_MAX 32
#define CHOSEN_TEXT_MAX 4096

struct choice {
    struct stoker_sampling_options options;
    struct stoker_stage stages[CHOSEN_STAGES_MAX];
    struct stoker_sampler *samplers[CHOSEN_STAGES_MAX]; /* owned */
    char names[CHOSEN_STAGES_MAX][64];                  /* of the stages, for tables */
    bool is_there, is_drawn;
};

/* Scans to the end, or to a signal, with progress. 0, 1: interrupted; or the library's status. */
int chosen_make(struct stoker_sampler *sampler, struct stoker_error *error);
/* What args choose of a data set (NULL: it is only planned, and nothing can be); an exit status. */
int chosen_open(struct choice *choice, const struct args *args, struct stoker_dataset *dataset);
void chosen_close(struct choice *choice); /* zeroed is fine */

#endif
