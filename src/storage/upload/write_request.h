/* storage/upload/write_request.h: one request of this room, and how its body is proven.
 *
 *   stk_call_open -more, query, body-> stk_call_run --> answer, document -> stk_call_close
 *
 * Owner: the call. Threads: one. Memory: 24 KiB, and STK_CALL_DOCUMENT_BYTES where one is asked
 * for. Bound: as there. */
#ifndef STORAGE_UPLOAD_WRITE_REQUEST_H
#define STORAGE_UPLOAD_WRITE_REQUEST_H

#include "base/crypto/digest.h"
#include "storage/sign/sigv4.h"
#include "storage/upload/upload.h"

#define STK_CALL_DOCUMENT_BYTES (2u << 20) /* a page of 1,000 parts or uploads */
#define STK_CALL_QUERY_MAX 8u

struct stk_call {
    struct stk_exchange exchange; /* its place, method, body and flags are set by the caller */
    struct stk_http_answer answer;
    struct stk_sign_pair more[STK_STORE_MORE_MAX], query[STK_CALL_QUERY_MAX];
    uint32_t more_count, query_count;
    uint8_t *document; /* NULL: none is expected */
};

/* NULL: no memory, and *error filled. */
struct stk_call *stk_call_open(const struct stk_place *place, uint32_t method, bool document,
                               struct stoker_error *error);
void stk_call_more(struct stk_call *call, const char *name, const char *value); /* lent */
void stk_call_query(struct stk_call *call, const char *name, const char *value);
int stk_call_run(struct stk_call *call, struct stk_store *store, struct stoker_error *error);
/* After it failed: whether the server said so by this word, whatever the status. */
bool stk_call_is_refused(const struct stk_call *call, const char *word);
/* After it failed: whether the server may have done it all the same. */
bool stk_call_may_be_done(const struct stk_call *call);
/* After it ran: whether the server may have got it more than once, or get it later. */
bool stk_call_is_doubtful(const struct stk_call *call);
struct stk_view stk_call_document(const struct stk_call *call);
/* Whether the document is of this kind, and of this object where it names one: an empty "200 OK" is
 * nobody's word that it was done. */
bool stk_call_says(const struct stk_call *call, const char *root);
/* The ETag of the answer without its quotes; empty: none that fits. */
void stk_call_etag(const struct stk_call *call, char *etag, size_t etag_bytes);
void stk_call_close(struct stk_call *call); /* NULL is fine */
/* The value of x-amz-copy-source and x-goog-copy-source; false: there is no room. */
bool stk_call_source(const struct stk_place *from, char *source, size_t source_bytes);

/* How a body is proven: made by stk_proof_make, lent to the call until it ran. */
struct stk_proof {
    uint32_t check;     /* enum stk_upload_check, no longer AUTO */
    char payload[65];   /* SHA-256 in hex, or empty */
    uint8_t sum[32];    /* of check: big-endian */
    uint32_t sum_bytes; /* 0: only the payload's */
    char text[STK_BASE64_BYTES];
};

/* What is asked for, or what the store at the place has instead. */
uint32_t stk_place_check(const struct stk_place *place, uint32_t check);
/* What AUTO is here. */
uint32_t stk_proof_check(const struct stk_store *store, uint32_t check);
void stk_proof_make(struct stk_proof *proof, const struct stk_store *store, uint32_t check,
                    struct stk_view body);
/* A sum of at most 8 bytes as a number. */
uint64_t stk_proof_number(const struct stk_proof *proof);
/* What a checksum of this kind is called where it is told: enum stk_seal_kind, of those that can be
 * joined. */
uint32_t stk_proof_kind(uint32_t check);
/* The text of a sum that was joined: proof->sum of 8 or 4 bytes. */
void stk_proof_text(struct stk_proof *proof);
/* After it failed: whether it may be for the want of a checksum, as of a bucket with object lock.
 */
bool stk_call_wants_sum(const struct stk_call *call, const struct stk_proof *proof);
void stk_proof_add(const struct stk_proof *proof, struct stk_call *call); /* lends proof */
/* After the body of the proof was taken: CORRUPT where the answer tells a checksum, and of other
 * bytes: another request's answer. */
int stk_call_took(const struct stk_call *call, const struct stk_proof *proof,
                  struct stoker_error *error);
/* "x-amz-checksum-crc64nvme", "CRC64NVME", "ChecksumCRC64NVME"; NULL: has none. */
const char *stk_proof_header(uint32_t check);
const char *stk_proof_name(uint32_t check);
const char *stk_proof_element(uint32_t check);

/* Storage class and encryption of a new object, and what proves its body (NULL: nothing). */
void stk_call_options(struct stk_call *call, const struct stk_upload_options *options,
                      const struct stk_proof *proof);
/* ARGUMENT: it is a bucket; to put an empty key is to make a bucket, to remove one is the end of
 * it. */
int stk_call_check_key(const struct stk_place *place, struct stoker_error *error);
/* UNSUPPORTED: the store at the place has not what is asked for. */
int stk_call_check_options(const struct stk_place *place, const struct stk_upload_options *options,
                           struct stoker_error *error);
/* Only if there is no object of this name; 412, or Azure's 409, if there is. */
void stk_call_fresh(struct stk_call *call);
bool stk_call_was_there(const struct stk_call *call);
/* Whether the object is there now, and has these bytes. */
bool stk_call_is_body(struct stk_store *store, const struct stk_place *place, struct stk_view body);
/* Whether the object is there now, and is a copy of that version of another: by its ETag, or, as
 * ETags of encrypted objects and of those by parts tell nothing of bytes, by reading both. */
bool stk_call_is_copy(struct stk_store *store, const struct stk_place *place,
                      const struct stk_place *from, const struct stk_about *about);
/* Whether the object is there now, and is this: an answer may have been lost. */
bool stk_call_is_there(struct stk_store *store, const struct stk_place *place, uint64_t bytes,
                       const char *etag);
/* -EEXIST. */
int stk_call_fail_fresh(const struct stk_place *place, struct stoker_error *error);

#endif
