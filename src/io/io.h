/* io/io.h: the seam to the outside: files, directories, clock. Nothing above calls the kernel.
 *
 *   struct stk_io  --open-->  struct stk_file  --read_now--> bytes of warm data, never waits
 *                                              --submit----> cold reads, deep; --reap--> done
 *
 * Implementations: io_uring and a pool of threads (posix.c picks one at run time and says why),
 * and a simulated world with faults (the room world) for tests.
 * Owner: the engine. Threads: any, but submit/reap/wake of one queue: one thread (wake: any).
 * Memory: taken in open. Bound: depth reads in flight. */
#ifndef IO_IO_H
#define IO_IO_H

#include "base/base.h"

struct stk_io;
struct stk_file;  /* an open object; closed by its opener, after its reads came back */
struct stk_queue; /* reads in flight of one thread */
struct stk_write_table;

/* Of an io that brings what will be asked for: the functions stk_io_prefetch... below. */
struct stk_prefetch_table {
    void (*prefetch_head)(struct stk_io *io, const char *path, const void *owner);
    void (*prefetch)(struct stk_io *io, struct stk_file *file, const void *owner);
    bool (*is_prefetched)(struct stk_io *io, struct stk_file *file, uint64_t offset,
                          uint64_t bytes);
    int64_t (*peek)(struct stk_io *io, struct stk_file *file, uint64_t offset, void *buffer,
                    size_t bytes);
    void (*release)(struct stk_io *io, const void *owner);
    uint64_t (*trim)(struct stk_io *io);
};

struct stk_io_options {
    uint32_t backend;                /* enum stoker_io_backend */
    uint32_t direct;                 /* enum stoker_direct */
    uint32_t depth;                  /* reads in flight of a queue */
    uint32_t read_timeout_ms;        /* of every call that touches a file, open and list included */
    uint32_t network_fs_threads_max; /* of such calls on far file systems; 0: 8 */
};

enum stk_entry_kind { STK_ENTRY_FILE = 1, STK_ENTRY_DIRECTORY, STK_ENTRY_OTHER };

struct stk_entry {
    const char *name;       /* lent until the listing is freed */
    uint32_t kind;          /* enum stk_entry_kind; links are followed */
    uint64_t device, inode; /* of directories: to see loops */
    bool link;              /* a symbolic link */
};

struct stk_listing {
    struct stk_entry *entries; /* sorted by name, as bytes */
    size_t count;
    void *memory; /* owned by the listing */
};

struct stk_stat {
    uint64_t bytes, mtime_ns, device, inode;
    uint32_t kind;    /* enum stk_entry_kind */
    uint64_t version; /* of an object: a hash of its ETag; 0: not known */
};

/* Where a file lies whose reads may each be a round trip: as its opening told. */
struct stk_mount_info {
    uint64_t device;      /* st_dev */
    uint32_t block_bytes; /* st_blksize: what the file system likes to be read by */
};

/* One read. The submitter owns it and its buffer until reap gives it back. When the deadline
 * passes, reap gives it back with STOKER_ERROR_TIMEOUT and `lost` set: the kernel may still
 * write into the buffer, which the submitter must then never use or free. */
struct stk_read {
    struct stk_file *file;
    uint64_t offset;
    uint8_t *buffer;   /* aligned to STK_IO_ALIGN, capacity rounded up to it */
    uint32_t bytes;    /* wanted; offset and bytes need no alignment: buffer_skip */
    uint32_t skip;     /* out: the wanted bytes begin at buffer + skip (O_DIRECT) */
    uint32_t capacity; /* of buffer: what it takes where both ends are rounded out to STK_IO_ALIGN;
                          stk_read_capacity(bytes) always is enough */
    /* NULL, or true once nobody wants it any more: then a store's ends soon, with
     * STOKER_ERROR_CLOSED. Lent until it came back. */
    const _Atomic bool *cancelled;
    bool keep_cached; /* through the page cache, where it stays: it is asked for again */
    int64_t result;   /* out: bytes read (short only at the end of file), or -errno */
    bool leaked;      /* out */
    uint64_t sent_ns, first_ns, done_ns; /* out, of a remote read: when its request went out, and
                                            its first and its last byte came; 0: not known */
    struct stk_read *next;               /* internal */
    void *owner;                         /* the submitter's */
};

#define STK_IO_ALIGN 4096u
/* A buffer that holds `bytes` from any offset with both ends rounded out to STK_IO_ALIGN. */
static inline uint32_t stk_read_capacity(uint32_t bytes)
{
    return (uint32_t)stk_round_up((uint64_t)bytes + STK_IO_ALIGN - 1, STK_IO_ALIGN);
}

/* The table behind the seam; callers use the stk_io_* functions below. */
struct stk_io_table {
    int (*open_file)(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *error);
    void (*close_file)(struct stk_io *io, struct stk_file *file);
    int (*stat_file)(struct stk_io *io, struct stk_file *file, struct stk_stat *stat_out,
                     struct stoker_error *error);
    int (*stat_path)(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                     struct stoker_error *error);
    int (*list)(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                struct stoker_error *error);
    int64_t (*read_now)(struct stk_io *io, struct stk_file *file, uint64_t offset, void *buffer,
                        size_t bytes);
    int64_t (*read_wait)(struct stk_io *io, struct stk_file *file, uint64_t offset, void *buffer,
                         size_t bytes);
    int (*queue_open)(struct stk_io *io, struct stk_queue **queue_out, struct stoker_error *error);
    void (*queue_close)(struct stk_io *io, struct stk_queue *queue);
    int (*submit)(struct stk_io *io, struct stk_queue *queue, struct stk_read *reads);
    struct stk_read *(*reap)(struct stk_io *io, struct stk_queue *queue, uint32_t timeout_ms);
    void (*wake)(struct stk_io *io, struct stk_queue *queue);
    uint64_t (*clock_ns)(struct stk_io *io);
    const char *(*backend)(struct stk_io *io, const char **reason_out);
    uint64_t (*leaked_bytes)(struct stk_io *io);
    int (*map_file)(struct stk_io *io, struct stk_file *file, struct stk_view *view_out,
                    struct stoker_error *error);
    void (*unmap)(struct stk_io *io, struct stk_view view);
    void (*map_prefetch)(struct stk_io *io, struct stk_view part);
    uint64_t (*thread_disk_reads)(struct stk_io *io);
    void (*close)(struct stk_io *io);
    const struct stk_write_table *write; /* io/write.h */
    /* May be NULL: no more is known than the status. */
    bool (*last_read_error)(struct stk_io *io, struct stk_file *file, int status,
                            struct stoker_error *error_out);
    void (*prefetch_metadata)(struct stk_io *io, const char *paths, size_t count); /* may be NULL */
    uint32_t (*round_trip_bytes)(struct stk_io *io, struct stk_file *file); /* may be NULL: 0 */
    void (*store_stats)(struct stk_io *io,
                        struct stoker_store_stats *stats_out); /* may be NULL: zeros */
    const struct stk_prefetch_table *prefetch;                 /* may be NULL: nothing is brought */
    /* May be NULL: nobody tells. */
    int64_t (*uncached_bytes)(struct stk_io *io, struct stk_file *file, uint64_t offset,
                              uint64_t bytes);
    void (*list_many)(struct stk_io *io, const char *paths, size_t count,
                      struct stk_listing *listings_out); /* may be NULL */
    /* May be NULL: no file is. */
    bool (*mount_of)(struct stk_io *io, struct stk_file *file, struct stk_mount_info *mount_out);
};

struct stk_io {
    const struct stk_io_table *table;
};

/* The real machine. Gives *io_out; -ENOSYS or -EPERM only if a backend was demanded. */
int stk_io_open(struct stk_io **io_out, const struct stk_io_options *options,
                struct stoker_error *error);
void stk_io_close(struct stk_io *io); /* takes; NULL is fine */

/* Opens for reading; waits at most read_timeout_ms. */
int stk_io_open_file(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *error);
void stk_io_close_file(struct stk_io *io, struct stk_file *file);
int stk_io_stat_file(struct stk_io *io, struct stk_file *file, struct stk_stat *stat_out,
                     struct stoker_error *error);
int stk_io_stat_path(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                     struct stoker_error *error);
/* Gives a listing (without . and ..), to be freed. Waits at most read_timeout_ms. */
int stk_io_list(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                struct stoker_error *error);
/* Many folders, side by side where each takes a round trip: paths NUL-ended, one after the other.
 * What has no memory then was not listed, or is empty: who wants it asks for it alone. */
void stk_io_list_many(struct stk_io *io, const char *paths, size_t count,
                      struct stk_listing *listings_out);
void stk_listing_free(struct stk_listing *listing);

/* Warm bytes only, by the calling thread: the count, less than `bytes` where the rest is cold
 * (or at the end of file); -EAGAIN when nothing of it is in memory (or it cannot be told), and for
 * files read past the page cache also when only a part is. */
int64_t stk_io_read_now(struct stk_io *io, struct stk_file *file, uint64_t offset, void *buffer,
                        size_t bytes);
/* How many bytes of the range, in whole pages, the page cache has not; never waits, and asks no
 * server. -ENOSYS and the like: it cannot be told (Linux before 6.5, objects). */
int64_t stk_io_uncached_bytes(struct stk_io *io, struct stk_file *file, uint64_t offset,
                              uint64_t bytes);
/* Waits, at most read_timeout_ms (then STOKER_ERROR_TIMEOUT, buffer untouched afterwards):
 * the count, short only at the end of file; or -errno. */
int64_t stk_io_read_wait(struct stk_io *io, struct stk_file *file, uint64_t offset, void *buffer,
                         size_t bytes);

/* The whole file as memory, to be read only, also after the file is closed; page-aligned. What the
 * file holds later may show, and cutting it ends in SIGBUS: only for files that are replaced by
 * renames. An empty file is an empty view. */
int stk_io_map(struct stk_io *io, struct stk_file *file, struct stk_view *view_out,
               struct stoker_error *error);
void stk_io_unmap(struct stk_io *io, struct stk_view view);
/* A part of a mapped file will be looked at: what is cold of it is read meanwhile, and no more. */
void stk_io_map_prefetch(struct stk_io *io, struct stk_view part);
/* A number that grows when this thread reads from a disk, by page faults too. */
uint64_t stk_io_thread_disk_reads(struct stk_io *io);

int stk_io_queue_open(struct stk_io *io, struct stk_queue **queue_out, struct stoker_error *error);
/* Gives up the reads in flight, with a short wait while they still come back. Then every read is
 * its submitter's again, and `lost` says whose buffer the kernel keeps. */
void stk_io_queue_close(struct stk_io *io, struct stk_queue *queue);
/* A list linked by `next`; takes all or as many as depth allows: returns how many, the rest
 * stays with the caller. Never waits for a read. */
int stk_io_submit(struct stk_io *io, struct stk_queue *queue, struct stk_read *reads);
/* A list of finished reads, NULL after timeout_ms or a wake. */
struct stk_read *stk_io_reap(struct stk_io *io, struct stk_queue *queue, uint32_t timeout_ms);
/* What is told of the last read of this file that failed with this status; false: no more than the
 * status is known. */
bool stk_io_last_read_error(struct stk_io *io, struct stk_file *file, int status,
                            struct stoker_error *error_out);
/* Fills *error of a read that failed with `status`: with what is known of it, else with `what`.
 * Returns status. */
int stk_io_fail_read(struct stk_io *io, struct stk_file *file, int64_t status, const char *what,
                     struct stoker_error *error);
/* Ends a reap that waits. Any thread. */
void stk_io_wake(struct stk_io *io, struct stk_queue *queue);

/* What this thread asks a store for, and waits for, is given up soon after *stop became true: it
 * ends with STOKER_ERROR_CLOSED. NULL: nothing is. Lent until the next call; gives back the one
 * before. What waits in the kernel ends by its deadline. */
const _Atomic bool *stk_io_set_cancel_flag(const _Atomic bool *cancel);
const _Atomic bool *stk_io_cancel_flag(void);

uint64_t stk_io_clock_ns(struct stk_io *io); /* monotonic */
const char *stk_io_backend(struct stk_io *io, const char **reason_out);
uint64_t stk_io_leaked_bytes(struct stk_io *io);
/* What was asked of stores so far; leaves struct_size alone. */
void stk_io_store_stats(struct stk_io *io, struct stoker_store_stats *stats_out);

/* 0, or, where each read has a round trip before it, how many bytes come in about that time: to
 * read fewer saves nothing. Reads of such a file need no room beside their bytes (skip is 0), and
 * are never lost. */
uint32_t stk_io_round_trip_bytes(struct stk_io *io, struct stk_file *file);
/* True: a file on a network file system, behind FUSE, or on what nobody knows, and where it lies.
 * False: on a disk or in the memory of this machine; an object. Never waits. */
bool stk_io_mount_of(struct stk_io *io, struct stk_file *file, struct stk_mount_info *mount_out);
/* Whether a path names something on another machine: scheme://... (but file://), or a chain of
 * fsspec's: first::scheme://... */
bool stk_io_is_url(const char *path);
/* Whether it is a URL that no store of ours has. */
bool stk_io_is_external_url(const char *path);
/* A hint, which waits: these paths (NUL-ended, one after the other) will be asked for. Of URLs all
 * are then asked for at once, and what is told is remembered for a while. */
void stk_io_prefetch_metadata(struct stk_io *io, const char *paths, size_t count);

/* Hints: of a file behind a network the first bytes (if its size is known), or all of it, will be
 * asked for soon. They are brought by large requests and kept, in memory of the engine's budget
 * that nobody else wants, until they have been read once, or `owner`, who had them brought, lets
 * go. Never wait. */
void stk_io_prefetch_head(struct stk_io *io, const char *path, const void *owner);
void stk_io_prefetch(struct stk_io *io, struct stk_file *file, const void *owner);
/* Whether these bytes were brought, or are on their way. */
bool stk_io_is_prefetched(struct stk_io *io, struct stk_file *file, uint64_t offset,
                          uint64_t bytes);
/* These bytes, if they were brought and have come, else -EAGAIN. They stay: they are asked for
 * again, as those of a queue's reads that say `cached`. */
int64_t stk_io_prefetch_peek(struct stk_io *io, struct stk_file *file, uint64_t offset,
                             void *buffer, size_t bytes);
void stk_io_prefetch_release(struct stk_io *io, const void *owner);
/* Gives some of that memory back: the bytes. */
uint64_t stk_io_prefetch_trim(struct stk_io *io);

/* Cores granted by affinity and cgroup (v1, v2), bytes granted by the cgroup or the machine. */
uint32_t stk_cgroup_available_cores(void);
uint64_t stk_cgroup_available_memory(void);

#endif
