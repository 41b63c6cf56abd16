/* JSON (RFC 8259) by jansson: any value at the top, UTF-8 only. Integers beyond int64 and uint64
 * are real numbers. */
#include "format/value/value_private.h"

#include "base/mem.h"
#include "base/text/parse_number.h"
#include "base/text/text_match.h"

#include <jansson.h>
#include <string.h>

/* The memory of jansson 2.14 per item, with malloc's overhead: structs of hashtable.h and
 * jansson_private.h, tables at their first growth. */
#define MAP_BYTES 320u
#define LIST_BYTES 192u
#define VALUE_BYTES 128u /* a number or text, its slot, its key's node */
#define FIXED_BYTES 4096u

uint64_t stk_json_memory_bytes(struct stk_view bytes)
{
    /* Commas and brackets in text count too: it is an upper bound. Each byte of text may be held
     * twice, by the lexer and by its value, and a name once more. */
    uint64_t sum = FIXED_BYTES + 3 * (uint64_t)bytes.bytes;

    sum += bytes.bytes + bytes.bytes / 4; /* a copy, see stk_json_rewrite */

    for (size_t i = 0; i < bytes.bytes; i++) {
        uint8_t byte = bytes.data[i];

        sum += byte == '{'                  ? MAP_BYTES
               : byte == '['                ? LIST_BYTES
               : byte == ',' || byte == ':' ? VALUE_BYTES
                                            : 0;
    }
    return sum;
}

/* Replaces a text of stk_json_rewrite by the number or the kind that it represents. */
static void read_rewritten(struct stk_value_node *out)
{
    size_t begin = strlen(STK_JSON_NATURAL);
    const char *end, *text = (const char *)out->text.data;
    uint64_t natural;

    if (out->text.bytes <= begin || memcmp(text, STK_JSON_NATURAL, begin) != 0) {
        return;
    }
    if (strcmp(text, STK_JSON_OVERFLOW) == 0) {
        out->kind = STK_VALUE_NODE_OVERFLOW;
    } else if (strcmp(text, STK_JSON_SURROGATE) == 0) {
        out->kind = STK_VALUE_NODE_SURROGATE;
    } else if (text[begin] >= '1' && text[begin] <= '9' &&
               stk_parse_uint64(text + begin, &end, &natural) && natural > INT64_MAX &&
               end == text + out->text.bytes) {
        out->kind = STK_VALUE_NODE_NUMBER;
        out->number.kind = STK_NUMBER_UINT;
        out->number.natural = natural;
    }
}

static void read_node(const void *node, struct stk_value_node *out)
{
    const json_t *json = node;

    *out = (struct stk_value_node){.kind = STK_VALUE_NODE_NULL};
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        out->kind = STK_VALUE_NODE_MAP;
        out->length = json_object_size(json);
        break;
    case JSON_ARRAY:
        out->kind = STK_VALUE_NODE_LIST;
        out->length = json_array_size(json);
        break;
    case JSON_STRING:
        out->kind = STK_VALUE_NODE_TEXT;
        out->text =
            (struct stk_view){(const uint8_t *)json_string_value(json), json_string_length(json)};
        read_rewritten(out);
        break;
    case JSON_INTEGER:
        out->kind = STK_VALUE_NODE_NUMBER;
        out->number.kind = STK_NUMBER_INT;
        out->number.integer = json_integer_value(json);
        break;
    case JSON_REAL:
        out->kind = STK_VALUE_NODE_NUMBER;
        out->number.kind = STK_NUMBER_REAL;
        out->number.real = json_real_value(json);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        out->kind = STK_VALUE_NODE_BOOL;
        out->number.kind = STK_NUMBER_INT;
        out->number.integer = json_is_true(json);
        break;
    case JSON_NULL:
    default:
        break;
    }
}

static const void *item(const void *list, uint64_t index)
{
    return json_array_get(list, index);
}

static const void *member(const void *map, const char *name, size_t bytes)
{
    return json_object_getn(map, name, bytes);
}

/* Iterators of jansson point to constant pairs too; the library only lacks the word. */
static const void *pair(const void *map, const void *before, struct stk_value_node *name_out,
                        const void **value_out)
{
    json_t *object = (json_t *)(uintptr_t)map;
    void *at = before ? json_object_iter_next(object, (void *)(uintptr_t)before)
                      : json_object_iter(object);

    *name_out = (struct stk_value_node){.kind = STK_VALUE_NODE_TEXT};
    name_out->text =
        (struct stk_view){(const uint8_t *)json_object_iter_key(at), json_object_iter_key_len(at)};
    *value_out = json_object_iter_value(at);
    return at;
}

static void close_tree(struct stk_value_tree *tree)
{
    json_decref(tree->document);
}

static const struct stk_value_tree_type of_json = {read_node, item, member, pair, NULL, close_tree};

void stk_value_start(void)
{
    json_object_seed(0);
}

/* jansson parses by recursion, to 2,048 lists. This limit needs less stack. */
static bool too_deep(struct stk_view bytes)
{
    uint32_t depth = 0;
    bool text = false;

    for (size_t i = 0; i < bytes.bytes; i++) {
        uint8_t byte = bytes.data[i];

        if (text) {
            i += byte == '\\';
            text = byte != '"';
        } else if (byte == '"') {
            text = true;
        } else if (byte == '[' || byte == '{') {
            depth++;
        } else if ((byte == ']' || byte == '}') && depth > 0) {
            depth--;
        }
        if (depth > STK_JSON_DEPTH_MAX) {
            return true;
        }
    }
    return false;
}

/* Python's json writes NaN and Infinity, which are no JSON (RFC 8259, 6). */
static const char *advice_for(const char *text)
{
    return strstr(text, "NaN") || strstr(text, "Infinity")
               ? "write null instead of NaN and Infinity, or take it by Json(..., check=False)"
               : STK_VALUE_ADVICE;
}

static int fail_parse(const json_error_t *problem, uint64_t mark, struct stoker_error *error)
{
    enum json_error_code code = json_error_code(problem);
    int status;

    if (code == json_error_out_of_memory) {
        return stk_fail_errno(error, 12, "cannot read JSON", "free memory", "jansson");
    }
    status = stk_fail(error,
                      code == json_error_premature_end_of_input ? STOKER_ERROR_TRUNCATED
                                                                : STOKER_ERROR_CORRUPT,
                      "a member is not JSON", advice_for(problem->text), "line %d: %s",
                      problem->line, problem->text);
    if (error) {
        error->offset = mark + (problem->position > 0 ? (uint64_t)problem->position : 0);
    }
    return status;
}

/* Errors of values that are valid JSON. */
static bool is_refused_value(const json_error_t *problem)
{
    return json_error_code(problem) == json_error_numeric_overflow ||
           strstr(problem->text, "invalid Unicode");
}

/* Parses the document again without the values that jansson refuses. Returns 0, also if it is
 * damaged: then *document_out is NULL. Returns -ENOMEM if there is no memory for the copy. */
static int parse_rewritten(struct stk_view bytes, void **document_out, json_error_t *problem,
                           struct stoker_error *error)
{
    struct stk_view copy;
    int status = stk_json_rewrite(bytes, &copy, error);

    if (status == 0) {
        *document_out = json_loadb((const char *)copy.data, copy.bytes,
                                   JSON_DECODE_ANY | JSON_ALLOW_NUL, problem);
        stk_free((void *)(uintptr_t)copy.data);
    }
    return status;
}

int stk_json_open(struct stk_value_tree *tree, struct stk_view bytes, struct stoker_error *error)
{
    /* A byte order mark is passed over, as Python's json does. */
    size_t mark = stk_view_mark_bytes(bytes);
    json_error_t problem;

    if (too_deep(bytes)) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "JSON goes too deep", STK_VALUE_ADVICE,
                        "more than %u lists in lists", STK_JSON_DEPTH_MAX);
    }
    memset(&problem, 0, sizeof problem);
    tree->document = json_loadb((const char *)bytes.data + mark, bytes.bytes - mark,
                                JSON_DECODE_ANY | JSON_ALLOW_NUL, &problem);
    if (!tree->document && is_refused_value(&problem)) {
        struct stk_view text = {bytes.data + mark, bytes.bytes - mark};
        int status = parse_rewritten(text, &tree->document, &problem, error);

        if (status < 0) {
            return status;
        }
    }
    if (!tree->document) {
        return fail_parse(&problem, mark, error);
    }
    tree->type = &of_json;
    tree->root = tree->document;
    return 0;
}
