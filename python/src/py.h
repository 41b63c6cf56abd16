/* py.h: what the files of the extension module share. They see <stoker/stoker.h> and the limited
 * API of CPython (abi3), nothing else.
 *
 *   Desk <-- Engine <-- Dataset <-- Loader --next()--> Batch --> Array, Bytes --> memoryview,
 * DLPack
 *          <-- Indexer
 *          <-- Tokens <-- TokenLoader --next()--> Batch
 *          <-- File, Walk, Copy
 *
 * Owner: Python's reference counts; a batch is held once by each object that shows its memory.
 * Threads: the GIL guards every field here; it is released around each call that may wait.
 * Memory: PyMem_*, and malloc for what a DLPack consumer frees without the GIL.
 * Bound: STK_PY_FIELDS_MAX fields, STK_PY_TRANSFORMS_MAX transforms each. */
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
#define STK_PY_SLICE_MS 50 /* between two looks at pending signals */

struct stk_py_module {
    PyTypeObject *desk_type, *engine_type, *dataset_type, *loader_type, *batch_type, *array_type,
        *bytes_type;
    PyTypeObject *pack_type, *writer_type;
    PyTypeObject *verify_type, *diff_type;
    PyTypeObject *indexer_type, *sampler_type;
    PyTypeObject *tokens_type, *token_loader_type;
    PyTypeObject *file_type, *walk_type, *copy_type;
};

/* ---- errors (py_error.c) ---- */

/* Sets the exception of stoker.errors that belongs to the status. Always returns NULL. */
void *stk_py_raise(int status, const struct stoker_error *error);
/* The same for a mistake found in this module. */
void *stk_py_raise_text(int status, const char *what, const char *where, const char *advice);
/* Whether the process is a fork's child of the one that made the object; the error is set. */
bool stk_py_forked(pid_t process, const char *object);
/* Bytes that may not be UTF-8 (paths, keys), as tarfile and os.fsdecode give them. */
PyObject *stk_py_text(const char *text, size_t bytes);

/* ---- numbers (py_error.c): converters for "O&", with a range check ---- */

int stk_py_u32(PyObject *number, void *u32_out);
int stk_py_u64(PyObject *number, void *u64_out);

/* ---- a hold on a batch (py_batch.c) ---- */

struct stk_py_hold {
    struct stoker_batch *batch;
    pid_t process; /* that was given the batch */
};

struct stk_py_hold stk_py_hold_share(const struct stk_py_hold *hold);
/* Any thread, with or without the GIL. In a fork's child it only forgets: the pool's locks may be
 * held by a thread that does not exist there. */
void stk_py_hold_close(struct stk_py_hold *hold);

/* ---- damaged samples (py_loader.c) ---- */

/* (shard, key, offset | None, status, name of the status, reason, sample | None) */
PyObject *stk_py_bad_sample(const struct stoker_quarantine_entry *entry);

/* ---- Array (py_array.c, py_dlpack.c) ---- */

/* What a dtype is called by Python, struct and DLPack. */
struct stk_py_dtype {
    uint32_t dtype; /* enum stoker_dtype */
    const char *name;
    const char *format; /* of the buffer protocol */
    uint32_t bytes;
    uint8_t dlpack_code;
};

struct stk_py_array {
    PyObject_HEAD struct stk_py_hold hold;
    void *data;
    const struct stk_py_dtype *dtype;
    int dimension_count;
    Py_ssize_t shape[4];
    Py_ssize_t strides[4]; /* in bytes */
    Py_ssize_t bytes;      /* of the elements */
    bool read_only;
};

/* A new Array over memory of the batch; shares the hold. */
PyObject *stk_py_array_new(struct stk_py_module *module, const struct stk_py_hold *hold,
                           const struct stoker_array *array, bool read_only);
PyObject *stk_py_array_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *stk_py_array_dlpack_device(PyObject *self, PyObject *nothing);

/* ---- Batch and Bytes (py_batch.c) ---- */

/* Takes the batch, also on failure. */
PyObject *stk_py_batch_new(struct stk_py_module *module, struct stoker_batch *batch);

/* ---- Engine and Dataset ---- */

/* A handle that several threads use and one may close: the last one out closes it. */
struct stk_py_gate {
    uint32_t users;
    bool closed;
    pid_t process;
};

/* false: the exception is set. Each enter needs its leave; leave answers whether the caller is
 * to close the handle now. */
bool stk_py_gate_enter(struct stk_py_gate *gate, const char *object);
bool stk_py_gate_leave(struct stk_py_gate *gate);
/* Whether the caller is to close the handle now. */
bool stk_py_gate_close(struct stk_py_gate *gate);

struct stk_py_engine {
    PyObject_HEAD struct stoker_engine *engine;
    struct stk_py_gate gate;
};

struct stk_py_desk {
    PyObject_HEAD struct stoker_external_fs *desk;
    struct stk_py_gate gate;
};

struct stk_py_dataset {
    PyObject_HEAD struct stoker_dataset *dataset;
    struct stk_py_gate gate;
};

/* Leaves the gate, and closes the handle if that is now to be done. */
void stk_py_engine_leave(struct stk_py_engine *self);
void stk_py_dataset_leave(struct stk_py_dataset *self);
/* The urls (a tuple of bytes) as an array of pointers into them, for PyMem_Free; NULL with an
 * exception. */
const char **stk_py_urls(PyObject *tuple);
/* What state() gives. (py_loader.c) */
PyObject *stk_py_state_tuple(const struct stoker_state *state);
/* A state from the tuple of the loader's state(); false: the exception is set. (py_loader.c) */
bool stk_py_state(PyObject *tuple, struct stoker_state *state_out);

/* ---- a loader's mix (py_mix.c) ---- */

struct stk_py_mix {
    struct stoker_mix_options options;
    uint64_t *numbers;                      /* owned */
    struct stoker_mix_change *changes;      /* owned */
    const struct stoker_sampler **samplers; /* owned; they are the tuple's */
};

/* (ends, weights, limits, ((position, weights), ...), end, unit_samples, epoch_samples); false: the
 * exception is set. Zeroed before. */
bool stk_py_mix_parse(struct stk_py_mix *mix, struct stk_py_module *module, PyObject *tuple);
void stk_py_mix_deinit(struct stk_py_mix *mix); /* zeroed is fine */
/* mix_samples(sample_count, mix) */
PyObject *stk_py_mix_samples(PyObject *self, PyObject *arguments);

/* ---- a loader's stages of samplers (py_sampler.c) ---- */

struct stk_py_sampling {
    struct stoker_sampling_options options; /* borrows the samplers */
    struct stoker_sampling_stage *stages;   /* owned */
};

/* (((position, Sampler | None), ...), repeats, apart, epoch samples); false: the exception is set.
 * Deinit in any case. */
/* false: it is none, and the exception is set. */
bool stk_py_sampler_of(const struct stk_py_module *module, PyObject *object,
                       const struct stoker_sampler **sampler_out);
bool stk_py_sampling_parse(struct stk_py_sampling *sampling, struct stk_py_module *module,
                           PyObject *tuple);
void stk_py_sampling_deinit(struct stk_py_sampling *sampling); /* zeroed is fine */

/* ---- types ---- */

extern PyType_Spec stk_py_desk_spec, stk_py_engine_spec, stk_py_dataset_spec, stk_py_loader_spec,
    stk_py_batch_spec, stk_py_array_spec, stk_py_bytes_spec, stk_py_pack_spec, stk_py_writer_spec,
    stk_py_verify_spec, stk_py_diff_spec, stk_py_indexer_spec, stk_py_sampler_spec,
    stk_py_tokens_spec, stk_py_token_loader_spec, stk_py_file_spec, stk_py_walk_spec,
    stk_py_copy_spec;

static inline struct stk_py_module *stk_py_module_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self)); /* no type of ours can be subclassed */
}

/* rows((engine, context), options, epoch, tokens, ends, ids) -> Batch; in py_tokens.c. */
PyObject *stk_py_rows(PyObject *module, PyObject *arguments);

/* ---- files (py_files.c) ---- */

/* stat(engine, path) -> (name, kind, bytes, mtime_ns, etag) */
PyObject *stk_py_stat(PyObject *module, PyObject *arguments);
PyObject *stk_py_match(PyObject *module, PyObject *arguments);
PyObject *stk_py_where(PyObject *module, PyObject *arguments);
/* expect(engine, paths) */
PyObject *stk_py_expect(PyObject *module, PyObject *arguments);
/* read_ranges([(File, offset, bytes), ...], gap) -> [bytes or an exception, ...] */
PyObject *stk_py_read_ranges(PyObject *module, PyObject *arguments);

/* Frees the memory of an object of a heap type and drops its type. */
void stk_py_object_free(PyObject *self);

#endif
