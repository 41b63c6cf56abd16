/* Remote files that are fetched as a whole: see spool.h. */
#include "storage/vfs/spool.h"

#include "base/mem.h"
#include "io/clock.h"
#include "io/temporary_file.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define FIRST_BYTES (1u << 20)      /* of an object of unknown size */
#define STEP_BYTES_MAX (256u << 20) /* by which it grows */
#define NS_PER_SECOND 1000000000ull

enum state { FILLING, READY, FAILED };

struct stk_spool {
    struct stk_spool *next;
    struct stk_operation operation; /* of the thread that fetches */
    struct stk_temporary_file file;
    struct stk_object_info info; /* as requested: bytes UINT64_MAX if the size is unknown */
    char *url;                   /* owned */
    uint64_t bytes, bytes_max;
    struct { /* with the lock of the spools */
        uint32_t users;
        enum state state;
        int status;
        struct stoker_error error;
        uint64_t unused_ns;
    } locked;
};

void stk_spools_init(struct stk_spools *spools, uint64_t bytes_max)
{
    spools->bytes_max = bytes_max;
    pthread_mutex_init(&spools->lock, NULL);
    pthread_cond_init(&spools->changed, NULL);
}

static void free_spool(struct stk_spool *spool)
{
    stk_temporary_file_close(&spool->file);
    stk_free(spool->url);
    stk_free(spool);
}

void stk_spools_deinit(struct stk_spools *spools)
{
    for (struct stk_spool *spool = spools->locked.first, *next; spool; spool = next) {
        next = spool->next;
        STK_ASSERT(spool->locked.users == 0);
        free_spool(spool);
    }
    pthread_cond_destroy(&spools->changed);
    pthread_mutex_destroy(&spools->lock);
}

/* Frees unused spools: those that can be fetched again at no loss, old ones, and all but the last
 * few. */
static void trim_locked(struct stk_spools *spools)
{
    uint64_t now_ns = stk_clock_ns();
    uint32_t idle = 0;

    for (struct stk_spool **link = &spools->locked.first; *link;) {
        struct stk_spool *spool = *link;
        bool keep = spool->locked.state == READY && spool->info.bytes == UINT64_MAX &&
                    now_ns - spool->locked.unused_ns < STK_SPOOL_IDLE_S * NS_PER_SECOND &&
                    idle < STK_SPOOL_IDLE_MAX;

        if (spool->locked.users > 0 || keep) {
            idle += spool->locked.users == 0;
            link = &spool->next;
        } else {
            *link = spool->next;
            free_spool(spool);
        }
    }
}

static bool is_same(const struct stk_spool *spool, const char *url,
                    const struct stk_object_info *info)
{
    return spool->locked.state != FAILED && strcmp(spool->url, url) == 0 &&
           strcmp(spool->info.etag, info->etag) == 0 &&
           strcmp(spool->info.modified, info->modified) == 0 &&
           (info->bytes == UINT64_MAX || spool->info.bytes == UINT64_MAX ||
            spool->info.bytes == info->bytes);
}

/* On the reactor: more bytes arrive than the file has room for. */
static int grow(struct stk_operation *operation)
{
    struct stk_spool *spool =
        (struct stk_spool *)((uint8_t *)operation - offsetof(struct stk_spool, operation));
    uint64_t left = spool->bytes_max - stk_min(spool->file.bytes, spool->bytes_max);
    uint64_t step = stk_min(stk_min(spool->file.bytes, STEP_BYTES_MAX), left);
    int status;

    if (step == 0) {
        return stk_fail(&operation->error, STOKER_ERROR_LIMIT,
                        "the server reports no size, and the object is longer than the limit",
                        "serve the file with Content-Length; or set STOKER_SPOOL_BYTES_MAX",
                        "'%.400s': more than %llu bytes", spool->url,
                        (unsigned long long)spool->bytes_max);
    }
    status = stk_temporary_file_resize(&spool->file, spool->file.bytes + step, &operation->error);
    operation->buffer = spool->file.data;
    operation->buffer_bytes = spool->file.bytes;
    return status;
}

static int fetch(struct stk_spool *spool, struct stk_store *store,
                 const struct stk_object_url *object, struct stoker_error *error)
{
    bool unknown = spool->info.bytes == UINT64_MAX;
    int status =
        stk_temporary_file_open(&spool->file, unknown ? FIRST_BYTES : spool->info.bytes, error);

    if (status == 0) {
        stk_store_init_whole(&spool->operation, object, &spool->info, spool->file.data,
                             spool->file.bytes, unknown ? grow : NULL);
        status = stk_operation_run(store, &spool->operation, NULL, error);
    }
    if (status == 0) {
        spool->bytes = unknown ? spool->operation.request.bytes : spool->info.bytes;
        stk_temporary_file_finish(&spool->file, spool->bytes);
    } else {
        stk_temporary_file_close(&spool->file);
    }
    return status;
}

static struct stk_spool *new_locked(struct stk_spools *spools, const char *url,
                                    const struct stk_object_info *info)
{
    struct stk_spool *spool = stk_alloc(1, sizeof *spool);

    if (spool) {
        spool->url = stk_strdup(url);
        spool->info = *info;
        spool->bytes_max = spools->bytes_max;
        if (info->chunked) {
            spool->info.bytes = UINT64_MAX;
        }
        spool->locked.users = 1;
        spool->next = spools->locked.first;
    }
    if (!spool || !spool->url) {
        stk_free(spool);
        return NULL;
    }
    spools->locked.first = spool;
    return spool;
}

/* The spool is ready, or failed; of a version with another size than was reported. */
static int finish_open(struct stk_spool *spool, struct stk_object_info *info,
                       struct stoker_error *error)
{
    if (spool->locked.state == FAILED) {
        if (error) {
            *error = spool->locked.error;
        }
        return spool->locked.status;
    }
    if (info->bytes != UINT64_MAX && info->bytes != spool->bytes) {
        return stk_fail(error, STOKER_ERROR_CHANGED,
                        "the object has another size than when it was opened",
                        "open the data set again; write new data under new names",
                        "'%.400s': %llu bytes, before %llu", spool->url,
                        (unsigned long long)spool->bytes, (unsigned long long)info->bytes);
    }
    info->bytes = spool->bytes;
    return 0;
}

int stk_spool_open(struct stk_spools *spools, struct stk_store *store,
                   const struct stk_object_url *object, struct stk_object_info *info,
                   struct stk_spool **spool_out, struct stoker_error *error)
{
    struct stoker_error why = {0};
    struct stk_spool *spool;
    int status;

    pthread_mutex_lock(&spools->lock);
    trim_locked(spools);
    spool = spools->locked.first;
    while (spool && !is_same(spool, object->url, info)) {
        spool = spool->next;
    }
    if (spool) {
        spool->locked.users++;
        while (spool->locked.state == FILLING) { /* ends by the deadline of the request */
            pthread_cond_wait(&spools->changed, &spools->lock);
        }
    } else {
        spool = new_locked(spools, object->url, info);
        if (!spool) {
            pthread_mutex_unlock(&spools->lock);
            return stk_fail(error, -ENOMEM, "cannot open an object", "free memory", "'%.400s'",
                            object->url);
        }
        pthread_mutex_unlock(&spools->lock);
        status = fetch(spool, store, object, &why);
        pthread_mutex_lock(&spools->lock);
        spool->locked.state = status < 0 ? FAILED : READY;
        spool->locked.status = status;
        spool->locked.error = why;
        pthread_cond_broadcast(&spools->changed);
    }
    status = finish_open(spool, info, error);
    pthread_mutex_unlock(&spools->lock);
    if (status < 0) {
        stk_spool_release(spools, spool);
        spool = NULL;
    }
    *spool_out = spool;
    return status;
}

int64_t stk_spool_read(const struct stk_spool *spool, uint64_t offset, void *buffer, uint64_t bytes)
{
    return stk_temporary_file_read(&spool->file, offset, buffer, bytes);
}

void stk_spool_release(struct stk_spools *spools, struct stk_spool *spool)
{
    if (!spool) {
        return;
    }
    pthread_mutex_lock(&spools->lock);
    if (--spool->locked.users == 0) {
        spool->locked.unused_ns = stk_clock_ns();
        trim_locked(spools);
    }
    pthread_mutex_unlock(&spools->lock);
}
