/* Remote files that are fetched as a whole: see spool.h. */
#include "storage/vfs/spool.h"

#include "base/mem.h"
#include "base/thread.h"
#include "io/clock.h"
#include "io/io.h"
#include "io/temporary_file.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define FIRST_BYTES (1u << 20)     /* of an object of unknown size */
#define STEP_BYTES_MAX (16u << 20) /* by which it grows, on the reactor */
#define NS_PER_SECOND 1000000000ull
#define SLICE_NS 50000000ull /* after which a thread that waits looks at its cancel flag */

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
    stk_cond_init(&spools->changed);
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
 * few. Without the lock, since to remove a large file takes long. */
static void trim(struct stk_spools *spools)
{
    struct stk_spool *removed = NULL, *next;
    uint32_t idle = 0;
    uint64_t now_ns;

    pthread_mutex_lock(&spools->lock);
    now_ns = stk_clock_ns(); /* not before an unused_ns */
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
            spool->next = removed;
            removed = spool;
        }
    }
    pthread_mutex_unlock(&spools->lock);
    for (; removed; removed = next) {
        next = removed->next;
        free_spool(removed);
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
        stk_store_init_full(&spool->operation, object, &spool->info, spool->file.data,
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

static bool is_cancelled(void)
{
    const _Atomic bool *cancel = stk_io_cancel_flag();

    return cancel && atomic_load_explicit(cancel, memory_order_relaxed);
}

/* Waits until another thread has fetched a spool, which ends by the deadline of its request, or
 * until this thread is cancelled. */
static int wait_locked(struct stk_spools *spools, const struct stk_spool *spool,
                       struct stoker_error *error)
{
    while (spool->locked.state == FILLING) {
        struct timespec until = stk_clock_timespec(stk_clock_ns() + SLICE_NS);

        if (is_cancelled()) {
            return stk_fail(error, STOKER_ERROR_CLOSED, "the request was cancelled",
                            "nothing is wrong", "'%.400s'", spool->url);
        }
        (void)pthread_cond_timedwait(&spools->changed, &spools->lock, &until);
    }
    return 0;
}

/* trim() frees it later. */
static void release_locked(struct stk_spool *spool)
{
    if (--spool->locked.users == 0) {
        spool->locked.unused_ns = stk_clock_ns();
    }
}

/* Finds a spool that is ready, or waits for one. Returns 0 and NULL if there is none, or if the
 * thread that fetched it was cancelled: then this thread fetches it. */
static int find_locked(struct stk_spools *spools, const char *url,
                       const struct stk_object_info *info, struct stk_spool **spool_out,
                       struct stoker_error *error)
{
    struct stk_spool *spool;
    int status;

    do {
        *spool_out = NULL;
        spool = spools->locked.first;
        while (spool && !is_same(spool, url, info)) {
            spool = spool->next;
        }
        if (!spool) {
            return 0;
        }
        spool->locked.users++;
        status = wait_locked(spools, spool, error);
        if (status == 0 &&
            (spool->locked.state == READY || spool->locked.status != STOKER_ERROR_CLOSED)) {
            *spool_out = spool;
            return 0;
        }
        release_locked(spool);
    } while (status == 0); /* a spool that failed is not found again */
    return status;
}

/* Creates a spool and fetches it, without the lock. Returns NULL without memory. */
static struct stk_spool *fetch_locked(struct stk_spools *spools, struct stk_store *store,
                                      const struct stk_object_url *object,
                                      const struct stk_object_info *info)
{
    struct stk_spool *spool = new_locked(spools, object->url, info);
    struct stoker_error why = {0};
    int status;

    if (!spool) {
        return NULL;
    }
    pthread_mutex_unlock(&spools->lock);
    status = fetch(spool, store, object, &why);
    pthread_mutex_lock(&spools->lock);
    spool->locked.state = status < 0 ? FAILED : READY;
    spool->locked.status = status;
    spool->locked.error = why;
    pthread_cond_broadcast(&spools->changed);
    return spool;
}

int stk_spool_open(struct stk_spools *spools, struct stk_store *store,
                   const struct stk_object_url *object, struct stk_object_info *info,
                   struct stk_spool **spool_out, struct stoker_error *error)
{
    struct stk_spool *spool = NULL;
    int status;

    trim(spools);
    pthread_mutex_lock(&spools->lock);
    status = find_locked(spools, object->url, info, &spool, error);
    if (status == 0 && !spool) {
        spool = fetch_locked(spools, store, object, info);
        if (!spool) {
            status = stk_fail(error, -ENOMEM, "cannot open an object", "free memory", "'%.400s'",
                              object->url);
        }
    }
    if (status == 0) {
        status = finish_open(spool, info, error);
        if (status < 0) {
            release_locked(spool);
            spool = NULL;
        }
    }
    pthread_mutex_unlock(&spools->lock);
    if (status < 0) {
        trim(spools);
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
    release_locked(spool);
    pthread_mutex_unlock(&spools->lock);
    trim(spools);
}
