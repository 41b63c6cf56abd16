/* programs/cli/cmd_stat.h: listing and reading of files, for the commands ls and cat.
 *
 * Owner: main. Threads: one. Memory: a buffer of one read. Bound: none. */
#ifndef PROGRAMS_CLI_CMD_STAT_H
#define PROGRAMS_CLI_CMD_STAT_H

#include "programs/cli/args.h"

/* Prints a line for each file below a path. Returns an exit status. */
int stat_list_files(struct stoker_engine *engine, const struct args *args, const char *path);
/* Writes the bytes of a file or object to stdout. Returns an exit status. */
int stat_write_file(struct stoker_engine *engine, const char *path);

#endif
