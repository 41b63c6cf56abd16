/* tools/recover/resume_points.h: where a tape can go on behind damage, and what proves its bytes;
 * internal.
 * Owner: the tape. Threads: one. Memory: the tape's. Bound: the tape's. */
#ifndef TOOLS_RECOVER_RESUME_POINTS_H
#define TOOLS_RECOVER_RESUME_POINTS_H

#include "format/compress/decompress.h"
#include "tools/recover/shard_reader.h"

/* shard_reader.c */
int stk_tape_no_memory(struct stoker_error *error);
/* Over what lies before byte `to` of the file. */
int stk_tape_wind(struct stk_tape *tape, uint64_t to, struct stoker_error *error);
/* Another run of the library. done: bytes of the tar that count for the limit, where the library
 * does not know it. */
int stk_tape_reopen(struct stk_tape *tape, uint64_t done, struct stoker_error *error);
/* Unpacking begins at byte `in` again, where byte `out` of the tar is known to lie. */
void stk_tape_begin_exact(struct stk_tape *tape, uint64_t in, uint64_t out);

/* The next block of bzip2 as what is unpacked next. 1: there is one; 0: none. */
int stk_tape_next_block(struct stk_tape *tape, struct stoker_error *error);

/* sampling_table.c. Whether the file has a seek table, and one that can be. */
void stk_tape_ask_table(struct stk_tape *tape);
/* A frame ended, `out` bytes of the tar come before its end. What is known of its bytes now: enum
 * stk_proof. */
uint32_t stk_tape_compare_table(struct stk_tape *tape, const struct stk_ended *ended, uint64_t out);

/* resume_points.c, sampling_table.c. 1: the tape goes on there, behind the damage; 0: there is no
 * such place. */
int stk_tape_from_index(struct stk_tape *tape, struct stoker_error *error);
int stk_tape_from_table(struct stk_tape *tape, struct stoker_error *error);
int stk_tape_from_blocks(struct stk_tape *tape, struct stoker_error *error);
/* A stream ended, `end` bytes of the tar come before its end: what is not right is noted. */
int stk_tape_ended(struct stk_tape *tape, const struct stk_ended *ended, uint64_t end,
                   struct stoker_error *error);
/* Whether the index tells sums of what lies between its points; then they are compared. */
int stk_tape_prove_start(struct stk_tape *tape, struct stoker_error *error);
/* These bytes were unpacked, the next of the tar. */
int stk_tape_prove(struct stk_tape *tape, struct stk_view bytes, struct stoker_error *error);
/* Bytes that were unpacked since the last point: no sum proves them yet. */
uint64_t stk_tape_unproved(const struct stk_tape *tape);
void stk_tape_prove_stop(struct stk_tape *tape);

#endif
