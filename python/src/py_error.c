/* Errors of the library as exceptions of stoker/errors.py; numbers and text from Python. */
#include "py.h"

#include <string.h>
#include <unistd.h>

static PyObject *exception_of(int status, const struct stoker_error *error);

void *stk_py_raise(int status, const struct stoker_error *error)
{
    PyObject *exception = exception_of(status, error);

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

PyObject *stk_py_text(const char *text, size_t bytes)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)bytes, "surrogateescape");
}

/* stoker.errors.from_native(status, name, what, where, advice, shard, key, offset) */
static PyObject *exception_of(int status, const struct stoker_error *error)
{
    static const struct stoker_error none = {.offset = STOKER_NO_OFFSET};

    PyObject *errors, *exception = NULL, *offset = NULL;

    if (!error || error->status != status) {
        error = &none; /* the library said no more than the status */
    }
    errors = PyImport_ImportModule("stoker.errors");
    offset = error->offset == STOKER_NO_OFFSET ? Py_NewRef(Py_None)
                                               : PyLong_FromUnsignedLongLong(error->offset);
    if (errors && offset) {
        exception = PyObject_CallMethod(
            errors, "from_native", "isNNNNNO", status, stoker_status_name(status),
            stk_py_text(error->what[0] ? error->what : stoker_status_text(status),
                        strlen(error->what[0] ? error->what : stoker_status_text(status))),
            stk_py_text(error->where, strlen(error->where)),
            stk_py_text(error->advice, strlen(error->advice)),
            stk_py_text(error->shard, strlen(error->shard)),
            stk_py_text(error->key, strlen(error->key)), offset);
    }
    Py_XDECREF(offset);
    Py_XDECREF(errors);
    return exception;
}

int stk_py_u64(PyObject *number, void *u64_out)
{
    unsigned long long value = PyLong_AsUnsignedLongLong(number);

    if (value == ULLONG_MAX && PyErr_Occurred()) {
        return 0;
    }
    *(uint64_t *)u64_out = value;
    return 1;
}

int stk_py_u32(PyObject *number, void *u32_out)
{
    uint64_t value;

    if (!stk_py_u64(number, &value)) {
        return 0;
    }
    if (value > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "the number needs more than 32 bits");
        return 0;
    }
    *(uint32_t *)u32_out = (uint32_t)value;
    return 1;
}
