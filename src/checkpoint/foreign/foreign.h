/* checkpoint/foreign/foreign.h: checkpoints of other tools, read without Python: where the bytes of
 * each tensor are, and all other values as JSON.
 *
 *   torch zip file --directory, data.pkl--> tensors: ranges of its members
 *   DCP folder     --.metadata, each item of __0_0.distcp--> tensors: chunks in several files
 *   model.safetensors.index.json --> names of safetensors files
 *
 * A tensor is made of pieces: boxes of it, each with strides in one file. A range of its bytes is a
 * list of runs in files.
 * Untrusted input: all places are checked against the files.
 * Owner: the caller. Threads: one; any once it is open. Memory: about 200 bytes a tensor and piece.
 * Bound: pickles of STK_PICKLE_BYTES_MAX; STK_FOREIGN_RUNS_MAX runs of a range. */
#ifndef CHECKPOINT_FOREIGN_FOREIGN_H
#define CHECKPOINT_FOREIGN_FOREIGN_H

#include "checkpoint/layout/json_text.h"
#include "checkpoint/place/place.h"

struct stoker_engine;

#define STK_FOREIGN_RUNS_MAX (1u << 22)
#define STK_FOREIGN_FILES_MAX 1000000u
#define STK_FOREIGN_DCP_NAME ".metadata"
#define STK_FOREIGN_INDEX_NAME "model.safetensors.index.json"
#define STK_FOREIGN_SINGLE_NAME "model.safetensors"
#define STK_FOREIGN_INDEX_SUFFIX ".safetensors.index.json"

/* A box of a tensor. All arrays have an entry for each dimension. */
struct stk_foreign_piece {
    uint32_t file;
    uint64_t offset; /* of its first element, in the file */
    const uint64_t *origin, *sizes;
    const uint64_t *strides; /* elements between neighbours, in the file */
};
struct stk_foreign_tensor {
    char *name;        /* owned */
    const char *dtype; /* valid forever */
    uint64_t *shape;   /* owned */
    uint32_t dimension_count, element_bytes, piece_count;
    uint64_t bytes;
    struct stk_foreign_piece *pieces; /* owned */
    uint64_t *numbers;                /* owned: the arrays of the pieces */
};
struct stk_foreign_file {
    char *name; /* owned; below the folder; of a single file: "" */
    uint64_t bytes;
};
struct stk_foreign {
    const char *kind;                   /* "torch", "dcp", "huggingface"; valid forever */
    struct stk_foreign_tensor *tensors; /* owned; torch, dcp */
    uint64_t count;
    struct stk_foreign_file *files; /* owned */
    uint32_t file_count;
    char *
        wanted; /* owned; huggingface: names of tensors that the files must have, each with a NUL */
    size_t wanted_count;
    char *tree;   /* owned; as stoker.tree of our files; NULL: none */
    char *values; /* owned: a JSON object */
};

/* Consecutive bytes of a tensor that are consecutive in a file. */
struct stk_foreign_run {
    uint64_t at; /* in the tensor */
    uint64_t offset, bytes;
    uint32_t file;
};
/* Calls visit for all runs of bytes begin to end - 1. Returns the first status that is not 0. */
int stk_foreign_runs(const struct stk_foreign_tensor *tensor, uint64_t begin, uint64_t end,
                     int (*visit)(void *context, const struct stk_foreign_run *run), void *context);

/* Detects the kind of a path from its name and content. Returns 0 and sets *kind_out to "torch",
 * "dcp", "huggingface", "safetensors" or NULL (unknown); or an error of reading, or
 * STOKER_ERROR_UNSUPPORTED for a format that is known but not read. */
int stk_foreign_detect(const struct stk_checkpoint_place *place, const char **kind_out,
                       struct stoker_error *error);
/* Opens a torch zip file, a DCP folder, or an index of Hugging Face (of this only files and values
 * are set). */
int stk_foreign_open(struct stk_foreign *foreign, struct stoker_engine *engine,
                     const struct stk_checkpoint_place *place, const char *kind,
                     struct stoker_error *error);
/* Makes the path of an index that of its folder. */
void stk_foreign_cut_index(char *path);
/* Name of the tensor with this byte of a file; NULL: none. */
const char *stk_foreign_tensor_at(const struct stk_foreign *foreign, uint32_t file,
                                  uint64_t offset);
void stk_foreign_deinit(struct stk_foreign *foreign); /* zeroed is allowed */

#endif
