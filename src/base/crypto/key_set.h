/* base/crypto/key_set.h: a set of keys, to find duplicates.
 *
 * Stores 128 bits of the SHA-256 of each key, not the key: equal hashes are taken for equal keys,
 * and collisions cannot be constructed.
 * Owner: the caller. Threads: one. Memory: 16 bytes a slot, half of them or more free.
 * Bound: the caller's. */
#ifndef BASE_CRYPTO_KEY_SET_H
#define BASE_CRYPTO_KEY_SET_H

#include "base/base.h"

struct stk_key_set {      /* zeroed: empty */
    uint64_t (*slots)[2]; /* owned; zeros: free */
    uint64_t count, capacity;
};

/* Returns 1 if the key is new, 0 if it was in the set, -ENOMEM. */
int stk_key_set_add(struct stk_key_set *keys, struct stk_view key);
/* Returns true if the key is in the set. */
bool stk_key_set_has(const struct stk_key_set *keys, struct stk_view key);
void stk_key_set_deinit(struct stk_key_set *keys); /* a zeroed one is allowed */

#endif
