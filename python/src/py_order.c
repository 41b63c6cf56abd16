/* The order of samples without a loader: the sample at a position, and the slots of a step. */
#include "py.h"

#define SLOTS_MAX 256 /* in one call; they are on the stack */

PyObject *stk_py_order_at(PyObject *self, PyObject *arguments)
{
    uint64_t sample_count, block_samples, seed, epoch, position, sample;
    uint32_t window_blocks, group_count, shuffle;
    int status;

    (void)self;
    if (!PyArg_ParseTuple(arguments, "O&O&O&O&O&O&O&O&:order_at", stk_py_u64, &sample_count,
                          stk_py_u64, &block_samples, stk_py_u32, &window_blocks, stk_py_u32,
                          &group_count, stk_py_u32, &shuffle, stk_py_u64, &seed, stk_py_u64, &epoch,
                          stk_py_u64, &position)) {
        return NULL;
    }
    status = stoker_order_at(sample_count, block_samples, window_blocks, group_count, shuffle, seed,
                             epoch, position, &sample);
    return status < 0 ? stk_py_raise(status, NULL) : PyLong_FromUnsignedLongLong(sample);
}

/* Appends up to SLOTS_MAX slots, the first `skip` left out. Returns their number, 0 at the end, -1
 * with an exception. */
static int append_slots(const struct stoker_order *order, const struct stk_py_step *step,
                        uint64_t skip, PyObject *list)
{
    struct stoker_slot slots[SLOTS_MAX];
    int count = stoker_order_slots(order, step->epoch, step->step, (uint32_t)step->rank, skip,
                                   slots, SLOTS_MAX);

    for (int i = 0; i < count; i++) {
        PyObject *item =
            Py_BuildValue("IIKKKO", slots[i].rank, slots[i].slot,
                          (unsigned long long)slots[i].epoch, (unsigned long long)slots[i].position,
                          (unsigned long long)slots[i].sample, slots[i].real ? Py_True : Py_False);
        int appended = item ? PyList_Append(list, item) : -1;

        Py_XDECREF(item);
        if (appended < 0) {
            return -1;
        }
    }
    if (count < 0 && count != STOKER_ERROR_ARGUMENT) {
        stk_py_raise_text(count,
                          "a table of chosen samples is damaged, or changed while it was open",
                          "explain", "open the loader again; 'stoker clean' removes such tables");
        return -1;
    }
    if (count < 0) {
        stk_py_raise_text(count, "there is no such epoch, step or rank", "explain",
                          "steps count from 0 to len(loader) - 1, ranks to world_size - 1; a mix "
                          "has 2^61 positions, other runs 2^63 epochs");
        return -1;
    }
    return count;
}

PyObject *stk_py_order_slots(const struct stoker_order *order, const struct stk_py_step *step)
{
    PyObject *list = PyList_New(0);
    uint64_t skip = 0;
    int count = 0;

    while (list && (count = append_slots(order, step, skip, list)) > 0) {
        skip += (uint64_t)count;
    }
    if (list && count < 0) {
        Py_CLEAR(list);
    }
    return list;
}
