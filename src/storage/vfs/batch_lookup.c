/* Asking for many objects at once: one after the other would take a round trip for each. */
#include "storage/vfs/remote_file.h"

#include "base/mem.h"
#include "base/thread.h"

#include <string.h>

#define LIST_THREADS_MAX 63u /* threads beside the caller's: a page of a listing is waited for */
#define ROUND 256u /* asked for at once; the store has a bound of its own on what it sends */

struct head_request {
    struct stk_operation exchange;
    struct batch *batch;
    struct stk_object_url *place;
    uint8_t byte;
};

struct batch {
    struct stk_metadata_cache *known;
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    uint32_t left;
};

/* Folders that are listed side by side. */
struct lists {
    struct stk_vfs *vfs;
    const char **urls;
    struct stk_listing *listings;
    size_t count;
    _Atomic size_t next;
};

static void on_head_reply(struct stk_operation *exchange, const struct stk_http_response *answer);

/* Starts what is not known yet; returns how many names were looked at. */
static size_t start_round(struct stk_vfs *vfs, struct stk_store *store,
                          struct head_request *head_request, struct batch *batch,
                          const char **names, size_t count)
{
    struct stk_object_info info;
    uint32_t started = 0;
    size_t looked = 0;

    for (; looked < count && started < ROUND; looked++, *names += strlen(*names) + 1) {
        struct head_request *one = &head_request[started];

        if (!stk_io_is_url(*names) || stk_metadata_cache_find(vfs->metadata_cache, *names, &info) ||
            stk_object_url_parse(*names, &one->place, NULL) < 0) {
            continue; /* who asks for it is told what is wrong */
        }
        if (stk_object_url_has_key(one->place) && !one->place->key[0]) {
            stk_object_url_free(one->place);
            continue;
        }
        one->exchange = (struct stk_operation){
            .done = on_head_reply, .owner = one, .stop = stk_io_cancel_flag()};
        one->batch = batch;
        stk_store_init_head(&one->exchange, one->place, &one->byte);
        started++;
    }
    batch->left = started;
    for (uint32_t i = 0; i < started; i++) {
        stk_operation_start(store, &head_request[i].exchange);
    }
    pthread_mutex_lock(&batch->lock);
    while (batch->left > 0) { /* each ends by its deadline */
        pthread_cond_wait(&batch->arrived, &batch->lock);
    }
    pthread_mutex_unlock(&batch->lock);
    for (uint32_t i = 0; i < started; i++) {
        stk_object_url_free(head_request[i].place);
    }
    return looked;
}

void stk_batch_lookup_stat(struct stk_io *io, const char *paths, size_t count)
{
    struct stk_vfs *vfs = stk_vfs_of(io);
    struct batch batch = {.known = vfs->metadata_cache};
    struct stk_store *store;
    struct head_request *head_request;

    if (count < 2 || !stk_io_is_url(paths) || stk_io_is_external_url(paths) ||
        stk_vfs_open_store(vfs, &store, NULL) < 0) {
        return;
    }
    head_request = stk_alloc(stk_min(count, ROUND), sizeof *head_request);
    if (!head_request) {
        return; /* a hint: they are asked for one by one */
    }
    pthread_mutex_init(&batch.lock, NULL);
    pthread_cond_init(&batch.arrived, NULL);
    while (count > 0) {
        count -= start_round(vfs, store, head_request, &batch, &paths, count);
    }
    pthread_cond_destroy(&batch.arrived);
    pthread_mutex_destroy(&batch.lock);
    stk_free(head_request);
}

/* On the reactor. */
static void on_head_reply(struct stk_operation *exchange, const struct stk_http_response *answer)
{
    struct head_request *head_request = exchange->owner;
    struct batch *batch = head_request->batch;
    struct stk_object_info info;

    if (exchange->status == 0) {
        stk_store_head_reply(exchange, answer, &info);
        /* Whether one without bytes is a folder of Azure's, who wants it asks. */
        if (info.bytes != UINT64_MAX &&
            (info.bytes > 0 || head_request->place->kind != STK_OBJECT_URL_AZURE)) {
            stk_metadata_cache_add(batch->known, head_request->place->url, &info);
        }
    }
    pthread_mutex_lock(&batch->lock);
    if (--batch->left == 0) {
        pthread_cond_signal(&batch->arrived);
    }
    pthread_mutex_unlock(&batch->lock);
}

static void *list_worker(void *argument)
{
    struct lists *lists = argument;
    size_t i;

    while ((i = atomic_fetch_add_explicit(&lists->next, 1, memory_order_relaxed)) < lists->count) {
        if (stk_io_is_url(lists->urls[i])) { /* of one that fails who wants it is told why */
            (void)stk_remote_file_list(lists->vfs, lists->urls[i], &lists->listings[i], NULL);
        }
    }
    return NULL;
}

void stk_batch_lookup_list(struct stk_io *io, const char *paths, size_t count,
                           struct stk_listing *listings_out)
{
    struct lists lists = {.vfs = stk_vfs_of(io), .listings = listings_out, .count = count};
    uint32_t most = (uint32_t)stk_min(count - 1, LIST_THREADS_MAX), started = 0;
    pthread_t threads[LIST_THREADS_MAX];

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
    while (started < most && stk_thread_start(&threads[started], NULL, list_worker, &lists) == 0) {
        started++;
    }
    list_worker(&lists);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    stk_free(lists.urls);
}
