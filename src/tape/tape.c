/* A tape of a shard: the file's blocks, unpacked; over damage it goes on where it can. */
#include "tape/places.h"

#include "base/mem.h"
#include "format/packer.h"
#include "format/tar.h"
#include "format/unpack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_BYTES = 512, ROOM_BYTES = 256 << 10, ENTRIES = 256, HEAD_BYTES = 16 };

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

    if (tape->unpack) {
        tape->streams_before = tape->streams;
        stk_unpack_close(tape->unpack);
        tape->unpack = NULL;
    }
    limits.bytes_max -= stk_min(limits.bytes_max - 1, done);
    return stk_unpack_open(&tape->unpack, tape->packing, &limits, error);
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
    return status < 0 ? status : stk_tape_prove_start(tape, error);
}

void stk_tape_stop(struct stk_tape *tape)
{
    stk_unpack_close(tape->unpack);
    stk_tape_prove_stop(tape);
    stk_free(tape->room);
    tape->unpack = NULL;
    tape->room = NULL;
    tape->ended = true;
}

/* The file's next block; empty at the end. */
static int read_block(struct stk_tape *tape, struct stk_view *block_out, struct stoker_error *error)
{
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
    if (tape->options.sha) {
        stk_sha256_add(tape->options.sha, block_out->data, block_out->bytes);
    }
    if (tape->options.counter) {
        atomic_fetch_add_explicit(tape->options.counter, block_out->bytes, memory_order_relaxed);
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
    if (tape->packed.bytes > 0) {
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

/* One run of the library into the room. */
static int run(struct stk_tape *tape, size_t *used, struct stoker_error *error)
{
    bool last = is_last(tape) && tape->behind.bytes == 0;
    size_t before = tape->packed.bytes, got = 0, left_out;
    int status;

    tape->more = stk_unpack_run(tape->unpack, &tape->packed, last, tape->room + *used,
                                ROOM_BYTES - *used, &got, &tape->failure);
    status = stk_tape_prove(tape, (struct stk_view){tape->room + *used, got}, error);
    tape->packed_at += before - tape->packed.bytes;
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
    return status;
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
}

static int go_on(struct stk_tape *tape, size_t *used, struct stoker_error *error)
{
    uint64_t end = tape->offset + *used, doubted = stk_unpack_doubted(tape->unpack);
    int number = tape->more, status = 0;
    bool proved = false;

    if (tape->proof.proving && number == STOKER_ERROR_CORRUPT) {
        doubted = stk_tape_unproved(tape); /* all before it is proved, and this is not */
        proved = doubted == 0;
        (void)stk_sum_done(tape->proof.sum);
    }
    tape->proof.proving = false; /* until a place to go on is known */
    *used = *used / BLOCK_BYTES * BLOCK_BYTES;
    if (!tape->gap_open) {
        tape->gap = (struct stk_gap){
            .from = tape->offset + *used, .found = tape->failure, .proved = proved};
        tape->gap.found.offset = tape->packed_at;
        tape->gap.doubted =
            stk_min(end - stk_min(doubted, end - stk_min(tape->floor, end)), tape->gap.from);
        tape->gap_open = true;
    }
    if (number == STOKER_ERROR_CORRUPT) {
        status = stk_tape_from_index(tape, error);
        status = status != 0 ? status : stk_tape_from_table(tape, error);
        status = status != 0 ? status : from_magic(tape, error);
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
