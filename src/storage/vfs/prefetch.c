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

#define HEAD_BYTES STK_ROUTE_FAR_BYTES /* the first block: tells whether more is worth it */
#define BUCKETS 256u
#define SHARE 2u /* one in so many bytes of the budget may be kept */
/* A block is used up when something of each such piece was given out, and all but one in so many of
 * its bytes: the rest are headers. Of samples that are smaller than a piece nothing can be told. */
#define PIECE_BYTES (8u << 10)
#define GIVEN_PART 8u
#define TRIM_PART 4u /* one in so many bytes is given back at a time */

struct flight;

struct block {
    uint8_t *data; /* owned pages; NULL: absent, or a flight has not got them yet */
    uint64_t given, pieces[STK_STORE_RANGE_BYTES / PIECE_BYTES / 64]; /* a bit each */
    uint32_t given_pieces;
    bool used_up;
    uint32_t users;        /* who copy from it */
    struct flight *flight; /* NULL: it is full, or absent */
};

struct object {
    struct object *next, *newer; /* of its bucket; of all */
    struct stk_remote *remote;   /* a user of it */
    const void *owner;
    uint64_t key;
    struct stk_parts *waiters; /* by arrived_next */
    uint32_t references;       /* the table's, of flights, of who copies */
    uint32_t alive;            /* blocks with data */
    bool linked;               /* in the table */
    bool whole;                /* all of it was asked for: its remote's cover sees each byte */
    uint32_t count;
    struct block blocks[];
};

/* A range on its way to a block. It is over when it has come and the block's pages were filled:
 * they are while it is waited for. */
struct flight {
    struct stk_exchange exchange; /* first */
    _Atomic uint32_t left;        /* of both */
    struct flight *next;          /* of those that are to be started */
    struct stk_brought *kept;
    struct object *object;
    uint32_t block;
};

struct stk_brought {
    struct stk_budget *budget; /* lent */
    _Atomic uint32_t objects;  /* 0: nothing is looked for */
    pthread_mutex_t lock;
    pthread_cond_t landed; /* the last flight; with lock */
    struct {
        uint32_t flights;
        struct object *buckets[BUCKETS], *oldest, **newest;
        uint64_t bytes; /* reserved */
    } locked;
};

static void take_off(struct flight *flight, struct stk_store *store);
static void fill(struct flight *flight);
static void land(struct flight *flight);
static void on_came(struct stk_exchange *exchange, const struct stk_http_answer *answer);

int stk_brought_open(struct stk_brought **kept_out, struct stk_budget *budget)
{
    struct stk_brought *kept = stk_alloc(1, sizeof *kept);

    if (!kept) {
        return -ENOMEM;
    }
    kept->budget = budget;
    kept->locked.newest = &kept->locked.oldest;
    pthread_mutex_init(&kept->lock, NULL);
    pthread_cond_init(&kept->landed, NULL);
    *kept_out = kept;
    return 0;
}

uint64_t stk_brought_key(const struct stk_place *place, const struct stk_about *about)
{
    return stk_mix(stk_sum64(place->url, strlen(place->url)) ^
                   stk_mix(stk_sum64(about->etag, strlen(about->etag))) ^ about->bytes);
}

static bool is_same(const struct stk_remote *a, const struct stk_remote *b)
{
    return a->about.bytes == b->about.bytes && strcmp(a->about.etag, b->about.etag) == 0 &&
           strcmp(a->about.modified, b->about.modified) == 0 &&
           strcmp(a->place->url, b->place->url) == 0;
}

static struct object *find_locked(struct stk_brought *kept, const struct stk_remote *remote)
{
    struct object *object = kept->locked.buckets[remote->key % BUCKETS];

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
    return stk_min(block_begin(block + 1), object->remote->about.bytes) - block_begin(block);
}

static uint64_t pages_bytes(const struct object *object, uint32_t block)
{
    return stk_round_up(block_bytes(object, block), STK_IO_ALIGN);
}

static bool is_absent(const struct block *block)
{
    return !block->data && !block->flight;
}

static bool is_full(const struct block *block)
{
    return block->data && !block->flight;
}

/* ---- objects and blocks that go ---- */

/* Out of the table: nobody finds it any more. */
static void unlink_locked(struct stk_brought *kept, struct object *object)
{
    struct object **link = &kept->locked.buckets[object->key % BUCKETS];

    while (*link != object) {
        link = &(*link)->next;
    }
    *link = object->next;
    for (link = &kept->locked.oldest; *link != object; link = &(*link)->newer) {
    }
    *link = object->newer;
    if (kept->locked.newest == &object->newer) {
        kept->locked.newest = link;
    }
    object->linked = false;
    atomic_fetch_sub_explicit(&kept->objects, 1, memory_order_relaxed);
}

static void free_pages(struct stk_brought *kept, uint8_t *data, uint64_t bytes)
{
    stk_pages_free(data, bytes);
    stk_budget_release(kept->budget, bytes);
    pthread_mutex_lock(&kept->lock);
    kept->locked.bytes -= bytes;
    pthread_mutex_unlock(&kept->lock);
}

/* Nobody knows it any more. The bytes that came free. */
static uint64_t free_object(struct stk_brought *kept, struct object *object)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < object->count; i++) {
        if (!is_absent(&object->blocks[i])) {
            bytes += pages_bytes(object, i);
            free_pages(kept, object->blocks[i].data, pages_bytes(object, i));
        }
    }
    stk_remote_release(object->remote);
    stk_free(object);
    return bytes;
}

/* Lets the lock go, and frees the object if that was the last one. */
static uint64_t release_unlock(struct stk_brought *kept, struct object *object)
{
    bool last = --object->references == 0;

    pthread_mutex_unlock(&kept->lock);
    return last ? free_object(kept, object) : 0;
}

/* Takes the pages of a block that nobody uses; an object without any is none. Lets the lock go. */
static void empty_unlock(struct stk_brought *kept, struct object *object, uint32_t i)
{
    uint64_t bytes = pages_bytes(object, i);
    uint8_t *data = object->blocks[i].data;

    object->blocks[i] = (struct block){0};
    if (--object->alive == 0 && object->linked) {
        unlink_locked(kept, object);
        object->references--; /* the table's; the caller has another */
    }
    release_unlock(kept, object);
    free_pages(kept, data, bytes);
}

void stk_brought_close(struct stk_brought *kept, struct stk_store *store)
{
    if (!kept) {
        return;
    }
    stk_brought_drop(kept, store, NULL);
    pthread_mutex_lock(&kept->lock);
    while (kept->locked.flights > 0) { /* the reactor ends what was stopped at once */
        pthread_cond_wait(&kept->landed, &kept->lock);
    }
    pthread_mutex_unlock(&kept->lock);
    STK_ASSERT(kept->locked.bytes == 0);
    pthread_cond_destroy(&kept->landed);
    pthread_mutex_destroy(&kept->lock);
    stk_free(kept);
}

/* ---- bringing ---- */

static struct object *object_new_locked(struct stk_brought *kept, struct stk_remote *remote,
                                        const void *owner)
{
    uint64_t bytes = remote->about.bytes;
    bool fits = bytes <= kept->budget->bytes_max / SHARE; /* else no more than the first block is */
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
    object->next = kept->locked.buckets[object->key % BUCKETS];
    kept->locked.buckets[object->key % BUCKETS] = object;
    *kept->locked.newest = object;
    kept->locked.newest = &object->newer;
    atomic_fetch_add_explicit(&kept->objects, 1, memory_order_relaxed);
    return object;
}

/* A flight to each of the first `count` blocks that are absent, in order, or to none. */
static struct flight *fly_locked(struct stk_brought *kept, struct object *object, uint32_t count)
{
    struct flight *flights = NULL, **tail = &flights;
    uint64_t wanted = 0, left;

    for (uint32_t i = 0; i < count; i++) {
        wanted += is_absent(&object->blocks[i]) ? pages_bytes(object, i) : 0;
    }
    if (wanted == 0 || wanted > kept->budget->bytes_max / SHARE ||
        kept->locked.bytes > kept->budget->bytes_max / SHARE - wanted ||
        !stk_budget_reserve(kept->budget, wanted)) {
        return NULL;
    }
    left = wanted;
    for (uint32_t i = 0; i < count; i++) {
        struct flight *flight = is_absent(&object->blocks[i]) ? stk_alloc(1, sizeof *flight) : NULL;

        if (flight) {
            *flight = (struct flight){.left = 2, .kept = kept, .object = object, .block = i};
            object->blocks[i].flight = flight;
            object->references++;
            object->alive++;
            kept->locked.flights++;
            left -= pages_bytes(object, i);
            *tail = flight;
            tail = &flight->next;
        }
    }
    kept->locked.bytes += wanted - left;
    stk_budget_release(kept->budget, left); /* of blocks for which there was no memory */
    return flights;
}

void stk_brought_bring(struct stk_brought *kept, struct stk_store *store, struct stk_remote *remote,
                       const void *owner, bool whole)
{
    struct object *object;
    struct flight *flights = NULL, *next;

    pthread_mutex_lock(&kept->lock);
    object = find_locked(kept, remote);
    object = object ? object : object_new_locked(kept, remote, owner);
    if (object) {
        bool fits = block_at(remote->about.bytes - 1) < object->count;

        flights = fly_locked(kept, object, !whole ? 1 : fits ? object->count : 0);
        object->whole = object->whole || (whole && flights);
    }
    if (object && object->alive == 0) {
        unlink_locked(kept, object);
        release_unlock(kept, object);
    } else {
        pthread_mutex_unlock(&kept->lock);
    }
    for (struct flight *flight = flights; flight; flight = flight->next) {
        take_off(flight, store);
    }
    for (; flights; flights = next) {
        next = flights->next;
        fill(flights);
    }
}

static void take_off(struct flight *flight, struct stk_store *store)
{
    struct object *object = flight->object;
    uint8_t *data = stk_pages_reserve(pages_bytes(object, flight->block));

    pthread_mutex_lock(&flight->kept->lock);
    object->blocks[flight->block].data = data;
    pthread_mutex_unlock(&flight->kept->lock);
    if (!data) {
        flight->exchange.status = STOKER_ERROR_CLOSED; /* who waits for it asks by himself */
        on_came(&flight->exchange, NULL);
        return;
    }
    stk_store_fetch(&flight->exchange, object->remote->place, &object->remote->about,
                    block_begin(flight->block), block_bytes(object, flight->block), data);
    flight->exchange.cover = object->remote->cover;
    flight->exchange.done = on_came;
    stk_exchange_start(store, &flight->exchange);
}

static void fill(struct flight *flight)
{
    struct object *object = flight->object;
    uint8_t *data = object->blocks[flight->block].data; /* set by this thread */

    if (data) {
        stk_pages_fill(data, pages_bytes(object, flight->block));
    }
    land(flight);
}

/* Whether a read wants bytes of blocks that are on their way. */
static bool flies(const struct object *object, uint64_t offset, uint64_t bytes)
{
    for (uint32_t i = block_at(offset); i <= block_at(offset + bytes - 1); i++) {
        if (i < object->count && object->blocks[i].flight) {
            return true;
        }
    }
    return false;
}

/* Who waits for nothing more; of a block that failed all who wanted it are told. */
static struct stk_parts *take_waiters_locked(struct object *object, uint32_t block, int status)
{
    struct stk_parts *list = NULL, **link = &object->waiters, *parts;

    while ((parts = *link)) {
        bool wanted =
            block >= block_at(parts->offset) && block <= block_at(parts->offset + parts->bytes - 1);

        if (wanted && status < 0 && status != STOKER_ERROR_CLOSED) {
            parts->status = status;
        } else if (flies(object, parts->offset, parts->bytes)) {
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
static void land(struct flight *flight)
{
    struct stk_exchange *exchange = &flight->exchange;
    struct stk_brought *kept = flight->kept;
    struct object *object = flight->object;
    struct stk_parts *waiters, *next;

    if (atomic_fetch_sub_explicit(&flight->left, 1, memory_order_acq_rel) > 1) {
        return;
    }
    pthread_mutex_lock(&kept->lock);
    object->blocks[flight->block].flight = NULL;
    waiters = take_waiters_locked(object, flight->block, exchange->status);
    if (exchange->status < 0) {
        empty_unlock(kept, object, flight->block);
    } else {
        release_unlock(kept, object);
    }
    for (; waiters; waiters = next) {
        next = waiters->arrived_next;
        if (waiters->status < 0) {
            stk_remote_note(waiters->remote, &exchange->error);
        }
        waiters->done(waiters);
    }
    stk_free(flight);
    pthread_mutex_lock(&kept->lock);
    if (--kept->locked.flights == 0) { /* with the lock: until it is let go, kept is not closed */
        pthread_cond_signal(&kept->landed);
    }
    pthread_mutex_unlock(&kept->lock);
}

static void on_came(struct stk_exchange *exchange, const struct stk_http_answer *answer)
{
    (void)answer;
    land((struct flight *)(void *)exchange);
}

/* ---- reading ---- */

/* What was seen not to be as its checksum says is given to nobody: who asks for it by himself is
 * told. */
static struct object *find_good_locked(struct stk_brought *kept, const struct stk_remote *remote)
{
    struct object *object = find_locked(kept, remote);
    struct stk_cover *cover = object ? object->remote->cover : NULL;

    return cover && stk_cover_is_wrong(cover) ? NULL : object;
}

struct stk_remote *stk_brought_remote(struct stk_brought *kept, const struct stk_remote *like)
{
    struct stk_remote *remote = NULL;
    struct object *object;

    pthread_mutex_lock(&kept->lock);
    object = find_good_locked(kept, like); /* who opens it anew reads it anew */
    if (object && object->whole && object->remote->cover) {
        remote = object->remote;
        atomic_fetch_add_explicit(&remote->users, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&kept->lock);
    return remote;
}

bool stk_brought_has(struct stk_brought *kept, const struct stk_remote *remote, uint64_t offset,
                     uint64_t bytes)
{
    const struct object *object;
    bool has;

    if (atomic_load_explicit(&kept->objects, memory_order_relaxed) == 0 || bytes == 0 ||
        offset + bytes > remote->about.bytes) {
        return false;
    }
    pthread_mutex_lock(&kept->lock);
    object = find_good_locked(kept, remote);
    has = object != NULL;
    for (uint32_t i = block_at(offset); has && i <= block_at(offset + bytes - 1); i++) {
        has = i < object->count && !is_absent(&object->blocks[i]);
    }
    pthread_mutex_unlock(&kept->lock);
    return has;
}

/* All blocks of a range, if they are full, with a user more each. */
static struct object *hold_locked(struct stk_brought *kept, const struct stk_remote *remote,
                                  uint32_t first, uint32_t last)
{
    struct object *object = find_good_locked(kept, remote);

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
static bool is_used_up(struct block *block, uint64_t begin, uint64_t end, uint64_t bytes)
{
    for (uint64_t i = begin / PIECE_BYTES; i <= (end - 1) / PIECE_BYTES; i++) {
        uint64_t bit = 1ull << (i % 64);

        block->given_pieces += (block->pieces[i / 64] & bit) == 0;
        block->pieces[i / 64] |= bit;
    }
    block->given += end - begin;
    return block->given_pieces == (bytes + PIECE_BYTES - 1) / PIECE_BYTES &&
           block->given >= bytes - bytes / GIVEN_PART;
}

/* Back from a block; peeked: [begin, end) of it will be asked for again. */
static void give_back(struct stk_brought *kept, struct object *object, uint32_t i, uint64_t begin,
                      uint64_t end, bool peeked)
{
    struct block *block = &object->blocks[i];

    pthread_mutex_lock(&kept->lock);
    block->users--;
    block->used_up =
        block->used_up || (!peeked && is_used_up(block, begin, end, block_bytes(object, i)));
    if (block->users == 0 && block->used_up) {
        empty_unlock(kept, object, i);
    } else {
        release_unlock(kept, object);
    }
}

int64_t stk_brought_read(struct stk_brought *kept, const struct stk_remote *remote, uint64_t offset,
                         uint8_t *buffer, uint64_t bytes, bool peek)
{
    struct object *object;
    uint32_t first, last;

    if (atomic_load_explicit(&kept->objects, memory_order_relaxed) == 0 || bytes == 0 ||
        offset >= remote->about.bytes) {
        return -EAGAIN;
    }
    bytes = stk_min(bytes, remote->about.bytes - offset);
    first = block_at(offset);
    last = block_at(offset + bytes - 1);
    pthread_mutex_lock(&kept->lock);
    object = hold_locked(kept, remote, first, last);
    pthread_mutex_unlock(&kept->lock);
    if (!object) {
        return -EAGAIN;
    }
    for (uint32_t i = first; i <= last; i++) {
        uint64_t at = block_begin(i), begin = stk_max(offset, at);
        uint64_t end = stk_min(offset + bytes, at + block_bytes(object, i));

        memcpy(buffer + (begin - offset), object->blocks[i].data + (begin - at), end - begin);
        give_back(kept, object, i, begin - at, end - at, peek); /* with the last it may go */
    }
    return (int64_t)bytes;
}

bool stk_brought_wait(struct stk_brought *kept, struct stk_parts *parts)
{
    struct object *object;
    bool waits;

    pthread_mutex_lock(&kept->lock);
    object = find_locked(kept, parts->remote);
    waits = object && flies(object, parts->offset, parts->bytes);
    if (waits) {
        parts->arrived_next = object->waiters;
        object->waiters = parts;
    }
    pthread_mutex_unlock(&kept->lock);
    return waits;
}

bool stk_brought_forget(struct stk_brought *kept, struct stk_parts *parts)
{
    struct object *object;
    struct stk_parts **link;
    bool found = false;

    pthread_mutex_lock(&kept->lock);
    object = find_locked(kept, parts->remote);
    for (link = object ? &object->waiters : NULL; link && *link && !found;) {
        found = *link == parts;
        if (found) {
            *link = parts->arrived_next;
        } else {
            link = &(*link)->arrived_next;
        }
    }
    pthread_mutex_unlock(&kept->lock);
    return found;
}

/* ---- giving up ---- */

/* The next object of an owner (NULL: of any), taken out; its flights are cancelled. */
static struct object *take_locked(struct stk_brought *kept, const void *owner)
{
    struct object *object = kept->locked.oldest;

    while (object && owner && object->owner != owner) {
        object = object->newer;
    }
    if (object) {
        unlink_locked(kept, object);
        for (uint32_t i = 0; i < object->count; i++) {
            if (object->blocks[i].flight) {
                stk_exchange_cancel(&object->blocks[i].flight->exchange);
            }
        }
    }
    return object;
}

void stk_brought_drop(struct stk_brought *kept, struct stk_store *store, const void *owner)
{
    struct object *object;
    bool some = false;

    pthread_mutex_lock(&kept->lock);
    while ((object = take_locked(kept, owner))) {
        some = true;
        release_unlock(kept, object); /* what flies goes when it has come */
        pthread_mutex_lock(&kept->lock);
    }
    pthread_mutex_unlock(&kept->lock);
    if (some && store) {
        stk_store_stop(store);
    }
}

uint64_t stk_brought_trim(struct stk_brought *kept)
{
    struct object *object, *next;
    uint64_t bytes = 0, wanted;

    pthread_mutex_lock(&kept->lock);
    wanted = kept->locked.bytes / TRIM_PART;
    for (object = kept->locked.oldest; object && bytes <= wanted; object = next) {
        next = object->newer;
        if (object->references > 1) { /* in use, or on its way */
            continue;
        }
        unlink_locked(kept, object);
        bytes += release_unlock(kept, object);
        pthread_mutex_lock(&kept->lock);
        next = kept->locked.oldest; /* others may have gone meanwhile */
    }
    pthread_mutex_unlock(&kept->lock);
    return bytes;
}
