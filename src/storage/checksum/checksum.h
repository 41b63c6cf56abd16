/* storage/checksum/checksum.h: checksums that servers tell of bytes: read out of answers, compared,
 * and joined over ranges.
 *
 *   headers of an answer --stk_checksum_read_headers--> seals: of its body, of the whole object
 *   body --stk_checksum_compute--> its own seal, to be compared
 *   ranges, in any order --stk_range_coverage_add--> covered: the whole is proven, or it is wrong
 *
 * Amazon's x-amz-checksum-*, Google's x-goog-hash, Azure's x-ms-content-crc64, and of any server
 * Repr-Digest and Content-Digest (RFC 9530), Digest (RFC 3230) and Content-MD5 (RFC 2616, 14.15).
 * Hugging Face's X-Linked-ETag: of large files their SHA-256, of small ones what git calls them by.
 * https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html
 * https://cloud.google.com/storage/docs/xml-api/reference-headers#xgooghash
 * https://learn.microsoft.com/rest/api/storageservices/get-blob
 * Owner: values; a cover is its opener's. Threads: any. Memory: 24 bytes a piece of a cover that
 * has gaps on both sides. Bound: STK_RANGE_COVERAGE_PIECES_MAX. */
#ifndef STORAGE_CHECKSUM_CHECKSUM_H
#define STORAGE_CHECKSUM_CHECKSUM_H

#include "base/crypto/digest.h"
#include "storage/http/http.h"

#define STK_RANGE_COVERAGE_PIECES_MAX 4096u
#define STK_CHECKSUM_TEXT_BYTES 96u

/* Those of 8 bytes and less can be joined; the quickest come first. */
enum stk_checksum_kind {
    STK_CHECKSUM_NONE = 0,
    STK_CHECKSUM_CRC64,
    STK_CHECKSUM_CRC32C,
    STK_CHECKSUM_CRC32,
    STK_CHECKSUM_SHA256,
    STK_CHECKSUM_SHA1,
    STK_CHECKSUM_GIT_BLOB, /* SHA-1 of "blob N", NUL and the N bytes: a file's name in git */
    STK_CHECKSUM_MD5,
    STK_CHECKSUM_KINDS,
};

struct stk_checksum {
    uint32_t kind;   /* enum stk_checksum_kind */
    uint32_t parts;  /* 0: of the bytes; else of so many parts' sums, one after the other */
    bool hex;        /* it was told in digits, and is shown so; else in base64 */
    uint8_t sum[32]; /* big-endian; the rest is 0 */
};

enum stk_checksum_provider {
    STK_CHECKSUM_FROM_HTTP = 0,
    STK_CHECKSUM_FROM_AWS,
    STK_CHECKSUM_FROM_GOOGLE,
    STK_CHECKSUM_FROM_AZURE,
};

struct stk_response_checksums {
    struct stk_checksum body;   /* of the answer's body */
    struct stk_checksum object; /* of the whole object */
    /* The body's is one that servers are known to tell of other bytes as well: of a part of the
     * range, or of the whole. */
    bool unreliable;
};

/* What an answer 200 or 206 tells. all: whether the body is the whole object. tag: an ETag that is
 * an MD5 counts, too, where there is nothing better. */
void stk_checksum_read_headers(struct stk_response_checksums *checksums_out,
                               const struct stk_http_response *answer, uint32_t dialect, bool all,
                               bool tag);
/* What the hub itself tells of a whole file, also where it redirects to who has the bytes: their
 * ETag is of something else. NONE: nothing that is one. */
struct stk_checksum stk_checksum_of_hf_etag(const struct stk_http_response *answer);
/* The seal of that kind of these bytes; twice: the sum of their sum, as of an object of one part.
 */
struct stk_checksum stk_checksum_compute(uint32_t kind, bool twice, struct stk_view bytes);
uint32_t stk_checksum_bytes(uint32_t kind); /* of its sum */

/* The same over pieces: begin -add-> ... -end. bytes: of all of them, which git's begins with. */
struct stk_checksum_state {
    uint32_t kind;
    union {
        uint64_t crc;
        struct stk_sha256 sha256;
        struct stk_sha1 sha1;
        struct stk_md5 md5;
    } so_far;
};
void stk_checksum_begin(struct stk_checksum_state *sum, uint32_t kind, uint64_t bytes);
void stk_checksum_add(struct stk_checksum_state *sum, struct stk_view bytes);
struct stk_checksum stk_checksum_end(struct stk_checksum_state *sum);

bool stk_checksum_equal(const struct stk_checksum *a, const struct stk_checksum *b);
/* "crc64nvme 3q2+7w==", "sha256 e3b0c4..": for people. */
void stk_checksum_text(const struct stk_checksum *checksum, char text_out[STK_CHECKSUM_TEXT_BYTES]);
static inline bool stk_checksum_is_combinable(const struct stk_checksum *checksum)
{
    return checksum->kind >= STK_CHECKSUM_CRC64 && checksum->kind <= STK_CHECKSUM_CRC32 &&
           checksum->parts == 0;
}
/* Base64 of exactly `bytes` bytes; false: it is something else. */
bool stk_checksum_decode_base64(struct stk_view text, uint8_t *data_out, size_t bytes);

/* What of an object has come, with its sums, until all of it has. */
struct stk_range_coverage;

enum stk_range_coverage_result {
    STK_RANGE_COVERAGE_INCOMPLETE = 0, /* there are gaps, or nothing to compare with */
    STK_RANGE_COVERAGE_VERIFIED,       /* with these bytes the whole was: it begins again */
    STK_RANGE_COVERAGE_MISMATCH,       /* from now on for ever */
};

struct stk_range_coverage *
stk_range_coverage_new(uint64_t bytes); /* of the object, above 0; NULL: no memory */
void stk_range_coverage_free(struct stk_range_coverage *coverage); /* NULL is fine */
/* The whole object's seal will be told, and is likely to be of this kind: what comes until then is
 * summed by it. */
void stk_range_coverage_set_tentative(struct stk_range_coverage *coverage, uint32_t kind);
/* The whole object's seal is this, or none that can be joined; the first such counts. Not OPEN:
 * all had come before. */
enum stk_range_coverage_result stk_range_coverage_set_expected(struct stk_range_coverage *coverage,
                                                               const struct stk_checksum *whole);
/* Bytes came. What is there already, or finds no room, is left out. */
enum stk_range_coverage_result stk_range_coverage_add(struct stk_range_coverage *coverage,
                                                      uint64_t offset, struct stk_view bytes);
/* Whether what comes is summed: by what is told, or is likely to be. */
bool stk_range_coverage_is_summing(struct stk_range_coverage *coverage);
bool stk_range_coverage_is_mismatch(struct stk_range_coverage *coverage);
uint64_t stk_range_coverage_bytes(const struct stk_range_coverage *coverage); /* of the object */
/* What the whole should be, and is: of a wrong one. */
void stk_range_coverage_get_mismatch(struct stk_range_coverage *coverage,
                                     struct stk_checksum *want_out, struct stk_checksum *got_out);

#endif
