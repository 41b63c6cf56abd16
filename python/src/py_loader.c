/* Loader: a stream of batches. Its calls are serialised by a lock, since libstoker wants one
 * thread at a time in a loader, while Python may close it or ask it from any. */
#include "py.h"

#include <string.h>
#include <unistd.h>

struct loader_object {
    PyObject_HEAD struct stoker_loader *loader; /* only with `lock` */
    PyThread_type_lock lock;
    bool closed;
    pid_t process;
};

/* The options of stoker_loader_open, with what they borrow. */
struct request {
    struct stoker_loader_options options;
    PyObject *after; /* borrowed; NULL: none */
    struct stoker_field_options fields[STK_PY_FIELDS_MAX];
    struct stoker_transform *transforms[STK_PY_FIELDS_MAX]; /* owned */
    struct stk_py_mix mix;
    struct stk_py_sampling sampling;
};

static bool request_fields(struct request *request, PyObject *fields);
static void request_deinit(struct request *request);

/* Waits for the loader; false: the exception is set (forked, closed, a signal). */
static bool enter(struct loader_object *self)
{
    while (true) {
        PyLockStatus locked;

        if (stk_py_forked(self->process, "loader")) {
            return false;
        }
        if (self->closed) {
            stk_py_raise_text(STOKER_ERROR_CLOSED, "the loader is closed", "loader",
                              "make a new one; batches in hand stay valid");
            return false;
        }
        locked = PyThread_acquire_lock_timed(self->lock, 0, 0);
        if (locked != PY_LOCK_ACQUIRED) {
            Py_BEGIN_ALLOW_THREADS locked =
                PyThread_acquire_lock_timed(self->lock, STK_PY_SLICE_MS * 1000, 0);
            Py_END_ALLOW_THREADS
        }
        if (locked == PY_LOCK_ACQUIRED && !self->closed) {
            return true;
        }
        if (locked == PY_LOCK_ACQUIRED) {
            PyThread_release_lock(self->lock); /* closed while we waited */
        } else if (PyErr_CheckSignals() < 0) {
            return false;
        }
    }
}

static void leave(struct loader_object *self)
{
    PyThread_release_lock(self->lock);
}

/* A call inside the library is over within STK_PY_SLICE_MS, so this wait is short. */
static void close_now(struct loader_object *self)
{
    struct stoker_loader *loader;

    if (self->closed || self->process != getpid()) {
        self->closed = true; /* a fork's child forgets its parent's loader */
        return;
    }
    self->closed = true;
    Py_BEGIN_ALLOW_THREADS PyThread_acquire_lock(self->lock, WAIT_LOCK);
    loader = self->loader;
    self->loader = NULL;
    stoker_loader_close(loader);
    PyThread_release_lock(self->lock);
    Py_END_ALLOW_THREADS
}

static PyObject *loader_close(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    close_now((struct loader_object *)object);
    Py_RETURN_NONE;
}

static void loader_dealloc(PyObject *object)
{
    struct loader_object *self = (struct loader_object *)object;

    if (self->lock) {
        close_now(self);
        PyThread_free_lock(self->lock);
    }
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
                            NULL};

    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_loader_options *options = &request->options;
    PyObject *fields, *mix = Py_None, *sampling = Py_None;

    options->struct_size = sizeof *options;
    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!O!O&|$O&O&O&O&O&O&O&O&O&O&O&O&O&dO&O&yO&O&O!OOO&:Loader", names,
            module->dataset_type, dataset_out, &PyTuple_Type, &fields, stk_py_u32,
            &options->batch_size, stk_py_u32, &options->shuffle, stk_py_u32, &options->tail,
            stk_py_u32, &options->window_blocks, stk_py_u32, &options->group_count, stk_py_u32,
            &options->rank, stk_py_u32, &options->world_size, stk_py_u64, &options->seed,
            stk_py_u32, &options->on_error, stk_py_u32, &options->batches_ahead, stk_py_u64,
            &options->pixels_max, stk_py_u64, &options->decode_bytes_max, stk_py_u32,
            &options->no_direct_io, stk_py_u64, &options->bad_samples_max, &options->bad_share_max,
            stk_py_u32, &options->bad_list_max, stk_py_u32, &options->io_retries,
            &options->quarantine, stk_py_u32, &options->worker, stk_py_u32, &options->worker_count,
            type, &request->after, &mix, &sampling, stk_py_u64, &options->block_samples)) {
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
    Py_END_ALLOW_THREADS if (stk_py_gate_leave(&dataset->gate))
    {
        stoker_dataset_close(dataset->dataset);
        dataset->dataset = NULL;
    }
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
    self = (struct loader_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) {
        goto done;
    }
    self->process = getpid();
    self->lock = PyThread_allocate_lock();
    if (!self->lock) {
        PyErr_NoMemory();
        goto done;
    }
    if (request->after && !enter((struct loader_object *)request->after)) {
        goto done;
    }
    if (request->after) {
        request->options.continues_from = ((struct loader_object *)request->after)->loader;
    }
    open = open_on(self, dataset, request);
    if (request->after) {
        leave((struct loader_object *)request->after);
    }
done:
    request_deinit(request);
    PyMem_Free(request);
    if (!open) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

/* (kind, height, width, filter, max_size, scale, ratio, probability, brightness, contrast,
 * saturation, hue, mean, std) */
static bool transform_parse(PyObject *tuple, struct stoker_transform *transform)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a transform is a tuple here");
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

/* (path | None, sides, follows | None, labels | None, box format, normalised, keep_empty,
 * rgb_ids) */
static bool inside_parse(PyObject *tuple, struct stoker_field_options *field)
{
    PyObject *sides;
    uint32_t normalised, keep_empty, rgb_ids;
    Py_ssize_t count;

    if (!PyArg_ParseTuple(tuple, "zO!zzO&O&O&O&:field", &field->path, &PyTuple_Type, &sides,
                          &field->follows, &field->labels, stk_py_u32, &field->box_format,
                          stk_py_u32, &normalised, stk_py_u32, &keep_empty, stk_py_u32, &rgb_ids)) {
        return false;
    }
    field->normalised = normalised != 0;
    field->keep_empty = keep_empty != 0;
    field->rgb_ids = rgb_ids != 0;
    count = PyTuple_Size(sides);
    if (count > 3) {
        stk_py_raise_text(STOKER_ERROR_ARGUMENT, "too many sides", field->name,
                          "an array of a sample has 3 at most");
        return false;
    }
    field->dimension_count = (uint32_t)count;
    for (Py_ssize_t i = 0; i < count; i++) {
        field->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(sides, i));
        if (field->shape[i] == -1 && PyErr_Occurred()) {
            return false;
        }
    }
    return true;
}

/* (name, kind, extensions | None, transforms, dtype, layout, exif, inside): the text is lent by
 * the tuple, which the caller of Loader() holds. */
static bool field_parse(struct request *request, size_t index, PyObject *tuple)
{
    struct stoker_field_options *field = &request->fields[index];
    struct stoker_transform *transforms;
    PyObject *list, *inside;
    uint32_t exif;
    Py_ssize_t count;

    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a field is a tuple here");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "sO&zO!O&O&O&O!:field", &field->name, stk_py_u32, &field->kind,
                          &field->extensions, &PyTuple_Type, &list, stk_py_u32, &field->dtype,
                          stk_py_u32, &field->layout, stk_py_u32, &exif, &PyTuple_Type, &inside) ||
        !inside_parse(inside, field)) {
        return false;
    }
    field->exif = exif & 1; /* bits: turned, not exact */
    field->planar = (exif & 2) != 0;
    count = PyTuple_Size(list);
    if (count > STK_PY_TRANSFORMS_MAX) {
        stk_py_raise_text(STOKER_ERROR_ARGUMENT, "too many transforms", field->name,
                          "a field takes 32 at most");
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
                          "a loader takes 64 at most");
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

/* next(timeout_ms) -> Batch, or None at the epoch's end. 0: waits as long as it takes. */
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
                                     "look at stats(), or give a longer timeout");
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

/* (order_version, shuffle, tail, window_blocks, group_count, seed, epoch, position,
 * sample_count, block_samples, mix, fingerprint, identity) */
PyObject *stk_py_state_tuple(const struct stoker_state *state)
{
    return Py_BuildValue(
        "IIIIIKKKKKKKKIIKKy#", state->order_version, state->shuffle, state->tail,
        state->window_blocks, state->group_count, (unsigned long long)state->seed,
        (unsigned long long)state->epoch, (unsigned long long)state->position,
        (unsigned long long)state->sample_count, (unsigned long long)state->block_samples,
        (unsigned long long)state->mix, (unsigned long long)state->subset,
        (unsigned long long)state->draws, state->repeats, state->repeat_distance,
        (unsigned long long)state->epoch_samples, (unsigned long long)state->fingerprint,
        (const char *)state->identity, (Py_ssize_t)sizeof state->identity);
}

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

static PyObject *loader_place(PyObject *object, PyObject *nothing)
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
    if (status < 0) {
        return stk_py_raise(status, NULL);
    }
    return Py_BuildValue("KK", (unsigned long long)epoch, (unsigned long long)position);
}

bool stk_py_state(PyObject *tuple, struct stoker_state *state_out)
{
    struct stoker_state state = {0};
    const char *identity;
    Py_ssize_t identity_bytes;

    if (!PyTuple_Check(tuple) ||
        !PyArg_ParseTuple(tuple, "O&O&O&O&O&O&O&O&O&O&O&O&O&O&O&O&O&y#:state", stk_py_u32,
                          &state.order_version, stk_py_u32, &state.shuffle, stk_py_u32, &state.tail,
                          stk_py_u32, &state.window_blocks, stk_py_u32, &state.group_count,
                          stk_py_u64, &state.seed, stk_py_u64, &state.epoch, stk_py_u64,
                          &state.position, stk_py_u64, &state.sample_count, stk_py_u64,
                          &state.block_samples, stk_py_u64, &state.mix, stk_py_u64, &state.subset,
                          stk_py_u64, &state.draws, stk_py_u32, &state.repeats, stk_py_u32,
                          &state.repeat_distance, stk_py_u64, &state.epoch_samples, stk_py_u64,
                          &state.fingerprint, &identity, &identity_bytes)) {
        return false;
    }
    if (identity_bytes != (Py_ssize_t)sizeof state.identity) {
        stk_py_raise_text(STOKER_ERROR_STATE, "the identity is not of 32 bytes", "state",
                          "give what state_dict() gave");
        return false;
    }
    for (size_t i = 0; i < sizeof state.identity; i++) {
        state.identity[i] = (uint8_t)identity[i];
    }
    *state_out = state;
    return true;
}

static PyObject *loader_set_state(PyObject *object, PyObject *tuple)
{
    struct loader_object *self = (struct loader_object *)object;
    struct stoker_error error = {0};
    struct stoker_state state;
    int status;

    if (!stk_py_state(tuple, &state) || !enter(self)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_loader_set_state(self->loader, &state, &error);
    Py_END_ALLOW_THREADS leave(self);
    return status < 0 ? stk_py_raise(status, &error) : Py_NewRef(Py_None);
}

/* mix_border(least) -> position of the run where weights may change. */
static PyObject *loader_mix_border(PyObject *object, PyObject *number)
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

#define EXPLAIN_SLOTS 256 /* at once, on the stack */

/* Slots as (rank, slot, epoch, position, sample, real), added to the list; how many, -1: an
 * exception is set. */
static int explain_some(const struct stoker_order *order, const uint64_t place[3], uint64_t skip,
                        PyObject *list)
{
    struct stoker_slot slots[EXPLAIN_SLOTS];
    int count = stoker_order_slots(order, place[0], place[1], (uint32_t)place[2], skip, slots,
                                   EXPLAIN_SLOTS);

    for (int i = 0; i < count; i++) {
        PyObject *item =
            Py_BuildValue("IIKKKO", slots[i].rank, slots[i].slot,
                          (unsigned long long)slots[i].epoch, (unsigned long long)slots[i].position,
                          (unsigned long long)slots[i].sample, slots[i].real ? Py_True : Py_False);
        int appended = item ? PyList_Append(list, item) : -1;

        Py_XDECREF(item);
        if (appended < 0) {
            return -1;
        }
    }
    if (count < 0) {
        stk_py_raise_text(count, "there is no such step or rank", "explain",
                          "steps count from 0 to len(loader) - 1, ranks to world_size - 1");
        return -1;
    }
    return count;
}

/* explain(epoch, step, rank | 2^32 - 1: all, mix | None) -> list of slots */
static PyObject *loader_explain(PyObject *object, PyObject *arguments)
{
    struct loader_object *self = (struct loader_object *)object;
    struct stoker_order_options options = {.struct_size = sizeof options};
    struct stoker_order *order = NULL;
    struct stoker_error error = {0};
    struct stk_py_mix mix = {0};
    uint64_t place[3], skip = 0;
    PyObject *list, *tuple;
    int status;

    if (!PyArg_ParseTuple(arguments, "O&O&O&O:explain", stk_py_u64, &place[0], stk_py_u64,
                          &place[1], stk_py_u64, &place[2], &tuple) ||
        (tuple != Py_None && !stk_py_mix_parse(&mix, stk_py_module_of(object), tuple)) ||
        !enter(self)) {
        stk_py_mix_deinit(&mix);
        return NULL;
    }
    options.mix = tuple == Py_None ? NULL : &mix.options;
    /* Tables of chosen samples are the loader's: it stays open until the end. */
    status = stoker_loader_order(self->loader, &options);
    status = status < 0 ? status : stoker_order_open(&order, &options, &error);
    stk_py_mix_deinit(&mix);
    if (status < 0) {
        leave(self);
        return stk_py_raise(status, &error);
    }
    list = PyList_New(0);
    while (list && (status = explain_some(order, place, skip, list)) > 0) {
        skip += (uint64_t)status;
    }
    if (list && status < 0) {
        Py_CLEAR(list);
    }
    stoker_order_close(order);
    leave(self);
    return list;
}

/* A count of "jpegs" or "pngs", a space, and by whom or why. Without memory the dictionary goes. */
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
    dict = Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsKsK}", N(batches), N(samples),
                         N(bytes), N(substituted), N(run_ns), N(wait_ns), N(first_batch_ns),
                         N(read_ns), N(decode_ns), N(warm_reads), N(cold_reads), N(io_requests),
                         N(io_bytes), N(memory_bytes_peak), N(lock_wait_ns), N(threads),
                         N(batches_ahead), N(idle_ns), N(retries), N(bad_samples));
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

PyObject *stk_py_bad_sample(const struct stoker_quarantine_entry *entry)
{
    PyObject *offset = entry->offset == STOKER_NO_OFFSET
                           ? Py_NewRef(Py_None)
                           : PyLong_FromUnsignedLongLong(entry->offset);

    return Py_BuildValue(
        "NNNisNN", stk_py_text(entry->shard, strlen(entry->shard)),
        stk_py_text(entry->key, strlen(entry->key)), offset, entry->status,
        stoker_status_name(entry->status), stk_py_text(entry->reason, strlen(entry->reason)),
        entry->sample == STOKER_NO_SAMPLE ? Py_NewRef(Py_None)
                                          : PyLong_FromUnsignedLongLong(entry->sample));
}

static PyObject *loader_quarantine(PyObject *object, PyObject *nothing)
{
    struct loader_object *self = (struct loader_object *)object;
    struct stoker_quarantine_entry entry = {.struct_size = sizeof entry};
    PyObject *list = PyList_New(0), *tuple;

    (void)nothing;
    if (!list || !enter(self)) {
        Py_XDECREF(list);
        return NULL;
    }
    for (uint64_t i = 0; list && stoker_loader_quarantine(self->loader, i, &entry) == 0; i++) {
        tuple = stk_py_bad_sample(&entry);
        if (!tuple || PyList_Append(list, tuple) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(tuple);
    }
    leave(self);
    return list;
}

static PyMethodDef loader_methods[] = {
    {"next", loader_next, METH_O, "next(timeout_ms) -> Batch | None"},
    {"set_epoch", loader_set_epoch, METH_O, "Starts an epoch at its first batch."},
    {"batches", loader_batches, METH_O, "Batches that an epoch holds for this rank."},
    {"samples", loader_samples, METH_NOARGS, "Samples of an epoch, of all ranks."},
    {"state", loader_state, METH_VARARGS,
     "state([epoch, position]): where the stream stands, or stood a few steps ago, as a tuple."},
    {"position", loader_place, METH_NOARGS, "(epoch, position) of the state, at no cost."},
    {"set_state", loader_set_state, METH_O, "Goes to where a state stands."},
    {"mix_change_position", loader_mix_border, METH_O, "Where the weights of the mix may change."},
    {"explain", loader_explain, METH_VARARGS, "The slots of a step, as a list of tuples."},
    {"stats", loader_stats, METH_NOARGS, "Counts and times, as a dict."},
    {"quarantine", loader_quarantine, METH_NOARGS, "Damaged samples met, as tuples."},
    {"close", loader_close, METH_NOARGS, "Ends the work; batches in hand stay valid."},
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
