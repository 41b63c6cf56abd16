/* States of loaders as tuples: image loaders, token loaders and Dataset.as_of() share the format.
 */
#include "py.h"

#include <string.h>

PyObject *stk_py_state_tuple(const struct stoker_state *state)
{
    return Py_BuildValue(
        "IIIIIKKKKKKKKIIKKy#", state->order_version, state->shuffle, state->tail,
        state->window_blocks, state->group_count, (unsigned long long)state->seed,
        (unsigned long long)state->epoch, (unsigned long long)state->position,
        (unsigned long long)state->sample_count, (unsigned long long)state->block_samples,
        (unsigned long long)state->mix, (unsigned long long)state->subset,
        (unsigned long long)state->draws, state->repeats, state->repeat_distance,
        (unsigned long long)state->epoch_samples, (unsigned long long)state->fingerprint,
        (const char *)state->identity, (Py_ssize_t)sizeof state->identity);
}

bool stk_py_state_parse(PyObject *tuple, struct stoker_state *state_out)
{
    struct stoker_state state = {0};
    const char *identity;
    Py_ssize_t identity_bytes;

    if (!PyTuple_Check(tuple) ||
        !PyArg_ParseTuple(tuple, "O&O&O&O&O&O&O&O&O&O&O&O&O&O&O&O&O&y#:state", stk_py_u32,
                          &state.order_version, stk_py_u32, &state.shuffle, stk_py_u32, &state.tail,
                          stk_py_u32, &state.window_blocks, stk_py_u32, &state.group_count,
                          stk_py_u64, &state.seed, stk_py_u64, &state.epoch, stk_py_u64,
                          &state.position, stk_py_u64, &state.sample_count, stk_py_u64,
                          &state.block_samples, stk_py_u64, &state.mix, stk_py_u64, &state.subset,
                          stk_py_u64, &state.draws, stk_py_u32, &state.repeats, stk_py_u32,
                          &state.repeat_distance, stk_py_u64, &state.epoch_samples, stk_py_u64,
                          &state.fingerprint, &identity, &identity_bytes)) {
        return false;
    }
    if (identity_bytes != (Py_ssize_t)sizeof state.identity) {
        stk_py_raise_text(STOKER_ERROR_STATE, "the state's identity does not have 32 bytes",
                          "state", "pass what state_dict() returned");
        return false;
    }
    memcpy(state.identity, identity, sizeof state.identity);
    *state_out = state;
    return true;
}

PyObject *stk_py_position(int status, uint64_t epoch, uint64_t position)
{
    return status < 0
               ? stk_py_raise(status, NULL)
               : Py_BuildValue("KK", (unsigned long long)epoch, (unsigned long long)position);
}
