/* The machine that reads a pickle as data. */
#include "checkpoint/pickle/pickle.h"

#include "base/byte_order.h"
#include "base/mem.h"
#include "base/text/parse_number.h"
#include "base/text/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MARK UINT32_MAX
#define PROTOCOL_MAX 5u
#define SAVE_PLAIN                                                                                 \
    "load it with torch where its writer is trusted, and save tensors, numbers and text only"
#define DAMAGED "copy the file again, or use another checkpoint"

struct machine {
    struct stk_pickle *pickle;
    struct stk_view bytes;
    size_t at, opcode_at;
    uint32_t *stack; /* owned, as memo */
    uint32_t depth, stack_capacity;
    uint32_t *memo;
    uint32_t memo_count, memo_capacity; /* entries are value + 1; 0: none */
    struct stoker_error *error;
};

static int damaged(const struct machine *m, const char *what)
{
    return stk_fail(m->error, STOKER_ERROR_FORMAT, what, DAMAGED, "pickle, byte %zu", m->opcode_at);
}

static int no_memory(const struct machine *m)
{
    return stk_fail_memory(m->error, "values of a pickle");
}

/* Grows an array of a machine. */
static bool grow(void **block, uint32_t *capacity, uint32_t need, size_t item_bytes)
{
    uint32_t wanted = *capacity ? *capacity : 64;
    void *grown;

    if (need <= *capacity) {
        return true;
    }
    while (wanted < need) {
        wanted = wanted > UINT32_MAX / 2 ? UINT32_MAX : wanted * 2;
    }
    grown = stk_realloc(*block, *capacity, wanted, item_bytes);
    if (!grown) {
        return false;
    }
    *block = grown;
    *capacity = wanted;
    return true;
}

/* ---- values and the stack ---- */

static int new_value(struct machine *m, struct stk_pickle_value value, uint32_t *index_out)
{
    struct stk_pickle *pickle = m->pickle;

    if (pickle->value_count >= STK_PICKLE_VALUES_MAX) {
        return stk_fail(m->error, STOKER_ERROR_LIMIT, "the pickle has too many values", DAMAGED,
                        "pickle, byte %zu", m->opcode_at);
    }
    if (!grow((void **)&pickle->values, &pickle->value_capacity, pickle->value_count + 1,
              sizeof *pickle->values)) {
        return no_memory(m);
    }
    *index_out = pickle->value_count++;
    pickle->values[*index_out] = value;
    return 0;
}

static int push(struct machine *m, uint32_t value)
{
    if (!grow((void **)&m->stack, &m->stack_capacity, m->depth + 1, sizeof *m->stack)) {
        return no_memory(m);
    }
    m->stack[m->depth++] = value;
    return 0;
}

static int push_value(struct machine *m, struct stk_pickle_value value)
{
    uint32_t index = 0;
    int status = new_value(m, value, &index);

    return status < 0 ? status : push(m, index);
}

/* Pops a value that is no mark. */
static int pop(struct machine *m, uint32_t *value_out)
{
    if (m->depth == 0 || m->stack[m->depth - 1] == MARK) {
        return damaged(m, "the pickle needs a value that it has not made");
    }
    *value_out = m->stack[--m->depth];
    return 0;
}

/* The position after the last mark. */
static int find_mark(const struct machine *m, uint32_t *first_out)
{
    for (uint32_t i = m->depth; i-- > 0;) {
        if (m->stack[i] == MARK) {
            *first_out = i + 1;
            return 0;
        }
    }
    return damaged(m, "the pickle needs a mark that it has not made");
}

static int append(struct machine *m, uint32_t container, uint32_t value)
{
    struct stk_pickle *pickle = m->pickle;
    struct stk_pickle_value *to;
    uint32_t cell = pickle->cell_count;

    if (cell >= STK_PICKLE_VALUES_MAX) {
        return stk_fail(m->error, STOKER_ERROR_LIMIT, "the pickle has too many values", DAMAGED,
                        "pickle, byte %zu", m->opcode_at);
    }
    if (!grow((void **)&pickle->cells, &pickle->cell_capacity, cell + 1, sizeof *pickle->cells)) {
        return no_memory(m);
    }
    pickle->cells[cell] = (struct stk_pickle_cell){value, STK_PICKLE_NONE_AT};
    pickle->cell_count++;
    to = &pickle->values[container];
    if (to->count == 0) {
        to->items.first = cell;
    } else {
        pickle->cells[to->items.last].next = cell;
    }
    to->items.last = cell;
    to->count++;
    return 0;
}

/* Makes a container of the values above `first`, and pops them. */
static int collect(struct machine *m, uint32_t kind, uint32_t first)
{
    uint32_t container = 0, depth = m->depth;
    int status = new_value(m, (struct stk_pickle_value){.kind = kind}, &container);

    if (status == 0 && kind == STK_PICKLE_DICT && (depth - first) % 2 != 0) {
        return damaged(m, "a key of the pickle has no value");
    }
    for (uint32_t i = first; status == 0 && i < depth; i++) {
        if (m->stack[i] == MARK) {
            return damaged(m, "the pickle needs a value that it has not made");
        }
        status = append(m, container, m->stack[i]);
    }
    m->depth = first;
    return status < 0 ? status : push(m, container);
}

/* ---- bytes ---- */

static int take(struct machine *m, size_t bytes, const uint8_t **data_out)
{
    if (bytes > m->bytes.bytes - m->at) {
        return damaged(m, "the pickle ends too early");
    }
    *data_out = m->bytes.data + m->at;
    m->at += bytes;
    return 0;
}

/* A little-endian number of 1 to 8 bytes. */
static int take_number(struct machine *m, size_t bytes, uint64_t *number_out)
{
    const uint8_t *data = NULL;
    int status = take(m, bytes, &data);

    *number_out = status == 0 ? stk_little(data, (uint32_t)bytes) : 0;
    return status;
}

/* Text up to a newline, which is not part of it. */
static int take_line(struct machine *m, struct stk_view *line_out)
{
    const uint8_t *begin = m->bytes.data + m->at;
    const uint8_t *end = memchr(begin, '\n', m->bytes.bytes - m->at);

    if (!end) {
        return damaged(m, "the pickle ends too early");
    }
    *line_out = (struct stk_view){begin, (size_t)(end - begin)};
    m->at += line_out->bytes + 1;
    return 0;
}

static int push_text(struct machine *m, uint32_t kind, size_t length_bytes)
{
    struct stk_pickle_value value = {.kind = kind};
    const uint8_t *data = NULL;
    uint64_t bytes = 0;
    int status = take_number(m, length_bytes, &bytes);

    status = status < 0 ? status : take(m, bytes, &data);
    if (status < 0) {
        return status;
    }
    value.text = (struct stk_view){data, bytes};
    if (kind == STK_PICKLE_TEXT && !stk_utf8_check(value.text, NULL)) {
        return damaged(m, "a text of the pickle is not UTF-8");
    }
    return push_value(m, value);
}

/* ---- opcodes ---- */

static int push_integer(struct machine *m, int64_t integer)
{
    return push_value(m, (struct stk_pickle_value){.kind = STK_PICKLE_INTEGER, .integer = integer});
}

/* A number in two's complement of any length. */
static int push_long(struct machine *m, size_t length_bytes)
{
    const uint8_t *data = NULL;
    uint64_t bytes, number;
    int status = take_number(m, length_bytes, &bytes);

    status = status < 0 ? status : take(m, bytes, &data);
    if (status < 0) {
        return status;
    }
    if (bytes > 8) {
        return stk_fail(m->error, STOKER_ERROR_UNSUPPORTED,
                        "the pickle has an integer of more than 64 bits", SAVE_PLAIN,
                        "pickle, byte %zu", m->opcode_at);
    }
    number = stk_little(data, (uint32_t)bytes);
    if (bytes > 0 && bytes < 8 && data[bytes - 1] >= 0x80) {
        number |= UINT64_MAX << (8 * bytes);
    }
    return push_integer(m, (int64_t)number);
}

static int push_double(struct machine *m)
{
    struct stk_pickle_value value = {.kind = STK_PICKLE_NUMBER};
    const uint8_t *data = NULL;
    uint64_t bits = 0;
    int status = take(m, 8, &data);

    for (size_t i = 0; status == 0 && i < 8; i++) {
        bits = bits << 8 | data[i];
    }
    memcpy(&value.number, &bits, sizeof bits);
    return status < 0 ? status : push_value(m, value);
}

/* I: decimal, or 00 and 01 for booleans. */
static int push_decimal(struct machine *m)
{
    struct stk_pickle_value value = {.kind = STK_PICKLE_INTEGER};
    struct stk_view line = {0};
    char text[24];
    const char *end;
    int status = take_line(m, &line);

    if (status < 0) {
        return status;
    }
    if (line.bytes == 2 && line.data[0] == '0' && (line.data[1] == '0' || line.data[1] == '1')) {
        value.kind = STK_PICKLE_BOOLEAN;
        value.integer = line.data[1] == '1';
        return push_value(m, value);
    }
    if (line.bytes == 0 || line.bytes >= sizeof text) {
        return damaged(m, "a number of the pickle is not valid");
    }
    memcpy(text, line.data, line.bytes);
    text[line.bytes] = '\0';
    return stk_parse_int64(text, &end, &value.integer) && *end == 0
               ? push_value(m, value)
               : damaged(m, "a number of the pickle is not valid");
}

#define NOT_MINE 1 /* the opcode belongs to another group */

static int run_constant(struct machine *m, uint8_t opcode)
{
    uint64_t number = 0;
    int status = 0;

    switch (opcode) {
    case 'N':
        return push_value(m, (struct stk_pickle_value){.kind = STK_PICKLE_NONE});
    case 0x88: /* NEWTRUE, NEWFALSE */
    case 0x89:
        return push_value(
            m, (struct stk_pickle_value){.kind = STK_PICKLE_BOOLEAN, .integer = opcode == 0x88});
    case 'I':
        return push_decimal(m);
    case 'J': /* BININT, BININT1, BININT2 */
        status = take_number(m, 4, &number);
        return status < 0 ? status : push_integer(m, (int32_t)(uint32_t)number);
    case 'K':
        status = take_number(m, 1, &number);
        return status < 0 ? status : push_integer(m, (int64_t)number);
    case 'M':
        status = take_number(m, 2, &number);
        return status < 0 ? status : push_integer(m, (int64_t)number);
    case 0x8a: /* LONG1, LONG4 */
        return push_long(m, 1);
    case 0x8b:
        return push_long(m, 4);
    case 'G':
        return push_double(m);
    case 'X': /* BINUNICODE, SHORT_BINUNICODE, BINUNICODE8 */
        return push_text(m, STK_PICKLE_TEXT, 4);
    case 0x8c:
        return push_text(m, STK_PICKLE_TEXT, 1);
    case 0x8d:
        return push_text(m, STK_PICKLE_TEXT, 8);
    case 'B': /* BINBYTES, SHORT_BINBYTES, BINBYTES8 */
        return push_text(m, STK_PICKLE_BYTES, 4);
    case 'C':
        return push_text(m, STK_PICKLE_BYTES, 1);
    case 0x8e:
        return push_text(m, STK_PICKLE_BYTES, 8);
    default:
        return NOT_MINE;
    }
}

/* Adds the values above `first` to the container below them. pairs: it must be a dict. */
static int extend(struct machine *m, uint32_t first, bool marked, bool pairs)
{
    uint32_t depth = m->depth, below = first - (marked ? 1 : 0), container;
    int status = 0;

    if (below == 0 || m->stack[below - 1] == MARK) {
        return damaged(m, "the pickle adds values to nothing");
    }
    container = m->stack[below - 1];
    if (m->pickle->values[container].kind != (pairs ? STK_PICKLE_DICT : STK_PICKLE_LIST)) {
        return damaged(m, "the pickle adds values to something that is no list or dict");
    }
    if (pairs && (depth - first) % 2 != 0) {
        return damaged(m, "a key of the pickle has no value");
    }
    for (uint32_t i = first; status == 0 && i < depth; i++) {
        status = m->stack[i] == MARK ? damaged(m, "the pickle needs a value that it has not made")
                                     : append(m, container, m->stack[i]);
    }
    m->depth = below;
    return status;
}

static int run_container(struct machine *m, uint8_t opcode)
{
    uint32_t first = 0, few = 0, kind = STK_PICKLE_TUPLE;
    bool marked = false;
    int status;

    switch (opcode) {
    case '(':
        return push(m, MARK);
    case ')':
        return push_value(m, (struct stk_pickle_value){.kind = STK_PICKLE_TUPLE});
    case ']':
        return push_value(m, (struct stk_pickle_value){.kind = STK_PICKLE_LIST});
    case '}':
        return push_value(m, (struct stk_pickle_value){.kind = STK_PICKLE_DICT});
    case 0x85: /* TUPLE1 to TUPLE3 */
    case 0x86:
    case 0x87:
        few = opcode - 0x84u;
        break;
    case 'a': /* APPEND, SETITEM */
        few = 1;
        break;
    case 's':
        few = 2;
        break;
    case 't': /* TUPLE, LIST, DICT, APPENDS, SETITEMS: down to the mark */
    case 'l':
    case 'd':
    case 'e':
    case 'u':
        marked = true;
        break;
    default:
        return NOT_MINE;
    }
    if (!marked && m->depth < few) {
        return damaged(m, "the pickle needs a value that it has not made");
    }
    first = m->depth - few;
    status = marked ? find_mark(m, &first) : 0;
    if (status < 0) {
        return status;
    }
    if (opcode == 'a' || opcode == 'e' || opcode == 's' || opcode == 'u') {
        return extend(m, first, marked, opcode == 's' || opcode == 'u');
    }
    kind = opcode == 'l' ? STK_PICKLE_LIST : opcode == 'd' ? STK_PICKLE_DICT : STK_PICKLE_TUPLE;
    status = collect(m, kind, first);
    if (status == 0 && marked) { /* the container takes the place of the mark */
        m->stack[m->depth - 2] = m->stack[m->depth - 1];
        m->depth--;
    }
    return status;
}

static int store_memo(struct machine *m, uint64_t index)
{
    if (m->depth == 0 || m->stack[m->depth - 1] == MARK) {
        return damaged(m, "the pickle needs a value that it has not made");
    }
    /* torch numbers them from 0 or 1 in the order of the values. */
    if (index > m->bytes.bytes ||
        !grow((void **)&m->memo, &m->memo_capacity, (uint32_t)index + 1, sizeof *m->memo)) {
        return index > m->bytes.bytes ? damaged(m, "a memo number of the pickle is too large")
                                      : no_memory(m);
    }
    m->memo[index] = m->stack[m->depth - 1] + 1;
    m->memo_count = index >= m->memo_count ? (uint32_t)index + 1 : m->memo_count;
    return 0;
}

static int load_memo(struct machine *m, uint64_t index)
{
    if (index >= m->memo_count || m->memo[index] == 0) {
        return damaged(m, "the pickle uses a memo number that it has not stored");
    }
    return push(m, m->memo[index] - 1);
}

static int run_memo(struct machine *m, uint8_t opcode)
{
    uint64_t number = 0;
    int status;

    switch (opcode) {
    case 'q': /* BINPUT, LONG_BINPUT, MEMOIZE */
    case 'r':
        status = take_number(m, opcode == 'q' ? 1 : 4, &number);
        return status < 0 ? status : store_memo(m, number);
    case 0x94:
        return store_memo(m, m->memo_count);
    case 'h': /* BINGET, LONG_BINGET */
    case 'j':
        status = take_number(m, opcode == 'h' ? 1 : 4, &number);
        return status < 0 ? status : load_memo(m, number);
    default:
        return NOT_MINE;
    }
}

static int push_global(struct machine *m, struct stk_view module, struct stk_view name)
{
    struct stk_pickle_value value = {.kind = STK_PICKLE_GLOBAL,
                                     .global = stk_pickle_find_global(module, name)};

    if (value.global) {
        return push_value(m, value);
    }
    return stk_fail(m->error, STOKER_ERROR_UNSUPPORTED,
                    "the pickle needs a class or function that is not read without Python",
                    SAVE_PLAIN, "%.*s.%.*s, byte %zu", (int)stk_min(module.bytes, 150),
                    (const char *)module.data, (int)stk_min(name.bytes, 150),
                    (const char *)name.data, m->opcode_at);
}

static int run_global(struct machine *m, bool lines)
{
    struct stk_view module = {0}, name = {0};
    uint32_t first = 0, second = 0;
    int status;

    if (lines) {
        status = take_line(m, &module);
        status = status < 0 ? status : take_line(m, &name);
        if (status == 0 && (!stk_utf8_check(module, NULL) || !stk_utf8_check(name, NULL))) {
            return damaged(m, "a name of the pickle is not UTF-8");
        }
        return status < 0 ? status : push_global(m, module, name);
    }
    status = pop(m, &second);
    status = status < 0 ? status : pop(m, &first);
    if (status < 0) {
        return status;
    }
    if (m->pickle->values[first].kind != STK_PICKLE_TEXT ||
        m->pickle->values[second].kind != STK_PICKLE_TEXT) {
        return damaged(m, "the name of a class in the pickle is no text");
    }
    return push_global(m, m->pickle->values[first].text, m->pickle->values[second].text);
}

/* REDUCE, NEWOBJ. */
static int make_object(struct machine *m)
{
    struct stk_pickle_value value = {.kind = STK_PICKLE_OBJECT};
    const struct stk_pickle_value *callable;
    int status = pop(m, &value.object.arguments);

    status = status < 0 ? status : pop(m, &value.object.callable);
    if (status < 0) {
        return status;
    }
    callable = &m->pickle->values[value.object.callable];
    if (callable->kind != STK_PICKLE_GLOBAL ||
        m->pickle->values[value.object.arguments].kind != STK_PICKLE_TUPLE) {
        return damaged(m, "the pickle calls something that is no class or function");
    }
    if (callable->global->kind == STK_PICKLE_ORDERED_DICT) { /* its items follow */
        return m->pickle->values[value.object.arguments].count > 0
                   ? damaged(m, "an OrderedDict of the pickle has arguments")
                   : push_value(m, (struct stk_pickle_value){.kind = STK_PICKLE_DICT});
    }
    value.object.state = STK_PICKLE_NONE_AT;
    return push_value(m, value);
}

static int run_object(struct machine *m, uint8_t opcode)
{
    struct stk_pickle_value value = {.kind = STK_PICKLE_PERSISTENT};
    uint32_t state = 0, object = 0;
    int status;

    switch (opcode) {
    case 'c': /* GLOBAL, STACK_GLOBAL */
    case 0x93:
        return run_global(m, opcode == 'c');
    case 'R':
    case 0x81:
        return make_object(m);
    case 'b': /* BUILD */
        status = pop(m, &state);
        status = status < 0 ? status : pop(m, &object);
        if (status < 0) {
            return status;
        }
        if (m->pickle->values[object].kind == STK_PICKLE_OBJECT) {
            m->pickle->values[object].object.state = state;
        } else if (m->pickle->values[object].kind != STK_PICKLE_DICT) {
            return damaged(m, "the pickle sets the state of something that is no object");
        } /* an OrderedDict: its _metadata are versions of modules */
        return push(m, object);
    case 'Q': /* BINPERSID */
        status = pop(m, &value.object.arguments);
        return status < 0 ? status : push_value(m, value);
    default:
        return NOT_MINE;
    }
}

static int refuse(const struct machine *m, uint8_t opcode)
{
    static const struct {
        uint8_t opcode;
        const char *name;
    } names[] = {
        {'i', "INST"},        {'o', "OBJ"},          {'S', "STRING"},
        {'T', "BINSTRING"},   {'P', "PERSID"},       {'0', "POP"},
        {'1', "POP_MARK"},    {'2', "DUP"},          {'U', "SHORT_BINSTRING"},
        {'V', "UNICODE"},     {'F', "FLOAT"},        {'L', "LONG"},
        {'p', "PUT"},         {'g', "GET"},          {0x82, "EXT1"},
        {0x83, "EXT2"},       {0x84, "EXT4"},        {0x8f, "EMPTY_SET"},
        {0x90, "ADDITEMS"},   {0x91, "FROZENSET"},   {0x92, "NEWOBJ_EX"},
        {0x96, "BYTEARRAY8"}, {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"},
    };
    const char *name = "unknown";

    for (size_t i = 0; i < STK_COUNT(names); i++) {
        name = names[i].opcode == opcode ? names[i].name : name;
    }
    return stk_fail(m->error, STOKER_ERROR_UNSUPPORTED,
                    "the pickle has an opcode that torch does not write for tensors", SAVE_PLAIN,
                    "%s (0x%02x), byte %zu", name, opcode, m->opcode_at);
}

/* PROTO, FRAME. */
static int run_frame(struct machine *m, uint8_t opcode)
{
    uint64_t number = 0;
    int status = take_number(m, opcode == 0x80 ? 1 : 8, &number);

    if (status == 0 && opcode == 0x80 && number > PROTOCOL_MAX) {
        return stk_fail(m->error, STOKER_ERROR_UNSUPPORTED, "the protocol of the pickle is too new",
                        SAVE_PLAIN, "protocol %" PRIu64, number);
    }
    return status;
}

static int run(struct machine *m)
{
    for (;;) {
        const uint8_t *opcode = NULL;
        int status;

        m->opcode_at = m->at;
        status = take(m, 1, &opcode);
        if (status < 0) {
            return status;
        }
        if (*opcode == '.') {
            return pop(m, &m->pickle->root);
        }
        if (*opcode == 0x80 || *opcode == 0x95) {
            status = run_frame(m, *opcode);
        } else {
            status = run_constant(m, *opcode);
            status = status == NOT_MINE ? run_container(m, *opcode) : status;
            status = status == NOT_MINE ? run_memo(m, *opcode) : status;
            status = status == NOT_MINE ? run_object(m, *opcode) : status;
        }
        if (status != 0) {
            return status == NOT_MINE ? refuse(m, *opcode) : status;
        }
    }
}

int stk_pickle_parse(struct stk_pickle *pickle, struct stk_view bytes, struct stoker_error *error)
{
    struct machine machine = {.pickle = pickle, .bytes = bytes, .error = error};
    int status;

    *pickle = (struct stk_pickle){0};
    if (bytes.bytes > STK_PICKLE_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the pickle is too long", DAMAGED,
                        "%zu bytes, at most %u", bytes.bytes, STK_PICKLE_BYTES_MAX);
    }
    status = run(&machine);
    stk_free(machine.stack);
    stk_free(machine.memo);
    if (status < 0) {
        stk_pickle_deinit(pickle);
    }
    return status;
}

void stk_pickle_deinit(struct stk_pickle *pickle)
{
    stk_free(pickle->values);
    stk_free(pickle->cells);
    *pickle = (struct stk_pickle){0};
}

/* ---- reading values ---- */

const struct stk_pickle_value *stk_pickle_item(const struct stk_pickle *pickle,
                                               const struct stk_pickle_value *value, uint32_t index)
{
    uint32_t cell;

    if (value->kind < STK_PICKLE_TUPLE || value->kind > STK_PICKLE_DICT || index >= value->count) {
        return NULL;
    }
    cell = value->items.first;
    while (index-- > 0) {
        cell = pickle->cells[cell].next;
    }
    return &pickle->values[pickle->cells[cell].value];
}

const struct stk_pickle_value *stk_pickle_get(const struct stk_pickle *pickle,
                                              const struct stk_pickle_value *dict, const char *key)
{
    size_t bytes = strlen(key);
    uint32_t cell;

    if (!dict || dict->kind != STK_PICKLE_DICT || dict->count == 0) {
        return NULL;
    }
    cell = dict->items.first;
    for (uint32_t i = 0; i < dict->count; i += 2) {
        const struct stk_pickle_value *name = &pickle->values[pickle->cells[cell].value];

        cell = pickle->cells[cell].next;
        if (name->kind == STK_PICKLE_TEXT && name->text.bytes == bytes &&
            memcmp(name->text.data, key, bytes) == 0) {
            return &pickle->values[pickle->cells[cell].value];
        }
        cell = pickle->cells[cell].next;
    }
    return NULL;
}

bool stk_pickle_is(const struct stk_pickle *pickle, const struct stk_pickle_value *value,
                   uint32_t global_kind)
{
    return value && value->kind == STK_PICKLE_OBJECT &&
           pickle->values[value->object.callable].global->kind == global_kind;
}

bool stk_pickle_numbers(const struct stk_pickle *pickle, const struct stk_pickle_value *value,
                        uint64_t *numbers, uint32_t capacity, uint32_t *count_out)
{
    if (stk_pickle_is(pickle, value, STK_PICKLE_SIZE)) {
        const struct stk_pickle_value *arguments = &pickle->values[value->object.arguments];

        *count_out = 0;
        if (arguments->count == 0) { /* torch.Size(()) may have none */
            return true;
        }
        value = stk_pickle_item(pickle, arguments, 0);
    }
    if (!value || (value->kind != STK_PICKLE_TUPLE && value->kind != STK_PICKLE_LIST) ||
        value->count > capacity) {
        return false;
    }
    for (uint32_t i = 0; i < value->count; i++) {
        const struct stk_pickle_value *item = stk_pickle_item(pickle, value, i);

        if (item->kind != STK_PICKLE_INTEGER || item->integer < 0) {
            return false;
        }
        numbers[i] = (uint64_t)item->integer;
    }
    *count_out = value->count;
    return true;
}
