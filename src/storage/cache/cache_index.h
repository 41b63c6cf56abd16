/* storage/cache/cache_index.h: the index of a folder of the node cache: a mapped file that all
 * processes of a machine share. It says which slot of the data files holds which block.
 *
 *   head | slot | slot | ...        a key may be in the slots of two buckets
 *
 *   FREE --fill begins--> FILLING --commit--> VALID --drop, evict--> FILLING --punched--> FREE
 *                            `--its process died: another one takes it over, or frees it
 *
 * Lookups take no lock. All changes are made under one lock of the index file, which the kernel
 * releases when its process ends; if a process ended in the middle of a change, or the machine was
 * started since, the next one counts the used bytes again. The filler of a slot locks the byte of
 * that number in the index file. The content is not trusted: numbers are clipped where they are
 * used, and the blocks identify themselves (cache_block.h). Owner: struct stk_cache_disk. Threads:
 * any, of any process. Memory: a mapping of 32 bytes a slot. Bound: STK_CACHE_SLOTS_MAX. */
#ifndef STORAGE_CACHE_CACHE_INDEX_H
#define STORAGE_CACHE_CACHE_INDEX_H

#include "storage/cache/cache_block.h"

#include <pthread.h>
#include <stdatomic.h>

#define STK_CACHE_LAYOUT 2u /* 1: with a power of two of slots; it is used as it is */
#define STK_CACHE_INDEX_NAME "stoker-cache.index"
#define STK_CACHE_INDEX_HEAD_BYTES 4096u
#define STK_CACHE_SLOTS_MAX 1999872u     /* 64 MB with the head */
#define STK_CACHE_SLOTS_MAX_1 (1u << 21) /* of layout 1 */
#define STK_CACHE_SLOTS_MIN 1024u
#define STK_CACHE_BUCKET 64u /* slots */
#define STK_CACHE_NO_SLOT UINT32_MAX

enum stk_cache_slot_kind { STK_CACHE_FREE = 0, STK_CACHE_FILLING, STK_CACHE_VALID };

/* The state of a slot is one word: kind (2 bits), pinned (1), generation (29), accounted bytes
 * (32). The generation changes whenever the slot gets another content. */
struct stk_cache_slot {
    _Atomic uint64_t state;
    _Atomic uint32_t used_minute; /* since 1970, of the last use */
    _Atomic uint32_t place;       /* as in cache_future.h: when it is used next; 0: unknown */
    _Atomic uint64_t key[2];      /* the first bytes of the key */
};

struct stk_cache_index_head {
    uint64_t magic;
    uint32_t layout, slot_count, block_bytes, crc; /* of the fields before it */
    _Atomic uint64_t future_bytes; /* of files beside the blocks, see cache_future.h */
    uint64_t unused[3];
    _Atomic uint64_t boot; /* when the bytes were counted, see struct stk_cache_index */
    _Atomic uint64_t quota_bytes, used_bytes; /* used: by all slots that are not free */
    _Atomic uint32_t changing;                /* 1 while a process changes the index */
    _Atomic uint32_t hand;                    /* where the search for victims continues */
};

struct stk_cache_index {
    int fd; /* of the index file; -1: none */
    struct stk_cache_index_head *head;
    struct stk_cache_slot *slots;
    uint32_t slot_count, block_bytes; /* checked copies */
    uint64_t map_bytes;
    uint64_t boot; /* a hash of the boot id: pages of the file may be lost when the machine stops */
    pthread_mutex_t lock; /* the threads of this process; the lock of the file is within it */
};

static inline uint32_t stk_cache_state_kind(uint64_t state)
{
    return (uint32_t)(state & 3u);
}
static inline bool stk_cache_state_is_pinned(uint64_t state)
{
    return (state & 4u) != 0;
}
static inline uint64_t stk_cache_state_bytes(uint64_t state)
{
    return state >> 32;
}

/* Whether the head belongs to an index file of file_bytes. Returns 0; -EBADMSG: damaged;
 * -EINVAL: not an index; -EPROTO: of a newer version. */
int stk_cache_index_check(const void *head, size_t bytes, uint64_t file_bytes);
uint64_t stk_cache_index_bytes(uint32_t slot_count);
/* Slots for a quota. */
uint32_t stk_cache_index_slots(uint64_t quota_bytes);
/* Fills the head of a new index. */
void stk_cache_index_init_head(struct stk_cache_index_head *head, uint32_t slot_count,
                               uint32_t block_bytes, uint64_t quota_bytes);
/* Maps an open, checked index file; takes fd. Returns 0, or -errno and closes it. */
int stk_cache_index_map(struct stk_cache_index *index, int fd);
void stk_cache_index_unmap(struct stk_cache_index *index);

/* Returns the slot that holds the block, valid or being filled, and its state; else
 * STK_CACHE_NO_SLOT. Any thread, without the lock. */
uint32_t stk_cache_index_find(const struct stk_cache_index *index, const struct stk_cache_key *key,
                              uint64_t *state_out);
/* Remembers that the slot was used. */
void stk_cache_index_touch(struct stk_cache_index *index, uint32_t slot, uint32_t minute);

/* Locks the index for changes. Returns 0; -ETIMEDOUT if another process holds the lock for
 * timeout_ms: it may have been stopped; -EIO if the file was cut while it was mapped. */
int stk_cache_index_lock(struct stk_cache_index *index, uint32_t timeout_ms);
void stk_cache_index_unlock(struct stk_cache_index *index);
/* Locks the byte of a slot: true: no live process fills it. */
bool stk_cache_index_lock_slot(struct stk_cache_index *index, uint32_t slot);
void stk_cache_index_unlock_slot(struct stk_cache_index *index, uint32_t slot);

/* ---- with the lock ---- */

/* Returns a free slot in a bucket of the key, the one with more free slots; STK_CACHE_NO_SLOT:
 * there is none. */
uint32_t stk_cache_index_free_slot_locked(const struct stk_cache_index *index,
                                          const struct stk_cache_key *key);
/* The slots of a bucket of the key (which: 0 or 1): [*first_out, returned end). */
uint32_t stk_cache_index_bucket(const struct stk_cache_index *index,
                                const struct stk_cache_key *key, uint32_t which,
                                uint32_t *first_out);
/* FREE or FILLING --> FILLING with a new generation, and its bytes accounted. Returns the state. */
uint64_t stk_cache_index_fill_locked(struct stk_cache_index *index, uint32_t slot,
                                     const struct stk_cache_block *block, uint64_t bytes);
/* Any --> FILLING with a new generation, without an owner: the data is being removed. */
void stk_cache_index_begin_free_locked(struct stk_cache_index *index, uint32_t slot);
/* FILLING --> FREE, and the bytes are no longer accounted. */
void stk_cache_index_free_locked(struct stk_cache_index *index, uint32_t slot);
/* FILLING --> VALID, if the state is still the one of stk_cache_index_fill_locked. */
bool stk_cache_index_commit_locked(struct stk_cache_index *index, uint32_t slot, uint64_t state);
void stk_cache_index_pin_locked(struct stk_cache_index *index, uint32_t slot, bool pinned);

#endif
