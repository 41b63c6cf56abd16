/* ExternalFs: requests for URLs that the library has no client for. Threads of Python serve them.
 */
#include "py.h"

static void external_close_handle(PyObject *object)
{
    struct stk_py_external_fs *self = (struct stk_py_external_fs *)object;

    stoker_external_fs_close(self->handle);
    self->handle = NULL;
}

static PyObject *external_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {NULL};
    struct stoker_error error = {0};
    struct stk_py_external_fs *self;
    int status;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, ":ExternalFs", names)) {
        return NULL;
    }
    self = stk_py_object_new(type);
    if (!self) {
        return NULL;
    }
    stk_py_gate_init(&self->gate, external_close_handle);
    status = stoker_external_fs_open(&self->handle, &error);
    if (status < 0) {
        Py_DECREF(self);
        return stk_py_raise(status, &error);
    }
    self->gate.closed = false;
    return (PyObject *)self;
}

static PyObject *request_tuple(const struct stoker_external_request *request)
{
    PyObject *view =
        request->kind == STOKER_EXTERNAL_READ
            ? PyMemoryView_FromMemory(request->buffer, (Py_ssize_t)request->bytes, PyBUF_WRITE)
            : Py_NewRef(Py_None);

    return Py_BuildValue("KINKN", (unsigned long long)request->number, request->kind,
                         stk_py_string(request->url), (unsigned long long)request->offset, view);
}

/* The memory of a READ belongs to the library; it is valid until the reply. */
static PyObject *external_next(PyObject *object, PyObject *arguments)
{
    struct stk_py_external_fs *self = (struct stk_py_external_fs *)object;
    struct stoker_external_request request = {.struct_size = sizeof request};
    struct stoker_error error = {0};
    unsigned timeout_ms;
    int status;

    if (!PyArg_ParseTuple(arguments, "I:next", &timeout_ms) ||
        !stk_py_gate_enter(&self->gate, "external file system")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_external_fs_next(self->handle, timeout_ms, &request, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
    return status == 0 ? Py_NewRef(Py_None) : request_tuple(&request);
}

static PyObject *external_reply(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"number", "status",     "bytes", "mtime_ns", "version", "is_folder",
                            "names",  "name_count", "what",  "advice",   NULL};
    struct stk_py_external_fs *self = (struct stk_py_external_fs *)object;
    struct stoker_external_reply reply = {.struct_size = sizeof reply};
    unsigned long long number;
    int is_folder = 0, status;
    Py_ssize_t bytes = 0;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Ki|$O&O&O&py#O&ss:reply", names, &number,
                                     &reply.status, stk_py_u64, &reply.bytes, stk_py_u64,
                                     &reply.mtime_ns, stk_py_u64, &reply.version, &is_folder,
                                     &reply.names, &bytes, stk_py_u64, &reply.name_count,
                                     &reply.what, &reply.advice) ||
        !stk_py_gate_enter(&self->gate, "external file system")) {
        return NULL;
    }
    reply.is_folder = (uint8_t)is_folder;
    Py_BEGIN_ALLOW_THREADS status = stoker_external_fs_reply(self->handle, number, &reply);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    if (status < 0) {
        return stk_py_raise(status, NULL);
    }
    Py_RETURN_NONE;
}

/* Announces that threads will serve requests, so that requests wait for them. */
static PyObject *external_start(PyObject *object, PyObject *nothing)
{
    struct stk_py_external_fs *self = (struct stk_py_external_fs *)object;
    struct stoker_external_request request = {.struct_size = sizeof request};

    (void)nothing;
    (void)stoker_external_fs_next(self->handle, 0, &request, NULL);
    Py_RETURN_NONE;
}

static PyMethodDef external_methods[] = {
    {"next", external_next, METH_VARARGS,
     "next(timeout_ms) -> (number, kind, url, offset, memory | None) | None"},
    {"reply", (PyCFunction)(void (*)(void))external_reply, METH_VARARGS | METH_KEYWORDS,
     "Completes a request."},
    {"start", external_start, METH_NOARGS, "Announces that threads will serve requests."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot external_slots[] = {
    {Py_tp_new, external_new},
    {Py_tp_dealloc, stk_py_gated_dealloc},
    {Py_tp_methods, external_methods},
    {0, NULL},
};

PyType_Spec stk_py_external_fs_spec = {
    .name = "stoker._stoker.ExternalFs",
    .basicsize = sizeof(struct stk_py_external_fs),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = external_slots,
};
