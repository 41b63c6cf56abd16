/* Goal: a plan holds each token once, fills no sequence beyond its length, cuts only documents that
 * are longer than one, and is the best fit; each piece has its reserve.
 * Method: random chunks of several shapes against a best fit that looks at every sequence for each
 * piece (sequence_packing.c), the bounds of both ends, every allocation refused once. */
#include "loader/rows/sequence_packing.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DOCUMENTS_MAX 600u
#define PIECES_MAX 4096u

static const struct shape {
    const char *name;
    uint32_t documents, length, low, high; /* tokens of a document: low to high */
    uint32_t sequences;                    /* 0: not known beforehand */
    uint32_t reserve;
} shapes[] = {
    {"none", 0, 16, 0, 0, 0, 0},
    {"empty documents", 9, 16, 0, 0, 0, 0},
    {"one token each", 33, 16, 1, 1, 3, 0},
    {"all fit exactly", 20, 16, 16, 16, 20, 0},
    {"three lengths each", 5, 16, 48, 48, 15, 0},
    {"halves", 10, 16, 8, 8, 5, 0},
    {"more than half", 10, 16, 9, 9, 10, 0},
    {"short", 500, 64, 0, 40, 0, 0},
    {"of all kinds", 300, 64, 0, 300, 0, 0},
    {"length 1", 20, 1, 0, 9, 0, 0},
    {"length 63", 400, 63, 1, 90, 0, 0},
    {"length 65", 400, 65, 1, 66, 0, 0},
    {"length 4097", 600, 4097, 1, 5000, 0, 0},
    {"length 300000", 200, 300000, 1, 400000, 0, 0},
    {"sentinels, exact", 20, 16, 13, 13, 20, 3},
    {"sentinels, halves", 10, 16, 5, 5, 5, 3},
    {"sentinels, more than half", 10, 16, 6, 6, 10, 3},
    {"sentinels, long", 5, 16, 39, 39, 15, 3},
    {"sentinels, of all kinds", 300, 64, 0, 300, 0, 3},
    {"one token a piece", 9, 4, 0, 9, 0, 3},
};

static uint64_t counts[DOCUMENTS_MAX];

/* ---- the oracle ---- */

struct oracle {
    struct stk_sequence_piece pieces[PIECES_MAX]; /* longest first */
    uint32_t sequence_of[PIECES_MAX], rest[PIECES_MAX];
    uint32_t piece_count, sequence_count;
};

static int longer_first(const void *a, const void *b)
{
    const struct stk_sequence_piece *x = a, *y = b;

    if (x->count != y->count) {
        return x->count > y->count ? -1 : 1;
    }
    if (x->document != y->document) {
        return x->document < y->document ? -1 : 1;
    }
    return x->first < y->first ? -1 : x->first > y->first;
}

/* The newest sequence of each number of free tokens counts as the one that got a piece last,
 * because a sequence moves to the front of its list when it gets a piece. */
static void best_fit(struct oracle *oracle, uint32_t documents, uint32_t length, uint32_t reserve)
{
    static uint32_t touched[PIECES_MAX];

    oracle->piece_count = oracle->sequence_count = 0;
    for (uint32_t i = 0; i < documents; i++) {
        for (uint64_t first = 0; first < counts[i]; first += length - reserve) {
            oracle->pieces[oracle->piece_count++] = (struct stk_sequence_piece){
                first, i, (uint32_t)stk_min(counts[i] - first, length - reserve)};
        }
    }
    qsort(oracle->pieces, oracle->piece_count, sizeof *oracle->pieces, longer_first);
    for (uint32_t i = 0; i < oracle->piece_count; i++) {
        uint32_t best = oracle->sequence_count;

        for (uint32_t k = 0; k < oracle->sequence_count; k++) {
            bool fits = oracle->rest[k] >= oracle->pieces[i].count + reserve;
            bool better = best == oracle->sequence_count || oracle->rest[k] < oracle->rest[best] ||
                          (oracle->rest[k] == oracle->rest[best] && touched[k] > touched[best]);

            best = fits && better ? k : best;
        }
        if (best == oracle->sequence_count) {
            oracle->rest[oracle->sequence_count++] = length;
        }
        oracle->rest[best] -= oracle->pieces[i].count + reserve;
        oracle->sequence_of[i] = best;
        touched[best] = i;
    }
}

static void test_plan(const struct shape *shape, uint64_t seed)
{
    static struct oracle oracle;
    struct stk_sequence_packing packing;
    struct stoker_error error = {0};

    for (uint32_t i = 0; i < shape->documents; i++) {
        counts[i] = shape->low + stk_random_key(seed, i) % (shape->high - shape->low + 1);
    }
    best_fit(&oracle, shape->documents, shape->length, shape->reserve);
    T_EQ(shape->name,
         stk_sequence_packing_open(&packing, counts, shape->documents, shape->length,
                                   shape->reserve, &error),
         0);
    T_EQ(shape->name, packing.sequence_count, oracle.sequence_count);
    T_EQ(shape->name, packing.piece_count, oracle.piece_count);
    if (shape->sequences) {
        T_EQ(shape->name, packing.sequence_count, shape->sequences);
    }
    for (uint32_t k = 0, i = 0; k < packing.sequence_count; k++) {
        uint64_t tokens = 0;
        uint32_t at = 0; /* in the oracle: its pieces of this sequence, in order */

        for (; i < packing.ends[k]; i++, at++) {
            while (at < oracle.piece_count && oracle.sequence_of[at] != k) {
                at++;
            }
            if (!T_TRUE(shape->name, at < oracle.piece_count)) {
                break;
            }
            T_EQ(shape->name, longer_first(&packing.pieces[i], &oracle.pieces[at]), 0);
            tokens += packing.pieces[i].count + shape->reserve;
        }
        T_TRUE(shape->name, tokens > 0 && tokens <= shape->length);
    }
    stk_sequence_packing_close(&packing);
}

/* ---- invalid options ---- */

static void test_refused(void)
{
    struct stk_sequence_packing packing;
    struct stoker_error error = {0};
    uint64_t huge[2] = {UINT64_MAX, UINT64_MAX};
    int status = -ENOMEM;

    T_EQ("length", stk_sequence_packing_open(&packing, huge, 2, 0, 0, &error),
         STOKER_ERROR_ARGUMENT);
    T_ERROR("length", &error);
    T_EQ("length",
         stk_sequence_packing_open(&packing, huge, 2, STK_SEQUENCE_PACKING_LENGTH_MAX + 1, 0,
                                   &error),
         STOKER_ERROR_ARGUMENT);
    T_EQ("reserve", stk_sequence_packing_open(&packing, huge, 2, 3, 3, &error),
         STOKER_ERROR_ARGUMENT);
    T_EQ("pieces", stk_sequence_packing_open(&packing, huge, 2, 8, 0, &error), STOKER_ERROR_LIMIT);
    huge[0] = 1; /* the sum of the two is 2^64 */
    T_EQ("pieces", stk_sequence_packing_open(&packing, huge, 2, 1, 0, &error), STOKER_ERROR_LIMIT);
    T_ERROR("pieces", &error);
    for (uint32_t i = 0; i < 50; i++) {
        counts[i] = i;
    }
    for (uint64_t n = 1; status == -ENOMEM; n++) {
        stk_mem_fail_nth(n);
        status = stk_sequence_packing_open(&packing, counts, 50, 32, 0, &error);
        stk_mem_fail_nth(0);
        T_EQ("no leak", stk_mem_alive(), status == 0 ? 2 : 0);
        T_TRUE("allocations", status == -ENOMEM || n == 9);
    }
    stk_sequence_packing_close(&packing);
    stk_sequence_packing_close(&packing);
}

int main(void)
{
    T_EACH(shape, shape, shapes)
    {
        for (uint64_t seed = 1; seed <= 5; seed++) {
            test_plan(shape, seed);
        }
    }
    test_refused();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
