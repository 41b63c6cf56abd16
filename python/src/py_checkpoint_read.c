/* Checkpoint and CheckpointLoad: read a step or a file. Functions that manage steps. */
#include "py.h"

struct checkpoint {
    PyObject_HEAD struct stk_py_gate gate;
    struct stoker_checkpoint *checkpoint;
};

/* A job that also holds what it borrows. */
struct load {
    struct stk_py_job job;
    PyObject *checkpoint, *buffers; /* references */
};

static void checkpoint_close_handle(PyObject *object)
{
    struct checkpoint *self = (struct checkpoint *)object;

    stoker_checkpoint_close(self->checkpoint);
    self->checkpoint = NULL;
}

/* Checkpoint(engine, path, step): step None: the newest */
static PyObject *checkpoint_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"engine", "path", "step", NULL};

    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_checkpoint *checkpoint = NULL;
    uint64_t step = STOKER_CHECKPOINT_LATEST;
    struct stoker_error error = {0};
    PyObject *number = Py_None;
    struct stk_py_engine *engine;
    struct checkpoint *self;
    const char *path;
    int status;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!y|O:Checkpoint", names,
                                     module->engine_type, &engine, &path, &number) ||
        (number != Py_None && !stk_py_u64(number, &step))) {
        return NULL;
    }
    self = stk_py_object_new(type);
    if (!self) {
        return NULL;
    }
    stk_py_gate_init(&self->gate, checkpoint_close_handle);
    if (!stk_py_gate_enter(&engine->gate, "engine")) {
        Py_DECREF(self);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_checkpoint_open(&checkpoint, engine->engine, path, step, &error);
    if (status == 0) { /* Reader looks at all tensors */
        status = stoker_checkpoint_read_headers(checkpoint, &error);
    }
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    if (status < 0) {
        stoker_checkpoint_close(checkpoint);
        Py_DECREF(self);
        return stk_py_raise(status, &error);
    }
    self->checkpoint = checkpoint;
    self->gate.closed = false;
    return (PyObject *)self;
}

/* info() -> (step | None, path, values, bytes, ranks, hashed) */
static PyObject *checkpoint_info(PyObject *object, PyObject *nothing)
{
    struct stoker_checkpoint_info info = {.struct_size = sizeof info};
    struct checkpoint *self = (struct checkpoint *)object;
    struct stoker_error error = {0};
    PyObject *result;
    int status;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "checkpoint")) {
        return NULL;
    }
    status = stoker_checkpoint_info(self->checkpoint, &info, &error);
    result = status < 0 ? stk_py_raise(status, &error)
                        : Py_BuildValue("NNsKIO", stk_py_number_or_none(info.step),
                                        stk_py_string(info.path), info.values,
                                        (unsigned long long)info.bytes, info.ranks,
                                        info.hashed ? Py_True : Py_False);
    stk_py_gate_leave(&self->gate);
    return result;
}

/* Appends and releases the item. Returns false with an exception. */
static bool append(PyObject *list, PyObject *item)
{
    int status = item ? PyList_Append(list, item) : -1;

    Py_XDECREF(item);
    return status == 0;
}

/* files() -> [(name, tree | None, bytes, root), ...] */
static PyObject *checkpoint_files(PyObject *object, PyObject *nothing)
{
    struct stoker_checkpoint_file file = {.struct_size = sizeof file};
    struct checkpoint *self = (struct checkpoint *)object;
    PyObject *list;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "checkpoint")) {
        return NULL;
    }
    list = PyList_New(0);
    for (uint64_t i = 0; list && stoker_checkpoint_file(self->checkpoint, i, &file, NULL) == 0;
         i++) {
        if (!append(list, Py_BuildValue("NzKy#", stk_py_string(file.name), file.tree,
                                        (unsigned long long)file.bytes, file.root,
                                        (Py_ssize_t)sizeof file.root))) {
            Py_CLEAR(list);
        }
    }
    stk_py_gate_leave(&self->gate);
    return list;
}

static PyObject *shape_of(const struct stoker_checkpoint_tensor_info *info)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)info->dimension_count);

    for (uint32_t i = 0; tuple && i < info->dimension_count; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(info->shape[i]);

        if (!number) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SetItem(tuple, (Py_ssize_t)i, number);
        }
    }
    return tuple;
}

/* tensors() -> [(name, dtype, shape, bytes, file), ...] */
static PyObject *checkpoint_tensors(PyObject *object, PyObject *nothing)
{
    struct stoker_checkpoint_tensor_info info = {.struct_size = sizeof info};
    struct checkpoint *self = (struct checkpoint *)object;
    PyObject *list;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "checkpoint")) {
        return NULL;
    }
    list = PyList_New(0);
    for (uint64_t i = 0; list && stoker_checkpoint_tensor(self->checkpoint, i, &info, NULL) == 0;
         i++) {
        if (!append(list,
                    Py_BuildValue("NsNKK", stk_py_string(info.name), info.dtype, shape_of(&info),
                                  (unsigned long long)info.bytes, (unsigned long long)info.file))) {
            Py_CLEAR(list);
        }
    }
    stk_py_gate_leave(&self->gate);
    return list;
}

static int load_next(void *handle, uint32_t timeout_ms, union stk_py_job_item *item,
                     struct stoker_error *error)
{
    item->checkpoint = (struct stoker_checkpoint_progress){.struct_size = sizeof item->checkpoint};
    return stoker_checkpoint_load_next(handle, timeout_ms, &item->checkpoint, error);
}

static void load_close(void *handle)
{
    stoker_checkpoint_load_close(handle);
}

static const struct stk_py_job_kind load_kind = {"load", load_next, stk_py_checkpoint_progress,
                                                 NULL, load_close};

static struct stoker_checkpoint_range *ranges_of(PyObject *list, Py_ssize_t count)
{
    struct stoker_checkpoint_range *ranges = PyMem_Calloc((size_t)count + 1, sizeof *ranges);

    if (!ranges) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long tensor, offset, bytes, address;
        PyObject *item = PyList_GetItem(list, i);

        if (!PyTuple_Check(item) ||
            !PyArg_ParseTuple(item, "KKKK", &tensor, &offset, &bytes, &address)) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_TypeError, "a range is (tensor, offset, bytes, address)");
            }
            PyMem_Free(ranges);
            return NULL;
        }
        ranges[i] =
            (struct stoker_checkpoint_range){tensor, offset, bytes, (void *)(uintptr_t)address};
    }
    return ranges;
}

/* load([(tensor, offset, bytes, address), ...], buffers) -> CheckpointLoad. buffers: an object that
 * keeps the memory alive */
static PyObject *checkpoint_load(PyObject *object, PyObject *arguments)
{
    struct stk_py_module *module = stk_py_module_of(object);
    struct checkpoint *self = (struct checkpoint *)object;
    struct stoker_checkpoint_load *handle = NULL;
    struct stoker_checkpoint_range *ranges;
    struct stoker_error error = {0};
    PyObject *list, *buffers;
    struct load *load;
    Py_ssize_t count;
    int status;

    if (!PyArg_ParseTuple(arguments, "O!O:load", &PyList_Type, &list, &buffers)) {
        return NULL;
    }
    count = PyList_Size(list);
    ranges = ranges_of(list, count);
    load = ranges ? (struct load *)stk_py_job_new(module->checkpoint_load_type, &load_kind) : NULL;
    if (!load || !stk_py_gate_enter(&self->gate, "checkpoint")) {
        Py_XDECREF((PyObject *)load);
        PyMem_Free(ranges);
        return NULL;
    }
    load->checkpoint = Py_NewRef(object);
    load->buffers = Py_NewRef(buffers);
    Py_BEGIN_ALLOW_THREADS status =
        stoker_checkpoint_load_open(&handle, self->checkpoint, ranges, (size_t)count, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    PyMem_Free(ranges);
    return stk_py_job_opened(&load->job, handle, status, &error);
}

static void load_dealloc(PyObject *object)
{
    struct load *self = (struct load *)object;

    Py_XDECREF(stk_py_job_close(object, NULL)); /* it writes into the buffers */
    Py_CLEAR(self->buffers);
    Py_CLEAR(self->checkpoint);
    stk_py_job_dealloc(object);
}

/* ---- managing ---- */

/* None: the step was written by a version of stoker that did not count. */
static PyObject *count_of(const struct stoker_checkpoint_step *step, uint64_t count)
{
    return step->counted ? PyLong_FromUnsignedLongLong(count) : Py_NewRef(Py_None);
}

/* checkpoint_list(engine, path) -> [(step, status, pinned, bytes, files, ranks, values | None,
 * reason | None), ...] */
PyObject *stk_py_checkpoint_list(PyObject *module, PyObject *arguments)
{
    struct stoker_checkpoint_step step = {.struct_size = sizeof step};
    struct stoker_checkpoint_list *list = NULL;
    struct stk_py_module *state = PyModule_GetState(module);
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    PyObject *result;
    const char *path;
    int status;

    if (!PyArg_ParseTuple(arguments, "O!y:checkpoint_list", state->engine_type, &engine, &path) ||
        !stk_py_gate_enter(&engine->gate, "engine")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_checkpoint_list_open(&list, engine->engine, path, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
    result = PyList_New(0);
    for (uint64_t i = 0; result && stoker_checkpoint_list_at(list, i, &step, NULL) == 1; i++) {
        if (!append(result,
                    Py_BuildValue("KIOKKIzNNN", (unsigned long long)step.step, step.status,
                                  step.pinned ? Py_True : Py_False, (unsigned long long)step.bytes,
                                  (unsigned long long)step.files, step.ranks, step.values,
                                  stk_py_string(step.reason), count_of(&step, step.nan_count),
                                  count_of(&step, step.inf_count)))) {
            Py_CLEAR(result);
        }
    }
    stoker_checkpoint_list_close(list);
    return result;
}

/* checkpoint_pin(engine, path, step, on) */
PyObject *stk_py_checkpoint_pin(PyObject *module, PyObject *arguments)
{
    struct stk_py_module *state = PyModule_GetState(module);
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    const char *path;
    uint64_t step;
    int on, status;

    if (!PyArg_ParseTuple(arguments, "O!yO&p:checkpoint_pin", state->engine_type, &engine, &path,
                          stk_py_u64, &step, &on) ||
        !stk_py_gate_enter(&engine->gate, "engine")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_checkpoint_pin(engine->engine, path, step, (uint32_t)on, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    return status < 0 ? stk_py_raise(status, &error) : Py_NewRef(Py_None);
}

/* checkpoint_remove(engine, path, step) */
PyObject *stk_py_checkpoint_remove(PyObject *module, PyObject *arguments)
{
    struct stk_py_module *state = PyModule_GetState(module);
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    const char *path;
    uint64_t step;
    int status;

    if (!PyArg_ParseTuple(arguments, "O!yO&:checkpoint_remove", state->engine_type, &engine, &path,
                          stk_py_u64, &step) ||
        !stk_py_gate_enter(&engine->gate, "engine")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_checkpoint_remove(engine->engine, path, step, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    return status < 0 ? stk_py_raise(status, &error) : Py_NewRef(Py_None);
}

/* checkpoint_gc(engine, path, keep_last, keep_every, best_metric | None, keep_best, best_is_max,
 * dry_run) -> (steps removed, steps left, saves removed) */
PyObject *stk_py_checkpoint_gc(PyObject *module, PyObject *arguments)
{
    struct stoker_checkpoint_gc_options options = {.struct_size = sizeof options};
    struct stoker_checkpoint_gc_result result = {.struct_size = sizeof result};
    struct stk_py_module *state = PyModule_GetState(module);
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    int best_is_max, dry_run, status;
    const char *path;

    if (!PyArg_ParseTuple(arguments, "O!yO&O&zO&pp:checkpoint_gc", state->engine_type, &engine,
                          &path, stk_py_u32, &options.keep_last, stk_py_u64, &options.keep_every,
                          &options.best_metric, stk_py_u32, &options.keep_best, &best_is_max,
                          &dry_run) ||
        !stk_py_gate_enter(&engine->gate, "engine")) {
        return NULL;
    }
    options.best_is_max = (uint32_t)best_is_max;
    options.dry_run = (uint32_t)dry_run;
    Py_BEGIN_ALLOW_THREADS status =
        stoker_checkpoint_gc(engine->engine, path, &options, &result, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    return status < 0 ? stk_py_raise(status, &error)
                      : Py_BuildValue("KKK", (unsigned long long)result.steps_removed,
                                      (unsigned long long)result.steps_left,
                                      (unsigned long long)result.saves_removed);
}

static PyMethodDef checkpoint_methods[] = {
    {"info", checkpoint_info, METH_NOARGS, "(step, path, values, bytes, ranks, hashed)"},
    {"files", checkpoint_files, METH_NOARGS, "[(name, tree, bytes, root), ...]"},
    {"tensors", checkpoint_tensors, METH_NOARGS, "[(name, dtype, shape, bytes, file), ...]"},
    {"load", checkpoint_load, METH_VARARGS, "Starts to read ranges."},
    {"close", stk_py_gated_close, METH_NOARGS, "Closes the files."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot checkpoint_slots[] = {
    {Py_tp_new, checkpoint_new},
    {Py_tp_dealloc, stk_py_gated_dealloc},
    {Py_tp_methods, checkpoint_methods},
    {0, NULL},
};

PyType_Spec stk_py_checkpoint_spec = {
    .name = "stoker._stoker.Checkpoint",
    .basicsize = sizeof(struct checkpoint),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = checkpoint_slots,
};

static PyMethodDef load_methods[] = {
    {"next", stk_py_job_next_progress, METH_O,
     "next(timeout_ms) -> (running, bytes, bytes_done, run_ns, 0, 0)"},
    {"close", stk_py_job_close, METH_NOARGS, "Ends the load."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot load_slots[] = {
    {Py_tp_dealloc, load_dealloc},
    {Py_tp_methods, load_methods},
    {0, NULL},
};

PyType_Spec stk_py_checkpoint_load_spec = {
    .name = "stoker._stoker.CheckpointLoad",
    .basicsize = sizeof(struct load),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = load_slots,
};
