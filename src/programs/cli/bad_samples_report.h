/* programs/cli/bad_samples_report.h: the table of damaged samples, of whoever has a list of them.
 * Owner: the caller. Threads: one. Memory: none. Bound: the list's. */
#ifndef PROGRAMS_CLI_BAD_SAMPLES_REPORT_H
#define PROGRAMS_CLI_BAD_SAMPLES_REPORT_H

#include <stoker/stoker.h>

struct bad_samples_list {
    uint64_t count, total; /* listed; damaged in all */
    /* Fills the entry; 0. */
    int (*at)(void *from, uint64_t index, struct stoker_quarantine_entry *entry);
    void *from;
};

/* Shard, key, offset, reason of each; nothing where there are none. */
void bad_samples_report(const struct bad_samples_list *list);
/* The array "bad". */
void bad_samples_json(const struct bad_samples_list *list);

#endif
