/* index/string_table.h: byte strings with dense numbers, each kept once, end to end in one block.
 *
 *   zeroed = empty -> intern ... -> settle (no more intern, the hash table is gone) -> deinit
 *
 * Owner: whoever holds the struct. Threads: one, or any after the last intern.
 * Memory: 4 bytes and the string each, 8 more until settle. Bound: count_max <= 2^30, 2 GiB of
 * bytes. */
#ifndef INDEX_STRING_TABLE_H
#define INDEX_STRING_TABLE_H

#include "base/base.h"

struct stk_string_table {
    uint8_t *bytes;  /* owned */
    uint32_t *ends;  /* owned: word i is bytes[ends[i - 1], ends[i]) */
    uint32_t *slots; /* owned: number + 1, or 0; a power of two of them */
    uint32_t count, capacity, slot_count;
    uint32_t byte_count, byte_capacity;
    uint64_t salt;
};

/* Gives the number of the word, which is count-before if it is new. -ENOMEM; LIMIT if there are
 * count_max words already, or too many bytes. No error is filled: the caller knows the place. */
int stk_string_table_add(struct stk_string_table *table, struct stk_view word, uint32_t count_max,
                         uint32_t *number_out);
/* -1: absent. Not after settle. */
int64_t stk_string_table_find(const struct stk_string_table *table, struct stk_view word);
struct stk_view stk_string_table_get(const struct stk_string_table *table, uint32_t number);
/* Frees what only intern needs. */
void stk_string_table_freeze(struct stk_string_table *table);
void stk_string_table_deinit(struct stk_string_table *table);
uint64_t stk_string_table_memory_bytes(const struct stk_string_table *table);

#endif
