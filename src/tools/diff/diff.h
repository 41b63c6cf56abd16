/* tools/diff/diff.h: finds the samples in which two data sets differ, by key and content.
 *
 *   open -> thread: content of a, of b | sort | merge | sort -> differences --> next
 *                   (rounds of the engine: a shard, or some files)
 *
 * A sample takes 24 bytes: a hash of its key, a hash of its members, its number. Checksums in an
 * index replace the contents; without them each shard is read from front to back. If both indexes
 * have the same SHA-256 of a shard, the hashes of its samples are derived from it.
 * Owner: the user. Threads: one of its own, and the engine's workers for rounds.
 * Memory: 24 bytes for each sample of both, of the budget of the engine of `a`; a reader for each
 * round.
 * Bound: the samples of both; every loop looks at `job.stopping`. */
#ifndef TOOLS_DIFF_DIFF_H
#define TOOLS_DIFF_DIFF_H

#include "dataset/dataset.h"
#include "engine/background_job.h"

/* Before the merge: a sample. After it: a difference; `key` is the number of the sample on this
 * side and `content` on the other (STOKER_NO_SAMPLE: missing there). */
struct stk_diff_entry {
    uint64_t key, content, sample;
};

struct stk_diff_side {
    struct stoker_dataset *dataset; /* held */
    struct stk_diff_entry
        *entries;        /* owned: one for each sample; after the merge, for each difference */
    bool *shared_shards; /* owned: shards that the other side has, too; NULL: none */
    uint64_t samples;    /* of the data set */
    uint64_t count;      /* of entries */
    uint64_t rounds, files_a_round; /* of files, or shards */
    uint64_t returned_count;        /* differences that next() returned */
};

struct stoker_diff {
    struct stoker_engine *engine; /* held; of a; const after open, as all down to count */
    struct stk_diff_side sides[2];
    bool reread;
    bool mixed; /* one is a folder, the other tars: see stk_diff_content */
    uint64_t reserved, bytes_total;
    struct {
        _Atomic uint64_t samples, bytes, same, changed;
    } count;
    struct stk_background_job job;
};

/* ---- diff_shards.c ---- */

/* Finds the shards whose SHA-256 both indexes have. Does nothing for folders, or with `reread`. */
int stk_diff_pair_shards(struct stoker_diff *diff, struct stoker_error *error);

/* ---- diff_content.c ---- */

/* Returns true if the shard's bytes must be read. */
bool stk_diff_must_read(const struct stoker_diff *diff, const struct stk_diff_side *side,
                        uint32_t shard);
/* A round: fills the entries of its shard or files. If only one side is a folder, the keys of its
 * files are split like names in a tar, and only images of the tars are compared: a folder equals
 * the shards that were packed from it. */
int stk_diff_content(struct stoker_diff *diff, struct stk_diff_side *side, uint64_t round,
                     struct stoker_error *error);
/* The key by which a sample is compared; valid as long as the sample's. */
struct stk_view stk_diff_key(const struct stoker_diff *diff, const struct stk_diff_side *side,
                             const struct stk_sample *sample);
enum { STK_DIFF_EXTENSION_MAX = 1025 };
/* Returns the extension under which a member is compared, in `space` or in the index; NULL: the
 * member is not compared. */
const char *stk_diff_extension(const struct stoker_diff *diff, const struct stk_diff_side *side,
                               const struct stk_sample *sample, const struct stk_member *member,
                               char space[STK_DIFF_EXTENSION_MAX]);

/* ---- diff_member.c ---- */

/* Writes the members in which two samples differ: "jpg +txt -json"; "jpg?": it may differ. Reads
 * members of equal size that have no checksums. */
int stk_diff_members(const struct stoker_diff *diff, const uint64_t samples[2], char *text,
                     size_t capacity, struct stoker_error *error);

/* ---- diff_merge.c ---- */

/* Sorts the entries of both sides by key, content and sample, in parallel. */
int stk_diff_sort(struct stoker_diff *diff, struct stoker_error *error);
/* Reduces sorted sides to differences: removed and changed samples on side a, added samples on side
 * b; in the order of samples. */
int stk_diff_merge(struct stoker_diff *diff, struct stoker_error *error);

#endif
