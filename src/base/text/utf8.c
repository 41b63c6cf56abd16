/* UTF-8 by the table of RFC 3629, section 4; eight characters of ASCII at a time. */
#include "base/text/utf8.h"

#include <string.h>

uint32_t stk_utf8_character(const uint8_t *data, size_t bytes)
{
    uint8_t first = data[0], low = 0x80, high = 0xbf;
    uint32_t length = first < 0x80   ? 1
                      : first < 0xc2 ? 0
                      : first < 0xe0 ? 2
                      : first < 0xf0 ? 3
                      : first < 0xf5 ? 4
                                     : 0;

    if (length <= 1 || bytes < length) {
        return length <= 1 ? length : 0;
    }
    low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : low;   /* not longer than needed */
    high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : high; /* no surrogates, <= 10FFFF */
    if (data[1] < low || data[1] > high) {
        return 0;
    }
    for (uint32_t i = 2; i < length; i++) {
        if (data[i] < 0x80 || data[i] > 0xbf) {
            return 0;
        }
    }
    return length;
}

bool stk_utf8_check(struct stk_view text, uint64_t *offset_out)
{
    size_t at = 0;

    while (at < text.bytes) {
        uint64_t word = 0x8080808080808080ull;
        uint32_t length;

        if (text.bytes - at >= sizeof word) {
            memcpy(&word, text.data + at, sizeof word);
        }
        if (!(word & 0x8080808080808080ull)) { /* eight of ASCII */
            at += sizeof word;
            continue;
        }
        length = stk_utf8_character(text.data + at, text.bytes - at);
        if (length == 0) {
            if (offset_out) {
                *offset_out = at;
            }
            return false;
        }
        at += length;
    }
    return true;
}
