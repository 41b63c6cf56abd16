/* programs/cli/jpeg_index_run.h: marks of JPEGs for the commands that make or check them: index,
 * pack, verify.
 *
 * Owner: the command. Threads: one. Memory: none. Bound: none. */
#ifndef PROGRAMS_CLI_JPEG_INDEX_RUN_H
#define PROGRAMS_CLI_JPEG_INDEX_RUN_H

#include "programs/cli/args.h"

/* A finished run; its path is empty when none was asked for, or there was nothing to check. */
struct marks_report {
    struct stoker_marker_progress progress; /* path: NULL */
    char path[4200];
    double seconds;
};

struct marks_job {
    struct stoker_engine *engine;
    const char *const *urls;
    size_t url_count;
    const char *index_path; /* NULL: beside the data */
    uint64_t mcus;          /* as the option says: 1: a row */
    bool check;
};
/* Exit status; errors are said, and a live line is drawn. */
int marks_run(const struct marks_job *job, struct marks_report *report_out);
void marks_print(const struct marks_report *report);
/* As members of an object that is open. */
void marks_print_json(const struct marks_report *report);

#endif
