/* stoker/shard_writer.h: writes samples of the caller as tar shards with an index and a manifest.
 */
#ifndef STOKER_SHARD_WRITER_H
#define STOKER_SHARD_WRITER_H

#include <stoker/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The same files as stoker/pack.h, from samples that the caller adds one after the other. */
struct stoker_shard_writer;

struct stoker_shard_writer_options {
    size_t struct_size;
    const char *destination;    /* borrowed, as all pointers below */
    uint64_t shard_bytes;       /* default 256 MiB */
    const char *pattern;        /* default "shard-%06d.tar" */
    const char *const *classes; /* names of the numbers in "cls" members; may be NULL */
    size_t class_count;
    const char *source; /* identifies the written data (a version, a hash), in UTF-8: unfinished
                           work of another source is refused; may be NULL */
};

struct stoker_shard_member {
    const char *extension; /* "jpg", "left.png"; stored in lower case */
    const void *data;
    size_t bytes;
};

/* Opens a writer; resumes DESTINATION.part if it was written with the same options. Returns 0 and
 * sets *writer_out; STOKER_ERROR_STATE if the options differ, and *error names the first
 * difference; -EEXIST if the destination exists; -EBUSY if another process writes it. */
STOKER_API int stoker_shard_writer_open(struct stoker_shard_writer **writer_out,
                                        struct stoker_engine *engine,
                                        const struct stoker_shard_writer_options *options,
                                        struct stoker_error *error);
/* Returns the number of samples that are durable, in complete shards: after an interruption the
 * caller skips this many samples and adds the next. */
STOKER_API uint64_t stoker_shard_writer_position(const struct stoker_shard_writer *writer);
/* Returns the key of the last sample before the position at open, for callers whose samples are not
 * numbered; "" if there was none; NULL if all samples are written and only the commit is missing.
 * Valid until close. */
STOKER_API const char *stoker_shard_writer_resume_key(const struct stoker_shard_writer *writer);
/* Adds one sample; copies its data. Returns 0 on success; STOKER_ERROR_ARGUMENT, and writes
 * nothing, if the key or an extension is invalid or duplicate. After another error: close, open,
 * and continue at the position. */
STOKER_API int stoker_shard_writer_add(struct stoker_shard_writer *writer, const char *key,
                                       const struct stoker_shard_member *members,
                                       size_t member_count, struct stoker_error *error);
/* Writes index and manifest after the last sample, and renames. Only close may follow. Returns 0 on
 * success. */
STOKER_API int stoker_shard_writer_commit(struct stoker_shard_writer *writer,
                                          struct stoker_error *error);
/* Takes ownership; NULL is allowed. Without a commit, complete shards stay in DESTINATION.part. */
STOKER_API void stoker_shard_writer_close(struct stoker_shard_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
