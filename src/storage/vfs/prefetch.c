/* Objects that are kept in memory: brought whole by large ranges side by side, because their
 * headers are walked now and their samples are asked for soon. What was given out is let go.
 *
 *   block: absent --bring--> flying --came--> full --given out, or trimmed--> absent
 *                               `--failed--> absent: who waits for it is told
 */
#include "storage/vfs/remote_file.h"

#include "base/mem.h"
#include "base/memory_budget.h"
#include "base/memory_pages.h"
#include "base/random.h"
#include "base/xxh3.h"

#include <errno.h>
#include <string.h>

#define HEAD_BYTES STK_VFS_ROUND_TRIP_BYTES /* the first block: tells whether more is worth it */
#define BUCKETS 256u
#define BUDGET_SHARE 2u /* one in so many bytes of the budget may be kept */
/* A block is used up when something of each such piece was given out, and all but one in so many of
 * its bytes: the rest are headers. Of samples that are smaller than a piece nothing can be told. */
#define PIECE_BYTES (8u << 10)
#define CONSUMED_PART 8u
#define TRIM_PART 4u /* one in so many bytes is given back at a time */

struct transfer;

struct block {
    uint8_t *data; /* owned pages; NULL: absent, or a flight has not got them yet */
    uint64_t consumed, pieces[STK_STORE_RANGE_BYTES / PIECE_BYTES / 64]; /* a bit each */
    uint32_t given_pieces;
    bool used_up;
    uint32_t users;            /* who copy from it */
    struct transfer *transfer; /* NULL: it is full, or absent */
};

struct object {
    struct object *next, *newer;    /* of its bucket; of all */
    struct stk_remote_file *remote; /* a user of it */
    const void *owner;
    uint64_t key;
    struct stk_range_read *waiters; /* by arrived_next */
    uint32_t references;            /* the table's, of flights, of who copies */
    uint32_t alive;                 /* blocks with data */
    bool linked;                    /* in the table */
    bool whole;                     /* all of it was asked for: its remote's cover sees each byte */
    uint32_t count;
    struct block blocks[];
};

/* A range on its way to a block. It is over when it has come and the block's pages were filled:
 * they are while it is waited for. */
struct transfer {
    struct stk_operation operation; /* first */
    _Atomic uint32_t left;          /* of both */
    struct transfer *next;          /* of those that are to be started */
    struct stk_prefetch *prefetch;
    struct object *object;
    uint32_t block;
};

struct stk_prefetch {
    struct stk_budget *budget; /* lent */
    _Atomic uint32_t objects;  /* 0: nothing is looked for */
    pthread_mutex_t lock;
    pthread_cond_t all_arrived; /* the last flight; with lock */
    struct {
        uint32_t flights;
        struct object *buckets[BUCKETS], *oldest, **newest;
        uint64_t bytes; /* reserved */
    } locked;
};

static void begin_transfers(struct transfer *transfer, struct stk_store *store);
static void allocate_pages(struct transfer *transfer);
static void on_range_done(struct transfer *transfer);
static void on_range(struct stk_operation *operation, const struct stk_http_response *answer);

int stk_prefetch_open(struct stk_prefetch **kept_out, struct stk_budget *budget)
{
    struct stk_prefetch *prefetch = stk_alloc(1, sizeof *prefetch);

    if (!prefetch) {
        return -ENOMEM;
    }
    prefetch->budget = budget;
    prefetch->locked.newest = &prefetch->locked.oldest;
    pthread_mutex_init(&prefetch->lock, NULL);
    pthread_cond_init(&prefetch->all_arrived, NULL);
    *kept_out = prefetch;
    return 0;
}

uint64_t stk_prefetch_key(const struct stk_object_url *place, const struct stk_object_info *info)
{
    return stk_mix64(stk_xxh3_64(place->url, strlen(place->url)) ^
                     stk_mix64(stk_xxh3_64(info->etag, strlen(info->etag))) ^ info->bytes);
}

static bool is_same(const struct stk_remote_file *a, const struct stk_remote_file *b)
{
    return a->info.bytes == b->info.bytes && strcmp(a->info.etag, b->info.etag) == 0 &&
           strcmp(a->info.modified, b->info.modified) == 0 &&
           strcmp(a->object->url, b->object->url) == 0;
}

static struct object *find_locked(struct stk_prefetch *prefetch,
                                  const struct stk_remote_file *remote)
{
    struct object *object = prefetch->locked.buckets[remote->key % BUCKETS];

    while (object && (object->key != remote->key || !is_same(object->remote, remote))) {
        object = object->next;
    }
    return object;
}

/* ---- blocks: a small one, then such as a range is large ---- */

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
    return stk_min(block_begin(block + 1), object->remote->info.bytes) - block_begin(block);
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

/* ---- objects and blocks that go ---- */

/* Out of the table: nobody finds it any more. */
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

/* Nobody knows it any more. The bytes that came free. */
static uint64_t free_object(struct stk_prefetch *prefetch, struct object *object)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < object->count; i++) {
        if (!is_absent(&object->blocks[i])) {
            bytes += pages_bytes(object, i);
            free_pages(prefetch, object->blocks[i].data, pages_bytes(object, i));
        }
    }
    stk_remote_file_release(object->remote);
    stk_free(object);
    return bytes;
}

/* Lets the lock go, and frees the object if that was the last one. */
static uint64_t release_unlock(struct stk_prefetch *prefetch, struct object *object)
{
    bool last = --object->references == 0;

    pthread_mutex_unlock(&prefetch->lock);
    return last ? free_object(prefetch, object) : 0;
}

/* Takes the pages of a block that nobody uses; an object without any is none. Lets the lock go. */
static void empty_unlock(struct stk_prefetch *prefetch, struct object *object, uint32_t i)
{
    uint64_t bytes = pages_bytes(object, i);
    uint8_t *data = object->blocks[i].data;

    object->blocks[i] = (struct block){0};
    if (--object->alive == 0 && object->linked) {
        unlink_locked(prefetch, object);
        object->references--; /* the table's; the caller has another */
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
    while (prefetch->locked.flights > 0) { /* the reactor ends what was stopped at once */
        pthread_cond_wait(&prefetch->all_arrived, &prefetch->lock);
    }
    pthread_mutex_unlock(&prefetch->lock);
    STK_ASSERT(prefetch->locked.bytes == 0);
    pthread_cond_destroy(&prefetch->all_arrived);
    pthread_mutex_destroy(&prefetch->lock);
    stk_free(prefetch);
}

/* ---- bringing ---- */

static struct object *new_object_locked(struct stk_prefetch *prefetch,
                                        struct stk_remote_file *remote, const void *owner)
{
    uint64_t bytes = remote->info.bytes;
    bool fits = bytes <= prefetch->budget->bytes_max /
                             BUDGET_SHARE; /* else no more than the first block is */
    uint32_t count = bytes == 0 ? 0 : fits ? 1 + block_at(bytes - 1) : 1;
    struct object *object =
        count ? stk_alloc(1, sizeof *object + count * sizeof object->blocks[0]) : NULL;

    if (!object) {
        return NULL;
    }
    object->remote = remote;
    atomic_fetch_add_explicit(&remote->users, 1, memory_order_relaxed);
    object->owner = owner;
    object->key = remote->key;
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

/* A flight to each of the first `count` blocks that are absent, in order, or to none. */
static struct transfer *start_locked(struct stk_prefetch *prefetch, struct object *object,
                                     uint32_t count)
{
    struct transfer *flights = NULL, **tail = &flights;
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
            prefetch->locked.flights++;
            left -= pages_bytes(object, i);
            *tail = transfer;
            tail = &transfer->next;
        }
    }
    prefetch->locked.bytes += missing - left;
    stk_budget_release(prefetch->budget, left); /* of blocks for which there was no memory */
    return flights;
}

void stk_prefetch_start(struct stk_prefetch *prefetch, struct stk_store *store,
                        struct stk_remote_file *remote, const void *owner, bool whole)
{
    struct object *object;
    struct transfer *flights = NULL, *next;

    pthread_mutex_lock(&prefetch->lock);
    object = find_locked(prefetch, remote);
    object = object ? object : new_object_locked(prefetch, remote, owner);
    if (object) {
        bool fits = block_at(remote->info.bytes - 1) < object->count;

        flights = start_locked(prefetch, object, !whole ? 1 : fits ? object->count : 0);
        object->whole = object->whole || (whole && flights);
    }
    if (object && object->alive == 0) {
        unlink_locked(prefetch, object);
        release_unlock(prefetch, object);
    } else {
        pthread_mutex_unlock(&prefetch->lock);
    }
    for (struct transfer *transfer = flights; transfer; transfer = transfer->next) {
        begin_transfers(transfer, store);
    }
    for (; flights; flights = next) {
        next = flights->next;
        allocate_pages(flights);
    }
}

static void begin_transfers(struct transfer *transfer, struct stk_store *store)
{
    struct object *object = transfer->object;
    uint8_t *data = stk_pages_reserve(pages_bytes(object, transfer->block));

    pthread_mutex_lock(&transfer->prefetch->lock);
    object->blocks[transfer->block].data = data;
    pthread_mutex_unlock(&transfer->prefetch->lock);
    if (!data) {
        transfer->operation.status = STOKER_ERROR_CLOSED; /* who waits for it asks by himself */
        on_range(&transfer->operation, NULL);
        return;
    }
    stk_store_init_read(&transfer->operation, object->remote->object, &object->remote->info,
                        block_begin(transfer->block), block_bytes(object, transfer->block), data);
    transfer->operation.coverage = object->remote->coverage;
    transfer->operation.done = on_range;
    stk_operation_start(store, &transfer->operation);
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

/* Whether a read wants bytes of blocks that are on their way. */
static bool is_in_flight(const struct object *object, uint64_t offset, uint64_t bytes)
{
    for (uint32_t i = block_at(offset); i <= block_at(offset + bytes - 1); i++) {
        if (i < object->count && object->blocks[i].transfer) {
            return true;
        }
    }
    return false;
}

/* Who waits for nothing more; of a block that failed all who wanted it are told. */
static struct stk_range_read *take_waiters_locked(struct object *object, uint32_t block, int status)
{
    struct stk_range_read *list = NULL, **link = &object->waiters, *parts;

    while ((parts = *link)) {
        bool missing =
            block >= block_at(parts->offset) && block <= block_at(parts->offset + parts->bytes - 1);

        if (missing && status < 0 && status != STOKER_ERROR_CLOSED) {
            parts->status = status;
        } else if (is_in_flight(object, parts->offset, parts->bytes)) {
            link = &parts->arrived_next;
            continue;
        }
        *link = parts->arrived_next;
        parts->arrived_next = list;
        list = parts;
    }
    return list;
}

/* On the reactor, or on the thread that brings: who is the last one ends the flight. */
static void on_range_done(struct transfer *transfer)
{
    struct stk_operation *operation = &transfer->operation;
    struct stk_prefetch *prefetch = transfer->prefetch;
    struct object *object = transfer->object;
    struct stk_range_read *waiters, *next;

    if (atomic_fetch_sub_explicit(&transfer->left, 1, memory_order_acq_rel) > 1) {
        return;
    }
    pthread_mutex_lock(&prefetch->lock);
    object->blocks[transfer->block].transfer = NULL;
    waiters = take_waiters_locked(object, transfer->block, operation->status);
    if (operation->status < 0) {
        empty_unlock(prefetch, object, transfer->block);
    } else {
        release_unlock(prefetch, object);
    }
    for (; waiters; waiters = next) {
        next = waiters->arrived_next;
        if (waiters->status < 0) {
            stk_remote_file_set_error(waiters->remote, &operation->error);
        }
        waiters->done(waiters);
    }
    stk_free(transfer);
    pthread_mutex_lock(&prefetch->lock);
    if (--prefetch->locked.flights ==
        0) { /* with the lock: until it is let go, kept is not closed */
        pthread_cond_signal(&prefetch->all_arrived);
    }
    pthread_mutex_unlock(&prefetch->lock);
}

static void on_range(struct stk_operation *operation, const struct stk_http_response *answer)
{
    (void)answer;
    on_range_done((struct transfer *)(void *)operation);
}

/* ---- reading ---- */

/* What was seen not to be as its checksum says is given to nobody: who asks for it by himself is
 * told. */
static struct object *find_usable_locked(struct stk_prefetch *prefetch,
                                         const struct stk_remote_file *remote)
{
    struct object *object = find_locked(prefetch, remote);
    struct stk_range_coverage *cover = object ? object->remote->coverage : NULL;

    return cover && stk_range_coverage_is_mismatch(cover) ? NULL : object;
}

struct stk_remote_file *stk_prefetch_find_file(struct stk_prefetch *prefetch,
                                               const struct stk_remote_file *like)
{
    struct stk_remote_file *remote = NULL;
    struct object *object;

    pthread_mutex_lock(&prefetch->lock);
    object = find_usable_locked(prefetch, like); /* who opens it anew reads it anew */
    if (object && object->whole && object->remote->coverage) {
        remote = object->remote;
        atomic_fetch_add_explicit(&remote->users, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&prefetch->lock);
    return remote;
}

bool stk_prefetch_has(struct stk_prefetch *prefetch, const struct stk_remote_file *remote,
                      uint64_t offset, uint64_t bytes)
{
    const struct object *object;
    bool has;

    if (atomic_load_explicit(&prefetch->objects, memory_order_relaxed) == 0 || bytes == 0 ||
        offset + bytes > remote->info.bytes) {
        return false;
    }
    pthread_mutex_lock(&prefetch->lock);
    object = find_usable_locked(prefetch, remote);
    has = object != NULL;
    for (uint32_t i = block_at(offset); has && i <= block_at(offset + bytes - 1); i++) {
        has = i < object->count && !is_absent(&object->blocks[i]);
    }
    pthread_mutex_unlock(&prefetch->lock);
    return has;
}

/* All blocks of a range, if they are full, with a user more each. */
static struct object *retain_locked(struct stk_prefetch *prefetch,
                                    const struct stk_remote_file *remote, uint32_t first,
                                    uint32_t last)
{
    struct object *object = find_usable_locked(prefetch, remote);

    for (uint32_t i = first; object && i <= last; i++) {
        object = i < object->count && is_full(&object->blocks[i]) ? object : NULL;
    }
    for (uint32_t i = first; object && i <= last; i++) {
        object->blocks[i].users++;
        object->references++;
    }
    return object;
}

/* Whether all of a block was given out, now that [begin, end) of it was. */
static bool is_consumed(struct block *block, uint64_t begin, uint64_t end, uint64_t bytes)
{
    for (uint64_t i = begin / PIECE_BYTES; i <= (end - 1) / PIECE_BYTES; i++) {
        uint64_t bit = 1ull << (i % 64);

        block->given_pieces += (block->pieces[i / 64] & bit) == 0;
        block->pieces[i / 64] |= bit;
    }
    block->consumed += end - begin;
    return block->given_pieces == (bytes + PIECE_BYTES - 1) / PIECE_BYTES &&
           block->consumed >= bytes - bytes / CONSUMED_PART;
}

/* Back from a block; peeked: [begin, end) of it will be asked for again. */
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

int64_t stk_prefetch_read(struct stk_prefetch *prefetch, const struct stk_remote_file *remote,
                          uint64_t offset, uint8_t *buffer, uint64_t bytes, bool peek)
{
    struct object *object;
    uint32_t first, last;

    if (atomic_load_explicit(&prefetch->objects, memory_order_relaxed) == 0 || bytes == 0 ||
        offset >= remote->info.bytes) {
        return -EAGAIN;
    }
    bytes = stk_min(bytes, remote->info.bytes - offset);
    first = block_at(offset);
    last = block_at(offset + bytes - 1);
    pthread_mutex_lock(&prefetch->lock);
    object = retain_locked(prefetch, remote, first, last);
    pthread_mutex_unlock(&prefetch->lock);
    if (!object) {
        return -EAGAIN;
    }
    for (uint32_t i = first; i <= last; i++) {
        uint64_t at = block_begin(i), begin = stk_max(offset, at);
        uint64_t end = stk_min(offset + bytes, at + block_bytes(object, i));

        memcpy(buffer + (begin - offset), object->blocks[i].data + (begin - at), end - begin);
        release_bytes(prefetch, object, i, begin - at, end - at,
                      peek); /* with the last it may go */
    }
    return (int64_t)bytes;
}

bool stk_prefetch_wait(struct stk_prefetch *prefetch, struct stk_range_read *parts)
{
    struct object *object;
    bool waits;

    pthread_mutex_lock(&prefetch->lock);
    object = find_locked(prefetch, parts->remote);
    waits = object && is_in_flight(object, parts->offset, parts->bytes);
    if (waits) {
        parts->arrived_next = object->waiters;
        object->waiters = parts;
    }
    pthread_mutex_unlock(&prefetch->lock);
    return waits;
}

bool stk_prefetch_cancel_wait(struct stk_prefetch *prefetch, struct stk_range_read *parts)
{
    struct object *object;
    struct stk_range_read **link;
    bool found = false;

    pthread_mutex_lock(&prefetch->lock);
    object = find_locked(prefetch, parts->remote);
    for (link = object ? &object->waiters : NULL; link && *link && !found;) {
        found = *link == parts;
        if (found) {
            *link = parts->arrived_next;
        } else {
            link = &(*link)->arrived_next;
        }
    }
    pthread_mutex_unlock(&prefetch->lock);
    return found;
}

/* ---- giving up ---- */

/* The next object of an owner (NULL: of any), taken out; its flights are cancelled. */
static struct object *take_locked(struct stk_prefetch *prefetch, const void *owner)
{
    struct object *object = prefetch->locked.oldest;

    while (object && owner && object->owner != owner) {
        object = object->newer;
    }
    if (object) {
        unlink_locked(prefetch, object);
        for (uint32_t i = 0; i < object->count; i++) {
            if (object->blocks[i].transfer) {
                stk_operation_cancel(&object->blocks[i].transfer->operation);
            }
        }
    }
    return object;
}

void stk_prefetch_release(struct stk_prefetch *prefetch, struct stk_store *store, const void *owner)
{
    struct object *object;
    bool some = false;

    pthread_mutex_lock(&prefetch->lock);
    while ((object = take_locked(prefetch, owner))) {
        some = true;
        release_unlock(prefetch, object); /* what flies goes when it has come */
        pthread_mutex_lock(&prefetch->lock);
    }
    pthread_mutex_unlock(&prefetch->lock);
    if (some && store) {
        stk_store_cancel_marked(store);
    }
}

uint64_t stk_prefetch_trim(struct stk_prefetch *prefetch)
{
    struct object *object, *next;
    uint64_t bytes = 0, missing;

    pthread_mutex_lock(&prefetch->lock);
    missing = prefetch->locked.bytes / TRIM_PART;
    for (object = prefetch->locked.oldest; object && bytes <= missing; object = next) {
        next = object->newer;
        if (object->references > 1) { /* in use, or on its way */
            continue;
        }
        unlink_locked(prefetch, object);
        bytes += release_unlock(prefetch, object);
        pthread_mutex_lock(&prefetch->lock);
        next = prefetch->locked.oldest; /* others may have gone meanwhile */
    }
    pthread_mutex_unlock(&prefetch->lock);
    return bytes;
}
