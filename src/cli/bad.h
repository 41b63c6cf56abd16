/* cli/bad.h: the table of damaged samples, of whoever has a list of them.
 * Owner: the caller. Threads: one. Memory: none. Bound: the list's. */
#ifndef CLI_BAD_H
#define CLI_BAD_H

#include <stoker/stoker.h>

struct bad_list {
    uint64_t count, total; /* listed; damaged in all */
    /* Fills the entry; 0. */
    int (*at)(void *from, uint64_t index, struct stoker_quarantine_entry *entry);
    void *from;
};

/* Shard, key, offset, reason of each; nothing where there are none. */
void bad_report(const struct bad_list *list);
/* The array "bad". */
void bad_json(const struct bad_list *list);

#endif
