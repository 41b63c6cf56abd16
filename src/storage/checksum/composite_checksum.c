/* In order: the part at hand, and the sum of those before it. */
#include "storage/checksum/composite_checksum.h"

#include "base/crc.h"
#include "base/mem.h"

#include <string.h>

#define SUM_BYTES 32u

struct stk_whole {
    struct stk_seal want;
    uint64_t bytes, done; /* of the object; of them have come */
    int (*ask)(void *owner, uint32_t number, struct stk_whole_part *part);
    void *owner;
    uint32_t count, number; /* parts; the one at hand, from 1; 0: none yet */
    uint64_t begin, end;    /* of the one at hand */
    uint64_t step;          /* parts seem to be as large; 0: each is asked for */
    bool lost;              /* it is not known where they end */
    bool second;            /* pass */
    struct stk_seal_sum part, parts;
    struct stk_seal part_told, last; /* of the part at hand; of the one before it, as it came */
    struct stk_whole_told wrong;
    uint64_t crc, first_crc; /* CRC64 of what came in this pass, in the first */
    uint8_t *sums;           /* SUM_BYTES a part; owned */
};

static void begin_parts(struct stk_whole *whole);

struct stk_whole *
stk_whole_new(const struct stk_seal *want, uint64_t bytes,
              int (*ask)(void *owner, uint32_t number, struct stk_whole_part *part), void *owner)
{
    struct stk_whole *whole = stk_alloc(1, sizeof *whole);

    if (!whole) {
        return NULL;
    }
    *whole =
        (struct stk_whole){.want = *want,
                           .bytes = bytes,
                           .ask = ask,
                           .owner = owner,
                           .count = stk_max(want->parts, 1),
                           .lost = want->kind == STK_SEAL_NONE || want->kind >= STK_SEAL_KINDS ||
                                   want->parts > STK_WHOLE_PARTS_MAX};
    whole->sums = whole->lost ? NULL : stk_alloc(whole->count, SUM_BYTES);
    if (!whole->lost && !whole->sums) {
        stk_free(whole);
        return NULL;
    }
    if (!whole->lost) {
        begin_parts(whole);
    }
    return whole;
}

void stk_whole_free(struct stk_whole *whole)
{
    if (whole) {
        stk_free(whole->sums);
        stk_free(whole);
    }
}

/* Whether the parts may all be as large as the first, but the last. */
static bool is_even(const struct stk_whole *whole, uint64_t step)
{
    uint64_t before, all;

    return step > 0 && stk_multiply(step, whole->count - 1, &before) &&
           stk_multiply(step, whole->count, &all) && before < whole->bytes && whole->bytes <= all;
}

/* Whether a part can be so large at its place. Only the last may be empty. */
static bool fits(const struct stk_whole *whole, const struct stk_whole_part *told)
{
    uint64_t left = whole->bytes - whole->done, parts_left = whole->count - whole->number;

    return (told->offset == UINT64_MAX || told->offset == whole->done) && told->bytes <= left &&
           (parts_left > 0 ? told->bytes > 0 : told->bytes == left) &&
           (parts_left <= 1 || told->bytes < left);
}

/* Of the part at hand; or it is lost. */
static int find_end(struct stk_whole *whole)
{
    struct stk_whole_part told = {.offset = UINT64_MAX};
    int status;

    if (whole->count == 1) {
        whole->end = whole->bytes;
        return 0;
    }
    if (whole->step > 0) {
        whole->end = stk_min(whole->number * whole->step, whole->bytes);
        return 0;
    }
    status = whole->ask(whole->owner, whole->number, &told);
    whole->lost = status < 0 || !fits(whole, &told);
    if (whole->lost) {
        return status == STOKER_ERROR_UNSUPPORTED ? 0 : status;
    }
    whole->part_told = told.seal;
    whole->end = whole->done + told.bytes;
    if (whole->number == 1 && !whole->second && is_even(whole, told.bytes)) {
        whole->step = told.bytes;
    }
    return 0;
}

static int begin_part(struct stk_whole *whole)
{
    int status;

    if (whole->number == whole->count) {
        whole->lost = true;
        return 0;
    }
    whole->number++;
    whole->begin = whole->done;
    whole->part_told = (struct stk_seal){.kind = STK_SEAL_NONE};
    status = find_end(whole);
    if (!whole->lost) {
        stk_seal_begin(&whole->part, whole->want.kind, whole->end - whole->begin);
    }
    return status;
}

static void begin_parts(struct stk_whole *whole)
{
    stk_seal_begin(&whole->parts, whole->want.kind,
                   (uint64_t)whole->count * stk_seal_bytes(whole->want.kind));
}

/* A server's word on one part is looked at only where the whole is wrong: to find which it is. */
static bool is_odd(const struct stk_seal *told, const struct stk_seal *came)
{
    return told->kind == came->kind && told->parts == 0 && !stk_seal_is(told, came);
}

static void note_wrong(struct stk_whole *whole, uint32_t part, uint64_t first, uint64_t end,
                       const struct stk_seal *want, const struct stk_seal *got)
{
    if (whole->wrong.part == 0) {
        whole->wrong = (struct stk_whole_told){.part = part,
                                               .first = first,
                                               .last = end > first ? end - 1 : first,
                                               .want = *want,
                                               .got = *got};
        whole->wrong.got.hex = want->hex;
    }
}

static void end_part(struct stk_whole *whole)
{
    whole->last = stk_seal_end(&whole->part);
    memcpy(whole->sums + (uint64_t)(whole->number - 1) * SUM_BYTES, whole->last.sum, SUM_BYTES);
    stk_seal_add(&whole->parts,
                 (struct stk_view){whole->last.sum, stk_seal_bytes(whole->want.kind)});
    if (is_odd(&whole->part_told, &whole->last)) {
        note_wrong(whole, whole->number, whole->begin, whole->end, &whole->part_told, &whole->last);
    }
}

int stk_whole_add(struct stk_whole *whole, struct stk_view bytes)
{
    int status = 0;

    while (bytes.bytes > 0 && !whole->lost && status == 0) {
        struct stk_view piece = bytes;

        STK_ASSERT(bytes.bytes <= whole->bytes - whole->done); /* the caller's */
        if (whole->number == 0 || whole->done == whole->end) {
            status = begin_part(whole);
            continue;
        }
        piece.bytes = stk_min(bytes.bytes, whole->end - whole->done);
        stk_seal_add(&whole->part, piece);
        if (whole->count > 1) {
            whole->crc = stk_crc64(whole->crc, piece.data, piece.bytes);
        }
        whole->done += piece.bytes;
        bytes.data += piece.bytes;
        bytes.bytes -= piece.bytes;
        if (whole->done == whole->end) {
            end_part(whole);
        }
    }
    return status;
}

/* The sums differ: are the parts as they seemed to be? */
static int look_at_parts(struct stk_whole *whole)
{
    for (uint32_t i = 0; i < whole->count; i++) {
        uint64_t begin = i * whole->step, bytes = stk_min(whole->step, whole->bytes - begin);
        struct stk_whole_part told = {.offset = UINT64_MAX};
        struct stk_seal came = {.kind = whole->want.kind};
        int status = whole->ask(whole->owner, i + 1, &told);

        if (status < 0) {
            return status == STOKER_ERROR_UNSUPPORTED ? STK_WHOLE_WRONG : status;
        }
        if (told.bytes != bytes || (told.offset != UINT64_MAX && told.offset != begin)) {
            whole->first_crc = whole->crc;
            whole->crc = whole->done = whole->end = whole->step = 0;
            whole->number = 0;
            whole->second = true;
            begin_parts(whole);
            return STK_WHOLE_AGAIN;
        }
        memcpy(came.sum, whole->sums + (uint64_t)i * SUM_BYTES, SUM_BYTES);
        if (is_odd(&told.seal, &came)) {
            note_wrong(whole, i + 1, begin, begin + bytes, &told.seal, &came);
            break;
        }
    }
    return STK_WHOLE_WRONG;
}

int stk_whole_judge(struct stk_whole *whole)
{
    struct stk_seal got, crcs[2] = {{.kind = STK_SEAL_CRC64}, {.kind = STK_SEAL_CRC64}};
    int verdict = STK_WHOLE_WRONG;

    if (!whole->lost && whole->done == whole->bytes && whole->number + 1 == whole->count) {
        int status = begin_part(whole); /* the last one is empty */

        if (status < 0) {
            return status;
        }
        if (!whole->lost) {
            end_part(whole);
        }
    }
    if (whole->lost || whole->done != whole->bytes || whole->number != whole->count) {
        return STK_WHOLE_UNKNOWN;
    }
    got = whole->want.parts > 0 ? stk_seal_end(&whole->parts) : whole->last;
    got.parts = whole->want.parts;
    if (!stk_seal_is(&got, &whole->want)) {
        verdict = whole->step > 0 ? look_at_parts(whole) : STK_WHOLE_WRONG;
        if (verdict == STK_WHOLE_WRONG) {
            note_wrong(whole, 0, 0, whole->bytes, &whole->want, &got);
        }
        return verdict;
    }
    if (whole->second && whole->crc != whole->first_crc) { /* what came at first was damaged */
        for (uint32_t i = 0; i < 8; i++) {
            crcs[0].sum[i] = (uint8_t)(whole->crc >> (56 - 8 * i));
            crcs[1].sum[i] = (uint8_t)(whole->first_crc >> (56 - 8 * i));
        }
        note_wrong(whole, 0, 0, whole->bytes, &crcs[0], &crcs[1]);
        return STK_WHOLE_WRONG;
    }
    return STK_WHOLE_PROVEN;
}

void stk_whole_tell(const struct stk_whole *whole, struct stk_whole_told *told)
{
    *told = whole->wrong;
}
