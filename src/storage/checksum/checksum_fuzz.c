/* Fuzz target of checksum.c: any headers of any provider. An accepted checksum has the length of
 * its kind, and its text is parsed to the same value. */
#include "storage/checksum/checksum.h"

#include "base/crypto/digest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void look(const struct stk_checksum *seal)
{
    static const uint32_t lengths[STK_CHECKSUM_KINDS] = {0, 8, 4, 4, 32, 20, 20, 16};
    char text[STK_CHECKSUM_TEXT_BYTES], *sum;
    uint8_t back[32] = {0};
    size_t length;

    STK_ASSERT(seal->kind < STK_CHECKSUM_KINDS);
    for (uint32_t i = lengths[seal->kind]; i < sizeof seal->sum; i++) {
        STK_ASSERT(seal->sum[i] == 0);
    }
    stk_checksum_text(seal, text);
    sum = strchr(text, ' ');
    if (seal->kind != STK_CHECKSUM_NONE) {
        length = strcspn(++sum, "-");
        if (seal->hex) {
            STK_ASSERT(length == 2 * lengths[seal->kind] && !sum[length]);
            return;
        }
        STK_ASSERT(strtoul(sum + length + (sum[length] == '-'), NULL, 10) == seal->parts);
        STK_ASSERT(stk_base64_decode((struct stk_view){(uint8_t *)sum, length}, back,
                                     lengths[seal->kind]));
        STK_ASSERT(memcmp(back, seal->sum, sizeof back) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct stk_http_response answer;
    struct stk_checksum hub;
    struct stk_response_checksums seals;
    uint32_t mode = bytes > 0 ? data[0] : 0;

    bytes = bytes > 0 ? bytes - 1 : 0;
    bytes = bytes < sizeof answer.headers - 1 ? bytes : sizeof answer.headers - 1;
    if (bytes > 0) {
        memcpy(answer.headers, data + 1, bytes);
    }
    answer.headers[bytes] = '\n';
    answer.headers_bytes = (uint32_t)bytes + 1;
    stk_checksum_read_headers(&seals, &answer, mode & 3, mode & 4, mode & 8);
    look(&seals.body);
    look(&seals.object);
    hub = stk_checksum_of_hf_etag(&answer);
    look(&hub);
    STK_ASSERT(seals.body.parts <= 1);
    STK_ASSERT(!seals.unreliable || seals.body.kind != STK_CHECKSUM_NONE);
    return 0;
}
