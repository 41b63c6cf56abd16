/* io/write.h: writing files, such that a file at its final name is always complete.
 *
 *   create "x.part" -write-> ... -sync-> close -rename-> "x" -sync_directory-> durable
 *
 * All calls block. Only pack, index and tools write, on threads of their own.
 * Owner: the creator of the output. Threads: one an output, but see write_at; several outputs in
 * parallel.
 * Memory: one block an output. Bound: none; a full disk is -ENOSPC with the path. */
#ifndef IO_WRITE_H
#define IO_WRITE_H

#include "io/io.h"

struct stk_output;     /* a file that is written */
struct stk_file_lock { /* an exclusive lock with a name; implementations extend it */
    bool real;         /* false: the file system has no locks, so others may hold it, too */
};

/* How stk_io_remove_tree removes. */
struct stk_tree_removal {
    void *context;
    /* Called before a file, link or special file is removed. name: below the path; "" for the path
     * itself. Returns 1: it is removed; 0: it stays, and so do the folders above it; a status
     * below 0 ends the removal. NULL: all are removed. */
    int (*visit)(void *context, const char *name);
    void (*removed)(void *context); /* called after each that was removed; NULL: none */
    /* Called for each that cannot be removed. Returns 0 to continue with the others, or a status
     * below 0 to end. NULL: ends with that failure. */
    int (*failed)(void *context, const char *name, int status, const struct stoker_error *error);
    bool folders; /* false: fails with -EISDIR if the path is a folder */
};

/* The table after the functions below; struct stk_io_table points to it. */
struct stk_beneath_check;
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
    /* May be NULL. The simulated file system has resolve, write_at and remove_tree. */
    int (*open_exclusive)(struct stk_io *io, const char *path, struct stk_output **out_out,
                          uint32_t mode, uint64_t *bytes, struct stoker_error *error);
    int (*resolve)(struct stk_io *io, const char *path, char *real, size_t real_bytes);
    int (*write_at)(struct stk_io *io, struct stk_output *out, uint64_t offset, const void *data,
                    size_t bytes, struct stoker_error *error);
    int (*reserve)(struct stk_io *io, struct stk_output *out, uint64_t bytes,
                   struct stoker_error *error);
    int (*remove_tree)(struct stk_io *io, const char *path, const struct stk_tree_removal *how,
                       struct stoker_error *error);
    int (*remove_below)(struct stk_io *io, const char *root, const char *name,
                        struct stoker_error *error);
    bool (*is_link)(struct stk_io *io, const char *path);
    int (*set_attributes)(struct stk_io *io, struct stk_output *out, uint32_t mode,
                          const uint64_t *mtime_ns, struct stoker_error *error);
    int (*copy_attributes)(struct stk_io *io, const char *from, struct stk_output *out,
                           struct stoker_error *error); /* NULL: files have none */
    int (*open_beneath)(struct stk_io *io, const char *folder, struct stk_io **io_out,
                        struct stoker_error *error); /* NULL: there are no links */
    int (*check_beneath)(struct stk_io *io, const struct stk_beneath_check *check,
                         struct stoker_error *error); /* NULL: likewise */
};

/* Opens an io for the names beneath a folder: for paths that begin with `folder`, no symbolic link
 * leads a call out of it, also if another process puts one in at any time. Such a call fails with
 * -ELOOP. A link as the last component is used as by the other functions of this header; only
 * stk_io_stat_path follows it. Other paths, and reads of files and folders, are as with `io`, which
 * may be such an io, too, and must outlive this one.
 * remove_tree and remove_below have their own rule. Call only functions of this header,
 * stk_io_stat_path, stk_io_open_file and stk_io_list with it. Its outputs are closed before it.
 * close_beneath: NULL is allowed, and `io`, which open_beneath sets after a failure and for file
 * systems that have no links. */
int stk_io_open_beneath(struct stk_io *io, const char *folder, struct stk_io **io_out,
                        struct stoker_error *error);
void stk_io_close_beneath(struct stk_io *io, struct stk_io *beneath);

/* A file that was opened for reading by a path below a folder. */
struct stk_beneath_check {
    const char *folder, *path; /* path begins with folder */
    uint64_t device, inode;    /* of the folder, when its files were listed */
    struct stk_stat opened;    /* of the open file */
};
/* Checks that the file which was opened is beneath the folder: the path leads to it, and no link
 * leads out of the folder. So a link that another process put in before the file was opened, or
 * since the folder was listed, is found. Returns 0 on success and for file systems that have no
 * links, -ELOOP if a link leads out, STOKER_ERROR_CHANGED if the path leads to another file or the
 * folder is another one, or the error of a system call. */
int stk_io_check_beneath(struct stk_io *io, const struct stk_beneath_check *check,
                         struct stoker_error *error);

/* Creates a file with mode 0666 less the umask. exclusive: fails with -EEXIST if the path exists;
 * else an existing file is truncated. Never follows a link in the last component. */
int stk_io_create(struct stk_io *io, const char *path, bool exclusive, struct stk_output **out_out,
                  struct stoker_error *error);
/* Opens a file to append whole lines, or creates it as create does. Truncates an incomplete last
 * line of a killed writer, so the file must have one writer at a time. Returns -EINVAL, and leaves
 * the file unchanged, if its last STK_LINE_BYTES_MAX bytes have no newline: it has no lines. */
#define STK_LINE_BYTES_MAX 65536u
int stk_io_append(struct stk_io *io, const char *path, struct stk_output **out_out,
                  struct stoker_error *error);
/* Opens the file of an earlier run, or creates it, with an exclusive lock: a second writer gets
 * -EBUSY. mode: of a file that it creates, less the umask; 0: 0666. The owner can always read and
 * write it. Permissions of an existing file that mode lacks are removed. *bytes: the size of the
 * file; truncate removes the rest. close_output releases the lock, so rename before it; so does
 * the end of the process. See stk_io_lock for its scope. */
int stk_io_open_exclusive(struct stk_io *io, const char *path, struct stk_output **out_out,
                          uint32_t mode, uint64_t *bytes, struct stoker_error *error);
/* Sets the permissions (0: they stay) and the time of the last change (NULL: it stays) of a created
 * file, after the last write. A file system that has none of these ignores it. */
int stk_io_set_attributes(struct stk_io *io, struct stk_output *out, uint32_t mode,
                          const uint64_t *mtime_ns, struct stoker_error *error);
/* Gives a created file the owner, permissions and extended attributes (with ACLs) of another one,
 * before the first write: for a file that will replace that one. Extended attributes of the system
 * that this process may not set are left out. Returns 0 on success, -EPERM if this process may not
 * give the file that owner, or the error of a system call. */
int stk_io_copy_attributes(struct stk_io *io, const char *from, struct stk_output *out,
                           struct stoker_error *error);
/* Writes all bytes, or fails. After a failure, each write or sync returns the same error again, so
 * that no sync hides a lost write: the output can only be closed. */
int stk_io_write(struct stk_io *io, struct stk_output *out, const void *data, size_t bytes,
                 struct stoker_error *error);
/* Writes at an offset, also over bytes that were written before, or beyond the end: the bytes
 * between are zero. Several threads may write disjoint ranges of an output at the same time, if
 * none of them calls stk_io_write. Whole blocks of STK_IO_ALIGN from aligned memory, 1 MiB and
 * more, go around the page cache of disks: use memory of stk_pages_alloc_huge. Fails as write
 * does. */
int stk_io_write_at(struct stk_io *io, struct stk_output *out, uint64_t offset, const void *data,
                    size_t bytes, struct stoker_error *error);
/* Reserves space for the first `bytes` of a created file, so that a full disk or quota is known
 * before they are written. The caller writes all of them: the file may have this length before.
 * Where the file system has no reservations, compares them with its free space. Also fails with
 * -ENOSPC if it has no inodes for a few more files. */
int stk_io_reserve(struct stk_io *io, struct stk_output *out, uint64_t bytes,
                   struct stoker_error *error);
/* Truncates a created file to its first `bytes`, at most those written. The next write continues
 * there. Fails as write does. */
int stk_io_truncate(struct stk_io *io, struct stk_output *out, uint64_t bytes,
                    struct stoker_error *error);
/* Makes the written bytes durable (fdatasync). */
int stk_io_sync_output(struct stk_io *io, struct stk_output *out, struct stoker_error *error);
/* Takes out; NULL is allowed. The file stays: remove an unwanted one by its name. */
void stk_io_close_output(struct stk_io *io, struct stk_output *out);

/* Renames atomically within one file system (else -EXDEV). Replaces a file at `to` by a file, and
 * an empty directory by a directory. Never replaces a device, pipe or socket, nor a link to one
 * (-ENXIO). exclusive: fails with -EEXIST if `to` exists. */
int stk_io_rename(struct stk_io *io, const char *from, const char *to, bool exclusive,
                  struct stoker_error *error);
/* Adds a second name to a file. Returns -EEXIST if `to` exists; -EPERM, -EOPNOTSUPP or -EMLINK if
 * the file system does not support it. */
int stk_io_link(struct stk_io *io, const char *from, const char *to, struct stoker_error *error);
/* Creates one directory with mode 0777 less the umask. exclusive: fails if it exists. */
int stk_io_make_directory(struct stk_io *io, const char *path, bool exclusive,
                          struct stoker_error *error);
/* Removes a file, a link (not its target) or an empty directory. Returns 0 if it does not exist. */
int stk_io_remove(struct stk_io *io, const char *path, struct stoker_error *error);
/* Removes a file, a link or a folder with everything below it, by directory descriptors: nothing is
 * removed through a symbolic link, also if another process puts one in while this runs. Only links
 * in the folder of `path` are followed, not its last component. Returns -ENOENT if the path does
 * not exist; STOKER_ERROR_ARGUMENT for "/", "." and ".."; -ENOTDIR for a link with a final '/'. */
int stk_io_remove_tree(struct stk_io *io, const char *path, const struct stk_tree_removal *how,
                       struct stoker_error *error);
/* Removes the file or link `name` below the folder root; no component of name may be a link.
 * Returns 0 if it does not exist. */
int stk_io_remove_below(struct stk_io *io, const char *root, const char *name,
                        struct stoker_error *error);
/* Resolves links, "." and ".." of an existing path. Returns 0 or -errno. */
int stk_io_resolve(struct stk_io *io, const char *path, char *real, size_t real_bytes);
/* Returns true if the last component of a local path is a symbolic link, also one to nothing. */
bool stk_io_is_link(struct stk_io *io, const char *path);
/* Makes the names in a directory durable. */
int stk_io_sync_directory(struct stk_io *io, const char *path, struct stoker_error *error);

/* Acquires the lock of this name: a small file that names its holder, created if it does not exist.
 * Never waits. Returns -EBUSY if this or another process holds it, and the error names the holder.
 * unlock releases it, and so does the end of the process; the file that a killed process leaves
 * does not count. It works between machines if the locks of the file system do (NFS: not with
 * nolock or local_lock=flock). On a file system without locks it always succeeds, and real is
 * false. */
int stk_io_lock(struct stk_io *io, const char *path, struct stk_file_lock **lock_out,
                struct stoker_error *error);
/* Whether the text of a lock file names a process of this host that does not exist. */
bool stk_lock_holder_is_dead(const char *text);
/* Takes lock and removes its file; NULL is allowed. */
void stk_io_unlock(struct stk_io *io, struct stk_file_lock *lock);

#endif
