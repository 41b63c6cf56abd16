/* storage/vfs/remote_file.h: the parts of the room: the io, remote files, what is known, and
 * queues.
 *
 *   struct stk_file *: a pointer of the real io, or one to a struct stk_remote_file with its lowest
 * bit set: so a read of a local file costs a test of a bit
 *
 * Owner: struct stk_vfs. Threads: any; `locked` and known with their locks.
 * Memory: see storage/vfs/vfs.h. Bound: as there. */
#ifndef STORAGE_VFS_REMOTE_FILE_H
#define STORAGE_VFS_REMOTE_FILE_H

#include "io/write.h"
#include "storage/external/external_fs.h"
#include "storage/object/store.h"
#include "storage/vfs/vfs.h"

#include <pthread.h>
#include <stdatomic.h>

struct stk_metadata_cache;
struct stk_prefetch;

/* Memory that stands for a map of a remote file. */
struct stk_remote_file_mapping {
    struct stk_remote_file_mapping *next;
    uint8_t *pages;
    size_t bytes;
};

struct stk_vfs {
    struct stk_io io; /* first: it is what callers hold */
    struct stk_io *backend;
    struct stk_vfs_options options;
    struct stk_metadata_cache *metadata_cache;
    struct stk_prefetch *prefetch; /* NULL: nothing is kept */
    uint64_t names_max;            /* of one listing that is kept in memory */
    pthread_mutex_t lock;
    struct {
        struct stk_store *store; /* set once */
        struct stk_remote_file_mapping *maps;
    } locked;
};

struct stk_remote_file {
    _Atomic uint32_t users; /* its opener, and reads in flight */
    struct stk_object_url *object;
    struct stk_object_info info;
    uint64_t key;                        /* of this version of it: a hash */
    struct stk_range_coverage *coverage; /* what has come of it; NULL: none. Owned */
    pthread_mutex_t lock;
    pthread_cond_t checksum_known;
    bool checksum_requested; /* for its checksum; with lock */
    struct stk_checksum
        composite_checksum;    /* its checksum, if it is one that cannot be joined; with lock */
    struct stoker_error error; /* of the read that failed last; with lock */
};

static inline bool stk_file_is_remote(const struct stk_file *file)
{
    return ((uintptr_t)file & 1) != 0;
}

static inline bool stk_file_is_local(const struct stk_file *file)
{
    return !stk_file_is_remote(file) && !stk_file_is_external(file);
}

static inline struct stk_remote_file *stk_remote_file_of(struct stk_file *file)
{
    return (struct stk_remote_file *)((uintptr_t)file - 1);
}

static inline struct stk_vfs *stk_vfs_of(struct stk_io *io)
{
    return (struct stk_vfs *)(void *)io;
}

/* vfs.c: the store, opened by its first user; lent as long as the route. */
int stk_vfs_open_store(struct stk_vfs *vfs, struct stk_store **store_out,
                       struct stoker_error *error);

/* remote_file.c */
int stk_remote_file_open(struct stk_vfs *vfs, const char *url, struct stk_file **file_out,
                         struct stoker_error *error);
void stk_remote_file_release(struct stk_remote_file *remote);
/* Why a read of it failed, for who asks. */
void stk_remote_file_set_error(struct stk_remote_file *remote, const struct stoker_error *error);
/* info_out: archived objects are told, too; NULL: they are an error. */
int stk_remote_file_stat_url(struct stk_vfs *vfs, const char *url, struct stk_stat *stat_out,
                             struct stk_object_info *info_out, struct stoker_error *error);
void stk_remote_file_stat(const struct stk_remote_file *remote, struct stk_stat *stat_out);
int stk_remote_file_list(struct stk_vfs *vfs, const char *url, struct stk_listing *listing_out,
                         struct stoker_error *error);
int64_t stk_remote_file_read(struct stk_vfs *vfs, struct stk_remote_file *remote, uint64_t offset,
                             void *buffer, size_t bytes);
int stk_remote_file_map(struct stk_vfs *vfs, struct stk_remote_file *remote,
                        struct stk_view *view_out, struct stoker_error *error);

/* remote_checksum.c: asks, without waiting, for a checksum that is told of itself to nobody (sure:
 * also where there is hardly one); and waits. */
void stk_remote_file_fetch_checksum(struct stk_vfs *vfs, struct stk_remote_file *remote, bool sure);
void stk_remote_file_set_checksums(struct stk_remote_file *remote,
                                   const struct stk_response_checksums *seals);
void stk_remote_file_wait_checksum(struct stk_remote_file *remote);

/* batch_lookup.c: asks for many at once, and waits. */
void stk_batch_lookup_stat(struct stk_io *io, const char *paths, size_t count);
void stk_batch_lookup_list(struct stk_io *io, const char *paths, size_t count,
                           struct stk_listing *listings_out);

/* range_read.c: one read of a remote file, as ranges of STK_STORE_RANGE_BYTES side by side. */
struct stk_range_read {
    struct stk_range_read *next, *previous, *arrived_next; /* the owner's */
    uint64_t offset;
    uint8_t *buffer;
    struct stk_remote_file *remote;             /* a user of it */
    void (*done)(struct stk_range_read *parts); /* on the reactor, when all have come back */
    void *owner;
    const _Atomic bool *stop; /* as storage/object/store.h has it; NULL: none */
    struct stk_read *read;    /* the owner's */
    uint64_t bytes;           /* wanted */
    int status;               /* of the first that failed */
    uint32_t count;
    _Atomic uint32_t remaining;
    struct stk_operation parts[];
};
/* NULL: no memory. offset and bytes lie within the file, bytes > 0. */
struct stk_range_read *stk_range_read_new(struct stk_remote_file *remote, uint64_t offset,
                                          uint64_t bytes, uint8_t *buffer);
/* The same without ranges of its own, for stk_prefetch_wait: its bytes are on their way already. */
struct stk_range_read *stk_range_read_new_waiting(struct stk_remote_file *remote, uint64_t offset,
                                                  uint64_t bytes, uint8_t *buffer);
void stk_range_read_start(struct stk_range_read *parts, struct stk_store *store);
void stk_range_read_cancel(struct stk_range_read *parts); /* then stk_store_cancel_marked */
void stk_range_read_free(struct stk_range_read *parts);

/* metadata_cache.c: what was told of objects and folders lately, by their URLs. */
int stk_metadata_cache_open(struct stk_metadata_cache **known_out);
void stk_metadata_cache_close(struct stk_metadata_cache *known);
void stk_metadata_cache_add(struct stk_metadata_cache *known, const char *url,
                            const struct stk_object_info *about);
bool stk_metadata_cache_find(struct stk_metadata_cache *known, const char *url,
                             struct stk_object_info *info_out);
/* listing: all that lies in it, for who lists it next; taken, also what it holds; NULL: none. */
void stk_metadata_cache_add_folder(struct stk_metadata_cache *known, const char *url,
                                   struct stk_listing *listing);
bool stk_metadata_cache_has_folder(struct stk_metadata_cache *known, const char *url);
/* A listing that came with the last folder, once and within STK_VFS_FOLDER_TTL_MS; gives it. */
bool stk_metadata_cache_take_listing(struct stk_metadata_cache *known, const char *url,
                                     struct stk_listing *listing_out);
/* The object, and the folders above it; and the listing. */
void stk_metadata_cache_remove(struct stk_metadata_cache *known, const char *url);

/* prefetch.c: objects in memory, brought whole before they are asked for. Blocks are reserved from
 * the budget, half of it at most, and given back when they were given out, or others need them. */
int stk_prefetch_open(struct stk_prefetch **kept_out, struct stk_budget *budget);
/* Takes. store: what ranges may be on their way from; NULL: none was ever used. */
void stk_prefetch_close(struct stk_prefetch *kept, struct stk_store *store);
uint64_t stk_prefetch_key(const struct stk_object_url *place, const struct stk_object_info *about);
/* Begins to bring its first bytes, or all of it; or does not, if there is no memory for it. */
void stk_prefetch_start(struct stk_prefetch *kept, struct stk_store *store,
                        struct stk_remote_file *remote, const void *owner, bool whole);
/* Of the same version, all of which is brought: whose checksum is found out there, and holds for
 * who opens it now. A user of it; NULL: there is none. */
struct stk_remote_file *stk_prefetch_find_file(struct stk_prefetch *kept,
                                               const struct stk_remote_file *like);
/* Whether these bytes are here or on their way. */
bool stk_prefetch_has(struct stk_prefetch *kept, const struct stk_remote_file *remote,
                      uint64_t offset, uint64_t bytes);
/* `bytes`, fewer at the end; -EAGAIN: not all of them are here. offset lies within the file. peek:
 * they will be asked for again. */
int64_t stk_prefetch_read(struct stk_prefetch *kept, const struct stk_remote_file *remote,
                          uint64_t offset, uint8_t *buffer, uint64_t bytes, bool peek);
/* True: done comes on the reactor, when nothing of parts' bytes is on its way any more: they are
 * here, or its status says why not, or they are not kept any more. False: none of them is on its
 * way. */
bool stk_prefetch_wait(struct stk_prefetch *kept, struct stk_range_read *parts);
/* True: done will not come. False: it has come, or comes soon. */
bool stk_prefetch_cancel_wait(struct stk_prefetch *kept, struct stk_range_read *parts);
/* What this owner (NULL: anybody) had brought. store: as in close. */
void stk_prefetch_release(struct stk_prefetch *kept, struct stk_store *store, const void *owner);
uint64_t stk_prefetch_trim(struct stk_prefetch *kept); /* the bytes that came free */

/* vfs_queue.c */
int stk_vfs_queue_open(struct stk_io *io, struct stk_queue **queue_out, struct stoker_error *error);
void stk_vfs_queue_close(struct stk_io *io, struct stk_queue *queue);
int stk_vfs_queue_submit(struct stk_io *io, struct stk_queue *queue, struct stk_read *reads);
struct stk_read *stk_vfs_queue_reap(struct stk_io *io, struct stk_queue *queue,
                                    uint32_t timeout_ms);
void stk_vfs_queue_wake(struct stk_io *io, struct stk_queue *queue);

#endif
