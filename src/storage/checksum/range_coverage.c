/* Received ranges in any order, and the checksum of each piece. Adjacent pieces are combined at
 * once, so there are few unless small reads are scattered. */
#include "storage/checksum/checksum.h"

#include "base/crc.h"
#include "base/mem.h"

#include <pthread.h>
#include <string.h>

struct piece {
    uint64_t offset, bytes, crc;
};

struct stk_range_coverage {
    uint64_t bytes;
    pthread_mutex_t lock;
    struct {
        struct stk_checksum want; /* its kind alone while `guessed` */
        bool guessed;             /* the kind is unknown: pieces use the likely kind */
        bool wrong;
        struct piece *pieces; /* by offset, with gaps between; owned */
        uint32_t count, capacity;
    } locked;
};

static enum stk_range_coverage_result evaluate_locked(struct stk_range_coverage *coverage);

struct stk_range_coverage *stk_range_coverage_new(uint64_t bytes)
{
    struct stk_range_coverage *coverage = stk_alloc(1, sizeof *coverage);

    STK_ASSERT(bytes > 0);
    if (coverage) {
        coverage->bytes = bytes;
        pthread_mutex_init(&coverage->lock, NULL);
    }
    return coverage;
}

void stk_range_coverage_free(struct stk_range_coverage *coverage)
{
    if (coverage) {
        pthread_mutex_destroy(&coverage->lock);
        stk_free(coverage->locked.pieces);
        stk_free(coverage);
    }
}

void stk_range_coverage_set_tentative(struct stk_range_coverage *coverage, uint32_t kind)
{
    pthread_mutex_lock(&coverage->lock);
    if (coverage->locked.want.kind == STK_CHECKSUM_NONE) {
        coverage->locked.want.kind = kind;
        coverage->locked.guessed = true;
    }
    pthread_mutex_unlock(&coverage->lock);
}

enum stk_range_coverage_result
stk_range_coverage_set_expected(struct stk_range_coverage *coverage,
                                const struct stk_checksum *object_checksum)
{
    enum stk_range_coverage_result covered = STK_RANGE_COVERAGE_INCOMPLETE;

    pthread_mutex_lock(&coverage->lock);
    if (coverage->locked.want.kind == STK_CHECKSUM_NONE || coverage->locked.guessed) {
        if (coverage->locked.guessed && coverage->locked.want.kind != object_checksum->kind) {
            coverage->locked.count = 0; /* sums of another kind */
        }
        coverage->locked.want = stk_checksum_is_combinable(object_checksum)
                                    ? *object_checksum
                                    : (struct stk_checksum){0};
        coverage->locked.guessed = false;
        covered = evaluate_locked(coverage);
    }
    pthread_mutex_unlock(&coverage->lock);
    return covered;
}

static uint64_t crc_of(const struct stk_checksum *checksum)
{
    uint64_t number = 0;

    for (uint32_t i = 0; i < (checksum->kind == STK_CHECKSUM_CRC64 ? 8 : 4); i++) {
        number = number << 8 | checksum->sum[i];
    }
    return number;
}

static uint64_t combine(uint32_t kind, uint64_t first, uint64_t second, uint64_t bytes)
{
    return kind == STK_CHECKSUM_CRC64 ? stk_crc64_combine(first, second, bytes)
           : kind == STK_CHECKSUM_CRC32C
               ? stk_crc32c_combine((uint32_t)first, (uint32_t)second, bytes)
               : stk_crc32_combine((uint32_t)first, (uint32_t)second, bytes);
}

/* Returns the number of pieces that begin before it. */
static uint32_t find_locked(const struct stk_range_coverage *coverage, uint64_t offset)
{
    uint32_t low = 0, high = coverage->locked.count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (coverage->locked.pieces[middle].offset < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool is_new_locked(const struct stk_range_coverage *coverage, uint32_t at, uint64_t offset,
                          uint64_t bytes)
{
    const struct piece *pieces = coverage->locked.pieces;

    return (at == 0 || pieces[at - 1].offset + pieces[at - 1].bytes <= offset) &&
           (at == coverage->locked.count || offset + bytes <= pieces[at].offset);
}

/* Returns false if there is no room for another piece. */
static bool insert_locked(struct stk_range_coverage *coverage, uint32_t at,
                          const struct piece *piece)
{
    if (coverage->locked.count == coverage->locked.capacity) {
        uint32_t more = coverage->locked.capacity ? 2 * coverage->locked.capacity : 8;
        struct piece *pieces = coverage->locked.capacity < STK_RANGE_COVERAGE_PIECES_MAX
                                   ? stk_realloc(coverage->locked.pieces, coverage->locked.capacity,
                                                 more, sizeof *pieces)
                                   : NULL;

        if (!pieces) {
            return false;
        }
        coverage->locked.pieces = pieces;
        coverage->locked.capacity = more;
    }
    memmove(coverage->locked.pieces + at + 1, coverage->locked.pieces + at,
            (coverage->locked.count - at) * sizeof *piece);
    coverage->locked.pieces[at] = *piece;
    coverage->locked.count++;
    return true;
}

/* Joins piece `at` and the next piece if they touch. */
static void join_locked(struct stk_range_coverage *coverage, uint32_t at)
{
    struct piece *first = &coverage->locked.pieces[at], *second = first + 1;

    if (at + 1 >= coverage->locked.count || first->offset + first->bytes != second->offset) {
        return;
    }
    first->crc = combine(coverage->locked.want.kind, first->crc, second->crc, second->bytes);
    first->bytes += second->bytes;
    coverage->locked.count--;
    memmove(second, second + 1, (coverage->locked.count - at - 1) * sizeof *second);
}

static enum stk_range_coverage_result evaluate_locked(struct stk_range_coverage *coverage)
{
    const struct piece *all = coverage->locked.pieces;

    if (coverage->locked.wrong) {
        return STK_RANGE_COVERAGE_MISMATCH;
    }
    if (coverage->locked.guessed || coverage->locked.count != 1 || all->bytes != coverage->bytes) {
        return STK_RANGE_COVERAGE_INCOMPLETE;
    }
    if (all->crc == crc_of(&coverage->locked.want)) {
        coverage->locked.count = 0;
        return STK_RANGE_COVERAGE_VERIFIED;
    }
    coverage->locked.wrong = true;
    return STK_RANGE_COVERAGE_MISMATCH;
}

enum stk_range_coverage_result stk_range_coverage_add(struct stk_range_coverage *coverage,
                                                      uint64_t offset, struct stk_view bytes)
{
    struct piece piece = {.offset = offset, .bytes = bytes.bytes};
    enum stk_range_coverage_result covered;
    struct stk_checksum checksum;
    uint32_t kind, at;
    bool wanted;

    STK_ASSERT(bytes.bytes > 0 && offset <= coverage->bytes &&
               bytes.bytes <= coverage->bytes - offset);
    pthread_mutex_lock(&coverage->lock);
    kind = coverage->locked.want.kind;
    wanted = kind != STK_CHECKSUM_NONE && !coverage->locked.wrong &&
             is_new_locked(coverage, find_locked(coverage, offset), offset, bytes.bytes);
    pthread_mutex_unlock(&coverage->lock);
    if (wanted) { /* without the lock, because it takes long */
        checksum = stk_checksum_compute(kind, false, bytes);
        piece.crc = crc_of(&checksum);
    }
    pthread_mutex_lock(&coverage->lock);
    at = find_locked(coverage, offset);
    wanted = wanted && coverage->locked.want.kind == kind; /* the kind was not changed meanwhile */
    if (wanted && !coverage->locked.wrong && is_new_locked(coverage, at, offset, bytes.bytes) &&
        insert_locked(coverage, at, &piece)) {
        join_locked(coverage, at);
        if (at > 0) {
            join_locked(coverage, at - 1);
        }
    }
    covered = evaluate_locked(coverage);
    pthread_mutex_unlock(&coverage->lock);
    return covered;
}

bool stk_range_coverage_is_summing(struct stk_range_coverage *coverage)
{
    bool sums;

    pthread_mutex_lock(&coverage->lock);
    sums = coverage->locked.want.kind != STK_CHECKSUM_NONE;
    pthread_mutex_unlock(&coverage->lock);
    return sums;
}

bool stk_range_coverage_is_mismatch(struct stk_range_coverage *coverage)
{
    bool wrong;

    pthread_mutex_lock(&coverage->lock);
    wrong = coverage->locked.wrong;
    pthread_mutex_unlock(&coverage->lock);
    return wrong;
}

uint64_t stk_range_coverage_bytes(const struct stk_range_coverage *coverage)
{
    return coverage->bytes;
}

void stk_range_coverage_get_mismatch(struct stk_range_coverage *coverage,
                                     struct stk_checksum *want_out, struct stk_checksum *got_out)
{
    uint32_t bytes;

    pthread_mutex_lock(&coverage->lock);
    *want_out = coverage->locked.want;
    *got_out = (struct stk_checksum){.kind = coverage->locked.want.kind};
    bytes = got_out->kind == STK_CHECKSUM_CRC64 ? 8 : 4;
    for (uint32_t i = 0; coverage->locked.count > 0 && i < bytes; i++) {
        got_out->sum[i] = (uint8_t)(coverage->locked.pieces[0].crc >> (8 * (bytes - 1 - i)));
    }
    pthread_mutex_unlock(&coverage->lock);
}
