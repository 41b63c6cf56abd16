/* The backend for queues with io_uring: many reads in flight, one system call for many reads, a
 * deadline for each.
 *
 *   slot: free -submit-> unsent -send-> in flight --completion--> finished (or unsent: next part)
 *                                         `-deadline-> cancelling -grace time-> leaked
 *
 * The kernel gets a slot of the queue, never the caller's struct: the slot of a leaked read is not
 * reused until its completion arrives. */
#include "base/text/parse_number.h"
#include "io/clock.h"
#include "io/posix/posix.h"

#include "base/mem.h"
#include "io/small_file.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The kernel gives a new ring the memory of one that was closed before, perhaps by another thread.
 * ThreadSanitizer does not see the system calls that order the two. */
#ifdef __SANITIZE_THREAD__
#    include <sanitizer/tsan_interface.h>
static char ring_memory;
#    define RING_MEMORY_RETURNED() __tsan_release(&ring_memory)
#    define RING_MEMORY_TAKEN() __tsan_acquire(&ring_memory)
#else
#    define RING_MEMORY_RETURNED() ((void)0)
#    define RING_MEMORY_TAKEN() ((void)0)
#endif

/* How long a cancelled read may take before its buffer is leaked. */
#define CANCEL_GRACE_MS 50u
/* The thread that reaps copies a buffered read that is not in the page cache, piece by piece as
 * pages arrive. From this size on a kernel thread for the read is faster: uncached 4 MiB reads, 16
 * in flight, reached 0.4 to 0.6 GB/s without and 0.7 to 2.5 with it; 100 kB reads gain nothing and
 * use a third more CPU time. */
#define ASYNC_BYTES_MIN (256u << 10)
/* Kernel threads of a queue, for such reads and for file systems that block. */
#define KERNEL_THREADS_MAX 32u
/* Slots for leaked reads, in multiples of depth; further reads fail. */
#define LEAKED_FACTOR 1u
#define NONE UINT32_MAX

enum slot_state {
    SLOT_FREE = 0,
    SLOT_UNSENT,
    SLOT_FINISHED,
    SLOT_IN_FLIGHT,
    SLOT_CANCELLING,
    SLOT_LEAKED
};
enum completion { OF_READ = 0, OF_WAKE, OF_CANCEL };

struct slot {
    struct stk_read_part span;
    struct stk_read *read; /* NULL after it was returned */
    uint64_t deadline_ns;
    uint32_t state;          /* enum slot_state; FINISHED: returned while unsent */
    uint32_t next, previous; /* in `in_flight` or `cancelling`, by deadline */
    uint32_t link;           /* in `free` or `unsent` */
};

struct slot_list {
    uint32_t first, last;
};

struct uring_queue {
    struct stk_posix *posix;
    struct stk_queue *threads; /* owned: instead of a ring, which the limits do not allow */
    struct io_uring ring;
    int wake_fd;
    bool ring_open, armed, woken;
    uint32_t depth, live; /* live: reads that reap has not returned yet */
    struct slot *slots;
    uint32_t slot_count;
    uint32_t free;
    struct slot_list unsent; /* by link */
    struct slot_list in_flight, cancelling;
    struct stk_read_list finished;
};

static struct uring_queue *uring_queue(struct stk_queue *queue);
static int try_ring(struct io_uring *ring, const char **step_out);
static void explain_failure(int status, const char *step, char *reason, size_t reason_bytes);
static int ring_open(struct io_uring *ring, uint32_t entries);
static struct slot *slot_take(struct uring_queue *queue);
static void slot_free(struct uring_queue *queue, struct slot *slot);
static void slot_finish(struct uring_queue *queue, struct slot *slot);
static void list_add(struct uring_queue *queue, struct slot_list *list, struct slot *slot);
static void list_remove(struct uring_queue *queue, struct slot_list *list, struct slot *slot);
static void unsent_add(struct uring_queue *queue, struct slot *slot);
static void send_slots(struct uring_queue *queue);
static void prepare(struct uring_queue *queue, struct io_uring_sqe *sqe, struct slot *slot);
static void drain(struct uring_queue *queue);
static void complete(struct uring_queue *queue, struct slot *slot, int result);
static void cancel_overdue(struct uring_queue *queue, uint64_t now_ns, uint64_t grace_ns);
static void leak_overdue(struct uring_queue *queue, uint64_t now_ns);
static void wait_for_completion(struct uring_queue *queue, uint64_t now_ns, uint64_t until_ns);

int stk_uring_probe(char *reason, size_t reason_bytes)
{
    struct io_uring ring;
    const char *step = "io_uring_setup";
    int status = io_uring_queue_init(4, &ring, 0);

    if (status == 0) {
        status = try_ring(&ring, &step);
        io_uring_queue_exit(&ring);
    }
    explain_failure(status, step, reason, reason_bytes);
    return status;
}

int stk_uring_queue_open(struct stk_io *io, struct stk_queue **queue_out,
                         struct stoker_error *error)
{
    struct uring_queue *queue = stk_alloc(1, sizeof *queue);
    int status = -ENOMEM;

    if (!queue) {
        goto done;
    }
    queue->posix = stk_posix(io);
    queue->depth = queue->posix->options.depth;
    queue->wake_fd = -1;
    queue->slot_count = queue->depth * (1 + LEAKED_FACTOR);
    queue->free = NONE;
    queue->unsent = queue->in_flight = queue->cancelling = (struct slot_list){NONE, NONE};
    queue->slots = stk_alloc(queue->slot_count, sizeof *queue->slots);
    queue->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!queue->slots) {
        goto done;
    }
    for (uint32_t i = queue->slot_count; i-- > 0;) {
        slot_free(queue, &queue->slots[i]);
    }
    status = queue->wake_fd < 0 ? -errno : ring_open(&queue->ring, queue->depth);
    queue->ring_open = status == 0;
    if (status == -EMFILE || status == -ENFILE || status == -ENOMEM) {
        /* Too many open files, or too much locked memory: threads read without either. */
        status = stk_thread_queue_open(io, &queue->threads, error);
        if (status < 0) {
            queue->threads = NULL;
            goto free_queue;
        }
    }
    if (status == 0) {
        *queue_out = (struct stk_queue *)(void *)queue;
        queue = NULL;
    }
done:
    if (status < 0) {
        stk_fail_errno(error, -status, "cannot open a queue of reads",
                       "raise the limits of open files and locked memory (ulimit -n, -l)",
                       "io_uring");
    }
free_queue:
    stk_io_queue_close(io, (struct stk_queue *)(void *)queue);
    return status;
}

/* Waits as long as reads finish, and leaks the rest. Each read is its submitter's again. */
void stk_uring_queue_close(struct stk_io *io, struct stk_queue *opaque)
{
    struct uring_queue *queue = uring_queue(opaque);
    uint64_t start_ns = stk_clock_ns(), now_ns = start_ns, finished_ns = start_ns;

    if (queue->threads) {
        stk_thread_queue_close(io, queue->threads);
    }
    cancel_overdue(queue, UINT64_MAX, UINT64_MAX);
    while (queue->cancelling.first != NONE &&
           now_ns < finished_ns + STK_CLOSE_QUIET_MS * 1000000ull &&
           now_ns < start_ns + STK_CLOSE_WAIT_MS_MAX * 1000000ull) {
        struct stk_read *before = queue->finished.last;

        wait_for_completion(queue, now_ns, finished_ns + STK_CLOSE_QUIET_MS * 1000000ull);
        drain(queue);
        now_ns = stk_clock_ns();
        finished_ns = queue->finished.last != before ? now_ns : finished_ns;
    }
    for (uint32_t i = 0; i < queue->slot_count && queue->slots; i++) {
        if (queue->slots[i].read) {
            stk_posix_abandon(queue->posix, queue->slots[i].read, STOKER_ERROR_CLOSED, true);
        }
    }
    (void)stk_read_list_take(&queue->finished);
    if (queue->ring_open) {
        RING_MEMORY_RETURNED();
        io_uring_queue_exit(&queue->ring);
    }
    if (queue->wake_fd >= 0) {
        close(queue->wake_fd);
    }
    stk_free(queue->slots);
    stk_free(queue);
}

int stk_uring_submit(struct stk_io *io, struct stk_queue *opaque, struct stk_read *reads)
{
    struct uring_queue *queue = uring_queue(opaque);
    struct stk_posix *posix = stk_posix(io);
    uint64_t deadline_ns = stk_clock_ns() + posix->options.read_timeout_ms * 1000000ull;
    int taken = 0;

    if (queue->threads) {
        return stk_thread_queue_submit(io, queue->threads, reads);
    }
    for (struct stk_read *read = reads; read && queue->live < queue->depth; read = read->next) {
        struct slot *slot = slot_take(queue);

        queue->live++;
        taken++;
        if (!slot) {
            /* All slots belong to leaked reads. */
            stk_posix_abandon(posix, read, STOKER_ERROR_TIMEOUT, false);
            stk_read_list_add(&queue->finished, read);
            continue;
        }
        slot->read = read;
        slot->deadline_ns = deadline_ns;
        stk_read_part_init(&slot->span, posix, read);
        list_add(queue, &queue->in_flight, slot);
        unsent_add(queue, slot);
    }
    send_slots(queue);
    return taken;
}

struct stk_read *stk_uring_reap(struct stk_io *io, struct stk_queue *opaque, uint32_t timeout_ms)
{
    struct uring_queue *queue = uring_queue(opaque);
    uint64_t now_ns = stk_clock_ns();
    uint64_t until_ns = now_ns + timeout_ms * 1000000ull;
    struct stk_read *list;

    if (queue->threads) {
        return stk_thread_queue_reap(io, queue->threads, timeout_ms);
    }
    for (;;) {
        uint64_t next_ns = until_ns;

        drain(queue);
        send_slots(queue);
        leak_overdue(queue, now_ns);
        cancel_overdue(queue, now_ns, now_ns + CANCEL_GRACE_MS * 1000000ull);
        if (queue->finished.first || queue->woken || now_ns >= until_ns) {
            break;
        }
        if (queue->in_flight.first != NONE) {
            next_ns = stk_min(next_ns, queue->slots[queue->in_flight.first].deadline_ns);
        }
        if (queue->cancelling.first != NONE) {
            next_ns = stk_min(next_ns, queue->slots[queue->cancelling.first].deadline_ns);
        }
        wait_for_completion(queue, now_ns, next_ns);
        now_ns = stk_clock_ns();
    }
    queue->woken = false;
    list = stk_read_list_take(&queue->finished);
    for (struct stk_read *read = list; read; read = read->next) {
        queue->live--;
    }
    return list;
}

void stk_uring_wake(struct stk_io *io, struct stk_queue *opaque)
{
    struct uring_queue *queue = uring_queue(opaque);

    if (queue->threads) {
        stk_thread_queue_wake(io, queue->threads);
        return;
    }
    /* Fails only if the counter is full: then a wake is pending already. */
    (void)eventfd_write(queue->wake_fd, 1);
}

static struct uring_queue *uring_queue(struct stk_queue *queue)
{
    return (struct uring_queue *)(void *)queue;
}

/* A successful setup is not enough: some filters allow it and forbid the other calls. */
static int try_ring(struct io_uring *ring, const char **step_out)
{
    static const char text[8] = "stoker";
    char copy[8] = {0};
    struct io_uring_cqe *cqe;
    int status, fd = memfd_create("stoker-probe", MFD_CLOEXEC);

    *step_out = "a first read by io_uring";
    if (fd < 0 || write(fd, text, sizeof text) != (ssize_t)sizeof text) {
        status = -errno;
        goto done;
    }
    io_uring_prep_nop(io_uring_get_sqe(ring));
    io_uring_prep_read(io_uring_get_sqe(ring), fd, copy, sizeof copy, 0);
    status = io_uring_submit_and_wait(ring, 2);
    for (int i = 0; status >= 0 && i < 2; i++) {
        status = io_uring_peek_cqe(ring, &cqe);
        if (status == 0) {
            status = stk_min(cqe->res, 0);
            io_uring_cqe_seen(ring, cqe);
        }
    }
    if (status >= 0) {
        status = memcmp(copy, text, sizeof text) == 0 ? 0 : -EIO;
    }
done:
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

static void explain_failure(int status, const char *step, char *reason, size_t reason_bytes)
{
    char text[96] = "";
    const char *end;
    int64_t disabled = 0;

    if (stk_small_file_read_text("/proc/sys/kernel/io_uring_disabled", text, sizeof text)) {
        (void)stk_parse_int64(text, &end, &disabled); /* 0 if it is no number */
    }
    if (status == 0) {
        snprintf(reason, reason_bytes, "io_uring works here");
    } else if (status == -ENOSYS) {
        snprintf(reason, reason_bytes, "%s: ENOSYS, this kernel has no io_uring", step);
    } else if (status == -EPERM && disabled > 0) {
        snprintf(reason, reason_bytes, "%s: EPERM, sysctl kernel.io_uring_disabled is %ld", step,
                 disabled);
    } else if (status == -EPERM || status == -EACCES) {
        snprintf(reason, reason_bytes,
                 "%s: EPERM, forbidden by a seccomp filter or security module (as containers do)",
                 step);
    } else if (status == -ENOMEM) {
        snprintf(reason, reason_bytes, "%s: ENOMEM, the limit of locked memory (ulimit -l)", step);
    } else {
        snprintf(reason, reason_bytes, "%s: %s", step, strerror_r(-status, text, sizeof text));
    }
}

/* With COOP_TASKRUN, completions run when this thread enters the kernel, without interrupting it.
 * Kernels before 5.19 do not support the flag. */
static int ring_open(struct io_uring *ring, uint32_t entries)
{
    struct io_uring_params parameters = {
        .flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CQSIZE,
        .cq_entries = 4 * entries,
    };
    unsigned workers[2] = {(unsigned)stk_min(entries, KERNEL_THREADS_MAX), 0};
    int status = io_uring_queue_init_params(entries, ring, &parameters);

    if (status == -EINVAL) {
        status = io_uring_queue_init(entries, ring, 0);
    }
    if (status == 0) {
        RING_MEMORY_TAKEN();
        /* If this fails, the limit of the kernel applies: 4 a core. */
        (void)io_uring_register_iowq_max_workers(ring, workers);
    }
    return status;
}

static struct slot *slot_take(struct uring_queue *queue)
{
    struct slot *slot = NULL;

    if (queue->free != NONE) {
        slot = &queue->slots[queue->free];
        queue->free = slot->link;
        STK_ASSERT(slot->state == SLOT_FREE);
    }
    return slot;
}

static void slot_free(struct uring_queue *queue, struct slot *slot)
{
    *slot = (struct slot){.next = NONE, .previous = NONE, .link = queue->free};
    queue->free = (uint32_t)(slot - queue->slots);
}

/* Returns the read of a slot; the caller frees the slot or keeps it. */
static void slot_finish(struct uring_queue *queue, struct slot *slot)
{
    stk_read_list_add(&queue->finished, slot->read);
    slot->read = NULL;
}

static void list_add(struct uring_queue *queue, struct slot_list *list, struct slot *slot)
{
    uint32_t index = (uint32_t)(slot - queue->slots);

    slot->next = NONE;
    slot->previous = list->last;
    *(list->last != NONE ? &queue->slots[list->last].next : &list->first) = index;
    list->last = index;
}

static void list_remove(struct uring_queue *queue, struct slot_list *list, struct slot *slot)
{
    *(slot->previous != NONE ? &queue->slots[slot->previous].next : &list->first) = slot->next;
    *(slot->next != NONE ? &queue->slots[slot->next].previous : &list->last) = slot->previous;
    slot->next = slot->previous = NONE;
}

static void unsent_add(struct uring_queue *queue, struct slot *slot)
{
    uint32_t index = (uint32_t)(slot - queue->slots);

    slot->state = SLOT_UNSENT;
    slot->link = NONE;
    *(queue->unsent.last != NONE ? &queue->slots[queue->unsent.last].link : &queue->unsent.first) =
        index;
    queue->unsent.last = index;
}

/* Sends as many slots as the ring has space for; the next call sends the rest. */
static void send_slots(struct uring_queue *queue)
{
    struct io_uring_sqe *sqe;

    if (!queue->armed && (sqe = io_uring_get_sqe(&queue->ring))) {
        io_uring_prep_poll_add(sqe, queue->wake_fd, POLLIN);
        sqe->user_data = OF_WAKE;
        queue->armed = true;
    }
    while (queue->unsent.first != NONE) {
        struct slot *slot = &queue->slots[queue->unsent.first];

        sqe = slot->state == SLOT_FINISHED ? NULL : io_uring_get_sqe(&queue->ring);
        if (!sqe && slot->state != SLOT_FINISHED) {
            break;
        }
        queue->unsent.first = slot->link;
        if (slot->link == NONE) {
            queue->unsent.last = NONE;
        }
        if (sqe) {
            prepare(queue, sqe, slot);
        } else {
            slot_free(queue, slot);
        }
    }
    if (io_uring_sq_ready(&queue->ring) > 0) {
        /* -EAGAIN and -EBUSY leave the entries in the ring for the next call. */
        (void)io_uring_submit(&queue->ring);
    }
}

static void prepare(struct uring_queue *queue, struct io_uring_sqe *sqe, struct slot *slot)
{
    const struct stk_read_part *span = &slot->span;

    io_uring_prep_read(sqe, span->fd, span->buffer + span->done, span->bytes - span->done,
                       span->offset + span->done);
    sqe->user_data = (uint64_t)(slot - queue->slots) << 2 | OF_READ;
    /* If a file system hangs, it must hang in a kernel thread: some (FUSE with O_DIRECT) wait even
     * in a nonblocking read. */
    if (span->is_network || (!span->direct && span->bytes - span->done >= ASYNC_BYTES_MIN)) {
        sqe->flags |= IOSQE_ASYNC;
    }
    slot->state = SLOT_IN_FLIGHT;
}

static void drain(struct uring_queue *queue)
{
    struct io_uring_cqe *cqe;
    eventfd_t ignored;

    while (io_uring_peek_cqe(&queue->ring, &cqe) == 0) {
        uint64_t data = cqe->user_data;
        int result = cqe->res;

        io_uring_cqe_seen(&queue->ring, cqe);
        if (data == LIBURING_UDATA_TIMEOUT) {
            continue;
        }
        if ((data & 3) == OF_READ) {
            complete(queue, &queue->slots[data >> 2], result);
        } else if ((data & 3) == OF_WAKE) {
            (void)eventfd_read(queue->wake_fd, &ignored);
            queue->armed = false;
            queue->woken = true;
        }
    }
}

static void complete(struct uring_queue *queue, struct slot *slot, int result)
{
    bool cancelling = slot->state == SLOT_CANCELLING;
    bool finished;

    if (slot->state == SLOT_LEAKED) {
        slot_free(queue, slot);
        return;
    }
    STK_ASSERT(slot->state == SLOT_IN_FLIGHT || cancelling);
    finished = stk_read_part_advance(&slot->span, result);
    if (!finished && !cancelling) {
        unsent_add(queue, slot);
        return;
    }
    list_remove(queue, cancelling ? &queue->cancelling : &queue->in_flight, slot);
    if (cancelling && (!finished || slot->span.failure)) {
        stk_posix_abandon(queue->posix, slot->read, STOKER_ERROR_TIMEOUT, false);
    } else {
        stk_read_part_finish(&slot->span, slot->read);
    }
    slot_finish(queue, slot);
    slot_free(queue, slot);
}

/* Cancels the reads past their deadline. */
static void cancel_overdue(struct uring_queue *queue, uint64_t now_ns, uint64_t grace_ns)
{
    uint32_t index;

    while ((index = queue->in_flight.first) != NONE && queue->slots[index].deadline_ns <= now_ns) {
        struct slot *slot = &queue->slots[index];
        struct io_uring_sqe *sqe;

        list_remove(queue, &queue->in_flight, slot);
        if (slot->state == SLOT_UNSENT) {
            stk_posix_abandon(queue->posix, slot->read, STOKER_ERROR_TIMEOUT, false);
            slot_finish(queue, slot);
            slot->state = SLOT_FINISHED;
            continue;
        }
        slot->state = SLOT_CANCELLING;
        slot->deadline_ns = grace_ns;
        list_add(queue, &queue->cancelling, slot);
        sqe = io_uring_get_sqe(&queue->ring);
        if (sqe) {
            io_uring_prep_cancel64(sqe, (uint64_t)index << 2 | OF_READ, 0);
            sqe->user_data = OF_CANCEL;
        }
    }
}

/* Leaks the reads whose cancellation did not succeed: the kernel may still write into their
 * buffers. */
static void leak_overdue(struct uring_queue *queue, uint64_t now_ns)
{
    uint32_t index;

    while ((index = queue->cancelling.first) != NONE && queue->slots[index].deadline_ns <= now_ns) {
        struct slot *slot = &queue->slots[index];

        list_remove(queue, &queue->cancelling, slot);
        stk_posix_abandon(queue->posix, slot->read, STOKER_ERROR_TIMEOUT, true);
        slot_finish(queue, slot);
        slot->state = SLOT_LEAKED;
    }
}

static void wait_for_completion(struct uring_queue *queue, uint64_t now_ns, uint64_t until_ns)
{
    uint64_t wait_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct __kernel_timespec wait = {.tv_sec = (long long)(wait_ns / 1000000000u),
                                     .tv_nsec = (long long)(wait_ns % 1000000000u)};
    struct io_uring_cqe *cqe;
    int status = io_uring_submit_and_wait_timeout(&queue->ring, &cqe, 1, &wait, NULL);

    if (status == -EAGAIN || status == -EBUSY || status == -ENOMEM) {
        /* The kernel is short of memory: try again after a pause. */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}
