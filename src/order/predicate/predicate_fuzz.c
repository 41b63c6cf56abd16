/* Fuzz target of predicate.c: any text. An accepted predicate gives a result for any column values,
 * reads each column once at most, and gives the same result again. */
#include "order/predicate/predicate.h"

#include "base/random.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct stk_predicate_value value_of(const uint8_t *data, size_t bytes, uint64_t draw)
{
    struct stk_predicate_value value = {.kind = STK_PREDICATE_NONE + draw % 4};

    if (value.kind == STK_PREDICATE_INT) {
        value.integer = (int64_t)(draw >> 2) >> draw / 4 % 62;
    } else if (value.kind == STK_PREDICATE_REAL) {
        value.real = (double)(int64_t)draw * (draw & 64 ? 1e-18 : 1e290);
    } else if (value.kind == STK_PREDICATE_TEXT) {
        value.text = (struct stk_view){data, draw / 4 % (bytes + 1)};
    }
    return value;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_predicate_value values[STK_PREDICATE_COLUMNS_MAX] = {0};
    struct stoker_error error = {0};
    struct stk_predicate query;
    uint32_t column = 0, columns_used = 0;
    int status = stk_predicate_parse(&query, (struct stk_view){data, bytes}, &error), answer;

    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
        STK_ASSERT(!query.text && !query.nodes);
        return 0;
    }
    for (uint32_t i = 0; i < query.column_count; i++) {
        STK_ASSERT(query.columns[i][0] && strlen(query.columns[i]) <= bytes);
    }
    while ((answer = stk_predicate_evaluate(&query, values, &column)) < 0) {
        STK_ASSERT(column < query.column_count && values[column].kind == STK_PREDICATE_UNKNOWN);
        STK_ASSERT(++columns_used <= query.column_count);
        values[column] = value_of(data, bytes, stk_random_key(bytes, column));
    }
    STK_ASSERT(answer <= 1 && stk_predicate_evaluate(&query, values, &column) == answer);
    stk_predicate_deinit(&query);
    return 0;
}
