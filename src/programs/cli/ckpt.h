/* programs/cli/ckpt.h: what the actions of `stoker ckpt` share.
 * Owner: run() of the command. Threads: one. Memory: blocks of CKPT_PIECE_BYTES.
 * Bound: the tensors of a step. */
#ifndef PROGRAMS_CLI_CKPT_H
#define PROGRAMS_CLI_CKPT_H

#include "programs/cli/args.h"

#define CKPT_PIECE_BYTES (16u << 20) /* multiple of the size of each element */

/* Parses --step. Returns EXIT_FINE and sets *step_out (STOKER_CHECKPOINT_LATEST: none was given),
 * or prints an error. */
int ckpt_step(const struct args *args, uint64_t *step_out);
/* Opens a step or file. Prints an error if it fails. Returns an exit status. */
int ckpt_open(struct stoker_engine *engine, const char *path, uint64_t step,
              struct stoker_checkpoint **checkpoint_out);
/* Reads ranges and waits, with a live line. Returns an exit status; prints an error. */
int ckpt_load(struct stoker_checkpoint *checkpoint, const struct stoker_checkpoint_range *ranges,
              size_t count);

/* Statistics of the numbers of a tensor. */
struct ckpt_stats {
    uint64_t count, nan, inf; /* count: of finite numbers */
    double min, max, sum;
};
/* Returns false for a dtype without numbers. data: whole elements. */
bool ckpt_stats_add(struct ckpt_stats *stats, const char *dtype, const void *data, size_t bytes);
/* The number of an element; NAN for dtypes without numbers. */
double ckpt_number(const char *dtype, const void *data, size_t index);
uint32_t ckpt_element_bytes(const char *dtype); /* 0: no number of whole bytes */
/* [3, 4], in text[64] */
const char *ckpt_shape(const struct stoker_checkpoint_tensor_info *info, char text[64]);

int ckpt_verify(const struct args *args, struct stoker_engine *engine);
int ckpt_inspect(const struct args *args, struct stoker_engine *engine);
int ckpt_diff(const struct args *args, struct stoker_engine *engine);

#endif
