/* Goal: of the checksums that a server reports, the best valid one is used, and none that is
 * malformed or belongs to other bytes; checksums of ranges in any order combine to that of the
 * object, and a wrong one is detected.
 * Method: rows of headers; random splits of random bytes. Covers range_coverage.c. */
#include "storage/checksum/checksum.h"

#include "base/crc.h"
#include "base/random.h"
#include "test/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The sums of "123456789", as Python's zlib, hashlib and the catalogues of CRCs have them. */
#define CRC32C "4waSgw=="
#define CRC32 "y/Q5Jg=="
#define CRC64 "rosUhgp5mIg="
#define CRC64_TURNED "iJh5CoYUi64="
#define SHA256 "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="
#define SHA1 "98O8HYCOBHMq32eZZczDTKeuNEE="
#define MD5 "JfnnlDI7RTiF9RgfG2JNCw=="
#define ETAG "\"25f9e794323b453885f5181f1b624d0b\""

struct row {
    const char *name, *headers;
    uint32_t dialect;
    bool all, tag;
    uint32_t body, object_kind; /* kinds */
    bool doubtful, twice;
};

static const struct row rows[] = {
    {"nothing", "Date: today\n", STK_CHECKSUM_FROM_AWS, true, true, 0, 0, false, false},
    {"crc64nvme", "x-amz-checksum-crc64nvme: " CRC64 "\nx-amz-checksum-type: FULL_OBJECT\n",
     STK_CHECKSUM_FROM_AWS, true, false, STK_CHECKSUM_CRC64, STK_CHECKSUM_CRC64, false, false},
    {"any case", "X-Amz-Checksum-CRC32C:" CRC32C " \t\n", STK_CHECKSUM_FROM_AWS, true, false,
     STK_CHECKSUM_CRC32C, STK_CHECKSUM_CRC32C, false, false},
    {"the quickest", "x-amz-checksum-sha256: " SHA256 "\nx-amz-checksum-crc32: " CRC32 "\n",
     STK_CHECKSUM_FROM_AWS, true, false, STK_CHECKSUM_CRC32, STK_CHECKSUM_CRC32, false, false},
    {"sha1", "x-amz-checksum-sha1: " SHA1 "\n", STK_CHECKSUM_FROM_AWS, true, false,
     STK_CHECKSUM_SHA1, STK_CHECKSUM_SHA1, false, false},
    {"of seven parts", "x-amz-checksum-crc32c: " CRC32C "-7\n", STK_CHECKSUM_FROM_AWS, true, false,
     0, STK_CHECKSUM_CRC32C, false, false},
    {"of seven parts, of a range", "x-amz-checksum-crc32c: " CRC32C "-7\n", STK_CHECKSUM_FROM_AWS,
     false, false, 0, 0, false, false},
    {"of one part", "x-amz-checksum-crc32c: " CRC32C "-1\nx-amz-checksum-type: COMPOSITE\n",
     STK_CHECKSUM_FROM_AWS, true, false, STK_CHECKSUM_CRC32C, STK_CHECKSUM_CRC32C, false, true},
    {"composite without a number", /* botocore issue 3346 */
     "x-amz-checksum-crc32c: " CRC32C "\nx-amz-checksum-type: COMPOSITE\n", STK_CHECKSUM_FROM_AWS,
     true, false, STK_CHECKSUM_CRC32C, 0, true, false},
    {"of a range", "x-amz-checksum-crc32c: " CRC32C "\n", STK_CHECKSUM_FROM_AWS, false, false,
     STK_CHECKSUM_CRC32C, 0, true, false},
    {"too short", "x-amz-checksum-crc32c: AAAA\n", STK_CHECKSUM_FROM_AWS, true, false, 0, 0, false,
     false},
    {"no base64", "x-amz-checksum-crc32c: 4wa*gw==\n", STK_CHECKSUM_FROM_AWS, true, false, 0, 0,
     false, false},
    {"bits left over", "x-amz-checksum-crc32c: 4waSgx==\n", STK_CHECKSUM_FROM_AWS, true, false, 0,
     0, false, false},
    {"a digit for the padding", "x-amz-checksum-crc32c: 4waSgwA=\n", STK_CHECKSUM_FROM_AWS, true,
     false, 0, 0, false, false},
    {"a part of an object", "x-amz-checksum-crc32c: " CRC32C "-1\nx-amz-checksum-type: COMPOSITE\n",
     STK_CHECKSUM_FROM_AWS, false, false, STK_CHECKSUM_CRC32C, 0, false, true},
    {"md5, which S3 does not tell", "x-amz-checksum-md5: " MD5 "\n", STK_CHECKSUM_FROM_AWS, true,
     false, 0, 0, false, false},
    {"an ETag", "ETag: " ETAG "\n", STK_CHECKSUM_FROM_AWS, true, true, STK_CHECKSUM_MD5, 0, true,
     false},
    {"an ETag that is not used", "ETag: " ETAG "\n", STK_CHECKSUM_FROM_AWS, true, false, 0, 0,
     false, false},
    {"an ETag of a range", "ETag: " ETAG "\n", STK_CHECKSUM_FROM_AWS, false, true, 0, 0, false,
     false},
    {"encrypted by S3", "x-amz-server-side-encryption: AES256\nETag: " ETAG "\n",
     STK_CHECKSUM_FROM_AWS, true, true, STK_CHECKSUM_MD5, 0, true, false},
    {"encrypted by KMS", "ETag: " ETAG "\nx-amz-server-side-encryption: aws:kms\n",
     STK_CHECKSUM_FROM_AWS, true, true, 0, 0, false, false},
    {"encrypted by a customer",
     "x-amz-server-side-encryption-customer-algorithm: AES256\nETag: " ETAG "\n",
     STK_CHECKSUM_FROM_AWS, true, true, 0, 0, false, false},
    {"Google, a range", "x-goog-hash: crc32c=" CRC32C "\nx-goog-hash: md5=" MD5 "\n",
     STK_CHECKSUM_FROM_GOOGLE, false, false, 0, STK_CHECKSUM_CRC32C, false, false},
    {"Google, all", "x-goog-hash: md5=" MD5 ",crc32c=" CRC32C "\n", STK_CHECKSUM_FROM_GOOGLE, true,
     false, STK_CHECKSUM_CRC32C, STK_CHECKSUM_CRC32C, false, false},
    {"Google, unpacked", "x-goog-stored-content-encoding: gzip\nx-goog-hash: crc32c=" CRC32C "\n",
     STK_CHECKSUM_FROM_GOOGLE, true, false, 0, 0, false, false},
    {"Google, packed",
     "x-goog-stored-content-encoding: gzip\nContent-Encoding: gzip\nx-goog-hash: crc32c=" CRC32C
     "\n",
     STK_CHECKSUM_FROM_GOOGLE, true, false, STK_CHECKSUM_CRC32C, STK_CHECKSUM_CRC32C, false, false},
    {"Azure", "Content-MD5: " MD5 "\nx-ms-content-crc64: " CRC64_TURNED "\n",
     STK_CHECKSUM_FROM_AZURE, false, false, STK_CHECKSUM_CRC64, 0, false, false},
    {"Azure, of the blob", "x-ms-blob-content-md5: " MD5 "\n", STK_CHECKSUM_FROM_AZURE, false,
     false, 0, 0, false, false},
    {"RFC 9530", "Repr-Digest: sha-256=:" SHA256 ":\n", STK_CHECKSUM_FROM_HTTP, true, false,
     STK_CHECKSUM_SHA256, STK_CHECKSUM_SHA256, false, false},
    {"RFC 9530, of a range",
     "Repr-Digest: crc32c=:" CRC32C ":, sha-256=:" SHA256 ":\n"
     "Content-Digest: sha-256=:" SHA256 ":\n",
     STK_CHECKSUM_FROM_HTTP, false, false, STK_CHECKSUM_SHA256, STK_CHECKSUM_CRC32C, false, false},
    {"RFC 3230", "Digest: SHA-256=" SHA256 "\n", STK_CHECKSUM_FROM_HTTP, true, false,
     STK_CHECKSUM_SHA256, STK_CHECKSUM_SHA256, false, false},
    {"Content-MD5", "content-md5: " MD5 "\n", STK_CHECKSUM_FROM_HTTP, true, false, STK_CHECKSUM_MD5,
     STK_CHECKSUM_MD5, false, false},
    {"Content-MD5 of a range", "Content-MD5: " MD5 "\n", STK_CHECKSUM_FROM_HTTP, false, false,
     STK_CHECKSUM_MD5, 0, true, false},
    {"half lists", "Digest: =,,sha-256,sha-256=,  ,x=1,sha-256=::\n", STK_CHECKSUM_FROM_HTTP, true,
     false, 0, 0, false, false},
    {"Amazon's of the web", "x-amz-checksum-crc32c: " CRC32C "\n", STK_CHECKSUM_FROM_HTTP, true,
     false, 0, 0, false, false},
};

static void test_rows(void)
{
    static struct stk_http_response answer;
    struct stk_view digits = {(const uint8_t *)"123456789", 9};

    T_EACH(row, row, rows)
    {
        struct stk_response_checksums seals;

        answer.headers_bytes = (uint32_t)strlen(row->headers);
        memcpy(answer.headers, row->headers, answer.headers_bytes);
        stk_checksum_read_headers(&seals, &answer, row->dialect, row->all, row->tag);
        T_EQ(row->name, seals.body.kind, row->body);
        T_EQ(row->name, seals.object.kind, row->object_kind);
        T_EQ(row->name, seals.unreliable, row->doubtful);
        T_EQ(row->name, seals.body.parts, row->twice);
        if (seals.body.kind && seals.body.parts == 0 && seals.body.kind != STK_CHECKSUM_MD5) {
            struct stk_checksum made = stk_checksum_compute(seals.body.kind, false, digits);

            T_TRUE(row->name, stk_checksum_equal(&made, &seals.body));
        }
    }
}

/* The number of parts in a checksum of part checksums. A checksum with an invalid number is
 * refused. */
static void test_parts(void)
{
    static const struct {
        const char *value;
        uint32_t kind, parts;
    } values[] = {
        {CRC32C "-2", STK_CHECKSUM_CRC32C, 2},
        {CRC32C "-10000", STK_CHECKSUM_CRC32C, 10000},
        /* part checksums that are not wanted */
        {CRC32C "-999999999", STK_CHECKSUM_CRC32C, 999999999},
        {CRC32C "-1000000000", 0, 0},
        {CRC32C "-0", 0, 0},
        {CRC32C "-", 0, 0},
        {CRC32C "--2", 0, 0},
        {CRC32C "-2-2", 0, 0},
        {CRC32C "-+2", 0, 0},
        {CRC32C "-2 ", STK_CHECKSUM_CRC32C, 2},
        {CRC32C "-2x", 0, 0},
        {"-2", 0, 0},
        {"AAAA-2", 0, 0},
    };
    static struct stk_http_response answer;

    for (size_t i = 0; i < STK_COUNT(values); i++) {
        struct stk_response_checksums seals;
        char text[STK_CHECKSUM_TEXT_BYTES];

        answer.headers_bytes = (uint32_t)snprintf(answer.headers, sizeof answer.headers,
                                                  "x-amz-checksum-crc32c: %s\n"
                                                  "x-amz-checksum-type: COMPOSITE\n",
                                                  values[i].value);
        stk_checksum_read_headers(&seals, &answer, STK_CHECKSUM_FROM_AWS, true, false);
        T_EQ(values[i].value, seals.object.kind, values[i].kind);
        T_EQ(values[i].value, seals.object.parts, values[i].parts);
        T_TRUE(values[i].value, !stk_checksum_is_combinable(&seals.object) && seals.body.kind == 0);
        stk_checksum_text(&seals.object, text);
        T_TRUE(values[i].value,
               values[i].kind == 0 || strncmp(text + 7, values[i].value, strlen(text + 7)) == 0);
    }
}

/* The values that Hugging Face reports for a file are those of sha256sum and `git
 * hash-object`. */
static void test_hub(void)
{
#define SHA256_HEX "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"
#define GIT_HEX "e2e107ac61ac259b87c544f6e7a4eb03422c6c21"
    static const struct linked {
        const char *name, *headers, *text; /* NULL: none */
    } header_rows[] = {
        {"large", "ETag: \"x\"\nX-Linked-ETag: \"" SHA256_HEX "\"\n", "sha256 " SHA256_HEX},
        {"small", "x-linked-etag:\"" GIT_HEX "\"\nX-Repo-Commit: " SHA256_HEX "\n",
         "git-sha1 " GIT_HEX},
        {"nothing", "ETag: \"" SHA256_HEX "\"\n", NULL},
        {"no quotes", "X-Linked-ETag: " SHA256_HEX "\n", NULL},
        {"a weak one", "X-Linked-ETag: W/\"" GIT_HEX "\"\n", "git-sha1 " GIT_HEX},
        {"no digits", "X-Linked-ETag: \"g2e107ac61ac259b87c544f6e7a4eb03422c6c21\"\n", NULL},
        {"an MD5", "X-Linked-ETag: " ETAG "\n", NULL},
        {"empty", "X-Linked-ETag:\n", NULL},
        {"the commit", "X-Repo-Commit: " GIT_HEX "\nX-Linked-ETag: \"" GIT_HEX "\"\n", NULL},
    };
    static struct stk_http_response answer;
    struct stk_view digits = {(const uint8_t *)"123456789", 9};

    T_EACH(linked, row, header_rows)
    {
        char text[STK_CHECKSUM_TEXT_BYTES];
        struct stk_checksum seal, made;

        answer.headers_bytes = (uint32_t)strlen(row->headers);
        memcpy(answer.headers, row->headers, answer.headers_bytes);
        seal = stk_checksum_of_hf_etag(&answer);
        T_EQ(row->name, seal.kind != STK_CHECKSUM_NONE, row->text != NULL);
        stk_checksum_text(&seal, text);
        T_STR(row->name, text, row->text ? row->text : "none");
        if (row->text) {
            made = stk_checksum_compute(seal.kind, false, digits);
            T_TRUE(row->name, stk_checksum_equal(&made, &seal));
        }
    }
}

/* The checksum of each kind over pieces equals that of all bytes at once. */
static void test_pieces(void)
{
    static uint8_t data[1000];

    for (uint32_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)(i * 7 + i / 256);
    }
    for (uint32_t kind = STK_CHECKSUM_CRC64; kind < STK_CHECKSUM_KINDS; kind++) {
        struct stk_checksum object_kind =
            stk_checksum_compute(kind, false, (struct stk_view){data, sizeof data});
        struct stk_checksum_state sum;
        struct stk_checksum got;

        stk_checksum_begin(&sum, kind, sizeof data);
        for (uint32_t at = 0, step = 1; at < sizeof data; at += step, step = 2 * step + 1) {
            stk_checksum_add(&sum, (struct stk_view){data + at, stk_min(step, sizeof data - at)});
        }
        got = stk_checksum_end(&sum);
        T_TRUE("pieces", stk_checksum_equal(&got, &object_kind));
        T_TRUE("bytes",
               stk_checksum_bytes(kind) >= 4 && stk_checksum_bytes(kind) <= sizeof got.sum);
    }
}

/* The sum of the sum: CRC32C of the four bytes of the CRC32C. */
static void test_twice(void)
{
    struct stk_view digits = {(const uint8_t *)"123456789", 9};
    struct stk_checksum once = stk_checksum_compute(STK_CHECKSUM_CRC32C, false, digits);
    struct stk_checksum twice = stk_checksum_compute(STK_CHECKSUM_CRC32C, true, digits);
    uint32_t want = stk_crc32c(0, once.sum, 4);
    char text[STK_CHECKSUM_TEXT_BYTES];

    T_EQ("of the sum",
         (uint32_t)twice.sum[0] << 24 | twice.sum[1] << 16 | twice.sum[2] << 8 | twice.sum[3],
         want);
    T_TRUE("another", !stk_checksum_equal(&once, &twice));
    memcpy(twice.sum, once.sum, sizeof twice.sum);
    T_TRUE("another, of the same digits", !stk_checksum_equal(&once, &twice));
    twice = stk_checksum_compute(STK_CHECKSUM_CRC32C, true, digits);
    stk_checksum_text(&once, text);
    T_STR("text", text, "crc32c " CRC32C);
    stk_checksum_text(&twice, text);
    T_HAS("text", text, "-1");
}

#define BYTES 10000u

/* Adds all bytes in random cuts, in random order, some of them twice; returns 1 if they were
 * verified in the end. */
static int cover_in_cuts(struct stk_range_coverage *cover, const uint8_t *data, uint64_t seed,
                         bool damage)
{
    uint32_t cuts[64], order[64], count = 0, result = 0;

    cuts[0] = 0;
    while (cuts[count] < BYTES) {
        uint32_t step = 1 + (uint32_t)(stk_random_key(seed, count) % 600);

        cuts[count + 1] = cuts[count] + step < BYTES && count < 60 ? cuts[count] + step : BYTES;
        count++;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = (uint32_t)(stk_random_key(seed, 1000 + i) % (i + 1));

        order[i] = order[j];
        order[j] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = order[i];
        struct stk_view piece = {data + cuts[at], cuts[at + 1] - cuts[at]};
        uint8_t other = (uint8_t)~piece.data[0];
        enum stk_range_coverage_result covered;

        if (i % 3 == 1) { /* bytes that overlap are left out, whatever their value */
            covered =
                stk_range_coverage_add(cover, cuts[order[i - 1]], (struct stk_view){&other, 1});
            T_TRUE("it is there already", covered == STK_RANGE_COVERAGE_INCOMPLETE ||
                                              covered == STK_RANGE_COVERAGE_MISMATCH);
        }
        if (damage && i == 0) {
            uint8_t *copy = malloc(piece.bytes);

            memcpy(copy, piece.data, piece.bytes);
            copy[piece.bytes / 2] ^= 4;
            covered = stk_range_coverage_add(cover, cuts[at], (struct stk_view){copy, piece.bytes});
            free(copy);
        } else {
            covered = stk_range_coverage_add(cover, cuts[at], piece);
        }
        result = covered;
        T_EQ("not before the last", covered == STK_RANGE_COVERAGE_INCOMPLETE, i + 1 < count);
    }
    return (int)result;
}

static void test_cover(void)
{
    uint8_t *data = malloc(BYTES);

    for (uint32_t i = 0; i < BYTES; i++) {
        data[i] = (uint8_t)stk_random_key(3, i);
    }
    for (uint32_t kind = STK_CHECKSUM_CRC64; kind <= STK_CHECKSUM_CRC32; kind++) {
        struct stk_checksum object_kind =
            stk_checksum_compute(kind, false, (struct stk_view){data, BYTES});

        for (uint64_t seed = 0; seed < 20; seed++) {
            struct stk_range_coverage *cover = stk_range_coverage_new(BYTES);
            struct stk_checksum want, got;

            T_EQ("none reported", stk_range_coverage_add(cover, 0, (struct stk_view){data, BYTES}),
                 STK_RANGE_COVERAGE_INCOMPLETE);
            stk_range_coverage_set_expected(cover, &object_kind);
            T_EQ("verified", cover_in_cuts(cover, data, seed, false), STK_RANGE_COVERAGE_VERIFIED);
            T_EQ("and again", cover_in_cuts(cover, data, seed + 100, false),
                 STK_RANGE_COVERAGE_VERIFIED);
            T_EQ("damaged", cover_in_cuts(cover, data, seed, true), STK_RANGE_COVERAGE_MISMATCH);
            T_EQ("for ever", stk_range_coverage_add(cover, 0, (struct stk_view){data, BYTES}),
                 STK_RANGE_COVERAGE_MISMATCH);
            stk_range_coverage_get_mismatch(cover, &want, &got);
            T_TRUE("reported", stk_checksum_equal(&want, &object_kind) &&
                                   !stk_checksum_equal(&got, &object_kind) && got.kind == kind);
            stk_range_coverage_free(cover);
        }
    }
    free(data);
}

/* The checksum is reported when some or all pieces have arrived: pieces that were summed with the
 * right guess of the kind count. */
static void test_late_checksum(void)
{
    static const struct {
        const char *name;
        uint32_t header_rows, before; /* pieces of 4 that arrive before the checksum is reported */
        bool damage;
        enum stk_range_coverage_result want_set, want_last;
    } late[] = {
        {"all before", STK_CHECKSUM_CRC64, 4, false, STK_RANGE_COVERAGE_VERIFIED,
         STK_RANGE_COVERAGE_VERIFIED},
        {"all before, one damaged", STK_CHECKSUM_CRC64, 4, true, STK_RANGE_COVERAGE_MISMATCH,
         STK_RANGE_COVERAGE_MISMATCH},
        {"three before", STK_CHECKSUM_CRC64, 3, false, STK_RANGE_COVERAGE_INCOMPLETE,
         STK_RANGE_COVERAGE_VERIFIED},
        {"three before, one damaged", STK_CHECKSUM_CRC64, 3, true, STK_RANGE_COVERAGE_INCOMPLETE,
         STK_RANGE_COVERAGE_MISMATCH},
        {"of another kind", STK_CHECKSUM_CRC32C, 3, false, STK_RANGE_COVERAGE_INCOMPLETE,
         STK_RANGE_COVERAGE_INCOMPLETE},
        {"of another kind, all before", STK_CHECKSUM_CRC32C, 4, false,
         STK_RANGE_COVERAGE_INCOMPLETE, STK_RANGE_COVERAGE_INCOMPLETE},
        {"none is reported", STK_CHECKSUM_NONE, 4, false, STK_RANGE_COVERAGE_INCOMPLETE,
         STK_RANGE_COVERAGE_INCOMPLETE},
    };
    uint8_t data[400];

    for (size_t i = 0; i < STK_COUNT(late); i++) {
        struct stk_range_coverage *cover = stk_range_coverage_new(sizeof data);
        struct stk_checksum object_kind = {.kind = STK_CHECKSUM_NONE};
        enum stk_range_coverage_result last = STK_RANGE_COVERAGE_INCOMPLETE;

        for (uint32_t k = 0; k < sizeof data; k++) {
            data[k] = (uint8_t)stk_random_key(7, k);
        }
        if (late[i].header_rows) {
            object_kind = stk_checksum_compute(late[i].header_rows, false,
                                               (struct stk_view){data, sizeof data});
        }
        data[150] ^= late[i].damage;
        stk_range_coverage_set_tentative(cover, STK_CHECKSUM_CRC64);
        for (uint32_t k = 0; k < 4; k++) {
            if (k == late[i].before) {
                T_EQ(late[i].name, stk_range_coverage_set_expected(cover, &object_kind),
                     late[i].want_set);
            }
            last = stk_range_coverage_add(cover, 100 * k, (struct stk_view){data + 100 * k, 100});
        }
        if (late[i].before == 4) {
            T_EQ(late[i].name, last, STK_RANGE_COVERAGE_INCOMPLETE);
            T_EQ(late[i].name, stk_range_coverage_set_expected(cover, &object_kind),
                 late[i].want_set);
            /* After success the coverage starts again; after a mismatch it stays one. */
            last = stk_range_coverage_add(cover, 0, (struct stk_view){data, 100});
            T_EQ(late[i].name, last == STK_RANGE_COVERAGE_MISMATCH,
                 late[i].want_last == STK_RANGE_COVERAGE_MISMATCH);
        } else {
            T_EQ(late[i].name, last, late[i].want_last);
        }
        stk_range_coverage_free(cover);
    }
}

/* Scattered bytes take no more than so many pieces. */
static void test_bound(void)
{
    struct stk_range_coverage *cover = stk_range_coverage_new(1u << 20);
    struct stk_checksum object_kind = {.kind = STK_CHECKSUM_CRC32C};
    static uint8_t ones[4 * STK_RANGE_COVERAGE_PIECES_MAX];
    uint8_t byte = 1;

    stk_range_coverage_set_expected(cover, &object_kind);
    for (uint64_t i = 0; i < 3 * STK_RANGE_COVERAGE_PIECES_MAX; i++) {
        T_EQ("open", stk_range_coverage_add(cover, 2 * i, (struct stk_view){&byte, 1}),
             STK_RANGE_COVERAGE_INCOMPLETE);
    }
    stk_range_coverage_free(cover);
    cover = stk_range_coverage_new(
        /* if the coverage held all pieces, this would verify the object */
        4 * STK_RANGE_COVERAGE_PIECES_MAX);
    memset(ones, 1, sizeof ones);
    object_kind =
        stk_checksum_compute(STK_CHECKSUM_CRC32C, false, (struct stk_view){ones, sizeof ones});
    stk_range_coverage_set_expected(cover, &object_kind);
    for (uint64_t i = 0; i < 2 * sizeof ones; i++) {
        uint64_t at = i < sizeof ones / 2 ? 2 * i : 2 * (i - sizeof ones / 2) + 1;

        if (at < sizeof ones) {
            T_EQ("left out", stk_range_coverage_add(cover, at, (struct stk_view){&byte, 1}),
                 STK_RANGE_COVERAGE_INCOMPLETE);
        }
    }
    stk_range_coverage_free(cover);
}

/* A checksum that cannot be combined neither verifies nor refutes anything. */
static void test_no_join(void)
{
    uint8_t data[200] = {7};
    struct stk_view all = {data, sizeof data};
    struct stk_checksum seals[2] = {stk_checksum_compute(STK_CHECKSUM_SHA256, false, all),
                                    stk_checksum_compute(STK_CHECKSUM_CRC32C, true, all)};

    for (size_t i = 0; i < STK_COUNT(seals); i++) {
        struct stk_range_coverage *cover = stk_range_coverage_new(sizeof data);

        T_EQ("reported", stk_range_coverage_set_expected(cover, &seals[i]),
             STK_RANGE_COVERAGE_INCOMPLETE);
        T_EQ("half", stk_range_coverage_add(cover, 100, (struct stk_view){data + 100, 100}),
             STK_RANGE_COVERAGE_INCOMPLETE);
        T_EQ("all", stk_range_coverage_add(cover, 0, (struct stk_view){data, 100}),
             STK_RANGE_COVERAGE_INCOMPLETE);
        stk_range_coverage_free(cover);
    }
}

int main(void)
{
    test_rows();
    test_twice();
    test_parts();
    test_hub();
    test_pieces();
    test_cover();
    test_late_checksum();
    test_bound();
    test_no_join();
    return t_finish();
}
