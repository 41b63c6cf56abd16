/* stoker/checkpoint.h: saves and loads the state of a training, hashed and committed atomically.
 *
 *   ROOT/step-0000001000/shard-00000.safetensors    the tensors of rank 0
 *                        shard-00001.safetensors    of rank 1
 *                        stoker.checkpoint.json     the manifest: length and hash of each file
 *
 * docs/checkpoints.md specifies the format. A step exists once its manifest does: readers ignore
 * everything else. */
#ifndef STOKER_CHECKPOINT_H
#define STOKER_CHECKPOINT_H

#include <stoker/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STOKER_CHECKPOINT_LATEST UINT64_MAX
#define STOKER_CHECKPOINT_STEP_MAX UINT64_C(9007199254740991) /* 2^53 - 1: exact in JSON */
#define STOKER_CHECKPOINT_DIMENSIONS_MAX 32u

/* ---- save ---- */

/* A place for checkpoints, and the memory from which they are written in the background. Any
 * thread. */
struct stoker_checkpoint_writer;

struct stoker_checkpoint_writer_options {
    size_t struct_size;
    const char *path;          /* borrowed: a folder, which is created, or s3://, gs://, az:// */
    uint64_t memory_bytes_max; /* for bytes that are not written yet; allocated when first needed,
                                  and reused; at least 64 MiB; default: a quarter of what the
                                  cgroup or the machine grants this process */
    uint32_t threads;          /* that hash and write; default: one a core, at most 8; for stores
                                  16 */
    uint64_t bytes_per_s_max;  /* limit of the rate of writing; 0: none */
    uint32_t cpu_percent_max;  /* limit of the CPU time of the threads that hash and write, in
                                  percent of all cores that this process may use: 1 to 100; 0:
                                  none */
    uint32_t call_timeout_ms;  /* a save fails with STOKER_ERROR_TIMEOUT if one call into the file
                                  system or store takes longer; the error names the file and what
                                  the save does with it; default: 600,000 */
};
/* Returns 0 and sets *writer_out. The path is not touched yet. */
STOKER_API int stoker_checkpoint_writer_open(struct stoker_checkpoint_writer **writer_out,
                                             struct stoker_engine *engine,
                                             const struct stoker_checkpoint_writer_options *options,
                                             struct stoker_error *error);
/* Changes the limits of running and later saves, as before a deadline; as in the options. Any
 * thread. Returns 0, or STOKER_ERROR_ARGUMENT. */
STOKER_API int stoker_checkpoint_writer_set_limits(struct stoker_checkpoint_writer *writer,
                                                   uint64_t bytes_per_s_max,
                                                   uint32_t cpu_percent_max,
                                                   struct stoker_error *error);
/* Takes ownership; NULL is allowed. All saves must be closed before. */
STOKER_API void stoker_checkpoint_writer_close(struct stoker_checkpoint_writer *writer);

/* A tensor in C order. */
struct stoker_checkpoint_tensor {
    const char *name;         /* UTF-8, unique */
    const char *dtype;        /* of safetensors: "F32", "BF16", "I64", "BOOL", "F8_E4M3" ... */
    const uint64_t *shape;    /* elements of each dimension */
    uint32_t dimension_count; /* 0: a scalar */
    const void *data;         /* NULL is allowed if the tensor has no elements, or with `pieces` of
                                 the save options */
};

struct stoker_checkpoint_save_options {
    size_t struct_size;
    uint64_t step;                                  /* at most STOKER_CHECKPOINT_STEP_MAX */
    const struct stoker_checkpoint_tensor *tensors; /* borrowed until copy() returned 0, as all
                                                       pointers in it */
    size_t tensor_count;
    const char *tree; /* borrowed: text that is stored with the tensors of this rank; NULL: none */
    const char
        *values; /* borrowed: a JSON object for the manifest, such as {"loss": 1.5}; NULL: {} */
    uint32_t rank, ranks; /* ranks 0: 1 */
    const char *save_id; /* borrowed; ranks > 1: the same text, [0-9a-z]{1,32}, on all ranks of this
                            save, and different for each save; NULL for one rank */
    const char *file;    /* borrowed: writes this one file, without a step, instead: a path or URL
                            that ends in .safetensors or .ckpt; an existing file is replaced */
    uint32_t pieces;     /* 1: stoker_checkpoint_save_copy_piece() asks for the bytes of tensors
                            whose data is NULL, such as those of a GPU */
};

/* A save that is running, or finished. */
struct stoker_checkpoint_save;

/* Starts a save. Returns 0 and sets *save_out; STOKER_ERROR_ARGUMENT if the tensors or texts are
 * invalid. */
STOKER_API int stoker_checkpoint_save_open(struct stoker_checkpoint_save **save_out,
                                           struct stoker_checkpoint_writer *writer,
                                           const struct stoker_checkpoint_save_options *options,
                                           struct stoker_error *error);
/* Copies the tensors into the memory of the writer. If there is not enough, waits until parts were
 * written. Returns 0 once all bytes are copied: the caller may change or free the tensors;
 * STOKER_ERROR_AGAIN after timeout_ms: call it again; or the error of the save. One thread. */
STOKER_API int stoker_checkpoint_save_copy(struct stoker_checkpoint_save *save, uint32_t timeout_ms,
                                           struct stoker_error *error);

/* Bytes of a tensor that the caller copies. */
struct stoker_checkpoint_piece {
    size_t struct_size;
    uint64_t tensor;        /* index in `tensors` of the save options */
    uint64_t offset, bytes; /* in the tensor */
    void *buffer;           /* where they go: in the memory of the writer, until the next call */
    void *block;            /* the block of memory that has the buffer, which is reused: a caller
                               may register it with a GPU until the writer is closed */
    uint64_t block_bytes;
};
/* As stoker_checkpoint_save_copy(), for saves with `pieces`. Returns 1 and fills *piece_out: the
 * caller copies these bytes before it calls again, and then calls again; 0 once all bytes are
 * copied. */
STOKER_API int stoker_checkpoint_save_copy_piece(struct stoker_checkpoint_save *save,
                                                 uint32_t timeout_ms,
                                                 struct stoker_checkpoint_piece *piece_out,
                                                 struct stoker_error *error);

struct stoker_checkpoint_progress {
    size_t struct_size;
    uint64_t bytes, bytes_done; /* of the files of this rank; done: hashed and written */
    uint64_t files, files_done; /* of a load */
    uint64_t run_ns;
    uint64_t nan_count, inf_count; /* of a finished save: values of this rank that are NaN or Inf */
};
/* Waits up to timeout_ms. Returns 1 while the save runs; 0 once the step is committed (several
 * ranks: once the file of this rank is durable); or the error of the save: then the step does not
 * exist. progress may be NULL. Any thread. */
STOKER_API int stoker_checkpoint_save_next(struct stoker_checkpoint_save *save, uint32_t timeout_ms,
                                           struct stoker_checkpoint_progress *progress,
                                           struct stoker_error *error);
/* Takes ownership; NULL is allowed. Ends a running save: its step then exists completely or not at
 * all. Waits for calls into the file system or store, each at most call_timeout_ms of the writer;
 * a save that hangs is freed by its threads if the call returns. */
STOKER_API void stoker_checkpoint_save_close(struct stoker_checkpoint_save *save);

/* What rank 0 needs of each rank for the manifest. Plain bytes: send it as it is. */
struct stoker_checkpoint_part {
    char name[80]; /* of the file */
    uint64_t bytes;
    uint8_t root[32];
    uint32_t nan_count, inf_count; /* values that are NaN or Inf; UINT32_MAX: as many, or more */
    uint64_t shared_bytes;         /* of the file with unchanged tensors; 0: there is none */
    uint8_t shared_root[32];
    char shared_name[80];
    uint64_t tensor_count; /* of both files; 0: unknown */
};
/* After next() returned 0. Any thread. */
STOKER_API int stoker_checkpoint_save_part(struct stoker_checkpoint_save *save,
                                           struct stoker_checkpoint_part *part_out,
                                           struct stoker_error *error);
/* Commits a save of several ranks; rank 0 calls it when it has the parts of all ranks, in the order
 * of ranks. Uses step, values, ranks and save_id of the options. Blocks. Returns -EEXIST if the
 * step is committed already. */
STOKER_API int stoker_checkpoint_commit(struct stoker_checkpoint_writer *writer,
                                        const struct stoker_checkpoint_save_options *options,
                                        const struct stoker_checkpoint_part *parts,
                                        struct stoker_error *error);

/* ---- load ---- */

/* A committed step, or one file. Any thread. */
struct stoker_checkpoint;

/* path: the folder or URL of checkpoints, of one step, or a .safetensors file. step: a step of a
 * folder of checkpoints, or STOKER_CHECKPOINT_LATEST: the newest one whose manifest is valid and
 * whose files are complete. Also reads what other tools wrote, without Python: a file of
 * torch.save(), a folder of torch.distributed.checkpoint, a sharded model of Hugging Face (its
 * folder or its .safetensors.index.json). Checks the manifest, and lengths and headers of all
 * files; a step with an index of names (10,000 tensors or more) is opened without the headers,
 * which are read and checked when a tensor or file is needed. Returns 0 and sets *checkpoint_out;
 * -ENOENT, STOKER_ERROR_EMPTY without any valid step, STOKER_ERROR_CORRUPT,
 * STOKER_ERROR_UNSUPPORTED of a later format version, or of a pickle that needs Python: the error
 * names what it needs. */
STOKER_API int stoker_checkpoint_open(struct stoker_checkpoint **checkpoint_out,
                                      struct stoker_engine *engine, const char *path, uint64_t step,
                                      struct stoker_error *error);
/* Of a step with an index of names: reads and checks the headers of all files that were not needed
 * yet, several at once. Call it before a loop over all tensors. Any thread. Returns 0 or the error
 * of the lowest file, as open. */
STOKER_API int stoker_checkpoint_read_headers(struct stoker_checkpoint *checkpoint,
                                              struct stoker_error *error);
/* Takes ownership; NULL is allowed. All loads must be closed before. */
STOKER_API void stoker_checkpoint_close(struct stoker_checkpoint *checkpoint);

struct stoker_checkpoint_info {
    size_t struct_size;
    uint64_t step; /* STOKER_CHECKPOINT_LATEST: a single file */
    uint64_t bytes, files, tensors;
    uint32_t ranks;
    uint32_t hashed;    /* 1: all files have hashes */
    const char *path;   /* of the step or file; valid until close, as the next one */
    const char *values; /* the JSON object of the manifest; of another tool: its numbers and texts
                           by their paths */
    uint32_t counted;   /* 1: the step was written by a version of stoker that counts NaN and Inf */
    uint64_t nan_count, inf_count; /* of a counted one: values of all tensors */
    const char *kind; /* "stoker": a step; "safetensors": one file; "huggingface", "torch", "dcp":
                         of another tool; valid forever */
};
STOKER_API int stoker_checkpoint_info(const struct stoker_checkpoint *checkpoint,
                                      struct stoker_checkpoint_info *info_out,
                                      struct stoker_error *error);

struct stoker_checkpoint_file {
    size_t struct_size;
    const char *name; /* valid until close, as tree */
    const char *tree; /* the text of save; NULL: none */
    uint64_t bytes;
    uint8_t root[32]; /* zero: the file has no hashes */
};
/* Returns STOKER_ERROR_ARGUMENT if there are not so many files. */
STOKER_API int stoker_checkpoint_file(const struct stoker_checkpoint *checkpoint, uint64_t index,
                                      struct stoker_checkpoint_file *file_out,
                                      struct stoker_error *error);

struct stoker_checkpoint_tensor_info {
    size_t struct_size;
    const char *name;  /* valid until close, as dtype and shape */
    const char *dtype; /* of safetensors */
    const uint64_t *shape;
    uint32_t dimension_count;
    uint64_t bytes;
    uint64_t file;    /* index */
    uint32_t counted; /* 1: the next fields were counted when the tensor was written */
    uint64_t nan_count, inf_count;
    uint64_t zero_pages; /* 4096 bytes of zeros at a multiple of 4096 bytes of the file */
};
/* Tensors are in the order of files, and of their places in a file. */
STOKER_API int stoker_checkpoint_tensor(const struct stoker_checkpoint *checkpoint, uint64_t index,
                                        struct stoker_checkpoint_tensor_info *info_out,
                                        struct stoker_error *error);
/* Returns 0 and sets *index_out, or STOKER_ERROR_MISSING. Of several ranks that saved the same
 * name, the first. */
STOKER_API int stoker_checkpoint_find(const struct stoker_checkpoint *checkpoint, const char *name,
                                      uint64_t *index_out, struct stoker_error *error);

/* A range of the bytes of a tensor. */
struct stoker_checkpoint_range {
    uint64_t tensor;        /* index */
    uint64_t offset, bytes; /* in the tensor */
    void *buffer;           /* of `bytes`, borrowed until the load is closed; NULL: only verify */
};
/* Bytes that are being read. */
struct stoker_checkpoint_load;
/* Reads ranges on threads of its own, each byte once, and verifies the hashes of all parts that
 * contain them. */
STOKER_API int stoker_checkpoint_load_open(struct stoker_checkpoint_load **load_out,
                                           struct stoker_checkpoint *checkpoint,
                                           const struct stoker_checkpoint_range *ranges,
                                           size_t range_count, struct stoker_error *error);
/* Waits up to timeout_ms. Returns 1 while it reads; 0 once all buffers are filled and verified;
 * STOKER_ERROR_CORRUPT with file, offset and tensor; or another error. Any thread. */
STOKER_API int stoker_checkpoint_load_next(struct stoker_checkpoint_load *load, uint32_t timeout_ms,
                                           struct stoker_checkpoint_progress *progress,
                                           struct stoker_error *error);
/* Takes ownership; NULL is allowed. Stops a running load. */
STOKER_API void stoker_checkpoint_load_close(struct stoker_checkpoint_load *load);

/* ---- manage ---- */

enum stoker_checkpoint_status {
    STOKER_CHECKPOINT_COMMITTED = 1,
    STOKER_CHECKPOINT_INCOMPLETE, /* no manifest */
    STOKER_CHECKPOINT_DAMAGED,    /* the manifest is invalid, or a file is missing or has another
                                     length */
};
struct stoker_checkpoint_step {
    size_t struct_size;
    uint64_t step;
    uint32_t status; /* enum stoker_checkpoint_status */
    uint32_t pinned; /* 1: retention never removes it */
    uint64_t bytes, files;
    uint32_t ranks;
    const char *values;            /* valid until the list is closed, as reason */
    const char *reason;            /* of DAMAGED; else NULL */
    uint32_t counted;              /* 1: the manifest has the next fields */
    uint64_t nan_count, inf_count; /* values of all tensors that are NaN or Inf */
};
/* All steps below a path, by number. */
struct stoker_checkpoint_list;
STOKER_API int stoker_checkpoint_list_open(struct stoker_checkpoint_list **list_out,
                                           struct stoker_engine *engine, const char *path,
                                           struct stoker_error *error);
/* Returns 1 and fills *step_out; 0 past the end. */
STOKER_API int stoker_checkpoint_list_at(const struct stoker_checkpoint_list *list, uint64_t index,
                                         struct stoker_checkpoint_step *step_out,
                                         struct stoker_error *error);
/* Takes ownership; NULL is allowed. */
STOKER_API void stoker_checkpoint_list_close(struct stoker_checkpoint_list *list);

/* Pins a committed step, or takes the pin off (on: 0). */
STOKER_API int stoker_checkpoint_pin(struct stoker_engine *engine, const char *path, uint64_t step,
                                     uint32_t on, struct stoker_error *error);
/* Removes a step: first its name (of a store: its manifest), so that no reader finds it, then its
 * files. */
STOKER_API int stoker_checkpoint_remove(struct stoker_engine *engine, const char *path,
                                        uint64_t step, struct stoker_error *error);

struct stoker_checkpoint_gc_options {
    size_t struct_size;
    uint32_t keep_last;      /* newest committed steps; 0: all steps */
    uint64_t keep_every;     /* also steps that are a multiple; 0: none */
    const char *best_metric; /* borrowed: a number of `values`; NULL: none */
    uint32_t keep_best;      /* also the steps with the lowest values of it */
    uint32_t best_is_max;    /* 1: the highest values */
    uint32_t dry_run;        /* 1: only count */
    uint64_t age_min_s;      /* of the files of a save that no lock shows to be dead, as on
                                stores; default one day */
};
struct stoker_checkpoint_gc_result {
    size_t struct_size;
    uint64_t steps_removed, steps_left;  /* committed ones */
    uint64_t saves_removed;              /* folders and stray shards of dead saves and removals */
    uint64_t shared_files, shared_names; /* of the steps that are left: files that several steps
                                            share, and their names in these steps */
    uint64_t shared_bytes;               /* that they save */
};
/* Removes what retention does not keep, and what dead saves left. Never removes pinned steps, nor
 * the newest step that is complete. */
STOKER_API int stoker_checkpoint_gc(struct stoker_engine *engine, const char *path,
                                    const struct stoker_checkpoint_gc_options *options,
                                    struct stoker_checkpoint_gc_result *result_out,
                                    struct stoker_error *error);

/* ---- conversion, copies, repair, seals ---- */

enum stoker_checkpoint_action {
    STOKER_CHECKPOINT_CONVERT = 1, /* source of any kind to `kind` at destination */
    STOKER_CHECKPOINT_COPY,       /* a step to another place: all bytes verified, committed there */
    STOKER_CHECKPOINT_REPAIR,     /* files of the step below destination that are missing or damaged
                                     are replaced by those with the same hash of source */
    STOKER_CHECKPOINT_SEAL,       /* writes the hashes of the files of source beside them: a file
                                     stoker.seal in the folder, or SOURCE.stoker-seal of a file */
    STOKER_CHECKPOINT_CHECK_SEAL, /* compares the files with their seal; -ENOENT if there is none */
};
enum stoker_checkpoint_kind {
    STOKER_CHECKPOINT_KIND_STOKER = 1,  /* destination: a folder or URL of steps */
    STOKER_CHECKPOINT_KIND_SAFETENSORS, /* a path or URL that ends in .safetensors */
    STOKER_CHECKPOINT_KIND_HUGGINGFACE, /* a folder or URL: shards and
                                           model.safetensors.index.json */
    STOKER_CHECKPOINT_KIND_TORCH,       /* a local path: torch.load(weights_only=True) reads it */
};
struct stoker_checkpoint_task_options {
    size_t struct_size;
    uint32_t action;         /* enum stoker_checkpoint_action */
    const char *source;      /* borrowed until open returned, as destination */
    uint64_t step;           /* of a folder of steps; STOKER_CHECKPOINT_LATEST: the newest */
    const char *destination; /* NULL for SEAL and CHECK_SEAL */
    uint32_t kind;           /* CONVERT: enum stoker_checkpoint_kind */
    uint64_t
        destination_step; /* CONVERT to STOKER; STOKER_CHECKPOINT_LATEST: that of source, or 0 */
    uint64_t shard_bytes; /* CONVERT to HUGGINGFACE: of a file; default 5 GB */
    uint64_t bytes_per_s_max; /* limit of the rate of reading; 0: none */
};
/* A task that runs, or is finished. Tensors pass through memory in blocks of 16 MiB. */
struct stoker_checkpoint_task;
/* Returns 0 and sets *task_out, or STOKER_ERROR_ARGUMENT. */
STOKER_API int stoker_checkpoint_task_open(struct stoker_checkpoint_task **task_out,
                                           struct stoker_engine *engine,
                                           const struct stoker_checkpoint_task_options *options,
                                           struct stoker_error *error);
/* Waits up to timeout_ms. Returns 1 while the task runs, 0 at its end, or its error. progress may
 * be NULL; files_done: that were written, of CHECK_SEAL compared. Any thread. */
STOKER_API int stoker_checkpoint_task_next(struct stoker_checkpoint_task *task, uint32_t timeout_ms,
                                           struct stoker_checkpoint_progress *progress,
                                           struct stoker_error *error);
/* Stops the task, and does not wait for that. stoker_checkpoint_task_next then soon returns an
 * error, or 0 if the task completed its destination before. Any thread, but not after close. */
STOKER_API void stoker_checkpoint_task_stop(struct stoker_checkpoint_task *task);
/* Takes ownership; NULL is allowed. Ends a running task: a step that it writes does not exist. */
STOKER_API void stoker_checkpoint_task_close(struct stoker_checkpoint_task *task);

#define STOKER_CHECKPOINT_PROBE_CHECKS_MAX 16u
struct stoker_checkpoint_probe_check {
    char name[40];
    char detail[160]; /* the cause of the failure; "" if it passed */
    uint32_t passed;
};
struct stoker_checkpoint_probe {
    size_t struct_size;
    uint32_t count, failures;
    struct stoker_checkpoint_probe_check checks[STOKER_CHECKPOINT_PROBE_CHECKS_MAX];
};
/* Tests whether a place (a mount, or a prefix of a store) can be trusted with checkpoints: writes
 * small files below it, and removes them. A folder must exist. Blocks. Returns 0 also if checks
 * fail. */
STOKER_API int stoker_checkpoint_probe(struct stoker_engine *engine, const char *path,
                                       struct stoker_checkpoint_probe *result_out,
                                       struct stoker_error *error);

#ifdef __cplusplus
}
#endif
#endif
