/* checkpoint/convert/task.h: what the actions of a task share. A task converts, copies, repairs or
 * seals a checkpoint.
 *
 *   copy:   files of a step, hashed on the way --> files of a hidden step --> manifest, commit
 *   repair: files of a step that are missing or damaged <-- their right leaves, and the other
 *           leaves of the same file of another place
 *   seal:   files of another tool --> FOLDER/stoker.seal: SHA-256 of each leaf
 *
 * Owner: the task. Threads: that of its job; a file that is copied has some of its own.
 * Memory: one block for each thread, at most 128 MiB, and the hashes of a seal.
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

/* A file that is copied, or only verified, by blocks on several threads. */
struct stk_file_copy {
    const struct stk_checkpoint_task *task;
    const struct stoker_checkpoint *source; /* borrowed, as all pointers */
    const struct stk_checkpoint_file *file; /* of source: its hashes must match */
    struct stk_file *damaged; /* NULL, or a copy whose leaves are used where they are right */
    struct stk_checkpoint_sink *sink;    /* NULL: only verifies */
    _Atomic uint64_t next, source_bytes; /* source_bytes: of a damaged copy, read from the source */
    _Atomic bool failed;
};
/* Copies all blocks and finishes the sink. Returns STOKER_ERROR_CORRUPT with the place of a leaf
 * that is damaged in all copies. */
int stk_task_copy_file(struct stk_file_copy *copy, struct stoker_error *error);
/* Reads all of a file of a step, and compares it with its entry in a manifest. folder: NULL: the
 * place is that of the step. Returns 0, or an error that names the damage, or the missing file. */
int stk_task_check_file(const struct stk_checkpoint_task *task,
                        const struct stk_checkpoint_place *place, const char *folder,
                        const struct stoker_checkpoint_part *part);
/* Opens a step of stoker, and refuses other checkpoints. */
int stk_task_open_step(const struct stk_checkpoint_task *task, const char *path,
                       struct stoker_checkpoint **source_out, struct stoker_error *error);

/* Opens the destination of a task, and makes its folder. Until close, no symbolic link leads a
 * write below its root out of it, also if another process puts one in. Close it also after a
 * failure. */
struct stk_task_destination {
    struct stk_checkpoint_place place;
    struct stk_io *beneath; /* NULL: a store */
};
int stk_task_destination_open(struct stk_task_destination *destination,
                              const struct stk_checkpoint_task *task, const char *path,
                              struct stoker_error *error);
void stk_task_destination_close(struct stk_task_destination *destination,
                                const struct stk_checkpoint_task *task);

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
