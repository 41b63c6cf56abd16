/* The longest wait of each reactor. */
#include "storage/http/wait_report.h"

#include "io/clock.h"

#include <pthread.h>
#include <string.h>

#define NS_PER_MS 1000000ull

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {        /* with lock */
    const void *owner; /* NULL: free */
    struct stk_wait_report report;
} slots[STK_WAIT_REPORT_SLOTS];

static void acquire_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void release_lock(void)
{
    pthread_mutex_unlock(&lock);
}

/* In the child of a fork, no thread exists that could release the lock, and no reactor runs. */
static void release_lock_in_child(void)
{
    memset(slots, 0, sizeof slots);
    release_lock();
}

static void register_fork_handlers(void)
{
    pthread_atfork(acquire_lock, release_lock, release_lock_in_child);
}

static void lock_slots(void)
{
    pthread_once(&once, register_fork_handlers);
    pthread_mutex_lock(&lock);
}

void stk_wait_report_publish(const void *owner, const struct stk_wait_report *report)
{
    size_t free_slot = STK_WAIT_REPORT_SLOTS, at;

    lock_slots();
    for (at = 0; at < STK_WAIT_REPORT_SLOTS && slots[at].owner != owner; at++) {
        free_slot = !slots[at].owner && free_slot == STK_WAIT_REPORT_SLOTS ? at : free_slot;
    }
    at = at < STK_WAIT_REPORT_SLOTS ? at : free_slot;
    if (at < STK_WAIT_REPORT_SLOTS) {
        slots[at].owner = report ? owner : NULL;
        slots[at].report = report ? *report : (struct stk_wait_report){0};
    }
    pthread_mutex_unlock(&lock);
}

bool stk_wait_report_read(struct stk_wait_report *report_out)
{
    uint64_t now_ns = stk_clock_ns();
    const struct stk_wait_report *longest = NULL;

    lock_slots();
    for (size_t i = 0; i < STK_WAIT_REPORT_SLOTS; i++) {
        const struct stk_wait_report *report = &slots[i].report;

        if (slots[i].owner && report->since_ns > 0 &&
            now_ns - report->published_ns < STK_WAIT_REPORT_STALE_MS * NS_PER_MS &&
            (!longest || report->since_ns < longest->since_ns)) {
            longest = report;
        }
    }
    if (longest) {
        *report_out = *longest;
    }
    pthread_mutex_unlock(&lock);
    return longest != NULL;
}
