/* The mix of a loader: converts tuples of integers to the struct that stoker_loader_open borrows.
 */
#include "py.h"

/* Converts a tuple of `count` numbers. false: the exception is set. */
static bool numbers_parse(PyObject *tuple, size_t count, uint64_t *numbers_out)
{
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != (Py_ssize_t)count) {
        PyErr_SetString(PyExc_TypeError, "a tuple with a number for each source is needed");
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!stk_py_u64(PyTuple_GetItem(tuple, (Py_ssize_t)i), &numbers_out[i])) {
            return false;
        }
    }
    return true;
}

/* Parses ((position, weights), ...); the weights are appended to `numbers`. */
static bool changes_parse(struct stk_py_mix *mix, PyObject *tuple, uint64_t *numbers)
{
    size_t sources = mix->options.source_count;

    for (size_t i = 0; i < mix->options.change_count; i++) {
        PyObject *change = PyTuple_GetItem(tuple, (Py_ssize_t)i), *weights;

        if (!PyTuple_Check(change) ||
            !PyArg_ParseTuple(change, "O&O:change", stk_py_u64, &mix->changes[i].position,
                              &weights) ||
            !numbers_parse(weights, sources, numbers + i * sources)) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_TypeError, "a change must be a tuple");
            }
            return false;
        }
        mix->changes[i].weights = numbers + i * sources;
    }
    return true;
}

/* Parses (Sampler or None, ...) with an item for each source; or (): no samplers. */
static bool samplers_parse(struct stk_py_mix *mix, struct stk_py_module *module, PyObject *tuple)
{
    Py_ssize_t count = tuple ? PyTuple_Size(tuple) : 0;

    if (count == 0) {
        return true;
    }
    if (count != (Py_ssize_t)mix->options.source_count) {
        PyErr_SetString(PyExc_TypeError,
                        "a tuple with a Sampler or None for each source is needed");
        return false;
    }
    mix->samplers = PyMem_Calloc((size_t)count, sizeof *mix->samplers);
    if (!mix->samplers) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *sampler = PyTuple_GetItem(tuple, i);

        if (sampler != Py_None && !stk_py_sampler_of(module, sampler, &mix->samplers[i])) {
            return false;
        }
    }
    mix->options.samplers = mix->samplers;
    return true;
}

bool stk_py_mix_parse(struct stk_py_mix *mix, struct stk_py_module *module, PyObject *tuple)
{
    struct stoker_mix_options *options = &mix->options;
    PyObject *ends, *weights, *limits, *changes, *samplers = NULL;
    size_t sources, change_count;

    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a mix must be a tuple");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "O!O!O!O!O&O&O&|O!:mix", &PyTuple_Type, &ends, &PyTuple_Type,
                          &weights, &PyTuple_Type, &limits, &PyTuple_Type, &changes, stk_py_u32,
                          &options->end, stk_py_u64, &options->unit_samples, stk_py_u64,
                          &options->epoch_samples, &PyTuple_Type, &samplers)) {
        return false;
    }
    sources = (size_t)PyTuple_Size(ends);
    change_count = (size_t)PyTuple_Size(changes);
    if (sources > STK_PY_SOURCES_MAX || change_count > STK_PY_CHANGES_MAX) {
        stk_py_raise_text(STOKER_ERROR_ARGUMENT, "too many sources or changes of weights", "Mix",
                          "mix up to 256 sources, with up to 4096 changes");
        return false;
    }
    mix->numbers = PyMem_Calloc(sources * (3 + change_count) + 1, sizeof *mix->numbers);
    mix->changes = PyMem_Calloc(change_count + 1, sizeof *mix->changes);
    if (!mix->numbers || !mix->changes) {
        PyErr_NoMemory();
        return false;
    }
    options->struct_size = sizeof *options;
    options->source_count = (uint32_t)sources;
    options->change_count = change_count;
    options->ends = mix->numbers;
    options->weights = mix->numbers + sources;
    options->limits = mix->numbers + 2 * sources;
    options->changes = mix->changes;
    return numbers_parse(ends, sources, mix->numbers) &&
           numbers_parse(weights, sources, mix->numbers + sources) &&
           numbers_parse(limits, sources, mix->numbers + 2 * sources) &&
           changes_parse(mix, changes, mix->numbers + 3 * sources) &&
           samplers_parse(mix, module, samplers);
}

void stk_py_mix_deinit(struct stk_py_mix *mix)
{
    PyMem_Free(mix->numbers);
    PyMem_Free(mix->changes);
    PyMem_Free((void *)mix->samplers);
}

PyObject *stk_py_mix_samples(PyObject *self, PyObject *arguments)
{
    struct stoker_order_options options = {
        .struct_size = sizeof options, .block_samples = 1, .batch_size = 1};
    struct stoker_order *order = NULL;
    struct stoker_error error = {0};
    struct stk_py_mix mix = {0};
    PyObject *tuple, *samples = NULL;
    int status;

    if (!PyArg_ParseTuple(arguments, "O&O:mix_samples", stk_py_u64, &options.sample_count,
                          &tuple)) {
        return NULL;
    }
    if (stk_py_mix_parse(&mix, PyModule_GetState(self), tuple)) {
        options.mix = &mix.options;
        status = stoker_order_open(&order, &options, &error);
        samples = status < 0 ? stk_py_raise(status, &error)
                             : PyLong_FromUnsignedLongLong(stoker_order_samples(order));
    }
    stoker_order_close(order);
    stk_py_mix_deinit(&mix);
    return samples;
}
