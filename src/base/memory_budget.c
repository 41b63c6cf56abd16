/* Memory budgets, and an allocator that reserves from one. */
#include "base/memory_budget.h"

#include "base/mem.h"

#include <string.h>

#define BLOCK_HEAD_BYTES 16u /* keeps what follows aligned for any type */

bool stk_budget_reserve(struct stk_budget *budget, uint64_t bytes)
{
    uint64_t used = atomic_load_explicit(&budget->bytes, memory_order_relaxed);
    uint64_t peak;

    do {
        if (bytes > budget->bytes_max - stk_min(used, budget->bytes_max)) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&budget->bytes, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    peak = atomic_load_explicit(&budget->bytes_peak, memory_order_relaxed);
    while (used + bytes > peak &&
           !atomic_compare_exchange_weak_explicit(&budget->bytes_peak, &peak, used + bytes,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    return true;
}

void stk_budget_release(struct stk_budget *budget, uint64_t bytes)
{
    uint64_t before = atomic_fetch_sub_explicit(&budget->bytes, bytes, memory_order_relaxed);

    STK_ASSERT(before >= bytes);
}

void *stk_budget_allocator_alloc(void *opaque, size_t count, size_t item_bytes)
{
    struct stk_budget_allocator *granted = opaque;
    const struct stk_budget_hooks *grant = granted->grant;
    uint64_t bytes;
    uint8_t *block;

    if (!stk_multiply(count, item_bytes, &bytes) || !stk_add(bytes, BLOCK_HEAD_BYTES, &bytes)) {
        return NULL;
    }
    if (grant && !grant->reserve(grant->owner, bytes)) {
        granted->refused = true;
        return NULL;
    }
    block = stk_alloc(bytes, 1);
    if (!block) {
        if (grant) {
            grant->release(grant->owner, bytes);
        }
        return NULL;
    }
    memcpy(block, &bytes, sizeof bytes);
    return block + BLOCK_HEAD_BYTES;
}

void stk_budget_allocator_free(void *opaque, void *data)
{
    const struct stk_budget_hooks *grant = ((struct stk_budget_allocator *)opaque)->grant;
    uint8_t *block = data ? (uint8_t *)data - BLOCK_HEAD_BYTES : NULL;
    uint64_t bytes;

    if (block && grant) {
        memcpy(&bytes, block, sizeof bytes);
        grant->release(grant->owner, bytes);
    }
    stk_free(block);
}
