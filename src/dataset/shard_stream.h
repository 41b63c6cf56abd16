/* dataset/shard_stream.h: the decompressed bytes of a shard, from front to back.
 *
 *   open (a path)       -> head, compression -> read ... (an offset before the last one starts
 * over) open_shard (index)  -> with seek points: read at any offset, through the segment cache
 *
 * While it reads, a stream can collect seek points, and the SHA-256 of the stored file.
 * Owner: the caller. Threads: one per stream. Memory: 320 KiB and the window of the decompressor.
 * Bound: the limits of decompression. */
#ifndef DATASET_SHARD_STREAM_H
#define DATASET_SHARD_STREAM_H

#include "dataset/open_files.h"
#include "format/compress/decompress.h"
#include "format/container.h"
#include "index/seek/segment_cache.h"

/* Objects that a stream borrows until it is closed. */
struct stk_shard_stream_options {
    struct stk_io *io;
    struct stk_decompress_limits limits;
    _Atomic uint64_t *bytes_read; /* is increased by the stored bytes that are read */
    /* For open_shard only: */
    struct stk_open_files *files;
    const struct stk_index *index;
    struct stk_segment_cache *segment_cache;
};

struct stk_shard_stream;
/* Return 0 and set *stream_out, -ENOMEM, or the error of opening or reading the file. */
int stk_shard_stream_open(struct stk_shard_stream **stream_out,
                          const struct stk_shard_stream_options *options, const char *path,
                          struct stoker_error *error);
int stk_shard_stream_open_shard(struct stk_shard_stream **stream_out,
                                const struct stk_shard_stream_options *options, uint32_t shard,
                                struct stoker_error *error);
void stk_shard_stream_close(struct stk_shard_stream *stream); /* NULL is allowed */
/* Call it before the first read of a compressed shard: collects seek points at this spacing. */
int stk_shard_stream_collect_seek_points(struct stk_shard_stream *stream, uint64_t spacing,
                                         struct stoker_error *error);
/* Call it after the last read. Sets *image_out to the image of the seek points
 * (stk_seek_points_builder_finish); empty if the compression has none. */
int stk_shard_stream_seek_points(struct stk_shard_stream *stream, struct stk_view *image_out,
                                 struct stoker_error *error);
/* The open file, valid until close. NULL for a shard that is read by its seek points. */
struct stk_file *stk_shard_stream_file(const struct stk_shard_stream *stream);
/* The open file, also of a shard that is read by its seek points; valid until close. */
struct stk_file *stk_shard_stream_source(const struct stk_shard_stream *stream);
/* The offset behind the bytes that were decompressed last, before which a read starts over; 0 for a
 * shard that can be read at any offset. */
uint64_t stk_shard_stream_position(const struct stk_shard_stream *stream);
bool stk_shard_stream_is_sequential(const struct stk_shard_stream *stream);
/* The first bytes of the stored file, at most STK_CONTAINER_HEAD_BYTES, valid until close. Empty
 * for a shard that is read by its seek points. */
struct stk_view stk_shard_stream_head(const struct stk_shard_stream *stream);
uint32_t stk_shard_stream_compression(const struct stk_shard_stream *stream);
uint64_t stk_shard_stream_object_bytes(const struct stk_shard_stream *stream); /* as it is stored */
/* Call it before the first read. From then on every byte of the file is read once and added to the
 * SHA-256; reads may only go forward. */
void stk_shard_stream_hash_begin(struct stk_shard_stream *stream);
/* Call it after the last read: reads the rest of the file, and sets its SHA-256. */
int stk_shard_stream_hash_end(struct stk_shard_stream *stream, uint8_t digest_out[32],
                              struct stoker_error *error);
/* Returns 0 and sets *got_out, which is less than `bytes` only at the end; or the error of reading
 * or decompressing. */
int stk_shard_stream_read(struct stk_shard_stream *stream, uint64_t offset, uint8_t *buffer,
                          size_t bytes, size_t *got_out, struct stoker_error *error);

#endif
