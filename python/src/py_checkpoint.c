/* CheckpointWriter and CheckpointSave: write the state of a training. */
#include "py.h"

struct writer {
    PyObject_HEAD struct stk_py_gate gate;
    struct stoker_checkpoint_writer *writer;
};

/* A job that also holds what it borrows. */
struct save {
    struct stk_py_job job;
    PyObject *writer, *tensors; /* references; tensors: until they are copied */
};

static void writer_close_handle(PyObject *object)
{
    struct writer *self = (struct writer *)object;

    stoker_checkpoint_writer_close(self->writer);
    self->writer = NULL;
}

/* CheckpointWriter(engine, path, memory_bytes_max, threads, bytes_per_s_max, cpu_percent_max) */
static PyObject *writer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"engine",           "path",
                            "memory_bytes_max", "threads",
                            "bytes_per_s_max",  "cpu_percent_max",
                            "call_timeout_ms",  NULL};

    struct stoker_checkpoint_writer_options options = {.struct_size = sizeof options};
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_checkpoint_writer *writer = NULL;
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    struct writer *self;
    int status;

    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!y|O&O&O&O&O&:CheckpointWriter", names, module->engine_type,
            &engine, &options.path, stk_py_u64, &options.memory_bytes_max, stk_py_u32,
            &options.threads, stk_py_u64, &options.bytes_per_s_max, stk_py_u32,
            &options.cpu_percent_max, stk_py_u32, &options.call_timeout_ms)) {
        return NULL;
    }
    self = stk_py_object_new(type);
    if (!self) {
        return NULL;
    }
    stk_py_gate_init(&self->gate, writer_close_handle);
    if (!stk_py_gate_enter(&engine->gate, "engine")) {
        Py_DECREF(self);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_checkpoint_writer_open(&writer, engine->engine, &options, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    if (status < 0) {
        Py_DECREF(self);
        return stk_py_raise(status, &error);
    }
    self->writer = writer;
    self->gate.closed = false;
    return (PyObject *)self;
}

/* Tensors of a save: tuples (name, dtype, shape, address). */
struct tensors {
    struct stoker_checkpoint_tensor *items;
    uint64_t *shapes;
    size_t count;
};

static bool tensors_add(struct tensors *tensors, PyObject *item)
{
    struct stoker_checkpoint_tensor *tensor = &tensors->items[tensors->count];
    uint64_t *shape = tensors->shapes + tensors->count * STOKER_CHECKPOINT_DIMENSIONS_MAX;
    unsigned long long address;
    PyObject *dimensions;
    Py_ssize_t count;

    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "ysO!K", &tensor->name, &tensor->dtype,
                                                  &PyTuple_Type, &dimensions, &address)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a tensor is (name, dtype, shape, address)");
        }
        return false;
    }
    count = PyTuple_Size(dimensions);
    if (count > (Py_ssize_t)STOKER_CHECKPOINT_DIMENSIONS_MAX) {
        stk_py_raise_text(STOKER_ERROR_ARGUMENT, "a tensor has too many dimensions", tensor->name,
                          "use at most 32");
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!stk_py_u64(PyTuple_GetItem(dimensions, i), &shape[i])) {
            return false;
        }
    }
    tensor->shape = shape;
    tensor->dimension_count = (uint32_t)count;
    tensor->data = (const void *)(uintptr_t)address;
    tensors->count++;
    return true;
}

static bool tensors_init(struct tensors *tensors, PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);

    tensors->items = PyMem_Calloc((size_t)count + 1, sizeof *tensors->items);
    tensors->shapes =
        PyMem_Calloc((size_t)count + 1, STOKER_CHECKPOINT_DIMENSIONS_MAX * sizeof *tensors->shapes);
    if (!tensors->items || !tensors->shapes) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!tensors_add(tensors, PyList_GetItem(list, i))) {
            return false;
        }
    }
    return true;
}

static void tensors_deinit(struct tensors *tensors)
{
    PyMem_Free(tensors->items);
    PyMem_Free(tensors->shapes);
}

static int save_next(void *handle, uint32_t timeout_ms, union stk_py_job_item *item,
                     struct stoker_error *error)
{
    item->checkpoint = (struct stoker_checkpoint_progress){.struct_size = sizeof item->checkpoint};
    return stoker_checkpoint_save_next(handle, timeout_ms, &item->checkpoint, error);
}

PyObject *stk_py_checkpoint_progress(int status, const union stk_py_job_item *item)
{
    return Py_BuildValue(
        "OKKKKK", status > 0 ? Py_True : Py_False, (unsigned long long)item->checkpoint.bytes,
        (unsigned long long)item->checkpoint.bytes_done,
        (unsigned long long)item->checkpoint.run_ns, (unsigned long long)item->checkpoint.nan_count,
        (unsigned long long)item->checkpoint.inf_count);
}

static void save_close(void *handle)
{
    stoker_checkpoint_save_close(handle);
}

static const struct stk_py_job_kind save_kind = {"save", save_next, stk_py_checkpoint_progress,
                                                 NULL, save_close};

/* save(step, tensors, tree, values, rank, ranks, save_id, file) -> CheckpointSave */
static PyObject *writer_save(PyObject *object, PyObject *arguments)
{
    struct stoker_checkpoint_save_options options = {.struct_size = sizeof options};
    struct stk_py_module *module = stk_py_module_of(object);
    struct writer *self = (struct writer *)object;
    struct stoker_checkpoint_save *handle = NULL;
    struct stoker_error error = {0};
    struct tensors tensors = {0};
    struct save *save = NULL;
    PyObject *list;
    int status;

    if (!PyArg_ParseTuple(arguments, "O&O!zzO&O&zz:save", stk_py_u64, &options.step, &PyList_Type,
                          &list, &options.tree, &options.values, stk_py_u32, &options.rank,
                          stk_py_u32, &options.ranks, &options.save_id, &options.file)) {
        return NULL;
    }
    if (tensors_init(&tensors, list)) {
        save = (struct save *)stk_py_job_new(module->checkpoint_save_type, &save_kind);
    }
    if (!save || !stk_py_gate_enter(&self->gate, "checkpoint writer")) {
        Py_XDECREF((PyObject *)save);
        tensors_deinit(&tensors);
        return NULL;
    }
    save->writer = Py_NewRef(object);
    save->tensors = Py_NewRef(list);
    options.tensors = tensors.items;
    options.tensor_count = tensors.count;
    options.pieces = 1;
    Py_BEGIN_ALLOW_THREADS status =
        stoker_checkpoint_save_open(&handle, self->writer, &options, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    tensors_deinit(&tensors);
    return stk_py_job_opened(&save->job, handle, status, &error);
}

/* commit(step, values, ranks, save_id, parts) */
static PyObject *writer_commit(PyObject *object, PyObject *arguments)
{
    struct stoker_checkpoint_save_options options = {.struct_size = sizeof options};
    struct writer *self = (struct writer *)object;
    struct stoker_error error = {0};
    const char *parts;
    Py_ssize_t bytes;
    int status;

    if (!PyArg_ParseTuple(arguments, "O&zO&sy#:commit", stk_py_u64, &options.step, &options.values,
                          stk_py_u32, &options.ranks, &options.save_id, &parts, &bytes)) {
        return NULL;
    }
    if ((size_t)bytes != options.ranks * sizeof(struct stoker_checkpoint_part)) {
        return stk_py_raise_text(STOKER_ERROR_ARGUMENT, "the parts have another length", "commit",
                                 "join what part() returned on each rank");
    }
    if (!stk_py_gate_enter(&self->gate, "checkpoint writer")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_checkpoint_commit(
        self->writer, &options, (const struct stoker_checkpoint_part *)(const void *)parts, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    return status < 0 ? stk_py_raise(status, &error) : Py_NewRef(Py_None);
}

/* set_limits(bytes_per_s_max, cpu_percent_max) */
static PyObject *writer_set_limits(PyObject *object, PyObject *arguments)
{
    struct writer *self = (struct writer *)object;
    struct stoker_error error = {0};
    uint64_t bytes_per_s_max;
    uint32_t cpu_percent_max;
    int status;

    if (!PyArg_ParseTuple(arguments, "O&O&:set_limits", stk_py_u64, &bytes_per_s_max, stk_py_u32,
                          &cpu_percent_max) ||
        !stk_py_gate_enter(&self->gate, "checkpoint writer")) {
        return NULL;
    }
    status =
        stoker_checkpoint_writer_set_limits(self->writer, bytes_per_s_max, cpu_percent_max, &error);
    stk_py_gate_leave(&self->gate);
    return status < 0 ? stk_py_raise(status, &error) : Py_NewRef(Py_None);
}

/* ---- CheckpointSave ---- */

/* copy(timeout_ms) -> None: again; True once all bytes are copied; or what the caller copies:
 * (tensor, offset, bytes, address, address of the block, its bytes) */
static PyObject *save_copy(PyObject *object, PyObject *timeout)
{
    struct stoker_checkpoint_piece piece = {.struct_size = sizeof piece};
    struct save *self = (struct save *)object;
    struct stoker_error error = {0};
    uint32_t timeout_ms;
    int status;

    if (!stk_py_u32(timeout, &timeout_ms) || !stk_py_job_enter(&self->job)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_checkpoint_save_copy_piece(self->job.handle, timeout_ms, &piece, &error);
    Py_END_ALLOW_THREADS stk_py_job_leave(&self->job);
    if (status == STOKER_ERROR_AGAIN) {
        Py_RETURN_NONE;
    }
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
    if (status == 0) {
        Py_CLEAR(self->tensors);
        Py_RETURN_TRUE;
    }
    return Py_BuildValue(
        "KKKKKK", (unsigned long long)piece.tensor, (unsigned long long)piece.offset,
        (unsigned long long)piece.bytes, (unsigned long long)(uintptr_t)piece.buffer,
        (unsigned long long)(uintptr_t)piece.block, (unsigned long long)piece.block_bytes);
}

/* part() -> bytes for commit() of rank 0 */
static PyObject *save_part(PyObject *object, PyObject *nothing)
{
    struct save *self = (struct save *)object;
    struct stoker_checkpoint_part part;
    struct stoker_error error = {0};
    int status;

    (void)nothing;
    if (!stk_py_job_enter(&self->job)) {
        return NULL;
    }
    status = stoker_checkpoint_save_part(self->job.handle, &part, &error);
    stk_py_job_leave(&self->job);
    return status < 0 ? stk_py_raise(status, &error)
                      : PyBytes_FromStringAndSize((const char *)&part, sizeof part);
}

static void save_dealloc(PyObject *object)
{
    struct save *self = (struct save *)object;

    Py_XDECREF(stk_py_job_close(object, NULL)); /* it reads the tensors */
    Py_CLEAR(self->tensors);
    Py_CLEAR(self->writer);
    stk_py_job_dealloc(object);
}

static PyMethodDef writer_methods[] = {
    {"save", writer_save, METH_VARARGS, "Starts a save."},
    {"commit", writer_commit, METH_VARARGS, "Commits a save of several ranks."},
    {"set_limits", writer_set_limits, METH_VARARGS, "Changes the limits of its saves."},
    {"close", stk_py_gated_close, METH_NOARGS, "Frees the memory once no save runs."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_new, writer_new},
    {Py_tp_dealloc, stk_py_gated_dealloc},
    {Py_tp_methods, writer_methods},
    {0, NULL},
};

PyType_Spec stk_py_checkpoint_writer_spec = {
    .name = "stoker._stoker.CheckpointWriter",
    .basicsize = sizeof(struct writer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = writer_slots,
};

static PyMethodDef save_methods[] = {
    {"copy", save_copy, METH_O, "copy(timeout_ms) -> None, True or a piece."},
    {"next", stk_py_job_next_progress, METH_O,
     "next(timeout_ms) -> (running, bytes, bytes_done, run_ns, nan, inf)"},
    {"part", save_part, METH_NOARGS, "What rank 0 needs for commit()."},
    {"close", stk_py_job_close, METH_NOARGS, "Ends the save."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot save_slots[] = {
    {Py_tp_dealloc, save_dealloc},
    {Py_tp_methods, save_methods},
    {0, NULL},
};

PyType_Spec stk_py_checkpoint_save_spec = {
    .name = "stoker._stoker.CheckpointSave",
    .basicsize = sizeof(struct save),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = save_slots,
};
