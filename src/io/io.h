/* io/io.h: the interface to files, directories and the clock. Only implementations of struct stk_io
 * call the kernel; all other code calls the functions of this header.
 *
 *   struct stk_io  --open-->  struct stk_file  --read_now--> bytes of the page cache, without
 * waiting
 *                                              --read_wait-> bytes, at the latest at the deadline
 *                                              --submit----> many reads in flight; --reap--> done
 *
 * Implementations: the POSIX file system (io/posix, with io_uring or with threads), a simulated one
 * with faults for tests (io/sim), and the virtual file system, which adds object stores
 * (storage/vfs). Each has a struct stk_io_table, and a struct stk_file_ops for each kind of file.
 * Owner: the engine. Threads: any. One thread calls submit and reap of a queue; any calls wake.
 * Memory: allocated in open. Bound: `depth` reads in flight of a queue. */
#ifndef IO_IO_H
#define IO_IO_H

#include "base/base.h"

struct stk_io;
struct stk_queue; /* the reads in flight of one thread */
struct stk_write_table;

struct stk_io_options {
    uint32_t backend;                /* enum stoker_io_backend */
    uint32_t direct;                 /* enum stoker_direct */
    uint32_t depth;                  /* reads in flight of a queue */
    uint32_t read_timeout_ms;        /* deadline of each call, including open and list */
    uint32_t network_fs_threads_max; /* threads for calls on network file systems; 0: 8 */
};

enum stk_entry_kind { STK_ENTRY_FILE = 1, STK_ENTRY_DIRECTORY, STK_ENTRY_OTHER };

struct stk_entry {
    const char *name;       /* valid until the listing is freed */
    uint32_t kind;          /* enum stk_entry_kind; links are followed */
    uint64_t device, inode; /* of directories: to detect loops */
    bool link;              /* a symbolic link */
};

struct stk_listing {
    struct stk_entry *entries; /* sorted by the bytes of their names */
    size_t count;
    void *memory; /* owned by the listing */
};

struct stk_stat {
    uint64_t bytes, mtime_ns, device, inode;
    uint32_t kind;    /* enum stk_entry_kind */
    uint64_t version; /* of an object: a hash of its ETag; 0: unknown */
    /* Of a local file: its last change of any kind, which no program can set, and its permissions
     * (0777 of st_mode); else 0. */
    uint64_t ctime_ns;
    uint32_t mode;
    uint64_t links; /* names of a local file; else 0 */
};

/* The mount of a file whose reads may each need a network round trip. */
struct stk_mount_info {
    uint64_t device;      /* st_dev */
    uint32_t block_bytes; /* st_blksize: the read size that the file system prefers */
};

/* A file that is open for reading. Each kind of file is a struct that begins with this one. Its
 * opener closes it, after all reads of it have finished. */
struct stk_file {
    const struct stk_file_ops *ops;
};

/* The operations of a kind of file. Callers use the stk_io_* functions below. */
struct stk_file_ops {
    void (*close)(struct stk_file *file);
    int (*stat)(struct stk_file *file, struct stk_stat *stat_out, struct stoker_error *error);
    int64_t (*read_now)(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes);
    int64_t (*read_wait)(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes);
    int64_t (*uncached_bytes)(struct stk_file *file, uint64_t offset,
                              uint64_t bytes); /* NULL: -ENOSYS */
    bool (*last_error)(struct stk_file *file, int status,
                       struct stoker_error *error_out);                        /* NULL: false */
    bool (*mount_of)(struct stk_file *file, struct stk_mount_info *mount_out); /* NULL: false */
    /* 0, or, if each read is a request to a server: the bytes that arrive in about the time of one
     * round trip. Shorter reads save no time. Reads of such a file use no bytes of the buffer
     * beside the wanted ones (skip is 0), and never leak their buffer. */
    uint32_t round_trip_bytes;
};

/* One read. The submitter owns it and its buffer until reap returns it. If the deadline passes,
 * reap returns it with STOKER_ERROR_TIMEOUT. If `leaked` is set as well, the kernel may still write
 * into the buffer: the submitter must never use or free it. */
struct stk_read {
    struct stk_file *file;
    uint64_t offset;
    uint8_t *buffer; /* aligned to STK_IO_ALIGN */
    uint32_t bytes;  /* the wanted bytes; offset and bytes need no alignment, see `skip` */
    uint32_t skip;   /* out: the wanted bytes begin at buffer + skip (O_DIRECT) */
    /* Of the buffer: at least the wanted range with both ends rounded out to STK_IO_ALIGN.
     * stk_read_capacity(bytes) is always enough. */
    uint32_t capacity;
    /* NULL, or a flag that becomes true if the result is no longer needed: a request to a store
     * then ends soon with STOKER_ERROR_CLOSED. Must stay valid until the read is reaped. */
    const _Atomic bool *cancelled;
    bool keep_cached; /* read through the page cache, since the bytes will be read again */
    int64_t result;   /* out: bytes read (fewer only at the end of the file), or a status below 0 */
    bool leaked;      /* out */
    /* out, of a request to a store: when it was sent, and when its first and its last byte
     * arrived; 0: unknown */
    uint64_t sent_ns, first_ns, done_ns;
    struct stk_read *next; /* of the lists of submit and reap */
    void *owner;           /* the submitter's */
};

#define STK_IO_ALIGN 4096u
/* Capacity of a buffer for `bytes` at any offset, with both ends rounded out to STK_IO_ALIGN. */
static inline uint32_t stk_read_capacity(uint32_t bytes)
{
    return (uint32_t)stk_round_up((uint64_t)bytes + STK_IO_ALIGN - 1, STK_IO_ALIGN);
}

/* The functions of an implementation. Callers use the stk_io_* functions below. */
struct stk_io_table {
    int (*open_file)(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *error);
    int (*stat_path)(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                     struct stoker_error *error);
    int (*list)(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                struct stoker_error *error);
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
    /* NULL: maps are copies, which do not change. */
    int (*map_check)(struct stk_io *io, struct stk_view view, struct stoker_error *error);
    uint64_t (*map_faults)(struct stk_io *io);
    void (*map_prefetch)(struct stk_io *io, struct stk_view part);
    uint64_t (*thread_disk_reads)(struct stk_io *io);
    void (*close)(struct stk_io *io);
    const struct stk_write_table *write; /* io/write.h */
};

struct stk_io {
    const struct stk_io_table *table;
};

/* Opens the POSIX file system. Returns 0 and sets *io_out; -ENOSYS or -EPERM only if the options
 * demand a backend that does not work here. */
int stk_io_open(struct stk_io **io_out, const struct stk_io_options *options,
                struct stoker_error *error);
void stk_io_close(struct stk_io *io); /* takes; NULL is allowed */

/* ---- files ---- */

/* Opens a file for reading. Waits at most read_timeout_ms. */
int stk_io_open_file(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *error);
void stk_io_close_file(struct stk_file *file);
int stk_io_stat_file(struct stk_file *file, struct stk_stat *stat_out, struct stoker_error *error);
int stk_io_stat_path(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                     struct stoker_error *error);
/* Lists a folder, without "." and "..". The caller frees the listing. Waits at most
 * read_timeout_ms. */
int stk_io_list(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                struct stoker_error *error);
void stk_listing_free(struct stk_listing *listing);

/* Reads bytes that are in memory, on the calling thread. Returns the count, which is less than
 * `bytes` at the end of the file or if the rest is not in memory; -EAGAIN if none of the bytes is
 * in memory, if that is unknown, or, for files that are read with O_DIRECT, if a part is not. */
int64_t stk_io_read_now(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes);
/* Returns how many bytes of the range, in whole pages, are missing in the page cache. Never waits,
 * and sends no request to a server. Returns a status below 0 if that is unknown: -ENOSYS before
 * Linux 6.5 and for objects. */
int64_t stk_io_uncached_bytes(struct stk_file *file, uint64_t offset, uint64_t bytes);
/* Reads, and waits for at most read_timeout_ms. Returns the count, which is less than `bytes` only
 * at the end of the file; -errno; or STOKER_ERROR_TIMEOUT, after which nothing writes into the
 * buffer. */
int64_t stk_io_read_wait(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes);
/* Describes the last read of this file that failed with this status. Returns false if only the
 * status is known. */
bool stk_io_last_read_error(struct stk_file *file, int status, struct stoker_error *error_out);
/* Fills *error for a read that failed with `status`: with stk_io_last_read_error if it knows more,
 * else with `what`. Returns status. */
int stk_io_fail_read(struct stk_file *file, int64_t status, const char *what,
                     struct stoker_error *error);
/* Returns true, and where the file lies, for a file on a network file system, behind FUSE, or on an
 * unknown file system. Returns false for a file on a disk or in the memory of this machine, and for
 * an object. Never waits. */
bool stk_io_mount_of(struct stk_file *file, struct stk_mount_info *mount_out);

/* ---- maps ---- */

/* Maps the whole file, read-only and page-aligned. The map outlives the file. Later changes of the
 * file may show in it, and what is behind the end of a file that was cut reads as zeros. So no
 * number of a map is the same at two reads: copy it, check the copy, and call stk_map_watch_check
 * (io/map_watch.h) before what was read is handed on. The view of an empty file is empty. */
int stk_io_map(struct stk_io *io, struct stk_file *file, struct stk_view *view_out,
               struct stoker_error *error);
void stk_io_unmap(struct stk_io *io, struct stk_view view);
/* Returns 0 if the file of a map is what it was when it was mapped, or was replaced by a rename;
 * STOKER_ERROR_CHANGED if it was written to or cut; -EIO if a page of it cannot be read. Asks the
 * file system. */
int stk_io_map_check(struct stk_io *io, struct stk_view view, struct stoker_error *error);
/* A counter that grows when a page of any map cannot be read any more. */
uint64_t stk_io_map_faults(struct stk_io *io);
/* Hint: a part of a mapped file will be read. Starts reading the pages that are not in memory. */
void stk_io_map_prefetch(struct stk_io *io, struct stk_view part);
/* A counter that grows when this thread reads from a disk, including by page faults. */
uint64_t stk_io_thread_disk_reads(struct stk_io *io);

/* ---- queues ---- */

int stk_io_queue_open(struct stk_io *io, struct stk_queue **queue_out, struct stoker_error *error);
/* Cancels the reads in flight and waits for a short time until they finish. Afterwards each read is
 * its submitter's again; `leaked` marks the buffers that the kernel may still write into. */
void stk_io_queue_close(struct stk_io *io, struct stk_queue *queue);
/* Submits a list linked by `next`. Returns how many reads were taken: all, or as many as depth
 * allows; the rest stays with the caller. Never waits for a read. */
int stk_io_submit(struct stk_io *io, struct stk_queue *queue, struct stk_read *reads);
/* Returns a list of finished reads; NULL after timeout_ms or a wake. */
struct stk_read *stk_io_reap(struct stk_io *io, struct stk_queue *queue, uint32_t timeout_ms);
/* Ends a reap that waits. Any thread. */
void stk_io_wake(struct stk_io *io, struct stk_queue *queue);

/* ---- cancellation, the clock, statistics ---- */

/* Sets the cancel flag of this thread. Soon after *cancel becomes true, requests to stores that
 * this thread waits for end with STOKER_ERROR_CLOSED; calls into the kernel end at their deadline.
 * NULL: no flag. The flag must stay valid until the next call. Returns the previous flag. */
const _Atomic bool *stk_io_set_cancel_flag(const _Atomic bool *cancel);
const _Atomic bool *stk_io_cancel_flag(void);

uint64_t stk_io_clock_ns(struct stk_io *io); /* monotonic */
const char *stk_io_backend(struct stk_io *io, const char **reason_out);
uint64_t stk_io_leaked_bytes(struct stk_io *io);

/* Returns true if a path is on another machine: scheme://... (except file://), or a chain of fsspec
 * URLs: first::scheme://... */
bool stk_io_is_url(const char *path);

/* Cores granted by affinity and cgroup (v1, v2); bytes granted by the cgroup or the machine. */
uint32_t stk_cgroup_available_cores(void);
uint64_t stk_cgroup_available_memory(void);

#endif
