/* A tape of a shard: the file's blocks, unpacked; over damage it goes on where it can. */
#include "tools/recover/resume_points.h"

#include "base/mem.h"
#include "format/compress/compress.h"
#include "format/compress/decompress.h"
#include "format/tar/tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_BYTES = 512, ROOM_BYTES = 256 << 10 };
/* A block of zstd unpacks to so many at most (RFC 8878, 3.1.1.2.4), and shows damage that began in
 * the one before it. */
#define ZSTD_BLOCK_BYTES UINT64_C(131072)
#define RATIO_FREE_BYTES (UINT64_C(1) << 20) /* as of decompress.c */

static int read_block(struct stk_tape *tape, struct stk_view *block_out,
                      struct stoker_error *error);
static int fill(struct stk_tape *tape, struct stoker_error *error);
static void end_gap(struct stk_tape *tape, uint64_t to, bool exact);
static int go_on(struct stk_tape *tape, size_t *used, struct stoker_error *error);
static int from_magic(struct stk_tape *tape, struct stoker_error *error);

int stk_tape_no_memory(struct stoker_error *error)
{
    return stk_fail(error, -ENOMEM, "cannot unpack a shard", "free memory", "%d bytes", ROOM_BYTES);
}

int stk_tape_reopen(struct stk_tape *tape, uint64_t done, struct stoker_error *error)
{
    struct stk_unpack_limits limits = {.bytes_max = tape->options.unpacked_bytes_max,
                                       .ratio_max = tape->options.unpacked_ratio_max,
                                       .grant = stk_engine_grant(tape->reader->engine)};
    int status;

    if (tape->unpack) {
        tape->streams_before = tape->streams;
        stk_unpack_close(tape->unpack);
        tape->unpack = NULL;
    }
    if (tape->blocks) {
        limits.ratio_max = UINT32_MAX; /* of all blocks, see run */
    }
    limits.bytes_max -= stk_min(limits.bytes_max - 1, done);
    tape->opened_at = tape->packed_at;
    status = stk_unpack_open(&tape->unpack, tape->packing, &limits, error);
    if (status == 0) {
        stk_unpack_by_stream(tape->unpack);
    }
    return status;
}

int stk_tape_start(struct stk_tape *tape, struct stk_reader *reader,
                   const struct stk_tape_options *options, struct stoker_error *error)
{
    *tape = (struct stk_tape){.options = *options, .reader = reader};
    return read_block(tape, &tape->packed, error);
}

/* Looks at the first block: how is it packed? */
static int begin(struct stk_tape *tape, struct stoker_error *error)
{
    int status;

    tape->packing = stk_packing_of(tape->packed);
    if (tape->packing == STK_PLAIN) {
        return 0;
    }
    tape->level = stk_packer_level(tape->packing, tape->packed);
    tape->room = stk_alloc(ROOM_BYTES, 1);
    tape->more = 1;
    if (!tape->room) {
        return stk_tape_no_memory(error);
    }
    status = stk_tape_reopen(tape, 0, error);
    stk_tape_ask_table(tape);
    return status < 0 ? status : stk_tape_prove_start(tape, error);
}

void stk_tape_stop(struct stk_tape *tape)
{
    stk_unpack_close(tape->unpack);
    stk_tape_prove_stop(tape);
    stk_blocks_close(tape->blocks);
    stk_free(tape->room);
    tape->blocks = NULL;
    tape->unpack = NULL;
    tape->room = NULL;
    tape->ended = true;
}

/* The file's next block; empty at the end. */
static int read_block(struct stk_tape *tape, struct stk_view *block_out, struct stoker_error *error)
{
    struct stk_view first;
    size_t again;
    int status;

    *block_out = (struct stk_view){0};
    tape->stopped =
        tape->stopped ||
        (tape->options.stop && atomic_load_explicit(tape->options.stop, memory_order_relaxed));
    if (tape->stopped) {
        return 0;
    }
    status = stk_reader_next(tape->reader, block_out, error);
    if (status < 0) {
        *block_out = (struct stk_view){0};
        return status;
    }
    first = *block_out; /* read for the first time: what is not before read_to */
    again = stk_min(first.bytes,
                    tape->read_to - stk_min(tape->read_to, tape->reader->offset - first.bytes));
    first.data += again;
    first.bytes -= again;
    tape->read_to = stk_max(tape->read_to, tape->reader->offset);
    if (tape->options.sha) {
        stk_sha256_add(tape->options.sha, first.data, first.bytes);
    }
    if (tape->options.counter) {
        atomic_fetch_add_explicit(tape->options.counter, first.bytes, memory_order_relaxed);
    }
    return 0;
}

int stk_tape_drain(struct stk_tape *tape, struct stoker_error *error)
{
    struct stk_view block = {NULL, 1};
    int status = 0;

    while (status == 0 && block.bytes > 0) {
        status = read_block(tape, &block, error);
    }
    return status;
}

int stk_tape_next(struct stk_tape *tape, struct stoker_error *error)
{
    int status = 0;

    tape->offset += tape->piece.bytes;
    tape->piece = (struct stk_view){0};
    if (!tape->ended && tape->packing == STK_PLAIN && tape->packed_at == 0) {
        status = begin(tape, error);
    }
    if (status < 0) {
        return status;
    }
    if (tape->packing == STK_PLAIN && !tape->ended) {
        tape->piece = tape->packed;
        tape->packed = (struct stk_view){0};
        if (tape->packed_at > 0) {
            status = read_block(tape, &tape->piece, error);
        }
        tape->packed_at += tape->piece.bytes;
    }
    while (status == 0 && tape->packing != STK_PLAIN && tape->piece.bytes == 0 && !tape->ended &&
           !tape->gap_ready) {
        status = fill(tape, error);
    }
    if (status < 0) {
        return status;
    }
    if (tape->piece.bytes > 0) {
        return STK_TAPE_PIECE;
    }
    if (tape->gap_ready) {
        tape->gap_ready = false;
        if (tape->gap.to == UINT64_MAX) {
            tape->ended = true;
        } else {
            tape->offset = tape->gap.to;
        }
        return STK_TAPE_GAP;
    }
    tape->ended = true;
    return STK_TAPE_END;
}

/* ---- unpacking -------------------------------------------------------------------------- */

static bool is_last(const struct stk_tape *tape)
{
    return tape->stopped || tape->reader->offset >= tape->reader->bytes;
}

/* Something to unpack, if there is anything left. */
static int refill(struct stk_tape *tape, struct stoker_error *error)
{
    if (tape->packed.bytes > 0 || tape->blocks) {
        return 0;
    }
    tape->packed = tape->behind;
    tape->behind = (struct stk_view){0};
    return tape->packed.bytes > 0 || is_last(tape) ? 0 : read_block(tape, &tape->packed, error);
}

static void drop_packed(struct stk_tape *tape, size_t bytes)
{
    tape->packed.data += bytes;
    tape->packed.bytes -= bytes;
    tape->packed_at += bytes;
}

/* The first tar header in the room, at any byte: behind a gap nobody knows where blocks begin. What
 * is before it is left out; without one all but what may be the begin of one. */
static size_t align(struct stk_tape *tape, size_t used)
{
    size_t at = 0;

    while (at + BLOCK_BYTES <= used && !stk_tar_is_header(tape->room + at)) {
        at++;
    }
    if (at + BLOCK_BYTES <= used) {
        end_gap(tape, tape->gap.from, false);
    }
    if (at > 0 && used > at) {
        memmove(tape->room, tape->room + at, used - at);
    }
    return used - at;
}

int stk_tape_next_block(struct stk_tape *tape, struct stoker_error *error)
{
    int status = 0;

    tape->packed = (struct stk_view){0};
    while (!stk_blocks_run(tape->blocks, &tape->raw, &tape->packed, &tape->packed_at)) {
        if (is_last(tape)) {
            return 0;
        }
        status = read_block(tape, &tape->raw, error);
        if (status < 0) {
            return status;
        }
    }
    status = stk_tape_reopen(tape, tape->bytes, error);
    tape->more = 1;
    return status < 0 ? status : 1;
}

/* A block of bzip2 is over: the next one follows it without a gap, if it is whole. */
static int after_block(struct stk_tape *tape, struct stoker_error *error)
{
    int status = 0;

    if (tape->more == 0) {
        status = stk_tape_next_block(tape, error);
    } else if (tape->more == STOKER_ERROR_TRUNCATED) { /* what follows it is another block */
        tape->more = tape->failure.status = STOKER_ERROR_CORRUPT;
    }
    if (tape->bytes > RATIO_FREE_BYTES &&
        tape->bytes / tape->options.unpacked_ratio_max > tape->reader->bytes) {
        tape->more = stk_fail(&tape->failure, STOKER_ERROR_LIMIT, "cannot unpack the shard",
                              "raise the limit if you trust the shard, or store it unpacked",
                              "bzip2: it unpacks to more than unpacked_ratio_max times its size");
    }
    return status < 0 ? status : 0;
}

/* One run of the library into the room. */
static int run(struct stk_tape *tape, size_t *used, struct stoker_error *error)
{
    bool last = tape->blocks || (is_last(tape) && tape->behind.bytes == 0);
    size_t before = tape->packed.bytes, got = 0, left_out;
    struct stk_ended ended;
    int status;

    tape->more = stk_unpack_run(tape->unpack, &tape->packed, last, tape->room + *used,
                                ROOM_BYTES - *used, &got, &tape->failure);
    status = stk_tape_prove(tape, (struct stk_view){tape->room + *used, got}, error);
    tape->packed_at += tape->blocks ? 0 : before - tape->packed.bytes;
    tape->bytes += got;
    tape->streams = tape->streams_before + stk_unpack_streams(tape->unpack);
    tape->unsummed |= !stk_unpack_is_summed(tape->unpack);
    left_out = stk_min(tape->skip, got);
    tape->skip -= left_out;
    if (left_out > 0 && got > left_out) {
        memmove(tape->room + *used, tape->room + *used + left_out, got - left_out);
    }
    *used += got - left_out;
    if (tape->aligning) {
        *used = align(tape, *used);
    }
    if (status == 0 && stk_unpack_ended(tape->unpack, &ended)) {
        status = stk_tape_ended(tape, &ended, tape->offset + *used + tape->skip, error);
        if (tape->misplaced) { /* what follows may lie elsewhere */
            tape->more = stk_fail(&tape->failure, STOKER_ERROR_CORRUPT, "cannot unpack the shard",
                                  "copy the shard again or leave it out",
                                  "%s: a checksum is wrong, and where its data ends is not certain",
                                  stk_packing_name(tape->packing));
        }
    }
    return status == 0 && tape->blocks ? after_block(tape, error) : status;
}

/* The next piece into the room, so that only the last one is not whole blocks; or a gap. */
static int fill(struct stk_tape *tape, struct stoker_error *error)
{
    size_t used = tape->held;
    int status = 0;

    tape->held = 0;
    while (tape->more == 1 && used < ROOM_BYTES && !tape->stopped) {
        status = refill(tape, error);
        status = status < 0 ? status : run(tape, &used, error);
        if (status < 0) {
            return status;
        }
        if (tape->gap_ready) { /* the gap first, then what follows it */
            tape->held = used;
            return 0;
        }
    }
    if (tape->more == -ENOMEM || tape->more == STOKER_ERROR_BUDGET) {
        *error = tape->failure;
        return tape->more;
    }
    if (tape->more < 0) {
        status = go_on(tape, &used, error);
    } else if (tape->more == 0 && tape->gap_open) { /* no header came any more */
        end_gap(tape, UINT64_MAX, false);
        used = 0;
    }
    tape->ended = tape->ended || tape->more == 0 || tape->stopped;
    tape->piece = (struct stk_view){tape->room, used};
    return status;
}

/* ---- over damage ------------------------------------------------------------------------ */

/* What is known of the gap's end. */
static void end_gap(struct stk_tape *tape, uint64_t to, bool exact)
{
    struct stk_gap *gap = &tape->gap;
    char text[96] = ", and what is up to the next place to begin is lost";

    gap->to = to;
    gap->exact = exact;
    tape->inexact = tape->inexact || !exact;
    tape->gap_open = tape->aligning = false;
    tape->gap_ready = true;
    tape->floor = to;
    if (to == UINT64_MAX) {
        snprintf(text, sizeof text, ", and the rest is lost");
    } else if (exact) {
        snprintf(text, sizeof text, ", and %llu bytes are lost with it",
                 (unsigned long long)(to - gap->from));
    }
    if (gap->doubted < gap->from) {
        snprintf(text, sizeof text, ", and %llu bytes of the tar have nothing else to prove them",
                 (unsigned long long)(gap->from - gap->doubted));
    }
    strncat(gap->found.what, text, sizeof gap->found.what - strlen(gap->found.what) - 1);
    if (gap->sure < gap->doubted) {
        snprintf(text, sizeof text, "; no checksum proves the %llu bytes before",
                 (unsigned long long)(gap->doubted - gap->sure));
        strncat(gap->found.what, text, sizeof gap->found.what - strlen(gap->found.what) - 1);
    }
}

/* What is known of the bytes before the damage: the gap's `sure` and `doubted`. end: of all that
 * was unpacked; summed: sums of the index were compared up to here. */
static void open_gap(struct stk_tape *tape, uint64_t from, uint64_t end, bool summed)
{
    uint64_t given = end - stk_min(tape->floor, end); /* since the last gap */
    uint64_t doubted = stk_unpack_doubted(tape->unpack), unsure;
    struct stk_ended now;

    (void)stk_unpack_ended(tape->unpack, &now);
    doubted = tape->misplaced ? now.bytes : doubted;
    unsure = tape->packing == STK_BZIP2 ? doubted : now.bytes; /* each of its blocks has a CRC */
    if (summed) { /* all before the last point is proved, and what is behind it is not */
        doubted = unsure = stk_tape_unproved(tape);
    } else if (tape->packing == STK_ZSTD && tape->more == STOKER_ERROR_CORRUPT && doubted == 0) {
        doubted = stk_min(ZSTD_BLOCK_BYTES, now.bytes);
    }
    tape->gap =
        (struct stk_gap){.from = from, .found = tape->failure, .proved = summed && doubted == 0};
    tape->gap.found.offset = tape->packed_at;
    tape->gap.doubted = stk_min(end - stk_min(doubted, given), from);
    tape->gap.sure = stk_min(end - stk_min(unsure, given), tape->gap.doubted);
    tape->gap_open = true;
}

static int go_on(struct stk_tape *tape, size_t *used, struct stoker_error *error)
{
    bool summed = tape->proof.proving && tape->more == STOKER_ERROR_CORRUPT;
    uint64_t end = tape->offset + *used;
    int number = tape->more, status = 0;

    *used = *used / BLOCK_BYTES * BLOCK_BYTES;
    if (!tape->gap_open) {
        open_gap(tape, tape->offset + *used, end, summed);
    }
    if (summed) {
        (void)stk_sum_done(tape->proof.sum);
    }
    tape->proof.proving = false; /* until a place to go on is known, as for the seek table */
    tape->table.comparing = tape->misplaced = false;
    if (number == STOKER_ERROR_CORRUPT) {
        status = stk_tape_from_index(tape, error);
        status = status != 0 ? status : stk_tape_from_table(tape, error);
        status = status != 0 ? status : stk_tape_from_blocks(tape, error);
        status = status != 0 || tape->packing == STK_BZIP2 ? status : from_magic(tape, error);
    }
    if (status == 0) {
        tape->more = 0;
        end_gap(tape, UINT64_MAX, false);
    }
    return status < 0 ? status : 0;
}

int stk_tape_wind(struct stk_tape *tape, uint64_t to, struct stoker_error *error)
{
    int status = 0;

    while (status == 0 && tape->packed_at < to) {
        status = refill(tape, error);
        if (status < 0 || tape->packed.bytes == 0) {
            break;
        }
        drop_packed(tape, stk_min(tape->packed.bytes, to - tape->packed_at));
    }
    return status;
}

void stk_tape_begin_exact(struct stk_tape *tape, uint64_t in, uint64_t out)
{
    uint64_t to = stk_round_up(out, BLOCK_BYTES);

    tape->tried_at = in + 1;
    tape->skip = to - out;
    tape->more = 1;
    /* Damage may have unpacked to more than was there. */
    end_gap(tape, stk_max(to, tape->gap.from), to >= tape->gap.from);
}

/* Whether a stream may begin at these bytes. Skippable frames of zstd are no hold. */
static bool is_begin(const struct stk_tape *tape, const uint8_t look[STK_TAPE_LOOK])
{
    return stk_packing_of((struct stk_view){look, STK_TAPE_LOOK}) == tape->packing &&
           (tape->packing != STK_ZSTD || look[0] == 0x28);
}

/* So that a look lies in `packed` and `behind`, where the file has that much. */
static int look_ahead(struct stk_tape *tape, struct stoker_error *error)
{
    int status = refill(tape, error);

    if (status < 0 || tape->packed.bytes >= STK_TAPE_LOOK || tape->behind.bytes > 0 ||
        is_last(tape)) {
        return status;
    }
    memmove(tape->carry, tape->packed.data, tape->packed.bytes);
    tape->packed.data = tape->carry;
    return read_block(tape, &tape->behind, error);
}

/* 1: at a place where a stream may begin; 0: there is none. */
static int search(struct stk_tape *tape, struct stoker_error *error)
{
    for (;;) {
        int status = look_ahead(tape, error);
        size_t count = tape->packed.bytes, at = 0;

        if (status < 0 || count + tape->behind.bytes < STK_TAPE_LOOK) {
            return status;
        }
        count = tape->behind.bytes >= STK_TAPE_LOOK - 1 ? count
                : count >= STK_TAPE_LOOK                ? count - STK_TAPE_LOOK + 1
                                                        : 1;
        for (; at < count; at++) {
            uint8_t look[STK_TAPE_LOOK];

            for (size_t i = 0; i < sizeof look; i++) {
                look[i] = at + i < tape->packed.bytes
                              ? tape->packed.data[at + i]
                              : tape->behind.data[at + i - tape->packed.bytes];
            }
            if (is_begin(tape, look)) {
                break;
            }
        }
        drop_packed(tape, at);
        if (at < count) {
            return 1;
        }
    }
}

/* 1: it goes on where a stream may begin; what it holds is used from the first tar header on. */
static int from_magic(struct stk_tape *tape, struct stoker_error *error)
{
    int status = stk_tape_wind(tape, tape->tried_at, error);

    if (tape->tries++ >= STK_TAPE_TRIES_MAX) {
        return 0;
    }
    status = status < 0 ? status : search(tape, error);
    if (status <= 0) {
        return status;
    }
    tape->tried_at = tape->packed_at + 1;
    status = stk_tape_reopen(tape, tape->bytes, error);
    tape->aligning = true;
    tape->skip = 0;
    tape->more = 1;
    return status < 0 ? status : 1;
}
