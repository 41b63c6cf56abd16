/* Errors of the library as exceptions of stoker/errors.py. */
#include "py.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

void *stk_py_raise(int status, const struct stoker_error *error)
{
    PyObject *exception = stk_py_exception(status, error);

    if (exception) {
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
        Py_DECREF(exception);
    }
    return NULL;
}

void *stk_py_raise_text(int status, const char *what, const char *where, const char *advice)
{
    struct stoker_error error = {.status = status, .offset = STOKER_NO_OFFSET};

    strncpy(error.what, what, sizeof error.what - 1);
    strncpy(error.where, where, sizeof error.where - 1);
    strncpy(error.advice, advice, sizeof error.advice - 1);
    return stk_py_raise(status, &error);
}

static _Atomic pid_t process_id;

static void read_process_id(void)
{
    atomic_store_explicit(&process_id, getpid(), memory_order_relaxed);
}

/* Called with the GIL, or by a thread that releases a batch: two first calls register the handler
 * twice, which does no harm. */
pid_t stk_py_process(void)
{
    pid_t id = atomic_load_explicit(&process_id, memory_order_relaxed);

    if (id == 0 && pthread_atfork(NULL, NULL, read_process_id) == 0) {
        read_process_id();
    }
    return id != 0 ? id : getpid();
}

bool stk_py_forked(pid_t process, const char *object)
{
    if (process == stk_py_process()) {
        return false;
    }
    stk_py_raise_text(STOKER_ERROR_FORKED, "the object was made in another process", object,
                      "make it again in this process, after the fork");
    return true;
}

/* Calls stoker.errors.from_native(status, name, what, where, advice, shard, key, offset). */
PyObject *stk_py_exception(int status, const struct stoker_error *error)
{
    static const struct stoker_error empty = {.offset = STOKER_NO_OFFSET};

    PyObject *errors, *exception = NULL, *offset = NULL;

    if (!error || error->status != status) {
        error = &empty; /* the library returned a status without details */
    }
    errors = PyImport_ImportModule("stoker.errors");
    offset = error->offset == STOKER_NO_OFFSET ? Py_NewRef(Py_None)
                                               : PyLong_FromUnsignedLongLong(error->offset);
    if (errors && offset) {
        exception = PyObject_CallMethod(
            errors, "from_native", "isNNNNNO", status, stoker_status_name(status),
            stk_py_string(error->what[0] ? error->what : stoker_status_text(status)),
            stk_py_string(error->where), stk_py_string(error->advice), stk_py_string(error->shard),
            stk_py_string(error->key), offset);
    }
    Py_XDECREF(offset);
    Py_XDECREF(errors);
    return exception;
}
