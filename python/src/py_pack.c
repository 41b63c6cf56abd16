/* Pack and ShardWriter: data sets written as tars. */
#include "py.h"

#include <string.h>
#include <unistd.h>

#define MEMBERS_MAX 4096 /* of one sample, as the library has it */

/* ---- Pack ---- */

struct pack {
    PyObject_HEAD struct stoker_pack *pack;
    struct stk_py_gate gate;
};

static void pack_close_now(struct pack *self)
{
    struct stoker_pack *pack = self->pack;

    self->pack = NULL;
    Py_BEGIN_ALLOW_THREADS stoker_pack_close(pack);
    Py_END_ALLOW_THREADS
}

static void pack_leave(struct pack *self)
{
    if (stk_py_gate_leave(&self->gate)) {
        pack_close_now(self);
    }
}

static PyObject *pack_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"dataset",    "destination", "pattern",         "shard_bytes",
                            "shuffle",    "seed",        "short_side",      "quality",
                            "on_error",   "quarantine",  "bad_samples_max", "bad_share_max",
                            "io_retries", NULL};

    struct stoker_pack_options options = {.struct_size = sizeof options};
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_error error = {0};
    struct stk_py_dataset *dataset;
    PyObject *object;
    struct pack *self;
    int status;

    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!yz|$O&O&O&O&O&O&yO&dO&:Pack", names, module->dataset_type,
            &object, &options.destination, &options.pattern, stk_py_u64, &options.shard_bytes,
            stk_py_u32, &options.shuffle, stk_py_u64, &options.seed, stk_py_u32,
            &options.short_side, stk_py_u32, &options.quality, stk_py_u32, &options.on_error,
            &options.quarantine, stk_py_u64, &options.bad_samples_max, &options.bad_share_max,
            stk_py_u32, &options.io_retries)) {
        return NULL;
    }
    self = (struct pack *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) {
        return NULL;
    }
    dataset = (struct stk_py_dataset *)object;
    self->gate.process = getpid();
    self->gate.closed = true; /* until it is open */
    if (!stk_py_gate_enter(&dataset->gate, "data set")) {
        Py_DECREF(self);
        return NULL;
    }
    /* Short: all that may wait is done by the pack's own thread. */
    status = stoker_pack_open(&self->pack, dataset->dataset, &options, &error);
    if (stk_py_gate_leave(&dataset->gate)) {
        stoker_dataset_close(dataset->dataset);
        dataset->dataset = NULL;
    }
    if (status < 0) {
        Py_DECREF(self);
        return stk_py_raise(status, &error);
    }
    self->gate.closed = false;
    return (PyObject *)self;
}

/* next(timeout_ms) -> (whether it goes on, progress) */
static PyObject *pack_next(PyObject *object, PyObject *number)
{
    struct pack *self = (struct pack *)object;
    struct stoker_pack_progress progress = {.struct_size = sizeof progress};
    struct stoker_error error = {0};
    uint32_t timeout_ms;
    int status;

    if (!stk_py_u32(number, &timeout_ms) || !stk_py_gate_enter(&self->gate, "pack")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_pack_next(self->pack, timeout_ms, &progress, &error);
    Py_END_ALLOW_THREADS pack_leave(self);
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
    return Py_BuildValue(
        "(O{sIsKsKsKsKsKsKsKsKsKsKsKsKsKsK})", status == 1 ? Py_True : Py_False, "phase",
        progress.phase, "shards", (unsigned long long)progress.shards, "shards_done",
        (unsigned long long)progress.shards_done, "samples", (unsigned long long)progress.samples,
        "samples_done", (unsigned long long)progress.samples_done, "bytes",
        (unsigned long long)progress.bytes, "bytes_done", (unsigned long long)progress.bytes_done,
        "shards_kept", (unsigned long long)progress.shards_resumed, "samples_kept",
        (unsigned long long)progress.samples_resumed, "bytes_kept",
        (unsigned long long)progress.bytes_resumed, "resized", (unsigned long long)progress.resized,
        "copied", (unsigned long long)progress.copied, "run_ns",
        (unsigned long long)progress.run_ns, "samples_left_out",
        (unsigned long long)progress.samples_left_out, "retries",
        (unsigned long long)progress.retries);
}

/* After the end: what was left out. */
static PyObject *pack_quarantine(PyObject *object, PyObject *nothing)
{
    struct pack *self = (struct pack *)object;
    struct stoker_quarantine_entry entry = {.struct_size = sizeof entry};
    PyObject *list = PyList_New(0), *tuple;

    (void)nothing;
    if (!list || !stk_py_gate_enter(&self->gate, "pack")) {
        Py_XDECREF(list);
        return NULL;
    }
    for (uint64_t i = 0; list && stoker_pack_quarantine(self->pack, i, &entry) == 0; i++) {
        tuple = stk_py_bad_sample(&entry);
        if (!tuple || PyList_Append(list, tuple) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(tuple);
    }
    pack_leave(self);
    return list;
}

static PyObject *pack_close(PyObject *object, PyObject *nothing)
{
    struct pack *self = (struct pack *)object;

    (void)nothing;
    if (stk_py_gate_close(&self->gate)) {
        pack_close_now(self);
    }
    Py_RETURN_NONE;
}

static void pack_dealloc(PyObject *object)
{
    struct pack *self = (struct pack *)object;

    if (stk_py_gate_close(&self->gate)) {
        pack_close_now(self);
    }
    stk_py_object_free(object);
}

static PyMethodDef pack_methods[] = {
    {"next", pack_next, METH_O, "Waits a while; (whether it goes on, progress)."},
    {"quarantine", pack_quarantine, METH_NOARGS, "After the end: what was left out, as tuples."},
    {"close", pack_close, METH_NOARGS, "Stops it; what is whole stays, to go on."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot pack_slots[] = {
    {Py_tp_new, pack_new},
    {Py_tp_dealloc, pack_dealloc},
    {Py_tp_methods, pack_methods},
    {0, NULL},
};

PyType_Spec stk_py_pack_spec = {
    .name = "stoker._stoker.Pack",
    .basicsize = sizeof(struct pack),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = pack_slots,
};

/* ---- ShardWriter ---- */

struct writer {
    PyObject_HEAD struct stoker_shard_writer *writer;
    struct stk_py_gate gate;
};

static void writer_close_now(struct writer *self)
{
    struct stoker_shard_writer *writer = self->writer;

    self->writer = NULL;
    Py_BEGIN_ALLOW_THREADS stoker_shard_writer_close(writer);
    Py_END_ALLOW_THREADS
}

static void writer_leave(struct writer *self)
{
    if (stk_py_gate_leave(&self->gate)) {
        writer_close_now(self);
    }
}

/* One thread at a time: the GIL is let go inside. */
static bool writer_enter(struct writer *self)
{
    if (!stk_py_gate_enter(&self->gate, "shard writer")) {
        return false;
    }
    if (self->gate.users > 1) {
        writer_leave(self);
        stk_py_raise_text(STOKER_ERROR_ARGUMENT, "another thread is using the writer",
                          "shard writer", "write from one thread, or hold a lock");
        return false;
    }
    return true;
}

/* A tuple of bytes as an array of pointers into them; NULL with an exception. */
static char **texts_of(PyObject *tuple)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    char **texts = count < 0 ? NULL : PyMem_Calloc((size_t)count + 1, sizeof *texts);

    if (!texts && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; texts && i < count; i++) {
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, i), &texts[i], NULL) < 0) {
            PyMem_Free(texts);
            return NULL;
        }
    }
    return texts;
}

static PyObject *writer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"engine", "destination", "pattern", "classes",
                            "source", "shard_bytes", NULL};

    struct stoker_shard_writer_options options = {.struct_size = sizeof options};
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_error error = {0};
    struct stoker_shard_writer *made = NULL;
    struct stk_py_engine *engine;
    PyObject *object, *classes;
    struct writer *self;
    char **texts;
    int status;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!yzO!|$yO&:ShardWriter", names,
                                     module->engine_type, &object, &options.destination,
                                     &options.pattern, &PyTuple_Type, &classes, &options.source,
                                     stk_py_u64, &options.shard_bytes)) {
        return NULL;
    }
    texts = texts_of(classes);
    if (!texts) {
        return NULL;
    }
    options.classes = (const char *const *)texts;
    options.class_count = (size_t)PyTuple_Size(classes);
    engine = (struct stk_py_engine *)object;
    self = (struct writer *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) {
        PyMem_Free(texts);
        return NULL;
    }
    self->gate.process = getpid();
    self->gate.closed = true; /* until it is open */
    if (!stk_py_gate_enter(&engine->gate, "engine")) {
        PyMem_Free(texts);
        Py_DECREF(self);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_shard_writer_open(&made, engine->engine, &options, &error);
    Py_END_ALLOW_THREADS if (stk_py_gate_leave(&engine->gate))
    {
        stoker_engine_close(engine->engine);
        engine->engine = NULL;
    }
    PyMem_Free(texts);
    if (status < 0) {
        Py_DECREF(self);
        return stk_py_raise(status, &error);
    }
    self->writer = made;
    self->gate.closed = false;
    return (PyObject *)self;
}

/* Fills members and views of so many (extension, buffer) pairs; false with an exception. */
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
                                 "give at most 4,096");
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
    writer_leave(self);
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
    writer_leave(self);
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
    writer_leave(self);
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
    Py_END_ALLOW_THREADS writer_leave(self);
    return status < 0 ? stk_py_raise(status, &error) : Py_NewRef(Py_None);
}

static PyObject *writer_close(PyObject *object, PyObject *nothing)
{
    struct writer *self = (struct writer *)object;

    (void)nothing;
    if (stk_py_gate_close(&self->gate)) {
        writer_close_now(self);
    }
    Py_RETURN_NONE;
}

static void writer_dealloc(PyObject *object)
{
    struct writer *self = (struct writer *)object;

    if (stk_py_gate_close(&self->gate)) {
        writer_close_now(self);
    }
    stk_py_object_free(object);
}

static PyMethodDef writer_methods[] = {
    {"add", writer_add, METH_VARARGS, "One sample: its key, and pairs of extension and bytes."},
    {"position", writer_position, METH_NOARGS, "Samples that are on disk for good."},
    {"resume_key", writer_resume_key, METH_NOARGS, "Of the last of them at open; None: all are."},
    {"commit", writer_commit, METH_NOARGS, "Index, manifest, rename."},
    {"close", writer_close, METH_NOARGS, "Lets go; whole shards stay, to go on."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_new, writer_new},
    {Py_tp_dealloc, writer_dealloc},
    {Py_tp_methods, writer_methods},
    {0, NULL},
};

PyType_Spec stk_py_writer_spec = {
    .name = "stoker._stoker.ShardWriter",
    .basicsize = sizeof(struct writer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = writer_slots,
};
