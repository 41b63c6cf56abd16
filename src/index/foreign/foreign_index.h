/* index/foreign/foreign_index.h: uses index files of other tools next to the shards, instead of a
 * scan.
 *
 *   STEM.idx (DALI) --names, offsets, sizes--> the shard's part of the index, unverified
 *                                               |
 *   a sample is read, with the headers before it +--> they match, or STOKER_ERROR_CHANGED
 *
 * When a data set is opened, such an index must not be older than its shard, must end at the end
 * of the shard's data, and some of its offsets are verified; else the shard is scanned, and a note
 * says why. The headers between two members are verified when the second member is read, so no
 * unverified data is used.
 * Owner: the data set. Threads: any; a shard is scanned by one.
 * Memory: while a shard is read, its index.
 * Bound: STK_DALI_INDEX_BYTES_MAX, STK_FOREIGN_INDEX_GAP_MAX. */
#ifndef INDEX_FOREIGN_FOREIGN_INDEX_H
#define INDEX_FOREIGN_FOREIGN_INDEX_H

#include "index/foreign/wids_shards.h"
#include "index/index.h"
#include "io/io.h"

/* Bytes of headers between two members. If there are more, the shard is scanned. */
#define STK_FOREIGN_INDEX_GAP_MAX 8192u

struct stk_foreign_index;

struct stk_foreign_index_listing {
    const char *text; /* borrowed, as are the paths */
    const uint64_t *paths;
    uint64_t count;
};

/* io: borrowed until close. */
int stk_foreign_index_open(struct stk_foreign_index **foreign_out, struct stk_io *io,
                           struct stoker_error *error);
void stk_foreign_index_close(struct stk_foreign_index *foreign);
/* Makes the shard of the index file next to it. Returns 1; 0 if the shard must be scanned (with a
 * note if there was an index file); or an error that would also stop a scan. */
int stk_foreign_index_read(struct stk_foreign_index *foreign, struct stk_index *index,
                           uint32_t shard, const char *path, struct stoker_error *error);
/* Offsets where samples of a tar probably begin, evenly distributed: from Energon's STEM.tar.idx.
 */
#define STK_FOREIGN_INDEX_STARTS_MAX 32u
struct stk_foreign_index_starts {
    uint64_t starts[STK_FOREIGN_INDEX_STARTS_MAX];
    uint64_t count;   /* 0: there is no index file, or (with a note) it is not used */
    uint64_t samples; /* of the tar, by the index file */
};
int stk_foreign_index_find_starts(struct stk_foreign_index *foreign, const char *path,
                                  uint64_t tar_bytes, struct stk_foreign_index_starts *starts_out,
                                  struct stoker_error *error);
/* Compares the starts with a scan. refuted: a start where no member begins, or UINT64_MAX; samples:
 * found by the scan. The scan counts; a difference becomes a note. foreign: NULL is allowed. */
void stk_foreign_index_verify_starts(struct stk_foreign_index *foreign, const char *path,
                                     const struct stk_foreign_index_starts *starts,
                                     uint64_t refuted, uint64_t samples);
/* The number of tars whose starts were right. NULL: 0. */
uint64_t stk_foreign_index_used(const struct stk_foreign_index *foreign);
/* The number of unverified shards of an index (stk_index_shard_is_unverified). */
uint64_t stk_foreign_index_unverified(const struct stk_index *index);
/* For callers that read members without their headers. Returns 0, or STOKER_ERROR_UNSUPPORTED if
 * there are unverified shards. */
int stk_foreign_index_require_verified(const struct stk_index *index, struct stoker_error *error);
/* The first reason why an index file was not used, or "" (also for NULL); valid until close. Call
 * it after the scans. */
const char *stk_foreign_index_note(const struct stk_foreign_index *foreign);
/* Reads the JSON file of widsindex ("shardindex.json" in the folder, which ends with '/') for the
 * shards of the listing, in their order, for stk_foreign_index_compare. Shards that are missing on
 * either side become a note. */
int stk_foreign_index_find(struct stk_foreign_index *foreign, const char *folder,
                           const struct stk_foreign_index_listing *listing,
                           struct stk_wids_shards *shards_out, struct stoker_error *error);
/* Compares a JSON file of wids with a finished index. The index counts; a difference becomes a
 * note. */
void stk_foreign_index_compare(struct stk_foreign_index *foreign,
                               const struct stk_wids_shards *shards, const struct stk_index *index);
/* Sets *offset_out to the begin of the headers before a member of an unverified shard. sample_id:
 * of the data set. */
int stk_foreign_index_header_offset(const struct stk_index *index, const struct stk_sample *sample,
                                    uint64_t sample_id, uint32_t member, uint64_t *offset_out,
                                    struct stoker_error *error);
/* headers: the bytes from there to the member. Returns 0, -ENOMEM, or STOKER_ERROR_CHANGED unless
 * they are the headers of this member, and of no other member of a sample. */
int stk_foreign_index_check(const struct stk_index *index, struct stk_view headers,
                            struct stk_view key, const struct stk_member *member,
                            struct stoker_error *error);

#endif
