/* Verify and Diff: long work of the library whose results are pulled one by one. */
#include "py.h"

#include <string.h>
#include <unistd.h>

/* What the two have in common: a handle behind a lock. A call inside the library is over within
 * STK_PY_SLICE_MS, so that close need not wait longer. */
struct pull_object {
    PyObject_HEAD void *handle;
    const struct pull_kind *kind;
    PyThread_type_lock lock; /* one call at a time */
    bool closed;
    pid_t process;
};

union result {
    struct stoker_finding finding;
    struct stoker_difference difference;
};

struct pull_kind {
    const char *name;
    int (*next)(void *handle, uint32_t timeout_ms, union result *result,
                struct stoker_error *error);
    PyObject *(*convert)(const union result *result);
    void (*close)(void *handle);
};

/* The lock, waiting for it with an eye on signals; false: the exception is set. */
static bool enter(struct pull_object *self)
{
    while (true) {
        PyLockStatus locked;

        if (stk_py_forked(self->process, self->kind->name)) {
            return false;
        }
        if (self->closed) {
            stk_py_raise_text(STOKER_ERROR_CLOSED, "the object is closed", self->kind->name,
                              "start it again");
            return false;
        }
        Py_BEGIN_ALLOW_THREADS locked =
            PyThread_acquire_lock_timed(self->lock, STK_PY_SLICE_MS * 1000, 0);
        Py_END_ALLOW_THREADS if (locked == PY_LOCK_ACQUIRED && !self->closed)
        {
            return true;
        }
        if (locked == PY_LOCK_ACQUIRED) {
            PyThread_release_lock(self->lock); /* closed while we waited */
        } else if (PyErr_CheckSignals() < 0) {
            return false;
        }
    }
}

/* An empty object; NULL with an exception. */
static struct pull_object *make(PyTypeObject *type, const struct pull_kind *kind)
{
    struct pull_object *self =
        (struct pull_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);

    if (!self) {
        return NULL;
    }
    self->kind = kind;
    self->closed = true; /* until it is open */
    self->process = getpid();
    self->lock = PyThread_allocate_lock();
    if (!self->lock) {
        Py_DECREF((PyObject *)self);
        PyErr_NoMemory();
        return NULL;
    }
    return self;
}

static PyObject *pull_close(PyObject *object, PyObject *nothing)
{
    struct pull_object *self = (struct pull_object *)object;

    (void)nothing;
    if (self->closed || self->process != getpid()) {
        self->closed = true; /* a fork's child forgets its parent's work */
        Py_RETURN_NONE;
    }
    self->closed = true;
    Py_BEGIN_ALLOW_THREADS PyThread_acquire_lock(self->lock, WAIT_LOCK);
    self->kind->close(self->handle);
    self->handle = NULL;
    PyThread_release_lock(self->lock);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static void pull_dealloc(PyObject *object)
{
    struct pull_object *self = (struct pull_object *)object;

    Py_XDECREF(pull_close(object, NULL));
    if (self->lock) {
        PyThread_free_lock(self->lock);
    }
    stk_py_object_free(object);
}

/* next() -> tuple | None: no more */
static PyObject *pull_next(PyObject *object, PyObject *nothing)
{
    struct pull_object *self = (struct pull_object *)object;
    struct stoker_error error = {0};
    union result result;
    int status = STOKER_ERROR_AGAIN;

    (void)nothing;
    while (status == STOKER_ERROR_AGAIN) {
        PyObject *tuple = NULL;

        if (!enter(self)) {
            return NULL;
        }
        Py_BEGIN_ALLOW_THREADS status =
            self->kind->next(self->handle, STK_PY_SLICE_MS, &result, &error);
        Py_END_ALLOW_THREADS tuple = status == 1 ? self->kind->convert(&result) : NULL;
        PyThread_release_lock(self->lock); /* what a result lends is lent until close */
        if (status == 1) {
            return tuple;
        }
        if (PyErr_CheckSignals() < 0) {
            return NULL;
        }
    }
    return status < 0 ? stk_py_raise(status, &error) : Py_NewRef(Py_None);
}

static PyObject *number_or_none(uint64_t number)
{
    return number == UINT64_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(number);
}

static PyObject *text_of(const char *text)
{
    return stk_py_text(text, strlen(text));
}

/* ---- Verify ----------------------------------------------------------------------------- */

static int verify_next(void *handle, uint32_t timeout_ms, union result *result,
                       struct stoker_error *error)
{
    return stoker_verify_next(handle, timeout_ms, &result->finding, error);
}

static PyObject *verify_convert(const union result *result)
{
    const struct stoker_finding *found = &result->finding;

    return Py_BuildValue("sNNNNNNisO", stoker_finding_name(found->kind), text_of(found->shard),
                         number_or_none(found->offset), text_of(found->key),
                         text_of(found->extension), text_of(found->what), text_of(found->advice),
                         found->status, stoker_status_name(found->status),
                         found->note ? Py_True : Py_False);
}

static void verify_close(void *handle)
{
    stoker_verify_close(handle);
}

static const struct pull_kind verify_kind = {"verify", verify_next, verify_convert, verify_close};

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
    struct pull_object *self;
    PyObject *tuple;
    const char **urls;
    int status, deep = 0, repair = 0, keep_unproven = 0;

    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!O!|$ppO&O&O&O&O&O&O&O&p:Verify", names, module->engine_type,
            &engine, &PyTuple_Type, &tuple, &deep, &repair, stk_py_u64, &options.findings_max,
            stk_py_u64, &options.pixels_max, stk_py_u64, &options.decode_bytes_max, stk_py_u32,
            &options.key_bytes_max, stk_py_u32, &options.header_bytes_max, stk_py_u32,
            &options.member_gap_max, stk_py_u64, &options.decompressed_bytes_max, stk_py_u32,
            &options.decompression_ratio_max, &keep_unproven)) {
        return NULL;
    }
    urls = stk_py_urls(tuple);
    self = urls ? make(type, &verify_kind) : NULL;
    if (!self || !stk_py_gate_enter(&engine->gate, "engine")) {
        Py_XDECREF((PyObject *)self);
        PyMem_Free(urls);
        return NULL;
    }
    options.deep = (uint8_t)deep;
    options.repair = (uint8_t)repair;
    options.keep_unverified = (uint8_t)keep_unproven;
    options.urls = urls;
    options.url_count = (size_t)PyTuple_Size(tuple);
    Py_BEGIN_ALLOW_THREADS status = stoker_verify_open(&verify, engine->engine, &options, &error);
    Py_END_ALLOW_THREADS stk_py_engine_leave(engine);
    PyMem_Free(urls);
    if (status < 0) {
        Py_DECREF((PyObject *)self);
        return stk_py_raise(status, &error);
    }
    self->handle = verify;
    self->closed = false;
    return (PyObject *)self;
}

#define COUNT(name) #name, (unsigned long long)progress.name

static PyObject *verify_progress(PyObject *object, PyObject *nothing)
{
    struct pull_object *self = (struct pull_object *)object;
    struct stoker_verify_progress progress = {.struct_size = sizeof progress};
    int status;

    (void)nothing;
    if (!enter(self)) {
        return NULL;
    }
    status = stoker_verify_progress(self->handle, &progress);
    PyThread_release_lock(self->lock);
    return status < 0
               ? stk_py_raise(status, NULL)
               : Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsKsK}", COUNT(shards), COUNT(shards_total),
                               COUNT(bytes), COUNT(bytes_total), COUNT(samples), COUNT(members),
                               COUNT(findings), COUNT(notes), COUNT(findings_kept), COUNT(repaired),
                               COUNT(dropped), "unproven", (unsigned long long)progress.unverified);
}

/* ---- Diff ------------------------------------------------------------------------------- */

static int diff_next(void *handle, uint32_t timeout_ms, union result *result,
                     struct stoker_error *error)
{
    return stoker_diff_next(handle, timeout_ms, &result->difference, error);
}

static PyObject *diff_convert(const union result *result)
{
    const struct stoker_difference *difference = &result->difference;

    return Py_BuildValue("sNNNNNN", stoker_difference_name(difference->kind),
                         stk_py_text(difference->key, difference->key_bytes),
                         number_or_none(difference->sample_a), number_or_none(difference->sample_b),
                         text_of(difference->shard_a), text_of(difference->shard_b),
                         text_of(difference->members));
}

static void diff_close(void *handle)
{
    stoker_diff_close(handle);
}

static const struct pull_kind diff_kind = {"diff", diff_next, diff_convert, diff_close};

static PyObject *diff_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"a", "b", "reread", NULL};

    struct stoker_diff_options options = {.struct_size = sizeof options};
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_error error = {0};
    struct stoker_diff *diff = NULL;
    struct stk_py_dataset *a, *b;
    struct pull_object *self;
    int status, reread = 0;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O!|$p:Diff", names,
                                     module->dataset_type, &a, module->dataset_type, &b, &reread)) {
        return NULL;
    }
    self = make(type, &diff_kind);
    if (!self || !stk_py_gate_enter(&a->gate, "data set")) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    if (!stk_py_gate_enter(&b->gate, "data set")) {
        stk_py_dataset_leave(a);
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    options.reread = (uint8_t)reread;
    Py_BEGIN_ALLOW_THREADS status =
        stoker_diff_open(&diff, a->dataset, b->dataset, &options, &error);
    Py_END_ALLOW_THREADS stk_py_dataset_leave(b);
    stk_py_dataset_leave(a);
    if (status < 0) {
        Py_DECREF((PyObject *)self);
        return stk_py_raise(status, &error);
    }
    self->handle = diff;
    self->closed = false;
    return (PyObject *)self;
}

static PyObject *diff_progress(PyObject *object, PyObject *nothing)
{
    struct pull_object *self = (struct pull_object *)object;
    struct stoker_diff_progress progress = {.struct_size = sizeof progress};
    int status;

    (void)nothing;
    if (!enter(self)) {
        return NULL;
    }
    status = stoker_diff_progress(self->handle, &progress);
    PyThread_release_lock(self->lock);
    return status < 0 ? stk_py_raise(status, NULL)
                      : Py_BuildValue("{sKsKsKsKsKsKsKsKsKsO}", COUNT(samples_a), COUNT(samples_b),
                                      COUNT(samples_done), COUNT(bytes), COUNT(bytes_total),
                                      COUNT(same), COUNT(added), COUNT(removed), COUNT(changed),
                                      "finished", progress.finished ? Py_True : Py_False);
}

/* ---- types ------------------------------------------------------------------------------ */

static PyMethodDef verify_methods[] = {
    {"next", pull_next, METH_NOARGS, "The next finding as a tuple; None at the end."},
    {"progress", verify_progress, METH_NOARGS, "Counts so far, as a dict."},
    {"close", pull_close, METH_NOARGS, "Ends the work."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot verify_slots[] = {
    {Py_tp_new, verify_new},
    {Py_tp_dealloc, pull_dealloc},
    {Py_tp_methods, verify_methods},
    {0, NULL},
};

PyType_Spec stk_py_verify_spec = {
    .name = "stoker._stoker.Verify",
    .basicsize = sizeof(struct pull_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = verify_slots,
};

static PyMethodDef diff_methods[] = {
    {"next", pull_next, METH_NOARGS, "The next difference as a tuple; None at the end."},
    {"progress", diff_progress, METH_NOARGS, "Counts so far, as a dict."},
    {"close", pull_close, METH_NOARGS, "Ends the work."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot diff_slots[] = {
    {Py_tp_new, diff_new},
    {Py_tp_dealloc, pull_dealloc},
    {Py_tp_methods, diff_methods},
    {0, NULL},
};

PyType_Spec stk_py_diff_spec = {
    .name = "stoker._stoker.Diff",
    .basicsize = sizeof(struct pull_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = diff_slots,
};
