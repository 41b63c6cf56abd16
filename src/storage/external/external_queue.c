/* A queue of reads of external files, for one thread. */
#include "storage/external/external_fs.h"

#include "base/mem.h"
#include "io/clock.h"

#include <errno.h>

struct pending_read {
    struct pending_read *next, *previous; /* in the order of submission */
    struct pending_read *ended_next;
    struct stk_external_queue *queue;
    struct stk_external_request *request;
    struct stk_read *read;
    uint64_t sent_ns, wanted;
    uint32_t timeout_ms;
};

struct stk_external_queue {
    struct stoker_external_fs *fs;
    void (*wake)(void *owner);
    void *owner;
    struct pending_read *first, *last; /* the queue's own thread */
    struct pending_read *ended;        /* with the lock of the file system */
};

int stk_external_queue_open(struct stk_external_queue **queue_out, struct stoker_external_fs *fs,
                            void (*wake)(void *owner), void *owner)
{
    struct stk_external_queue *queue = stk_alloc(1, sizeof *queue);

    *queue_out = queue;
    if (!queue) {
        return -ENOMEM;
    }
    *queue = (struct stk_external_queue){.fs = fs, .wake = wake, .owner = owner};
    return 0;
}

/* With the lock of the file system. */
static void on_done(struct stk_external_request *request, void *owner)
{
    struct pending_read *pending_read = owner;
    struct stk_external_queue *queue = pending_read->queue;

    (void)request;
    pending_read->ended_next = queue->ended;
    queue->ended = pending_read;
    queue->wake(queue->owner);
}

int stk_external_queue_submit(struct stk_external_queue *queue, struct stk_read *read)
{
    struct pending_read *pending_read = stk_alloc(1, sizeof *pending_read);
    struct stk_external_file_info info;
    struct stk_external_call call;

    stk_external_file_get_info(read->file, read->offset, &info);
    call = (struct stk_external_call){.kind = STOKER_EXTERNAL_READ,
                                      .url = info.url,
                                      .offset = read->offset,
                                      .buffer = read->buffer,
                                      .bytes = (uint32_t)stk_min(read->bytes, info.bytes_left)};
    if (pending_read) {
        pending_read->request = stk_external_request_new(&call);
    }
    if (!pending_read || !pending_read->request) {
        stk_free(pending_read);
        return -ENOMEM;
    }
    pending_read->queue = queue;
    pending_read->read = read;
    pending_read->wanted = call.bytes;
    pending_read->sent_ns = stk_clock_ns();
    pending_read->timeout_ms = info.timeout_ms;
    pending_read->previous = queue->last;
    *(queue->last ? &queue->last->next : &queue->first) = pending_read;
    queue->last = pending_read;
    stk_external_file_retain(read->file);
    stk_external_request_start(queue->fs, pending_read->request, on_done, pending_read);
    return 0;
}

/* Sets the result of a read and removes it from the queue. */
static struct stk_read *finish_read(struct stk_external_queue *queue,
                                    struct pending_read *pending_read, int status,
                                    const struct stk_external_reply *reply)
{
    struct stk_read *read = pending_read->read;

    read->result = stk_external_file_finish_read(read->file, status, reply, pending_read->wanted);
    read->skip = 0;
    read->leaked = false;
    read->sent_ns = read->first_ns = read->done_ns = 0;
    *(pending_read->previous ? &pending_read->previous->next : &queue->first) = pending_read->next;
    *(pending_read->next ? &pending_read->next->previous : &queue->last) = pending_read->previous;
    stk_external_file_close(read->file);
    stk_free(pending_read);
    return read;
}

static struct stk_read *finish_done(struct stk_external_queue *queue,
                                    struct pending_read *pending_read)
{
    struct stk_external_reply reply;
    int status = stk_external_request_end(pending_read->request, &reply);
    struct stk_read *read = finish_read(queue, pending_read, status, &reply);

    stk_listing_builder_deinit(&reply.listing);
    return read;
}

static struct stk_read *finish_expired(struct stk_external_queue *queue,
                                       struct pending_read *pending_read, int status)
{
    struct stk_external_reply reply = {0};
    struct stk_external_file_info info;

    stk_external_file_get_info(pending_read->read->file, 0, &info);
    stk_fail(&reply.error, status, "no reply within the deadline",
             "check the server, or raise read_timeout of the engine", "'%.600s'", info.url);
    return finish_read(queue, pending_read, status, &reply);
}

static struct pending_read *take_ended(struct stk_external_queue *queue)
{
    struct pending_read *ended;

    stk_external_fs_lock(queue->fs);
    ended = queue->ended;
    queue->ended = NULL;
    stk_external_fs_unlock(queue->fs);
    return ended;
}

static uint64_t deadline_of(const struct stk_external_queue *queue,
                            const struct pending_read *pending_read)
{
    return stk_external_request_deadline_ns(queue->fs, pending_read->request, pending_read->sent_ns,
                                            pending_read->timeout_ms);
}

struct stk_read *stk_external_queue_reap(struct stk_external_queue *queue, struct stk_read *list,
                                         uint32_t *count_out)
{
    uint64_t now_ns = stk_clock_ns();
    struct pending_read *pending_read, *next;

    *count_out = 0;
    for (pending_read = take_ended(queue); pending_read; pending_read = next, ++*count_out) {
        struct stk_read *read;

        next = pending_read->ended_next;
        read = finish_done(queue, pending_read);
        read->next = list;
        list = read;
    }
    while ((pending_read = queue->first) && deadline_of(queue, pending_read) <= now_ns &&
           stk_external_request_abandon(queue->fs, pending_read->request)) {
        struct stk_read *read = finish_expired(queue, pending_read, STOKER_ERROR_TIMEOUT);

        read->next = list;
        list = read;
        ++*count_out;
    }
    return list;
}

uint32_t stk_external_queue_timeout_ms(const struct stk_external_queue *queue)
{
    uint64_t now_ns = stk_clock_ns();
    uint64_t end_ns = queue->first ? deadline_of(queue, queue->first) : UINT64_MAX;

    return !queue->first      ? UINT32_MAX
           : end_ns <= now_ns ? 0
                              : (uint32_t)((end_ns - now_ns) / 1000000u + 1);
}

void stk_external_queue_close(struct stk_external_queue *queue)
{
    struct pending_read *pending_read, *next;

    if (!queue) {
        return;
    }
    for (pending_read = queue->first; pending_read; pending_read = next) {
        next = pending_read->next;
        if (stk_external_request_abandon(queue->fs, pending_read->request)) {
            (void)finish_expired(queue, pending_read, STOKER_ERROR_CLOSED);
        }
    }
    for (pending_read = take_ended(queue); pending_read; pending_read = next) {
        next = pending_read->ended_next;
        (void)finish_done(queue, pending_read);
    }
    STK_ASSERT(!queue->first);
    stk_free(queue);
}
