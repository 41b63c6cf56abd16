/* TokenLoader: batches of rows of tokens. libstoker lets any thread call a token loader, so its
 * gate only delays a close until no call runs. And token_rows_batch(): rows of documents in memory.
 */
#include "py.h"

struct token_loader_object {
    PyObject_HEAD struct stk_py_gate gate;
    struct stoker_token_loader *loader;
};

static void loader_close_handle(PyObject *object)
{
    struct token_loader_object *self = (struct token_loader_object *)object;

    stoker_token_loader_close(self->loader);
    self->loader = NULL;
}

static bool enter(struct token_loader_object *self)
{
    return stk_py_gate_enter(&self->gate, "token loader");
}

/* The options of a token loader, with what they borrow. */
struct request {
    struct stoker_token_loader_options options;
    PyObject *source, *rows_of; /* borrowed; rows_of: a TokenLoader, or None */
    struct stk_py_mix mix;
};

/* Lets the options borrow from the keywords' objects. no_prefix: int32 numbers; mix: None, or a
 * tuple. */
static bool borrow_arguments(struct request *request, struct stk_py_module *module,
                             const char *no_prefix, Py_ssize_t no_prefix_bytes, PyObject *mix)
{
    /* The numbers of a bytes object are aligned to 8 bytes, and live as long as the keywords. */
    request->options.fim_no_prefix = (const int32_t *)(const void *)no_prefix;
    request->options.fim_no_prefix_count = (uint32_t)(no_prefix_bytes / 4);
    if (mix == Py_None) {
        return true;
    }
    request->options.mix = &request->mix.options;
    return stk_py_mix_parse(&request->mix, module, mix);
}

/* Parses (source, context, option=...); source must have the given type. */
static bool parse_options(PyObject *arguments, PyObject *keywords, struct stk_py_module *module,
                          PyTypeObject *type, struct request *request)
{
    static char *names[] = {"source",
                            "context",
                            "stride",
                            "batch_size",
                            "shuffle",
                            "tail",
                            "window_blocks",
                            "group_count",
                            "rank",
                            "world_size",
                            "seed",
                            "labels",
                            "dtype",
                            "rows",
                            "chunk_documents",
                            "pad",
                            "has_eod",
                            "append_eod",
                            "eod",
                            "boundary_labels",
                            "positions",
                            "fim_rate",
                            "fim_spm_rate",
                            "fim_prefix",
                            "fim_suffix",
                            "fim_middle",
                            "block_bytes",
                            "fim_fragment_rate",
                            "has_fim_split",
                            "fim_whole",
                            "fim_split",
                            "fim_fragments_max",
                            "fim_no_prefix",
                            "mix",
                            "block_samples",
                            "rows_of",
                            "order_version",
                            "on_error",
                            "bad_samples_max",
                            NULL};
    struct stoker_token_loader_options *options = &request->options;
    PyObject *mix = Py_None;
    const char *no_prefix = NULL;
    Py_ssize_t no_prefix_bytes = 0;

    options->struct_size = sizeof *options;
    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords,
            "O!O&|$O&O&O&O&O&O&O&O&O&O&O&O&O&ibbiO&O&ddiiiO&dbbiO&y#OO&OO&O&O&:tokens", names, type,
            &request->source, stk_py_u64, &options->context, stk_py_u64, &options->stride,
            stk_py_u32, &options->batch_size, stk_py_u32, &options->shuffle, stk_py_u32,
            &options->tail, stk_py_u32, &options->window_blocks, stk_py_u32, &options->group_count,
            stk_py_u32, &options->rank, stk_py_u32, &options->world_size, stk_py_u64,
            &options->seed, stk_py_u32, &options->labels, stk_py_u32, &options->dtype, stk_py_u32,
            &options->rows, stk_py_u32, &options->chunk_documents, &options->pad, &options->has_eod,
            &options->append_eod, &options->eod, stk_py_u32, &options->boundary_labels, stk_py_u32,
            &options->positions, &options->fim_rate, &options->fim_spm_rate, &options->fim_prefix,
            &options->fim_suffix, &options->fim_middle, stk_py_u64, &options->block_bytes,
            &options->fim_fragment_rate, &options->has_fim_split, &options->fim_whole,
            &options->fim_split, stk_py_u32, &options->fim_fragments_max, &no_prefix,
            &no_prefix_bytes, &mix, stk_py_u64, &options->block_samples, &request->rows_of,
            stk_py_u32, &options->order_version, stk_py_u32, &options->on_error, stk_py_u64,
            &options->bad_samples_max)) {
        return false;
    }
    return borrow_arguments(request, module, no_prefix, no_prefix_bytes, mix);
}

/* Gets a buffer of at least `count` numbers of number_bytes each. */
static bool numbers_buffer(PyObject *object, Py_ssize_t number_bytes, Py_ssize_t count,
                           Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0) {
        return false;
    }
    if (view->len % number_bytes == 0 && view->len / number_bytes >= count) {
        return true;
    }
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_ValueError, "a buffer of documents has the wrong size");
    return false;
}

static PyObject *rows_batch(PyObject *module, struct stk_py_engine *engine,
                            PyObject *const buffers[3],
                            const struct stoker_token_loader_options *options,
                            const uint64_t epoch_and_rows[2])
{
    struct stoker_token_documents documents = {
        .struct_size = sizeof documents, .epoch = epoch_and_rows[0], .rows = epoch_and_rows[1]};
    struct stoker_error error = {0};
    struct stoker_batch *batch = NULL;
    Py_buffer tokens, ends, ids;
    const uint64_t *last;
    bool fits;
    int status = 0;

    if (!numbers_buffer(buffers[1], 8, 1, &ends)) {
        return NULL;
    }
    if (!numbers_buffer(buffers[2], 8, ends.len / 8, &ids)) {
        PyBuffer_Release(&ends);
        return NULL;
    }
    last = (const uint64_t *)ends.buf + ends.len / 8 - 1;
    fits = *last <= PY_SSIZE_T_MAX / 4 && numbers_buffer(buffers[0], 4, (Py_ssize_t)*last, &tokens);
    if (fits) {
        documents.tokens = tokens.buf;
        documents.ends = ends.buf;
        documents.ids = ids.buf;
        documents.count = (uint64_t)ends.len / 8;
        Py_BEGIN_ALLOW_THREADS status =
            stoker_token_rows_batch(&batch, engine->engine, &documents, options, &error);
        Py_END_ALLOW_THREADS PyBuffer_Release(&tokens);
    } else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "a document ends after the last token");
    }
    PyBuffer_Release(&ids);
    PyBuffer_Release(&ends);
    if (!fits) {
        return NULL;
    }
    return status < 0 ? stk_py_raise(status, &error)
                      : stk_py_batch_new(PyModule_GetState(module), batch);
}

PyObject *stk_py_token_rows_batch(PyObject *module, PyObject *arguments)
{
    struct stk_py_module *state = PyModule_GetState(module);
    struct request request = {.rows_of = Py_None};
    PyObject *first, *keywords, *buffers[3], *result = NULL;
    struct stk_py_engine *engine;
    uint64_t epoch_and_rows[2] = {0, 0};

    if (!PyArg_ParseTuple(arguments, "O!O!O&OOO|O&:token_rows_batch", &PyTuple_Type, &first,
                          &PyDict_Type, &keywords, stk_py_u64, &epoch_and_rows[0], &buffers[0],
                          &buffers[1], &buffers[2], stk_py_u64, &epoch_and_rows[1]) ||
        !parse_options(first, keywords, state, state->engine_type, &request)) {
        stk_py_mix_deinit(&request.mix);
        return NULL;
    }
    engine = (struct stk_py_engine *)request.source;
    if (stk_py_gate_enter(&engine->gate, "engine")) {
        result = rows_batch(module, engine, buffers, &request.options, epoch_and_rows);
        stk_py_gate_leave(&engine->gate);
    }
    stk_py_mix_deinit(&request.mix);
    return result;
}

/* The caller entered the gates of the Tokens and of the loader whose rows are shared. */
static PyObject *open_on(PyTypeObject *type, struct request *request)
{
    struct stk_py_tokens *tokens = (struct stk_py_tokens *)request->source;
    struct token_loader_object *self;
    struct stoker_error error = {0};
    int status;

    self = stk_py_object_new(type);
    if (self) {
        stk_py_gate_init(&self->gate, loader_close_handle);
        Py_BEGIN_ALLOW_THREADS status =
            stoker_token_loader_open(&self->loader, tokens->tokens, &request->options, &error);
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
    return (PyObject *)self;
}

static PyObject *loader_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    struct stk_py_module *module = PyType_GetModuleState(type);
    struct request request = {.rows_of = Py_None};
    struct token_loader_object *shared = NULL;
    PyObject *self = NULL;
    bool ready = parse_options(arguments, keywords, module, module->tokens_type, &request);

    if (ready && request.rows_of != Py_None) {
        if (Py_TYPE(request.rows_of) != module->token_loader_type) {
            PyErr_SetString(PyExc_TypeError, "rows_of must be a TokenLoader");
            ready = false;
        } else {
            shared = (struct token_loader_object *)request.rows_of;
            ready = enter(shared);
            request.options.rows_of = ready ? shared->loader : NULL;
        }
    }
    if (ready && stk_py_gate_enter(&((struct stk_py_tokens *)request.source)->gate, "tokens")) {
        self = open_on(type, &request);
        stk_py_gate_leave(&((struct stk_py_tokens *)request.source)->gate);
    }
    if (request.options.rows_of) {
        stk_py_gate_leave(&shared->gate);
    }
    stk_py_mix_deinit(&request.mix);
    return self;
}

/* next() -> Batch, or None at the epoch's end */
static PyObject *loader_next(PyObject *object, PyObject *nothing)
{
    struct token_loader_object *self = (struct token_loader_object *)object;
    struct stoker_batch *batch = NULL;
    struct stoker_error error = {0};
    int status;

    (void)nothing;
    if (!enter(self)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_token_loader_next(self->loader, &batch, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    if (status < 0) {
        return stk_py_raise(status, &error);
    }
    return status == 0 ? Py_NewRef(Py_None) : stk_py_batch_new(stk_py_module_of(object), batch);
}

static PyObject *loader_set_epoch(PyObject *object, PyObject *number)
{
    struct token_loader_object *self = (struct token_loader_object *)object;
    struct stoker_error error = {0};
    uint64_t epoch;
    int status;

    if (!stk_py_u64(number, &epoch) || !enter(self)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_token_loader_set_epoch(self->loader, epoch, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    return status < 0 ? stk_py_raise(status, &error) : Py_NewRef(Py_None);
}

static PyObject *loader_batches(PyObject *object, PyObject *number)
{
    struct token_loader_object *self = (struct token_loader_object *)object;
    uint64_t epoch, batches;

    if (!stk_py_u64(number, &epoch) || !enter(self)) {
        return NULL;
    }
    batches = stoker_token_loader_batches(self->loader, epoch);
    stk_py_gate_leave(&self->gate);
    return PyLong_FromUnsignedLongLong(batches);
}

static PyObject *loader_samples(PyObject *object, PyObject *nothing)
{
    struct token_loader_object *self = (struct token_loader_object *)object;
    uint64_t samples;

    (void)nothing;
    if (!enter(self)) {
        return NULL;
    }
    samples = stoker_token_loader_samples(self->loader);
    stk_py_gate_leave(&self->gate);
    return PyLong_FromUnsignedLongLong(samples);
}

/* A call that takes a number and returns a number. */
static PyObject *number_of(PyObject *object, PyObject *number,
                           int (*call)(struct stoker_token_loader *loader, uint64_t number,
                                       uint64_t *number_out))
{
    struct token_loader_object *self = (struct token_loader_object *)object;
    uint64_t argument, result = 0;
    int status;

    if (!stk_py_u64(number, &argument) || !enter(self)) {
        return NULL;
    }
    status = call(self->loader, argument, &result);
    stk_py_gate_leave(&self->gate);
    return status < 0 ? stk_py_raise(status, NULL) : PyLong_FromUnsignedLongLong(result);
}

static int file_end(struct stoker_token_loader *loader, uint64_t file, uint64_t *samples_out)
{
    return stoker_token_loader_file_end(loader, file, samples_out);
}

static PyObject *loader_file_end(PyObject *object, PyObject *number)
{
    return number_of(object, number, file_end);
}

static int first_token(struct stoker_token_loader *loader, uint64_t sample, uint64_t *token_out)
{
    return stoker_token_loader_first_token(loader, sample, token_out);
}

static PyObject *loader_first_token(PyObject *object, PyObject *number)
{
    return number_of(object, number, first_token);
}

static PyObject *loader_mix_change_position(PyObject *object, PyObject *number)
{
    return number_of(object, number, stoker_token_loader_mix_change_position);
}

static PyObject *loader_state(PyObject *object, PyObject *args)
{
    struct token_loader_object *self = (struct token_loader_object *)object;
    uint64_t epoch = 0, position = 0;
    struct stoker_state state;
    int status;

    if (!PyArg_ParseTuple(args, "|O&O&:state", stk_py_u64, &epoch, stk_py_u64, &position) ||
        !enter(self)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        PyTuple_Size(args) > 0 ? stoker_token_loader_state_at(self->loader, epoch, position, &state)
                               : stoker_token_loader_state(self->loader, &state);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    return status < 0 ? stk_py_raise(status, NULL) : stk_py_state_tuple(&state);
}

static PyObject *loader_position(PyObject *object, PyObject *nothing)
{
    struct token_loader_object *self = (struct token_loader_object *)object;
    uint64_t epoch = 0, position = 0;
    int status;

    (void)nothing;
    if (!enter(self)) {
        return NULL;
    }
    status = stoker_token_loader_position(self->loader, &epoch, &position);
    stk_py_gate_leave(&self->gate);
    return stk_py_position(status, epoch, position);
}

static PyObject *loader_set_state(PyObject *object, PyObject *tuple)
{
    struct token_loader_object *self = (struct token_loader_object *)object;
    struct stoker_error error = {0};
    struct stoker_state state;
    int status;

    if (!stk_py_state_parse(tuple, &state) || !enter(self)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = stoker_token_loader_set_state(self->loader, &state, &error);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    return status < 0 ? stk_py_raise(status, &error) : Py_NewRef(Py_None);
}

static PyObject *loader_bad_samples(PyObject *object, PyObject *nothing)
{
    struct token_loader_object *self = (struct token_loader_object *)object;
    uint64_t count;

    (void)nothing;
    if (!enter(self)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS count = stoker_token_loader_bad_samples(self->loader);
    Py_END_ALLOW_THREADS stk_py_gate_leave(&self->gate);
    return PyLong_FromUnsignedLongLong(count);
}

static int loader_bad_sample(void *handle, uint64_t index, struct stoker_quarantine_entry *entry)
{
    return stoker_token_loader_quarantine(handle, index, entry);
}

static PyObject *loader_quarantine(PyObject *object, PyObject *nothing)
{
    struct token_loader_object *self = (struct token_loader_object *)object;
    PyObject *list;

    (void)nothing;
    if (!enter(self)) {
        return NULL;
    }
    list = stk_py_bad_samples(self->loader, loader_bad_sample);
    stk_py_gate_leave(&self->gate);
    return list;
}

static PyMethodDef loader_methods[] = {
    {"next", loader_next, METH_NOARGS, "next() -> Batch | None"},
    {"set_epoch", loader_set_epoch, METH_O, "Continues at the first batch of an epoch."},
    {"batches", loader_batches, METH_O, "Batches of an epoch for this rank."},
    {"samples", loader_samples, METH_NOARGS, "Rows of an epoch, of all ranks together."},
    {"file_end", loader_file_end, METH_O, "Rows of the files up to this one, included."},
    {"first_token", loader_first_token, METH_O, "The first token of a sample, in its file."},
    {"mix_change_position", loader_mix_change_position, METH_O,
     "The next position where weights of the mix may change."},
    {"state", loader_state, METH_VARARGS,
     "Position and options of the stream, as a tuple; or those at an earlier (epoch, position)."},
    {"bad_samples", loader_bad_samples, METH_NOARGS, "Rows that on_error=skip replaced."},
    {"quarantine", loader_quarantine, METH_NOARGS, "The list of rows that cannot be read."},
    {"position", loader_position, METH_NOARGS, "(epoch, position) of the state; cheap."},
    {"set_state", loader_set_state, METH_O, "Continues at a state."},
    {"close", stk_py_gated_close, METH_NOARGS, "Closes it; batches stay valid."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot loader_slots[] = {
    {Py_tp_new, loader_new},
    {Py_tp_dealloc, stk_py_gated_dealloc},
    {Py_tp_methods, loader_methods},
    {0, NULL},
};

PyType_Spec stk_py_token_loader_spec = {
    .name = "stoker._stoker.TokenLoader",
    .basicsize = sizeof(struct token_loader_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = loader_slots,
};
