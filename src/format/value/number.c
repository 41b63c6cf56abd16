/* Numbers: from the bytes of a file to the dtype of a batch. */
#include "format/value/value.h"

#include <string.h>

static const struct dtype_row {
    uint32_t dtype;
    const char *name;
    char kind;
    uint8_t bytes;
} dtype_rows[] = {
    {STOKER_UINT8, "uint8", 'u', 1},     {STOKER_FLOAT32, "float32", 'f', 4},
    {STOKER_FLOAT16, "float16", 'f', 2}, {STOKER_BFLOAT16, "bfloat16", 'x', 2},
    {STOKER_INT64, "int64", 'i', 8},     {STOKER_FLOAT64, "float64", 'f', 8},
    {STOKER_BOOL, "bool", 'b', 1},       {STOKER_INT8, "int8", 'i', 1},
    {STOKER_INT16, "int16", 'i', 2},     {STOKER_UINT16, "uint16", 'u', 2},
    {STOKER_INT32, "int32", 'i', 4},     {STOKER_UINT32, "uint32", 'u', 4},
    {STOKER_UINT64, "uint64", 'u', 8},
};

static const struct dtype_row *find_dtype(uint32_t dtype)
{
    for (size_t i = 0; i < STK_COUNT(dtype_rows); i++) {
        if (dtype_rows[i].dtype == dtype) {
            return &dtype_rows[i];
        }
    }
    return NULL;
}

uint32_t stk_dtype_bytes(uint32_t dtype)
{
    const struct dtype_row *row = find_dtype(dtype);

    return row ? row->bytes : 0;
}

const char *stk_dtype_name(uint32_t dtype)
{
    const struct dtype_row *row = find_dtype(dtype);

    return row ? row->name : "no dtype";
}

bool stk_number_matches(const struct stk_number_type *type, uint32_t dtype)
{
    const struct dtype_row *row = find_dtype(dtype);

    /* A stored bool may be any byte: it becomes 0 or 1 on the way. */
    return row && type->kind == row->kind && type->bytes == row->bytes && !type->swapped &&
           type->kind != 'b';
}

/* ---- floats of few bits ---- */

#define DOUBLE_FRACTION 52
#define DOUBLE_BIAS 1023

/* A double as a float of 16 bits with `exponent_bits` (IEEE 754 binary16: 5; bfloat16: 8), rounded
 * once, to nearest, ties to even. */
static uint16_t pack_float(double value, uint32_t exponent_bits)
{
    uint32_t fraction_bits = 15 - exponent_bits;
    int32_t bias = (1 << (exponent_bits - 1)) - 1;
    uint16_t top = (uint16_t)(((1u << exponent_bits) - 1) << fraction_bits); /* infinity */
    uint64_t bits, fraction, half, rest;
    uint16_t sign;
    int32_t exponent, drop = DOUBLE_FRACTION - (int32_t)fraction_bits;

    memcpy(&bits, &value, sizeof bits);
    sign = (uint16_t)(bits >> 48 & 0x8000);
    exponent = (int32_t)(bits >> DOUBLE_FRACTION & 0x7ff) - DOUBLE_BIAS;
    fraction = bits & ((1ull << DOUBLE_FRACTION) - 1);
    if (exponent == DOUBLE_BIAS + 1) { /* infinity; NaN stays one, quiet */
        return (uint16_t)(sign | top | (fraction ? 1u << (fraction_bits - 1) : 0));
    }
    if (exponent > bias) {
        return (uint16_t)(sign | top);
    }
    fraction |= 1ull << DOUBLE_FRACTION;
    if (exponent < 1 - bias) { /* subnormal there: more bits fall off, and the exponent is 0 */
        drop += 1 - bias - exponent;
        exponent = 1 - bias;
        if (drop > DOUBLE_FRACTION + 2) {
            return sign;
        }
    }
    half = 1ull << (drop - 1);
    rest = fraction & (2 * half - 1);
    fraction >>= drop;
    fraction += rest > half || (rest == half && (fraction & 1));
    /* The hidden bit, or a carry out of the fraction, adds one to the exponent: to infinity too. */
    return (uint16_t)(sign |
                      (uint16_t)(((uint64_t)(exponent + bias - 1) << fraction_bits) + fraction));
}

static double unpack_half(uint16_t half)
{
    uint64_t bits = (uint64_t)(half & 0x8000) << 48;
    uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
    double value;

    if (exponent == 0) { /* fraction * 2^-24 */
        value = (double)fraction * 0x1p-24;
        return half & 0x8000 ? -value : value;
    }
    if (exponent == 31) {
        bits |= 0x7ffull << DOUBLE_FRACTION;
    } else {
        bits |= (uint64_t)(exponent - 15 + DOUBLE_BIAS) << DOUBLE_FRACTION;
    }
    bits |= (uint64_t)fraction << (DOUBLE_FRACTION - 10);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- numbers ---- */

struct stk_number stk_number_read(const struct stk_number_type *type, const uint8_t *data)
{
    struct stk_number number = {0};
    uint64_t bits = 0;
    float single;

    /* The machines that stoker runs on are little-endian. */
    for (uint32_t i = 0; i < type->bytes; i++) {
        bits |= (uint64_t)data[type->swapped ? type->bytes - 1u - i : i] << 8 * i;
    }
    if (type->kind == 'f') {
        number.kind = STK_NUMBER_REAL;
        if (type->bytes == 8) {
            memcpy(&number.real, &bits, sizeof number.real);
        } else if (type->bytes == 4) {
            uint32_t word = (uint32_t)bits;
            memcpy(&single, &word, sizeof single);
            number.real = (double)single;
        } else {
            number.real = unpack_half((uint16_t)bits);
        }
    } else if (type->kind == 'i') {
        uint32_t unused = 64 - 8u * type->bytes;

        number.kind = STK_NUMBER_INT;
        number.integer = (int64_t)(bits << unused) >> unused;
    } else {
        number.kind = STK_NUMBER_UINT;
        number.natural = type->kind == 'b' ? bits != 0 : bits;
    }
    return number;
}

static double as_double(const struct stk_number *number)
{
    return number->kind == STK_NUMBER_REAL  ? number->real
           : number->kind == STK_NUMBER_INT ? (double)number->integer
                                            : (double)number->natural;
}

static bool put_float(void *out, uint32_t dtype, double value)
{
    float single = (float)value;
    uint16_t half;

    if (dtype == STOKER_FLOAT64) {
        memcpy(out, &value, sizeof value);
    } else if (dtype == STOKER_FLOAT32) {
        memcpy(out, &single, sizeof single);
    } else {
        half = pack_float(value, dtype == STOKER_FLOAT16 ? 5 : 8);
        memcpy(out, &half, sizeof half);
    }
    return true;
}

bool stk_number_write(void *out, uint32_t dtype, const struct stk_number *number)
{
    const struct dtype_row *row = find_dtype(dtype);
    uint64_t bits;
    bool negative;

    if (!row) {
        return false;
    }
    if (row->kind == 'f' || row->kind == 'x') {
        return put_float(out, dtype, as_double(number));
    }
    if (number->kind == STK_NUMBER_REAL) {
        return false;
    }
    negative = number->kind == STK_NUMBER_INT && number->integer < 0;
    bits = number->kind == STK_NUMBER_INT ? (uint64_t)number->integer : number->natural;
    if (row->kind == 'i') {
        /* -2^(b-1) to 2^(b-1) - 1: without the sign no bit from b-1 on is set. */
        if ((negative ? ~bits : bits) >> (8 * row->bytes - 1)) {
            return false;
        }
    } else if (negative || (row->kind == 'b' && bits > 1) ||
               (row->bytes < 8 && bits >> 8 * row->bytes)) {
        return false;
    }
    memcpy(out, &bits, row->bytes);
    return true;
}
