/* pack/gather.h: the bytes of samples, from their files and shards into a shard being written.
 *
 *   open -sample, sample, ...-> close        bytes go from the file straight into the buffer
 *
 * Owner: one round of pack. Threads: one. Memory: pieces; a picture that may be made smaller; the
 * window of a compressed shard. Bound: STK_GATHER_PICTURE_MAX for a picture to be resized, larger
 * ones are copied. */
#ifndef PACK_GATHER_H
#define PACK_GATHER_H

#include "decode/shrink.h"
#include "pack/plan.h"
#include "pack/shard_out.h"

#define STK_GATHER_PICTURE_MAX (256u << 20)

struct stk_gather {
    const struct stk_plan *plan; /* borrowed */
    const _Atomic bool *stop;    /* borrowed: ends with -ECANCELED when set */
    struct stk_shrink *shrink;   /* owned; NULL: pictures are copied */
    struct stk_pieces pieces;
    struct stk_stream *stream; /* owned: of stream_shard, a compressed one */
    uint32_t stream_shard;
    uint8_t *picture; /* owned */
    size_t picture_capacity;
    uint64_t resized, copied;           /* pictures so far, where they may be made smaller */
    uint64_t bytes_before, bytes_after; /* of all these pictures */
};

/* short_side 0: pictures are copied. */
int stk_gather_open(struct stk_gather *gather, const struct stk_plan *plan, uint32_t short_side,
                    uint32_t quality, const _Atomic bool *stop, struct stoker_error *error);
void stk_gather_close(struct stk_gather *gather); /* zeroed is fine */
/* Writes one sample; out NULL: only measures its pictures. */
int stk_gather_sample(struct stk_gather *gather, uint64_t sample, struct stk_shard_out *out,
                      struct stoker_error *error);

#endif
