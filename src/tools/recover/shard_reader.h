/* tools/recover/shard_reader.h: a shard's bytes as a tar, front to back: as they lie, or unpacked,
 * also beyond damage in the packing.
 *
 *   start -> next -> piece, piece, gap, piece ... -> end
 *                     `-- damage: where can unpacking begin again? --'
 *                            1 access points of the index   exact: the place in the tar is known
 *                            2 the seek table of zstd       exact
 *                            3 the next block of bzip2, at any bit
 *                            (format/compress/bzip2_recover.h), or the next
 *                              member or frame, by its first bytes; what it holds up to the first
 *                              tar header is left out
 *
 * Where the index has access points, what lies between two of them is compared with its sum. A seek
 * table is compared with the frames as they come, and used as long as it was true. A stream whose
 * checksum alone is wrong is no gap: what it unpacked to is given, and noted in `wrongs`.
 * The same file and index give the same pieces and gaps, so that repair can read it again.
 * Owner: a check, or repair. Threads: one. Memory: 256 KiB, and the library's.
 * Bound: STK_SHARD_READER_TRIES_MAX places of the third kind. */
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
    STK_SHARD_READER_MAGIC_BYTES = 6,  /* bytes that tell the begin of a stream */
    STK_SHARD_READER_ENTRY_BYTES = 12, /* of a seek table, at most */
    STK_SHARD_READER_ENTRIES = 128     /* at a time */
};

/* What could not be unpacked. */
struct stk_shard_gap {
    uint64_t trusted_end;  /* all before it is under right checksums, as far as streams have any */
    uint64_t doubted_from; /* bytes from here to `from` were unpacked under a checksum that is
                         wrong, or in the block of zstd before the one that shows the damage */
    uint64_t from, to;     /* of the tar, multiples of 512; to: UINT64_MAX: nothing follows */
    bool exact;            /* offsets behind it are the tar's own */
    bool verified;         /* sums of the index prove all before it */
    struct stoker_error error;
};

struct stk_shard_reader_options {
    uint64_t unpacked_bytes_max;
    uint32_t unpacked_ratio_max;
    const struct stk_index *index; /* borrowed; NULL: none has the shard as it is */
    uint32_t shard;                /* there */
    struct stk_sha256 *sha;        /* borrowed: of the file's bytes; NULL: nobody asks */
    _Atomic uint64_t *counter;     /* borrowed: of the file's bytes; may be NULL */
    const _Atomic bool *stop;      /* borrowed: then the tape ends, `stopped` */
};

enum stk_shard_error_kind {
    STK_SHARD_ERROR_INDEX = 1,  /* between access points: not the bytes that were indexed */
    STK_SHARD_ERROR_CHECKSUM,   /* under a checksum of the packing that is wrong */
    STK_SHARD_ERROR_STREAM_END, /* the checksum is right, something else of the stream's end is not
                                 */
    STK_SHARD_ERROR_UNVERIFIED  /* a stream without a checksum: nothing is known */
};

/* Part of the tar, whose streams (so many, side by side) are of this kind. */
struct stk_shard_error {
    uint64_t from, to, compressed_offset; /* packed_at: the end of the first one, in the file */
    uint32_t kind, count;
};
#define STK_SHARD_READER_ERRORS_MAX 100000u /* then the last one takes what else comes */

/* What a seek table says of a place that is not so. */
struct stk_seek_table_mismatch {
    const char *what; /* NULL: none was found */
    uint64_t at;      /* of the entry, or the foot, in the file */
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
    int level;                     /* that the file's first bytes tell; 0: they do not */
    struct stk_view piece;         /* lent until the next call; of whole blocks, but the last */
    uint64_t offset;               /* of the piece, in the tar */
    uint64_t streams, bytes;       /* so far: that began, that were unpacked */
    bool no_checksum;              /* one of them has no checksum */
    bool stopped, ended;
    struct stk_shard_gap gap;
    struct stk_shard_error *errors; /* owned: so far, in order of their ends */
    uint32_t error_count, error_capacity;
    struct stk_seek_table_mismatch mismatch; /* the first one */
    /* Internal: */
    struct { /* sums of the index; proving: they are compared */
        bool proving;
        struct stk_xxh3 *sum;    /* owned */
        uint64_t number, at;     /* point in work; unpacked bytes of the tar */
        uint64_t from, to, want; /* of it */
        uint64_t count;
    } verification;
    struct stk_bzip2_blocks
        *blocks;             /* owned; NULL: nothing is salvaged; then packed is what it made */
    struct stk_view raw;     /* of the file, not yet looked at by blocks */
    uint64_t opened_at;      /* in the file: where this run of the library began */
    uint64_t read_to;        /* in the file: hashed and counted up to here */
    uint64_t streams_before; /* of the runs of the library before this one */
    struct stk_decompress *decompress; /* owned; NULL: plain, or none can go on */
    uint8_t *buffer;                   /* owned */
    struct stk_view compressed,
        lookahead; /* of the file, not yet unpacked: `behind` after `packed` */
    uint8_t carry[STK_SHARD_READER_MAGIC_BYTES]; /* where a block ended within a look */
    uint64_t compressed_offset,
        tried_offset;  /* in the file: of packed; behind the place tried last */
    uint64_t skip;     /* unpacked bytes to leave out */
    size_t kept_bytes; /* bytes of the room that the next piece begins with */
    bool gap_open, gap_ready, aligning;
    int more;                    /* what the last run of the library gave */
    struct stoker_error failure; /* of it */
    uint64_t floor;              /* in the tar: where the last gap ended */
    uint32_t tries;
    bool inexact;          /* a gap was */
    bool position_unknown; /* the stream that ended is wrong, and its size is not known */
    struct {               /* the seek table of zstd */
        struct stk_zstd_seek_table foot; /* no frames: there is none */
        bool comparing;                  /* with the frames as they end */
        uint64_t next, in, out;          /* the entry to be read next, and where it begins */
        uint64_t frame_in;               /* where the last frame ended */
        uint64_t first, kept_bytes;      /* entries in the chunk */
        uint8_t chunk[STK_SHARD_READER_ENTRY_BYTES * STK_SHARD_READER_ENTRIES];
    } table;
};

/* reader: started, and stopped by the caller. A failure is the file's or ours. */
int stk_shard_reader_start(struct stk_shard_reader *shard_reader, struct stk_read_ahead *reader,
                           const struct stk_shard_reader_options *options,
                           struct stoker_error *error);
/* enum stk_shard_reader_event; negative: the file cannot be read further, or it is ours. */
int stk_shard_reader_next(struct stk_shard_reader *shard_reader, struct stoker_error *error);
/* The rest of the file, for its hash and the count. */
int stk_shard_reader_drain(struct stk_shard_reader *shard_reader, struct stoker_error *error);
void stk_shard_reader_stop(struct stk_shard_reader *shard_reader); /* zeroed is fine */

#endif
