/* stoker/cache.h: a cache of objects on the disks of this machine, which all processes of a user
 * share. */
#ifndef STOKER_CACHE_H
#define STOKER_CACHE_H

#include <stoker/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks of objects (s3://, gs://, az://, hf://, https://) in folders of local disks. Engines that
 * are opened with it read from it, and fill it: each block is downloaded once, whatever the number
 * of processes. It stays when the processes end. A block belongs to one version of an object, so a
 * changed object is another block; objects without a strong ETag are not cached. Each read is
 * verified. If a disk is full or fails, reads go to the store. Engines keep it alive. Any thread.
 * After fork(), calls in the child return STOKER_ERROR_FORKED. */
struct stoker_cache;

struct stoker_cache_options {
    size_t struct_size;
    const char *const *paths; /* one folder a disk; borrowed. The last part of a path is made, with
                                 mode 0700. A folder must be the user's own, and empty if it is not
                                 a cache yet */
    size_t path_count;        /* at most 16 */
    uint64_t bytes_max;       /* of all folders together, metadata included, in equal parts; applies
                                 to all processes from now on. Default: as before; of a new folder
                                 all free space but free_bytes */
    uint64_t free_bytes;      /* that the file system of each folder keeps free; default: 5 % */
    uint32_t block_bytes;     /* of a new folder: 32 KiB to 8 MiB, a multiple of 32 KiB; default
                                 4 MiB */
    uint8_t must_exist;       /* 1: fail if a folder is not a cache yet */
};

/* Opens or makes the folders. Returns 0 and sets *cache_out; STOKER_ERROR_ARGUMENT if an option is
 * out of range or bytes_max is below one block; STOKER_ERROR_UNSUPPORTED for a network file system
 * or a folder of a newer version; -EACCES for a folder of another user; -ENOTEMPTY for a folder
 * with other files; -errno. A disk that is full, read-only or fails is no error: nothing is cached
 * on it, see stoker_cache_folder(). */
STOKER_API int stoker_cache_open(struct stoker_cache **cache_out,
                                 const struct stoker_cache_options *options,
                                 struct stoker_error *error);
/* Takes ownership; NULL is allowed. */
STOKER_API void stoker_cache_close(struct stoker_cache *cache);

/* Counters of this process since the cache was opened. */
struct stoker_cache_stats {
    size_t struct_size;
    uint64_t hits, misses;      /* reads of parts of blocks */
    uint64_t bytes_from_cache;  /* returned to readers */
    uint64_t bytes_from_origin; /* downloaded by this process for blocks, and by bypasses */
    uint64_t blocks_filled;     /* downloaded and written by this process */
    uint64_t waits;             /* reads that waited for a block of another process */
    uint64_t bypasses;          /* reads that went to the store: no space, a failed disk */
    uint64_t blocks_dropped;    /* damaged on the disk: torn, flipped, of another block */
    uint64_t blocks_evicted;
    uint64_t disk_failures; /* calls that failed, and waits for a process that was stopped */
    /* Of all processes: */
    uint64_t bytes_used, bytes_max; /* of all folders, metadata included */
};
/* Returns 0 and fills *stats; STOKER_ERROR_ARGUMENT if struct_size is wrong. */
STOKER_API int stoker_cache_stats(struct stoker_cache *cache, struct stoker_cache_stats *stats);

struct stoker_cache_folder {
    size_t struct_size;
    const char *path; /* valid until the cache is closed */
    uint64_t bytes_used, bytes_max;
    uint64_t blocks, blocks_filling, blocks_pinned;
    uint32_t block_bytes;
    int status; /* 0; below 0: nothing is cached here: -ENOSPC, -EROFS, -EIO; -EAGAIN: fills pause
                   after a failure */
};
/* Returns 1 and describes a folder; 0 if number >= path_count; STOKER_ERROR_ARGUMENT. Counts the
 * blocks: about 5 ms for a million. */
STOKER_API int stoker_cache_folder(struct stoker_cache *cache, size_t number,
                                   struct stoker_cache_folder *folder);

/* Applies an action to the blocks of objects, and lists these objects. One thread. */
struct stoker_cache_report;

enum stoker_cache_action {
    STOKER_CACHE_LIST = 0, /* changes nothing */
    STOKER_CACHE_VERIFY,   /* reads each block, drops damaged ones */
    STOKER_CACHE_DROP,     /* removes the blocks */
    STOKER_CACHE_PIN,      /* from now on they are not evicted */
    STOKER_CACHE_UNPIN,
};
/* The blocks of an object version in a cache. */
struct stoker_cache_object {
    size_t struct_size;
    const char *url, *etag; /* valid until the report is closed; "" if the block does not say it */
    uint64_t object_bytes;  /* of the object in the store */
    uint64_t bytes, blocks; /* that are cached; of DROP: that were */
    uint64_t blocks_pinned, blocks_damaged;
};
/* Applies the action to all blocks of objects whose URL begins with url_prefix (NULL or "": of all
 * objects). Returns 0 and sets *report_out; STOKER_ERROR_ARGUMENT, -ENOMEM, -errno. */
STOKER_API int stoker_cache_report_open(struct stoker_cache_report **report_out,
                                        struct stoker_cache *cache, uint32_t action,
                                        const char *url_prefix, struct stoker_error *error);
/* Returns 1 and fills *object with the next object by URL and ETag; 0 at the end;
 * STOKER_ERROR_ARGUMENT if struct_size is wrong. */
STOKER_API int stoker_cache_report_next(struct stoker_cache_report *report,
                                        struct stoker_cache_object *object);
/* Takes ownership; NULL is allowed. */
STOKER_API void stoker_cache_report_close(struct stoker_cache_report *report);
/* Frees the space of blocks that killed processes left unfinished. Then evicts blocks until the
 * quota and the free space hold. Returns the number of freed blocks, or a status below 0. */
STOKER_API int64_t stoker_cache_collect(struct stoker_cache *cache, struct stoker_error *error);

#ifdef __cplusplus
}
#endif
#endif
