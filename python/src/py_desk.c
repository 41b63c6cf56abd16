/* Desk: where threads of Python take errands of the library. */
#include "py.h"

#include <string.h>
#include <unistd.h>

static PyObject *desk_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {NULL};
    struct stoker_error error = {0};
    struct stk_py_desk *self;
    int status;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, ":Desk", names)) {
        return NULL;
    }
    self = (struct stk_py_desk *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) {
        return NULL;
    }
    self->gate.process = getpid();
    status = stoker_external_fs_open(&self->desk, &error);
    if (status < 0) {
        self->gate.closed = true;
        Py_DECREF(self);
        return stk_py_raise(status, &error);
    }
    return (PyObject *)self;
}

static PyObject *errand_tuple(const struct stoker_external_request *errand)
{
    PyObject *view =
        errand->kind == STOKER_EXTERNAL_READ
            ? PyMemoryView_FromMemory(errand->buffer, (Py_ssize_t)errand->bytes, PyBUF_WRITE)
            : Py_NewRef(Py_None);

    return Py_BuildValue("KINKN", (unsigned long long)errand->number, errand->kind,
                         stk_py_text(errand->url, strlen(errand->url)),
                         (unsigned long long)errand->offset, view);
}

/* The memory of a READ is the library's until the errand is answered, and not longer. */
static PyObject *desk_next(PyObject *object, PyObject *arguments)
{
    struct stk_py_desk *self = (struct stk_py_desk *)object;
    struct stoker_external_request errand = {.struct_size = sizeof errand};
    struct stoker_error error = {0};
    unsigned timeout_ms;
    int status;

    if (!PyArg_ParseTuple(arguments, "I:next", &timeout_ms) ||
        !stk_py_gate_enter(&self->gate, "desk")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_external_fs_next(self->desk, timeout_ms, &errand, &error);
    Py_END_ALLOW_THREADS(void) stk_py_gate_leave(&self->gate);
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
    return status == 0 ? Py_NewRef(Py_None) : errand_tuple(&errand);
}

static PyObject *desk_answer(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"number", "status",     "bytes", "mtime_ns", "version", "is_folder",
                            "names",  "name_count", "what",  "advice",   NULL};
    struct stk_py_desk *self = (struct stk_py_desk *)object;
    struct stoker_external_reply answer = {.struct_size = sizeof answer};
    unsigned long long number;
    int folder = 0, status;
    Py_ssize_t bytes = 0;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Ki|$O&O&O&py#O&ss:answer", names,
                                     &number, &answer.status, stk_py_u64, &answer.bytes, stk_py_u64,
                                     &answer.mtime_ns, stk_py_u64, &answer.version, &folder,
                                     &answer.names, &bytes, stk_py_u64, &answer.name_count,
                                     &answer.what, &answer.advice) ||
        !stk_py_gate_enter(&self->gate, "desk")) {
        return NULL;
    }
    answer.is_folder = (uint8_t)folder;
    Py_BEGIN_ALLOW_THREADS status = stoker_external_fs_reply(self->desk, number, &answer);
    Py_END_ALLOW_THREADS(void) stk_py_gate_leave(&self->gate);
    if (status < 0) {
        return stk_py_raise(status, NULL);
    }
    Py_RETURN_NONE;
}

/* It is told that threads will come, so that errands wait for them. */
static PyObject *desk_man(PyObject *object, PyObject *nothing)
{
    struct stk_py_desk *self = (struct stk_py_desk *)object;
    struct stoker_external_request errand = {.struct_size = sizeof errand};

    (void)nothing;
    (void)stoker_external_fs_next(self->desk, 0, &errand, NULL);
    Py_RETURN_NONE;
}

static void desk_dealloc(PyObject *object)
{
    struct stk_py_desk *self = (struct stk_py_desk *)object;

    if (self->desk && stk_py_gate_close(&self->gate)) {
        Py_BEGIN_ALLOW_THREADS stoker_external_fs_close(self->desk);
        Py_END_ALLOW_THREADS
    }
    stk_py_object_free(object);
}

static PyMethodDef desk_methods[] = {
    {"next", desk_next, METH_VARARGS, "(number, kind, url, offset, memory or None); None: none."},
    {"reply", (PyCFunction)(void (*)(void))desk_answer, METH_VARARGS | METH_KEYWORDS,
     "Ends an errand."},
    {"start", desk_man, METH_NOARGS, "Threads will come: errands may wait for them."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot desk_slots[] = {
    {Py_tp_new, desk_new},
    {Py_tp_dealloc, desk_dealloc},
    {Py_tp_methods, desk_methods},
    {0, NULL},
};

PyType_Spec stk_py_desk_spec = {
    .name = "stoker._stoker.ExternalFs",
    .basicsize = sizeof(struct stk_py_desk),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = desk_slots,
};
