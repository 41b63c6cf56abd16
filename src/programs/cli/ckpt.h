/* programs/cli/ckpt.h: what the actions of `stoker ckpt` share.
 * Owner: run() of the command. Threads: one. Memory: blocks of CKPT_PIECE_BYTES.
 * Bound: the tensors of a step. */
#ifndef PROGRAMS_CLI_CKPT_H
#define PROGRAMS_CLI_CKPT_H

#include "programs/cli/args.h"

#include <stdio.h>

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

#define CKPT_BINS 16u
/* Statistics of the numbers of a tensor. */
struct ckpt_stats {
    uint64_t count, nan, inf; /* count: of finite numbers */
    double min, max, sum;
    double low, high; /* of the histogram: the range of the first piece; others are in its ends */
    uint64_t bins[CKPT_BINS];
};
/* Returns false for a dtype without numbers. data: whole elements. */
bool ckpt_stats_add(struct ckpt_stats *stats, const char *dtype, const void *data, size_t bytes);
/* The number of an element; NAN for dtypes without numbers. */
double ckpt_number(const char *dtype, const void *data, size_t index);
uint32_t ckpt_element_bytes(const char *dtype); /* 0: no number of whole bytes */
/* [3, 4], in text[64] */
const char *ckpt_shape(const struct stoker_checkpoint_tensor_info *info, char text[64]);

/* Says that a place has no steps. Returns the exit status. */
int ckpt_no_steps(const char *path);

/* Draws the live line of a load or task. */
void ckpt_draw(const struct stoker_checkpoint_progress *progress);
/* Compares the files with their seal. *sealed_out: whether there is one. */
int ckpt_check_seal(const struct args *args, struct stoker_engine *engine, bool *sealed_out);

/* ckpt_page.c: a page with a row for each tensor. Return exit statuses, and print errors. */
int ckpt_page_open(const char *path, const struct stoker_checkpoint_info *info, FILE **file_out);
void ckpt_page_add(FILE *file, const struct stoker_checkpoint_tensor_info *tensor,
                   const struct ckpt_stats *stats);
int ckpt_page_close(FILE *file, const char *path);

int ckpt_verify(const struct args *args, struct stoker_engine *engine);
int ckpt_inspect(const struct args *args, struct stoker_engine *engine);
int ckpt_diff(const struct args *args, struct stoker_engine *engine);
int ckpt_convert(const struct args *args, struct stoker_engine *engine);
int ckpt_cp(const struct args *args, struct stoker_engine *engine);
int ckpt_repair(const struct args *args, struct stoker_engine *engine);
int ckpt_seal(const struct args *args, struct stoker_engine *engine);
int ckpt_probe(const struct args *args, struct stoker_engine *engine);
int ckpt_advise(const struct args *args, struct stoker_engine *engine);

#endif
