/* Loader: a stream of batches. A lock serialises its calls: libstoker allows one thread at a time
 * in a loader, while Python may use and close it from any thread. */
#include "py.h"

#include <stdio.h>

struct loader_object {
    PyObject_HEAD struct stoker_loader *loader; /* used under the lock only */
    struct stk_py_lock lock;
};

/* The options of stoker_loader_open, with what they borrow. */
struct request {
    struct stoker_loader_options options;
    PyObject *continues_from; /* borrowed; NULL: none */
    struct stoker_field_options fields[STK_PY_FIELDS_MAX];
    struct stoker_transform *transforms[STK_PY_FIELDS_MAX]; /* owned */
    struct stk_py_mix mix;
    struct stk_py_sampling sampling;
};

static bool request_fields(struct request *request, PyObject *fields);
static void request_deinit(struct request *request);

static bool enter(struct loader_object *self)
{
    return stk_py_lock_enter(&self->lock, "loader", "make a new one; batches in hand stay valid");
}

static void leave(struct loader_object *self)
{
    stk_py_lock_leave(&self->lock);
}

/* A call inside the library returns within STK_PY_SLICE_MS, so a close waits no longer than that.
 */
static void close_handle(PyObject *object)
{
    struct loader_object *self = (struct loader_object *)object;

    stoker_loader_close(self->loader);
    self->loader = NULL;
}

static PyObject *loader_close(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    stk_py_lock_close(&((struct loader_object *)object)->lock, object, close_handle);
    Py_RETURN_NONE;
}

static void loader_dealloc(PyObject *object)
{
    struct loader_object *self = (struct loader_object *)object;

    stk_py_lock_close(&self->lock, object, close_handle);
    stk_py_lock_deinit(&self->lock);
    stk_py_object_free(object);
}

/* ---- open ---- */

static bool request_parse(struct request *request, PyTypeObject *type, PyObject *arguments,
                          PyObject *keywords, PyObject **dataset_out)
{
    static char *names[] = {"dataset",
                            "fields",
                            "batch_size",
                            "shuffle",
                            "tail",
                            "window_blocks",
                            "group_count",
                            "rank",
                            "world_size",
                            "seed",
                            "on_error",
                            "batches_ahead",
                            "pixels_max",
                            "decode_bytes_max",
                            "no_direct_io",
                            "bad_samples_max",
                            "bad_share_max",
                            "bad_list_max",
                            "io_retries",
                            "quarantine",
                            "worker",
                            "worker_count",
                            "continues_from",
                            "mix",
                            "sampling",
                            "block_samples",
                            "image_check",
                            "order_version",
                            NULL};

    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_loader_options *options = &request->options;
    PyObject *fields, *mix = Py_None, *sampling = Py_None;

    options->struct_size = sizeof *options;
    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!O!O&|$O&O&O&O&O&O&O&O&O&O&O&O&O&dO&O&yO&O&O!OOO&O&O&:Loader",
            names, module->dataset_type, dataset_out, &PyTuple_Type, &fields, stk_py_u32,
            &options->batch_size, stk_py_u32, &options->shuffle, stk_py_u32, &options->tail,
            stk_py_u32, &options->window_blocks, stk_py_u32, &options->group_count, stk_py_u32,
            &options->rank, stk_py_u32, &options->world_size, stk_py_u64, &options->seed,
            stk_py_u32, &options->on_error, stk_py_u32, &options->batches_ahead, stk_py_u64,
            &options->pixels_max, stk_py_u64, &options->decode_bytes_max, stk_py_u32,
            &options->no_direct_io, stk_py_u64, &options->bad_samples_max, &options->bad_share_max,
            stk_py_u32, &options->bad_list_max, stk_py_u32, &options->io_retries,
            &options->quarantine, stk_py_u32, &options->worker, stk_py_u32, &options->worker_count,
            type, &request->continues_from, &mix, &sampling, stk_py_u64, &options->block_samples,
            stk_py_u32, &options->image_check, stk_py_u32, &options->order_version)) {
        return false;
    }
    if (mix != Py_None) {
        if (!stk_py_mix_parse(&request->mix, module, mix)) {
            return false;
        }
        options->mix = &request->mix.options;
    }
    if (sampling != Py_None) {
        if (!stk_py_sampling_parse(&request->sampling, module, sampling)) {
            return false;
        }
        options->sampling = &request->sampling.options;
    }
    return request_fields(request, fields);
}

static bool open_on(struct loader_object *self, PyObject *object, struct request *request)
{
    struct stk_py_dataset *dataset = (struct stk_py_dataset *)object;
    struct stoker_error error = {0};
    int status;

    if (!stk_py_gate_enter(&dataset->gate, "data set")) {
        return false;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_loader_open(&self->loader, dataset->dataset, &request->options, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&dataset->gate);
    if (status < 0) {
        stk_py_raise(status, &error);
    }
    return status >= 0;
}

static PyObject *loader_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    struct request *request = PyMem_Calloc(1, sizeof *request);
    struct loader_object *self = NULL;
    PyObject *dataset;
    bool open = false;

    if (!request) {
        return PyErr_NoMemory();
    }
    if (!request_parse(request, type, arguments, keywords, &dataset)) {
        goto done;
    }
    self = stk_py_object_new(type);
    if (!self) {
        goto done;
    }
    if (!stk_py_lock_init(&self->lock)) {
        goto done;
    }
    if (request->continues_from && !enter((struct loader_object *)request->continues_from)) {
        goto done;
    }
    if (request->continues_from) {
        request->options.continues_from = ((struct loader_object *)request->continues_from)->loader;
    }
    open = open_on(self, dataset, request);
    if (request->continues_from) {
        leave((struct loader_object *)request->continues_from);
    }
done:
    request_deinit(request);
    PyMem_Free(request);
    if (open) {
        self->lock.closed = false;
    } else {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

/* (kind, height, width, filter, max_size, scale, ratio, probability, brightness, contrast,
 * saturation, hue, mean, std) */
static bool transform_parse(PyObject *tuple, struct stoker_transform *transform)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a transform must be a tuple");
        return false;
    }
    return PyArg_ParseTuple(
        tuple, "O&O&O&O&O&(dd)(dd)d(dd)(dd)(dd)(dd)(fff)(fff):transform", stk_py_u32,
        &transform->kind, stk_py_u32, &transform->height, stk_py_u32, &transform->width, stk_py_u32,
        &transform->filter, stk_py_u32, &transform->max_size, &transform->scale[0],
        &transform->scale[1], &transform->ratio[0], &transform->ratio[1], &transform->probability,
        &transform->brightness[0], &transform->brightness[1], &transform->contrast[0],
        &transform->contrast[1], &transform->saturation[0], &transform->saturation[1],
        &transform->hue[0], &transform->hue[1], &transform->mean[0], &transform->mean[1],
        &transform->mean[2], &transform->std[0], &transform->std[1], &transform->std[2]);
}

/* The last element of a field's tuple: (path | None, shape, follows | None, labels | None, box
 * format, normalised, keep_empty, rgb_ids, default | None, label_from_path) */
static bool details_parse(PyObject *tuple, struct stoker_field_options *field)
{
    PyObject *shape;
    uint32_t normalised, keep_empty, rgb_ids, from_path = 0;
    const char *value = NULL;
    Py_ssize_t count, value_bytes = 0;

    if (!PyArg_ParseTuple(tuple, "zO!zzO&O&O&O&z#O&:field", &field->path, &PyTuple_Type, &shape,
                          &field->follows, &field->labels, stk_py_u32, &field->box_format,
                          stk_py_u32, &normalised, stk_py_u32, &keep_empty, stk_py_u32, &rgb_ids,
                          &value, &value_bytes, stk_py_u32, &from_path)) {
        return false;
    }
    field->has_default = value != NULL;
    field->default_value = value;
    field->default_bytes = (size_t)value_bytes;
    field->normalised = normalised != 0;
    field->keep_empty = keep_empty != 0;
    field->rgb_ids = rgb_ids != 0;
    field->label_from_path = from_path != 0;
    count = PyTuple_Size(shape);
    if (count > 3) {
        stk_py_raise_text(STOKER_ERROR_ARGUMENT, "the shape has too many dimensions", field->name,
                          "use at most 3 dimensions for a sample");
        return false;
    }
    field->dimension_count = (uint32_t)count;
    for (Py_ssize_t i = 0; i < count; i++) {
        field->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (field->shape[i] == -1 && PyErr_Occurred()) {
            return false;
        }
    }
    return true;
}

/* (name, kind, extensions | None, transforms, dtype, layout, exif, details): the texts are
 * borrowed from the tuple, which the caller of Loader() holds. */
static bool field_parse(struct request *request, size_t index, PyObject *tuple)
{
    struct stoker_field_options *field = &request->fields[index];
    struct stoker_transform *transforms;
    PyObject *list, *details;
    uint32_t exif;
    Py_ssize_t count;

    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a field must be a tuple");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "sO&zO!O&O&O&O!:field", &field->name, stk_py_u32, &field->kind,
                          &field->extensions, &PyTuple_Type, &list, stk_py_u32, &field->dtype,
                          stk_py_u32, &field->layout, stk_py_u32, &exif, &PyTuple_Type, &details) ||
        !details_parse(details, field)) {
        return false;
    }
    field->exif = exif & 1; /* bit 0: apply EXIF orientation; bit 1: pixels need not be exact */
    field->planar = (exif & 2) != 0;
    count = PyTuple_Size(list);
    if (count > STK_PY_TRANSFORMS_MAX) {
        stk_py_raise_text(STOKER_ERROR_ARGUMENT, "too many transforms", field->name,
                          "use at most 32 transforms");
        return false;
    }
    transforms = PyMem_Calloc((size_t)count + 1, sizeof *transforms);
    request->transforms[index] = transforms;
    if (!transforms) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!transform_parse(PyTuple_GetItem(list, i), &transforms[i])) {
            return false;
        }
    }
    field->transforms = transforms;
    field->transform_count = (size_t)count;
    return true;
}

static bool request_fields(struct request *request, PyObject *fields)
{
    Py_ssize_t count = PyTuple_Size(fields);

    if (count > STK_PY_FIELDS_MAX) {
        stk_py_raise_text(STOKER_ERROR_ARGUMENT, "too many fields", "fields",
                          "use at most 64 fields");
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!field_parse(request, (size_t)i, PyTuple_GetItem(fields, i))) {
            return false;
        }
    }
    request->options.fields = request->fields;
    request->options.field_count = (size_t)count;
    return true;
}

static void request_deinit(struct request *request)
{
    for (size_t i = 0; i < STK_PY_FIELDS_MAX; i++) {
        PyMem_Free(request->transforms[i]);
    }
    stk_py_mix_deinit(&request->mix);
    stk_py_sampling_deinit(&request->sampling);
}

/* ---- batches ---- */

/* next(timeout_ms) -> Batch, or None at the end of the epoch. timeout_ms 0: no limit. */
static PyObject *loader_next(PyObject *object, PyObject *timeout)
{
    struct loader_object *self = (struct loader_object *)object;
    struct stoker_batch *batch = NULL;
    struct stoker_error error = {0};
    uint64_t timeout_ms, waited_ms = 0;
    int status;

    if (!stk_py_u64(timeout, &timeout_ms)) {
        return NULL;
    }
    while (true) {
        if (!enter(self)) {
            return NULL;
        }
        Py_BEGIN_ALLOW_THREADS status =
            stoker_loader_next(self->loader, STK_PY_SLICE_MS, &batch, &error);
        Py_END_ALLOW_THREADS leave(self);
        if (status != STOKER_ERROR_AGAIN) {
            break;
        }
        if (PyErr_CheckSignals() < 0) {
            return NULL;
        }
        waited_ms += STK_PY_SLICE_MS;
        if (timeout_ms > 0 && waited_ms >= timeout_ms) {
            return stk_py_raise_text(STOKER_ERROR_TIMEOUT, "no batch within the timeout", "loader",
                                     "look at stats(), or set a longer timeout");
        }
    }
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
    return status == 0 ? Py_NewRef(Py_None) : stk_py_batch_new(stk_py_module_of(object), batch);
}

static PyObject *loader_set_epoch(PyObject *object, PyObject *number)
{
    struct loader_object *self = (struct loader_object *)object;
    struct stoker_error error = {0};
    uint64_t epoch;
    int status;

    if (!stk_py_u64(number, &epoch) || !enter(self)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_loader_set_epoch(self->loader, epoch, &error);
    Py_END_ALLOW_THREADS leave(self);
    return status < 0 ? stk_py_raise(status, &error) : Py_NewRef(Py_None);
}

static PyObject *loader_batches(PyObject *object, PyObject *number)
{
    struct loader_object *self = (struct loader_object *)object;
    uint64_t epoch, batches;

    if (!stk_py_u64(number, &epoch) || !enter(self)) {
        return NULL;
    }
    batches = stoker_loader_batches(self->loader, epoch);
    leave(self);
    return PyLong_FromUnsignedLongLong(batches);
}

/* samples() -> samples of an epoch, of all ranks */
static PyObject *loader_samples(PyObject *object, PyObject *nothing)
{
    struct loader_object *self = (struct loader_object *)object;
    uint64_t samples;

    (void)nothing;
    if (!enter(self)) {
        return NULL;
    }
    samples = stoker_loader_samples(self->loader);
    leave(self);
    return PyLong_FromUnsignedLongLong(samples);
}

/* ---- state ---- */

static PyObject *loader_state(PyObject *object, PyObject *args)
{
    struct loader_object *self = (struct loader_object *)object;
    uint64_t epoch = 0, position = 0;
    struct stoker_state state;
    int status;

    if (!PyArg_ParseTuple(args, "|O&O&:state", stk_py_u64, &epoch, stk_py_u64, &position) ||
        !enter(self)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        PyTuple_Size(args) > 0 ? stoker_loader_state_at(self->loader, epoch, position, &state)
                               : stoker_loader_state(self->loader, &state);
    Py_END_ALLOW_THREADS leave(self);
    if (status < 0) {
        return stk_py_raise(status, NULL);
    }
    return stk_py_state_tuple(&state);
}

static PyObject *loader_position(PyObject *object, PyObject *nothing)
{
    struct loader_object *self = (struct loader_object *)object;
    uint64_t epoch = 0, position = 0;
    int status;

    (void)nothing;
    if (!enter(self)) {
        return NULL;
    }
    status = stoker_loader_position(self->loader, &epoch, &position);
    leave(self);
    return stk_py_position(status, epoch, position);
}

static PyObject *loader_set_state(PyObject *object, PyObject *tuple)
{
    struct loader_object *self = (struct loader_object *)object;
    struct stoker_error error = {0};
    struct stoker_state state;
    int status;

    if (!stk_py_state_parse(tuple, &state) || !enter(self)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_loader_set_state(self->loader, &state, &error);
    Py_END_ALLOW_THREADS leave(self);
    return status < 0 ? stk_py_raise(status, &error) : Py_NewRef(Py_None);
}

/* mix_change_position(least) -> the first position, not before `least`, where weights may change.
 */
static PyObject *loader_mix_change_position(PyObject *object, PyObject *number)
{
    struct loader_object *self = (struct loader_object *)object;
    uint64_t least, position;
    int status;

    if (!stk_py_u64(number, &least) || !enter(self)) {
        return NULL;
    }
    status = stoker_loader_mix_change_position(self->loader, least, &position);
    leave(self);
    return status < 0 ? stk_py_raise(status, NULL) : PyLong_FromUnsignedLongLong(position);
}

/* ---- the order ---- */

/* explain(epoch, step, rank | 2^32 - 1: all, mix | None) -> list of slots */
static PyObject *loader_explain(PyObject *object, PyObject *arguments)
{
    struct loader_object *self = (struct loader_object *)object;
    struct stoker_order_options options = {.struct_size = sizeof options};
    struct stoker_order *order = NULL;
    struct stoker_error error = {0};
    struct stk_py_mix mix = {0};
    struct stk_py_step step;
    PyObject *list, *tuple;
    int status;

    if (!PyArg_ParseTuple(arguments, "O&O&O&O:explain", stk_py_u64, &step.epoch, stk_py_u64,
                          &step.step, stk_py_u64, &step.rank, &tuple) ||
        (tuple != Py_None && !stk_py_mix_parse(&mix, stk_py_module_of(object), tuple)) ||
        !enter(self)) {
        stk_py_mix_deinit(&mix);
        return NULL;
    }
    options.mix = tuple == Py_None ? NULL : &mix.options;
    /* The order borrows the loader's tables of samples, so the lock is held until it is closed. */
    status = stoker_loader_order(self->loader, &options);
    status = status < 0 ? status : stoker_order_open(&order, &options, &error);
    stk_py_mix_deinit(&mix);
    if (status < 0) {
        leave(self);
        return stk_py_raise(status, &error);
    }
    list = stk_py_order_slots(order, &step);
    stoker_order_close(order);
    leave(self);
    return list;
}

static PyObject *mixing_dict(const struct stoker_mixing *mixing)
{
#define N(field) #field, (unsigned long long)mixing->field
#define D(field) #field, mixing->field
    return Py_BuildValue(
        "{sKsKsKsdsdsKsKsdsdsKsKsKsKsdsdsKsdsKss}", N(steps), N(samples), N(classes),
        D(batch_classes), D(full_batch_classes), N(batch_classes_min), N(full_batch_classes_min),
        D(batch_share_max), D(full_batch_share_max), N(run_max), N(full_run_max),
        "classes_of_20_steps_min", (unsigned long long)mixing->stretch_classes_min,
        "full_classes_of_20_steps_min", (unsigned long long)mixing->full_stretch_classes_min,
        D(chi_square), D(full_chi_square), N(better_window), D(better_batch_classes),
        N(better_bytes), "note", mixing->note);
#undef D
#undef N
}

/* mixing(dataset, labels | None, mix | None) -> how the order mixes labels, as a dict. labels: a
 * buffer of int64, one for each sample. */
static PyObject *loader_mixing(PyObject *object, PyObject *arguments)
{
    struct loader_object *self = (struct loader_object *)object;
    struct stk_py_module *module = stk_py_module_of(object);
    struct stoker_order_options options = {.struct_size = sizeof options};
    struct stoker_mixing_options how = {.struct_size = sizeof how, .order = &options};
    struct stoker_mixing mixing = {.struct_size = sizeof mixing};
    struct stk_py_dataset *dataset;
    struct stoker_error error = {0};
    PyObject *labels, *tuple;
    struct stk_py_mix mix = {0};
    Py_buffer view = {0};
    int status;

    if (!PyArg_ParseTuple(arguments, "O!OO:mixing", module->dataset_type, &dataset, &labels,
                          &tuple) ||
        (tuple != Py_None && !stk_py_mix_parse(&mix, module, tuple)) ||
        (labels != Py_None && PyObject_GetBuffer(labels, &view, PyBUF_SIMPLE) < 0) ||
        !stk_py_gate_enter(&dataset->gate, "data set")) {
        PyBuffer_Release(&view);
        stk_py_mix_deinit(&mix);
        return NULL;
    }
    options.mix = tuple == Py_None ? NULL : &mix.options;
    how.dataset = dataset->dataset;
    how.labels = view.buf;
    status = enter(self) ? 0 : -1;
    if (status == 0) {
        status = stoker_loader_order(self->loader, &options);
        if (status == 0 && view.buf && (uint64_t)view.len != 8 * options.sample_count) {
            status = STOKER_ERROR_ARGUMENT;
            error = (struct stoker_error){.status = status};
            snprintf(error.what, sizeof error.what, "there is not one label for each sample");
            snprintf(error.where, sizeof error.where, "mixing: %llu labels, %llu samples",
                     (unsigned long long)view.len / 8, (unsigned long long)options.sample_count);
            snprintf(error.advice, sizeof error.advice, "pass labels in storage order");
        }
        Py_BEGIN_ALLOW_THREADS status =
            status < 0 ? status : stoker_mixing_measure(&how, &mixing, &error);
        Py_END_ALLOW_THREADS leave(self);
    }
    stk_py_gate_leave(&dataset->gate);
    PyBuffer_Release(&view);
    stk_py_mix_deinit(&mix);
    if (status < 0) {
        return PyErr_Occurred() ? NULL : stk_py_raise(status, &error);
    }
    return mixing_dict(&mixing);
}

/* Adds a count under "KIND NAME": kind is "jpegs" or "pngs", name a decoder or a reason. Without
 * memory, sets *dict to NULL. */
static void add_count(PyObject **dict, const char *kind, const char *name, uint64_t count)
{
    PyObject *key = *dict ? PyUnicode_FromFormat("%s %s", kind, name) : NULL;
    PyObject *value = PyLong_FromUnsignedLongLong(count);

    if (*dict && (!key || !value || PyDict_SetItem(*dict, key, value) < 0)) {
        Py_CLEAR(*dict);
    }
    Py_XDECREF(key);
    Py_XDECREF(value);
}

static PyObject *loader_stats(PyObject *object, PyObject *nothing)
{
    struct loader_object *self = (struct loader_object *)object;
    struct stoker_stats stats = {.struct_size = sizeof stats};
    PyObject *dict;
    int status;

    (void)nothing;
    if (!enter(self)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_loader_stats(self->loader, &stats);
    Py_END_ALLOW_THREADS leave(self);
    if (status < 0) {
        return stk_py_raise(status, NULL);
    }
#define N(field) #field, (unsigned long long)stats.field
    dict = Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsK}", N(batches), N(samples),
                         N(bytes), N(substituted), N(run_ns), N(wait_ns), N(first_batch_ns),
                         N(read_ns), N(decode_ns), N(warm_reads), N(cold_reads), N(io_requests),
                         N(io_bytes), N(memory_bytes_peak), N(lock_wait_ns), N(threads),
                         N(batches_ahead), N(idle_ns), N(ahead_ns), N(storage_wait_ns), N(retries),
                         N(bad_samples));
#undef N
    for (uint32_t i = 0; i == 0 || stoker_jpeg_reason(i); i++) {
        add_count(&dict, "jpegs", i == 0 ? "stoker" : stoker_jpeg_reason(i), stats.jpegs[i]);
    }
    add_count(&dict, "jpegs", "marked", stats.jpegs_indexed);
    add_count(&dict, "jpegs", "planar", stats.jpegs_planar);
    add_count(&dict, "pngs", "stoker", stats.pngs[0]);
    add_count(&dict, "pngs", "libpng", stats.pngs[1]);
    return dict;
}

static int loader_bad_sample(void *handle, uint64_t index, struct stoker_quarantine_entry *entry)
{
    return stoker_loader_quarantine(handle, index, entry);
}

static PyObject *loader_quarantine(PyObject *object, PyObject *nothing)
{
    struct loader_object *self = (struct loader_object *)object;
    PyObject *list;

    (void)nothing;
    if (!enter(self)) {
        return NULL;
    }
    list = stk_py_bad_samples(self->loader, loader_bad_sample);
    leave(self);
    return list;
}

static PyMethodDef loader_methods[] = {
    {"next", loader_next, METH_O, "next(timeout_ms) -> Batch | None"},
    {"set_epoch", loader_set_epoch, METH_O, "Continues at the first batch of an epoch."},
    {"batches", loader_batches, METH_O, "Batches of an epoch for this rank."},
    {"samples", loader_samples, METH_NOARGS, "Samples of an epoch, of all ranks together."},
    {"state", loader_state, METH_VARARGS,
     "state([epoch, position]): the present state, or that of a recent position, as a tuple."},
    {"position", loader_position, METH_NOARGS, "(epoch, position) of the state; cheap."},
    {"set_state", loader_set_state, METH_O, "Continues at a state."},
    {"mix_change_position", loader_mix_change_position, METH_O,
     "The next position where weights of the mix may change."},
    {"explain", loader_explain, METH_VARARGS, "The slots of a step, as a list of tuples."},
    {"mixing", loader_mixing, METH_VARARGS, "How the order mixes labels, as a dict."},
    {"stats", loader_stats, METH_NOARGS, "Counts and times, as a dict."},
    {"quarantine", loader_quarantine, METH_NOARGS, "Damaged samples found so far, as tuples."},
    {"close", loader_close, METH_NOARGS, "Closes it; batches stay valid."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot loader_slots[] = {
    {Py_tp_new, loader_new},
    {Py_tp_dealloc, loader_dealloc},
    {Py_tp_methods, loader_methods},
    {0, NULL},
};

PyType_Spec stk_py_loader_spec = {
    .name = "stoker._stoker.Loader",
    .basicsize = sizeof(struct loader_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = loader_slots,
};
