/* programs/cli/jpeg_index_run.h: marks of JPEGs for the commands that make or check them: index,
 * pack, verify.
 *
 * Owner: the command. Threads: one. Memory: none. Bound: none. */
#ifndef PROGRAMS_CLI_JPEG_INDEX_RUN_H
#define PROGRAMS_CLI_JPEG_INDEX_RUN_H

#include "programs/cli/args.h"

/* A finished run; its path is empty when none was asked for, or there was nothing to check. */
struct jpeg_index_report {
    struct stoker_jpeg_indexer_progress progress; /* path: NULL */
    char path[4200];
    double seconds;
};

struct jpeg_index_job {
    struct stoker_engine *engine;
    const char *const *urls;
    size_t url_count;
    const char *index_path; /* NULL: beside the data */
    uint64_t mcus;          /* as the option says: 1: a row */
    bool check;
};
/* Exit status; errors are said, and a live line is drawn. */
int jpeg_index_run(const struct jpeg_index_job *job, struct jpeg_index_report *report_out);
void jpeg_index_report_print(const struct jpeg_index_report *report);
/* As members of an object that is open. */
void jpeg_index_report_json(const struct jpeg_index_report *report);

#endif
