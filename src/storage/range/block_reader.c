/* Reads parts of objects through the node cache. */
#include "storage/range/block_reader_private.h"

#include "base/mem.h"
#include "base/thread.h"
#include "io/clock.h"

#include <errno.h>
#include <string.h>

#define BUDGET_SHARE 16u /* flights may use one in so many bytes of the budget */
#define FLIGHTS_MAX 64u  /* with memory */
#define POLL_MIN_NS 1000000ull
#define SWEEP_NS 50000000ull /* a part whose stop flag is set ends within it */

static void *thread_main(void *context);

uint32_t stk_block_reader_block_bytes(const struct stk_block_reader *reader)
{
    return reader->cache->block_bytes;
}

int stk_block_reader_open(struct stk_block_reader **reader_out, struct stoker_cache *cache,
                          struct stk_budget *budget)
{
    struct stk_block_reader *reader = stk_alloc(1, sizeof *reader);
    uint64_t flights = FLIGHTS_MAX;

    if (!reader) {
        return -ENOMEM;
    }
    if (budget) {
        flights = budget->bytes_max / BUDGET_SHARE / cache->block_bytes;
    }
    reader->flights_max = (uint32_t)stk_min(stk_max(flights, 1), FLIGHTS_MAX);
    reader->budget = budget;
    reader->cache = cache;
    stk_cache_retain(cache);
    reader->locked.last = &reader->locked.first;
    pthread_mutex_init(&reader->lock, NULL);
    stk_cond_init(&reader->work);
    stk_cond_init(&reader->ended);
    *reader_out = reader;
    return 0;
}

/* ---- queues; with the lock ---- */

void stk_flight_push_locked(struct stk_flight_queue *queue, struct stk_block_flight *flight)
{
    flight->queue_next = NULL;
    *(queue->last ? &queue->last->queue_next : &queue->first) = flight;
    queue->last = flight;
}

struct stk_block_flight *stk_flight_pop_locked(struct stk_flight_queue *queue)
{
    struct stk_block_flight *flight = queue->first;

    if (flight) {
        queue->first = flight->queue_next;
        queue->last = queue->first ? queue->last : NULL;
    }
    return flight;
}

/* Wakes a thread for new work, or starts one. */
void stk_block_reader_signal_locked(struct stk_block_reader *reader)
{
    if (reader->locked.woken < reader->locked.idle) {
        reader->locked.woken++;
    } else if (reader->locked.threads < STK_BLOCK_READER_THREADS &&
               stk_thread_start(&reader->threads[reader->locked.threads], NULL, thread_main,
                                reader) == 0) {
        reader->locked.threads++;
    }
    pthread_cond_signal(&reader->work);
}

struct stk_block_flight **stk_flight_bucket_locked(struct stk_block_reader *reader,
                                                   const struct stk_cache_block *block)
{
    return &reader->locked.buckets[block->key.bytes[0]];
}

static struct stk_block_flight *find_locked(struct stk_block_reader *reader,
                                            const struct stk_cache_block *block)
{
    struct stk_block_flight *flight = *stk_flight_bucket_locked(reader, block);

    while (flight &&
           (memcmp(flight->block.key.bytes, block->key.bytes, sizeof block->key.bytes) != 0 ||
            stk_flight_is_damaged(flight))) {
        flight = flight->next;
    }
    return flight;
}

/* ---- parts ---- */

static void miss(struct stk_block_reader *reader, struct stk_range_part *part,
                 const struct stk_cache_block *block)
{
    struct stk_block_flight *flight, *made = stk_alloc(1, sizeof *made);

    stk_cache_count(&reader->cache->counters.misses, 1);
    part->next = NULL;
    pthread_mutex_lock(&reader->lock);
    flight = find_locked(reader, block);
    if (!flight && made) {
        flight = made;
        flight->reader = reader;
        flight->block = *block;
        flight->source = part->read->source;
        flight->source->ops->retain(flight->source);
        flight->store = part->store;
        flight->next = *stk_flight_bucket_locked(reader, block);
        *stk_flight_bucket_locked(reader, block) = flight;
        reader->locked.flights++;
    }
    if (flight) {
        part->next = flight->waiters;
        flight->waiters = part;
    }
    pthread_mutex_unlock(&reader->lock);
    if (!flight) {
        stk_block_reader_bypass(reader, part);
    } else if (flight == made) {
        stk_flight_start(flight);
        return;
    }
    stk_free(made);
}

static void serve_part(struct stk_block_reader *reader, struct stk_range_part *part)
{
    struct stk_range_source *source = part->read->source;
    struct stk_operation *operation = &part->operation;
    struct stk_cache_block block = stk_cache_block_of(reader->cache, &source->cached, part->block);
    struct stoker_error error = {0};
    int status;

    if (stk_range_part_is_unwanted(part)) {
        stk_range_part_end_closed(part);
        return;
    }
    status = stk_cache_read(
        reader->cache, &block,
        &(struct stk_cache_part){.offset = (uint32_t)(operation->offset - block.offset),
                                 .bytes = (uint32_t)operation->bytes,
                                 .buffer = operation->buffer});
    if (status < 0) {
        miss(reader, part, &block);
        return;
    }
    status = stk_block_reader_add_coverage(reader, part->store, source, operation->offset,
                                           (struct stk_view){operation->buffer, operation->bytes},
                                           &error);
    stk_range_part_end(part, status, &error);
}

void stk_block_reader_start(struct stk_block_reader *reader, struct stk_store *store,
                            struct stk_range_part *part)
{
    bool has_thread;

    part->store = store;
    part->next = NULL;
    pthread_mutex_lock(&reader->lock);
    *reader->locked.last = part;
    reader->locked.last = &part->next;
    stk_block_reader_signal_locked(reader);
    has_thread = reader->locked.threads > 0;
    if (!has_thread) { /* no thread can be started: the store serves the part */
        reader->locked.first = NULL;
        reader->locked.last = &reader->locked.first;
    }
    pthread_mutex_unlock(&reader->lock);
    if (!has_thread) {
        stk_block_reader_bypass(reader, part);
    }
}

int stk_block_reader_read_now(struct stk_range_source *source, struct stk_store *store,
                              uint64_t offset, uint8_t *buffer, uint64_t bytes, bool in_memory)
{
    struct stk_block_reader *reader = source->reader;
    struct stoker_error error = {0};
    uint64_t done = 0;
    int status = 0;

    while (status == 0 && done < bytes) {
        uint64_t number = (offset + done) / reader->cache->block_bytes;
        struct stk_cache_block block = stk_cache_block_of(reader->cache, &source->cached, number);
        struct stk_cache_part part = {.offset = (uint32_t)(offset + done - block.offset),
                                      .in_memory = in_memory};

        part.buffer = buffer + done;
        part.bytes = (uint32_t)stk_min(bytes - done, block.bytes - part.offset);
        status = stk_cache_read(reader->cache, &block, &part);
        done += part.bytes;
    }
    if (status < 0) {
        return -EAGAIN;
    }
    status = stk_block_reader_add_coverage(reader, store, source, offset,
                                           (struct stk_view){buffer, bytes}, &error);
    if (status < 0) {
        source->ops->set_error(source, &error);
    }
    return status;
}

/* ---- cancelling ---- */

/* Moves the unwanted parts of a list to another list. */
static void filter_locked(struct stk_range_part **link, struct stk_range_part **unwanted)
{
    while (*link) {
        struct stk_range_part *part = *link;

        if (stk_range_part_is_unwanted(part)) {
            *link = part->next;
            part->next = *unwanted;
            *unwanted = part;
        } else {
            link = &part->next;
        }
    }
}

/* Returns the unwanted parts, which no longer wait. */
static struct stk_range_part *take_unwanted_locked(struct stk_block_reader *reader)
{
    struct stk_range_part *unwanted = NULL;

    filter_locked(&reader->locked.first, &unwanted);
    reader->locked.last = &reader->locked.first;
    while (*reader->locked.last) {
        reader->locked.last = &(*reader->locked.last)->next;
    }
    for (uint32_t i = 0; reader->locked.flights > 0 && i < STK_BLOCK_READER_BUCKETS; i++) {
        for (struct stk_block_flight *flight = reader->locked.buckets[i]; flight;
             flight = flight->next) {
            filter_locked(&flight->waiters, &unwanted);
        }
    }
    return unwanted;
}

static void end_unwanted(struct stk_range_part *list)
{
    for (struct stk_range_part *next; list; list = next) {
        next = list->next;
        stk_range_part_end_closed(list);
    }
}

void stk_block_reader_cancel_marked(struct stk_block_reader *reader)
{
    struct stk_range_part *unwanted;

    if (reader) {
        pthread_mutex_lock(&reader->lock);
        unwanted = take_unwanted_locked(reader);
        pthread_mutex_unlock(&reader->lock);
        end_unwanted(unwanted);
    }
}

/* ---- threads ---- */

/* Returns a flight whose time to poll has come. */
static struct stk_block_flight *pop_due_locked(struct stk_block_reader *reader, uint64_t now)
{
    struct stk_flight_queue *queue = &reader->locked.polling;
    struct stk_block_flight *previous = NULL, *flight = queue->first;

    while (flight && flight->poll_ns > now) {
        previous = flight;
        flight = flight->queue_next;
    }
    if (flight) {
        *(previous ? &previous->queue_next : &queue->first) = flight->queue_next;
        queue->last = queue->last == flight ? previous : queue->last;
    }
    return flight;
}

static struct timespec after(uint64_t ns)
{
    return stk_clock_timespec(stk_clock_ns() + ns);
}

/* Waits for work. One thread wakes up by itself while flights exist. */
static void wait_locked(struct stk_block_reader *reader)
{
    struct timespec when = after(reader->locked.polling.first ? POLL_MIN_NS : SWEEP_NS);

    reader->locked.idle++;
    if (reader->locked.flights > 0 && !reader->locked.has_timer) {
        reader->locked.has_timer = true;
        pthread_cond_timedwait(&reader->work, &reader->lock, &when);
        reader->locked.has_timer = false;
    } else {
        pthread_cond_wait(&reader->work, &reader->lock);
    }
    reader->locked.idle--;
    reader->locked.woken -= reader->locked.woken > 0;
}

/* Does one piece of work, without the lock. Returns false if there is none. */
static bool work_locked(struct stk_block_reader *reader)
{
    struct stk_range_part *part = reader->locked.first, *unwanted = NULL;
    struct stk_block_flight *arrived = stk_flight_pop_locked(&reader->locked.arrived),
                            *pending = NULL, *due = NULL;
    uint64_t now = stk_clock_ns();

    if (!arrived && part) {
        reader->locked.first = part->next;
        reader->locked.last = part->next ? reader->locked.last : &reader->locked.first;
    } else {
        part = NULL;
    }
    if (!arrived && !part && reader->locked.pending_ready) {
        pending = stk_flight_pop_locked(&reader->locked.pending);
    }
    if (!arrived && !part && !pending) {
        due = pop_due_locked(reader, now);
    }
    if (!arrived && !part && !pending && !due) {
        if (reader->locked.flights == 0 || now < reader->locked.sweep_ns) {
            return false;
        }
        reader->locked.sweep_ns = now + SWEEP_NS;
        reader->locked.pending_ready = true; /* others may have returned memory */
        unwanted = take_unwanted_locked(reader);
    }
    if (reader->locked.idle > 0 && !reader->locked.has_timer) {
        pthread_cond_signal(&reader->work); /* another thread becomes the timer */
    }
    pthread_mutex_unlock(&reader->lock);
    if (arrived) {
        stk_flight_finish(arrived);
    } else if (part) {
        serve_part(reader, part);
    } else if (pending) {
        stk_flight_start(pending);
    } else if (due) {
        stk_flight_poll(due);
    } else {
        end_unwanted(unwanted);
    }
    pthread_mutex_lock(&reader->lock);
    return true;
}

static void *thread_main(void *context)
{
    struct stk_block_reader *reader = context;

    pthread_mutex_lock(&reader->lock);
    while (!atomic_load_explicit(&reader->closing, memory_order_relaxed) ||
           reader->locked.flights > 0) {
        if (!work_locked(reader)) {
            wait_locked(reader);
        }
    }
    pthread_cond_broadcast(&reader->work);
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

/* Flights without parts may still download. */
static void cancel_flights_locked(struct stk_block_reader *reader)
{
    for (uint32_t i = 0; i < STK_BLOCK_READER_BUCKETS; i++) {
        for (struct stk_block_flight *flight = reader->locked.buckets[i]; flight;
             flight = flight->next) {
            stk_operation_cancel(&flight->operation);
        }
    }
}

void stk_block_reader_close(struct stk_block_reader *reader, struct stk_store *store)
{
    if (!reader) {
        return;
    }
    atomic_store_explicit(&reader->closing, true, memory_order_relaxed);
    pthread_mutex_lock(&reader->lock);
    while (reader->locked.flights > 0) {
        struct timespec when = after(SWEEP_NS);

        cancel_flights_locked(reader);
        pthread_cond_broadcast(&reader->work);
        pthread_mutex_unlock(&reader->lock);
        if (store) {
            stk_store_cancel_marked(store);
        }
        pthread_mutex_lock(&reader->lock);
        /* A download that was being started is cancelled by the next turn. */
        pthread_cond_timedwait(&reader->ended, &reader->lock, &when);
    }
    pthread_cond_broadcast(&reader->work);
    pthread_mutex_unlock(&reader->lock);
    for (uint32_t i = 0; i < reader->locked.threads; i++) {
        pthread_join(reader->threads[i], NULL);
    }
    pthread_cond_destroy(&reader->work);
    pthread_cond_destroy(&reader->ended);
    pthread_mutex_destroy(&reader->lock);
    stk_cache_release(reader->cache);
    stk_free(reader);
}

/* ---- sources ---- */

void stk_block_reader_attach(struct stk_block_reader *reader, struct stk_store *store,
                             struct stk_range_source *source)
{
    const struct stk_object_url *object = source->object;
    const char *etag = source->info.etag;

    if (!reader || !etag[0] || strncmp(etag, "W/", 2) == 0 || source->info.bytes == 0 ||
        source->info.bytes == UINT64_MAX || stk_store_has_sse_key(store, object)) {
        return;
    }
    stk_cache_object_key(stk_store_endpoint_text(store, object),
                         object->target ? object->target : object->url, etag, source->info.bytes,
                         &source->cached.key);
    source->cached.bytes = source->info.bytes;
    source->cached.url = object->url;
    source->cached.url_hash = stk_cache_url_hash(object->url);
    source->cached.tag = etag;
    source->reader = reader;
}
