/* checkpoint/convert/convert.h: writes a checkpoint of any kind as another kind, tensor by tensor.
 *
 *   source --plan--> outputs: tensors by name, assembled from the parts of ranks
 *          --runs, loads of at most 16 MiB--> save (a step, a file, files of a model), or a zip
 *
 * Owner: the caller. Threads: one of the job, those of its loads and saves. Memory: the plan, the
 * pool of a writer (STK_WRITER_MEMORY_BYTES_MIN), a block. Bound: the blocks; the plan is
 * about 300 bytes a tensor. */
#ifndef CHECKPOINT_CONVERT_CONVERT_H
#define CHECKPOINT_CONVERT_CONVERT_H

#include "checkpoint/convert/task.h"
#include "checkpoint/foreign/foreign.h"
#include "checkpoint/read/checkpoint.h"
#include "engine/background_job.h"

#include <jansson.h>

/* What is written. A piece of a tensor is a tensor of the source: its number is `file`. */
struct stk_convert_plan {
    struct stoker_checkpoint *source; /* borrowed */
    struct stk_foreign outputs;       /* only tensors */
    uint64_t capacity;
    json_t *tree;    /* owned; NULL: none. Its tensors are {"torch": name} or of another array */
    char *tree_text; /* owned; NULL: none */
    uint64_t bytes;
    const struct stk_checkpoint_task *task; /* borrowed */
};
int stk_convert_plan(struct stk_convert_plan *plan, struct stoker_checkpoint *source,
                     struct stoker_error *error);
void stk_convert_plan_deinit(struct stk_convert_plan *plan); /* zeroed is allowed */
/* Reads bytes of an output. */
int stk_convert_read(struct stk_convert_plan *plan, uint64_t output, uint64_t offset, void *data,
                     uint64_t bytes, struct stoker_error *error);
/* Writes a file or object that torch.load(weights_only=True) reads. */
int stk_convert_write_torch(struct stk_convert_plan *plan, struct stk_io *io, const char *path,
                            struct stoker_error *error);
/* torch_pickle.c: the pickle of the tree; storages have the numbers of outputs. */
int stk_convert_pickle(const struct stk_convert_plan *plan, struct stk_json_text *pickle,
                       struct stoker_error *error);

#endif
