/* programs/cli/copy_report.h: reports of single files by stoker cp, sync, mv and rm, and the list
 * of names that --files-from reads.
 *
 *   stoker_copy_next_note --> stderr as they come, or lists of the JSON object
 *
 * Owner: run() of a command. Threads: one. Memory: the notes of --json, and
 * the names. Bound: COPY_NAMES_BYTES_MAX. */
#ifndef PROGRAMS_CLI_COPY_REPORT_H
#define PROGRAMS_CLI_COPY_REPORT_H

#include "programs/cli/args.h"

#define COPY_NAMES_BYTES_MAX (1ull << 30)

/* A note for the JSON object. */
struct copy_report_note {
    char *text;    /* owned: all texts */
    uint32_t kind; /* enum stoker_copy_note_kind */
    int32_t status;
    const char *name, *to, *what, *where, *advice;
};

struct copy_report {
    struct stoker_copy *copy; /* borrowed */
    struct stoker_copy_progress progress;
    bool json, dry_run;
    struct copy_report_note *notes; /* of --json; owned */
    size_t count, capacity;
    uint64_t left_out;          /* notes that say so */
    struct stoker_error failed; /* the first that was printed; status 0: none */
};

/* Takes all notes that wait. */
void copy_report_take(struct copy_report *report);
/* Prints the failure that ended the copy, unless it was printed as a note. Returns the exit
 * status. */
int copy_report_failure(struct copy_report *report, int status, const struct stoker_error *error);
/* Prints the result. kind: enum stoker_copy_kind. */
void copy_report_print(struct copy_report *report, uint32_t kind);
/* Frees the notes. */
void copy_report_deinit(struct copy_report *report);

/* Reads names from a file, or from stdin for "-". Returns an exit status; EXIT_FINE: the caller
 * frees *names_out, which has the text of the names, too. */
int copy_names_read(const char *path, const char *const **names_out, size_t *count_out);

#endif
