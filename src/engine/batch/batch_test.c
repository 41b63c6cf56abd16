/* Goal: batches return to their pool from any thread, live past it, and never pass the budget.
 * Method: a keeper that counts; rows of sizes; each allocation failed in turn. */
#include "base/mem.h"
#include "engine/batch/batch.h"
#include "test/t.h"

#include <pthread.h>
#include <string.h>

struct counts {
    _Atomic int returned, released;
};

static void returned(void *keeper)
{
    ((struct counts *)keeper)->returned++;
}

static void released(void *keeper)
{
    ((struct counts *)keeper)->released++;
}

static const struct stk_batch_field_shape shapes[] = {
    {.dtype = STOKER_FLOAT32,
     .dimension_count = 3,
     .shape = {3, 8, 4},
     .strides = {32, 4, 1},
     .slot_bytes = 3 * 8 * 4 * 4},
    {.dtype = STOKER_BYTES},
    {.dtype = STOKER_INT64, .slot_bytes = 8},
};

static struct stk_batch_pool *open_pool(struct stk_budget *budget, struct counts *counts)
{
    struct stk_batch_owner keeper = {budget, counts, returned, released};
    struct stk_batch_pool *pool = NULL;

    T_EQ("open", stk_batch_pool_open(&pool, &keeper, shapes, STK_COUNT(shapes), 10, NULL), 0);
    return pool;
}

/* Bytes of a batch that do not fit in 64 bits: 2^40 a slot and 2^24 slots are 0 modulo 2^64. */
static void test_sizes(void)
{
    static const uint64_t slot_bytes[] = {UINT64_C(1) << 40, UINT64_C(1) << 38, UINT64_MAX};

    for (size_t i = 0; i < STK_COUNT(slot_bytes); i++) {
        struct stk_batch_field_shape shape = {.dtype = STOKER_UINT8, .slot_bytes = slot_bytes[i]};
        struct stk_budget budget = {.bytes_max = UINT64_MAX};
        struct counts counts = {0};
        struct stk_batch_owner keeper = {&budget, &counts, returned, released};
        struct stk_batch_pool *pool = NULL;
        struct stoker_error error = {0};

        T_EQ("sizes", stk_batch_pool_open(&pool, &keeper, &shape, 1, 1u << 24, &error),
             STOKER_ERROR_BUDGET);
        T_ERROR("sizes", &error);
        T_TRUE("sizes", pool == NULL && counts.released == 0);
    }
}

static const uint64_t value_bytes[STK_BATCH_FIELDS_MAX] = {0, 5000, 0};

static void test_arrays(void)
{
    struct stk_budget budget = {.bytes_max = 1u << 20};
    struct counts counts = {0};
    struct stk_batch_pool *pool = open_pool(&budget, &counts);
    struct stoker_batch *batch;
    struct stoker_array array;

    T_EQ("take", stk_batch_pool_get(pool, 7, value_bytes, &batch, NULL), 0);
    T_EQ("samples", stoker_batch_samples(batch), 7);
    T_EQ("image", stoker_batch_array(batch, 0, &array), 0);
    T_EQ("dimensions", array.dimension_count, 4);
    T_EQ("shape", array.shape[0] * 1000 + array.shape[3], 7004);
    T_EQ("stride", array.strides[0], 96);
    T_EQ("scalar", stoker_batch_array(batch, 2, &array), 0);
    T_EQ("scalar dimensions", array.dimension_count, 1);
    T_EQ("scalar stride", array.strides[0], 1);
    T_EQ("no such field", stoker_batch_array(batch, 3, &array), STOKER_ERROR_ARGUMENT);
    T_EQ("grow", stk_batch_grow(batch, 1, 100000, NULL), 0);
    T_TRUE("grown", batch->fields[1].capacity >= 100000);
    stoker_batch_retain(batch);
    stoker_batch_close(batch);
    T_EQ("still held", counts.returned, 0);
    stoker_batch_close(batch);
    T_EQ("returned", counts.returned, 1);
    T_EQ("out", stk_batch_pool_in_use(pool), 0);
    T_TRUE("retained for reuse", atomic_load(&budget.bytes) > 0);
    T_TRUE("trim", stk_batch_pool_trim(pool) > 100000);
    T_EQ("budget", atomic_load(&budget.bytes), 0);
    stk_batch_pool_close(pool);
    T_EQ("released", counts.released, 1);
}

/* Rows of two numbers, and arrays of two free sides: how they describe themselves. */
static void test_ragged(void)
{
    static const struct stk_batch_field_shape ragged[] = {
        {.dtype = STOKER_FLOAT32,
         .dimension_count = 2,
         .shape = {-1, 2},
         .ragged = true,
         .item_bytes = 4},
        {.dtype = STOKER_INT32,
         .dimension_count = 3,
         .shape = {5, -1, -1},
         .ragged = true,
         .item_bytes = 4},
        {.dtype = STOKER_UINT8,
         .dimension_count = 1,
         .shape = {-1},
         .ragged = true,
         .item_bytes = 1},
    };
    static const uint64_t bytes[STK_BATCH_FIELDS_MAX] = {0, 999, 1};
    struct stk_budget budget = {.bytes_max = 1u << 20};
    struct counts counts = {0};
    struct stk_batch_owner keeper = {&budget, &counts, returned, released};
    struct stk_batch_pool *pool = NULL;
    struct stoker_batch *batch = NULL;
    struct stoker_array array;

    T_EQ("row", stk_batch_field_row_bytes(&ragged[0]), 8);
    T_EQ("element", stk_batch_field_row_bytes(&ragged[1]), 4);
    T_EQ("element", stk_batch_field_row_bytes(&ragged[2]), 1);
    T_EQ("open", stk_batch_pool_open(&pool, &keeper, ragged, 3, 4, NULL), 0);
    T_EQ("take", stk_batch_pool_get(pool, 3, bytes, &batch, NULL), 0);
    T_EQ("rows", stoker_batch_array(batch, 0, &array), 0);
    T_TRUE("rows", array.offsets && !array.shapes && array.shape_rank == 0);
    T_EQ("rows", array.dimension_count, 2);
    T_EQ("rows", array.shape[0] * 100 + array.shape[1] * 10 + array.strides[0], 322);
    T_EQ("sides", stoker_batch_array(batch, 1, &array), 0);
    T_TRUE("sides", array.offsets && array.shapes && array.shape_rank == 3);
    T_EQ("sides", array.dimension_count, 1);
    T_TRUE("room", batch->fields[1].capacity >= stk_batch_buffer_bytes(999));
    T_EQ("a list", stoker_batch_array(batch, 2, &array), 0);
    T_TRUE("a list", array.offsets && !array.shapes && array.dimension_count == 1);
    stoker_batch_close(batch);
    stk_batch_pool_close(pool);
    T_EQ("budget", atomic_load(&budget.bytes), 0);
}

static void test_budget(void)
{
    struct stk_budget budget = {.bytes_max = 60000};
    struct counts counts = {0};
    struct stk_batch_pool *pool = open_pool(&budget, &counts);
    struct stoker_batch *batches[8] = {NULL};
    struct stoker_error error = {0};
    int status = 0, count = 0;

    while (count < 8 && status == 0) {
        status = stk_batch_pool_get(pool, 10, value_bytes, &batches[count], &error);
        count += status == 0;
    }
    T_EQ("refused", status, STOKER_ERROR_BUDGET);
    T_ERROR("refused", &error);
    T_TRUE("some", count >= 2 && count < 8);
    T_TRUE("peak", atomic_load(&budget.bytes_peak) <= 60000);
    stoker_batch_close(batches[0]);
    T_EQ("again", stk_batch_pool_get(pool, 10, value_bytes, &batches[0], &error), 0);
    for (int i = 0; i < count; i++) {
        stoker_batch_close(batches[i]);
    }
    stk_batch_pool_close(pool);
    T_EQ("all back", atomic_load(&budget.bytes), 0);
}

static void *close_many(void *argument)
{
    struct stoker_batch **batches = argument;

    for (int i = 0; i < 20; i++) {
        memset(batches[i]->fields[0].data, i, shapes[0].slot_bytes);
        stoker_batch_close(batches[i]);
    }
    return NULL;
}

/* Four threads close batches after the pool was closed; the last one frees it. */
static void test_threads(void)
{
    struct stk_budget budget = {.bytes_max = 1u << 30};
    struct counts counts = {0};
    struct stk_batch_pool *pool = open_pool(&budget, &counts);
    struct stoker_batch *batches[80];
    pthread_t threads[4];

    for (int i = 0; i < 80; i++) {
        T_EQ("take", stk_batch_pool_get(pool, 3, value_bytes, &batches[i], NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, close_many, &batches[20 * i]);
    }
    stk_batch_pool_close(pool);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    T_EQ("released once", counts.released, 1);
    T_EQ("all back", atomic_load(&budget.bytes), 0);
}

static void test_fail_nth(void)
{
    int64_t alive = stk_mem_alive();

    for (uint64_t n = 1; n < 12; n++) {
        struct stk_budget budget = {.bytes_max = 1u << 20};
        struct counts counts = {0};
        struct stk_batch_pool *pool = open_pool(&budget, &counts);
        struct stoker_batch *batch = NULL;
        struct stoker_error error = {0};

        stk_mem_fail_nth(n);
        if (stk_batch_pool_get(pool, 3, value_bytes, &batch, &error) < 0) {
            T_ERROR("fail-nth", &error);
        }
        stk_mem_fail_nth(0);
        stoker_batch_close(batch);
        stk_batch_pool_close(pool);
        T_EQ("budget", atomic_load(&budget.bytes), 0);
    }
    T_EQ("no leak", stk_mem_alive(), alive);
}

int main(void)
{
    test_sizes();
    test_arrays();
    test_ragged();
    test_budget();
    test_threads();
    test_fail_nth();
    return t_finish();
}
