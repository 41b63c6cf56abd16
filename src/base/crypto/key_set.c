/* A set of keys: open addressing over 128 bits of SHA-256. */
#include "base/crypto/key_set.h"

#include "base/crypto/digest.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

static uint64_t *find_slot(const struct stk_key_set *keys, const uint64_t hash[2])
{
    for (uint64_t at = hash[0];; at++) {
        uint64_t *slot = keys->slots[at & (keys->capacity - 1)];

        if ((slot[0] == hash[0] && slot[1] == hash[1]) || (slot[0] | slot[1]) == 0) {
            return slot;
        }
    }
}

static int grow(struct stk_key_set *keys)
{
    struct stk_key_set grown = {.count = keys->count,
                                .capacity = stk_max(1024, keys->capacity * 2)};

    grown.slots = stk_alloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < keys->capacity; i++) {
        if ((keys->slots[i][0] | keys->slots[i][1]) != 0) {
            memcpy(find_slot(&grown, keys->slots[i]), keys->slots[i], sizeof keys->slots[i]);
        }
    }
    stk_free(keys->slots);
    *keys = grown;
    return 0;
}

static void hash(struct stk_view key, uint64_t digest[4])
{
    struct stk_sha256 sha;

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, key.data, key.bytes);
    stk_sha256_done(&sha, (uint8_t *)digest);
    digest[0] |= (digest[0] | digest[1]) == 0; /* zeros mark a free slot */
}

bool stk_key_set_has(const struct stk_key_set *keys, struct stk_view key)
{
    uint64_t digest[4], *slot;

    if (keys->count == 0) {
        return false;
    }
    hash(key, digest);
    slot = find_slot(keys, digest);
    return (slot[0] | slot[1]) != 0;
}

int stk_key_set_add(struct stk_key_set *keys, struct stk_view key)
{
    uint64_t digest[4], *slot;

    if (2 * (keys->count + 1) > keys->capacity && grow(keys) < 0) {
        return -ENOMEM;
    }
    hash(key, digest);
    slot = find_slot(keys, digest);
    if ((slot[0] | slot[1]) != 0) {
        return 0;
    }
    memcpy(slot, digest, 2 * sizeof *slot);
    keys->count++;
    return 1;
}

void stk_key_set_deinit(struct stk_key_set *keys)
{
    stk_free(keys->slots);
    *keys = (struct stk_key_set){0};
}
