/* Requests ranges of files at their first use, or ahead, and caches them. */
#include "engine/range_cache.h"

#include "base/mem.h"
#include "base/thread.h"

#include <errno.h>
#include <string.h>

#define REGION_BYTES STK_RANGE_BYTES_MAX /* no range crosses a multiple of it */
#define BUCKETS_MIN 64u
#define BUCKETS_MAX 65536u
#define BUCKET_BYTES 65536u /* one bucket for so many bytes of the cache */
#define TRIM_PART 8u
#define SLICE_MS 100u /* after which a waiting thread looks whether it is cancelled */
#define REAP_MS 1000u

enum state { QUEUED, LOADING, READY };

struct range {
    struct range *next_in_bucket;
    struct range *newer, *older; /* ready: by use; queued: the next and the previous one */
    const struct stk_range_file *file;
    uint64_t begin, end; /* in the file */
    uint8_t state;       /* enum state */
    bool wanted;         /* prefetched, and not read yet */
    struct stk_read read;
    uint8_t data[];
};

struct list {
    struct range *newest, *oldest;
};

struct stk_range_cache {
    struct stk_memory_holder holder; /* first: the engine's view of it */
    struct stoker_engine *engine;    /* constant after open, as all members up to the lock */
    uint64_t bytes_max;
    uint32_t bucket_count; /* a power of 2 */
    struct stk_queue *queue;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;    /* a range was loaded or failed; monotonic clock; with lock */
    _Atomic uint32_t unit_min; /* of reads */
    struct {
        struct range **buckets;
        struct list ready, queued;
        uint64_t wanted_bytes; /* of wanted ranges, in each state */
        bool sleeping;         /* the thread, until it is woken */
        bool stopping;
        struct stk_range_cache_stats stats;
    } locked;
};

/* ---- lists ---- */

static void list_push(struct list *list, struct range *range)
{
    range->newer = NULL;
    range->older = list->newest;
    if (list->newest) {
        list->newest->newer = range;
    } else {
        list->oldest = range;
    }
    list->newest = range;
}

static void list_remove(struct list *list, struct range *range)
{
    if (range->newer) {
        range->newer->older = range->older;
    } else {
        list->newest = range->older;
    }
    if (range->older) {
        range->older->newer = range->newer;
    } else {
        list->oldest = range->newer;
    }
}

static struct range **bucket_of(struct stk_range_cache *cache, const struct stk_range_file *file,
                                uint64_t offset)
{
    uint64_t key = (offset / REGION_BYTES) * UINT64_C(0x9e3779b97f4a7c15) +
                   file->number * UINT64_C(0xd6e8feb86659fd93);

    return &cache->locked.buckets[(key >> 32) & (cache->bucket_count - 1)];
}

/* Returns the range that has the byte at the offset; or NULL, and limits [*begin, *end), which has
 * it, too, to bytes that no range has. */
static struct range *find_locked(struct stk_range_cache *cache, const struct stk_range_file *file,
                                 uint64_t offset, uint64_t *begin, uint64_t *end)
{
    for (struct range *it = *bucket_of(cache, file, offset); it; it = it->next_in_bucket) {
        if (it->file->number != file->number) {
            continue;
        }
        if (it->begin <= offset && offset < it->end) {
            return it;
        }
        if (it->end <= offset) {
            *begin = stk_max(*begin, it->end);
        } else {
            *end = stk_min(*end, it->begin);
        }
    }
    return NULL;
}

/* ---- memory ---- */

static uint64_t memory_of(const struct range *range)
{
    return sizeof *range + (range->end - range->begin);
}

static void unwant_locked(struct stk_range_cache *cache, struct range *range)
{
    if (range->wanted) {
        range->wanted = false;
        cache->locked.wanted_bytes -= memory_of(range);
    }
}

/* Frees a range, which is in no list but that of its bucket. */
static void drop_locked(struct stk_range_cache *cache, struct range *range)
{
    struct range **link = bucket_of(cache, range->file, range->begin);
    uint64_t bytes = memory_of(range);

    while (*link != range) {
        link = &(*link)->next_in_bucket;
    }
    *link = range->next_in_bucket;
    unwant_locked(cache, range);
    cache->locked.stats.bytes -= bytes;
    stk_budget_release(&cache->engine->budget, bytes);
    stk_free(range);
}

/* Evicts the range whose last use is longest ago. keep_wanted: not a wanted one. */
static bool evict_locked(struct stk_range_cache *cache, bool keep_wanted)
{
    struct range *range = cache->locked.ready.oldest;

    while (range && keep_wanted && range->wanted) {
        range = range->newer;
    }
    if (!range) {
        return false;
    }
    list_remove(&cache->locked.ready, range);
    drop_locked(cache, range);
    return true;
}

/* Reserves memory for a range, for which others are evicted. A prefetch evicts no wanted
 * range. A caller may exceed the bound once all others are evicted. */
static int reserve_locked(struct stk_range_cache *cache, uint64_t bytes, bool ahead,
                          struct stoker_error *error)
{
    struct stk_budget *budget = &cache->engine->budget;

    while (bytes > cache->bytes_max || cache->locked.stats.bytes > cache->bytes_max - bytes ||
           !stk_budget_reserve(budget, bytes)) {
        if (!evict_locked(cache, ahead)) {
            return ahead ? STOKER_ERROR_BUDGET
                         : stk_engine_reserve(cache->engine, bytes, 0, "bytes of a remote file",
                                              error);
        }
    }
    return 0;
}

/* Adds a range of bytes that no range has. Returns 0 on success, STOKER_ERROR_BUDGET or -ENOMEM. */
static int add_locked(struct stk_range_cache *cache, const struct range *like, bool ahead,
                      struct range **range_out, struct stoker_error *error)
{
    uint64_t bytes = memory_of(like);
    struct range **bucket = bucket_of(cache, like->file, like->begin), *range;
    int status = reserve_locked(cache, bytes, ahead, error);

    if (status < 0) {
        return status;
    }
    range = stk_alloc(bytes, 1);
    if (!range) {
        stk_budget_release(&cache->engine->budget, bytes);
        return stk_fail(error, -ENOMEM, "cannot read a remote file", "free memory", "%llu bytes",
                        (unsigned long long)bytes);
    }
    *range = *like;
    range->next_in_bucket = *bucket;
    *bucket = range;
    range->wanted = ahead;
    cache->locked.wanted_bytes += ahead ? bytes : 0;
    cache->locked.stats.bytes += bytes;
    cache->locked.stats.bytes_peak =
        stk_max(cache->locked.stats.bytes_peak, cache->locked.stats.bytes);
    cache->locked.stats.bytes_requested += range->end - range->begin;
    cache->locked.stats.requests++;
    cache->locked.stats.requests_ahead += ahead;
    *range_out = range;
    return 0;
}

/* A range was loaded, or failed. */
static void end_locked(struct stk_range_cache *cache, struct range *range, int64_t result)
{
    if (result == (int64_t)(range->end - range->begin)) {
        range->state = READY;
        list_push(&cache->locked.ready, range);
    } else {
        drop_locked(cache, range);
    }
    pthread_cond_broadcast(&cache->changed);
}

/* The bytes that are to be requested together, for the first ones of a wish. */
static struct range span_of(const struct stk_range_file *file, const struct stk_range_wish *wish)
{
    uint64_t region = wish->offset / REGION_BYTES * REGION_BYTES;
    uint64_t unit = stk_max(wish->unit, 1);
    uint64_t begin = wish->offset / unit * unit;
    uint64_t end = stk_round_up(wish->offset + wish->bytes, unit);

    if (end < wish->end && wish->end - end < unit / 2) { /* not worth a request of its own */
        end = wish->end;
    }
    return (struct range){.file = file,
                          .begin = stk_max(begin, wish->begin),
                          .end = stk_min(stk_min(end, wish->end), region + REGION_BYTES)};
}

/* ---- reads ---- */

static int fail_read(const struct range *range, int64_t got, struct stoker_error *error)
{
    int status = (int)got;

    if (got >= 0) {
        status = stk_fail(error, STOKER_ERROR_CHANGED, "a remote file is shorter than at open",
                          "wait until the file is written, then open it again",
                          "%llu bytes wanted, %lld there",
                          (unsigned long long)(range->end - range->begin), (long long)got);
    } else {
        stk_io_fail_read(range->file->file, got, "cannot read", error);
    }
    stk_error_set_location(error, range->file->path, range->begin, NULL);
    return status;
}

/* Requests a range in this thread. Releases the lock meanwhile. */
static int load_locked(struct stk_range_cache *cache, struct range *range,
                       struct stoker_error *error)
{
    uint64_t bytes = range->end - range->begin;
    int status = 0;
    int64_t got;

    range->state = LOADING;
    pthread_mutex_unlock(&cache->lock);
    got = stk_io_read_wait(range->file->file, range->begin, range->data, bytes);
    if (got != (int64_t)bytes) {
        status = fail_read(range, got, error);
    }
    pthread_mutex_lock(&cache->lock);
    end_locked(cache, range, got);
    return status;
}

/* Waits for a thread that loads some range. */
static int wait_locked(struct stk_range_cache *cache, uint64_t begin_ns, struct stoker_error *error)
{
    const _Atomic bool *cancel = stk_io_cancel_flag();
    struct timespec until = stk_engine_deadline(SLICE_MS * UINT64_C(1000000));
    uint64_t now_ns = stk_engine_now(cache->engine);

    if (cancel && atomic_load_explicit(cancel, memory_order_relaxed)) {
        return stk_fail(error, STOKER_ERROR_CLOSED, "a read was cancelled", "open the files again",
                        "a remote file");
    }
    if (now_ns - begin_ns > STK_RANGE_CACHE_WAIT_MS * UINT64_C(1000000)) {
        return stk_fail(error, STOKER_ERROR_TIMEOUT, "a remote file was not read in time",
                        "check that the store responds", "%u ms", STK_RANGE_CACHE_WAIT_MS);
    }
    pthread_cond_timedwait(&cache->changed, &cache->lock, &until);
    return 0;
}

/* Copies as many of the bytes as one range has; if there is none, requests the span. Returns their
 * number, or a status below 0; 0: look again. */
static int64_t read_some_locked(struct stk_range_cache *cache, const struct range *wanted,
                                const struct stk_range_wish *wish, uint8_t *out,
                                struct stoker_error *error)
{
    struct range span = *wanted;
    struct range *range = find_locked(cache, span.file, wish->offset, &span.begin, &span.end);
    uint64_t bytes;
    int status;

    if (!range) {
        status = add_locked(cache, &span, false, &range, error);
        return status < 0 ? status : load_locked(cache, range, error);
    }
    unwant_locked(cache, range);
    if (range->state == QUEUED) { /* it is needed now */
        list_remove(&cache->locked.queued, range);
        return load_locked(cache, range, error);
    }
    if (range->state == LOADING) {
        return 0;
    }
    bytes = stk_min(wish->bytes, range->end - wish->offset);
    memcpy(out, range->data + (wish->offset - range->begin), bytes);
    list_remove(&cache->locked.ready, range);
    list_push(&cache->locked.ready, range);
    return (int64_t)bytes;
}

int stk_range_cache_read(struct stk_range_cache *cache, const struct stk_range_file *file,
                         const struct stk_range_wish *given, uint8_t *out,
                         struct stoker_error *error)
{
    uint32_t unit_min = atomic_load_explicit(&cache->unit_min, memory_order_relaxed);
    struct stk_range_wish wish = {.offset = given->offset,
                                  .bytes = given->bytes,
                                  .unit = stk_max(given->unit, unit_min),
                                  .end = file->bytes};
    uint64_t last = wish.offset + wish.bytes - 1, begin_ns = 0;
    int status = 0;

    STK_ASSERT(wish.offset <= file->bytes && wish.bytes <= file->bytes - wish.offset);
    if (wish.bytes > 0 && wish.offset / REGION_BYTES != last / REGION_BYTES) {
        (void)stk_range_cache_prefetch(cache, file, &wish);
    }
    pthread_mutex_lock(&cache->lock);
    while (status == 0 && wish.bytes > 0) {
        struct range span = span_of(file, &wish), *range;
        int64_t got = read_some_locked(cache, &span, &wish, out, error);

        status = got < 0 ? (int)got : 0;
        if (got > 0) {
            out += got;
            wish.offset += (uint64_t)got;
            wish.bytes -= (uint64_t)got;
            continue;
        }
        range = status == 0 ? find_locked(cache, file, wish.offset, &span.begin, &span.end) : NULL;
        if (range && range->state == LOADING) {
            begin_ns = begin_ns ? begin_ns : stk_engine_now(cache->engine);
            status = wait_locked(cache, begin_ns, error);
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return status;
}

void stk_range_cache_set_unit_min(struct stk_range_cache *cache, uint32_t unit)
{
    if (cache) { /* relaxed: only a hint */
        atomic_store_explicit(&cache->unit_min, unit, memory_order_relaxed);
    }
}

/* ---- ahead ---- */

/* Queues the request that has the byte at the offset, unless it is cached or requested already.
 * Sets *end_out to the end of its bytes. Returns false if there is no space. */
static bool prefetch_some_locked(struct stk_range_cache *cache, const struct range *wanted,
                                 uint64_t offset, uint64_t *end_out)
{
    struct range span = *wanted;
    struct range *range = find_locked(cache, span.file, offset, &span.begin, &span.end);
    uint64_t half = cache->bytes_max / 2, memory = memory_of(&span);

    if (range) {
        *end_out = range->end;
        if (range->state == READY) { /* it becomes the newest one */
            list_remove(&cache->locked.ready, range);
            list_push(&cache->locked.ready, range);
        }
        return true;
    }
    *end_out = span.end;
    if (memory > half || cache->locked.wanted_bytes > half - memory ||
        add_locked(cache, &span, true, &range, NULL) < 0) {
        return false;
    }
    range->state = QUEUED;
    list_push(&cache->locked.queued, range);
    return true;
}

bool stk_range_cache_prefetch(struct stk_range_cache *cache, const struct stk_range_file *file,
                              const struct stk_range_wish *given)
{
    struct stk_range_wish wish = *given;
    bool admitted = true, wake;

    STK_ASSERT(wish.begin <= wish.offset && wish.end <= file->bytes && wish.offset <= wish.end &&
               wish.bytes <= wish.end - wish.offset);
    pthread_mutex_lock(&cache->lock);
    while (admitted && wish.bytes > 0) {
        struct range span = span_of(file, &wish);
        uint64_t end = wish.offset;

        admitted = prefetch_some_locked(cache, &span, wish.offset, &end);
        wish.bytes -= stk_min(wish.bytes, end - wish.offset);
        wish.offset = end;
    }
    wake = cache->locked.sleeping && cache->locked.queued.oldest;
    cache->locked.sleeping = cache->locked.sleeping && !wake;
    pthread_mutex_unlock(&cache->lock);
    if (wake) {
        stk_io_wake(cache->engine->io, cache->queue);
    }
    return admitted;
}

void stk_range_cache_forget(struct stk_range_cache *cache)
{
    struct range *range;

    pthread_mutex_lock(&cache->lock);
    while ((range = cache->locked.queued.oldest) != NULL) {
        list_remove(&cache->locked.queued, range);
        cache->locked.stats.bytes_requested -= range->end - range->begin;
        cache->locked.stats.requests--;
        cache->locked.stats.requests_ahead--;
        drop_locked(cache, range);
    }
    for (uint32_t i = 0; cache->locked.wanted_bytes > 0 && i < cache->bucket_count; i++) {
        for (range = cache->locked.buckets[i]; range; range = range->next_in_bucket) {
            unwant_locked(cache, range);
        }
    }
    pthread_cond_broadcast(&cache->changed);
    pthread_mutex_unlock(&cache->lock);
}

/* Takes queued ranges, at most `space`. Returns them as a list of reads. */
static struct stk_read *take_queued_locked(struct stk_range_cache *cache, uint32_t space)
{
    struct stk_read *first = NULL, **tail = &first;

    while (space-- > 0 && cache->locked.queued.oldest) {
        struct range *range = cache->locked.queued.oldest;
        uint32_t bytes = (uint32_t)(range->end - range->begin);

        list_remove(&cache->locked.queued, range);
        range->state = LOADING;
        range->read = (struct stk_read){.file = range->file->file,
                                        .offset = range->begin,
                                        .buffer = range->data,
                                        .bytes = bytes,
                                        .capacity = bytes,
                                        .owner = range};
        *tail = &range->read;
        tail = &range->read.next;
    }
    return first;
}

static void end_reads_locked(struct stk_range_cache *cache, struct stk_read *reads)
{
    while (reads) {
        struct stk_read *read = reads;

        reads = read->next;
        end_locked(cache, read->owner, read->result);
    }
}

static uint32_t count_of(const struct stk_read *reads)
{
    uint32_t count = 0;

    for (; reads; reads = reads->next) {
        count++;
    }
    return count;
}

/* Submits reads. Returns how many the queue took; the others are queued again. */
static uint32_t submit(struct stk_range_cache *cache, struct stk_read *reads)
{
    int taken = reads ? stk_io_submit(cache->engine->io, cache->queue, reads) : 0;
    struct stk_read *rest = reads;

    for (int i = 0; i < taken; i++) {
        rest = rest->next;
    }
    pthread_mutex_lock(&cache->lock);
    for (; rest; rest = rest->next) {
        struct range *range = rest->owner;

        range->state = QUEUED;
        list_push(&cache->locked.queued, range);
    }
    pthread_cond_broadcast(&cache->changed);
    pthread_mutex_unlock(&cache->lock);
    return (uint32_t)stk_max(taken, 0);
}

static void *range_cache_main(void *context)
{
    struct stk_range_cache *cache = context;
    uint32_t in_flight = 0, depth = cache->engine->remote_depth;

    pthread_setname_np(pthread_self(), "stoker-ranges");
    pthread_mutex_lock(&cache->lock);
    while (!cache->locked.stopping) {
        struct stk_read *reads = take_queued_locked(cache, depth - in_flight);

        cache->locked.sleeping = in_flight + count_of(reads) < depth;
        pthread_mutex_unlock(&cache->lock);
        in_flight += submit(cache, reads);
        reads = stk_io_reap(cache->engine->io, cache->queue, REAP_MS);
        in_flight -= count_of(reads);
        pthread_mutex_lock(&cache->lock);
        end_reads_locked(cache, reads);
    }
    pthread_mutex_unlock(&cache->lock);
    return NULL;
}

/* ---- open and close ---- */

static uint64_t trim_own_locked(struct stk_range_cache *cache)
{
    uint64_t before = cache->locked.stats.bytes;

    while (before > 0 && cache->locked.stats.bytes > before - before / TRIM_PART &&
           (evict_locked(cache, true) || evict_locked(cache, false))) {
    }
    return before - cache->locked.stats.bytes;
}

uint64_t stk_range_cache_trim(struct stk_range_cache *cache)
{
    uint64_t bytes = 0;

    if (cache) {
        pthread_mutex_lock(&cache->lock);
        bytes = trim_own_locked(cache);
        pthread_mutex_unlock(&cache->lock);
    }
    return bytes;
}

/* With the engine's lock, which is taken after this cache's: if that one is held, nothing is
 * evicted. */
static uint64_t trim_locked(struct stk_memory_holder *holder)
{
    struct stk_range_cache *cache = (struct stk_range_cache *)(void *)holder;
    uint64_t bytes = 0;

    if (pthread_mutex_trylock(&cache->lock) == 0) {
        bytes = trim_own_locked(cache);
        pthread_mutex_unlock(&cache->lock);
    }
    return bytes;
}

int stk_range_cache_open(struct stk_range_cache **cache_out, struct stoker_engine *engine,
                         uint64_t bytes_max, struct stoker_error *error)
{
    struct stk_range_cache *cache = stk_alloc(1, sizeof *cache);
    int status;

    *cache_out = NULL;
    if (!cache) {
        return stk_fail_memory(error, "a cache of remote files");
    }
    cache->holder.trim_locked = trim_locked;
    cache->engine = engine;
    cache->bytes_max = bytes_max;
    cache->bucket_count = BUCKETS_MIN;
    while (cache->bucket_count < BUCKETS_MAX && cache->bucket_count < bytes_max / BUCKET_BYTES) {
        cache->bucket_count *= 2;
    }
    cache->locked.buckets = stk_alloc(cache->bucket_count, sizeof(struct range *));
    if (!cache->locked.buckets) {
        stk_free(cache);
        return stk_fail_memory(error, "a cache of remote files");
    }
    status = stk_io_queue_open(engine->io, &cache->queue, error);
    if (status < 0) {
        stk_free(cache->locked.buckets);
        stk_free(cache);
        return status;
    }
    pthread_mutex_init(&cache->lock, NULL);
    stk_cond_init(&cache->changed);
    stk_engine_add_memory_holder(engine, &cache->holder);
    status = stk_thread_start(&cache->thread, NULL, range_cache_main, cache);
    if (status < 0) {
        cache->locked.stopping = true;
        stk_range_cache_close(cache);
        return stk_fail(error, status, "cannot start a thread", "raise the limit of threads",
                        "a cache of remote files");
    }
    *cache_out = cache;
    return 0;
}

void stk_range_cache_close(struct stk_range_cache *cache)
{
    bool has_thread;

    if (!cache) {
        return;
    }
    stk_engine_remove_memory_holder(cache->engine, &cache->holder);
    pthread_mutex_lock(&cache->lock);
    has_thread = !cache->locked.stopping;
    cache->locked.stopping = true;
    pthread_mutex_unlock(&cache->lock);
    if (has_thread) {
        stk_io_wake(cache->engine->io, cache->queue);
        pthread_join(cache->thread, NULL);
    }
    stk_io_queue_close(cache->engine->io, cache->queue);
    for (uint32_t i = 0; i < cache->bucket_count; i++) {
        while (cache->locked.buckets[i]) {
            drop_locked(cache, cache->locked.buckets[i]);
        }
    }
    STK_ASSERT(cache->locked.stats.bytes == 0);
    pthread_cond_destroy(&cache->changed);
    pthread_mutex_destroy(&cache->lock);
    stk_free(cache->locked.buckets);
    stk_free(cache);
}

void stk_range_cache_stats(struct stk_range_cache *cache, struct stk_range_cache_stats *stats_out)
{
    pthread_mutex_lock(&cache->lock);
    *stats_out = cache->locked.stats;
    pthread_mutex_unlock(&cache->lock);
}
