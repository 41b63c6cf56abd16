/* A value in a member, whatever its format. */
#include "format/value/value_private.h"

#include "base/mem.h"
#include "base/text/utf8.h"

#include <stdio.h>
#include <string.h>

enum stk_value_encoding stk_value_encoding_of(const char *extension, struct stk_view bytes)
{
    static const struct {
        const char *name;
        enum stk_value_encoding encoding;
    } rows[] = {
        {"json", STK_VALUE_JSON},       {"mp", STK_VALUE_MSGPACK}, {"msg", STK_VALUE_MSGPACK},
        {"msgpack", STK_VALUE_MSGPACK}, {"npy", STK_VALUE_NPY},    {"npz", STK_VALUE_NPZ},
    };
    const char *dot = strrchr(extension, '.');

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        if (strcmp(dot ? dot + 1 : extension, rows[i].name) == 0) {
            return rows[i].encoding;
        }
    }
    if (bytes.bytes >= 6 && memcmp(bytes.data, "\x93NUMPY", 6) == 0) {
        return STK_VALUE_NPY;
    }
    return bytes.bytes >= 4 && memcmp(bytes.data, "PK\3\4", 4) == 0 ? STK_VALUE_NPZ
                                                                    : STK_VALUE_UNKNOWN;
}

static int unknown(struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, "a member is not json, msgpack, npy or npz",
                    "give its name such an extension, or read it as bytes", "unknown format");
}

int stk_value_memory_bytes(uint32_t encoding, struct stk_view bytes, const char *path,
                           uint64_t *memory_bytes_out, struct stoker_error *error)
{
    struct stk_npz_member member;
    int status = 0;

    *memory_bytes_out = 0;
    switch (encoding) {
    case STK_VALUE_JSON:
        *memory_bytes_out = stk_json_memory_bytes(bytes);
        break;
    case STK_VALUE_MSGPACK:
        status = stk_msgpack_check(bytes, memory_bytes_out, error);
        break;
    case STK_VALUE_NPY:
        break;
    case STK_VALUE_NPZ:
        status = stk_npz_find(&member, bytes, path ? path : "", error);
        *memory_bytes_out = status == 0 ? member.bytes + (64u << 10) : 0; /* zlib's window */
        break;
    default:
        return unknown(error);
    }
    return status;
}

static int open_npz(struct stk_value *value, struct stoker_error *error)
{
    struct stk_npz_member member;
    struct stk_view unpacked;
    int status = stk_npz_find(&member, value->bytes, value->path, error);

    if (status < 0) {
        return status;
    }
    value->inflated = stk_alloc(member.bytes, 1);
    if (!value->inflated) {
        return stk_fail_errno(error, 12, "cannot decompress an npz", "free memory", "%llu bytes",
                              (unsigned long long)member.bytes);
    }
    value->inflated_bytes = member.bytes;
    status = stk_npz_inflate(&member, value->inflated, error);
    unpacked = (struct stk_view){value->inflated, member.bytes};
    status = status < 0 ? status : stk_npy_parse(&value->array, unpacked, error);
    if (status < 0 && error) {
        error->offset = STOKER_NO_OFFSET; /* it would count decompressed bytes */
    }
    return status;
}

static int open_tree(struct stk_value *value, struct stoker_error *error)
{
    struct stk_value_tree *tree = stk_alloc(1, sizeof *tree);
    int status;

    if (!tree) {
        return stk_fail_errno(error, 12, "cannot read a member", "free memory", "tree");
    }
    value->tree = tree;
    status = value->encoding == STK_VALUE_JSON ? stk_json_open(tree, value->bytes, error)
                                               : stk_msgpack_open(tree, value->bytes, error);
    return status < 0 ? status : stk_value_tree_find(tree, value->path, &value->location, error);
}

int stk_value_open(struct stk_value *value, uint32_t encoding, struct stk_view bytes,
                   const char *path, uint64_t memory_bytes_max, struct stoker_error *error)
{
    uint64_t memory_bytes;
    int status;

    *value = (struct stk_value){.encoding = encoding, .bytes = bytes, .path = path ? path : ""};
    status = stk_value_memory_bytes(encoding, bytes, path, &memory_bytes, error);
    if (status < 0) {
        return status;
    }
    if (memory_bytes > memory_bytes_max) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "reading a member takes too much memory",
                        "raise decode_bytes_max, or leave the member out",
                        "up to %llu bytes needed, %llu granted", (unsigned long long)memory_bytes,
                        (unsigned long long)memory_bytes_max);
    }
    if (encoding == STK_VALUE_NPY) {
        status = value->path[0] ? stk_fail(error, STOKER_ERROR_ARGUMENT,
                                           "an npy holds one array and has no paths",
                                           "leave the path out", "path '%.64s'", value->path)
                                : stk_npy_parse(&value->array, bytes, error);
    } else {
        status = encoding == STK_VALUE_NPZ ? open_npz(value, error) : open_tree(value, error);
    }
    if (status < 0) {
        stk_value_close(value);
    }
    return status;
}

void stk_value_close(struct stk_value *value)
{
    if (value->tree && value->tree->type) {
        value->tree->type->close(value->tree);
    }
    stk_free(value->tree);
    stk_free(value->inflated);
    value->tree = NULL;
    value->inflated = NULL;
}

int stk_value_find(const struct stk_value *of, const char *path, struct stk_value *value_out,
                   struct stoker_error *error)
{
    *value_out = *of;
    value_out->path = path ? path : "";
    return stk_value_tree_find(of->tree, value_out->path, &value_out->location, error);
}

int stk_value_validate(const struct stk_value *value, struct stoker_error *error)
{
    return value->tree->type->check ? value->tree->type->check(value->tree, error) : 0;
}

int stk_value_serialize(const struct stk_value *value, uint8_t *out, uint64_t capacity,
                        uint64_t *bytes_out, struct stoker_error *error)
{
    if (value->tree) {
        return stk_value_tree_flatten(value->tree, out, capacity, bytes_out, error);
    }
    if (value->inflated_bytes > capacity) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a member needs more memory than allowed",
                        "raise decode_bytes_max, or leave the member out", "%llu of %llu bytes",
                        (unsigned long long)value->inflated_bytes, (unsigned long long)capacity);
    }
    memcpy(out, value->inflated, value->inflated_bytes);
    *bytes_out = value->inflated_bytes;
    return 0;
}

static int unpack_array(struct stk_value *value, struct stk_view packed, struct stoker_error *error)
{
    struct stk_view npy = {NULL, packed.bytes};
    int status;

    value->inflated = stk_alloc(packed.bytes, 1);
    if (!value->inflated) {
        return stk_fail_errno(error, 12, "cannot decompress an npz", "free memory", "%zu bytes",
                              packed.bytes);
    }
    memcpy(value->inflated, packed.data, packed.bytes);
    npy.data = value->inflated;
    status = stk_npy_parse(&value->array, npy, error);
    if (status < 0 && error) {
        error->offset = STOKER_NO_OFFSET; /* it would count decompressed bytes */
    }
    return status;
}

int stk_value_deserialize(struct stk_value *value, uint32_t encoding, struct stk_view bytes,
                          struct stk_view packed, struct stoker_error *error)
{
    int status;

    *value = (struct stk_value){.encoding = encoding, .bytes = bytes, .path = ""};
    if (encoding == STK_VALUE_NPZ) {
        status = unpack_array(value, packed, error);
    } else {
        value->tree = stk_alloc(1, sizeof *value->tree);
        status = value->tree
                     ? stk_value_tree_flat_open(value->tree, packed, error)
                     : stk_fail_errno(error, 12, "cannot read a member", "free memory", "tree");
    }
    if (status == 0 && value->tree) {
        status = stk_value_tree_find(value->tree, value->path, &value->location, error);
    }
    if (status < 0) {
        stk_value_close(value);
    }
    return status;
}

static int not_a(const struct stk_value *value, const char *want, const char *found,
                 struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, "a member holds something else than its field",
                    "look at it with 'stoker cat', or choose another field or path",
                    "%s%.64s%s%s wanted, %s found", value->path[0] ? "path '" : "", value->path,
                    value->path[0] ? "': " : "", want, found);
}

static int get_number(const struct stk_value *value, struct stk_number *number,
                      struct stoker_error *error)
{
    struct stk_value_node node;

    if (value->tree) {
        value->tree->type->read(value->location.node, &node);
        if (value->location.rest[0] ||
            (node.kind != STK_VALUE_NODE_NUMBER && node.kind != STK_VALUE_NODE_BOOL)) {
            return not_a(value, "a number", stk_value_node_name(node.kind), error);
        }
        *number = node.number;
        return 0;
    }
    if (value->array.shape.count != 1) {
        return not_a(value, "a number", "an array", error);
    }
    *number = stk_number_read(&value->array.type, value->array.data);
    return 0;
}

static bool is_small(double real)
{
    return real > -0x1p63 && real < 0x1p63;
}

/* dtype: INT64 or UINT64. */
static int get_integer(const struct stk_value *value, uint32_t dtype, void *out,
                       struct stoker_error *error)
{
    struct stk_number number;
    int status = get_number(value, &number, error);

    if (status == 0 && !stk_number_write(out, dtype, &number)) {
        bool is_negative = number.kind == STK_NUMBER_INT && number.integer < 0;

        status = not_a(value,
                       dtype == STOKER_UINT64 ? "an integer of 64 bits without a sign"
                                              : "an integer of 64 bits",
                       number.kind == STK_NUMBER_REAL && is_small(number.real) ? "a fraction"
                       : is_negative                                           ? "a negative one"
                                                                               : "a larger one",
                       error);
    }
    return status;
}

int stk_value_int(const struct stk_value *value, int64_t *out, struct stoker_error *error)
{
    return get_integer(value, STOKER_INT64, out, error);
}

int stk_value_uint(const struct stk_value *value, uint64_t *out, struct stoker_error *error)
{
    return get_integer(value, STOKER_UINT64, out, error);
}

int stk_value_float(const struct stk_value *value, double *out, struct stoker_error *error)
{
    struct stk_number number;
    int status = get_number(value, &number, error);

    if (status == 0) {
        stk_number_write(out, STOKER_FLOAT64, &number);
    }
    return status;
}

int stk_value_text(const struct stk_value *value, struct stk_view *text_out,
                   struct stoker_error *error)
{
    struct stk_value_node node = {.kind = STK_VALUE_NODE_LIST};
    uint64_t bad;

    if (value->tree) {
        value->tree->type->read(value->location.node, &node);
    }
    if (node.kind != STK_VALUE_NODE_TEXT || value->location.rest[0]) {
        return not_a(value, "text", stk_value_node_name(node.kind), error);
    }
    if (!stk_utf8_check(node.text, &bad)) {
        return not_a(value, "text", "bytes that are not UTF-8", error);
    }
    *text_out = node.text;
    return 0;
}

int stk_value_get_shape(const struct stk_value *value, struct stk_value_shape *shape_out,
                        struct stoker_error *error)
{
    int status;

    if (!value->tree) {
        *shape_out = value->array.shape;
        return 0;
    }
    status = stk_value_tree_shape(value->tree, &value->location, shape_out, error);
    /* Each element takes a byte at least: more of them are lists of different lengths. */
    if (status == 0 && shape_out->count > value->bytes.bytes) {
        status = stk_fail(error, STOKER_ERROR_FORMAT, "lists of one array differ in length",
                          "pad them, or give a path to each", "%llu elements in %zu bytes",
                          (unsigned long long)shape_out->count, value->bytes.bytes);
    }
    return status;
}

int stk_value_copy(const struct stk_value *value, const struct stk_value_shape *shape,
                   uint32_t dtype, void *out, struct stoker_error *error)
{
    return value->tree
               ? stk_value_tree_copy(value->tree, &value->location, shape, dtype, out, error)
               : stk_value_array_copy(&value->array, dtype, out, error);
}

const char *stk_value_shape_text(const struct stk_value_shape *shape, char text[160])
{
    size_t used = (size_t)snprintf(text, 160, "(");

    for (uint32_t i = 0; i < shape->rank; i++) {
        bool free_side = shape->sides[i] == UINT64_MAX;

        used += (size_t)(free_side ? snprintf(text + used, 160 - used, "None")
                                   : snprintf(text + used, 160 - used, "%llu",
                                              (unsigned long long)shape->sides[i]));
        used += (size_t)snprintf(text + used, 160 - used, "%s",
                                 i + 1 < shape->rank ? ", "
                                 : shape->rank == 1  ? ","
                                                     : "");
        used = stk_min(used, 150);
    }
    snprintf(text + used, 160 - used, ")");
    return text;
}
