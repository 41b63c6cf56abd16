/* The checksum of an object that is read by ranges. */
#include "storage/vfs/remote_checksum.h"

#include "base/mem.h"
#include "base/thread.h"
#include "io/clock.h"
#include "io/io.h"

#define POLL_NS 50000000u

struct checksum_request {
    struct stk_operation operation;
    struct stk_remote_checksum *checksum;
    struct stk_range_source *source; /* retained; embedded beside the checksum */
};

static void on_reply(struct stk_operation *operation, const struct stk_http_response *response);

void stk_remote_checksum_init(struct stk_remote_checksum *checksum)
{
    *checksum = (struct stk_remote_checksum){.locked = {.requested = false}};
    pthread_mutex_init(&checksum->lock, NULL);
    stk_cond_init(&checksum->arrived);
}

void stk_remote_checksum_deinit(struct stk_remote_checksum *checksum)
{
    pthread_cond_destroy(&checksum->arrived);
    pthread_mutex_destroy(&checksum->lock);
}

void stk_remote_checksum_fetch(struct stk_remote_checksum *checksum,
                               struct stk_range_source *source, struct stk_store *store,
                               bool required)
{
    struct checksum_request *request;
    bool request_it;

    source->coverage =
        stk_store_new_coverage(store, source->object, &source->info, required, &request_it);
    request = source->coverage && request_it ? stk_alloc(1, sizeof *request) : NULL;
    if (!request) {
        return; /* reads work without the checksum */
    }
    request->checksum = checksum;
    request->source = source;
    source->ops->retain(source);
    checksum->locked.requested = true; /* no other thread uses it yet */
    stk_store_init_checksum(&request->operation, source->object, &source->info);
    request->operation.done = on_reply;
    request->operation.owner = request;
    stk_operation_start(store, &request->operation);
}

/* On the reactor. */
static void on_reply(struct stk_operation *operation, const struct stk_http_response *response)
{
    struct checksum_request *request = operation->owner;
    struct stk_remote_checksum *checksum = request->checksum;
    struct stk_range_source *source = request->source;
    struct stk_checksum composite;

    stk_store_checksum_reply(operation, response, source->coverage, &composite);
    pthread_mutex_lock(&checksum->lock);
    if (composite.kind != STK_CHECKSUM_NONE) {
        checksum->locked.composite = composite;
    }
    checksum->locked.requested = false;
    pthread_cond_broadcast(&checksum->arrived);
    pthread_mutex_unlock(&checksum->lock);
    stk_free(request);
    source->ops->release(source); /* may free the checksum */
}

/* A checksum that was compared with the body of the response is of no further use. */
void stk_remote_checksum_add(struct stk_remote_checksum *checksum,
                             const struct stk_response_checksums *reported)
{
    if (reported->object.kind != STK_CHECKSUM_NONE &&
        !stk_checksum_is_combinable(&reported->object) &&
        !stk_checksum_equal(&reported->object, &reported->body)) {
        pthread_mutex_lock(&checksum->lock);
        checksum->locked.composite = reported->object;
        pthread_mutex_unlock(&checksum->lock);
    }
}

void stk_remote_checksum_wait(struct stk_remote_checksum *checksum)
{
    const _Atomic bool *cancel = stk_io_cancel_flag();

    pthread_mutex_lock(&checksum->lock);
    /* The request ends by its deadline. It belongs to the file, so it goes on if this thread is
     * cancelled. */
    while (checksum->locked.requested &&
           !(cancel && atomic_load_explicit(cancel, memory_order_relaxed))) {
        struct timespec until = stk_clock_timespec(stk_clock_ns() + POLL_NS);

        pthread_cond_timedwait(&checksum->arrived, &checksum->lock, &until);
    }
    pthread_mutex_unlock(&checksum->lock);
}

struct stk_checksum stk_remote_checksum_composite(struct stk_remote_checksum *checksum)
{
    struct stk_checksum composite;

    pthread_mutex_lock(&checksum->lock);
    composite = checksum->locked.composite;
    pthread_mutex_unlock(&checksum->lock);
    return composite;
}
