/* index/string_table.h: a set of byte strings with consecutive numbers, each stored once, in one
 * block.
 *
 *   zeroed = empty -> add ... -> freeze (no more add; the hash table is freed) -> deinit
 *
 * Owner: the holder of the struct. Threads: one, or any after the last add.
 * Memory: 4 bytes and the string per string, 8 more until freeze.
 * Bound: count_max <= 2^30, 2 GiB of bytes. */
#ifndef INDEX_STRING_TABLE_H
#define INDEX_STRING_TABLE_H

#include "base/base.h"

struct stk_string_table {
    uint8_t *bytes;  /* owned */
    uint32_t *ends;  /* owned: string i is bytes[ends[i - 1], ends[i]) */
    uint32_t *slots; /* owned: number + 1, or 0; a power of two of them */
    uint32_t count, capacity, slot_count;
    uint32_t byte_count, byte_capacity;
    uint64_t salt;
};

/* Sets *number_out to the number of the string: a new one gets the next number. Returns 0, -ENOMEM,
 * or STOKER_ERROR_LIMIT if there are count_max strings already, or too many bytes. The caller fills
 * the error. */
int stk_string_table_add(struct stk_string_table *table, struct stk_view word, uint32_t count_max,
                         uint32_t *number_out);
/* Returns the number of the string, or -1. Not after freeze. */
int64_t stk_string_table_find(const struct stk_string_table *table, struct stk_view word);
struct stk_view stk_string_table_get(const struct stk_string_table *table, uint32_t number);
/* Frees the hash table. */
void stk_string_table_freeze(struct stk_string_table *table);
void stk_string_table_deinit(struct stk_string_table *table);
uint64_t stk_string_table_memory_bytes(const struct stk_string_table *table);

#endif
