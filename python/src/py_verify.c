/* Verify and Diff: jobs whose results are findings and differences. */
#include "py.h"

/* ---- Verify ----------------------------------------------------------------------------- */

static int verify_next(void *handle, uint32_t timeout_ms, union stk_py_job_item *item,
                       struct stoker_error *error)
{
    return stoker_verify_next(handle, timeout_ms, &item->finding, error);
}

static PyObject *verify_convert(int status, const union stk_py_job_item *item)
{
    const struct stoker_finding *found = &item->finding;

    if (status == 0) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("sNNNNNNisO", stoker_finding_name(found->kind),
                         stk_py_string(found->shard), stk_py_number_or_none(found->offset),
                         stk_py_string(found->key), stk_py_string(found->extension),
                         stk_py_string(found->what), stk_py_string(found->advice), found->status,
                         stoker_status_name(found->status), found->note ? Py_True : Py_False);
}

static void verify_close(void *handle)
{
    stoker_verify_close(handle);
}

static const struct stk_py_job_kind verify_kind = {"verify", verify_next, verify_convert, NULL,
                                                   verify_close};

static PyObject *verify_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"engine",
                            "urls",
                            "deep",
                            "repair",
                            "findings_max",
                            "pixels_max",
                            "decode_bytes_max",
                            "key_bytes_max",
                            "header_bytes_max",
                            "member_gap_max",
                            "decompressed_bytes_max",
                            "decompression_ratio_max",
                            "keep_unverified",
                            NULL};

    struct stoker_verify_options options = {.struct_size = sizeof options};
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_error error = {0};
    struct stoker_verify *verify = NULL;
    struct stk_py_engine *engine;
    struct stk_py_job *self;
    PyObject *tuple;
    const char **urls;
    int status, deep = 0, repair = 0, keep_unverified = 0;

    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!O!|$ppO&O&O&O&O&O&O&O&p:Verify", names, module->engine_type,
            &engine, &PyTuple_Type, &tuple, &deep, &repair, stk_py_u64, &options.findings_max,
            stk_py_u64, &options.pixels_max, stk_py_u64, &options.decode_bytes_max, stk_py_u32,
            &options.key_bytes_max, stk_py_u32, &options.header_bytes_max, stk_py_u32,
            &options.member_gap_max, stk_py_u64, &options.decompressed_bytes_max, stk_py_u32,
            &options.decompression_ratio_max, &keep_unverified)) {
        return NULL;
    }
    urls = stk_py_paths(tuple);
    self = urls ? stk_py_job_new(type, &verify_kind) : NULL;
    if (!self || !stk_py_gate_enter(&engine->gate, "engine")) {
        Py_XDECREF((PyObject *)self);
        PyMem_Free(urls);
        return NULL;
    }
    options.deep = (uint8_t)deep;
    options.repair = (uint8_t)repair;
    options.keep_unverified = (uint8_t)keep_unverified;
    options.urls = urls;
    options.url_count = (size_t)PyTuple_Size(tuple);
    Py_BEGIN_ALLOW_THREADS status = stoker_verify_open(&verify, engine->engine, &options, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    PyMem_Free(urls);
    return stk_py_job_opened(self, verify, status, &error);
}

#define COUNT(name) #name, (unsigned long long)progress.name

static PyObject *verify_progress(PyObject *object, PyObject *nothing)
{
    struct stk_py_job *self = (struct stk_py_job *)object;
    struct stoker_verify_progress progress = {.struct_size = sizeof progress};
    int status;

    (void)nothing;
    if (!stk_py_job_enter(self)) {
        return NULL;
    }
    status = stoker_verify_progress(self->handle, &progress);
    stk_py_job_leave(self);
    return status < 0
               ? stk_py_raise(status, NULL)
               : Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsKsK}", COUNT(shards), COUNT(shards_total),
                               COUNT(bytes), COUNT(bytes_total), COUNT(samples), COUNT(members),
                               COUNT(findings), COUNT(notes), COUNT(findings_kept), COUNT(repaired),
                               COUNT(dropped), "unproven", (unsigned long long)progress.unverified);
}

/* ---- Diff ------------------------------------------------------------------------------- */

static int diff_next(void *handle, uint32_t timeout_ms, union stk_py_job_item *item,
                     struct stoker_error *error)
{
    return stoker_diff_next(handle, timeout_ms, &item->difference, error);
}

static PyObject *diff_convert(int status, const union stk_py_job_item *item)
{
    const struct stoker_difference *difference = &item->difference;

    if (status == 0) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("sNNNNNN", stoker_difference_name(difference->kind),
                         stk_py_text(difference->key, difference->key_bytes),
                         stk_py_number_or_none(difference->sample_a),
                         stk_py_number_or_none(difference->sample_b),
                         stk_py_string(difference->shard_a), stk_py_string(difference->shard_b),
                         stk_py_string(difference->members));
}

static void diff_close(void *handle)
{
    stoker_diff_close(handle);
}

static const struct stk_py_job_kind diff_kind = {"diff", diff_next, diff_convert, NULL, diff_close};

static PyObject *diff_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"a", "b", "reread", NULL};

    struct stoker_diff_options options = {.struct_size = sizeof options};
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_error error = {0};
    struct stoker_diff *diff = NULL;
    struct stk_py_dataset *a, *b;
    struct stk_py_job *self;
    int status, reread = 0;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O!|$p:Diff", names,
                                     module->dataset_type, &a, module->dataset_type, &b, &reread)) {
        return NULL;
    }
    self = stk_py_job_new(type, &diff_kind);
    if (!self || !stk_py_gate_enter(&a->gate, "data set")) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    if (!stk_py_gate_enter(&b->gate, "data set")) {
        stk_py_gate_leave(&a->gate);
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    options.reread = (uint8_t)reread;
    Py_BEGIN_ALLOW_THREADS status =
        stoker_diff_open(&diff, a->dataset, b->dataset, &options, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&b->gate);
    stk_py_gate_leave(&a->gate);
    return stk_py_job_opened(self, diff, status, &error);
}

static PyObject *diff_progress(PyObject *object, PyObject *nothing)
{
    struct stk_py_job *self = (struct stk_py_job *)object;
    struct stoker_diff_progress progress = {.struct_size = sizeof progress};
    int status;

    (void)nothing;
    if (!stk_py_job_enter(self)) {
        return NULL;
    }
    status = stoker_diff_progress(self->handle, &progress);
    stk_py_job_leave(self);
    return status < 0 ? stk_py_raise(status, NULL)
                      : Py_BuildValue("{sKsKsKsKsKsKsKsKsKsO}", COUNT(samples_a), COUNT(samples_b),
                                      COUNT(samples_done), COUNT(bytes), COUNT(bytes_total),
                                      COUNT(same), COUNT(added), COUNT(removed), COUNT(changed),
                                      "finished", progress.finished ? Py_True : Py_False);
}

/* ---- types ------------------------------------------------------------------------------ */

static PyMethodDef verify_methods[] = {
    {"next", stk_py_job_next_item, METH_NOARGS, "The next finding as a tuple; None at the end."},
    {"progress", verify_progress, METH_NOARGS, "Counts so far, as a dict."},
    {"close", stk_py_job_close, METH_NOARGS, "Stops the job."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot verify_slots[] = {
    {Py_tp_new, verify_new},
    {Py_tp_dealloc, stk_py_job_dealloc},
    {Py_tp_methods, verify_methods},
    {0, NULL},
};

PyType_Spec stk_py_verify_spec = {
    .name = "stoker._stoker.Verify",
    .basicsize = sizeof(struct stk_py_job),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = verify_slots,
};

static PyMethodDef diff_methods[] = {
    {"next", stk_py_job_next_item, METH_NOARGS, "The next difference as a tuple; None at the end."},
    {"progress", diff_progress, METH_NOARGS, "Counts so far, as a dict."},
    {"close", stk_py_job_close, METH_NOARGS, "Stops the job."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot diff_slots[] = {
    {Py_tp_new, diff_new},
    {Py_tp_dealloc, stk_py_job_dealloc},
    {Py_tp_methods, diff_methods},
    {0, NULL},
};

PyType_Spec stk_py_diff_spec = {
    .name = "stoker._stoker.Diff",
    .basicsize = sizeof(struct stk_py_job),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = diff_slots,
};
