/* Goal: each piece is filled once by any number of threads. Pieces are evicted in the order of
 * their last use, never while they are pinned, and wanted pieces only on request. The bound and the
 * budget hold, and nothing stays reserved after a failure.
 * Method: a table of steps on a small cache, compared with the pieces that must remain; failures of
 * fill and of allocations; threads that read random pieces of a cache that is too small. */
#include "base/mem.h"
#include "base/piece_cache.h"
#include "base/random.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>
#include <time.h>

enum { PIECES = 8, BYTES = 100, THREADS = 4, READS = 2000 };

struct source {
    _Atomic uint32_t fills[PIECES];
    int status;
};

struct fill_context {
    struct source *source;
    uint32_t number;
};

static int run(void *context, uint8_t *data, struct stoker_error *error)
{
    struct fill_context *fill = context;

    atomic_fetch_add(&fill->source->fills[fill->number], 1);
    memset(data, (int)fill->number + 1, BYTES);
    return fill->source->status == 0 ? 0
                                     : stk_fail(error, fill->source->status, "no piece",
                                                "try another", "piece %u", fill->number);
}

static int fill_locked(struct stk_piece_cache *cache, struct source *source, uint32_t number,
                       bool reserved, struct stoker_error *error)
{
    struct fill_context context = {source, number};
    struct stk_piece_fill fill = {.bytes = BYTES,
                                  .reserved = reserved,
                                  .what = "cannot make a piece",
                                  .run = run,
                                  .context = &context};

    return stk_piece_cache_fill_locked(cache, number, &fill, error);
}

static void open_cache(struct stk_piece_cache *cache, struct stk_budget *budget, uint64_t bytes_max)
{
    *cache = (struct stk_piece_cache){0};
    T_EQ("init", stk_piece_cache_init(cache, budget, PIECES, bytes_max), 0);
}

/* Uses a piece as callers do: touches it, or makes space and fills it. */
static void use_locked(struct stk_piece_cache *cache, struct source *source, uint32_t number,
                       bool keep_wanted)
{
    if (cache->locked.pieces[number].state == STK_PIECE_READY) {
        stk_piece_cache_touch_locked(cache, number);
    } else if (stk_piece_cache_reserve_locked(cache, BYTES, keep_wanted)) {
        T_EQ("fill", fill_locked(cache, source, number, true, NULL), 0);
    }
}

static uint32_t ready_set(const struct stk_piece_cache *cache)
{
    uint32_t set = 0;

    for (uint32_t i = 0; i < PIECES; i++) {
        set |= (uint32_t)(cache->locked.pieces[i].state == STK_PIECE_READY) << i;
    }
    return set;
}

/* Steps: a digit uses that piece; p, u: the next digit is pinned, unpinned; w: it is wanted; k: it
 * is used, but no wanted piece may go. */
static const struct row {
    const char *name, *steps;
    uint64_t pieces_max; /* bound, in pieces */
    uint64_t budget_max; /* likewise */
    const char *left;    /* digits of the pieces that are ready at the end */
} rows[] = {
    {"fits", "0123", 4, 8, "0123"},
    {"oldest goes", "01234", 4, 8, "1234"},
    {"use keeps", "012304", 4, 8, "0234"},
    {"budget", "0123", 4, 2, "23"},
    {"nothing fits", "0", 0, 8, ""},
    {"pinned stays", "012p04", 3, 8, "024"},
    {"unpinned goes", "012p0u04", 3, 8, "124"},
    {"all pinned", "01p0p12", 2, 8, "01"},
    {"wanted stays", "w001k2", 2, 8, "01"},
    {"wanted goes for a read", "w0012", 2, 8, "12"},
    {"wanted, not the oldest", "0w11k2", 2, 8, "12"},
};

static void test_steps(const struct row *row)
{
    struct stk_budget budget = {.bytes_max = row->budget_max * BYTES};
    struct source source = {.status = 0};
    struct stk_piece_cache cache;
    uint32_t want = 0, pinned[PIECES] = {0};

    open_cache(&cache, &budget, row->pieces_max * BYTES);
    pthread_mutex_lock(&cache.lock);
    for (const char *at = row->steps; *at; at++) {
        bool letter = *at > '9';
        char step = letter ? *at++ : 0;
        uint32_t number = (uint32_t)(*at - '0');

        if (step == 'p') {
            stk_piece_cache_pin_locked(&cache, number);
            pinned[number]++;
        } else if (step == 'u') {
            pthread_mutex_unlock(&cache.lock);
            stk_piece_cache_unpin(&cache, number);
            pthread_mutex_lock(&cache.lock);
            pinned[number]--;
        } else if (step == 'w') {
            stk_piece_cache_want_locked(&cache, number, BYTES);
        } else {
            use_locked(&cache, &source, number, step == 'k');
        }
        T_TRUE(row->name, cache.locked.bytes <= row->pieces_max * BYTES);
        T_EQ(row->name, atomic_load(&budget.bytes), cache.locked.bytes);
    }
    pthread_mutex_unlock(&cache.lock);
    for (const char *at = row->left; *at; at++) {
        want |= 1u << (*at - '0');
    }
    T_EQ(row->name, ready_set(&cache), want);
    for (uint32_t i = 0; i < PIECES; i++) {
        while (pinned[i] > 0) {
            pinned[i]--;
            stk_piece_cache_unpin(&cache, i);
        }
    }
    stk_piece_cache_deinit(&cache);
    T_EQ(row->name, atomic_load(&budget.bytes), 0);
}

/* A piece that does not fit can be read once: it is freed with its last pin. */
static void test_without_reservation(void)
{
    struct stk_budget budget = {.bytes_max = BYTES / 2};
    struct source source = {.status = 0};
    struct stk_piece_cache cache;

    open_cache(&cache, &budget, 8 * BYTES);
    pthread_mutex_lock(&cache.lock);
    T_TRUE("no budget", !stk_piece_cache_reserve_locked(&cache, BYTES, false));
    T_EQ("fill", fill_locked(&cache, &source, 3, false, NULL), 0);
    stk_piece_cache_pin_locked(&cache, 3);
    stk_piece_cache_pin_locked(&cache, 3);
    pthread_mutex_unlock(&cache.lock);
    T_EQ("trim", stk_piece_cache_trim(&cache), 0);
    stk_piece_cache_unpin(&cache, 3);
    T_EQ("still read", cache.locked.pieces[3].data[BYTES - 1], 4);
    stk_piece_cache_unpin(&cache, 3);
    T_EQ("freed", cache.locked.pieces[3].state, STK_PIECE_EMPTY);
    stk_piece_cache_deinit(&cache);
}

static void test_failures(void)
{
    struct stk_budget budget = {.bytes_max = 8 * BYTES};
    struct source source = {.status = STOKER_ERROR_CORRUPT};
    struct stoker_error error = {0};
    struct stk_piece_cache cache;

    open_cache(&cache, &budget, 8 * BYTES);
    pthread_mutex_lock(&cache.lock);
    cache.locked.pieces[2].flags = 1;
    for (int i = 0; i < 2; i++) {
        T_TRUE("reserve", stk_piece_cache_reserve_locked(&cache, BYTES, false));
        if (i == 1) {
            stk_mem_fail_nth(1);
        }
        T_EQ("fails", fill_locked(&cache, &source, 2, true, &error),
             i ? -ENOMEM : STOKER_ERROR_CORRUPT);
        stk_mem_fail_nth(0);
        T_ERROR("fails", &error);
        T_EQ("empty", cache.locked.pieces[2].state, STK_PIECE_EMPTY);
        T_EQ("released", atomic_load(&budget.bytes), 0);
        T_EQ("released", cache.locked.bytes, 0);
    }
    source.status = 0;
    T_TRUE("reserve", stk_piece_cache_reserve_locked(&cache, BYTES, false));
    T_EQ("later", fill_locked(&cache, &source, 2, true, &error), 0);
    pthread_mutex_unlock(&cache.lock);
    T_EQ("trim", stk_piece_cache_trim(&cache), BYTES);
    T_EQ("flags stay", cache.locked.pieces[2].flags, 1);
    stk_piece_cache_deinit(&cache);
    stk_mem_fail_nth(1);
    T_EQ("init", stk_piece_cache_init(&cache, &budget, PIECES, 1), -ENOMEM);
    stk_mem_fail_nth(0);
    cache = (struct stk_piece_cache){0};
    stk_piece_cache_deinit(&cache); /* zeroed */
}

static void test_wait(void)
{
    struct stk_budget budget = {.bytes_max = BYTES};
    struct stk_piece_cache cache;
    struct timespec until;

    open_cache(&cache, &budget, BYTES);
    clock_gettime(CLOCK_MONOTONIC, &until);
    pthread_mutex_lock(&cache.lock);
    T_TRUE("late", !stk_piece_cache_wait_locked(&cache, &until));
    pthread_mutex_unlock(&cache.lock);
    stk_piece_cache_deinit(&cache);
}

/* ---- threads ---- */

struct reader {
    struct stk_piece_cache *cache;
    struct source *source;
    pthread_t thread;
    uint32_t seed, wrong;
};

static void read_piece(struct reader *reader, uint32_t number)
{
    struct stk_piece_cache *cache = reader->cache;
    struct stk_piece *piece = &cache->locked.pieces[number];

    pthread_mutex_lock(&cache->lock);
    while (piece->state != STK_PIECE_READY) {
        if (piece->state == STK_PIECE_EMPTY) {
            bool reserved = stk_piece_cache_reserve_locked(cache, BYTES, false);

            reader->wrong += fill_locked(cache, reader->source, number, reserved, NULL) != 0;
        } else {
            stk_piece_cache_wait_locked(cache, NULL);
        }
    }
    stk_piece_cache_touch_locked(cache, number);
    stk_piece_cache_pin_locked(cache, number);
    pthread_mutex_unlock(&cache->lock);
    for (uint32_t i = 0; i < BYTES; i++) {
        reader->wrong += piece->data[i] != number + 1;
    }
    stk_piece_cache_unpin(cache, number);
}

static void *read_all(void *argument)
{
    struct reader *reader = argument;

    for (uint32_t i = 0; i < READS; i++) {
        read_piece(reader, (uint32_t)(stk_random_key(reader->seed, i) % PIECES));
    }
    return NULL;
}

static void test_threads(uint64_t pieces_max)
{
    struct stk_budget budget = {.bytes_max = PIECES * BYTES};
    struct source source = {.status = 0};
    struct reader readers[THREADS];
    struct stk_piece_cache cache;
    uint32_t fills = 0;

    open_cache(&cache, &budget, pieces_max * BYTES);
    for (uint32_t i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){.cache = &cache, .source = &source, .seed = i};
        pthread_create(&readers[i].thread, NULL, read_all, &readers[i]);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(readers[i].thread, NULL);
        T_EQ("threads", readers[i].wrong, 0);
    }
    for (uint32_t i = 0; i < PIECES; i++) {
        fills += source.fills[i];
    }
    T_TRUE("filled once where all fit", pieces_max < PIECES || fills == PIECES);
    stk_piece_cache_deinit(&cache);
    T_EQ("threads", atomic_load(&budget.bytes), 0);
}

int main(void)
{
    T_EACH(row, row, rows)
    {
        test_steps(row);
    }
    test_without_reservation();
    test_failures();
    test_wait();
    test_threads(PIECES);
    test_threads(3);
    test_threads(0);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
