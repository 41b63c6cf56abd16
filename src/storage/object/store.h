/* storage/object/store.h: objects in stores that are reached by URLs: s3://bucket/key,
 * gs://bucket/key, az://container/blob, hf://datasets/org/name@revision/path, http(s)://host/path.
 *
 *   URL -place-> where it is -open-> object (size, ETag) -fetch-> bytes of a range, of that version
 *                                `-list-> names below a prefix
 *
 *   fetch: sent --ok--> done    sent --it may pass: waits (full jitter), signed anew--> sent
 *          of a body that breaks off the rest is asked for; what is good is kept
 *
 * Below each prefix of a bucket no faster than the node's rate (storage/throttle/throttle.h). A
 * range whose first byte is late is asked for once more (a hedge), beside: who begins to bring its
 * bytes goes on, the other ends; of writes, lists and probes never.
 * Every range is asked for of the version that was opened (If-Match) and checked: Content-Range,
 * size, ETag, length, and the checksum where the server tells one (storage/checksum/checksum.h).
 * Deadlines: a fetch for which no byte comes for timeout_ms fails; in an outage of a bucket or host
 * that was well, for STK_STORE_OUTAGE_FACTOR as long.
 * Owner: the route of an engine. Threads: any; done of a fetch is called on the reactor.
 * Memory: one block an object; a fetch is its owner's. Bound: connections_max requests at once,
 * STK_STORE_ATTEMPTS_MAX of a fetch without progress. */
#ifndef STORAGE_OBJECT_STORE_H
#define STORAGE_OBJECT_STORE_H

#include "storage/checksum/checksum.h"
#include "storage/checksum/composite_checksum.h"
#include "storage/http/http.h"
#include "storage/provider/s3_endpoint.h"
#include "storage/throttle/shared_limits.h"
#include "storage/url/url_split.h"

#include <stdatomic.h>
#include <string.h>

#define STK_STORE_URL_BYTES_MAX 4096u /* as users name them; a key has at most 1,024 bytes */
#define STK_STORE_ETAG_BYTES_MAX 256u
#define STK_STORE_CLASS_BYTES 24u /* "INTELLIGENT_TIERING" */
#define STK_STORE_ATTEMPTS_MAX 12u
#define STK_STORE_PAGE_BYTES_MAX (8u << 20) /* of one page of a listing: 1,000 keys */
#define STK_STORE_RANGE_BYTES (8u << 20)    /* larger reads are cut into ranges of so many bytes */
#define STK_STORE_AZURE_CHECKSUM_BYTES (4u << 20) /* Azure tells a checksum of ranges up to it */
#define STK_STORE_EXTRA_HEADERS_MAX 8u
/* A server may have us come back in so long; one that says a longer time has failed. */
#define STK_STORE_RETRY_AFTER_MAX_MS 300000u
/* So long may a request wait for its turn (a rate, a connection, a time that the server said),
 * which is no lack of progress, from one byte that it brings to the next. */
#define STK_STORE_WAIT_MAX_MS 600000u
/* In an outage all that is asked is refused, or nobody is there: a store is started anew, or told
 * to rest. What fails is no matter of the request, and it is no use to fail a training for it. */
#define STK_STORE_OUTAGE_FACTOR 10u
#define STK_STORE_SIGNED_URLS_MAX 3u /* signed URLs of the hub, refused one after the other */
#define STK_STORE_CHECKSUM_FAILURES_MAX                                                            \
    3u /* bodies of a fetch that do not match the server's checksum */

struct stk_store;
struct stk_credential_provider;

struct stk_store_options {
    uint32_t connections_max; /* 0: the default of storage/http/http.h */
    uint32_t timeout_ms;
    uint64_t seed;        /* of jitter */
    bool check_md5_etags; /* ETags that are MD5s are checked, where there is nothing better */
    uint32_t node_connections_max; /* of all processes; 0: shared_limits.h has the default */
    bool unshared;                 /* shares no budget and no rate with other processes */
    uint32_t hedge_percent_max;    /* reads asked for twice, of 100; 0: STK_HEDGE_MAX_PERCENT */
    bool no_hedges;
};

enum stk_object_url_kind {
    STK_OBJECT_URL_HTTP = STK_URL_HTTP,
    STK_OBJECT_URL_S3 = STK_URL_S3,
    STK_OBJECT_URL_GCS = STK_URL_GCS,
    STK_OBJECT_URL_AZURE = STK_URL_AZURE,
    STK_OBJECT_URL_HF = STK_URL_HF,
    STK_OBJECT_URL_KINDS_END = STK_URL_SCHEMES_END,
};

/* Where a file of the hub was found: a signed URL of another host, until it is refused there. Of
 * the reactor. */
struct stk_signed_url {
    char *url; /* hidden */
    bool here; /* as storage/http/http.h has it */
};

/* Where something is. One block; freed by stk_object_url_free. */
struct stk_object_url {
    uint32_t kind;    /* enum stk_object_url_kind */
    bool tls;         /* http */
    const char *url;  /* its name: what errors show (storage/url/url_alias.h) */
    const char *zone; /* S3 Express: of the bucket's zone ("usw2-az1"); NULL: a usual bucket */
    /* S3: what the ARN that stands for a bucket names; NULL: a bucket. Within the block. */
    const struct stk_s3_arn *arn;
    const char *bucket; /* not http; Azure: the container; the hub: "datasets/org/name@revision" */
    const char *key;    /* not http: raw, without a first '/'; may be empty */
    struct stk_signed_url *landing; /* the hub; within the block */
    char *target; /* http: what is sent, encoded, with scheme and host; owned, hidden */
};

/* Gives *object_out. ARGUMENT: no URL of a store that is known. */
int stk_object_url_parse(const char *url, struct stk_object_url **object_out,
                         struct stoker_error *error);
void stk_object_url_free(struct stk_object_url *place);
uint32_t
stk_object_url_provider(const struct stk_object_url *place); /* enum stk_checksum_provider */
/* Of a store that has keys and can list them; else of a web server. */
static inline bool stk_object_url_has_key(const struct stk_object_url *place)
{
    return place->kind != STK_OBJECT_URL_HTTP;
}

int stk_store_open(struct stk_store **store_out, const struct stk_store_options *options,
                   struct stoker_error *error);
void stk_store_close(struct stk_store *store); /* takes; what is in flight is cancelled first */

/* What is known of an object without its bytes. */
struct stk_object_info {
    uint64_t bytes;
    uint64_t mtime_ns;
    char etag[STK_STORE_ETAG_BYTES_MAX]; /* as it is sent, with its quotes; empty: none */
    char modified[64];                   /* http: Last-Modified as it was told; empty: none */
    bool folder;                         /* Azure: a folder, which is a blob without bytes */
    struct stk_checksum checksum;        /* told before its bytes come: the hub does; or NONE */
    char storage[STK_STORE_CLASS_BYTES]; /* its class; empty: the usual one, or not told */
    uint32_t archive;                    /* enum stoker_archive */
    uint64_t restored_until_ns;          /* of BACK; 0: not told */
};

/* What one request wants, with all of its tries. Private to the room, but for the fields of a
 * fetch; lent to the reactor from start to done. */
struct stk_operation {
    struct stk_http_request request; /* first */
    struct stk_store *store;
    const struct stk_object_url *object; /* lent */
    uint32_t method;                     /* enum stk_http_method */
    const struct stk_object_info *info;  /* of the version that is wanted; NULL: any */
    bool probe;                          /* a byte of it, to be told its size and version */
    bool ranged;
    uint64_t offset, bytes;              /* of the range */
    uint64_t received;                   /* of them have come */
    struct stk_range_coverage *coverage; /* of the object that it is a range of, lent; NULL: none */
    bool wants_checksum;                 /* S3, HEAD: the object's checksum is wanted */
    const struct stk_sigv4_pair *query;  /* S3: added to the bucket's URL; the key is not */
    uint32_t query_count;
    bool keyed; /* S3: the key stays in the URL, though there is a query */
    /* S3: beside those that are made here, and signed as they are. */
    const struct stk_sigv4_pair *extra_headers;
    uint32_t extra_header_count; /* at most STK_STORE_EXTRA_HEADERS_MAX */
    const struct stk_object_url
        *source;         /* S3: the server copies from there; lent; NULL: it does not */
    const char *payload; /* SHA-256 of the body in hex; NULL: made here, on the reactor */
    /* The body of a good answer is XML, and may tell of a failure all the same; buffer has a byte
     * more than buffer_bytes, for a NUL. */
    bool document;
    uint32_t timeout_factor; /* times longer than usual until the first byte and the end; 0: 1 */
    bool tree, deep;      /* the hub: a page of a listing, as storage/provider/provider.h has it */
    const char *link;     /* likewise */
    bool used_signed_url; /* the hub: the try went to the place's landing */
    /* NULL, or true when it is not wanted any more: done comes soon, with CLOSED. Lent until done.
     * Of stk_operation_run the one that its thread obeys (io/io.h). */
    const _Atomic bool *stop;
    uint8_t *buffer;
    uint64_t buffer_bytes;
    void (*done)(struct stk_operation *exchange, const struct stk_http_response *answer);
    void *owner;
    /* told */
    int status;
    struct stoker_error error;
    uint32_t code;       /* of the last answer; 0: none */
    char error_code[64]; /* the word that it said no with ("NoSuchKey"); empty: none */
    /* of the tries */
    uint32_t attempts, refreshes, moves;
    uint32_t sends;              /* of the attempts: libcurl may send one again by itself */
    uint32_t immediate_attempts; /* of the attempts: such as waited for nothing */
    uint32_t progress_attempts;  /* of the others: up to the last that brought something, or in an
                                    outage */
    uint32_t cost;               /* tokens taken for its tries */
    uint64_t progress_ns; /* when a byte came last, or it began; later by what it waited for */
    uint64_t queued_ns;   /* since when the try in hand waits for its turn */
    uint64_t waited_ns;   /* for turns, since it brought something */
    bool in_outage;       /* it was refused last, or waits, in an outage */
    uint64_t generation;  /* of the credentials that it was signed with */
    struct stk_checksum hf_checksum; /* what the hub told of the file, before it led to its bytes */
    struct stk_response_checksums seals; /* what the server told of the wanted bytes */
    struct stk_checksum bad_checksum;    /* of the last body that was not as it told */
    uint32_t checksum_failures;          /* such bodies */
    _Atomic bool cancelled;
    const char *headers[32];
    /* of manners; of the reactor */
    uint64_t rate_key, latency_group;      /* whose rate it keeps to; whose others' speed counts */
    uint64_t admitted_ns;                  /* when the try in flight was admitted */
    bool throttled;                        /* it had to wait for its turn */
    struct stk_operation *later, *earlier; /* of those that have no first byte yet */
    bool awaits_first_byte;                /* is one of them */
    struct stk_operation *hedge,
        *hedge_of;             /* the second try beside this one; the first one of it */
    bool hedge_won, abandoned; /* a hedge's bytes are taken; nobody waits for it: it frees itself */
    bool ended;                /* the first try, before its hedge */
    uint32_t stats_row;        /* of the ledger */
};

/* Sends it until it is done; never waits. */
void stk_operation_start(struct stk_store *store, struct stk_operation *exchange);
/* done comes soon with CLOSED, unless it is ending already; its memory must still be there. Of many
 * all are marked first, then stopped by one stk_store_cancel_marked. */
static inline void stk_operation_cancel(struct stk_operation *exchange)
{
    atomic_store_explicit(&exchange->cancelled, true, memory_order_relaxed);
}
void stk_store_cancel_marked(struct stk_store *store);
/* Starts it and waits for done. Not on the reactor. */
int stk_operation_run(struct stk_store *store, struct stk_operation *exchange,
                      struct stk_http_response *answer_out, struct stoker_error *error);

/* What S3 is here: a server of one's own (AWS_ENDPOINT_URL), and whether requests go by TLS. */
void stk_store_s3_kind(const struct stk_store *store, bool *own_out, bool *tls_out);
/* How S3 is to be asked. Lent until close. */
const struct stk_s3_settings *stk_store_settings(const struct stk_store *store);

/* Whether requests for the object go out with a customer's key. */
bool stk_store_has_sse_key(const struct stk_store *store, const struct stk_object_url *place);

/* Asks for size and version. -ENOENT, -EACCES ... */
int stk_store_head(struct stk_store *store, const struct stk_object_url *place,
                   struct stk_object_info *info_out, struct stoker_error *error);
/* The same of one that need not be read: of an archived one, too. */
int stk_store_head_archived(struct stk_store *store, const struct stk_object_url *place,
                            struct stk_object_info *info_out, struct stoker_error *error);
/* As a listing tells it; NULL: it does not. */
static inline void stk_object_info_set_class(struct stk_object_info *about, const char *storage)
{
    size_t bytes = storage ? strlen(storage) : sizeof about->storage;

    if (bytes < sizeof about->storage) {
        memcpy(about->storage, storage, bytes + 1);
    }
}
/* Whether an object of this class may be in an archive: then a listing does not tell all. */
bool stk_store_class_may_be_archive(const char *storage);
/* In which region its bucket is, as the service calls it: "us-west-2"; "us-central1", "eu". Empty:
 * it does not tell. Of S3 also who may not list it is told. */
int stk_store_bucket_location(struct stk_store *store, const struct stk_object_url *place,
                              char region_out[64], struct stoker_error *error);
/* stk_store_head without waiting: readies *exchange, whose done has stk_store_head_reply of the
 * answer.
 */
void stk_store_init_head(struct stk_operation *exchange, const struct stk_object_url *place,
                         uint8_t *byte);
/* bytes UINT64_MAX: the server tells no size. */
void stk_store_head_reply(const struct stk_operation *exchange,
                          const struct stk_http_response *answer, struct stk_object_info *info_out);
/* Readies *exchange to bring `bytes` at `offset` of the version *about (lent) to buffer; the
 * caller sets done and owner and starts it. The range lies within the object. */
void stk_store_init_read(struct stk_operation *exchange, const struct stk_object_url *place,
                         const struct stk_object_info *about, uint64_t offset, uint64_t bytes,
                         uint8_t *buffer);

/* Larger reads are cut into ranges of so many bytes. */
uint32_t stk_store_range_bytes(const struct stk_object_url *place);
/* A cover for an object that will be fetched by ranges, or NULL: no checksum of the whole can be
 * learnt; or, but where it is wanted for sure, it is unlikely. *ask_out: nobody tells it unless he
 * is asked by stk_store_init_checksum. */
struct stk_range_coverage *stk_store_new_coverage(struct stk_store *store,
                                                  const struct stk_object_url *place,
                                                  const struct stk_object_info *about, bool sure,
                                                  bool *ask_out);
/* Readies *exchange to ask for the checksum of the version *about (lent); done has
 * stk_store_checksum_reply of it. */
void stk_store_init_checksum(struct stk_operation *exchange, const struct stk_object_url *place,
                             const struct stk_object_info *about);
/* whole_out: the checksum where it is one that cannot be joined; kind NONE: it is not. */
void stk_store_checksum_reply(const struct stk_operation *exchange,
                              const struct stk_http_response *answer,
                              struct stk_range_coverage *cover, struct stk_checksum *whole_out);
/* Of an object that was written by parts: of part `number`, from 1. Waits. UNSUPPORTED: the server
 * does not tell. */
int stk_store_part_checksum(struct stk_store *store, const struct stk_object_url *place,
                            const struct stk_object_info *about, uint32_t number,
                            struct stk_composite_checksum_part *part_out,
                            struct stoker_error *error);
/* Whether bodies were refused that had no checksum of their own: of buckets with object lock. */
void stk_store_require_checksums(struct stk_store *store);
bool stk_store_requires_checksums(const struct stk_store *store);
/* For the ledger: so many bytes were proven by others, or are damaged. */
void stk_store_count_verified(struct stk_store *store, const struct stk_object_url *place,
                              uint64_t bytes);
void stk_store_count_damaged(struct stk_store *store);
/* Bytes of the object that came in another way than by stk_store_init_read. CORRUPT: all are there
 * now, and not as the checksum says. */
int stk_store_checksum_add(struct stk_store *store, const struct stk_object_url *place,
                           struct stk_range_coverage *cover, uint64_t offset, struct stk_view bytes,
                           struct stoker_error *error);

/* What a listing tells of one name. */
struct stk_list_entry {
    const char *name; /* below the prefix; lent for the call */
    bool folder;      /* a common prefix; name without its '/' */
    uint64_t bytes, mtime_ns;
    const char *etag;
    const char *storage; /* as struct stk_object_info has it; NULL: not told */
    const char *hash;    /* the hub: as storage/provider/huggingface_request.h has it; NULL: none */
};
/* What is to be listed, and who is told. */
struct stk_list_request {
    const struct stk_object_url *place; /* a prefix: '/' is added to its end if it has none */
    bool deep;                          /* all below it, not only what lies directly there */
    bool marks;                         /* with the object that is the prefix itself, and a folder
                                         * without a name: "" */
    uint32_t max;                       /* 0: all; else the first so many at least */
    bool *more_out;    /* with max: whole pages; false: that was all. NULL: as few */
    const char *after; /* deep: names behind this one only, as bytes sort; NULL: all */
    int (*found)(void *owner, const struct stk_list_entry *item); /* below 0 ends it */
    void *owner;
};
int stk_store_list(struct stk_store *store, const struct stk_list_request *search,
                   struct stoker_error *error);

/* What requests were sent, came again, and why; leaves struct_size alone. */
void stk_store_get_stats(struct stk_store *store, struct stoker_store_stats *ledger_out);

/* "Wed, 21 Oct 2015 07:28:00 GMT" or "2015-10-21T07:28:00.000Z"; 0: neither. ns. */
uint64_t stk_store_parse_time(const char *text, size_t bytes);

#endif
