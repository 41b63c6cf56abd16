/* tools/recover/resume_points.h: where a tape can go on behind damage, and what proves its bytes;
 * internal.
 * Owner: the tape. Threads: one. Memory: the tape's. Bound: the tape's. */
#ifndef TOOLS_RECOVER_RESUME_POINTS_H
#define TOOLS_RECOVER_RESUME_POINTS_H

#include "format/compress/decompress.h"
#include "tools/recover/shard_reader.h"

/* shard_reader.c */
int stk_shard_reader_fail_memory(struct stoker_error *error);
/* Over what lies before byte `to` of the file. */
int stk_shard_reader_skip_to(struct stk_shard_reader *shard_reader, uint64_t to,
                             struct stoker_error *error);
/* Another run of the library. done: bytes of the tar that count for the limit, where the library
 * does not know it. */
int stk_shard_reader_reopen(struct stk_shard_reader *shard_reader, uint64_t done,
                            struct stoker_error *error);
/* Unpacking begins at byte `in` again, where byte `out` of the tar is known to lie. */
void stk_shard_reader_resume_at(struct stk_shard_reader *shard_reader, uint64_t in, uint64_t out);

/* The next block of bzip2 as what is unpacked next. 1: there is one; 0: none. */
int stk_shard_reader_next_block(struct stk_shard_reader *shard_reader, struct stoker_error *error);

/* sampling_table.c. Whether the file has a seek table, and one that can be. */
void stk_shard_reader_use_seek_table(struct stk_shard_reader *shard_reader);
/* A frame ended, `out` bytes of the tar come before its end. What is known of its bytes now: enum
 * stk_decompress_check. */
uint32_t stk_shard_reader_check_seek_table(struct stk_shard_reader *shard_reader,
                                           const struct stk_decompress_end *ended, uint64_t out);

/* resume_points.c, sampling_table.c. 1: the tape goes on there, behind the damage; 0: there is no
 * such place. */
int stk_shard_reader_resume_from_index(struct stk_shard_reader *shard_reader,
                                       struct stoker_error *error);
int stk_shard_reader_resume_from_seek_table(struct stk_shard_reader *shard_reader,
                                            struct stoker_error *error);
int stk_shard_reader_resume_from_blocks(struct stk_shard_reader *shard_reader,
                                        struct stoker_error *error);
/* A stream ended, `end` bytes of the tar come before its end: what is not right is noted. */
int stk_shard_reader_stream_ended(struct stk_shard_reader *shard_reader,
                                  const struct stk_decompress_end *ended, uint64_t end,
                                  struct stoker_error *error);
/* Whether the index tells sums of what lies between its points; then they are compared. */
int stk_shard_reader_verify_start(struct stk_shard_reader *shard_reader,
                                  struct stoker_error *error);
/* These bytes were unpacked, the next of the tar. */
int stk_shard_reader_verify(struct stk_shard_reader *shard_reader, struct stk_view bytes,
                            struct stoker_error *error);
/* Bytes that were unpacked since the last point: no sum proves them yet. */
uint64_t stk_shard_reader_unverified_bytes(const struct stk_shard_reader *shard_reader);
void stk_shard_reader_verify_stop(struct stk_shard_reader *shard_reader);

#endif
