/* Best-fit decreasing in linear time: a counting sort orders the pieces; each number of free tokens
 * has a list of sequences; a bitmap in levels finds the next list that is not empty. */
#include "loader/rows/sequence_packing.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

#define NONE UINT32_MAX
#define LEVELS 4u /* 64^4 = 2^24 */

_Static_assert(STK_SEQUENCE_PACKING_LENGTH_MAX <= 1u << 24,
               "the levels hold every number of free tokens");

/* A set of numbers in [0, size]: bit i of level k says that word i of level k - 1 is not zero. */
struct set {
    uint64_t *levels[LEVELS];
};

/* Data for making a plan. */
struct packer {
    uint32_t length, reserve, piece_count, sequence_count;
    uint32_t piece_max;                /* tokens of a piece: length less reserve */
    struct stk_sequence_piece *pieces; /* longest first */
    uint32_t *sequence_of;             /* [piece_count] */
    uint32_t *free_tokens;             /* [sequence]: no more sequences than pieces */
    uint32_t *next;                    /* [sequence] */
    uint32_t *heads; /* [length + 1]: the newest sequence with so many free tokens */
    struct set set;  /* lists that are not empty */
    uint64_t *words; /* of the set */
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
            return; /* the levels above do not change */
        }
        number >>= 6;
    }
}

/* Returns the smallest number >= from, or NONE. Goes up until a word has a bit, then down again. */
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

static int count_pieces(struct packer *packer, const uint64_t *counts, uint32_t document_count,
                        struct stoker_error *error)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < document_count && total <= STK_SEQUENCE_PACKING_PIECES_MAX; i++) {
        /* One document alone may exceed the bound: it is refused before the sum could overflow. */
        total += stk_min(counts[i] / packer->piece_max, STK_SEQUENCE_PACKING_PIECES_MAX + 1) +
                 (counts[i] % packer->piece_max > 0);
    }
    if (total > STK_SEQUENCE_PACKING_PIECES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT,
                        "the documents of a chunk are too long to be packed",
                        "use longer sequences, or fewer documents per chunk",
                        "%u documents, more than %u pieces of %u tokens", document_count,
                        STK_SEQUENCE_PACKING_PIECES_MAX, packer->length);
    }
    packer->piece_count = (uint32_t)total;
    return 0;
}

static int packer_open(struct packer *packer, struct stoker_error *error)
{
    uint64_t words = 0;

    for (uint32_t level = 0; level < LEVELS; level++) {
        words += level_words(packer->length, level);
    }
    packer->pieces = stk_alloc(packer->piece_count, sizeof *packer->pieces);
    packer->sequence_of = stk_alloc(packer->piece_count, sizeof *packer->sequence_of);
    packer->free_tokens = stk_alloc(packer->piece_count, sizeof *packer->free_tokens);
    packer->next = stk_alloc(packer->piece_count, sizeof *packer->next);
    packer->heads = stk_alloc(packer->length + 1, sizeof *packer->heads);
    packer->words = stk_alloc(words, sizeof *packer->words);
    if (!packer->pieces || !packer->sequence_of || !packer->free_tokens || !packer->next ||
        !packer->heads || !packer->words) {
        return stk_fail(error, -ENOMEM, "cannot pack documents", "free memory", "%u pieces",
                        packer->piece_count);
    }
    words = 0;
    for (uint32_t level = 0; level < LEVELS; level++) {
        packer->set.levels[level] = packer->words + words;
        words += level_words(packer->length, level);
    }
    return 0;
}

static void packer_close(struct packer *packer)
{
    stk_free(packer->pieces);
    stk_free(packer->sequence_of);
    stk_free(packer->free_tokens);
    stk_free(packer->next);
    stk_free(packer->heads);
    stk_free(packer->words);
}

/* Sorts the pieces by length, longest first, stable, with a counting sort. `heads` holds the
 * counts. */
static void sort_pieces(struct packer *packer, const uint64_t *counts, uint32_t document_count)
{
    uint32_t *places = packer->heads, place = 0;

    for (uint32_t i = 0; i < document_count; i++) {
        places[packer->piece_max] += (uint32_t)(counts[i] / packer->piece_max);
        places[counts[i] % packer->piece_max]++;
    }
    places[0] = 0; /* a document that fits exactly leaves no rest */
    for (uint32_t n = packer->piece_max; n > 0; n--) {
        uint32_t count = places[n];

        places[n] = place;
        place += count;
    }
    for (uint32_t i = 0; i < document_count; i++) {
        for (uint64_t first = 0; first < counts[i]; first += packer->piece_max) {
            uint32_t count = (uint32_t)stk_min(counts[i] - first, packer->piece_max);

            packer->pieces[places[count]++] = (struct stk_sequence_piece){first, i, count};
        }
    }
}

/* ---- best fit ---- */

static void list_push(struct packer *packer, uint32_t sequence)
{
    uint32_t rest = packer->free_tokens[sequence];

    packer->next[sequence] = packer->heads[rest];
    packer->heads[rest] = sequence;
    set_add(&packer->set, rest);
}

static uint32_t list_pop(struct packer *packer, uint32_t rest)
{
    uint32_t sequence = packer->heads[rest];

    packer->heads[rest] = packer->next[sequence];
    if (packer->heads[rest] == NONE) {
        set_remove(&packer->set, rest);
    }
    return sequence;
}

static void place_pieces(struct packer *packer)
{
    for (uint32_t n = 0; n <= packer->length; n++) {
        packer->heads[n] = NONE;
    }
    for (uint32_t i = 0; i < packer->piece_count; i++) {
        uint32_t count = packer->pieces[i].count + packer->reserve;
        uint32_t rest = set_next(&packer->set, count, packer->length), sequence;

        if (rest == NONE) {
            sequence = packer->sequence_count++;
            rest = packer->length;
        } else {
            sequence = list_pop(packer, rest);
        }
        packer->sequence_of[i] = sequence;
        packer->free_tokens[sequence] = rest - count;
        if (rest > count) {
            list_push(packer, sequence);
        }
    }
}

/* Copies the pieces sequence by sequence, in the order in which they were placed. */
static int lay_out(const struct packer *packer, struct stk_sequence_packing *packing,
                   struct stoker_error *error)
{
    uint32_t place = 0, *ends = stk_alloc(packer->sequence_count, sizeof *ends);
    struct stk_sequence_piece *pieces = stk_alloc(packer->piece_count, sizeof *pieces);

    if (!ends || !pieces) {
        stk_free(ends);
        stk_free(pieces);
        return stk_fail(error, -ENOMEM, "cannot pack documents", "free memory", "%u pieces",
                        packer->piece_count);
    }
    for (uint32_t i = 0; i < packer->piece_count; i++) {
        ends[packer->sequence_of[i]]++;
    }
    for (uint32_t i = 0; i < packer->sequence_count; i++) { /* counts -> begins */
        uint32_t count = ends[i];

        ends[i] = place;
        place += count;
    }
    for (uint32_t i = 0; i < packer->piece_count; i++) { /* begins -> ends */
        pieces[ends[packer->sequence_of[i]]++] = packer->pieces[i];
    }
    *packing = (struct stk_sequence_packing){
        packer->length, packer->reserve, packer->piece_count, packer->sequence_count, pieces, ends};
    return 0;
}

int stk_sequence_packing_open(struct stk_sequence_packing *packing, const uint64_t *counts,
                              uint32_t document_count, uint32_t length, uint32_t reserve,
                              struct stoker_error *error)
{
    struct packer packer = {.length = length, .reserve = reserve, .piece_max = length - reserve};
    int status;

    memset(packing, 0, sizeof *packing);
    if (reserve >= length || length > STK_SEQUENCE_PACKING_LENGTH_MAX ||
        document_count > STK_SEQUENCE_PACKING_DOCUMENTS_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "documents cannot be packed like this",
                        "take sequences of 1 to 16,777,216 tokens (5 at least for fill in the "
                        "middle), and 1,048,576 documents a chunk at most",
                        "%u documents, sequences of %u tokens, %u of them reserved in each piece",
                        document_count, length, reserve);
    }
    status = count_pieces(&packer, counts, document_count, error);
    status = status < 0 ? status : packer_open(&packer, error);
    if (status == 0) {
        sort_pieces(&packer, counts, document_count);
        place_pieces(&packer);
        status = lay_out(&packer, packing, error);
    }
    packer_close(&packer);
    return status;
}

void stk_sequence_packing_close(struct stk_sequence_packing *packing)
{
    stk_free(packing->pieces);
    stk_free(packing->ends);
    memset(packing, 0, sizeof *packing);
}
