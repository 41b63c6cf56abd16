/* programs/cli/jpeg_index_run.h: builds or verifies the JPEG index, for the commands index, pack
 * and verify.
 *
 * Owner: the command. Threads: one. Memory: none. Bound: none. */
#ifndef PROGRAMS_CLI_JPEG_INDEX_RUN_H
#define PROGRAMS_CLI_JPEG_INDEX_RUN_H

#include "programs/cli/args.h"

/* Result of a run; the path is empty if there was no run or nothing to verify. */
struct jpeg_index_report {
    struct stoker_jpeg_indexer_progress progress; /* path: NULL */
    char path[4200];
    double seconds;
};

struct jpeg_index_job {
    struct stoker_engine *engine;
    const char *const *urls;
    size_t url_count;
    const char *index_path; /* NULL: next to the data */
    uint64_t mcus;          /* as the option: 1: one entry point a row */
    bool check;
    const char *interrupted, *advice; /* messages after a signal */
};
/* Runs with a live line. Prints an error if it fails. Returns an exit status. */
int jpeg_index_run(const struct jpeg_index_job *job, struct jpeg_index_report *report_out);
void jpeg_index_report_print(const struct jpeg_index_report *report);
/* Prints members of the current JSON object. */
void jpeg_index_report_json(const struct jpeg_index_report *report);

#endif
