/* Pack: a job that writes a data set as tars. */
#include "py.h"

static int pack_next(void *handle, uint32_t timeout_ms, union stk_py_job_item *item,
                     struct stoker_error *error)
{
    item->pack = (struct stoker_pack_progress){.struct_size = sizeof item->pack};
    return stoker_pack_next(handle, timeout_ms, &item->pack, error);
}

static PyObject *pack_convert(int status, const union stk_py_job_item *item)
{
    const struct stoker_pack_progress *progress = &item->pack;

    return Py_BuildValue(
        "(O{sIsKsKsKsKsKsKsKsKsKsKsKsKsKsKsOsK})", status == 1 ? Py_True : Py_False, "phase",
        progress->phase, "shards", (unsigned long long)progress->shards, "shards_done",
        (unsigned long long)progress->shards_done, "samples", (unsigned long long)progress->samples,
        "samples_done", (unsigned long long)progress->samples_done, "bytes",
        (unsigned long long)progress->bytes, "bytes_done", (unsigned long long)progress->bytes_done,
        "shards_kept", (unsigned long long)progress->shards_resumed, "samples_kept",
        (unsigned long long)progress->samples_resumed, "bytes_kept",
        (unsigned long long)progress->bytes_resumed, "resized",
        (unsigned long long)progress->resized, "copied", (unsigned long long)progress->copied,
        "run_ns", (unsigned long long)progress->run_ns, "samples_left_out",
        (unsigned long long)progress->samples_left_out, "retries",
        (unsigned long long)progress->retries, "shuffled", progress->shuffled ? Py_True : Py_False,
        "seed", (unsigned long long)progress->seed);
}

static void pack_close(void *handle)
{
    stoker_pack_close(handle);
}

static const struct stk_py_job_kind pack_kind = {"pack", pack_next, pack_convert, NULL, pack_close};

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
    struct stoker_pack *pack = NULL;
    struct stk_py_job *self;
    int status;

    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!yz|$O&O&O&O&O&O&yO&dO&:Pack", names, module->dataset_type,
            &dataset, &options.destination, &options.pattern, stk_py_u64, &options.shard_bytes,
            stk_py_u32, &options.shuffle, stk_py_u64, &options.seed, stk_py_u32,
            &options.short_side, stk_py_u32, &options.quality, stk_py_u32, &options.on_error,
            &options.quarantine, stk_py_u64, &options.bad_samples_max, &options.bad_share_max,
            stk_py_u32, &options.io_retries)) {
        return NULL;
    }
    self = stk_py_job_new(type, &pack_kind);
    if (!self || !stk_py_gate_enter(&dataset->gate, "data set")) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    /* Returns at once: the pack's own thread does what may wait. */
    status = stoker_pack_open(&pack, dataset->dataset, &options, &error);
    stk_py_gate_leave(&dataset->gate);
    return stk_py_job_opened(self, pack, status, &error);
}

static int pack_bad_sample(void *handle, uint64_t index, struct stoker_quarantine_entry *entry)
{
    return stoker_pack_quarantine(handle, index, entry);
}

/* quarantine() -> list of tuples; complete after the end. */
static PyObject *pack_quarantine(PyObject *object, PyObject *nothing)
{
    struct stk_py_job *self = (struct stk_py_job *)object;
    PyObject *list;

    (void)nothing;
    if (!stk_py_job_enter(self)) {
        return NULL;
    }
    list = stk_py_bad_samples(self->handle, pack_bad_sample);
    stk_py_job_leave(self);
    return list;
}

static PyMethodDef pack_methods[] = {
    {"next", stk_py_job_next_progress, METH_O, "next(timeout_ms) -> (goes_on, progress)"},
    {"quarantine", pack_quarantine, METH_NOARGS, "After the end: samples left out, as tuples."},
    {"close", stk_py_job_close, METH_NOARGS, "Stops the pack; finished shards stay for a resume."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot pack_slots[] = {
    {Py_tp_new, pack_new},
    {Py_tp_dealloc, stk_py_job_dealloc},
    {Py_tp_methods, pack_methods},
    {0, NULL},
};

PyType_Spec stk_py_pack_spec = {
    .name = "stoker._stoker.Pack",
    .basicsize = sizeof(struct stk_py_job),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = pack_slots,
};
