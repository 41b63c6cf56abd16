/* tools/diff/diff.h: which samples two data sets do not have in common, by key and content.
 *
 *   open -> thread: content of a, of b | sort | merge | sort -> differences --> next
 *                   (rounds of the engine: a shard, or some files)
 *
 * A sample is 24 bytes here: a hash of its key, a hash of its members, its number. Checksums of an
 * index are taken for the contents; without them the bytes are read, each shard front to back.
 * Where both indexes have the SHA-256 of a shard, its samples are numbers of that and no more.
 * Owner: the user. Threads: one of its own, and the engine's workers for rounds.
 * Memory: 24 bytes a sample of both, out of the budget of the engine of `a`; a reader each round.
 * Bound: the samples of both; every loop looks at `job.stopping`. */
#ifndef TOOLS_DIFF_DIFF_H
#define TOOLS_DIFF_DIFF_H

#include "dataset/dataset.h"
#include "engine/background_job.h"

/* Until the merge: a sample. After it: a difference, `key` being the number of the sample on this
 * side and `content` on the other (STOKER_NO_SAMPLE: it has none). */
struct stk_diff_entry {
    uint64_t key, content, sample;
};

struct stk_diff_side {
    struct stoker_dataset *dataset; /* held */
    struct stk_diff_entry *entries; /* owned: one a sample; after the merge, one a difference */
    bool *shared_shards;            /* owned: shards that the other side has; NULL: none is */
    uint64_t samples;               /* so many the data set has */
    uint64_t count;                 /* of entries */
    uint64_t rounds, files_a_round; /* of files, or shards */
    uint64_t returned_count;        /* differences that next gave */
};

struct stoker_diff {
    struct stoker_engine *engine; /* held; of a; const after open, as all down to count */
    struct stk_diff_side sides[2];
    bool reread;
    bool mixed; /* one is a folder, one is tars: see stk_diff_content */
    uint64_t reserved, bytes_total;
    struct {
        _Atomic uint64_t samples, bytes, same, changed;
    } count;
    struct stk_background_job job;
};

/* ---- diff_shards.c ---- */

/* Finds the shards whose SHA-256 both indexes have. Of tars only, and unless all is read again. */
int stk_diff_pair_shards(struct stoker_diff *diff, struct stoker_error *error);

/* ---- diff_content.c ---- */

/* Whether the shard's bytes are to be read. */
bool stk_diff_must_read(const struct stoker_diff *diff, const struct stk_diff_side *side,
                        uint32_t shard);
/* A round: fills the entries of its shard or files. Where one side is a folder, a file's key is
 * split as a tar's name would be, and of tars only the pictures are looked at: a folder is the
 * same as what was packed of it. */
int stk_diff_content(struct stoker_diff *diff, struct stk_diff_side *side, uint64_t round,
                     struct stoker_error *error);
/* The key that a sample is compared by; lent as the sample's. */
struct stk_view stk_diff_key(const struct stoker_diff *diff, const struct stk_diff_side *side,
                             const struct stk_sample *sample);
enum { STK_DIFF_EXTENSION_MAX = 1025 };
/* What a member is compared as; NULL: not at all. In `space`, or lent by the index. */
const char *stk_diff_extension(const struct stoker_diff *diff, const struct stk_diff_side *side,
                               const struct stk_sample *sample, const struct stk_member *member,
                               char space[STK_DIFF_EXTENSION_MAX]);

/* ---- diff_member.c ---- */

/* Which members of two samples differ: "jpg +txt -json"; "jpg?": it may be. Reads both where they
 * are as long as each other and have no checksums. */
int stk_diff_members(const struct stoker_diff *diff, const uint64_t samples[2], char *text,
                     size_t capacity, struct stoker_error *error);

/* ---- diff_merge.c ---- */

/* Entries ascending by key, content, sample: both sides, in parallel. */
int stk_diff_sort(struct stoker_diff *diff, struct stoker_error *error);
/* Sorted sides -> differences: of a what was removed or changed, of b what was added; in the order
 * of the samples. */
int stk_diff_merge(struct stoker_diff *diff, struct stoker_error *error);

#endif
