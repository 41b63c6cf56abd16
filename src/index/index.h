/* index/index.h: the samples of a data set, in memory, const after finish.
 *
 *   init -> shards in any order, from any thread (one builder each) -> finish -> look-ups
 *
 * Pure: fed with members by the loader's scan. A file for it comes later: the arrays are flat.
 * Owner: the dataset. Threads: a builder: one; finish: one; look-ups (after finish): any.
 * Memory: 10 bytes a member (18 in a shard past 2 TiB or with a member past 4 GiB), 8 and the key
 * a sample; a file of a folder: 32 and its path.
 * Bound: 2^30 members and 2 GiB of keys a shard, 65,536 extensions of up to 1,024 bytes. */
#ifndef INDEX_INDEX_H
#define INDEX_INDEX_H

#include "base/base.h"

struct stk_index;

struct stk_index_options {
    uint64_t shard_count;   /* at most 2^32 - 1 */
    uint32_t key_bytes_max; /* 0: 4,096 */
    uint32_t join_distance; /* members that may lie between parts of one sample */
};

int stk_index_open(struct stk_index **index_out, const struct stk_index_options *options,
                   struct stoker_error *error);
void stk_index_close(struct stk_index *index);

/* A shard's part, filled by one thread: either members of one tar or one file. path: borrowed. */
struct stk_shard_builder;
int stk_shard_begin(struct stk_index *index, uint32_t shard, const char *path,
                    struct stk_shard_builder **builder_out, struct stoker_error *error);
/* A regular member of a tar, in storage order. Groups by webdataset's key; names that it skips
 * are skipped. A key that comes again further than join_distance members later: SCATTERED;
 * a name unfit for a key: CORRUPT; an extension twice in a sample: CORRUPT, found by
 * stk_shard_end. error->shard, offset (of the data) and key say where. */
int stk_shard_add(struct stk_shard_builder *builder, struct stk_view name, uint64_t offset,
                  uint64_t bytes, struct stoker_error *error);
/* One file of a folder: the sample is the object itself; key = its path below the root. Once a
 * builder; the extension is given without its dot. */
int stk_shard_add_file(struct stk_shard_builder *builder, struct stk_view key,
                       struct stk_view extension, int64_t label, struct stoker_error *error);
/* Takes the builder. packing: enum stk_packing. An empty shard is fine. After a failure here or
 * in add the index can only be closed. */
int stk_shard_end(struct stk_shard_builder *builder, uint64_t object_bytes, uint32_t packing,
                  struct stoker_error *error);
void stk_shard_abandon(struct stk_shard_builder *builder);

/* After all shards: numbers the samples in storage order and the extensions by their text, makes
 * the identity: all of it the same whatever thread added what when. block_bytes (0: 8 MiB) sets
 * block_samples = round(block_bytes / mean sample bytes), at least 1 (256 for folders, and where
 * no sample has bytes). */
int stk_index_finish(struct stk_index *index, uint32_t block_bytes, struct stoker_error *error);

struct stk_sample {
    uint32_t shard;
    uint32_t member_count;
    uint64_t first_member; /* in the shard; for stk_index_member */
    struct stk_view key;   /* lent until close */
    int64_t label;         /* folder: class; tar: -1 */
};

uint64_t stk_index_samples(const struct stk_index *index);
uint64_t stk_index_members(const struct stk_index *index);
uint64_t stk_index_bytes(const struct stk_index *index);
uint64_t stk_index_block_samples(const struct stk_index *index);
bool stk_index_sequential(const struct stk_index *index); /* any packed shard */
/* 32 bytes: SHA-256 of the shards' base names and sizes, and of all keys, extensions, offsets
 * and sizes. Folders: keys and labels. */
const uint8_t *stk_index_identity(const struct stk_index *index);
void stk_index_sample(const struct stk_index *index, uint64_t sample,
                      struct stk_sample *sample_out);
void stk_index_member(const struct stk_index *index, const struct stk_sample *sample,
                      uint32_t member, struct stk_member *member_out);
const char *stk_index_shard_path(const struct stk_index *index, uint32_t shard);
uint64_t stk_index_shard_bytes(const struct stk_index *index, uint32_t shard);
uint32_t stk_index_shard_packing(const struct stk_index *index, uint32_t shard);
const char *stk_index_extension(const struct stk_index *index, uint32_t extension);
/* -1: no member of the data set has it. */
int64_t stk_index_extension_id(const struct stk_index *index, const char *extension);

#endif
