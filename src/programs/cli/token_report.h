/* programs/cli/token_report.h: token files and text in `info`, `ls` and `bench data`.
 *
 *   paths --names--> token_report_matches --> info | ls | bench: one line a file, or a table
 *
 * Owner: run() of a command. Threads: one. Memory: what the library's objects need.
 * Bound: the options'. */
#ifndef PROGRAMS_CLI_TOKEN_REPORT_H
#define PROGRAMS_CLI_TOKEN_REPORT_H

#include "programs/cli/args.h"

/* Returns true if all paths name token files (.npy, .bin, .idx) or text (.jsonl, .ndjson, .jl,
 * .txt), also compressed by zstd. */
bool token_report_matches(const struct args *args);
/* Each opens the files, prints, and returns an exit status. bench: batches of 32 windows of 1,024
 * tokens, or of 256 lines. */
int token_report_info(struct args *args);
int token_report_ls(struct args *args);
int token_report_bench(struct args *args);

#endif
