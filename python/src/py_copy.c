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
    return Py_BuildValue("O{sKsKsKsKsKsKsKsKsKsKsKsKsK}N", status > 0 ? Py_True : Py_False,
                         N(listed), N(files), N(bytes), N(files_done), N(bytes_done), "files_kept",
                         (unsigned long long)progress->files_skipped, "bytes_kept",
                         (unsigned long long)progress->bytes_skipped, N(files_removed),
                         N(files_failed), N(links_left_out), N(system_files_left_out),
                         "files_spared", (unsigned long long)progress->files_not_deleted, N(run_ns),
                         failure);
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

/* Flags of the options, as ints for PyArg_Parse. */
struct copy_flags {
    int recursive, update, no_clobber, delete_extra, unfinished, dry_run, skip_system_files;
};

/* The engine, and the text lists of the options: tuples of bytes. */
struct copy_lists {
    struct stk_py_engine *engine; /* borrowed */
    PyObject *sources, *filters, *names;
    const char **source_paths, **filter_texts, **name_texts; /* owned */
};

static bool parse_copy(PyObject *arguments, PyObject *keywords, struct stk_py_module *module,
                       struct stoker_copy_options *options, struct copy_flags *flags,
                       struct copy_lists *lists)
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
                            "dry_run",
                            "workers",
                            "part_bytes",
                            "memory_bytes",
                            "unfinished_age_s",
                            "check",
                            "storage_class",
                            "encryption",
                            "encryption_key",
                            "encryption_context",
                            "compare",
                            "bytes_per_second_max",
                            "filters",
                            "names",
                            "skip_system_files",
                            NULL};

    return PyArg_ParseTupleAndKeywords(
        arguments, keywords, "O!O&O!y|$ppppppO&O&O&O&O&zzzzO&O&O!O!p:Copy", names,
        module->engine_type, &lists->engine, stk_py_u32, &options->kind, &PyTuple_Type,
        &lists->sources, &options->destination, &flags->recursive, &flags->update,
        &flags->no_clobber, &flags->delete_extra, &flags->unfinished, &flags->dry_run, stk_py_u32,
        &options->workers, stk_py_u64, &options->part_bytes, stk_py_u64, &options->memory_bytes,
        stk_py_u64, &options->unfinished_age_s, stk_py_u32, &options->check,
        &options->storage_class, &options->encryption, &options->encryption_key,
        &options->encryption_context, stk_py_u32, &options->compare, stk_py_u64,
        &options->bytes_per_second_max, &PyTuple_Type, &lists->filters, &PyTuple_Type,
        &lists->names, &flags->skip_system_files);
}

static void free_lists(struct copy_lists *lists)
{
    PyMem_Free(lists->source_paths);
    PyMem_Free(lists->filter_texts);
    PyMem_Free(lists->name_texts);
}

/* Borrows the texts of the tuples. Returns false with an exception. */
static bool read_lists(struct copy_lists *lists, struct stoker_copy_options *options)
{
    lists->source_paths = stk_py_paths(lists->sources);
    if (!lists->source_paths ||
        (lists->filters && !(lists->filter_texts = stk_py_paths(lists->filters))) ||
        (lists->names && !(lists->name_texts = stk_py_paths(lists->names)))) {
        return false;
    }
    options->sources = lists->source_paths;
    options->source_count = (size_t)PyTuple_Size(lists->sources);
    options->filters = lists->filter_texts;
    options->filter_count = lists->filters ? (size_t)PyTuple_Size(lists->filters) : 0;
    options->names = lists->name_texts;
    options->name_count = lists->names ? (size_t)PyTuple_Size(lists->names) : 0;
    return true;
}

static PyObject *copy_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    struct stoker_copy_options options = {.struct_size = sizeof options};
    struct copy_flags flags = {0};
    struct copy_lists lists = {NULL};
    struct stoker_error error = {0};
    struct stoker_copy *copy = NULL;
    struct stk_py_job *self;
    int status;

    if (!parse_copy(arguments, keywords, PyType_GetModuleState(type), &options, &flags, &lists)) {
        return NULL;
    }
    self = read_lists(&lists, &options) ? stk_py_job_new(type, &copy_kind) : NULL;
    if (!self || !stk_py_gate_enter(&lists.engine->gate, "engine")) {
        Py_XDECREF((PyObject *)self);
        free_lists(&lists);
        return NULL;
    }
    options.destination = options.destination[0] ? options.destination : NULL;
    options.recursive = (uint32_t)flags.recursive;
    options.update = (uint32_t)flags.update;
    options.no_clobber = (uint32_t)flags.no_clobber;
    options.delete_extra = (uint32_t)flags.delete_extra;
    options.unfinished_uploads = (uint32_t)flags.unfinished;
    options.dry_run = (uint32_t)flags.dry_run;
    options.skip_system_files = (uint32_t)flags.skip_system_files;
    Py_BEGIN_ALLOW_THREADS status = stoker_copy_open(&copy, lists.engine->engine, &options, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&lists.engine->gate);
    free_lists(&lists);
    return stk_py_job_opened(self, copy, status, &error);
}

/* (kind, name, to, exception | None) */
static PyObject *note_tuple(const struct stoker_copy_note *note)
{
    PyObject *name = PyUnicode_DecodeFSDefault(note->name);
    PyObject *to = PyUnicode_DecodeFSDefault(note->to);
    PyObject *failure = note->kind == STOKER_NOTE_FAILED
                            ? stk_py_exception(note->failure.status, &note->failure)
                            : Py_NewRef(Py_None);

    if (!name || !to || !failure) {
        Py_XDECREF(name);
        Py_XDECREF(to);
        Py_XDECREF(failure);
        return NULL;
    }
    return Py_BuildValue("INNN", note->kind, name, to, failure);
}

static PyObject *copy_notes(PyObject *object, PyObject *nothing)
{
    struct stk_py_job *self = (struct stk_py_job *)object;
    struct stoker_copy_note *note = PyMem_Calloc(1, sizeof *note);
    PyObject *list = note ? PyList_New(0) : PyErr_NoMemory();
    struct stoker_error error = {0};
    int status = 1;

    (void)nothing;
    if (!list || !stk_py_job_enter(self)) {
        Py_XDECREF(list);
        PyMem_Free(note);
        return NULL;
    }
    while (list && status == 1) {
        note->struct_size = sizeof *note;
        status = stoker_copy_next_note(self->handle, note, &error);
        if (status == 1) {
            PyObject *item = note_tuple(note);

            if (!item || PyList_Append(list, item) < 0) {
                Py_CLEAR(list);
            }
            Py_XDECREF(item);
        }
    }
    stk_py_job_leave(self);
    PyMem_Free(note);
    if (list && status < 0) {
        Py_DECREF(list);
        return stk_py_raise(status, &error);
    }
    return list;
}

static PyMethodDef copy_methods[] = {
    {"next", stk_py_job_next_progress, METH_O,
     "next(timeout_ms) -> (goes_on, progress, exception | None)"},
    {"notes", copy_notes, METH_NOARGS, "The notes since the last call."},
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
