/* DLPack: an Array as a capsule that torch, NumPy, JAX and others import without a copy.
 *
 * The structs are those of DLPack 1.0 (https://dmlc.github.io/dlpack/latest/c_api.html), the
 * protocol is the array API standard's (__dlpack__, 2023.12). A consumer renames the capsule and
 * calls the deleter at any time, from any thread, with or without the GIL. So a capsule owns a
 * reference to the batch and memory of malloc (the limited API has no PyMem_RawMalloc before 3.13),
 * but no Python object. */
#include "py.h"

#include <stdlib.h>

enum { DEVICE_CPU = 1 };
enum { FLAG_READ_ONLY = 1, FLAG_COPIED = 2 };

struct dl_device {
    int32_t type;
    int32_t id;
};

struct dl_type {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};

struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t dimension_count;
    struct dl_type type;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
};

/* The capsule "dltensor", for consumers without support of versions. */
struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
};

/* The capsule "dltensor_versioned". */
struct dl_managed_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct dl_managed_versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

_Static_assert(sizeof(struct dl_tensor) == 48, "as in dlpack.h on a 64-bit machine");
_Static_assert(offsetof(struct dl_managed_versioned, tensor) == 32, "as in dlpack.h");

/* Memory and references that one capsule owns. */
struct export {
    union {
        struct dl_managed plain;
        struct dl_managed_versioned versioned;
    } managed;
    struct stk_py_batch_ref ref;
    void *copy; /* the elements, if a copy was requested */
    int64_t shape[4], strides[4];
};

static void export_close(struct export *export)
{
    stk_py_batch_ref_release(&export->ref);
    free(export->copy);
    free(export);
}

static void delete_plain(struct dl_managed *self)
{
    export_close(self->context);
}

static void delete_versioned(struct dl_managed_versioned *self)
{
    export_close(self->context);
}

/* Frees a capsule that no consumer imported; an imported one has another name. */
static void capsule_drop(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        struct dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
        managed->deleter(managed);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        struct dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        managed->deleter(managed);
    }
}

/* Copies the elements in C order to memory that the export owns. */
static bool copy_elements(struct export *export, PyObject *object)
{
    struct stk_py_array *self = (struct stk_py_array *)object;
    Py_buffer view;
    int result;

    export->copy = malloc((size_t)self->bytes + 1);
    if (!export->copy) {
        PyErr_NoMemory();
        return false;
    }
    if (PyObject_GetBuffer(object, &view, PyBUF_FULL_RO) < 0) {
        return false;
    }
    result = PyBuffer_ToContiguous(export->copy, &view, view.len, 'C');
    PyBuffer_Release(&view);
    return result == 0;
}

static void describe(struct export *export, const struct stk_py_array *self,
                     struct dl_tensor *tensor)
{
    int64_t stride = 1;

    for (int i = self->dimension_count - 1; i >= 0; i--) {
        export->shape[i] = self->shape[i];
        export->strides[i] = export->copy ? stride : self->strides[i] / self->dtype->bytes;
        stride *= self->shape[i];
    }
    *tensor = (struct dl_tensor){
        .data = export->copy ? export->copy : self->data,
        .device = {DEVICE_CPU, 0},
        .dimension_count = self->dimension_count,
        .type = {self->dtype->dlpack_code, (uint8_t)(self->dtype->bytes * 8), 1},
        .shape = export->shape,
        .strides = export->strides,
    };
}

static PyObject *export_array(PyObject *object, bool versioned, bool copy)
{
    struct stk_py_array *self = (struct stk_py_array *)object;
    struct export *export = calloc(1, sizeof *export);
    PyObject *capsule = NULL;

    if (!export) {
        return PyErr_NoMemory();
    }
    if (copy) {
        if (!copy_elements(export, object)) {
            goto done;
        }
    } else {
        export->ref = stk_py_batch_ref_share(&self->ref);
    }
    if (versioned) {
        struct dl_managed_versioned *managed = &export->managed.versioned;
        managed->version.major = 1;
        managed->context = export;
        managed->deleter = delete_versioned;
        managed->flags = copy ? FLAG_COPIED : self->read_only ? FLAG_READ_ONLY : 0;
        describe(export, self, &managed->tensor);
        capsule = PyCapsule_New(managed, "dltensor_versioned", capsule_drop);
    } else {
        struct dl_managed *managed = &export->managed.plain;
        managed->context = export;
        managed->deleter = delete_plain;
        describe(export, self, &managed->tensor);
        capsule = PyCapsule_New(managed, "dltensor", capsule_drop);
    }
done:
    if (!capsule) {
        export_close(export);
    }
    return capsule;
}

/* Returns 1 if the consumer accepts a capsule of version 1, else 0; -1: the exception is set. */
static int wants_version(PyObject *max_version)
{
    long major, minor;

    if (max_version == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(max_version) ||
        !PyArg_ParseTuple(max_version, "ll:max_version", &major, &minor)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "max_version is (major, minor) or None");
        }
        return -1;
    }
    return major >= 1;
}

/* Returns true if the requested device is the CPU. false: the exception is set. */
static bool on_cpu(PyObject *device)
{
    long type, id;

    if (device == Py_None) {
        return true;
    }
    if (!PyTuple_Check(device) || !PyArg_ParseTuple(device, "ll:dl_device", &type, &id)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "dl_device is (type, id) or None");
        }
        return false;
    }
    if (type != DEVICE_CPU || id != 0) {
        PyErr_SetString(PyExc_BufferError,
                        "the array is in host memory: the device must be (1, 0)");
        return false;
    }
    return true;
}

PyObject *stk_py_array_dlpack(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};

    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    int versioned;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO:__dlpack__", names, &stream,
                                     &max_version, &device, &copy)) {
        return NULL;
    }
    if (stream != Py_None) {
        PyErr_SetString(PyExc_BufferError, "host memory has no stream");
        return NULL;
    }
    versioned = wants_version(max_version);
    if (versioned < 0 || !on_cpu(device)) {
        return NULL;
    }
    if (!versioned && copy != Py_True && ((struct stk_py_array *)object)->read_only) {
        PyErr_SetString(PyExc_BufferError,
                        "read-only memory needs max_version=(1, 0) or copy=True");
        return NULL;
    }
    return export_array(object, versioned == 1, copy == Py_True);
}

PyObject *stk_py_array_dlpack_device(PyObject *object, PyObject *nothing)
{
    (void)object;
    (void)nothing;
    return Py_BuildValue("ii", DEVICE_CPU, 0);
}
