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
#define STK_STORE_DOUBTS_MAX 3u   /* then doubtful checksums are no longer looked at */
#define STK_STORE_UNSEALED_MAX 3u /* then no more objects are asked for theirs */

struct stk_store_config {
    int status; /* below 0: with its error: what is said of S3 cannot be meant */
    struct stoker_error error;
    struct stk_site site; /* S3's */
    bool requester_pays;
    uint32_t attempts_max;
};

/* What was learned of a bucket. */
struct stk_bucket {
    char name[256];
    char region[STK_STORE_REGION_BYTES];
};

/* Keys that a bucket of S3 Express gave. */
struct stk_session {
    char bucket[64];
    struct stk_creds *creds;
    struct stk_sign_cache sign_cache;
};

/* Where the objects of another kind than S3 are, and who asks for them. */
struct stk_service {
    int status; /* below 0: with its error: the environment names no place that can be meant */
    struct stoker_error error;
    struct stk_site site;
    struct stk_creds *creds;
    struct stk_credentials credentials; /* of the reactor, as the cache */
    struct stk_sign_cache sign_cache;
};

struct stk_store {
    struct stk_store_options options;
    struct stk_service google, azure, hub;
    struct stk_store_config config;
    struct stk_http *http;
    struct stk_keyring keyring; /* const after open */
    struct stk_creds *creds;
    struct stk_sign_cache sign_cache; /* of the reactor, as credentials */
    struct stk_credentials credentials;
    _Atomic int64_t skew_s; /* of the server's clock to ours */
    _Atomic uint64_t random;
    _Atomic uint64_t requests[STOKER_STORES], bytes[STOKER_STORES];
    _Atomic uint64_t lists[STOKER_STORES], puts[STOKER_STORES], deletes[STOKER_STORES];
    _Atomic uint64_t retries[4];                      /* by verdict */
    _Atomic uint64_t checked[STOKER_STORES], damaged; /* bytes; bodies */
    _Atomic uint32_t doubts;   /* checksums that were of other bytes than they seemed to be */
    _Atomic uint32_t unsealed; /* objects in a row of which S3 told no checksum */
    _Atomic bool answered;     /* some server has */
    /* Groups that gave a good answer; of two that share a place the last one. */
    _Atomic uint64_t well[STK_STORE_GROUPS];
    _Atomic bool demands_sums; /* of what is written */
    struct stk_node *node;
    uint64_t where; /* a hash of the endpoint */
    /* of the reactor: those that wait for a first byte, in the order of their turns */
    struct stk_exchange *earliest, *latest;
    struct stk_delays delays;
    struct stk_purse purse;
    uint64_t throttled_until_ns;                         /* no hedges until then */
    struct stk_session sessions[STK_STORE_SESSIONS_MAX]; /* of the reactor */
    uint32_t session_count;
    _Atomic uint64_t hedges, hedges_won, throttles, paced;
    pthread_mutex_t lock;
    struct {
        uint32_t tokens;
        struct stk_bucket buckets[STK_STORE_BUCKETS_MAX];
        uint32_t bucket_count;
    } locked;
};

/* What to do with an answer, or with none. */
enum stk_verdict {
    STK_VERDICT_GOOD = 0,
    STK_VERDICT_TRANSIENT, /* again, soon */
    STK_VERDICT_THROTTLED, /* again, later */
    STK_VERDICT_AGAIN,     /* again, at once, once: credentials, region or clock were put right */
    STK_VERDICT_FAILED,
};

/* What a refusal says: <Error><Code>..</Code><Message>..</Message></Error>, cut, or empty. */
struct stk_refusal {
    char code[sizeof((struct stk_exchange *)0)->refused], message[160], request_id[80],
        region[STK_STORE_REGION_BYTES];
    char storage[32], tier[32]; /* of an archived object; the tier of INTELLIGENT_TIERING */
};

/* Its row in the ledger: enum stoker_store. */
static inline uint32_t stk_place_store(const struct stk_place *place)
{
    static_assert(STK_PLACE_S3 - STK_PLACE_HTTP == STOKER_STORE_S3 &&
                      STK_PLACE_GOOGLE - STK_PLACE_HTTP == STOKER_STORE_GS &&
                      STK_PLACE_AZURE - STK_PLACE_HTTP == STOKER_STORE_AZ &&
                      STK_PLACE_HUB - STK_PLACE_HTTP == STOKER_STORE_HF,
                  "in the same order");
    static_assert(STK_PLACES_END - STK_PLACE_HTTP == STOKER_STORES, "each kind has a row");
    return place->kind - STK_PLACE_HTTP;
}

/* store.c */
void stk_store_region(struct stk_store *store, const char *bucket, char *region_out);
void stk_store_learn_region(struct stk_store *store, const char *bucket, const char *region);
/* Takes tokens for a retry; false: there are none left. Gives them back after a success. */
bool stk_store_take_tokens(struct stk_store *store, uint32_t cost);
void stk_store_give_tokens(struct stk_store *store, uint32_t cost);
/* A number in [0, bound]. */
uint64_t stk_store_random(struct stk_store *store, uint64_t bound);

/* The service of a place; NULL: S3 or the web. */
struct stk_service *stk_store_service(struct stk_store *store, const struct stk_place *place);

/* The same of S3 too: who signs requests to the place. */
struct stk_creds *stk_store_asker(struct stk_store *store, const struct stk_place *place);

/* The session of a bucket of S3 Express; NULL: none is open. Opens one, of *given. On the reactor.
 */
struct stk_session *stk_store_find_session(struct stk_store *store, const char *bucket);
int stk_store_open_session(struct stk_store *store, const char *bucket,
                           const struct stk_creds_session *given, struct stk_session **session_out,
                           struct stoker_error *error);

/* operation.c: whose rate a request for the place keeps to, and whose others' speed it may be
 * compared with: the bucket's, or the host's of the web. */
uint64_t stk_store_prefix(const struct stk_store *store, const struct stk_place *place,
                          uint64_t *group_out);

/* Its turn has come. Who waited for it is not without progress, unless nobody makes any. */
void stk_exchange_turn(struct stk_exchange *exchange, uint64_t now_ns);
/* The bucket or host has been well. */
static inline void stk_store_note_well(struct stk_store *store, uint64_t group)
{
    atomic_store_explicit(&store->well[group % STK_STORE_GROUPS], group, memory_order_relaxed);
}

/* signed_request.c: fills url and headers of exchange->request in room. 0, -EAGAIN or a filled
 * error. */
int stk_store_prepare(struct stk_http_request *request, char *room);

/* object_read.c */
/* Of all bytes of a fetch, whether they are as the server told: a verdict, GOOD or not, and then
 * the request's error is filled. */
uint32_t stk_store_prove(struct stk_exchange *exchange);
static inline bool stk_exchange_is_whole(const struct stk_exchange *exchange)
{
    return exchange->ranged && exchange->about && exchange->offset == 0 &&
           exchange->bytes == exchange->about->bytes;
}

/* object_list.c: whether a listing gets on. A server, or a cache before it, that gives the same
 * pages in a circle, or pages of nothing without an end, would be asked for ever. */
struct stk_rounds {
    uint64_t pages;
    uint32_t idle;                    /* pages in a row that told nothing new */
    uint64_t last, kept;              /* sums of where a page's next begins: the last, an older */
    uint64_t its, its_last, its_kept; /* sums of the names on a page: in hand, the last, an older */
    bool any, objects;                /* the page in hand has names; of objects */
};
void stk_rounds_name(struct stk_rounds *rounds, const char *name, bool folder);
/* The page in hand is over, and this tells where the next one begins: 0 or a filled error. */
int stk_rounds_next(struct stk_rounds *rounds, const char *next, const struct stk_place *place,
                    struct stoker_error *error);

/* object_list_huggingface.c */
int stk_store_list_hub(struct stk_store *store, const struct stk_search *search,
                       struct stoker_error *error);

/* retry_policy.c */
void stk_refusal_read(struct stk_refusal *refusal, const struct stk_http_answer *answer);
/* The same of a document; left alone if it tells of no failure. */
void stk_refusal_of(struct stk_refusal *refusal, const char *document);
/* Whether the word says that the object is archived. */
bool stk_refusal_is_archived(const char *code);
uint32_t stk_store_judge(struct stk_exchange *exchange, const struct stk_http_answer *answer,
                         const struct stk_refusal *refusal);
int stk_store_fail(struct stk_exchange *exchange, const struct stk_http_answer *answer,
                   const struct stk_refusal *refusal);
/* Checks the head of a 2xx answer against what was asked; 0 or a filled error. */
int stk_store_check(struct stk_http_request *request, const struct stk_http_answer *answer);
/* Looks for what is late; storage/http/http.h calls it. */
uint64_t stk_store_tick(void *store, uint64_t now_ns);
/* How long to wait before the try number `attempt` (from 1), in ms; 0: the store says no to a part
 * of whatever it is asked, and waiting longer does not help. */
uint64_t stk_store_backoff(struct stk_store *store, uint32_t verdict, uint32_t attempt);
/* How long the server asks us to wait, in ms; 0: it does not say. Saturated. */
uint64_t stk_store_retry_after(const struct stk_http_answer *answer);
/* "bytes 0-9/10": false if it is not. total UINT64_MAX: "*". */
bool stk_store_content_range(struct stk_view text, uint64_t *first, uint64_t *last,
                             uint64_t *total);

#endif
