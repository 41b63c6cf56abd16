/* Goal: blocks of hidden memory are zero, apart from each other, and where no core dump looks;
 * what is freed or left is wiped.
 * Method: the flags of their pages in smaps; blocks of all sizes with a pattern, moved and freed in
 * another order. */
#include "base/hidden.h"

#include "test/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 200u

static bool is_zero(const uint8_t *block, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (block[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Whether the kernel leaves the page out of cores. */
static bool is_hidden(const void *place)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    uintptr_t begin, end, at = (uintptr_t)place;
    bool inside = false, hidden = false;
    char line[512];

    while (maps && fgets(line, sizeof line, maps)) {
        char *rest;

        begin = strtoull(line, &rest, 16);
        if (*rest == '-') {
            end = strtoull(rest + 1, &rest, 16);
            inside = *rest == ' ' && at >= begin && at < end;
        } else if (inside && strncmp(line, "VmFlags:", 8) == 0) {
            hidden = strstr(line, " dd") != NULL;
        }
    }
    if (maps) {
        fclose(maps);
    }
    return hidden;
}

static void test_blocks(void)
{
    uint8_t *blocks[BLOCKS];
    size_t bytes[BLOCKS];
    volatile size_t many = SIZE_MAX / 2;

    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < BLOCKS; i++) {
            bytes[i] = ((size_t)1 << (i % 22)) + i;
            blocks[i] = stk_hidden_calloc(1, bytes[i]);
            T_TRUE("there", blocks[i] && (uintptr_t)blocks[i] % 16 == 0);
            T_TRUE("zero", is_zero(blocks[i], bytes[i]));
            memset(blocks[i], (int)(i | 1), bytes[i]);
        }
        T_TRUE("hidden", is_hidden(blocks[0]) && is_hidden(blocks[20]) && is_hidden(blocks[21]));
        for (uint32_t i = 0; i < BLOCKS; i++) {
            stk_hidden_free(blocks[(i * 7 + round) % BLOCKS]);
        }
    }
    stk_hidden_free(NULL);
    T_TRUE("too much", !stk_hidden_calloc(many, 3));
}

static void test_texts(void)
{
    char *text = stk_hidden_strdup("a word"), *again;

    T_STR("copied", text, "a word");
    T_TRUE("hidden", is_hidden(text));
    stk_hidden_free(text);
    again = stk_hidden_alloc(7);
    T_TRUE("wiped", again == text && is_zero((uint8_t *)again, 7));
    stk_hidden_free(again);
}

int main(void)
{
    test_blocks();
    test_texts();
    return t_finish();
}
