/* io/write.h: writing files, so that a final name never stands on half a file.
 *
 *   create "x.part" -write-> ... -sync-> close -rename-> "x" -sync_directory-> it stays
 *
 * All calls block the caller; only pack, index and tools write, on threads of their own.
 * Owner: whoever created the out. Threads: one an out; different ones side by side.
 * Memory: one block an out. Bound: none of its own; a full disk is -ENOSPC with the path. */
#ifndef IO_WRITE_H
#define IO_WRITE_H

#include "io/io.h"

struct stk_output;    /* a file being written, front to back */
struct stk_file_lock; /* what one at a time may have */

/* The table behind the functions below; struct stk_io_table points to it. */
struct stk_write_table {
    int (*create)(struct stk_io *io, const char *path, bool exclusive, struct stk_output **out_out,
                  struct stoker_error *error);
    int (*write)(struct stk_io *io, struct stk_output *out, const void *data, size_t bytes,
                 struct stoker_error *error);
    int (*sync_output)(struct stk_io *io, struct stk_output *out, struct stoker_error *error);
    void (*close_output)(struct stk_io *io, struct stk_output *out);
    int (*rename)(struct stk_io *io, const char *from, const char *to, bool exclusive,
                  struct stoker_error *error);
    int (*link)(struct stk_io *io, const char *from, const char *to, struct stoker_error *error);
    int (*make_directory)(struct stk_io *io, const char *path, bool exclusive,
                          struct stoker_error *error);
    int (*remove)(struct stk_io *io, const char *path, struct stoker_error *error);
    int (*sync_directory)(struct stk_io *io, const char *path, struct stoker_error *error);
    int (*append)(struct stk_io *io, const char *path, struct stk_output **out_out,
                  struct stoker_error *error);
    int (*lock)(struct stk_io *io, const char *path, struct stk_file_lock **lock_out,
                struct stoker_error *error);
    void (*unlock)(struct stk_io *io, struct stk_file_lock *lock);
    int (*truncate)(struct stk_io *io, struct stk_output *out, uint64_t bytes,
                    struct stoker_error *error);
    /* The simulated world has none of these. */
    int (*open_exclusive)(struct stk_io *io, const char *path, struct stk_output **out_out,
                          uint64_t *bytes, struct stoker_error *error);
    int (*resolve)(struct stk_io *io, const char *path, char *real, size_t real_bytes);
};

/* Creates path, mode 0666 less the umask. fresh: fails with -EEXIST when something is there;
 * else what is there is cut to nothing. Never follows a link in the last part. */
int stk_io_create(struct stk_io *io, const char *path, bool exclusive, struct stk_output **out_out,
                  struct stoker_error *error);
/* Opens path to add whole lines at its end, and makes it as create does. What a killed writer left
 * after the last newline is cut off: so the file has one writer at a time. -EINVAL when there is no
 * newline in its last STK_LINE_BYTES_MAX: it is no file of lines, and stays as it is. */
#define STK_LINE_BYTES_MAX 65536u
int stk_io_append(struct stk_io *io, const char *path, struct stk_output **out_out,
                  struct stoker_error *error);
/* Opens what an earlier run left at path, or makes it as create does, for one writer at a time: who
 * comes second gets -EBUSY. Says how many bytes are there; cut says which of them stay. It holds
 * until close_out, so rename first; with a kill it ends. Where it holds: see stk_io_lock. */
int stk_io_open_exclusive(struct stk_io *io, const char *path, struct stk_output **out_out,
                          uint64_t *bytes, struct stoker_error *error);
/* All of it, or an error; after one the out can only be closed: each further write or sync gives
 * that error again, so that no sync can hide a lost write. */
int stk_io_write(struct stk_io *io, struct stk_output *out, const void *data, size_t bytes,
                 struct stoker_error *error);
/* Back to the first `bytes` of a created file, no more than were written: the next write goes on
 * from there. Fails as write does. */
int stk_io_truncate(struct stk_io *io, struct stk_output *out, uint64_t bytes,
                    struct stoker_error *error);
/* What was written survives a power cut (fdatasync). */
int stk_io_sync_output(struct stk_io *io, struct stk_output *out, struct stoker_error *error);
/* Takes out; NULL is fine. The file stays as it is: remove it by name when it is not wanted. */
void stk_io_close_output(struct stk_io *io, struct stk_output *out);

/* Atomic, within one file system (else -EXDEV). What is at `to` is replaced: a file by a file, an
 * empty directory by a directory; a device, pipe or socket never (-ENXIO), nor a link to one.
 * fresh: fails with -EEXIST when anything is there. */
int stk_io_rename(struct stk_io *io, const char *from, const char *to, bool exclusive,
                  struct stoker_error *error);
/* A file gets a second name beside its first, that is not there yet: else -EEXIST. Not every file
 * system can: -EPERM, -EOPNOTSUPP, -EMLINK. */
int stk_io_link(struct stk_io *io, const char *from, const char *to, struct stoker_error *error);
/* Makes one directory, mode 0777 less the umask; an existing one is fine unless fresh. */
int stk_io_make_directory(struct stk_io *io, const char *path, bool exclusive,
                          struct stoker_error *error);
/* Removes a file, a link (itself) or an empty directory; a missing one is fine. */
int stk_io_remove(struct stk_io *io, const char *path, struct stoker_error *error);
/* The path without links, "." and "..": what it leads to must be there. 0 or -errno. */
int stk_io_resolve(struct stk_io *io, const char *path, char *real, size_t real_bytes);
/* The names in a directory survive a power cut. */
int stk_io_sync_directory(struct stk_io *io, const char *path, struct stoker_error *error);

/* Takes the lock of this name: a small file that says who has it, made if there is none. Never
 * waits. -EBUSY: another has it, in this process or another, and the error names it. It ends with
 * unlock, or with the process, however that ends: a file that a kill left is taken like a new one.
 * Between machines it holds where the file system's locks do (NFS: not with nolock or
 * local_lock=flock); one that knows no locks gives it to everybody. */
int stk_io_lock(struct stk_io *io, const char *path, struct stk_file_lock **lock_out,
                struct stoker_error *error);
/* Takes lock, removes its file; NULL is fine. */
void stk_io_unlock(struct stk_io *io, struct stk_file_lock *lock);

#endif
