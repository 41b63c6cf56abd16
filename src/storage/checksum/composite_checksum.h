/* storage/checksum/composite_checksum.h: verifies checksums of an object that cannot be
 * combined from checksums of ranges. Needs the bytes in order.
 *
 *   expected checksum --new--> bytes in order --add--> ... --verify--> verified, mismatch or
 * unknown sizes and checksums of parts --ask--> the server
 *
 * That is SHA-256, SHA-1 or MD5 of all bytes, or S3's checksum of an object that was written in
 * parts: the checksum of the parts' checksums, of any kind:
 * https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
 * ask reads the size of the first part. If all parts may have it, that is assumed until the
 * checksum differs; then ask reads the other parts. If their sizes differ, all bytes are needed
 * once more. Responses are not trusted: if sizes do not add up, the result is unknown.
 * Owner: its opener. Threads: one at a time. Memory: 32 bytes a part.
 * Bound: STK_COMPOSITE_CHECKSUM_PARTS_MAX parts; ask reads each at most twice. */
#ifndef STORAGE_CHECKSUM_COMPOSITE_CHECKSUM_H
#define STORAGE_CHECKSUM_COMPOSITE_CHECKSUM_H

#include "storage/checksum/checksum.h"

#define STK_COMPOSITE_CHECKSUM_PARTS_MAX 10000u /* S3's bound */

/* Offset, size and checksum of one part, as the server reports them. */
struct stk_composite_checksum_part {
    uint64_t offset; /* UINT64_MAX: unknown */
    uint64_t bytes;
    struct stk_checksum seal; /* NONE: unknown */
};

enum stk_composite_checksum_result {
    STK_COMPOSITE_CHECKSUM_UNKNOWN = 0, /* the sizes of parts are unknown, or bytes are missing */
    STK_COMPOSITE_CHECKSUM_VERIFIED,
    STK_COMPOSITE_CHECKSUM_MISMATCH,
    STK_COMPOSITE_CHECKSUM_RESTART, /* the parts have other sizes than assumed: add all bytes once
                                       more */
};

/* The damaged range: one part if the server reports checksums of parts, else the complete
 * object. */
struct stk_composite_checksum_mismatch {
    uint32_t part; /* from 1; 0: the complete object */
    uint64_t first, last;
    struct stk_checksum want, got;
};

/* ask: reads part `number` (from 1) from the server; may wait. It returns 0 on success,
 * STOKER_ERROR_UNSUPPORTED if the server does not report parts, or an error that the calling add or
 * verify returns. Returns NULL if there is no memory. */
struct stk_composite_checksum *stk_composite_checksum_new(
    const struct stk_checksum *want, uint64_t bytes,
    int (*ask)(void *owner, uint32_t number, struct stk_composite_checksum_part *part_out),
    void *owner);
void stk_composite_checksum_free(struct stk_composite_checksum *whole); /* NULL is allowed */
/* Adds the bytes that follow the last added bytes, at most to the end of the object. Returns 0
 * on success, or an error of ask. */
int stk_composite_checksum_add(struct stk_composite_checksum *whole, struct stk_view bytes);
/* Call after all bytes are added. Returns enum stk_composite_checksum_result (RESTART at most
 * once), or an error of ask. */
int stk_composite_checksum_verify(struct stk_composite_checksum *whole);
void stk_composite_checksum_get_mismatch(const struct stk_composite_checksum *whole,
                                         struct stk_composite_checksum_mismatch *mismatch_out);

#endif
