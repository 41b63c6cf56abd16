/* tools/prewarm/prewarm.h: reads files once, before training, with many threads.
 *
 *   paths --walk--> files --a thread for each file, or for a piece of it--> read, if not cached
 *                                                                `skipped, if in the page cache
 *
 * The page cache is the only state: a run after a kill starts again and reads only pieces that are
 * not cached. If the kernel does not report that (objects, kernels before 6.5), all pieces are
 * read. Owner: struct stoker_prewarm. Threads: workers; `locked` with job.lock. Memory: a piece for
 * each worker, of the engine's budget. Bound: workers, and open files. */
#ifndef TOOLS_PREWARM_PREWARM_H
#define TOOLS_PREWARM_PREWARM_H

#include "engine/background_job.h"
#include "storage/walk/walk.h"
#include "tools/prewarm/prewarm_share.h"

#include <pthread.h>
#include <stdatomic.h>

#define STK_PREWARM_WORKERS_DEFAULT 16u
#define STK_PREWARM_WORKERS_MAX 64u
#define STK_PREWARM_PIECE_DEFAULT (4u << 20)
#define STK_PREWARM_PIECE_MIN (64u << 10)
#define STK_PREWARM_PIECE_MAX (64u << 20)

/* One open file. */
struct stk_prewarm_file {
    struct stk_prewarm_file *next; /* in the list of open ones */
    char *path;                    /* owned */
    struct stk_file *file;
    uint64_t bytes, next_offset; /* next_offset: of the next piece, with the lock */
    uint32_t pieces;             /* being read, with the lock */
    bool failed;                 /* with the lock */
};

struct stoker_prewarm {
    struct stoker_engine *engine; /* held; const after open, as all down to the threads */
    struct stk_io *io;
    struct stk_prewarm_share *share; /* of a node; NULL: all files of the paths */
    struct stoker_prewarm_options options;
    char **paths; /* owned */
    size_t path_count;
    uint64_t end_ns, reserved;     /* end_ns 0: no deadline */
    struct stk_background_job job; /* its threads are the workers */
    _Atomic uint64_t files, bytes, files_done, bytes_done, bytes_read, bytes_warm, bytes_cold;
    _Atomic uint64_t files_failed;
    pthread_cond_t changed;    /* work for workers; with job.lock */
    struct {                   /* under job.lock */
        struct stk_walk *walk; /* of paths[path] */
        size_t path;
        bool listing, listed;          /* a worker calls the walk; it has no more files */
        struct stk_prewarm_file *open; /* with pieces left */
        uint32_t busy;                 /* workers with a job */
        bool share_is_scanned;         /* the data set of the share is open, or it failed */
        bool share_is_late;            /* a worker ended before the share was complete */
        bool tells_cold;               /* the kernel reported which pages are cached */
    } locked;
};

#endif
