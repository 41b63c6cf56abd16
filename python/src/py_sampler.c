/* Sampler: selects and weights the samples of a loader. And the stages of a loader's sampling. */
#include "py.h"

struct sampler_object {
    PyObject_HEAD struct stoker_sampler *sampler;
    pid_t process;
    bool busy; /* a thread runs next() without the GIL */
};

/* Options of stoker_sampler_open, and the memory that they borrow. */
struct request {
    struct stoker_sampler_options options;
    Py_buffer samples, weights;
    const char **keys; /* PyMem */
};

/* Gets a buffer of 8-byte numbers; None: no buffer. */
static bool numbers_of(PyObject *object, Py_buffer *buffer, uint64_t *count_out)
{
    if (object == Py_None) {
        return true;
    }
    if (PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) < 0) {
        return false;
    }
    *count_out = (uint64_t)buffer->len / 8;
    return true;
}

static void request_deinit(struct request *request)
{
    if (request->samples.obj) {
        PyBuffer_Release(&request->samples);
    }
    if (request->weights.obj) {
        PyBuffer_Release(&request->weights);
    }
    PyMem_Free(request->keys);
}

static bool request_parse(struct request *request, PyTypeObject *type, PyObject *arguments,
                          PyObject *keywords, PyObject **dataset_out)
{
    static char *names[] = {"dataset", "where",   "samples", "keys",   "replacement",
                            "weight",  "weights", "balance", "tables", NULL};
    static const uint64_t none = 0; /* an empty list selects nothing; NULL means no list */
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_sampler_options *options = &request->options;
    PyObject *samples = Py_None, *weights = Py_None, *keys = Py_None;
    int replacement = 0;

    options->struct_size = sizeof *options;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!|$zOOpzOzO&:Sampler", names,
                                     module->dataset_type, dataset_out, &options->where, &samples,
                                     &keys, &replacement, &options->weight, &weights,
                                     &options->balance, stk_py_u32, &options->tables) ||
        !numbers_of(samples, &request->samples, &options->sample_count) ||
        !numbers_of(weights, &request->weights, &options->weight_count)) {
        return false;
    }
    options->replacement = replacement != 0;
    options->samples = samples == Py_None     ? NULL
                       : request->samples.buf ? request->samples.buf
                                              : &none;
    options->weights = request->weights.buf;
    if (keys != Py_None) {
        request->keys = PyTuple_Check(keys) ? stk_py_paths(keys) : NULL;
        options->keys = request->keys;
        options->key_count = request->keys ? (uint64_t)PyTuple_Size(keys) : 0;
        return request->keys != NULL;
    }
    return true;
}

static PyObject *sampler_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    struct request request = {0};
    struct sampler_object *self = NULL;
    struct stk_py_dataset *dataset;
    struct stoker_error error = {0};
    PyObject *object;
    int status = -1;

    if (!request_parse(&request, type, arguments, keywords, &object)) {
        goto done;
    }
    self = stk_py_object_new(type);
    dataset = (struct stk_py_dataset *)object;
    if (!self || !stk_py_gate_enter(&dataset->gate, "data set")) {
        goto done;
    }
    self->process = stk_py_process();
    Py_BEGIN_ALLOW_THREADS status =
        stoker_sampler_open(&self->sampler, dataset->dataset, &request.options, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&dataset->gate);
    if (status < 0) {
        stk_py_raise(status, &error);
    }
done:
    request_deinit(&request);
    if (status < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void sampler_dealloc(PyObject *object)
{
    struct sampler_object *self = (struct sampler_object *)object;

    if (self->sampler && self->process == stk_py_process()) {
        stoker_sampler_close(self->sampler);
    }
    stk_py_object_free(object);
}

/* next(timeout_ms) -> True while there is more to do */
static PyObject *sampler_next(PyObject *object, PyObject *timeout)
{
    struct sampler_object *self = (struct sampler_object *)object;
    struct stoker_error error = {0};
    uint32_t timeout_ms;
    int status;

    if (!stk_py_u32(timeout, &timeout_ms) || stk_py_forked(self->process, "sampler")) {
        return NULL;
    }
    if (self->busy) {
        return stk_py_raise_text(STOKER_ERROR_ARGUMENT, "another thread is computing this sampler",
                                 "sampler", "compute it before other threads use it");
    }
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS status = stoker_sampler_next(self->sampler, timeout_ms, &error);
    Py_END_ALLOW_THREADS self->busy = false;
    return status < 0 ? stk_py_raise(status, &error) : PyBool_FromLong(status);
}

static PyObject *sampler_info(PyObject *object, PyObject *nothing)
{
    struct sampler_object *self = (struct sampler_object *)object;
    struct stoker_sampler_info info = {.struct_size = sizeof info};

    (void)nothing;
    stoker_sampler_info(self->sampler, &info);
#define N(field) #field, (unsigned long long)info.field
    return Py_BuildValue("{sKsKsKsKsKsKsNsN}", N(sample_count), N(scanned), N(count),
                         N(class_count), N(table_bytes), N(scan_ns), "table_path",
                         stk_py_string(info.table_path), "table_note",
                         stk_py_string(info.table_note));
#undef N
}

bool stk_py_sampler_of(const struct stk_py_module *module, PyObject *object,
                       const struct stoker_sampler **sampler_out)
{
    if (Py_TYPE(object) != module->sampler_type) {
        PyErr_SetString(PyExc_TypeError, "a Sampler or None is needed");
        return false;
    }
    *sampler_out = ((struct sampler_object *)object)->sampler;
    return true;
}

/* ---- a loader's stages ---- */

bool stk_py_sampling_parse(struct stk_py_sampling *sampling, struct stk_py_module *module,
                           PyObject *tuple)
{
    struct stoker_sampling_options *options = &sampling->options;
    PyObject *stages;

    options->struct_size = sizeof *options;
    if (!PyTuple_Check(tuple) ||
        !PyArg_ParseTuple(tuple, "O!O&O&O&:sampling", &PyTuple_Type, &stages, stk_py_u32,
                          &options->repeats, stk_py_u32, &options->repeat_distance, stk_py_u64,
                          &options->epoch_samples)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a sampling must be a tuple");
        }
        return false;
    }
    options->stage_count = (size_t)PyTuple_Size(stages);
    sampling->stages = PyMem_Calloc(options->stage_count + 1, sizeof *sampling->stages);
    if (!sampling->stages) {
        PyErr_NoMemory();
        return false;
    }
    options->stages = sampling->stages;
    for (size_t i = 0; i < options->stage_count; i++) {
        PyObject *stage = PyTuple_GetItem(stages, (Py_ssize_t)i), *sampler;

        if (!PyTuple_Check(stage) || !PyArg_ParseTuple(stage, "O&O:stage", stk_py_u64,
                                                       &sampling->stages[i].position, &sampler)) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_TypeError, "a stage must be a tuple");
            }
            return false;
        }
        if (sampler != Py_None &&
            !stk_py_sampler_of(module, sampler, &sampling->stages[i].sampler)) {
            return false;
        }
    }
    return true;
}

void stk_py_sampling_deinit(struct stk_py_sampling *sampling)
{
    PyMem_Free(sampling->stages);
}

static PyMethodDef sampler_methods[] = {
    {"next", sampler_next, METH_O, "next(timeout_ms) -> True while there is more to do"},
    {"info", sampler_info, METH_NOARGS, "Counts, and the path of the table, as a dict."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot sampler_slots[] = {
    {Py_tp_new, sampler_new},
    {Py_tp_dealloc, sampler_dealloc},
    {Py_tp_methods, sampler_methods},
    {0, NULL},
};

PyType_Spec stk_py_sampler_spec = {
    .name = "stoker._stoker.Sampler",
    .basicsize = sizeof(struct sampler_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = sampler_slots,
};
