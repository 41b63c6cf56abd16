/* Cache: blocks of objects on disks of this machine. */
#include "py.h"

static void cache_close_handle(PyObject *object)
{
    struct stk_py_cache *self = (struct stk_py_cache *)object;

    stoker_cache_close(self->cache);
    self->cache = NULL;
}

static PyObject *cache_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"paths", "bytes_max", "free_bytes", "block_bytes", "must_exist", NULL};
    struct stoker_cache_options options = {.struct_size = sizeof options};
    struct stoker_error error = {0};
    struct stk_py_cache *self;
    const char **paths;
    PyObject *tuple;
    int status, must_exist = 0;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!|$O&O&O&p:Cache", names, &PyTuple_Type,
                                     &tuple, stk_py_u64, &options.bytes_max, stk_py_u64,
                                     &options.free_bytes, stk_py_u32, &options.block_bytes,
                                     &must_exist)) {
        return NULL;
    }
    paths = stk_py_paths(tuple);
    self = paths ? stk_py_object_new(type) : NULL;
    if (!self) {
        PyMem_Free(paths);
        return NULL;
    }
    stk_py_gate_init(&self->gate, cache_close_handle);
    options.must_exist = (uint8_t)must_exist;
    options.paths = paths;
    options.path_count = (size_t)PyTuple_Size(tuple);
    Py_BEGIN_ALLOW_THREADS status = stoker_cache_open(&self->cache, &options, &error);
    Py_END_ALLOW_THREADS PyMem_Free(paths);
    if (status < 0) {
        Py_DECREF(self);
        return stk_py_raise(status, &error);
    }
    self->gate.closed = false;
    return (PyObject *)self;
}

PyObject *stk_py_cache_stats(struct stoker_cache *cache)
{
    struct stoker_cache_stats stats = {.struct_size = sizeof stats};
    int status = stoker_cache_stats(cache, &stats);

    if (status < 0) {
        return stk_py_raise(status, NULL);
    }
    return Py_BuildValue(
        "{sKsKsKsKsKsKsKsKsKsKsKsK}", "hits", (unsigned long long)stats.hits, "misses",
        (unsigned long long)stats.misses, "bytes_from_cache",
        (unsigned long long)stats.bytes_from_cache, "bytes_from_origin",
        (unsigned long long)stats.bytes_from_origin, "blocks_filled",
        (unsigned long long)stats.blocks_filled, "waits", (unsigned long long)stats.waits,
        "bypasses", (unsigned long long)stats.bypasses, "blocks_dropped",
        (unsigned long long)stats.blocks_dropped, "blocks_evicted",
        (unsigned long long)stats.blocks_evicted, "disk_failures",
        (unsigned long long)stats.disk_failures, "bytes_used", (unsigned long long)stats.bytes_used,
        "bytes_max", (unsigned long long)stats.bytes_max);
}

static PyObject *cache_stats(PyObject *object, PyObject *nothing)
{
    struct stk_py_cache *self = (struct stk_py_cache *)object;
    PyObject *result;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "cache")) {
        return NULL;
    }
    result = stk_py_cache_stats(self->cache);
    stk_py_gate_leave(&self->gate);
    return result;
}

static PyObject *cache_folders(PyObject *object, PyObject *nothing)
{
    struct stk_py_cache *self = (struct stk_py_cache *)object;
    struct stoker_cache_folder folder = {.struct_size = sizeof folder};
    PyObject *list;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "cache")) {
        return NULL;
    }
    list = PyList_New(0);
    for (size_t i = 0; list && stoker_cache_folder(self->cache, i, &folder) == 1; i++) {
        PyObject *row = Py_BuildValue("{szsKsKsKsKsKsIsi}", "path", folder.path, "bytes_used",
                                      (unsigned long long)folder.bytes_used, "bytes_max",
                                      (unsigned long long)folder.bytes_max, "blocks",
                                      (unsigned long long)folder.blocks, "blocks_filling",
                                      (unsigned long long)folder.blocks_filling, "blocks_pinned",
                                      (unsigned long long)folder.blocks_pinned, "block_bytes",
                                      folder.block_bytes, "status", folder.status);

        if (!row || PyList_Append(list, row) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    stk_py_gate_leave(&self->gate);
    return list;
}

static PyObject *report_list(struct stoker_cache_report *report)
{
    struct stoker_cache_object object = {.struct_size = sizeof object};
    PyObject *list = PyList_New(0);

    while (list && stoker_cache_report_next(report, &object) == 1) {
        PyObject *row = Py_BuildValue("{szszsKsKsKsKsK}", "url", object.url, "etag", object.etag,
                                      "object_bytes", (unsigned long long)object.object_bytes,
                                      "bytes", (unsigned long long)object.bytes, "blocks",
                                      (unsigned long long)object.blocks, "blocks_pinned",
                                      (unsigned long long)object.blocks_pinned, "blocks_damaged",
                                      (unsigned long long)object.blocks_damaged);

        if (!row || PyList_Append(list, row) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *cache_report(PyObject *object, PyObject *arguments)
{
    struct stk_py_cache *self = (struct stk_py_cache *)object;
    struct stoker_cache_report *report = NULL;
    struct stoker_error error = {0};
    PyObject *list = NULL;
    const char *prefix;
    unsigned int action;
    int status;

    if (!PyArg_ParseTuple(arguments, "Is:report", &action, &prefix) ||
        !stk_py_gate_enter(&self->gate, "cache")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_cache_report_open(&report, self->cache, action, prefix, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    list = status < 0 ? stk_py_raise(status, &error) : report_list(report);
    stoker_cache_report_close(report);
    return list;
}

static PyObject *cache_collect(PyObject *object, PyObject *nothing)
{
    struct stk_py_cache *self = (struct stk_py_cache *)object;
    struct stoker_error error = {0};
    int64_t freed;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "cache")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS freed = stoker_cache_collect(self->cache, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    return freed < 0 ? stk_py_raise((int)freed, &error) : PyLong_FromLongLong(freed);
}

static PyMethodDef cache_methods[] = {
    {"stats", cache_stats, METH_NOARGS, "Counters of this process, as a dict."},
    {"folders", cache_folders, METH_NOARGS, "Folders, as a list of dicts."},
    {"report", cache_report, METH_VARARGS, "report(action, url_prefix) -> list of dicts"},
    {"collect", cache_collect, METH_NOARGS, "Frees unfinished blocks; returns their number."},
    {"close", stk_py_gated_close, METH_NOARGS, "Closes it; engines keep it open."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cache_slots[] = {
    {Py_tp_new, cache_new},
    {Py_tp_dealloc, stk_py_gated_dealloc},
    {Py_tp_methods, cache_methods},
    {0, NULL},
};

PyType_Spec stk_py_cache_spec = {
    .name = "stoker._stoker.Cache",
    .basicsize = sizeof(struct stk_py_cache),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = cache_slots,
};
