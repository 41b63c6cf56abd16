/* The bounded queue of a walk, between its threads and the caller. */
#include "storage/walk/key_range.h"

#include "base/mem.h"
#include "base/text/text_match.h"
#include "io/clock.h"

#include <errno.h>
#include <string.h>

static struct timespec after_ms(uint32_t timeout_ms)
{
    return stk_clock_timespec(stk_clock_ns() + timeout_ms * 1000000ull);
}

int stk_walk_next(struct stk_walk *walk, uint32_t timeout_ms, struct stk_walk_entry **item_out,
                  struct stoker_error *error)
{
    struct timespec until = after_ms(timeout_ms);
    int status = 0;

    pthread_mutex_lock(&walk->lock);
    while (!walk->locked.first && walk->locked.working > 0 && walk->locked.status == 0 &&
           status == 0) {
        if (pthread_cond_timedwait(&walk->entry_ready, &walk->lock, &until) == ETIMEDOUT) {
            status = STOKER_ERROR_AGAIN;
        }
    }
    if (walk->locked.first) {
        *item_out = walk->locked.first;
        walk->locked.first = (*item_out)->next;
        if (!walk->locked.first) {
            walk->locked.last = &walk->locked.first;
        }
        if (walk->locked.waiting-- == STK_WALK_QUEUE_MAX / 2) {
            pthread_cond_broadcast(
                &walk->queue_space); /* at half only: a wake for each entry costs more */
        }
        status = 1;
    } else if (walk->locked.status < 0) {
        status = walk->locked.status;
        if (error) {
            *error = walk->locked.error;
        }
    } else if (status == STOKER_ERROR_AGAIN) {
        stk_fail(error, status, "nothing is ready yet", "call again", "'%.400s'", walk->path);
    }
    pthread_mutex_unlock(&walk->lock);
    return status;
}

bool stk_walk_is_hidden(const char *name)
{
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    size_t first = strlen(STK_WALK_HIDDEN_PREFIX);

    return strncmp(last, STK_WALK_HIDDEN_PREFIX, first) == 0 &&
           stk_text_stem_bytes(last + first, STK_WALK_HIDDEN_SUFFIX) > 0;
}

int stk_walk_push(struct stk_walk *walk, const struct stk_walk_entry *entry, const char *name)
{
    size_t bytes = strlen(name), etag_bytes = entry->etag ? strlen(entry->etag) : 0;
    size_t hash_bytes = entry->hash ? strlen(entry->hash) : 0;
    struct stk_walk_entry *item = stk_alloc(1, sizeof *item + bytes + etag_bytes + hash_bytes + 3);
    bool stop;

    if (!item) {
        return -ENOMEM;
    }
    *item = *entry;
    item->next = NULL;
    memcpy(item->name, name, bytes + 1);
    memcpy(item->name + bytes + 1, entry->etag ? entry->etag : "", etag_bytes + 1);
    item->etag = item->name + bytes + 1;
    memcpy(item->name + bytes + etag_bytes + 2, entry->hash ? entry->hash : "", hash_bytes + 1);
    item->hash = item->name + bytes + etag_bytes + 2;
    pthread_mutex_lock(&walk->lock);
    while (walk->locked.waiting >= STK_WALK_QUEUE_MAX &&
           !atomic_load_explicit(&walk->stop, memory_order_relaxed)) {
        pthread_cond_wait(&walk->queue_space, &walk->lock);
    }
    stop = atomic_load_explicit(&walk->stop, memory_order_relaxed);
    if (!stop) {
        *walk->locked.last = item;
        walk->locked.last = &item->next;
        walk->locked.waiting++;
        pthread_cond_signal(&walk->entry_ready);
    }
    pthread_mutex_unlock(&walk->lock);
    if (stop) {
        stk_free(item);
        return STOKER_ERROR_CLOSED;
    }
    return atomic_fetch_add_explicit(&walk->count, 1, memory_order_relaxed) < STK_WALK_ENTRIES_MAX
               ? 0
               : STOKER_ERROR_LIMIT;
}

void stk_walk_fail(struct stk_walk *walk, int status, const struct stoker_error *error)
{
    pthread_mutex_lock(&walk->lock);
    if (walk->locked.status == 0 && status != STOKER_ERROR_CLOSED) {
        walk->locked.status = status;
        walk->locked.error = *error;
        if (error->status != status) { /* the failed call set no error */
            stk_fail(&walk->locked.error, status, "the listing cannot be continued",
                     "free memory; list smaller folders one by one", "'%.400s'", walk->path);
        }
        atomic_store_explicit(&walk->stop, true, memory_order_relaxed);
    }
    pthread_cond_broadcast(&walk->entry_ready);
    pthread_cond_broadcast(&walk->range_ended);
    pthread_cond_broadcast(&walk->queue_space);
    pthread_mutex_unlock(&walk->lock);
}
