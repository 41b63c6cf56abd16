/* File: reads a file or an object by its path. And functions over paths: stat, globs, ranges. */
#include "py.h"

#include <string.h>

struct file_object {
    PyObject_HEAD struct stk_py_gate gate;
    struct stoker_file *file;
    struct stoker_file_info *info; /* owned */
};

struct stoker_file_info *stk_py_file_info_new(void)
{
    struct stoker_file_info *info = PyMem_Calloc(1, sizeof *info);

    if (info) {
        info->struct_size = sizeof *info;
    } else {
        PyErr_NoMemory();
    }
    return info;
}

PyObject *stk_py_file_info_tuple(const struct stoker_file_info *info)
{
    static const char *const kinds[] = {"other", "file", "folder", "other"};
    static const char *const archives[] = {"", "archived", "being restored", "restored"};

    return Py_BuildValue("NsKKNNsK", stk_py_string(info->name),
                         kinds[info->kind < 4 ? info->kind : 0], (unsigned long long)info->bytes,
                         (unsigned long long)info->mtime_ns, stk_py_string(info->etag),
                         stk_py_string(info->storage_class),
                         archives[info->archive < 4 ? info->archive : 0],
                         (unsigned long long)info->restored_until_ns);
}

static struct stk_py_module *module_of(PyObject *module)
{
    return PyModule_GetState(module);
}

PyObject *stk_py_stat(PyObject *module, PyObject *arguments)
{
    struct stoker_file_info *info;
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    PyObject *result = NULL;
    const char *path;
    int status;

    if (!PyArg_ParseTuple(arguments, "O!y:stat", module_of(module)->engine_type, &engine, &path) ||
        !(info = stk_py_file_info_new())) {
        return NULL;
    }
    if (stk_py_gate_enter(&engine->gate, "engine")) {
        Py_BEGIN_ALLOW_THREADS status = stoker_stat(engine->engine, path, info, &error);
        Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
        result = status < 0 ? stk_py_raise(status, &error) : stk_py_file_info_tuple(info);
    }
    PyMem_Free(info);
    return result;
}

PyObject *stk_py_paths_expand(PyObject *module, PyObject *arguments)
{
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    PyObject *list = NULL;
    char *names = NULL;
    const char *path;
    size_t count = 0;
    int status, no_links = 0;

    if (!PyArg_ParseTuple(arguments, "O!y|p:paths_expand", module_of(module)->engine_type, &engine,
                          &path, &no_links) ||
        !stk_py_gate_enter(&engine->gate, "engine")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = (no_links ? stoker_paths_expand_no_links : stoker_paths_expand)(
        engine->engine, path, &names, &count, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
    list = PyList_New(0);
    for (const char *name = names; list && count > 0; count--, name += strlen(name) + 1) {
        PyObject *item = PyBytes_FromString(name);

        if (!item || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    stoker_paths_free(names);
    return list ? Py_BuildValue("ON", status == 1 ? Py_True : Py_False, list) : NULL;
}

PyObject *stk_py_buckets_list(PyObject *module, PyObject *arguments)
{
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    PyObject *list;
    char *names = NULL;
    const char *url;
    size_t count = 0;
    int status;

    if (!PyArg_ParseTuple(arguments, "O!y:buckets_list", module_of(module)->engine_type, &engine,
                          &url) ||
        !stk_py_gate_enter(&engine->gate, "engine")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_buckets_list(engine->engine, url, &names, &count, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
    list = PyList_New(0);
    for (const char *name = names; list && count > 0; count--, name += strlen(name) + 1) {
        PyObject *item = PyUnicode_FromString(name);

        if (!item || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    stoker_paths_free(names);
    return list;
}

PyObject *stk_py_presign(PyObject *module, PyObject *arguments)
{
    struct stoker_presign_options options = {.struct_size = sizeof options};
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    PyObject *text;
    char *signed_url = NULL;
    const char *url;
    int status, put = 0;

    if (!PyArg_ParseTuple(arguments, "O!yIp:presign", module_of(module)->engine_type, &engine, &url,
                          &options.expires_s, &put) ||
        !stk_py_gate_enter(&engine->gate, "engine")) {
        return NULL;
    }
    options.method = put ? STOKER_PRESIGN_PUT : STOKER_PRESIGN_GET;
    Py_BEGIN_ALLOW_THREADS status =
        stoker_presign(engine->engine, url, &options, &signed_url, NULL, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
    text = PyUnicode_FromString(signed_url);
    stoker_paths_free(signed_url);
    return text;
}

PyObject *stk_py_files_forget_metadata(PyObject *module, PyObject *arguments)
{
    struct stk_py_engine *engine;

    if (!PyArg_ParseTuple(arguments, "O!:files_forget_metadata", module_of(module)->engine_type,
                          &engine) ||
        !stk_py_gate_enter(&engine->gate, "engine")) {
        return NULL;
    }
    stoker_files_forget_metadata(engine->engine);
    stk_py_gate_leave(&engine->gate);
    Py_RETURN_NONE;
}

PyObject *stk_py_files_prefetch_metadata(PyObject *module, PyObject *arguments)
{
    struct stk_py_engine *engine;
    const char **paths;
    PyObject *tuple;
    size_t count;

    if (!PyArg_ParseTuple(arguments, "O!O!:files_prefetch_metadata", module_of(module)->engine_type,
                          &engine, &PyTuple_Type, &tuple) ||
        !(paths = stk_py_paths(tuple))) {
        return NULL;
    }
    count = (size_t)PyTuple_Size(tuple);
    if (!stk_py_gate_enter(&engine->gate, "engine")) {
        PyMem_Free(paths);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS stoker_files_prefetch_metadata(engine->engine, paths, count);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    PyMem_Free(paths);
    Py_RETURN_NONE;
}

/* ---- File ------------------------------------------------------------------------------- */

static void file_close_handle(PyObject *object)
{
    struct file_object *self = (struct file_object *)object;

    stoker_file_close(self->file);
    self->file = NULL;
}

static PyObject *file_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    struct file_object *self;
    const char *path;
    int status;

    if (keywords && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "File takes an engine and a path");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "O!y:File", module->engine_type, &engine, &path)) {
        return NULL;
    }
    self = stk_py_object_new(type);
    if (!self) {
        return NULL;
    }
    stk_py_gate_init(&self->gate, file_close_handle);
    self->info = stk_py_file_info_new();
    if (!self->info || !stk_py_gate_enter(&engine->gate, "engine")) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_file_open(&self->file, engine->engine, path, self->info, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    if (status < 0) {
        Py_DECREF((PyObject *)self);
        return stk_py_raise(status, &error);
    }
    self->gate.closed = false;
    return (PyObject *)self;
}

static PyObject *file_info(PyObject *object, PyObject *nothing)
{
    (void)nothing;
    return stk_py_file_info_tuple(((struct file_object *)object)->info);
}

/* readinto(offset, buffer) -> bytes read */
static PyObject *file_readinto(PyObject *object, PyObject *arguments)
{
    struct file_object *self = (struct file_object *)object;
    struct stoker_error error = {0};
    uint64_t offset;
    Py_buffer view;
    int64_t got;

    if (!PyArg_ParseTuple(arguments, "O&w*:readinto", stk_py_u64, &offset, &view)) {
        return NULL;
    }
    if (!stk_py_gate_enter(&self->gate, "file")) {
        PyBuffer_Release(&view);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS got =
        stoker_file_read(self->file, offset, view.buf, (size_t)view.len, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    PyBuffer_Release(&view);
    return got < 0 ? stk_py_raise((int)got, &error) : PyLong_FromLongLong(got);
}

static void file_dealloc(PyObject *object)
{
    PyMem_Free(((struct file_object *)object)->info);
    stk_py_gated_dealloc(object);
}

/* ---- ranges ----------------------------------------------------------------------------- */

/* Arguments of one call: each range holds references to its File and its bytes. */
struct ranges {
    struct stoker_range *ranges;
    PyObject **files, **bytes; /* references */
    Py_ssize_t count, entered;
};

static void ranges_deinit(struct ranges *self)
{
    for (Py_ssize_t i = 0; i < self->entered; i++) {
        stk_py_gate_leave(&((struct file_object *)self->files[i])->gate);
    }
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_XDECREF(self->bytes ? self->bytes[i] : NULL);
        Py_XDECREF(self->files ? self->files[i] : NULL);
    }
    PyMem_Free(self->ranges);
    PyMem_Free(self->files);
    PyMem_Free(self->bytes);
}

/* item: (File, offset, bytes) */
static bool ranges_add(struct ranges *self, struct stk_py_module *module, PyObject *item)
{
    struct stoker_range *range = &self->ranges[self->entered];
    struct file_object *file;
    uint64_t bytes, size;

    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "O!O&O&", module->file_type, &file,
                                                  stk_py_u64, &range->offset, stk_py_u64, &bytes)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a range is (File, offset, bytes)");
        }
        return false;
    }
    size = file->info->bytes;
    size = range->offset < size ? size - range->offset : 0;
    bytes = bytes < size ? bytes : size; /* allocates no more than the file has */
    self->bytes[self->entered] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    self->files[self->entered] = Py_NewRef((PyObject *)file);
    if (!self->bytes[self->entered] || !stk_py_gate_enter(&file->gate, "file")) {
        return false;
    }
    range->file = file->file;
    range->bytes = (size_t)bytes;
    range->buffer = PyBytes_AsString(self->bytes[self->entered++]);
    return true;
}

/* A list with the bytes of each range, or with the exception of a range that failed. */
static PyObject *ranges_results(struct ranges *self, int status, const struct stoker_error *error)
{
    PyObject *list = PyList_New(self->count);

    for (Py_ssize_t i = 0; list && i < self->count; i++) {
        const struct stoker_range *range = &self->ranges[i];
        PyObject *item = self->bytes[i];

        if (range->result == (int64_t)range->bytes) {
            Py_INCREF(item);
        } else if (range->result >= 0) {
            item = PyBytes_FromStringAndSize(PyBytes_AsString(item), (Py_ssize_t)range->result);
        } else { /* the error's texts are those of the first failure */
            item = stk_py_exception((int)range->result, status == range->result ? error : NULL);
        }
        if (!item || PyList_SetItem(list, i, item) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

PyObject *stk_py_read_ranges(PyObject *module, PyObject *arguments)
{
    struct stoker_ranges_options options = {.struct_size = sizeof options};
    struct stoker_error error = {0};
    struct ranges self = {0};
    PyObject *list, *result = NULL;
    bool good = true;
    int status;

    if (!PyArg_ParseTuple(arguments, "O!O&:read_ranges", &PyList_Type, &list, stk_py_u32,
                          &options.gap_bytes)) {
        return NULL;
    }
    self.count = PyList_Size(list);
    self.ranges = PyMem_Calloc((size_t)self.count + 1, sizeof *self.ranges);
    self.files = PyMem_Calloc((size_t)self.count + 1, sizeof *self.files);
    self.bytes = PyMem_Calloc((size_t)self.count + 1, sizeof *self.bytes);
    if (!self.ranges || !self.files || !self.bytes) {
        PyErr_NoMemory();
        good = false;
    }
    for (Py_ssize_t i = 0; good && i < self.count; i++) {
        good = ranges_add(&self, module_of(module), PyList_GetItem(list, i));
    }
    if (good) {
        Py_BEGIN_ALLOW_THREADS status =
            stoker_file_read_ranges(self.ranges, (size_t)self.count, &options, &error);
        Py_END_ALLOW_THREADS result = ranges_results(&self, status, &error);
    }
    ranges_deinit(&self);
    return result;
}

static PyMethodDef file_methods[] = {
    {"info", file_info, METH_NOARGS, "What stat() returned when the file was opened."},
    {"readinto", file_readinto, METH_VARARGS, "Reads from an offset into a buffer."},
    {"close", stk_py_gated_close, METH_NOARGS, "Closes the file."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot file_slots[] = {
    {Py_tp_new, file_new},
    {Py_tp_dealloc, file_dealloc},
    {Py_tp_methods, file_methods},
    {0, NULL},
};

PyType_Spec stk_py_file_spec = {
    .name = "stoker._stoker.File",
    .basicsize = sizeof(struct file_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = file_slots,
};
