/* URLs: aliases and redacted forms of URLs with credentials, and the location of a bucket. */
#include "py.h"

static PyObject *converted(PyObject *url, int64_t (*convert)(const char *, char *, size_t))
{
    char *text = PyBytes_AsString(url);
    int64_t bytes = text ? convert(text, NULL, 0) : 0;
    PyObject *result;

    if (!text || bytes < 0) {
        return text ? PyErr_NoMemory() : NULL;
    }
    result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (result) { /* its buffer has one more byte, for the NUL */
        convert(text, PyBytes_AsString(result), (size_t)bytes + 1);
    }
    return result;
}

PyObject *stk_py_url_alias(PyObject *self, PyObject *url)
{
    (void)self;
    return converted(url, stoker_url_alias);
}

PyObject *stk_py_url_redact(PyObject *self, PyObject *url)
{
    (void)self;
    return converted(url, stoker_url_redact);
}

PyObject *stk_py_location(PyObject *module, PyObject *arguments)
{
    struct stoker_location location = {.struct_size = sizeof location};
    struct stk_py_module *state = PyModule_GetState(module);
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    const char *url;
    int status;

    if (!PyArg_ParseTuple(arguments, "O!y:location", state->engine_type, &engine, &url) ||
        !stk_py_gate_enter(&engine->gate, "engine")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_location_check(engine->engine, url, &location, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
#define T(field) #field, location.field
    return Py_BuildValue("{sIsssssssssssssssssssssN}", T(kind), T(service), T(bucket_region),
                         T(bucket_zone), T(bucket_from), "machine_cloud",
                         location.machine_cloud ? location.machine_cloud : "", T(machine_region),
                         T(machine_zone), T(machine_from), T(what), T(reason), "advice",
                         stk_py_string(location.advice));
#undef T
}
