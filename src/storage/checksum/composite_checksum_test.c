/* Goal: bytes that match the server's checksum of the complete object are verified and others fail,
 * for any parts of the object and any order of arrival. A server that reports wrong parts yields
 * "unknown" or "mismatch", never a crash, and never verifies damaged bytes.
 * Method: checksums computed part by part, tables of parts and of wrong answers, random splits,
 * random wrong answers by seed. Covers composite_checksum.c. */
#include "storage/checksum/composite_checksum.h"

#include "base/random.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>

#define BYTES 1000u
#define SIZES_MAX 12u
#define LIES 20000u

/* An object and its server. */
struct world {
    uint64_t sizes[SIZES_MAX]; /* of its parts; 0 after them, and for an empty last part */
    uint32_t count;
    uint32_t kind;
    bool offsets, seals; /* are reported */
    uint32_t refused;    /* this part and those behind it, with `status`; 0: none is */
    int status;
    uint32_t lie; /* this part (from 1; 0: none) is reported with this offset and size */
    uint64_t lie_offset, lie_bytes;
    uint32_t requested;
    uint8_t data[BYTES]; /* as they are in the store */
};

static int ask(void *owner, uint32_t number, struct stk_composite_checksum_part *part)
{
    struct world *world = owner;
    uint64_t begin = 0;

    world->requested++;
    T_TRUE("a part", number >= 1 && number <= STK_COMPOSITE_CHECKSUM_PARTS_MAX);
    if (world->refused && number >= world->refused) {
        return world->status;
    }
    *part = (struct stk_composite_checksum_part){.offset = UINT64_MAX};
    if (number > world->count) {
        return STOKER_ERROR_UNSUPPORTED;
    }
    for (uint32_t i = 0; i + 1 < number; i++) {
        begin += world->sizes[i];
    }
    part->offset = world->offsets ? begin : UINT64_MAX;
    part->bytes = world->sizes[number - 1];
    if (world->seals) {
        part->seal = stk_checksum_compute(world->kind, false,
                                          (struct stk_view){world->data + begin, part->bytes});
    }
    if (world->lie == number) {
        part->offset = world->lie_offset;
        part->bytes = world->lie_bytes;
    }
    return 0;
}

static struct stk_checksum sum_of(const struct world *world, uint32_t count)
{
    uint8_t sums[SIZES_MAX * 32];
    uint32_t one = stk_checksum_bytes(world->kind);
    struct stk_checksum seal;
    uint64_t at = 0;

    if (count == 0) {
        return stk_checksum_compute(world->kind, false, (struct stk_view){world->data, BYTES});
    }
    for (uint32_t i = 0; i < count; i++) {
        seal = stk_checksum_compute(world->kind, false,
                                    (struct stk_view){world->data + at, world->sizes[i]});
        memcpy(sums + (size_t)i * one, seal.sum, one);
        at += world->sizes[i];
    }
    T_EQ("parts", at, BYTES);
    seal = stk_checksum_compute(world->kind, false, (struct stk_view){sums, (size_t)count * one});
    seal.parts = count;
    return seal;
}

static void make(struct world *world, uint64_t seed)
{
    for (uint32_t i = 0; i < BYTES; i++) {
        world->data[i] = (uint8_t)stk_random_key(seed, i);
    }
}

/* Adds all bytes in cuts of at most `cut` bytes. */
static int add_all(struct stk_composite_checksum *checksum, const uint8_t *data, uint64_t cut,
                   uint64_t seed)
{
    int status = 0;

    for (uint64_t at = 0, step; at < BYTES && status == 0; at += step) {
        step = stk_min(1 + stk_random_key(seed, at) % cut, BYTES - at);
        status = stk_composite_checksum_add(checksum, (struct stk_view){data + at, step});
    }
    return status;
}

/* Adds `first`, and, if bytes have to be added again, `again`. Returns the result. */
static int judge(struct world *world, const struct stk_checksum *want, const uint8_t *first,
                 const uint8_t *again, struct stk_composite_checksum_mismatch *mismatch)
{
    struct stk_composite_checksum *checksum = stk_composite_checksum_new(want, BYTES, ask, world);
    int status;

    world->requested = 0;
    T_TRUE("memory", checksum != NULL);
    status = add_all(checksum, first, 300, 1);
    status = status < 0 ? status : stk_composite_checksum_verify(checksum);
    if (status == STK_COMPOSITE_CHECKSUM_RESTART) {
        status = add_all(checksum, again, 90, 2);
        status = status < 0 ? status : stk_composite_checksum_verify(checksum);
        T_TRUE("once", status != STK_COMPOSITE_CHECKSUM_RESTART);
    }
    stk_composite_checksum_get_mismatch(checksum, mismatch);
    stk_composite_checksum_free(checksum);
    return status;
}

static const struct shape {
    const char *name;
    uint64_t sizes[SIZES_MAX];
    /* 0: a checksum of the object; number of requests without an error */
    uint32_t count, requested;
} shapes[] = {
    {"complete", {0}, 0, 0},
    {"one part", {1000}, 1, 0},
    {"two", {600, 400}, 2, 1},
    {"even", {250, 250, 250, 250}, 4, 1},
    {"a short last one", {300, 300, 300, 100}, 4, 1},
    {"the last is one byte", {333, 333, 333, 1}, 4, 1},
    {"grow", {100, 200, 700}, 3, 3},
    {"shrink", {700, 200, 100}, 3, 3},
    {"seem even", {250, 300, 200, 250}, 4, 7}, /* one, two at which it shows, and four again */
    {"seem even to the last but one", {250, 250, 260, 240}, 4, 8},
    {"an empty last one", {500, 500, 0}, 3, 3},
    {"uneven, an empty last one", {400, 600, 0}, 3, 6},
    {"of one byte", {1, 999}, 2, 2},
};

static void set(struct world *world, const struct shape *shape, uint32_t kind, uint32_t mode)
{
    memset(world, 0, sizeof *world);
    memcpy(world->sizes, shape->sizes, sizeof world->sizes);
    world->count = shape->count;
    world->kind = kind;
    world->offsets = mode & 1;
    world->seals = mode & 2;
    make(world, 7);
}

/* Each kind, shape and server; each byte that may be damaged shows, and where. */
static void test_shapes(void)
{
    static struct world world;
    static uint8_t came[BYTES];
    struct stk_composite_checksum_mismatch mismatch;
    struct stk_checksum want;

    T_EACH(shape, shape, shapes)
    {
        for (uint32_t at = 0; at < 4 * STK_CHECKSUM_KINDS; at++) {
            if (at / 4 == STK_CHECKSUM_NONE) {
                continue;
            }
            set(&world, shape, at / 4, at % 4);
            want = sum_of(&world, shape->count);
            T_EQ(shape->name, judge(&world, &want, world.data, world.data, &mismatch),
                 STK_COMPOSITE_CHECKSUM_VERIFIED);
            T_EQ(shape->name, world.requested, shape->requested);
            for (uint32_t bad = 0; bad < BYTES; bad += 111) {
                uint64_t begin = 0;
                uint32_t part = 0;

                memcpy(came, world.data, BYTES);
                came[bad] ^= 0x10;
                T_EQ(shape->name, judge(&world, &want, came, came, &mismatch),
                     STK_COMPOSITE_CHECKSUM_MISMATCH);
                T_TRUE(shape->name, mismatch.first <= bad && bad <= mismatch.last &&
                                        mismatch.last < BYTES &&
                                        !stk_checksum_equal(&mismatch.want, &mismatch.got));
                while (part < shape->count && bad >= begin) {
                    begin += world.sizes[part++];
                }
                T_EQ(shape->name, mismatch.part, world.seals && shape->count > 1 ? part : 0);
            }
        }
    }
}

/* The first delivery of the bytes counts: good bytes at a second reading verify nothing. */
static void test_other_bytes_again(void)
{
    static struct world world;
    static uint8_t came[BYTES];
    struct stk_composite_checksum_mismatch mismatch;
    struct stk_checksum want;

    set(&world, &shapes[8], STK_CHECKSUM_CRC32C, 1);
    want = sum_of(&world, world.count);
    memcpy(came, world.data, BYTES);
    came[500] ^= 1;
    T_EQ("first wrong", judge(&world, &want, came, world.data, &mismatch),
         STK_COMPOSITE_CHECKSUM_MISMATCH);
    T_TRUE("reported",
           !stk_checksum_equal(&mismatch.want, &mismatch.got) && mismatch.last == BYTES - 1);
    T_EQ("then wrong", judge(&world, &want, world.data, came, &mismatch),
         STK_COMPOSITE_CHECKSUM_MISMATCH);
}

/* The server does not answer, or its answer is impossible. */
static void test_servers(void)
{
    static const struct {
        const char *name;
        uint32_t shape, refused;
        int status;
        uint32_t lie;
        uint64_t offset, bytes;
        int verdict, damaged;
    } rows[] = {
        {"tells all", 3, 0, 0, 0, 0, 0, STK_COMPOSITE_CHECKSUM_VERIFIED,
         STK_COMPOSITE_CHECKSUM_MISMATCH},
        {"tells none", 3, 1, STOKER_ERROR_UNSUPPORTED, 0, 0, 0, STK_COMPOSITE_CHECKSUM_UNKNOWN,
         STK_COMPOSITE_CHECKSUM_UNKNOWN},
        {"tells the first", 3, 2, STOKER_ERROR_UNSUPPORTED, 0, 0, 0,
         STK_COMPOSITE_CHECKSUM_VERIFIED, STK_COMPOSITE_CHECKSUM_MISMATCH},
        {"tells some", 6, 3, STOKER_ERROR_UNSUPPORTED, 0, 0, 0, STK_COMPOSITE_CHECKSUM_UNKNOWN,
         STK_COMPOSITE_CHECKSUM_UNKNOWN},
        {"breaks", 6, 3, STOKER_ERROR_TIMEOUT, 0, 0, 0, STOKER_ERROR_TIMEOUT, STOKER_ERROR_TIMEOUT},
        {"breaks when it is looked at", 3, 2, -EIO, 0, 0, 0, STK_COMPOSITE_CHECKSUM_VERIFIED, -EIO},
        {"the first is all", 3, 0, 0, 1, 0, BYTES, STK_COMPOSITE_CHECKSUM_UNKNOWN,
         STK_COMPOSITE_CHECKSUM_UNKNOWN},
        {"the first is none", 3, 0, 0, 1, 0, 0, STK_COMPOSITE_CHECKSUM_UNKNOWN,
         STK_COMPOSITE_CHECKSUM_UNKNOWN},
        {"larger than all", 3, 0, 0, 1, 0, BYTES + 1, STK_COMPOSITE_CHECKSUM_UNKNOWN,
         STK_COMPOSITE_CHECKSUM_UNKNOWN},
        {"larger than numbers", 6, 0, 0, 2, UINT64_MAX, UINT64_MAX, STK_COMPOSITE_CHECKSUM_UNKNOWN,
         STK_COMPOSITE_CHECKSUM_UNKNOWN},
        {"overlaps", 6, 0, 0, 2, 50, 200, STK_COMPOSITE_CHECKSUM_UNKNOWN,
         STK_COMPOSITE_CHECKSUM_UNKNOWN},
        {"a gap", 6, 0, 0, 2, 150, 200, STK_COMPOSITE_CHECKSUM_UNKNOWN,
         STK_COMPOSITE_CHECKSUM_UNKNOWN},
        {"does not begin at 0", 3, 0, 0, 1, 1, 250, STK_COMPOSITE_CHECKSUM_UNKNOWN,
         STK_COMPOSITE_CHECKSUM_UNKNOWN},
        {"leaves some over", 6, 0, 0, 3, 300, 600, STK_COMPOSITE_CHECKSUM_UNKNOWN,
         STK_COMPOSITE_CHECKSUM_UNKNOWN},
        {"leaves nothing for the last", 6, 0, 0, 2, 100, 900, STK_COMPOSITE_CHECKSUM_UNKNOWN,
         STK_COMPOSITE_CHECKSUM_UNKNOWN},
        {"an empty one in between", 6, 0, 0, 2, 100, 0, STK_COMPOSITE_CHECKSUM_UNKNOWN,
         STK_COMPOSITE_CHECKSUM_UNKNOWN},
        {"another first one", 6, 0, 0, 1, 0, 101, STK_COMPOSITE_CHECKSUM_UNKNOWN,
         STK_COMPOSITE_CHECKSUM_UNKNOWN},
    };
    static struct world world;
    static uint8_t came[BYTES];

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_composite_checksum_mismatch mismatch;
        struct stk_checksum want;

        set(&world, &shapes[rows[i].shape], STK_CHECKSUM_SHA256, 1);
        want = sum_of(&world, world.count);
        world.refused = rows[i].refused;
        world.status = rows[i].status;
        world.lie = rows[i].lie;
        world.lie_offset = rows[i].offset;
        world.lie_bytes = rows[i].bytes;
        memcpy(came, world.data, BYTES);
        came[999] ^= 1;
        T_EQ(rows[i].name, judge(&world, &want, world.data, world.data, &mismatch),
             rows[i].verdict);
        T_EQ(rows[i].name, judge(&world, &want, came, came, &mismatch), rows[i].damaged);
        T_TRUE(rows[i].name, world.requested <= 2 * STK_COMPOSITE_CHECKSUM_PARTS_MAX);
    }
}

/* More parts than the limit, for which no question is sent; unknown kinds; missing bytes. */
static void test_unknown(void)
{
    static struct world world;
    struct stk_composite_checksum_mismatch mismatch;
    struct stk_composite_checksum *checksum;
    struct stk_checksum want;

    set(&world, &shapes[3], STK_CHECKSUM_CRC32, 0);
    want = sum_of(&world, world.count);
    want.parts = 1000000000;
    T_EQ("too many", judge(&world, &want, world.data, world.data, &mismatch),
         STK_COMPOSITE_CHECKSUM_UNKNOWN);
    T_EQ("no request", world.requested, 0);
    want.parts = STK_COMPOSITE_CHECKSUM_PARTS_MAX; /* more than bytes */
    T_EQ("more than bytes", judge(&world, &want, world.data, world.data, &mismatch),
         STK_COMPOSITE_CHECKSUM_UNKNOWN);
    want = (struct stk_checksum){.kind = STK_CHECKSUM_NONE};
    T_EQ("none", judge(&world, &want, world.data, world.data, &mismatch),
         STK_COMPOSITE_CHECKSUM_UNKNOWN);
    want.kind = STK_CHECKSUM_KINDS;
    T_EQ("no kind", judge(&world, &want, world.data, world.data, &mismatch),
         STK_COMPOSITE_CHECKSUM_UNKNOWN);
    want = sum_of(&world, 0);
    checksum = stk_composite_checksum_new(&want, BYTES, ask, &world);
    T_EQ("some of it",
         stk_composite_checksum_add(checksum, (struct stk_view){world.data, BYTES - 1}), 0);
    T_EQ("some of it", stk_composite_checksum_verify(checksum), STK_COMPOSITE_CHECKSUM_UNKNOWN);
    stk_composite_checksum_free(checksum);
    stk_composite_checksum_free(NULL);
    want = stk_checksum_compute(STK_CHECKSUM_SHA1, false, (struct stk_view){world.data, 0});
    checksum = stk_composite_checksum_new(&want, 0, ask, &world);
    T_EQ("nothing", stk_composite_checksum_verify(checksum), STK_COMPOSITE_CHECKSUM_VERIFIED);
    stk_composite_checksum_free(checksum);
}

/* A server with arbitrary answers: damage is never verified, and every case ends. */
static int ask_liar(void *owner, uint32_t number, struct stk_composite_checksum_part *part)
{
    uint64_t *seed = owner, word = *seed = stk_random_key(*seed, number);

    part->offset =
        word & 1 ? UINT64_MAX : stk_random_key(word, 1) % (word & 2 ? BYTES : UINT64_MAX);
    part->bytes = stk_random_key(word, 2) % (word & 4 ? BYTES : word & 8 ? 20 : UINT64_MAX);
    part->seal = (struct stk_checksum){.kind = (uint32_t)(word >> 8) % STK_CHECKSUM_KINDS};
    return word >> 56 == 7 ? STOKER_ERROR_UNSUPPORTED : word >> 56 == 8 ? -EIO : 0;
}

static void test_liars(void)
{
    static struct world world;
    uint32_t seen[4] = {0};

    make(&world, 3);
    for (uint64_t run = 0; run < LIES; run++) {
        uint64_t seed = stk_random_key(11, run);
        struct stk_checksum want = {.kind = 1 + (uint32_t)(run % (STK_CHECKSUM_KINDS - 1)),
                                    .parts =
                                        (uint32_t)(stk_random_key(seed, 5) % (run & 1 ? 5 : 200))};
        struct stk_composite_checksum *checksum =
            stk_composite_checksum_new(&want, BYTES, ask_liar, &seed);
        int status = add_all(checksum, world.data, BYTES, run);

        status = status < 0 ? status : stk_composite_checksum_verify(checksum);
        if (status == STK_COMPOSITE_CHECKSUM_RESTART) {
            seen[STK_COMPOSITE_CHECKSUM_RESTART]++;
            status = add_all(checksum, world.data, BYTES, run);
            status = status < 0 ? status : stk_composite_checksum_verify(checksum);
        }
        T_TRUE("not verified", status == -EIO || status == STK_COMPOSITE_CHECKSUM_UNKNOWN ||
                                   status == STK_COMPOSITE_CHECKSUM_MISMATCH);
        if (status >= 0) {
            seen[status]++;
        }
        stk_composite_checksum_free(checksum);
    }
    T_TRUE("of each", seen[STK_COMPOSITE_CHECKSUM_UNKNOWN] > 0 &&
                          seen[STK_COMPOSITE_CHECKSUM_MISMATCH] > 0 &&
                          seen[STK_COMPOSITE_CHECKSUM_RESTART] > 0);
}

int main(void)
{
    test_shapes();
    test_other_bytes_again();
    test_servers();
    test_unknown();
    test_liars();
    return t_finish();
}
