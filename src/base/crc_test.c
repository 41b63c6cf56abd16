/* Goal: the sums are those that everybody makes, in any cut, and combine.
 * Method: the check values of the catalogues of CRCs ("123456789"); every cut and alignment of
 * random bytes against one bit at a time. */
#include "base/crc.h"

#include "base/hash.h"
#include "test/t.h"

#include <string.h>

#define BYTES 300u

static uint64_t by_bits(const uint8_t *data, size_t bytes, uint64_t poly, uint64_t ones)
{
    uint64_t crc = ones;

    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (crc & 1 ? poly : 0);
        }
    }
    return crc ^ ones;
}

int main(void)
{
    uint8_t data[BYTES];
    bool same = true, joined = true;

    T_EQ("crc32c", stk_crc32c(0, "123456789", 9), 0xe3069283u);
    T_EQ("crc64nvme", stk_crc64(0, "123456789", 9) == 0xae8b14860a799888ull, 1);
    T_EQ("nothing", stk_crc32c(0, "", 0) == 0 && stk_crc64(0, "", 0) == 0, 1);
    for (uint32_t i = 0; i < BYTES; i++) {
        data[i] = (uint8_t)stk_key(7, i);
    }
    for (size_t begin = 0; begin < 9; begin++) {
        for (size_t end = begin; end <= BYTES; end++) {
            same = same && stk_crc32c(0, data + begin, end - begin) ==
                               by_bits(data + begin, end - begin, 0x82f63b78u, 0xffffffffu);
            same = same && stk_crc64(0, data + begin, end - begin) ==
                               by_bits(data + begin, end - begin, 0x9a6c9329ac4bc9b5ull, ~0ull);
        }
    }
    T_EQ("each cut is as bit by bit", same, 1);
    for (size_t cut = 0; cut <= BYTES; cut++) {
        uint32_t low = stk_crc32c(0, data, cut);
        uint64_t high = stk_crc64(0, data, cut);

        joined = joined && stk_crc32c(low, data + cut, BYTES - cut) == stk_crc32c(0, data, BYTES);
        joined = joined && stk_crc64(high, data + cut, BYTES - cut) == stk_crc64(0, data, BYTES);
        joined = joined && stk_crc32c_join(low, stk_crc32c(0, data + cut, BYTES - cut),
                                           BYTES - cut) == stk_crc32c(0, data, BYTES);
        joined = joined && stk_crc64_join(high, stk_crc64(0, data + cut, BYTES - cut),
                                          BYTES - cut) == stk_crc64(0, data, BYTES);
    }
    T_EQ("pieces join", joined, 1);
    return t_finish();
}
