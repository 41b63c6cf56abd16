/* storage/sign/sigv4.h: signs requests as Amazon's stores want it (Signature Version 4), and
 * encodes URLs.
 *
 *   method, host, path, query, headers, payload's hash --> Authorization, or a presigned URL
 *
 * Nothing is taken over from a URL that was encoded by others: path and query are given raw and
 * encoded here, once, so that what is signed is what is sent. The path is never made shorter: a
 * key may hold "//" and "..".
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
 * Owner: values. Threads: any (a cache: one). Memory: the caller's. Bound: path_args below. */
#ifndef STORAGE_SIGN_SIGV4_H
#define STORAGE_SIGN_SIGV4_H

#include "base/base.h"

#define STK_SIGV4_QUERY_MAX 32u /* parameters */
#define STK_SIGV4_HEADERS_MAX 32u
#define STK_SIGV4_NAME_BYTES_MAX 128u
#define STK_SIGV4_TEXT_BYTES_MAX 4096u /* of an Authorization */
#define STK_SIGV4_DATE_BYTES 17u       /* "20261121T235900Z" and NUL */
#define STK_SIGV4_EXPIRES_MAX_S 604800u
#define STK_SIGV4_UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"
/* SHA-256 of nothing. */
#define STK_SIGV4_EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct stk_sigv4_pair {
    const char *name;
    const char *value; /* NULL: "" */
};

/* The key of a day, region and service: four of the five HMACs of a signature. Zeroed is empty. */
struct stk_sigv4_key_cache {
    uint64_t generation;
    char scope[128];
    uint8_t key[32];
};

struct stk_sigv4_request {
    const char *method;
    const char *host; /* as it is sent: with the port if it is not the scheme's own */
    const char *path; /* raw, "/bucket/key" */
    const struct stk_sigv4_pair *query; /* raw, in any order */
    uint32_t query_count;
    const struct stk_sigv4_pair *headers; /* to be signed beside those that are made here */
    uint32_t header_count;
    const char *payload; /* SHA-256 in hex, or STK_SIGV4_UNSIGNED_PAYLOAD */
    const char *region, *service;
    const char *access_key, *secret, *token; /* token NULL or empty: none */
    const char *token_name;                  /* its header; NULL: x-amz-security-token */
    uint64_t time_s;                         /* since 1970, as the server sees it */
    struct stk_sigv4_key_cache *cache;       /* NULL: none */
    uint64_t generation;                     /* of the secret, for the cache */
};

/* What is sent as headers: Authorization, x-amz-date, x-amz-content-sha256 and, with a token,
 * x-amz-security-token (or token_name). */
struct stk_sigv4_headers {
    char authorization[STK_SIGV4_TEXT_BYTES_MAX];
    char date[STK_SIGV4_DATE_BYTES];
};

/* 0; STOKER_ERROR_LIMIT: more parameters or headers, or longer, than the bounds above;
 * STOKER_ERROR_ARGUMENT: two headers of one name. */
int stk_sigv4_sign_headers(const struct stk_sigv4_request *request,
                           struct stk_sigv4_headers *headers_out);
/* "/path?query" with the signature in the query: to be sent as it is, by anybody. */
int stk_sigv4_presign(const struct stk_sigv4_request *request, uint32_t expires_s, char *text,
                      size_t text_bytes);
/* "/path?query", encoded, in the order given. STOKER_ERROR_LIMIT: does not fit. */
int stk_url_encode_target(const char *path, const struct stk_sigv4_pair *query,
                          uint32_t query_count, char *text, size_t text_bytes);
/* Adds the encoding of `raw` to the text of `*used` bytes, NUL-ended. slash: '/' stays as it is.
 * False: does not fit. */
bool stk_url_encode(const char *raw, bool slash, char *text, size_t text_bytes, size_t *used);
/* In place: %41 is A, + is a blank, a % without two digits stays. False: there is a NUL
 * in it, where the text ends now: it is another name than was meant. */
bool stk_url_decode(char *text);
/* The SHA-256 of data in hex, NUL-ended. */
void stk_sigv4_hash(struct stk_view data, char text_out[65]);
/* HMAC of RFC 2104 over SHA-256. */
void stk_sigv4_hmac(struct stk_view key, struct stk_view data, uint8_t mac_out[32]);
/* "20261121T235900Z"; a year past 9999 is cut to it. */
void stk_sigv4_date(uint64_t time_s, char text_out[STK_SIGV4_DATE_BYTES]);

#endif
