/* storage/checksum/composite_checksum.h: the sum of a whole that cannot be joined out of the sums
 * of ranges: it is made of the bytes in order.
 *
 *   what a server tells --new--> bytes, in order --add--> ... --judge--> proven, wrong or unknown
 *        where do the object's parts end? --ask--> who knows
 *
 * That is SHA-256, SHA-1 or MD5 of all bytes; or what S3 makes of an object that was written by
 * parts, the sum of the sums of its parts (whatever parts it is read by), of any kind:
 * https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
 * The first part is asked for. If all may be as large, that is taken for true until the sums
 * differ; then the others are asked for, too: and if they are not, the sum is made once more, of
 * each part as it is told. Nothing of it is believed: what does not add up is unknown.
 * Owner: its opener. Threads: one at a time. Memory: 32 bytes a part.
 * Bound: STK_COMPOSITE_CHECKSUM_PARTS_MAX parts; so many questions, twice at most. */
#ifndef STORAGE_CHECKSUM_COMPOSITE_CHECKSUM_H
#define STORAGE_CHECKSUM_COMPOSITE_CHECKSUM_H

#include "storage/checksum/checksum.h"

#define STK_COMPOSITE_CHECKSUM_PARTS_MAX 10000u /* S3's bound */

/* What is told of a part. */
struct stk_composite_checksum_part {
    uint64_t offset; /* UINT64_MAX: not told */
    uint64_t bytes;
    struct stk_checksum seal; /* of it; NONE: not told */
};

enum stk_composite_checksum_result {
    STK_COMPOSITE_CHECKSUM_UNKNOWN = 0, /* nobody tells where its parts end, or not all has come */
    STK_COMPOSITE_CHECKSUM_VERIFIED,
    STK_COMPOSITE_CHECKSUM_MISMATCH,
    STK_COMPOSITE_CHECKSUM_RESTART, /* its parts end elsewhere than it seemed: add all once more,
                                       from the start */
};

/* Of a wrong one: bytes first to last are not as they should be, which is a part of it where the
 * sums of its parts are told, else all of it. */
struct stk_composite_checksum_mismatch {
    uint32_t part; /* from 1; 0: all of it */
    uint64_t first, last;
    struct stk_checksum want, got;
};

/* ask: what is known of part `number`, from 1 on; may wait. UNSUPPORTED: nobody tells; other
 * failures end the call of add or judge that asked. NULL: no memory. */
struct stk_composite_checksum *stk_composite_checksum_new(
    const struct stk_checksum *want, uint64_t bytes,
    int (*ask)(void *owner, uint32_t number, struct stk_composite_checksum_part *part_out),
    void *owner);
void stk_composite_checksum_free(struct stk_composite_checksum *whole); /* NULL is fine */
/* The bytes behind those that were added last, no more than the whole has. */
int stk_composite_checksum_add(struct stk_composite_checksum *whole, struct stk_view bytes);
/* After all of them; AGAIN once at most. Below 0: what ask failed with. */
int stk_composite_checksum_verify(struct stk_composite_checksum *whole);
void stk_composite_checksum_get_mismatch(const struct stk_composite_checksum *whole,
                                         struct stk_composite_checksum_mismatch *mismatch_out);

#endif
