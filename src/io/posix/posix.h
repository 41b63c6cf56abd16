/* io/posix/posix.h: the POSIX implementation of io/io.h, with two backends for queues: io_uring and
 * threads. This header declares what its files share: open files, and how one read is split.
 *
 *   path --local---> called directly, confined to its mount (openat2)
 *        `-network-> network, FUSE, unknown: on a pool thread, abandoned at the deadline
 *
 *   stk_read --stk_read_part--> O_DIRECT, rounded out; or buffered --kernel--> short? go on -->
 * result
 *
 * Owner: the stk_io. Threads: any; functions of a queue: the thread of the queue.
 * Memory: allocated in open, one block a file. Bound: the limits here, in io/read_list.h and
 * io/posix/thread_pool.h. */
#ifndef IO_POSIX_POSIX_H
#define IO_POSIX_POSIX_H

#include "io/io.h"
#include "io/posix/thread_pool.h"
#include "io/read_list.h"

#include <stdatomic.h>

/* A read that the kernel answers with EAGAIN or EINTR fails after so many attempts. */
#define STK_READ_PART_RETRIES_MAX 64u

struct stk_local_paths;
struct stk_listing_builder;
struct stat;

struct stk_posix {
    struct stk_io io;                    /* first: callers hold a pointer to it */
    struct stk_io_options options;       /* const after open; defaults filled in */
    struct stk_local_paths *local_paths; /* tells which paths are on local file systems */
    struct stk_thread_pool *calls;       /* for calls on network file systems */
    char reason[256];                    /* const after open */
    _Atomic uint64_t leaked_bytes;
    _Atomic bool probe_refused; /* the kernel has no cachestat */
};

struct stk_posix_file {
    struct stk_file file;   /* first */
    _Atomic uint32_t users; /* its opener, and each call or read on a thread, also abandoned ones */
    int fd;
    bool is_network;
    bool regular;
    struct stk_posix *posix;
    struct stk_mount_info mount; /* when the file was opened, like bytes */
    uint64_t bytes;
    _Atomic int direct_fd;       /* STK_DIRECT_UNTRIED, STK_DIRECT_REFUSED, or open with O_DIRECT */
    _Atomic bool direct_refused; /* a read by direct_fd was refused: use buffered reads */
    _Atomic bool nowait_refused; /* the file system does not support RWF_NOWAIT */
    _Atomic bool warm;           /* the last read_now found its bytes in memory */
};
#define STK_DIRECT_UNTRIED (-1)
#define STK_DIRECT_REFUSED (-2)

static inline struct stk_posix_file *stk_posix_file(struct stk_file *file)
{
    return (struct stk_posix_file *)(void *)file;
}

static inline struct stk_posix *stk_posix(struct stk_io *io)
{
    return (struct stk_posix *)(void *)io;
}

/* A thread that hangs in a call on a file keeps the file open, so that its descriptor is not reused
 * for another file. */
static inline void stk_posix_file_acquire(struct stk_posix_file *file)
{
    atomic_fetch_add_explicit(&file->users, 1, memory_order_relaxed);
}

/* posix_file.c: open files */
void stk_posix_file_release(struct stk_posix_file *file);
/* The size from which the options demand O_DIRECT. */
uint64_t stk_posix_direct_bytes_min(const struct stk_posix *posix);
/* Opens the file of fd again with O_DIRECT. access: O_RDONLY; or O_WRONLY, only if the file system
 * says that it supports it (those of disks do). Returns a descriptor or STK_DIRECT_REFUSED. */
int stk_posix_open_direct(int fd, int access);
/* The same, once: *direct_fd is STK_DIRECT_UNTRIED at first, and then has the result. */
int stk_posix_get_direct(_Atomic int *direct_fd, int fd, int access);
/* Returns the descriptor for direct reads, which the first call opens; negative: use buffered
 * reads. */
int stk_posix_file_direct_fd(struct stk_posix_file *file);
/* Reads with pread until `bytes`, the end of the file or an error: the count or -errno. */
int64_t stk_posix_read_fd(int fd, uint64_t offset, uint8_t *buffer, size_t bytes);
uint32_t stk_posix_entry_kind(const struct stat *stat); /* enum stk_entry_kind */
/* As fstat(2). The size of a file of sysfs is 0, as in /proc: read it to its end. Returns 0 or
 * -errno. */
int stk_posix_fstat(int fd, struct stat *stat);
void stk_posix_stat_convert(const struct stat *from, struct stk_stat *to);
/* As open(2), but waits if there are too many open files (io/descriptor_budget.h). Returns a
 * descriptor or -errno. */
int stk_posix_open(const char *path, int flags, uint32_t mode);
int stk_posix_open_at(int folder, const char *name, int flags, uint32_t mode);
/* Sets the size and mount of a file, whose fd and is_network are set. */
void stk_posix_set_mount(struct stk_posix_file *file, const struct stat *stat);
bool stk_posix_file_mount_of(struct stk_file *file, struct stk_mount_info *mount_out);
/* Returns how many pages of the range the page cache lacks, or -errno: ENOSYS before Linux 6.5,
 * EPERM. */
int64_t stk_posix_uncached_pages(int fd, uint64_t offset, uint64_t bytes);
/* The same; 0 if it is unknown. *pages_out: pages of the range, or 0 if it is unknown. */
uint64_t stk_posix_file_pages_missing(struct stk_posix_file *file, uint64_t offset, uint64_t bytes,
                                      uint64_t *pages_out);
int stk_posix_map(struct stk_io *io, struct stk_file *file, struct stk_view *view_out,
                  struct stoker_error *error);
void stk_posix_unmap(struct stk_io *io, struct stk_view view);
int stk_posix_map_check(struct stk_io *io, struct stk_view view, struct stoker_error *error);
uint64_t stk_posix_map_faults(struct stk_io *io);
void stk_posix_map_prefetch(struct stk_io *io, struct stk_view part);
uint64_t stk_posix_thread_disk_reads(struct stk_io *io);

/* read_part.c: the part of one read that the kernel has not returned yet. A value: it stays valid
 * after its read was abandoned. */
struct stk_read_part {
    int fd;
    int buffered_fd;
    bool direct;
    bool is_network; /* may hang: the submitter must not start it */
    bool refused;    /* out: the file system refused O_DIRECT */
    uint8_t *buffer;
    uint64_t offset; /* of buffer[0] in the file */
    uint64_t wanted_offset;
    uint32_t wanted_bytes;
    uint32_t bytes; /* to fill */
    uint32_t done;  /* filled */
    uint32_t retries;
    int failure; /* 0 or -errno */
};

void stk_read_part_init(struct stk_read_part *part, struct stk_posix *posix, struct stk_read *read);
/* returned: the result of a read of (fd, buffer + done, bytes - done, offset + done), a count or
 * -errno. Returns true if the read is finished; false if it needs another call. */
bool stk_read_part_advance(struct stk_read_part *part, int64_t returned);
/* Sets the out fields of *read from a finished part. */
void stk_read_part_finish(const struct stk_read_part *part, struct stk_read *read);

/* Ends a read without data. leaked: the kernel may still write into its buffer. */
void stk_posix_abandon(struct stk_posix *posix, struct stk_read *read, int status, bool leaked);

/* The backends. stk_uring_probe returns 0, or -errno and the reason as a sentence. */
int stk_uring_probe(char *reason, size_t reason_bytes);
int stk_uring_queue_open(struct stk_io *io, struct stk_queue **queue_out,
                         struct stoker_error *error);
void stk_uring_queue_close(struct stk_io *io, struct stk_queue *queue);
int stk_uring_submit(struct stk_io *io, struct stk_queue *queue, struct stk_read *reads);
struct stk_read *stk_uring_reap(struct stk_io *io, struct stk_queue *queue, uint32_t timeout_ms);
void stk_uring_wake(struct stk_io *io, struct stk_queue *queue);

int stk_thread_queue_open(struct stk_io *io, struct stk_queue **queue_out,
                          struct stoker_error *error);
void stk_thread_queue_close(struct stk_io *io, struct stk_queue *queue);
int stk_thread_queue_submit(struct stk_io *io, struct stk_queue *queue, struct stk_read *reads);
struct stk_read *stk_thread_queue_reap(struct stk_io *io, struct stk_queue *queue,
                                       uint32_t timeout_ms);
void stk_thread_queue_wake(struct stk_io *io, struct stk_queue *queue);

/* posix_write.c: files that are written; for both backends. */
extern const struct stk_write_table stk_posix_write_table;

/* posix_file.c: as stk_io_copy_attributes, to an open file. Returns 0 or -errno. */
int stk_posix_copy_attributes(const char *path, int to);

/* posix_names.c: the arguments of openat(2), renameat(2) and others for a path. Of an io of
 * stk_io_open_beneath: the last component, in its folder, which was opened without leaving the
 * root.
 */
struct stk_beneath_check;
struct stk_posix_place {
    int folder; /* AT_FDCWD or a descriptor */
    bool owned; /* the descriptor */
    const char *name;
};
/* Returns 0 or -errno; -ELOOP if a link leads out of the root. Close the place either way. */
int stk_posix_place_open(struct stk_io *io, const char *path, struct stk_posix_place *place);
void stk_posix_place_close(struct stk_posix_place *place);
int stk_posix_open_beneath(struct stk_io *io, const char *folder, struct stk_io **io_out,
                           struct stoker_error *error);
/* The functions of io/write.h of these names. */
int stk_posix_check_beneath(struct stk_io *io, const struct stk_beneath_check *check,
                            struct stoker_error *error);
int stk_posix_rename(struct stk_io *io, const char *from, const char *to, bool fresh,
                     struct stoker_error *error);
int stk_posix_link(struct stk_io *io, const char *from, const char *to, struct stoker_error *error);
int stk_posix_make_directory(struct stk_io *io, const char *path, bool fresh,
                             struct stoker_error *error);
int stk_posix_remove(struct stk_io *io, const char *path, struct stoker_error *error);
int stk_posix_sync_directory(struct stk_io *io, const char *path, struct stoker_error *error);
int stk_posix_resolve(struct stk_io *io, const char *path, char *real, size_t real_bytes);
bool stk_posix_is_link(struct stk_io *io, const char *path);
/* Syncs again after a signal, which may interrupt a sync on a network mount. */
int stk_posix_sync_fd(int fd, bool data_only);
int stk_posix_fail_path(struct stoker_error *error, int number, const char *what, const char *path);

/* remove_tree.c: see stk_io_remove_tree and stk_io_remove_below (io/write.h). */
struct stk_tree_removal;
int stk_posix_remove_tree(struct stk_io *io, const char *path, const struct stk_tree_removal *how,
                          struct stoker_error *error);
int stk_posix_remove_below(struct stk_io *io, const char *root, const char *name,
                           struct stoker_error *error);

/* local_path.c: opens a path if it is on a local mount, without leaving the mount. Returns a
 * descriptor or -errno; -EXDEV: the path may be on a network mount, so open it on a pool thread. */
int stk_local_paths_open(struct stk_local_paths **paths_out, struct stk_thread_pool *calls);
void stk_local_paths_close(struct stk_local_paths *paths);
int stk_local_path_open(struct stk_local_paths *paths, const char *path, int flags);
/* The same below an open local directory. Returns -EXDEV if the name leaves its mount. */
int stk_local_path_open_at(struct stk_local_paths *paths, int directory_fd, const char *name,
                           int flags);
/* Adds the entries of an open directory. Returns 0 or -errno; -EXDEV if an entry leaves the mount.
 * If paths is NULL, it follows links to other mounts and may hang. */
int stk_local_path_list(struct stk_local_paths *paths, int fd, struct stk_listing_builder *builder);
/* Returns true if the file system of fd is on this machine. May hang if it is not. */
bool stk_local_path_is_local(int fd);

#endif
