/* tools/pack/pack_read.h: reads samples from files and shards, and writes them into a new shard.
 *
 *   open -sample, sample, ...-> close        bytes are read directly into the shard's buffer
 *                `-- failed: retried if the error may be temporary; else `is_sample_damage` says
 *                    whether the sample's data is the cause
 *
 * If the source's index has checksums, the bytes are compared with them. Otherwise pack would hash
 * damaged bytes and give them a valid checksum.
 * Owner: one round of pack. Threads: one. Memory: pieces; an image to be resized; the window of a
 * compressed shard. Bound: STK_PACK_READ_PICTURE_MAX bytes for an image to be resized; larger ones
 * are copied. */
#ifndef TOOLS_PACK_PACK_READ_H
#define TOOLS_PACK_PACK_READ_H

#include "decode/image/jpeg_shrink.h"
#include "tools/pack/pack_plan.h"
#include "tools/pack/shard_file.h"

#define STK_PACK_READ_PICTURE_MAX (256u << 20)

struct stk_pack_read_options {
    uint32_t short_side, quality; /* short_side 0: images are copied */
    bool strict;                  /* an image to be resized that does not decode is damaged;
                                     false: it is copied, and counted in the shard */
    uint32_t io_retries, io_retry_wait_ms;
    const _Atomic bool *stop; /* borrowed: reads end with -ECANCELED when set; then `woken` is
                                 signalled */
    pthread_mutex_t *lock;    /* borrowed, as woken and retries */
    pthread_cond_t *woken;
    _Atomic uint64_t *retries; /* counted there */
};

struct stk_pack_read {
    const struct stk_pack_plan *plan; /* borrowed */
    struct stk_pack_read_options options;
    struct stk_jpeg_shrink *shrink; /* owned; NULL: images are copied */
    struct stk_pack_pieces pieces;
    uint64_t sample;                 /* being read */
    struct stk_shard_stream *stream; /* owned: of stream_shard, a compressed one */
    uint32_t stream_shard;
    bool stream_has_headers; /* see stk_dataset_has_headers */
    uint8_t *picture;        /* owned */
    size_t picture_capacity;
    uint64_t resized, copied;           /* images so far, if images are resized */
    uint64_t bytes_before, bytes_after; /* of all these images */
    bool is_sample_damage;              /* the last error is damage in the sample's data */
};

int stk_pack_read_open(struct stk_pack_read *reader, const struct stk_pack_plan *plan,
                       const struct stk_pack_read_options *options, struct stoker_error *error);
void stk_pack_read_close(struct stk_pack_read *reader); /* zeroed is allowed */
/* Writes one sample to out; if out is NULL, only measures its images. If the sample is damaged,
 * *error has shard, offset and key, and out may have a part of the sample. */
int stk_pack_read_sample(struct stk_pack_read *reader, uint64_t sample, struct stk_shard_file *out,
                         struct stoker_error *error);

#endif
