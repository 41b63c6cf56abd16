/* storage/sign/sigv4.h: signs requests with AWS Signature Version 4, and URL-encodes paths and
 * queries. Pure.
 *
 *   method, host, path, query, headers, payload's hash --> Authorization, or a presigned URL
 *
 * Path and query are passed raw and encoded here once, so that the request is sent exactly as it
 * was signed. The path is not normalized: a key may contain "//" and "..".
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
 * Owner: values. Threads: any (a key cache: one). Memory: the caller's. Bound: the limits below. */
#ifndef STORAGE_SIGN_SIGV4_H
#define STORAGE_SIGN_SIGV4_H

#include "base/base.h"

#define STK_SIGV4_QUERY_MAX 32u /* parameters */
#define STK_SIGV4_HEADERS_MAX 80u
#define STK_SIGV4_NAME_BYTES_MAX 128u
#define STK_SIGV4_TEXT_BYTES_MAX 4096u /* of an Authorization */
#define STK_SIGV4_DATE_BYTES 17u       /* "20261121T235900Z" and NUL */
#define STK_SIGV4_EXPIRES_MAX_S 604800u
#define STK_SIGV4_UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"
/* SHA-256 of an empty payload. */
#define STK_SIGV4_EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct stk_sigv4_pair {
    const char *name;
    const char *value; /* NULL: "" */
};

/* Caches the signing key of a day, region and service, which is four of the five HMACs of a
 * signature. Zeroed is empty. */
struct stk_sigv4_key_cache {
    uint64_t generation;
    char scope[128];
    uint8_t key[32];
};

struct stk_sigv4_request {
    const char *method;
    const char *host; /* as it is sent: with the port if it is not the scheme's default */
    const char *path; /* raw, "/bucket/key" */
    const struct stk_sigv4_pair *query; /* raw, in any order */
    uint32_t query_count;
    const struct stk_sigv4_pair *headers; /* signed in addition to those that are made here */
    uint32_t header_count;
    const char *payload; /* SHA-256 in hex, or STK_SIGV4_UNSIGNED_PAYLOAD */
    const char *region, *service;
    const char *access_key, *secret, *token; /* token NULL or empty: none */
    const char *token_name;                  /* its header; NULL: x-amz-security-token */
    uint64_t time_s;                         /* since 1970, by the server's clock */
    struct stk_sigv4_key_cache *cache;       /* NULL: none */
    uint64_t generation;                     /* of the secret, for the cache */
};

/* The caller sends Authorization and x-amz-date from here, x-amz-content-sha256 and, with a token,
 * x-amz-security-token (or token_name). */
struct stk_sigv4_headers {
    char authorization[STK_SIGV4_TEXT_BYTES_MAX];
    char date[STK_SIGV4_DATE_BYTES];
};

/* Returns 0 on success, STOKER_ERROR_LIMIT if parameters or headers exceed the limits above,
 * STOKER_ERROR_ARGUMENT if two headers have one name. */
int stk_sigv4_sign_headers(const struct stk_sigv4_request *request,
                           struct stk_sigv4_headers *headers_out);
/* Writes "/path?query" with the signature in the query. The URL needs no other credentials. */
int stk_sigv4_presign(const struct stk_sigv4_request *request, uint32_t expires_s, char *text,
                      size_t text_bytes);
/* Writes "/path?query", encoded, in the order of the array. Returns 0 on success,
 * STOKER_ERROR_LIMIT if it does not fit. */
int stk_url_encode_target(const char *path, const struct stk_sigv4_pair *query,
                          uint32_t query_count, char *text, size_t text_bytes);
/* Appends the encoding of raw to the *used bytes of text, with a NUL. slash: '/' is not encoded.
 * False: it does not fit. */
bool stk_url_encode(const char *raw, bool slash, char *text, size_t text_bytes, size_t *used);
/* Decodes in place: %41 is A, + is a blank, a % without two hex digits stays. False: the text has
 * an encoded NUL, where it ends now, so it is another name than the sender's. */
bool stk_url_decode(char *text);
/* Writes the SHA-256 of data in hex, with a NUL. */
void stk_sigv4_hash(struct stk_view data, char text_out[65]);
/* HMAC of RFC 2104 over SHA-256. */
void stk_sigv4_hmac(struct stk_view key, struct stk_view data, uint8_t mac_out[32]);
/* Writes "20261121T235900Z"; later years become 9999. */
void stk_sigv4_date(uint64_t time_s, char text_out[STK_SIGV4_DATE_BYTES]);

#endif
