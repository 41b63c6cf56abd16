/* A provider: searches the chain, caches the credentials, and refreshes them before they expire;
 * one thread at a time. */
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
#define AHEAD_NS (15 * 60 * SECOND) /* a refresh begins at most this long before the expiry */
#define MARGIN_NS (10 * SECOND)     /* credentials with less left are not used */
#define RETRY_FIRST_NS SECOND       /* after a failure; doubled each time */
#define RETRY_LAST_NS (60 * SECOND)
#define ANONYMOUS_NS (60 * SECOND) /* anonymous, while a service does not respond */
#define WAIT_S 200                 /* for the refresh of another thread: longer than any takes */

struct stk_credential_provider {
    struct stk_credential_options options; /* const after open; owns profile */
    char profile[STK_AWS_PROFILE_NAME_BYTES];
    struct stk_credential_session session;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct {                        /* only while lock is held */
        struct stk_credentials now; /* kind 0: none */
        uint64_t begun_ns;          /* when they were issued */
        uint64_t generation;
        bool refreshing, has_thread, stale;
        bool known;        /* credentials were found before */
        uint64_t unsure;   /* the last generation that is anonymous without certainty; 0: none */
        pthread_t thread;  /* of the last refresh; joined before the next */
        uint32_t failures; /* since the last success */
        uint64_t retry_ns; /* of the next try; monotonic */
        struct stoker_error error; /* of the last failure */
    } locked;
};

static bool is_alive(const struct stk_credentials *who, uint64_t begun_ns);
static bool is_alive_locked(const struct stk_credential_provider *provider);
static bool is_due_locked(const struct stk_credential_provider *provider);
static int start_thread_locked(struct stk_credential_provider *provider);
static void *refresh_thread(void *provider);
static void refresh_locked(struct stk_credential_provider *provider);
static int store_locked(struct stk_credential_provider *provider, struct stk_credentials *found,
                        const char *silent, struct stoker_error *error);
static int copy_locked(struct stk_credential_provider *provider,
                       struct stk_credentials *credentials_out);
static int search_chain(const struct stk_credential_options *options,
                        struct stk_credential_trace *trail, struct stk_credentials *found,
                        const char **unreachable_out, struct stoker_error *error);

int stk_credential_provider_open(struct stk_credential_provider **provider_out,
                                 const struct stk_credential_options *options,
                                 struct stoker_error *error)
{
    struct stk_credential_provider *provider;

    if (options->profile && strlen(options->profile) >= STK_AWS_PROFILE_NAME_BYTES) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the name of a profile is too long",
                        "use a shorter one", "%zu bytes", strlen(options->profile));
    }
    provider = stk_pages_alloc(sizeof *provider);
    if (!provider) {
        return stk_fail(error, -ENOMEM, "cannot look for credentials", "free memory", "creds");
    }
    madvise(provider, sizeof *provider, MADV_DONTDUMP);
    memset(provider, 0, sizeof *provider);
    provider->options = *options;
    if (options->profile) {
        snprintf(provider->profile, sizeof provider->profile, "%s", options->profile);
        provider->options.profile = provider->profile;
    }
    if (options->session) {
        provider->session = *options->session;
        provider->options.session = &provider->session;
    }
    pthread_mutex_init(&provider->lock, NULL);
    stk_cond_init(&provider->changed);
    *provider_out = provider;
    return 0;
}

void stk_credential_provider_close(struct stk_credential_provider *provider)
{
    if (!provider) {
        return;
    }
    if (provider->locked.has_thread) {
        pthread_join(provider->locked.thread, NULL);
    }
    pthread_cond_destroy(&provider->changed);
    pthread_mutex_destroy(&provider->lock);
    explicit_bzero(provider, sizeof *provider);
    stk_pages_free(provider, sizeof *provider);
}

int stk_credential_provider_get(struct stk_credential_provider *provider,
                                struct stk_credentials *credentials_out, struct stoker_error *error)
{
    struct timespec until = {.tv_sec = (time_t)(stk_clock_ns() / SECOND) + WAIT_S};
    int status = 0;

    pthread_mutex_lock(&provider->lock);
    while (status == 0 && !is_alive_locked(provider)) {
        if (provider->locked.refreshing) {
            if (pthread_cond_timedwait(&provider->changed, &provider->lock, &until) == ETIMEDOUT) {
                status =
                    stk_fail(error, STOKER_ERROR_TIMEOUT, "no credentials were received",
                             "run 'stoker creds explain URL' for the sources that are searched",
                             "a refresh of more than %d seconds", WAIT_S);
            }
        } else if (provider->locked.failures > 0 && stk_clock_ns() < provider->locked.retry_ns) {
            status = provider->locked.error.status;
            if (error) {
                *error = provider->locked.error;
            }
        } else {
            refresh_locked(provider);
        }
    }
    if (status == 0) {
        status = copy_locked(provider, credentials_out);
    }
    pthread_mutex_unlock(&provider->lock);
    return status;
}

int stk_credential_provider_try_get(struct stk_credential_provider *provider,
                                    struct stk_credentials *credentials_out,
                                    struct stoker_error *error)
{
    int status;

    pthread_mutex_lock(&provider->lock);
    if (is_alive_locked(provider)) {
        status = copy_locked(provider, credentials_out);
    } else if (provider->locked.refreshing) {
        status = -EAGAIN;
    } else if (provider->locked.failures > 0 && stk_clock_ns() < provider->locked.retry_ns) {
        status = provider->locked.error.status;
        if (error) {
            *error = provider->locked.error;
        }
    } else {
        status = start_thread_locked(provider);
        status = status == 0 ? -EAGAIN
                             : stk_fail(error, -ENOMEM, "cannot refresh credentials",
                                        "allow more threads", "a thread");
    }
    pthread_mutex_unlock(&provider->lock);
    return status;
}

void stk_credential_provider_invalidate(struct stk_credential_provider *provider,
                                        uint64_t generation)
{
    pthread_mutex_lock(&provider->lock);
    if (provider->locked.now.generation == generation) {
        stk_credentials_wipe(&provider->locked.now);
        provider->locked.stale =
            provider->locked.refreshing; /* the running refresh may return the same */
    }
    pthread_mutex_unlock(&provider->lock);
}

bool stk_credential_provider_retry_anonymous(struct stk_credential_provider *provider,
                                             uint64_t generation)
{
    bool doubt;

    pthread_mutex_lock(&provider->lock);
    doubt = generation <= provider->locked.unsure; /* never after credentials were found */
    if (doubt && provider->locked.now.generation == generation) {
        stk_credentials_wipe(&provider->locked.now);
        provider->locked.stale = provider->locked.refreshing;
    }
    pthread_mutex_unlock(&provider->lock);
    return doubt;
}

bool stk_credentials_is_unsigned(uint32_t service)
{
    static const char *const names[] = {[STK_CREDS_AWS] = "AWS_NO_SIGN_REQUEST",
                                        [STK_CREDS_GOOGLE] = "GS_NO_SIGN_REQUEST",
                                        [STK_CREDS_AZURE] = "AZURE_NO_SIGN_REQUEST"};
    const char *name =
        service < STK_COUNT(names) ? names[service] : NULL; /* the hub has no such variable */
    const char *wish = name ? stk_environment_get(name) : NULL;

    return wish && (strcasecmp(wish, "true") == 0 || strcasecmp(wish, "yes") == 0 ||
                    strcmp(wish, "1") == 0);
}

int stk_credential_provider_explain(const struct stk_credential_options *options,
                                    struct stk_credential_trace *trace_out,
                                    struct stk_credentials *credentials_out,
                                    struct stoker_error *error)
{
    const char *silent;

    *trace_out = (struct stk_credential_trace){0};
    return search_chain(options, trace_out, credentials_out, &silent, error);
}

/* ---- lifetime and refresh ---- */

/* Computes the remaining and the total lifetime. */
static void lifetime(const struct stk_credentials *who, uint64_t begun_ns, uint64_t *left_out,
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
    lifetime(who, begun_ns, &left, &life);
    return left > stk_min(MARGIN_NS, life / 20);
}

static bool is_alive_locked(const struct stk_credential_provider *provider)
{
    return is_alive(&provider->locked.now, provider->locked.begun_ns);
}

/* Whether a refresh should begin before the expiry; at different times in different processes. */
static bool is_due_locked(const struct stk_credential_provider *provider)
{
    uint64_t left, life, ahead;

    if (provider->locked.now.expires_ns == STK_CREDS_NEVER || provider->locked.refreshing ||
        stk_clock_ns() < provider->locked.retry_ns) {
        return false;
    }
    lifetime(&provider->locked.now, provider->locked.begun_ns, &left, &life);
    ahead = stk_min(AHEAD_NS, life / 4);
    ahead -= stk_mix64(provider->locked.begun_ns) % (ahead / 8 + 1);
    return left < ahead;
}

static int copy_locked(struct stk_credential_provider *provider,
                       struct stk_credentials *credentials_out)
{
    if (is_due_locked(provider)) {
        start_thread_locked(provider); /* else at the next call */
    }
    *credentials_out = provider->locked.now;
    return 0;
}

static int start_thread_locked(struct stk_credential_provider *provider)
{
    int status;

    if (provider->locked.has_thread) {
        pthread_join(provider->locked.thread, NULL); /* it has ended: no refresh is running */
        provider->locked.has_thread = false;
    }
    status = stk_thread_start(&provider->locked.thread, NULL, refresh_thread, provider);
    provider->locked.has_thread = status == 0;
    provider->locked.refreshing = status == 0;
    return status;
}

static void *refresh_thread(void *given)
{
    struct stk_credential_provider *provider = given;

    pthread_mutex_lock(&provider->lock);
    refresh_locked(provider);
    pthread_mutex_unlock(&provider->lock);
    return NULL;
}

/* Releases the lock while it searches; threads that need credentials wait. */
static void refresh_locked(struct stk_credential_provider *provider)
{
    struct stk_credentials found = {0};
    struct stoker_error error = {0};
    const char *silent = NULL;
    int status;

    provider->locked.refreshing = true;
    provider->locked.stale = false;
    pthread_mutex_unlock(&provider->lock);
    status = search_chain(&provider->options, NULL, &found, &silent, &error);
    stk_wipe_stack();
    pthread_mutex_lock(&provider->lock);
    if (status == 0 && !provider->locked.stale) {
        status = store_locked(provider, &found, silent, &error);
    }
    if (status < 0) {
        uint64_t wait_ns = RETRY_FIRST_NS << stk_min(provider->locked.failures, 6);
        provider->locked.failures++;
        provider->locked.retry_ns = stk_clock_ns() + stk_min(wait_ns, RETRY_LAST_NS);
        provider->locked.error = error;
        if (provider->locked.now.usable_after_expiry && !is_alive_locked(provider)) {
            provider->locked.now.expires_ns =
                stk_credential_chain_extend_expiry(provider->locked.now.expires_ns);
        }
    }
    stk_credentials_wipe(&found);
    provider->locked.refreshing = false;
    pthread_cond_broadcast(&provider->changed);
}

/* Replaces the old credentials, unless the new ones are worse. */
static int store_locked(struct stk_credential_provider *provider, struct stk_credentials *found,
                        const char *silent, struct stoker_error *error)
{
    bool unsure = found->kind == STK_CREDS_ANONYMOUS && silent;
    uint64_t now_ns = stk_clock_wall_ns();

    if (found->kind == STK_CREDS_ANONYMOUS && provider->locked.known) {
        return silent ? stk_fail(error, STOKER_ERROR_TIMEOUT,
                                 "a service that returned credentials "
                                 "does not answer",
                                 "wait: it is queried again soon", "%s", silent)
                      : stk_fail(error, STOKER_ERROR_MISSING, "credentials are no longer found",
                                 "run 'stoker creds explain URL' for the sources that are searched",
                                 "the source that had them before");
    }
    if (unsure) {
        found->expires_ns = now_ns + ANONYMOUS_NS;
    }
    if (!is_alive(found, now_ns)) { /* already expired, or the local clock is wrong */
        return stk_fail(error, STOKER_ERROR_CHANGED,
                        "credentials are expired when they are received",
                        "refresh them, and check the machine's clock", "%.200s", found->source);
    }
    stk_credentials_wipe(&provider->locked.now);
    provider->locked.now = *found;
    provider->locked.now.generation = ++provider->locked.generation;
    provider->locked.unsure = unsure ? provider->locked.generation : provider->locked.unsure;
    provider->locked.begun_ns = now_ns;
    provider->locked.known = found->kind != STK_CREDS_ANONYMOUS;
    provider->locked.failures = 0;
    provider->locked.retry_ns = 0;
    return 0;
}

/* ---- the chain ---- */

static int walk(struct stk_credential_chain *search, const struct stk_credential_source *rows,
                size_t count, struct stk_credentials *found, struct stoker_error *error)
{
    struct stk_credential_trace *trail = search->trace;
    int status = 0;

    for (size_t i = 0; i < count; i++) {
        if (trail) {
            STK_ASSERT(trail->count < STK_CREDS_STEPS_MAX);
            trail->steps[trail->count++] = (struct stk_credential_step){rows[i].name, 0, ""};
        }
        if (status != 0) {
            if (trail) {
                trail->steps[trail->count - 1].result = STK_CREDS_NOT_TRIED;
            }
            continue;
        }
        *found = (struct stk_credentials){.expires_ns = STK_CREDS_NEVER};
        status = rows[i].find(search, found, error);
        if (trail) {
            trail->steps[trail->count - 1].result = status > 0    ? STK_CREDS_USED
                                                    : status == 0 ? STK_CREDS_SKIPPED
                                                                  : STK_CREDS_FAILED;
        }
        if (status > 0) {
            stk_credential_chain_log(search, "%s", found->source);
        } else if (status < 0 && error) {
            stk_credential_chain_log(search, "%s: %.120s", error->what, error->where);
        }
    }
    return status;
}

static int try_service(struct stk_credential_chain *search, struct stk_credentials *found,
                       struct stoker_error *error)
{
    int status;

    switch ((enum stk_credentials_service)search->options->service) {
    case STK_CREDS_AWS:
        status = stk_aws_profile_open(&search->profiles, search->options->profile, error);
        return status < 0 ? status
                          : walk(search, stk_credential_chain_aws, stk_credential_chain_aws_count,
                                 found, error);
    case STK_CREDS_GOOGLE:
        return walk(search, stk_credential_chain_google, stk_credential_chain_google_count, found,
                    error);
    case STK_CREDS_AZURE:
        return walk(search, stk_credential_chain_azure, stk_credential_chain_azure_count, found,
                    error);
    case STK_CREDS_HF:
        return walk(search, stk_credential_chain_huggingface,
                    stk_credential_chain_huggingface_count, found, error);
    case STK_CREDS_S3_EXPRESS:
        return walk(search, search->options->session_source, 1, found, error);
    }
    return 0;
}

static int search_chain(const struct stk_credential_options *options,
                        struct stk_credential_trace *trail, struct stk_credentials *found,
                        const char **unreachable_out, struct stoker_error *error)
{
    struct stk_credential_chain *search = stk_alloc(1, sizeof *search);
    struct stoker_error unseen;
    int status = 0;

    *unreachable_out = NULL;
    if (!search) {
        return stk_fail(error, -ENOMEM, "cannot look for credentials", "free memory", "creds");
    }
    search->options = options;
    search->trace = trail;
    search->until_ns = stk_clock_ns() + STK_CREDENTIAL_CHAIN_TOTAL_MS * UINT64_C(1000000);
    error = error ? error : &unseen;
    *found = (struct stk_credentials){0};
    if (!options->anonymous) {
        status = try_service(search, found, error);
    }
    if (status > 0) {
        found->kind = found->kind ? found->kind : STK_CREDS_KEYS;
    } else {
        stk_credentials_wipe(found);
    }
    if (status == 0) {
        *found =
            (struct stk_credentials){.kind = STK_CREDS_ANONYMOUS, .expires_ns = STK_CREDS_NEVER};
        snprintf(found->source, sizeof found->source, "%s%s%s%s: unsigned requests",
                 options->anonymous ? "requested" : "no credentials",
                 search->unreachable ? " (" : "", search->unreachable ? search->unreachable : "",
                 search->unreachable ? " does not answer, and is queried again)" : "");
    }
    *unreachable_out = search->unreachable;
    stk_aws_profile_close(&search->profiles);
    stk_free(search);
    return status < 0 ? status : 0;
}
