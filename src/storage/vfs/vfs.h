/* storage/vfs/vfs.h: the virtual file system: one struct stk_io (io/io.h) over local files, objects
 * of stores, and files of an external file system. The functions below that are not in io/io.h are
 * about stores only; on an io or a file without stores they do nothing.
 *
 *   path ---------> the POSIX file system (or a simulated one)
 *   s3://, http:// -> the store client, opened by the first URL
 *   other URLs ----> requests that threads of the library's caller serve
 *                    (storage/external/external_fs.h)
 *
 * A remote file is one version of an object: each read requests the version that was opened. The
 * metadata that a listing returned is cached for a short time. Callers may prefetch objects that
 * they will read soon.
 * Owner: the engine. Threads: any; one for each queue. Memory: one block a remote file, one a read
 * of it in flight, the metadata cache, and prefetched objects in the budget. Bound: `depth` remote
 * reads of a queue, beside the local ones; connections_max of the store. */
#ifndef STORAGE_VFS_VFS_H
#define STORAGE_VFS_VFS_H

#include "base/memory_budget.h"
#include "io/io.h"

#define STK_VFS_MAP_BYTES_MAX (4ull << 30) /* a map of a remote file is memory */

struct stk_vfs_options {
    uint32_t depth;            /* remote reads in flight of a queue */
    uint32_t read_timeout_ms;  /* for which a read may receive no bytes */
    uint32_t connections_max;  /* 0: the default of storage/http/http.h */
    struct stk_budget *budget; /* for prefetched objects; must outlive the io; NULL: no prefetch */
    /* See storage/object/store.h. */
    uint32_t node_connections_max, hedge_percent_max;
    bool unshared, no_hedges, check_md5_etags;
    struct stoker_external_fs *external_fs; /* retained; NULL: other URLs are an error */
    struct stoker_cache *cache; /* of blocks of objects on disks; retained; NULL: none */
};

#define STK_VFS_ROUND_TRIP_BYTES                                                                   \
    (1u << 20) /* arrive in 10 to 20 ms, about half of a round trip                                \
                */

struct stk_store;
struct stk_object_info; /* storage/object/store.h */
struct stk_checksum;    /* storage/checksum/checksum.h */

/* Takes backend, also on failure. */
int stk_vfs_open(struct stk_io **io_out, struct stk_io *backend,
                 const struct stk_vfs_options *options, struct stoker_error *error);
/* Returns true for a URL that needs the external file system: stores have other schemes. */
bool stk_vfs_is_external_url(const char *path);

/* ---- the store and its metadata ---- */

/* Opens the store if needed. It is valid as long as the io. Returns UNSUPPORTED if the io has no
 * stores. */
int stk_vfs_get_store(struct stk_io *io, struct stk_store **store_out, struct stoker_error *error);
/* Statistics of requests; does not change struct_size. */
void stk_vfs_store_stats(struct stk_io *io, struct stoker_store_stats *stats_out);
/* Sets the metadata of an object that was just written. info NULL: it was changed or deleted. */
void stk_vfs_set_metadata(struct stk_io *io, const char *url, const struct stk_object_info *info);
/* Drops all cached metadata: the next use of each object requests it again. */
void stk_vfs_forget_metadata(struct stk_io *io);
/* stk_io_stat_path, but asks the store, and the metadata of an object, also of an archived one,
 * which cannot be opened. Of other files *info_out is zeroed. */
int stk_vfs_stat_object(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                        struct stk_object_info *info_out, struct stoker_error *error);
/* The metadata of an open remote file. Returns false for other files. */
bool stk_vfs_object_info(const struct stk_file *file, struct stk_object_info *info_out);
/* 0 for a local file. For others: the bytes that arrive in about the time of one round trip, see
 * struct stk_file_ops. */
static inline uint32_t stk_vfs_round_trip_bytes(const struct stk_file *file)
{
    return file->ops->round_trip_bytes;
}

/* ---- hints ---- */

/* These paths will be opened: requests the metadata of all URLs among them at once, and waits.
 * paths: NUL-ended, one after the other. */
void stk_vfs_prefetch_metadata(struct stk_io *io, const char *paths, size_t count);
/* Lists many remote folders at once. A listing without memory failed, or is empty: the caller lists
 * the folder again by itself. */
void stk_vfs_list_many(struct stk_io *io, const char *paths, size_t count,
                       struct stk_listing *listings_out);
/* The first bytes of an object (if its metadata is cached), or all of it, will be read soon. They
 * are fetched by large requests into memory of the budget that nothing else uses, and stay until
 * they were read once, or until the owner releases them. These functions never wait. */
void stk_vfs_prefetch_head(struct stk_io *io, const char *path, const void *owner);
void stk_vfs_prefetch(struct stk_file *file, const void *owner);
/* Returns true if these bytes are in memory or in flight. */
bool stk_vfs_is_prefetched(struct stk_file *file, uint64_t offset, uint64_t bytes);
/* Reads prefetched bytes, which stay for another read, as after reads of a queue with keep_cached.
 * Returns -EAGAIN if they are not in memory. */
int64_t stk_vfs_prefetch_peek(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes);
/* Drops what this owner prefetched. */
void stk_vfs_prefetch_release(struct stk_io *io, const void *owner);
/* Frees some prefetched memory. Returns the number of bytes. */
uint64_t stk_vfs_prefetch_trim(struct stk_io *io);

/* ---- checksums ---- */

/* Requests the checksum of an open remote file if opening it did not, and waits until it is known.
 * For files that will be read as a whole: only bytes that are read afterwards are verified. */
void stk_vfs_fetch_checksum(struct stk_file *file);
/* The checksum that the store reports for the whole object, if it cannot be computed from the
 * checksums of ranges. Returns false if there is none, or if it is not known yet. */
bool stk_vfs_composite_checksum(struct stk_file *file, struct stk_checksum *checksum_out);
/* Returns true if reads of this file are verified together, when all bytes have been read. */
bool stk_vfs_has_checksum(struct stk_file *file);
/* Adds bytes of an earlier run, which count as read. Returns CORRUPT if all bytes have now been
 * read and the checksum does not match. */
int stk_vfs_checksum_add(struct stk_file *file, uint64_t offset, struct stk_view bytes,
                         struct stoker_error *error);
/* Returns true if the checksum of the whole file did not match. */
bool stk_vfs_checksum_failed(struct stk_file *file);

#endif
