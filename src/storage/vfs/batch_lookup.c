/* Asking for many objects at once: one after the other would take a round trip for each. */
#include "storage/vfs/remote_file.h"

#include "base/mem.h"
#include "base/thread.h"

#include <string.h>

#define LISTERS_MAX 63u /* threads beside the caller's: a page of a listing is waited for */
#define ROUND 256u      /* asked for at once; the store has a bound of its own on what it sends */

struct asked {
    struct stk_exchange exchange;
    struct expecting *expecting;
    struct stk_place *place;
    uint8_t byte;
};

struct expecting {
    struct stk_known *known;
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    uint32_t left;
};

/* Folders that are listed side by side. */
struct lists {
    struct stk_route *route;
    const char **urls;
    struct stk_listing *listings;
    size_t count;
    _Atomic size_t next;
};

static void on_told(struct stk_exchange *exchange, const struct stk_http_answer *answer);

/* Starts what is not known yet; returns how many names were looked at. */
static size_t start_round(struct stk_route *route, struct stk_store *store, struct asked *asked,
                          struct expecting *expecting, const char **names, size_t count)
{
    struct stk_about about;
    uint32_t started = 0;
    size_t looked = 0;

    for (; looked < count && started < ROUND; looked++, *names += strlen(*names) + 1) {
        struct asked *one = &asked[started];

        if (!stk_io_is_url(*names) || stk_known_find(route->known, *names, &about) ||
            stk_place_parse(*names, &one->place, NULL) < 0) {
            continue; /* who asks for it is told what is wrong */
        }
        if (stk_place_is_keyed(one->place) && !one->place->key[0]) {
            stk_place_free(one->place);
            continue;
        }
        one->exchange =
            (struct stk_exchange){.done = on_told, .owner = one, .stop = stk_io_obeyed()};
        one->expecting = expecting;
        stk_store_probe(&one->exchange, one->place, &one->byte);
        started++;
    }
    expecting->left = started;
    for (uint32_t i = 0; i < started; i++) {
        stk_exchange_start(store, &asked[i].exchange);
    }
    pthread_mutex_lock(&expecting->lock);
    while (expecting->left > 0) { /* each ends by its deadline */
        pthread_cond_wait(&expecting->arrived, &expecting->lock);
    }
    pthread_mutex_unlock(&expecting->lock);
    for (uint32_t i = 0; i < started; i++) {
        stk_place_free(asked[i].place);
    }
    return looked;
}

void stk_remote_expect(struct stk_io *io, const char *paths, size_t count)
{
    struct stk_route *route = stk_route(io);
    struct expecting expecting = {.known = route->known};
    struct stk_store *store;
    struct asked *asked;

    if (count < 2 || !stk_io_is_url(paths) || stk_io_is_foreign(paths) ||
        stk_route_store(route, &store, NULL) < 0) {
        return;
    }
    asked = stk_alloc(stk_min(count, ROUND), sizeof *asked);
    if (!asked) {
        return; /* a hint: they are asked for one by one */
    }
    pthread_mutex_init(&expecting.lock, NULL);
    pthread_cond_init(&expecting.arrived, NULL);
    while (count > 0) {
        count -= start_round(route, store, asked, &expecting, &paths, count);
    }
    pthread_cond_destroy(&expecting.arrived);
    pthread_mutex_destroy(&expecting.lock);
    stk_free(asked);
}

/* On the reactor. */
static void on_told(struct stk_exchange *exchange, const struct stk_http_answer *answer)
{
    struct asked *asked = exchange->owner;
    struct expecting *expecting = asked->expecting;
    struct stk_about about;

    if (exchange->status == 0) {
        stk_store_told(exchange, answer, &about);
        /* Whether one without bytes is a folder of Azure's, who wants it asks. */
        if (about.bytes != UINT64_MAX &&
            (about.bytes > 0 || asked->place->kind != STK_PLACE_AZURE)) {
            stk_known_add(expecting->known, asked->place->url, &about);
        }
    }
    pthread_mutex_lock(&expecting->lock);
    if (--expecting->left == 0) {
        pthread_cond_signal(&expecting->arrived);
    }
    pthread_mutex_unlock(&expecting->lock);
}

static void *run_lister(void *argument)
{
    struct lists *lists = argument;
    size_t i;

    while ((i = atomic_fetch_add_explicit(&lists->next, 1, memory_order_relaxed)) < lists->count) {
        if (stk_io_is_url(lists->urls[i])) { /* of one that fails who wants it is told why */
            (void)stk_remote_list(lists->route, lists->urls[i], &lists->listings[i], NULL);
        }
    }
    return NULL;
}

void stk_remote_list_many(struct stk_io *io, const char *paths, size_t count,
                          struct stk_listing *listings_out)
{
    struct lists lists = {.route = stk_route(io), .listings = listings_out, .count = count};
    uint32_t most = (uint32_t)stk_min(count - 1, LISTERS_MAX), started = 0;
    pthread_t threads[LISTERS_MAX];

    if (count < 2 || !stk_io_is_url(paths)) {
        return;
    }
    lists.urls = stk_alloc(count, sizeof *lists.urls);
    if (!lists.urls) {
        return; /* a hint: they are asked for one by one */
    }
    for (size_t i = 0; i < count; i++, paths += strlen(paths) + 1) {
        lists.urls[i] = paths;
    }
    while (started < most && stk_thread_start(&threads[started], NULL, run_lister, &lists) == 0) {
        started++;
    }
    run_lister(&lists);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    stk_free(lists.urls);
}
