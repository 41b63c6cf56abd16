/* ShardWriter: writes samples of the caller as tars. */
#include "py.h"

#include <string.h>

#define MEMBERS_MAX 4096 /* of one sample; the library has the same limit */

struct writer {
    PyObject_HEAD struct stk_py_gate gate;
    struct stoker_shard_writer *writer;
};

static void writer_close_handle(PyObject *object)
{
    struct writer *self = (struct writer *)object;

    stoker_shard_writer_close(self->writer);
    self->writer = NULL;
}

/* One thread at a time, since calls release the GIL. */
static bool writer_enter(struct writer *self)
{
    if (!stk_py_gate_enter(&self->gate, "shard writer")) {
        return false;
    }
    if (self->gate.users > 1) {
        stk_py_gate_leave(&self->gate);
        stk_py_raise_text(STOKER_ERROR_ARGUMENT, "another thread is using the writer",
                          "shard writer", "write from one thread, or hold a lock");
        return false;
    }
    return true;
}

static PyObject *writer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"engine", "destination", "pattern", "classes",
                            "source", "shard_bytes", NULL};

    struct stoker_shard_writer_options options = {.struct_size = sizeof options};
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_error error = {0};
    struct stoker_shard_writer *writer = NULL;
    struct stk_py_engine *engine;
    PyObject *classes;
    struct writer *self;
    const char **texts;
    int status;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!yzO!|$yO&:ShardWriter", names,
                                     module->engine_type, &engine, &options.destination,
                                     &options.pattern, &PyTuple_Type, &classes, &options.source,
                                     stk_py_u64, &options.shard_bytes)) {
        return NULL;
    }
    texts = stk_py_paths(classes);
    if (!texts) {
        return NULL;
    }
    options.classes = texts;
    options.class_count = (size_t)PyTuple_Size(classes);
    self = stk_py_object_new(type);
    if (!self) {
        PyMem_Free(texts);
        return NULL;
    }
    stk_py_gate_init(&self->gate, writer_close_handle);
    if (!stk_py_gate_enter(&engine->gate, "engine")) {
        PyMem_Free(texts);
        Py_DECREF(self);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_shard_writer_open(&writer, engine->engine, &options, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    PyMem_Free(texts);
    if (status < 0) {
        Py_DECREF(self);
        return stk_py_raise(status, &error);
    }
    self->writer = writer;
    self->gate.closed = false;
    return (PyObject *)self;
}

/* Fills members and views from `count` pairs (extension, buffer). false: the exception is set. */
static bool members_of(PyObject *tuple, Py_ssize_t count, struct stoker_shard_member *members,
                       Py_buffer *views)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyTuple_GetItem(tuple, i), *data;

        if (!PyArg_ParseTuple(pair, "yO:member", &members[i].extension, &data) ||
            PyObject_GetBuffer(data, &views[i], PyBUF_SIMPLE) < 0) {
            return false;
        }
        members[i].data = views[i].buf;
        members[i].bytes = (size_t)views[i].len;
    }
    return true;
}

/* add(key, ((extension, buffer), ...)) */
static PyObject *writer_add(PyObject *object, PyObject *arguments)
{
    struct writer *self = (struct writer *)object;
    struct stoker_shard_member *members = NULL;
    struct stoker_error error = {0};
    Py_buffer *views = NULL;
    PyObject *tuple;
    const char *key;
    Py_ssize_t count;
    bool ready = false;
    int status = 0;

    if (!PyArg_ParseTuple(arguments, "yO!:add", &key, &PyTuple_Type, &tuple)) {
        return NULL;
    }
    count = PyTuple_Size(tuple);
    if (count > MEMBERS_MAX) {
        return stk_py_raise_text(STOKER_ERROR_ARGUMENT, "a sample has too many members", key,
                                 "write at most 4,096");
    }
    if (!writer_enter(self)) {
        return NULL;
    }
    members = PyMem_Calloc((size_t)count + 1, sizeof *members);
    views = PyMem_Calloc((size_t)count + 1, sizeof *views);
    if (!members || !views) {
        PyErr_NoMemory();
    } else {
        ready = members_of(tuple, count, members, views);
    }
    if (ready) {
        Py_BEGIN_ALLOW_THREADS status =
            stoker_shard_writer_add(self->writer, key, members, (size_t)count, &error);
        Py_END_ALLOW_THREADS
    }
    for (Py_ssize_t i = 0; views && i < count; i++) {
        if (views[i].obj) {
            PyBuffer_Release(&views[i]);
        }
    }
    PyMem_Free(members);
    PyMem_Free(views);
    stk_py_gate_leave(&self->gate);
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
    return ready ? Py_NewRef(Py_None) : NULL;
}

static PyObject *writer_position(PyObject *object, PyObject *nothing)
{
    struct writer *self = (struct writer *)object;
    uint64_t position;

    (void)nothing;
    if (!writer_enter(self)) {
        return NULL;
    }
    position = stoker_shard_writer_position(self->writer);
    stk_py_gate_leave(&self->gate);
    return PyLong_FromUnsignedLongLong(position);
}

static PyObject *writer_resume_key(PyObject *object, PyObject *nothing)
{
    struct writer *self = (struct writer *)object;
    PyObject *result;
    const char *key;

    (void)nothing;
    if (!writer_enter(self)) {
        return NULL;
    }
    key = stoker_shard_writer_resume_key(self->writer);
    result = key ? stk_py_text(key, strlen(key)) : Py_NewRef(Py_None);
    stk_py_gate_leave(&self->gate);
    return result;
}

static PyObject *writer_commit(PyObject *object, PyObject *nothing)
{
    struct writer *self = (struct writer *)object;
    struct stoker_error error = {0};
    int status;

    (void)nothing;
    if (!writer_enter(self)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_shard_writer_commit(self->writer, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    return status < 0 ? stk_py_raise(status, &error) : Py_NewRef(Py_None);
}

static PyMethodDef writer_methods[] = {
    {"add", writer_add, METH_VARARGS, "add(key, ((extension, buffer), ...)): writes one sample."},
    {"position", writer_position, METH_NOARGS, "Number of samples that are in finished shards."},
    {"resume_key", writer_resume_key, METH_NOARGS,
     "Key of the last finished sample at open; None: all samples were finished."},
    {"commit", writer_commit, METH_NOARGS,
     "Writes index and manifest, and renames the shards to their final names."},
    {"close", stk_py_gated_close, METH_NOARGS, "Stops writing; finished shards stay for a resume."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_new, writer_new},
    {Py_tp_dealloc, stk_py_gated_dealloc},
    {Py_tp_methods, writer_methods},
    {0, NULL},
};

PyType_Spec stk_py_shard_writer_spec = {
    .name = "stoker._stoker.ShardWriter",
    .basicsize = sizeof(struct writer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = writer_slots,
};
