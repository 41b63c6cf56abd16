/* Dataset: the samples of a folder or of tars. */
#include "py.h"

#define MEMBERS_MAX 256 /* of one sample, in one call */

static void dataset_close_handle(PyObject *object)
{
    struct stk_py_dataset *self = (struct stk_py_dataset *)object;

    stoker_dataset_close(self->dataset);
    self->dataset = NULL;
}

/* Opens on the engine with the GIL released; the caller keeps the options' memory. */
static int dataset_open(struct stk_py_dataset *self, struct stk_py_engine *engine,
                        const struct stoker_dataset_options *options, struct stoker_error *error)
{
    struct stoker_dataset *dataset = NULL;
    int status;

    if (!stk_py_gate_enter(&engine->gate, "engine")) {
        return 1; /* the exception is set */
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_dataset_open(&dataset, engine->engine, options, error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&engine->gate);
    self->dataset = dataset;
    return status;
}

static PyObject *dataset_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"engine",
                            "urls",
                            "key_bytes_max",
                            "header_bytes_max",
                            "member_gap_max",
                            "decompressed_bytes_max",
                            "decompression_ratio_max",
                            "block_bytes",
                            "index",
                            "index_path",
                            "foreign_index",
                            "segment_cache_bytes",
                            "on_error",
                            "allow_empty",
                            "skip_files",
                            "classes",
                            NULL};

    struct stoker_dataset_options options = {.struct_size = sizeof options};
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct stoker_error error = {0};
    struct stk_py_dataset *self;
    PyObject *engine, *tuple, *classes = NULL;
    int allow_empty = 0, skip_files = 0;
    const char **urls;
    int status;

    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O!O!|$O&O&O&O&O&O&O&yO&O&O&ppO!:Dataset", names,
            module->engine_type, &engine, &PyTuple_Type, &tuple, stk_py_u32, &options.key_bytes_max,
            stk_py_u32, &options.header_bytes_max, stk_py_u32, &options.member_gap_max, stk_py_u64,
            &options.decompressed_bytes_max, stk_py_u32, &options.decompression_ratio_max,
            stk_py_u32, &options.block_bytes, stk_py_u32, &options.index, &options.index_path,
            stk_py_u32, &options.foreign_index, stk_py_u64, &options.segment_cache_bytes,
            stk_py_u32, &options.on_error, &allow_empty, &skip_files, &PyTuple_Type, &classes)) {
        return NULL;
    }
    options.allow_empty = (uint8_t)allow_empty;
    options.skip_files = (uint8_t)skip_files;
    if (classes) {
        options.classes = stk_py_paths(classes);
        options.class_count = (size_t)PyTuple_Size(classes);
        if (!options.classes) {
            return NULL;
        }
    }
    urls = stk_py_paths(tuple);
    self = urls ? stk_py_object_new(type) : NULL;
    if (!self) {
        PyMem_Free(urls);
        PyMem_Free((void *)(uintptr_t)options.classes);
        return NULL;
    }
    options.urls = urls;
    options.url_count = (size_t)PyTuple_Size(tuple);
    stk_py_gate_init(&self->gate, dataset_close_handle);
    status = dataset_open(self, (struct stk_py_engine *)engine, &options, &error);
    PyMem_Free(urls);
    PyMem_Free((void *)(uintptr_t)options.classes);
    if (status != 0) {
        Py_DECREF(self);
        return status < 0 ? stk_py_raise(status, &error) : NULL;
    }
    self->gate.closed = false;
    return (PyObject *)self;
}

static PyObject *dataset_info(PyObject *object, PyObject *nothing)
{
    struct stk_py_dataset *self = (struct stk_py_dataset *)object;
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    PyObject *result = NULL;
    int status;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "data set")) {
        return NULL;
    }
    status = stoker_dataset_info(self->dataset, &info);
    if (status < 0) {
        stk_py_raise(status, NULL);
    } else {
        result = Py_BuildValue(
            "{sssKsKsKsKsKsKsOsOsy#sNsNsKsKsNsNsNs{sKsKsKsK}}", "kind", info.kind, "sample_count",
            (unsigned long long)info.sample_count, "member_count",
            (unsigned long long)info.member_count, "shard_count",
            (unsigned long long)info.shard_count, "class_count",
            (unsigned long long)info.class_count, "bytes", (unsigned long long)info.bytes,
            "block_samples", (unsigned long long)info.block_samples, "sequential",
            info.sequential ? Py_True : Py_False, "random_reads_free",
            info.random_reads_free ? Py_True : Py_False, "identity", (const char *)info.identity,
            (Py_ssize_t)sizeof info.identity, "index_path", stk_py_string(info.index_path),
            "index_note", stk_py_string(info.index_note), "shards_indexed",
            (unsigned long long)info.shards_indexed, "shards_foreign",
            (unsigned long long)info.shards_foreign, "foreign_note",
            stk_py_string(info.foreign_note), "marks",
            info.jpeg_indexed ? PyLong_FromUnsignedLong(info.jpeg_index_mcus) : Py_NewRef(Py_None),
            "marks_note", stk_py_string(info.jpeg_index_note), "skipped", "system",
            (unsigned long long)info.skipped_system, "links",
            (unsigned long long)info.skipped_links, "special",
            (unsigned long long)info.skipped_special, "unnamed",
            (unsigned long long)info.skipped_unnamed);
    }
    stk_py_gate_leave(&self->gate);
    return result;
}

/* An object of the type of `like`; takes ownership of the data set, also on failure. */
static PyObject *wrap(PyObject *like, struct stoker_dataset *dataset)
{
    PyTypeObject *type = Py_TYPE(like);
    struct stk_py_dataset *self = stk_py_object_new(type);

    if (!self) {
        stoker_dataset_close(dataset);
        return NULL;
    }
    stk_py_gate_init(&self->gate, dataset_close_handle);
    self->dataset = dataset;
    self->gate.closed = false;
    return (PyObject *)self;
}

/* refresh(shard_count) -> Dataset, or None if nothing was appended */
static PyObject *dataset_refresh(PyObject *object, PyObject *count)
{
    struct stk_py_dataset *self = (struct stk_py_dataset *)object;
    struct stoker_dataset *newer = NULL;
    struct stoker_error error = {0};
    uint64_t shard_count;
    int status;

    if (!stk_py_u64(count, &shard_count) || !stk_py_gate_enter(&self->gate, "data set")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        stoker_dataset_refresh(self->dataset, shard_count, &newer, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
    return status == 1 ? wrap(object, newer) : Py_NewRef(Py_None);
}

/* as_of(state) -> Dataset, or None if the state belongs to this one */
static PyObject *dataset_as_of(PyObject *object, PyObject *tuple)
{
    struct stk_py_dataset *self = (struct stk_py_dataset *)object;
    struct stoker_dataset *part = NULL;
    struct stoker_error error = {0};
    struct stoker_state state;
    int status;

    if (!stk_py_state_parse(tuple, &state) || !stk_py_gate_enter(&self->gate, "data set")) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_dataset_as_of(self->dataset, &state, &part, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
    return status == 1 ? wrap(object, part) : Py_NewRef(Py_None);
}

/* join((Dataset, ...)) -> a data set of this one and the others */
static PyObject *dataset_join(PyObject *object, PyObject *others)
{
    struct stoker_dataset *joined = NULL, **parts;
    struct stoker_error error = {0};
    Py_ssize_t entered = 0, count = PyTuple_Check(others) ? PyTuple_Size(others) + 1 : 0;
    int status = 0;

    if (count == 0) {
        PyErr_SetString(PyExc_TypeError, "the others must be a tuple");
        return NULL;
    }
    parts = PyMem_Calloc((size_t)count, sizeof *parts);
    if (!parts) {
        return PyErr_NoMemory();
    }
    for (; entered < count; entered++) {
        PyObject *part = entered == 0 ? object : PyTuple_GetItem(others, entered - 1);

        if (Py_TYPE(part) != Py_TYPE(object)) {
            PyErr_SetString(PyExc_TypeError, "the others must be Datasets");
            break;
        }
        if (!stk_py_gate_enter(&((struct stk_py_dataset *)part)->gate, "data set")) {
            break;
        }
        parts[entered] = ((struct stk_py_dataset *)part)->dataset;
    }
    if (entered == count) {
        Py_BEGIN_ALLOW_THREADS status = stoker_dataset_join(parts, (size_t)count, &joined, &error);
        Py_END_ALLOW_THREADS
    }
    for (Py_ssize_t i = 0; i < entered; i++) {
        PyObject *part = i == 0 ? object : PyTuple_GetItem(others, i - 1);

        stk_py_gate_leave(&((struct stk_py_dataset *)part)->gate);
    }
    PyMem_Free(parts);
    if (entered < count) {
        return NULL;
    }
    return status < 0 ? stk_py_raise(status, &error) : wrap(object, joined);
}

/* url_end(index) -> number of samples of the URLs up to this one, included */
static PyObject *dataset_url_end(PyObject *object, PyObject *number)
{
    struct stk_py_dataset *self = (struct stk_py_dataset *)object;
    uint64_t url, samples = 0;
    int status;

    if (!stk_py_u64(number, &url) || !stk_py_gate_enter(&self->gate, "data set")) {
        return NULL;
    }
    status = stoker_dataset_url_end(self->dataset, url, &samples);
    stk_py_gate_leave(&self->gate);
    return status < 0 ? stk_py_raise(status, NULL) : PyLong_FromUnsignedLongLong(samples);
}

/* path_classes() -> list of names */
static PyObject *dataset_path_classes(PyObject *object, PyObject *nothing)
{
    struct stk_py_dataset *self = (struct stk_py_dataset *)object;
    PyObject *list = NULL;
    int status = 0;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "data set")) {
        return NULL;
    }
    for (uint64_t i = 0; status == 0 && (i == 0 || list); i++) {
        struct stoker_error error = {0};
        const char *name;
        PyObject *item;

        Py_BEGIN_ALLOW_THREADS status = stoker_dataset_path_class(
            self->dataset, i, &name, &error); /* the first reads all keys */
        Py_END_ALLOW_THREADS if (status < 0)
        {
            list = i == 0 ? stk_py_raise(status, &error) : list;
            break;
        }
        list = i == 0 ? PyList_New(0) : list;
        item = list ? stk_py_string(name) : NULL;
        if (!item || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    stk_py_gate_leave(&self->gate);
    return list;
}

/* classes() -> list of names */
static PyObject *dataset_classes(PyObject *object, PyObject *nothing)
{
    struct stk_py_dataset *self = (struct stk_py_dataset *)object;
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    PyObject *list = NULL;
    int status;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "data set")) {
        return NULL;
    }
    status = stoker_dataset_info(self->dataset, &info);
    list = status < 0 ? NULL : PyList_New((Py_ssize_t)info.class_count);
    for (uint64_t i = 0; list && i < info.class_count; i++) {
        const char *name = "";
        PyObject *text;
        status = stoker_dataset_class(self->dataset, i, &name);
        text = status < 0 ? NULL : stk_py_string(name);
        if (!text) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, (Py_ssize_t)i, text);
        }
    }
    stk_py_gate_leave(&self->gate);
    return list || PyErr_Occurred() ? list : stk_py_raise(status, NULL);
}

/* [(shard, extension, offset, bytes | None), ...] */
static PyObject *members_of(const struct stoker_member_info *members, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list && i < count; i++) {
        PyObject *bytes = members[i].bytes == UINT64_MAX
                              ? Py_NewRef(Py_None)
                              : PyLong_FromUnsignedLongLong(members[i].bytes);
        PyObject *tuple = Py_BuildValue("NNKN", stk_py_string(members[i].shard),
                                        stk_py_string(members[i].extension),
                                        (unsigned long long)members[i].offset, bytes);
        if (!tuple) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, (Py_ssize_t)i, tuple);
        }
    }
    return list;
}

/* sample(index) -> (key, members) */
static PyObject *dataset_sample(PyObject *object, PyObject *index)
{
    struct stk_py_dataset *self = (struct stk_py_dataset *)object;
    struct stoker_member_info members[MEMBERS_MAX];
    struct stoker_error error = {0};
    size_t count = MEMBERS_MAX;
    char *key = NULL;
    size_t key_capacity = 1u << 20; /* above any key_bytes_max in use */
    uint64_t sample;
    PyObject *result = NULL;
    int status;

    if (!stk_py_u64(index, &sample) || !stk_py_gate_enter(&self->gate, "data set")) {
        return NULL;
    }
    key = PyMem_Malloc(key_capacity);
    if (!key) {
        PyErr_NoMemory();
    } else {
        status = stoker_dataset_sample(self->dataset, sample, key, key_capacity, members, &count,
                                       &error);
        if (status < 0) {
            stk_py_raise(status, &error);
        } else {
            PyObject *list = members_of(members, count < MEMBERS_MAX ? count : MEMBERS_MAX);
            PyObject *text = list ? stk_py_string(key) : NULL;
            result = text ? PyTuple_Pack(2, text, list) : NULL;
            Py_XDECREF(text);
            Py_XDECREF(list);
        }
    }
    PyMem_Free(key);
    stk_py_gate_leave(&self->gate);
    return result;
}

/* Reads the member into a buffer of *capacity bytes. If that is too small, returns NULL without an
 * exception. Sets *capacity to the member's size. */
static PyObject *read_into(struct stk_py_dataset *self, uint64_t sample, const char *extension,
                           size_t *capacity, int *status_out)
{
    struct stoker_error error = {0};
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)*capacity);
    size_t size = 0, buffer_bytes = *capacity;
    int status;

    *status_out = 0;
    if (!bytes) {
        return NULL;
    }
    char *buffer = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS status =
        stoker_dataset_read(self->dataset, sample, extension, buffer, buffer_bytes, &size, &error);
    Py_END_ALLOW_THREADS *capacity = size;
    *status_out = status;
    if (status < 0) {
        Py_DECREF(bytes);
        return status == STOKER_ERROR_LIMIT && size > buffer_bytes ? NULL
                                                                   : stk_py_raise(status, &error);
    }
    if (size < buffer_bytes) {
        PyObject *exact = PyBytes_FromStringAndSize(buffer, (Py_ssize_t)size);
        Py_DECREF(bytes);
        bytes = exact;
    }
    return bytes;
}

/* read(index, extension) -> bytes */
static PyObject *dataset_read(PyObject *object, PyObject *arguments)
{
    struct stk_py_dataset *self = (struct stk_py_dataset *)object;
    const char *extension;
    size_t capacity = 256u << 10;
    uint64_t sample;
    PyObject *bytes = NULL;
    int status = 0;

    if (!PyArg_ParseTuple(arguments, "O&z:read", stk_py_u64, &sample, &extension) ||
        !stk_py_gate_enter(&self->gate, "data set")) {
        return NULL;
    }
    /* The second try uses the size that the first returned; a third is needed if the file grew. */
    for (int i = 0; i < 3 && !bytes && !PyErr_Occurred(); i++) {
        bytes = read_into(self, sample, extension, &capacity, &status);
    }
    stk_py_gate_leave(&self->gate);
    return bytes || PyErr_Occurred() ? bytes : stk_py_raise(status, NULL);
}

static int dataset_bad_sample(void *handle, uint64_t index, struct stoker_quarantine_entry *entry)
{
    return stoker_dataset_quarantine(handle, index, entry);
}

static PyObject *dataset_quarantine(PyObject *object, PyObject *nothing)
{
    struct stk_py_dataset *self = (struct stk_py_dataset *)object;
    PyObject *list;

    (void)nothing;
    if (!stk_py_gate_enter(&self->gate, "data set")) {
        return NULL;
    }
    list = stk_py_bad_samples(self->dataset, dataset_bad_sample);
    stk_py_gate_leave(&self->gate);
    return list;
}

static PyMethodDef dataset_methods[] = {
    {"info", dataset_info, METH_NOARGS, "Counts and identity, as a dict."},
    {"classes", dataset_classes, METH_NOARGS, "Names of the classes."},
    {"path_classes", dataset_path_classes, METH_NOARGS, "Names of classes by folders of keys."},
    {"sample", dataset_sample, METH_O, "(key, [(shard, extension, offset, bytes), ...])"},
    {"read", dataset_read, METH_VARARGS, "A member's bytes."},
    {"refresh", dataset_refresh, METH_O, "The data set with the appended shards, or None."},
    {"as_of", dataset_as_of, METH_O, "The data set that a state belongs to; None: this one."},
    {"quarantine", dataset_quarantine, METH_NOARGS, "Damaged parts of its tars, as tuples."},
    {"join", dataset_join, METH_O, "A data set of this one and others."},
    {"url_end", dataset_url_end, METH_O, "Number of samples of the URLs up to this one."},
    {"close", stk_py_gated_close, METH_NOARGS, "Closes it; loaders keep what they use."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot dataset_slots[] = {
    {Py_tp_new, dataset_new},
    {Py_tp_dealloc, stk_py_gated_dealloc},
    {Py_tp_methods, dataset_methods},
    {0, NULL},
};

PyType_Spec stk_py_dataset_spec = {
    .name = "stoker._stoker.Dataset",
    .basicsize = sizeof(struct stk_py_dataset),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = dataset_slots,
};
