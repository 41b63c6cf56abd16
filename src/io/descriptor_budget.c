/* The process's open files, shared by all engines. */
#include "io/descriptor_budget.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#define PLENTY 4u /* times of what is wanted */
#define WAIT_MS 10
#define WAITS_MAX 1000u /* 10 s */
#define NO_PROC 32u     /* open files, if /proc is not there */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t reserved, base; /* with lock; base: open when nothing was reserved */

static pthread_mutex_t caches_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stk_descriptors_cache *caches; /* with caches_lock */

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

    pthread_mutex_lock(&lock);
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
    pthread_mutex_lock(&lock);
    STK_ASSERT(reserved >= count);
    reserved -= count;
    pthread_mutex_unlock(&lock);
}

void stk_descriptors_add_cache(struct stk_descriptors_cache *cache)
{
    pthread_mutex_lock(&caches_lock);
    cache->next = caches;
    caches = cache;
    pthread_mutex_unlock(&caches_lock);
}

void stk_descriptors_remove_cache(struct stk_descriptors_cache *cache)
{
    struct stk_descriptors_cache **link = &caches;

    pthread_mutex_lock(&caches_lock);
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
    pthread_mutex_lock(&caches_lock);
    for (struct stk_descriptors_cache *cache = caches; cache && !closed; cache = cache->next) {
        closed = cache->close_one(cache->owner);
    }
    pthread_mutex_unlock(&caches_lock);
    if (!closed) {
        nanosleep(&some, NULL);
    }
    return true;
}
