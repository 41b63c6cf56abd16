/* The process's open files, shared by all engines. */
#include "io/descriptor_budget.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#define PLENTY 4u /* times the wanted number */
#define WAIT_MS 10
#define WAITS_MAX 1000u /* 10 s */
#define NO_PROC 32u     /* open files, if /proc is not there */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t reserved, base; /* with lock; base: open when nothing was reserved */

static pthread_mutex_t caches_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stk_descriptors_cache *caches; /* with caches_lock */

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void acquire_locks(void)
{
    pthread_mutex_lock(&caches_lock);
    pthread_mutex_lock(&lock);
}

static void release_locks(void)
{
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&caches_lock);
}

/* In the child of a fork, no thread exists that could release the locks. The caches are those of
 * the parent's engines, whose own locks may be held for ever. */
static void release_locks_in_child(void)
{
    caches = NULL;
    release_locks();
}

static void register_fork_handlers(void)
{
    pthread_atfork(acquire_locks, release_locks, release_locks_in_child);
}

static void acquire(pthread_mutex_t *mutex)
{
    pthread_once(&once, register_fork_handlers);
    pthread_mutex_lock(mutex);
}

static uint32_t count_open(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint32_t count = 0;

    if (!folder) {
        return NO_PROC;
    }
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

static uint32_t limit(void)
{
    struct rlimit files;

    return getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur > UINT32_MAX / 2
               ? UINT32_MAX / 2
               : (uint32_t)files.rlim_cur;
}

uint32_t stk_descriptors_reserve(uint32_t wanted, uint32_t least)
{
    uint32_t all = limit(), used, left, granted;

    acquire(&lock);
    if (reserved == 0) {
        base = count_open() + STK_DESCRIPTORS_SPARE;
    }
    used = base + reserved;
    left = all > used ? all - used : 0;
    granted = wanted <= left / PLENTY ? wanted : stk_min(wanted, left / 2);
    granted = stk_max(granted, stk_min(least, wanted));
    reserved += granted;
    pthread_mutex_unlock(&lock);
    return granted;
}

void stk_descriptors_release(uint32_t count)
{
    acquire(&lock);
    STK_ASSERT(reserved >= count);
    reserved -= count;
    pthread_mutex_unlock(&lock);
}

void stk_descriptors_add_cache(struct stk_descriptors_cache *cache)
{
    acquire(&caches_lock);
    cache->next = caches;
    caches = cache;
    pthread_mutex_unlock(&caches_lock);
}

void stk_descriptors_remove_cache(struct stk_descriptors_cache *cache)
{
    struct stk_descriptors_cache **link = &caches;

    acquire(&caches_lock);
    while (*link && *link != cache) {
        link = &(*link)->next;
    }
    if (*link) {
        *link = cache->next;
    }
    pthread_mutex_unlock(&caches_lock);
}

bool stk_descriptors_retry(int number, uint32_t *tries)
{
    struct timespec some = {.tv_nsec = WAIT_MS * 1000000};
    bool closed = false;

    if ((number != EMFILE && number != ENFILE) || ++*tries > WAITS_MAX) {
        return false;
    }
    acquire(&caches_lock);
    for (struct stk_descriptors_cache *cache = caches; cache && !closed; cache = cache->next) {
        closed = cache->close_one(cache->owner);
    }
    pthread_mutex_unlock(&caches_lock);
    if (!closed) {
        nanosleep(&some, NULL);
    }
    return true;
}
