/* storage/config/sse_keys.h: keys of encryption that a customer sends with each request (S3's
 * SSE-C).
 *
 *   STOKER_SSE_C_KEY_FILE, STOKER_SSE_C_KEY --open--> keys by prefix --find--> the key of an object
 *
 * Lines of text: "KEY" is for all objects, "s3://bucket/prefix KEY" for those whose URL begins so;
 * of several the longest. KEY: 32 bytes in base64 or in hex. Empty lines and those that begin with
 * '#' are passed over. A file of exactly 32 bytes is a key as it is.
 * https://docs.aws.amazon.com/AmazonS3/latest/userguide/ServerSideEncryptionCustomerKeys.html
 * Owner: the caller, in memory that no core dump has. Threads: any, once it is open. Memory: the
 * struct. Bound: STK_SSE_KEYS_MAX, STK_SSE_KEYS_FILE_BYTES_MAX. */
#ifndef STORAGE_CONFIG_SSE_KEYS_H
#define STORAGE_CONFIG_SSE_KEYS_H

#include "base/base.h"

#define STK_SSE_KEYS_MAX 16u
#define STK_SSE_KEYS_PREFIX_BYTES 1408u /* a bucket and a key of 1,024 bytes */
#define STK_SSE_KEYS_FILE_BYTES_MAX 65536u

struct stk_sse_key {
    char prefix[STK_SSE_KEYS_PREFIX_BYTES]; /* "bucket/prefix"; empty: all */
    char key[45], md5[25];                  /* in base64, as they are sent */
};

/* Zeroed is empty. */
struct stk_sse_keys {
    struct stk_sse_key keys[STK_SSE_KEYS_MAX];
    uint32_t count;
};

/* What the environment names. MISSING, LIMIT, FORMAT: no error shows a key. */
int stk_sse_keys_open(struct stk_sse_keys *sse_keys, struct stoker_error *error);
/* Adds the keys of a text; from: "STOKER_SSE_C_KEY", for errors. */
int stk_sse_keys_add(struct stk_sse_keys *sse_keys, struct stk_view text, const char *from,
                     struct stoker_error *error);
/* Lends; NULL: none is for it. */
const struct stk_sse_key *stk_sse_keys_find(const struct stk_sse_keys *sse_keys, const char *bucket,
                                            const char *key);

#endif
