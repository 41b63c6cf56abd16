/* Byte strings with dense numbers: an open-addressed table of numbers over one block of bytes. */
#include "index/string_table.h"

#include "base/mem.h"
#include "base/random.h"

#include <errno.h>
#include <string.h>

static uint32_t *find_slot(const struct stk_words *words, struct stk_view word);
static bool make_room(struct stk_words *words, size_t more_bytes);
static bool grow_slots(struct stk_words *words);

enum { FIRST_COUNT = 16 };

int stk_words_intern(struct stk_words *words, struct stk_view word, uint32_t count_max,
                     uint32_t *number_out)
{
    uint32_t *slot = words->slots ? find_slot(words, word) : NULL;

    if (slot && *slot) {
        *number_out = *slot - 1;
        return 0;
    }
    if (words->count >= count_max || word.bytes > UINT32_MAX / 2 ||
        words->byte_count > UINT32_MAX / 2) {
        return STOKER_ERROR_LIMIT;
    }
    if (!make_room(words, word.bytes)) {
        return -ENOMEM;
    }
    slot = find_slot(words, word);
    if (word.bytes > 0) {
        memcpy(words->bytes + words->byte_count, word.data, word.bytes);
    }
    words->byte_count += word.bytes;
    words->ends[words->count] = words->byte_count;
    *number_out = words->count++;
    *slot = words->count;
    return 0;
}

int64_t stk_words_find(const struct stk_words *words, struct stk_view word)
{
    return words->slots ? (int64_t)*find_slot(words, word) - 1 : -1;
}

struct stk_view stk_words_at(const struct stk_words *words, uint32_t number)
{
    uint32_t start = number > 0 ? words->ends[number - 1] : 0;

    return (struct stk_view){words->bytes + start, words->ends[number] - start};
}

void stk_words_settle(struct stk_words *words)
{
    uint8_t *bytes = stk_realloc(words->bytes, words->byte_count, words->byte_count, 1);
    uint32_t *ends = stk_realloc(words->ends, words->count, words->count, sizeof *ends);

    /* Shrinking may fail; then the larger blocks stay. */
    words->bytes = bytes ? bytes : words->bytes;
    words->ends = ends ? ends : words->ends;
    words->byte_capacity = bytes ? words->byte_count : words->byte_capacity;
    words->capacity = ends ? words->count : words->capacity;
    stk_free(words->slots);
    words->slots = NULL;
    words->slot_count = 0;
}

void stk_words_deinit(struct stk_words *words)
{
    stk_free(words->bytes);
    stk_free(words->ends);
    stk_free(words->slots);
    *words = (struct stk_words){0};
}

/* Salted with an address of the heap, so that names cannot be made to collide from outside; no
 * result depends on it, since numbers are given in the order of arrival. */
static uint64_t hash(const struct stk_words *words, struct stk_view word)
{
    uint64_t hash = words->salt ^ word.bytes;
    uint64_t part;
    size_t at = 0;

    for (; at + sizeof part <= word.bytes; at += sizeof part) {
        memcpy(&part, word.data + at, sizeof part);
        hash = stk_mix(hash ^ part);
    }
    part = 0;
    for (; at < word.bytes; at++) {
        part = part << 8 | word.data[at];
    }
    return stk_mix(hash ^ part);
}

/* The slot of the word, or the free one where it would go; at least a quarter is free. */
static uint32_t *find_slot(const struct stk_words *words, struct stk_view word)
{
    uint32_t mask = words->slot_count - 1;
    uint32_t at = hash(words, word) & mask;

    while (words->slots[at]) {
        struct stk_view other = stk_words_at(words, words->slots[at] - 1);

        if (other.bytes == word.bytes &&
            (word.bytes == 0 || memcmp(other.data, word.data, word.bytes) == 0)) {
            break;
        }
        at = (at + 1) & mask;
    }
    return &words->slots[at];
}

static bool make_room(struct stk_words *words, size_t more_bytes)
{
    size_t need = (size_t)words->byte_count + more_bytes;

    if (words->count == words->capacity) {
        uint32_t capacity = words->capacity ? words->capacity * 2 : FIRST_COUNT;
        uint32_t *ends = stk_realloc(words->ends, words->capacity, capacity, sizeof *ends);

        if (!ends) {
            return false;
        }
        words->ends = ends;
        words->capacity = capacity;
    }
    if (need > words->byte_capacity || !words->bytes) {
        size_t capacity = stk_min(stk_max(need * 2, 256), UINT32_MAX);
        uint8_t *bytes = stk_realloc(words->bytes, words->byte_capacity, capacity, 1);

        if (!bytes) {
            return false;
        }
        words->bytes = bytes;
        words->byte_capacity = capacity;
    }
    return words->count < words->slot_count / 4 * 3 || grow_slots(words);
}

static bool grow_slots(struct stk_words *words)
{
    uint32_t slot_count = words->slot_count ? words->slot_count * 2 : FIRST_COUNT * 2;
    uint32_t *slots = stk_alloc(slot_count, sizeof *slots);

    if (!slots) {
        return false;
    }
    if (!words->slots) {
        words->salt = stk_mix((uintptr_t)slots);
    }
    stk_free(words->slots);
    words->slots = slots;
    words->slot_count = slot_count;
    for (uint32_t i = 0; i < words->count; i++) {
        *find_slot(words, stk_words_at(words, i)) = i + 1;
    }
    return true;
}

uint64_t stk_words_memory_bytes(const struct stk_words *words)
{
    return words->byte_capacity + sizeof *words->ends * (uint64_t)words->capacity +
           sizeof *words->slots * (uint64_t)words->slot_count;
}
