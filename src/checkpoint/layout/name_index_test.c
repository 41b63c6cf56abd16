/* Goal: the index of names finds every name, the lowest number of a name that two files have, and
 * no other name; it is small; damaged bytes are refused or find nothing. Method: names with long
 * common parts and duplicates; sizes that do not fit. Covers name_index.c. */
#include "base/mem.h"
#include "checkpoint/layout/name_index.h"
#include "test/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS 10007u

static char (*names)[64];

static void test_find(void)
{
    struct stk_named_tensor *named = stk_alloc(TENSORS, sizeof *named);
    uint64_t counts[2] = {7, TENSORS - 7}, bytes = 0, tensor = 0;
    struct stk_name_index index;
    uint8_t *made = NULL;

    for (uint64_t i = 0; i < TENSORS; i++) {
        named[i] = (struct stk_named_tensor){names[i % (TENSORS - 3)], i};
    }
    T_EQ("make",
         stk_name_index_make(&(struct stk_name_index_input){named, TENSORS, counts, 2}, &made,
                             &bytes, NULL),
         0);
    T_EQ("parse", stk_name_index_parse(&index, made, bytes, NULL), 0);
    T_EQ("tensors", stk_name_index_tensors(&index, 1), TENSORS - 7);
    for (uint64_t i = 0; i < TENSORS - 3; i++) {
        T_TRUE("found", stk_name_index_find(&index, names[i], &tensor) && tensor == i);
    }
    T_TRUE("before all", !stk_name_index_find(&index, "", &tensor));
    T_TRUE("between", !stk_name_index_find(&index, "layers.5.", &tensor));
    T_TRUE("behind all", !stk_name_index_find(&index, "z", &tensor));
    T_TRUE("small", bytes < TENSORS * 24);
    stk_name_index_deinit(&index);
    T_EQ("no names",
         stk_name_index_make(&(struct stk_name_index_input){named, 0, counts, 0}, &made, &bytes,
                             NULL),
         0);
    T_EQ("parse", stk_name_index_parse(&index, made, bytes, NULL), 0);
    T_TRUE("none", !stk_name_index_find(&index, "a", &tensor));
    stk_name_index_deinit(&index);
    stk_free(named);
}

static void test_sizes(void)
{
    struct stk_named_tensor named = {"a", 0};
    uint64_t count = 1, bytes = 0, tensor;
    uint8_t *made = NULL;

    T_EQ("make",
         stk_name_index_make(&(struct stk_name_index_input){&named, 1, &count, 1}, &made, &bytes,
                             NULL),
         0);
    for (uint64_t i = 0; i < bytes; i++) {
        for (uint64_t cut = 0; cut < 2; cut++) { /* a byte that differs, or a shorter file */
            struct stoker_error error = {0};
            struct stk_name_index index;
            uint8_t *copy = stk_alloc(bytes, 1);

            memcpy(copy, made, bytes);
            copy[i] ^= cut ? 0 : 0x81;
            if (stk_name_index_parse(&index, copy, cut ? i : bytes, &error) == 0) {
                T_TRUE("a number or a name", !cut && (i < 16 || i >= 32));
                (void)stk_name_index_find(&index, "a", &tensor);
                stk_name_index_deinit(&index);
            } else {
                T_TRUE("error", error.status == STOKER_ERROR_FORMAT && error.advice[0]);
            }
        }
    }
    stk_free(made);
}

int main(void)
{
    int64_t alive = stk_mem_alive();

    names = malloc(TENSORS * sizeof *names);
    for (uint64_t i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "layers.%04u.mlp.experts.%u.%s", (unsigned)(i / 20),
                 (unsigned)(i % 10), i / 10 % 2 ? "weight" : "exp_avg");
    }
    test_find();
    test_sizes();
    T_EQ("memory", stk_mem_alive(), alive);
    free(names);
    return t_finish();
}
