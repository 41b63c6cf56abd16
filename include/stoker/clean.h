/* stoker/clean.h: lists and removes files that stoker leaves beside data, in the cache folder and
 * in shared memory. All of them can be made again. */
#ifndef STOKER_CLEAN_H
#define STOKER_CLEAN_H

#include <stoker/base.h>
#include <stoker/error.h>

#ifdef __cplusplus
extern "C" {
#endif

enum stoker_leftover_kind {
    STOKER_LEFTOVER_TABLE = 1,  /* samples of a subset, of weights or of a balance */
    STOKER_LEFTOVER_LOCK = 2,   /* of work that ended, or was killed */
    STOKER_LEFTOVER_TEXT = 3,   /* a decompressed text file */
    STOKER_LEFTOVER_COUNTS = 4, /* numbers of tokens of documents */
    STOKER_LEFTOVER_PART = 5,   /* an incomplete file of a killed process */
    STOKER_LEFTOVER_SHARED = 6, /* limits or results that processes share, in STOKER_NODE_DIR */
};

struct stoker_leftover {
    size_t struct_size;
    const char *path; /* valid during the call */
    uint64_t bytes;
    uint64_t unused_s; /* seconds since its last use */
    uint32_t kind;     /* enum stoker_leftover_kind */
    uint8_t in_use;    /* 1: a process holds its lock, or has it open; or that cannot be known */
    uint8_t foreign;   /* 1: it belongs to another user */
    uint8_t removed;
    int32_t status; /* why it could not be removed: -errno; else 0 */
};

struct stoker_clean_options {
    size_t struct_size;
    const char *const *folders; /* local folders with data or indexes; not below them. Borrowed */
    size_t folder_count;
    /* Called once for each file. It must not call stoker_clean. */
    void (*found)(void *context, const struct stoker_leftover *leftover);
    void *context;
    uint64_t unused_s; /* leaves out files that were used in the last unused_s seconds */
    uint8_t remove;    /* 1: removes the files, but none that is in use or foreign */
};

/* Looks in the folders, in the cache folder (STOKER_CACHE, else XDG_CACHE_HOME/stoker, else
 * ~/.cache/stoker), and in STOKER_NODE_DIR (else /dev/shm). Indexes and unfinished work of pack and
 * index stay. A file that another machine uses over a network file system is recognised by its lock
 * only: give unused_s there. Blocks; call it from any thread.
 * Returns 0; the first error of a folder that cannot be listed or a file that cannot be removed,
 * after all others were handled; STOKER_ERROR_ARGUMENT if an option is invalid; -ENOMEM. */
STOKER_API int stoker_clean(const struct stoker_clean_options *options, struct stoker_error *error);

#ifdef __cplusplus
}
#endif
#endif
