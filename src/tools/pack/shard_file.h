/* tools/pack/shard_file.h: one shard being written: a tar, its hashes, and what the index will
 * need.
 *
 *   open "x.tar.tmp" -sample, member, data...-> ... -finish-> "x.tar" and "x.tar.done", both synced
 *                       \-drop: as if it never came   \-close-> nothing under a final name
 *
 * "x.tar.done" (struct stk_shard_done) tells a later run that the shard is whole, what lies in it
 * and what was left out of it, so that nothing of it is read again: shards are only taken for done
 * by it. Owner: a worker of pack, or the shard writer. Threads: one. Memory:
 * STK_SHARD_FILE_BUFFER_BYTES, 40 bytes and the name a member, some 500 bytes a sample left out.
 * Bound: STK_SHARD_DONE_MEMBERS_MAX members. */
#ifndef TOOLS_PACK_SHARD_FILE_H
#define TOOLS_PACK_SHARD_FILE_H

#include "base/base.h"
#include "io/write.h"
#include "tools/pack/shard_done.h"

/* Written at once: larger writes cost twice the CPU, in copying to folios that are new to the
 * caches (Linux 6.18, ext4, 560 MB: 256 KiB 0.5 s, 1 MiB 1.3 s, medians of 6). */
enum { STK_SHARD_FILE_BUFFER_BYTES = 1 << 18 };

struct stk_shard_file;

/* Creates directory/name.tmp. plan: 32 bytes, what this run packs; kept in the done file. */
int stk_shard_file_open(struct stk_shard_file **out_out, struct stk_io *io, const char *directory,
                        const char *name, const uint8_t *plan, struct stoker_error *error);
/* Takes; NULL is fine. Removes what is not finished. */
void stk_shard_file_close(struct stk_shard_file *out);
/* A new sample begins with the next member. */
void stk_shard_file_begin_sample(struct stk_shard_file *out);
/* Takes back all of the sample that was begun last. */
int stk_shard_file_drop_sample(struct stk_shard_file *out, struct stoker_error *error);
/* Keeps in the done file that a sample was left out. Takes the damage, unless it fails. */
int stk_shard_file_add_left_out(struct stk_shard_file *out, struct stk_bad_sample *damage,
                                struct stoker_error *error);
/* What was left out so far; lent until close. */
struct stk_bad_sample_list *stk_shard_file_left_out(struct stk_shard_file *out);
/* A picture is copied that should be made smaller and does not decode. */
void stk_shard_file_count_undecodable(struct stk_shard_file *out);
/* The checksum of the member that was ended last. */
uint64_t stk_shard_file_checksum(const struct stk_shard_file *out);
/* A member of so many bytes: they follow by room and took, or by data. name: 1 to
 * STK_TAR_NAME_MAX bytes. */
int stk_shard_file_begin_member(struct stk_shard_file *out, struct stk_view name, uint64_t bytes,
                                struct stoker_error *error);
/* Lends room for the member's next bytes, at least one of those that it lacks. */
int stk_shard_file_get_space(struct stk_shard_file *out, uint8_t **room_out, size_t *bytes_out,
                             struct stoker_error *error);
/* So many of them were filled; the last ends the member. */
void stk_shard_file_commit_space(struct stk_shard_file *out, size_t bytes);
int stk_shard_file_write(struct stk_shard_file *out, const void *data, size_t bytes,
                         struct stoker_error *error);
/* What the file has so far, without its end. */
uint64_t stk_shard_file_bytes(const struct stk_shard_file *out);
uint64_t stk_shard_file_samples(const struct stk_shard_file *out);
/* Ends the tar; both files are synced and have their names. The directory is not synced. */
int stk_shard_file_finish(struct stk_shard_file *out, struct stoker_error *error);

#endif
