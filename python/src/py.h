/* py.h: declarations shared by the files of the extension module. They include <stoker/stoker.h>
 * and the limited API of CPython (abi3), no other header of the library.
 *
 *   ExternalFs <- Engine <- Dataset <- Loader --next()--> Batch -> Array, Bytes -> memoryview,
 *                                                                               DLPack
 *                        <- Tokens <- TokenLoader --next()--> Batch
 *                        <- File, Walk, ShardWriter
 *                        <- CheckpointWriter <- CheckpointSave; Checkpoint <- CheckpointLoad
 *                        <- Verify, Diff, Pack, Copy, Indexer: jobs (py_job.c)
 *
 * Layers, each includes calls to those above it only: py_value.c, py_error.c, py_object.c;
 * py_job.c, py_state.c, py_bad_sample.c, py_order.c; the types; py_module.c.
 *
 * Owner: Python's reference counts; each object that shows a batch's memory owns a reference to it.
 * Threads: the GIL guards all fields; it is released during each call that may wait.
 * Memory: PyMem_*, and malloc for memory that a DLPack consumer frees without the GIL.
 * Bound: STK_PY_FIELDS_MAX fields, STK_PY_TRANSFORMS_MAX transforms for each. */
#ifndef SRC_PY_H
#define SRC_PY_H

#ifndef Py_LIMITED_API
#    define Py_LIMITED_API 0x030b0000 /* CPython 3.11: the first with Py_buffer in the ABI */
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stoker/stoker.h>
#include <sys/types.h>

#define STK_PY_FIELDS_MAX 64
#define STK_PY_TRANSFORMS_MAX 32
#define STK_PY_SOURCES_MAX 256
#define STK_PY_CHANGES_MAX 4096
#define STK_PY_SLICE_MS 50 /* longest call without a check for pending signals */

struct stk_py_module {
    PyTypeObject *external_fs_type, *cache_type, *engine_type, *dataset_type, *loader_type,
        *batch_type, *array_type, *bytes_type;
    PyTypeObject *pack_type, *shard_writer_type;
    PyTypeObject *verify_type, *diff_type;
    PyTypeObject *indexer_type, *sampler_type;
    PyTypeObject *tokens_type, *token_loader_type;
    PyTypeObject *file_type, *walk_type, *copy_type;
    PyTypeObject *checkpoint_type, *checkpoint_load_type;
    PyTypeObject *checkpoint_writer_type, *checkpoint_save_type;
};

/* ---- values (py_value.c) ---- */

/* A str of text that may not be UTF-8 (paths, keys): undecodable bytes become surrogates, as in
 * os.fsdecode and tarfile. */
PyObject *stk_py_text(const char *text, size_t bytes);
/* The same for a text that ends with a NUL. NULL: None. */
PyObject *stk_py_string(const char *text);
/* UINT64_MAX: None. */
PyObject *stk_py_number_or_none(uint64_t number);
/* Converters for "O&". They check the range. Return 1, or 0 with an exception. */
int stk_py_u32(PyObject *number, void *u32_out);
int stk_py_u64(PyObject *number, void *u64_out);
/* An array of pointers into a tuple of bytes objects; free it with PyMem_Free. Returns NULL with an
 * exception if an item is not bytes, or contains a NUL. */
const char **stk_py_paths(PyObject *tuple);

/* ---- errors (py_error.c) ---- */

/* Sets the exception of stoker.errors for the status. error: NULL, or its details. Returns NULL. */
void *stk_py_raise(int status, const struct stoker_error *error);
/* The same for an error that this module found. */
void *stk_py_raise_text(int status, const char *what, const char *where, const char *advice);
/* The exception object, without raising it. Returns NULL with another exception on failure. */
PyObject *stk_py_exception(int status, const struct stoker_error *error);
/* Equals getpid(), without a system call: a fork handler updates it. */
pid_t stk_py_process(void);
/* Returns true with an exception if another process made the object, before a fork. */
bool stk_py_forked(pid_t process, const char *object);

/* ---- objects (py_object.c) ---- */

/* A zeroed object of a heap type; NULL with an exception. */
void *stk_py_object_new(PyTypeObject *type);
/* Frees the memory of an object of a heap type, and releases its type. */
void stk_py_object_free(PyObject *self);

/* Guards a handle that any number of threads use and one may close: the last user closes it.
 * Objects with a gate begin as struct stk_py_gated does. */
struct stk_py_gate {
    uint32_t users;
    bool closed; /* after init: true, until the handle is open */
    pid_t process;
    void (*close_handle)(PyObject *self); /* called once, without the GIL */
};

struct stk_py_gated {
    PyObject_HEAD struct stk_py_gate gate;
};

void stk_py_gate_init(struct stk_py_gate *gate, void (*close_handle)(PyObject *self));

/* Returns false with an exception if the object is closed or belongs to another process. After
 * true, call leave. */
bool stk_py_gate_enter(struct stk_py_gate *gate, const char *object);
/* The last user of a closed object closes its handle. */
void stk_py_gate_leave(struct stk_py_gate *gate);
/* Closes the handle now, or lets the last user do so. */
void stk_py_gate_close(struct stk_py_gate *gate);
/* The method close(), and the deallocator, of an object with a gate. */
PyObject *stk_py_gated_close(PyObject *self, PyObject *nothing);
void stk_py_gated_dealloc(PyObject *self);

/* Guards a handle that one thread at a time may use. Other threads wait. */
struct stk_py_lock {
    PyThread_type_lock mutex;
    bool closed; /* after init: true, until the handle is open */
    pid_t process;
};

/* Returns false with an exception without memory. */
bool stk_py_lock_init(struct stk_py_lock *lock);
void stk_py_lock_deinit(struct stk_py_lock *lock); /* zeroed is fine */
/* Waits for the lock; checks signals every STK_PY_SLICE_MS. Returns false with an exception if the
 * object is closed, belongs to another process, or a signal handler raised one. */
bool stk_py_lock_enter(struct stk_py_lock *lock, const char *object, const char *advice);
void stk_py_lock_leave(struct stk_py_lock *lock);
/* The first time, in the process of the object: waits for the lock without the GIL, and calls
 * close(self). Else does nothing. */
void stk_py_lock_close(struct stk_py_lock *lock, PyObject *self, void (*close)(PyObject *self));

/* ---- background jobs (py_job.c) ---- */

union stk_py_job_item {
    struct stoker_finding finding;
    struct stoker_difference difference;
    struct stoker_pack_progress pack;
    struct stoker_copy_progress copy;
    struct stoker_indexer_progress indexer;
    struct stoker_checkpoint_progress checkpoint;
};

struct stk_py_job_kind {
    const char *name; /* in errors */
    /* Waits up to timeout_ms. Returns 1 and an item; 0 at the end; or an error. */
    int (*next)(void *handle, uint32_t timeout_ms, union stk_py_job_item *item,
                struct stoker_error *error);
    /* The result of next() in Python; called under the lock, since items may borrow from the job.
     */
    PyObject *(*convert)(int status, const union stk_py_job_item *item);
    /* The same for an error. NULL: raises it. */
    PyObject *(*convert_failure)(int status, const union stk_py_job_item *item,
                                 const struct stoker_error *error);
    void (*close)(void *handle);
};

struct stk_py_job {
    PyObject_HEAD void *handle; /* used under the lock only */
    const struct stk_py_job_kind *kind;
    struct stk_py_lock lock;
};

/* A job without a handle; NULL with an exception. */
struct stk_py_job *stk_py_job_new(PyTypeObject *type, const struct stk_py_job_kind *kind);
/* Finishes tp_new: takes the handle and returns the object; or, if status is an error, releases the
 * object, raises the error and returns NULL. */
PyObject *stk_py_job_opened(struct stk_py_job *self, void *handle, int status,
                            const struct stoker_error *error);
bool stk_py_job_enter(struct stk_py_job *self); /* false: the exception is set */
void stk_py_job_leave(struct stk_py_job *self);
/* The methods: next() waits for an item; next(timeout_ms) returns progress after that time at most;
 * close() stops the work. */
PyObject *stk_py_job_next_item(PyObject *object, PyObject *nothing);
PyObject *stk_py_job_next_progress(PyObject *object, PyObject *timeout);
PyObject *stk_py_job_close(PyObject *object, PyObject *nothing);
void stk_py_job_dealloc(PyObject *object);

/* ---- states (py_state.c) ---- */

/* (order_version, shuffle, tail, window_blocks, group_count, seed, epoch, position, sample_count,
 * block_samples, mix, subset, draws, repeats, repeat_distance, epoch_samples, fingerprint,
 * identity)
 */
PyObject *stk_py_state_tuple(const struct stoker_state *state);
/* Parses such a tuple. Returns false with an exception. */
bool stk_py_state_parse(PyObject *tuple, struct stoker_state *state_out);
/* (epoch, position); raises if status is an error. */
PyObject *stk_py_position(int status, uint64_t epoch, uint64_t position);

/* ---- bad samples (py_bad_sample.c) ---- */

/* A list of (shard, key, offset | None, status, name of the status, reason, sample | None). get:
 * fills the entry, or returns an error past the end. */
PyObject *stk_py_bad_samples(void *handle, int (*get)(void *handle, uint64_t index,
                                                      struct stoker_quarantine_entry *entry));

/* ---- the order (py_order.c) ---- */

struct stk_py_step {
    uint64_t epoch, step, rank; /* rank UINT32_MAX: all */
};

/* order_at(sample_count, block_samples, window_blocks, group_count, shuffle, seed, epoch,
 * position) -> sample */
PyObject *stk_py_order_at(PyObject *self, PyObject *arguments);
/* A list of (rank, slot, epoch, position, sample, real). */
PyObject *stk_py_order_slots(const struct stoker_order *order, const struct stk_py_step *step);

/* ---- a reference to a batch (py_batch.c) ---- */

struct stk_py_batch_ref {
    struct stoker_batch *batch;
    pid_t process; /* of the loader */
};

struct stk_py_batch_ref stk_py_batch_ref_share(const struct stk_py_batch_ref *ref);
/* Any thread, with or without the GIL. In a child after fork it only clears the pointer: a thread
 * that does not exist there may hold the locks of the batch pool. */
void stk_py_batch_ref_release(struct stk_py_batch_ref *ref);

/* Takes ownership of the batch, also on failure. */
PyObject *stk_py_batch_new(struct stk_py_module *module, struct stoker_batch *batch);

/* ---- Array (py_array.c, py_dlpack.c) ---- */

/* A dtype in Python, struct and DLPack. */
struct stk_py_dtype {
    uint32_t dtype; /* enum stoker_dtype */
    const char *name;
    const char *format; /* of the buffer protocol */
    uint32_t bytes;
    uint8_t dlpack_code;
};

struct stk_py_array {
    PyObject_HEAD struct stk_py_batch_ref ref;
    void *data;
    const struct stk_py_dtype *dtype;
    int dimension_count;
    Py_ssize_t shape[4];
    Py_ssize_t strides[4]; /* in bytes */
    Py_ssize_t bytes;      /* of all elements */
    bool read_only;
};

/* An Array that shows memory of the batch and owns a reference to it. */
PyObject *stk_py_array_new(struct stk_py_module *module, const struct stk_py_batch_ref *ref,
                           const struct stoker_array *array, bool read_only);
PyObject *stk_py_array_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *stk_py_array_dlpack_device(PyObject *self, PyObject *nothing);

/* ---- ExternalFs, Cache, Engine, Dataset, Tokens ---- */

struct stk_py_external_fs {
    PyObject_HEAD struct stk_py_gate gate;
    struct stoker_external_fs *handle;
};

struct stk_py_cache {
    PyObject_HEAD struct stk_py_gate gate;
    struct stoker_cache *cache;
};
/* Counters of a cache, as a dict. */
PyObject *stk_py_cache_stats(struct stoker_cache *cache);

struct stk_py_engine {
    PyObject_HEAD struct stk_py_gate gate;
    struct stoker_engine *engine;
};

struct stk_py_dataset {
    PyObject_HEAD struct stk_py_gate gate;
    struct stoker_dataset *dataset;
};

struct stk_py_tokens {
    PyObject_HEAD struct stk_py_gate gate;
    struct stoker_tokens *tokens;
};

/* ---- a loader's mix (py_mix.c) ---- */

struct stk_py_mix {
    struct stoker_mix_options options;
    uint64_t *numbers;                      /* owned */
    struct stoker_mix_change *changes;      /* owned */
    const struct stoker_sampler **samplers; /* owned; the samplers belong to the tuple */
};

/* Parses (ends, weights, limits, ((position, weights), ...), end, unit_samples, epoch_samples) into
 * a zeroed mix, which borrows from the tuple. Returns false with an exception. Call deinit in any
 * case. */
bool stk_py_mix_parse(struct stk_py_mix *mix, struct stk_py_module *module, PyObject *tuple);
void stk_py_mix_deinit(struct stk_py_mix *mix); /* zeroed is fine */
/* mix_samples(sample_count, mix) */
PyObject *stk_py_mix_samples(PyObject *self, PyObject *arguments);

/* ---- a loader's sampling (py_sampler.c) ---- */

struct stk_py_sampling {
    struct stoker_sampling_options options; /* borrows the samplers */
    struct stoker_sampling_stage *stages;   /* owned */
};

/* The handle of a Sampler. Returns false with an exception if the object is not one. */
bool stk_py_sampler_of(const struct stk_py_module *module, PyObject *object,
                       const struct stoker_sampler **sampler_out);
/* Parses (((position, Sampler | None), ...), repeats, repeat_distance, epoch samples). Returns
 * false with an exception. Call deinit in any case. */
bool stk_py_sampling_parse(struct stk_py_sampling *sampling, struct stk_py_module *module,
                           PyObject *tuple);
void stk_py_sampling_deinit(struct stk_py_sampling *sampling); /* zeroed is fine */

/* ---- files (py_file.c) and URLs (py_url.c) ---- */

/* Zeroed, with its struct_size; free it with PyMem_Free. NULL with an exception. */
struct stoker_file_info *stk_py_file_info_new(void);
/* (name, kind, bytes, mtime_ns, etag, storage_class, archive, restored_until_ns) */
PyObject *stk_py_file_info_tuple(const struct stoker_file_info *info);

/* stat(engine, path) -> the tuple of a stoker_file_info */
PyObject *stk_py_stat(PyObject *module, PyObject *arguments);
/* paths_expand(engine, path[, no_links]) -> (True if the path is a pattern, [path, ...]) */
PyObject *stk_py_paths_expand(PyObject *module, PyObject *arguments);
/* buckets_list(engine, url) -> [name, ...] */
PyObject *stk_py_buckets_list(PyObject *module, PyObject *arguments);
/* presign(engine, url, expires_s, put) -> URL */
PyObject *stk_py_presign(PyObject *module, PyObject *arguments);
/* files_forget_metadata(engine) */
PyObject *stk_py_files_forget_metadata(PyObject *module, PyObject *arguments);
/* files_prefetch_metadata(engine, paths) */
PyObject *stk_py_files_prefetch_metadata(PyObject *module, PyObject *arguments);
/* read_ranges([(File, offset, bytes), ...], gap) -> [bytes or an exception, ...] */
PyObject *stk_py_read_ranges(PyObject *module, PyObject *arguments);
/* url_alias(url), url_redact(url): bytes to bytes */
PyObject *stk_py_url_alias(PyObject *self, PyObject *url);
PyObject *stk_py_url_redact(PyObject *self, PyObject *url);
/* location(engine, url) -> dict */
PyObject *stk_py_location(PyObject *module, PyObject *arguments);

/* ---- checkpoints (py_checkpoint.c, py_checkpoint_read.c) ---- */

/* (running, bytes, bytes_done, run_ns) */
PyObject *stk_py_checkpoint_progress(int status, const union stk_py_job_item *item);
PyObject *stk_py_checkpoint_list(PyObject *module, PyObject *arguments);
PyObject *stk_py_checkpoint_pin(PyObject *module, PyObject *arguments);
PyObject *stk_py_checkpoint_remove(PyObject *module, PyObject *arguments);
PyObject *stk_py_checkpoint_gc(PyObject *module, PyObject *arguments);

/* ---- rows of documents (py_token_loader.c) ---- */

/* token_rows_batch((engine, context), options, epoch, tokens, ends, ids) -> Batch */
PyObject *stk_py_token_rows_batch(PyObject *module, PyObject *arguments);

/* ---- types ---- */

extern PyType_Spec stk_py_external_fs_spec, stk_py_cache_spec, stk_py_engine_spec,
    stk_py_dataset_spec, stk_py_loader_spec, stk_py_batch_spec, stk_py_array_spec,
    stk_py_bytes_spec, stk_py_pack_spec, stk_py_shard_writer_spec, stk_py_verify_spec,
    stk_py_diff_spec, stk_py_indexer_spec, stk_py_sampler_spec, stk_py_tokens_spec,
    stk_py_token_loader_spec, stk_py_file_spec, stk_py_walk_spec, stk_py_copy_spec,
    stk_py_checkpoint_spec, stk_py_checkpoint_load_spec, stk_py_checkpoint_writer_spec,
    stk_py_checkpoint_save_spec;

static inline struct stk_py_module *stk_py_module_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self)); /* the module's types cannot be subclassed */
}

#endif
