/* Goal: versions 1 and 2 of the order do not change: a state that was saved years ago continues
 * with the same samples, and a fingerprint in a log still identifies the same order. Method:
 * compares with values that were recorded once. If a row fails, do not change the row: an order
 * that differs needs a new STOKER_ORDER_VERSION and new rows. */
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
    uint32_t version;        /* 0: the row holds for versions 1 and 2 */
} order_rows[] = {
    {"block",
     1000,
     10,
     8,
     1,
     STOKER_SHUFFLE_BLOCK,
     0,
     0,
     {462, 219, 690, 235},
     "81294a1cbe1556d2",
     0},
    {"block, next epoch",
     1000,
     10,
     8,
     1,
     STOKER_SHUFFLE_BLOCK,
     0,
     1,
     {575, 381, 739, 926},
     "63c5e10a739aaa88",
     0},
    {"block, seed",
     1000,
     10,
     8,
     1,
     STOKER_SHUFFLE_BLOCK,
     UINT64_MAX,
     0,
     {720, 699, 733, 958},
     "0d653449ecdce9d7",
     0},
    {"block, tail",
     1237,
     10,
     8,
     1,
     STOKER_SHUFFLE_BLOCK,
     3,
     4,
     {417, 419, 629, 915},
     "e74e54d9559d6cb2",
     1},
    {"block, groups",
     4096,
     16,
     8,
     8,
     STOKER_SHUFFLE_BLOCK,
     3,
     4,
     {3851, 3497, 2708, 2040},
     "a32a577578f48859",
     0},
    {"groups, left-over blocks",
     9999,
     13,
     8,
     32,
     STOKER_SHUFFLE_BLOCK,
     3,
     90,
     {9681, 90, 9391, 5096},
     "e20d33bf51016638",
     1},
    {"block, one window",
     500,
     10,
     64,
     1,
     STOKER_SHUFFLE_BLOCK,
     1,
     2,
     {304, 87, 468, 98},
     "02f4a310d4b103ca",
     0},
    {"block, less than a block",
     99,
     100,
     64,
     1,
     STOKER_SHUFFLE_BLOCK,
     1,
     2,
     {73, 44, 97, 76},
     "3f34e5fe2c011877",
     1},
    {"block, tail, version 2",
     1237,
     10,
     8,
     1,
     STOKER_SHUFFLE_BLOCK,
     3,
     4,
     {417, 419, 628, 915},
     "e4826943591b1f69",
     2},
    {"groups, left-over blocks, version 2",
     9999,
     13,
     8,
     32,
     STOKER_SHUFFLE_BLOCK,
     3,
     90,
     {9681, 90, 6885, 5096},
     "c17970cf4ab3fe91",
     2},
    {"block, less than a block, version 2",
     99,
     100,
     64,
     1,
     STOKER_SHUFFLE_BLOCK,
     1,
     2,
     {73, 44, 97, 76},
     "3f34e5fe2c011877",
     2},
    {"long columns, version 2",
     6001,
     256,
     4,
     5,
     STOKER_SHUFFLE_BLOCK,
     7,
     1,
     {2419, 2672, 3424, 2460},
     "aab240d97c083ef6",
     2},
    {"last epoch, version 2",
     6000,
     256,
     64,
     1,
     STOKER_SHUFFLE_BLOCK,
     0,
     UINT64_MAX,
     {2747, 1114, 1400, 1530},
     "e901d32c48a20d34",
     2},
    {"full",
     10007,
     10,
     8,
     1,
     STOKER_SHUFFLE_FULL,
     1,
     2,
     {5373, 1800, 8389, 5117},
     "9652c06c16c25b32",
     0},
    {"full, short", 12, 10, 8, 1, STOKER_SHUFFLE_FULL, 1, 2, {5, 7, 1, 0}, "afc6d379bc3a093c", 0},
    {"none", 1000, 10, 8, 1, STOKER_SHUFFLE_NONE, 1, 2, {0, 1, 500, 999}, "702746827e553786", 0},
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

static void test_order(uint32_t version)
{
    T_EACH(order_row, row, order_rows)
    {
        if (row->version && row->version != version) {
            continue;
        }
        const uint64_t at[] = {0, 1, row->samples / 2, row->samples - 1};
        struct stk_order_options options = {
            .sample_count = row->samples,
            .block_samples = row->block,
            .window_blocks = row->window,
            .group_count = row->groups,
            .shuffle = row->shuffle,
            .version = version,
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
    uint32_t version;         /* 0: the row holds for versions 1 and 2 */
} fingerprint_rows[] = {
    {"block", 1000, 10, 8, 1, STOKER_SHUFFLE_BLOCK, 0, 0, 0x69c0f903892696b6, 0xb4127d7af7404b2b,
     0},
    {"groups", 9999, 13, 8, 32, STOKER_SHUFFLE_BLOCK, 3, 90, 0xc8e6c2dad40e65bf, 0x094734c46d535a5f,
     1},
    {"full", 10007, 10, 8, 1, STOKER_SHUFFLE_FULL, 1, 2, 0x9f6c1a7cadbfa0e8, 0x109f94104593838e, 0},
    {"none", 1000, 10, 8, 1, STOKER_SHUFFLE_NONE, 1, 2, 0xad51e9f9cadb2441, 0x23570bdf8bb577bd, 0},
    {"last epoch", 1237, 10, 8, 1, STOKER_SHUFFLE_BLOCK, 3, UINT64_MAX, 0x5551b22615f22dea,
     0x454d29d966e012e9, 1},
    {"groups, version 2", 9999, 13, 8, 32, STOKER_SHUFFLE_BLOCK, 3, 90, 0x54d08585cd8dcbfc,
     0xe35ac530f0dc4499, 2},
    {"last epoch, version 2", 1237, 10, 8, 1, STOKER_SHUFFLE_BLOCK, 3, UINT64_MAX,
     0xa370a27edcaf4163, 0x0f7f68dc1adaaff4, 2},
};
/* clang-format on */

static void test_fingerprint(uint32_t version)
{
    T_EACH(fingerprint_row, row, fingerprint_rows)
    {
        if (row->version && row->version != version) {
            continue;
        }
        struct stk_order_options options = {
            .sample_count = row->samples,
            .block_samples = row->block,
            .window_blocks = row->window,
            .group_count = row->groups,
            .shuffle = row->shuffle,
            .version = version,
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
    T_EQ("the newest version of these rows", STOKER_ORDER_VERSION, 2);
    test_permute();
    for (uint32_t version = 1; version <= STOKER_ORDER_VERSION; version++) {
        test_order(version);
        test_fingerprint(version);
    }
    return t_finish();
}
