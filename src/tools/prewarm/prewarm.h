/* tools/prewarm/prewarm.h: files read once, ahead of training, by many threads.
 *
 *   paths --visit--> files --a thread each, or its pieces--> what is cold of a piece --> read
 *                                                            `what is in memory is passed over
 *
 * What is in the page cache is what there is to go on from: a run that was killed begins again,
 * and reads only what is still cold. Where nobody tells that (objects, a kernel before 6.5) all is
 * read.
 * Owner: struct stoker_prewarm. Threads: workers; `locked` with its lock.
 * Memory: a piece each worker, of the engine's budget. Bound: workers, and files that are open. */
#ifndef TOOLS_PREWARM_PREWARM_H
#define TOOLS_PREWARM_PREWARM_H

#include "engine/background_job.h"
#include "storage/walk/walk.h"

#include <pthread.h>
#include <stdatomic.h>

#define STK_PREWARM_WORKERS_DEFAULT 16u
#define STK_PREWARM_WORKERS_MAX 64u
#define STK_PREWARM_PIECE_DEFAULT (4u << 20)
#define STK_PREWARM_PIECE_MIN (64u << 10)
#define STK_PREWARM_PIECE_MAX (64u << 20)

/* One file in hand. */
struct stk_prewarm_file {
    struct stk_prewarm_file *next; /* in the list of open ones */
    char *path;                    /* owned */
    struct stk_file *file;
    uint64_t bytes, next_offset; /* at: of the next piece, with the lock */
    uint32_t pieces;             /* in hand, with the lock */
    bool failed;                 /* with the lock */
};

struct stoker_prewarm {
    struct stoker_engine *engine; /* held; const after open, as all down to the threads */
    struct stk_io *io;
    struct stoker_prewarm_options options;
    char **paths; /* owned */
    size_t path_count;
    uint64_t end_ns, reserved;     /* end_ns 0: no deadline */
    struct stk_background_job job; /* its threads are the workers */
    _Atomic uint64_t files, bytes, files_done, bytes_done, bytes_read, bytes_warm, bytes_cold;
    _Atomic uint64_t files_failed;
    pthread_cond_t changed;     /* work for workers; with job.lock */
    struct {                    /* under job.lock */
        struct stk_walk *visit; /* of paths[path] */
        size_t path;
        bool listing, listed;          /* one asks visit; it has no more */
        struct stk_prewarm_file *open; /* with pieces left */
        uint32_t busy;                 /* workers with something in hand */
        bool tells_cold;               /* somebody told what is in memory */
    } locked;
};

#endif
