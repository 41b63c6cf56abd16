/* Goal: structs of older and newer programs both work; no field of a struct is ignored.
 * Method: rows of sizes and of the bytes after the struct that the library knows, read as options
 * and written as output. */
#include "base/options.h"
#include "test/t.h"

#include <string.h>

/* The library's version of the struct; its first version ended before `third`. */
struct known {
    size_t struct_size;
    uint64_t first, second, third;
};
#define BYTES_MIN offsetof(struct known, third)

/* The program's version. */
union caller {
    struct known known;
    uint8_t bytes[2 * STK_OPTIONS_BYTES_MAX];
};

static const struct row {
    const char *name;
    size_t size;
    size_t set; /* a byte that is not 0; 0: none */
    int read, write;
    uint64_t third; /* after reading */
    const char *where;
} rows[] = {
    {"same", sizeof(struct known), 0, 0, 0, 3, ""},
    {"older", BYTES_MIN, 0, 0, 0, 0, ""},
    {"older than the first", BYTES_MIN - 1, 0, STOKER_ERROR_ARGUMENT, 0, 0, "struct_size 23"},
    {"newer", sizeof(struct known) + 8, 0, 0, 0, 3, ""},
    {"newer, set behind its end", sizeof(struct known) + 8, sizeof(struct known) + 8, 0, 0, 3, ""},
    {"newer, its first byte", sizeof(struct known) + 8, sizeof(struct known), STOKER_ERROR_ARGUMENT,
     0, 0, "some options: struct_size 40, known 32, byte 32 is set"},
    {"newer, its last byte", sizeof(struct known) + 8, sizeof(struct known) + 7,
     STOKER_ERROR_ARGUMENT, 0, 0, "byte 39 is set"},
    {"not set", 0, 0, STOKER_ERROR_ARGUMENT, STOKER_ERROR_ARGUMENT, 0, "struct_size 0"},
    {"its size only", sizeof(size_t), 0, STOKER_ERROR_ARGUMENT, 0, 0, "struct_size 8"},
    {"half of its size", sizeof(size_t) - 1, 0, STOKER_ERROR_ARGUMENT, STOKER_ERROR_ARGUMENT, 0,
     "struct_size 7"},
    {"largest", STK_OPTIONS_BYTES_MAX, 0, 0, 0, 3, ""},
    {"huge", STK_OPTIONS_BYTES_MAX + 1, 0, STOKER_ERROR_ARGUMENT, STOKER_ERROR_ARGUMENT, 0,
     "struct_size 4097"},
    {"garbage", SIZE_MAX, 0, STOKER_ERROR_ARGUMENT, STOKER_ERROR_ARGUMENT, 0, ""},
};

static void test_read(const struct row *row)
{
    union caller caller = {.known = {row->size, 1, 2, 3}};
    struct known known = {9, 9, 9, 9};
    struct stoker_error error = {0};

    if (row->set > 0) {
        caller.bytes[row->set] = 1;
    }
    T_EQ(row->name,
         stk_options_read(&known, sizeof known, BYTES_MIN, &caller, "some options", &error),
         row->read);
    T_EQ(row->name, known.struct_size, row->read < 0 ? 0 : sizeof known);
    T_EQ(row->name, known.second, row->read < 0 ? 0 : 2);
    T_EQ(row->name, known.third, row->third);
    if (row->read < 0) {
        T_ERROR(row->name, &error);
        T_HAS(row->name, error.where, row->where);
    }
}

static void test_write(const struct row *row)
{
    static const struct known full = {77, 1, 2, 3};
    struct stoker_error error = {0};
    union caller caller, want;
    size_t end = row->write < 0 ? 0 : row->size;

    memset(&caller, 0xee, sizeof caller);
    caller.known.struct_size = row->size;
    want = caller;
    for (size_t i = sizeof row->size; i < end; i++) {
        want.bytes[i] = i < sizeof full ? ((const uint8_t *)&full)[i] : 0;
    }
    T_EQ(row->name, stk_options_write_output(&caller, &full, sizeof full, "info", &error),
         row->write);
    T_TRUE(row->name, memcmp(&caller, &want, sizeof caller) == 0);
    if (row->write < 0) {
        T_ERROR(row->name, &error);
    }
    T_EQ(row->name, stk_options_check_output(&caller, sizeof full, sizeof row->size, "info", NULL),
         row->write);
}

/* A struct of more than STK_OPTIONS_BYTES_MAX / 2 bytes may double. */
static void test_large(void)
{
    static uint8_t large[3 * STK_OPTIONS_BYTES_MAX], full[STK_OPTIONS_BYTES_MAX];
    size_t size = 2 * sizeof full;

    memcpy(large, &size, sizeof size);
    T_EQ("double", stk_options_write_output(large, full, sizeof full, "info", NULL), 0);
    size++;
    memcpy(large, &size, sizeof size);
    T_EQ("more", stk_options_write_output(large, full, sizeof full, "info", NULL),
         STOKER_ERROR_ARGUMENT);
}

int main(void)
{
    struct stoker_error error = {0};
    struct known known;

    T_EACH(row, row, rows)
    {
        test_read(row);
        test_write(row);
    }
    test_large();
    T_EQ("NULL", stk_options_read(&known, sizeof known, BYTES_MIN, NULL, "some options", &error),
         STOKER_ERROR_ARGUMENT);
    T_ERROR("NULL", &error);
    T_EQ("no output", stk_options_check_output(NULL, sizeof known, BYTES_MIN, "info", NULL),
         STOKER_ERROR_ARGUMENT);
    T_EQ("zeroed", stk_options_check_output(&known, sizeof known, BYTES_MIN, "info", NULL),
         STOKER_ERROR_ARGUMENT);
    return t_finish();
}
