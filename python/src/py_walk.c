/* Walk: the entries of a folder or of a prefix. */
#include "py.h"

struct walk_object {
    PyObject_HEAD struct stk_py_gate gate;
    struct stoker_walk *walk;
    struct stoker_file_info *info; /* owned */
    bool ended;
};

static void walk_close_handle(PyObject *object)
{
    struct walk_object *self = (struct walk_object *)object;

    stoker_walk_close(self->walk);
    self->walk = NULL;
}

static PyObject *walk_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    struct walk_object *self;
    int status, recursive;
    const char *path;

    if (keywords && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Walk takes an engine, a path, and whether to recurse");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "O!yi:Walk", module->engine_type, &engine, &path,
                          &recursive)) {
        return NULL;
    }
    self = stk_py_object_new(type);
    if (!self) {
        return NULL;
    }
    stk_py_gate_init(&self->gate, walk_close_handle);
    self->info = stk_py_file_info_new();
    if (!self->info || !stk_py_gate_enter(&engine->gate, "engine")) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_walk_open(&self->walk, engine->engine, path, (uint32_t)recursive, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    if (status < 0) {
        Py_DECREF((PyObject *)self);
        return stk_py_raise(status, &error);
    }
    self->gate.closed = false;
    return (PyObject *)self;
}

/* Appends up to `most` entries; waits for the first one only. Returns below 0 with an exception. */
static int walk_fill(struct walk_object *self, PyObject *list, uint32_t most)
{
    struct stoker_error error = {0};
    int status = 1;

    for (uint32_t i = 0; i < most && !self->ended; i++) {
        PyObject *item;

        Py_BEGIN_ALLOW_THREADS status =
            stoker_walk_next(self->walk, i == 0 ? STK_PY_SLICE_MS : 0, self->info, &error);
        Py_END_ALLOW_THREADS if (status == STOKER_ERROR_AGAIN)
        {
            break;
        }
        if (status < 0) {
            stk_py_raise(status, &error);
            return -1;
        }
        self->ended = status == 0;
        if (self->ended) {
            break;
        }
        item = stk_py_file_info_tuple(self->info);
        status = item ? PyList_Append(list, item) : -1;
        Py_XDECREF(item);
        if (status < 0) {
            return -1;
        }
    }
    return 0;
}

/* next(most) -> a list of up to `most` entries, which may be empty; None at the end. One thread at
 * a time. */
static PyObject *walk_next(PyObject *object, PyObject *number)
{
    struct walk_object *self = (struct walk_object *)object;
    PyObject *list;
    uint32_t most;

    if (!stk_py_u32(number, &most)) {
        return NULL;
    }
    if (self->ended) {
        Py_RETURN_NONE;
    }
    if (self->gate.users > 0) {
        return stk_py_raise_text(STOKER_ERROR_ARGUMENT, "another thread is using the walk", "walk",
                                 "open a walk in each thread");
    }
    if (!stk_py_gate_enter(&self->gate, "walk")) {
        return NULL;
    }
    list = PyList_New(0);
    if (list && walk_fill(self, list, most) < 0) {
        Py_CLEAR(list);
    }
    stk_py_gate_leave(&self->gate);
    return list;
}

static void walk_dealloc(PyObject *object)
{
    PyMem_Free(((struct walk_object *)object)->info);
    stk_py_gated_dealloc(object);
}

static PyMethodDef walk_methods[] = {
    {"next", walk_next, METH_O, "The next entries as a list; None at the end."},
    {"close", stk_py_gated_close, METH_NOARGS, "Stops the walk."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot walk_slots[] = {
    {Py_tp_new, walk_new},
    {Py_tp_dealloc, walk_dealloc},
    {Py_tp_methods, walk_methods},
    {0, NULL},
};

PyType_Spec stk_py_walk_spec = {
    .name = "stoker._stoker.Walk",
    .basicsize = sizeof(struct walk_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = walk_slots,
};
