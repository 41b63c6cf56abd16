/* storage/vfs/remote_file.h: objects of stores as files: open, stat, list, and reads that wait.
 *
 *   open: metadata cache, else a HEAD request --> file of one version --reads--> close
 *         (a version that is being prefetched as a whole is shared by all its openers; one whose
 *         server sends no ranges is fetched by open)
 *
 * Owner: struct stk_vfs. Threads: any. Memory: one block a file, and one a read in flight.
 * Bound: of a listing names_max. */
#ifndef STORAGE_VFS_REMOTE_FILE_H
#define STORAGE_VFS_REMOTE_FILE_H

#include "io/io.h"
#include "storage/range/block_reader.h"
#include "storage/vfs/lazy_store.h"
#include "storage/vfs/metadata_cache.h"
#include "storage/vfs/prefetch.h"
#include "storage/vfs/remote_checksum.h"
#include "storage/vfs/spool.h"

#include <stdatomic.h>

/* What all remote files of a struct stk_vfs share. */
struct stk_remote_fs {
    struct stk_lazy_store store;
    struct stk_metadata_cache *metadata_cache;
    struct stk_prefetch *prefetch;   /* NULL: there is no budget for it */
    struct stk_block_reader *reader; /* NULL: no node cache */
    struct stk_spools spools;
    uint64_t names_max; /* of one listing in memory */
};

struct stk_remote_file {
    struct stk_file file;   /* first */
    _Atomic uint32_t users; /* its openers, and reads in flight */
    struct stk_remote_fs *fs;
    struct stk_range_source source; /* the version that was opened: all reads request it */
    struct stk_remote_checksum checksum;
    _Atomic uint64_t file_mtime_ns; /* as in source.info, by the responses to reads */
    struct stk_spool *spool;        /* retained; NULL: reads are requests of ranges */
    pthread_mutex_t lock;
    struct {
        struct stoker_error error; /* of the read that failed last */
    } locked;
};

extern const struct stk_file_ops stk_remote_file_ops;

static inline bool stk_file_is_remote(const struct stk_file *file)
{
    return file->ops == &stk_remote_file_ops;
}

static inline struct stk_remote_file *stk_remote_file_of(struct stk_file *file)
{
    return (struct stk_remote_file *)(void *)file;
}

int stk_remote_file_open(struct stk_remote_fs *fs, const char *url, struct stk_file **file_out,
                         struct stoker_error *error);
/* info_out: if it is not NULL, archived objects are found as well; else they are an error. */
int stk_remote_file_stat_url(struct stk_remote_fs *fs, const char *url, struct stk_stat *stat_out,
                             struct stk_object_info *info_out, struct stoker_error *error);
int stk_remote_file_list(struct stk_remote_fs *fs, const char *url, struct stk_listing *listing_out,
                         struct stoker_error *error);
int64_t stk_remote_file_read(struct stk_remote_file *remote, uint64_t offset, void *buffer,
                             size_t bytes);
/* Reads the whole object into pages, which the caller frees with stk_pages_free. An empty object
 * has no pages: *pages_out is NULL. */
int stk_remote_file_map(struct stk_remote_file *remote, uint8_t **pages_out, uint64_t *bytes_out,
                        struct stoker_error *error);

#endif
