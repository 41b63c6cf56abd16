/* storage/upload/write_request.h: one request that writes, and the checksum of its body. Private to
 * storage/upload.
 *
 *   stk_write_request_open -headers, query, body-> stk_write_request_run --> response, document
 *       -> stk_write_request_close
 *
 * Owner: the call. Threads: one. Memory: 24 KiB, and STK_WRITE_REQUEST_DOCUMENT_BYTES if a document
 * is expected. Bound: as memory. */
#ifndef STORAGE_UPLOAD_WRITE_REQUEST_H
#define STORAGE_UPLOAD_WRITE_REQUEST_H

#include "base/crypto/digest.h"
#include "storage/sign/sigv4.h"
#include "storage/upload/upload.h"

#define STK_WRITE_REQUEST_DOCUMENT_BYTES (2u << 20) /* a page of 1,000 parts or uploads */
#define STK_WRITE_REQUEST_QUERY_MAX 8u

struct stk_write_request {
    struct stk_operation operation; /* the caller sets its object, method, body and flags */
    struct stk_http_response answer;
    struct stk_sigv4_pair extra_headers[STK_STORE_EXTRA_HEADERS_MAX],
        query[STK_WRITE_REQUEST_QUERY_MAX];
    uint32_t extra_header_count, query_count;
    uint8_t *document; /* NULL: none is expected */
    char mtime[48];    /* of the file, as metadata */
};

/* NULL: no memory; *error is filled. */
struct stk_write_request *stk_write_request_open(const struct stk_object_url *object,
                                                 uint32_t method, bool document,
                                                 struct stoker_error *error);
void stk_write_request_add_header(struct stk_write_request *write_request, const char *name,
                                  const char *value); /* borrowed */
void stk_write_request_add_query(struct stk_write_request *write_request, const char *name,
                                 const char *value);
int stk_write_request_run(struct stk_write_request *write_request, struct stk_store *store,
                          struct stoker_error *error);
/* After a failure: whether the response has this error code, with any status. */
bool stk_write_request_has_error_code(const struct stk_write_request *write_request,
                                      const char *word);
/* After a failure: whether the request may have succeeded at the server. */
bool stk_write_request_may_have_succeeded(const struct stk_write_request *write_request);
/* Whether the server may have received the request more than once, or may receive it later. */
bool stk_write_request_may_repeat(const struct stk_write_request *write_request);
struct stk_view stk_write_request_document(const struct stk_write_request *write_request);
/* Whether the document has this root, and this object's key if it has one: an empty "200 OK" does
 * not mean success. */
bool stk_write_request_has_root(const struct stk_write_request *write_request, const char *root);
/* Copies the ETag of the response without its quotes; empty if there is none that fits. */
void stk_write_request_copy_etag(const struct stk_write_request *write_request, char *etag,
                                 size_t etag_bytes);
void stk_write_request_close(struct stk_write_request *write_request); /* NULL is allowed */
/* Writes the value of x-amz-copy-source and x-goog-copy-source; false: it does not fit. */
bool stk_write_request_copy_source(const struct stk_object_url *from, char *source,
                                   size_t source_bytes);

/* Checksum of a body, set by stk_body_checksum_init; borrowed by the request until it ran. */
struct stk_body_checksum {
    uint32_t check;     /* enum stk_upload_checksum, no longer AUTO */
    char payload[65];   /* SHA-256 in hex, or empty */
    uint8_t sum[32];    /* by check; big-endian */
    uint32_t sum_bytes; /* 0: only payload is set */
    char text[STK_BASE64_BYTES];
};

/* The kind to use for an object: check, or the one that its store supports. */
uint32_t stk_body_checksum_for_url(const struct stk_object_url *object, uint32_t check);
/* The kind that AUTO means for a store. */
uint32_t stk_body_checksum_default(const struct stk_store *store, uint32_t check);
void stk_body_checksum_init(struct stk_body_checksum *checksum, const struct stk_store *store,
                            uint32_t check, struct stk_view body);
/* A checksum of at most 8 bytes as a number. */
uint64_t stk_body_checksum_to_number(const struct stk_body_checksum *checksum);
/* The enum stk_checksum_kind of a kind that can be combined. */
uint32_t stk_body_checksum_kind(uint32_t check);
/* Sets text from sum, of 8 or 4 bytes. */
void stk_body_checksum_set_text(struct stk_body_checksum *checksum);
/* After a failure: whether the cause may be a missing checksum, as in a bucket with object lock.
 */
bool stk_write_request_needs_checksum(const struct stk_write_request *write_request,
                                      const struct stk_body_checksum *checksum);
void stk_body_checksum_add_headers(const struct stk_body_checksum *checksum,
                                   struct stk_write_request *write_request); /* borrows checksum */
/* After success: returns 0, or STOKER_ERROR_CORRUPT if the response has a checksum of other bytes,
 * so it is the response to another request. */
int stk_write_request_check_reply(const struct stk_write_request *write_request,
                                  const struct stk_body_checksum *checksum,
                                  struct stoker_error *error);
/* Names of a kind: "x-amz-checksum-crc64nvme", "CRC64NVME", "ChecksumCRC64NVME"; NULL: none. */
const char *stk_body_checksum_header(uint32_t check);
const char *stk_body_checksum_name(uint32_t check);
const char *stk_body_checksum_element(uint32_t check);

/* Adds storage class and encryption of a new object, and the checksum of its body (NULL: none). */
void stk_write_request_set_options(struct stk_write_request *write_request,
                                   const struct stk_upload_options *options,
                                   const struct stk_body_checksum *checksum);
/* Returns 0 on success, or STOKER_ERROR_ARGUMENT for an empty key: such requests would create or
 * remove a bucket. */
int stk_write_request_check_key(const struct stk_object_url *object, struct stoker_error *error);
/* Returns 0 on success, STOKER_ERROR_UNSUPPORTED if the store does not have an option. */
int stk_write_request_check_options(const struct stk_object_url *object,
                                    const struct stk_upload_options *options,
                                    struct stoker_error *error);
/* Makes the request fail with 412 (Azure: 409) if there is an object of this name. */
void stk_write_request_if_absent(struct stk_write_request *write_request);
bool stk_write_request_already_exists(const struct stk_write_request *write_request);
/* Whether the object exists and has these bytes. */
bool stk_write_request_matches_body(struct stk_store *store, const struct stk_object_url *object,
                                    struct stk_view body);
/* Whether the object exists and is a copy of version *info of another: by its ETag, or by reading
 * both, as ETags of encrypted objects and of objects in parts do not identify bytes. */
bool stk_write_request_matches_copy(struct stk_store *store, const struct stk_object_url *object,
                                    const struct stk_object_url *from,
                                    const struct stk_object_info *info);
/* Whether the object exists with this size and ETag, after a response was lost. */
bool stk_write_request_matches_object(struct stk_store *store, const struct stk_object_url *object,
                                      uint64_t bytes, const char *etag);
/* Fills *error and returns -EEXIST. */
int stk_write_request_fail_exists(const struct stk_object_url *object, struct stoker_error *error);

#endif
