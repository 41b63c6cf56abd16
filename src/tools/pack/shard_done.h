/* tools/pack/shard_done.h: the file "x.tar.done", which says that shard "x.tar" is complete.
 *
 * It has the shard's size and SHA-256, its members, and the samples that were left out, so that a
 * later run neither reads nor hashes the shard again. A shard without it is written again.
 * Owner: the caller, of struct stk_shard_done. Threads: any; one for each struct.
 * Memory: 40 bytes and the name for each member, some 500 bytes for each sample left out.
 * Bound: STK_SHARD_DONE_MEMBERS_MAX members. */
#ifndef TOOLS_PACK_SHARD_DONE_H
#define TOOLS_PACK_SHARD_DONE_H

#include "base/base.h"
#include "format/bad_sample/bad_sample_file.h"
#include "io/io.h"

enum { STK_SHARD_DONE_MEMBERS_MAX = 1 << 28 };

struct stk_shard_done_member {
    uint64_t offset, bytes, sum;
    int64_t label;                /* of a member "KEY.cls" with a whole number, else -1 */
    uint32_t name_at, name_bytes; /* in text */
};

struct stk_shard_done {
    uint8_t plan[32], sha256[32];
    uint64_t bytes, samples, member_count;
    struct stk_shard_done_member *members; /* owned */
    uint8_t *text;                         /* owned */
    uint64_t text_bytes;
    uint64_t undecodable;                /* pictures copied that do not decode */
    struct stk_bad_sample_list left_out; /* owned: samples left out, in their order */
};

/* Writes the file, syncs and renames it. Returns 0, -ENOMEM, or the error of the file system. */
int stk_shard_done_write(const struct stk_shard_done *done, struct stk_io *io,
                         const char *directory, const char *name, struct stoker_error *error);
/* Returns 1 and sets *done_out if the shard is there with all its bytes and was packed by this
 * plan; 0 if the shard must be written; -ENOMEM, or the error of the file system. */
int stk_shard_done_read(struct stk_shard_done *done_out, struct stk_io *io, const char *directory,
                        const char *name, const uint8_t *plan, struct stoker_error *error);
void stk_shard_done_deinit(struct stk_shard_done *done); /* zeroed is allowed */

#endif
