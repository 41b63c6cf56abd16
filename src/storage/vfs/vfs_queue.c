/* A queue of local and remote reads. It waits in the queue of the backend, which remote reads wake.
 *
 *   submit: runs of local reads -> the queue of the backend; remote ones -> the reactor
 *   reactor: done -> `arrived` -> wakes the queue of the backend; reap takes both */
#include "storage/vfs/vfs_private.h"

#include "base/mem.h"

#include <errno.h>

/* A read that ended during submit, when its `next` still belongs to the submitter's list. */
struct ended {
    struct stk_read *read;
    int64_t result;
};

struct vfs_queue {
    struct stk_vfs *vfs;
    struct stk_queue *backend;
    struct stk_external_queue *external; /* NULL: there is no external file system */
    /* The queue's own thread: */
    struct stk_range_read *in_flight; /* remote reads, by next and previous */
    uint32_t live;                    /* remote and external reads, and those in `ended`; at most
                                         depth */
    struct ended *ended;
    uint32_t ended_count;
    pthread_mutex_t lock;
    pthread_cond_t arrived; /* with lock: for close */
    struct {
        struct stk_range_read *arrived, **arrived_tail; /* by arrived_next */
    } locked;
};

static void on_range_read(struct stk_range_read *remote);

static struct vfs_queue *vfs_queue(struct stk_queue *queue)
{
    return (struct vfs_queue *)(void *)queue;
}

static void wake_backend(void *owner)
{
    struct vfs_queue *queue = owner;

    stk_io_wake(queue->vfs->backend, queue->backend);
}

int stk_vfs_queue_open(struct stk_io *io, struct stk_queue **queue_out, struct stoker_error *error)
{
    struct vfs_queue *queue = stk_alloc(1, sizeof *queue);
    int status;

    if (queue) {
        queue->ended = stk_alloc(stk_vfs_of(io)->options.depth, sizeof *queue->ended);
    }
    if (!queue || !queue->ended) {
        stk_free(queue);
        return stk_fail(error, -ENOMEM, "cannot open a queue of reads", "free memory", "vfs");
    }
    queue->vfs = stk_vfs_of(io);
    status = stk_io_queue_open(queue->vfs->backend, &queue->backend, error);
    if (status < 0) {
        stk_free(queue->ended);
        stk_free(queue);
        return status;
    }
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->arrived, NULL);
    queue->locked.arrived_tail = &queue->locked.arrived;
    if (queue->vfs->options.external_fs &&
        stk_external_queue_open(&queue->external, queue->vfs->options.external_fs, wake_backend,
                                queue) < 0) {
        stk_vfs_queue_close(io, (struct stk_queue *)(void *)queue);
        return stk_fail(error, -ENOMEM, "cannot open a queue of reads", "free memory", "vfs");
    }
    *queue_out = (struct stk_queue *)(void *)queue;
    return 0;
}

static void end(struct vfs_queue *queue, struct stk_read *read, int64_t result)
{
    queue->ended[queue->ended_count++] = (struct ended){read, result};
    queue->live++;
    stk_io_wake(queue->vfs->backend, queue->backend);
}

/* Prepares a remote read. Returns NULL if it ended already, or if there is no memory. */
static struct stk_range_read *begin(struct vfs_queue *queue, struct stk_read *read,
                                    int64_t *result_out)
{
    struct stk_range_source *source = &stk_remote_file_of(read->file)->source;
    struct stk_prefetch *prefetch = queue->vfs->remote.prefetch;
    uint64_t bytes = source->info.bytes;
    struct stk_range_read *remote;

    *result_out = 0;
    if (read->offset >= bytes || read->bytes == 0) {
        return NULL;
    }
    bytes = stk_min(read->bytes, bytes - read->offset);
    if (stk_remote_file_of(read->file)->spool) {
        *result_out = stk_spool_read(stk_remote_file_of(read->file)->spool, read->offset,
                                     read->buffer, bytes);
        return NULL;
    }
    *result_out = prefetch ? stk_prefetch_read(prefetch, source, read->offset, read->buffer, bytes,
                                               read->keep_cached)
                           : -EAGAIN;
    if (*result_out >= 0) {
        return NULL;
    }
    remote = prefetch && stk_prefetch_has(prefetch, source, read->offset, bytes)
                 ? stk_range_read_new_waiting(source, read->offset, bytes, read->buffer)
                 : stk_range_read_new(source, read->offset, bytes, read->buffer);
    if (!remote) {
        *result_out = -ENOMEM;
        return NULL;
    }
    remote->read = read;
    remote->stop = read->cancelled;
    remote->owner = queue;
    remote->done = on_range_read;
    return remote;
}

static void start_remote(struct vfs_queue *queue, struct stk_range_read *remote,
                         struct stk_store *store)
{
    queue->live++;
    remote->previous = NULL;
    remote->next = queue->in_flight;
    if (remote->next) {
        remote->next->previous = remote;
    }
    queue->in_flight = remote;
    if (remote->count > 0) {
        stk_range_read_start(remote, store);
    } else if (!stk_prefetch_wait(queue->vfs->remote.prefetch, remote)) {
        on_range_read(remote); /* they arrived or were dropped just now: has_arrived checks */
    }
}

/* The local reads from *list on, up to the next remote one. */
static int submit_run(struct vfs_queue *queue, struct stk_read **list)
{
    struct stk_read *first = *list, *last = first, *rest;
    int want = 1, taken;

    while (last->next && stk_file_is_local(last->next->file)) {
        last = last->next;
        want++;
    }
    rest = last->next;
    last->next = NULL;
    taken = stk_io_submit(queue->vfs->backend, queue->backend, first);
    last->next = rest;
    *list = rest;
    return taken < want ? -taken - 1 : taken; /* below 0: no room for all */
}

static void submit_external(struct vfs_queue *queue, struct stk_read *read)
{
    int status = queue->external ? stk_external_queue_submit(queue->external, read) : -EBADF;

    if (status < 0) {
        end(queue, read, status);
    } else {
        queue->live++;
    }
}

int stk_vfs_queue_submit(struct stk_io *io, struct stk_queue *opaque, struct stk_read *reads)
{
    struct vfs_queue *queue = vfs_queue(opaque);
    struct stk_store *store = NULL;
    struct stk_read *read = reads, *next;
    int taken = 0;

    (void)io;
    while (read) {
        struct stk_range_read *remote;
        int64_t result;

        if (stk_file_is_local(read->file)) {
            int run = submit_run(queue, &read);

            taken += run < 0 ? -run - 1 : run;
            if (run < 0) {
                break;
            }
            continue;
        }
        if (queue->live >= queue->vfs->options.depth) {
            break;
        }
        next = read->next;
        taken++;
        if (stk_file_is_external(read->file)) {
            submit_external(queue, read);
            read = next;
            continue;
        }
        remote = begin(queue, read, &result);
        if (remote && !store &&
            (result = stk_lazy_store_open(&queue->vfs->remote.store, &store, NULL)) < 0) {
            stk_range_read_free(remote);
            remote = NULL;
        }
        if (!remote) {
            end(queue, read, result);
        } else {
            start_remote(queue, remote, store);
        }
        read = next;
    }
    return taken;
}

/* On the reactor, on a thread of the block reader, or on the queue's thread. */
static void on_range_read(struct stk_range_read *remote)
{
    struct vfs_queue *queue = remote->owner;
    bool first;

    pthread_mutex_lock(&queue->lock);
    first = queue->locked.arrived == NULL;
    remote->arrived_next = NULL;
    *queue->locked.arrived_tail = remote;
    queue->locked.arrived_tail = &remote->arrived_next;
    if (first) { /* under the lock: close waits for it */
        pthread_cond_signal(&queue->arrived);
        stk_io_wake(queue->vfs->backend, queue->backend);
    }
    pthread_mutex_unlock(&queue->lock);
}

static struct stk_range_read *pop_arrived_locked(struct vfs_queue *queue)
{
    struct stk_range_read *remote = queue->locked.arrived;

    queue->locked.arrived = NULL;
    queue->locked.arrived_tail = &queue->locked.arrived;
    return remote;
}

/* For a read that waited for a prefetch: returns true if its bytes arrived, or if it failed. If the
 * bytes were dropped meanwhile, starts requests for them and returns false, unless the queue is
 * being closed. */
static bool has_arrived(struct vfs_queue *queue, struct stk_range_read *remote, bool closing)
{
    struct stk_store *store = NULL;
    struct stk_range_read *again;
    int64_t got;

    if (remote->status < 0 || remote->count > 0) {
        return true;
    }
    got = stk_prefetch_read(queue->vfs->remote.prefetch, remote->source, remote->offset,
                            remote->buffer, remote->bytes, remote->read->keep_cached);
    if (got >= 0) {
        return true;
    }
    remote->status = closing ? STOKER_ERROR_CLOSED
                             : stk_lazy_store_open(&queue->vfs->remote.store, &store, NULL);
    again = remote->status == 0
                ? stk_range_read_new(remote->source, remote->offset, remote->bytes, remote->buffer)
                : NULL;
    if (!again) {
        remote->status = remote->status < 0 ? remote->status : -ENOMEM;
        return true;
    }
    again->read = remote->read;
    again->stop = remote->stop;
    again->owner = queue;
    again->done = on_range_read;
    start_remote(queue, again, store);
    return false;
}

/* Sets the result of a read whose requests have ended, and frees them. Returns NULL if the read
 * continues with new requests. */
static struct stk_read *finish_read(struct vfs_queue *queue, struct stk_range_read *remote,
                                    bool closing)
{
    struct stk_read *read = has_arrived(queue, remote, closing) ? remote->read : NULL;

    if (read) {
        read->result = remote->status < 0 ? remote->status : (int64_t)remote->bytes;
        read->skip = 0;
        read->leaked = false;
        read->sent_ns = remote->count > 0 ? remote->parts[0].operation.request.sent_ns : 0;
        read->first_ns = remote->count > 0 ? remote->parts[0].operation.request.first_byte_ns : 0;
        read->done_ns = 0;
        for (uint32_t i = 0; i < remote->count; i++) {
            read->done_ns = stk_max(read->done_ns, remote->parts[i].operation.request.done_ns);
        }
    }
    *(remote->previous ? &remote->previous->next : &queue->in_flight) = remote->next;
    if (remote->next) {
        remote->next->previous = remote->previous;
    }
    stk_range_read_free(remote);
    queue->live--;
    return read;
}

/* Adds the remote reads that have ended to the front of the list. */
static struct stk_read *take_remote(struct vfs_queue *queue, struct stk_read *list)
{
    struct stk_range_read *remote, *next;

    for (; queue->ended_count > 0; queue->ended_count--) {
        struct ended *ended = &queue->ended[queue->ended_count - 1];

        ended->read->result = ended->result;
        ended->read->skip = 0;
        ended->read->leaked = false;
        ended->read->next = list;
        list = ended->read;
        queue->live--;
    }
    if (queue->external) {
        uint32_t count;

        list = stk_external_queue_reap(queue->external, list, &count);
        queue->live -= count;
    }
    pthread_mutex_lock(&queue->lock);
    remote = pop_arrived_locked(queue);
    pthread_mutex_unlock(&queue->lock);
    for (; remote; remote = next) {
        struct stk_read *read;

        next = remote->arrived_next;
        read = finish_read(queue, remote, false);
        if (read) {
            read->next = list;
            list = read;
        }
    }
    return list;
}

struct stk_read *stk_vfs_queue_reap(struct stk_io *io, struct stk_queue *opaque,
                                    uint32_t timeout_ms)
{
    struct vfs_queue *queue = vfs_queue(opaque);
    struct stk_read *list = NULL, *local, *last;

    (void)io;
    list = queue->live > 0 ? take_remote(queue, NULL) : NULL;
    if (queue->live > 0 && queue->external) {
        timeout_ms = (uint32_t)stk_min(timeout_ms, stk_external_queue_timeout_ms(queue->external));
    }
    local = stk_io_reap(queue->vfs->backend, queue->backend, list ? 0 : timeout_ms);
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

void stk_vfs_queue_wake(struct stk_io *io, struct stk_queue *opaque)
{
    (void)io;
    stk_io_wake(vfs_queue(opaque)->vfs->backend, vfs_queue(opaque)->backend);
}

/* All remote reads end: the reactor copies into their buffers, so no buffer is ever leaked. */
void stk_vfs_queue_close(struct stk_io *io, struct stk_queue *opaque)
{
    struct vfs_queue *queue = vfs_queue(opaque);
    struct stk_store *store = NULL;

    (void)io;
    for (struct stk_range_read *remote = queue->in_flight; remote; remote = remote->next) {
        stk_range_read_cancel(remote);
        if (remote->count == 0 && stk_prefetch_cancel_wait(queue->vfs->remote.prefetch, remote)) {
            on_range_read(remote);
        }
    }
    if (queue->in_flight && stk_lazy_store_open(&queue->vfs->remote.store, &store, NULL) == 0) {
        stk_store_cancel_marked(store);
    }
    stk_block_reader_cancel_marked(queue->vfs->remote.reader);
    while (queue->in_flight) {
        struct stk_range_read *remote, *next;

        pthread_mutex_lock(&queue->lock);
        while (!queue->locked.arrived) { /* the reactor ends cancelled requests at once */
            pthread_cond_wait(&queue->arrived, &queue->lock);
        }
        remote = pop_arrived_locked(queue);
        pthread_mutex_unlock(&queue->lock);
        for (; remote; remote = next) {
            next = remote->arrived_next;
            (void)finish_read(queue, remote, true);
        }
    }
    for (; queue->ended_count > 0; queue->ended_count--) {
        struct ended *ended = &queue->ended[queue->ended_count - 1];

        ended->read->result = ended->result;
        ended->read->leaked = false;
    }
    stk_external_queue_close(queue->external);
    stk_io_queue_close(queue->vfs->backend, queue->backend);
    pthread_cond_destroy(&queue->arrived);
    pthread_mutex_destroy(&queue->lock);
    stk_free(queue->ended);
    stk_free(queue);
}
