/* storage/config/sse_keys.h: customer-provided encryption keys, which S3 needs with each request
 * (SSE-C).
 *
 *   STOKER_SSE_C_KEY_FILE, STOKER_SSE_C_KEY --open--> keys by prefix --find--> the key of an object
 *
 * Lines of text: "KEY" is for all objects, "s3://bucket/prefix KEY" for objects whose URL begins
 * with the prefix; the longest prefix applies. KEY: 32 bytes in base64 or in hex. Empty lines and
 * lines that begin with '#' are ignored. A file of exactly 32 bytes is a key itself.
 * https://docs.aws.amazon.com/AmazonS3/latest/userguide/ServerSideEncryptionCustomerKeys.html
 * Owner: the caller, in memory that core dumps do not include. Threads: any, once it is open.
 * Memory: the struct. Bound: STK_SSE_KEYS_MAX, STK_SSE_KEYS_FILE_BYTES_MAX. */
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

/* Reads the keys that the environment names. Returns 0 on success, STOKER_ERROR_MISSING, _LIMIT
 * or _FORMAT; no error contains a key. */
int stk_sse_keys_open(struct stk_sse_keys *sse_keys, struct stoker_error *error);
/* Adds the keys of a text; from: "STOKER_SSE_C_KEY", for errors. */
int stk_sse_keys_add(struct stk_sse_keys *sse_keys, struct stk_view text, const char *from,
                     struct stoker_error *error);
/* NULL: there is no key for the object. Valid until sse_keys changes. */
const struct stk_sse_key *stk_sse_keys_find(const struct stk_sse_keys *sse_keys, const char *bucket,
                                            const char *key);

#endif
