/* index/index.h: the samples of a data set, in memory or in a file that is mapped.
 *
 *   open -> shards in any order, from any thread (one builder each) -> finish -> look-ups
 *                                                                       |          ^
 *                                                                     write -file- map
 *
 * Fed with members by the scan. A file's pages are checked at their first touch, so a look-up may
 * fail: CORRUPT names the file and the offset. Nothing in a file is trusted, right checksums or
 * not. The format: index/index_file.h and docs/formats.md.
 * Owner: the dataset. Threads: a builder: one; finish, write: one; look-ups (after finish): any.
 * Memory: 10 bytes a member (18 in a shard past 2 TiB or with a member past 4 GiB), 8 and the key
 * a sample, 8 more for each checksum or label; a file of a folder: 32 and its path. Mapped: a bit
 * a page, and what the kernel keeps.
 * Bound: 2^30 members and 2 GiB of keys a shard, 65,536 extensions of up to 1,024 bytes. */
#ifndef INDEX_INDEX_H
#define INDEX_INDEX_H

#include "base/base.h"

struct stk_index;
struct stk_io;

/* A path of a shard, with its NUL: more cannot be opened. */
#define STK_PATH_BYTES_MAX 4096

struct stk_index_options {
    uint64_t shard_count;   /* at most 2^32 - 1 */
    uint32_t key_bytes_max; /* 0: 4,096 */
    uint32_t join_distance; /* members that may lie between parts of one sample */
};

int stk_index_open(struct stk_index **index_out, const struct stk_index_options *options,
                   struct stoker_error *error);
void stk_index_close(struct stk_index *index);

/* A shard's part, filled by one thread: either members of one tar or one file. path: borrowed. */
struct stk_index_shard_builder;
int stk_index_shard_begin(struct stk_index *index, uint32_t shard, const char *path,
                          struct stk_index_shard_builder **builder_out, struct stoker_error *error);
/* A regular member of a tar, in storage order. Groups by webdataset's key; names that it skips
 * are skipped. A key that comes again further than join_distance members later: SCATTERED;
 * a name unfit for a key: CORRUPT; an extension twice in a sample: CORRUPT, found by
 * stk_index_shard_end. error->shard, offset (of the data) and key say where. */
int stk_index_shard_add(struct stk_index_shard_builder *builder, struct stk_view name,
                        uint64_t offset, uint64_t bytes, struct stoker_error *error);
/* XXH3-64 of the bytes of the member just added; ignored for one that was skipped. All members
 * of a shard have one or none has: else ARGUMENT by stk_index_shard_end. */
int stk_index_shard_set_checksum(struct stk_index_shard_builder *builder, uint64_t sum,
                                 struct stoker_error *error);
/* The label of the sample that the member just added belongs to. Samples without one: -1. */
int stk_index_shard_set_label(struct stk_index_shard_builder *builder, int64_t label,
                              struct stoker_error *error);
/* SHA-256 of the whole shard file. */
void stk_index_shard_set_digest(struct stk_index_shard_builder *builder, const uint8_t sha256[32]);
/* Access points of a packed shard (format/compress/seek_points.h); takes the image, which was
 * stk_alloc'ed and has at most STK_SEEK_POINTS_IMAGE_MAX bytes. */
void stk_index_shard_set_seek_points(struct stk_index_shard_builder *builder,
                                     struct stk_view image);
/* The members are hearsay: whoever reads one compares it with its headers. Such an index is not
 * written. */
void stk_index_shard_set_unverified(struct stk_index_shard_builder *builder);
/* One file of a folder: the sample is the object itself; key = its path below the root. Once a
 * builder; the extension is given without its dot. */
int stk_index_shard_add_file(struct stk_index_shard_builder *builder, struct stk_view key,
                             struct stk_view extension, int64_t label, struct stoker_error *error);
/* Takes the builder. packing: enum stk_compression. An empty shard is fine. After a failure here or
 * in add the index can only be closed. */
int stk_index_shard_end(struct stk_index_shard_builder *builder, uint64_t object_bytes,
                        uint32_t compression, struct stoker_error *error);
void stk_index_shard_cancel(struct stk_index_shard_builder *builder);
/* Instead of a builder: the part that a finished or mapped index of tars has of a shard. CORRUPT if
 * that is damaged (only a mapped one): scan it then. */
int stk_index_shard_copy(struct stk_index *index, uint32_t shard, const char *path,
                         const struct stk_index *from, uint32_t from_shard,
                         struct stoker_error *error);

/* Class names in the order of their numbers, before write; for a tar they are an extra. */
int stk_index_add_class(struct stk_index *index, const char *name, struct stoker_error *error);

/* After all shards: numbers the samples in storage order and the extensions by their text, makes
 * the identity: all of it the same whatever thread added what when. block_bytes (0: 8 MiB) sets
 * block_samples = round(block_bytes / mean sample bytes), at least 1 (256 for folders, and where
 * no sample has bytes). */
int stk_index_finish(struct stk_index *index, uint32_t block_bytes, struct stoker_error *error);
/* Instead of what finish chose; a mapped index may be told, too. block_samples 0: by
 * block_bytes, as finish does it. */
void stk_index_set_block(struct stk_index *index, uint64_t block_samples, uint32_t block_bytes);

/* What stands before the paths in a file: "data/", "/" or nothing; copied. Before write: every
 * shard lies below it. After map: where the data is. By default all up to the last '/' of the
 * path of the file. */
int stk_index_set_root(struct stk_index *index, const char *root, struct stoker_error *error);
/* A finished index -> a file: path.new, sync, rename, sync of the directory. The same bytes for
 * the same data, wherever it lies. Not of a mapped index. */
int stk_index_write(const struct stk_index *index, struct stk_io *io, const char *path,
                    struct stoker_error *error);
/* The same bytes in memory, given: stk_free. */
int stk_index_image(const struct stk_index *index, const char *root, struct stk_view *image_out,
                    struct stoker_error *error);
/* O(1) in samples and members: reads the foot, the table of pages and the records of tars.
 * CORRUPT, TRUNCATED, FORMAT (no index), UNSUPPORTED (a later version). The file may be replaced
 * while it is mapped, as write does it, but not be cut. io: lent until close. */
int stk_index_open_file(struct stk_index **index_out, struct stk_io *io, const char *path,
                        struct stoker_error *error);
/* The same on bytes in memory, lent until close and 8-aligned; name: for errors, copied. */
int stk_index_open_image(struct stk_index **index_out, struct stk_view image, const char *name,
                         struct stoker_error *error);

struct stk_sample {
    uint32_t shard;
    uint32_t member_count;
    uint64_t first_member; /* in the shard; for stk_index_member */
    uint64_t number;       /* in the shard */
    struct stk_view key;   /* lent until close */
    int64_t label;         /* folder: class; tar: what stk_index_shard_set_label said, or -1 */
};

uint64_t stk_index_shards(const struct stk_index *index);
uint64_t stk_index_samples(const struct stk_index *index);
uint64_t stk_index_members(const struct stk_index *index);
uint64_t stk_index_bytes(const struct stk_index *index);
/* Of the heap; a mapped index has next to none. The whole: after finish. Of one shard: after
 * stk_index_shard_end. */
uint64_t stk_index_memory_bytes(const struct stk_index *index);
uint64_t stk_index_shard_memory_bytes(const struct stk_index *index, uint64_t shard);
uint64_t stk_index_block_samples(const struct stk_index *index);
bool stk_index_is_folder(const struct stk_index *index); /* has files; false if empty */
/* The shard is one file of a folder. An index put together in memory may have both kinds. */
bool stk_index_is_file(const struct stk_index *index, uint32_t shard);
bool stk_index_is_sequential(const struct stk_index *index); /* any packed shard out of reach */
/* 32 bytes: SHA-256 of the shards' base names and sizes, and of all keys, extensions, offsets
 * and sizes. Folders: keys and labels. */
const uint8_t *stk_index_identity(const struct stk_index *index);
/* What the shards were grouped with. */
uint32_t stk_index_join_distance(const struct stk_index *index);
uint32_t stk_index_key_bytes_max(const struct stk_index *index);

/* Negative only for a mapped index: CORRUPT, and what was asked for is untouched. */
int stk_index_sample(const struct stk_index *index, uint64_t sample, struct stk_sample *sample_out,
                     struct stoker_error *error);
int stk_index_member(const struct stk_index *index, const struct stk_sample *sample,
                     uint32_t member, struct stk_member *member_out, struct stoker_error *error);
/* XXH3-64 of the member's bytes. MISSING: the shard was indexed without. */
int stk_index_checksum(const struct stk_index *index, const struct stk_sample *sample,
                       uint32_t member, uint64_t *sum_out, struct stoker_error *error);
/* The shard's path, to be opened. LIMIT: longer than STK_PATH_BYTES_MAX. */
int stk_index_path(const struct stk_index *index, uint32_t shard, char path_out[STK_PATH_BYTES_MAX],
                   struct stoker_error *error);
/* The same, lent until close; NULL: a mapped index has no such text. */
const char *stk_index_path_view(const struct stk_index *index, uint32_t shard);
/* For errors: the path, or "?" when it cannot be had. */
void stk_index_path_text(const struct stk_index *index, uint32_t shard,
                         char path_out[STK_PATH_BYTES_MAX]);

/* Of tars these never fail: their records are read and checked by map. */
uint64_t stk_index_shard_bytes(const struct stk_index *index, uint32_t shard);
uint32_t stk_index_shard_compression(const struct stk_index *index, uint32_t shard);
uint64_t stk_index_shard_samples(const struct stk_index *index, uint32_t shard);
uint64_t stk_index_first_sample(const struct stk_index *index, uint32_t shard);
/* All of its members have one: also where there are no members. */
bool stk_index_shard_has_checksums(const struct stk_index *index, uint32_t shard);
bool stk_index_shard_has_labels(const struct stk_index *index, uint32_t shard);
/* 32 bytes, lent until close; NULL: none was given. */
const uint8_t *stk_index_shard_digest(const struct stk_index *index, uint32_t shard);
bool stk_index_shard_is_unverified(const struct stk_index *index, uint32_t shard);
/* Bytes of its access points; 0: none. */
uint64_t stk_index_seek_points_bytes(const struct stk_index *index, uint32_t shard);
/* Some of them, lent until close: at + bytes is at most stk_index_seek_points_bytes. NULL only for
 * a mapped index: CORRUPT. Nothing in them is checked but their pages' sums. */
const void *stk_index_seek_points(const struct stk_index *index, uint32_t shard, uint64_t at,
                                  uint64_t bytes, struct stoker_error *error);

/* Its samples can be read in any order: it is not packed, or its access points reach. */
bool stk_index_is_random_access(const struct stk_index *index, uint32_t shard);

const char *stk_index_extension(const struct stk_index *index, uint32_t extension);
/* -1: no member of the data set has it. */
int64_t stk_index_extension_id(const struct stk_index *index, const char *extension);
uint64_t stk_index_extensions(const struct stk_index *index);
uint64_t stk_index_classes(const struct stk_index *index);
const char *stk_index_class(const struct stk_index *index, uint64_t number); /* until close */

#endif
