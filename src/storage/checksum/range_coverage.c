/* Ranges that came, in any order, and the sum of all. Neighbours are joined at once, so there are
 * few pieces unless small reads are scattered. */
#include "storage/checksum/checksum.h"

#include "base/crc.h"
#include "base/mem.h"

#include <pthread.h>
#include <string.h>

struct piece {
    uint64_t offset, bytes, crc;
};

struct stk_cover {
    uint64_t bytes;
    pthread_mutex_t lock;
    struct {
        struct stk_seal want; /* its kind alone while `guessed` */
        bool guessed;         /* nobody told yet: pieces are summed by the kind that is likely */
        bool wrong;
        struct piece *pieces; /* by offset, with gaps between; owned */
        uint32_t count, capacity;
    } locked;
};

static enum stk_covered judge_locked(struct stk_cover *cover);

struct stk_cover *stk_cover_new(uint64_t bytes)
{
    struct stk_cover *cover = stk_alloc(1, sizeof *cover);

    STK_ASSERT(bytes > 0);
    if (cover) {
        cover->bytes = bytes;
        pthread_mutex_init(&cover->lock, NULL);
    }
    return cover;
}

void stk_cover_free(struct stk_cover *cover)
{
    if (cover) {
        pthread_mutex_destroy(&cover->lock);
        stk_free(cover->locked.pieces);
        stk_free(cover);
    }
}

void stk_cover_guess(struct stk_cover *cover, uint32_t kind)
{
    pthread_mutex_lock(&cover->lock);
    if (cover->locked.want.kind == STK_SEAL_NONE) {
        cover->locked.want.kind = kind;
        cover->locked.guessed = true;
    }
    pthread_mutex_unlock(&cover->lock);
}

enum stk_covered stk_cover_expect(struct stk_cover *cover, const struct stk_seal *whole)
{
    enum stk_covered covered = STK_COVER_OPEN;

    pthread_mutex_lock(&cover->lock);
    if (cover->locked.want.kind == STK_SEAL_NONE || cover->locked.guessed) {
        if (cover->locked.guessed && cover->locked.want.kind != whole->kind) {
            cover->locked.count = 0; /* sums of another kind */
        }
        cover->locked.want = stk_seal_joins(whole) ? *whole : (struct stk_seal){0};
        cover->locked.guessed = false;
        covered = judge_locked(cover);
    }
    pthread_mutex_unlock(&cover->lock);
    return covered;
}

static uint64_t number_of(const struct stk_seal *seal)
{
    uint64_t number = 0;

    for (uint32_t i = 0; i < (seal->kind == STK_SEAL_CRC64 ? 8 : 4); i++) {
        number = number << 8 | seal->sum[i];
    }
    return number;
}

static uint64_t join(uint32_t kind, uint64_t first, uint64_t second, uint64_t bytes)
{
    return kind == STK_SEAL_CRC64    ? stk_crc64_join(first, second, bytes)
           : kind == STK_SEAL_CRC32C ? stk_crc32c_join((uint32_t)first, (uint32_t)second, bytes)
                                     : stk_crc32_join((uint32_t)first, (uint32_t)second, bytes);
}

/* How many pieces begin before it. */
static uint32_t place_locked(const struct stk_cover *cover, uint64_t offset)
{
    uint32_t low = 0, high = cover->locked.count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (cover->locked.pieces[middle].offset < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool is_new_locked(const struct stk_cover *cover, uint32_t at, uint64_t offset,
                          uint64_t bytes)
{
    const struct piece *pieces = cover->locked.pieces;

    return (at == 0 || pieces[at - 1].offset + pieces[at - 1].bytes <= offset) &&
           (at == cover->locked.count || offset + bytes <= pieces[at].offset);
}

/* False: there is no room for another. */
static bool insert_locked(struct stk_cover *cover, uint32_t at, const struct piece *piece)
{
    if (cover->locked.count == cover->locked.capacity) {
        uint32_t more = cover->locked.capacity ? 2 * cover->locked.capacity : 8;
        struct piece *pieces =
            cover->locked.capacity < STK_COVER_PIECES_MAX
                ? stk_realloc(cover->locked.pieces, cover->locked.capacity, more, sizeof *pieces)
                : NULL;

        if (!pieces) {
            return false;
        }
        cover->locked.pieces = pieces;
        cover->locked.capacity = more;
    }
    memmove(cover->locked.pieces + at + 1, cover->locked.pieces + at,
            (cover->locked.count - at) * sizeof *piece);
    cover->locked.pieces[at] = *piece;
    cover->locked.count++;
    return true;
}

/* The piece number `at` and the next become one, if they touch. */
static void join_locked(struct stk_cover *cover, uint32_t at)
{
    struct piece *first = &cover->locked.pieces[at], *second = first + 1;

    if (at + 1 >= cover->locked.count || first->offset + first->bytes != second->offset) {
        return;
    }
    first->crc = join(cover->locked.want.kind, first->crc, second->crc, second->bytes);
    first->bytes += second->bytes;
    cover->locked.count--;
    memmove(second, second + 1, (cover->locked.count - at - 1) * sizeof *second);
}

static enum stk_covered judge_locked(struct stk_cover *cover)
{
    const struct piece *all = cover->locked.pieces;

    if (cover->locked.wrong) {
        return STK_COVER_WRONG;
    }
    if (cover->locked.guessed || cover->locked.count != 1 || all->bytes != cover->bytes) {
        return STK_COVER_OPEN;
    }
    if (all->crc == number_of(&cover->locked.want)) {
        cover->locked.count = 0;
        return STK_COVER_PROVEN;
    }
    cover->locked.wrong = true;
    return STK_COVER_WRONG;
}

enum stk_covered stk_cover_add(struct stk_cover *cover, uint64_t offset, struct stk_view bytes)
{
    struct piece piece = {.offset = offset, .bytes = bytes.bytes};
    enum stk_covered covered;
    struct stk_seal seal;
    uint32_t kind, at;
    bool wanted;

    STK_ASSERT(bytes.bytes > 0 && offset <= cover->bytes && bytes.bytes <= cover->bytes - offset);
    pthread_mutex_lock(&cover->lock);
    kind = cover->locked.want.kind;
    wanted = kind != STK_SEAL_NONE && !cover->locked.wrong &&
             is_new_locked(cover, place_locked(cover, offset), offset, bytes.bytes);
    pthread_mutex_unlock(&cover->lock);
    if (wanted) { /* without the lock: it takes its time */
        seal = stk_seal_make(kind, false, bytes);
        piece.crc = number_of(&seal);
    }
    pthread_mutex_lock(&cover->lock);
    at = place_locked(cover, offset);
    wanted = wanted && cover->locked.want.kind == kind; /* not told to be another meanwhile */
    if (wanted && !cover->locked.wrong && is_new_locked(cover, at, offset, bytes.bytes) &&
        insert_locked(cover, at, &piece)) {
        join_locked(cover, at);
        if (at > 0) {
            join_locked(cover, at - 1);
        }
    }
    covered = judge_locked(cover);
    pthread_mutex_unlock(&cover->lock);
    return covered;
}

bool stk_cover_sums(struct stk_cover *cover)
{
    bool sums;

    pthread_mutex_lock(&cover->lock);
    sums = cover->locked.want.kind != STK_SEAL_NONE;
    pthread_mutex_unlock(&cover->lock);
    return sums;
}

bool stk_cover_is_wrong(struct stk_cover *cover)
{
    bool wrong;

    pthread_mutex_lock(&cover->lock);
    wrong = cover->locked.wrong;
    pthread_mutex_unlock(&cover->lock);
    return wrong;
}

uint64_t stk_cover_bytes(const struct stk_cover *cover)
{
    return cover->bytes;
}

void stk_cover_tell(struct stk_cover *cover, struct stk_seal *want_out, struct stk_seal *got_out)
{
    uint32_t bytes;

    pthread_mutex_lock(&cover->lock);
    *want_out = cover->locked.want;
    *got_out = (struct stk_seal){.kind = cover->locked.want.kind};
    bytes = got_out->kind == STK_SEAL_CRC64 ? 8 : 4;
    for (uint32_t i = 0; cover->locked.count > 0 && i < bytes; i++) {
        got_out->sum[i] = (uint8_t)(cover->locked.pieces[0].crc >> (8 * (bytes - 1 - i)));
    }
    pthread_mutex_unlock(&cover->lock);
}
