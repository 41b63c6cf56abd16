/* Writes the values of a pickle of torch as JSON, and reports its tensors. */
#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/text/parse_number.h"
#include "checkpoint/foreign/foreign_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TREE_BYTES_MAX (512u << 20)
#define EXACT_MAX (INT64_C(1) << 53) /* of integers in JSON */

static int fail(const struct stk_torch_walk *walk, const char *what)
{
    return stk_fail(walk->error, STOKER_ERROR_FORMAT, what, STK_FOREIGN_ADVICE, "value '%.300s'",
                    walk->path);
}

int stk_torch_print_text(struct stk_json_text *json, struct stk_view text,
                         struct stoker_error *error)
{
    char *copy;

    if (memchr(text.data, 0, text.bytes)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a text has a NUL character", "save bytes",
                        "'%.200s'", (const char *)text.data);
    }
    copy = stk_alloc(text.bytes + 1, 1);
    if (!copy) {
        return stk_fail_memory(error, "a text of a checkpoint");
    }
    memcpy(copy, text.data, text.bytes);
    stk_json_text_string(json, copy);
    stk_free(copy);
    return 0;
}

static void print_number(struct stk_json_text *json, double number)
{
    char text[40];
    const char *end;
    double again;

    for (int digits = 15; digits <= 17; digits++) {
        stk_format_double(text, sizeof text, digits, number);
        if (stk_parse_double(text, &end, &again) && again == number) {
            break;
        }
    }
    if (!strpbrk(text, ".e")) {
        strncat(text, ".0", sizeof text - strlen(text) - 1); /* a float, also in JSON */
    }
    stk_json_text_print(json, "%s", text);
}

static void print_bytes(struct stk_json_text *json, struct stk_view bytes)
{
    char text[STK_BASE64_BYTES];

    stk_json_text_print(json, "{\"bytes\":\"");
    for (size_t at = 0; at < bytes.bytes; at += 48) { /* a multiple of 3: no padding between */
        stk_base64(bytes.data + at, (size_t)stk_min(bytes.bytes - at, 48), text);
        stk_json_text_add(json, text, strlen(text));
    }
    stk_json_text_print(json, "\"}");
}

/* Adds a key to the path. Returns false if it is too long. */
static bool enter(struct stk_torch_walk *walk, struct stk_view key)
{
    size_t dot = walk->path_bytes > 0;

    if (walk->path_bytes + dot + key.bytes + 1 > sizeof walk->path ||
        memchr(key.data, 0, key.bytes)) {
        return false;
    }
    if (dot) {
        walk->path[walk->path_bytes++] = '.';
    }
    memcpy(walk->path + walk->path_bytes, key.data, key.bytes);
    walk->path_bytes += key.bytes;
    walk->path[walk->path_bytes] = '\0';
    return true;
}

static void leave(struct stk_torch_walk *walk, size_t path_bytes)
{
    walk->path_bytes = path_bytes;
    walk->path[path_bytes] = '\0';
}

/* A key of a dict as a part of a path: text, or a number. */
static struct stk_view key_text(const struct stk_pickle_value *key, char number[32])
{
    if (key->kind == STK_PICKLE_TEXT) {
        return key->text;
    }
    if (key->kind == STK_PICKLE_INTEGER) {
        snprintf(number, 32, "%" PRId64, key->integer);
    } else {
        snprintf(number, 32, "?");
    }
    return (struct stk_view){(const uint8_t *)number, strlen(number)};
}

static int walk_items(struct stk_torch_walk *walk, const struct stk_pickle_value *value)
{
    const struct stk_pickle *pickle = &walk->file->pickle;
    uint32_t cell = value->items.first;
    size_t path_bytes = walk->path_bytes;
    char number[32];
    int status = 0;

    stk_json_text_print(walk->tree, value->kind == STK_PICKLE_TUPLE ? "{\"tuple\":[" : "[");
    for (uint32_t i = 0; status == 0 && i < value->count; i++) {
        snprintf(number, sizeof number, "%" PRIu32, i);
        if (i > 0) {
            stk_json_text_print(walk->tree, ",");
        }
        status = enter(walk, (struct stk_view){(const uint8_t *)number, strlen(number)})
                     ? stk_torch_walk(walk, &pickle->values[pickle->cells[cell].value])
                     : fail(walk, "the path of a value is too long");
        leave(walk, path_bytes);
        cell = pickle->cells[cell].next;
    }
    stk_json_text_print(walk->tree, value->kind == STK_PICKLE_TUPLE ? "]}" : "]");
    return status;
}

static bool has_text_keys(const struct stk_pickle *pickle, const struct stk_pickle_value *dict)
{
    uint32_t cell = dict->items.first;

    for (uint32_t i = 0; i < dict->count; i++) {
        if (i % 2 == 0 && pickle->values[pickle->cells[cell].value].kind != STK_PICKLE_TEXT) {
            return false;
        }
        cell = pickle->cells[cell].next;
    }
    return true;
}

/* One key and its value. */
static int walk_pair(struct stk_torch_walk *walk, const struct stk_pickle_value *key,
                     const struct stk_pickle_value *value, bool texts)
{
    size_t path_bytes = walk->path_bytes;
    struct stk_json_text *values = walk->values;
    char number[32];
    int status;

    if (texts) {
        status = stk_torch_print_text(walk->tree, key->text, walk->error);
        stk_json_text_print(walk->tree, ":");
    } else {
        if (key->kind > STK_PICKLE_TEXT && key->kind != STK_PICKLE_TUPLE) {
            return fail(walk, "a key is no text, number or tuple");
        }
        stk_json_text_print(walk->tree, "[");
        walk->values = NULL;
        status = stk_torch_walk(walk, key);
        walk->values = values;
        stk_json_text_print(walk->tree, ",");
    }
    if (status == 0) {
        status = enter(walk, key_text(key, number)) ? stk_torch_walk(walk, value)
                                                    : fail(walk, "the path of a value is too long");
    }
    leave(walk, path_bytes);
    if (!texts) {
        stk_json_text_print(walk->tree, "]");
    }
    return status;
}

static int walk_dict(struct stk_torch_walk *walk, const struct stk_pickle_value *dict)
{
    const struct stk_pickle *pickle = &walk->file->pickle;
    bool texts = has_text_keys(pickle, dict);
    uint32_t cell = dict->items.first;
    int status = 0;

    stk_json_text_print(walk->tree, texts ? "{\"dict\":{" : "{\"pairs\":[");
    for (uint32_t i = 0; status == 0 && i < dict->count; i += 2) {
        const struct stk_pickle_value *key = &pickle->values[pickle->cells[cell].value];
        uint32_t next = pickle->cells[cell].next;

        if (i > 0) {
            stk_json_text_print(walk->tree, ",");
        }
        status = walk_pair(walk, key, &pickle->values[pickle->cells[next].value], texts);
        cell = pickle->cells[next].next;
    }
    stk_json_text_print(walk->tree, texts ? "}}" : "]}");
    return status;
}

static int walk_tensor(struct stk_torch_walk *walk, const struct stk_pickle_value *value)
{
    const char *name = walk->path_bytes > 0 ? walk->path : "tensor";
    struct stk_view text = {(const uint8_t *)name, strlen(name)};
    struct stk_torch_array array;
    int status = stk_torch_array(walk->file, value, name, &array, walk->error);

    status = status < 0 ? status : walk->tensor(walk->context, name, &array, walk->error);
    stk_json_text_print(walk->tree, "{\"torch\":");
    status = status < 0 ? status : stk_torch_print_text(walk->tree, text, walk->error);
    stk_json_text_print(walk->tree, "}");
    return status;
}

/* torch.device('cuda', 0), PosixPath('a', 'b'): their arguments, joined. */
static int walk_joined(struct stk_torch_walk *walk, const struct stk_pickle_value *arguments,
                       char separator)
{
    const struct stk_pickle *pickle = &walk->file->pickle;
    char text[1024] = "";
    size_t bytes = 0;

    for (uint32_t i = 0; i < arguments->count; i++) {
        const struct stk_pickle_value *part = stk_pickle_item(pickle, arguments, i);
        char number[32];
        struct stk_view view;

        if (part->kind != STK_PICKLE_TEXT && part->kind != STK_PICKLE_INTEGER) {
            return fail(walk, "a device or path is not valid");
        }
        view = key_text(part, number);
        if (bytes + view.bytes + 2 > sizeof text) {
            return fail(walk, "a device or path is too long");
        }
        if (i > 0 && !(i == 1 && separator == '/' && text[0] == '/')) {
            text[bytes++] = separator;
        }
        memcpy(text + bytes, view.data, view.bytes);
        bytes += view.bytes;
    }
    return stk_torch_print_text(walk->tree, (struct stk_view){(const uint8_t *)text, bytes},
                                walk->error);
}

/* Bytes of protocol 2: a text whose characters are the bytes. */
static int walk_encoded(struct stk_torch_walk *walk, const struct stk_pickle_value *text)
{
    struct stk_view bytes = {0};
    uint8_t *decoded;
    size_t count = 0;

    if (!text) {
        print_bytes(walk->tree, bytes);
        return 0;
    }
    decoded = text->kind == STK_PICKLE_TEXT ? stk_alloc(text->text.bytes + 1, 1) : NULL;
    if (!decoded) {
        return text->kind == STK_PICKLE_TEXT ? stk_fail_memory(walk->error, "bytes of a checkpoint")
                                             : fail(walk, "bytes are not valid");
    }
    for (size_t i = 0; i < text->text.bytes; i++) { /* valid UTF-8 */
        uint8_t byte = text->text.data[i];

        if (byte >= 0xc4) {
            stk_free(decoded);
            return fail(walk, "bytes are not valid");
        }
        decoded[count++] =
            byte < 0x80 ? byte : (uint8_t)(byte << 6 | (text->text.data[++i] & 0x3f));
    }
    bytes = (struct stk_view){decoded, count};
    print_bytes(walk->tree, bytes);
    stk_free(decoded);
    return 0;
}

static int walk_object(struct stk_torch_walk *walk, const struct stk_pickle_value *value)
{
    const struct stk_pickle *pickle = &walk->file->pickle;
    const struct stk_pickle_global *global = pickle->values[value->object.callable].global;
    const struct stk_pickle_value *arguments = stk_pickle_at(pickle, value->object.arguments);
    const struct stk_pickle_value *first = stk_pickle_item(pickle, arguments, 0);
    int status;

    switch (global->kind) {
    case STK_PICKLE_REBUILD_TENSOR:
        return walk_tensor(walk, value);
    case STK_PICKLE_REBUILD_PARAMETER:
        return stk_pickle_is(pickle, first, STK_PICKLE_REBUILD_TENSOR)
                   ? walk_tensor(walk, first)
                   : fail(walk, "a parameter has no tensor");
    case STK_PICKLE_SIZE:
        return first && first->kind == STK_PICKLE_TUPLE ? stk_torch_walk(walk, first)
                                                        : stk_torch_walk(walk, arguments);
    case STK_PICKLE_ENCODED_BYTES:
        return walk_encoded(walk, first);
    case STK_PICKLE_PATH:
        return walk_joined(walk, arguments, '/');
    case STK_PICKLE_DEVICE:
        stk_json_text_print(walk->tree, "{\"torch.device\":");
        status = walk_joined(walk, arguments, ':');
        stk_json_text_print(walk->tree, "}");
        return status;
    default:
        return stk_fail(walk->error, STOKER_ERROR_UNSUPPORTED,
                        "the checkpoint has an object that is no tensor, number or text",
                        "load it with torch, and save tensors, numbers and text only",
                        "value '%.300s': %s.%s", walk->path, global->module, global->name);
    }
}

static void print_scalar(struct stk_json_text *json, const struct stk_pickle_value *value)
{
    if (value->kind == STK_PICKLE_NONE) {
        stk_json_text_print(json, "null");
    } else if (value->kind == STK_PICKLE_BOOLEAN) {
        stk_json_text_print(json, value->integer ? "true" : "false");
    } else if (value->kind == STK_PICKLE_INTEGER) {
        bool exact = value->integer < EXACT_MAX && value->integer > -EXACT_MAX;

        stk_json_text_print(json, exact ? "%" PRId64 : "{\"int\":\"%" PRId64 "\"}", value->integer);
    } else if (isfinite(value->number)) {
        print_number(json, value->number);
    } else {
        stk_json_text_print(json, "{\"float\":\"%s\"}",
                            isnan(value->number) ? "nan"
                            : value->number > 0  ? "inf"
                                                 : "-inf");
    }
}

/* A scalar or text of the tree, also in the flat object of values. */
static int walk_scalar(struct stk_torch_walk *walk, const struct stk_pickle_value *value)
{
    struct stk_json_text *to[2] = {walk->tree, walk->values};
    int status = 0;

    if (walk->values) {
        struct stk_view path = {(const uint8_t *)walk->path, walk->path_bytes};

        stk_json_text_print(walk->values, walk->values->bytes > 1 ? "," : "");
        status = stk_torch_print_text(walk->values, path, walk->error);
        stk_json_text_print(walk->values, ":");
    }
    for (int i = 0; status == 0 && i < 2 && to[i]; i++) {
        if (value->kind == STK_PICKLE_TEXT) {
            status = stk_torch_print_text(to[i], value->text, walk->error);
        } else {
            print_scalar(to[i], value);
        }
    }
    return status;
}

static int walk_value(struct stk_torch_walk *walk, const struct stk_pickle_value *value)
{
    switch (value->kind) {
    case STK_PICKLE_TUPLE:
    case STK_PICKLE_LIST:
        return walk_items(walk, value);
    case STK_PICKLE_DICT:
        return walk_dict(walk, value);
    case STK_PICKLE_BYTES:
        print_bytes(walk->tree, value->text);
        return 0;
    case STK_PICKLE_OBJECT:
        return walk_object(walk, value);
    case STK_PICKLE_GLOBAL:
        if (value->global->kind == STK_PICKLE_DTYPE) {
            stk_json_text_print(walk->tree, "{\"torch.dtype\":\"%s\"}", value->global->name);
            return 0;
        }
        return stk_fail(walk->error, STOKER_ERROR_UNSUPPORTED,
                        "the checkpoint has a class where a value is expected",
                        "load it with torch, and save tensors, numbers and text only",
                        "value '%.300s': %s.%s", walk->path, value->global->module,
                        value->global->name);
    case STK_PICKLE_PERSISTENT:
        return stk_fail(walk->error, STOKER_ERROR_UNSUPPORTED,
                        "the checkpoint has a storage outside of a tensor", "save tensors",
                        "value '%.300s'", walk->path);
    default:
        return walk_scalar(walk, value);
    }
}

int stk_torch_walk(struct stk_torch_walk *walk, const struct stk_pickle_value *value)
{
    /* Values may be shared, and contain themselves: few bytes could be a tree without end. */
    uint64_t parts = (uint64_t)walk->file->pickle.value_count + walk->file->pickle.cell_count;
    int status;

    if (++walk->steps > parts * 4 + 1000 || walk->tree->bytes > TREE_BYTES_MAX) {
        return stk_fail(walk->error, STOKER_ERROR_LIMIT,
                        "the values of the checkpoint contain each other too often",
                        "this is no file of torch.save(): do not trust it", "value '%.300s'",
                        walk->path);
    }
    if (walk->level >= STK_FOREIGN_LEVELS_MAX) {
        return stk_fail(walk->error, STOKER_ERROR_LIMIT,
                        "the values of the checkpoint have more than 200 levels",
                        "save a flatter tree", "value '%.300s'", walk->path);
    }
    walk->level++;
    status = walk_value(walk, value);
    walk->level--;
    if (status == 0 && (walk->tree->failed || (walk->values && walk->values->failed))) {
        status = stk_fail_memory(walk->error, "tree of a checkpoint");
    }
    return status;
}
