/* Tokens: token files. */
#include "py.h"

#include <string.h>

static void tokens_close_handle(PyObject *object)
{
    struct stk_py_tokens *self = (struct stk_py_tokens *)object;

    stoker_tokens_close(self->tokens);
    self->tokens = NULL;
}

/* Tokens(engine, paths, dtype, cache_bytes): files. Tokens(engine, (), 0, 0, virtual_tokens,
 * identity): no files, only the number of tokens. */
static PyObject *tokens_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"engine",         "paths",    "dtype",      "cache_bytes",
                            "virtual_tokens", "identity", "vocab_size", NULL};

    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_tokens_options options = {.struct_size = sizeof options};
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    struct stk_py_tokens *self = NULL;
    PyObject *paths;
    const char **list, *identity = NULL;
    Py_ssize_t identity_bytes = 0;
    int status;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O!O&|O&O&y#O&:Tokens", names,
                                     module->engine_type, &engine, &PyTuple_Type, &paths,
                                     stk_py_u32, &options.dtype, stk_py_u64, &options.cache_bytes,
                                     stk_py_u64, &options.virtual_tokens, &identity,
                                     &identity_bytes, stk_py_u64, &options.vocab_size)) {
        return NULL;
    }
    if (identity && identity_bytes != sizeof options.identity) {
        PyErr_SetString(PyExc_ValueError, "the identity must have 32 bytes");
        return NULL;
    }
    if (identity) {
        memcpy(options.identity, identity, sizeof options.identity);
    }
    list = stk_py_paths(paths);
    if (!list || !stk_py_gate_enter(&engine->gate, "engine")) {
        PyMem_Free((void *)list);
        return NULL;
    }
    options.paths = list;
    options.path_count = (size_t)PyTuple_Size(paths);
    self = stk_py_object_new(type);
    if (self) {
        stk_py_gate_init(&self->gate, tokens_close_handle);
        Py_BEGIN_ALLOW_THREADS status =
            stoker_tokens_open(&self->tokens, engine->engine, &options, &error);
        Py_END_ALLOW_THREADS if (status < 0)
        {
            Py_CLEAR(self);
            stk_py_raise(status, &error);
        }
        else
        {
            self->gate.closed = false;
        }
    }
    stk_py_gate_leave(&engine->gate);
    PyMem_Free((void *)list);
    return (PyObject *)self;
}

static PyObject *tokens_info(PyObject *object, PyObject *nothing)
{
    struct stk_py_tokens *self = (struct stk_py_tokens *)object;
    struct stoker_tokens_info info = {.struct_size = sizeof info};
    int status;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "tokens")) {
        return NULL;
    }
    status = stoker_tokens_info(self->tokens, &info);
    stk_py_gate_leave(&self->gate);
    if (status < 0) {
        return stk_py_raise(status, NULL);
    }
    return Py_BuildValue(
        "{sKsKsKsKsKsy#}", "file_count", (unsigned long long)info.file_count, "tokens",
        (unsigned long long)info.tokens, "bytes", (unsigned long long)info.bytes, "documents",
        (unsigned long long)info.documents, "frames", (unsigned long long)info.frames, "identity",
        (const char *)info.identity, (Py_ssize_t)sizeof info.identity);
}

static PyMethodDef tokens_methods[] = {
    {"info", tokens_info, METH_NOARGS, "Counts and identity of the files, as a dict."},
    {"close", stk_py_gated_close, METH_NOARGS, "Closes it; loaders opened on it keep the files."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tokens_slots[] = {
    {Py_tp_new, tokens_new},
    {Py_tp_dealloc, stk_py_gated_dealloc},
    {Py_tp_methods, tokens_methods},
    {0, NULL},
};

PyType_Spec stk_py_tokens_spec = {
    .name = "stoker._stoker.Tokens",
    .basicsize = sizeof(struct stk_py_tokens),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = tokens_slots,
};
