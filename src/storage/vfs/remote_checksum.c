/* The checksum of an object that is read by ranges: of those S3 tells none, so it is asked for. */
#include "storage/vfs/remote_file.h"

#include "base/mem.h"
#include "io/clock.h"

#include <time.h>

#define POLL_NS 50000000u

struct checksum_request {
    struct stk_operation exchange;
    struct stk_remote_file *remote; /* a user of it */
};

static void on_checksum(struct stk_operation *exchange, const struct stk_http_response *answer);

void stk_remote_file_fetch_checksum(struct stk_vfs *vfs, struct stk_remote_file *remote, bool sure)
{
    struct stk_store *store;
    struct checksum_request *checksum_request;
    bool ask;

    if (stk_vfs_open_store(vfs, &store, NULL) < 0) {
        return;
    }
    remote->coverage = stk_store_new_coverage(store, remote->object, &remote->info, sure, &ask);
    checksum_request = remote->coverage && ask ? stk_alloc(1, sizeof *checksum_request) : NULL;
    if (!checksum_request) {
        return; /* it goes without */
    }
    checksum_request->remote = remote;
    atomic_fetch_add_explicit(&remote->users, 1, memory_order_relaxed);
    remote->checksum_requested = true;
    stk_store_init_checksum(&checksum_request->exchange, remote->object, &remote->info);
    checksum_request->exchange.done = on_checksum;
    checksum_request->exchange.owner = checksum_request;
    stk_operation_start(store, &checksum_request->exchange);
}

/* On the reactor. */
static void on_checksum(struct stk_operation *exchange, const struct stk_http_response *answer)
{
    struct checksum_request *checksum_request = exchange->owner;
    struct stk_remote_file *remote = checksum_request->remote;
    struct stk_checksum whole;

    stk_store_checksum_reply(exchange, answer, remote->coverage, &whole);
    pthread_mutex_lock(&remote->lock);
    if (whole.kind != STK_CHECKSUM_NONE) {
        remote->composite_checksum = whole;
    }
    remote->checksum_requested = false;
    pthread_cond_broadcast(&remote->checksum_known);
    pthread_mutex_unlock(&remote->lock);
    stk_free(checksum_request);
    stk_remote_file_release(remote);
}

/* Of any answer. One that was compared with the answer's body already is nothing new. */
void stk_remote_file_set_checksums(struct stk_remote_file *remote,
                                   const struct stk_response_checksums *seals)
{
    if (seals->object.kind != STK_CHECKSUM_NONE && !stk_checksum_is_combinable(&seals->object) &&
        !stk_checksum_equal(&seals->object, &seals->body)) {
        pthread_mutex_lock(&remote->lock);
        remote->composite_checksum = seals->object;
        pthread_mutex_unlock(&remote->lock);
    }
}

void stk_remote_file_wait_checksum(struct stk_remote_file *remote)
{
    const _Atomic bool *stop = stk_io_cancel_flag();

    pthread_mutex_lock(&remote->lock);
    /* It ends by its deadline; it is not this thread's, so it goes on when this one does not. */
    while (remote->checksum_requested &&
           !(stop && atomic_load_explicit(stop, memory_order_relaxed))) {
        uint64_t until_ns = stk_clock_wall_ns() + POLL_NS;
        struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                 .tv_nsec = (long)(until_ns % 1000000000u)};

        pthread_cond_timedwait(&remote->checksum_known, &remote->lock, &until);
    }
    pthread_mutex_unlock(&remote->lock);
}
