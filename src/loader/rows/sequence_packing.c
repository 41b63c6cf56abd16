/* Best-fit decreasing in linear time: pieces are sorted by counting, sequences lie in a list for
 * each number of free tokens, and a bitmap in three levels finds the next list that holds one. */
#include "loader/rows/sequence_packing.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

#define NONE UINT32_MAX
#define LEVELS 4u /* 64^4 = 2^24 */

_Static_assert(STK_PACKING_LENGTH_MAX <= 1u << 24, "the levels hold every number of free tokens");

/* A set of numbers in [0, size]: bit i of level k says that word i of level k - 1 is not zero. */
struct set {
    uint64_t *levels[LEVELS];
};

/* All that a plan needs while it is made. */
struct draft {
    uint32_t length, reserve, piece_count, sequence_count;
    uint32_t piece_max;       /* tokens of a piece: length less reserve */
    struct stk_piece *pieces; /* longest first */
    uint32_t *sequence_of;    /* [piece_count] */
    uint32_t *free_tokens;    /* [sequence]: no more sequences than pieces */
    uint32_t *next;           /* [sequence] */
    uint32_t *heads;          /* [length + 1]: the newest sequence with so many free tokens */
    struct set set;           /* which heads there are */
    uint64_t *words;          /* of the set */
};

/* ---- the set ---- */

static uint64_t level_words(uint64_t size, uint32_t level)
{
    return (size >> (6 * (level + 1))) + 1;
}

static void set_add(struct set *set, uint32_t number)
{
    for (uint32_t level = 0; level < LEVELS; level++) {
        set->levels[level][number >> 6] |= UINT64_C(1) << (number & 63);
        number >>= 6;
    }
}

static void set_remove(struct set *set, uint32_t number)
{
    for (uint32_t level = 0; level < LEVELS; level++) {
        set->levels[level][number >> 6] &= ~(UINT64_C(1) << (number & 63));
        if (set->levels[level][number >> 6] != 0) {
            return; /* the levels above still have it */
        }
        number >>= 6;
    }
}

/* The smallest number >= from; NONE. Climbs until a word has one, then goes down again. */
static uint32_t set_next(const struct set *set, uint32_t from, uint32_t size)
{
    uint32_t level = 0, at = from;

    for (; level < LEVELS; level++) {
        if (at >> 6 >= level_words(size, level)) {
            return NONE;
        }
        uint64_t word = set->levels[level][at >> 6] >> (at & 63);

        if (word != 0) {
            at += (uint32_t)__builtin_ctzll(word);
            break;
        }
        at = (at >> 6) + 1;
    }
    if (level == LEVELS) {
        return NONE;
    }
    for (; level > 0; level--) {
        at = at << 6 | (uint32_t)__builtin_ctzll(set->levels[level - 1][at]);
    }
    return at;
}

/* ---- pieces ---- */

static int count_pieces(struct draft *draft, const uint64_t *counts, uint32_t document_count,
                        struct stoker_error *error)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < document_count && total <= STK_PACKING_PIECES_MAX; i++) {
        /* One document alone may be past the bound: then the sum need not hold it. */
        total += stk_min(counts[i] / draft->piece_max, STK_PACKING_PIECES_MAX + 1) +
                 (counts[i] % draft->piece_max > 0);
    }
    if (total > STK_PACKING_PIECES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "documents of a chunk are too long to be packed",
                        "take longer sequences, or fewer documents a chunk",
                        "%u documents, more than %u pieces of %u tokens", document_count,
                        STK_PACKING_PIECES_MAX, draft->length);
    }
    draft->piece_count = (uint32_t)total;
    return 0;
}

static int draft_open(struct draft *draft, struct stoker_error *error)
{
    uint64_t words = 0;

    for (uint32_t level = 0; level < LEVELS; level++) {
        words += level_words(draft->length, level);
    }
    draft->pieces = stk_alloc(draft->piece_count, sizeof *draft->pieces);
    draft->sequence_of = stk_alloc(draft->piece_count, sizeof *draft->sequence_of);
    draft->free_tokens = stk_alloc(draft->piece_count, sizeof *draft->free_tokens);
    draft->next = stk_alloc(draft->piece_count, sizeof *draft->next);
    draft->heads = stk_alloc(draft->length + 1, sizeof *draft->heads);
    draft->words = stk_alloc(words, sizeof *draft->words);
    if (!draft->pieces || !draft->sequence_of || !draft->free_tokens || !draft->next ||
        !draft->heads || !draft->words) {
        return stk_fail(error, -ENOMEM, "cannot pack documents", "free memory", "%u pieces",
                        draft->piece_count);
    }
    words = 0;
    for (uint32_t level = 0; level < LEVELS; level++) {
        draft->set.levels[level] = draft->words + words;
        words += level_words(draft->length, level);
    }
    return 0;
}

static void draft_close(struct draft *draft)
{
    stk_free(draft->pieces);
    stk_free(draft->sequence_of);
    stk_free(draft->free_tokens);
    stk_free(draft->next);
    stk_free(draft->heads);
    stk_free(draft->words);
}

/* Longest first, by counting; of one length in the order of documents. `heads` counts meanwhile. */
static void sort_pieces(struct draft *draft, const uint64_t *counts, uint32_t document_count)
{
    uint32_t *places = draft->heads, place = 0;

    for (uint32_t i = 0; i < document_count; i++) {
        places[draft->piece_max] += (uint32_t)(counts[i] / draft->piece_max);
        places[counts[i] % draft->piece_max]++;
    }
    places[0] = 0; /* what is left of a document that fits exactly is no piece */
    for (uint32_t n = draft->piece_max; n > 0; n--) {
        uint32_t count = places[n];

        places[n] = place;
        place += count;
    }
    for (uint32_t i = 0; i < document_count; i++) {
        for (uint64_t first = 0; first < counts[i]; first += draft->piece_max) {
            uint32_t count = (uint32_t)stk_min(counts[i] - first, draft->piece_max);

            draft->pieces[places[count]++] = (struct stk_piece){first, i, count};
        }
    }
}

/* ---- best fit ---- */

static void list_push(struct draft *draft, uint32_t sequence)
{
    uint32_t rest = draft->free_tokens[sequence];

    draft->next[sequence] = draft->heads[rest];
    draft->heads[rest] = sequence;
    set_add(&draft->set, rest);
}

static uint32_t list_pop(struct draft *draft, uint32_t rest)
{
    uint32_t sequence = draft->heads[rest];

    draft->heads[rest] = draft->next[sequence];
    if (draft->heads[rest] == NONE) {
        set_remove(&draft->set, rest);
    }
    return sequence;
}

static void place_pieces(struct draft *draft)
{
    for (uint32_t n = 0; n <= draft->length; n++) {
        draft->heads[n] = NONE;
    }
    for (uint32_t i = 0; i < draft->piece_count; i++) {
        uint32_t count = draft->pieces[i].count + draft->reserve;
        uint32_t rest = set_next(&draft->set, count, draft->length), sequence;

        if (rest == NONE) {
            sequence = draft->sequence_count++;
            rest = draft->length;
        } else {
            sequence = list_pop(draft, rest);
        }
        draft->sequence_of[i] = sequence;
        draft->free_tokens[sequence] = rest - count;
        if (rest > count) {
            list_push(draft, sequence);
        }
    }
}

/* Pieces sequence by sequence, in the order in which they were placed. */
static int lay_out(const struct draft *draft, struct stk_packing *packing,
                   struct stoker_error *error)
{
    uint32_t place = 0, *ends = stk_alloc(draft->sequence_count, sizeof *ends);
    struct stk_piece *pieces = stk_alloc(draft->piece_count, sizeof *pieces);

    if (!ends || !pieces) {
        stk_free(ends);
        stk_free(pieces);
        return stk_fail(error, -ENOMEM, "cannot pack documents", "free memory", "%u pieces",
                        draft->piece_count);
    }
    for (uint32_t i = 0; i < draft->piece_count; i++) {
        ends[draft->sequence_of[i]]++;
    }
    for (uint32_t i = 0; i < draft->sequence_count; i++) { /* counts -> where each begins */
        uint32_t count = ends[i];

        ends[i] = place;
        place += count;
    }
    for (uint32_t i = 0; i < draft->piece_count; i++) { /* -> where each ends */
        pieces[ends[draft->sequence_of[i]]++] = draft->pieces[i];
    }
    *packing = (struct stk_packing){draft->length,         draft->reserve, draft->piece_count,
                                    draft->sequence_count, pieces,         ends};
    return 0;
}

int stk_packing_plan(struct stk_packing *packing, const uint64_t *counts, uint32_t document_count,
                     uint32_t length, uint32_t reserve, struct stoker_error *error)
{
    struct draft draft = {.length = length, .reserve = reserve, .piece_max = length - reserve};
    int status;

    memset(packing, 0, sizeof *packing);
    if (reserve >= length || length > STK_PACKING_LENGTH_MAX ||
        document_count > STK_PACKING_DOCUMENTS_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "documents cannot be packed like this",
                        "take sequences of 1 to 16,777,216 tokens (5 at least for fill in the "
                        "middle), and 1,048,576 documents a chunk at most",
                        "%u documents, sequences of %u tokens, %u of them kept free for each",
                        document_count, length, reserve);
    }
    status = count_pieces(&draft, counts, document_count, error);
    status = status < 0 ? status : draft_open(&draft, error);
    if (status == 0) {
        sort_pieces(&draft, counts, document_count);
        place_pieces(&draft);
        status = lay_out(&draft, packing, error);
    }
    draft_close(&draft);
    return status;
}

void stk_packing_close(struct stk_packing *packing)
{
    stk_free(packing->pieces);
    stk_free(packing->ends);
    memset(packing, 0, sizeof *packing);
}
