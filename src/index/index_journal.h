/* index/index_journal.h: the shards that an indexing run has finished, so that a run after a crash
 * resumes.
 *
 *   open --reads INDEX.part, INDEX.part.1 ...--> find; add -> next INDEX.part.N; remove: all
 *
 * A record is a small index file of one shard, with checksums. A record that a crash left
 * incomplete is skipped.
 * Owner: the indexer. Threads: any for find and add after open.
 * Memory: the mapped files, and a small index per record.
 * Bound: STK_INDEX_JOURNAL_FILES_MAX files. */
#ifndef INDEX_INDEX_JOURNAL_H
#define INDEX_INDEX_JOURNAL_H

#include "index/index.h"
#include "index/string_table.h"
#include "io/write.h"

#include <pthread.h>

#define STK_INDEX_JOURNAL_FILES_MAX 64u

struct stk_index_journal_entry {
    struct stk_index *index; /* owned: of this shard only */
    uint64_t mtime_ns;
};

struct stk_index_journal {
    struct stk_io *io;
    char path[STK_PATH_BYTES_MAX]; /* of the index */
    struct stk_view images[STK_INDEX_JOURNAL_FILES_MAX];
    uint32_t file_count;                     /* files that were read */
    struct stk_string_table names;           /* of shards, below the root */
    struct stk_index_journal_entry *entries; /* owned: of each name */
    uint32_t entry_capacity;
    struct stk_file_lock *process_lock; /* owned: INDEX.lock: one run at a time uses this journal */
    pthread_mutex_t lock;               /* of out and added */
    struct stk_output *out;
    bool added; /* this run wrote a record, or a part of one */
};

/* fresh: removes existing files first. Returns 0, -ENOMEM, -EBUSY if another run uses the journal,
 * or an I/O error. */
int stk_index_journal_open(struct stk_index_journal **journal_out, struct stk_io *io,
                           const char *index_path, bool fresh, struct stoker_error *error);
/* Keeps the files that have records, and removes empty ones. */
void stk_index_journal_close(struct stk_index_journal *journal);
/* Returns the index of a shard with this size and mtime, or NULL. */
const struct stk_index *stk_index_journal_find(const struct stk_index_journal *journal,
                                               const char *name, uint64_t bytes, uint64_t mtime_ns);
/* Adds the image of an index of one shard. */
int stk_index_journal_add(struct stk_index_journal *journal, struct stk_view image,
                          uint64_t mtime_ns, struct stoker_error *error);
/* Removes the files, after the index was written. */
int stk_index_journal_remove(struct stk_index_journal *journal, struct stoker_error *error);
/* Removes the files of a run that was killed after it wrote its index. */
void stk_index_journal_remove_stale(struct stk_io *io, const char *index_path);

#endif
