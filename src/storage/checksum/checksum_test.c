/* Goal: of what servers tell of bytes the right is taken, the best first, and nothing that is
 * malformed or of other bytes; ranges in any order make the sum of the whole, and a wrong one is
 * found out. Method: rows of headers; random cuts of random bytes. Covers range_coverage.c. */
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
    uint32_t body, whole; /* kinds */
    bool doubtful, twice;
};

static const struct row rows[] = {
    {"nothing", "Date: today\n", STK_SEAL_OF_AMAZON, true, true, 0, 0, false, false},
    {"crc64nvme", "x-amz-checksum-crc64nvme: " CRC64 "\nx-amz-checksum-type: FULL_OBJECT\n",
     STK_SEAL_OF_AMAZON, true, false, STK_SEAL_CRC64, STK_SEAL_CRC64, false, false},
    {"any case", "X-Amz-Checksum-CRC32C:" CRC32C " \t\n", STK_SEAL_OF_AMAZON, true, false,
     STK_SEAL_CRC32C, STK_SEAL_CRC32C, false, false},
    {"the quickest", "x-amz-checksum-sha256: " SHA256 "\nx-amz-checksum-crc32: " CRC32 "\n",
     STK_SEAL_OF_AMAZON, true, false, STK_SEAL_CRC32, STK_SEAL_CRC32, false, false},
    {"sha1", "x-amz-checksum-sha1: " SHA1 "\n", STK_SEAL_OF_AMAZON, true, false, STK_SEAL_SHA1,
     STK_SEAL_SHA1, false, false},
    {"of seven parts", "x-amz-checksum-crc32c: " CRC32C "-7\n", STK_SEAL_OF_AMAZON, true, false, 0,
     STK_SEAL_CRC32C, false, false},
    {"of seven parts, of a range", "x-amz-checksum-crc32c: " CRC32C "-7\n", STK_SEAL_OF_AMAZON,
     false, false, 0, 0, false, false},
    {"of one part", "x-amz-checksum-crc32c: " CRC32C "-1\nx-amz-checksum-type: COMPOSITE\n",
     STK_SEAL_OF_AMAZON, true, false, STK_SEAL_CRC32C, STK_SEAL_CRC32C, false, true},
    {"composite without a number", /* botocore issue 3346 */
     "x-amz-checksum-crc32c: " CRC32C "\nx-amz-checksum-type: COMPOSITE\n", STK_SEAL_OF_AMAZON,
     true, false, STK_SEAL_CRC32C, 0, true, false},
    {"of a range", "x-amz-checksum-crc32c: " CRC32C "\n", STK_SEAL_OF_AMAZON, false, false,
     STK_SEAL_CRC32C, 0, true, false},
    {"too short", "x-amz-checksum-crc32c: AAAA\n", STK_SEAL_OF_AMAZON, true, false, 0, 0, false,
     false},
    {"no base64", "x-amz-checksum-crc32c: 4wa*gw==\n", STK_SEAL_OF_AMAZON, true, false, 0, 0, false,
     false},
    {"bits left over", "x-amz-checksum-crc32c: 4waSgx==\n", STK_SEAL_OF_AMAZON, true, false, 0, 0,
     false, false},
    {"a digit for the padding", "x-amz-checksum-crc32c: 4waSgwA=\n", STK_SEAL_OF_AMAZON, true,
     false, 0, 0, false, false},
    {"a part of an object", "x-amz-checksum-crc32c: " CRC32C "-1\nx-amz-checksum-type: COMPOSITE\n",
     STK_SEAL_OF_AMAZON, false, false, STK_SEAL_CRC32C, 0, false, true},
    {"md5, which S3 does not tell", "x-amz-checksum-md5: " MD5 "\n", STK_SEAL_OF_AMAZON, true,
     false, 0, 0, false, false},
    {"an ETag", "ETag: " ETAG "\n", STK_SEAL_OF_AMAZON, true, true, STK_SEAL_MD5, 0, true, false},
    {"an ETag that nobody wants", "ETag: " ETAG "\n", STK_SEAL_OF_AMAZON, true, false, 0, 0, false,
     false},
    {"an ETag of a range", "ETag: " ETAG "\n", STK_SEAL_OF_AMAZON, false, true, 0, 0, false, false},
    {"encrypted by S3", "x-amz-server-side-encryption: AES256\nETag: " ETAG "\n",
     STK_SEAL_OF_AMAZON, true, true, STK_SEAL_MD5, 0, true, false},
    {"encrypted by KMS", "ETag: " ETAG "\nx-amz-server-side-encryption: aws:kms\n",
     STK_SEAL_OF_AMAZON, true, true, 0, 0, false, false},
    {"encrypted by a customer",
     "x-amz-server-side-encryption-customer-algorithm: AES256\nETag: " ETAG "\n",
     STK_SEAL_OF_AMAZON, true, true, 0, 0, false, false},
    {"Google, a range", "x-goog-hash: crc32c=" CRC32C "\nx-goog-hash: md5=" MD5 "\n",
     STK_SEAL_OF_GOOGLE, false, false, 0, STK_SEAL_CRC32C, false, false},
    {"Google, all", "x-goog-hash: md5=" MD5 ",crc32c=" CRC32C "\n", STK_SEAL_OF_GOOGLE, true, false,
     STK_SEAL_CRC32C, STK_SEAL_CRC32C, false, false},
    {"Google, unpacked", "x-goog-stored-content-encoding: gzip\nx-goog-hash: crc32c=" CRC32C "\n",
     STK_SEAL_OF_GOOGLE, true, false, 0, 0, false, false},
    {"Google, packed",
     "x-goog-stored-content-encoding: gzip\nContent-Encoding: gzip\nx-goog-hash: crc32c=" CRC32C
     "\n",
     STK_SEAL_OF_GOOGLE, true, false, STK_SEAL_CRC32C, STK_SEAL_CRC32C, false, false},
    {"Azure", "Content-MD5: " MD5 "\nx-ms-content-crc64: " CRC64_TURNED "\n", STK_SEAL_OF_AZURE,
     false, false, STK_SEAL_CRC64, 0, false, false},
    {"Azure, of the blob", "x-ms-blob-content-md5: " MD5 "\n", STK_SEAL_OF_AZURE, false, false, 0,
     0, false, false},
    {"RFC 9530", "Repr-Digest: sha-256=:" SHA256 ":\n", STK_SEAL_OF_WEB, true, false,
     STK_SEAL_SHA256, STK_SEAL_SHA256, false, false},
    {"RFC 9530, of a range",
     "Repr-Digest: crc32c=:" CRC32C ":, sha-256=:" SHA256 ":\n"
     "Content-Digest: sha-256=:" SHA256 ":\n",
     STK_SEAL_OF_WEB, false, false, STK_SEAL_SHA256, STK_SEAL_CRC32C, false, false},
    {"RFC 3230", "Digest: SHA-256=" SHA256 "\n", STK_SEAL_OF_WEB, true, false, STK_SEAL_SHA256,
     STK_SEAL_SHA256, false, false},
    {"Content-MD5", "content-md5: " MD5 "\n", STK_SEAL_OF_WEB, true, false, STK_SEAL_MD5,
     STK_SEAL_MD5, false, false},
    {"Content-MD5 of a range", "Content-MD5: " MD5 "\n", STK_SEAL_OF_WEB, false, false,
     STK_SEAL_MD5, 0, true, false},
    {"half lists", "Digest: =,,sha-256,sha-256=,  ,x=1,sha-256=::\n", STK_SEAL_OF_WEB, true, false,
     0, 0, false, false},
    {"Amazon's of the web", "x-amz-checksum-crc32c: " CRC32C "\n", STK_SEAL_OF_WEB, true, false, 0,
     0, false, false},
};

static void test_rows(void)
{
    static struct stk_http_answer answer;
    struct stk_view digits = {(const uint8_t *)"123456789", 9};

    T_EACH(row, row, rows)
    {
        struct stk_seals seals;

        answer.headers_bytes = (uint32_t)strlen(row->headers);
        memcpy(answer.headers, row->headers, answer.headers_bytes);
        stk_seals_read(&seals, &answer, row->dialect, row->all, row->tag);
        T_EQ(row->name, seals.body.kind, row->body);
        T_EQ(row->name, seals.whole.kind, row->whole);
        T_EQ(row->name, seals.doubtful, row->doubtful);
        T_EQ(row->name, seals.body.parts, row->twice);
        if (seals.body.kind && seals.body.parts == 0 && seals.body.kind != STK_SEAL_MD5) {
            struct stk_seal made = stk_seal_make(seals.body.kind, false, digits);

            T_TRUE(row->name, stk_seal_is(&made, &seals.body));
        }
    }
}

/* Of how many parts' sums a sum is. What is no number of parts is no sum. */
static void test_parts(void)
{
    static const struct {
        const char *value;
        uint32_t kind, parts;
    } values[] = {
        {CRC32C "-2", STK_SEAL_CRC32C, 2},
        {CRC32C "-10000", STK_SEAL_CRC32C, 10000},
        {CRC32C "-999999999", STK_SEAL_CRC32C, 999999999}, /* whose parts nobody asks for */
        {CRC32C "-1000000000", 0, 0},
        {CRC32C "-0", 0, 0},
        {CRC32C "-", 0, 0},
        {CRC32C "--2", 0, 0},
        {CRC32C "-2-2", 0, 0},
        {CRC32C "-+2", 0, 0},
        {CRC32C "-2 ", STK_SEAL_CRC32C, 2},
        {CRC32C "-2x", 0, 0},
        {"-2", 0, 0},
        {"AAAA-2", 0, 0},
    };
    static struct stk_http_answer answer;

    for (size_t i = 0; i < STK_COUNT(values); i++) {
        struct stk_seals seals;
        char text[STK_SEAL_TEXT_BYTES];

        answer.headers_bytes = (uint32_t)snprintf(answer.headers, sizeof answer.headers,
                                                  "x-amz-checksum-crc32c: %s\n"
                                                  "x-amz-checksum-type: COMPOSITE\n",
                                                  values[i].value);
        stk_seals_read(&seals, &answer, STK_SEAL_OF_AMAZON, true, false);
        T_EQ(values[i].value, seals.whole.kind, values[i].kind);
        T_EQ(values[i].value, seals.whole.parts, values[i].parts);
        T_TRUE(values[i].value, !stk_seal_joins(&seals.whole) && seals.body.kind == 0);
        stk_seal_text(&seals.whole, text);
        T_TRUE(values[i].value,
               values[i].kind == 0 || strncmp(text + 7, values[i].value, strlen(text + 7)) == 0);
    }
}

/* What Hugging Face tells of a whole file: as sha256sum and `git hash-object` have it. */
static void test_hub(void)
{
#define SHA256_HEX "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"
#define GIT_HEX "e2e107ac61ac259b87c544f6e7a4eb03422c6c21"
    static const struct linked {
        const char *name, *headers, *text; /* NULL: none */
    } told[] = {
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
    static struct stk_http_answer answer;
    struct stk_view digits = {(const uint8_t *)"123456789", 9};

    T_EACH(linked, row, told)
    {
        char text[STK_SEAL_TEXT_BYTES];
        struct stk_seal seal, made;

        answer.headers_bytes = (uint32_t)strlen(row->headers);
        memcpy(answer.headers, row->headers, answer.headers_bytes);
        seal = stk_seal_of_hub(&answer);
        T_EQ(row->name, seal.kind != STK_SEAL_NONE, row->text != NULL);
        stk_seal_text(&seal, text);
        T_STR(row->name, text, row->text ? row->text : "none");
        if (row->text) {
            made = stk_seal_make(seal.kind, false, digits);
            T_TRUE(row->name, stk_seal_is(&made, &seal));
        }
    }
}

/* Each kind over pieces is what it is of all at once. */
static void test_pieces(void)
{
    static uint8_t data[1000];

    for (uint32_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)(i * 7 + i / 256);
    }
    for (uint32_t kind = STK_SEAL_CRC64; kind < STK_SEAL_KINDS; kind++) {
        struct stk_seal whole = stk_seal_make(kind, false, (struct stk_view){data, sizeof data});
        struct stk_seal_sum sum;
        struct stk_seal got;

        stk_seal_begin(&sum, kind, sizeof data);
        for (uint32_t at = 0, step = 1; at < sizeof data; at += step, step = 2 * step + 1) {
            stk_seal_add(&sum, (struct stk_view){data + at, stk_min(step, sizeof data - at)});
        }
        got = stk_seal_end(&sum);
        T_TRUE("pieces", stk_seal_is(&got, &whole));
        T_TRUE("bytes", stk_seal_bytes(kind) >= 4 && stk_seal_bytes(kind) <= sizeof got.sum);
    }
}

/* The sum of the sum: CRC32C of the four bytes of the CRC32C. */
static void test_twice(void)
{
    struct stk_view digits = {(const uint8_t *)"123456789", 9};
    struct stk_seal once = stk_seal_make(STK_SEAL_CRC32C, false, digits);
    struct stk_seal twice = stk_seal_make(STK_SEAL_CRC32C, true, digits);
    uint32_t want = stk_crc32c(0, once.sum, 4);
    char text[STK_SEAL_TEXT_BYTES];

    T_EQ("of the sum",
         (uint32_t)twice.sum[0] << 24 | twice.sum[1] << 16 | twice.sum[2] << 8 | twice.sum[3],
         want);
    T_TRUE("another", !stk_seal_is(&once, &twice));
    memcpy(twice.sum, once.sum, sizeof twice.sum);
    T_TRUE("another, of the same digits", !stk_seal_is(&once, &twice));
    twice = stk_seal_make(STK_SEAL_CRC32C, true, digits);
    stk_seal_text(&once, text);
    T_STR("text", text, "crc32c " CRC32C);
    stk_seal_text(&twice, text);
    T_HAS("text", text, "-1");
}

#define BYTES 10000u

/* All of it in random cuts, in random order, some of them twice; 1: in the end it was proven. */
static int cover_in_cuts(struct stk_cover *cover, const uint8_t *data, uint64_t seed, bool damage)
{
    uint32_t cuts[64], order[64], count = 0, result = 0;

    cuts[0] = 0;
    while (cuts[count] < BYTES) {
        uint32_t step = 1 + (uint32_t)(stk_key(seed, count) % 600);

        cuts[count + 1] = cuts[count] + step < BYTES && count < 60 ? cuts[count] + step : BYTES;
        count++;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = (uint32_t)(stk_key(seed, 1000 + i) % (i + 1));

        order[i] = order[j];
        order[j] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = order[i];
        struct stk_view piece = {data + cuts[at], cuts[at + 1] - cuts[at]};
        uint8_t other = (uint8_t)~piece.data[0];
        enum stk_covered covered;

        if (i % 3 == 1) { /* what overlaps is left out, whatever it holds */
            covered = stk_cover_add(cover, cuts[order[i - 1]], (struct stk_view){&other, 1});
            T_TRUE("it is there already", covered == STK_COVER_OPEN || covered == STK_COVER_WRONG);
        }
        if (damage && i == 0) {
            uint8_t *copy = malloc(piece.bytes);

            memcpy(copy, piece.data, piece.bytes);
            copy[piece.bytes / 2] ^= 4;
            covered = stk_cover_add(cover, cuts[at], (struct stk_view){copy, piece.bytes});
            free(copy);
        } else {
            covered = stk_cover_add(cover, cuts[at], piece);
        }
        result = covered;
        T_EQ("not before the last", covered == STK_COVER_OPEN, i + 1 < count);
    }
    return (int)result;
}

static void test_cover(void)
{
    uint8_t *data = malloc(BYTES);

    for (uint32_t i = 0; i < BYTES; i++) {
        data[i] = (uint8_t)stk_key(3, i);
    }
    for (uint32_t kind = STK_SEAL_CRC64; kind <= STK_SEAL_CRC32; kind++) {
        struct stk_seal whole = stk_seal_make(kind, false, (struct stk_view){data, BYTES});

        for (uint64_t seed = 0; seed < 20; seed++) {
            struct stk_cover *cover = stk_cover_new(BYTES);
            struct stk_seal want, got;

            T_EQ("nobody told", stk_cover_add(cover, 0, (struct stk_view){data, BYTES}),
                 STK_COVER_OPEN);
            stk_cover_expect(cover, &whole);
            T_EQ("proven", cover_in_cuts(cover, data, seed, false), STK_COVER_PROVEN);
            T_EQ("and again", cover_in_cuts(cover, data, seed + 100, false), STK_COVER_PROVEN);
            T_EQ("damaged", cover_in_cuts(cover, data, seed, true), STK_COVER_WRONG);
            T_EQ("for ever", stk_cover_add(cover, 0, (struct stk_view){data, BYTES}),
                 STK_COVER_WRONG);
            stk_cover_tell(cover, &want, &got);
            T_TRUE("told",
                   stk_seal_is(&want, &whole) && !stk_seal_is(&got, &whole) && got.kind == kind);
            stk_cover_free(cover);
        }
    }
    free(data);
}

/* The seal is told when some or all of it has come: what was summed by a right guess counts. */
static void test_told_late(void)
{
    static const struct {
        const char *name;
        uint32_t told, before; /* pieces of 4 that come before it is told */
        bool damage;
        enum stk_covered want_told, want_last;
    } late[] = {
        {"all before", STK_SEAL_CRC64, 4, false, STK_COVER_PROVEN, STK_COVER_PROVEN},
        {"all before, one damaged", STK_SEAL_CRC64, 4, true, STK_COVER_WRONG, STK_COVER_WRONG},
        {"three before", STK_SEAL_CRC64, 3, false, STK_COVER_OPEN, STK_COVER_PROVEN},
        {"three before, one damaged", STK_SEAL_CRC64, 3, true, STK_COVER_OPEN, STK_COVER_WRONG},
        {"of another kind", STK_SEAL_CRC32C, 3, false, STK_COVER_OPEN, STK_COVER_OPEN},
        {"of another kind, all before", STK_SEAL_CRC32C, 4, false, STK_COVER_OPEN, STK_COVER_OPEN},
        {"none is told", STK_SEAL_NONE, 4, false, STK_COVER_OPEN, STK_COVER_OPEN},
    };
    uint8_t data[400];

    for (size_t i = 0; i < STK_COUNT(late); i++) {
        struct stk_cover *cover = stk_cover_new(sizeof data);
        struct stk_seal whole = {.kind = STK_SEAL_NONE};
        enum stk_covered last = STK_COVER_OPEN;

        for (uint32_t k = 0; k < sizeof data; k++) {
            data[k] = (uint8_t)stk_key(7, k);
        }
        if (late[i].told) {
            whole = stk_seal_make(late[i].told, false, (struct stk_view){data, sizeof data});
        }
        data[150] ^= late[i].damage;
        stk_cover_guess(cover, STK_SEAL_CRC64);
        for (uint32_t k = 0; k < 4; k++) {
            if (k == late[i].before) {
                T_EQ(late[i].name, stk_cover_expect(cover, &whole), late[i].want_told);
            }
            last = stk_cover_add(cover, 100 * k, (struct stk_view){data + 100 * k, 100});
        }
        if (late[i].before == 4) {
            T_EQ(late[i].name, last, STK_COVER_OPEN);
            T_EQ(late[i].name, stk_cover_expect(cover, &whole), late[i].want_told);
            /* A proven one begins again, a wrong one is so for ever. */
            last = stk_cover_add(cover, 0, (struct stk_view){data, 100});
            T_EQ(late[i].name, last == STK_COVER_WRONG, late[i].want_last == STK_COVER_WRONG);
        } else {
            T_EQ(late[i].name, last, late[i].want_last);
        }
        stk_cover_free(cover);
    }
}

/* Scattered bytes take no more than so many pieces. */
static void test_bound(void)
{
    struct stk_cover *cover = stk_cover_new(1u << 20);
    struct stk_seal whole = {.kind = STK_SEAL_CRC32C};
    static uint8_t ones[4 * STK_COVER_PIECES_MAX];
    uint8_t byte = 1;

    stk_cover_expect(cover, &whole);
    for (uint64_t i = 0; i < 3 * STK_COVER_PIECES_MAX; i++) {
        T_EQ("open", stk_cover_add(cover, 2 * i, (struct stk_view){&byte, 1}), STK_COVER_OPEN);
    }
    stk_cover_free(cover);
    cover = stk_cover_new(4 * STK_COVER_PIECES_MAX); /* had all been kept, this would prove it */
    memset(ones, 1, sizeof ones);
    whole = stk_seal_make(STK_SEAL_CRC32C, false, (struct stk_view){ones, sizeof ones});
    stk_cover_expect(cover, &whole);
    for (uint64_t i = 0; i < 2 * sizeof ones; i++) {
        uint64_t at = i < sizeof ones / 2 ? 2 * i : 2 * (i - sizeof ones / 2) + 1;

        if (at < sizeof ones) {
            T_EQ("left out", stk_cover_add(cover, at, (struct stk_view){&byte, 1}), STK_COVER_OPEN);
        }
    }
    stk_cover_free(cover);
}

/* What cannot be joined proves nothing, and refutes nothing. */
static void test_no_join(void)
{
    uint8_t data[200] = {7};
    struct stk_view all = {data, sizeof data};
    struct stk_seal seals[2] = {stk_seal_make(STK_SEAL_SHA256, false, all),
                                stk_seal_make(STK_SEAL_CRC32C, true, all)};

    for (size_t i = 0; i < STK_COUNT(seals); i++) {
        struct stk_cover *cover = stk_cover_new(sizeof data);

        T_EQ("told", stk_cover_expect(cover, &seals[i]), STK_COVER_OPEN);
        T_EQ("half", stk_cover_add(cover, 100, (struct stk_view){data + 100, 100}), STK_COVER_OPEN);
        T_EQ("all", stk_cover_add(cover, 0, (struct stk_view){data, 100}), STK_COVER_OPEN);
        stk_cover_free(cover);
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
    test_told_late();
    test_bound();
    test_no_join();
    return t_finish();
}
