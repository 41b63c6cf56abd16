/* storage/object/store.h: client for objects in stores: s3://bucket/key, gs://bucket/key,
 * az://container/blob, hf://datasets/org/name@revision/path, http(s)://host/path.
 *
 *   URL -parse-> stk_object_url -head-> info (size, ETag) -read-> bytes of a range of that version
 *                                `-list-> names below a prefix
 *
 *   operation: sent --success--> done    sent --transient: back-off with full jitter--> signed,
 * sent a body that breaks off is continued: received bytes are kept
 *
 * Requests below each prefix of a bucket keep to the rate that processes share
 * (storage/throttle/throttle.h). A range whose first byte is late is requested a second time (a
 * hedge); the first of the two that delivers bytes continues, the other is cancelled. Writes, lists
 * and probes are not hedged.
 * Every range is requested of the version that was opened (If-Match) and checked: Content-Range,
 * size, ETag, length, and the checksum if the server reports one (storage/checksum/checksum.h).
 * Deadlines: an operation that receives no byte for timeout_ms fails; in an outage of a bucket or
 * host that has worked before, after STK_STORE_OUTAGE_FACTOR times as long. Owner: the vfs of an
 * engine. Threads: any; done of an operation is called on the reactor. Memory: one block for each
 * URL; an operation is its owner's. Bound: connections_max requests at once, STK_STORE_ATTEMPTS_MAX
 * tries of an operation without progress. */
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

#define STK_STORE_URL_BYTES_MAX                                                                    \
    4096u /* of a URL as users write it; a key has at most 1,024 bytes */
#define STK_STORE_ETAG_BYTES_MAX 256u
#define STK_STORE_HOST_BYTES 128u
#define STK_STORE_CLASS_BYTES 24u /* "INTELLIGENT_TIERING" */
#define STK_STORE_ATTEMPTS_MAX 12u
#define STK_STORE_PAGE_BYTES_MAX (8u << 20) /* a page of a listing: 1,000 keys */
#define STK_STORE_RANGE_BYTES (8u << 20)    /* larger reads are split into ranges of this size */
#define STK_STORE_AZURE_CHECKSUM_BYTES                                                             \
    (4u << 20)                          /* Azure reports checksums of ranges up to this size */
#define STK_STORE_EXTRA_HEADERS_MAX 52u /* with the attributes of a copied object */
/* The longest Retry-After that is waited for; with a longer one the operation fails. */
#define STK_STORE_RETRY_AFTER_MAX_MS 300000u
/* The longest wait for a turn (a rate, a connection, Retry-After) between two bytes of progress. */
#define STK_STORE_WAIT_MAX_MS 600000u
/* In an outage all requests fail, as when a store restarts. The cause is not the request, so a
 * training should not fail for it: deadlines are longer by this factor. */
#define STK_STORE_OUTAGE_FACTOR 10u
#define STK_STORE_SIGNED_URLS_MAX 3u /* consecutive signed URLs of the hub that are rejected */
#define STK_STORE_CHECKSUM_FAILURES_MAX                                                            \
    3u /* bodies of an operation that do not match the server's checksum */

struct stk_store;
struct stk_credential_provider;

struct stk_store_options {
    uint32_t connections_max; /* 0: the default of http.h */
    uint32_t timeout_ms;
    uint64_t seed;                 /* of the jitter */
    bool check_md5_etags;          /* verify ETags that are MD5s if there is no checksum */
    uint32_t node_connections_max; /* of all processes; 0: the default of shared_limits.h */
    bool unshared;                 /* share no connections and rates with other processes */
    uint32_t hedge_percent_max;    /* hedged reads of 100; 0: STK_HEDGE_MAX_PERCENT */
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

/* The signed URL on another host that the hub redirected to, until that host rejects it. Used by
 * the reactor only. */
struct stk_signed_url {
    char *url; /* in secret memory */
    bool here; /* server_is_local of struct stk_http_request */
};

/* A parsed URL, in one block; freed by stk_object_url_free. */
struct stk_object_url {
    uint32_t kind;    /* enum stk_object_url_kind */
    bool tls;         /* http */
    const char *url;  /* the alias, for messages (storage/url/url_alias.h) */
    const char *zone; /* S3 Express: the zone of the bucket ("usw2-az1"); else NULL */
    /* S3: the ARN instead of a bucket name; NULL: a bucket. In the block. */
    const struct stk_s3_arn *arn;
    const char *bucket;  /* not http; Azure: the container; the hub: "datasets/org/name@revision" */
    const char *key;     /* not http: raw, without a leading '/'; may be empty */
    const char *version; /* S3: "?versionId=" of the URL; NULL: the current one */
    struct stk_signed_url *landing; /* the hub; in the block */
    char *target; /* http: the encoded URL that is sent; owned, in secret memory */
};

/* Sets *object_out. Returns 0, STOKER_ERROR_ARGUMENT if the URL is invalid or has no client here,
 * STOKER_ERROR_LIMIT if it is too long, -ENOMEM. */
int stk_object_url_parse(const char *url, struct stk_object_url **object_out,
                         struct stoker_error *error);
void stk_object_url_free(struct stk_object_url *object);
uint32_t
stk_object_url_provider(const struct stk_object_url *object); /* enum stk_checksum_provider */
/* Whether the URL has a bucket and a key, so that it can be listed; else it is of a web server. */
static inline bool stk_object_url_has_key(const struct stk_object_url *object)
{
    return object->kind != STK_OBJECT_URL_HTTP;
}

int stk_store_open(struct stk_store **store_out, const struct stk_store_options *options,
                   struct stoker_error *error);
void stk_store_close(
    struct stk_store *store); /* takes ownership; cancels operations in flight first */

/* Metadata of an object. */
struct stk_object_info {
    uint64_t bytes;
    uint64_t mtime_ns;
    uint64_t file_mtime_ns; /* of the file that was uploaded, by the metadata; 0: unknown */
    char etag[STK_STORE_ETAG_BYTES_MAX]; /* as sent, with its quotes; empty: none */
    char modified[64];                   /* http: Last-Modified as sent; empty: none */
    bool folder;                         /* Azure: a folder, which is an empty blob */
    bool no_ranges;                      /* the server sends the whole object for any range */
    bool chunked;                        /* bytes is unknown, but the end of the body can be seen */
    struct stk_checksum checksum;        /* known before the bytes: of the hub; or NONE */
    char storage[STK_STORE_CLASS_BYTES]; /* storage class; empty: the default one, or unknown */
    uint32_t archive;                    /* enum stoker_archive */
    uint64_t restored_until_ns;          /* of RESTORED; 0: unknown */
};

/* One operation with all of its tries. Private to storage/object and storage/upload, but for
 * buffer, done, owner, stop, status and error of a read. Borrowed by the reactor from start to
 * done. */
struct stk_operation {
    struct stk_http_request request; /* first */
    struct stk_store *store;
    const struct stk_object_url *object; /* borrowed */
    uint32_t method;                     /* enum stk_http_method */
    const struct stk_object_info *info;  /* the version that is read; NULL: any */
    bool probe;                          /* reads one byte for size and version */
    bool without_range;                  /* with probe: of the whole object, without Range */
    bool ranged;
    uint64_t offset, bytes;              /* of the range */
    uint64_t received;                   /* bytes of the range so far */
    struct stk_range_coverage *coverage; /* of the object, borrowed; NULL: none */
    bool wants_checksum;                 /* S3, HEAD: request the checksum of the object */
    const struct stk_sigv4_pair *query;  /* S3: added to the URL of the bucket, without the key */
    uint32_t query_count;
    bool keyed; /* S3: the URL has the key in spite of the query */
    /* S3: sent and signed in addition to the other headers. */
    const struct stk_sigv4_pair *extra_headers;
    uint32_t extra_header_count; /* at most STK_STORE_EXTRA_HEADERS_MAX */
    const struct stk_object_url
        *source;         /* S3: the object that the server copies; borrowed; NULL: none */
    const char *payload; /* SHA-256 of the body in hex; NULL: computed on the reactor */
    /* The body of a 2xx response is XML, and may be an error document. */
    bool document;
    uint32_t timeout_factor; /* multiplies the times until the first byte and the end; 0: 1 */
    bool tree, deep;         /* the hub: a page of a listing; see provider.h */
    const char *link;        /* as tree */
    bool used_signed_url;    /* the hub: this try uses the signed URL */
    /* NULL, or true if the operation is no longer wanted: done is called soon with
     * STOKER_ERROR_CLOSED. Borrowed until done. stk_operation_run uses the cancel flag of its
     * thread (io/io.h). */
    const _Atomic bool *stop;
    uint8_t *buffer;
    uint64_t buffer_bytes;
    int (*grow)(struct stk_operation *operation); /* see stk_store_init_full; NULL: never */
    void (*done)(struct stk_operation *operation, const struct stk_http_response *answer);
    void *owner;
    /* results */
    int status;
    struct stoker_error error;
    uint32_t code;                   /* of the last response; 0: none */
    char host[STK_STORE_HOST_BYTES]; /* of the last attempt; empty: none was sent */
    char error_code[64];             /* of an error response ("NoSuchKey"); empty: none */
    /* of the tries */
    uint32_t attempts, refreshes, moves;
    uint32_t sends; /* of the attempts: libcurl may send one twice */
    bool uncertain; /* an earlier send may have been carried out: its response was lost, or says
                     * that the server failed */
    uint32_t immediate_attempts; /* attempts without a back-off before them */
    uint32_t
        progress_attempts; /* of the others: up to the last one with progress or in an outage */
    uint32_t cost;         /* retry tokens that it holds */
    uint64_t progress_ns;  /* of the last byte, or the start; plus waits for turns */
    uint64_t queued_ns;    /* since when the current try waits for its turn */
    uint64_t waited_ns;    /* for turns, since the last progress */
    bool in_outage;        /* its last try failed, or it waits, in an outage */
    uint64_t generation;   /* of the credentials that signed it */
    struct stk_checksum hf_checksum;     /* the hub: from its redirect */
    struct stk_response_checksums seals; /* reported for the wanted bytes */
    struct stk_checksum bad_checksum;    /* of the last body that did not match */
    uint32_t checksum_failures;          /* such bodies */
    _Atomic bool cancelled;
    const char *headers[24 + STK_STORE_EXTRA_HEADERS_MAX];
    /* of throttling; used by the reactor only */
    uint64_t rate_key,
        latency_group;    /* of its rate; of the requests whose speed it is compared with */
    uint64_t admitted_ns; /* when the current try was admitted */
    bool throttled;       /* it waited for its turn */
    struct stk_operation *later, *earlier; /* in the list of those without a first byte */
    bool awaits_first_byte;                /* is in that list */
    struct stk_operation *hedge,
        *hedge_of;             /* the second try of this one; the first try of this one */
    bool hedge_won, abandoned; /* the hedge's bytes are used; it frees itself, as no caller waits */
    bool ended;                /* the first try, before its hedge */
    uint32_t stats_row;        /* enum stoker_store */
};

/* Starts an operation; never waits. done is called at its end. */
void stk_operation_start(struct stk_store *store, struct stk_operation *operation);
/* Marks an operation as cancelled; its memory must be valid. stk_store_cancel_marked then ends all
 * marked operations: done is called soon with STOKER_ERROR_CLOSED, unless they are ending already.
 */
static inline void stk_operation_cancel(struct stk_operation *operation)
{
    atomic_store_explicit(&operation->cancelled, true, memory_order_relaxed);
}
void stk_store_cancel_marked(struct stk_store *store);
/* Starts an operation, waits for done and returns its status. Not on the reactor. */
int stk_operation_run(struct stk_store *store, struct stk_operation *operation,
                      struct stk_http_response *answer_out, struct stoker_error *error);

/* Whether S3's endpoint is configured (AWS_ENDPOINT_URL), and whether requests use TLS. */
void stk_store_s3_kind(const struct stk_store *store, bool *own_out, bool *tls_out);
/* The endpoint of an object's service ("https://storage.googleapis.com"); empty: Amazon's own.
 * Valid until close. */
const char *stk_store_endpoint_text(const struct stk_store *store,
                                    const struct stk_object_url *object);
/* Settings of S3. Valid until close. */
const struct stk_s3_settings *stk_store_settings(const struct stk_store *store);

/* Whether requests for the object have a customer-provided key (SSE-C). */
bool stk_store_has_sse_key(const struct stk_store *store, const struct stk_object_url *object);

/* Reads size and version of an object. Returns 0, -ENOENT, -EACCES, ... */
int stk_store_head(struct stk_store *store, const struct stk_object_url *object,
                   struct stk_object_info *info_out, struct stoker_error *error);
/* The same for an object that will not be read, so it may be archived. */
int stk_store_head_archived(struct stk_store *store, const struct stk_object_url *object,
                            struct stk_object_info *info_out, struct stoker_error *error);
/* Sets the storage class that a listing reports; NULL: it reports none. */
static inline void stk_object_info_set_class(struct stk_object_info *info, const char *storage)
{
    size_t bytes = storage ? strlen(storage) : sizeof info->storage;

    if (bytes < sizeof info->storage) {
        memcpy(info->storage, storage, bytes + 1);
    }
}
/* Whether an object of this class may be archived, which a listing does not say. */
bool stk_store_class_may_be_archive(const char *storage);
/* Finds the region of a bucket, in the service's terms: "us-west-2"; "us-central1", "eu". Empty:
 * unknown. On S3 this needs no permission to list. */
int stk_store_bucket_location(struct stk_store *store, const struct stk_object_url *object,
                              char region_out[64], struct stoker_error *error);
/* stk_store_head without waiting: prepares an operation. Its done calls stk_store_head_reply. */
void stk_store_init_head(struct stk_operation *operation, const struct stk_object_url *object,
                         uint8_t *byte);
/* Reads the metadata out of the response; bytes is UINT64_MAX if the server reports no size, or
 * refuses the range without saying that the object is empty: then stk_store_head finds out. */
void stk_store_head_reply(const struct stk_operation *operation,
                          const struct stk_http_response *answer, struct stk_object_info *info_out);
/* Prepares an operation that reads a range of the version *info (borrowed) into buffer. The caller
 * sets done and owner and starts it. The range must be within the object. */
void stk_store_init_read(struct stk_operation *operation, const struct stk_object_url *object,
                         const struct stk_object_info *info, uint64_t offset, uint64_t bytes,
                         uint8_t *buffer);

/* Prepares an operation that reads all of an object whose server sends no ranges, or no size
 * (info->bytes UINT64_MAX). grow is called when the buffer is full and more bytes arrive: it
 * replaces buffer and buffer_bytes of the operation, or returns an error. NULL: the size is known.
 */
void stk_store_init_full(struct stk_operation *operation, const struct stk_object_url *object,
                         const struct stk_object_info *info, uint8_t *buffer, uint64_t buffer_bytes,
                         int (*grow)(struct stk_operation *operation));

/* Larger reads are split into ranges of this size. */
uint32_t stk_store_range_bytes(const struct stk_object_url *object);
/* A coverage for an object that will be read by ranges. NULL: the checksum of the whole object
 * cannot be known, or (unless sure) is unlikely to be. *ask_out: the checksum is only known after
 * stk_store_init_checksum. */
struct stk_range_coverage *stk_store_new_coverage(struct stk_store *store,
                                                  const struct stk_object_url *object,
                                                  const struct stk_object_info *info, bool sure,
                                                  bool *ask_out);
/* Prepares an operation that requests the checksum of the version *info (borrowed). Its done calls
 * stk_store_checksum_reply. */
void stk_store_init_checksum(struct stk_operation *operation, const struct stk_object_url *object,
                             const struct stk_object_info *info);
/* Sets the checksum in *coverage if it can be combined; else sets *checksum_out to it, or to NONE.
 */
void stk_store_checksum_reply(const struct stk_operation *operation,
                              const struct stk_http_response *answer,
                              struct stk_range_coverage *coverage,
                              struct stk_checksum *checksum_out);
/* Requests the checksum that the store reports for the version *info, also an ETag that is an MD5.
 * Waits, and reads no bytes of the object. *checksum_out: kind NONE if there is none. */
int stk_store_get_checksum(struct stk_store *store, const struct stk_object_url *object,
                           const struct stk_object_info *info, struct stk_checksum *checksum_out,
                           struct stoker_error *error);
/* Reads size and checksum of part `number` (from 1) of an object that was written in parts. Waits.
 * Returns 0, STOKER_ERROR_UNSUPPORTED if the server does not report it, or another error. */
int stk_store_part_checksum(struct stk_store *store, const struct stk_object_url *object,
                            const struct stk_object_info *info, uint32_t number,
                            struct stk_composite_checksum_part *part_out,
                            struct stoker_error *error);
/* The store refuses bodies without a checksum (buckets with object lock): all further ones have
 * one. */
void stk_store_require_checksums(struct stk_store *store);
bool stk_store_requires_checksums(const struct stk_store *store);
/* Statistics: bytes that another module verified; one damaged body. */
void stk_store_count_verified(struct stk_store *store, const struct stk_object_url *object,
                              uint64_t bytes);
void stk_store_count_damaged(struct stk_store *store);
/* Adds bytes to a coverage that were read without stk_store_init_read. Returns 0, or
 * STOKER_ERROR_CORRUPT if the object is complete and does not match its checksum. */
int stk_store_checksum_add(struct stk_store *store, const struct stk_object_url *object,
                           struct stk_range_coverage *coverage, uint64_t offset,
                           struct stk_view bytes, struct stoker_error *error);

/* One name of a listing. */
struct stk_list_entry {
    const char *name; /* relative to the prefix; valid during the call */
    bool folder;      /* a common prefix; name without its '/' */
    uint64_t bytes, mtime_ns;
    const char *etag;
    const char *storage; /* storage class; NULL: unknown */
    const char *hash;    /* the hub: hash of struct stk_hf_entry; NULL: none */
};
/* Whether the size may be used without a request for it. A size of 0 would make an empty file of an
 * object with bytes, so the ETag must be that of no bytes. */
static inline bool stk_list_entry_has_size(const struct stk_list_entry *entry)
{
    return entry->bytes > 0 ||
           (entry->etag && strcmp(entry->etag, "\"d41d8cd98f00b204e9800998ecf8427e\"") == 0);
}
/* What to list, and the function that gets each entry. */
struct stk_list_request {
    const struct stk_object_url *place; /* a prefix; a '/' is appended if it has none */
    bool deep;                          /* all names below it, not only those directly in it */
    bool marks;        /* include the object that is the prefix itself, and a folder
                        * without a name: "" */
    uint32_t max;      /* 0: all; else at least this number, if there are so many */
    bool *more_out;    /* with max: whole pages are listed; set to false if that was all */
    const char *after; /* deep: only names after this one in byte order; NULL: all */
    int (*found)(void *owner, const struct stk_list_entry *item); /* below 0: stop */
    void *owner;
};
int stk_store_list(struct stk_store *store, const struct stk_list_request *search,
                   struct stoker_error *error);

/* A signed URL. */
struct stk_presign {
    uint32_t method; /* STK_HTTP_GET or STK_HTTP_PUT */
    uint32_t expires_s;
    char *url;         /* out; free with stk_free */
    uint64_t until_ns; /* out: wall clock; the end of the time, or of the credentials */
};
/* Signs a URL of an object of S3, which allows one kind of request without credentials.
 * May ask the server for the region of the bucket. Returns 0, STOKER_ERROR_UNSUPPORTED for another
 * store, STOKER_ERROR_ARGUMENT for a time above a week, -EACCES without credentials. */
int stk_store_presign(struct stk_store *store, const struct stk_object_url *object,
                      struct stk_presign *presign, struct stoker_error *error);
/* Lists the buckets of S3 that belong to the credentials. Sets *names_out to *count_out names, one
 * after the other, each with a NUL (free with stk_free; NULL if there is none). */
int stk_store_list_buckets(struct stk_store *store, char **names_out, size_t *count_out,
                           struct stoker_error *error);

/* Counters of requests and retries; does not change struct_size. */
void stk_store_get_stats(struct stk_store *store, struct stoker_store_stats *stats_out);

/* Parses "Wed, 21 Oct 2015 07:28:00 GMT" or "2015-10-21T07:28:00.000Z" into ns since 1970; 0:
 * neither. */
uint64_t stk_store_parse_time(const char *text, size_t bytes);
/* The time of change of the file that was uploaded, by the metadata "mtime" of a response (seconds,
 * or RFC 3339, as rclone writes them), in ns since 1970; 0: none. kind: enum stk_object_url_kind.
 */
uint64_t stk_store_file_mtime(const struct stk_http_response *answer, uint32_t kind);

#endif
