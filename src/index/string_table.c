/* Byte strings with dense numbers: an open-addressed table of numbers over one block of bytes. */
#include "index/string_table.h"

#include "base/mem.h"
#include "base/random.h"

#include <errno.h>
#include <string.h>

static uint32_t *find_slot(const struct stk_string_table *table, struct stk_view word);
static bool reserve_bytes(struct stk_string_table *table, size_t more_bytes);
static bool grow_slots(struct stk_string_table *table);

enum { FIRST_COUNT = 16 };

int stk_string_table_add(struct stk_string_table *table, struct stk_view word, uint32_t count_max,
                         uint32_t *number_out)
{
    uint32_t *slot = table->slots ? find_slot(table, word) : NULL;

    if (slot && *slot) {
        *number_out = *slot - 1;
        return 0;
    }
    if (table->count >= count_max || word.bytes > UINT32_MAX / 2 ||
        table->byte_count > UINT32_MAX / 2) {
        return STOKER_ERROR_LIMIT;
    }
    if (!reserve_bytes(table, word.bytes)) {
        return -ENOMEM;
    }
    slot = find_slot(table, word);
    if (word.bytes > 0) {
        memcpy(table->bytes + table->byte_count, word.data, word.bytes);
    }
    table->byte_count += word.bytes;
    table->ends[table->count] = table->byte_count;
    *number_out = table->count++;
    *slot = table->count;
    return 0;
}

int64_t stk_string_table_find(const struct stk_string_table *table, struct stk_view word)
{
    return table->slots ? (int64_t)*find_slot(table, word) - 1 : -1;
}

struct stk_view stk_string_table_get(const struct stk_string_table *table, uint32_t number)
{
    uint32_t start = number > 0 ? table->ends[number - 1] : 0;

    return (struct stk_view){table->bytes + start, table->ends[number] - start};
}

void stk_string_table_freeze(struct stk_string_table *table)
{
    uint8_t *bytes = stk_realloc(table->bytes, table->byte_count, table->byte_count, 1);
    uint32_t *ends = stk_realloc(table->ends, table->count, table->count, sizeof *ends);

    /* Shrinking may fail; then the larger blocks stay. */
    table->bytes = bytes ? bytes : table->bytes;
    table->ends = ends ? ends : table->ends;
    table->byte_capacity = bytes ? table->byte_count : table->byte_capacity;
    table->capacity = ends ? table->count : table->capacity;
    stk_free(table->slots);
    table->slots = NULL;
    table->slot_count = 0;
}

void stk_string_table_deinit(struct stk_string_table *table)
{
    stk_free(table->bytes);
    stk_free(table->ends);
    stk_free(table->slots);
    *table = (struct stk_string_table){0};
}

/* Salted with an address of the heap, so that input cannot be made to collide. No result depends
 * on it: numbers are assigned in the order of add. */
static uint64_t hash(const struct stk_string_table *table, struct stk_view word)
{
    uint64_t hash = table->salt ^ word.bytes;
    uint64_t part;
    size_t at = 0;

    for (; at + sizeof part <= word.bytes; at += sizeof part) {
        memcpy(&part, word.data + at, sizeof part);
        hash = stk_mix64(hash ^ part);
    }
    part = 0;
    for (; at < word.bytes; at++) {
        part = part << 8 | word.data[at];
    }
    return stk_mix64(hash ^ part);
}

/* The slot of the word, or the free one where it would go; at least a quarter is free. */
static uint32_t *find_slot(const struct stk_string_table *table, struct stk_view word)
{
    uint32_t mask = table->slot_count - 1;
    uint32_t at = hash(table, word) & mask;

    while (table->slots[at]) {
        struct stk_view other = stk_string_table_get(table, table->slots[at] - 1);

        if (other.bytes == word.bytes &&
            (word.bytes == 0 || memcmp(other.data, word.data, word.bytes) == 0)) {
            break;
        }
        at = (at + 1) & mask;
    }
    return &table->slots[at];
}

static bool reserve_bytes(struct stk_string_table *table, size_t more_bytes)
{
    size_t need = (size_t)table->byte_count + more_bytes;

    if (table->count == table->capacity) {
        uint32_t capacity = table->capacity ? table->capacity * 2 : FIRST_COUNT;
        uint32_t *ends = stk_realloc(table->ends, table->capacity, capacity, sizeof *ends);

        if (!ends) {
            return false;
        }
        table->ends = ends;
        table->capacity = capacity;
    }
    if (need > table->byte_capacity || !table->bytes) {
        size_t capacity = stk_min(stk_max(need * 2, 256), UINT32_MAX);
        uint8_t *bytes = stk_realloc(table->bytes, table->byte_capacity, capacity, 1);

        if (!bytes) {
            return false;
        }
        table->bytes = bytes;
        table->byte_capacity = capacity;
    }
    return table->count < table->slot_count / 4 * 3 || grow_slots(table);
}

static bool grow_slots(struct stk_string_table *table)
{
    uint32_t slot_count = table->slot_count ? table->slot_count * 2 : FIRST_COUNT * 2;
    uint32_t *slots = stk_alloc(slot_count, sizeof *slots);

    if (!slots) {
        return false;
    }
    if (!table->slots) {
        table->salt = stk_mix64((uintptr_t)slots);
    }
    stk_free(table->slots);
    table->slots = slots;
    table->slot_count = slot_count;
    for (uint32_t i = 0; i < table->count; i++) {
        *find_slot(table, stk_string_table_get(table, i)) = i + 1;
    }
    return true;
}

uint64_t stk_string_table_memory_bytes(const struct stk_string_table *table)
{
    return table->byte_capacity + sizeof *table->ends * (uint64_t)table->capacity +
           sizeof *table->slots * (uint64_t)table->slot_count;
}
