/* A queue of local and remote reads. Waiting is the real queue's: what comes from a store wakes it.
 *
 *   submit: runs of local reads -> the real queue; remote ones -> the reactor
 *   reactor: done -> `arrived` -> wakes the real queue; reap takes both */
#include "storage/vfs/remote_file.h"

#include "base/mem.h"

#include <errno.h>

/* A read that ended while it was submitted; its `next` is still the submitter's. */
struct ended {
    struct stk_read *read;
    int64_t result;
};

struct vfs_queue {
    struct stk_vfs *vfs;
    struct stk_queue *real;
    struct stk_external_queue *errands; /* NULL: nobody runs any */
    /* The queue's own thread: */
    struct stk_range_read *flying; /* remote reads, by next and previous */
    uint32_t live;                 /* of them, and those in `ended`; at most depth */
    struct ended *ended;
    uint32_t ended_count;
    pthread_mutex_t lock;
    pthread_cond_t came; /* with lock: for closing */
    struct {
        struct stk_range_read *arrived, **arrived_tail; /* by arrived_next */
    } locked;
};

static void on_range_read(struct stk_range_read *parts);

static struct vfs_queue *vfs_queue(struct stk_queue *queue)
{
    return (struct vfs_queue *)(void *)queue;
}

static void wake_backend(void *owner)
{
    struct vfs_queue *queue = owner;

    stk_io_wake(queue->vfs->backend, queue->real);
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
        return stk_fail(error, -ENOMEM, "cannot open a queue of reads", "free memory", "route");
    }
    queue->vfs = stk_vfs_of(io);
    status = stk_io_queue_open(queue->vfs->backend, &queue->real, error);
    if (status < 0) {
        stk_free(queue->ended);
        stk_free(queue);
        return status;
    }
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->came, NULL);
    queue->locked.arrived_tail = &queue->locked.arrived;
    if (queue->vfs->options.external_fs &&
        stk_external_queue_open(&queue->errands, queue->vfs->options.external_fs, wake_backend,
                                queue) < 0) {
        stk_vfs_queue_close(io, (struct stk_queue *)(void *)queue);
        return stk_fail(error, -ENOMEM, "cannot open a queue of reads", "free memory", "route");
    }
    *queue_out = (struct stk_queue *)(void *)queue;
    return 0;
}

static void end(struct vfs_queue *queue, struct stk_read *read, int64_t result)
{
    queue->ended[queue->ended_count++] = (struct ended){read, result};
    queue->live++;
    stk_io_wake(queue->vfs->backend, queue->real);
}

/* Readies a remote read; NULL: it has ended already, or there is no memory. */
static struct stk_range_read *begin(struct vfs_queue *queue, struct stk_read *read,
                                    int64_t *result_out)
{
    struct stk_remote_file *remote = stk_remote_file_of(read->file);
    struct stk_prefetch *prefetch = queue->vfs->prefetch;
    uint64_t bytes = remote->info.bytes;
    struct stk_range_read *parts;

    *result_out = 0;
    if (read->offset >= bytes || read->bytes == 0) {
        return NULL;
    }
    bytes = stk_min(read->bytes, bytes - read->offset);
    *result_out = prefetch ? stk_prefetch_read(prefetch, remote, read->offset, read->buffer, bytes,
                                               read->keep_cached)
                           : -EAGAIN;
    if (*result_out >= 0) {
        return NULL;
    }
    parts = prefetch && stk_prefetch_has(prefetch, remote, read->offset, bytes)
                ? stk_range_read_new_waiting(remote, read->offset, bytes, read->buffer)
                : stk_range_read_new(remote, read->offset, bytes, read->buffer);
    if (!parts) {
        *result_out = -ENOMEM;
        return NULL;
    }
    parts->read = read;
    parts->stop = read->cancelled;
    parts->owner = queue;
    parts->done = on_range_read;
    return parts;
}

static void start_remote(struct vfs_queue *queue, struct stk_range_read *parts,
                         struct stk_store *store)
{
    queue->live++;
    parts->previous = NULL;
    parts->next = queue->flying;
    if (parts->next) {
        parts->next->previous = parts;
    }
    queue->flying = parts;
    if (parts->count > 0) {
        stk_range_read_start(parts, store);
    } else if (!stk_prefetch_wait(queue->vfs->prefetch, parts)) {
        on_range_read(parts); /* they came just now, or went: settle looks */
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
    taken = stk_io_submit(queue->vfs->backend, queue->real, first);
    last->next = rest;
    *list = rest;
    return taken < want ? -taken - 1 : taken; /* below 0: no room for all */
}

static void submit_external(struct vfs_queue *queue, struct stk_read *read)
{
    int status = queue->errands ? stk_external_queue_submit(queue->errands, read) : -EBADF;

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
        struct stk_range_read *parts;
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
        parts = begin(queue, read, &result);
        if (parts && !store && (result = stk_vfs_open_store(queue->vfs, &store, NULL)) < 0) {
            stk_range_read_free(parts);
            parts = NULL;
        }
        if (!parts) {
            end(queue, read, result);
        } else {
            start_remote(queue, parts, store);
        }
        read = next;
    }
    return taken;
}

/* On the reactor, or on the queue's thread. */
static void on_range_read(struct stk_range_read *parts)
{
    struct vfs_queue *queue = parts->owner;
    bool first;

    pthread_mutex_lock(&queue->lock);
    first = queue->locked.arrived == NULL;
    parts->arrived_next = NULL;
    *queue->locked.arrived_tail = parts;
    queue->locked.arrived_tail = &parts->arrived_next;
    if (first) { /* with the lock: until it is let go, the queue is not closed */
        pthread_cond_signal(&queue->came);
        stk_io_wake(queue->vfs->backend, queue->real);
    }
    pthread_mutex_unlock(&queue->lock);
}

static struct stk_range_read *pop_arrived_locked(struct vfs_queue *queue)
{
    struct stk_range_read *parts = queue->locked.arrived;

    queue->locked.arrived = NULL;
    queue->locked.arrived_tail = &queue->locked.arrived;
    return parts;
}

/* Of bytes that were on their way to be kept: whether they came. If they went again meanwhile, the
 * read is sent by itself, but not any more when the queue is being closed. */
static bool has_arrived(struct vfs_queue *queue, struct stk_range_read *parts, bool closing)
{
    struct stk_store *store = NULL;
    struct stk_range_read *again;
    int64_t got;

    if (parts->status < 0 || parts->count > 0) {
        return true;
    }
    got = stk_prefetch_read(queue->vfs->prefetch, parts->remote, parts->offset, parts->buffer,
                            parts->bytes, parts->read->keep_cached);
    if (got >= 0) {
        return true;
    }
    parts->status = closing ? STOKER_ERROR_CLOSED : stk_vfs_open_store(queue->vfs, &store, NULL);
    again = parts->status == 0
                ? stk_range_read_new(parts->remote, parts->offset, parts->bytes, parts->buffer)
                : NULL;
    if (!again) {
        parts->status = parts->status < 0 ? parts->status : -ENOMEM;
        return true;
    }
    again->read = parts->read;
    again->stop = parts->stop;
    again->owner = queue;
    again->done = on_range_read;
    start_remote(queue, again, store);
    return false;
}

/* Fills the read of remote parts that have come, and lets them go. NULL: it goes on. */
static struct stk_read *finish_read(struct vfs_queue *queue, struct stk_range_read *parts,
                                    bool closing)
{
    struct stk_read *read = has_arrived(queue, parts, closing) ? parts->read : NULL;

    if (read) {
        read->result = parts->status < 0 ? parts->status : (int64_t)parts->bytes;
        read->skip = 0;
        read->leaked = false;
        read->sent_ns = parts->count > 0 ? parts->parts[0].request.sent_ns : 0;
        read->first_ns = parts->count > 0 ? parts->parts[0].request.first_byte_ns : 0;
        read->done_ns = 0;
        for (uint32_t i = 0; i < parts->count; i++) {
            read->done_ns = stk_max(read->done_ns, parts->parts[i].request.done_ns);
        }
    }
    *(parts->previous ? &parts->previous->next : &queue->flying) = parts->next;
    if (parts->next) {
        parts->next->previous = parts->previous;
    }
    stk_range_read_free(parts);
    queue->live--;
    return read;
}

/* What has come from stores, before the list of local reads. */
static struct stk_read *submit_remote(struct vfs_queue *queue, struct stk_read *list)
{
    struct stk_range_read *parts, *next;

    for (; queue->ended_count > 0; queue->ended_count--) {
        struct ended *ended = &queue->ended[queue->ended_count - 1];

        ended->read->result = ended->result;
        ended->read->skip = 0;
        ended->read->leaked = false;
        ended->read->next = list;
        list = ended->read;
        queue->live--;
    }
    if (queue->errands) {
        uint32_t count;

        list = stk_external_queue_reap(queue->errands, list, &count);
        queue->live -= count;
    }
    pthread_mutex_lock(&queue->lock);
    parts = pop_arrived_locked(queue);
    pthread_mutex_unlock(&queue->lock);
    for (; parts; parts = next) {
        struct stk_read *read;

        next = parts->arrived_next;
        read = finish_read(queue, parts, false);
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
    list = queue->live > 0 ? submit_remote(queue, NULL) : NULL;
    if (queue->live > 0 && queue->errands) {
        timeout_ms = (uint32_t)stk_min(timeout_ms, stk_external_queue_timeout_ms(queue->errands));
    }
    local = stk_io_reap(queue->vfs->backend, queue->real, list ? 0 : timeout_ms);
    if (queue->live > 0) {
        list = submit_remote(queue, list);
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
    stk_io_wake(vfs_queue(opaque)->vfs->backend, vfs_queue(opaque)->real);
}

/* Every remote read comes back: the reactor copies into their buffers, so none is ever lost. */
void stk_vfs_queue_close(struct stk_io *io, struct stk_queue *opaque)
{
    struct vfs_queue *queue = vfs_queue(opaque);
    struct stk_store *store = NULL;

    (void)io;
    for (struct stk_range_read *parts = queue->flying; parts; parts = parts->next) {
        stk_range_read_cancel(parts);
        if (parts->count == 0 && stk_prefetch_cancel_wait(queue->vfs->prefetch, parts)) {
            on_range_read(parts);
        }
    }
    if (queue->flying && stk_vfs_open_store(queue->vfs, &store, NULL) == 0) {
        stk_store_cancel_marked(store);
    }
    while (queue->flying) {
        struct stk_range_read *parts, *next;

        pthread_mutex_lock(&queue->lock);
        while (!queue->locked.arrived) { /* the reactor ends what was stopped at once */
            pthread_cond_wait(&queue->came, &queue->lock);
        }
        parts = pop_arrived_locked(queue);
        pthread_mutex_unlock(&queue->lock);
        for (; parts; parts = next) {
            next = parts->arrived_next;
            (void)finish_read(queue, parts, true);
        }
    }
    for (; queue->ended_count > 0; queue->ended_count--) {
        struct ended *ended = &queue->ended[queue->ended_count - 1];

        ended->read->result = ended->result;
        ended->read->leaked = false;
    }
    stk_external_queue_close(queue->errands);
    stk_io_queue_close(queue->vfs->backend, queue->real);
    pthread_cond_destroy(&queue->came);
    pthread_mutex_destroy(&queue->lock);
    stk_free(queue->ended);
    stk_free(queue);
}
