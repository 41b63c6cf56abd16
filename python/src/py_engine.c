/* Engine: threads, I/O queues and memory, shared by loaders. */
#include "py.h"

static void engine_close_handle(PyObject *object)
{
    struct stk_py_engine *self = (struct stk_py_engine *)object;

    stoker_engine_close(self->engine);
    self->engine = NULL;
}

/* Opens an engine with the cache, which may be NULL. */
static PyObject *open_engine(PyTypeObject *type, struct stoker_engine_options *options,
                             struct stk_py_cache *cache)
{
    struct stk_py_engine *self = stk_py_object_new(type);
    struct stoker_error error = {0};
    int status;

    if (!self) {
        return NULL;
    }
    stk_py_gate_init(&self->gate, engine_close_handle);
    if (cache && !stk_py_gate_enter(&cache->gate, "cache")) {
        Py_DECREF(self);
        return NULL;
    }
    options->cache = cache ? cache->cache : NULL;
    Py_BEGIN_ALLOW_THREADS status = stoker_engine_open(&self->engine, options, &error);
    Py_END_ALLOW_THREADS if (cache)
    {
        stk_py_gate_leave(&cache->gate);
    }
    if (status < 0) {
        Py_DECREF(self);
        return stk_py_raise(status, &error);
    }
    self->gate.closed = false;
    return (PyObject *)self;
}

static PyObject *engine_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"memory_bytes_max",
                            "threads",
                            "cores_reserved",
                            "io_backend",
                            "direct",
                            "io_depth",
                            "io_bytes_max",
                            "io_gap_bytes",
                            "read_timeout_ms",
                            "simd",
                            "open_files_max",
                            "sandbox",
                            "decode_timeout_ms",
                            "sandbox_helper",
                            "connections_max",
                            "node_connections_max",
                            "no_process_sharing",
                            "no_hedging",
                            "hedge_percent_max",
                            "external_fs",
                            "check_etags",
                            "network_fs_threads_max",
                            "single_flight_timeout_ms",
                            "cache",
                            NULL};

    struct stoker_engine_options options = {.struct_size = sizeof options};
    int sandbox = 0, no_sharing = 0, no_hedging = 0, check_etags = 0;
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stk_py_external_fs *external = NULL;
    struct stk_py_cache *cache = NULL;

    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "|$O&O&O&O&O&O&O&O&O&O&O&pO&zO&O&ppO&O!pO&O&O!:Engine", names,
            stk_py_u64, &options.memory_bytes_max, stk_py_u32, &options.threads, stk_py_u32,
            &options.cores_reserved, stk_py_u32, &options.io_backend, stk_py_u32, &options.direct,
            stk_py_u32, &options.io_depth, stk_py_u32, &options.io_bytes_max, stk_py_u32,
            &options.io_gap_bytes, stk_py_u32, &options.read_timeout_ms, stk_py_u32, &options.simd,
            stk_py_u32, &options.open_files_max, &sandbox, stk_py_u32, &options.decode_timeout_ms,
            &options.sandbox_helper, stk_py_u32, &options.connections_max, stk_py_u32,
            &options.node_connections_max, &no_sharing, &no_hedging, stk_py_u32,
            &options.hedge_percent_max, module->external_fs_type, &external, &check_etags,
            stk_py_u32, &options.network_fs_threads_max, stk_py_u32,
            &options.single_flight_timeout_ms, module->cache_type, &cache)) {
        return NULL;
    }
    options.external_fs = external ? external->handle : NULL;
    options.sandbox = (uint8_t)sandbox;
    options.no_process_sharing = (uint8_t)no_sharing;
    options.no_hedging = (uint8_t)no_hedging;
    options.check_etags = (uint8_t)check_etags;
    return open_engine(type, &options, cache);
}

static PyObject *engine_info(PyObject *object, PyObject *nothing)
{
    struct stk_py_engine *self = (struct stk_py_engine *)object;
    struct stoker_engine_info info = {.struct_size = sizeof info};
    PyObject *result = NULL;
    int status;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "engine")) {
        return NULL;
    }
    status = stoker_engine_info(self->engine, &info);
    if (status < 0) {
        stk_py_raise(status, NULL);
    } else {
        result = Py_BuildValue(
            "{sIsIsKsKsKsKszszszsz}", "threads", info.threads, "cores", info.cores,
            "memory_bytes_max", (unsigned long long)info.memory_bytes_max, "memory_bytes",
            (unsigned long long)info.memory_bytes, "memory_bytes_peak",
            (unsigned long long)info.memory_bytes_peak, "lost_bytes",
            (unsigned long long)info.leaked_bytes, "io_backend", info.io_backend, "io_reason",
            info.io_reason, "vector", info.simd, "sandbox", info.sandbox);
    }
    stk_py_gate_leave(&self->gate);
    return result;
}

static PyObject *engine_store_stats(PyObject *object, PyObject *nothing)
{
    static const char *const names[STOKER_STORES] = {"http", "s3", "gs", "az", "hf"};
    struct stk_py_engine *self = (struct stk_py_engine *)object;
    struct stoker_store_stats stats = {.struct_size = sizeof stats};
    PyObject *result = NULL, *store;
    int status;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "engine")) {
        return NULL;
    }
    status = stoker_engine_store_stats(self->engine, &stats);
    stk_py_gate_leave(&self->gate);
    if (status < 0) {
        return stk_py_raise(status, NULL);
    }
    result = Py_BuildValue(
        "{sKs{sKsKsK}s{sKsKsKsKsKsdsIsIsIsIsIsIsz}}", "damaged",
        (unsigned long long)stats.checksum_failures, "retries", "throttled",
        (unsigned long long)stats.retries_throttled, "transient",
        (unsigned long long)stats.retries_transient, "other",
        (unsigned long long)stats.retries_other, "manners", "throttles",
        (unsigned long long)stats.throttles, "hedges", (unsigned long long)stats.hedges,
        "hedges_won", (unsigned long long)stats.hedges_won, "waits_connections",
        (unsigned long long)stats.connection_waits, "waits_rate",
        (unsigned long long)stats.throttle_waits, "rate_max", stats.rate_max, "connections",
        stats.connections, "connections_peak", stats.connections_peak, "connections_max",
        stats.connections_max, "node_connections", stats.node_connections, "node_connections_max",
        stats.node_connections_max, "node_engines", stats.node_engines, "alone",
        stats.sharing_note);
    for (uint32_t i = 0; result && i < STOKER_STORES; i++) {
        store = Py_BuildValue("{sKsKsKsKsKsK}", "requests", (unsigned long long)stats.requests[i],
                              "lists", (unsigned long long)stats.lists[i], "puts",
                              (unsigned long long)stats.puts[i], "deletes",
                              (unsigned long long)stats.deletes[i], "bytes",
                              (unsigned long long)stats.bytes[i], "checked",
                              (unsigned long long)stats.verified_bytes[i]);
        if (!store || PyDict_SetItemString(result, names[i], store) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(store);
    }
    return result;
}

/* None: the engine has no cache. */
static PyObject *engine_cache_stats(PyObject *object, PyObject *nothing)
{
    struct stk_py_engine *self = (struct stk_py_engine *)object;
    struct stoker_cache *cache;
    PyObject *result;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "engine")) {
        return NULL;
    }
    cache = stoker_engine_cache(self->engine);
    result = cache ? stk_py_cache_stats(cache) : Py_NewRef(Py_None);
    stk_py_gate_leave(&self->gate);
    return result;
}

static PyMethodDef engine_methods[] = {
    {"cache_stats", engine_cache_stats, METH_NOARGS, "Counters of the cache, as a dict, or None."},
    {"store_stats", engine_store_stats, METH_NOARGS, "Requests to object stores, as a dict."},
    {"info", engine_info, METH_NOARGS, "Threads, memory and I/O backend, as a dict."},
    {"close", stk_py_gated_close, METH_NOARGS, "Closes it; its threads end with the last loader."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot engine_slots[] = {
    {Py_tp_new, engine_new},
    {Py_tp_dealloc, stk_py_gated_dealloc},
    {Py_tp_methods, engine_methods},
    {0, NULL},
};

PyType_Spec stk_py_engine_spec = {
    .name = "stoker._stoker.Engine",
    .basicsize = sizeof(struct stk_py_engine),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = engine_slots,
};
