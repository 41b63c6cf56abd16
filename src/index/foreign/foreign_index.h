/* index/foreign/foreign_index.h: shards told by indexes that other tools left beside them, used
 * instead of a scan.
 *
 *   STEM.idx (DALI) --names, places, sizes--> the shard's part of the index, not yet proved
 *                                               |
 *   a sample is read, and the headers before it +--> fits, or STOKER_ERROR_CHANGED
 *
 * At open such an index must be no older than its shard, must end where the shard's data ends, and
 * some of its places are looked at; if not, the shard is scanned and a note says why. What is
 * between two members is looked at when the second one is read, so nothing is used unproved.
 * Owner: the data set. Threads: any; a shard is scanned by one.
 * Memory: while a shard is read, its index. Bound: STK_DALI_INDEX_BYTES_MAX,
 * STK_FOREIGN_INDEX_GAP_MAX. */
#ifndef INDEX_FOREIGN_FOREIGN_INDEX_H
#define INDEX_FOREIGN_FOREIGN_INDEX_H

#include "index/foreign/wids_shards.h"
#include "index/index.h"
#include "io/io.h"

/* Headers between two members; with more of them a shard is scanned. */
#define STK_FOREIGN_INDEX_GAP_MAX 8192u

struct stk_foreign_index;

struct stk_foreign_index_listing {
    const char *text; /* lent, as are the paths */
    const uint64_t *paths;
    uint64_t count;
};

/* io: lent until close. */
int stk_foreign_index_open(struct stk_foreign_index **foreign_out, struct stk_io *io,
                           struct stoker_error *error);
void stk_foreign_index_close(struct stk_foreign_index *foreign);
/* Fills the shard from what lies beside it. 1: done; 0: it must be scanned (with a note, if there
 * was something); negative: what a scan would not survive either. */
int stk_foreign_index_read(struct stk_foreign_index *foreign, struct stk_index *index,
                           uint32_t shard, const char *path, struct stoker_error *error);
/* Where samples of a tar may begin, evenly over it: from the STEM.tar.idx of Energon beside it. */
#define STK_FOREIGN_INDEX_STARTS_MAX 32u
struct stk_foreign_index_starts {
    uint64_t starts[STK_FOREIGN_INDEX_STARTS_MAX];
    uint64_t count;   /* 0: there is none, or (with a note) it is not used */
    uint64_t samples; /* of the tar, as it is told */
};
int stk_foreign_index_find_starts(struct stk_foreign_index *foreign, const char *path,
                                  uint64_t tar_bytes, struct stk_foreign_index_starts *starts_out,
                                  struct stoker_error *error);
/* What the headers say to that: a start where no member begins, or UINT64_MAX; the samples. What is
 * read counts, and a difference is noted. told: NULL is fine. */
void stk_foreign_index_verify_starts(struct stk_foreign_index *foreign, const char *path,
                                     const struct stk_foreign_index_starts *starts,
                                     uint64_t refuted, uint64_t samples);
/* How many tars had starts that were right. NULL: 0. */
uint64_t stk_foreign_index_used(const struct stk_foreign_index *foreign);
/* How many shards of an index are still hearsay (stk_index_shard_is_unverified). */
uint64_t stk_foreign_index_unverified(const struct stk_index *index);
/* For who reads members without their headers: UNSUPPORTED if there are any. */
int stk_foreign_index_require_verified(const struct stk_index *index, struct stoker_error *error);
/* The first reason why something was not used, or "" (also of NULL); lent until close.
 * After the scans. */
const char *stk_foreign_index_note(const struct stk_foreign_index *foreign);
/* What the JSON that widsindex leaves by default ("shardindex.json" in the folder, which ends with
 * '/') says of the shards that are listed, text + paths[0] and so on, in their order: for compare.
 * shards_out: without `told` where there is none. That it names others, or not all, is noted. */
int stk_foreign_index_find(struct stk_foreign_index *foreign, const char *folder,
                           const struct stk_foreign_index_listing *listing,
                           struct stk_wids_shards *shards_out, struct stoker_error *error);
/* Notes what a JSON of wids says otherwise of the shards of a finished index: what is read counts.
 */
void stk_foreign_index_compare(struct stk_foreign_index *foreign,
                               const struct stk_wids_shards *shards, const struct stk_index *index);
/* Where the headers before a member of an unproved shard begin. sample_id: of the data set. */
int stk_foreign_index_header_offset(const struct stk_index *index, const struct stk_sample *sample,
                                    uint64_t sample_id, uint32_t member, uint64_t *offset_out,
                                    struct stoker_error *error);
/* The bytes from there up to the member: CHANGED unless they are its headers and nothing else
 * that belongs to a sample. */
int stk_foreign_index_check(const struct stk_index *index, struct stk_view headers,
                            struct stk_view key, const struct stk_member *member,
                            struct stoker_error *error);

#endif
