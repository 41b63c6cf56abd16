/* MessagePack (github.com/msgpack/msgpack, spec.md) by msgpack-c. Its parser takes memory for a
 * list as soon as it has read how long it claims to be: so the claims are checked first. */
#include "format/value/value_private.h"

#include "base/mem.h"
#include "base/text/utf8.h"

#include <msgpack.h>
#include <string.h>

#define FIXED_BYTES (16u << 10) /* the zone's first chunk, and structs */

/* The size of a value's header, and its fields. */
struct header {
    uint64_t bytes;    /* of the header and the content that follows, without inner values */
    uint64_t children; /* values inside */
    bool valid;
};

static uint64_t big(const uint8_t *data, uint32_t bytes)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < bytes; i++) {
        value = value << 8 | data[i];
    }
    return value;
}

/* Lengths after the first byte: `width` bytes of number, then `more` of a type. */
static struct header sized(struct stk_view bytes, uint32_t width, uint32_t more)
{
    if (bytes.bytes < 1u + width) {
        return (struct header){UINT64_MAX, 0, true};
    }
    return (struct header){1u + width + more + big(bytes.data + 1, width), 0, true};
}

static struct header counted(struct stk_view bytes, uint32_t width, uint32_t each)
{
    if (bytes.bytes < 1u + width) {
        return (struct header){UINT64_MAX, 0, true};
    }
    return (struct header){1u + width, each * big(bytes.data + 1, width), true};
}

/* spec.md, "Overview" of the formats; bytes.bytes > 0. */
static struct header read_header(struct stk_view bytes)
{
    static const uint8_t plain[] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8}; /* 0xca to 0xd3 */
    uint8_t first = bytes.data[0];

    if (first < 0x80 || first >= 0xe0) {
        return (struct header){1, 0, true};
    }
    if (first < 0x90) {
        return (struct header){1, 2 * (first & 15u), true};
    }
    if (first < 0xa0) {
        return (struct header){1, first & 15u, true};
    }
    if (first < 0xc0) {
        return (struct header){1 + (first & 31u), 0, true};
    }
    if (first < 0xc4) { /* nil, (never used), false, true */
        return (struct header){1, 0, first != 0xc1};
    }
    if (first < 0xca) { /* bin 8 to 32, ext 8 to 32 */
        return sized(bytes, 1u << (first - (first < 0xc7 ? 0xc4 : 0xc7)), first >= 0xc7);
    }
    if (first < 0xd4) {
        return (struct header){1u + plain[first - 0xca], 0, true};
    }
    if (first < 0xd9) { /* fixext 1 to 16 */
        return (struct header){2u + (1u << (first - 0xd4)), 0, true};
    }
    if (first < 0xdc) {
        return sized(bytes, 1u << (first - 0xd9), 0);
    }
    return first < 0xde ? counted(bytes, 2u << (first - 0xdc), 1)
                        : counted(bytes, 2u << (first - 0xde), 2);
}

static int damaged(struct stoker_error *error, int status, uint64_t at, const char *detail)
{
    stk_fail(error, status, "a member is not MessagePack", STK_VALUE_ADVICE, "%s", detail);
    if (error) {
        error->offset = at;
    }
    return status;
}

int stk_msgpack_check(struct stk_view bytes, uint64_t *memory_bytes_out, struct stoker_error *error)
{
    uint64_t left[STK_MSGPACK_DEPTH_MAX + 1] = {1}; /* values that a level still lacks */
    uint64_t at = 0, values = 0;
    uint32_t depth = 0;

    *memory_bytes_out = 0;
    while (depth > 0 || left[0] > 0) {
        struct stk_view rest = {bytes.data + at, bytes.bytes - at};
        struct header header;

        if (rest.bytes == 0) {
            return damaged(error, STOKER_ERROR_TRUNCATED, at, "it ends too early");
        }
        header = read_header(rest);
        if (!header.valid) {
            return damaged(error, STOKER_ERROR_CORRUPT, at, "a byte that is never used");
        }
        if (header.bytes > rest.bytes || header.children > rest.bytes - header.bytes) {
            return damaged(error, STOKER_ERROR_TRUNCATED, at, "a value is longer than the rest");
        }
        at += header.bytes;
        values++;
        left[depth]--;
        if (header.children > 0) {
            if (depth == STK_MSGPACK_DEPTH_MAX) {
                return stk_fail(error, STOKER_ERROR_LIMIT, "MessagePack goes too deep",
                                STK_VALUE_ADVICE, "more than %u lists in lists",
                                STK_MSGPACK_DEPTH_MAX);
            }
            left[++depth] = header.children;
        }
        while (depth > 0 && left[depth] == 0) {
            depth--;
        }
    }
    if (at < bytes.bytes) {
        return damaged(error, STOKER_ERROR_CORRUPT, at, "something follows it");
    }
    /* The zone doubles its chunks: half of it may stay unused. */
    *memory_bytes_out = FIXED_BYTES + 4 * values * sizeof(msgpack_object);
    return 0;
}

static void read_node(const void *node, struct stk_value_node *out)
{
    const msgpack_object *object = node;

    *out = (struct stk_value_node){.kind = STK_VALUE_NODE_NULL};
    switch (object->type) {
    case MSGPACK_OBJECT_BOOLEAN:
        out->kind = STK_VALUE_NODE_BOOL;
        out->number.kind = STK_NUMBER_INT;
        out->number.integer = object->via.boolean;
        break;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        out->kind = STK_VALUE_NODE_NUMBER;
        out->number.kind = STK_NUMBER_UINT;
        out->number.natural = object->via.u64;
        break;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        out->kind = STK_VALUE_NODE_NUMBER;
        out->number.kind = STK_NUMBER_INT;
        out->number.integer = object->via.i64;
        break;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        out->kind = STK_VALUE_NODE_NUMBER;
        out->number.kind = STK_NUMBER_REAL;
        out->number.real = object->via.f64;
        break;
    case MSGPACK_OBJECT_STR:
        out->kind = STK_VALUE_NODE_TEXT;
        out->text = (struct stk_view){(const uint8_t *)object->via.str.ptr, object->via.str.size};
        break;
    case MSGPACK_OBJECT_BIN:
        out->kind = STK_VALUE_NODE_BYTES;
        out->text = (struct stk_view){(const uint8_t *)object->via.bin.ptr, object->via.bin.size};
        break;
    case MSGPACK_OBJECT_EXT:
        out->kind = STK_VALUE_NODE_BYTES;
        out->text = (struct stk_view){(const uint8_t *)object->via.ext.ptr, object->via.ext.size};
        break;
    case MSGPACK_OBJECT_ARRAY:
        out->kind = STK_VALUE_NODE_LIST;
        out->length = object->via.array.size;
        break;
    case MSGPACK_OBJECT_MAP:
        out->kind = STK_VALUE_NODE_MAP;
        out->length = object->via.map.size;
        break;
    case MSGPACK_OBJECT_NIL:
    default:
        break;
    }
}

static const void *item(const void *list, uint64_t index)
{
    return &((const msgpack_object *)list)->via.array.ptr[index];
}

/* If a name comes twice, the last one counts, as in Python. */
static const void *member(const void *map, const char *name, size_t bytes)
{
    const msgpack_object_map *pairs = &((const msgpack_object *)map)->via.map;

    for (uint32_t i = pairs->size; i > 0; i--) {
        const msgpack_object *key = &pairs->ptr[i - 1].key;

        if (key->type == MSGPACK_OBJECT_STR && key->via.str.size == bytes &&
            (bytes == 0 || memcmp(key->via.str.ptr, name, bytes) == 0)) {
            return &pairs->ptr[i - 1].val;
        }
    }
    return NULL;
}

static const void *pair(const void *map, const void *before, struct stk_value_node *name_out,
                        const void **value_out)
{
    const msgpack_object_kv *at = before;

    at = at ? at + 1 : ((const msgpack_object *)map)->via.map.ptr;
    read_node(&at->key, name_out);
    *value_out = &at->val;
    return at;
}

/* spec.md, "Timestamp extension type": seconds, or nanoseconds below 10^9 and seconds. */
static bool is_time(const msgpack_object_ext *ext)
{
    const uint8_t *data = (const uint8_t *)ext->ptr;

    return ext->size == 4 || (ext->size == 8 && big(data, 8) >> 34 < 1000000000u) ||
           (ext->size == 12 && big(data, 4) < 1000000000u);
}

static bool is_key(const msgpack_object *object)
{
    return object->type != MSGPACK_OBJECT_ARRAY && object->type != MSGPACK_OBJECT_MAP;
}

/* Returns why readers of complete documents (Python's msgpack) refuse it; NULL: they do not.
 * Recursion of at most STK_MSGPACK_DEPTH_MAX. */
static const char *objection(const msgpack_object *object)
{
    struct stk_view text = {NULL, 0};
    const char *why = NULL;
    uint64_t bad;

    if (object->type == MSGPACK_OBJECT_STR) {
        text = (struct stk_view){(const uint8_t *)object->via.str.ptr, object->via.str.size};
        return stk_utf8_check(text, &bad) ? NULL : "text that is not UTF-8";
    }
    if (object->type == MSGPACK_OBJECT_EXT && object->via.ext.type == -1) {
        return is_time(&object->via.ext) ? NULL : "an invalid time";
    }
    for (uint32_t i = 0; object->type == MSGPACK_OBJECT_ARRAY && i < object->via.array.size && !why;
         i++) {
        why = objection(&object->via.array.ptr[i]);
    }
    for (uint32_t i = 0; object->type == MSGPACK_OBJECT_MAP && i < object->via.map.size && !why;
         i++) {
        const msgpack_object_kv *pair = &object->via.map.ptr[i];

        why = is_key(&pair->key) ? objection(&pair->key) : "a key that is a list or a map";
        why = why ? why : objection(&pair->val);
    }
    return why;
}

static int check_tree(const struct stk_value_tree *tree, struct stoker_error *error)
{
    const char *why = objection(tree->root);

    return why ? damaged(error, STOKER_ERROR_CORRUPT, STOKER_NO_OFFSET, why) : 0;
}

static void close_tree(struct stk_value_tree *tree)
{
    msgpack_unpacked_destroy(tree->document);
    stk_free(tree->document);
}

static const struct stk_value_tree_type of_msgpack = {read_node, item,       member,
                                                      pair,      check_tree, close_tree};

int stk_msgpack_open(struct stk_value_tree *tree, struct stk_view bytes, struct stoker_error *error)
{
    msgpack_unpacked *unpacked;
    msgpack_unpack_return result;
    uint64_t memory_bytes;
    size_t used = 0;
    int status = stk_msgpack_check(bytes, &memory_bytes, error);

    if (status < 0) {
        return status;
    }
    unpacked = stk_alloc(1, sizeof *unpacked);
    if (!unpacked) {
        return stk_fail_errno(error, 12, "cannot read MessagePack", "free memory", "msgpack");
    }
    msgpack_unpacked_init(unpacked);
    tree->document = unpacked;
    tree->type = &of_msgpack;
    result = msgpack_unpack_next(unpacked, (const char *)bytes.data, bytes.bytes, &used);
    if (result == MSGPACK_UNPACK_SUCCESS && used == bytes.bytes) {
        tree->root = &unpacked->data;
        return 0;
    }
    close_tree(tree);
    tree->type = NULL;
    return result == MSGPACK_UNPACK_NOMEM_ERROR
               ? stk_fail_errno(error, 12, "cannot read MessagePack", "free memory", "msgpack")
               : damaged(error, STOKER_ERROR_CORRUPT, used, "it cannot be parsed");
}
