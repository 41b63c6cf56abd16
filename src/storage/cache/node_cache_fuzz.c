/* Fuzz target of cache_block.c and cache_index.c: any bytes as the head of a block, as an index,
 * and as the slots of one. What is accepted is within its bounds; no lookup leaves the slots. */
#include "storage/cache/cache_index.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_head(const uint8_t *data, size_t bytes)
{
    uint8_t raw[STK_CACHE_HEAD_BYTES] = {0};
    struct stk_cache_head head;

    memcpy(raw, data, stk_min(bytes, sizeof raw));
    if (stk_cache_head_decode(raw, &head)) {
        STK_ASSERT(head.bytes > 0 && head.bytes <= STK_CACHE_BLOCK_BYTES_MAX);
        STK_ASSERT(head.offset <= head.object_bytes - head.bytes);
        STK_ASSERT(memchr(head.url, '\0', sizeof head.url) &&
                   memchr(head.tag, '\0', sizeof head.tag));
    }
}

static void check_index(const uint8_t *data, size_t bytes)
{
    struct stk_cache_index_head head;

    if (stk_cache_index_check(data, bytes, stk_cache_index_bytes(STK_CACHE_SLOTS_MIN)) == 0) {
        memcpy(&head, data, sizeof head);
        STK_ASSERT(head.slot_count == STK_CACHE_SLOTS_MIN);
        STK_ASSERT(head.block_bytes <= STK_CACHE_BLOCK_BYTES_MAX);
    }
}

/* Slots with any content. */
static void check_slots(const uint8_t *data, size_t bytes)
{
    static struct stk_cache_slot slots[STK_CACHE_SLOTS_MIN];
    struct stk_cache_index index = {.slots = slots, .slot_count = STK_CACHE_SLOTS_MIN};
    struct stk_cache_key key = {{0}};
    uint64_t state;
    uint32_t slot;

    memset(slots, 0, sizeof slots);
    memcpy(slots, data, stk_min(bytes, sizeof slots));
    memcpy(key.bytes, data, stk_min(bytes, sizeof key.bytes));
    slot = stk_cache_index_find(&index, &key, &state);
    STK_ASSERT(slot == STK_CACHE_NO_SLOT || slot < index.slot_count);
    slot = stk_cache_index_free_slot_locked(&index, &key);
    STK_ASSERT(slot == STK_CACHE_NO_SLOT || slot < index.slot_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    check_head(data, bytes);
    check_index(data, bytes);
    check_slots(data, bytes);
    return 0;
}
