/* Fuzz target of utf8.c: any bytes. A second decoder, which computes the code points, must find the
 * same first bad byte; no byte after the text is read. */
#include "base/text/utf8.h"

#include "base/mem.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Size of the character; 0: invalid. */
static size_t decode(const uint8_t *data, size_t bytes)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t count = data[0] < 0x80   ? 1
                   : data[0] < 0xc0 ? 0
                   : data[0] < 0xe0 ? 2
                   : data[0] < 0xf0 ? 3
                                    : 4;
    uint32_t code = data[0] & (0xffu >> (count + 1));

    if (count <= 1 || bytes < count || data[0] >= 0xf8) {
        return count == 1;
    }
    for (size_t i = 1; i < count; i++) {
        if ((data[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (data[i] & 0x3f);
    }
    return code < least[count] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *text = stk_alloc(bytes + 1, 1); /* its end is the block's, for AddressSanitizer */
    uint64_t bad = UINT64_MAX;
    size_t at = 0, count = 1;
    bool good;

    STK_ASSERT(text != NULL);
    if (bytes > 0) {
        memcpy(text + 1, data, bytes);
    }
    good = stk_utf8_check((struct stk_view){text + 1, bytes}, &bad);
    while (at < bytes && count > 0) {
        count = decode(text + 1 + at, bytes - at);
        STK_ASSERT(stk_utf8_character(text + 1 + at, bytes - at) == count);
        at += count;
    }
    STK_ASSERT(good == (at == bytes) && bad == (good ? UINT64_MAX : at));
    stk_free(text);
    return 0;
}
