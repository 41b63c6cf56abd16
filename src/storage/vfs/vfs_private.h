/* storage/vfs/vfs_private.h: the virtual file system's own state, which vfs.c, vfs_write.c,
 * vfs_store.c and vfs_queue.c share.
 * Owner: the engine. Threads: any; `locked` with its lock. Memory: see storage/vfs/vfs.h.
 * Bound: as there. */
#ifndef STORAGE_VFS_VFS_PRIVATE_H
#define STORAGE_VFS_VFS_PRIVATE_H

#include "io/write.h"
#include "storage/external/external_fs.h"
#include "storage/vfs/remote_file.h"
#include "storage/vfs/vfs.h"

#include <pthread.h>

/* Memory that replaces a map of a file that is not local. */
struct stk_remote_mapping {
    struct stk_remote_mapping *next;
    uint8_t *pages;
    uint64_t bytes;
};

struct stk_vfs {
    struct stk_io io;       /* first: callers hold a pointer to it */
    struct stk_io *backend; /* for local files */
    struct stk_vfs_options options;
    struct stk_remote_fs remote;
    pthread_mutex_t lock;
    struct {
        struct stk_remote_mapping *maps;
    } locked;
};

extern const struct stk_io_table stk_vfs_table;          /* vfs.c */
extern const struct stk_write_table stk_vfs_write_table; /* vfs_write.c */

static inline struct stk_vfs *stk_vfs_of(struct stk_io *io)
{
    return (struct stk_vfs *)(void *)io;
}

/* False: an io of a test, without stores. */
static inline bool stk_io_is_vfs(const struct stk_io *io)
{
    return io->table == &stk_vfs_table;
}

static inline bool stk_file_is_local(const struct stk_file *file)
{
    return !stk_file_is_remote(file) && !stk_file_is_external(file);
}

/* Returns the external file system if it serves this URL, else NULL. */
static inline struct stoker_external_fs *stk_vfs_external_fs(const struct stk_vfs *vfs,
                                                             const char *path)
{
    struct stoker_external_fs *external_fs = vfs->options.external_fs;

    return external_fs && stk_vfs_is_external_url(path) && stk_external_fs_has_server(external_fs)
               ? external_fs
               : NULL;
}

/* vfs_queue.c: queues of local and remote reads, for the table. */
int stk_vfs_queue_open(struct stk_io *io, struct stk_queue **queue_out, struct stoker_error *error);
void stk_vfs_queue_close(struct stk_io *io, struct stk_queue *queue);
int stk_vfs_queue_submit(struct stk_io *io, struct stk_queue *queue, struct stk_read *reads);
struct stk_read *stk_vfs_queue_reap(struct stk_io *io, struct stk_queue *queue,
                                    uint32_t timeout_ms);
void stk_vfs_queue_wake(struct stk_io *io, struct stk_queue *queue);

#endif
