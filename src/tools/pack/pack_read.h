/* tools/pack/pack_read.h: the bytes of samples, from their files and shards into a shard being
 * written.
 *
 *   open -sample, sample, ...-> close        bytes go from the file straight into the buffer
 *                `-- failed: tried again where it may pass; else `damaged` says whose fault it is
 *
 * Where the source's index has checksums, what was read is compared with them: pack hashes all
 * bytes anyway, and would give damage a checksum that makes it look whole.
 * Owner: one round of pack. Threads: one. Memory: pieces; a picture that may be made smaller; the
 * window of a compressed shard. Bound: STK_PACK_READ_PICTURE_MAX for a picture to be resized,
 * larger ones are copied. */
#ifndef TOOLS_PACK_PACK_READ_H
#define TOOLS_PACK_PACK_READ_H

#include "decode/image/jpeg_shrink.h"
#include "tools/pack/pack_plan.h"
#include "tools/pack/shard_file.h"

#define STK_PACK_READ_PICTURE_MAX (256u << 20)

struct stk_pack_read_options {
    uint32_t short_side, quality; /* short_side 0: pictures are copied */
    bool strict;                  /* a picture that should be smaller and does not decode is damage;
                                     else it is copied, and counted in the shard */
    uint32_t io_retries, io_retry_wait_ms;
    const _Atomic bool *stop; /* borrowed: ends with -ECANCELED when set; `woken` says so */
    pthread_mutex_t *lock;    /* borrowed, as woken and retries */
    pthread_cond_t *woken;
    _Atomic uint64_t *retries; /* counted there */
};

struct stk_pack_read {
    const struct stk_pack_plan *plan; /* borrowed */
    struct stk_pack_read_options options;
    struct stk_jpeg_shrink *shrink; /* owned; NULL: pictures are copied */
    struct stk_pack_pieces pieces;
    uint64_t sample;                 /* in hand */
    struct stk_shard_stream *stream; /* owned: of stream_shard, a compressed one */
    uint32_t stream_shard;
    uint8_t *picture; /* owned */
    size_t picture_capacity;
    uint64_t resized, copied;           /* pictures so far, where they may be made smaller */
    uint64_t bytes_before, bytes_after; /* of all these pictures */
    bool is_sample_damage;              /* the last failure is damage in the sample's data */
};

int stk_pack_read_open(struct stk_pack_read *reader, const struct stk_pack_plan *plan,
                       const struct stk_pack_read_options *options, struct stoker_error *error);
void stk_pack_read_close(struct stk_pack_read *reader); /* zeroed is fine */
/* Writes one sample; out NULL: only measures its pictures. *error has shard, offset and key where
 * the sample is damaged; then the shard may have a part of it. */
int stk_pack_read_sample(struct stk_pack_read *reader, uint64_t sample, struct stk_shard_file *out,
                         struct stoker_error *error);

#endif
