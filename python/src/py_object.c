/* Objects of heap types: allocation, and the two ways in which they guard a handle of the library
 * against a close by another thread. */
#include "py.h"

#include <stddef.h>
#include <stdio.h>

void *stk_py_object_new(PyTypeObject *type)
{
    return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

void stk_py_object_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static void raise_closed(const char *object, const char *advice)
{
    char what[80];

    snprintf(what, sizeof what, "the %s is closed", object);
    stk_py_raise_text(STOKER_ERROR_CLOSED, what, object, advice);
}

/* ---- gate: any number of threads, closed by the last one ---- */

void stk_py_gate_init(struct stk_py_gate *gate, void (*close_handle)(PyObject *self))
{
    gate->closed = true;
    gate->process = stk_py_process();
    gate->close_handle = close_handle;
}

bool stk_py_gate_enter(struct stk_py_gate *gate, const char *object)
{
    if (stk_py_forked(gate->process, object)) {
        return false;
    }
    if (gate->closed) {
        raise_closed(object, "open a new one");
        return false;
    }
    gate->users++;
    return true;
}

static void close_handle(struct stk_py_gate *gate)
{
    PyObject *self = (PyObject *)(void *)((char *)gate - offsetof(struct stk_py_gated, gate));

    Py_BEGIN_ALLOW_THREADS gate->close_handle(self);
    Py_END_ALLOW_THREADS
}

void stk_py_gate_leave(struct stk_py_gate *gate)
{
    gate->users--;
    if (gate->closed && gate->users == 0) {
        close_handle(gate);
    }
}

void stk_py_gate_close(struct stk_py_gate *gate)
{
    bool first = !gate->closed;

    gate->closed = true;
    if (first && gate->users == 0 && gate->process == stk_py_process()) {
        close_handle(gate);
    }
}

PyObject *stk_py_gated_close(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    stk_py_gate_close(&((struct stk_py_gated *)self)->gate);
    Py_RETURN_NONE;
}

void stk_py_gated_dealloc(PyObject *self)
{
    stk_py_gate_close(&((struct stk_py_gated *)self)->gate);
    stk_py_object_free(self);
}

/* ---- lock: one thread at a time ---- */

bool stk_py_lock_init(struct stk_py_lock *lock)
{
    lock->closed = true;
    lock->process = stk_py_process();
    lock->mutex = PyThread_allocate_lock();
    if (!lock->mutex) {
        PyErr_NoMemory();
    }
    return lock->mutex != NULL;
}

void stk_py_lock_deinit(struct stk_py_lock *lock)
{
    if (lock->mutex) {
        PyThread_free_lock(lock->mutex);
    }
}

bool stk_py_lock_enter(struct stk_py_lock *lock, const char *object, const char *advice)
{
    while (true) {
        PyLockStatus locked;

        if (stk_py_forked(lock->process, object)) {
            return false;
        }
        if (lock->closed) {
            raise_closed(object, advice);
            return false;
        }
        locked = PyThread_acquire_lock_timed(lock->mutex, 0, 0);
        if (locked != PY_LOCK_ACQUIRED) {
            Py_BEGIN_ALLOW_THREADS locked =
                PyThread_acquire_lock_timed(lock->mutex, STK_PY_SLICE_MS * 1000, 0);
            Py_END_ALLOW_THREADS
        }
        if (locked == PY_LOCK_ACQUIRED && !lock->closed) {
            return true;
        }
        if (locked == PY_LOCK_ACQUIRED) {
            PyThread_release_lock(lock->mutex); /* another thread closed it meanwhile */
        } else if (PyErr_CheckSignals() < 0) {
            return false;
        }
    }
}

void stk_py_lock_leave(struct stk_py_lock *lock)
{
    PyThread_release_lock(lock->mutex);
}

void stk_py_lock_close(struct stk_py_lock *lock, PyObject *self, void (*close)(PyObject *self))
{
    bool first = !lock->closed;

    lock->closed = true;
    if (!first || lock->process != stk_py_process()) {
        return;
    }
    Py_BEGIN_ALLOW_THREADS PyThread_acquire_lock(lock->mutex, WAIT_LOCK);
    close(self);
    PyThread_release_lock(lock->mutex);
    Py_END_ALLOW_THREADS
}
