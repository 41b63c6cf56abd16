/* Fuzz target: any bytes as JSON or MessagePack (by the first byte), under one of some paths (by
 * the second), as a number, text and array; then the complete document, and another path. Covers
 * json.c, json_lenient.c, msgpack.c, value_tree.c, number.c and value.c. */
#include "base/mem.h"
#include "format/value/value.h"

#include <string.h>

#define MEMORY_BYTES_MAX (8u << 20)

#define PACKED_BYTES_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The complete value as another process would send it: if it was parsed, it is accepted, and has
 * the same contents. */
static void pack_and_unpack(const struct stk_value *value)
{
    static uint64_t room[PACKED_BYTES_MAX / 8];
    struct stk_view packed = {(const uint8_t *)room, 0};
    struct stk_value_shape shape = {0}, other_shape = {0};
    struct stk_value other;
    uint64_t bytes;
    double real = 0, other_real = 0;

    if (stk_value_serialize(value, (uint8_t *)room, PACKED_BYTES_MAX, &bytes, NULL) < 0) {
        return;
    }
    packed.bytes = bytes;
    STK_ASSERT(stk_value_deserialize(&other, value->encoding, value->bytes, packed, NULL) == 0);
    STK_ASSERT(stk_value_float(value, &real, NULL) == stk_value_float(&other, &other_real, NULL));
    STK_ASSERT(memcmp(&real, &other_real, sizeof real) == 0);
    STK_ASSERT(stk_value_get_shape(value, &shape, NULL) ==
               stk_value_get_shape(&other, &other_shape, NULL));
    STK_ASSERT(shape.rank == other_shape.rank && shape.count == other_shape.count);
    stk_value_close(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const paths[] = {"", "a", "a.0", "*", "a.*.b", "*.*", "0.1", "a..b"};
    struct stk_view member = {data + 2, bytes - 2}, text;
    struct stk_value value, other;
    struct stoker_error error = {0};
    struct stk_value_shape shape;
    int64_t integer;
    double real;
    uint8_t *out;

    if (bytes < 2) {
        return 0;
    }
    if (stk_value_open(&value, data[0] & 1 ? STK_VALUE_MSGPACK : STK_VALUE_JSON, member,
                       paths[data[1] % 8], MEMORY_BYTES_MAX, &error) < 0) {
        STK_ASSERT(error.status < 0 && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    stk_value_int(&value, &integer, &error);
    stk_value_float(&value, &real, &error);
    stk_value_text(&value, &text, &error);
    if (stk_value_get_shape(&value, &shape, &error) == 0) {
        out = stk_alloc(shape.count, 4);
        if (out) {
            stk_value_copy(&value, &shape, STOKER_FLOAT32, out, &error);
        }
        stk_free(out);
    }
    stk_value_validate(&value, &error);
    if (stk_value_find(&value, paths[data[0] >> 1 & 7], &other, &error) == 0) {
        stk_value_float(&other, &real, &error);
    }
    if (paths[data[1] % 8][0] == 0) {
        pack_and_unpack(&value);
    }
    stk_value_close(&value);
    return 0;
}
