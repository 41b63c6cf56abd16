/* tape/tape.h: a shard's bytes as a tar, front to back: as they lie, or unpacked, also beyond
 * damage in the packing.
 *
 *   start -> next -> piece, piece, gap, piece ... -> end
 *                     `-- damage: where can unpacking begin again? --'
 *                            1 access points of the index   exact: the place in the tar is known
 *                            2 the seek table of zstd       exact
 *                            3 the next member, frame or stream, by its first bytes; what it
 *                              holds up to the first tar header is left out
 *
 * Where the index has access points, what lies between two of them is compared with its sum.
 * The same file and index give the same pieces and gaps, so that repair can read it again.
 * Owner: a check, or repair. Threads: one. Memory: 256 KiB, and the library's.
 * Bound: STK_TAPE_TRIES_MAX places of the third kind. */
#ifndef TAPE_TAPE_H
#define TAPE_TAPE_H

#include "base/hash.h"
#include "engine/reader.h"
#include "format/seekable.h"
#include "index/index.h"

#define STK_TAPE_TRIES_MAX 100000u
enum { STK_TAPE_LOOK = 6 /* bytes that tell the begin of a stream */ };

/* What could not be unpacked. */
struct stk_gap {
    uint64_t doubted;  /* bytes from here to `from` were unpacked under a checksum that is wrong */
    uint64_t from, to; /* of the tar, multiples of 512; to: UINT64_MAX: nothing follows */
    bool exact;        /* offsets behind it are the tar's own */
    bool proved;       /* sums of the index prove all before it */
    struct stoker_error found;
};

struct stk_tape_options {
    uint64_t unpacked_bytes_max;
    uint32_t unpacked_ratio_max;
    const struct stk_index *index; /* borrowed; NULL: none has the shard as it is */
    uint32_t shard;                /* there */
    struct stk_sha256 *sha;        /* borrowed: of the file's bytes; NULL: nobody asks */
    _Atomic uint64_t *counter;     /* borrowed: of the file's bytes; may be NULL */
    const _Atomic bool *stop;      /* borrowed: then the tape ends, `stopped` */
};

/* Of the tar, between two access points: unpacked to something else than when it was indexed. */
struct stk_wrong {
    uint64_t from, to;
};

enum stk_tape_event { STK_TAPE_END = 0, STK_TAPE_PIECE, STK_TAPE_GAP };

struct stk_tape {
    struct stk_tape_options options;
    struct stk_reader *reader; /* borrowed */
    uint32_t packing;          /* enum stk_packing */
    int level;                 /* that the file's first bytes tell; 0: they do not */
    struct stk_view piece;     /* lent until the next call; of whole blocks, but the last */
    uint64_t offset;           /* of the piece, in the tar */
    uint64_t streams, bytes;   /* so far: that began, that were unpacked */
    bool unsummed;             /* one of them has no checksum */
    bool stopped, ended;
    struct stk_gap gap;
    struct stk_wrong *wrongs; /* owned: so far, in order */
    uint32_t wrong_count, wrong_capacity;
    /* Internal: */
    struct { /* sums of the index; proving: they are compared */
        bool proving;
        struct stk_sum *sum;     /* owned */
        uint64_t number, at;     /* point in work; unpacked bytes of the tar */
        uint64_t from, to, want; /* of it */
        uint64_t count;
    } proof;
    uint64_t streams_before;        /* of the runs of the library before this one */
    struct stk_unpack *unpack;      /* owned; NULL: plain, or none can go on */
    uint8_t *room;                  /* owned */
    struct stk_view packed, behind; /* of the file, not yet unpacked: `behind` after `packed` */
    uint8_t carry[STK_TAPE_LOOK];   /* where a block ended within a look */
    uint64_t packed_at, tried_at;   /* in the file: of packed; behind the place tried last */
    uint64_t skip;                  /* unpacked bytes to leave out */
    size_t held;                    /* bytes of the room that the next piece begins with */
    bool gap_open, gap_ready, aligning;
    int more;                    /* what the last run of the library gave */
    struct stoker_error failure; /* of it */
    uint64_t floor;              /* in the tar: where the last gap ended */
    uint32_t tries;
    struct stk_seekable table;
    bool table_asked;
    uint64_t table_next, table_in, table_out; /* the entry to be read next, and where it begins */
};

/* reader: started, and stopped by the caller. A failure is the file's or ours. */
int stk_tape_start(struct stk_tape *tape, struct stk_reader *reader,
                   const struct stk_tape_options *options, struct stoker_error *error);
/* enum stk_tape_event; negative: the file cannot be read further, or it is ours. */
int stk_tape_next(struct stk_tape *tape, struct stoker_error *error);
/* The rest of the file, for its hash and the count. */
int stk_tape_drain(struct stk_tape *tape, struct stoker_error *error);
void stk_tape_stop(struct stk_tape *tape); /* zeroed is fine */

#endif
