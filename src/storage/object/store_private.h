/* storage/object/store_private.h: the parts of the room: what is configured, how a request is made
 * and judged.
 *
 *   exchange -prepare (signed_request.c)-> signed -> answer -judge (retry_policy.c)-> good | again
 *   | failed
 *
 * Owner: struct stk_store. Threads: any; `locked` with its lock. Memory: with the store.
 * Bound: STK_STORE_BUCKETS_MAX buckets are remembered. */
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
#define STK_STORE_CHECKSUM_DOUBTS_MAX 3u /* then doubtful checksums are no longer looked at */
#define STK_STORE_NO_CHECKSUM_MAX 3u     /* then no more objects are asked for theirs */

struct stk_store_config {
    int status; /* below 0: with its error: what is said of S3 cannot be meant */
    struct stoker_error error;
    struct stk_endpoint site; /* S3's */
    bool requester_pays;
    uint32_t attempts_max;
};

/* What was learned of a bucket. */
struct stk_bucket_region {
    char name[256];
    char region[STK_STORE_REGION_BYTES];
};

/* Keys that a bucket of S3 Express gave. */
struct stk_s3_express_session {
    char bucket[64];
    struct stk_credential_provider *creds;
    struct stk_sigv4_key_cache sign_cache;
};

/* Where the objects of another kind than S3 are, and who asks for them. */
struct stk_store_endpoint {
    int status; /* below 0: with its error: the environment names no place that can be meant */
    struct stoker_error error;
    struct stk_endpoint site;
    struct stk_credential_provider *creds;
    struct stk_credentials credentials; /* of the reactor, as the cache */
    struct stk_sigv4_key_cache sign_cache;
};

struct stk_store {
    struct stk_store_options options;
    struct stk_store_endpoint gcs, azure, hf;
    struct stk_store_config config;
    struct stk_http *http;
    struct stk_sse_keys keyring; /* const after open */
    struct stk_credential_provider *creds;
    struct stk_sigv4_key_cache sign_cache; /* of the reactor, as credentials */
    struct stk_credentials credentials;
    _Atomic int64_t skew_s; /* of the server's clock to ours */
    _Atomic uint64_t random;
    _Atomic uint64_t requests[STOKER_STORES], bytes[STOKER_STORES];
    _Atomic uint64_t lists[STOKER_STORES], puts[STOKER_STORES], deletes[STOKER_STORES];
    _Atomic uint64_t retries[4];                                 /* by verdict */
    _Atomic uint64_t verified[STOKER_STORES], checksum_failures; /* bytes; bodies */
    _Atomic uint32_t
        checksum_doubts; /* checksums that were of other bytes than they seemed to be */
    _Atomic uint32_t without_checksum; /* objects in a row of which S3 told no checksum */
    _Atomic bool has_answered;         /* some server has */
    /* Groups that gave a good answer; of two that share a place the last one. */
    _Atomic uint64_t last_success[STK_STORE_GROUPS];
    _Atomic bool requires_checksums; /* of what is written */
    struct stk_shared_limits *node;
    uint64_t endpoint_hash; /* a hash of the endpoint */
    /* of the reactor: those that wait for a first byte, in the order of their turns */
    struct stk_operation *earliest, *latest;
    struct stk_latency_histogram delays;
    struct stk_hedge_budget hedge_budget;
    uint64_t throttled_until_ns;                                    /* no hedges until then */
    struct stk_s3_express_session sessions[STK_STORE_SESSIONS_MAX]; /* of the reactor */
    uint32_t session_count;
    _Atomic uint64_t hedges, hedges_won, throttles, throttled;
    pthread_mutex_t lock;
    struct {
        uint32_t tokens;
        struct stk_bucket_region buckets[STK_STORE_BUCKETS_MAX];
        uint32_t bucket_count;
    } locked;
};

/* What to do with an answer, or with none. */
enum stk_retry_class {
    STK_RETRY_CLASS_SUCCESS = 0,
    STK_RETRY_CLASS_TRANSIENT, /* again, soon */
    STK_RETRY_CLASS_THROTTLED, /* again, later */
    STK_RETRY_CLASS_IMMEDIATE, /* again, at once, once: credentials, region or clock were put right
                                */
    STK_RETRY_CLASS_PERMANENT,
};

/* What a refusal says: <Error><Code>..</Code><Message>..</Message></Error>, cut, or empty. */
struct stk_error_response {
    char code[sizeof((struct stk_operation *)0)->error_code], message[160], request_id[80],
        region[STK_STORE_REGION_BYTES];
    char storage[32], tier[32]; /* of an archived object; the tier of INTELLIGENT_TIERING */
};

/* Its row in the ledger: enum stoker_store. */
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
/* Takes tokens for a retry; false: there are none left. Gives them back after a success. */
bool stk_store_acquire_retry_tokens(struct stk_store *store, uint32_t cost);
void stk_store_release_retry_tokens(struct stk_store *store, uint32_t cost);
/* A number in [0, bound]. */
uint64_t stk_store_random(struct stk_store *store, uint64_t bound);

/* The service of a place; NULL: S3 or the web. */
struct stk_store_endpoint *stk_store_find_endpoint(struct stk_store *store,
                                                   const struct stk_object_url *object);

/* The same of S3 too: who signs requests to the place. */
struct stk_credential_provider *stk_store_credential_provider(struct stk_store *store,
                                                              const struct stk_object_url *object);

/* The session of a bucket of S3 Express; NULL: none is open. Opens one, of *given. On the reactor.
 */
struct stk_s3_express_session *stk_store_find_session(struct stk_store *store, const char *bucket);
int stk_store_open_session(struct stk_store *store, const char *bucket,
                           const struct stk_credential_session *given,
                           struct stk_s3_express_session **session_out, struct stoker_error *error);

/* operation.c: whose rate a request for the place keeps to, and whose others' speed it may be
 * compared with: the bucket's, or the host's of the web. */
uint64_t stk_store_throttle_keys(const struct stk_store *store, const struct stk_object_url *object,
                                 uint64_t *group_out);

/* Its turn has come. Who waited for it is not without progress, unless nobody makes any. */
void stk_operation_admitted(struct stk_operation *operation, uint64_t now_ns);
/* The bucket or host has been well. */
static inline void stk_store_record_success(struct stk_store *store, uint64_t group)
{
    atomic_store_explicit(&store->last_success[group % STK_STORE_GROUPS], group,
                          memory_order_relaxed);
}

/* signed_request.c: fills url and headers of exchange->request in room. 0, -EAGAIN or a filled
 * error. */
int stk_store_sign_request(struct stk_http_request *request, char *room);

/* object_read.c */
/* Of all bytes of a fetch, whether they are as the server told: a verdict, GOOD or not, and then
 * the request's error is filled. */
uint32_t stk_store_verify_body(struct stk_operation *operation);
static inline bool stk_operation_is_full_object(const struct stk_operation *operation)
{
    return operation->ranged && operation->info && operation->offset == 0 &&
           operation->bytes == operation->info->bytes;
}

/* list_guard.c: finds listings that make no progress. A server, or a cache in front of it, that
 * sends the same pages in a circle, or empty pages without end, would be asked for ever. */
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
/* Whether the word says that the object is archived. */
bool stk_error_response_is_archived(const char *code);
uint32_t stk_store_classify(struct stk_operation *operation, const struct stk_http_response *answer,
                            const struct stk_error_response *response);
int stk_store_fail(struct stk_operation *operation, const struct stk_http_response *answer,
                   const struct stk_error_response *response);
/* Checks the head of a 2xx answer against what was asked; 0 or a filled error. */
int stk_store_check_response(struct stk_http_request *request,
                             const struct stk_http_response *answer);
/* Looks for what is late; storage/http/http.h calls it. */
uint64_t stk_store_poll(void *store, uint64_t now_ns);
/* How long to wait before the try number `attempt` (from 1), in ms; 0: the store says no to a part
 * of whatever it is asked, and waiting longer does not help. */
uint64_t stk_store_backoff(struct stk_store *store, uint32_t retry_class, uint32_t attempt);
/* How long the server asks us to wait, in ms; 0: it does not say. Saturated. */
uint64_t stk_store_retry_after(const struct stk_http_response *answer);
/* "bytes 0-9/10": false if it is not. total UINT64_MAX: "*". */
bool stk_store_parse_content_range(struct stk_view text, uint64_t *first, uint64_t *last,
                                   uint64_t *total);

#endif
