/* route/remote.h: the parts of the room: the io, remote files, what is known, and queues.
 *
 *   struct stk_file *: a pointer of the real io, or one to a struct stk_remote with its lowest bit
 *   set: so a read of a local file costs a test of a bit
 *
 * Owner: struct stk_route. Threads: any; `locked` and known with their locks.
 * Memory: see route/route.h. Bound: as there. */
#ifndef ROUTE_REMOTE_H
#define ROUTE_REMOTE_H

#include "io/write.h"
#include "route/route.h"
#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>

struct stk_known;

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
    pthread_mutex_t lock;
    struct stoker_error error; /* of the read that failed last; with lock */
};

static inline bool stk_is_remote(const struct stk_file *file)
{
    return ((uintptr_t)file & 1) != 0;
}

static inline struct stk_remote *stk_remote(struct stk_file *file)
{
    return (struct stk_remote *)((uintptr_t)file - 1);
}

static inline struct stk_route *stk_route(struct stk_io *io)
{
    return (struct stk_route *)(void *)io;
}

/* route.c: the store, opened by its first user; lent as long as the route. */
int stk_route_store(struct stk_route *route, struct stk_store **store_out,
                    struct stoker_error *error);

/* remote.c */
int stk_remote_open(struct stk_route *route, const char *url, struct stk_file **file_out,
                    struct stoker_error *error);
void stk_remote_release(struct stk_remote *remote);
int stk_remote_stat(struct stk_route *route, const char *url, struct stk_stat *stat_out,
                    struct stoker_error *error);
void stk_remote_stat_file(const struct stk_remote *remote, struct stk_stat *stat_out);
int stk_remote_list(struct stk_route *route, const char *url, struct stk_listing *listing_out,
                    struct stoker_error *error);
int64_t stk_remote_read(struct stk_route *route, struct stk_remote *remote, uint64_t offset,
                        void *buffer, size_t bytes);
int stk_remote_map(struct stk_route *route, struct stk_remote *remote, struct stk_view *view_out,
                   struct stoker_error *error);

/* expect.c: asks for many at once, and waits. */
void stk_remote_expect(struct stk_io *io, const char *paths, size_t count);

/* ranges.c: one read of a remote file, as ranges of STK_STORE_RANGE_BYTES side by side. */
struct stk_parts {
    struct stk_parts *next, *previous, *arrived_next; /* the owner's */
    struct stk_remote *remote; /* a user of it */
    void (*done)(struct stk_parts *parts); /* on the reactor, when all have come back */
    void *owner;
    struct stk_read *read;   /* the owner's */
    uint64_t bytes;          /* wanted */
    int status;              /* of the first that failed */
    uint32_t count;
    _Atomic uint32_t left;
    struct stk_exchange parts[];
};
/* NULL: no memory. offset and bytes lie within the file, bytes > 0. */
struct stk_parts *stk_parts_new(struct stk_remote *remote, uint64_t offset, uint64_t bytes,
                                uint8_t *buffer);
void stk_parts_start(struct stk_parts *parts, struct stk_store *store);
void stk_parts_cancel(struct stk_parts *parts); /* then stk_store_stop */
void stk_parts_free(struct stk_parts *parts);

/* known.c: what was told of objects lately, by their URLs. */
int stk_known_open(struct stk_known **known_out);
void stk_known_close(struct stk_known *known);
void stk_known_add(struct stk_known *known, const char *url, const struct stk_about *about);
bool stk_known_find(struct stk_known *known, const char *url, struct stk_about *about_out);
void stk_known_forget(struct stk_known *known, const char *url);

/* queue.c */
int stk_route_queue_open(struct stk_io *io, struct stk_queue **queue_out,
                         struct stoker_error *error);
void stk_route_queue_close(struct stk_io *io, struct stk_queue *queue);
int stk_route_submit(struct stk_io *io, struct stk_queue *queue, struct stk_read *reads);
struct stk_read *stk_route_reap(struct stk_io *io, struct stk_queue *queue, uint32_t timeout_ms);
void stk_route_wake(struct stk_io *io, struct stk_queue *queue);

#endif
