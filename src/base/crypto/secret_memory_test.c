/* Goal: blocks of secret memory are zeroed, do not overlap, and are excluded from core dumps; freed
 * and unused bytes are wiped.
 * Method: the flags of their pages in smaps; blocks of all sizes with a pattern, moved and freed in
 * another order. */
#include "base/crypto/secret_memory.h"

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
            blocks[i] = stk_secret_calloc(1, bytes[i]);
            T_TRUE("there", blocks[i] && (uintptr_t)blocks[i] % 16 == 0);
            T_TRUE("zero", is_zero(blocks[i], bytes[i]));
            memset(blocks[i], (int)(i | 1), bytes[i]);
        }
        T_TRUE("hidden", is_hidden(blocks[0]) && is_hidden(blocks[20]) && is_hidden(blocks[21]));
        for (uint32_t i = 0; i < BLOCKS; i++) {
            stk_secret_free(blocks[(i * 7 + round) % BLOCKS]);
        }
    }
    stk_secret_free(NULL);
    T_TRUE("too much", !stk_secret_calloc(many, 3));
}

static uint8_t pattern(size_t at)
{
    return (uint8_t)(at % 251 + 1);
}

static bool has_pattern(const uint8_t *block, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (block[i] != pattern(i)) {
            return false;
        }
    }
    return true;
}

/* A block that grows and shrinks, through all sizes, keeps its contents; the bytes that it left
 * behind, and its new ones, are zero. */
static void test_moved(void)
{
    uint8_t *block = NULL, *left;
    size_t bytes = 0;
    volatile size_t much = SIZE_MAX - 8;

    for (size_t more = 1; more < 3u << 20; more += more / 3 + 5) {
        left = block;
        block = stk_secret_realloc(block, more);
        T_TRUE("there", block && (uintptr_t)block % 16 == 0 && is_hidden(block));
        /* The largest are returned. */
        T_TRUE("wiped", block == left || bytes > 1u << 19 || is_zero(left, bytes));
        T_TRUE("retained", has_pattern(block, bytes));
        T_TRUE("zero", is_zero(block + bytes, more - bytes));
        for (; bytes < more; bytes++) {
            block[bytes] = pattern(bytes);
        }
    }
    T_TRUE("too much", !stk_secret_realloc(block, much) && has_pattern(block, bytes));
    block = stk_secret_realloc(block, 100);
    T_TRUE("shrunk", has_pattern(block, 100));
    block = stk_secret_realloc(block, 4000);
    T_TRUE("what it left", has_pattern(block, 100) && is_zero(block + 100, 3900));
    stk_secret_free(block);
    block = stk_secret_realloc(NULL, 0);
    T_TRUE("of nothing", block != NULL);
    stk_secret_free(block);
}

static void test_texts(void)
{
    char *text = stk_secret_strdup("a word"), *again;

    T_STR("copied", text, "a word");
    T_TRUE("hidden", is_hidden(text));
    stk_secret_free(text);
    again = stk_secret_alloc(7);
    T_TRUE("wiped", again == text && is_zero((uint8_t *)again, 7));
    stk_secret_free(again);
}

int main(void)
{
    test_blocks();
    test_moved();
    test_texts();
    return t_finish();
}
