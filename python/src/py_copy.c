/* Copy: a job that copies, synchronises or removes files and objects. */
#include "py.h"

static int copy_next(void *handle, uint32_t timeout_ms, union stk_py_job_item *item,
                     struct stoker_error *error)
{
    item->copy = (struct stoker_copy_progress){.struct_size = sizeof item->copy};
    return stoker_copy_next(handle, timeout_ms, &item->copy, error);
}

/* (goes_on, progress, failure); takes the reference to failure. */
static PyObject *progress_tuple(int status, const struct stoker_copy_progress *progress,
                                PyObject *failure)
{
#define N(field) #field, (unsigned long long)progress->field
    return Py_BuildValue("O{sKsKsKsKsKsKsKsKsKsKsKsK}N", status > 0 ? Py_True : Py_False, N(listed),
                         N(files), N(bytes), N(files_done), N(bytes_done), "files_kept",
                         (unsigned long long)progress->files_skipped, "bytes_kept",
                         (unsigned long long)progress->bytes_skipped, N(files_removed),
                         N(files_failed), N(links_left_out), "files_spared",
                         (unsigned long long)progress->files_not_deleted, N(run_ns), failure);
#undef N
}

static PyObject *copy_convert(int status, const union stk_py_job_item *item)
{
    return progress_tuple(status, &item->copy, Py_NewRef(Py_None));
}

/* The caller also needs the progress of a copy that failed, so the exception is returned. */
static PyObject *copy_convert_failure(int status, const union stk_py_job_item *item,
                                      const struct stoker_error *error)
{
    PyObject *failure = stk_py_exception(status, error);

    return failure ? progress_tuple(status, &item->copy, failure) : NULL;
}

static void copy_close(void *handle)
{
    stoker_copy_close(handle);
}

static const struct stk_py_job_kind copy_kind = {"copy", copy_next, copy_convert,
                                                 copy_convert_failure, copy_close};

static PyObject *copy_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"engine",
                            "kind",
                            "sources",
                            "destination",
                            "recursive",
                            "update",
                            "no_clobber",
                            "delete_extra",
                            "unfinished_uploads",
                            "workers",
                            "part_bytes",
                            "memory_bytes",
                            "unfinished_age_s",
                            "check",
                            "storage_class",
                            "encryption",
                            "encryption_key",
                            "encryption_context",
                            NULL};

    struct stoker_copy_options options = {.struct_size = sizeof options};
    struct stk_py_module *module = PyType_GetModuleState(type);
    int recursive = 0, update = 0, no_clobber = 0, delete_extra = 0, unfinished = 0, status;
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    struct stoker_copy *copy = NULL;
    struct stk_py_job *self;
    const char **sources;
    PyObject *tuple;

    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!O&O!y|$pppppO&O&O&O&O&zzzz:Copy", names, module->engine_type,
            &engine, stk_py_u32, &options.kind, &PyTuple_Type, &tuple, &options.destination,
            &recursive, &update, &no_clobber, &delete_extra, &unfinished, stk_py_u32,
            &options.workers, stk_py_u64, &options.part_bytes, stk_py_u64, &options.memory_bytes,
            stk_py_u64, &options.unfinished_age_s, stk_py_u32, &options.check,
            &options.storage_class, &options.encryption, &options.encryption_key,
            &options.encryption_context)) {
        return NULL;
    }
    sources = stk_py_paths(tuple);
    self = sources ? stk_py_job_new(type, &copy_kind) : NULL;
    if (!self || !stk_py_gate_enter(&engine->gate, "engine")) {
        Py_XDECREF((PyObject *)self);
        PyMem_Free(sources);
        return NULL;
    }
    options.destination = options.destination[0] ? options.destination : NULL;
    options.sources = sources;
    options.source_count = (size_t)PyTuple_Size(tuple);
    options.recursive = (uint32_t)recursive;
    options.update = (uint32_t)update;
    options.no_clobber = (uint32_t)no_clobber;
    options.delete_extra = (uint32_t)delete_extra;
    options.unfinished_uploads = (uint32_t)unfinished;
    Py_BEGIN_ALLOW_THREADS status = stoker_copy_open(&copy, engine->engine, &options, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    PyMem_Free(sources);
    return stk_py_job_opened(self, copy, status, &error);
}

static PyMethodDef copy_methods[] = {
    {"next", stk_py_job_next_progress, METH_O,
     "next(timeout_ms) -> (goes_on, progress, exception | None)"},
    {"close", stk_py_job_close, METH_NOARGS, "Stops the copy; finished files stay."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot copy_slots[] = {
    {Py_tp_new, copy_new},
    {Py_tp_dealloc, stk_py_job_dealloc},
    {Py_tp_methods, copy_methods},
    {0, NULL},
};

PyType_Spec stk_py_copy_spec = {
    .name = "stoker._stoker.Copy",
    .basicsize = sizeof(struct stk_py_job),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = copy_slots,
};
