/* Errors of the library as exceptions of stoker/errors.py. */
#include "py.h"

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

bool stk_py_forked(pid_t process, const char *object)
{
    if (process == getpid()) {
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
