/* Indexer: a run that makes the index file of a data set. */
#include "py.h"

#include <string.h>
#include <unistd.h>

struct indexer_object {
    PyObject_HEAD struct stoker_indexer *indexer;
    struct stk_py_gate gate;
};

static void indexer_close_now(struct indexer_object *self)
{
    struct stoker_indexer *indexer = self->indexer;

    self->indexer = NULL;
    Py_BEGIN_ALLOW_THREADS stoker_indexer_close(indexer);
    Py_END_ALLOW_THREADS
}

static PyObject *indexer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"engine",
                            "urls",
                            "checksums",
                            "labels",
                            "force",
                            "key_bytes_max",
                            "header_bytes_max",
                            "member_gap_max",
                            "out",
                            "seek_interval_bytes",
                            NULL};
    struct stoker_dataset_options dataset = {.struct_size = sizeof dataset};
    struct stoker_indexer_options options = {.struct_size = sizeof options};
    struct stk_py_module *module = PyType_GetModuleState(type);
    int checksums = 0, labels = 0, force = 0;
    struct stoker_error error = {0};
    struct indexer_object *self;
    struct stk_py_engine *engine;
    PyObject *owner, *tuple;
    const char **urls;
    int status;

    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!O!|$pppO&O&O&yO&:Indexer", names, module->engine_type, &owner,
            &PyTuple_Type, &tuple, &checksums, &labels, &force, stk_py_u32, &dataset.key_bytes_max,
            stk_py_u32, &dataset.header_bytes_max, stk_py_u32, &dataset.member_gap_max,
            &options.out, stk_py_u64, &options.seek_interval_bytes)) {
        return NULL;
    }
    urls = stk_py_urls(tuple);
    self = urls ? (struct indexer_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0)
                : NULL;
    if (!self) {
        PyMem_Free(urls);
        return NULL;
    }
    engine = (struct stk_py_engine *)owner;
    self->gate.process = getpid();
    dataset.urls = urls;
    dataset.url_count = (size_t)PyTuple_Size(tuple);
    options.checksums = checksums;
    options.labels = labels;
    options.force = force;
    status = 1;
    if (stk_py_gate_enter(&engine->gate, "engine")) {
        status = stoker_indexer_open(&self->indexer, engine->engine, &dataset, &options, &error);
        stk_py_engine_leave(engine);
    }
    PyMem_Free(urls);
    if (status != 0) {
        self->gate.closed = true;
        Py_DECREF(self);
        return status < 0 ? stk_py_raise(status, &error) : NULL;
    }
    return (PyObject *)self;
}

static PyObject *text_or_none(const char *text)
{
    return text ? stk_py_text(text, strlen(text)) : Py_NewRef(Py_None);
}

/* next(timeout_ms) -> (goes_on, progress) */
static PyObject *indexer_next(PyObject *object, PyObject *timeout)
{
    struct indexer_object *self = (struct indexer_object *)object;
    struct stoker_indexer_progress progress = {.struct_size = sizeof progress};
    struct stoker_error error = {0};
    PyObject *result = NULL;
    uint32_t timeout_ms;
    int status;

    if (!stk_py_u32(timeout, &timeout_ms) || !stk_py_gate_enter(&self->gate, "indexer")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_indexer_next(self->indexer, timeout_ms, &progress, &error);
    Py_END_ALLOW_THREADS if (status < 0)
    {
        stk_py_raise(status, &error);
    }
    else
    {
#define N(field) #field, (unsigned long long)progress.field
        /* The path is lent until close: its text is copied here, before leave. */
        result = Py_BuildValue(
            "O{sKsKsKsKsKsKsKsKsKsKsKsKsNszsN}", status > 0 ? Py_True : Py_False, N(shards),
            N(shards_done), "shards_kept", (unsigned long long)progress.shards_reused, N(bytes),
            N(bytes_done), N(bytes_read), N(elapsed_ns), N(samples), N(members), N(index_bytes),
            "shards_packed", (unsigned long long)progress.shards_compressed, N(shards_sequential),
            "path", text_or_none(progress.path), "sequential_reason", progress.sequential_reason,
            "sequential_shard", text_or_none(progress.sequential_shard));
#undef N
    }
    if (stk_py_gate_leave(&self->gate)) {
        indexer_close_now(self);
    }
    return result;
}

static PyObject *indexer_close(PyObject *object, PyObject *nothing)
{
    struct indexer_object *self = (struct indexer_object *)object;

    (void)nothing;
    if (stk_py_gate_close(&self->gate)) {
        indexer_close_now(self);
    }
    Py_RETURN_NONE;
}

static void indexer_dealloc(PyObject *object)
{
    struct indexer_object *self = (struct indexer_object *)object;

    if (stk_py_gate_close(&self->gate)) {
        indexer_close_now(self);
    }
    stk_py_object_free(object);
}

static PyMethodDef indexer_methods[] = {
    {"next", indexer_next, METH_O, "(goes_on, progress) after a while."},
    {"close", indexer_close, METH_NOARGS, "Stops the work; what is finished is kept."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot indexer_slots[] = {
    {Py_tp_new, indexer_new},
    {Py_tp_dealloc, indexer_dealloc},
    {Py_tp_methods, indexer_methods},
    {0, NULL},
};

PyType_Spec stk_py_indexer_spec = {
    .name = "stoker._stoker.Indexer",
    .basicsize = sizeof(struct indexer_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = indexer_slots,
};
