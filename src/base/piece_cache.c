/* Pieces by number, with a list of the ready ones by their last use. */
#include "base/piece_cache.h"

#include "base/mem.h"
#include "base/thread.h"

#include <errno.h>

int stk_piece_cache_init(struct stk_piece_cache *cache, struct stk_budget *budget, uint32_t count,
                         uint64_t bytes_max)
{
    cache->locked.pieces = stk_alloc(stk_max(count, 1), sizeof *cache->locked.pieces);
    if (!cache->locked.pieces) {
        return -ENOMEM;
    }
    pthread_mutex_init(&cache->lock, NULL);
    stk_cond_init(&cache->changed);
    cache->budget = budget;
    cache->count = count;
    cache->bytes_max = bytes_max;
    cache->locked.newest = cache->locked.oldest = STK_PIECE_NONE;
    return 0;
}

/* ---- the list of ready pieces ---- */

static void unlink_locked(struct stk_piece_cache *cache, uint32_t number)
{
    struct stk_piece *pieces = cache->locked.pieces, *piece = &pieces[number];

    *(piece->newer == STK_PIECE_NONE ? &cache->locked.newest : &pieces[piece->newer].older) =
        piece->older;
    *(piece->older == STK_PIECE_NONE ? &cache->locked.oldest : &pieces[piece->older].newer) =
        piece->newer;
}

static void link_locked(struct stk_piece_cache *cache, uint32_t number)
{
    struct stk_piece *pieces = cache->locked.pieces, *piece = &pieces[number];

    piece->newer = STK_PIECE_NONE;
    piece->older = cache->locked.newest;
    *(piece->older == STK_PIECE_NONE ? &cache->locked.oldest : &pieces[piece->older].newer) =
        number;
    cache->locked.newest = number;
}

void stk_piece_cache_touch_locked(struct stk_piece_cache *cache, uint32_t number)
{
    if (cache->locked.newest != number) {
        unlink_locked(cache, number);
        link_locked(cache, number);
    }
}

/* ---- memory ---- */

static void empty_locked(struct stk_piece_cache *cache, uint32_t number)
{
    struct stk_piece *piece = &cache->locked.pieces[number];

    unlink_locked(cache, number);
    stk_piece_cache_unwant_locked(cache, number, piece->bytes);
    stk_free(piece->data);
    if (piece->reserved) {
        cache->locked.bytes -= piece->bytes;
        stk_budget_release(cache->budget, piece->bytes);
    }
    *piece = (struct stk_piece){.flags = piece->flags};
}

void stk_piece_cache_deinit(struct stk_piece_cache *cache)
{
    if (!cache->locked.pieces) {
        return;
    }
    while (cache->locked.newest != STK_PIECE_NONE) {
        STK_ASSERT(cache->locked.pieces[cache->locked.newest].pins == 0);
        empty_locked(cache, cache->locked.newest);
    }
    pthread_cond_destroy(&cache->changed);
    pthread_mutex_destroy(&cache->lock);
    stk_free(cache->locked.pieces);
}

uint32_t stk_piece_cache_evict_locked(struct stk_piece_cache *cache, bool keep_wanted)
{
    const struct stk_piece *pieces = cache->locked.pieces;
    uint32_t number = cache->locked.oldest;

    while (number != STK_PIECE_NONE && pieces[number].pins > 0) {
        number = pieces[number].newer;
    }
    if (number == STK_PIECE_NONE || (keep_wanted && pieces[number].wanted)) {
        return STK_PIECE_NONE;
    }
    empty_locked(cache, number);
    return number;
}

bool stk_piece_cache_reserve_locked(struct stk_piece_cache *cache, uint64_t bytes, bool keep_wanted)
{
    while (bytes > cache->bytes_max || cache->locked.bytes > cache->bytes_max - bytes ||
           !stk_budget_reserve(cache->budget, bytes)) {
        if (stk_piece_cache_evict_locked(cache, keep_wanted) == STK_PIECE_NONE) {
            return false;
        }
    }
    return true;
}

uint64_t stk_piece_cache_trim(struct stk_piece_cache *cache)
{
    uint64_t before;

    pthread_mutex_lock(&cache->lock);
    before = cache->locked.bytes;
    while (stk_piece_cache_evict_locked(cache, false) != STK_PIECE_NONE) {
    }
    before -= cache->locked.bytes;
    pthread_mutex_unlock(&cache->lock);
    return before;
}

/* ---- filling and using ---- */

int stk_piece_cache_fill_locked(struct stk_piece_cache *cache, uint32_t number,
                                const struct stk_piece_fill *fill, struct stoker_error *error)
{
    struct stk_piece *piece = &cache->locked.pieces[number];
    uint8_t *data;
    int status;

    STK_ASSERT(piece->state == STK_PIECE_EMPTY && piece->pins == 0);
    piece->state = STK_PIECE_LOADING;
    cache->locked.bytes += fill->reserved ? fill->bytes : 0;
    pthread_mutex_unlock(&cache->lock);
    data = stk_alloc(fill->bytes, 1);
    status = data ? fill->run(fill->context, data, error)
                  : stk_fail(error, -ENOMEM, fill->what, "free memory", "%llu bytes",
                             (unsigned long long)fill->bytes);
    pthread_mutex_lock(&cache->lock);
    pthread_cond_broadcast(&cache->changed);
    if (status < 0) {
        stk_free(data);
        piece->state = STK_PIECE_EMPTY;
        if (fill->reserved) {
            cache->locked.bytes -= fill->bytes;
            stk_budget_release(cache->budget, fill->bytes);
        }
        return status;
    }
    piece->data = data;
    piece->bytes = fill->bytes;
    piece->reserved = fill->reserved;
    piece->state = STK_PIECE_READY;
    link_locked(cache, number);
    return 0;
}

bool stk_piece_cache_wait_locked(struct stk_piece_cache *cache, const struct timespec *until)
{
    return (until ? pthread_cond_timedwait(&cache->changed, &cache->lock, until)
                  : pthread_cond_wait(&cache->changed, &cache->lock)) == 0;
}

void stk_piece_cache_pin_locked(struct stk_piece_cache *cache, uint32_t number)
{
    STK_ASSERT(cache->locked.pieces[number].state == STK_PIECE_READY);
    cache->locked.pieces[number].pins++;
}

void stk_piece_cache_unpin(struct stk_piece_cache *cache, uint32_t number)
{
    pthread_mutex_lock(&cache->lock);
    if (--cache->locked.pieces[number].pins == 0 && !cache->locked.pieces[number].reserved) {
        empty_locked(cache, number);
    }
    pthread_cond_broadcast(&cache->changed);
    pthread_mutex_unlock(&cache->lock);
}

void stk_piece_cache_want_locked(struct stk_piece_cache *cache, uint32_t number, uint64_t bytes)
{
    STK_ASSERT(!cache->locked.pieces[number].wanted);
    cache->locked.pieces[number].wanted = true;
    cache->locked.wanted_bytes += bytes;
}

void stk_piece_cache_unwant_locked(struct stk_piece_cache *cache, uint32_t number, uint64_t bytes)
{
    if (cache->locked.pieces[number].wanted) {
        cache->locked.pieces[number].wanted = false;
        cache->locked.wanted_bytes -= bytes;
    }
}
