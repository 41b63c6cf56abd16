/* Goal: buffers are cached by size class, within their bound; the last holder puts a buffer back;
 * the budget is right after each of them; without memory there is no buffer, and nothing is lost.
 * Method: rows of sizes; a small budget; each allocation failed in turn. */
#include "loader/fetch/fetch_buffer.h"

#include "base/mem.h"
#include "test/t.h"

#define BUDGET (256u << 20)

static const struct row {
    const char *name;
    uint64_t bytes, capacity;
    bool is_cached;
} rows[] = {
    {"one byte", 1, 64u << 10, true},
    {"a class", 64u << 10, 64u << 10, true},
    {"the next class", (64u << 10) + 1, 128u << 10, true},
    {"the largest class", 16u << 20, 16u << 20, true},
    {"larger than a class", (16u << 20) + 1, (16u << 20) + STK_IO_ALIGN, false},
};

static void test_classes(void)
{
    struct stk_budget budget = {.bytes_max = BUDGET};
    struct stk_fetch_buffer_pool pool;

    stk_fetch_buffer_pool_init(&pool, &budget, BUDGET);
    T_EACH(row, row, rows)
    {
        struct stk_fetch_buffer *buffer = stk_fetch_buffer_get(&pool, row->bytes), *again;

        if (!T_TRUE(row->name, buffer != NULL)) {
            continue;
        }
        T_EQ(row->name, buffer->capacity, row->capacity);
        T_EQ(row->name, pool.in_use, 1);
        buffer->holders = 2;
        stk_fetch_buffer_release(&pool, buffer);
        T_EQ("a holder is left", pool.in_use, 1);
        stk_fetch_buffer_release(&pool, buffer);
        T_EQ("no holder is left", pool.in_use, 0);
        T_EQ(row->name, (uint64_t)budget.bytes, row->is_cached ? row->capacity : 0);
        again = stk_fetch_buffer_get(&pool, row->bytes);
        T_TRUE(row->name, !row->is_cached || again == buffer);
        stk_fetch_buffer_put(&pool, again);
        T_EQ(row->name, stk_fetch_buffer_pool_trim(&pool), row->is_cached ? row->capacity : 0);
        T_EQ(row->name, (uint64_t)budget.bytes, 0);
    }
    stk_fetch_buffer_pool_deinit(&pool);
}

/* Returns the cached bytes after many large buffers were put back. */
static uint64_t cached_bytes(bool has_remote)
{
    struct stk_budget budget = {.bytes_max = 4ull * BUDGET};
    struct stk_fetch_buffer *buffers[16];
    struct stk_fetch_buffer_pool pool;
    uint64_t bytes;

    stk_fetch_buffer_pool_init(&pool, &budget, budget.bytes_max);
    pool.has_remote = has_remote;
    for (uint32_t i = 0; i < STK_COUNT(buffers); i++) {
        buffers[i] = stk_fetch_buffer_get(&pool, 16u << 20);
        T_TRUE("get", buffers[i] != NULL);
    }
    for (uint32_t i = 0; i < STK_COUNT(buffers); i++) {
        stk_fetch_buffer_put(&pool, buffers[i]);
    }
    bytes = (uint64_t)budget.bytes;
    stk_fetch_buffer_pool_deinit(&pool);
    T_EQ("freed", (uint64_t)budget.bytes, 0);
    return bytes;
}

static void test_borrow(void)
{
    struct stk_budget budget = {.bytes_max = BUDGET};
    struct stk_fetch_buffer_pool pool;
    struct stk_fetch_buffer *buffer;
    uint8_t slot[100];

    stk_fetch_buffer_pool_init(&pool, &budget, BUDGET);
    buffer = stk_fetch_buffer_borrow(&pool, slot, sizeof slot);
    T_TRUE("borrowed", buffer && buffer->data == slot && buffer->is_borrowed);
    T_EQ("no memory of the budget", (uint64_t)budget.bytes, 0);
    T_EQ("in use", pool.in_use, 1);
    stk_fetch_buffer_put(&pool, buffer);
    T_EQ("put", pool.in_use, 0);
    T_EQ("not cached", stk_fetch_buffer_pool_trim(&pool), 0);
    stk_fetch_buffer_pool_deinit(&pool);
}

static void test_no_memory(void)
{
    struct stk_budget budget = {.bytes_max = 100u << 10};
    struct stk_fetch_buffer_pool pool;
    struct stk_fetch_buffer *buffer;
    uint8_t slot[8];

    stk_fetch_buffer_pool_init(&pool, &budget, budget.bytes_max);
    T_TRUE("larger than the budget", !stk_fetch_buffer_get(&pool, 100u << 10));
    T_TRUE("larger than memory", !stk_fetch_buffer_get(&pool, UINT64_MAX));
    stk_mem_fail_nth(1);
    T_TRUE("no memory", !stk_fetch_buffer_get(&pool, 1));
    stk_mem_fail_nth(1);
    T_TRUE("no memory", !stk_fetch_buffer_borrow(&pool, slot, sizeof slot));
    stk_mem_fail_nth(0);
    T_EQ("nothing is lost", (uint64_t)budget.bytes, 0);
    T_EQ("nothing is in use", pool.in_use, 0);
    buffer = stk_fetch_buffer_get(&pool, 1);
    T_TRUE("then there is", buffer != NULL);
    stk_fetch_buffer_put(&pool, buffer);
    stk_fetch_buffer_pool_deinit(&pool);
}

int main(void)
{
    test_classes();
    T_EQ("bound of local files", cached_bytes(false), 64u << 20);
    T_EQ("bound with stores", cached_bytes(true), 128u << 20);
    test_borrow();
    test_no_memory();
    return t_finish();
}
