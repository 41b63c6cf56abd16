/* Credentials that live: found along a chain of places, kept, refreshed ahead by one at a time. */
#include "storage/credentials/credentials.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/random.h"
#include "base/thread.h"
#include "io/clock.h"
#include "storage/credentials/credential_chain.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)
#define AHEAD_NS (15 * 60 * SECOND) /* a refresh begins so long before the end, at most */
#define MARGIN_NS (10 * SECOND)     /* what lives shorter is not used, if more was given */
#define RETRY_FIRST_NS SECOND       /* behind a failure; doubled each time */
#define RETRY_LAST_NS (60 * SECOND)
#define UNSURE_NS (60 * SECOND) /* as nobody, while a service that may know does not answer */
#define WAIT_S 200              /* for another's refresh: more than any takes */

struct stk_creds {
    struct stk_creds_options options; /* const after open; profile is the object's */
    char profile[STK_PROFILE_NAME_BYTES];
    struct stk_creds_session session;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct {                        /* only while lock is held */
        struct stk_credentials now; /* kind 0: none */
        uint64_t begun_ns;          /* of their life: when they were given */
        uint64_t generation;
        bool refreshing, has_thread, stale;
        bool known;                /* somebody was found, ever */
        uint64_t unsure;           /* the last generation that is nobody by a guess; 0: none */
        pthread_t thread;          /* the last that refreshed; joined before the next */
        uint32_t failures;         /* since the last success */
        uint64_t retry_ns;         /* not before; monotonic */
        struct stoker_error error; /* of the last failure */
    } locked;
};

static bool is_alive(const struct stk_credentials *who, uint64_t begun_ns);
static bool lives_locked(const struct stk_creds *creds);
static bool is_due_locked(const struct stk_creds *creds);
static int start_thread_locked(struct stk_creds *creds);
static void *refresh_thread(void *creds);
static void refresh_locked(struct stk_creds *creds);
static int take_locked(struct stk_creds *creds, struct stk_credentials *found, const char *silent,
                       struct stoker_error *error);
static int answer_locked(struct stk_creds *creds, struct stk_credentials *credentials_out);
static int search_chain(const struct stk_creds_options *options, struct stk_creds_trail *trail,
                        struct stk_credentials *found, const char **silent_out,
                        struct stoker_error *error);

int stk_creds_open(struct stk_creds **creds_out, const struct stk_creds_options *options,
                   struct stoker_error *error)
{
    struct stk_creds *creds;
    pthread_condattr_t attributes;

    if (options->profile && strlen(options->profile) >= STK_PROFILE_NAME_BYTES) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the name of a profile is too long",
                        "use a shorter one", "%zu bytes", strlen(options->profile));
    }
    creds = stk_pages_alloc(sizeof *creds);
    if (!creds) {
        return stk_fail(error, -ENOMEM, "cannot look for credentials", "free memory", "creds");
    }
    madvise(creds, sizeof *creds, MADV_DONTDUMP);
    memset(creds, 0, sizeof *creds);
    creds->options = *options;
    if (options->profile) {
        snprintf(creds->profile, sizeof creds->profile, "%s", options->profile);
        creds->options.profile = creds->profile;
    }
    if (options->session) {
        creds->session = *options->session;
        creds->options.session = &creds->session;
    }
    pthread_mutex_init(&creds->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&creds->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    *creds_out = creds;
    return 0;
}

void stk_creds_close(struct stk_creds *creds)
{
    if (!creds) {
        return;
    }
    if (creds->locked.has_thread) {
        pthread_join(creds->locked.thread, NULL);
    }
    pthread_cond_destroy(&creds->changed);
    pthread_mutex_destroy(&creds->lock);
    explicit_bzero(creds, sizeof *creds);
    stk_pages_free(creds, sizeof *creds);
}

int stk_creds_get(struct stk_creds *creds, struct stk_credentials *credentials_out,
                  struct stoker_error *error)
{
    struct timespec until = {.tv_sec = (time_t)(stk_clock_ns() / SECOND) + WAIT_S};
    int status = 0;

    pthread_mutex_lock(&creds->lock);
    while (status == 0 && !lives_locked(creds)) {
        if (creds->locked.refreshing) {
            if (pthread_cond_timedwait(&creds->changed, &creds->lock, &until) == ETIMEDOUT) {
                status = stk_fail(error, STOKER_ERROR_TIMEOUT, "no credentials came",
                                  "'stoker creds explain URL' tells where they are looked for",
                                  "a refresh of more than %d seconds", WAIT_S);
            }
        } else if (creds->locked.failures > 0 && stk_clock_ns() < creds->locked.retry_ns) {
            status = creds->locked.error.status;
            if (error) {
                *error = creds->locked.error;
            }
        } else {
            refresh_locked(creds);
        }
    }
    if (status == 0) {
        status = answer_locked(creds, credentials_out);
    }
    pthread_mutex_unlock(&creds->lock);
    return status;
}

int stk_creds_peek(struct stk_creds *creds, struct stk_credentials *credentials_out,
                   struct stoker_error *error)
{
    int status;

    pthread_mutex_lock(&creds->lock);
    if (lives_locked(creds)) {
        status = answer_locked(creds, credentials_out);
    } else if (creds->locked.refreshing) {
        status = -EAGAIN;
    } else if (creds->locked.failures > 0 && stk_clock_ns() < creds->locked.retry_ns) {
        status = creds->locked.error.status;
        if (error) {
            *error = creds->locked.error;
        }
    } else {
        status = start_thread_locked(creds);
        status = status == 0 ? -EAGAIN
                             : stk_fail(error, -ENOMEM, "cannot refresh credentials",
                                        "allow more threads", "a thread");
    }
    pthread_mutex_unlock(&creds->lock);
    return status;
}

void stk_creds_refused(struct stk_creds *creds, uint64_t generation)
{
    pthread_mutex_lock(&creds->lock);
    if (creds->locked.now.generation == generation) {
        stk_creds_wipe(&creds->locked.now);
        creds->locked.stale = creds->locked.refreshing; /* what is on its way may be no newer */
    }
    pthread_mutex_unlock(&creds->lock);
}

bool stk_creds_doubted(struct stk_creds *creds, uint64_t generation)
{
    bool doubt;

    pthread_mutex_lock(&creds->lock);
    doubt = generation <= creds->locked.unsure; /* whoever is known once is not unsure again */
    if (doubt && creds->locked.now.generation == generation) {
        stk_creds_wipe(&creds->locked.now);
        creds->locked.stale = creds->locked.refreshing;
    }
    pthread_mutex_unlock(&creds->lock);
    return doubt;
}

bool stk_creds_unsigned(uint32_t service)
{
    static const char *const names[] = {[STK_CREDS_AWS] = "AWS_NO_SIGN_REQUEST",
                                        [STK_CREDS_GOOGLE] = "GS_NO_SIGN_REQUEST",
                                        [STK_CREDS_AZURE] = "AZURE_NO_SIGN_REQUEST"};
    const char *name = service < STK_COUNT(names) ? names[service] : NULL; /* the hub has none */
    const char *wish = name ? stk_environment(name) : NULL;

    return wish && (strcasecmp(wish, "true") == 0 || strcasecmp(wish, "yes") == 0 ||
                    strcmp(wish, "1") == 0);
}

void stk_creds_wipe(struct stk_credentials *credentials)
{
    explicit_bzero(credentials, sizeof *credentials);
}

int stk_creds_explain(const struct stk_creds_options *options, struct stk_creds_trail *trail_out,
                      struct stk_credentials *credentials_out, struct stoker_error *error)
{
    const char *silent;

    *trail_out = (struct stk_creds_trail){0};
    return search_chain(options, trail_out, credentials_out, &silent, error);
}

void stk_search_say(struct stk_search *search, const char *format, ...)
{
    va_list arguments;

    if (search->trail && search->trail->count > 0) {
        struct stk_creds_step *step = &search->trail->steps[search->trail->count - 1];
        va_start(arguments, format);
        vsnprintf(step->why, sizeof step->why, format, arguments);
        va_end(arguments);
    }
}

/* ---- their life ---- */

/* What is left of their life, and all of it. */
static void life_of(const struct stk_credentials *who, uint64_t begun_ns, uint64_t *left_out,
                    uint64_t *life_out)
{
    uint64_t wall_ns = stk_clock_wall_ns();

    *left_out = who->expires_ns > wall_ns ? who->expires_ns - wall_ns : 0;
    *life_out = who->expires_ns > begun_ns ? who->expires_ns - begun_ns : 0;
}

static bool is_alive(const struct stk_credentials *who, uint64_t begun_ns)
{
    uint64_t left, life;

    if (who->kind == 0 || who->expires_ns == STK_CREDS_NEVER) {
        return who->kind != 0;
    }
    life_of(who, begun_ns, &left, &life);
    return left > stk_min(MARGIN_NS, life / 20);
}

static bool lives_locked(const struct stk_creds *creds)
{
    return is_alive(&creds->locked.now, creds->locked.begun_ns);
}

/* Whether a refresh is to begin while they still live; of many processes not all at once. */
static bool is_due_locked(const struct stk_creds *creds)
{
    uint64_t left, life, ahead;

    if (creds->locked.now.expires_ns == STK_CREDS_NEVER || creds->locked.refreshing ||
        stk_clock_ns() < creds->locked.retry_ns) {
        return false;
    }
    life_of(&creds->locked.now, creds->locked.begun_ns, &left, &life);
    ahead = stk_min(AHEAD_NS, life / 4);
    ahead -= stk_mix(creds->locked.begun_ns) % (ahead / 8 + 1);
    return left < ahead;
}

static int answer_locked(struct stk_creds *creds, struct stk_credentials *credentials_out)
{
    if (is_due_locked(creds)) {
        start_thread_locked(creds); /* if not, then next time */
    }
    *credentials_out = creds->locked.now;
    return 0;
}

static int start_thread_locked(struct stk_creds *creds)
{
    int status;

    if (creds->locked.has_thread) {
        pthread_join(creds->locked.thread, NULL); /* it is over: nobody refreshes */
        creds->locked.has_thread = false;
    }
    status = stk_thread_start(&creds->locked.thread, NULL, refresh_thread, creds);
    creds->locked.has_thread = status == 0;
    creds->locked.refreshing = status == 0;
    return status;
}

static void *refresh_thread(void *given)
{
    struct stk_creds *creds = given;

    pthread_mutex_lock(&creds->lock);
    refresh_locked(creds);
    pthread_mutex_unlock(&creds->lock);
    return NULL;
}

/* Lets go of the lock while it asks; whoever needs credentials meanwhile waits for it. */
static void refresh_locked(struct stk_creds *creds)
{
    struct stk_credentials found = {0};
    struct stoker_error error = {0};
    const char *silent = NULL;
    int status;

    creds->locked.refreshing = true;
    creds->locked.stale = false;
    pthread_mutex_unlock(&creds->lock);
    status = search_chain(&creds->options, NULL, &found, &silent, &error);
    stk_wipe_stack();
    pthread_mutex_lock(&creds->lock);
    if (status == 0 && !creds->locked.stale) {
        status = take_locked(creds, &found, silent, &error);
    }
    if (status < 0) {
        uint64_t wait_ns = RETRY_FIRST_NS << stk_min(creds->locked.failures, 6);
        creds->locked.failures++;
        creds->locked.retry_ns = stk_clock_ns() + stk_min(wait_ns, RETRY_LAST_NS);
        creds->locked.error = error;
        if (creds->locked.now.stay && !lives_locked(creds)) {
            creds->locked.now.expires_ns = stk_search_stay(creds->locked.now.expires_ns);
        }
    }
    stk_creds_wipe(&found);
    creds->locked.refreshing = false;
    pthread_cond_broadcast(&creds->changed);
}

/* In place of the old ones, unless they are worse: these stay then. */
static int take_locked(struct stk_creds *creds, struct stk_credentials *found, const char *silent,
                       struct stoker_error *error)
{
    bool unsure = found->kind == STK_CREDS_ANONYMOUS && silent;
    uint64_t now_ns = stk_clock_wall_ns();

    if (found->kind == STK_CREDS_ANONYMOUS && creds->locked.known) {
        return silent ? stk_fail(error, STOKER_ERROR_TIMEOUT,
                                 "a service that gave credentials "
                                 "does not answer",
                                 "it is asked again soon", "%s", silent)
                      : stk_fail(error, STOKER_ERROR_MISSING, "credentials are gone",
                                 "'stoker creds explain URL' tells where they are looked for",
                                 "where they were before");
    }
    if (unsure) {
        found->expires_ns = now_ns + UNSURE_NS;
    }
    if (!is_alive(found, now_ns)) { /* given too old, or our clock is wrong */
        return stk_fail(error, STOKER_ERROR_CHANGED, "credentials are too old as they come",
                        "refresh them, and check the machine's clock", "%.200s", found->from);
    }
    stk_creds_wipe(&creds->locked.now);
    creds->locked.now = *found;
    creds->locked.now.generation = ++creds->locked.generation;
    creds->locked.unsure = unsure ? creds->locked.generation : creds->locked.unsure;
    creds->locked.begun_ns = now_ns;
    creds->locked.known = found->kind != STK_CREDS_ANONYMOUS;
    creds->locked.failures = 0;
    creds->locked.retry_ns = 0;
    return 0;
}

/* ---- the chain ---- */

static int walk(struct stk_search *search, const struct stk_search_row *rows, size_t count,
                struct stk_credentials *found, struct stoker_error *error)
{
    struct stk_creds_trail *trail = search->trail;
    int status = 0;

    for (size_t i = 0; i < count; i++) {
        if (trail) {
            STK_ASSERT(trail->count < STK_CREDS_STEPS_MAX);
            trail->steps[trail->count++] = (struct stk_creds_step){rows[i].name, 0, ""};
        }
        if (status != 0) {
            if (trail) {
                trail->steps[trail->count - 1].verdict = STK_CREDS_NOT_ASKED;
            }
            continue;
        }
        *found = (struct stk_credentials){.expires_ns = STK_CREDS_NEVER};
        status = rows[i].look(search, found, error);
        if (trail) {
            trail->steps[trail->count - 1].verdict = status > 0    ? STK_CREDS_USED
                                                     : status == 0 ? STK_CREDS_PASSED_OVER
                                                                   : STK_CREDS_FAILED;
        }
        if (status > 0) {
            stk_search_say(search, "%s", found->from);
        } else if (status < 0 && error) {
            stk_search_say(search, "%s: %.120s", error->what, error->where);
        }
    }
    return status;
}

static int walk_service(struct stk_search *search, struct stk_credentials *found,
                        struct stoker_error *error)
{
    int status;

    switch ((enum stk_creds_service)search->options->service) {
    case STK_CREDS_AWS:
        status = stk_profiles_open(&search->profiles, search->options->profile, error);
        return status < 0 ? status
                          : walk(search, stk_search_amazon, stk_search_amazon_count, found, error);
    case STK_CREDS_GOOGLE:
        return walk(search, stk_search_google, stk_search_google_count, found, error);
    case STK_CREDS_AZURE:
        return walk(search, stk_search_azure, stk_search_azure_count, found, error);
    case STK_CREDS_HUB:
        return walk(search, stk_search_hub, stk_search_hub_count, found, error);
    case STK_CREDS_SESSION:
        return walk(search, stk_search_session, stk_search_session_count, found, error);
    }
    return 0;
}

static int search_chain(const struct stk_creds_options *options, struct stk_creds_trail *trail,
                        struct stk_credentials *found, const char **silent_out,
                        struct stoker_error *error)
{
    struct stk_search *search = stk_alloc(1, sizeof *search);
    struct stoker_error unseen;
    int status = 0;

    *silent_out = NULL;
    if (!search) {
        return stk_fail(error, -ENOMEM, "cannot look for credentials", "free memory", "creds");
    }
    search->options = options;
    search->trail = trail;
    search->until_ns = stk_clock_ns() + STK_SEARCH_ALL_MS * UINT64_C(1000000);
    error = error ? error : &unseen;
    *found = (struct stk_credentials){0};
    if (!options->anonymous) {
        status = walk_service(search, found, error);
    }
    if (status > 0) {
        found->kind = found->kind ? found->kind : STK_CREDS_KEYS;
    } else {
        stk_creds_wipe(found);
    }
    if (status == 0) {
        *found =
            (struct stk_credentials){.kind = STK_CREDS_ANONYMOUS, .expires_ns = STK_CREDS_NEVER};
        snprintf(found->from, sizeof found->from, "%s%s%s%s: unsigned requests",
                 options->anonymous ? "asked for" : "no credentials", search->silent ? " (" : "",
                 search->silent ? search->silent : "",
                 search->silent ? " does not answer, and is asked again)" : "");
    }
    *silent_out = search->silent;
    stk_profiles_close(&search->profiles);
    stk_free(search);
    return status < 0 ? status : 0;
}

bool stk_search_is_place(const char *name, size_t bytes_max)
{
    size_t bytes = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

    return bytes > 0 && bytes < bytes_max && name[bytes] == '\0';
}

/* Amazon's address is a number, which every cloud's machines have: where nobody answers there, only
 * a host that is named by hand is asked too. */
void stk_creds_where(struct stk_http *http, struct stk_creds_where *where)
{
    struct stk_creds_options options = {.service = STK_CREDS_AWS, .http = http};
    struct stk_search *search = stk_alloc(1, sizeof *search);
    int status;

    *where = (struct stk_creds_where){.cloud = ""};
    if (!search || stk_profiles_open(&search->profiles, NULL, NULL) < 0) {
        snprintf(where->from, sizeof where->from, "the files of profiles cannot be read");
        stk_free(search);
        return;
    }
    search->options = &options;
    search->until_ns = stk_clock_ns() + STK_SEARCH_ALL_MS * UINT64_C(1000000);
    status = stk_search_where_amazon(search, where);
    if (status == 0 || (status < 0 && stk_environment("GCE_METADATA_HOST"))) {
        (void)stk_search_where_google(search, where);
    }
    stk_profiles_close(&search->profiles);
    stk_free(search);
}
