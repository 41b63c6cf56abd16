/* Conversions between Python's values and C's: text, numbers, paths. */
#include "py.h"

#include <string.h>

PyObject *stk_py_text(const char *text, size_t bytes)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)bytes, "surrogateescape");
}

PyObject *stk_py_string(const char *text)
{
    return text ? stk_py_text(text, strlen(text)) : Py_NewRef(Py_None);
}

PyObject *stk_py_number_or_none(uint64_t number)
{
    return number == UINT64_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(number);
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

const char **stk_py_paths(PyObject *tuple)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    const char **paths = count < 0 ? NULL : PyMem_Calloc((size_t)count + 1, sizeof *paths);

    if (!paths && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; paths && i < count; i++) {
        char *text;

        if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, i), &text, NULL) < 0) {
            PyMem_Free(paths); /* the item contains a NUL, or is not bytes */
            return NULL;
        }
        paths[i] = text;
    }
    return paths;
}
