/* tools/recover/resume_points.h: internal parts of struct stk_shard_reader: resume points after
 * damage, and checksums that verify the data.
 * Owner: the shard reader. Threads: one. Memory: the reader's. Bound: the reader's. */
#ifndef TOOLS_RECOVER_RESUME_POINTS_H
#define TOOLS_RECOVER_RESUME_POINTS_H

#include "format/compress/decompress.h"
#include "tools/recover/shard_reader.h"

/* shard_reader.c */
int stk_shard_reader_fail_memory(struct stoker_error *error);
/* Skips bytes before offset `to` of the file. */
int stk_shard_reader_skip_to(struct stk_shard_reader *shard_reader, uint64_t to,
                             struct stoker_error *error);
/* Starts the library again. done: bytes of the tar that count for the limit. */
int stk_shard_reader_reopen(struct stk_shard_reader *shard_reader, uint64_t done,
                            struct stoker_error *error);
/* Decompression starts again at offset `in` of the file, which is offset `out` of the tar. */
void stk_shard_reader_resume_at(struct stk_shard_reader *shard_reader, uint64_t in, uint64_t out);

/* Prepares the next block of bzip2. Returns 1, or 0 if there is none. */
int stk_shard_reader_next_block(struct stk_shard_reader *shard_reader, struct stoker_error *error);

/* seek_table_check.c. Looks for a valid seek table in the file. */
void stk_shard_reader_use_seek_table(struct stk_shard_reader *shard_reader);
/* A frame ended at offset `out` of the tar. Returns the state of its checksum: enum
 * stk_decompress_check. */
uint32_t stk_shard_reader_check_seek_table(struct stk_shard_reader *shard_reader,
                                           const struct stk_decompress_end *ended, uint64_t out);

/* resume_points.c, seek_table_check.c. Return 1 if the reader continues at such a point after the
 * damage, 0 if there is none, or an error. */
int stk_shard_reader_resume_from_index(struct stk_shard_reader *shard_reader,
                                       struct stoker_error *error);
int stk_shard_reader_resume_from_seek_table(struct stk_shard_reader *shard_reader,
                                            struct stoker_error *error);
int stk_shard_reader_resume_from_blocks(struct stk_shard_reader *shard_reader,
                                        struct stoker_error *error);
/* A stream ended at offset `end` of the tar: records its errors. */
int stk_shard_reader_stream_ended(struct stk_shard_reader *shard_reader,
                                  const struct stk_decompress_end *ended, uint64_t end,
                                  struct stoker_error *error);
/* Starts to compare data with the checksums between seek points, if the index has them. */
int stk_shard_reader_verify_start(struct stk_shard_reader *shard_reader,
                                  struct stoker_error *error);
/* Adds the next decompressed bytes of the tar. */
int stk_shard_reader_verify(struct stk_shard_reader *shard_reader, struct stk_view bytes,
                            struct stoker_error *error);
/* Bytes since the last seek point, which no checksum verifies yet. */
uint64_t stk_shard_reader_unverified_bytes(const struct stk_shard_reader *shard_reader);
void stk_shard_reader_verify_stop(struct stk_shard_reader *shard_reader);

#endif
