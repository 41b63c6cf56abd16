/* Metadata and listings of many URLs at once. */
#include "storage/vfs/batch_lookup.h"

#include "base/mem.h"
#include "base/thread.h"
#include "storage/vfs/vfs.h"

#include <string.h>

#define LIST_THREADS_MAX                                                                           \
    63u            /* threads besides the caller's: each waits for the pages of a listing */
#define ROUND 256u /* HEAD requests at once; the store itself limits how many it sends */

struct head_request {
    struct stk_operation operation;
    struct batch *batch;
    struct stk_object_url *url;
    uint8_t byte;
};

struct batch {
    struct stk_metadata_cache *cache;
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    uint32_t left;
};

/* Folders that threads list side by side. */
struct lists {
    struct stk_remote_fs *fs;
    const char **urls;
    struct stk_listing *listings;
    size_t count;
    _Atomic size_t next;
};

static void on_head_reply(struct stk_operation *operation,
                          const struct stk_http_response *response);

/* Requests the metadata of the first names that are not in the cache. Returns how many names it
 * handled. */
static size_t start_round(struct stk_remote_fs *fs, struct stk_store *store,
                          struct head_request *head_request, struct batch *batch,
                          const char **names, size_t count)
{
    struct stk_object_info info;
    uint32_t started = 0;
    size_t looked = 0;

    for (; looked < count && started < ROUND; looked++, *names += strlen(*names) + 1) {
        struct head_request *one = &head_request[started];

        if (!stk_io_is_url(*names) || stk_metadata_cache_find(fs->metadata_cache, *names, &info) ||
            stk_object_url_parse(*names, &one->url, NULL) < 0) {
            continue; /* the first use of the path reports the error */
        }
        if (stk_object_url_has_key(one->url) && !one->url->key[0]) {
            stk_object_url_free(one->url);
            continue;
        }
        one->operation = (struct stk_operation){
            .done = on_head_reply, .owner = one, .stop = stk_io_cancel_flag()};
        one->batch = batch;
        stk_store_init_head(&one->operation, one->url, &one->byte);
        started++;
    }
    batch->left = started;
    for (uint32_t i = 0; i < started; i++) {
        stk_operation_start(store, &head_request[i].operation);
    }
    pthread_mutex_lock(&batch->lock);
    while (batch->left > 0) { /* each ends by its deadline */
        pthread_cond_wait(&batch->arrived, &batch->lock);
    }
    pthread_mutex_unlock(&batch->lock);
    for (uint32_t i = 0; i < started; i++) {
        stk_object_url_free(head_request[i].url);
    }
    return looked;
}

void stk_batch_lookup_stat(struct stk_remote_fs *fs, const char *paths, size_t count)
{
    struct batch batch = {.cache = fs->metadata_cache};
    struct stk_store *store;
    struct head_request *head_request;

    if (count < 2 || !stk_io_is_url(paths) || stk_vfs_is_external_url(paths) ||
        stk_lazy_store_open(&fs->store, &store, NULL) < 0) {
        return;
    }
    head_request = stk_alloc(stk_min(count, ROUND), sizeof *head_request);
    if (!head_request) {
        return; /* only a hint: the paths are looked up one by one */
    }
    pthread_mutex_init(&batch.lock, NULL);
    pthread_cond_init(&batch.arrived, NULL);
    while (count > 0) {
        count -= start_round(fs, store, head_request, &batch, &paths, count);
    }
    pthread_cond_destroy(&batch.arrived);
    pthread_mutex_destroy(&batch.lock);
    stk_free(head_request);
}

/* On the reactor. */
static void on_head_reply(struct stk_operation *operation, const struct stk_http_response *response)
{
    struct head_request *head_request = operation->owner;
    struct batch *batch = head_request->batch;
    struct stk_object_info info;

    if (operation->status == 0) {
        stk_store_head_reply(operation, response, &info);
        /* An empty blob of Azure may be a folder: stat finds out. */
        if (info.bytes != UINT64_MAX &&
            (info.bytes > 0 || head_request->url->kind != STK_OBJECT_URL_AZURE)) {
            stk_metadata_cache_add(batch->cache, head_request->url->url, &info);
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
        if (stk_io_is_url(
                lists->urls[i])) { /* the caller lists a failed one again, and gets its error */
            (void)stk_remote_file_list(lists->fs, lists->urls[i], &lists->listings[i], NULL);
        }
    }
    return NULL;
}

void stk_batch_lookup_list(struct stk_remote_fs *fs, const char *paths, size_t count,
                           struct stk_listing *listings_out)
{
    struct lists lists = {.fs = fs, .listings = listings_out, .count = count};
    uint32_t most = (uint32_t)stk_min(count - 1, LIST_THREADS_MAX), started = 0;
    pthread_t threads[LIST_THREADS_MAX];

    if (count < 2 || !stk_io_is_url(paths)) {
        return;
    }
    lists.urls = stk_alloc(count, sizeof *lists.urls);
    if (!lists.urls) {
        return; /* only a hint: the paths are looked up one by one */
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
