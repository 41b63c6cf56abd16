/* tools/recover/shard_reader.h: reads a shard as a tar, from front to back, decompressed if needed,
 * and continues after damage in the compressed data.
 *
 *   start -> next -> piece, piece, gap, piece ... -> end
 *                     `-- damage: the next resume point --'
 *                            1 seek points of the index     exact: the offset in the tar is known
 *                            2 the seek table of zstd       exact
 *                            3 the next block of bzip2, at any bit
 *                              (format/compress/bzip2_recover.h), or the next gzip member or zstd
 *                              frame, by its first bytes; data up to the first tar header is
 * skipped
 *
 * If the index has seek points, the data between two of them is compared with its checksum. A seek
 * table is compared with the frames, and used as long as it matches. A stream of which only the
 * checksum is wrong is no gap: its data is returned, and recorded in `errors`.
 * The same file and index result in the same pieces and gaps, so that repair can read it again.
 * shard_reader.c, resume_points.c and seek_table_check.c are one state machine, and call each
 * other. Owner: a check, or repair. Threads: one. Memory: 256 KiB, and the library's. Bound:
 * STK_SHARD_READER_TRIES_MAX resume points of the third kind. */
#ifndef TOOLS_RECOVER_SHARD_READER_H
#define TOOLS_RECOVER_SHARD_READER_H

#include "base/crypto/digest.h"
#include "base/xxh3.h"
#include "engine/read_ahead.h"
#include "format/compress/bzip2_recover.h"
#include "format/compress/zstd_seek_table.h"
#include "index/index.h"

#define STK_SHARD_READER_TRIES_MAX 100000u
enum {
    STK_SHARD_READER_MAGIC_BYTES = 6,  /* bytes that identify the start of a stream */
    STK_SHARD_READER_ENTRY_BYTES = 12, /* of a seek table, at most */
    STK_SHARD_READER_ENTRIES = 128     /* at a time */
};

/* Data that could not be decompressed. */
struct stk_shard_gap {
    uint64_t trusted_end;  /* all data before it has matching checksums, if streams have any */
    uint64_t doubted_from; /* data from here to `from` has a wrong checksum, or is in the zstd
                         block before the one that shows the damage */
    uint64_t from, to;     /* of the tar, multiples of 512; to: UINT64_MAX: no data follows */
    bool exact;            /* offsets after it are exact */
    bool verified;         /* checksums of the index verify all data before it */
    struct stoker_error error;
};

struct stk_shard_reader_options {
    uint64_t decompressed_bytes_max;
    uint32_t decompression_ratio_max;
    const struct stk_index *index; /* borrowed; NULL: none matches the shard */
    uint32_t shard;                /* there */
    struct stk_sha256 *sha;        /* borrowed: of the file's bytes; NULL: not needed */
    _Atomic uint64_t *counter;     /* borrowed: of the file's bytes; may be NULL */
    const _Atomic bool *stop;      /* borrowed: ends the reader, with `stopped` */
};

enum stk_shard_error_kind {
    STK_SHARD_ERROR_INDEX = 1,  /* data between seek points differs from the index */
    STK_SHARD_ERROR_CHECKSUM,   /* a checksum of the compression is wrong */
    STK_SHARD_ERROR_STREAM_END, /* the checksum matches; the rest of the stream's end is damaged */
    STK_SHARD_ERROR_UNVERIFIED  /* a stream without a checksum */
};

/* A range of the tar: `count` adjacent streams with this kind of error. */
struct stk_shard_error {
    uint64_t from, to, compressed_offset; /* compressed_offset: end of the first one, in the file */
    uint32_t kind, count;
};
#define STK_SHARD_READER_ERRORS_MAX 100000u /* the last one includes all further ones */

/* A wrong entry of a seek table. */
struct stk_seek_table_mismatch {
    const char *what; /* NULL: none */
    uint64_t at;      /* of the entry, or the footer, in the file */
};

enum stk_shard_reader_event {
    STK_SHARD_READER_END = 0,
    STK_SHARD_READER_PIECE,
    STK_SHARD_READER_GAP
};

struct stk_shard_reader {
    struct stk_shard_reader_options options;
    struct stk_read_ahead *reader; /* borrowed */
    uint32_t compression;          /* enum stk_compression */
    int level;                     /* from the file's first bytes; 0: unknown */
    struct stk_view piece;   /* valid until the next call; of complete blocks, except the last */
    uint64_t offset;         /* of the piece, in the tar */
    uint64_t streams, bytes; /* so far: begun, decompressed */
    bool no_checksum;        /* one of them has no checksum */
    bool stopped, ended;
    struct stk_shard_gap gap;
    struct stk_shard_error *errors; /* owned: so far, in order of their ends */
    uint32_t error_count, error_capacity;
    struct stk_seek_table_mismatch mismatch; /* the first one */
    /* Internal: */
    struct { /* checksums of the index; proving: they are compared */
        bool proving;
        struct stk_xxh3 *sum;    /* owned */
        uint64_t number, at;     /* current point; decompressed bytes of the tar */
        uint64_t from, to, want; /* of it */
        uint64_t count;
    } verification;
    struct stk_bzip2_blocks *blocks; /* owned; NULL: no recovery; else `compressed` is its output */
    struct stk_view raw;             /* of the file, not yet scanned by blocks */
    uint64_t opened_at;              /* in the file: where the library started */
    uint64_t read_to;                /* in the file: hashed and counted up to here */
    uint64_t streams_before;         /* of earlier starts of the library */
    struct stk_decompress *decompress; /* owned; NULL: not compressed, or none can continue */
    uint8_t *buffer;                   /* owned */
    struct stk_view compressed,
        lookahead; /* of the file, not yet decompressed: lookahead follows compressed */
    uint8_t carry[STK_SHARD_READER_MAGIC_BYTES]; /* if a block ended within such bytes */
    uint64_t compressed_offset,
        tried_offset;     /* in the file: of compressed; after the last resume point */
    uint64_t skip;        /* decompressed bytes to skip */
    size_t carried_bytes; /* bytes of buffer with which the next piece begins */
    bool gap_open, gap_ready, aligning;
    int more;                    /* result of the last call of the library */
    struct stoker_error failure; /* of it */
    uint64_t floor;              /* in the tar: end of the last gap */
    uint32_t tries;
    bool inexact;          /* after a gap that is not exact */
    bool position_unknown; /* the stream that ended is damaged, and its size is unknown */
    struct {               /* the seek table of zstd */
        struct stk_zstd_seek_table foot; /* no frames: no seek table */
        bool comparing;                  /* with the frames as they end */
        uint64_t next, in, out;          /* next entry, and its offsets */
        uint64_t frame_in;               /* end of the last frame */
        uint64_t first, entry_count;     /* entries in the chunk */
        uint8_t chunk[STK_SHARD_READER_ENTRY_BYTES * STK_SHARD_READER_ENTRIES];
    } table;
};

/* reader: started by the caller, who also stops it. Returns 0, or an error of the file or of the
 * process. */
int stk_shard_reader_start(struct stk_shard_reader *shard_reader, struct stk_read_ahead *reader,
                           const struct stk_shard_reader_options *options,
                           struct stoker_error *error);
/* Returns enum stk_shard_reader_event, or an error if the file cannot be read further. */
int stk_shard_reader_next(struct stk_shard_reader *shard_reader, struct stoker_error *error);
/* Reads the rest of the file, for its hash and the counter. */
int stk_shard_reader_drain(struct stk_shard_reader *shard_reader, struct stoker_error *error);
void stk_shard_reader_stop(struct stk_shard_reader *shard_reader); /* zeroed is allowed */

#endif
