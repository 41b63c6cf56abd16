/* tools/pack/shard_file.h: writes one shard: a tar, its hashes, and the data for the index.
 *
 *   open "x.tar.tmp" -sample, member, data...-> ... -finish-> "x.tar" and "x.tar.done", both synced
 *                       \-drop: removes the sample    \-close-> no file with a final name
 *
 * "x.tar.done" (struct stk_shard_done) tells a later run that the shard is complete.
 * Owner: a worker of pack, or the shard writer. Threads: one. Memory:
 * STK_SHARD_FILE_BUFFER_BYTES, 40 bytes and the name a member, some 500 bytes a sample left out.
 * Bound: STK_SHARD_DONE_MEMBERS_MAX members. */
#ifndef TOOLS_PACK_SHARD_FILE_H
#define TOOLS_PACK_SHARD_FILE_H

#include "base/base.h"
#include "io/write.h"
#include "tools/pack/shard_done.h"

/* Size of a write: larger ones cost twice the CPU, since the kernel copies to folios that are not
 * in the caches (Linux 6.18, ext4, 560 MB: 256 KiB 0.5 s, 1 MiB 1.3 s, medians of 6). */
enum { STK_SHARD_FILE_BUFFER_BYTES = 1 << 18 };

struct stk_shard_file;

/* Creates directory/name.tmp. plan: 32 bytes, the hash of this run's plan, stored in the done file.
 */
int stk_shard_file_open(struct stk_shard_file **out_out, struct stk_io *io, const char *directory,
                        const char *name, const uint8_t *plan, struct stoker_error *error);
/* Takes ownership; NULL is allowed. Removes a file that is not finished. */
void stk_shard_file_close(struct stk_shard_file *out);
/* The next member begins a new sample. */
void stk_shard_file_begin_sample(struct stk_shard_file *out);
/* Removes all members of the sample that was begun last. */
int stk_shard_file_drop_sample(struct stk_shard_file *out, struct stoker_error *error);
/* Records in the done file that a sample was left out. Takes ownership of damage, unless it fails.
 */
int stk_shard_file_add_left_out(struct stk_shard_file *out, struct stk_bad_sample *damage,
                                struct stoker_error *error);
/* Samples left out so far; valid until close. */
struct stk_bad_sample_list *stk_shard_file_left_out(struct stk_shard_file *out);
/* Counts an image that does not decode and is copied instead of resized. */
void stk_shard_file_count_undecodable(struct stk_shard_file *out);
/* Checksum of the member that ended last. */
uint64_t stk_shard_file_checksum(const struct stk_shard_file *out);
/* Begins a member of so many bytes, which follow by get_space and commit_space, or by write. name:
 * 1 to STK_TAR_NAME_MAX bytes. */
int stk_shard_file_begin_member(struct stk_shard_file *out, struct stk_view name, uint64_t bytes,
                                struct stoker_error *error);
/* Returns a buffer for the member's next bytes, of 1 to as many bytes as it still needs. */
int stk_shard_file_get_space(struct stk_shard_file *out, uint8_t **space_out, size_t *bytes_out,
                             struct stoker_error *error);
/* So many bytes of the buffer were filled. The last byte ends the member. */
void stk_shard_file_commit_space(struct stk_shard_file *out, size_t bytes);
int stk_shard_file_write(struct stk_shard_file *out, const void *data, size_t bytes,
                         struct stoker_error *error);
/* Bytes and samples so far, without the end of the tar. */
uint64_t stk_shard_file_bytes(const struct stk_shard_file *out);
uint64_t stk_shard_file_samples(const struct stk_shard_file *out);
/* Ends the tar, syncs both files and renames them. The directory is not synced. */
int stk_shard_file_finish(struct stk_shard_file *out, struct stoker_error *error);

#endif
