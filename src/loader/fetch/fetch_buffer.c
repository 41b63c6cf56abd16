/* Buffers of the fetcher. */
#include "loader/fetch/fetch_buffer.h"

#include "base/mem.h"
#include "base/memory_pages.h"

#define CACHED_BYTES_MAX (64u << 20)
/* Reads from stores keep more bytes pending, and fresh pages cost more than copying into them. */
#define CACHED_REMOTE_MAX (256u << 20)
#define CACHED_REMOTE_SHARE 8u /* of the budget, at most */

void stk_fetch_buffer_pool_init(struct stk_fetch_buffer_pool *pool, struct stk_budget *budget,
                                uint64_t memory_bytes_max)
{
    *pool = (struct stk_fetch_buffer_pool){.budget = budget, .memory_bytes_max = memory_bytes_max};
    pthread_mutex_init(&pool->lock, NULL);
}

void stk_fetch_buffer_pool_deinit(struct stk_fetch_buffer_pool *pool)
{
    stk_fetch_buffer_pool_trim(pool);
    pthread_mutex_destroy(&pool->lock);
}

static void buffer_free(struct stk_fetch_buffer_pool *pool, struct stk_fetch_buffer *buffer)
{
    stk_pages_free(buffer->data, buffer->capacity);
    stk_budget_release(pool->budget, buffer->capacity);
    stk_free(buffer);
}

uint64_t stk_fetch_buffer_pool_trim(struct stk_fetch_buffer_pool *pool)
{
    struct stk_fetch_buffer *list = NULL, *next;
    uint64_t bytes;

    pthread_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < STK_FETCH_BUFFER_CLASSES; i++) {
        struct stk_fetch_buffer *buffer = pool->locked.cached[i];
        for (; buffer; buffer = next) {
            next = buffer->next;
            buffer->next = list;
            list = buffer;
        }
        pool->locked.cached[i] = NULL;
    }
    bytes = pool->locked.cached_bytes;
    pool->locked.cached_bytes = 0;
    pthread_mutex_unlock(&pool->lock);
    for (; list; list = next) {
        next = list->next;
        buffer_free(pool, list);
    }
    return bytes;
}

static uint64_t class_bytes(uint32_t class_index)
{
    return (uint64_t)STK_FETCH_BUFFER_BYTES_MIN << class_index;
}

static int32_t class_of(uint64_t bytes)
{
    for (uint32_t i = 0; i < STK_FETCH_BUFFER_CLASSES; i++) {
        if (bytes <= class_bytes(i)) {
            return (int32_t)i;
        }
    }
    return -1;
}

static struct stk_fetch_buffer *get_cached(struct stk_fetch_buffer_pool *pool, int32_t class_index)
{
    struct stk_fetch_buffer *buffer;

    pthread_mutex_lock(&pool->lock);
    buffer = pool->locked.cached[class_index];
    if (buffer) {
        pool->locked.cached[class_index] = buffer->next;
        pool->locked.cached_bytes -= buffer->capacity;
    }
    pthread_mutex_unlock(&pool->lock);
    return buffer;
}

static struct stk_fetch_buffer *buffer_new(struct stk_fetch_buffer_pool *pool, uint64_t bytes)
{
    struct stk_fetch_buffer *buffer;

    if (bytes > UINT64_MAX / 4) {
        return NULL;
    }
    bytes = stk_round_up(bytes, STK_IO_ALIGN);
    if (!stk_budget_reserve(pool->budget, bytes)) {
        return NULL;
    }
    buffer = stk_alloc(1, sizeof *buffer);
    if (buffer) {
        buffer->data = stk_pages_alloc(bytes);
    }
    if (!buffer || !buffer->data) {
        stk_budget_release(pool->budget, bytes);
        stk_free(buffer);
        return NULL;
    }
    buffer->capacity = bytes;
    return buffer;
}

struct stk_fetch_buffer *stk_fetch_buffer_get(struct stk_fetch_buffer_pool *pool, uint64_t bytes)
{
    int32_t class_index = class_of(bytes);
    struct stk_fetch_buffer *buffer = NULL;

    if (class_index >= 0) {
        bytes = class_bytes((uint32_t)class_index);
        buffer = get_cached(pool, class_index);
    }
    if (!buffer) {
        buffer = buffer_new(pool, bytes);
        if (!buffer) {
            return NULL;
        }
        buffer->class_index = class_index;
    }
    buffer->fetches = NULL;
    atomic_store_explicit(&buffer->holders, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->in_use, 1, memory_order_relaxed);
    return buffer;
}

struct stk_fetch_buffer *stk_fetch_buffer_borrow(struct stk_fetch_buffer_pool *pool, uint8_t *data,
                                                 uint64_t bytes)
{
    struct stk_fetch_buffer *buffer = stk_alloc(1, sizeof *buffer);

    if (buffer) {
        buffer->data = data;
        buffer->capacity = bytes;
        buffer->is_borrowed = true;
        atomic_fetch_add_explicit(&pool->in_use, 1, memory_order_relaxed);
    }
    return buffer;
}

static bool put_cached(struct stk_fetch_buffer_pool *pool, struct stk_fetch_buffer *buffer)
{
    uint64_t cached_max = CACHED_BYTES_MAX;
    bool is_cached = false;

    if (atomic_load_explicit(&pool->has_remote, memory_order_relaxed)) {
        cached_max = stk_max(
            cached_max, stk_min(pool->memory_bytes_max / CACHED_REMOTE_SHARE, CACHED_REMOTE_MAX));
    }
    pthread_mutex_lock(&pool->lock);
    if (buffer->class_index >= 0 && pool->locked.cached_bytes + buffer->capacity <= cached_max) {
        buffer->next = pool->locked.cached[buffer->class_index];
        pool->locked.cached[buffer->class_index] = buffer;
        pool->locked.cached_bytes += buffer->capacity;
        is_cached = true;
    }
    pthread_mutex_unlock(&pool->lock);
    return is_cached;
}

void stk_fetch_buffer_put(struct stk_fetch_buffer_pool *pool, struct stk_fetch_buffer *buffer)
{
    if (buffer->is_borrowed) {
        stk_free(buffer);
    } else if (!put_cached(pool, buffer)) {
        buffer_free(pool, buffer);
    }
    atomic_fetch_sub_explicit(&pool->in_use, 1, memory_order_relaxed);
}

void stk_fetch_buffer_release(struct stk_fetch_buffer_pool *pool, struct stk_fetch_buffer *buffer)
{
    /* Acquire-release: after the last holder another read may write to the buffer. */
    if (atomic_fetch_sub_explicit(&buffer->holders, 1, memory_order_acq_rel) == 1) {
        stk_fetch_buffer_put(pool, buffer);
    }
}

void stk_fetch_buffer_leak(struct stk_fetch_buffer_pool *pool, struct stk_fetch_buffer *buffer)
{
    stk_pages_leak(buffer->data);
    stk_free(buffer);
    atomic_fetch_sub_explicit(&pool->in_use, 1, memory_order_relaxed);
}
