/* Batch, and Bytes: the values of a field of variable length. */
#include "py.h"

#include <string.h>

struct batch_object {
    PyObject_HEAD struct stk_py_batch_ref ref;
};

/* A sequence of zero-copy views. Each is a slice of `view`, whose exporter is an Array of its own:
 * so a view keeps the batch alive, and no cycle of references is made. */
struct bytes_object {
    PyObject_HEAD struct stk_py_batch_ref ref;
    const uint64_t *offsets; /* [count + 1], borrowed from the batch */
    const char *values;
    Py_ssize_t count;
    PyObject *view; /* memoryview of all values, read-only */
};

static PyObject *bytes_new(struct stk_py_module *module, const struct stk_py_batch_ref *ref,
                           const struct stoker_array *array);
static PyObject *vector_new(struct stk_py_module *module, const struct stk_py_batch_ref *ref,
                            const void *data, uint32_t dtype, Py_ssize_t count);

struct stk_py_batch_ref stk_py_batch_ref_share(const struct stk_py_batch_ref *ref)
{
    stoker_batch_retain(ref->batch);
    return *ref;
}

void stk_py_batch_ref_release(struct stk_py_batch_ref *ref)
{
    struct stoker_batch *batch = ref->batch;

    ref->batch = NULL;
    if (batch && ref->process == stk_py_process()) {
        stoker_batch_close(batch);
    }
}

/* ---- Batch ---- */

PyObject *stk_py_batch_new(struct stk_py_module *module, struct stoker_batch *batch)
{
    struct stk_py_batch_ref ref = {batch, stk_py_process()};
    allocfunc alloc = (allocfunc)PyType_GetSlot(module->batch_type, Py_tp_alloc);
    struct batch_object *self = (struct batch_object *)alloc(module->batch_type, 0);

    if (!self) {
        stk_py_batch_ref_release(&ref);
        return NULL;
    }
    self->ref = ref;
    return (PyObject *)self;
}

static void batch_dealloc(PyObject *object)
{
    stk_py_batch_ref_release(&((struct batch_object *)object)->ref);
    stk_py_object_free(object);
}

static PyObject *batch_close(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    stk_py_batch_ref_release(&((struct batch_object *)object)->ref);
    Py_RETURN_NONE;
}

static struct stoker_batch *batch_of(PyObject *object)
{
    struct batch_object *self = (struct batch_object *)object;

    return self->ref.batch ? self->ref.batch
                           : stk_py_raise_text(STOKER_ERROR_CLOSED, "the batch is closed", "batch",
                                               "use the batch before close()");
}

/* (values, offsets, shapes | None) of a ragged field; all are views of the batch's memory. */
static PyObject *ragged_new(struct stk_py_module *module, const struct stk_py_batch_ref *ref,
                            const struct stoker_array *array)
{
    struct stoker_array values = *array;
    struct stoker_array offsets = {
        .dtype = STOKER_INT64,
        .dimension_count = 1,
        .shape = {array->shape[0] + 1},
        .strides = {1},
    };
    struct stoker_array shapes = {
        .dtype = STOKER_INT64,
        .dimension_count = 2,
        .shape = {array->shape[0], array->shape_rank},
        .strides = {array->shape_rank, 1},
    };
    PyObject *parts[3];

    values.shape[0] = (int64_t)array->offsets[array->shape[0]];
    memcpy(&offsets.data, &array->offsets, sizeof offsets.data); /* drops const: the caller */
    memcpy(&shapes.data, &array->shapes, sizeof shapes.data);    /* may change the batch    */
    parts[0] = stk_py_array_new(module, ref, &values, false);
    parts[1] = stk_py_array_new(module, ref, &offsets, false);
    parts[2] = array->shapes ? stk_py_array_new(module, ref, &shapes, false) : Py_NewRef(Py_None);
    if (!parts[0] || !parts[1] || !parts[2]) {
        for (int i = 0; i < 3; i++) {
            Py_XDECREF(parts[i]);
        }
        return NULL;
    }
    return Py_BuildValue("NNN", parts[0], parts[1], parts[2]);
}

/* array(field) -> Array | Bytes | (values, offsets, shapes | None) */
static PyObject *batch_array(PyObject *object, PyObject *number)
{
    struct stoker_batch *batch = batch_of(object);
    struct stoker_array array;
    uint64_t field;
    int status;

    if (!batch || !stk_py_u64(number, &field)) {
        return NULL;
    }
    status = stoker_batch_array(batch, field, &array);
    if (status < 0) {
        return stk_py_raise(status, NULL);
    }
    if (array.dtype == STOKER_BYTES) {
        return bytes_new(stk_py_module_of(object), &((struct batch_object *)object)->ref, &array);
    }
    if (array.offsets) {
        return ragged_new(stk_py_module_of(object), &((struct batch_object *)object)->ref, &array);
    }
    return stk_py_array_new(stk_py_module_of(object), &((struct batch_object *)object)->ref, &array,
                            false);
}

/* A read-only array of the batch itself. */
static PyObject *batch_vector(PyObject *object, const void *data, uint32_t dtype)
{
    struct batch_object *self = (struct batch_object *)object;

    return vector_new(stk_py_module_of(object), &self->ref, data, dtype,
                      (Py_ssize_t)stoker_batch_samples(self->ref.batch));
}

static PyObject *batch_ids(PyObject *object, void *closure)
{
    struct stoker_batch *batch = batch_of(object);

    (void)closure;
    return batch ? batch_vector(object, stoker_batch_ids(batch), STOKER_INT64) : NULL;
}

static PyObject *batch_mask(PyObject *object, void *closure)
{
    struct stoker_batch *batch = batch_of(object);

    (void)closure;
    return batch ? batch_vector(object, stoker_batch_mask(batch), STOKER_BOOL) : NULL;
}

static PyObject *batch_samples(PyObject *object, void *closure)
{
    struct stoker_batch *batch = batch_of(object);

    (void)closure;
    return batch ? PyLong_FromUnsignedLong(stoker_batch_samples(batch)) : NULL;
}

static PyMethodDef batch_methods[] = {
    {"array", batch_array, METH_O, "array(field) -> Array | Bytes | tuple"},
    {"close", batch_close, METH_NOARGS, "Releases the batch; arrays taken from it stay valid."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef batch_properties[] = {
    {"samples", batch_samples, NULL, "Slots of the batch.", NULL},
    {"ids", batch_ids, NULL, "int64 [samples]: the sample of each slot.", NULL},
    {"mask", batch_mask, NULL, "bool [samples]: false for padding.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot batch_slots[] = {
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_methods, batch_methods},
    {Py_tp_getset, batch_properties},
    {0, NULL},
};

PyType_Spec stk_py_batch_spec = {
    .name = "stoker._stoker.Batch",
    .basicsize = sizeof(struct batch_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = batch_slots,
};

/* ---- Bytes ---- */

/* A read-only Array with one dimension. */
static PyObject *vector_new(struct stk_py_module *module, const struct stk_py_batch_ref *ref,
                            const void *data, uint32_t dtype, Py_ssize_t count)
{
    struct stoker_array array = {
        .dtype = dtype,
        .dimension_count = 1,
        .shape = {count},
        .strides = {1},
    };

    memcpy(&array.data, &data, sizeof data); /* drops const: the Array is read-only */
    return stk_py_array_new(module, ref, &array, true);
}

static PyObject *bytes_new(struct stk_py_module *module, const struct stk_py_batch_ref *ref,
                           const struct stoker_array *array)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(module->bytes_type, Py_tp_alloc);
    struct bytes_object *self = (struct bytes_object *)alloc(module->bytes_type, 0);
    PyObject *values;

    if (!self) {
        return NULL;
    }
    self->ref = stk_py_batch_ref_share(ref);
    self->offsets = array->offsets;
    self->values = array->data;
    self->count = (Py_ssize_t)array->shape[0];
    values = vector_new(module, ref, array->data, STOKER_UINT8,
                        (Py_ssize_t)array->offsets[array->shape[0]]);
    self->view = values ? PyMemoryView_FromObject(values) : NULL;
    Py_XDECREF(values);
    if (!self->view) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void bytes_dealloc(PyObject *object)
{
    struct bytes_object *self = (struct bytes_object *)object;

    Py_XDECREF(self->view);
    stk_py_batch_ref_release(&self->ref);
    stk_py_object_free(object);
}

static Py_ssize_t bytes_length(PyObject *object)
{
    return ((struct bytes_object *)object)->count;
}

static PyObject *bytes_item(PyObject *object, Py_ssize_t index)
{
    struct bytes_object *self = (struct bytes_object *)object;

    if (index < 0 || index >= self->count) {
        PyErr_SetString(PyExc_IndexError, "index out of range");
        return NULL;
    }
    return PySequence_GetSlice(self->view, (Py_ssize_t)self->offsets[index],
                               (Py_ssize_t)self->offsets[index + 1]);
}

static PyObject *bytes_subscript(PyObject *object, PyObject *key)
{
    struct bytes_object *self = (struct bytes_object *)object;
    Py_ssize_t start, stop, step, count;
    PyObject *list;

    if (!PySlice_Check(key)) {
        Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);
        if (index == -1 && PyErr_Occurred()) {
            return NULL;
        }
        return bytes_item(object, index < 0 ? index + self->count : index);
    }
    if (PySlice_Unpack(key, &start, &stop, &step) < 0) {
        return NULL;
    }
    count = PySlice_AdjustIndices(self->count, &start, &stop, step);
    list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *item = bytes_item(object, start + i * step);
        if (!item) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, i, item);
        }
    }
    return list;
}

/* A list with make(item) for each item. */
static PyObject *list_of(struct bytes_object *self, const char *errors,
                         PyObject *(*make)(const char *values, Py_ssize_t bytes,
                                           const char *errors))
{
    PyObject *list = PyList_New(self->count);

    for (Py_ssize_t i = 0; list && i < self->count; i++) {
        uint64_t start = self->offsets[i];
        PyObject *item =
            make(self->values + start, (Py_ssize_t)(self->offsets[i + 1] - start), errors);
        if (!item) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, i, item);
        }
    }
    return list;
}

static PyObject *make_bytes(const char *values, Py_ssize_t bytes, const char *errors)
{
    (void)errors;
    return PyBytes_FromStringAndSize(values, bytes);
}

static PyObject *bytes_tolist(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    return list_of((struct bytes_object *)object, NULL, make_bytes);
}

/* text(errors) -> list of str */
static PyObject *bytes_text(PyObject *object, PyObject *arguments)
{
    const char *errors;

    if (!PyArg_ParseTuple(arguments, "s:text", &errors)) {
        return NULL;
    }
    return list_of((struct bytes_object *)object, errors, PyUnicode_DecodeUTF8);
}

static PyObject *bytes_values(PyObject *object, void *closure)
{
    struct bytes_object *self = (struct bytes_object *)object;

    (void)closure;
    return vector_new(stk_py_module_of(object), &self->ref, self->values, STOKER_UINT8,
                      (Py_ssize_t)self->offsets[self->count]);
}

static PyObject *bytes_offsets(PyObject *object, void *closure)
{
    struct bytes_object *self = (struct bytes_object *)object;

    (void)closure;
    return vector_new(stk_py_module_of(object), &self->ref, self->offsets, STOKER_INT64,
                      self->count + 1);
}

static PyObject *bytes_repr(PyObject *object)
{
    struct bytes_object *self = (struct bytes_object *)object;

    return PyUnicode_FromFormat("<stoker.Bytes of %zd items, %zd bytes>", self->count,
                                (Py_ssize_t)self->offsets[self->count]);
}

static PyMethodDef bytes_methods[] = {
    {"tolist", bytes_tolist, METH_NOARGS, "A list of bytes objects: copies."},
    {"text", bytes_text, METH_VARARGS, "text(errors) -> list of str, from UTF-8"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef bytes_properties[] = {
    {"values", bytes_values, NULL, "uint8 [bytes]: all values, one after the other.", NULL},
    {"offsets", bytes_offsets, NULL, "int64 [items + 1]: offset of each item in values.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot bytes_slots[] = {
    {Py_tp_dealloc, bytes_dealloc},
    {Py_tp_repr, bytes_repr},
    {Py_tp_methods, bytes_methods},
    {Py_tp_getset, bytes_properties},
    {Py_sq_length, bytes_length},
    {Py_sq_item, bytes_item},
    {Py_mp_length, bytes_length},
    {Py_mp_subscript, bytes_subscript},
    {0, NULL},
};

PyType_Spec stk_py_bytes_spec = {
    .name = "stoker._stoker.Bytes",
    .basicsize = sizeof(struct bytes_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = bytes_slots,
};
