/* storage/walk/walk.h: lists a path or URL recursively, entry after entry.
 *
 *   folder, external URL -> one thread, folder after folder --.
 *   s3://, deep ----> threads, each with a range of keys -----+--> a bounded queue --next-->
 * entries (a thread without work takes the        | second half of another range)           | a
 * file ---------------------------------------------------'
 *
 * Links to files below the root are followed, others are not. The order of entries is undefined.
 * Owner: the caller. Threads: its own; next: one. Memory: one block an entry, at most
 * STK_WALK_QUEUE_MAX in the queue. Bound: STK_WALK_ENTRIES_MAX, STK_WALK_DEPTH_MAX, paths of
 * STK_WALK_PATH_BYTES_MAX. */
#ifndef STORAGE_WALK_WALK_H
#define STORAGE_WALK_WALK_H

#include "io/io.h"

#define STK_WALK_QUEUE_MAX 8192u
#define STK_WALK_ENTRIES_MAX 1000000000ull
#define STK_WALK_DEPTH_MAX 200u
#define STK_WALK_PATH_BYTES_MAX 4096u
#define STK_WALK_THREADS_MAX 16u
#define STK_WALK_THREADS_DEFAULT 8u
/* Files that stoker is writing have such names; a walk skips them. */
#define STK_WALK_HIDDEN_PREFIX ".stoker-"
#define STK_WALK_HIDDEN_SUFFIX ".part"

struct stk_walk;

struct stk_walk_options {
    struct stk_io *io;   /* must outlive the walk */
    const char *path;    /* used during the call */
    bool deep;           /* recursive; else lists only the direct entries, with folders */
    bool folder;         /* s3://: the path is a prefix, even if an object has its name */
    bool special_files;  /* include links that are not followed, devices and pipes */
    bool folder_markers; /* include the objects that mark folders, also that of the root ("") */
    uint32_t threads;    /* for s3://, deep; 0: STK_WALK_THREADS_DEFAULT */
};

struct stk_walk_entry {
    struct stk_walk_entry *next;
    uint64_t bytes, mtime_ns, version; /* of files */
    uint32_t kind;                     /* enum stk_entry_kind; folders only if not deep */
    const char *etag;                  /* as the server sent it; empty: none */
    const char *hash;                  /* hex: SHA-256 of its bytes, or a git hash; empty: none */
    char name[]; /* below the root; empty: the root itself, a file. A name that ends
                  * in '/' is an object with bytes, or a folder marker */
};

/* Starts a walk. If the path does not exist, next fails. */
int stk_walk_open(struct stk_walk **walk_out, const struct stk_walk_options *options,
                  struct stoker_error *error);
/* Returns 1 and an entry, which the caller frees with stk_free; 0 at the end; STOKER_ERROR_AGAIN if
 * there was no entry within timeout_ms; else the failure of the walk, after the entries before it.
 */
int stk_walk_next(struct stk_walk *walk, uint32_t timeout_ms, struct stk_walk_entry **entry_out,
                  struct stoker_error *error);
/* After a walk of a store's prefix without entries: returns -ENOENT if nothing has this prefix, 0
 * if there is at least an object that marks the folder, or if the URL has no key. */
int stk_walk_check_prefix(struct stk_io *io, const char *path, struct stoker_error *error);
void stk_walk_close(struct stk_walk *walk); /* takes; NULL is allowed */
bool stk_walk_is_hidden(const char *name);

#endif
