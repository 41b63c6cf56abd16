/* Goal: each string is stored once under a dense number, through growth, moves of the struct and
 * failed allocations, and limits hold.
 * Method: many strings against a plain array; then the edge cases one by one. */
#include "base/mem.h"
#include "index/string_table.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>

enum { WORDS = 20000 };

static struct stk_view number_word(char *text, size_t capacity, int i)
{
    int bytes = snprintf(text, capacity, "%.*s%d", i % 30, "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", i);

    return (struct stk_view){(const uint8_t *)text, (size_t)bytes};
}

static void test_many(void)
{
    struct stk_string_table words = {0}, moved;
    char text[64];
    uint32_t number;
    int wrong = 0;

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < WORDS; i++) {
            struct stk_view word = number_word(text, sizeof text, i);
            wrong +=
                stk_string_table_add(&words, word, WORDS, &number) != 0 || number != (uint32_t)i;
        }
    }
    T_EQ("the same numbers again", wrong, 0);
    T_EQ("count", words.count, WORDS);
    number_word(text, sizeof text, WORDS);
    T_EQ("count_max",
         stk_string_table_add(&words, number_word(text, sizeof text, WORDS), WORDS, &number),
         STOKER_ERROR_LIMIT);

    moved = words;
    for (int i = 0; i < WORDS; i++) {
        struct stk_view word = number_word(text, sizeof text, i);
        struct stk_view found = stk_string_table_get(&moved, (uint32_t)i);
        wrong += stk_string_table_find(&moved, word) != i || found.bytes != word.bytes ||
                 memcmp(found.data, word.data, word.bytes) != 0;
    }
    T_EQ("found after a move", wrong, 0);
    T_EQ("absent", stk_string_table_find(&moved, number_word(text, sizeof text, WORDS)), -1);
    stk_string_table_freeze(&moved);
    T_EQ("final", stk_string_table_get(&moved, 7).bytes, 8);
    T_TRUE("no table", moved.slots == NULL);
    stk_string_table_deinit(&moved);
}

static void test_edges(void)
{
    struct stk_string_table words = {0};
    struct stk_view none = {NULL, 0};
    struct stk_view nul = {(const uint8_t *)"\0", 1};
    uint32_t number = 9;

    T_EQ("nothing is in an empty one", stk_string_table_find(&words, none), -1);
    T_EQ("the empty word", stk_string_table_add(&words, none, 10, &number), 0);
    T_EQ("NUL", stk_string_table_add(&words, nul, 10, &number), 0);
    T_EQ("is another", number, 1);
    T_EQ("the empty word again", stk_string_table_add(&words, none, 10, &number), 0);
    T_EQ("is the first", number, 0);
    stk_string_table_deinit(&words);
    stk_string_table_freeze(&words);
    stk_string_table_deinit(&words);
}

static void test_memory(void)
{
    int64_t alive = stk_mem_alive();
    int failed = 0;

    for (int n = 1; n < 30; n++) {
        struct stk_string_table words = {0};
        char text[64];
        uint32_t number;

        stk_mem_fail_nth(n);
        for (int i = 0; i < 200; i++) {
            struct stk_view word = number_word(text, sizeof text, i);
            if (stk_string_table_add(&words, word, WORDS, &number) == -ENOMEM) {
                failed++;
                T_EQ("and once more", stk_string_table_add(&words, word, WORDS, &number), 0);
            }
            T_EQ("number", number, i);
        }
        stk_string_table_freeze(&words);
        T_EQ("the last word", stk_string_table_get(&words, 199).bytes, 199 % 30 + 3);
        stk_string_table_deinit(&words);
        T_EQ("no leak", stk_mem_alive(), alive);
    }
    stk_mem_fail_nth(0);
    T_TRUE("allocations failed", failed > 5);
}

int main(void)
{
    test_many();
    test_edges();
    test_memory();
    return t_finish();
}
