/* io/posix/posix.h: what the two real backends share: the machine's files, and how one read is cut.
 *
 *   path --near--> a local file system: called directly, confined to its mount (openat2)
 *        `--far--> network, FUSE, unknown: on a pool thread, given up at the deadline
 *
 *   stk_read --span--> O_DIRECT, rounded out; or as it is --kernel--> short? go on --> result
 *
 * Owner: the stk_io. Threads: any; what serves a queue: the queue's.
 * Memory: taken in open, one block a file. Bound: path_args here, in io/read_list.h and
 * io/posix/thread_pool.h. */
#ifndef IO_POSIX_POSIX_H
#define IO_POSIX_POSIX_H

#include "io/io.h"
#include "io/posix/thread_pool.h"
#include "io/read_list.h"

#include <stdatomic.h>

/* A kernel that answers "again" for ever is an error in the end. */
#define STK_READ_PART_RETRIES_MAX 64u

struct stk_local_paths;
struct stk_listing_builder;
struct stat;

struct stk_posix {
    struct stk_io io;                    /* first: it is what callers hold */
    struct stk_io_options options;       /* const after open; defaults filled in */
    struct stk_local_paths *local_paths; /* which paths are near */
    struct stk_thread_pool *calls;       /* for what is far */
    char reason[256];                    /* const after open */
    _Atomic uint64_t leaked_bytes;
    _Atomic bool probe_refused; /* no cachestat here */
};

struct stk_posix_file {
    _Atomic uint32_t users; /* its opener, and every call or read on a thread, lost ones too */
    int fd;
    bool is_network;
    bool regular;
    struct stk_mount_info mount; /* when it was opened, as bytes */
    uint64_t bytes;
    _Atomic int direct_fd;       /* STK_DIRECT_UNTRIED, STK_DIRECT_REFUSED, or open with O_DIRECT */
    _Atomic bool direct_refused; /* a read by direct_fd was refused: back to buffered */
    _Atomic bool nowait_refused; /* the file system knows no RWF_NOWAIT */
    _Atomic bool warm;           /* the last read_now found its bytes */
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

/* A thread that hangs in a file keeps it open, so that its number names no other file. */
static inline void stk_posix_file_acquire(struct stk_posix_file *file)
{
    atomic_fetch_add_explicit(&file->users, 1, memory_order_relaxed);
}
void stk_posix_file_release(struct stk_posix_file *file);

/* The part of one read that is still to be asked from the kernel. A value: it stays usable after
 * its read was given up. */
struct stk_read_part {
    int fd;
    int buffered_fd;
    bool direct;
    bool is_network; /* may hang: never to be begun by the submitter */
    bool refused;    /* out: O_DIRECT was, the file should learn it */
    uint8_t *buffer;
    uint64_t offset; /* of buffer[0] in the file */
    uint64_t wanted_offset;
    uint32_t wanted_bytes;
    uint32_t bytes; /* to fill */
    uint32_t done;  /* filled */
    uint32_t retries;
    int failure; /* 0 or -errno */
};

void stk_read_part_init(struct stk_read_part *span, struct stk_posix *posix, struct stk_read *read);
/* What a read of (fd, buffer + done, bytes - done, offset + done) returned: a count or -errno.
 * True: the span is finished; false: read on. */
bool stk_read_part_advance(struct stk_read_part *span, int64_t returned);
/* Fills the out fields of *read from a finished span. */
void stk_read_part_finish(const struct stk_read_part *span, struct stk_read *read);

/* Ends a read without data: `lost` when the kernel may still write into its buffer. */
void stk_posix_abandon(struct stk_posix *posix, struct stk_read *read, int status, bool lost);

/* The backends. The probe: 0, or -errno with the reason as a sentence. */
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

/* write.c: files being written; both backends. */
extern const struct stk_write_table stk_posix_write_table;

/* local_path.c: opens a path confined to a mount that is known to be local. A descriptor or -errno;
 * -EXDEV: not known to be local, so ask on a pool thread. */
int stk_local_paths_open(struct stk_local_paths **places_out, struct stk_thread_pool *calls);
void stk_local_paths_close(struct stk_local_paths *places);
int stk_local_path_open(struct stk_local_paths *places, const char *path, int flags);
/* The same below an open directory that is near: -EXDEV when the name leads out of it. */
int stk_local_path_open_at(struct stk_local_paths *places, int directory_fd, const char *name,
                           int flags);
/* Adds the entries of an open directory: 0 or -errno. -EXDEV: an entry leads out of the mount.
 * places NULL: goes wherever links lead, and may hang. */
int stk_local_path_list(struct stk_local_paths *places, int fd,
                        struct stk_listing_builder *builder);
uint32_t stk_posix_entry_kind(const struct stat *stat); /* enum stk_entry_kind */
/* What an opening told, into the file, whose fd and far are set; and out again: stk_io_mount_of. */
void stk_posix_set_mount(struct stk_posix_file *file, const struct stat *stat);
bool stk_posix_mount_of(struct stk_io *io, struct stk_file *file, struct stk_mount_info *mount_out);
/* Whether the file system of fd is on this machine. May hang if it is not. */
bool stk_local_path_is_local(int fd);
/* Pages of the range that the page cache has not, or -errno: ENOSYS before Linux 6.5, EPERM. */
int64_t stk_posix_uncached_bytes(int fd, uint64_t offset, uint64_t bytes);
int stk_posix_map(struct stk_io *io, struct stk_file *file, struct stk_view *view_out,
                  struct stoker_error *error);
void stk_posix_unmap(struct stk_io *io, struct stk_view view);
void stk_posix_map_prefetch(struct stk_io *io, struct stk_view part);
uint64_t stk_posix_thread_disk_reads(struct stk_io *io);

#endif
