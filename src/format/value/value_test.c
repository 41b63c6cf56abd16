/* Goal: numbers, text and arrays of JSON, MessagePack, npy and npz are read exactly; damaged and
 * hostile input is an error with a class and an advice, and takes little memory.
 * Method: rows of small documents; every prefix of good ones; every allocation fails once; all
 * 65,536 patterns of half floats through doubles and back. python/tests/test_fields.py reads files
 * of NumPy, of every dtype. Covers value.c, value_tree.c, json.c, msgpack.c, npy.c, npz.c and
 * number.c. */
#include "base/mem.h"
#include "format/value/value.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define MEMORY_BYTES_MAX (1u << 20)

static struct stk_view view_of(const char *text, size_t bytes)
{
    return (struct stk_view){(const uint8_t *)text, bytes};
}

/* ---- one number ---- */

static const struct number_row {
    const char *text, *path;
    int status;
    double want;
} number_rows[] = {
    {"7", "", 0, 7},
    {" -2.5e1\n", "", 0, -25},
    {"\xef\xbb\xbf{\"a\": 3}", "a", 0, 3},
    {"{\"a\": {\"b\": [1, 2, 5]}}", "a.b.2", 0, 5},
    {"{\"a\": 1, \"a\": 2}", "a", 0, 2},
    {"{\"0\": 4}", "0", 0, 4},
    {"[true]", "0", 0, 1},
    {"{\"a\": 1}", "b", STOKER_ERROR_MISSING, 0},
    {"[1]", "1", STOKER_ERROR_MISSING, 0},
    {"[1]", "a", STOKER_ERROR_MISSING, 0},
    {"[1]", "99999999999999999999", STOKER_ERROR_MISSING, 0},
    {"5", "a", STOKER_ERROR_MISSING, 0},
    {"{\"a\": \"1\"}", "a", STOKER_ERROR_FORMAT, 0},
    {"[1]", "", STOKER_ERROR_FORMAT, 0},
    {"{\"a\": null}", "a", STOKER_ERROR_FORMAT, 0},
    {"{\"a\": 1", "a", STOKER_ERROR_TRUNCATED, 0},
    {"{\"a\": 1}}", "a", STOKER_ERROR_CORRUPT, 0},
    {"{'a': 1}", "a", STOKER_ERROR_CORRUPT, 0},
    {"\"\xff\"", "", STOKER_ERROR_CORRUPT, 0},
    {"NaN", "", STOKER_ERROR_CORRUPT, 0},
    {"123456789012345678901234567890", "", 0, 123456789012345678901234567890.0},
    {"", "", STOKER_ERROR_TRUNCATED, 0},
};

static void test_numbers(void)
{
    T_EACH(number_row, row, number_rows)
    {
        struct stoker_error error = {0};
        struct stk_value value;
        double got = 0;
        int status = stk_value_open(&value, STK_VALUE_JSON, view_of(row->text, strlen(row->text)),
                                    row->path, MEMORY_BYTES_MAX, &error);

        if (status == 0) {
            status = stk_value_float(&value, &got, &error);
            stk_value_close(&value);
        }
        T_EQ(row->text, status, row->status);
        T_TRUE(row->text, got == row->want);
        if (status < 0) {
            T_ERROR(row->text, &error);
        }
    }
}

static void test_integers(void)
{
    static const struct {
        const char *text;
        int status;
        int64_t want;
    } rows[] = {{"9223372036854775807", 0, INT64_MAX},
                {"-9223372036854775808", 0, INT64_MIN},
                {"1.0", STOKER_ERROR_FORMAT, 0},
                {"false", 0, 0}};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_value value;
        int64_t got = 0;

        T_EQ("open",
             stk_value_open(&value, STK_VALUE_JSON, view_of(rows[i].text, strlen(rows[i].text)),
                            NULL, MEMORY_BYTES_MAX, NULL),
             0);
        T_EQ(rows[i].text, stk_value_int(&value, &got, NULL), rows[i].status);
        T_EQ(rows[i].text, got, rows[i].want);
        stk_value_close(&value);
    }
}

/* Integers above INT64_MAX of JSON and MessagePack, and beside them those that fit. */
static void test_naturals(void)
{
    static const struct {
        const char *text, *path;
        int status;
        uint64_t want;
    } rows[] = {{"[18446744073709551615]", "0", 0, UINT64_MAX},
                {"{\"a\": [9223372036854775808, 7]}", "a.0", 0, (uint64_t)INT64_MAX + 1},
                {"[12345678901234567890, 9223372036854775807]", "1", 0, INT64_MAX},
                {"[12345678901234567890, 7]", "1", 0, 7},
                {"[12345678901234567890, -9223372036854775808]", "1", STOKER_ERROR_FORMAT, 0},
                {"[18446744073709551616]", "0", STOKER_ERROR_FORMAT, 0},
                {"[12345678901234567890, \"7\"]", "1", STOKER_ERROR_FORMAT, 0},
                {"[1.5]", "0", STOKER_ERROR_FORMAT, 0}};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_value value;
        uint64_t got = 0;

        T_EQ("open",
             stk_value_open(&value, STK_VALUE_JSON, view_of(rows[i].text, strlen(rows[i].text)),
                            rows[i].path, MEMORY_BYTES_MAX, NULL),
             0);
        T_EQ(rows[i].text, stk_value_uint(&value, &got, NULL), rows[i].status);
        T_TRUE(rows[i].text, got == rows[i].want);
        stk_value_close(&value);
    }
}

static void test_text(void)
{
    static const char packed[] = "\x82\xa1n\x05\xa1t\xa4\xc3\xbc!x"; /* {"n": 5, "t": "ü!x"} */
    struct stk_value value;
    struct stk_view text;
    int64_t number;

    T_EQ("open",
         stk_value_open(&value, STK_VALUE_MSGPACK, view_of(packed, sizeof packed - 1), "t",
                        MEMORY_BYTES_MAX, NULL),
         0);
    T_EQ("text", stk_value_text(&value, &text, NULL), 0);
    T_TRUE("text", text.bytes == 4 && memcmp(text.data, "ü!x", 4) == 0);
    T_EQ("no number", stk_value_int(&value, &number, NULL), STOKER_ERROR_FORMAT);
    stk_value_close(&value);
    T_EQ("open",
         stk_value_open(&value, STK_VALUE_JSON, view_of("{\"c\":\"\\u00fc\\u0000\"}", 20), "c",
                        MEMORY_BYTES_MAX, NULL),
         0);
    T_EQ("text", stk_value_text(&value, &text, NULL), 0);
    T_TRUE("a NUL is text", text.bytes == 3 && text.data[2] == 0);
    stk_value_close(&value);
}

/* Valid JSON with values that no field can hold: the other fields are read, and these are errors.
 */
static void test_values_beyond(void)
{
    static const struct {
        const char *text;
        int status; /* of the number at "w": 5, or an error of open */
        int beyond; /* of the integer at "x" */
    } rows[] = {
        {"{\"w\": 5, \"x\": 12345678901234567890}", 0, STOKER_ERROR_FORMAT},
        {"{\"x\": -9223372036854775809, \"w\": 5}", 0, STOKER_ERROR_FORMAT},
        {"{\"x\": 1e999, \"w\": 5}", 0, STOKER_ERROR_FORMAT},
        {"{\"x\": -1e999,\"w\":5}", 0, STOKER_ERROR_FORMAT},
        {"{\"x\": \"\\ud800\", \"w\": 5}", 0, STOKER_ERROR_FORMAT},
        {"{\"x\": \"a\\udc00b\", \"w\": 5}", 0, STOKER_ERROR_FORMAT},
        {"{\"x\": \"\\ud800\\ud800\", \"w\": 5}", 0, STOKER_ERROR_FORMAT},
        {"{\"\\ud800\": 1, \"x\": 7, \"w\": 5}", 0, 0},
        {"{\"a\": \"\\ud83d\\ude00 \\\\ud800 \\\" 99999999999999999999\", "
         "\"b\": 99999999999999999999, \"x\": 7, \"w\": 5}",
         0, 0},
        {"{\"x\": [12345678901234567890, 1e999, -12345678901234567890], \"w\": 5}", 0,
         STOKER_ERROR_FORMAT},
        {"{\"x\": 12345678901234567890, \"w\": }", STOKER_ERROR_CORRUPT, 0},
        {"{\"x\": 12345678901234567890", STOKER_ERROR_TRUNCATED, 0},
        {"{\"x\": 012345678901234567890, \"w\": 5}", STOKER_ERROR_CORRUPT, 0},
        {"{\"x\": 1234567890123456789-0, \"w\": 5}", STOKER_ERROR_CORRUPT, 0},
        {"{\"x\": \"\\ud800, \"w\": 5}", STOKER_ERROR_CORRUPT, 0},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_view bytes = view_of(rows[i].text, strlen(rows[i].text));
        struct stoker_error error = {0};
        struct stk_value value, other;
        int64_t number = 0;
        int status = stk_value_open(&value, STK_VALUE_JSON, bytes, "w", MEMORY_BYTES_MAX, &error);

        T_EQ(rows[i].text, status, rows[i].status);
        if (status < 0) {
            T_ERROR(rows[i].text, &error);
            continue;
        }
        T_EQ(rows[i].text, stk_value_int(&value, &number, NULL), 0);
        T_EQ(rows[i].text, number, 5);
        T_EQ(rows[i].text, stk_value_find(&value, "x", &other, NULL), 0);
        T_EQ(rows[i].text, stk_value_int(&other, &number, &error), rows[i].beyond);
        stk_value_close(&value);
    }
    struct stk_value value;
    double real = 0;

    T_EQ("real",
         stk_value_open(&value, STK_VALUE_JSON, view_of("12345678901234567890", 20), NULL,
                        MEMORY_BYTES_MAX, NULL),
         0);
    T_EQ("real", stk_value_float(&value, &real, NULL), 0);
    T_TRUE("real", real == 12345678901234567890.0);
    stk_value_close(&value);
}

/* One parsed document, looked into by several paths. */
static void test_at(void)
{
    static const char *const documents[] = {"{\"a\":{\"b\":[1,2]},\"c\":7}",
                                            "\x82\xa1\x61\x81\xa1\x62\x92\x01\x02\xa1\x63\x07"};

    for (size_t i = 0; i < STK_COUNT(documents); i++) {
        struct stk_view bytes = view_of(documents[i], strlen(documents[i]));
        struct stk_value full_value, part;
        struct stoker_error error = {0};
        struct stk_value_shape shape;
        int64_t number = 0;

        T_EQ("open",
             stk_value_open(&full_value, i ? STK_VALUE_MSGPACK : STK_VALUE_JSON, bytes, NULL,
                            MEMORY_BYTES_MAX, &error),
             0);
        T_EQ("c", stk_value_find(&full_value, "c", &part, &error), 0);
        T_EQ("c", stk_value_int(&part, &number, &error), 0);
        T_EQ("c", number, 7);
        T_EQ("a.b", stk_value_find(&full_value, "a.b", &part, &error), 0);
        T_EQ("a.b", stk_value_get_shape(&part, &shape, &error), 0);
        T_EQ("a.b", shape.count, 2);
        T_EQ("a.b.1 of a part", stk_value_find(&part, "a.b.1", &part, &error), 0);
        T_EQ("a.b.1", stk_value_int(&part, &number, &error), 0);
        T_EQ("a.b.1", number, 2);
        T_EQ("none", stk_value_find(&full_value, "d", &part, &error), STOKER_ERROR_MISSING);
        T_ERROR("none", &error);
        T_EQ("complete", stk_value_validate(&full_value, &error), 0);
        stk_value_close(&full_value);
    }
}

/* ---- MessagePack's tricks ---- */

/* Values that the lenient parser accepts, and readers of complete documents refuse. */
static const struct check_row {
    const char *name, *bytes;
    size_t count;
    int status;
} check_rows[] = {
    {"numbers and true as keys", "\x83\x01\x02\xc3\x04\xca\0\0\0\0\xc0", 11, 0},
    {"a list as key", "\x81\x91\x01\x02", 4, STOKER_ERROR_CORRUPT},
    {"a map as key", "\x81\x80\x02", 3, STOKER_ERROR_CORRUPT},
    {"text that is not UTF-8", "\x92\x01\xa1\xff", 4, STOKER_ERROR_CORRUPT},
    {"a key that is not UTF-8", "\x81\xa1\xff\x01", 4, STOKER_ERROR_CORRUPT},
    {"bytes that are not UTF-8", "\xc4\x01\xff", 3, 0},
    {"a time of 32 bits", "\xd6\xff\x01\x02\x03\x04", 6, 0},
    {"a time of 64 bits", "\xd7\xff\xee\x6b\x27\xfc\0\0\0\0", 10, 0},
    {"10^9 nanoseconds", "\xd7\xff\xee\x6b\x28\x00\0\0\0\0", 10, STOKER_ERROR_CORRUPT},
    {"a time of 96 bits", "\xc7\x0c\xff\x3b\x9a\xc9\xff\0\0\0\0\0\0\0\0", 15, 0},
    {"10^9 of 96 bits", "\xc7\x0c\xff\x3b\x9a\xca\x00\0\0\0\0\0\0\0\0", 15, STOKER_ERROR_CORRUPT},
    {"a time of 16 bits", "\xd5\xff\x01\x02", 4, STOKER_ERROR_CORRUPT},
    {"another ext", "\xd5\x05\x01\x02", 4, 0},
};

static void test_check(void)
{
    T_EACH(check_row, row, check_rows)
    {
        struct stoker_error error = {0};
        struct stk_value value;

        if (stk_value_open(&value, STK_VALUE_MSGPACK, view_of(row->bytes, row->count), NULL,
                           MEMORY_BYTES_MAX, &error) < 0) {
            T_STR(row->name, error.where, "");
            continue;
        }
        T_EQ(row->name, stk_value_validate(&value, &error), row->status);
        if (row->status < 0) {
            T_ERROR(row->name, &error);
        }
        stk_value_close(&value);
    }
}

static const struct packed_row {
    const char *name, *bytes;
    size_t count;
    int status;
} packed_rows[] = {
    {"u64", "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9, 0},
    {"f32", "\xca\x40\x20\x00\x00", 5, 0},
    {"a list of 2^32 - 1", "\xdd\xff\xff\xff\xff", 5, STOKER_ERROR_TRUNCATED},
    {"a map of 2^32 - 1", "\xdf\xff\xff\xff\xff\x01", 6, STOKER_ERROR_TRUNCATED},
    {"text of 2^32 - 1", "\xdb\xff\xff\xff\xff\x01", 6, STOKER_ERROR_TRUNCATED},
    {"an ext cut off", "\xc7\x05\x01\x01", 4, STOKER_ERROR_TRUNCATED},
    {"a header cut off", "\xdd\x01", 2, STOKER_ERROR_TRUNCATED},
    {"more behind", "\x01\x02", 2, STOKER_ERROR_CORRUPT},
    {"never used", "\xc1", 1, STOKER_ERROR_CORRUPT},
    {"nothing", "", 0, STOKER_ERROR_TRUNCATED},
    {"deep",
     "\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91"
     "\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x01",
     37, STOKER_ERROR_LIMIT},
};

static void test_packed(void)
{
    T_EACH(packed_row, row, packed_rows)
    {
        struct stoker_error error = {0};
        struct stk_value value;
        int status = stk_value_open(&value, STK_VALUE_MSGPACK, view_of(row->bytes, row->count),
                                    NULL, MEMORY_BYTES_MAX, &error);

        T_EQ(row->name, status, row->status);
        if (status < 0) {
            T_ERROR(row->name, &error);
        } else {
            stk_value_close(&value);
        }
    }
}

/* ---- arrays of trees ---- */

static const struct array_row {
    const char *text, *path;
    uint32_t dtype;
    int status; /* of shape or copy */
    const char *shape;
    double last;
} array_rows[] = {
    {"[1, 2, 3]", "", STOKER_FLOAT32, 0, "(3,)", 3},
    {"[[1, 2], [3, 4.5]]", "", STOKER_FLOAT64, 0, "(2, 2)", 4.5},
    {"{\"o\": [{\"b\": [1, 2]}, {\"b\": [3, 4]}]}", "o.*.b", STOKER_FLOAT64, 0, "(2, 2)", 4},
    {"{\"o\": [{\"b\": 1}, {\"b\": 6}]}", "o.*.b", STOKER_FLOAT64, 0, "(2,)", 6},
    {"[[[1], [2]], [[3], [4]]]", "*.*.0", STOKER_FLOAT64, 0, "(2, 2)", 4},
    {"8", "", STOKER_FLOAT64, 0, "()", 8},
    {"[]", "", STOKER_FLOAT64, 0, "(0,)", 0},
    {"[[], []]", "", STOKER_FLOAT64, 0, "(2, 0)", 0},
    {"[[1], [2, 3]]", "", STOKER_FLOAT64, STOKER_ERROR_FORMAT, "(2, 1)", 0},
    {"[[1], 2]", "", STOKER_FLOAT64, STOKER_ERROR_FORMAT, "(2, 1)", 0},
    {"[1, [2]]", "", STOKER_FLOAT64, STOKER_ERROR_FORMAT, "(2,)", 0},
    {"[1, \"2\"]", "", STOKER_FLOAT64, STOKER_ERROR_FORMAT, "(2,)", 0},
    {"[1, 256]", "", STOKER_UINT8, STOKER_ERROR_FORMAT, "(2,)", 0},
    {"[1, -1]", "", STOKER_UINT16, STOKER_ERROR_FORMAT, "(2,)", 0},
    {"[1, 1.5]", "", STOKER_INT64, STOKER_ERROR_FORMAT, "(2,)", 0},
    {"{\"o\": [{\"b\": 1}, {}]}", "o.*.b", STOKER_FLOAT64, STOKER_ERROR_MISSING, "(2,)", 0},
    {"{\"o\": 1}", "o.*", STOKER_FLOAT64, STOKER_ERROR_MISSING, "()", 0},
    /* 10 x 10 x 10 x 10 claimed by the first items, in 40 bytes */
    {"[[[[0,0,0,0,0,0],0,0,0,0],0,0,0,0],0,0,0,0]", "", STOKER_FLOAT64, STOKER_ERROR_FORMAT,
     "(5, 5, 5, 6)", 0},
    {"[[[[[[[[[1]]]]]]]]]", "", STOKER_FLOAT64, STOKER_ERROR_LIMIT, NULL, 0},
};

static void test_arrays(void)
{
    T_EACH(array_row, row, array_rows)
    {
        struct stoker_error error = {0};
        struct stk_value_shape shape;
        struct stk_value value;
        char text[160];
        uint8_t out[512] = {0};
        double last = 0;
        int status;

        T_EQ(row->text,
             stk_value_open(&value, STK_VALUE_JSON, view_of(row->text, strlen(row->text)),
                            row->path, MEMORY_BYTES_MAX, NULL),
             0);
        status = stk_value_get_shape(&value, &shape, &error);
        if (row->shape) {
            T_STR(row->text, stk_value_shape_text(&shape, text), row->shape);
        }
        if (status == 0) {
            status = stk_value_copy(&value, &shape, row->dtype, out, &error);
        }
        T_EQ(row->text, status, row->status);
        if (status < 0) {
            T_ERROR(row->text, &error);
        } else if (shape.count > 0) {
            struct stk_number_type type = {'f', (uint8_t)stk_dtype_bytes(row->dtype), false};
            struct stk_number number = stk_number_read(&type, out + (shape.count - 1) * type.bytes);
            last = number.real;
        }
        T_TRUE(row->text, last == row->last);
        stk_value_close(&value);
    }
}

static void test_json_limits(void)
{
    static char deep[2000];
    struct stoker_error error = {0};
    struct stk_value value;

    memset(deep, '[', 1000);
    memset(deep + 1000, ']', 1000);
    T_EQ("deep",
         stk_value_open(&value, STK_VALUE_JSON, view_of(deep, sizeof deep), NULL, MEMORY_BYTES_MAX,
                        &error),
         STOKER_ERROR_LIMIT);
    memset(deep, ' ', sizeof deep);
    T_EQ("memory",
         stk_value_open(&value, STK_VALUE_JSON, view_of(deep, sizeof deep), NULL, 4000, &error),
         STOKER_ERROR_LIMIT);
    T_ERROR("memory", &error);
}

/* ---- npy ---- */

/* An npy of version 1 with this header and data; returns its bytes. */
static size_t make_npy(uint8_t *out, const char *header, const void *data, size_t data_bytes)
{
    size_t length = strlen(header);

    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (uint8_t)length;
    out[9] = (uint8_t)(length >> 8);
    memcpy(out + 10, header, length);
    memcpy(out + 10 + length, data, data_bytes);
    return 10 + length + data_bytes;
}

#define DICT(descr, order, shape)                                                                  \
    "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }    \n"

static const struct npy_row {
    const char *header;
    size_t data_bytes;
    int status;
    const char *shape;
} npy_rows[] = {
    {DICT("<f4", "False", "(2, 3)"), 24, 0, "(2, 3)"},
    {DICT("|u1", "True", "()"), 1, 0, "()"},
    {DICT("<i8", "False", "(0, 5)"), 0, 0, "(0, 5)"},
    {"{\"shape\":(4L,),\"fortran_order\":False,\"descr\":\"|b1\"}", 4, 0, "(4,)"},
    {DICT("<f4", "False", "(2, 3)"), 23, STOKER_ERROR_TRUNCATED, NULL},
    {DICT("<f4", "False", "(2, 3)"), 25, STOKER_ERROR_CORRUPT, NULL},
    {DICT("|O", "False", "(2,)"), 24, STOKER_ERROR_UNSUPPORTED, NULL},
    {DICT("<U3", "False", "(2,)"), 24, STOKER_ERROR_UNSUPPORTED, NULL},
    {DICT("<M8[ns]", "False", "(2,)"), 16, STOKER_ERROR_UNSUPPORTED, NULL},
    {DICT("<c8", "False", "(2,)"), 16, STOKER_ERROR_UNSUPPORTED, NULL},
    {DICT("<f16", "False", "(2,)"), 32, STOKER_ERROR_UNSUPPORTED, NULL},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4,
     STOKER_ERROR_UNSUPPORTED, NULL},
    {DICT("<f3", "False", "(2,)"), 6, STOKER_ERROR_CORRUPT, NULL},
    {DICT("<i16", "False", "(2,)"), 32, STOKER_ERROR_CORRUPT, NULL},
    {DICT("", "False", "(2,)"), 2, STOKER_ERROR_CORRUPT, NULL},
    {DICT("<f4", "False", "(2)"), 8, STOKER_ERROR_CORRUPT, NULL},
    {DICT("<f4", "False", "(-1,)"), 8, STOKER_ERROR_CORRUPT, NULL},
    {DICT("<f4", "0", "(2,)"), 8, STOKER_ERROR_CORRUPT, NULL},
    {DICT("<f4", "False", "(4294967296, 4294967296, 4)"), 8, STOKER_ERROR_CORRUPT, NULL},
    {DICT("<f4", "False", "(99999999999999999999,)"), 8, STOKER_ERROR_CORRUPT, NULL},
    {DICT("<f4", "False", "(1,1,1,1,1,1,1,1,1)"), 4, STOKER_ERROR_LIMIT, NULL},
    {"{'descr': '<f4', 'shape': (1,), }", 4, STOKER_ERROR_CORRUPT, NULL},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 4,
     STOKER_ERROR_CORRUPT, NULL},
    {"__import__('os').system('true')", 4, STOKER_ERROR_CORRUPT, NULL},
};

static void test_npy(void)
{
    static const uint8_t data[64] = {1, 2, 3, 4};

    T_EACH(npy_row, row, npy_rows)
    {
        struct stoker_error error = {0};
        struct stk_value_shape shape;
        struct stk_value value;
        char text[160];
        uint8_t bytes[512];
        size_t count = make_npy(bytes, row->header, data, row->data_bytes);
        int status =
            stk_value_open(&value, STK_VALUE_NPY, (struct stk_view){bytes, count}, NULL, 0, &error);

        T_EQ(row->header, status, row->status);
        if (status < 0) {
            T_ERROR(row->header, &error);
            continue;
        }
        T_EQ(row->header, stk_value_get_shape(&value, &shape, NULL), 0);
        T_STR(row->header, stk_value_shape_text(&shape, text), row->shape);
        stk_value_close(&value);
    }
}

static void test_orders(void)
{
    static const uint8_t data[] = {0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6};
    uint8_t bytes[256];
    size_t count = make_npy(bytes, DICT(">u2", "True", "(2, 3)"), data, sizeof data);
    static const int64_t want[] = {1, 3, 5, 2, 4, 6};
    struct stk_value value;
    struct stk_value_shape shape;
    int64_t out[6];

    T_EQ("open",
         stk_value_open(&value, STK_VALUE_NPY, (struct stk_view){bytes, count}, NULL, 0, NULL), 0);
    T_EQ("shape", stk_value_get_shape(&value, &shape, NULL), 0);
    T_EQ("copy", stk_value_copy(&value, &shape, STOKER_INT64, out, NULL), 0);
    T_TRUE("Fortran order, big-endian", memcmp(out, want, sizeof want) == 0);
    stk_value_close(&value);
    for (size_t cut = 0; cut < count; cut++) {
        uint8_t *exact = malloc(cut + 1);
        int status;

        memcpy(exact, bytes, cut);
        status =
            stk_value_open(&value, STK_VALUE_NPY, (struct stk_view){exact, cut}, NULL, 0, NULL);
        T_TRUE("every prefix", status == STOKER_ERROR_TRUNCATED);
        free(exact);
    }
}

/* ---- npz ---- */

static void put(uint8_t **to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        *(*to)++ = i < 8 ? (uint8_t)(value >> 8 * i) : 0;
    }
}

struct zip {
    uint8_t bytes[4096];
    size_t count;
    uint8_t *crc, *size, *method, *flags, *offset; /* in the central entry */
};

/* A zip of one member. */
static void make_zip(struct zip *zip, const char *name, const uint8_t *data, size_t data_bytes,
                     bool deflated)
{
    uint8_t packed[2048], *to = zip->bytes;
    z_stream stream = {0};
    size_t packed_bytes = data_bytes, name_bytes = strlen(name);
    uint32_t crc = (uint32_t)crc32(0, data, (uInt)data_bytes);

    memcpy(packed, data, data_bytes);
    if (deflated) {
        deflateInit2(&stream, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
        stream.next_in = (Bytef *)(uintptr_t)data;
        stream.avail_in = (uInt)data_bytes;
        stream.next_out = packed;
        stream.avail_out = sizeof packed;
        deflate(&stream, Z_FINISH);
        packed_bytes = stream.total_out;
        deflateEnd(&stream);
    }
    memcpy(to, "PK\3\4", 4), to += 4;
    put(&to, 20, 4), put(&to, deflated ? 8 : 0, 2), put(&to, 0, 4), put(&to, crc, 4);
    put(&to, packed_bytes, 4), put(&to, data_bytes, 4), put(&to, name_bytes, 2), put(&to, 0, 2);
    memcpy(to, name, name_bytes), to += name_bytes;
    memcpy(to, packed, packed_bytes), to += packed_bytes;
    uint64_t directory = (uint64_t)(to - zip->bytes);
    memcpy(to, "PK\1\2", 4), to += 4;
    put(&to, 20, 2), put(&to, 20, 2), zip->flags = to, put(&to, 0, 2), zip->method = to;
    put(&to, deflated ? 8 : 0, 2), put(&to, 0, 4), zip->crc = to, put(&to, crc, 4);
    put(&to, packed_bytes, 4), zip->size = to, put(&to, data_bytes, 4);
    put(&to, name_bytes, 2), put(&to, 0, 12), zip->offset = to, put(&to, 0, 4);
    memcpy(to, name, name_bytes), to += name_bytes;
    uint64_t end = (uint64_t)(to - zip->bytes);
    memcpy(to, "PK\5\6", 4), to += 4;
    put(&to, 0, 4), put(&to, 1, 2), put(&to, 1, 2), put(&to, end - directory, 4);
    put(&to, directory, 4), put(&to, 0, 2);
    zip->count = (size_t)(to - zip->bytes);
}

static int open_zip(const struct zip *zip, const char *name, struct stoker_error *error)
{
    uint8_t *exact = malloc(zip->count + 1);
    struct stk_value value;
    int status;

    memcpy(exact, zip->bytes, zip->count);
    status = stk_value_open(&value, STK_VALUE_NPZ, (struct stk_view){exact, zip->count}, name,
                            MEMORY_BYTES_MAX, error);
    if (status == 0) {
        T_EQ("last element", value.array.data[value.array.shape.count - 1], 9);
        stk_value_close(&value);
    }
    free(exact);
    return status;
}

static void test_npz(void)
{
    uint8_t array[600], data[400] = {0};
    size_t count;

    data[399] = 9;
    count = make_npy(array, DICT("|u1", "False", "(400,)"), data, sizeof data);
    for (int deflated = 0; deflated < 2; deflated++) {
        struct stoker_error error = {0};
        struct zip zip, other;

        make_zip(&zip, "tokens.npy", array, count, deflated);
        T_EQ("no name", open_zip(&zip, NULL, &error), 0);
        T_EQ("name", open_zip(&zip, "tokens", &error), 0);
        T_EQ("file's name", open_zip(&zip, "tokens.npy", &error), 0);
        T_EQ("other name", open_zip(&zip, "token", &error), STOKER_ERROR_MISSING);
        T_HAS("says what it has", error.where, "tokens.npy");
        for (other = zip; other.count > 0; other.count--) {
            struct zip cut = other;
            cut.count--;
            T_TRUE("every prefix", open_zip(&cut, NULL, NULL) < 0);
        }
        other = zip, other.bytes[zip.crc - zip.bytes] ^= 1;
        T_EQ("checksum", open_zip(&other, NULL, &error), STOKER_ERROR_CORRUPT);
        other = zip, other.bytes[zip.size - zip.bytes + 2] ^= 0x40;
        T_EQ("a large size", open_zip(&other, NULL, &error),
             deflated ? STOKER_ERROR_LIMIT : STOKER_ERROR_CORRUPT);
        other = zip, other.bytes[zip.size - zip.bytes] ^= 1;
        T_EQ("a size off by one", open_zip(&other, NULL, &error), STOKER_ERROR_CORRUPT);
        other = zip, other.bytes[zip.flags - zip.bytes] = 1;
        T_EQ("encrypted", open_zip(&other, NULL, &error), STOKER_ERROR_UNSUPPORTED);
        other = zip, other.bytes[zip.method - zip.bytes] = 12;
        T_EQ("bzip2", open_zip(&other, NULL, &error), STOKER_ERROR_UNSUPPORTED);
        other = zip, other.bytes[zip.offset - zip.bytes + 3] = 0x7f;
        T_EQ("a large offset", open_zip(&other, NULL, &error), STOKER_ERROR_CORRUPT);
        T_ERROR("a large offset", &error);
    }
}

/* ---- numbers and text ---- */

static void test_halves(void)
{
    struct stk_number_type half = {'f', 2, false};

    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint8_t data[2] = {(uint8_t)bits, (uint8_t)(bits >> 8)};
        struct stk_number number = stk_number_read(&half, data);
        uint16_t back;

        stk_number_write(&back, STOKER_FLOAT16, &number);
        if (number.real == number.real) {
            T_EQ("half", back, bits);
        }
    }
}

static const struct float_row {
    double value;
    uint32_t half, bfloat;
} float_rows[] = {
    /* of NumPy 2 and ml_dtypes */
    {1.0, 0x3c00, 0x3f80},
    {65504.0, 0x7bff, 0x4780},
    {65519.9, 0x7bff, 0x4780},
    {65520.0, 0x7c00, 0x4780},
    {-1e300, 0xfc00, 0xff80},
    {5.960464477539063e-08, 1, 0x3380},
    {2.9802322387695312e-08, 0, 0x3300},
    {3.1e-08, 1, 0x3305},
    {0.1, 0x2e66, 0x3dcd},
    {-0.0, 0x8000, 0x8000},
    {2049.0, 0x6800, 0x4500},
    {2051.0, 0x6802, 0x4500},
};

static void test_floats(void)
{
    T_EACH(float_row, row, float_rows)
    {
        struct stk_number number = {.kind = STK_NUMBER_REAL, .real = row->value};
        uint16_t half, bfloat;

        stk_number_write(&half, STOKER_FLOAT16, &number);
        stk_number_write(&bfloat, STOKER_BFLOAT16, &number);
        T_EQ("half", half, row->half);
        T_EQ("bfloat16", bfloat, row->bfloat);
    }
}

static void test_fail_nth(void)
{
    int64_t alive = stk_mem_alive();
    uint8_t array[128], one = 9;
    size_t count = make_npy(array, DICT("|u1", "False", "(1,)"), &one, 1);

    for (uint64_t n = 1; n < 8; n++) {
        struct stoker_error error = {0};
        struct stk_value value;
        struct zip zip;
        int status;

        make_zip(&zip, "a.npy", array, count, true);
        stk_mem_fail_nth(n);
        if (open_zip(&zip, NULL, &error) < 0) {
            T_ERROR("npz", &error);
        }
        stk_mem_fail_nth(n);
        if (stk_value_open(&value, STK_VALUE_MSGPACK, view_of("\x91\x01", 2), "0", 1u << 20,
                           &error) < 0) {
            T_ERROR("msgpack", &error);
        } else {
            stk_value_close(&value);
        }
        stk_mem_fail_nth(n);
        status = stk_value_open(&value, STK_VALUE_JSON, view_of("12345678901234567890", 20), NULL,
                                MEMORY_BYTES_MAX, &error);
        T_TRUE("memory is not damage", status == 0 || status == -ENOMEM);
        if (status < 0) {
            T_ERROR("json", &error);
        } else {
            stk_value_close(&value);
        }
        stk_mem_fail_nth(0);
        T_EQ("no leak", stk_mem_alive(), alive);
    }
}

/* Lists whose first items are long at every depth: the product of the lengths does not fit in
 * 64 bits, or in the bytes of the document. Both have an error, with and without a struct for it.
 */
static void test_products(void)
{
    static const struct {
        const char *name;
        uint32_t items;
        int status;
    } rows[] = {{"256^8", 256, STOKER_ERROR_LIMIT},
                {"255^8", 255, STOKER_ERROR_FORMAT},
                {"300^8", 300, STOKER_ERROR_LIMIT}};
    static char text[1 << 14];

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_value value;
        struct stk_value_shape shape;
        struct stoker_error error = {0};
        size_t used = 0;

        for (uint32_t depth = 0; depth < STK_VALUE_RANK_MAX; depth++) {
            text[used++] = '[';
        }
        for (uint32_t depth = 0; depth < STK_VALUE_RANK_MAX; depth++) {
            used += depth == 0 ? 1u : 0u;
            text[used - 1] = depth == 0 ? '7' : text[used - 1];
            for (uint32_t item = 1; item < rows[i].items; item++) {
                text[used++] = ',';
                text[used++] = '7';
            }
            text[used++] = ']';
        }
        T_EQ(rows[i].name,
             stk_value_open(&value, STK_VALUE_JSON, (struct stk_view){(const uint8_t *)text, used},
                            "", 8u << 20, &error),
             0);
        T_EQ(rows[i].name, stk_value_get_shape(&value, &shape, &error), rows[i].status);
        T_EQ(rows[i].name, error.status, rows[i].status);
        T_ERROR(rows[i].name, &error);
        T_EQ(rows[i].name, stk_value_get_shape(&value, &shape, NULL), rows[i].status);
        stk_value_close(&value);
    }
}

int main(void)
{
    test_products();
    test_numbers();
    test_integers();
    test_values_beyond();
    test_naturals();
    test_text();
    test_at();
    test_check();
    test_packed();
    test_arrays();
    test_json_limits();
    test_npy();
    test_orders();
    test_npz();
    test_halves();
    test_floats();
    test_fail_nth();
    return t_finish();
}
