/* Blocks that are not in the node cache: who downloads them, and who waits. */
#include "storage/range/block_reader_private.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "io/clock.h"

#include <string.h>

#define POLL_MIN_NS 1000000ull
#define POLL_MAX_NS 10000000ull
#define TURN_NS 50000000ull        /* how often a waiting flight asks for the turn */
#define WAIT_MAX_NS 30000000000ull /* for a block of another process; then the store is read */

static void on_download(struct stk_operation *operation, const struct stk_http_response *response);

static struct stk_range_part *take_waiters_locked(struct stk_block_flight *flight)
{
    struct stk_range_part *waiters = flight->waiters;

    flight->waiters = NULL;
    return waiters;
}

/* ---- ending parts ---- */

bool stk_range_part_is_unwanted(const struct stk_range_part *part)
{
    return atomic_load_explicit(&part->operation.cancelled, memory_order_relaxed) ||
           (part->operation.stop &&
            atomic_load_explicit(part->operation.stop, memory_order_relaxed));
}

void stk_range_part_end_closed(struct stk_range_part *part)
{
    struct stoker_error error = {0};

    stk_fail(&error, STOKER_ERROR_CLOSED, "the read was cancelled", "nothing to do", "'%.400s'",
             part->read->source->object->url);
    stk_range_part_end(part, STOKER_ERROR_CLOSED, &error);
}

static void end_list(struct stk_range_part *list, int status, const struct stoker_error *error)
{
    for (struct stk_range_part *next; list; list = next) {
        next = list->next;
        stk_range_part_end(list, status, error);
    }
}

/* The parts of a list become requests to the store. */
void stk_block_reader_bypass(struct stk_block_reader *reader, struct stk_range_part *list)
{
    for (struct stk_range_part *next; list; list = next) {
        next = list->next;
        if (stk_range_part_is_unwanted(list)) {
            stk_range_part_end_closed(list);
            continue;
        }
        stk_cache_count(&reader->cache->counters.bypasses, 1);
        stk_cache_count(&reader->cache->counters.bytes_from_origin, list->operation.bytes);
        stk_operation_start(list->store, &list->operation);
    }
}

/* The checksum of the object does not match: none of its blocks may stay. */
static void forget(struct stk_block_reader *reader, const struct stk_range_source *source)
{
    uint64_t count =
        (source->cached.bytes + reader->cache->block_bytes - 1) / reader->cache->block_bytes;

    for (uint64_t i = 0; i < count; i++) {
        struct stk_cache_block block = stk_cache_block_of(reader->cache, &source->cached, i);

        (void)stk_cache_forget(reader->cache, &block);
    }
}

/* Adds bytes of the cache to the checksum of the object. */
int stk_block_reader_add_coverage(struct stk_block_reader *reader, struct stk_store *store,
                                  const struct stk_range_source *source, uint64_t offset,
                                  struct stk_view bytes, struct stoker_error *error)
{
    int status = source->coverage ? stk_store_checksum_add(store, source->object, source->coverage,
                                                           offset, bytes, error)
                                  : 0;

    if (status < 0) {
        forget(reader, source);
    }
    return status;
}

/* ---- flights ---- */

static void release_memory(struct stk_block_flight *flight)
{
    struct stk_block_reader *reader = flight->reader;

    if (!flight->buffer) {
        return;
    }
    stk_pages_free(flight->buffer, reader->cache->block_bytes);
    flight->buffer = NULL;
    if (reader->budget) {
        stk_budget_release(reader->budget, reader->cache->block_bytes);
    }
    pthread_mutex_lock(&reader->lock);
    reader->locked.with_memory--;
    reader->locked.pending_ready = true;
    if (reader->locked.pending.first) {
        stk_block_reader_signal_locked(reader);
    }
    pthread_mutex_unlock(&reader->lock);
}

enum memory { MEMORY_READY, MEMORY_LATER, MEMORY_NONE };

/* Gets the memory of a flight, or queues it until another one returns some. */
static enum memory reserve_memory(struct stk_block_flight *flight)
{
    struct stk_block_reader *reader = flight->reader;
    uint64_t bytes = reader->cache->block_bytes;
    enum memory result = MEMORY_LATER;

    pthread_mutex_lock(&reader->lock);
    if (reader->locked.with_memory < reader->flights_max) {
        if (!reader->budget || stk_budget_reserve(reader->budget, bytes)) {
            flight->buffer = stk_pages_reserve(bytes);
            result = flight->buffer ? MEMORY_READY : MEMORY_NONE;
            if (!flight->buffer && reader->budget) {
                stk_budget_release(reader->budget, bytes);
            }
            reader->locked.with_memory += flight->buffer != NULL;
        } else if (reader->locked.with_memory == 0) {
            result = MEMORY_NONE; /* no flight would return any */
        }
    }
    if (result == MEMORY_LATER) {
        reader->locked.pending_ready = false;
        stk_flight_push_locked(&reader->locked.pending, flight);
    }
    pthread_mutex_unlock(&reader->lock);
    return result;
}

/* Removes a flight from the table. Returns its waiters. */
static struct stk_range_part *remove_locked(struct stk_block_flight *flight)
{
    struct stk_block_flight **link = stk_flight_bucket_locked(flight->reader, &flight->block);

    while (*link != flight) {
        link = &(*link)->next;
    }
    *link = flight->next;
    return take_waiters_locked(flight);
}

/* After remove_locked. */
static void free_flight(struct stk_block_flight *flight)
{
    struct stk_block_reader *reader = flight->reader;
    struct stk_range_source *source = flight->source;

    stk_cache_disk_abandon(&flight->fill);
    release_memory(flight);
    stk_free(flight);
    source->ops->release(source);
    pthread_mutex_lock(&reader->lock);
    if (--reader->locked.flights == 0) { /* under the lock: close waits for it */
        pthread_cond_broadcast(&reader->ended);
    }
    pthread_mutex_unlock(&reader->lock);
}

static void bypass_flight(struct stk_block_flight *flight)
{
    struct stk_block_reader *reader = flight->reader;
    struct stk_range_part *waiters;

    pthread_mutex_lock(&reader->lock);
    waiters = remove_locked(flight);
    pthread_mutex_unlock(&reader->lock);
    stk_block_reader_bypass(reader, waiters);
    free_flight(flight);
}

/* The block is in the cache now: its parts are looked up again. */
static void requeue_flight(struct stk_block_flight *flight)
{
    struct stk_block_reader *reader = flight->reader;
    struct stk_range_part *waiters;

    pthread_mutex_lock(&reader->lock);
    waiters = remove_locked(flight);
    *reader->locked.last = waiters;
    for (; waiters; waiters = waiters->next) {
        reader->locked.last = &waiters->next;
        stk_block_reader_signal_locked(reader);
    }
    pthread_mutex_unlock(&reader->lock);
    free_flight(flight);
}

/* At poll_ns, stk_flight_poll is called. */
static void push_polling(struct stk_block_flight *flight)
{
    struct stk_block_reader *reader = flight->reader;

    pthread_mutex_lock(&reader->lock);
    stk_flight_push_locked(&reader->locked.polling, flight);
    if (!reader->locked.has_timer) {
        stk_block_reader_signal_locked(reader);
    }
    pthread_mutex_unlock(&reader->lock);
}

static void poll_later(struct stk_block_flight *flight)
{
    struct stk_block_reader *reader = flight->reader;
    uint64_t now = stk_clock_ns();

    if (flight->since_ns == 0) {
        flight->since_ns = now;
        flight->pause_ns = POLL_MIN_NS;
        stk_cache_count(&reader->cache->counters.waits, 1);
    }
    flight->poll_ns = now + flight->pause_ns;
    flight->pause_ns = stk_min(flight->pause_ns * 2, POLL_MAX_NS);
    push_polling(flight);
}

static void start_download(struct stk_block_flight *flight)
{
    struct stk_cache_block *block = &flight->block;

    stk_store_init_read(&flight->operation, flight->source->object, &flight->source->info,
                        block->offset, block->bytes, flight->buffer);
    flight->operation.coverage = flight->source->coverage;
    flight->operation.done = on_download;
    stk_operation_start(flight->store, &flight->operation);
}

/* The rate of downloads does not allow the block before then. */
static void wait_for_rate(struct stk_block_flight *flight, uint64_t then_ns)
{
    struct stk_block_reader *reader = flight->reader;
    bool is_wanted;

    pthread_mutex_lock(&reader->lock);
    is_wanted = flight->waiters != NULL; /* they may have been cancelled meanwhile */
    if (!is_wanted) {
        (void)remove_locked(flight);
    }
    pthread_mutex_unlock(&reader->lock);
    if (is_wanted) {
        flight->poll_ns = stk_min(then_ns, stk_clock_ns() + POLL_MAX_NS);
        push_polling(flight);
    } else {
        free_flight(flight);
    }
}

/* Takes the turn to download the block, if it can, with memory for it. */
static void take_turn(struct stk_block_flight *flight)
{
    struct stoker_cache *cache = flight->reader->cache;

    flight->turn_ns = stk_clock_ns();
    switch (stk_cache_disk_begin(stk_cache_disk_of(cache, &flight->block), &flight->block,
                                 &flight->fill)) {
    case STK_CACHE_TURN_MINE:
        start_download(flight);
        return;
    case STK_CACHE_TURN_BUSY:
        release_memory(flight);
        stk_cache_pace_return(&cache->pace, flight->block.bytes);
        poll_later(flight);
        return;
    case STK_CACHE_TURN_PRESENT:
        stk_cache_pace_return(&cache->pace, flight->block.bytes);
        requeue_flight(flight);
        return;
    case STK_CACHE_TURN_REFUSED:
    default:
        bypass_flight(flight);
        return;
    }
}

void stk_flight_start(struct stk_block_flight *flight)
{
    struct stk_cache_pace *pace = &flight->reader->cache->pace;
    uint64_t bytes = flight->block.bytes, then_ns;

    if (atomic_load_explicit(&flight->reader->closing, memory_order_relaxed)) {
        bypass_flight(flight); /* it has no parts any more */
        return;
    }
    then_ns = stk_cache_pace_take(pace, bytes, stk_clock_ns());
    if (then_ns > 0) {
        wait_for_rate(flight, then_ns);
        return;
    }
    switch (reserve_memory(flight)) {
    case MEMORY_LATER: /* another thread may have it by now */
        stk_cache_pace_return(pace, bytes);
        return;
    case MEMORY_NONE:
        stk_cache_pace_return(pace, bytes);
        bypass_flight(flight);
        return;
    case MEMORY_READY:
        take_turn(flight);
        return;
    }
}

/* On the reactor. */
static void on_download(struct stk_operation *operation, const struct stk_http_response *response)
{
    struct stk_block_flight *flight = (struct stk_block_flight *)(void *)operation;
    struct stk_block_reader *reader = flight->reader;

    (void)response;
    pthread_mutex_lock(&reader->lock);
    stk_flight_push_locked(&reader->locked.arrived, flight);
    stk_block_reader_signal_locked(reader);
    pthread_mutex_unlock(&reader->lock);
}

static void fail_flight(struct stk_block_flight *flight)
{
    struct stk_block_reader *reader = flight->reader;
    struct stk_range_part *waiters;

    if (flight->operation.status == STOKER_ERROR_CORRUPT) {
        forget(reader, flight->source);
    }
    pthread_mutex_lock(&reader->lock);
    waiters = remove_locked(flight);
    pthread_mutex_unlock(&reader->lock);
    end_list(waiters, flight->operation.status, &flight->operation.error);
    free_flight(flight);
}

/* Copies the downloaded bytes to the parts of a list. */
static void serve_list(const struct stk_block_flight *flight, struct stk_range_part *list)
{
    for (struct stk_range_part *next; list; list = next) {
        next = list->next;
        memcpy(list->operation.buffer,
               flight->buffer + (list->operation.offset - flight->block.offset),
               list->operation.bytes);
        stk_range_part_end(list, 0, NULL);
    }
}

bool stk_flight_is_damaged(const struct stk_block_flight *flight)
{
    struct stk_range_coverage *coverage = flight->source->coverage;

    return coverage && stk_range_coverage_is_mismatch(coverage);
}

/* The block has arrived: the waiting parts end first, then it is written. */
void stk_flight_finish(struct stk_block_flight *flight)
{
    struct stk_block_reader *reader = flight->reader;
    struct stk_cache_counters *counters = &reader->cache->counters;
    struct stk_range_part *waiters;

    if (flight->operation.status < 0) {
        fail_flight(flight);
        return;
    }
    flight->source->ops->add_checksums(flight->source, &flight->operation.seals);
    stk_cache_count(&counters->bytes_from_origin, flight->block.bytes);
    pthread_mutex_lock(&reader->lock);
    waiters = take_waiters_locked(flight);
    pthread_mutex_unlock(&reader->lock);
    serve_list(flight, waiters);
    if (stk_cache_disk_write(&flight->fill, &flight->block, flight->buffer) == 0) {
        stk_cache_count(&counters->blocks_filled, 1);
    }
    if (stk_flight_is_damaged(flight)) { /* parts of other reads came meanwhile */
        requeue_flight(flight);
        return;
    }
    pthread_mutex_lock(&reader->lock);
    waiters = remove_locked(flight);
    pthread_mutex_unlock(&reader->lock);
    serve_list(flight, waiters);
    free_flight(flight);
}

/* Another process downloads the block: looks whether it is there, and now and then whether that
 * process still works. Or the flight waits for the rate. */
void stk_flight_poll(struct stk_block_flight *flight)
{
    struct stoker_cache *cache = flight->reader->cache;
    struct stk_cache_disk *disk = stk_cache_disk_of(cache, &flight->block);
    uint64_t now = stk_clock_ns(), state = 0;
    uint32_t slot = stk_cache_index_find(&disk->index, &flight->block.key, &state);

    if (slot != STK_CACHE_NO_SLOT && stk_cache_state_kind(state) == STK_CACHE_VALID) {
        requeue_flight(flight);
    } else if ((flight->since_ns > 0 && now > flight->since_ns + WAIT_MAX_NS) ||
               atomic_load_explicit(&flight->reader->closing, memory_order_relaxed)) {
        bypass_flight(flight);
    } else if (slot == STK_CACHE_NO_SLOT || now > flight->turn_ns + TURN_NS) {
        stk_flight_start(flight);
    } else {
        poll_later(flight);
    }
}
