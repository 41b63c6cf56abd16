/* index/index_journal.h: what an indexing run has finished so far, so that one after a kill goes
 * on.
 *
 *   open --reads INDEX.part, INDEX.part.1 ...--> find; add -> the next INDEX.part.N; remove: all
 *
 * A record is a small index file of one shard, with its sums: what a kill left half is passed over.
 * Owner: the indexer. Threads: any for find and add after open.
 * Memory: what is mapped, and a small index a record. Bound: STK_INDEX_JOURNAL_FILES_MAX files. */
#ifndef INDEX_INDEX_JOURNAL_H
#define INDEX_INDEX_JOURNAL_H

#include "index/index.h"
#include "index/string_table.h"
#include "io/write.h"

#include <pthread.h>

#define STK_INDEX_JOURNAL_FILES_MAX 64u

struct stk_index_journal_entry {
    struct stk_index *index; /* owned: of this one shard */
    uint64_t mtime_ns;
};

struct stk_index_journal {
    struct stk_io *io;
    char path[STK_PATH_BYTES_MAX]; /* of the index */
    struct stk_view images[STK_INDEX_JOURNAL_FILES_MAX];
    uint32_t file_count;                     /* that were read */
    struct stk_string_table names;           /* of shards, below the root */
    struct stk_index_journal_entry *entries; /* owned: of each name */
    uint32_t entry_capacity;
    struct stk_file_lock *process_lock; /* owned: INDEX.lock: one run at a time has this journal */
    pthread_mutex_t lock;               /* of out and added */
    struct stk_output *out;
    bool added; /* this run has put a record, maybe half of one */
};

/* fresh: what is there is removed first. -EBUSY: another run has it. */
int stk_index_journal_open(struct stk_index_journal **journal_out, struct stk_io *io,
                           const char *index_path, bool fresh, struct stoker_error *error);
/* The files stay, but where there is nothing in them to go on from. */
void stk_index_journal_close(struct stk_index_journal *journal);
/* The one-shard index of a shard that has these bytes and mtime; NULL: none. */
const struct stk_index *stk_index_journal_find(const struct stk_index_journal *journal,
                                               const char *name, uint64_t bytes, uint64_t mtime_ns);
/* The file of an index of one shard. */
int stk_index_journal_add(struct stk_index_journal *journal, struct stk_view image,
                          uint64_t mtime_ns, struct stoker_error *error);
/* Removes the files: the index is there. */
int stk_index_journal_remove(struct stk_index_journal *journal, struct stoker_error *error);
/* Removes what a run left that was killed after its index was there. */
void stk_index_journal_remove_stale(struct stk_io *io, const char *index_path);

#endif
