/* Goal: version 1 of the order stays what it is: a state saved today means the same samples for
 * ever, and a fingerprint in a log the same order. Method: values written down once. A row that
 * fails is not to be mended here: an order that differs needs STOKER_ORDER_VERSION 2 beside version
 * 1, and rows of its own. */
#include "base/crypto/digest.h"
#include "order/order.h"
#include "test/t.h"

/* clang-format off: one row, one or two lines. */
static const struct permute_row {
    const char *name;
    uint64_t key, count, want[4]; /* of the indexes 0, 1, count / 2, count - 1 */
} permute_rows[] = {
    {"one", 7, 1, {0, 0, 0, 0}},
    {"two", 7, 2, {1, 0, 0, 0}},
    {"three", 0, 3, {0, 2, 2, 1}},
    {"five", UINT64_MAX, 5, {3, 4, 1, 2}},
    {"64", 1, 64, {6, 23, 51, 45}},
    {"65", 1, 65, {59, 64, 31, 0}},
    {"1000", 0x123456789abcdef0, 1000, {541, 918, 662, 581}},
    {"2^32 + 1", 42, (UINT64_C(1) << 32) + 1, {469566990, 2670187609, 986617886, 3983539093}},
    {"2^56",
     42,
     STK_ORDER_SAMPLES_MAX,
     {32542204030807729, 25702596287279335, 856058125508109, 36328555214360462}},
};

static const struct order_row {
    const char *name;
    uint64_t samples, block;
    uint32_t window, groups, shuffle;
    uint64_t seed, epoch;
    uint64_t want[4];        /* of the positions 0, 1, samples / 2, samples - 1 */
    const char *want_digest; /* first bytes of SHA-256 over all samples, little endian */
} order_rows[] = {
    {"block", 1000, 10, 8, 1, STOKER_SHUFFLE_BLOCK, 0, 0, {462, 219, 690, 235}, "81294a1cbe1556d2"},
    {"block, next epoch",
     1000,
     10,
     8,
     1,
     STOKER_SHUFFLE_BLOCK,
     0,
     1,
     {575, 381, 739, 926},
     "63c5e10a739aaa88"},
    {"block, seed",
     1000,
     10,
     8,
     1,
     STOKER_SHUFFLE_BLOCK,
     UINT64_MAX,
     0,
     {720, 699, 733, 958},
     "0d653449ecdce9d7"},
    {"block, tail",
     1237,
     10,
     8,
     1,
     STOKER_SHUFFLE_BLOCK,
     3,
     4,
     {417, 419, 629, 915},
     "e74e54d9559d6cb2"},
    {"block, groups",
     4096,
     16,
     8,
     8,
     STOKER_SHUFFLE_BLOCK,
     3,
     4,
     {3851, 3497, 2708, 2040},
     "a32a577578f48859"},
    {"groups, left-over blocks",
     9999,
     13,
     8,
     32,
     STOKER_SHUFFLE_BLOCK,
     3,
     90,
     {9681, 90, 9391, 5096},
     "e20d33bf51016638"},
    {"block, one window",
     500,
     10,
     64,
     1,
     STOKER_SHUFFLE_BLOCK,
     1,
     2,
     {304, 87, 468, 98},
     "02f4a310d4b103ca"},
    {"block, less than a block",
     99,
     100,
     64,
     1,
     STOKER_SHUFFLE_BLOCK,
     1,
     2,
     {73, 44, 97, 76},
     "3f34e5fe2c011877"},
    {"full",
     10007,
     10,
     8,
     1,
     STOKER_SHUFFLE_FULL,
     1,
     2,
     {5373, 1800, 8389, 5117},
     "9652c06c16c25b32"},
    {"full, short", 12, 10, 8, 1, STOKER_SHUFFLE_FULL, 1, 2, {5, 7, 1, 0}, "afc6d379bc3a093c"},
    {"none", 1000, 10, 8, 1, STOKER_SHUFFLE_NONE, 1, 2, {0, 1, 500, 999}, "702746827e553786"},
};
/* clang-format on */

static void test_permute(void)
{
    T_EACH(permute_row, row, permute_rows)
    {
        const uint64_t at[] = {0, row->count > 1 ? 1 : 0, row->count / 2, row->count - 1};

        for (size_t i = 0; i < STK_COUNT(at); i++) {
            T_EQ(row->name, stk_permute(row->key, at[i], row->count), (long long)row->want[i]);
        }
    }
}

static void digest_of(const struct stk_order_epoch *epoch, uint64_t samples, char hex[17])
{
    struct stk_sha256 sha;
    uint8_t digest[32];

    stk_sha256_init(&sha);
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t sample = stk_order_sample(epoch, i);
        uint8_t bytes[8];

        for (int k = 0; k < 8; k++) {
            bytes[k] = (uint8_t)(sample >> 8 * k);
        }
        stk_sha256_add(&sha, bytes, sizeof bytes);
    }
    stk_sha256_done(&sha, digest);
    for (int i = 0; i < 8; i++) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
}

static void test_order(void)
{
    T_EACH(order_row, row, order_rows)
    {
        const uint64_t at[] = {0, 1, row->samples / 2, row->samples - 1};
        struct stk_order_options options = {
            .sample_count = row->samples,
            .block_samples = row->block,
            .window_blocks = row->window,
            .group_count = row->groups,
            .shuffle = row->shuffle,
            .seed = row->seed,
        };
        struct stk_order order;
        struct stk_order_epoch epoch;
        char hex[17];

        T_EQ(row->name, stk_order_init(&order, &options, NULL), 0);
        stk_order_epoch_begin(&epoch, &order, row->epoch);
        for (size_t i = 0; i < STK_COUNT(at); i++) {
            T_EQ(row->name, stk_order_sample(&epoch, at[i]), (long long)row->want[i]);
        }
        digest_of(&epoch, row->samples, hex);
        T_STR(row->name, hex, row->want_digest);
    }
}

/* clang-format off: one row, one or two lines. */
static const struct fingerprint_row {
    const char *name;
    uint64_t samples, block;
    uint32_t window, groups, shuffle;
    uint64_t seed, epoch;
    uint64_t want, want_part; /* of all positions; of 7 .. 306 */
} fingerprint_rows[] = {
    {"block", 1000, 10, 8, 1, STOKER_SHUFFLE_BLOCK, 0, 0, 0x69c0f903892696b6, 0xb4127d7af7404b2b},
    {"groups", 9999, 13, 8, 32, STOKER_SHUFFLE_BLOCK, 3, 90, 0xc8e6c2dad40e65bf,
     0x094734c46d535a5f},
    {"full", 10007, 10, 8, 1, STOKER_SHUFFLE_FULL, 1, 2, 0x9f6c1a7cadbfa0e8, 0x109f94104593838e},
    {"none", 1000, 10, 8, 1, STOKER_SHUFFLE_NONE, 1, 2, 0xad51e9f9cadb2441, 0x23570bdf8bb577bd},
    {"last epoch", 1237, 10, 8, 1, STOKER_SHUFFLE_BLOCK, 3, UINT64_MAX, 0x5551b22615f22dea,
     0x454d29d966e012e9},
};
/* clang-format on */

static void test_fingerprint(void)
{
    T_EACH(fingerprint_row, row, fingerprint_rows)
    {
        struct stk_order_options options = {
            .sample_count = row->samples,
            .block_samples = row->block,
            .window_blocks = row->window,
            .group_count = row->groups,
            .shuffle = row->shuffle,
            .seed = row->seed,
        };
        struct stk_order order;
        struct stk_order_epoch epoch;

        T_EQ(row->name, stk_order_init(&order, &options, NULL), 0);
        stk_order_epoch_begin(&epoch, &order, row->epoch);
        T_EQ(row->name, stk_order_fingerprint(&epoch, 0, row->samples), row->want);
        T_EQ(row->name, stk_order_fingerprint(&epoch, 7, 300), row->want_part);
    }
}

int main(void)
{
    T_EQ("the version these rows are of", STOKER_ORDER_VERSION, 1);
    test_permute();
    test_order();
    test_fingerprint();
    return t_finish();
}
