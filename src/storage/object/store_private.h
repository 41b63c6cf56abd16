/* storage/object/store_private.h: the state of a store, and what the files of storage/object share.
 *
 *   operation -sign (signed_request.c)-> sent -> response -classify (retry_policy.c)-> done | retry
 *
 * operation.c, signed_request.c, retry_policy.c, object_read.c and store.c are one state machine,
 * that of an operation, and call each other. Owner: struct stk_store. Threads: any; `locked` with
 * its lock. Memory: with the store. Bound: the regions of STK_STORE_BUCKETS_MAX buckets are
 * remembered. */
#ifndef STORAGE_OBJECT_STORE_PRIVATE_H
#define STORAGE_OBJECT_STORE_PRIVATE_H

#include "storage/config/sse_keys.h"
#include "storage/credentials/credentials.h"
#include "storage/object/store.h"
#include "storage/provider/provider.h"
#include "storage/provider/s3_endpoint.h"
#include "storage/sign/sigv4.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#define STK_STORE_BUCKETS_MAX 64u
#define STK_STORE_REGION_BYTES 64u
#define STK_STORE_SESSIONS_MAX 16u
#define STK_STORE_GROUPS 64u
#define STK_STORE_CHECKSUM_DOUBTS_MAX 3u /* then unreliable checksums are ignored */
#define STK_STORE_NO_CHECKSUM_MAX 3u     /* then checksums are no longer requested */

struct stk_store_config {
    int status; /* below 0: the settings of S3 are invalid; see error */
    struct stoker_error error;
    struct stk_endpoint site; /* S3's */
    bool requester_pays;
    uint32_t attempts_max;
};

/* The region of a bucket, once it is known. */
struct stk_bucket_region {
    char name[256];
    char region[STK_STORE_REGION_BYTES];
};

/* A session of a bucket of S3 Express. */
struct stk_s3_express_session {
    char bucket[64];
    struct stk_credential_provider *creds;
    struct stk_sigv4_key_cache sign_cache;
};

/* Endpoint and credentials of a service other than S3. */
struct stk_store_endpoint {
    int status; /* below 0: the environment names no valid endpoint; see error */
    struct stoker_error error;
    struct stk_endpoint site;
    struct stk_credential_provider *creds;
    struct stk_credentials credentials; /* used by the reactor only, as the cache */
    struct stk_sigv4_key_cache sign_cache;
};

struct stk_store {
    struct stk_store_options options;
    struct stk_store_endpoint gcs, azure, hf;
    struct stk_store_config config;
    struct stk_http *http;
    struct stk_sse_keys keyring; /* const after open */
    struct stk_credential_provider *creds;
    struct stk_sigv4_key_cache sign_cache; /* used by the reactor only, as credentials */
    struct stk_credentials credentials;
    _Atomic int64_t skew_s; /* server clock minus local clock */
    _Atomic uint64_t random;
    _Atomic uint64_t requests[STOKER_STORES], bytes[STOKER_STORES];
    _Atomic uint64_t lists[STOKER_STORES], puts[STOKER_STORES], deletes[STOKER_STORES];
    _Atomic uint64_t retries[4];                                 /* by enum stk_retry_class */
    _Atomic uint64_t verified[STOKER_STORES], checksum_failures; /* bytes; damaged bodies */
    _Atomic uint32_t checksum_doubts;  /* unreliable checksums that did not match */
    _Atomic uint32_t without_checksum; /* consecutive objects without a checksum of S3 */
    _Atomic bool has_answered;         /* some server has responded */
    /* Groups with a successful response, by hash; a later one replaces an earlier one. */
    _Atomic uint64_t last_success[STK_STORE_GROUPS];
    _Atomic bool requires_checksums; /* for bodies that are written */
    struct stk_shared_limits *node;
    uint64_t endpoint_hash; /* of the endpoint of S3 */
    /* used by the reactor only: operations without a first byte, in the order they were sent */
    struct stk_operation *earliest, *latest;
    struct stk_latency_histogram delays;
    struct stk_hedge_budget hedge_budget;
    uint64_t throttled_until_ns;                                    /* no hedges until then */
    struct stk_s3_express_session sessions[STK_STORE_SESSIONS_MAX]; /* used by the reactor only */
    uint32_t session_count;
    _Atomic uint64_t hedges, hedges_won, throttles, throttled;
    pthread_mutex_t lock;
    struct {
        uint32_t tokens;
        struct stk_bucket_region buckets[STK_STORE_BUCKETS_MAX];
        uint32_t bucket_count;
    } locked;
};

/* What to do after a response or a failure. */
enum stk_retry_class {
    STK_RETRY_CLASS_SUCCESS = 0,
    STK_RETRY_CLASS_TRANSIENT, /* retry soon */
    STK_RETRY_CLASS_THROTTLED, /* retry later */
    STK_RETRY_CLASS_IMMEDIATE, /* retry once at once: credentials, region or clock were corrected */
    STK_RETRY_CLASS_PERMANENT,
};

/* Fields of an error document, cut, or empty: <Error><Code>..</Code><Message>..</Message></Error>.
 */
struct stk_error_response {
    char code[sizeof((struct stk_operation *)0)->error_code], message[160], request_id[80],
        region[STK_STORE_REGION_BYTES];
    char storage[32], tier[32]; /* of an archived object; tier: INTELLIGENT_TIERING */
};

/* The row of statistics: enum stoker_store. */
static inline uint32_t stk_object_url_store_kind(const struct stk_object_url *object)
{
    static_assert(STK_OBJECT_URL_S3 - STK_OBJECT_URL_HTTP == STOKER_STORE_S3 &&
                      STK_OBJECT_URL_GCS - STK_OBJECT_URL_HTTP == STOKER_STORE_GS &&
                      STK_OBJECT_URL_AZURE - STK_OBJECT_URL_HTTP == STOKER_STORE_AZ &&
                      STK_OBJECT_URL_HF - STK_OBJECT_URL_HTTP == STOKER_STORE_HF,
                  "in the same order");
    static_assert(STK_OBJECT_URL_KINDS_END - STK_OBJECT_URL_HTTP == STOKER_STORES,
                  "each kind has a row");
    return object->kind - STK_OBJECT_URL_HTTP;
}

/* store.c */
void stk_store_get_region(struct stk_store *store, const char *bucket, char *region_out);
void stk_store_set_region(struct stk_store *store, const char *bucket, const char *region);
/* Acquires tokens for a retry; false: there are not enough. Released after a success. */
bool stk_store_acquire_retry_tokens(struct stk_store *store, uint32_t cost);
void stk_store_release_retry_tokens(struct stk_store *store, uint32_t cost);
/* A random number in [0, bound]. */
uint64_t stk_store_random(struct stk_store *store, uint64_t bound);

/* The endpoint of the service of an object; NULL: S3 or a web server. */
struct stk_store_endpoint *stk_store_find_endpoint(struct stk_store *store,
                                                   const struct stk_object_url *object);

/* The credentials that sign requests for an object, also of S3. */
struct stk_credential_provider *stk_store_credential_provider(struct stk_store *store,
                                                              const struct stk_object_url *object);

/* Finds the session of a bucket of S3 Express; NULL: none is open. Opens one with *given. On the
 * reactor.
 */
struct stk_s3_express_session *stk_store_find_session(struct stk_store *store, const char *bucket);
int stk_store_open_session(struct stk_store *store, const char *bucket,
                           const struct stk_credential_session *given,
                           struct stk_s3_express_session **session_out, struct stoker_error *error);

/* operation.c: the key of the rate limit of an object. *group_out: of the requests that its speed
 * is compared with: those of the bucket, or of the host of a web server. */
uint64_t stk_store_throttle_keys(const struct stk_store *store, const struct stk_object_url *object,
                                 uint64_t *group_out);

/* The operation has got its turn. The wait does not count as lack of progress, except in an outage.
 */
void stk_operation_admitted(struct stk_operation *operation, uint64_t now_ns);
/* The bucket or host has responded successfully. */
static inline void stk_store_record_success(struct stk_store *store, uint64_t group)
{
    atomic_store_explicit(&store->last_success[group % STK_STORE_GROUPS], group,
                          memory_order_relaxed);
}

/* signed_request.c: prepare of an operation's request: signs it in scratch. Returns 0, -EAGAIN or a
 * filled error. */
int stk_store_sign_request(struct stk_http_request *request, char *scratch);

/* object_read.c */
/* Verifies all bytes of a read against the server's checksum. Returns enum stk_retry_class; unless
 * it is SUCCESS the error of the request is filled. */
uint32_t stk_store_verify_body(struct stk_operation *operation);
static inline bool stk_operation_is_full_object(const struct stk_operation *operation)
{
    return operation->ranged && operation->info && operation->offset == 0 &&
           operation->bytes == operation->info->bytes;
}

/* list_guard.c: finds listings that make no progress. A server, or a cache in front of it, that
 * sends the same pages in a circle, or empty pages without end, would be queried for ever. */
struct stk_list_guard {
    uint64_t pages;
    uint32_t idle;        /* consecutive pages without a new name */
    uint64_t last, saved; /* hashes of continuation tokens: of the last page, of an older one */
    uint64_t names_hash, names_hash_last, names_hash_saved; /* hashes of the names of a page: of the
                                                             * current, the last, an older one */
    bool any, objects; /* the current page has names; has names of objects */
};
void stk_list_guard_add_name(struct stk_list_guard *guard, const char *name, bool folder);
/* Ends the current page; `next` is its continuation token. Returns 0, STOKER_ERROR_CORRUPT if the
 * listing goes in a circle, STOKER_ERROR_LIMIT if it has too many pages. */
int stk_list_guard_next_page(struct stk_list_guard *guard, const char *next,
                             const struct stk_object_url *object, struct stoker_error *error);

/* object_list_huggingface.c: stk_store_list of the hub. */
int stk_store_list_hf(struct stk_store *store, const struct stk_list_request *search,
                      struct stoker_error *error);

/* retry_policy.c */
void stk_error_response_read(struct stk_error_response *response,
                             const struct stk_http_response *answer);
/* The same for the body of a 2xx response: fills *response if the root of the document is an error,
 * else does not change it. */
void stk_error_response_parse(struct stk_error_response *response, struct stk_view document);
/* Whether the error code says that the object is archived. */
bool stk_error_response_is_archived(const char *code);
uint32_t stk_store_classify(struct stk_operation *operation, const struct stk_http_response *answer,
                            const struct stk_error_response *response);
int stk_store_fail(struct stk_operation *operation, const struct stk_http_response *answer,
                   const struct stk_error_response *response);
/* Checks the headers of a 2xx response against the request. Returns 0 or a filled error. */
int stk_store_check_response(struct stk_http_request *request,
                             const struct stk_http_response *answer);
/* tick of the reactor: hedges late reads. */
uint64_t stk_store_poll(void *store, uint64_t now_ns);
/* The back-off before try `attempt` (from 1), in ms. attempt 0: waiting longer does not help, as
 * the store throttles a share of requests at any rate. */
uint64_t stk_store_backoff(struct stk_store *store, uint32_t retry_class, uint32_t attempt);
/* Retry-After in ms, saturated; 0: none. */
uint64_t stk_store_retry_after(const struct stk_http_response *answer);
/* Parses "bytes 0-9/10"; false: it is something else. *total is UINT64_MAX for "*". */
bool stk_store_parse_content_range(struct stk_view text, uint64_t *first, uint64_t *last,
                                   uint64_t *total);

#endif
