/* File, Walk and Copy: files and objects by their names. */
#include "py.h"

#include <string.h>
#include <unistd.h>

/* A handle of the library behind a gate. */
struct file_object {
    PyObject_HEAD struct stoker_file *file;
    struct stk_py_gate gate;
    struct stoker_file_info *info; /* owned */
};

struct copy_object {
    PyObject_HEAD struct stoker_copy *copy;
    struct stk_py_gate gate;
};

struct walk_object {
    PyObject_HEAD struct stoker_walk *walk;
    struct stk_py_gate gate;
    struct stoker_file_info *info; /* owned */
    bool ended;
};

static PyObject *new_object(PyTypeObject *type)
{
    return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

static struct stoker_file_info *new_info(void)
{
    struct stoker_file_info *info = PyMem_Calloc(1, sizeof *info);

    if (info) {
        info->struct_size = sizeof *info;
    } else {
        PyErr_NoMemory();
    }
    return info;
}

/* (name, kind, bytes, mtime_ns, etag, storage_class, archive, restored_until_ns) */
static PyObject *info_tuple(const struct stoker_file_info *info)
{
    static const char *const kinds[] = {"other", "file", "folder", "other"};
    static const char *const archives[] = {"", "archived", "being restored", "restored"};

    return Py_BuildValue("NsKKNNsK", stk_py_text(info->name, strlen(info->name)),
                         kinds[info->kind < 4 ? info->kind : 0], (unsigned long long)info->bytes,
                         (unsigned long long)info->mtime_ns,
                         stk_py_text(info->etag, strlen(info->etag)),
                         stk_py_text(info->storage_class, strlen(info->storage_class)),
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
        !(info = new_info())) {
        return NULL;
    }
    if (stk_py_gate_enter(&engine->gate, "engine")) {
        Py_BEGIN_ALLOW_THREADS status = stoker_stat(engine->engine, path, info, &error);
        Py_END_ALLOW_THREADS stk_py_engine_leave(engine);
        result = status < 0 ? stk_py_raise(status, &error) : info_tuple(info);
    }
    PyMem_Free(info);
    return result;
}

/* (whether it is a pattern, names) */
PyObject *stk_py_match(PyObject *module, PyObject *arguments)
{
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    PyObject *list = NULL;
    char *names = NULL;
    const char *path;
    size_t count = 0;
    int status;

    if (!PyArg_ParseTuple(arguments, "O!y:match", module_of(module)->engine_type, &engine, &path) ||
        !stk_py_gate_enter(&engine->gate, "engine")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_paths_expand(engine->engine, path, &names, &count, &error);
    Py_END_ALLOW_THREADS stk_py_engine_leave(engine);
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

PyObject *stk_py_expect(PyObject *module, PyObject *arguments)
{
    struct stk_py_engine *engine;
    const char **paths;
    PyObject *tuple;
    size_t count;

    if (!PyArg_ParseTuple(arguments, "O!O!:expect", module_of(module)->engine_type, &engine,
                          &PyTuple_Type, &tuple) ||
        !(paths = stk_py_urls(tuple))) {
        return NULL;
    }
    count = (size_t)PyTuple_Size(tuple);
    if (!stk_py_gate_enter(&engine->gate, "engine")) {
        PyMem_Free(paths);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS stoker_files_prefetch_metadata(engine->engine, paths, count);
    Py_END_ALLOW_THREADS stk_py_engine_leave(engine);
    PyMem_Free(paths);
    Py_RETURN_NONE;
}

/* ---- File ------------------------------------------------------------------------------- */

static void file_close_now(struct file_object *self)
{
    struct stoker_file *file = self->file;

    self->file = NULL;
    Py_BEGIN_ALLOW_THREADS stoker_file_close(file);
    Py_END_ALLOW_THREADS
}

static void file_leave(struct file_object *self)
{
    if (stk_py_gate_leave(&self->gate)) {
        file_close_now(self);
    }
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
    self = (struct file_object *)new_object(type);
    if (!self) {
        return NULL;
    }
    self->gate.process = getpid();
    self->gate.closed = true; /* until it is open */
    self->info = new_info();
    if (!self->info || !stk_py_gate_enter(&engine->gate, "engine")) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_file_open(&self->file, engine->engine, path, self->info, &error);
    Py_END_ALLOW_THREADS stk_py_engine_leave(engine);
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
    return info_tuple(((struct file_object *)object)->info);
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
    Py_END_ALLOW_THREADS file_leave(self);
    PyBuffer_Release(&view);
    return got < 0 ? stk_py_raise((int)got, &error) : PyLong_FromLongLong(got);
}

static PyObject *file_close(PyObject *object, PyObject *nothing)
{
    struct file_object *self = (struct file_object *)object;

    (void)nothing;
    if (stk_py_gate_close(&self->gate)) {
        file_close_now(self);
    }
    Py_RETURN_NONE;
}

static void file_dealloc(PyObject *object)
{
    Py_XDECREF(file_close(object, NULL));
    PyMem_Free(((struct file_object *)object)->info);
    stk_py_object_free(object);
}

/* where(engine, url) -> {...} */
PyObject *stk_py_where(PyObject *module, PyObject *arguments)
{
    struct stoker_location where = {.struct_size = sizeof where};
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    const char *url;
    int status;

    if (!PyArg_ParseTuple(arguments, "O!y:where", module_of(module)->engine_type, &engine, &url) ||
        !stk_py_gate_enter(&engine->gate, "engine")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_location_check(engine->engine, url, &where, &error);
    Py_END_ALLOW_THREADS stk_py_engine_leave(engine);
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
#define T(field) #field, where.field
    return Py_BuildValue("{sIsssssssssssssssssssssN}", T(kind), T(service), T(bucket_region),
                         T(bucket_zone), T(bucket_from), "machine_cloud",
                         where.machine_cloud ? where.machine_cloud : "", T(machine_region),
                         T(machine_zone), T(machine_from), T(what), T(reason), "advice",
                         stk_py_text(where.advice, strlen(where.advice)));
#undef T
}

/* ---- ranges ----------------------------------------------------------------------------- */

/* Ranges in the making: each keeps its file and its bytes. */
struct ranges {
    struct stoker_range *ranges;
    PyObject **files, **bytes; /* held */
    Py_ssize_t count, entered;
};

static void ranges_deinit(struct ranges *self)
{
    for (Py_ssize_t i = 0; i < self->entered; i++) {
        file_leave((struct file_object *)self->files[i]);
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
    bytes = bytes < size ? bytes : size; /* no memory for what is not there */
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

/* The bytes of each range, or the exception why there are none. */
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
        } else { /* the library tells of the first that failed */
            PyObject *type, *value, *trace;

            stk_py_raise((int)range->result, status == range->result ? error : NULL);
            PyErr_Fetch(&type, &value, &trace);
            PyErr_NormalizeException(&type, &value, &trace);
            Py_XDECREF(type);
            Py_XDECREF(trace);
            item = value;
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

/* ---- Walk ------------------------------------------------------------------------------- */

static void walk_close_now(struct walk_object *self)
{
    struct stoker_walk *walk = self->walk;

    self->walk = NULL;
    Py_BEGIN_ALLOW_THREADS stoker_walk_close(walk);
    Py_END_ALLOW_THREADS
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
        PyErr_SetString(PyExc_TypeError, "Walk takes an engine, a path, and how much below it");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "O!yi:Walk", module->engine_type, &engine, &path,
                          &recursive)) {
        return NULL;
    }
    self = (struct walk_object *)new_object(type);
    if (!self) {
        return NULL;
    }
    self->gate.process = getpid();
    self->gate.closed = true;
    self->info = new_info();
    if (!self->info || !stk_py_gate_enter(&engine->gate, "engine")) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_walk_open(&self->walk, engine->engine, path, (uint32_t)recursive, &error);
    Py_END_ALLOW_THREADS stk_py_engine_leave(engine);
    if (status < 0) {
        Py_DECREF((PyObject *)self);
        return stk_py_raise(status, &error);
    }
    self->gate.closed = false;
    return (PyObject *)self;
}

/* Up to `most` more of them onto list; below 0: an exception. */
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
        item = info_tuple(self->info);
        status = item ? PyList_Append(list, item) : -1;
        Py_XDECREF(item);
        if (status < 0) {
            return -1;
        }
    }
    return 0;
}

/* next(most) -> [(name, kind, bytes, mtime_ns, etag), ...], maybe none yet | None: the end. One
 * thread at a time. */
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
        return stk_py_raise_text(STOKER_ERROR_ARGUMENT, "two threads walk at once", "walk",
                                 "give each thread a walk of its own");
    }
    if (!stk_py_gate_enter(&self->gate, "walk")) {
        return NULL;
    }
    list = PyList_New(0);
    if (list && walk_fill(self, list, most) < 0) {
        Py_CLEAR(list);
    }
    if (stk_py_gate_leave(&self->gate)) {
        walk_close_now(self);
    }
    return list;
}

static PyObject *walk_close(PyObject *object, PyObject *nothing)
{
    struct walk_object *self = (struct walk_object *)object;

    (void)nothing;
    if (stk_py_gate_close(&self->gate)) {
        walk_close_now(self);
    }
    Py_RETURN_NONE;
}

static void walk_dealloc(PyObject *object)
{
    Py_XDECREF(walk_close(object, NULL));
    PyMem_Free(((struct walk_object *)object)->info);
    stk_py_object_free(object);
}

/* ---- Copy ------------------------------------------------------------------------------- */

static void copy_close_now(struct copy_object *self)
{
    struct stoker_copy *copy = self->copy;

    self->copy = NULL;
    Py_BEGIN_ALLOW_THREADS stoker_copy_close(copy);
    Py_END_ALLOW_THREADS
}

static PyObject *copy_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"engine",
                            "kind",
                            "sources",
                            "destination",
                            "recursive",
                            "update",
                            "no_clobber",
                            "delete_extra",
                            "unfinished_uploads",
                            "workers",
                            "part_bytes",
                            "memory_bytes",
                            "unfinished_age_s",
                            "check",
                            "storage_class",
                            "encryption",
                            "encryption_key",
                            "encryption_context",
                            NULL};

    struct stoker_copy_options options = {.struct_size = sizeof options};
    struct stk_py_module *module = PyType_GetModuleState(type);
    int recursive = 0, update = 0, fresh = 0, extra = 0, leftovers = 0, status;
    struct stoker_error error = {0};
    struct stk_py_engine *engine;
    struct copy_object *self;
    const char **sources;
    PyObject *tuple;

    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!O&O!y|$pppppO&O&O&O&O&zzzz:Copy", names, module->engine_type,
            &engine, stk_py_u32, &options.kind, &PyTuple_Type, &tuple, &options.destination,
            &recursive, &update, &fresh, &extra, &leftovers, stk_py_u32, &options.workers,
            stk_py_u64, &options.part_bytes, stk_py_u64, &options.memory_bytes, stk_py_u64,
            &options.unfinished_age_s, stk_py_u32, &options.check, &options.storage_class,
            &options.encryption, &options.encryption_key, &options.encryption_context)) {
        return NULL;
    }
    sources = stk_py_urls(tuple);
    self = sources ? (struct copy_object *)new_object(type) : NULL;
    if (!self || !stk_py_gate_enter(&engine->gate, "engine")) {
        Py_XDECREF((PyObject *)self);
        PyMem_Free(sources);
        return NULL;
    }
    self->gate.process = getpid();
    options.destination = options.destination[0] ? options.destination : NULL;
    options.sources = sources;
    options.source_count = (size_t)PyTuple_Size(tuple);
    options.recursive = (uint32_t)recursive;
    options.update = (uint32_t)update;
    options.no_clobber = (uint32_t)fresh;
    options.delete_extra = (uint32_t)extra;
    options.unfinished_uploads = (uint32_t)leftovers;
    Py_BEGIN_ALLOW_THREADS status = stoker_copy_open(&self->copy, engine->engine, &options, &error);
    Py_END_ALLOW_THREADS stk_py_engine_leave(engine);
    PyMem_Free(sources);
    if (status < 0) {
        self->gate.closed = true;
        Py_DECREF((PyObject *)self);
        return stk_py_raise(status, &error);
    }
    return (PyObject *)self;
}

/* next(timeout_ms) -> (goes_on, progress, None or the exception of what failed first) */
static PyObject *copy_next(PyObject *object, PyObject *timeout)
{
    struct copy_object *self = (struct copy_object *)object;
    struct stoker_copy_progress progress = {.struct_size = sizeof progress};
    PyObject *type, *failure = NULL, *trace;
    struct stoker_error error = {0};
    uint32_t timeout_ms;
    int status;

    if (!stk_py_u32(timeout, &timeout_ms) || !stk_py_gate_enter(&self->gate, "copy")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_copy_next(self->copy, timeout_ms, &progress, &error);
    Py_END_ALLOW_THREADS if (stk_py_gate_leave(&self->gate))
    {
        copy_close_now(self);
    }
    if (status < 0) {
        stk_py_raise(status, &error);
        PyErr_Fetch(&type, &failure, &trace);
        PyErr_NormalizeException(&type, &failure, &trace);
        Py_XDECREF(type);
        Py_XDECREF(trace);
    }
#define N(field) #field, (unsigned long long)progress.field
    return Py_BuildValue("O{sKsKsKsKsKsKsKsKsKsKsKsK}N", status > 0 ? Py_True : Py_False, N(listed),
                         N(files), N(bytes), N(files_done), N(bytes_done), "files_kept",
                         (unsigned long long)progress.files_skipped, "bytes_kept",
                         (unsigned long long)progress.bytes_skipped, N(files_removed),
                         N(files_failed), N(links_left_out), "files_spared",
                         (unsigned long long)progress.files_not_deleted, N(run_ns),
                         failure ? failure : Py_NewRef(Py_None));
#undef N
}

static PyObject *copy_close(PyObject *object, PyObject *nothing)
{
    struct copy_object *self = (struct copy_object *)object;

    (void)nothing;
    if (stk_py_gate_close(&self->gate)) {
        copy_close_now(self);
    }
    Py_RETURN_NONE;
}

static void copy_dealloc(PyObject *object)
{
    Py_XDECREF(copy_close(object, NULL));
    stk_py_object_free(object);
}

/* ---- types ------------------------------------------------------------------------------ */

static PyMethodDef file_methods[] = {
    {"info", file_info, METH_NOARGS, "What stat tells, when it was opened."},
    {"readinto", file_readinto, METH_VARARGS, "Reads from an offset into a buffer."},
    {"close", file_close, METH_NOARGS, "Lets go."},
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

static PyMethodDef walk_methods[] = {
    {"next", walk_next, METH_O, "A list of what comes next; None at the end."},
    {"close", walk_close, METH_NOARGS, "Ends it."},
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

static PyMethodDef copy_methods[] = {
    {"next", copy_next, METH_O, "(goes_on, progress, failure) after a while."},
    {"close", copy_close, METH_NOARGS, "Stops it; what is whole stays."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot copy_slots[] = {
    {Py_tp_new, copy_new},
    {Py_tp_dealloc, copy_dealloc},
    {Py_tp_methods, copy_methods},
    {0, NULL},
};

PyType_Spec stk_py_copy_spec = {
    .name = "stoker._stoker.Copy",
    .basicsize = sizeof(struct copy_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = copy_slots,
};
