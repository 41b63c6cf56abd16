/* storage/walk/walk.h: what lies at and below a path or a URL, item after item.
 *
 *   folder, guest -> one thread, folder after folder ----------.
 *   s3://, deep ---> threads, each with a stretch of keys -----+--> a bounded queue --next--> items
 *                    (one that has nothing to do takes the     |
 *                    second half of another's)                 |
 *   a file --------------------------------------------------- '
 *
 * Links are followed to files below the root, nowhere else. Items come in no certain order.
 * Owner: the caller. Threads: its own; next: one. Memory: an item each, at most
 * STK_WALK_QUEUE_MAX waiting. Bound: STK_WALK_ENTRIES_MAX, STK_WALK_DEPTH_MAX, paths of
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
/* What is being written bears such a name, and is left out. */
#define STK_WALK_HIDDEN_PREFIX ".stoker-"
#define STK_WALK_HIDDEN_SUFFIX ".part"

struct stk_walk;

struct stk_walk_options {
    struct stk_io *io;   /* lent as long as the walk */
    const char *path;    /* lent for the call */
    bool deep;           /* else only what lies directly there, folders too */
    bool folder;         /* of s3://: a prefix, whatever object has its name */
    bool special_files;  /* with what is not followed, devices and pipes; else they are left out */
    bool folder_markers; /* with the objects that stand for folders, the root's ("") too */
    uint32_t threads;    /* of s3://, deep; 0: STK_WALK_THREADS_DEFAULT */
};

struct stk_walk_entry {
    struct stk_walk_entry *next;
    uint64_t bytes, mtime_ns, version; /* of files */
    uint32_t kind;                     /* enum stk_entry_kind: files, if not deep folders, others */
    const char *etag;                  /* as it is sent; empty: none */
    const char *hash;                  /* hex, of its bytes: SHA-256, or git's; empty: none */
    char name[];                       /* below the root; empty: the root itself is a file. One that
                                        * ends in '/' has bytes, unless marks were asked for */
};

/* Gives *walk_out. What the path is, is found out by next. */
int stk_walk_open(struct stk_walk **walk_out, const struct stk_walk_options *options,
                  struct stoker_error *error);
/* 1: gives *item_out, to be freed by stk_free. 0: that was all. STOKER_ERROR_AGAIN: none within
 * timeout_ms. Else what failed, after what came before it. */
int stk_walk_next(struct stk_walk *walk, uint32_t timeout_ms, struct stk_walk_entry **item_out,
                  struct stoker_error *error);
void stk_walk_close(struct stk_walk *walk); /* takes; NULL is fine */
bool stk_walk_is_hidden(const char *name);

#endif
