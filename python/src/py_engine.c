/* Engine: threads, rings and memory, shared by loaders. And the gate of shared handles. */
#include "py.h"

#include <unistd.h>

bool stk_py_gate_enter(struct stk_py_gate *gate, const char *object)
{
    if (stk_py_forked(gate->process, object)) {
        return false;
    }
    if (gate->closed) {
        stk_py_raise_text(STOKER_ERROR_CLOSED, "the object is closed", object, "open a new one");
        return false;
    }
    gate->users++;
    return true;
}

bool stk_py_gate_leave(struct stk_py_gate *gate)
{
    gate->users--;
    return gate->closed && gate->users == 0;
}

bool stk_py_gate_close(struct stk_py_gate *gate)
{
    bool first = !gate->closed;

    gate->closed = true;
    return first && gate->users == 0 && gate->process == getpid();
}

static void engine_close_now(struct stk_py_engine *self)
{
    struct stoker_engine *engine = self->engine;

    self->engine = NULL;
    Py_BEGIN_ALLOW_THREADS stoker_engine_close(engine);
    Py_END_ALLOW_THREADS
}

void stk_py_engine_leave(struct stk_py_engine *self)
{
    if (stk_py_gate_leave(&self->gate)) {
        engine_close_now(self);
    }
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
                            NULL};

    struct stoker_engine_options options = {.struct_size = sizeof options};
    struct stoker_error error = {0};
    struct stk_py_engine *self;
    int status, sandbox = 0, alone = 0, no_hedges = 0, tags = 0;
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stk_py_desk *desk = NULL;

    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "|$O&O&O&O&O&O&O&O&O&O&O&pO&zO&O&ppO&O!pO&O&:Engine", names,
            stk_py_u64, &options.memory_bytes_max, stk_py_u32, &options.threads, stk_py_u32,
            &options.cores_reserved, stk_py_u32, &options.io_backend, stk_py_u32, &options.direct,
            stk_py_u32, &options.io_depth, stk_py_u32, &options.io_bytes_max, stk_py_u32,
            &options.io_gap_bytes, stk_py_u32, &options.read_timeout_ms, stk_py_u32, &options.simd,
            stk_py_u32, &options.open_files_max, &sandbox, stk_py_u32, &options.decode_timeout_ms,
            &options.sandbox_helper, stk_py_u32, &options.connections_max, stk_py_u32,
            &options.node_connections_max, &alone, &no_hedges, stk_py_u32,
            &options.hedge_percent_max, module->desk_type, &desk, &tags, stk_py_u32,
            &options.network_fs_threads_max, stk_py_u32, &options.single_flight_timeout_ms)) {
        return NULL;
    }
    options.external_fs = desk ? desk->desk : NULL;
    options.sandbox = (uint8_t)sandbox;
    options.no_process_sharing = (uint8_t)alone;
    options.no_hedging = (uint8_t)no_hedges;
    options.check_etags = (uint8_t)tags;
    self = (struct stk_py_engine *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) {
        return NULL;
    }
    self->gate.process = getpid();
    Py_BEGIN_ALLOW_THREADS status = stoker_engine_open(&self->engine, &options, &error);
    Py_END_ALLOW_THREADS if (status < 0)
    {
        self->gate.closed = true;
        Py_DECREF(self);
        return stk_py_raise(status, &error);
    }
    return (PyObject *)self;
}

static PyObject *engine_close(PyObject *object, PyObject *nothing)
{
    struct stk_py_engine *self = (struct stk_py_engine *)object;

    (void)nothing;
    if (stk_py_gate_close(&self->gate)) {
        engine_close_now(self);
    }
    Py_RETURN_NONE;
}

static void engine_dealloc(PyObject *object)
{
    struct stk_py_engine *self = (struct stk_py_engine *)object;

    if (stk_py_gate_close(&self->gate)) {
        engine_close_now(self);
    }
    stk_py_object_free(object);
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
    stk_py_engine_leave(self);
    return result;
}

static PyObject *engine_ledger(PyObject *object, PyObject *nothing)
{
    static const char *const names[STOKER_STORES] = {"http", "s3", "gs", "az", "hf"};
    struct stk_py_engine *self = (struct stk_py_engine *)object;
    struct stoker_store_stats ledger = {.struct_size = sizeof ledger};
    PyObject *result = NULL, *store;
    int status;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "engine")) {
        return NULL;
    }
    status = stoker_engine_store_stats(self->engine, &ledger);
    stk_py_engine_leave(self);
    if (status < 0) {
        return stk_py_raise(status, NULL);
    }
    result = Py_BuildValue(
        "{sKs{sKsKsK}s{sKsKsKsKsKsdsIsIsIsIsIsIsz}}", "damaged",
        (unsigned long long)ledger.checksum_failures, "retries", "throttled",
        (unsigned long long)ledger.retries_throttled, "transient",
        (unsigned long long)ledger.retries_transient, "other",
        (unsigned long long)ledger.retries_other, "manners", "throttles",
        (unsigned long long)ledger.throttles, "hedges", (unsigned long long)ledger.hedges,
        "hedges_won", (unsigned long long)ledger.hedges_won, "waits_connections",
        (unsigned long long)ledger.connection_waits, "waits_rate",
        (unsigned long long)ledger.throttle_waits, "rate_max", ledger.rate_max, "connections",
        ledger.connections, "connections_peak", ledger.connections_peak, "connections_max",
        ledger.connections_max, "node_connections", ledger.node_connections, "node_connections_max",
        ledger.node_connections_max, "node_engines", ledger.node_engines, "alone",
        ledger.sharing_note);
    for (uint32_t i = 0; result && i < STOKER_STORES; i++) {
        store = Py_BuildValue("{sKsKsKsKsKsK}", "requests", (unsigned long long)ledger.requests[i],
                              "lists", (unsigned long long)ledger.lists[i], "puts",
                              (unsigned long long)ledger.puts[i], "deletes",
                              (unsigned long long)ledger.deletes[i], "bytes",
                              (unsigned long long)ledger.bytes[i], "checked",
                              (unsigned long long)ledger.verified_bytes[i]);
        if (!store || PyDict_SetItemString(result, names[i], store) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(store);
    }
    return result;
}

static PyMethodDef engine_methods[] = {
    {"store_stats", engine_ledger, METH_NOARGS, "What was asked of stores, as a dict."},
    {"info", engine_info, METH_NOARGS, "What the engine has and uses, as a dict."},
    {"close", engine_close, METH_NOARGS, "Lets go; threads end with the last loader."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot engine_slots[] = {
    {Py_tp_new, engine_new},
    {Py_tp_dealloc, engine_dealloc},
    {Py_tp_methods, engine_methods},
    {0, NULL},
};

PyType_Spec stk_py_engine_spec = {
    .name = "stoker._stoker.Engine",
    .basicsize = sizeof(struct stk_py_engine),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = engine_slots,
};
