/* storage/walk/key_range.h: the parts of the room: the queue, and who fills it.
 *
 * Owner: struct stk_walk. Threads: any; `locked` with its lock. Memory: with the walk.
 * Bound: see storage/walk/walk.h. */
#ifndef STORAGE_WALK_KEY_RANGE_H
#define STORAGE_WALK_KEY_RANGE_H

#include "storage/walk/walk.h"

#include <pthread.h>
#include <stdatomic.h>

/* Keys behind `after` up to and with `until`, of which one thread lists. */
struct stk_key_range {
    char last[STK_WALK_PATH_BYTES_MAX];  /* that came; at first: after */
    char until[STK_WALK_PATH_BYTES_MAX]; /* empty: to the end */
    uint32_t pages; /* that came since it was made, or cut: each pays for one cut */
    uint32_t keys;  /* of the page in hand */
    bool busy;
};

struct stk_walk {
    struct stk_io *io;
    bool deep, folder, special_files, folder_markers, unordered;
    size_t path_bytes;
    char path[STK_WALK_PATH_BYTES_MAX];
    char real[STK_WALK_PATH_BYTES_MAX]; /* the root without links */
    pthread_t threads[STK_WALK_THREADS_MAX];
    uint32_t thread_count; /* that run */
    uint32_t threads_max;
    _Atomic bool stop;
    _Atomic uint64_t count;
    pthread_mutex_t lock;
    pthread_cond_t entry_ready, queue_space,
        range_ended; /* an item; place for one; a stretch ended */
    struct {
        struct stk_walk_entry *first, **last;
        uint32_t waiting;
        uint32_t working; /* threads that still list */
        bool cut;         /* some stretch was: from now on keys must ascend */
        int status;
        struct stoker_error error;
        struct stk_key_range *stretches; /* threads_max of them; of s3:// */
    } locked;
};

/* walk.c: puts an item into the queue, waits for room. 0, CLOSED, or -ENOMEM. */
int stk_walk_push(struct stk_walk *walk, const struct stk_walk_entry *entry, const char *name);
/* The first failure stays. */
void stk_walk_fail(struct stk_walk *walk, int status, const struct stoker_error *error);

/* key_range.c: lists stretches[index] of an S3 prefix. */
int stk_key_range_list(struct stk_walk *walk, uint32_t index, struct stoker_error *error);
/* Cuts the stretch that has most before it: true: stretches[index] is its second half. */
bool stk_key_range_split_locked(struct stk_walk *walk, uint32_t index);
/* A name between two, as bytes sort; until empty: the end. False: there is none worth it. */
bool stk_key_range_middle(const char *last, const char *until, char *middle, size_t middle_bytes);

#endif
