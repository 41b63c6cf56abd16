/* Lines about long waits. */
#include "programs/cli/wait_notice.h"

#include "programs/cli/terminal.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 250
#define FIRST_NS 3000000000u   /* of a wait, before its first line */
#define CHANGED_NS 5000000000u /* between lines of other attempts or hosts */
#define AGAIN_NS 20000000000u  /* between lines that differ in the time only */

static pthread_t thread;
static bool is_started;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stopped;
static bool stopping; /* with lock */

static void print(const struct stoker_store_wait *wait)
{
    char line[256];

    snprintf(line, sizeof line, "waiting for %s, attempt %u, %llu s",
             wait->host[0] ? wait->host : "a turn to send a request", wait->attempt,
             (unsigned long long)(wait->waited_ns / 1000000000u));
    term_notice(line);
}

/* Returns true if a line about this wait is due, and remembers it. */
static bool is_due(const struct stoker_store_wait *wait)
{
    static struct stoker_store_wait last;
    static uint64_t printed_ns;
    uint64_t now_ns = term_clock_ns(), since_ns = now_ns - printed_ns;
    bool same = strcmp(wait->host, last.host) == 0 && wait->attempt == last.attempt;

    if (wait->waited_ns < FIRST_NS || since_ns < (same ? AGAIN_NS : CHANGED_NS)) {
        return false;
    }
    last = *wait;
    printed_ns = now_ns;
    return true;
}

static void *look(void *unused)
{
    struct stoker_store_wait wait;
    struct timespec until;

    (void)unused;
    pthread_mutex_lock(&lock);
    while (!stopping) {
        wait = (struct stoker_store_wait){.struct_size = sizeof wait};
        if (stoker_store_wait(&wait) == 1 && is_due(&wait)) {
            print(&wait);
        }
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&stopped, &lock, &until);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

void wait_notice_start(void)
{
    pthread_condattr_t attributes;
    sigset_t all, before;

    if (!isatty(STDERR_FILENO)) {
        return;
    }
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&stopped, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all); /* signals are for the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    is_started = pthread_create(&thread, NULL, look, NULL) == 0; /* else there are no lines */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void wait_notice_stop(void)
{
    if (!is_started) {
        return;
    }
    pthread_mutex_lock(&lock);
    stopping = true;
    pthread_cond_signal(&stopped);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    is_started = false;
}
