/* The seek table of zstd: compared with the frames as they end, and a place to go on where it was
 * true so far. */
#include "tools/recover/resume_points.h"

#include "format/compress/decompress.h"

#include <string.h>

static void lies(struct stk_tape *tape, uint64_t at, const char *what)
{
    if (!tape->lie.what) {
        tape->lie = (struct stk_table_lie){what, at};
    }
    tape->table.comparing = false;
}

static int64_t read_at(struct stk_tape *tape, uint64_t at, uint8_t *to, size_t bytes)
{
    return stk_io_read_wait(tape->reader->engine->io, tape->reader->file, at, to, bytes);
}

void stk_tape_ask_table(struct stk_tape *tape)
{
    uint8_t foot[STK_SEEKABLE_FOOT_BYTES], head[STK_SEEKABLE_HEAD_BYTES];
    uint64_t bytes = tape->reader->bytes;
    int status;

    if (tape->packing != STK_ZSTD || bytes < sizeof foot + sizeof head ||
        read_at(tape, bytes - sizeof foot, foot, sizeof foot) != (int64_t)sizeof foot) {
        return; /* what cannot be read is told where its bytes are read */
    }
    status =
        stk_seekable_foot((struct stk_view){foot, sizeof foot}, bytes, &tape->table.foot, NULL);
    if (status == 1 &&
        read_at(tape, tape->table.foot.at, head, sizeof head) != (int64_t)sizeof head) {
        tape->table.foot = (struct stk_seekable){0};
        return;
    }
    tape->table.comparing = status == 1 && stk_seekable_head_good(&tape->table.foot, head);
    if (status != 0 && !tape->table.comparing) {
        tape->table.foot = (struct stk_seekable){0};
        lies(tape, bytes - sizeof foot, "its foot does not fit the file");
    }
}

/* The next entry, which stays the next; NULL: there is none, or it cannot be read. */
static const uint8_t *peek(struct stk_tape *tape)
{
    const struct stk_seekable *foot = &tape->table.foot;
    uint64_t number = tape->table.next;

    if (number >= foot->frame_count) {
        return NULL;
    }
    if (number >= tape->table.first + tape->table.held) {
        size_t bytes =
            (size_t)stk_min(STK_TAPE_ENTRIES, foot->frame_count - number) * foot->entry_bytes;

        tape->table.first = number;
        tape->table.held = bytes / foot->entry_bytes;
        if (read_at(tape, stk_seekable_entry_at(foot, number), tape->table.chunk, bytes) !=
            (int64_t)bytes) {
            tape->table.foot.frame_count = 0; /* it is as if there were no table */
            tape->table.comparing = false;
            return NULL;
        }
    }
    return tape->table.chunk + (number - tape->table.first) * foot->entry_bytes;
}

static void take(struct stk_tape *tape, uint64_t packed_bytes, uint64_t bytes)
{
    tape->table.in += packed_bytes;
    tape->table.out += bytes;
    tape->table.next++;
}

/* The entry's checksum against the one frame that it is of: what it proves, or gives away. */
static uint32_t compare_sum(struct stk_tape *tape, const uint8_t *entry,
                            const struct stk_ended *ended)
{
    uint32_t sum =
        entry[8] | (uint32_t)entry[9] << 8 | (uint32_t)entry[10] << 16 | (uint32_t)entry[11] << 24;

    if (sum == ended->sum) {
        return ended->proof == STK_PROOF_WRONG  ? STK_PROOF_ODD
               : ended->proof == STK_PROOF_NONE ? STK_PROOF_RIGHT
                                                : ended->proof;
    }
    if (ended->proof == STK_PROOF_RIGHT) {
        lies(tape, stk_seekable_entry_at(&tape->table.foot, tape->table.next),
             "a checksum in it is not that of the frame, which has its own");
    }
    return ended->proof == STK_PROOF_NONE ? STK_PROOF_WRONG : ended->proof;
}

/* Entries up to where the frame ended: each ends where a frame does, and all unpacked bytes up to
 * there are told. One that spans several frames is true as well: reading may begin at it. */
uint32_t stk_tape_compare_table(struct stk_tape *tape, const struct stk_ended *ended, uint64_t out)
{
    uint64_t end = tape->packed_at, before = tape->table.frame_in;
    bool is_table = end > tape->table.foot.at;
    uint32_t proof = ended->proof;
    const uint8_t *entry;

    tape->table.frame_in = end;
    while (tape->table.comparing && (entry = peek(tape))) {
        uint64_t place = stk_seekable_entry_at(&tape->table.foot, tape->table.next);
        uint32_t packed_bytes, bytes;
        uint64_t to;

        stk_seekable_entry(entry, &packed_bytes, &bytes);
        to = tape->table.in + packed_bytes;
        if (to > end || (is_table && packed_bytes > 0)) {
            break; /* of several frames; or the table says more than there is: see below */
        }
        if (to < end && (to != before || bytes > 0)) {
            lies(tape, place, "no frame ends where it says");
        } else if (to == end && tape->table.out + bytes != out) {
            lies(tape, place, "a frame has not so many bytes as it says");
        } else if (to == end && tape->table.in == before && tape->table.foot.entry_bytes == 12) {
            proof = compare_sum(tape, entry, ended);
        }
        take(tape, packed_bytes, bytes);
    }
    if (tape->table.comparing && is_table &&
        (tape->table.in != tape->table.foot.at ||
         tape->table.next != tape->table.foot.frame_count)) {
        lies(tape, tape->table.foot.at, "its frames are not all that there are");
    }
    tape->table.comparing = tape->table.comparing && !is_table;
    return proof;
}

int stk_tape_from_table(struct stk_tape *tape, struct stoker_error *error)
{
    uint64_t from = stk_max(tape->packed_at, tape->tried_at);
    const uint8_t *entry;
    int status;

    /* Each entry once, over all damage: places only go forward. */
    while (tape->table.in < from && (entry = peek(tape))) {
        uint32_t packed_bytes, bytes;

        stk_seekable_entry(entry, &packed_bytes, &bytes);
        take(tape, packed_bytes, bytes);
    }
    if (tape->lie.what || tape->table.next >= tape->table.foot.frame_count ||
        tape->table.in < from || tape->table.in >= tape->table.foot.at) {
        return 0;
    }
    status = stk_tape_wind(tape, tape->table.in, error);
    status = status < 0 ? status : stk_tape_reopen(tape, tape->bytes, error);
    if (status < 0) {
        return status;
    }
    stk_tape_begin_exact(tape, tape->table.in, tape->table.out);
    tape->table.frame_in = tape->table.in;
    tape->table.comparing = tape->gap.exact && !tape->inexact;
    return 1;
}
