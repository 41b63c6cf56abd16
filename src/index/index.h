/* index/index.h: the table of a data set's samples, in memory or in a mapped file.
 *
 *   open -> shards in any order, from any thread (one builder each) -> finish -> look-ups
 *                                                                       |          ^
 *                                                                     write -file- open_file
 *
 * The scan adds the members. Pages of a file are validated when they are first used, so a look-up
 * can fail with STOKER_ERROR_CORRUPT, with the file and the offset. A file is untrusted input even
 * if its checksums are right. The format: index/index_file.h and docs/formats.md.
 * Owner: the dataset. Threads: a builder: one; finish, write: one; look-ups (after finish): any.
 * Memory: 10 bytes per member (18 in a shard above 2 TiB or with a member above 4 GiB), 8 and the
 * key per sample, 8 for each checksum or label; a file of a folder: 32 and its path. Mapped: one
 * bit per page, and the page cache.
 * Bound: 2^30 members and 2 GiB of keys per shard, 65,536 extensions of up to 1,024 bytes. */
#ifndef INDEX_INDEX_H
#define INDEX_INDEX_H

#include "base/base.h"

struct stk_index;
struct stk_io;

/* The longest path of a shard, with its NUL. */
#define STK_PATH_BYTES_MAX 4096

struct stk_index_options {
    uint64_t shard_count;    /* at most 2^32 - 1 */
    uint32_t key_bytes_max;  /* 0: 4,096 */
    uint32_t member_gap_max; /* members that may be between members of one sample */
};

int stk_index_open(struct stk_index **index_out, const struct stk_index_options *options,
                   struct stoker_error *error);
void stk_index_close(struct stk_index *index);

/* Builds the entry of one shard, in one thread: the members of a container, or one file of a
 * folder. path: borrowed. */
struct stk_index_shard_builder;
int stk_index_shard_begin(struct stk_index *index, uint32_t shard, const char *path,
                          struct stk_index_shard_builder **builder_out, struct stoker_error *error);
/* Adds a member with data, in storage order. Members are grouped by webdataset's key; names that
 * webdataset skips are skipped. Returns 0, -ENOMEM, STOKER_ERROR_SCATTERED if a key comes again
 * more than member_gap_max members later, STOKER_ERROR_CORRUPT if the name cannot be a key, or
 * STOKER_ERROR_LIMIT; stk_index_shard_end returns STOKER_ERROR_CORRUPT if a sample has an extension
 * twice. error->shard, offset (of the data) and key are set. */
int stk_index_shard_add(struct stk_index_shard_builder *builder, struct stk_view name,
                        uint64_t offset, uint64_t bytes, struct stoker_error *error);
/* Adds a hard link: a member with the bytes, the checksum and the label of the member `target`,
 * which was added before it. If there is no such member, the link is counted and left out. */
int stk_index_shard_add_link(struct stk_index_shard_builder *builder, struct stk_view name,
                             struct stk_view target, struct stoker_error *error);
/* Why members are no part of a sample. */
struct stk_index_skipped {
    uint64_t system_files, links, special, unnamed;
};
/* Counts a member that is a link to nothing known, or a device. Others are counted by add. */
void stk_index_shard_skip(struct stk_index_shard_builder *builder, bool is_link);
/* Returns the counts of the shard so far; valid until end or cancel. */
const struct stk_index_skipped *
stk_index_shard_skipped(const struct stk_index_shard_builder *builder);
/* Sets the XXH3-64 of the member that was added last; ignored if that was skipped. If only some
 * members of a shard have one, stk_index_shard_end returns STOKER_ERROR_ARGUMENT. */
int stk_index_shard_set_checksum(struct stk_index_shard_builder *builder, uint64_t sum,
                                 struct stoker_error *error);
/* Sets the label of the sample whose member was added last. Samples without a label have -1. */
int stk_index_shard_set_label(struct stk_index_shard_builder *builder, int64_t label,
                              struct stoker_error *error);
/* Sets the SHA-256 of the shard file. */
void stk_index_shard_set_digest(struct stk_index_shard_builder *builder, const uint8_t sha256[32]);
/* Sets the seek points of a compressed shard (format/compress/seek_points.h). Takes ownership of
 * the image, which was allocated by stk_alloc and has at most STK_SEEK_POINTS_IMAGE_MAX bytes. */
void stk_index_shard_set_seek_points(struct stk_index_shard_builder *builder,
                                     struct stk_view image);
/* Marks the members as unverified: each is compared with its headers when it is read. Such an index
 * is not written. */
void stk_index_shard_set_unverified(struct stk_index_shard_builder *builder);
/* Adds a file of a class folder: it is a sample of its own; the key is its path below the root.
 * Once per builder; the extension has no dot. */
int stk_index_shard_add_file(struct stk_index_shard_builder *builder, struct stk_view key,
                             struct stk_view extension, int64_t label, struct stoker_error *error);
/* Takes ownership of the builder. compression: enum stk_compression. An empty shard is allowed.
 * After an error here or in add the index can only be closed. */
int stk_index_shard_end(struct stk_index_shard_builder *builder, uint64_t object_bytes,
                        uint32_t compression, struct stoker_error *error);
void stk_index_shard_cancel(struct stk_index_shard_builder *builder);
/* Copies the entry of a shard from a finished or mapped index, instead of building it. Returns 0,
 * -ENOMEM, or STOKER_ERROR_CORRUPT if the mapped index is damaged: scan the shard then. */
int stk_index_shard_copy(struct stk_index *index, uint32_t shard, const char *path,
                         const struct stk_index *from, uint32_t from_shard,
                         struct stoker_error *error);

/* Adds class names in the order of their numbers, before write. Containers need none. */
int stk_index_add_class(struct stk_index *index, const char *name, struct stoker_error *error);

/* Call it after all shards: numbers samples in storage order and extensions by their text, and
 * makes the identity. The result does not depend on the threads that added the shards. block_bytes
 * (0: 8 MiB) sets block_samples = round(block_bytes / mean sample bytes), at least 1 (256 for
 * folders, and if no sample has bytes). */
int stk_index_finish(struct stk_index *index, uint32_t block_bytes, struct stoker_error *error);
/* Members and files that are no samples, by kind. Counts them before the index is written; at most
 * UINT32_MAX of a kind. */
enum stk_index_skipped_kind {
    STK_INDEX_SKIPPED_SYSTEM,  /* of operating systems: base/text/system_file.h */
    STK_INDEX_SKIPPED_LINKS,   /* links without a target in the shard */
    STK_INDEX_SKIPPED_SPECIAL, /* devices, pipes */
    STK_INDEX_SKIPPED_UNNAMED, /* without key or extension */
    STK_INDEX_SKIPPED_KINDS,
};
void stk_index_add_skipped(struct stk_index *index, enum stk_index_skipped_kind kind,
                           uint64_t count);
uint32_t stk_index_skipped(const struct stk_index *index, enum stk_index_skipped_kind kind);
/* Changes the block size that finish chose, also of a mapped index. block_samples 0: by
 * block_bytes, as finish does it. */
void stk_index_set_block(struct stk_index *index, uint64_t block_samples, uint32_t block_bytes);

/* Sets the root of the paths in a file: "data/", "/" or ""; copied. Before write: all shards must
 * be below it. After open_file: the place of the data; by default the path of the index file up to
 * its last '/'. */
int stk_index_set_root(struct stk_index *index, const char *root, struct stoker_error *error);
/* Writes a finished index to a file, atomically: path.new, sync, rename, sync of the directory. The
 * same data gives the same bytes, wherever it is stored. Not for a mapped index. */
int stk_index_write(const struct stk_index *index, struct stk_io *io, const char *path,
                    struct stoker_error *error);
/* Returns the bytes of the file in memory; free *image_out with stk_free. */
int stk_index_image(const struct stk_index *index, const char *root, struct stk_view *image_out,
                    struct stoker_error *error);
/* Maps an index file, in a time that does not depend on samples and members: it reads the footer,
 * the table of pages and the records of shards. Returns 0, -ENOMEM, STOKER_ERROR_CORRUPT,
 * _TRUNCATED, _FORMAT (no index) or _UNSUPPORTED (a later version). The file may be replaced while
 * it is mapped, as write does, but not be truncated. io: borrowed until close. */
int stk_index_open_file(struct stk_index **index_out, struct stk_io *io, const char *path,
                        struct stoker_error *error);
/* Opens an index in memory, which is borrowed until close and aligned to 8 bytes. name: for errors;
 * copied. */
int stk_index_open_image(struct stk_index **index_out, struct stk_view image, const char *name,
                         struct stoker_error *error);

struct stk_sample {
    uint32_t shard;
    uint32_t member_count;
    uint64_t first_member; /* in the shard; for stk_index_member */
    uint64_t number;       /* in the shard */
    struct stk_view key;   /* valid until close */
    int64_t label;         /* folder: class; container: by stk_index_shard_set_label, or -1 */
};

uint64_t stk_index_shards(const struct stk_index *index);
uint64_t stk_index_samples(const struct stk_index *index);
uint64_t stk_index_members(const struct stk_index *index);
uint64_t stk_index_bytes(const struct stk_index *index);
/* Memory of the heap; a mapped index needs almost none. Call it after finish; for one shard, after
 * stk_index_shard_end. */
uint64_t stk_index_memory_bytes(const struct stk_index *index);
uint64_t stk_index_shard_memory_bytes(const struct stk_index *index, uint64_t shard);
uint64_t stk_index_block_samples(const struct stk_index *index);
bool stk_index_is_folder(const struct stk_index *index); /* has files; false if empty */
/* True if the shard is one file of a folder. A joined index may have both kinds. */
bool stk_index_is_file(const struct stk_index *index, uint32_t shard);
bool stk_index_is_sequential(
    const struct stk_index *index); /* some compressed shard has no random access */
/* 32 bytes: SHA-256 of the shards' base names and sizes, and of all keys, extensions, offsets
 * and sizes. Folders: keys and labels. */
const uint8_t *stk_index_identity(const struct stk_index *index);
/* The options that the shards were grouped with. */
uint32_t stk_index_member_gap_max(const struct stk_index *index);
uint32_t stk_index_key_bytes_max(const struct stk_index *index);

/* Return 0; a mapped index can return STOKER_ERROR_CORRUPT, and the result is not set then. */
int stk_index_sample(const struct stk_index *index, uint64_t sample, struct stk_sample *sample_out,
                     struct stoker_error *error);
int stk_index_member(const struct stk_index *index, const struct stk_sample *sample,
                     uint32_t member, struct stk_member *member_out, struct stoker_error *error);
/* Sets *sum_out to the XXH3-64 of a member. Returns 0, or STOKER_ERROR_MISSING if the shard was
 * indexed without checksums. */
int stk_index_checksum(const struct stk_index *index, const struct stk_sample *sample,
                       uint32_t member, uint64_t *sum_out, struct stoker_error *error);
/* Gets the path of a shard. Returns 0, or STOKER_ERROR_LIMIT if it is longer than
 * STK_PATH_BYTES_MAX. */
int stk_index_path(const struct stk_index *index, uint32_t shard, char path_out[STK_PATH_BYTES_MAX],
                   struct stoker_error *error);
/* Checks whether the file of a mapped index is what it was, in all that was used of it. Returns 0
 * on success (also for an index in memory), STOKER_ERROR_CHANGED, -EIO. */
int stk_index_check_map(const struct stk_index *index, struct stoker_error *error);
/* The path, valid until close; NULL: the index is mapped and has no such text. */
const char *stk_index_path_view(const struct stk_index *index, uint32_t shard);
/* For errors: the path, or "?" if it is not available. */
void stk_index_path_text(const struct stk_index *index, uint32_t shard,
                         char path_out[STK_PATH_BYTES_MAX]);

/* These never fail for containers: open_file has read and validated their records. */
uint64_t stk_index_shard_bytes(const struct stk_index *index, uint32_t shard);
uint32_t stk_index_shard_compression(const struct stk_index *index, uint32_t shard);
uint64_t stk_index_shard_samples(const struct stk_index *index, uint32_t shard);
uint64_t stk_index_first_sample(const struct stk_index *index, uint32_t shard);
/* True if all members have one, also if there are no members. */
bool stk_index_shard_has_checksums(const struct stk_index *index, uint32_t shard);
bool stk_index_shard_has_labels(const struct stk_index *index, uint32_t shard);
/* 32 bytes, valid until close; NULL: none was set. */
const uint8_t *stk_index_shard_digest(const struct stk_index *index, uint32_t shard);
bool stk_index_shard_is_unverified(const struct stk_index *index, uint32_t shard);
/* The size of its seek points; 0: none. */
uint64_t stk_index_seek_points_bytes(const struct stk_index *index, uint32_t shard);
/* Returns bytes of the seek points, valid until close; at + bytes is at most
 * stk_index_seek_points_bytes. NULL: a mapped index is damaged. Only the checksums of their pages
 * were verified. */
const void *stk_index_seek_points(const struct stk_index *index, uint32_t shard, uint64_t at,
                                  uint64_t bytes, struct stoker_error *error);

/* True if its samples can be read in any order: it is not compressed, or it has seek points that
 * are close enough. */
bool stk_index_is_random_access(const struct stk_index *index, uint32_t shard);

const char *stk_index_extension(const struct stk_index *index, uint32_t extension);
/* Returns the number of the extension, or -1 if no member has it. */
int64_t stk_index_extension_id(const struct stk_index *index, const char *extension);
uint64_t stk_index_extensions(const struct stk_index *index);
uint64_t stk_index_classes(const struct stk_index *index);
const char *stk_index_class(const struct stk_index *index, uint64_t number); /* until close */

#endif
