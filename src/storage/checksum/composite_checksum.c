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
    struct stk_checksum part_reported, last; /* current; previous, as received */
    struct stk_composite_checksum_mismatch wrong;
    uint64_t crc, first_crc; /* CRC64 of the bytes of this pass, in the first pass */
    uint8_t *sums;           /* SUM_BYTES a part; owned */
};

static void begin_parts(struct stk_composite_checksum *composite);

struct stk_composite_checksum *stk_composite_checksum_new(
    const struct stk_checksum *want, uint64_t bytes,
    int (*ask)(void *owner, uint32_t number, struct stk_composite_checksum_part *part), void *owner)
{
    struct stk_composite_checksum *composite = stk_alloc(1, sizeof *composite);

    if (!composite) {
        return NULL;
    }
    *composite = (struct stk_composite_checksum){
        .want = *want,
        .bytes = bytes,
        .ask = ask,
        .owner = owner,
        .count = stk_max(want->parts, 1),
        .lost = want->kind == STK_CHECKSUM_NONE || want->kind >= STK_CHECKSUM_KINDS ||
                want->parts > STK_COMPOSITE_CHECKSUM_PARTS_MAX};
    composite->sums = composite->lost ? NULL : stk_alloc(composite->count, SUM_BYTES);
    if (!composite->lost && !composite->sums) {
        stk_free(composite);
        return NULL;
    }
    if (!composite->lost) {
        begin_parts(composite);
    }
    return composite;
}

void stk_composite_checksum_free(struct stk_composite_checksum *composite)
{
    if (composite) {
        stk_free(composite->sums);
        stk_free(composite);
    }
}

/* Returns whether all parts except the last may have the size of the first part. */
static bool are_equal_parts(const struct stk_composite_checksum *composite, uint64_t step)
{
    uint64_t before, all;

    return step > 0 && stk_multiply(step, composite->count - 1, &before) &&
           stk_multiply(step, composite->count, &all) && before < composite->bytes &&
           composite->bytes <= all;
}

/* Returns whether a part can have this size at its position. Only the last may be empty. */
static bool part_fits(const struct stk_composite_checksum *composite,
                      const struct stk_composite_checksum_part *part_info)
{
    uint64_t left = composite->bytes - composite->done,
             parts_left = composite->count - composite->number;

    return (part_info->offset == UINT64_MAX || part_info->offset == composite->done) &&
           part_info->bytes <= left &&
           (parts_left > 0 ? part_info->bytes > 0 : part_info->bytes == left) &&
           (parts_left <= 1 || part_info->bytes < left);
}

/* Finds the end of the current part, or sets `lost`. */
static int find_end(struct stk_composite_checksum *composite)
{
    struct stk_composite_checksum_part part_info = {.offset = UINT64_MAX};
    int status;

    if (composite->count == 1) {
        composite->end = composite->bytes;
        return 0;
    }
    if (composite->step > 0) {
        composite->end = stk_min(composite->number * composite->step, composite->bytes);
        return 0;
    }
    status = composite->ask(composite->owner, composite->number, &part_info);
    composite->lost = status < 0 || !part_fits(composite, &part_info);
    if (composite->lost) {
        return status == STOKER_ERROR_UNSUPPORTED ? 0 : status;
    }
    composite->part_reported = part_info.seal;
    composite->end = composite->done + part_info.bytes;
    if (composite->number == 1 && !composite->second &&
        are_equal_parts(composite, part_info.bytes)) {
        composite->step = part_info.bytes;
    }
    return 0;
}

static int begin_part(struct stk_composite_checksum *composite)
{
    int status;

    if (composite->number == composite->count) {
        composite->lost = true;
        return 0;
    }
    composite->number++;
    composite->begin = composite->done;
    composite->part_reported = (struct stk_checksum){.kind = STK_CHECKSUM_NONE};
    status = find_end(composite);
    if (!composite->lost) {
        stk_checksum_begin(&composite->part, composite->want.kind,
                           composite->end - composite->begin);
    }
    return status;
}

static void begin_parts(struct stk_composite_checksum *composite)
{
    stk_checksum_begin(&composite->parts, composite->want.kind,
                       (uint64_t)composite->count * stk_checksum_bytes(composite->want.kind));
}

/* Compares a part with the server's checksum only if the complete object differs, to find the
 * damaged part. */
static bool differs(const struct stk_checksum *part_info, const struct stk_checksum *came)
{
    return part_info->kind == came->kind && part_info->parts == 0 &&
           !stk_checksum_equal(part_info, came);
}

static void set_mismatch(struct stk_composite_checksum *composite, uint32_t part, uint64_t first,
                         uint64_t end, const struct stk_checksum *want,
                         const struct stk_checksum *got)
{
    if (composite->wrong.part == 0) {
        composite->wrong =
            (struct stk_composite_checksum_mismatch){.part = part,
                                                     .first = first,
                                                     .last = end > first ? end - 1 : first,
                                                     .want = *want,
                                                     .got = *got};
        composite->wrong.got.hex = want->hex;
    }
}

static void end_part(struct stk_composite_checksum *composite)
{
    composite->last = stk_checksum_end(&composite->part);
    memcpy(composite->sums + (uint64_t)(composite->number - 1) * SUM_BYTES, composite->last.sum,
           SUM_BYTES);
    stk_checksum_add(
        &composite->parts,
        (struct stk_view){composite->last.sum, stk_checksum_bytes(composite->want.kind)});
    if (differs(&composite->part_reported, &composite->last)) {
        set_mismatch(composite, composite->number, composite->begin, composite->end,
                     &composite->part_reported, &composite->last);
    }
}

int stk_composite_checksum_add(struct stk_composite_checksum *composite, struct stk_view bytes)
{
    int status = 0;

    while (bytes.bytes > 0 && !composite->lost && status == 0) {
        struct stk_view piece = bytes;

        STK_ASSERT(bytes.bytes <= composite->bytes - composite->done); /* the caller's */
        if (composite->number == 0 || composite->done == composite->end) {
            status = begin_part(composite);
            continue;
        }
        piece.bytes = stk_min(bytes.bytes, composite->end - composite->done);
        stk_checksum_add(&composite->part, piece);
        if (composite->count > 1) {
            composite->crc = stk_crc64(composite->crc, piece.data, piece.bytes);
        }
        composite->done += piece.bytes;
        bytes.data += piece.bytes;
        bytes.bytes -= piece.bytes;
        if (composite->done == composite->end) {
            end_part(composite);
        }
    }
    return status;
}

/* The checksums differ: checks whether the parts have the assumed sizes. */
static int check_parts(struct stk_composite_checksum *composite)
{
    for (uint32_t i = 0; i < composite->count; i++) {
        uint64_t begin = i * composite->step,
                 bytes = stk_min(composite->step, composite->bytes - begin);
        struct stk_composite_checksum_part part_info = {.offset = UINT64_MAX};
        struct stk_checksum came = {.kind = composite->want.kind};
        int status = composite->ask(composite->owner, i + 1, &part_info);

        if (status < 0) {
            return status == STOKER_ERROR_UNSUPPORTED ? STK_COMPOSITE_CHECKSUM_MISMATCH : status;
        }
        if (part_info.bytes != bytes ||
            (part_info.offset != UINT64_MAX && part_info.offset != begin)) {
            composite->first_crc = composite->crc;
            composite->crc = composite->done = composite->end = composite->step = 0;
            composite->number = 0;
            composite->second = true;
            begin_parts(composite);
            return STK_COMPOSITE_CHECKSUM_RESTART;
        }
        memcpy(came.sum, composite->sums + (uint64_t)i * SUM_BYTES, SUM_BYTES);
        if (differs(&part_info.seal, &came)) {
            set_mismatch(composite, i + 1, begin, begin + bytes, &part_info.seal, &came);
            break;
        }
    }
    return STK_COMPOSITE_CHECKSUM_MISMATCH;
}

int stk_composite_checksum_verify(struct stk_composite_checksum *composite)
{
    struct stk_checksum got, crcs[2] = {{.kind = STK_CHECKSUM_CRC64}, {.kind = STK_CHECKSUM_CRC64}};
    int verdict = STK_COMPOSITE_CHECKSUM_MISMATCH;

    if (!composite->lost && composite->done == composite->bytes &&
        composite->number + 1 == composite->count) {
        int status = begin_part(composite); /* the last one is empty */

        if (status < 0) {
            return status;
        }
        if (!composite->lost) {
            end_part(composite);
        }
    }
    if (composite->lost || composite->done != composite->bytes ||
        composite->number != composite->count) {
        return STK_COMPOSITE_CHECKSUM_UNKNOWN;
    }
    got = composite->want.parts > 0 ? stk_checksum_end(&composite->parts) : composite->last;
    got.parts = composite->want.parts;
    if (!stk_checksum_equal(&got, &composite->want)) {
        verdict = composite->step > 0 ? check_parts(composite) : STK_COMPOSITE_CHECKSUM_MISMATCH;
        if (verdict == STK_COMPOSITE_CHECKSUM_MISMATCH) {
            set_mismatch(composite, 0, 0, composite->bytes, &composite->want, &got);
        }
        return verdict;
    }
    if (composite->second &&
        composite->crc != composite->first_crc) { /* damaged in the first pass */
        for (uint32_t i = 0; i < 8; i++) {
            crcs[0].sum[i] = (uint8_t)(composite->crc >> (56 - 8 * i));
            crcs[1].sum[i] = (uint8_t)(composite->first_crc >> (56 - 8 * i));
        }
        set_mismatch(composite, 0, 0, composite->bytes, &crcs[0], &crcs[1]);
        return STK_COMPOSITE_CHECKSUM_MISMATCH;
    }
    return STK_COMPOSITE_CHECKSUM_VERIFIED;
}

void stk_composite_checksum_get_mismatch(const struct stk_composite_checksum *composite,
                                         struct stk_composite_checksum_mismatch *part_info)
{
    *part_info = composite->wrong;
}
