/* The checksum of an object that is read by ranges: of those S3 tells none, so it is asked for. */
#include "storage/vfs/remote_file.h"

#include "base/mem.h"
#include "io/clock.h"

#include <time.h>

#define LOOK_NS 50000000u

struct asked {
    struct stk_exchange exchange;
    struct stk_remote *remote; /* a user of it */
};

static void on_told(struct stk_exchange *exchange, const struct stk_http_answer *answer);

void stk_remote_seal(struct stk_route *route, struct stk_remote *remote, bool sure)
{
    struct stk_store *store;
    struct asked *asked;
    bool ask;

    if (stk_route_store(route, &store, NULL) < 0) {
        return;
    }
    remote->cover = stk_store_cover(store, remote->place, &remote->about, sure, &ask);
    asked = remote->cover && ask ? stk_alloc(1, sizeof *asked) : NULL;
    if (!asked) {
        return; /* it goes without */
    }
    asked->remote = remote;
    atomic_fetch_add_explicit(&remote->users, 1, memory_order_relaxed);
    remote->asking = true;
    stk_store_seal(&asked->exchange, remote->place, &remote->about);
    asked->exchange.done = on_told;
    asked->exchange.owner = asked;
    stk_exchange_start(store, &asked->exchange);
}

/* On the reactor. */
static void on_told(struct stk_exchange *exchange, const struct stk_http_answer *answer)
{
    struct asked *asked = exchange->owner;
    struct stk_remote *remote = asked->remote;
    struct stk_seal whole;

    stk_store_sealed(exchange, answer, remote->cover, &whole);
    pthread_mutex_lock(&remote->lock);
    if (whole.kind != STK_SEAL_NONE) {
        remote->whole = whole;
    }
    remote->asking = false;
    pthread_cond_broadcast(&remote->told);
    pthread_mutex_unlock(&remote->lock);
    stk_free(asked);
    stk_remote_release(remote);
}

/* Of any answer. One that was compared with the answer's body already is nothing new. */
void stk_remote_told(struct stk_remote *remote, const struct stk_seals *seals)
{
    if (seals->whole.kind != STK_SEAL_NONE && !stk_seal_joins(&seals->whole) &&
        !stk_seal_is(&seals->whole, &seals->body)) {
        pthread_mutex_lock(&remote->lock);
        remote->whole = seals->whole;
        pthread_mutex_unlock(&remote->lock);
    }
}

void stk_remote_settle(struct stk_remote *remote)
{
    const _Atomic bool *stop = stk_io_obeyed();

    pthread_mutex_lock(&remote->lock);
    /* It ends by its deadline; it is not this thread's, so it goes on when this one does not. */
    while (remote->asking && !(stop && atomic_load_explicit(stop, memory_order_relaxed))) {
        uint64_t until_ns = stk_clock_wall_ns() + LOOK_NS;
        struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                 .tv_nsec = (long)(until_ns % 1000000000u)};

        pthread_cond_timedwait(&remote->told, &remote->lock, &until);
    }
    pthread_mutex_unlock(&remote->lock);
}
