/* Fuzz target of sse_keys.c: any text. An accepted key has 32 bytes and is found by its prefix; an
 * error contains no byte of the line. */
#include "storage/config/sse_keys.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct stk_sse_keys ring;
    struct stoker_error error = {0};
    int status;

    memset(&ring, 0, sizeof ring);
    status = stk_sse_keys_add(&ring, (struct stk_view){data, bytes}, "text", &error);
    STK_ASSERT(status == 0 ||
               (error.status == status && strncmp(error.where, "'text' line ", 12) == 0));
    STK_ASSERT(ring.count <= STK_SSE_KEYS_MAX);
    for (uint32_t i = 0; i < ring.count; i++) {
        const struct stk_sse_key *key = &ring.keys[i];
        char bucket[STK_SSE_KEYS_PREFIX_BYTES], *slash;

        STK_ASSERT(strlen(key->key) == 44 && strlen(key->md5) == 24);
        memcpy(bucket, key->prefix, sizeof bucket);
        slash = strchr(bucket, '/');
        if (slash) {
            *slash = '\0';
        }
        STK_ASSERT(stk_sse_keys_find(&ring, bucket, slash ? slash + 1 : "") == key);
    }
    return 0;
}
