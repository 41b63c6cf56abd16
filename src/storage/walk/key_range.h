/* storage/walk/key_range.h: the state of a walk, which its files share, and the key ranges by which
 * threads list an S3 prefix in parallel.
 *
 *   the whole range --a thread without work splits the longest one--> range, range --listed-->
 * ended
 *
 * Owner: struct stk_walk. Threads: any; `locked` with its lock. Memory: with the walk.
 * Bound: see storage/walk/walk.h. */
#ifndef STORAGE_WALK_KEY_RANGE_H
#define STORAGE_WALK_KEY_RANGE_H

#include "storage/walk/walk.h"

#include <pthread.h>
#include <stdatomic.h>

/* The keys after `last` up to and including `until`, which one thread lists. */
struct stk_key_range {
    char last[STK_WALK_PATH_BYTES_MAX];  /* the last listed key; at first: the start */
    char until[STK_WALK_PATH_BYTES_MAX]; /* empty: to the end */
    uint32_t pages; /* listed since the range was created; each permits one split */
    uint32_t keys;  /* of the current page */
    bool busy;
};

struct stk_walk {
    struct stk_io *io;
    bool deep, folder, special_files, folder_markers, unordered;
    size_t path_bytes;
    char path[STK_WALK_PATH_BYTES_MAX];
    char real[STK_WALK_PATH_BYTES_MAX]; /* the root without links */
    pthread_t threads[STK_WALK_THREADS_MAX];
    uint32_t thread_count; /* started */
    uint32_t threads_max;
    _Atomic bool stop;
    _Atomic uint64_t count;
    pthread_mutex_t lock;
    pthread_cond_t entry_ready, queue_space, range_ended;
    struct {
        struct stk_walk_entry *first, **last;
        uint32_t waiting;
        uint32_t working; /* threads that still list */
        bool split;       /* a range was split: from now on keys must ascend */
        int status;
        struct stoker_error error;
        struct stk_key_range *ranges; /* threads_max of them; for s3:// */
    } locked;
};

/* walk_queue.c: adds an entry to the queue, and waits for space. Returns 0, STOKER_ERROR_CLOSED,
 * STOKER_ERROR_LIMIT or -ENOMEM. */
int stk_walk_push(struct stk_walk *walk, const struct stk_walk_entry *entry, const char *name);
/* Ends the walk with a failure; only the first one counts. */
void stk_walk_fail(struct stk_walk *walk, int status, const struct stoker_error *error);

/* key_range.c: lists ranges[index] of an S3 prefix. */
int stk_key_range_list(struct stk_walk *walk, uint32_t index, struct stoker_error *error);
/* Splits the range with the most listed pages. Returns true if ranges[index] is its second half. */
bool stk_key_range_split_locked(struct stk_walk *walk, uint32_t index);
/* Finds a key between two in byte order; until empty: no upper bound. Returns false if there is no
 * useful one. */
bool stk_key_range_middle(const char *last, const char *until, char *middle, size_t middle_bytes);

#endif
