/* Sums bytes in order: the current part, and the checksums of the parts before it. */
#include "storage/checksum/composite_checksum.h"

#include "base/crc.h"
#include "base/mem.h"

#include <string.h>

#define SUM_BYTES 32u

struct stk_composite_checksum {
    struct stk_checksum want;
    uint64_t bytes, done; /* of the object; bytes received so far */
    int (*ask)(void *owner, uint32_t number, struct stk_composite_checksum_part *part);
    void *owner;
    uint32_t count, number; /* parts; the one at hand, from 1; 0: none yet */
    uint64_t begin, end;    /* of the current part */
    uint64_t step;          /* assumed size of parts; 0: ask reads each */
    bool lost;              /* the ends of parts are unknown */
    bool second;            /* pass */
    struct stk_checksum_state part, parts;
    struct stk_checksum part_told, last; /* current; previous, as received */
    struct stk_composite_checksum_mismatch wrong;
    uint64_t crc, first_crc; /* CRC64 of the bytes of this pass, in the first pass */
    uint8_t *sums;           /* SUM_BYTES a part; owned */
};

static void begin_parts(struct stk_composite_checksum *whole);

struct stk_composite_checksum *stk_composite_checksum_new(
    const struct stk_checksum *want, uint64_t bytes,
    int (*ask)(void *owner, uint32_t number, struct stk_composite_checksum_part *part), void *owner)
{
    struct stk_composite_checksum *whole = stk_alloc(1, sizeof *whole);

    if (!whole) {
        return NULL;
    }
    *whole = (struct stk_composite_checksum){
        .want = *want,
        .bytes = bytes,
        .ask = ask,
        .owner = owner,
        .count = stk_max(want->parts, 1),
        .lost = want->kind == STK_CHECKSUM_NONE || want->kind >= STK_CHECKSUM_KINDS ||
                want->parts > STK_COMPOSITE_CHECKSUM_PARTS_MAX};
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

void stk_composite_checksum_free(struct stk_composite_checksum *whole)
{
    if (whole) {
        stk_free(whole->sums);
        stk_free(whole);
    }
}

/* Returns whether all parts except the last may have the size of the first part. */
static bool are_equal_parts(const struct stk_composite_checksum *whole, uint64_t step)
{
    uint64_t before, all;

    return step > 0 && stk_multiply(step, whole->count - 1, &before) &&
           stk_multiply(step, whole->count, &all) && before < whole->bytes && whole->bytes <= all;
}

/* Returns whether a part can have this size at its position. Only the last may be empty. */
static bool part_fits(const struct stk_composite_checksum *whole,
                      const struct stk_composite_checksum_part *part_info)
{
    uint64_t left = whole->bytes - whole->done, parts_left = whole->count - whole->number;

    return (part_info->offset == UINT64_MAX || part_info->offset == whole->done) &&
           part_info->bytes <= left &&
           (parts_left > 0 ? part_info->bytes > 0 : part_info->bytes == left) &&
           (parts_left <= 1 || part_info->bytes < left);
}

/* Finds the end of the current part, or sets `lost`. */
static int find_end(struct stk_composite_checksum *whole)
{
    struct stk_composite_checksum_part part_info = {.offset = UINT64_MAX};
    int status;

    if (whole->count == 1) {
        whole->end = whole->bytes;
        return 0;
    }
    if (whole->step > 0) {
        whole->end = stk_min(whole->number * whole->step, whole->bytes);
        return 0;
    }
    status = whole->ask(whole->owner, whole->number, &part_info);
    whole->lost = status < 0 || !part_fits(whole, &part_info);
    if (whole->lost) {
        return status == STOKER_ERROR_UNSUPPORTED ? 0 : status;
    }
    whole->part_told = part_info.seal;
    whole->end = whole->done + part_info.bytes;
    if (whole->number == 1 && !whole->second && are_equal_parts(whole, part_info.bytes)) {
        whole->step = part_info.bytes;
    }
    return 0;
}

static int begin_part(struct stk_composite_checksum *whole)
{
    int status;

    if (whole->number == whole->count) {
        whole->lost = true;
        return 0;
    }
    whole->number++;
    whole->begin = whole->done;
    whole->part_told = (struct stk_checksum){.kind = STK_CHECKSUM_NONE};
    status = find_end(whole);
    if (!whole->lost) {
        stk_checksum_begin(&whole->part, whole->want.kind, whole->end - whole->begin);
    }
    return status;
}

static void begin_parts(struct stk_composite_checksum *whole)
{
    stk_checksum_begin(&whole->parts, whole->want.kind,
                       (uint64_t)whole->count * stk_checksum_bytes(whole->want.kind));
}

/* Compares a part with the server's checksum only if the complete object differs, to find the
 * damaged part. */
static bool differs(const struct stk_checksum *part_info, const struct stk_checksum *came)
{
    return part_info->kind == came->kind && part_info->parts == 0 &&
           !stk_checksum_equal(part_info, came);
}

static void set_mismatch(struct stk_composite_checksum *whole, uint32_t part, uint64_t first,
                         uint64_t end, const struct stk_checksum *want,
                         const struct stk_checksum *got)
{
    if (whole->wrong.part == 0) {
        whole->wrong =
            (struct stk_composite_checksum_mismatch){.part = part,
                                                     .first = first,
                                                     .last = end > first ? end - 1 : first,
                                                     .want = *want,
                                                     .got = *got};
        whole->wrong.got.hex = want->hex;
    }
}

static void end_part(struct stk_composite_checksum *whole)
{
    whole->last = stk_checksum_end(&whole->part);
    memcpy(whole->sums + (uint64_t)(whole->number - 1) * SUM_BYTES, whole->last.sum, SUM_BYTES);
    stk_checksum_add(&whole->parts,
                     (struct stk_view){whole->last.sum, stk_checksum_bytes(whole->want.kind)});
    if (differs(&whole->part_told, &whole->last)) {
        set_mismatch(whole, whole->number, whole->begin, whole->end, &whole->part_told,
                     &whole->last);
    }
}

int stk_composite_checksum_add(struct stk_composite_checksum *whole, struct stk_view bytes)
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
        stk_checksum_add(&whole->part, piece);
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

/* The checksums differ: checks whether the parts have the assumed sizes. */
static int check_parts(struct stk_composite_checksum *whole)
{
    for (uint32_t i = 0; i < whole->count; i++) {
        uint64_t begin = i * whole->step, bytes = stk_min(whole->step, whole->bytes - begin);
        struct stk_composite_checksum_part part_info = {.offset = UINT64_MAX};
        struct stk_checksum came = {.kind = whole->want.kind};
        int status = whole->ask(whole->owner, i + 1, &part_info);

        if (status < 0) {
            return status == STOKER_ERROR_UNSUPPORTED ? STK_COMPOSITE_CHECKSUM_MISMATCH : status;
        }
        if (part_info.bytes != bytes ||
            (part_info.offset != UINT64_MAX && part_info.offset != begin)) {
            whole->first_crc = whole->crc;
            whole->crc = whole->done = whole->end = whole->step = 0;
            whole->number = 0;
            whole->second = true;
            begin_parts(whole);
            return STK_COMPOSITE_CHECKSUM_RESTART;
        }
        memcpy(came.sum, whole->sums + (uint64_t)i * SUM_BYTES, SUM_BYTES);
        if (differs(&part_info.seal, &came)) {
            set_mismatch(whole, i + 1, begin, begin + bytes, &part_info.seal, &came);
            break;
        }
    }
    return STK_COMPOSITE_CHECKSUM_MISMATCH;
}

int stk_composite_checksum_verify(struct stk_composite_checksum *whole)
{
    struct stk_checksum got, crcs[2] = {{.kind = STK_CHECKSUM_CRC64}, {.kind = STK_CHECKSUM_CRC64}};
    int verdict = STK_COMPOSITE_CHECKSUM_MISMATCH;

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
        return STK_COMPOSITE_CHECKSUM_UNKNOWN;
    }
    got = whole->want.parts > 0 ? stk_checksum_end(&whole->parts) : whole->last;
    got.parts = whole->want.parts;
    if (!stk_checksum_equal(&got, &whole->want)) {
        verdict = whole->step > 0 ? check_parts(whole) : STK_COMPOSITE_CHECKSUM_MISMATCH;
        if (verdict == STK_COMPOSITE_CHECKSUM_MISMATCH) {
            set_mismatch(whole, 0, 0, whole->bytes, &whole->want, &got);
        }
        return verdict;
    }
    if (whole->second && whole->crc != whole->first_crc) { /* damaged in the first pass */
        for (uint32_t i = 0; i < 8; i++) {
            crcs[0].sum[i] = (uint8_t)(whole->crc >> (56 - 8 * i));
            crcs[1].sum[i] = (uint8_t)(whole->first_crc >> (56 - 8 * i));
        }
        set_mismatch(whole, 0, 0, whole->bytes, &crcs[0], &crcs[1]);
        return STK_COMPOSITE_CHECKSUM_MISMATCH;
    }
    return STK_COMPOSITE_CHECKSUM_VERIFIED;
}

void stk_composite_checksum_get_mismatch(const struct stk_composite_checksum *whole,
                                         struct stk_composite_checksum_mismatch *part_info)
{
    *part_info = whole->wrong;
}
