/* The module stoker._stoker: registers types, functions and constants of the public header. */
#include "py.h"

static PyMethodDef functions[] = {
    {"order_at", stk_py_order_at, METH_VARARGS, "The sample at a position of an epoch."},
    {"mix_samples", stk_py_mix_samples, METH_VARARGS, "Samples of an epoch of a mix."},
    {"token_rows_batch", stk_py_token_rows_batch, METH_VARARGS, "Rows of documents in memory."},
    {"url_alias", stk_py_url_alias, METH_O,
     "The URL without credentials; the process resolves it to the URL."},
    {"url_redact", stk_py_url_redact, METH_O, "The URL without credentials."},
    {"location", stk_py_location, METH_VARARGS, "Location of a bucket and of this machine."},
    {"stat", stk_py_stat, METH_VARARGS, "Kind, size and version of a file or object."},
    {"buckets_list", stk_py_buckets_list, METH_VARARGS, "Lists the buckets of the credentials."},
    {"presign", stk_py_presign, METH_VARARGS, "Signs a URL of an object."},
    {"paths_expand", stk_py_paths_expand, METH_VARARGS, "Expands braces and globs of a path."},
    {"files_forget_metadata", stk_py_files_forget_metadata, METH_VARARGS,
     "Drops the cached metadata of objects."},
    {"files_prefetch_metadata", stk_py_files_prefetch_metadata, METH_VARARGS,
     "Starts requests for the metadata of many files."},
    {"checkpoint_list", stk_py_checkpoint_list, METH_VARARGS, "Steps below a path."},
    {"checkpoint_pin", stk_py_checkpoint_pin, METH_VARARGS, "Pins a step, or takes the pin off."},
    {"checkpoint_remove", stk_py_checkpoint_remove, METH_VARARGS, "Removes a step."},
    {"checkpoint_gc", stk_py_checkpoint_gc, METH_VARARGS, "Applies retention."},
    {"read_ranges", stk_py_read_ranges, METH_VARARGS, "Reads many ranges of files in parallel."},
    {NULL, NULL, 0, NULL},
};

static const struct {
    const char *name;
    long value;
} constants[] = {
    {"RANDOM_RESIZED_CROP", STOKER_RANDOM_RESIZED_CROP},
    {"RESIZE", STOKER_RESIZE},
    {"CENTER_CROP", STOKER_CENTER_CROP},
    {"RANDOM_CROP", STOKER_RANDOM_CROP},
    {"RANDOM_HORIZONTAL_FLIP", STOKER_RANDOM_HORIZONTAL_FLIP},
    {"RANDOM_VERTICAL_FLIP", STOKER_RANDOM_VERTICAL_FLIP},
    {"COLOR_JITTER", STOKER_COLOR_JITTER},
    {"NORMALIZE", STOKER_NORMALIZE},
    {"BILINEAR", STOKER_BILINEAR},
    {"TRANSFORM_SIDE_MAX", STOKER_TRANSFORM_SIDE_MAX},
    {"BICUBIC", STOKER_BICUBIC},
    {"NEAREST", STOKER_NEAREST},
    {"UINT8", STOKER_UINT8},
    {"FLOAT32", STOKER_FLOAT32},
    {"FLOAT16", STOKER_FLOAT16},
    {"BFLOAT16", STOKER_BFLOAT16},
    {"INT64", STOKER_INT64},
    {"FLOAT64", STOKER_FLOAT64},
    {"BOOL", STOKER_BOOL},
    {"INT8", STOKER_INT8},
    {"INT16", STOKER_INT16},
    {"UINT16", STOKER_UINT16},
    {"INT32", STOKER_INT32},
    {"UINT32", STOKER_UINT32},
    {"UINT64", STOKER_UINT64},
    {"NCHW", STOKER_NCHW},
    {"NHWC", STOKER_NHWC},
    {"IO_AUTO", STOKER_IO_AUTO},
    {"IO_URING", STOKER_IO_URING},
    {"IO_THREADS", STOKER_IO_THREADS},
    {"DIRECT_AUTO", STOKER_DIRECT_AUTO},
    {"DIRECT_NEVER", STOKER_DIRECT_NEVER},
    {"DIRECT_ALWAYS", STOKER_DIRECT_ALWAYS},
    {"SIMD_AUTO", STOKER_SIMD_AUTO},
    {"SIMD_NONE", STOKER_SIMD_NONE},
    {"SIMD_AVX2", STOKER_SIMD_AVX2},
    {"SHUFFLE_BLOCK", STOKER_SHUFFLE_BLOCK},
    {"SHUFFLE_FULL", STOKER_SHUFFLE_FULL},
    {"SHUFFLE_NONE", STOKER_SHUFFLE_NONE},
    {"SHUFFLE_TWO_LEVEL", STOKER_SHUFFLE_TWO_LEVEL},
    {"MIX_REPEAT", STOKER_MIX_REPEAT},
    {"MIX_STOP", STOKER_MIX_STOP},
    {"MIX_RENORMALISE", STOKER_MIX_RENORMALISE},
    {"TAIL_DROP", STOKER_TAIL_DROP},
    {"TAIL_PAD", STOKER_TAIL_PAD},
    {"TAIL_WRAP", STOKER_TAIL_WRAP},
    {"TAIL_KEEP", STOKER_TAIL_KEEP},
    {"CHECK_DECODED", STOKER_CHECK_DECODED},
    {"CHECK_WHOLE", STOKER_CHECK_WHOLE},
    {"CHECK_TOLERANT", STOKER_CHECK_TOLERANT},
    {"FIELD_IMAGE", STOKER_FIELD_IMAGE},
    {"FIELD_LABEL", STOKER_FIELD_LABEL},
    {"FIELD_BYTES", STOKER_FIELD_BYTES},
    {"FIELD_KEY", STOKER_FIELD_KEY},
    {"FIELD_FLOAT", STOKER_FIELD_FLOAT},
    {"FIELD_SAMPLE", STOKER_FIELD_SAMPLE},
    {"FIELD_TEXT", STOKER_FIELD_TEXT},
    {"FIELD_INT", STOKER_FIELD_INT},
    {"FIELD_ARRAY", STOKER_FIELD_ARRAY},
    {"FIELD_MASK", STOKER_FIELD_MASK},
    {"FIELD_BOXES", STOKER_FIELD_BOXES},
    {"FIELD_BOX_LABELS", STOKER_FIELD_BOX_LABELS},
    {"FIELD_JSON", STOKER_FIELD_JSON},
    {"FIELD_MSGPACK", STOKER_FIELD_MSGPACK},
    {"XYXY", STOKER_XYXY},
    {"XYWH", STOKER_XYWH},
    {"CXCYWH", STOKER_CXCYWH},
    {"ON_ERROR_RAISE", STOKER_ON_ERROR_RAISE},
    {"ON_ERROR_SKIP", STOKER_ON_ERROR_SKIP},
    {"INDEX_AUTO", STOKER_INDEX_AUTO},
    {"INDEX_NEVER", STOKER_INDEX_NEVER},
    {"FOREIGN_INDEX_AUTO", STOKER_FOREIGN_INDEX_AUTO},
    {"FOREIGN_INDEX_NEVER", STOKER_FOREIGN_INDEX_NEVER},
    {"INDEX_REQUIRE", STOKER_INDEX_REQUIRE},
    {"LABELS_SHIFTED", STOKER_LABELS_SHIFTED},
    {"LABELS_NONE", STOKER_LABELS_NONE},
    {"LABELS_UNSHIFTED", STOKER_LABELS_UNSHIFTED},
    {"ROWS_WINDOWS", STOKER_ROWS_WINDOWS},
    {"ROWS_PACKED", STOKER_ROWS_PACKED},
    {"ROWS_DOCUMENTS", STOKER_ROWS_DOCUMENTS},
    {"ROWS_PADDED", STOKER_ROWS_PADDED},
    {"BOUNDARY_MASKED", STOKER_BOUNDARY_MASKED},
    {"BOUNDARY_NEXT", STOKER_BOUNDARY_NEXT},
    {"POSITIONS_NONE", STOKER_POSITIONS_NONE},
    {"POSITIONS_RESET", STOKER_POSITIONS_RESET},
    {"POSITIONS_ROW", STOKER_POSITIONS_ROW},
    {"COPY", STOKER_COPY},
    {"SYNC", STOKER_SYNC},
    {"REMOVE", STOKER_REMOVE},
    {"MOVE", STOKER_MOVE},
    {"COMPARE_TIME", STOKER_COMPARE_TIME},
    {"COMPARE_SIZE", STOKER_COMPARE_SIZE},
    {"COMPARE_CHECKSUM", STOKER_COMPARE_CHECKSUM},
    {"NOTE_FAILED", STOKER_NOTE_FAILED},
    {"NOTE_LEFT_OUT", STOKER_NOTE_LEFT_OUT},
    {"NOTE_SYSTEM_FILE", STOKER_NOTE_SYSTEM_FILE},
    {"NOTE_NOT_DELETED", STOKER_NOTE_NOT_DELETED},
    {"NOTE_WOULD_COPY", STOKER_NOTE_WOULD_COPY},
    {"NOTE_WOULD_REMOVE", STOKER_NOTE_WOULD_REMOVE},
    {"CHECK_AUTO", STOKER_CHECK_AUTO},
    {"CHECK_CRC64NVME", STOKER_CHECK_CRC64NVME},
    {"CHECK_CRC32C", STOKER_CHECK_CRC32C},
    {"CHECK_SHA256", STOKER_CHECK_SHA256},
    {"CHECK_MD5", STOKER_CHECK_MD5},
    {"ORDER_VERSION", STOKER_ORDER_VERSION},
};

static int add_constants(PyObject *module)
{
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0) {
            return -1;
        }
    }
    return PyModule_AddStringConstant(module, "__version__", stoker_version());
}

/* STATUSES: {"CORRUPT": -5001, ...}, for the table of exceptions in stoker/errors.py. */
static int add_statuses(PyObject *module)
{
    static const struct {
        const char *name;
        int status;
    } statuses[] = {
#define X(number, name, sentence) {#name, number},
        STOKER_ERRORS(X)
#undef X
    };
    PyObject *dict = PyDict_New();
    int result = dict ? 0 : -1;

    for (size_t i = 0; result == 0 && i < sizeof statuses / sizeof *statuses; i++) {
        PyObject *number = PyLong_FromLong(statuses[i].status);
        result = number ? PyDict_SetItemString(dict, statuses[i].name, number) : -1;
        Py_XDECREF(number);
    }
    if (result == 0) {
        result = PyModule_AddObjectRef(module, "STATUSES", dict);
    }
    Py_XDECREF(dict);
    return result;
}

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type_out)
{
    *type_out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *type_out ? PyModule_AddType(module, *type_out) : -1;
}

static int module_exec(PyObject *self)
{
    struct stk_py_module *module = PyModule_GetState(self);

    if (add_type(self, &stk_py_external_fs_spec, &module->external_fs_type) < 0 ||
        add_type(self, &stk_py_cache_spec, &module->cache_type) < 0 ||
        add_type(self, &stk_py_engine_spec, &module->engine_type) < 0 ||
        add_type(self, &stk_py_dataset_spec, &module->dataset_type) < 0 ||
        add_type(self, &stk_py_loader_spec, &module->loader_type) < 0 ||
        add_type(self, &stk_py_batch_spec, &module->batch_type) < 0 ||
        add_type(self, &stk_py_array_spec, &module->array_type) < 0 ||
        add_type(self, &stk_py_bytes_spec, &module->bytes_type) < 0 ||
        add_type(self, &stk_py_pack_spec, &module->pack_type) < 0 ||
        add_type(self, &stk_py_shard_writer_spec, &module->shard_writer_type) < 0 ||
        add_type(self, &stk_py_verify_spec, &module->verify_type) < 0 ||
        add_type(self, &stk_py_diff_spec, &module->diff_type) < 0 ||
        add_type(self, &stk_py_indexer_spec, &module->indexer_type) < 0 ||
        add_type(self, &stk_py_sampler_spec, &module->sampler_type) < 0 ||
        add_type(self, &stk_py_tokens_spec, &module->tokens_type) < 0 ||
        add_type(self, &stk_py_token_loader_spec, &module->token_loader_type) < 0 ||
        add_type(self, &stk_py_file_spec, &module->file_type) < 0 ||
        add_type(self, &stk_py_walk_spec, &module->walk_type) < 0 ||
        add_type(self, &stk_py_checkpoint_spec, &module->checkpoint_type) < 0 ||
        add_type(self, &stk_py_checkpoint_load_spec, &module->checkpoint_load_type) < 0 ||
        add_type(self, &stk_py_checkpoint_writer_spec, &module->checkpoint_writer_type) < 0 ||
        add_type(self, &stk_py_checkpoint_save_spec, &module->checkpoint_save_type) < 0 ||
        add_type(self, &stk_py_copy_spec, &module->copy_type) < 0) {
        return -1;
    }
    return add_constants(self) < 0 ? -1 : add_statuses(self);
}

static int module_traverse(PyObject *self, visitproc visit, void *arg)
{
    struct stk_py_module *module = PyModule_GetState(self);

    Py_VISIT(module->external_fs_type);
    Py_VISIT(module->cache_type);
    Py_VISIT(module->engine_type);
    Py_VISIT(module->dataset_type);
    Py_VISIT(module->loader_type);
    Py_VISIT(module->batch_type);
    Py_VISIT(module->array_type);
    Py_VISIT(module->bytes_type);
    Py_VISIT(module->pack_type);
    Py_VISIT(module->shard_writer_type);
    Py_VISIT(module->verify_type);
    Py_VISIT(module->diff_type);
    Py_VISIT(module->indexer_type);
    Py_VISIT(module->sampler_type);
    Py_VISIT(module->tokens_type);
    Py_VISIT(module->token_loader_type);
    Py_VISIT(module->file_type);
    Py_VISIT(module->walk_type);
    Py_VISIT(module->checkpoint_type);
    Py_VISIT(module->checkpoint_load_type);
    Py_VISIT(module->checkpoint_writer_type);
    Py_VISIT(module->checkpoint_save_type);
    Py_VISIT(module->copy_type);
    return 0;
}

static int module_clear(PyObject *self)
{
    struct stk_py_module *module = PyModule_GetState(self);

    Py_CLEAR(module->external_fs_type);
    Py_CLEAR(module->cache_type);
    Py_CLEAR(module->engine_type);
    Py_CLEAR(module->dataset_type);
    Py_CLEAR(module->loader_type);
    Py_CLEAR(module->batch_type);
    Py_CLEAR(module->array_type);
    Py_CLEAR(module->bytes_type);
    Py_CLEAR(module->pack_type);
    Py_CLEAR(module->shard_writer_type);
    Py_CLEAR(module->verify_type);
    Py_CLEAR(module->diff_type);
    Py_CLEAR(module->indexer_type);
    Py_CLEAR(module->sampler_type);
    Py_CLEAR(module->tokens_type);
    Py_CLEAR(module->token_loader_type);
    Py_CLEAR(module->file_type);
    Py_CLEAR(module->walk_type);
    Py_CLEAR(module->checkpoint_type);
    Py_CLEAR(module->checkpoint_load_type);
    Py_CLEAR(module->checkpoint_writer_type);
    Py_CLEAR(module->checkpoint_save_type);
    Py_CLEAR(module->copy_type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "stoker._stoker",
    .m_doc = "Binding of libstoker; stoker is the package to import.",
    .m_size = sizeof(struct stk_py_module),
    .m_methods = functions,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__stoker(void);
PyMODINIT_FUNC PyInit__stoker(void)
{
    return PyModuleDef_Init(&definition);
}
