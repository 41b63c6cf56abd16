/* Bad samples: entries of a quarantine as tuples, for loaders, data sets and pack. */
#include "py.h"

/* (shard, key, offset | None, status, name of the status, reason, sample | None) */
static PyObject *bad_sample(const struct stoker_quarantine_entry *entry)
{
    PyObject *offset = entry->offset == STOKER_NO_OFFSET
                           ? Py_NewRef(Py_None)
                           : PyLong_FromUnsignedLongLong(entry->offset);

    return Py_BuildValue(
        "NNNisNN", stk_py_string(entry->shard), stk_py_string(entry->key), offset, entry->status,
        stoker_status_name(entry->status), stk_py_string(entry->reason),
        entry->sample == STOKER_NO_SAMPLE ? Py_NewRef(Py_None)
                                          : PyLong_FromUnsignedLongLong(entry->sample));
}

PyObject *stk_py_bad_samples(void *handle, int (*get)(void *handle, uint64_t index,
                                                      struct stoker_quarantine_entry *entry))
{
    struct stoker_quarantine_entry entry = {.struct_size = sizeof entry};
    PyObject *list = PyList_New(0);

    for (uint64_t i = 0; list && get(handle, i, &entry) == 0; i++) {
        PyObject *tuple = bad_sample(&entry);

        if (!tuple || PyList_Append(list, tuple) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(tuple);
    }
    return list;
}
