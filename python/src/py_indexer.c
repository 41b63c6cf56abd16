/* Indexer: a job that writes the index file of a data set. */
#include "py.h"

static int indexer_next(void *handle, uint32_t timeout_ms, union stk_py_job_item *item,
                        struct stoker_error *error)
{
    item->indexer = (struct stoker_indexer_progress){.struct_size = sizeof item->indexer};
    return stoker_indexer_next(handle, timeout_ms, &item->indexer, error);
}

static PyObject *indexer_convert(int status, const union stk_py_job_item *item)
{
    const struct stoker_indexer_progress *progress = &item->indexer;

#define N(field) #field, (unsigned long long)progress->field
    return Py_BuildValue(
        "O{sKsKsKsKsKsKsKsKsKsKsKsKsNszsN}", status > 0 ? Py_True : Py_False, N(shards),
        N(shards_done), "shards_kept", (unsigned long long)progress->shards_reused, N(bytes),
        N(bytes_done), N(bytes_read), N(elapsed_ns), N(samples), N(members), N(index_bytes),
        "shards_packed", (unsigned long long)progress->shards_compressed, N(shards_sequential),
        "path", stk_py_string(progress->path), "sequential_reason", progress->sequential_reason,
        "sequential_shard", stk_py_string(progress->sequential_shard));
#undef N
}

static void indexer_close(void *handle)
{
    stoker_indexer_close(handle);
}

static const struct stk_py_job_kind indexer_kind = {"indexer", indexer_next, indexer_convert, NULL,
                                                    indexer_close};

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
    struct stoker_indexer *indexer = NULL;
    struct stk_py_job *self;
    struct stk_py_engine *engine;
    PyObject *tuple;
    const char **urls;
    int status;

    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!O!|$pppO&O&O&yO&:Indexer", names, module->engine_type, &engine,
            &PyTuple_Type, &tuple, &checksums, &labels, &force, stk_py_u32, &dataset.key_bytes_max,
            stk_py_u32, &dataset.header_bytes_max, stk_py_u32, &dataset.member_gap_max,
            &options.out, stk_py_u64, &options.seek_interval_bytes)) {
        return NULL;
    }
    urls = stk_py_paths(tuple);
    self = urls ? stk_py_job_new(type, &indexer_kind) : NULL;
    if (!self || !stk_py_gate_enter(&engine->gate, "engine")) {
        Py_XDECREF((PyObject *)self);
        PyMem_Free(urls);
        return NULL;
    }
    dataset.urls = urls;
    dataset.url_count = (size_t)PyTuple_Size(tuple);
    options.checksums = checksums;
    options.labels = labels;
    options.force = force;
    /* Returns at once: the indexer's own thread does what may wait. */
    status = stoker_indexer_open(&indexer, engine->engine, &dataset, &options, &error);
    stk_py_gate_leave(&engine->gate);
    PyMem_Free(urls);
    return stk_py_job_opened(self, indexer, status, &error);
}

static PyMethodDef indexer_methods[] = {
    {"next", stk_py_job_next_progress, METH_O, "next(timeout_ms) -> (goes_on, progress)"},
    {"close", stk_py_job_close, METH_NOARGS,
     "Stops the indexer; finished shards are reused next time."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot indexer_slots[] = {
    {Py_tp_new, indexer_new},
    {Py_tp_dealloc, stk_py_job_dealloc},
    {Py_tp_methods, indexer_methods},
    {0, NULL},
};

PyType_Spec stk_py_indexer_spec = {
    .name = "stoker._stoker.Indexer",
    .basicsize = sizeof(struct stk_py_job),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = indexer_slots,
};
