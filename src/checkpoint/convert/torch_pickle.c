/* Writes a tree as a pickle that torch.load(weights_only=True) reads. */
#include "base/mem.h"
#include "base/text/parse_number.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/layout/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEVELS_MAX 400u
#define LONG_BYTES_MAX 200u

/* The storage of a dtype; NULL: untyped, with the name of the dtype. */
static const struct {
    const char *dtype, *storage, *name;
} kinds[] = {
    {"F32", "FloatStorage", NULL},
    {"F64", "DoubleStorage", NULL},
    {"F16", "HalfStorage", NULL},
    {"BF16", "BFloat16Storage", NULL},
    {"I64", "LongStorage", NULL},
    {"I32", "IntStorage", NULL},
    {"I16", "ShortStorage", NULL},
    {"I8", "CharStorage", NULL},
    {"U8", "ByteStorage", NULL},
    {"BOOL", "BoolStorage", NULL},
    {"C64", "ComplexFloatStorage", NULL},
    {"U16", NULL, "uint16"},
    {"U32", NULL, "uint32"},
    {"U64", NULL, "uint64"},
    {"F8_E4M3", NULL, "float8_e4m3fn"},
    {"F8_E5M2", NULL, "float8_e5m2"},
    {"F8_E4M3FNUZ", NULL, "float8_e4m3fnuz"},
    {"F8_E5M2FNUZ", NULL, "float8_e5m2fnuz"},
    {"F8_E8M0", NULL, "float8_e8m0fnu"},
};

struct name {
    const char *name;
    uint64_t output;
};
struct pickler {
    const struct stk_convert_plan *plan;
    struct stk_json_text *out;
    struct name *names; /* owned; sorted */
    struct stoker_error *error;
};

static int fail(const struct pickler *p, const char *what, const char *name)
{
    return stk_fail(p->error, STOKER_ERROR_FORMAT, what, "convert to safetensors instead",
                    "'%.300s'", name);
}

static void add(struct pickler *p, const char *text)
{
    stk_json_text_add(p->out, text, strlen(text));
}

static void add_number(struct pickler *p, uint64_t number, uint32_t bytes)
{
    stk_json_text_little(p->out, number, bytes);
}

static void add_text(struct pickler *p, const char *text, size_t bytes)
{
    add(p, "X");
    add_number(p, bytes, 4);
    stk_json_text_add(p->out, text, bytes);
}

static void add_integer(struct pickler *p, int64_t number)
{
    if (number >= INT32_MIN && number <= INT32_MAX) {
        add(p, "J");
        add_number(p, (uint32_t)number, 4);
    } else {
        add(p, "\x8a\x08");
        add_number(p, (uint64_t)number, 8);
    }
}

/* A decimal number of any length, in two's complement. */
static int add_long(struct pickler *p, const char *text)
{
    uint8_t bytes[LONG_BYTES_MAX] = {0};
    size_t used = 1;
    bool negative = *text == '-';
    const char *digit = text + negative;
    uint32_t carry = 1;

    for (; *digit >= '0' && *digit <= '9'; digit++) {
        uint32_t more = (uint32_t)(*digit - '0');

        for (size_t i = 0; i < used; i++) {
            more += bytes[i] * 10u;
            bytes[i] = (uint8_t)more;
            more >>= 8;
        }
        if (more > 0 && used + 1 < sizeof bytes) {
            bytes[used++] = (uint8_t)more;
        } else if (more > 0) {
            return fail(p, "an integer is too large", text);
        }
    }
    if (*digit || digit == text + negative) {
        return fail(p, "an integer of the tree is not valid", text);
    }
    used += bytes[used - 1] >= 0x80; /* room for the sign */
    for (size_t i = 0; negative && i < used; i++) {
        carry += (uint8_t)~bytes[i];
        bytes[i] = (uint8_t)carry;
        carry >>= 8;
    }
    add(p, "\x8a");
    add_number(p, used, 1);
    stk_json_text_add(p->out, (const char *)bytes, used);
    return 0;
}

static void add_double(struct pickler *p, double number)
{
    uint64_t bits;

    memcpy(&bits, &number, sizeof bits);
    add(p, "G");
    add_number(p, __builtin_bswap64(bits), 8);
}

/* ---- tensors ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->name, ((const struct name *)b)->name);
}

static void add_tuple(struct pickler *p, const uint64_t *numbers, uint32_t count)
{
    add(p, "(");
    for (uint32_t i = 0; i < count; i++) {
        add_integer(p, (int64_t)numbers[i]);
    }
    add(p, "t");
}

static int add_tensor(struct pickler *p, uint64_t output)
{
    const struct stk_foreign_tensor *tensor = &p->plan->outputs.tensors[output];
    uint64_t strides[STOKER_CHECKPOINT_DIMENSIONS_MAX], step = 1;
    char key[24];
    size_t kind = 0;

    while (kind < STK_COUNT(kinds) && strcmp(kinds[kind].dtype, tensor->dtype) != 0) {
        kind++;
    }
    if (kind == STK_COUNT(kinds)) {
        return stk_fail(p->error, STOKER_ERROR_UNSUPPORTED, "torch has no storage of this dtype",
                        "convert to safetensors instead", "tensor '%.300s' of dtype %s",
                        tensor->name, tensor->dtype);
    }
    for (uint32_t i = tensor->dimension_count; i-- > 0;) {
        strides[i] = step;
        step *= stk_max(tensor->shape[i], 1);
    }
    snprintf(key, sizeof key, "%" PRIu64, output);
    add(p, kinds[kind].storage ? "ctorch._utils\n_rebuild_tensor_v2\n(("
                               : "ctorch._utils\n_rebuild_tensor_v3\n((");
    add_text(p, "storage", 7);
    add(p, kinds[kind].storage ? "ctorch\n" : "ctorch.storage\nUntypedStorage\n");
    if (kinds[kind].storage) {
        add(p, kinds[kind].storage);
        add(p, "\n");
    }
    add_text(p, key, strlen(key));
    add_text(p, "cpu", 3);
    add_integer(
        p, (int64_t)(kinds[kind].storage ? tensor->bytes / tensor->element_bytes : tensor->bytes));
    add(p, "tQ");
    add_integer(p, 0);
    add_tuple(p, tensor->shape, tensor->dimension_count);
    add_tuple(p, strides, tensor->dimension_count);
    add(p, "\x89"
           "ccollections\nOrderedDict\n)R");
    if (!kinds[kind].storage) {
        add(p, "ctorch\n");
        add(p, kinds[kind].name);
        add(p, "\n");
    }
    add(p, "tR");
    return 0;
}

static int add_named(struct pickler *p, const char *name)
{
    struct name wanted = {name, 0};
    const struct name *found =
        name && p->plan->outputs.count > 0
            ? bsearch(&wanted, p->names, p->plan->outputs.count, sizeof wanted, by_name)
            : NULL;

    return found ? add_tensor(p, found->output)
                 : fail(p, "a tensor of the tree is missing", name ? name : "");
}

/* ---- nodes ---- */

static int add_node(struct pickler *p, json_t *node, uint32_t level);

static int add_items(struct pickler *p, json_t *list, uint32_t level)
{
    json_t *item;
    size_t index;
    int status = 0;

    json_array_foreach(list, index, item)
    {
        status = status < 0 ? status : add_node(p, item, level + 1);
    }
    return status;
}

static int add_mapping(struct pickler *p, json_t *content, uint32_t level)
{
    json_t *item;
    const char *key;
    size_t index;
    int status = 0;

    add(p, "}(");
    if (json_is_object(content)) {
        json_object_foreach(content, key, item)
        {
            add_text(p, key, strlen(key));
            status = status < 0 ? status : add_node(p, item, level + 1);
        }
    }
    json_array_foreach(content, index, item) /* pairs */
    {
        if (status == 0 && json_array_size(item) != 2) {
            status = fail(p, "a pair of the tree is not valid", "pairs");
        }
        status = status < 0 ? status : add_node(p, json_array_get(item, 0), level + 1);
        status = status < 0 ? status : add_node(p, json_array_get(item, 1), level + 1);
    }
    add(p, "u");
    return status;
}

/* Base64, as our trees have it: complete groups of four. */
static int add_bytes(struct pickler *p, const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct stk_json_text latin = {0};
    uint32_t group = 0;
    int have = 0;

    for (const char *at = text; *at && *at != '='; at++) {
        const char *digit = strchr(digits, *at);

        if (!digit) {
            stk_json_text_deinit(&latin);
            return fail(p, "bytes of the tree are not valid", "base64");
        }
        group = group << 6 | (uint32_t)(digit - digits);
        have += 6;
        if (have >= 8) { /* the character with this number, in UTF-8 */
            uint8_t byte = (uint8_t)(group >> (have -= 8));

            if (byte >= 0x80) {
                stk_json_text_fill(&latin, (char)(0xc0 | byte >> 6), 1);
                byte = 0x80 | (byte & 0x3f);
            }
            stk_json_text_fill(&latin, (char)byte, 1);
        }
    }
    add(p, "c_codecs\nencode\n");
    add_text(p, latin.text ? latin.text : "", latin.bytes);
    add_text(p, "latin1", 6);
    add(p, "\x86R");
    p->out->failed = p->out->failed || latin.failed;
    stk_json_text_deinit(&latin);
    return 0;
}

static int add_special(struct pickler *p, const char *kind, json_t *content, uint32_t level)
{
    const char *text = json_string_value(content);
    int status;

    if (strcmp(kind, "dict") == 0 || strcmp(kind, "pairs") == 0) {
        return add_mapping(p, content, level);
    }
    if (strcmp(kind, "tuple") == 0) {
        add(p, "(");
        status = add_items(p, content, level);
        add(p, "t");
        return status;
    }
    if (!text) {
        return fail(p, "the tree has an unknown node", kind);
    }
    if (strcmp(kind, "torch") == 0 || strcmp(kind, "numpy") == 0 || strcmp(kind, "jax") == 0 ||
        strcmp(kind, "scalar") == 0) {
        return add_named(p, text);
    }
    if (strcmp(kind, "int") == 0) {
        return add_long(p, text);
    }
    if (strcmp(kind, "float") == 0) {
        const char *end;
        double number;

        if (!stk_parse_double(text, &end, &number) || *end) {
            return fail(p, "the tree has a number that is none", text);
        }
        add_double(p, number);
        return 0;
    }
    if (strcmp(kind, "bytes") == 0) {
        return add_bytes(p, text);
    }
    if (strcmp(kind, "torch.dtype") == 0 &&
        text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0') {
        add(p, "ctorch\n");
        add(p, text);
        add(p, "\n");
        return 0;
    }
    if (strcmp(kind, "torch.device") == 0) {
        add(p, "ctorch\ndevice\n");
        add_text(p, text, strlen(text));
        add(p, "\x85R");
        return 0;
    }
    return fail(p, "the tree has an unknown type", kind);
}

static int add_node(struct pickler *p, json_t *node, uint32_t level)
{
    int status;

    if (level > LEVELS_MAX) {
        return fail(p, "the tree has too many levels", "");
    }
    switch (json_typeof(node)) {
    case JSON_NULL:
        add(p, "N");
        return 0;
    case JSON_TRUE:
    case JSON_FALSE:
        add(p, json_is_true(node) ? "\x88" : "\x89");
        return 0;
    case JSON_INTEGER:
        add_integer(p, json_integer_value(node));
        return 0;
    case JSON_REAL:
        add_double(p, json_real_value(node));
        return 0;
    case JSON_STRING:
        add_text(p, json_string_value(node), json_string_length(node));
        return 0;
    case JSON_ARRAY:
        add(p, "](");
        status = add_items(p, node, level);
        add(p, "e");
        return status;
    case JSON_OBJECT:
    default:
        if (json_object_size(node) == 1) {
            void *only = json_object_iter(node);

            return add_special(p, json_object_iter_key(only), json_object_iter_value(only), level);
        }
        return fail(p, "the tree has an unknown node", "");
    }
}

int stk_convert_pickle(const struct stk_convert_plan *plan, struct stk_json_text *pickle,
                       struct stoker_error *error)
{
    struct pickler p = {.plan = plan, .out = pickle, .error = error};
    int status = 0;

    p.names = stk_alloc(plan->outputs.count + 1, sizeof *p.names);
    if (!p.names) {
        return stk_fail_memory(error, "pickle of a conversion");
    }
    for (uint64_t i = 0; i < plan->outputs.count; i++) {
        p.names[i] = (struct name){plan->outputs.tensors[i].name, i};
    }
    qsort(p.names, plan->outputs.count, sizeof *p.names, by_name);
    add(&p, "\x80\x02");
    if (plan->tree) {
        status = add_node(&p, plan->tree, 0);
    } else { /* tensors by name */
        add(&p, "}(");
        for (uint64_t i = 0; status == 0 && i < plan->outputs.count; i++) {
            add_text(&p, plan->outputs.tensors[i].name, strlen(plan->outputs.tensors[i].name));
            status = add_tensor(&p, i);
        }
        add(&p, "u");
    }
    add(&p, ".");
    stk_free(p.names);
    return status == 0 && pickle->failed ? stk_fail_memory(error, "pickle of a conversion")
                                         : status;
}
