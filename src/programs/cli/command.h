/* programs/cli/command.h: steps that commands share: open what the options name, wait for a job of
 * the library while a live line is drawn, and turn the result into an exit status.
 *
 *   command_open* -> ... command_wait -> command_result
 *
 * Owner: run() of a command. Threads: one. Memory: what the library's objects need.
 * Bound: the options'. */
#ifndef PROGRAMS_CLI_COMMAND_H
#define PROGRAMS_CLI_COMMAND_H

#include "programs/cli/args.h"

#define COMMAND_TICK_MS 100u /* between two checks for Ctrl-C and updates of the live line */

/* Prints that the command needs a path, and its usage. Returns EXIT_USAGE. */
int command_no_path(const struct command *command);
/* The same for a command whose first word is an action: "ckpt ls". */
int command_no_action(const struct command *command);

/* Prints that no sample of a data set has the key. Returns EXIT_FINDINGS. */
int command_no_key(const char *path, const char *key);

/* Opens an engine with the options of args. Prints an error if it fails. Returns an exit status. */
int command_open_engine(const struct args *args, struct stoker_engine **engine_out);
/* Opens the node cache of --cache. required: else that of STOKER_CACHE_DIR, and only one that
 * exists. *cache_out NULL: none. Prints an error if it fails. Returns an exit status. */
int command_open_cache(const struct args *args, bool required, struct stoker_cache **cache_out);
/* The same as command_open_engine, and expands braces and globs in the paths of args. */
int command_open_files(struct args *args, struct stoker_engine **engine_out);
/* The same as command_open_engine, and opens the data set of the paths. */
int command_open_dataset(const struct args *args, struct stoker_engine **engine_out,
                         struct stoker_dataset **dataset_out);

/* A job of the library that a command waits for. */
struct command_job {
    /* Waits up to COMMAND_TICK_MS. Returns 1 or STOKER_ERROR_AGAIN while the job works, 2 after an
     * item was printed (no live line is drawn then), 0 at the end, or an error. */
    int (*next)(void *self, struct stoker_error *error);
    void (*draw)(const void *self); /* draws the live line */
    void *self;
    /* Stops the job after a signal: next() soon returns 0 if the job completed its work before it
     * stopped, or an error. NULL: a job that completes nothing at its end. */
    void (*stop)(void *self);
};
/* Waits for the end of a job, and draws a live line if there is a terminal. Returns 0 at the end, 1
 * if a signal (after main_defer_signals) or a closed stdout ended it before, or the error of the
 * job. */
int command_wait(const struct command_job *job, struct stoker_error *error);
/* Draws the live line of a job that reads: share (0 to 1), bytes, their rate, the remaining time,
 * and `more`. */
void command_live(double share, uint64_t bytes, double seconds, const char *more);
/* Prints an error of command_wait. Returns the exit status: of the error, of the signal, or
 * EXIT_FINE. */
int command_result(int status, const struct stoker_error *error);
/* Prints that the command was interrupted, what stays, and what the same command does; advice NULL:
 * it continues. Prints nothing if there was no signal (stdout was closed). Returns the exit status
 * of the signal. */
int command_interrupted(const char *what_stays, const char *advice);

#endif
