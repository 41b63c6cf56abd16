/* storage/upload/object_attributes.h: what an object has besides its bytes: content type, encoding,
 * language and disposition, cache control, user metadata and tags, for a copy of it.
 *
 *   response of the source -stk_object_attributes_read-> headers in the names of the destination
 *
 * Owner: the caller; freed with stk_free. Threads: one. Memory: one block of 50 KiB.
 * Bound: STK_OBJECT_ATTRIBUTES_MAX headers, a response's headers of text. */
#ifndef STORAGE_UPLOAD_OBJECT_ATTRIBUTES_H
#define STORAGE_UPLOAD_OBJECT_ATTRIBUTES_H

#include "storage/sign/sigv4.h"
#include "storage/upload/upload.h"

#define STK_OBJECT_ATTRIBUTES_MAX 40u /* stores allow 2 to 8 KiB of metadata */

struct stk_object_attributes {
    struct stk_sigv4_pair headers[STK_OBJECT_ATTRIBUTES_MAX]; /* texts are in text */
    uint32_t count;
    bool has_type;        /* a content type is among them */
    struct stk_view tags; /* S3: the document of the tags, in text; empty: none */
    size_t used;
    char text[3 * STK_HTTP_HEADERS_BYTES_MAX];
};

/* Adds what a response of the store of `from` says about an object, as headers for the store of
 * `to`. Pure. Returns 0, or STOKER_ERROR_LIMIT if there is more than fits. */
int stk_object_attributes_add(struct stk_object_attributes *attributes,
                              const struct stk_http_response *answer,
                              const struct stk_object_url *from, const struct stk_object_url *to,
                              struct stoker_error *error);

#endif
