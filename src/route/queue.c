/* A queue of local and remote reads. Waiting is the real queue's: what comes from a store wakes it.
 *
 *   submit: runs of local reads -> the real queue; remote ones -> the reactor
 *   reactor: done -> `arrived` -> wakes the real queue; reap takes both */
#include "route/remote.h"

#include "base/mem.h"
#include "io/pool.h"

#include <errno.h>

/* A read that ended while it was submitted; its `next` is still the submitter's. */
struct ended {
    struct stk_read *read;
    int64_t result;
};

struct route_queue {
    struct stk_route *route;
    struct stk_queue *real;
    /* The queue's own thread: */
    struct stk_parts *flying; /* remote reads, by next and previous */
    uint32_t live;            /* of them, and those in `ended`; at most depth */
    struct ended *ended;
    uint32_t ended_count;
    pthread_mutex_t lock;
    pthread_cond_t came; /* with lock: for closing */
    struct {
        struct stk_parts *arrived, **arrived_tail; /* by arrived_next */
    } locked;
};

static void on_parts(struct stk_parts *parts);

static struct route_queue *route_queue(struct stk_queue *queue)
{
    return (struct route_queue *)(void *)queue;
}

int stk_route_queue_open(struct stk_io *io, struct stk_queue **queue_out,
                         struct stoker_error *error)
{
    struct route_queue *queue = stk_alloc(1, sizeof *queue);
    int status;

    if (queue) {
        queue->ended = stk_alloc(stk_route(io)->options.depth, sizeof *queue->ended);
    }
    if (!queue || !queue->ended) {
        stk_free(queue);
        return stk_fail(error, -ENOMEM, "cannot open a queue of reads", "free memory", "route");
    }
    queue->route = stk_route(io);
    status = stk_io_queue_open(queue->route->real, &queue->real, error);
    if (status < 0) {
        stk_free(queue->ended);
        stk_free(queue);
        return status;
    }
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->came, NULL);
    queue->locked.arrived_tail = &queue->locked.arrived;
    *queue_out = (struct stk_queue *)(void *)queue;
    return 0;
}

static void end(struct route_queue *queue, struct stk_read *read, int64_t result)
{
    queue->ended[queue->ended_count++] = (struct ended){read, result};
    queue->live++;
    stk_io_wake(queue->route->real, queue->real);
}

/* Readies a remote read; NULL: it has nothing to bring, or there is no memory. */
static struct stk_parts *begin(struct route_queue *queue, struct stk_read *read,
                               int64_t *result_out)
{
    struct stk_remote *remote = stk_remote(read->file);
    uint64_t bytes = remote->about.bytes;
    struct stk_parts *parts;

    *result_out = 0;
    if (read->offset >= bytes || read->bytes == 0) {
        return NULL;
    }
    parts = stk_parts_new(remote, read->offset, stk_min(read->bytes, bytes - read->offset),
                          read->buffer);
    if (!parts) {
        *result_out = -ENOMEM;
        return NULL;
    }
    parts->read = read;
    parts->owner = queue;
    parts->done = on_parts;
    return parts;
}

/* The local reads from *list on, up to the next remote one. */
static int submit_run(struct route_queue *queue, struct stk_read **list)
{
    struct stk_read *first = *list, *last = first, *rest;
    int want = 1, taken;

    while (last->next && !stk_is_remote(last->next->file)) {
        last = last->next;
        want++;
    }
    rest = last->next;
    last->next = NULL;
    taken = stk_io_submit(queue->route->real, queue->real, first);
    last->next = rest;
    *list = rest;
    return taken < want ? -taken - 1 : taken; /* below 0: no room for all */
}

int stk_route_submit(struct stk_io *io, struct stk_queue *opaque, struct stk_read *reads)
{
    struct route_queue *queue = route_queue(opaque);
    struct stk_store *store = NULL;
    struct stk_read *read = reads, *next;
    int taken = 0;

    (void)io;
    while (read) {
        struct stk_parts *parts;
        int64_t result;

        if (!stk_is_remote(read->file)) {
            int run = submit_run(queue, &read);

            taken += run < 0 ? -run - 1 : run;
            if (run < 0) {
                break;
            }
            continue;
        }
        if (queue->live >= queue->route->options.depth) {
            break;
        }
        next = read->next;
        taken++;
        parts = begin(queue, read, &result);
        if (parts && !store && (result = stk_route_store(queue->route, &store, NULL)) < 0) {
            stk_parts_free(parts);
            parts = NULL;
        }
        if (!parts) {
            end(queue, read, result);
        } else {
            queue->live++;
            parts->next = queue->flying;
            if (parts->next) {
                parts->next->previous = parts;
            }
            queue->flying = parts;
            stk_parts_start(parts, store);
        }
        read = next;
    }
    return taken;
}

/* On the reactor. */
static void on_parts(struct stk_parts *parts)
{
    struct route_queue *queue = parts->owner;
    bool first;

    pthread_mutex_lock(&queue->lock);
    first = queue->locked.arrived == NULL;
    parts->arrived_next = NULL;
    *queue->locked.arrived_tail = parts;
    queue->locked.arrived_tail = &parts->arrived_next;
    if (first) { /* with the lock: until it is let go, the queue is not closed */
        pthread_cond_signal(&queue->came);
        stk_io_wake(queue->route->real, queue->real);
    }
    pthread_mutex_unlock(&queue->lock);
}

static struct stk_parts *take_arrived_locked(struct route_queue *queue)
{
    struct stk_parts *parts = queue->locked.arrived;

    queue->locked.arrived = NULL;
    queue->locked.arrived_tail = &queue->locked.arrived;
    return parts;
}

/* Fills the read of remote parts that have come, and lets them go. */
static struct stk_read *settle(struct route_queue *queue, struct stk_parts *parts)
{
    struct stk_read *read = parts->read;

    read->result = parts->status < 0 ? parts->status : (int64_t)parts->bytes;
    read->skip = 0;
    read->lost = false;
    *(parts->previous ? &parts->previous->next : &queue->flying) = parts->next;
    if (parts->next) {
        parts->next->previous = parts->previous;
    }
    stk_parts_free(parts);
    queue->live--;
    return read;
}

/* What has come from stores, before the list of local reads. */
static struct stk_read *take_remote(struct route_queue *queue, struct stk_read *list)
{
    struct stk_parts *parts, *next;

    for (; queue->ended_count > 0; queue->ended_count--) {
        struct ended *ended = &queue->ended[queue->ended_count - 1];

        ended->read->result = ended->result;
        ended->read->skip = 0;
        ended->read->lost = false;
        ended->read->next = list;
        list = ended->read;
        queue->live--;
    }
    pthread_mutex_lock(&queue->lock);
    parts = take_arrived_locked(queue);
    pthread_mutex_unlock(&queue->lock);
    for (; parts; parts = next) {
        struct stk_read *read;

        next = parts->arrived_next;
        read = settle(queue, parts);
        read->next = list;
        list = read;
    }
    return list;
}

struct stk_read *stk_route_reap(struct stk_io *io, struct stk_queue *opaque, uint32_t timeout_ms)
{
    struct route_queue *queue = route_queue(opaque);
    struct stk_read *list = NULL, *local, *last;

    (void)io;
    list = queue->live > 0 ? take_remote(queue, NULL) : NULL;
    local = stk_io_reap(queue->route->real, queue->real, list ? 0 : timeout_ms);
    if (queue->live > 0) {
        list = take_remote(queue, list);
    }
    if (!local) {
        return list;
    }
    for (last = local; last->next; last = last->next) {
    }
    last->next = list;
    return local;
}

void stk_route_wake(struct stk_io *io, struct stk_queue *opaque)
{
    (void)io;
    stk_io_wake(route_queue(opaque)->route->real, route_queue(opaque)->real);
}

/* Every remote read comes back: the reactor copies into their buffers, so none is ever lost. */
void stk_route_queue_close(struct stk_io *io, struct stk_queue *opaque)
{
    struct route_queue *queue = route_queue(opaque);
    struct stk_store *store = NULL;

    (void)io;
    for (struct stk_parts *parts = queue->flying; parts; parts = parts->next) {
        stk_parts_cancel(parts);
    }
    if (queue->flying && stk_route_store(queue->route, &store, NULL) == 0) {
        stk_store_stop(store);
    }
    while (queue->flying) {
        struct stk_parts *parts, *next;

        pthread_mutex_lock(&queue->lock);
        while (!queue->locked.arrived) { /* the reactor ends what was stopped at once */
            pthread_cond_wait(&queue->came, &queue->lock);
        }
        parts = take_arrived_locked(queue);
        pthread_mutex_unlock(&queue->lock);
        for (; parts; parts = next) {
            next = parts->arrived_next;
            (void)settle(queue, parts);
        }
    }
    for (; queue->ended_count > 0; queue->ended_count--) {
        struct ended *ended = &queue->ended[queue->ended_count - 1];

        ended->read->result = ended->result;
        ended->read->lost = false;
    }
    stk_io_queue_close(queue->route->real, queue->real);
    pthread_cond_destroy(&queue->came);
    pthread_mutex_destroy(&queue->lock);
    stk_free(queue->ended);
    stk_free(queue);
}
