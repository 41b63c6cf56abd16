/* Opens a store with the configuration of the environment; regions, sessions and retry tokens of
 * all requests. */
#include "storage/object/store_private.h"

#include "base/memory_pages.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "io/clock.h"
#include "storage/provider/endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#define TOKENS_MAX 500u /* the SDKs' default */

static int open_service(struct stk_store *store, struct stk_store_endpoint *service, uint32_t kind,
                        struct stoker_error *error);
static void configure(struct stk_store_config *config);

int stk_store_open(struct stk_store **store_out, const struct stk_store_options *options,
                   struct stoker_error *error)
{
    struct stk_http_options http = {.connections_max = options->connections_max,
                                    .ca_file = stk_s3_settings_environment_ca_file()};
    struct stk_shared_limits_options node = {.connections_max = options->node_connections_max,
                                             .not_shared = options->unshared};
    struct stk_credential_options creds = {.service = STK_CREDS_AWS};
    struct stk_store *store = stk_pages_alloc(sizeof *store);
    int status;

    if (!store) {
        return stk_fail(error, -ENOMEM, "cannot reach stores", "free memory", "store");
    }
    madvise(store, sizeof *store, MADV_DONTDUMP); /* it holds credentials */
    memset(store, 0, sizeof *store);
    store->options = *options;
    store->options.hedge_percent_max =
        options->hedge_percent_max ? options->hedge_percent_max : STK_HEDGE_MAX_PERCENT;
    store->locked.tokens = TOKENS_MAX;
    atomic_init(&store->random, options->seed);
    pthread_mutex_init(&store->lock, NULL);
    configure(&store->config);
    status = stk_sse_keys_open(&store->keyring, error);
    store->endpoint_hash =
        stk_xxh3_64(store->config.site.endpoint, strlen(store->config.site.endpoint));
    status = status < 0 ? status : stk_shared_limits_open(&store->node, &node, error);
    http.node = store->node;
    http.tick = options->no_hedges ? NULL : stk_store_poll;
    http.tick_owner = store;
    status = status < 0 ? status : stk_http_open(&store->http, &http, error);
    creds.http = store->http;
    creds.anonymous = stk_credentials_is_unsigned(STK_CREDS_AWS);
    status = status < 0 ? status : stk_credential_provider_open(&store->creds, &creds, error);
    status = status < 0 ? status : open_service(store, &store->gcs, STK_CREDS_GOOGLE, error);
    status = status < 0 ? status : open_service(store, &store->azure, STK_CREDS_AZURE, error);
    status = status < 0 ? status : open_service(store, &store->hf, STK_CREDS_HF, error);
    if (status < 0) {
        stk_store_close(store);
        return status;
    }
    *store_out = store;
    return 0;
}

/* An invalid setting of one service must not affect the others: the error is kept. */
static int open_service(struct stk_store *store, struct stk_store_endpoint *service, uint32_t kind,
                        struct stoker_error *error)
{
    struct stk_credential_options options = {
        .service = kind, .http = store->http, .anonymous = stk_credentials_is_unsigned(kind)};

    service->status = stk_endpoint_find(kind, &service->site, &service->error);
    return stk_credential_provider_open(&service->creds, &options, error);
}

struct stk_store_endpoint *stk_store_find_endpoint(struct stk_store *store,
                                                   const struct stk_object_url *object)
{
    return object->kind == STK_OBJECT_URL_GCS     ? &store->gcs
           : object->kind == STK_OBJECT_URL_AZURE ? &store->azure
           : object->kind == STK_OBJECT_URL_HF    ? &store->hf
                                                  : NULL;
}

struct stk_s3_express_session *stk_store_find_session(struct stk_store *store, const char *bucket)
{
    for (uint32_t i = 0; i < store->session_count; i++) {
        if (strcmp(store->sessions[i].bucket, bucket) == 0) {
            return &store->sessions[i];
        }
    }
    return NULL;
}

struct stk_credential_provider *stk_store_credential_provider(struct stk_store *store,
                                                              const struct stk_object_url *object)
{
    struct stk_store_endpoint *service = stk_store_find_endpoint(store, object);
    struct stk_s3_express_session *session =
        object->zone ? stk_store_find_session(store, object->bucket) : NULL;

    return service ? service->creds : session ? session->creds : store->creds;
}

int stk_store_open_session(struct stk_store *store, const char *bucket,
                           const struct stk_credential_session *given,
                           struct stk_s3_express_session **session_out, struct stoker_error *error)
{
    struct stk_credential_options options = {.http = store->http, .session = given};
    struct stk_s3_express_session *session = &store->sessions[store->session_count];
    int status;

    if (store->session_count == STK_STORE_SESSIONS_MAX ||
        strlen(bucket) >= sizeof session->bucket) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "there are too many buckets of S3 Express",
                        "use at most 16 in a process", "'%.100s'", bucket);
    }
    status = stk_s3_express_provider_open(&session->creds, &options, error);
    if (status == 0) {
        memcpy(session->bucket, bucket, strlen(bucket) + 1);
        store->session_count++;
        *session_out = session;
    }
    return status;
}

void stk_store_close(struct stk_store *store)
{
    if (store) {
        if (store->http) {
            stk_http_shutdown(store->http); /* requests in flight use what is freed below */
        }
        for (uint32_t i = 0; i < store->session_count; i++) {
            stk_credential_provider_close(
                store->sessions[i].creds); /* sessions use the credentials that are freed below */
        }
        stk_credential_provider_close(store->creds);
        stk_credential_provider_close(store->gcs.creds);
        stk_credential_provider_close(store->azure.creds);
        stk_credential_provider_close(store->hf.creds);
        stk_http_close(store->http);
        stk_shared_limits_close(store->node);
        pthread_mutex_destroy(&store->lock);
        explicit_bzero(store, sizeof *store);
        stk_pages_free(store, sizeof *store);
    }
}

void stk_store_cancel_marked(struct stk_store *store)
{
    stk_http_cancel_stopped(store->http);
}

void stk_store_s3_kind(const struct stk_store *store, bool *own_out, bool *tls_out)
{
    const char *endpoint = store->config.site.endpoint;

    *own_out = endpoint[0] != '\0';
    *tls_out = !*own_out || strncasecmp(endpoint, "https", 5) == 0;
}

const struct stk_s3_settings *stk_store_settings(const struct stk_store *store)
{
    return &store->config.site.settings;
}

bool stk_store_has_sse_key(const struct stk_store *store, const struct stk_object_url *object)
{
    return object->kind == STK_OBJECT_URL_S3 &&
           stk_sse_keys_find(&store->keyring, object->bucket, object->key);
}

static void get_throttle_stats(struct stk_store *store, struct stoker_store_stats *ledger)
{
    struct stk_shared_limits_stats node;
    struct stk_http_stats http;

    stk_shared_limits_get_stats(store->node, stk_clock_ns(), &node);
    stk_http_get_stats(store->http, &http);
    ledger->throttles = atomic_load_explicit(&store->throttles, memory_order_relaxed);
    ledger->hedges = atomic_load_explicit(&store->hedges, memory_order_relaxed);
    ledger->hedges_won = atomic_load_explicit(&store->hedges_won, memory_order_relaxed);
    ledger->connection_waits = http.waits;
    ledger->throttle_waits = atomic_load_explicit(&store->throttled, memory_order_relaxed);
    ledger->rate_max = (double)node.rate / 1000;
    ledger->connections = http.connections;
    ledger->connections_peak = http.connections_peak;
    ledger->connections_max = http.connections_max;
    ledger->node_connections = node.connections;
    ledger->node_connections_max = node.connections_max;
    ledger->node_engines = node.members;
    ledger->sharing_note = stk_shared_limits_note(store->node);
}

void stk_store_get_stats(struct stk_store *store, struct stoker_store_stats *ledger_out)
{
    get_throttle_stats(store, ledger_out);
    for (uint32_t i = 0; i < STOKER_STORES; i++) {
        ledger_out->requests[i] = atomic_load_explicit(&store->requests[i], memory_order_relaxed);
        ledger_out->lists[i] = atomic_load_explicit(&store->lists[i], memory_order_relaxed);
        ledger_out->puts[i] = atomic_load_explicit(&store->puts[i], memory_order_relaxed);
        ledger_out->deletes[i] = atomic_load_explicit(&store->deletes[i], memory_order_relaxed);
        ledger_out->bytes[i] = atomic_load_explicit(&store->bytes[i], memory_order_relaxed);
        ledger_out->verified_bytes[i] =
            atomic_load_explicit(&store->verified[i], memory_order_relaxed);
    }
    ledger_out->checksum_failures =
        atomic_load_explicit(&store->checksum_failures, memory_order_relaxed);
    ledger_out->retries_transient =
        atomic_load_explicit(&store->retries[STK_RETRY_CLASS_TRANSIENT - 1], memory_order_relaxed);
    ledger_out->retries_throttled =
        atomic_load_explicit(&store->retries[STK_RETRY_CLASS_THROTTLED - 1], memory_order_relaxed);
    ledger_out->retries_other =
        atomic_load_explicit(&store->retries[STK_RETRY_CLASS_IMMEDIATE - 1], memory_order_relaxed);
}

void stk_store_get_region(struct stk_store *store, const char *bucket, char *region_out)
{
    const char *region = store->config.site.region;

    pthread_mutex_lock(&store->lock);
    for (uint32_t i = 0; i < store->locked.bucket_count; i++) {
        if (strcmp(store->locked.buckets[i].name, bucket) == 0) {
            region = store->locked.buckets[i].region;
        }
    }
    memcpy(region_out, region, STK_STORE_REGION_BYTES);
    pthread_mutex_unlock(&store->lock);
}

void stk_store_set_region(struct stk_store *store, const char *bucket, const char *region)
{
    struct stk_bucket_region *known_bucket = NULL;

    pthread_mutex_lock(&store->lock);
    for (uint32_t i = 0; i < store->locked.bucket_count; i++) {
        if (strcmp(store->locked.buckets[i].name, bucket) == 0) {
            known_bucket = &store->locked.buckets[i];
        }
    }
    if (!known_bucket) { /* if all entries are used, the last one is replaced */
        store->locked.bucket_count =
            (uint32_t)stk_min(store->locked.bucket_count + 1, STK_STORE_BUCKETS_MAX);
        known_bucket = &store->locked.buckets[store->locked.bucket_count - 1];
    }
    snprintf(known_bucket->name, sizeof known_bucket->name, "%s", bucket);
    snprintf(known_bucket->region, sizeof known_bucket->region, "%s", region);
    pthread_mutex_unlock(&store->lock);
}

bool stk_store_acquire_retry_tokens(struct stk_store *store, uint32_t cost)
{
    bool enough;

    pthread_mutex_lock(&store->lock);
    enough = store->locked.tokens >= cost;
    store->locked.tokens -= enough ? cost : 0;
    pthread_mutex_unlock(&store->lock);
    return enough;
}

void stk_store_release_retry_tokens(struct stk_store *store, uint32_t cost)
{
    pthread_mutex_lock(&store->lock);
    store->locked.tokens = (uint32_t)stk_min(store->locked.tokens + cost, TOKENS_MAX);
    pthread_mutex_unlock(&store->lock);
}

uint64_t stk_store_random(struct stk_store *store, uint64_t bound)
{
    uint64_t count = atomic_fetch_add_explicit(&store->random, 1, memory_order_relaxed);

    return stk_random_key(store->options.seed, count) % (bound + 1);
}

/* An invalid setting is reported by requests to S3: it must not affect other stores. */
static void configure(struct stk_store_config *config)
{
    const char *payer = stk_environment_get("AWS_REQUEST_PAYER");
    uint32_t configured;

    config->status = stk_endpoint_find(STK_CREDS_AWS, &config->site, &config->error);
    configured = config->site.settings.attempts_max;
    config->requester_pays = payer && strcasecmp(payer, "requester") == 0;
    config->attempts_max = configured > 0 ? configured : STK_STORE_ATTEMPTS_MAX;
}

const char *stk_store_endpoint_text(const struct stk_store *store,
                                    const struct stk_object_url *object)
{
    return object->kind == STK_OBJECT_URL_GCS     ? store->gcs.site.endpoint
           : object->kind == STK_OBJECT_URL_AZURE ? store->azure.site.endpoint
                                                  : store->config.site.endpoint;
}
