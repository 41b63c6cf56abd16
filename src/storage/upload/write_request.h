/* storage/upload/write_request.h: one request of this room, and how its body is proven.
 *
 *   stk_write_request_open -more, query, body-> stk_write_request_run --> answer, document ->
 * stk_write_request_close
 *
 * Owner: the call. Threads: one. Memory: 24 KiB, and STK_WRITE_REQUEST_DOCUMENT_BYTES where one is
 * asked for. Bound: as there. */
#ifndef STORAGE_UPLOAD_WRITE_REQUEST_H
#define STORAGE_UPLOAD_WRITE_REQUEST_H

#include "base/crypto/digest.h"
#include "storage/sign/sigv4.h"
#include "storage/upload/upload.h"

#define STK_WRITE_REQUEST_DOCUMENT_BYTES (2u << 20) /* a page of 1,000 parts or uploads */
#define STK_WRITE_REQUEST_QUERY_MAX 8u

struct stk_write_request {
    struct stk_operation exchange; /* its place, method, body and flags are set by the caller */
    struct stk_http_response answer;
    struct stk_sigv4_pair extra_headers[STK_STORE_EXTRA_HEADERS_MAX],
        query[STK_WRITE_REQUEST_QUERY_MAX];
    uint32_t extra_header_count, query_count;
    uint8_t *document; /* NULL: none is expected */
};

/* NULL: no memory, and *error filled. */
struct stk_write_request *stk_write_request_open(const struct stk_object_url *object,
                                                 uint32_t method, bool document,
                                                 struct stoker_error *error);
void stk_write_request_add_header(struct stk_write_request *write_request, const char *name,
                                  const char *value); /* lent */
void stk_write_request_add_query(struct stk_write_request *write_request, const char *name,
                                 const char *value);
int stk_write_request_run(struct stk_write_request *write_request, struct stk_store *store,
                          struct stoker_error *error);
/* After it failed: whether the server said so by this word, whatever the status. */
bool stk_write_request_has_error_code(const struct stk_write_request *write_request,
                                      const char *word);
/* After it failed: whether the server may have done it all the same. */
bool stk_write_request_may_have_succeeded(const struct stk_write_request *write_request);
/* After it ran: whether the server may have got it more than once, or get it later. */
bool stk_write_request_may_repeat(const struct stk_write_request *write_request);
struct stk_view stk_write_request_document(const struct stk_write_request *write_request);
/* Whether the document is of this kind, and of this object where it names one: an empty "200 OK" is
 * nobody's word that it was done. */
bool stk_write_request_has_root(const struct stk_write_request *write_request, const char *root);
/* The ETag of the answer without its quotes; empty: none that fits. */
void stk_write_request_copy_etag(const struct stk_write_request *write_request, char *etag,
                                 size_t etag_bytes);
void stk_write_request_close(struct stk_write_request *write_request); /* NULL is fine */
/* The value of x-amz-copy-source and x-goog-copy-source; false: there is no room. */
bool stk_write_request_copy_source(const struct stk_object_url *from, char *source,
                                   size_t source_bytes);

/* How a body is proven: made by stk_body_checksum_init, lent to the call until it ran. */
struct stk_body_checksum {
    uint32_t check;     /* enum stk_upload_checksum, no longer AUTO */
    char payload[65];   /* SHA-256 in hex, or empty */
    uint8_t sum[32];    /* of check: big-endian */
    uint32_t sum_bytes; /* 0: only the payload's */
    char text[STK_BASE64_BYTES];
};

/* What is asked for, or what the store at the place has instead. */
uint32_t stk_body_checksum_for_url(const struct stk_object_url *object, uint32_t check);
/* What AUTO is here. */
uint32_t stk_body_checksum_default(const struct stk_store *store, uint32_t check);
void stk_body_checksum_init(struct stk_body_checksum *checksum, const struct stk_store *store,
                            uint32_t check, struct stk_view body);
/* A sum of at most 8 bytes as a number. */
uint64_t stk_body_checksum_to_number(const struct stk_body_checksum *checksum);
/* What a checksum of this kind is called where it is told: enum stk_checksum_kind, of those that
 * can be joined. */
uint32_t stk_body_checksum_kind(uint32_t check);
/* The text of a sum that was joined: proof->sum of 8 or 4 bytes. */
void stk_body_checksum_set_text(struct stk_body_checksum *checksum);
/* After it failed: whether it may be for the want of a checksum, as of a bucket with object lock.
 */
bool stk_write_request_needs_checksum(const struct stk_write_request *write_request,
                                      const struct stk_body_checksum *checksum);
void stk_body_checksum_add_headers(const struct stk_body_checksum *checksum,
                                   struct stk_write_request *write_request); /* lends proof */
/* After the body of the proof was taken: CORRUPT where the answer tells a checksum, and of other
 * bytes: another request's answer. */
int stk_write_request_check_reply(const struct stk_write_request *write_request,
                                  const struct stk_body_checksum *checksum,
                                  struct stoker_error *error);
/* "x-amz-checksum-crc64nvme", "CRC64NVME", "ChecksumCRC64NVME"; NULL: has none. */
const char *stk_body_checksum_header(uint32_t check);
const char *stk_body_checksum_name(uint32_t check);
const char *stk_body_checksum_element(uint32_t check);

/* Storage class and encryption of a new object, and what proves its body (NULL: nothing). */
void stk_write_request_set_options(struct stk_write_request *write_request,
                                   const struct stk_upload_options *options,
                                   const struct stk_body_checksum *checksum);
/* ARGUMENT: it is a bucket; to put an empty key is to make a bucket, to remove one is the end of
 * it. */
int stk_write_request_check_key(const struct stk_object_url *object, struct stoker_error *error);
/* UNSUPPORTED: the store at the place has not what is asked for. */
int stk_write_request_check_options(const struct stk_object_url *object,
                                    const struct stk_upload_options *options,
                                    struct stoker_error *error);
/* Only if there is no object of this name; 412, or Azure's 409, if there is. */
void stk_write_request_if_absent(struct stk_write_request *write_request);
bool stk_write_request_already_exists(const struct stk_write_request *write_request);
/* Whether the object is there now, and has these bytes. */
bool stk_write_request_matches_body(struct stk_store *store, const struct stk_object_url *object,
                                    struct stk_view body);
/* Whether the object is there now, and is a copy of that version of another: by its ETag, or, as
 * ETags of encrypted objects and of those by parts tell nothing of bytes, by reading both. */
bool stk_write_request_matches_copy(struct stk_store *store, const struct stk_object_url *object,
                                    const struct stk_object_url *from,
                                    const struct stk_object_info *info);
/* Whether the object is there now, and is this: an answer may have been lost. */
bool stk_write_request_matches_object(struct stk_store *store, const struct stk_object_url *object,
                                      uint64_t bytes, const char *etag);
/* -EEXIST. */
int stk_write_request_fail_exists(const struct stk_object_url *object, struct stoker_error *error);

#endif
