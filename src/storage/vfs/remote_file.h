/* storage/vfs/remote_file.h: the parts of the room: the io, remote files, what is known, and
 * queues.
 *
 *   struct stk_file *: a pointer of the real io, or one to a struct stk_remote with its lowest bit
 *   set: so a read of a local file costs a test of a bit
 *
 * Owner: struct stk_route. Threads: any; `locked` and known with their locks.
 * Memory: see storage/vfs/vfs.h. Bound: as there. */
#ifndef STORAGE_VFS_REMOTE_FILE_H
#define STORAGE_VFS_REMOTE_FILE_H

#include "io/write.h"
#include "storage/external/external_fs.h"
#include "storage/object/store.h"
#include "storage/vfs/vfs.h"

#include <pthread.h>
#include <stdatomic.h>

struct stk_known;
struct stk_brought;

/* Memory that stands for a map of a remote file. */
struct stk_remote_map {
    struct stk_remote_map *next;
    uint8_t *pages;
    size_t bytes;
};

struct stk_route {
    struct stk_io io; /* first: it is what callers hold */
    struct stk_io *real;
    struct stk_route_options options;
    struct stk_known *known;
    struct stk_brought *brought; /* NULL: nothing is kept */
    uint64_t names_max;          /* of one listing that is kept in memory */
    pthread_mutex_t lock;
    struct {
        struct stk_store *store; /* set once */
        struct stk_remote_map *maps;
    } locked;
};

struct stk_remote {
    _Atomic uint32_t users; /* its opener, and reads in flight */
    struct stk_place *place;
    struct stk_about about;
    uint64_t key;            /* of this version of it: a hash */
    struct stk_cover *cover; /* what has come of it; NULL: none. Owned */
    pthread_mutex_t lock;
    pthread_cond_t told;
    bool asking;               /* for its checksum; with lock */
    struct stk_seal whole;     /* its checksum, if it is one that cannot be joined; with lock */
    struct stoker_error error; /* of the read that failed last; with lock */
};

static inline bool stk_is_remote(const struct stk_file *file)
{
    return ((uintptr_t)file & 1) != 0;
}

static inline bool stk_is_local(const struct stk_file *file)
{
    return !stk_is_remote(file) && !stk_is_guest(file);
}

static inline struct stk_remote *stk_remote(struct stk_file *file)
{
    return (struct stk_remote *)((uintptr_t)file - 1);
}

static inline struct stk_route *stk_route(struct stk_io *io)
{
    return (struct stk_route *)(void *)io;
}

/* vfs.c: the store, opened by its first user; lent as long as the route. */
int stk_route_store(struct stk_route *route, struct stk_store **store_out,
                    struct stoker_error *error);

/* remote_file.c */
int stk_remote_open(struct stk_route *route, const char *url, struct stk_file **file_out,
                    struct stoker_error *error);
void stk_remote_release(struct stk_remote *remote);
/* Why a read of it failed, for who asks. */
void stk_remote_note(struct stk_remote *remote, const struct stoker_error *error);
/* about_out: archived objects are told, too; NULL: they are an error. */
int stk_remote_stat(struct stk_route *route, const char *url, struct stk_stat *stat_out,
                    struct stk_about *about_out, struct stoker_error *error);
void stk_remote_stat_file(const struct stk_remote *remote, struct stk_stat *stat_out);
int stk_remote_list(struct stk_route *route, const char *url, struct stk_listing *listing_out,
                    struct stoker_error *error);
int64_t stk_remote_read(struct stk_route *route, struct stk_remote *remote, uint64_t offset,
                        void *buffer, size_t bytes);
int stk_remote_map(struct stk_route *route, struct stk_remote *remote, struct stk_view *view_out,
                   struct stoker_error *error);

/* remote_checksum.c: asks, without waiting, for a checksum that is told of itself to nobody (sure:
 * also where there is hardly one); and waits. */
void stk_remote_seal(struct stk_route *route, struct stk_remote *remote, bool sure);
void stk_remote_told(struct stk_remote *remote, const struct stk_seals *seals);
void stk_remote_settle(struct stk_remote *remote);

/* batch_lookup.c: asks for many at once, and waits. */
void stk_remote_expect(struct stk_io *io, const char *paths, size_t count);
void stk_remote_list_many(struct stk_io *io, const char *paths, size_t count,
                          struct stk_listing *listings_out);

/* range_read.c: one read of a remote file, as ranges of STK_STORE_RANGE_BYTES side by side. */
struct stk_parts {
    struct stk_parts *next, *previous, *arrived_next; /* the owner's */
    uint64_t offset;
    uint8_t *buffer;
    struct stk_remote *remote;             /* a user of it */
    void (*done)(struct stk_parts *parts); /* on the reactor, when all have come back */
    void *owner;
    const _Atomic bool *stop; /* as storage/object/store.h has it; NULL: none */
    struct stk_read *read;    /* the owner's */
    uint64_t bytes;           /* wanted */
    int status;               /* of the first that failed */
    uint32_t count;
    _Atomic uint32_t left;
    struct stk_exchange parts[];
};
/* NULL: no memory. offset and bytes lie within the file, bytes > 0. */
struct stk_parts *stk_parts_new(struct stk_remote *remote, uint64_t offset, uint64_t bytes,
                                uint8_t *buffer);
/* The same without ranges of its own, for stk_brought_wait: its bytes are on their way already. */
struct stk_parts *stk_parts_new_waiting(struct stk_remote *remote, uint64_t offset, uint64_t bytes,
                                        uint8_t *buffer);
void stk_parts_start(struct stk_parts *parts, struct stk_store *store);
void stk_parts_cancel(struct stk_parts *parts); /* then stk_store_stop */
void stk_parts_free(struct stk_parts *parts);

/* metadata_cache.c: what was told of objects and folders lately, by their URLs. */
int stk_known_open(struct stk_known **known_out);
void stk_known_close(struct stk_known *known);
void stk_known_add(struct stk_known *known, const char *url, const struct stk_about *about);
bool stk_known_find(struct stk_known *known, const char *url, struct stk_about *about_out);
/* listing: all that lies in it, for who lists it next; taken, also what it holds; NULL: none. */
void stk_known_add_folder(struct stk_known *known, const char *url, struct stk_listing *listing);
bool stk_known_is_folder(struct stk_known *known, const char *url);
/* A listing that came with the last folder, once and within STK_ROUTE_FOLDER_MS; gives it. */
bool stk_known_take(struct stk_known *known, const char *url, struct stk_listing *listing_out);
/* The object, and the folders above it; and the listing. */
void stk_known_forget(struct stk_known *known, const char *url);

/* prefetch.c: objects in memory, brought whole before they are asked for. Blocks are reserved from
 * the budget, half of it at most, and given back when they were given out, or others need them. */
int stk_brought_open(struct stk_brought **kept_out, struct stk_budget *budget);
/* Takes. store: what ranges may be on their way from; NULL: none was ever used. */
void stk_brought_close(struct stk_brought *kept, struct stk_store *store);
uint64_t stk_brought_key(const struct stk_place *place, const struct stk_about *about);
/* Begins to bring its first bytes, or all of it; or does not, if there is no memory for it. */
void stk_brought_bring(struct stk_brought *kept, struct stk_store *store, struct stk_remote *remote,
                       const void *owner, bool whole);
/* Of the same version, all of which is brought: whose checksum is found out there, and holds for
 * who opens it now. A user of it; NULL: there is none. */
struct stk_remote *stk_brought_remote(struct stk_brought *kept, const struct stk_remote *like);
/* Whether these bytes are here or on their way. */
bool stk_brought_has(struct stk_brought *kept, const struct stk_remote *remote, uint64_t offset,
                     uint64_t bytes);
/* `bytes`, fewer at the end; -EAGAIN: not all of them are here. offset lies within the file. peek:
 * they will be asked for again. */
int64_t stk_brought_read(struct stk_brought *kept, const struct stk_remote *remote, uint64_t offset,
                         uint8_t *buffer, uint64_t bytes, bool peek);
/* True: done comes on the reactor, when nothing of parts' bytes is on its way any more: they are
 * here, or its status says why not, or they are not kept any more. False: none of them is on its
 * way. */
bool stk_brought_wait(struct stk_brought *kept, struct stk_parts *parts);
/* True: done will not come. False: it has come, or comes soon. */
bool stk_brought_forget(struct stk_brought *kept, struct stk_parts *parts);
/* What this owner (NULL: anybody) had brought. store: as in close. */
void stk_brought_drop(struct stk_brought *kept, struct stk_store *store, const void *owner);
uint64_t stk_brought_trim(struct stk_brought *kept); /* the bytes that came free */

/* vfs_queue.c */
int stk_route_queue_open(struct stk_io *io, struct stk_queue **queue_out,
                         struct stoker_error *error);
void stk_route_queue_close(struct stk_io *io, struct stk_queue *queue);
int stk_route_submit(struct stk_io *io, struct stk_queue *queue, struct stk_read *reads);
struct stk_read *stk_route_reap(struct stk_io *io, struct stk_queue *queue, uint32_t timeout_ms);
void stk_route_wake(struct stk_io *io, struct stk_queue *queue);

#endif
