/* storage/checksum/checksum.h: checksums that servers tell of bytes: read out of answers, compared,
 * and joined over ranges.
 *
 *   headers of an answer --stk_seals_read--> seals: of its body, of the whole object
 *   body --stk_seal_make--> its own seal, to be compared
 *   ranges, in any order --stk_cover_add--> covered: the whole is proven, or it is wrong
 *
 * Amazon's x-amz-checksum-*, Google's x-goog-hash, Azure's x-ms-content-crc64, and of any server
 * Repr-Digest and Content-Digest (RFC 9530), Digest (RFC 3230) and Content-MD5 (RFC 2616, 14.15).
 * Hugging Face's X-Linked-ETag: of large files their SHA-256, of small ones what git calls them by.
 * https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html
 * https://cloud.google.com/storage/docs/xml-api/reference-headers#xgooghash
 * https://learn.microsoft.com/rest/api/storageservices/get-blob
 * Owner: values; a cover is its opener's. Threads: any. Memory: 24 bytes a piece of a cover that
 * has gaps on both sides. Bound: STK_COVER_PIECES_MAX. */
#ifndef STORAGE_CHECKSUM_CHECKSUM_H
#define STORAGE_CHECKSUM_CHECKSUM_H

#include "base/crypto/digest.h"
#include "storage/http/http.h"

#define STK_COVER_PIECES_MAX 4096u
#define STK_SEAL_TEXT_BYTES 96u

/* Those of 8 bytes and less can be joined; the quickest come first. */
enum stk_seal_kind {
    STK_SEAL_NONE = 0,
    STK_SEAL_CRC64,
    STK_SEAL_CRC32C,
    STK_SEAL_CRC32,
    STK_SEAL_SHA256,
    STK_SEAL_SHA1,
    STK_SEAL_GIT, /* SHA-1 of "blob N", NUL and the N bytes: a file's name in git */
    STK_SEAL_MD5,
    STK_SEAL_KINDS,
};

struct stk_seal {
    uint32_t kind;   /* enum stk_seal_kind */
    uint32_t parts;  /* 0: of the bytes; else of so many parts' sums, one after the other */
    bool hex;        /* it was told in digits, and is shown so; else in base64 */
    uint8_t sum[32]; /* big-endian; the rest is 0 */
};

enum stk_seal_dialect {
    STK_SEAL_OF_WEB = 0,
    STK_SEAL_OF_AMAZON,
    STK_SEAL_OF_GOOGLE,
    STK_SEAL_OF_AZURE,
};

struct stk_seals {
    struct stk_seal body;  /* of the answer's body */
    struct stk_seal whole; /* of the whole object */
    /* The body's is one that servers are known to tell of other bytes as well: of a part of the
     * range, or of the whole. */
    bool doubtful;
};

/* What an answer 200 or 206 tells. all: whether the body is the whole object. tag: an ETag that is
 * an MD5 counts, too, where there is nothing better. */
void stk_seals_read(struct stk_seals *seals_out, const struct stk_http_answer *answer,
                    uint32_t dialect, bool all, bool tag);
/* What the hub itself tells of a whole file, also where it redirects to who has the bytes: their
 * ETag is of something else. NONE: nothing that is one. */
struct stk_seal stk_seal_of_hub(const struct stk_http_answer *answer);
/* The seal of that kind of these bytes; twice: the sum of their sum, as of an object of one part.
 */
struct stk_seal stk_seal_make(uint32_t kind, bool twice, struct stk_view bytes);
uint32_t stk_seal_bytes(uint32_t kind); /* of its sum */

/* The same over pieces: begin -add-> ... -end. bytes: of all of them, which git's begins with. */
struct stk_seal_sum {
    uint32_t kind;
    union {
        uint64_t crc;
        struct stk_sha256 sha256;
        struct stk_sha1 sha1;
        struct stk_md5 md5;
    } so_far;
};
void stk_seal_begin(struct stk_seal_sum *sum, uint32_t kind, uint64_t bytes);
void stk_seal_add(struct stk_seal_sum *sum, struct stk_view bytes);
struct stk_seal stk_seal_end(struct stk_seal_sum *sum);

bool stk_seal_is(const struct stk_seal *a, const struct stk_seal *b);
/* "crc64nvme 3q2+7w==", "sha256 e3b0c4..": for people. */
void stk_seal_text(const struct stk_seal *seal, char text_out[STK_SEAL_TEXT_BYTES]);
static inline bool stk_seal_joins(const struct stk_seal *seal)
{
    return seal->kind >= STK_SEAL_CRC64 && seal->kind <= STK_SEAL_CRC32 && seal->parts == 0;
}
/* Base64 of exactly `bytes` bytes; false: it is something else. */
bool stk_seal_base64(struct stk_view text, uint8_t *data_out, size_t bytes);

/* What of an object has come, with its sums, until all of it has. */
struct stk_cover;

enum stk_covered {
    STK_COVER_OPEN = 0, /* there are gaps, or nothing to compare with */
    STK_COVER_PROVEN,   /* with these bytes the whole was: it begins again */
    STK_COVER_WRONG,    /* from now on for ever */
};

struct stk_cover *stk_cover_new(uint64_t bytes); /* of the object, above 0; NULL: no memory */
void stk_cover_free(struct stk_cover *cover);    /* NULL is fine */
/* The whole object's seal will be told, and is likely to be of this kind: what comes until then is
 * summed by it. */
void stk_cover_guess(struct stk_cover *cover, uint32_t kind);
/* The whole object's seal is this, or none that can be joined; the first such counts. Not OPEN:
 * all had come before. */
enum stk_covered stk_cover_expect(struct stk_cover *cover, const struct stk_seal *whole);
/* Bytes came. What is there already, or finds no room, is left out. */
enum stk_covered stk_cover_add(struct stk_cover *cover, uint64_t offset, struct stk_view bytes);
/* Whether what comes is summed: by what is told, or is likely to be. */
bool stk_cover_sums(struct stk_cover *cover);
bool stk_cover_is_wrong(struct stk_cover *cover);
uint64_t stk_cover_bytes(const struct stk_cover *cover); /* of the object */
/* What the whole should be, and is: of a wrong one. */
void stk_cover_tell(struct stk_cover *cover, struct stk_seal *want_out, struct stk_seal *got_out);

#endif
