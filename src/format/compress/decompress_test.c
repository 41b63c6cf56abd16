/* Goal: data that the libraries compressed is decompressed; truncated or damaged data is an error,
 * never wrong bytes; a decompression bomb stops at its limit.
 * Method: the same tests for each compression: portions of many sizes, several streams, padding,
 * every truncation, every byte changed, bombs, headers that request too large a window. Covers
 * decompress.c, decompress_gzip.c, decompress_zstd.c, decompress_bzip2.c and decompress_xz.c. */
#include "base/mem.h"
#include "base/memory_budget.h"
#include "format/compress/decompress.h"
#include "test/t.h"

#include <bzlib.h>
#include <errno.h>
#include <lzma.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

static const uint32_t packings[] = {STK_COMPRESSION_GZIP, STK_COMPRESSION_ZSTD,
                                    STK_COMPRESSION_BZIP2, STK_COMPRESSION_XZ};

/* Returns the compressed size. Checksums on, so that a change is detected. */
static size_t make_packed(uint32_t packing, const uint8_t *data, size_t bytes, uint8_t *packed,
                          size_t capacity)
{
    z_stream gzip = {0};
    ZSTD_CCtx *zstd;
    unsigned bzip2_bytes = capacity;
    size_t used = 0;

    switch (packing) {
    case STK_COMPRESSION_GZIP:
        deflateInit2(&gzip, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
        gzip.next_in = (uint8_t *)(uintptr_t)data;
        gzip.avail_in = bytes;
        gzip.next_out = packed;
        gzip.avail_out = capacity;
        deflate(&gzip, Z_FINISH);
        used = gzip.total_out;
        deflateEnd(&gzip);
        return used;
    case STK_COMPRESSION_ZSTD:
        zstd = ZSTD_createCCtx();
        ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
        used = ZSTD_compress2(zstd, packed, capacity, data, bytes);
        ZSTD_freeCCtx(zstd);
        return used;
    case STK_COMPRESSION_BZIP2:
        BZ2_bzBuffToBuffCompress((char *)packed, &bzip2_bytes, (char *)(uintptr_t)data, bytes, 9, 0,
                                 0);
        return bzip2_bytes;
    default:
        lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, NULL, data, bytes, packed, &used, capacity);
        return used;
    }
}

struct outcome {
    int status; /* 0 or the error */
    size_t bytes;
    uint64_t offset;
};

/* How to unpack: at most in_step bytes in and out_step bytes room a call; 0: all. */
struct way {
    uint32_t packing;
    size_t in_step, out_step;
    uint64_t bytes_max;
};

enum { DATA_BYTES = 3000, ROOM = 1 << 16 };
static uint8_t data[DATA_BYTES], packed[ROOM], out[ROOM];

/* Into `out`. */
static struct outcome unpack_all(struct way way, const uint8_t *bytes, size_t count)
{
    const char *name = stk_compression_name(way.packing);
    struct stk_decompress *unpack = NULL;
    struct stoker_error error = {.offset = STOKER_NO_OFFSET};
    struct outcome outcome = {0};
    size_t given = 0;
    int more = 1;

    outcome.status = stk_decompress_open(
        &unpack, way.packing, &(struct stk_decompress_limits){way.bytes_max, 0, NULL}, &error);
    while (outcome.status == 0 && more > 0) {
        size_t step = stk_min(way.in_step ? way.in_step : count, count - given);
        size_t room = stk_min(way.out_step ? way.out_step : ROOM, ROOM - outcome.bytes);
        struct stk_view in = {bytes + given, step};
        size_t written;
        bool last = given + step == count;

        if (room == 0) {
            T_TRUE(name, !"more bytes than there should be");
            break;
        }
        more = stk_decompress_run(unpack, &in, last, out + outcome.bytes, room, &written, &error);
        if (more < 0) {
            outcome.status = more;
            T_ERROR(name, &error);
            T_TRUE(name, error.offset <= count);
            break;
        }
        T_TRUE(name, more == 0 || in.bytes == 0 || written == room);
        given += step - in.bytes;
        outcome.bytes += written;
    }
    outcome.offset = error.offset;
    stk_decompress_close(unpack);
    return outcome;
}

static void fill_data(void)
{
    uint32_t state = 1;

    for (int i = 0; i < DATA_BYTES; i++) {
        state = state * 1664525 + 1013904223;
        data[i] = i % 100 < 50 ? 'a' : state >> 24;
    }
}

static void test_portions(uint32_t packing)
{
    static const size_t steps[] = {1, 2, 7, 100, 4096, 65536};
    const char *name = stk_compression_name(packing);
    size_t bytes = make_packed(packing, data, DATA_BYTES, packed, sizeof packed);

    T_EQ(name, stk_compression_detect((struct stk_view){packed, bytes}), packing);
    for (size_t i = 0; i < STK_COUNT(steps); i++) {
        for (size_t j = 0; j < STK_COUNT(steps); j++) {
            struct outcome outcome =
                unpack_all((struct way){packing, steps[i], steps[j], 0}, packed, bytes);
            T_EQ(name, outcome.status, 0);
            T_EQ(name, outcome.bytes, DATA_BYTES);
            T_TRUE(name, memcmp(out, data, DATA_BYTES) == 0);
        }
    }
}

/* 3000 + 0 + 10 bytes in three streams, with `gap` zeros between and after them. */
static void test_streams(uint32_t packing, size_t gap, bool good)
{
    static const size_t sizes[] = {DATA_BYTES, 0, 10};
    const char *name = stk_compression_name(packing);
    size_t bytes = 0;

    for (int i = 0; i < 3; i++) {
        bytes += make_packed(packing, data, sizes[i], packed + bytes, sizeof packed - bytes);
        memset(packed + bytes, 0, gap);
        bytes += gap;
    }
    for (size_t step = 1; step < 5000; step = step * 3 + 1) {
        struct outcome outcome = unpack_all((struct way){packing, step, 777, 0}, packed, bytes);

        T_EQ(name, outcome.status, good ? 0 : STOKER_ERROR_CORRUPT);
        if (good) {
            T_EQ(name, outcome.bytes, DATA_BYTES + 10);
            T_TRUE(name, memcmp(out + DATA_BYTES, data, 10) == 0);
        }
    }
    memcpy(packed + bytes, "garbage!garbage!", 16); /* xz judges 12 bytes at once */
    T_EQ(name, unpack_all((struct way){packing, 100, 100, 0}, packed, bytes + 16).status,
         STOKER_ERROR_CORRUPT);
}

static void test_cuts(uint32_t packing)
{
    const char *name = stk_compression_name(packing);
    size_t bytes = make_packed(packing, data, 300, packed, sizeof packed);

    for (size_t cut = 0; cut < bytes; cut++) {
        uint8_t *exact = malloc(cut ? cut : 1);

        memcpy(exact, packed, cut);
        for (size_t step = 1; step <= 10000; step *= 10) {
            struct outcome outcome = unpack_all((struct way){packing, step, 1000, 0}, exact, cut);
            T_EQ(name, outcome.status, STOKER_ERROR_TRUNCATED);
            T_EQ(name, outcome.offset, cut);
        }
        free(exact);
    }
}

/* A changed byte: an error, or (in a time or a name) no matter. */
static void test_damage(uint32_t packing)
{
    const char *name = stk_compression_name(packing);
    size_t bytes = make_packed(packing, data, 300, packed, sizeof packed);
    int refused = 0;

    for (size_t at = 0; at < bytes; at++) {
        for (int bit = 0; bit < 8; bit++) {
            struct outcome outcome;

            packed[at] ^= 1 << bit;
            outcome = unpack_all((struct way){packing, 64, 1000, 0}, packed, bytes);
            refused += outcome.status < 0;
            if (outcome.status == 0) {
                T_TRUE(name, outcome.bytes == 300 && memcmp(out, data, 300) == 0);
            }
            packed[at] ^= 1 << bit;
        }
    }
    T_TRUE("most changes are refused", refused > (int)bytes * 6);
}

static void test_limits(uint32_t packing)
{
    enum { BOMB_BYTES = 4 << 20 };
    static const struct stk_decompress_limits limits = {.ratio_max = 100};
    const char *name = stk_compression_name(packing);
    uint8_t *zeros = calloc(1, BOMB_BYTES), *room = malloc(BOMB_BYTES);
    struct stk_decompress *unpack;
    struct stoker_error error = {0};
    struct stk_view in;
    struct outcome outcome;
    size_t bytes, written;
    int status;

    bytes = make_packed(packing, data, DATA_BYTES, packed, sizeof packed);
    outcome = unpack_all((struct way){packing, 100, 100, DATA_BYTES}, packed, bytes);
    T_EQ("bytes_max itself is fine", outcome.status, 0);
    outcome = unpack_all((struct way){packing, 100, 100, DATA_BYTES - 1}, packed, bytes);
    T_EQ("one more is not", outcome.status, STOKER_ERROR_LIMIT);
    outcome = unpack_all((struct way){packing, 100, 100, UINT64_MAX}, packed, bytes);
    T_EQ("no limit", outcome.status, 0);

    bytes = make_packed(packing, zeros, BOMB_BYTES, packed, sizeof packed);
    T_EQ(name, stk_decompress_open(&unpack, packing, &limits, &error), 0);
    in = (struct stk_view){packed, bytes};
    status = stk_decompress_run(unpack, &in, true, room, BOMB_BYTES, &written, &error);
    T_EQ("4 MiB of zeros, ratio 100", status, STOKER_ERROR_LIMIT);
    T_HAS(name, error.where, "ratio");
    stk_decompress_close(unpack);
    bytes = make_packed(packing, zeros, 1 << 20, packed, sizeof packed);
    T_EQ(name, stk_decompress_open(&unpack, packing, &limits, &error), 0);
    in = (struct stk_view){packed, bytes};
    do {
        status = stk_decompress_run(unpack, &in, true, room, BOMB_BYTES, &written, &error);
    } while (status > 0);
    T_EQ("the first MiB is free", status, 0);
    stk_decompress_close(unpack);
    free(zeros);
    free(room);
}

static void test_memory(uint32_t packing)
{
    const char *name = stk_compression_name(packing);
    size_t bytes = make_packed(packing, data, DATA_BYTES, packed, sizeof packed);
    int64_t alive = stk_mem_alive();
    int n = 0;

    for (struct outcome outcome = {-1, 0, 0}; outcome.status < 0 && n < 50;) {
        stk_mem_fail_nth(++n);
        outcome = unpack_all((struct way){packing, 1000, 1000, 0}, packed, bytes);
        T_TRUE(name, outcome.status == 0 || outcome.status == -ENOMEM);
        T_EQ(name, stk_mem_alive(), alive);
    }
    stk_mem_fail_nth(0);
    T_TRUE("some allocations failed, then none", n > 2 && n < 50);
}

struct allowance {
    uint64_t bytes, peak, left; /* left: how often reserve() succeeds */
};

static bool allowance_reserve(void *owner, uint64_t bytes)
{
    struct allowance *allowance = owner;

    if (allowance->left == 0) {
        return false;
    }
    allowance->left--;
    allowance->bytes += bytes;
    allowance->peak = stk_max(allowance->peak, allowance->bytes);
    return true;
}

static void allowance_release(void *owner, uint64_t bytes)
{
    struct allowance *allowance = owner;

    allowance->bytes -= bytes;
}

/* All memory of a library is reserved before and released; a refusal at any time is BUDGET. */
static void test_grant(uint32_t packing)
{
    const char *name = stk_compression_name(packing);
    size_t bytes = make_packed(packing, data, DATA_BYTES, packed, sizeof packed);
    int status = -1;

    for (uint64_t n = 0; status < 0 && n < 50; n++) {
        struct allowance allowance = {.left = n};
        struct stk_budget_hooks grant = {allowance_reserve, allowance_release, &allowance};
        struct stk_decompress_limits limits = {.grant = &grant};
        struct stk_view in = {packed, bytes};
        struct stk_decompress *unpack = NULL;
        struct stoker_error error = {0};
        size_t sum = 0, written = 0;

        status = stk_decompress_open(&unpack, packing, &limits, &error);
        for (int more = 1; status == 0 && more > 0; sum += written) { /* by parts: with a window */
            more = stk_decompress_run(unpack, &in, true, out, 1000, &written, &error);
            status = more < 0 ? more : 0;
        }
        stk_decompress_close(unpack);
        T_EQ(name, allowance.bytes, 0);
        if (status < 0) {
            T_EQ(name, status, STOKER_ERROR_BUDGET);
            T_ERROR(name, &error);
        } else {
            T_TRUE("some refusals came before", n > 1);
            T_EQ(name, sum, DATA_BYTES);
            T_TRUE("at least its state and window", allowance.peak > 8000);
        }
    }
    T_EQ(name, status, 0);
}

/* Headers that no compressor writes. */
static void test_windows(void)
{
    /* Magic, no flags, window 2^28, one empty raw block (RFC 8878, 3.1.1). */
    static const uint8_t zstd[] = {0x28, 0xb5, 0x2f, 0xfd, 0, 0x90, 1, 0, 0};
    static const uint8_t dictionary[] = {0x28, 0xb5, 0x2f, 0xfd, 0x01, 0x50, 7, 1, 0, 0};
    static const uint8_t skippable[] = {0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'};
    size_t bytes = make_packed(STK_COMPRESSION_XZ, data, 300, packed, sizeof packed);
    uint8_t *block = packed + 12; /* after the stream's header */
    size_t block_bytes = (block[0] + 1) * 4;
    uint8_t *filter;
    uint32_t sum;

    T_EQ("zstd window",
         unpack_all((struct way){STK_COMPRESSION_ZSTD, 99, 99, 0}, zstd, sizeof zstd).status,
         STOKER_ERROR_LIMIT);
    T_EQ("zstd dictionary",
         unpack_all((struct way){STK_COMPRESSION_ZSTD, 99, 99, 0}, dictionary, sizeof dictionary)
             .status,
         STOKER_ERROR_UNSUPPORTED);
    T_EQ("skippable", stk_compression_detect((struct stk_view){skippable, sizeof skippable}),
         STK_COMPRESSION_ZSTD);

    /* LZMA2 with a dictionary of 4 GiB (xz format 1.1, 3.1 and 5.3.1). */
    filter = memmem(block, block_bytes, "\x21\x01", 2); /* LZMA2, one byte of properties */
    T_TRUE("LZMA2", filter != NULL);
    filter[2] = 40;
    sum = lzma_crc32(block, block_bytes - 4, 0);
    memcpy(block + block_bytes - 4, &sum, 4);
    T_EQ("xz memory",
         unpack_all((struct way){STK_COMPRESSION_XZ, 9999, 9999, 0}, packed, bytes).status,
         STOKER_ERROR_LIMIT);

    memcpy(packed, skippable, sizeof skippable);
    bytes = sizeof skippable;
    bytes += make_packed(STK_COMPRESSION_ZSTD, data, DATA_BYTES, packed + bytes, 9999);
    memcpy(packed + bytes, skippable, sizeof skippable);
    bytes += sizeof skippable;
    T_EQ("skippable frames around",
         unpack_all((struct way){STK_COMPRESSION_ZSTD, 5, 999, 0}, packed, bytes).bytes,
         DATA_BYTES);
}

static const struct packing_row {
    const char *head;
    size_t bytes;
    uint32_t want;
} packing_rows[] = {
    {"\x1f\x8b\x08\0\0\0", 6, STK_COMPRESSION_GZIP},
    {"\x1f\x8b\x08\0\0", 5, STK_COMPRESSION_NONE},
    {"\x1f\x8b\x07\0\0\0", 6, STK_COMPRESSION_NONE},
    {"BZh91AY", 7, STK_COMPRESSION_BZIP2},
    {"BZh1\x17\x72", 6, STK_COMPRESSION_BZIP2},
    {"BZh91.jpg", 9, STK_COMPRESSION_NONE},
    {"BZh01A", 6, STK_COMPRESSION_NONE},
    {"\xfd"
     "7zXZ\0",
     6, STK_COMPRESSION_XZ},
    {"\xfd"
     "7zXZ.",
     6, STK_COMPRESSION_NONE},
    {"\x28\xb5\x2f\xfd\0\0", 6, STK_COMPRESSION_ZSTD},
    {"\x28\xb5\x2f\xfc\0\0", 6, STK_COMPRESSION_NONE},
    {"000000.jpg", 10, STK_COMPRESSION_NONE},
};

/* Stream by stream: the state at the end of each, with one byte changed; the next one is read all
 * the same, whatever the portions. */
static void test_ends(void)
{
    static const struct end_row {
        const char *name;
        uint32_t packing, proof; /* of the first one */
        size_t from_end;         /* the byte that is changed; 0: none */
        bool unsized;
    } rows[] = {
        {"gzip", STK_COMPRESSION_GZIP, STK_DECOMPRESS_CHECK_OK, 0, false},
        {"gzip, CRC", STK_COMPRESSION_GZIP, STK_DECOMPRESS_CHECK_MISMATCH, 5, false},
        {"gzip, size", STK_COMPRESSION_GZIP, STK_DECOMPRESS_CHECK_BAD_TRAILER, 2, false},
        {"gzip, both", STK_COMPRESSION_GZIP, STK_DECOMPRESS_CHECK_MISMATCH, 5, true},
        {"zstd", STK_COMPRESSION_ZSTD, STK_DECOMPRESS_CHECK_OK, 0, false},
        {"zstd, checksum", STK_COMPRESSION_ZSTD, STK_DECOMPRESS_CHECK_MISMATCH, 4, false},
        {"bzip2", STK_COMPRESSION_BZIP2, STK_DECOMPRESS_CHECK_OK, 0, false},
        {"bzip2, sum of all blocks", STK_COMPRESSION_BZIP2, STK_DECOMPRESS_CHECK_BAD_TRAILER, 3,
         false},
    };

    T_EACH(end_row, row, rows)
    {
        size_t first = make_packed(row->packing, data, DATA_BYTES, packed, ROOM);
        size_t count = first + make_packed(row->packing, data, 10, packed + first, ROOM - first);

        packed[first - row->from_end] ^= row->from_end ? 1 : 0;
        packed[first - 1] ^= row->unsized ? 1 : 0;
        for (size_t step = 1; step <= count; step = step < 4 ? step + 1 : step * 5) {
            struct stk_decompress *unpack = NULL;
            struct stk_decompress_end ended;
            size_t given = 0, bytes = 0, written;
            uint32_t ends = 0;
            int more = 1;

            T_EQ(row->name,
                 stk_decompress_open(&unpack, row->packing, &(struct stk_decompress_limits){0},
                                     NULL),
                 0);
            stk_decompress_by_stream(unpack);
            while (more > 0) {
                struct stk_view in = {packed + given, stk_min(step, count - given)};
                size_t offered = in.bytes;

                more = stk_decompress_run(unpack, &in, given + offered == count, out + bytes,
                                          ROOM - bytes, &written, NULL);
                given += offered - in.bytes;
                bytes += written;
                if (stk_decompress_stream_end(unpack, &ended)) {
                    T_EQ(row->name, ended.check, ends == 0 ? row->proof : STK_DECOMPRESS_CHECK_OK);
                    T_EQ(row->name, ended.in, ends == 0 ? first : count);
                    T_EQ(row->name, ended.bytes, ends == 0 ? DATA_BYTES : 10);
                    T_TRUE(row->name, ended.out == bytes && !ended.skippable);
                    T_TRUE(row->name, ended.check != STK_DECOMPRESS_CHECK_MISMATCH ||
                                          ended.size_matches == !row->unsized);
                    ends++;
                }
            }
            T_EQ(row->name, more, 0);
            T_EQ(row->name, ends, 2);
            T_TRUE(row->name, memcmp(out, data, DATA_BYTES) == 0);
            stk_decompress_close(unpack);
        }
    }
}

int main(void)
{
    fill_data();
    test_ends();
    for (size_t i = 0; i < STK_COUNT(packings); i++) {
        test_portions(packings[i]);
        test_streams(packings[i], 0, true);
        test_streams(packings[i], 4, true);
        test_streams(packings[i], 3, packings[i] != STK_COMPRESSION_XZ);
        test_cuts(packings[i]);
        test_damage(packings[i]);
        test_limits(packings[i]);
        test_memory(packings[i]);
        test_grant(packings[i]);
    }
    test_windows();
    T_EACH(packing_row, row, packing_rows)
    {
        struct stk_view head = {(const uint8_t *)row->head, row->bytes};
        T_EQ(row->head, stk_compression_detect(head), row->want);
    }
    T_STR("name", stk_compression_name(99), "unknown");
    stk_decompress_close(NULL);
    return t_finish();
}
