/* programs/cli/cmd_stat.h: what ls and cat do with files, not samples.
 *
 * Owner: main. Threads: one. Memory: a buffer of one read. Bound: none. */
#ifndef PROGRAMS_CLI_CMD_STAT_H
#define PROGRAMS_CLI_CMD_STAT_H

#include "programs/cli/args.h"

/* Lines of what lies at a path; the exit status. */
int stat_list_files(struct stoker_engine *engine, const struct args *args, const char *path);
/* The bytes of a file or object on stdout. */
int stat_write_file(struct stoker_engine *engine, const char *path);

#endif
