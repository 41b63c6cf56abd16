/* base/crypto/key_set.h: a set of keys, to tell when one comes twice.
 *
 * By 128 bits of their SHA-256: equal hashes are taken for equal keys, and nobody makes two keys
 * that meet. Keys are not kept.
 * Owner: the caller. Threads: one. Memory: 16 bytes a slot, half of them or more free.
 * Bound: the caller's. */
#ifndef BASE_CRYPTO_KEY_SET_H
#define BASE_CRYPTO_KEY_SET_H

#include "base/base.h"

struct stk_key_set {      /* zeroed: empty */
    uint64_t (*slots)[2]; /* owned; zeros: free */
    uint64_t count, capacity;
};

/* 1: it is new; 0: it was there; or -ENOMEM. */
int stk_key_set_add(struct stk_key_set *keys, struct stk_view key);
/* Whether it is there. */
bool stk_key_set_has(const struct stk_key_set *keys, struct stk_view key);
void stk_key_set_deinit(struct stk_key_set *keys); /* zeroed is fine */

#endif
