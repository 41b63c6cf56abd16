/* Job: the handle of background work of the library (verify, diff, pack, copy, indexer). Each kind
 * has its own way to open the handle; next, close and the lock are the same. */
#include "py.h"

#define ADVICE_CLOSED "start it again"

struct stk_py_job *stk_py_job_new(PyTypeObject *type, const struct stk_py_job_kind *kind)
{
    struct stk_py_job *self = stk_py_object_new(type);

    if (!self) {
        return NULL;
    }
    self->kind = kind;
    if (!stk_py_lock_init(&self->lock)) {
        Py_CLEAR(self);
    }
    return self;
}

PyObject *stk_py_job_opened(struct stk_py_job *self, void *handle, int status,
                            const struct stoker_error *error)
{
    if (status < 0) {
        Py_DECREF((PyObject *)self);
        return stk_py_raise(status, error);
    }
    self->handle = handle;
    self->lock.closed = false;
    return (PyObject *)self;
}

bool stk_py_job_enter(struct stk_py_job *self)
{
    return stk_py_lock_enter(&self->lock, self->kind->name, ADVICE_CLOSED);
}

void stk_py_job_leave(struct stk_py_job *self)
{
    stk_py_lock_leave(&self->lock);
}

/* One call of kind->next. Sets *status_out, and returns the converted item: it may borrow from the
 * job, so it is converted under the lock. Failures are converted after it, since that runs Python
 * code. Returns NULL with an exception; NULL without one on STOKER_ERROR_AGAIN. */
static PyObject *next_once(struct stk_py_job *self, uint32_t timeout_ms, int *status_out)
{
    struct stoker_error error = {0};
    union stk_py_job_item item;
    PyObject *result = NULL;
    int status;

    if (!stk_py_job_enter(self)) {
        *status_out = STOKER_ERROR_CLOSED;
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = self->kind->next(self->handle, timeout_ms, &item, &error);
    Py_END_ALLOW_THREADS if (status >= 0)
    {
        result = self->kind->convert(status, &item);
    }
    stk_py_job_leave(self);
    *status_out = status;
    if (status >= 0 || status == STOKER_ERROR_AGAIN) {
        return result;
    }
    return self->kind->convert_failure ? self->kind->convert_failure(status, &item, &error)
                                       : stk_py_raise(status, &error);
}

PyObject *stk_py_job_next_item(PyObject *object, PyObject *nothing)
{
    PyObject *result = NULL;
    int status = STOKER_ERROR_AGAIN;

    (void)nothing;
    while (status == STOKER_ERROR_AGAIN) {
        result = next_once((struct stk_py_job *)object, STK_PY_SLICE_MS, &status);
        if (status == STOKER_ERROR_AGAIN && PyErr_CheckSignals() < 0) {
            return NULL;
        }
    }
    return result;
}

PyObject *stk_py_job_next_progress(PyObject *object, PyObject *timeout)
{
    PyObject *result;
    uint32_t timeout_ms;
    int status;

    if (!stk_py_u32(timeout, &timeout_ms)) {
        return NULL;
    }
    result = next_once((struct stk_py_job *)object, timeout_ms, &status);
    return status == STOKER_ERROR_AGAIN ? stk_py_raise(status, NULL) : result;
}

static void close_handle(PyObject *object)
{
    struct stk_py_job *self = (struct stk_py_job *)object;

    self->kind->close(self->handle);
    self->handle = NULL;
}

PyObject *stk_py_job_close(PyObject *object, PyObject *nothing)
{
    struct stk_py_job *self = (struct stk_py_job *)object;

    (void)nothing;
    stk_py_lock_close(&self->lock, object, close_handle);
    Py_RETURN_NONE;
}

void stk_py_job_dealloc(PyObject *object)
{
    struct stk_py_job *self = (struct stk_py_job *)object;

    stk_py_lock_close(&self->lock, object, close_handle);
    stk_py_lock_deinit(&self->lock);
    stk_py_object_free(object);
}
