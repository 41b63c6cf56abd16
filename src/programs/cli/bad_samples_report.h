/* programs/cli/bad_samples_report.h: prints a quarantine list as a table or as JSON.
 * Owner: the caller. Threads: one. Memory: none. Bound: the list's. */
#ifndef PROGRAMS_CLI_BAD_SAMPLES_REPORT_H
#define PROGRAMS_CLI_BAD_SAMPLES_REPORT_H

#include <stoker/stoker.h>

struct bad_samples_list {
    uint64_t count, total; /* listed; all damaged samples */
    /* Fills the entry and returns 0. */
    int (*at)(void *from, uint64_t index, struct stoker_quarantine_entry *entry);
    void *from;
};

/* Prints shard, key, offset and reason of each; nothing if the list is empty. */
void bad_samples_report(const struct bad_samples_list *list);
/* Prints the member "bad": [...] of the current JSON object. */
void bad_samples_json(const struct bad_samples_list *list);

#endif
