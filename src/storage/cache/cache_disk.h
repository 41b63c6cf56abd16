/* storage/cache/cache_disk.h: one folder of the node cache: its index, its data files, its quota.
 *
 *   FOLDER/stoker-cache.index     cache_index.h
 *   FOLDER/stoker-cache.data-N    slots N, N + STK_CACHE_FILES, ...: cache_block.h
 *
 * Space is accounted and reserved before it is written. If the disk fails or is full, fills are
 * refused for STK_CACHE_PAUSE_MS, then tried again; the caller reads from the store. Files that are
 * not the cache's own are never changed.
 * Owner: struct stoker_cache. Threads: any, of any process of the machine. Memory: the mapped
 * index. Bound: the quota, which includes the index; the free space that the file system has to
 * keep. */
#ifndef STORAGE_CACHE_CACHE_DISK_H
#define STORAGE_CACHE_CACHE_DISK_H

#include "storage/cache/cache_future.h"
#include "storage/cache/cache_index.h"

#define STK_CACHE_FILES 8u
#define STK_CACHE_PATH_BYTES 1024u
#define STK_CACHE_LOCK_MS 1000u
#define STK_CACHE_PAUSE_MS 10000u

/* Calls to the kernel that tests make fail. */
enum stk_cache_call { STK_CACHE_CALL_RESERVE, STK_CACHE_CALL_WRITE, STK_CACHE_CALL_READ };

struct stk_cache_disk_options {
    const char *path;
    uint64_t quota_bytes;       /* 0: the quota of the folder, or of a new one: all but the floor */
    uint64_t free_bytes;        /* the floor; 0: 5 % of the file system */
    uint32_t block_bytes;       /* of a new folder */
    bool must_exist, read_only; /* for tools */
    struct stk_cache_futures *futures;      /* of all folders of the cache; borrowed; NULL: none */
    bool has_futures;                       /* their files are in this folder */
    int (*fault)(enum stk_cache_call call); /* of tests: returns 0 or -errno; NULL: none */
};

struct stk_cache_fill;

struct stk_cache_disk {
    struct stk_cache_index index;
    struct stk_cache_disk_options options;
    int folder, data[STK_CACHE_FILES];
    uint64_t floor_bytes;
    int status;                    /* below 0: nothing is cached here, since open failed */
    _Atomic uint64_t paused_until; /* monotonic ns; no fills before; 0: none failed */
    _Atomic uint64_t dropped, evicted, failures;
    struct stk_cache_fill *fills; /* of this process; with the lock of the index */
    char path[STK_CACHE_PATH_BYTES];
};

/* A block that this process is about to write. */
struct stk_cache_fill {
    struct stk_cache_disk *disk; /* NULL: none */
    struct stk_cache_fill *next;
    uint64_t state;
    uint32_t slot;
};

enum stk_cache_turn {
    STK_CACHE_TURN_MINE = 0, /* the caller fetches the block, and writes or abandons it */
    STK_CACHE_TURN_BUSY,     /* another process or thread fetches it */
    STK_CACHE_TURN_PRESENT,  /* it is there now */
    STK_CACHE_TURN_REFUSED,  /* it will not be cached */
};

/* Opens or makes a folder. Returns 0; STOKER_ERROR_ARGUMENT, _UNSUPPORTED or -errno if the folder
 * cannot be used; if only the disk fails (full, read-only, I/O error), returns 0 and sets
 * disk->status. Close it in each case. */
int stk_cache_disk_open(struct stk_cache_disk *disk, const struct stk_cache_disk_options *options,
                        struct stoker_error *error);
void stk_cache_disk_close(struct stk_cache_disk *disk);

/* Reads a part of a block. Returns 0; -ENOENT: it is not cached (a damaged block is dropped);
 * -EAGAIN: in_memory, and it is not in the page cache. */
int stk_cache_disk_read(struct stk_cache_disk *disk, const struct stk_cache_block *block,
                        const struct stk_cache_part *part);
/* Takes the turn to fill a block. */
enum stk_cache_turn stk_cache_disk_begin(struct stk_cache_disk *disk,
                                         const struct stk_cache_block *block,
                                         struct stk_cache_fill *fill_out);
/* Writes the block and ends the fill. Returns 0, or -errno: it is not cached. */
int stk_cache_disk_write(struct stk_cache_fill *fill, const struct stk_cache_block *block,
                         const uint8_t *data);
void stk_cache_disk_abandon(struct stk_cache_fill *fill);

/* Makes a fill of this block, by any process, end without a cached block. */
void stk_cache_disk_invalidate(struct stk_cache_disk *disk, const struct stk_cache_block *block);

/* Makes a future of so many blocks in this folder. Returns 0, -ENOSPC, -EBUSY or -errno. */
int stk_cache_disk_open_future(struct stk_cache_disk *disk, struct stk_cache_future *future,
                               uint64_t blocks);

/* ---- for tools ---- */

/* Reads the head of a slot. Returns 1, 0 if the slot is free or being filled; -EBADMSG if the head
 * is damaged. */
int stk_cache_disk_head(struct stk_cache_disk *disk, uint32_t slot, struct stk_cache_head *head_out,
                        uint64_t *state_out);
/* Removes the block of a slot if its state is still this one. Returns 0 or -errno. */
int stk_cache_disk_drop(struct stk_cache_disk *disk, uint32_t slot, uint64_t state);
/* Pins or unpins the block of a slot if its state is still this one. */
int stk_cache_disk_pin(struct stk_cache_disk *disk, uint32_t slot, uint64_t state, bool pinned);
/* Frees what dead processes left, and what is over the quota or the floor. Returns the number of
 * freed blocks. */
int64_t stk_cache_disk_collect(struct stk_cache_disk *disk);
uint64_t stk_cache_disk_used(const struct stk_cache_disk *disk);
uint64_t stk_cache_disk_quota(const struct stk_cache_disk *disk);

#endif
