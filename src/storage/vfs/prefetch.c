/* Objects that are fetched into memory before they are read: the headers of a shard are scanned now
 * and its samples are read soon. See prefetch.h. */
#include "storage/vfs/prefetch.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "io/io.h"
#include "storage/range/block_reader.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define HEAD_BYTES (1u << 20) /* of the first block: about what arrives in one round trip */
#define BUCKETS 256u
#define BUDGET_SHARE 2u /* the prefetch may use one in so many bytes of the budget */
/* A block is used up when some bytes of each piece of this size were read, and all but one in so
 * many of its bytes: the rest are headers. If samples are smaller than a piece,
 * only the second condition counts. */
#define PIECE_BYTES (8u << 10)
#define CONSUMED_PART 8u
#define TRIM_PART 4u /* trim frees one in so many bytes */

struct transfer;

struct block {
    uint8_t *data; /* owned pages; NULL: absent, or the transfer has not allocated them yet */
    uint64_t consumed, pieces[STK_STORE_RANGE_BYTES / PIECE_BYTES / 64]; /* a bit each */
    uint32_t read_pieces;
    bool used_up;
    uint32_t users;            /* reads that copy from it */
    struct transfer *transfer; /* NULL: the block is full, or absent */
};

struct object {
    struct object *next, *newer;     /* in its bucket; of all objects */
    struct stk_range_source *source; /* retained */
    const void *owner;
    uint64_t key;
    struct stk_range_read *waiters; /* by arrived_next */
    uint32_t references;            /* of the table, of transfers, of reads that copy */
    uint32_t alive;                 /* blocks that are not absent */
    bool linked;                    /* in the table */
    bool entire;                    /* all blocks were requested: the coverage sees each byte */
    uint32_t count;
    struct block blocks[];
};

/* A range request that fills a block. It ends when the range has arrived and the pages of the block
 * were populated, which happens while the request is in flight. */
struct transfer {
    struct stk_range_read *read; /* NULL: not begun, or there was no memory */
    _Atomic uint32_t left;       /* of these two steps */
    struct transfer *next;       /* of the transfers that are to be started */
    struct stk_prefetch *prefetch;
    struct object *object;
    uint32_t block;
};

struct stk_prefetch {
    struct stk_budget *budget; /* the caller's */
    _Atomic uint32_t objects;  /* 0: reads need no lookup */
    pthread_mutex_t lock;
    pthread_cond_t all_arrived; /* no transfer is in flight; with lock */
    struct {
        uint32_t transfers;
        struct object *buckets[BUCKETS], *oldest, **newest;
        uint64_t bytes; /* reserved */
    } locked;
};

static void begin_transfers(struct transfer *transfer, struct stk_store *store);
static void allocate_pages(struct transfer *transfer);
static void on_range_done(struct transfer *transfer);
static void on_range(struct stk_range_read *read);

int stk_prefetch_open(struct stk_prefetch **prefetch_out, struct stk_budget *budget)
{
    struct stk_prefetch *prefetch = stk_alloc(1, sizeof *prefetch);

    if (!prefetch) {
        return -ENOMEM;
    }
    prefetch->budget = budget;
    prefetch->locked.newest = &prefetch->locked.oldest;
    pthread_mutex_init(&prefetch->lock, NULL);
    pthread_cond_init(&prefetch->all_arrived, NULL);
    *prefetch_out = prefetch;
    return 0;
}

uint64_t stk_prefetch_key(const struct stk_object_url *url, const struct stk_object_info *info)
{
    return stk_mix64(stk_xxh3_64(url->url, strlen(url->url)) ^
                     stk_mix64(stk_xxh3_64(info->etag, strlen(info->etag))) ^ info->bytes);
}

static bool is_same(const struct stk_range_source *a, const struct stk_range_source *b)
{
    return a->info.bytes == b->info.bytes && strcmp(a->info.etag, b->info.etag) == 0 &&
           strcmp(a->info.modified, b->info.modified) == 0 &&
           strcmp(a->object->url, b->object->url) == 0;
}

static struct object *find_locked(struct stk_prefetch *prefetch,
                                  const struct stk_range_source *source)
{
    struct object *object = prefetch->locked.buckets[source->key % BUCKETS];

    while (object && (object->key != source->key || !is_same(object->source, source))) {
        object = object->next;
    }
    return object;
}

/* ---- blocks: the first is small, the others have the size of a range ---- */

static uint32_t block_at(uint64_t offset)
{
    return offset < HEAD_BYTES ? 0 : 1 + (uint32_t)((offset - HEAD_BYTES) / STK_STORE_RANGE_BYTES);
}

static uint64_t block_begin(uint32_t block)
{
    return block == 0 ? 0 : HEAD_BYTES + (uint64_t)(block - 1) * STK_STORE_RANGE_BYTES;
}

static uint64_t block_bytes(const struct object *object, uint32_t block)
{
    return stk_min(block_begin(block + 1), object->source->info.bytes) - block_begin(block);
}

static uint64_t pages_bytes(const struct object *object, uint32_t block)
{
    return stk_round_up(block_bytes(object, block), STK_IO_ALIGN);
}

static bool is_absent(const struct block *block)
{
    return !block->data && !block->transfer;
}

static bool is_full(const struct block *block)
{
    return block->data && !block->transfer;
}

/* ---- freeing objects and blocks ---- */

/* Removes the object from the table. */
static void unlink_locked(struct stk_prefetch *prefetch, struct object *object)
{
    struct object **link = &prefetch->locked.buckets[object->key % BUCKETS];

    while (*link != object) {
        link = &(*link)->next;
    }
    *link = object->next;
    for (link = &prefetch->locked.oldest; *link != object; link = &(*link)->newer) {
    }
    *link = object->newer;
    if (prefetch->locked.newest == &object->newer) {
        prefetch->locked.newest = link;
    }
    object->linked = false;
    atomic_fetch_sub_explicit(&prefetch->objects, 1, memory_order_relaxed);
}

static void free_pages(struct stk_prefetch *prefetch, uint8_t *data, uint64_t bytes)
{
    stk_pages_free(data, bytes);
    stk_budget_release(prefetch->budget, bytes);
    pthread_mutex_lock(&prefetch->lock);
    prefetch->locked.bytes -= bytes;
    pthread_mutex_unlock(&prefetch->lock);
}

/* Frees an object without references. Returns the bytes of its pages. */
static uint64_t free_object(struct stk_prefetch *prefetch, struct object *object)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < object->count; i++) {
        if (!is_absent(&object->blocks[i])) {
            bytes += pages_bytes(object, i);
            free_pages(prefetch, object->blocks[i].data, pages_bytes(object, i));
        }
    }
    object->source->ops->release(object->source);
    stk_free(object);
    return bytes;
}

/* Drops a reference, releases the lock, and frees the object if that was the last reference. */
static uint64_t release_unlock(struct stk_prefetch *prefetch, struct object *object)
{
    bool last = --object->references == 0;

    pthread_mutex_unlock(&prefetch->lock);
    return last ? free_object(prefetch, object) : 0;
}

/* Frees the pages of a block without users, and removes an object without pages from the table.
 * Releases the lock. */
static void empty_unlock(struct stk_prefetch *prefetch, struct object *object, uint32_t i)
{
    uint64_t bytes = pages_bytes(object, i);
    uint8_t *data = object->blocks[i].data;

    object->blocks[i] = (struct block){0};
    if (--object->alive == 0 && object->linked) {
        unlink_locked(prefetch, object);
        object->references--; /* of the table; the caller has another one */
    }
    release_unlock(prefetch, object);
    free_pages(prefetch, data, bytes);
}

void stk_prefetch_close(struct stk_prefetch *prefetch, struct stk_store *store)
{
    if (!prefetch) {
        return;
    }
    stk_prefetch_release(prefetch, store, NULL);
    pthread_mutex_lock(&prefetch->lock);
    while (prefetch->locked.transfers > 0) { /* the reactor ends cancelled requests at once */
        pthread_cond_wait(&prefetch->all_arrived, &prefetch->lock);
    }
    pthread_mutex_unlock(&prefetch->lock);
    STK_ASSERT(prefetch->locked.bytes == 0);
    pthread_cond_destroy(&prefetch->all_arrived);
    pthread_mutex_destroy(&prefetch->lock);
    stk_free(prefetch);
}

/* ---- fetching ---- */

static struct object *new_object_locked(struct stk_prefetch *prefetch,
                                        struct stk_range_source *source, const void *owner)
{
    uint64_t bytes = source->info.bytes;
    bool fits = bytes <= prefetch->budget->bytes_max /
                             BUDGET_SHARE; /* else only the first block is fetched */
    uint32_t count = bytes == 0 ? 0 : fits ? 1 + block_at(bytes - 1) : 1;
    struct object *object =
        count ? stk_alloc(1, sizeof *object + count * sizeof object->blocks[0]) : NULL;

    if (!object) {
        return NULL;
    }
    object->source = source;
    source->ops->retain(source);
    object->owner = owner;
    object->key = source->key;
    object->count = count;
    object->references = 1;
    object->linked = true;
    object->next = prefetch->locked.buckets[object->key % BUCKETS];
    prefetch->locked.buckets[object->key % BUCKETS] = object;
    *prefetch->locked.newest = object;
    prefetch->locked.newest = &object->newer;
    atomic_fetch_add_explicit(&prefetch->objects, 1, memory_order_relaxed);
    return object;
}

/* Creates a transfer for each absent block among the first `count`, in order; or none if the memory
 * of all of them cannot be reserved. */
static struct transfer *start_locked(struct stk_prefetch *prefetch, struct object *object,
                                     uint32_t count)
{
    struct transfer *transfers = NULL, **tail = &transfers;
    uint64_t missing = 0, left;

    for (uint32_t i = 0; i < count; i++) {
        missing += is_absent(&object->blocks[i]) ? pages_bytes(object, i) : 0;
    }
    if (missing == 0 || missing > prefetch->budget->bytes_max / BUDGET_SHARE ||
        prefetch->locked.bytes > prefetch->budget->bytes_max / BUDGET_SHARE - missing ||
        !stk_budget_reserve(prefetch->budget, missing)) {
        return NULL;
    }
    left = missing;
    for (uint32_t i = 0; i < count; i++) {
        struct transfer *transfer =
            is_absent(&object->blocks[i]) ? stk_alloc(1, sizeof *transfer) : NULL;

        if (transfer) {
            *transfer =
                (struct transfer){.left = 2, .prefetch = prefetch, .object = object, .block = i};
            object->blocks[i].transfer = transfer;
            object->references++;
            object->alive++;
            prefetch->locked.transfers++;
            left -= pages_bytes(object, i);
            *tail = transfer;
            tail = &transfer->next;
        }
    }
    prefetch->locked.bytes += missing - left;
    stk_budget_release(prefetch->budget,
                       left); /* of blocks whose transfer could not be allocated */
    return transfers;
}

void stk_prefetch_start(struct stk_prefetch *prefetch, struct stk_store *store,
                        struct stk_range_source *source, const void *owner, bool entire)
{
    struct object *object;
    struct transfer *transfers = NULL, *next;

    pthread_mutex_lock(&prefetch->lock);
    object = find_locked(prefetch, source);
    object = object ? object : new_object_locked(prefetch, source, owner);
    if (object) {
        bool fits = block_at(source->info.bytes - 1) < object->count;

        transfers = start_locked(prefetch, object, !entire ? 1 : fits ? object->count : 0);
        object->entire = object->entire || (entire && transfers);
    }
    if (object && object->alive == 0) {
        unlink_locked(prefetch, object);
        release_unlock(prefetch, object);
    } else {
        pthread_mutex_unlock(&prefetch->lock);
    }
    for (struct transfer *transfer = transfers; transfer; transfer = transfer->next) {
        begin_transfers(transfer, store);
    }
    for (; transfers; transfers = next) {
        next = transfers->next;
        allocate_pages(transfers);
    }
}

static void begin_transfers(struct transfer *transfer, struct stk_store *store)
{
    struct object *object = transfer->object;
    uint8_t *data = stk_pages_reserve(pages_bytes(object, transfer->block));
    struct stk_range_read *read =
        data ? stk_range_read_new(object->source, block_begin(transfer->block),
                                  block_bytes(object, transfer->block), data)
             : NULL;

    pthread_mutex_lock(&transfer->prefetch->lock);
    object->blocks[transfer->block].data = data;
    transfer->read = read;
    pthread_mutex_unlock(&transfer->prefetch->lock);
    if (!read) {
        on_range_done(transfer); /* reads that wait for the block send their own request */
        return;
    }
    read->done = on_range;
    read->owner = transfer;
    stk_range_read_start(read, store);
}

static void allocate_pages(struct transfer *transfer)
{
    struct object *object = transfer->object;
    uint8_t *data = object->blocks[transfer->block].data; /* set by this thread */

    if (data) {
        stk_pages_populate(data, pages_bytes(object, transfer->block));
    }
    on_range_done(transfer);
}

/* Returns true if a block of the range is in flight. */
static bool is_in_flight(const struct object *object, uint64_t offset, uint64_t bytes)
{
    for (uint32_t i = block_at(offset); i <= block_at(offset + bytes - 1); i++) {
        if (i < object->count && object->blocks[i].transfer) {
            return true;
        }
    }
    return false;
}

/* Removes the waiting reads that have no block in flight any more. If the block failed, all reads
 * of it get its status. */
static struct stk_range_read *take_waiters_locked(struct object *object, uint32_t block, int status)
{
    struct stk_range_read *list = NULL, **link = &object->waiters, *read;

    while ((read = *link)) {
        bool missing =
            block >= block_at(read->offset) && block <= block_at(read->offset + read->bytes - 1);

        if (missing && status < 0 && status != STOKER_ERROR_CLOSED) {
            read->status = status;
        } else if (is_in_flight(object, read->offset, read->bytes)) {
            link = &read->arrived_next;
            continue;
        }
        *link = read->arrived_next;
        read->arrived_next = list;
        list = read;
    }
    return list;
}

/* On the thread that ends a read, or on the one that started the transfer: the second call ends it.
 */
static void on_range_done(struct transfer *transfer)
{
    struct stk_prefetch *prefetch = transfer->prefetch;
    struct object *object = transfer->object;
    struct stk_range_read *read = transfer->read, *waiters, *next;
    int status = read ? read->status : STOKER_ERROR_CLOSED;

    if (atomic_fetch_sub_explicit(&transfer->left, 1, memory_order_acq_rel) > 1) {
        return;
    }
    pthread_mutex_lock(&prefetch->lock);
    object->blocks[transfer->block].transfer = NULL;
    waiters = take_waiters_locked(object, transfer->block, status);
    if (status < 0) {
        empty_unlock(prefetch, object, transfer->block);
    } else {
        release_unlock(prefetch, object);
    }
    for (; waiters; waiters = next) {
        next = waiters->arrived_next;
        if (waiters->status < 0) {
            waiters->source->ops->set_error(waiters->source, &read->error);
        }
        waiters->done(waiters);
    }
    stk_range_read_free(read);
    stk_free(transfer);
    pthread_mutex_lock(&prefetch->lock);
    if (--prefetch->locked.transfers == 0) { /* under the lock: close waits for it */
        pthread_cond_signal(&prefetch->all_arrived);
    }
    pthread_mutex_unlock(&prefetch->lock);
}

static void on_range(struct stk_range_read *read)
{
    on_range_done(read->owner);
}

/* ---- reading ---- */

/* Returns NULL if the checksum of the object did not match: then reads send their own requests, and
 * report the error if it persists. */
static struct object *find_usable_locked(struct stk_prefetch *prefetch,
                                         const struct stk_range_source *source)
{
    struct object *object = find_locked(prefetch, source);
    struct stk_range_coverage *coverage = object ? object->source->coverage : NULL;

    return coverage && stk_range_coverage_is_mismatch(coverage) ? NULL : object;
}

struct stk_range_source *stk_prefetch_find_source(struct stk_prefetch *prefetch,
                                                  const struct stk_range_source *like)
{
    struct stk_range_source *source = NULL;
    struct object *object;

    pthread_mutex_lock(&prefetch->lock);
    object = find_usable_locked(prefetch, like); /* a damaged object is fetched again */
    if (object && object->entire && object->source->coverage) {
        source = object->source;
        source->ops->retain(source);
    }
    pthread_mutex_unlock(&prefetch->lock);
    return source;
}

bool stk_prefetch_has(struct stk_prefetch *prefetch, const struct stk_range_source *source,
                      uint64_t offset, uint64_t bytes)
{
    const struct object *object;
    bool has;

    if (atomic_load_explicit(&prefetch->objects, memory_order_relaxed) == 0 || bytes == 0 ||
        offset + bytes > source->info.bytes) {
        return false;
    }
    pthread_mutex_lock(&prefetch->lock);
    object = find_usable_locked(prefetch, source);
    has = object != NULL;
    for (uint32_t i = block_at(offset); has && i <= block_at(offset + bytes - 1); i++) {
        has = i < object->count && !is_absent(&object->blocks[i]);
    }
    pthread_mutex_unlock(&prefetch->lock);
    return has;
}

/* Adds a user to each block of the range if all of them are full; else returns NULL. */
static struct object *retain_locked(struct stk_prefetch *prefetch,
                                    const struct stk_range_source *source, uint32_t first,
                                    uint32_t last)
{
    struct object *object = find_usable_locked(prefetch, source);

    for (uint32_t i = first; object && i <= last; i++) {
        object = i < object->count && is_full(&object->blocks[i]) ? object : NULL;
    }
    for (uint32_t i = first; object && i <= last; i++) {
        object->blocks[i].users++;
        object->references++;
    }
    return object;
}

/* Marks [begin, end) of a block as read. Returns true if the block is used up. */
static bool is_consumed(struct block *block, uint64_t begin, uint64_t end, uint64_t bytes)
{
    for (uint64_t i = begin / PIECE_BYTES; i <= (end - 1) / PIECE_BYTES; i++) {
        uint64_t bit = 1ull << (i % 64);

        block->read_pieces += (block->pieces[i / 64] & bit) == 0;
        block->pieces[i / 64] |= bit;
    }
    block->consumed += end - begin;
    return block->read_pieces == (bytes + PIECE_BYTES - 1) / PIECE_BYTES &&
           block->consumed >= bytes - bytes / CONSUMED_PART;
}

/* Removes a user of a block. peeked: [begin, end) of it will be read again. */
static void release_bytes(struct stk_prefetch *prefetch, struct object *object, uint32_t i,
                          uint64_t begin, uint64_t end, bool peeked)
{
    struct block *block = &object->blocks[i];

    pthread_mutex_lock(&prefetch->lock);
    block->users--;
    block->used_up =
        block->used_up || (!peeked && is_consumed(block, begin, end, block_bytes(object, i)));
    if (block->users == 0 && block->used_up) {
        empty_unlock(prefetch, object, i);
    } else {
        release_unlock(prefetch, object);
    }
}

int64_t stk_prefetch_read(struct stk_prefetch *prefetch, const struct stk_range_source *source,
                          uint64_t offset, uint8_t *buffer, uint64_t bytes, bool peek)
{
    struct object *object;
    uint32_t first, last;

    if (atomic_load_explicit(&prefetch->objects, memory_order_relaxed) == 0 || bytes == 0 ||
        offset >= source->info.bytes) {
        return -EAGAIN;
    }
    bytes = stk_min(bytes, source->info.bytes - offset);
    first = block_at(offset);
    last = block_at(offset + bytes - 1);
    pthread_mutex_lock(&prefetch->lock);
    object = retain_locked(prefetch, source, first, last);
    pthread_mutex_unlock(&prefetch->lock);
    if (!object) {
        return -EAGAIN;
    }
    for (uint32_t i = first; i <= last; i++) {
        uint64_t at = block_begin(i), begin = stk_max(offset, at);
        uint64_t end = stk_min(offset + bytes, at + block_bytes(object, i));

        memcpy(buffer + (begin - offset), object->blocks[i].data + (begin - at), end - begin);
        release_bytes(prefetch, object, i, begin - at, end - at,
                      peek); /* the last one may free the object */
    }
    return (int64_t)bytes;
}

bool stk_prefetch_wait(struct stk_prefetch *prefetch, struct stk_range_read *read)
{
    struct object *object;
    bool waits;

    pthread_mutex_lock(&prefetch->lock);
    object = find_locked(prefetch, read->source);
    waits = object && is_in_flight(object, read->offset, read->bytes);
    if (waits) {
        read->arrived_next = object->waiters;
        object->waiters = read;
    }
    pthread_mutex_unlock(&prefetch->lock);
    return waits;
}

bool stk_prefetch_cancel_wait(struct stk_prefetch *prefetch, struct stk_range_read *read)
{
    struct object *object;
    struct stk_range_read **link;
    bool found = false;

    pthread_mutex_lock(&prefetch->lock);
    object = find_locked(prefetch, read->source);
    for (link = object ? &object->waiters : NULL; link && *link && !found;) {
        found = *link == read;
        if (found) {
            *link = read->arrived_next;
        } else {
            link = &(*link)->arrived_next;
        }
    }
    pthread_mutex_unlock(&prefetch->lock);
    return found;
}

/* ---- releasing ---- */

/* Removes the next object of an owner (NULL: of any) from the table and cancels its transfers. */
static struct object *take_locked(struct stk_prefetch *prefetch, const void *owner)
{
    struct object *object = prefetch->locked.oldest;

    while (object && owner && object->owner != owner) {
        object = object->newer;
    }
    if (object) {
        unlink_locked(prefetch, object);
        for (uint32_t i = 0; i < object->count; i++) {
            if (object->blocks[i].transfer && object->blocks[i].transfer->read) {
                stk_range_read_cancel(object->blocks[i].transfer->read);
            }
        }
    }
    return object;
}

void stk_prefetch_release(struct stk_prefetch *prefetch, struct stk_store *store, const void *owner)
{
    struct stk_block_reader *reader = NULL;
    struct object *object;
    bool some = false;

    pthread_mutex_lock(&prefetch->lock);
    while ((object = take_locked(prefetch, owner))) {
        some = true;
        reader = object->source->reader ? object->source->reader : reader;
        release_unlock(prefetch, object); /* transfers in flight hold references */
        pthread_mutex_lock(&prefetch->lock);
    }
    pthread_mutex_unlock(&prefetch->lock);
    if (some && store) {
        stk_store_cancel_marked(store);
    }
    stk_block_reader_cancel_marked(reader);
}

uint64_t stk_prefetch_trim(struct stk_prefetch *prefetch)
{
    struct object *object, *next;
    uint64_t bytes = 0, missing;

    pthread_mutex_lock(&prefetch->lock);
    missing = prefetch->locked.bytes / TRIM_PART;
    for (object = prefetch->locked.oldest; object && bytes <= missing; object = next) {
        next = object->newer;
        if (object->references > 1) { /* in use, or in flight */
            continue;
        }
        unlink_locked(prefetch, object);
        bytes += release_unlock(prefetch, object);
        pthread_mutex_lock(&prefetch->lock);
        next = prefetch->locked.oldest; /* other threads may have removed objects */
    }
    pthread_mutex_unlock(&prefetch->lock);
    return bytes;
}
