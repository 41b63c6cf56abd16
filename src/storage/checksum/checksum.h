/* storage/checksum/checksum.h: checksums that servers report in headers: parsed, compared, and
 * combined over ranges.
 *
 *   headers --stk_checksum_read_headers--> checksum of the body, of the object
 *   body --stk_checksum_compute--> its checksum, to be compared
 *   ranges in any order --stk_range_coverage_add--> complete: verified, or a mismatch
 *
 * Amazon's x-amz-checksum-*, Google's x-goog-hash, Azure's x-ms-content-crc64; of any server
 * Repr-Digest and Content-Digest (RFC 9530), Digest (RFC 3230) and Content-MD5 (RFC 2616, 14.15).
 * Hugging Face's X-Linked-ETag: SHA-256 of large files, git blob hash of small ones.
 * https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html
 * https://cloud.google.com/storage/docs/xml-api/reference-headers#xgooghash
 * https://learn.microsoft.com/rest/api/storageservices/get-blob
 * Owner: values; a coverage is its opener's. Threads: any. Memory: 24 bytes for each separate piece
 * of a coverage. Bound: STK_RANGE_COVERAGE_PIECES_MAX. */
#ifndef STORAGE_CHECKSUM_CHECKSUM_H
#define STORAGE_CHECKSUM_CHECKSUM_H

#include "base/crypto/digest.h"
#include "storage/http/http.h"

#define STK_RANGE_COVERAGE_PIECES_MAX 4096u
#define STK_CHECKSUM_TEXT_BYTES 96u

/* CRCs can be combined over ranges. The fastest come first. */
enum stk_checksum_kind {
    STK_CHECKSUM_NONE = 0,
    STK_CHECKSUM_CRC64,
    STK_CHECKSUM_CRC32C,
    STK_CHECKSUM_CRC32,
    STK_CHECKSUM_SHA256,
    STK_CHECKSUM_SHA1,
    STK_CHECKSUM_GIT_BLOB, /* SHA-1 of "blob N", NUL and the N bytes: the object id in git */
    STK_CHECKSUM_MD5,
    STK_CHECKSUM_KINDS,
};

struct stk_checksum {
    uint32_t kind; /* enum stk_checksum_kind */
    uint32_t
        parts; /* 0: of the bytes; else of the concatenated checksums of this number of parts */
    bool hex;  /* the server writes it in hex, and so do messages; else in base64 */
    uint8_t sum[32]; /* big-endian; the rest is 0 */
};

enum stk_checksum_provider {
    STK_CHECKSUM_FROM_HTTP = 0,
    STK_CHECKSUM_FROM_AWS,
    STK_CHECKSUM_FROM_GOOGLE,
    STK_CHECKSUM_FROM_AZURE,
};

struct stk_response_checksums {
    struct stk_checksum body;   /* of the response body */
    struct stk_checksum object; /* of the complete object */
    /* Some servers send this header with the checksum of bytes other than the body: of a part of
     * the range, or of the complete object. */
    bool unreliable;
    uint64_t file_mtime_ns; /* of the file that was uploaded, by the object's metadata; 0: none */
};

/* Reads the checksums of a response 200 or 206. dialect: enum stk_checksum_provider. all: the
 * body is the complete object. tag: if there is no checksum, an ETag that is an MD5 is used. */
void stk_checksum_read_headers(struct stk_response_checksums *checksums_out,
                               const struct stk_http_response *answer, uint32_t dialect, bool all,
                               bool tag);
/* Reads the checksum of a complete file from a response of Hugging Face's hub, also from its
 * redirect: the server that stores the bytes sends an unrelated ETag. Returns NONE if there is no
 * checksum. */
struct stk_checksum stk_checksum_of_hf_etag(const struct stk_http_response *answer);
/* The checksum of bytes; twice: the checksum of that checksum, as S3 has it for an object of one
 * part.
 */
struct stk_checksum stk_checksum_compute(uint32_t kind, bool twice, struct stk_view bytes);
uint32_t stk_checksum_bytes(uint32_t kind); /* of a checksum of this kind */

/* The same in pieces: begin, add ..., end. bytes: the length of all pieces, which GIT_BLOB needs.
 */
struct stk_checksum_state {
    uint32_t kind;
    union {
        uint64_t crc;
        struct stk_sha256 sha256;
        struct stk_sha1 sha1;
        struct stk_md5 md5;
    } running;
};
void stk_checksum_begin(struct stk_checksum_state *sum, uint32_t kind, uint64_t bytes);
void stk_checksum_add(struct stk_checksum_state *sum, struct stk_view bytes);
struct stk_checksum stk_checksum_end(struct stk_checksum_state *sum);

bool stk_checksum_equal(const struct stk_checksum *a, const struct stk_checksum *b);
/* Formats a checksum for messages: "crc64nvme 3q2+7w==", "sha256 e3b0c4..". */
void stk_checksum_text(const struct stk_checksum *checksum, char text_out[STK_CHECKSUM_TEXT_BYTES]);
static inline bool stk_checksum_is_combinable(const struct stk_checksum *checksum)
{
    return checksum->kind >= STK_CHECKSUM_CRC64 && checksum->kind <= STK_CHECKSUM_CRC32 &&
           checksum->parts == 0;
}

/* The ranges of an object that were received, with their checksums, until it is complete. */
struct stk_range_coverage;

enum stk_range_coverage_result {
    STK_RANGE_COVERAGE_INCOMPLETE = 0, /* there are gaps, or no checksum to compare with */
    STK_RANGE_COVERAGE_VERIFIED, /* these bytes completed the object; the coverage is empty again */
    STK_RANGE_COVERAGE_MISMATCH, /* final */
};

struct stk_range_coverage *
stk_range_coverage_new(uint64_t bytes); /* of the object, more than 0; NULL: no memory */
void stk_range_coverage_free(struct stk_range_coverage *coverage); /* NULL is allowed */
/* The checksum of the object is not known yet, but likely of this kind: ranges are summed with it
 * until then. */
void stk_range_coverage_set_tentative(struct stk_range_coverage *coverage, uint32_t kind);
/* Sets the checksum of the object, if it can be combined and none was set before. Returns VERIFIED
 * or MISMATCH if the object was complete already. */
enum stk_range_coverage_result stk_range_coverage_set_expected(struct stk_range_coverage *coverage,
                                                               const struct stk_checksum *object);
/* Adds received bytes. Bytes that are covered already, or exceed the bound of pieces, are ignored.
 */
enum stk_range_coverage_result stk_range_coverage_add(struct stk_range_coverage *coverage,
                                                      uint64_t offset, struct stk_view bytes);
/* Whether added bytes are summed: the kind of the checksum is known or likely. */
bool stk_range_coverage_is_summing(struct stk_range_coverage *coverage);
bool stk_range_coverage_is_mismatch(struct stk_range_coverage *coverage);
uint64_t stk_range_coverage_bytes(const struct stk_range_coverage *coverage); /* of the object */
/* After MISMATCH: the expected and the computed checksum. */
void stk_range_coverage_get_mismatch(struct stk_range_coverage *coverage,
                                     struct stk_checksum *want_out, struct stk_checksum *got_out);

#endif
