/* Goal: a document in flat form has the same values as the original under every path; bytes that no
 * writer produced are refused or read without harm; no leak.
 * Method: documents of all kinds, in both forms, compared under each path; every bit of a flat
 * document flipped, every prefix; forged nodes by name; every allocation fails once. The sanitizers
 * end the test if a walk leaves its bytes. Covers value_tree_flat.c. */
#include "base/mem.h"
#include "format/value/value_private.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY_BYTES_MAX (1u << 20)
#define PACKED_MAX 16384u

static struct stk_view view_of(const char *text, size_t bytes)
{
    return (struct stk_view){(const uint8_t *)text, bytes};
}

#define JSON(text) STK_VALUE_JSON, text, sizeof text - 1
#define MSGPACK(text) STK_VALUE_MSGPACK, text, sizeof text - 1

static const struct document_row {
    const char *name;
    uint32_t encoding;
    const char *text;
    size_t bytes;
} document_rows[] = {
    {"a number", JSON("-7")},
    {"a fraction", JSON("2.5")},
    {"text", JSON("\"a\\u0000\xc3\xbc\"")},
    {"no text", JSON("\"\"")},
    {"null", JSON("null")},
    {"an empty list", JSON("[]")},
    {"an empty map", JSON("{}")},
    {"lists", JSON("[[1,2,3],[4,5,6]]")},
    {"lists of two lengths", JSON("[[1,2],[4]]")},
    {"objects", JSON("{\"a\":[{\"b\":[1,2],\"c\":\"x\"},{\"b\":[3,4],\"c\":\"\"}],\"d\":true}")},
    {"empty names", JSON("{\"\":{\"\":[{}]},\"a\":[]}")},
    {"deep", JSON("[[[[[[[[[[[[[[[[[[[[[[[[5]]]]]]]]]]]]]]]]]]]]]]]]")},
    {"mp map", MSGPACK("\x82\xa1\x61\x92\x01\xcb\x40\x04\x00\x00\x00\x00\x00\x00\xa1\x64\xc3")},
    {"mp keys", MSGPACK("\x83\x01\x02\x91\x05\x06\xa1\x61\xcf\xff\xff\xff\xff\xff\xff\xff\xff")},
    {"mp twice", MSGPACK("\x82\xa1\x61\x01\xa1\x61\x02")},
    {"mp bytes", MSGPACK("\x92\xc4\x02\x01\x02\xc7\x01\x05\x09")},
};

static const char *const paths[] = {"",    "a",     "a.b", "a.0", "0",     "*",       "*.0",
                                    "0.1", "d",     "a.*", ".",   "a.*.b", "a.*.b.0", "..0",
                                    "1",   "a.*.c", "0",   "1.*", "*.*",   "0.0.0.0"};

/* All results for a value, as numbers to compare. */
struct answers {
    int int_status, float_status, text_status, shape_status, copy_status;
    int64_t integer;
    double real;
    struct stk_view text;
    struct stk_value_shape shape;
    double elements[64];
};

static void ask(const struct stk_value *value, struct answers *answers)
{
    memset(answers, 0, sizeof *answers);
    answers->int_status = stk_value_int(value, &answers->integer, NULL);
    answers->float_status = stk_value_float(value, &answers->real, NULL);
    answers->text_status = stk_value_text(value, &answers->text, NULL);
    answers->shape_status = stk_value_get_shape(value, &answers->shape, NULL);
    if (answers->shape_status == 0 && answers->shape.count <= STK_COUNT(answers->elements)) {
        answers->copy_status =
            stk_value_copy(value, &answers->shape, STOKER_FLOAT64, answers->elements, NULL);
    }
}

static bool same(const struct answers *a, const struct answers *b)
{
    return a->int_status == b->int_status && a->float_status == b->float_status &&
           a->text_status == b->text_status && a->shape_status == b->shape_status &&
           a->copy_status == b->copy_status && a->integer == b->integer &&
           memcmp(&a->real, &b->real, sizeof a->real) == 0 && a->text.bytes == b->text.bytes &&
           (a->text.bytes == 0 || memcmp(a->text.data, b->text.data, a->text.bytes) == 0) &&
           memcmp(&a->shape, &b->shape, sizeof a->shape) == 0 &&
           memcmp(a->elements, b->elements, sizeof a->elements) == 0;
}

/* The packed bytes of a document; how many. */
static uint64_t pack(const struct document_row *row, uint64_t out[PACKED_MAX / 8])
{
    struct stk_value value;
    uint64_t bytes = 0;

    T_EQ(row->name,
         stk_value_open(&value, row->encoding, view_of(row->text, row->bytes), NULL,
                        MEMORY_BYTES_MAX, NULL),
         0);
    T_EQ(row->name, stk_value_serialize(&value, (uint8_t *)out, PACKED_MAX, &bytes, NULL), 0);
    T_EQ(row->name, stk_value_serialize(&value, (uint8_t *)out, bytes - 1, &bytes, NULL),
         STOKER_ERROR_LIMIT);
    stk_value_close(&value);
    return bytes;
}

static void test_round_trip(void)
{
    static uint64_t room[PACKED_MAX / 8];

    T_EACH(document_row, row, document_rows)
    {
        struct stk_view bytes = view_of(row->text, row->bytes);
        struct stk_view packed = {(const uint8_t *)room, pack(row, room)};
        struct stk_value want, got, part;
        struct answers wanted, found;

        T_EQ(row->name, stk_value_open(&want, row->encoding, bytes, NULL, MEMORY_BYTES_MAX, NULL),
             0);
        T_EQ(row->name, stk_value_deserialize(&got, row->encoding, bytes, packed, NULL), 0);
        memset(room, 0xff, sizeof room); /* the writing process continues to write there */
        for (size_t i = 0; i < STK_COUNT(paths); i++) {
            int status = stk_value_find(&want, paths[i], &part, NULL);

            memset(&wanted, 0, sizeof wanted);
            if (status == 0) {
                ask(&part, &wanted);
            }
            T_EQ(paths[i], stk_value_find(&got, paths[i], &part, NULL), status);
            memset(&found, 0, sizeof found);
            if (status == 0) {
                ask(&part, &found);
            }
            if (!T_TRUE(paths[i], same(&wanted, &found))) {
                fprintf(stderr, "  of '%s'\n", row->name);
            }
        }
        stk_value_close(&want);
        stk_value_close(&got);
    }
}

/* Reads bytes of any kind, and uses an accepted value in every way. Returns whether it was
 * accepted. */
static bool survives(const uint8_t *data, uint64_t bytes)
{
    struct stk_view packed = {data, bytes};
    struct stoker_error error = {0};
    struct answers answers;
    struct stk_value value, part;

    if (stk_value_deserialize(&value, STK_VALUE_JSON, view_of("0123456789", 10), packed, &error) <
        0) {
        T_EQ("damage", error.status, STOKER_ERROR_CORRUPT);
        T_ERROR("damage", &error);
        return false;
    }
    for (size_t i = 0; i < STK_COUNT(paths); i++) {
        if (stk_value_find(&value, paths[i], &part, NULL) == 0) {
            ask(&part, &answers);
        }
    }
    stk_value_close(&value);
    return true;
}

static void test_damage(void)
{
    static uint64_t room[PACKED_MAX / 8];

    T_EACH(document_row, row, document_rows)
    {
        uint64_t bytes = pack(row, room);
        /* exactly as many bytes, so that sanitizers detect reads past them */
        uint8_t *copy = stk_alloc(bytes, 1);

        T_TRUE(row->name, survives((const uint8_t *)room, bytes));
        for (uint64_t bit = 0; bit < 8 * bytes; bit++) {
            memcpy(copy, room, bytes);
            copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
            survives(copy, bytes);
        }
        stk_free(copy);
        for (uint64_t cut = 0; cut < bytes; cut++) {
            copy = stk_alloc(cut, 1);
            memcpy(copy, room, cut);
            T_TRUE(row->name, !survives(copy, cut));
            stk_free(copy);
        }
    }
}

/* Of "[[1,2,3],[4,5,6]]": nodes 0 (the list) and 1, 2 (its lists); a node is three words. */
static void test_forged(void)
{
    static const struct row {
        const char *name;
        uint32_t node, word;
        uint64_t value;
    } rows[] = {
        {"a list that holds itself", 1, 1, 0},
        {"a list that holds its parent", 1, 1, UINT64_MAX},
        {"two lists with the same children", 2, 1, 1},
        {"a list of children that others have", 2, 1, 3},
        {"more children than nodes", 2, 2, 4},
        {"children without end", 0, 2, UINT64_MAX},
        {"pairs where there were items", 0, 0, STK_VALUE_NODE_MAP},
        {"fewer children: nodes without a parent", 2, 2, 2},
        {"no such kind", 3, 0, 77},
        {"no such number", 3, 0, STK_VALUE_NODE_NUMBER | 9ull << 32},
        {"text outside", 3, 0, STK_VALUE_NODE_TEXT},
    };
    static uint64_t room[PACKED_MAX / 8];

    T_EACH(row, row, rows)
    {
        uint64_t bytes = pack(&document_rows[7], room);

        T_EQ("a node is three words, a head two", bytes, 8 * (2 + 9 * 3));
        T_TRUE(row->name, survives((const uint8_t *)room, bytes));
        room[2 + 3 * row->node + row->word] = row->value;
        T_TRUE(row->name, !survives((const uint8_t *)room, bytes));
    }
}

static void test_fail_nth(void)
{
    static uint64_t room[PACKED_MAX / 8];
    struct stk_view bytes = view_of(document_rows[9].text, document_rows[9].bytes);
    int64_t alive = stk_mem_alive();
    bool failed = true;

    for (uint64_t n = 1; failed && n < 50; n++) {
        struct stoker_error error = {0};
        struct stk_value value, copy = {0};
        struct stk_view packed = {(const uint8_t *)room, 0};
        uint64_t packed_bytes;
        int status;

        T_EQ("open", stk_value_open(&value, STK_VALUE_JSON, bytes, NULL, MEMORY_BYTES_MAX, NULL),
             0);
        stk_mem_fail_nth(n);
        status = stk_value_serialize(&value, (uint8_t *)room, PACKED_MAX, &packed_bytes, &error);
        packed.bytes = packed_bytes;
        status = status < 0 ? status
                            : stk_value_deserialize(&copy, STK_VALUE_JSON, bytes, packed, &error);
        stk_mem_fail_nth(0);
        failed = status < 0;
        if (failed) {
            T_ERROR("fail-nth", &error);
        }
        stk_value_close(&copy);
        stk_value_close(&value);
        T_EQ("no leak", stk_mem_alive(), alive);
    }
    T_TRUE("fail-nth", !failed);
}

int main(void)
{
    test_round_trip();
    test_damage();
    test_forged();
    test_fail_nth();
    return t_finish();
}
