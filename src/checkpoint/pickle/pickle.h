/* checkpoint/pickle/pickle.h: reads a pickle of torch as data. Nothing is imported or called.
 *
 *   bytes --opcodes--> values: numbers, texts, containers, and objects that only name what Python
 *                      would call and with which arguments
 *
 * The machine knows the opcodes and the globals that torch.save() and
 * torch.distributed.checkpoint write, and refuses everything else by its name.
 * Untrusted input: values may share parts and contain themselves; a walk over them must bound
 * levels and steps. Owner: the caller. Threads: one; any once it is parsed. Memory: 48 bytes an
 * opcode; texts are borrowed from the input. Bound: STK_PICKLE_BYTES_MAX, STK_PICKLE_VALUES_MAX. */
#ifndef CHECKPOINT_PICKLE_PICKLE_H
#define CHECKPOINT_PICKLE_PICKLE_H

#include "base/base.h"

#define STK_PICKLE_BYTES_MAX (256u << 20)
#define STK_PICKLE_VALUES_MAX (1u << 25)
#define STK_PICKLE_NONE_AT UINT32_MAX

enum stk_pickle_kind {
    STK_PICKLE_NONE,
    STK_PICKLE_BOOLEAN,
    STK_PICKLE_INTEGER,
    STK_PICKLE_NUMBER,
    STK_PICKLE_TEXT,
    STK_PICKLE_BYTES,
    STK_PICKLE_TUPLE,
    STK_PICKLE_LIST,
    STK_PICKLE_DICT,       /* items: key, value, key, value ... */
    STK_PICKLE_GLOBAL,     /* global */
    STK_PICKLE_OBJECT,     /* callable, arguments, state */
    STK_PICKLE_PERSISTENT, /* arguments */
};

enum stk_pickle_global_kind {
    STK_PICKLE_ORDERED_DICT = 1,
    STK_PICKLE_REBUILD_TENSOR, /* also _rebuild_tensor_v3 */
    STK_PICKLE_REBUILD_PARAMETER,
    STK_PICKLE_STORAGE, /* dtype: of its elements; NULL: untyped */
    STK_PICKLE_DTYPE,
    STK_PICKLE_SIZE,
    STK_PICKLE_DEVICE,
    STK_PICKLE_PATH,
    STK_PICKLE_ENCODED_BYTES, /* of protocol 2: a text in latin1, or nothing */
    STK_PICKLE_DCP_METADATA,
    STK_PICKLE_DCP_TENSOR,
    STK_PICKLE_DCP_BYTES,
    STK_PICKLE_DCP_PROPERTIES,
    STK_PICKLE_DCP_CHUNK,
    STK_PICKLE_DCP_INDEX,
    STK_PICKLE_DCP_INFO,
    STK_PICKLE_OTHER, /* a constant that no reader needs */
};
struct stk_pickle_global {
    const char *module, *name;
    uint32_t kind;     /* enum stk_pickle_global_kind */
    const char *dtype; /* of safetensors; NULL: none */
};

struct stk_pickle_value {
    uint32_t kind;  /* enum stk_pickle_kind */
    uint32_t count; /* of items */
    union {
        int64_t integer; /* also BOOLEAN */
        double number;
        struct stk_view text; /* TEXT: UTF-8; BYTES */
        struct {
            uint32_t first, last; /* cells */
        } items;
        const struct stk_pickle_global *global;
        struct {
            uint32_t callable, arguments, state; /* values; state: STK_PICKLE_NONE_AT: none */
        } object;
    };
};
struct stk_pickle_cell {
    uint32_t value, next;
};

struct stk_pickle {
    struct stk_pickle_value *values; /* owned, as cells */
    struct stk_pickle_cell *cells;
    uint32_t value_count, value_capacity, cell_count, cell_capacity;
    uint32_t root;
};

/* Returns 0, STOKER_ERROR_FORMAT for damaged bytes, STOKER_ERROR_UNSUPPORTED with the name of an
 * opcode or global, STOKER_ERROR_LIMIT, -ENOMEM. bytes: borrowed as long as the values are used. */
int stk_pickle_parse(struct stk_pickle *pickle, struct stk_view bytes, struct stoker_error *error);
void stk_pickle_deinit(struct stk_pickle *pickle); /* zeroed is allowed */

static inline const struct stk_pickle_value *stk_pickle_at(const struct stk_pickle *pickle,
                                                           uint32_t value)
{
    return &pickle->values[value];
}
/* Item of a TUPLE, LIST or DICT; NULL if there are fewer. Linear. */
const struct stk_pickle_value *stk_pickle_item(const struct stk_pickle *pickle,
                                               const struct stk_pickle_value *value,
                                               uint32_t index);
/* The value of a key of a DICT that is a text; NULL if there is none. */
const struct stk_pickle_value *stk_pickle_get(const struct stk_pickle *pickle,
                                              const struct stk_pickle_value *dict, const char *key);
/* Whether the value is an object of this kind of global. */
bool stk_pickle_is(const struct stk_pickle *pickle, const struct stk_pickle_value *value,
                   uint32_t global_kind);
/* Reads a tuple of integers of at least 0 (also one in torch.Size()). Returns false if it is not
 * one, or has more than capacity. */
bool stk_pickle_numbers(const struct stk_pickle *pickle, const struct stk_pickle_value *value,
                        uint64_t *numbers, uint32_t capacity, uint32_t *count_out);
/* pickle_globals.c: NULL if the reader does not know it. */
const struct stk_pickle_global *stk_pickle_find_global(struct stk_view module,
                                                       struct stk_view name);

#endif
