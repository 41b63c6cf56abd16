/* Array: memory of a batch, shown without a copy by the buffer protocol and DLPack (py_dlpack.c).
 */
#include "py.h"

/* Codes of DLPack: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool. The buffer protocol has no bfloat16:
 * its elements are shown as uint16. */
static const struct stk_py_dtype dtypes[] = {
    {STOKER_UINT8, "uint8", "B", 1, 1},     {STOKER_FLOAT32, "float32", "f", 4, 2},
    {STOKER_FLOAT16, "float16", "e", 2, 2}, {STOKER_BFLOAT16, "bfloat16", "H", 2, 4},
    {STOKER_INT64, "int64", "q", 8, 0},     {STOKER_FLOAT64, "float64", "d", 8, 2},
    {STOKER_BOOL, "bool", "?", 1, 6},       {STOKER_INT8, "int8", "b", 1, 0},
    {STOKER_INT16, "int16", "h", 2, 0},     {STOKER_UINT16, "uint16", "H", 2, 1},
    {STOKER_INT32, "int32", "i", 4, 0},     {STOKER_UINT32, "uint32", "I", 4, 1},
    {STOKER_UINT64, "uint64", "Q", 8, 1},
};

PyObject *stk_py_array_new(struct stk_py_module *module, const struct stk_py_batch_ref *ref,
                           const struct stoker_array *array, bool read_only)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(module->array_type, Py_tp_alloc);
    const struct stk_py_dtype *dtype = NULL;
    struct stk_py_array *self;

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (dtypes[i].dtype == array->dtype) {
            dtype = &dtypes[i];
        }
    }
    if (!dtype || array->dimension_count > 4) {
        return stk_py_raise_text(STOKER_ERROR_UNSUPPORTED, "the dtype is unknown to the package",
                                 "batch", "use the package and the library of one version");
    }
    self = (struct stk_py_array *)alloc(module->array_type, 0);
    if (!self) {
        return NULL;
    }
    self->ref = stk_py_batch_ref_share(ref);
    self->data = array->data;
    self->dtype = dtype;
    self->dimension_count = (int)array->dimension_count;
    self->bytes = (Py_ssize_t)dtype->bytes;
    self->read_only = read_only;
    for (int i = 0; i < self->dimension_count; i++) {
        self->shape[i] = (Py_ssize_t)array->shape[i];
        self->strides[i] = (Py_ssize_t)(array->strides[i] * dtype->bytes);
        self->bytes *= self->shape[i];
    }
    return (PyObject *)self;
}

static void array_dealloc(PyObject *object)
{
    stk_py_batch_ref_release(&((struct stk_py_array *)object)->ref);
    stk_py_object_free(object);
}

static int refuse(Py_buffer *view, const char *reason)
{
    PyErr_SetString(PyExc_BufferError, reason);
    Py_CLEAR(view->obj);
    return -1;
}

/* Fills in the complete description first, then removes the parts that the consumer did not
 * request. */
static int array_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    struct stk_py_array *self = (struct stk_py_array *)object;

    view->obj = Py_NewRef(object);
    view->buf = self->data;
    view->len = self->bytes;
    view->itemsize = (Py_ssize_t)self->dtype->bytes;
    view->readonly = self->read_only;
    view->ndim = self->dimension_count;
    view->format = (char *)(uintptr_t)self->dtype->format; /* consumers may only read it */
    view->shape = self->shape;
    view->strides = self->strides;
    view->suboffsets = NULL;
    view->internal = NULL;
    if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE && self->read_only) {
        return refuse(view, "the array is read-only");
    }
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !PyBuffer_IsContiguous(view, 'F')) {
        return refuse(view, "the array is not Fortran contiguous");
    }
    if (((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS ||
         (flags & PyBUF_STRIDES) != PyBUF_STRIDES) &&
        !PyBuffer_IsContiguous(view, 'C')) {
        return refuse(view, "the array is not C contiguous");
    }
    if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS &&
        !PyBuffer_IsContiguous(view, 'A')) {
        return refuse(view, "the array is not contiguous");
    }
    if ((flags & PyBUF_FORMAT) != PyBUF_FORMAT) {
        view->format = NULL;
    }
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
        view->strides = NULL;
    }
    if ((flags & PyBUF_ND) != PyBUF_ND) {
        view->shape = NULL;
        view->ndim = 1;
    }
    return 0;
}

static PyObject *tuple_of(const Py_ssize_t *numbers, int count)
{
    PyObject *tuple = PyTuple_New(count);

    for (int i = 0; tuple && i < count; i++) {
        PyObject *number = PyLong_FromSsize_t(numbers[i]);
        if (!number) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SetItem(tuple, i, number);
        }
    }
    return tuple;
}

static PyObject *array_shape(PyObject *object, void *closure)
{
    struct stk_py_array *self = (struct stk_py_array *)object;

    (void)closure;
    return tuple_of(self->shape, self->dimension_count);
}

static PyObject *array_strides(PyObject *object, void *closure)
{
    struct stk_py_array *self = (struct stk_py_array *)object;

    (void)closure;
    return tuple_of(self->strides, self->dimension_count);
}

static PyObject *array_dtype(PyObject *object, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(((struct stk_py_array *)object)->dtype->name);
}

static PyObject *array_nbytes(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromSsize_t(((struct stk_py_array *)object)->bytes);
}

static PyObject *array_address(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromVoidPtr(((struct stk_py_array *)object)->data);
}

static Py_ssize_t array_length(PyObject *object)
{
    struct stk_py_array *self = (struct stk_py_array *)object;

    return self->dimension_count > 0 ? self->shape[0] : 0;
}

static PyObject *array_tolist(PyObject *object, PyObject *nothing)
{
    PyObject *view = PyMemoryView_FromObject(object);
    PyObject *list = view ? PyObject_CallMethod(view, "tolist", NULL) : NULL;

    (void)nothing;
    Py_XDECREF(view);
    return list;
}

static PyObject *array_repr(PyObject *object)
{
    struct stk_py_array *self = (struct stk_py_array *)object;
    PyObject *shape = array_shape(object, NULL);
    PyObject *text =
        shape ? PyUnicode_FromFormat("<stoker.Array %s %R>", self->dtype->name, shape) : NULL;

    Py_XDECREF(shape);
    return text;
}

static PyMethodDef array_methods[] = {
    {"tolist", array_tolist, METH_NOARGS, "Nested lists of numbers."},
    {"__dlpack__", (PyCFunction)(void (*)(void))stk_py_array_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)"},
    {"__dlpack_device__", stk_py_array_dlpack_device, METH_NOARGS, "(1, 0): the CPU."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef array_properties[] = {
    {"shape", array_shape, NULL, "Elements of each dimension; the first is the batch size.", NULL},
    {"strides", array_strides, NULL, "Bytes from one element to the next, as in NumPy.", NULL},
    {"dtype", array_dtype, NULL, "\"uint8\", \"float32\", \"bfloat16\", ...", NULL},
    {"nbytes", array_nbytes, NULL, "Bytes of all elements.", NULL},
    {"address", array_address, NULL, "Address of the first element.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot array_slots[] = {
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_repr, array_repr},
    {Py_tp_methods, array_methods},
    {Py_tp_getset, array_properties},
    {Py_mp_length, array_length},
    {Py_bf_getbuffer, array_getbuffer},
    {0, NULL},
};

PyType_Spec stk_py_array_spec = {
    .name = "stoker._stoker.Array",
    .basicsize = sizeof(struct stk_py_array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = array_slots,
};
