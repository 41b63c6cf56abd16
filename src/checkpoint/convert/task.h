/* checkpoint/convert/task.h: what the actions of a task share. A task converts, copies, repairs or
 * seals a checkpoint.
 *
 *   copy:   files of a step, hashed on the way --> files of a hidden step --> manifest, commit
 *   repair: files of a step that are missing or damaged <-- the same file of another place
 *   seal:   files of another tool --> FOLDER/stoker.seal: SHA-256 of each leaf
 *
 * Owner: the task. Threads: that of its job. Memory: one block, and the hashes of a seal.
 * Bound: STK_SAFETENSORS_BLOCK_BYTES; STK_SEAL_BYTES_MAX. */
#ifndef CHECKPOINT_CONVERT_TASK_H
#define CHECKPOINT_CONVERT_TASK_H

#include "checkpoint/read/checkpoint.h"
#include "checkpoint/write/writer.h"

#define STK_SEAL_NAME "stoker.seal"
#define STK_SEAL_BYTES_MAX (1u << 30)

struct stk_checkpoint_task {
    struct stoker_engine *engine; /* borrowed */
    const struct stoker_checkpoint_task_options *options;
    struct stk_background_job *job; /* borrowed */
    uint64_t start_ns;              /* on the engine's clock */
    _Atomic uint64_t *bytes, *bytes_done, *files, *files_done;
};

int stk_task_copy(const struct stk_checkpoint_task *task, struct stoker_error *error);
int stk_task_repair(const struct stk_checkpoint_task *task, struct stoker_error *error);
int stk_task_seal(const struct stk_checkpoint_task *task, struct stoker_error *error);
/* Compares the files with their seal. Returns -ENOENT if there is none. */
int stk_task_check_seal(const struct stk_checkpoint_task *task, struct stoker_error *error);
/* Counts bytes, waits for the limit of the rate, and returns STOKER_ERROR_CLOSED once the task is
 * to stop. */
int stk_task_account(const struct stk_checkpoint_task *task, uint64_t bytes,
                     struct stoker_error *error);

#endif
