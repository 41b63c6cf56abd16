/* The backend for queues with a pool of threads and pread, if io_uring is forbidden.
 *
 *   slot: free -submit-> in flight (a task of the pool) -inbox-> finished
 *                           `-deadline-> free if it never ran, else leaked
 *
 * The slots are in the memory of the pool, since a thread that hangs outlives its queue. */
#include "io/clock.h"
#include "io/posix/posix.h"

#include "base/mem.h"

#include <errno.h>
#include <unistd.h>

/* Enough to keep a fast disk busy. Threads are started only while reads wait. */
#define THREADS_MAX 32u
/* Slots for leaked reads, in multiples of depth; further reads fail. */
#define LEAKED_FACTOR 1u

struct slot {
    struct stk_task task; /* first */
    struct stk_read_part span;
    struct stk_read *read;
    struct stk_posix_file *file; /* retained, also if the read is leaked */
    uint64_t deadline_ns;
    struct slot *next, *previous; /* in flight, by deadline; or in `free` by next */
    struct slot_home *home;
};

/* Memory of the pool, which abandoned slots still use. */
struct slot_home {
    struct stk_thread_pool *pool;
    struct slot *free; /* under the pool's lock */
    struct slot slots[];
};

struct threads_queue {
    struct stk_posix *posix;
    struct stk_thread_pool *pool;
    struct slot_home *home;    /* owned by the pool */
    uint32_t depth, live;      /* live: reads that reap has not returned yet */
    struct slot *first, *last; /* in flight */
    struct stk_inbox inbox;
    struct stk_read_list finished;
};

static struct threads_queue *threads_queue(struct stk_queue *queue);
static void in_flight_add(struct threads_queue *queue, struct slot *slot);
static void in_flight_remove(struct threads_queue *queue, struct slot *slot);
static void slot_free_locked(struct slot *slot);
static void take_finished_locked(struct threads_queue *queue, uint64_t until_ns);
static void expire_locked(struct threads_queue *queue, uint64_t now_ns, int status);
static void slot_run(struct stk_task *task);
static void slot_drop(struct stk_task *task);

int stk_thread_queue_open(struct stk_io *io, struct stk_queue **queue_out,
                          struct stoker_error *error)
{
    uint32_t depth = stk_posix(io)->options.depth, slot_count = depth * (1 + LEAKED_FACTOR);
    struct threads_queue *queue = stk_alloc(1, sizeof *queue);
    struct slot_home *home = stk_alloc(1, sizeof *home + slot_count * sizeof home->slots[0]);
    int status = -ENOMEM;

    if (!queue || !home) {
        stk_free(home);
        stk_fail_errno(error, ENOMEM, "cannot open a queue of reads",
                       "give the process more memory", "threads");
        goto done;
    }
    queue->posix = stk_posix(io);
    queue->depth = depth;
    queue->home = home;
    status = stk_thread_pool_open(&queue->pool, (uint32_t)stk_min(depth, THREADS_MAX), home, error);
    if (status < 0) {
        goto done;
    }
    home->pool = queue->pool;
    for (uint32_t i = slot_count; i-- > 0;) {
        home->slots[i].home = home;
        slot_free_locked(&home->slots[i]);
    }
    stk_inbox_init(&queue->inbox);
    *queue_out = (struct stk_queue *)(void *)queue;
    return 0;
done:
    stk_free(queue);
    return status;
}

/* Waits as long as reads finish, and leaks the rest. Each read is its submitter's again. */
void stk_thread_queue_close(struct stk_io *io, struct stk_queue *opaque)
{
    struct threads_queue *queue = threads_queue(opaque);
    uint64_t start_ns = stk_clock_ns(), now_ns = start_ns, finished_ns = start_ns;
    struct slot *slot, *next;

    (void)io;
    pthread_mutex_lock(&queue->pool->lock);
    for (slot = queue->first; slot; slot = next) {
        next = slot->next;
        /* Pending reads are not started any more. */
        if (slot->task.state == STK_TASK_PENDING) {
            stk_thread_pool_abandon_locked(queue->pool, &slot->task);
            stk_posix_abandon(queue->posix, slot->read, STOKER_ERROR_CLOSED, false);
            in_flight_remove(queue, slot);
            stk_posix_file_release(slot->file);
        }
    }
    while (queue->first && now_ns < finished_ns + STK_CLOSE_QUIET_MS * 1000000ull &&
           now_ns < start_ns + STK_CLOSE_WAIT_MS_MAX * 1000000ull) {
        struct stk_read *before = queue->finished.last;

        take_finished_locked(queue, finished_ns + STK_CLOSE_QUIET_MS * 1000000ull);
        now_ns = stk_clock_ns();
        finished_ns = queue->finished.last != before ? now_ns : finished_ns;
    }
    expire_locked(queue, UINT64_MAX, STOKER_ERROR_CLOSED);
    pthread_mutex_unlock(&queue->pool->lock);
    (void)stk_read_list_take(&queue->finished);
    stk_thread_pool_close(queue->pool);
    stk_inbox_deinit(&queue->inbox);
    stk_free(queue);
}

int stk_thread_queue_submit(struct stk_io *io, struct stk_queue *opaque, struct stk_read *reads)
{
    struct threads_queue *queue = threads_queue(opaque);
    struct stk_posix *posix = stk_posix(io);
    uint64_t deadline_ns = stk_clock_ns() + posix->options.read_timeout_ms * 1000000ull;
    int taken = 0;

    pthread_mutex_lock(&queue->pool->lock);
    for (struct stk_read *read = reads; read && queue->live < queue->depth; read = read->next) {
        struct slot *slot = queue->home->free;

        queue->live++;
        taken++;
        if (!slot) {
            /* All slots belong to leaked reads. */
            stk_posix_abandon(posix, read, STOKER_ERROR_TIMEOUT, false);
            stk_read_list_add(&queue->finished, read);
            continue;
        }
        queue->home->free = slot->next;
        slot->task = (struct stk_task){.run = slot_run, .drop = slot_drop, .inbox = &queue->inbox};
        slot->read = read;
        slot->deadline_ns = deadline_ns;
        stk_read_part_init(&slot->span, posix, read);
        slot->file = stk_posix_file(read->file);
        stk_posix_file_acquire(slot->file);
        in_flight_add(queue, slot);
        stk_thread_pool_submit_locked(queue->pool, &slot->task);
    }
    pthread_mutex_unlock(&queue->pool->lock);
    return taken;
}

struct stk_read *stk_thread_queue_reap(struct stk_io *io, struct stk_queue *opaque,
                                       uint32_t timeout_ms)
{
    struct threads_queue *queue = threads_queue(opaque);
    uint64_t now_ns = stk_clock_ns();
    uint64_t until_ns = now_ns + timeout_ms * 1000000ull;
    struct stk_read *list;

    (void)io;
    pthread_mutex_lock(&queue->pool->lock);
    for (;;) {
        uint64_t next_ns = until_ns;

        if (queue->first) {
            next_ns = stk_min(next_ns, queue->first->deadline_ns);
        }
        take_finished_locked(queue, queue->finished.first ? 0 : next_ns);
        now_ns = stk_clock_ns();
        expire_locked(queue, now_ns, STOKER_ERROR_TIMEOUT);
        if (queue->finished.first || queue->inbox.woken || now_ns >= until_ns) {
            break;
        }
    }
    queue->inbox.woken = false;
    pthread_mutex_unlock(&queue->pool->lock);
    list = stk_read_list_take(&queue->finished);
    for (struct stk_read *read = list; read; read = read->next) {
        queue->live--;
    }
    return list;
}

void stk_thread_queue_wake(struct stk_io *io, struct stk_queue *opaque)
{
    struct threads_queue *queue = threads_queue(opaque);

    (void)io;
    pthread_mutex_lock(&queue->pool->lock);
    queue->inbox.woken = true;
    pthread_cond_signal(&queue->inbox.arrived);
    pthread_mutex_unlock(&queue->pool->lock);
}

static struct threads_queue *threads_queue(struct stk_queue *queue)
{
    return (struct threads_queue *)(void *)queue;
}

static void in_flight_add(struct threads_queue *queue, struct slot *slot)
{
    slot->next = NULL;
    slot->previous = queue->last;
    *(queue->last ? &queue->last->next : &queue->first) = slot;
    queue->last = slot;
}

static void in_flight_remove(struct threads_queue *queue, struct slot *slot)
{
    *(slot->previous ? &slot->previous->next : &queue->first) = slot->next;
    *(slot->next ? &slot->next->previous : &queue->last) = slot->previous;
    slot->next = slot->previous = NULL;
}

static void slot_free_locked(struct slot *slot)
{
    slot->read = NULL;
    slot->file = NULL;
    slot->next = slot->home->free;
    slot->home->free = slot;
}

static void take_finished_locked(struct threads_queue *queue, uint64_t until_ns)
{
    struct stk_task *task = stk_inbox_take_locked(queue->pool, &queue->inbox, until_ns);

    while (task) {
        struct slot *slot = (struct slot *)(void *)task;

        task = task->next;
        in_flight_remove(queue, slot);
        stk_read_part_finish(&slot->span, slot->read);
        stk_read_list_add(&queue->finished, slot->read);
        stk_posix_file_release(slot->file);
        slot_free_locked(slot);
    }
}

/* Abandons the reads past their deadline; a running one is leaked. */
static void expire_locked(struct threads_queue *queue, uint64_t now_ns, int status)
{
    while (queue->first && queue->first->deadline_ns <= now_ns) {
        struct slot *slot = queue->first;
        bool unused = stk_thread_pool_abandon_locked(queue->pool, &slot->task);

        in_flight_remove(queue, slot);
        stk_posix_abandon(queue->posix, slot->read, status, !unused);
        stk_read_list_add(&queue->finished, slot->read);
        if (unused) {
            stk_posix_file_release(slot->file);
            slot_free_locked(slot);
        }
    }
}

static void slot_run(struct stk_task *task)
{
    struct stk_read_part *span = &((struct slot *)(void *)task)->span;
    ssize_t count;

    do {
        count = pread(span->fd, span->buffer + span->done, span->bytes - span->done,
                      (off_t)(span->offset + span->done));
    } while (!stk_read_part_advance(span, count < 0 ? -errno : count));
}

static void slot_drop(struct stk_task *task)
{
    struct slot *slot = (struct slot *)(void *)task;

    /* If the file was closed meanwhile, this closes its descriptor, which may hang again. */
    stk_posix_file_release(slot->file);
    pthread_mutex_lock(&slot->home->pool->lock);
    slot_free_locked(slot);
    pthread_mutex_unlock(&slot->home->pool->lock);
}
