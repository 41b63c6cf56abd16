/* Many reads in flight, for one thread. */
#include "storage/external/external_fs.h"

#include "base/mem.h"
#include "io/clock.h"

#include <errno.h>

struct flight {
    struct flight *next, *previous; /* as they were asked for, and are taken */
    struct flight *ended_next;
    struct stk_desk_queue *queue;
    struct stk_errand *errand;
    struct stk_read *read;
    uint64_t asked_ns, wanted;
    uint32_t timeout_ms;
};

struct stk_desk_queue {
    struct stoker_desk *desk;
    void (*wake)(void *owner);
    void *owner;
    struct flight *first, *last; /* the queue's own thread */
    struct flight *ended;        /* with the desk's lock */
};

int stk_desk_queue_open(struct stk_desk_queue **queue_out, struct stoker_desk *desk,
                        void (*wake)(void *owner), void *owner)
{
    struct stk_desk_queue *queue = stk_alloc(1, sizeof *queue);

    *queue_out = queue;
    if (!queue) {
        return -ENOMEM;
    }
    *queue = (struct stk_desk_queue){.desk = desk, .wake = wake, .owner = owner};
    return 0;
}

/* With the desk's lock. */
static void on_done(struct stk_errand *errand, void *owner)
{
    struct flight *flight = owner;
    struct stk_desk_queue *queue = flight->queue;

    (void)errand;
    flight->ended_next = queue->ended;
    queue->ended = flight;
    queue->wake(queue->owner);
}

int stk_desk_queue_submit(struct stk_desk_queue *queue, struct stk_read *read)
{
    struct flight *flight = stk_alloc(1, sizeof *flight);
    struct stk_guest_read about;
    struct stk_wish wish;

    stk_guest_about(read->file, read->offset, &about);
    wish = (struct stk_wish){.kind = STOKER_ERRAND_READ,
                             .url = about.url,
                             .offset = read->offset,
                             .buffer = read->buffer,
                             .bytes = (uint32_t)stk_min(read->bytes, about.bytes_left)};
    if (flight) {
        flight->errand = stk_errand_new(&wish);
    }
    if (!flight || !flight->errand) {
        stk_free(flight);
        return -ENOMEM;
    }
    flight->queue = queue;
    flight->read = read;
    flight->wanted = wish.bytes;
    flight->asked_ns = stk_clock_ns();
    flight->timeout_ms = about.timeout_ms;
    flight->previous = queue->last;
    *(queue->last ? &queue->last->next : &queue->first) = flight;
    queue->last = flight;
    stk_guest_acquire(read->file);
    stk_errand_start(queue->desk, flight->errand, on_done, flight);
    return 0;
}

/* Out of the queue; what it read is known. */
static struct stk_read *land(struct stk_desk_queue *queue, struct flight *flight, int status,
                             const struct stk_reply *reply)
{
    struct stk_read *read = flight->read;

    read->result = stk_guest_settle(read->file, status, reply, flight->wanted);
    read->skip = 0;
    read->lost = false;
    read->sent_ns = read->first_ns = read->done_ns = 0;
    *(flight->previous ? &flight->previous->next : &queue->first) = flight->next;
    *(flight->next ? &flight->next->previous : &queue->last) = flight->previous;
    stk_guest_close(read->file);
    stk_free(flight);
    return read;
}

static struct stk_read *land_done(struct stk_desk_queue *queue, struct flight *flight)
{
    struct stk_reply reply;
    int status = stk_errand_end(flight->errand, &reply);
    struct stk_read *read = land(queue, flight, status, &reply);

    stk_listing_builder_deinit(&reply.listing);
    return read;
}

static struct stk_read *land_late(struct stk_desk_queue *queue, struct flight *flight, int status)
{
    struct stk_reply reply = {0};
    struct stk_guest_read about;

    stk_guest_about(flight->read->file, 0, &about);
    stk_fail(&reply.error, status, "no answer within the deadline",
             "look at the server, or raise read_timeout of the engine", "'%.600s'", about.url);
    return land(queue, flight, status, &reply);
}

static struct flight *take_ended(struct stk_desk_queue *queue)
{
    struct flight *ended;

    stk_desk_lock(queue->desk);
    ended = queue->ended;
    queue->ended = NULL;
    stk_desk_unlock(queue->desk);
    return ended;
}

static uint64_t late_ns(const struct stk_desk_queue *queue, const struct flight *flight)
{
    return stk_errand_late_ns(queue->desk, flight->errand, flight->asked_ns, flight->timeout_ms);
}

struct stk_read *stk_desk_queue_take(struct stk_desk_queue *queue, struct stk_read *list,
                                     uint32_t *count_out)
{
    uint64_t now_ns = stk_clock_ns();
    struct flight *flight, *next;

    *count_out = 0;
    for (flight = take_ended(queue); flight; flight = next, ++*count_out) {
        struct stk_read *read;

        next = flight->ended_next;
        read = land_done(queue, flight);
        read->next = list;
        list = read;
    }
    while ((flight = queue->first) && late_ns(queue, flight) <= now_ns &&
           stk_errand_give_up(queue->desk, flight->errand)) {
        struct stk_read *read = land_late(queue, flight, STOKER_ERROR_TIMEOUT);

        read->next = list;
        list = read;
        ++*count_out;
    }
    return list;
}

uint32_t stk_desk_queue_patience(const struct stk_desk_queue *queue)
{
    uint64_t now_ns = stk_clock_ns();
    uint64_t end_ns = queue->first ? late_ns(queue, queue->first) : UINT64_MAX;

    return !queue->first      ? UINT32_MAX
           : end_ns <= now_ns ? 0
                              : (uint32_t)((end_ns - now_ns) / 1000000u + 1);
}

void stk_desk_queue_close(struct stk_desk_queue *queue)
{
    struct flight *flight, *next;

    if (!queue) {
        return;
    }
    for (flight = queue->first; flight; flight = next) {
        next = flight->next;
        if (stk_errand_give_up(queue->desk, flight->errand)) {
            (void)land_late(queue, flight, STOKER_ERROR_CLOSED);
        }
    }
    for (flight = take_ended(queue); flight; flight = next) {
        next = flight->ended_next;
        (void)land_done(queue, flight);
    }
    STK_ASSERT(!queue->first);
    stk_free(queue);
}
