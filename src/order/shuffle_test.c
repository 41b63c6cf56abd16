/* Goal: the block shuffle is as uniform as documented: the position of a sample is uniform and
 * independent of the epoch before; pairs of samples of different blocks, and batch mates, come
 * together as often as the windows allow, which is nearly as often as under a full permutation. Its
 * limit is tested too: samples of one block are always in the same window.
 * Method: chi-square over epochs, by the order's inverse, of the block shuffle (one group and
 * several), compared with a full permutation and with a shuffle buffer of as many samples as a
 * window, which fails by far. Takes a seed as its argument; it is fixed otherwise. */
#include "base/random.h"
#include "order/order.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 10u
#define WINDOW 8u
#define BLOCKS 64u
#define SAMPLES (BLOCK * BLOCKS)
#define BIN (BLOCK * WINDOW) /* positions of a bin: of a window, when there is one group */
#define BINS (SAMPLES / BIN)
#define BATCH 16u
#define EPOCHS 20000u
#define PAIRS 12

static uint64_t seed = 1;

/* Computes the positions of (at least) the samples of all pairs in an epoch. */
typedef void positions_of(const struct stk_order *order, uint64_t epoch, uint16_t *positions_out);

struct chi {
    double positions, epochs, pairs, mates; /* chi-squares, added up */
    double mates_share;                     /* of pairs in one batch */
};

static double square(double x)
{
    return x * x;
}

/* Both samples of pair i; they are in different blocks. */
static uint32_t one_of(int pair, int which)
{
    return (uint32_t)((17 + 53 * pair + which * (31 + 20 * (pair % 4))) % SAMPLES);
}

static void by_order(const struct stk_order *order, uint64_t epoch, uint16_t *positions_out)
{
    struct stk_order_epoch keys;

    stk_order_epoch_begin(&keys, order, epoch);
    for (int i = 0; i < 2 * PAIRS; i++) {
        uint32_t sample = one_of(i / 2, i % 2);
        positions_out[sample] = (uint16_t)stk_order_position(&keys, sample);
    }
}

/* A buffer of a window's samples, filled in storage order. */
static void by_buffer(const struct stk_order *order, uint64_t epoch, uint16_t *positions_out)
{
    uint16_t buffer[BIN];
    uint64_t next = BIN, left = BIN;

    (void)order;
    for (uint16_t i = 0; i < BIN; i++) {
        buffer[i] = i;
    }
    for (uint16_t position = 0; position < SAMPLES; position++) {
        uint64_t drawn = stk_random_key(stk_random_key(seed, epoch), position) % left;

        positions_out[buffer[drawn]] = position;
        buffer[drawn] = next < SAMPLES ? (uint16_t)next++ : buffer[--left];
    }
}

static double chi_of(const uint32_t *seen, size_t cells, const double *want)
{
    double chi = 0;

    for (size_t i = 0; i < cells; i++) {
        chi += want[i] > 0 ? square(seen[i] - want[i]) / want[i] : 0;
    }
    return chi;
}

/* Chance that two samples of different blocks share a window: their blocks hold two of the BLOCKS
 * places of the epoch. full: any two samples hold two of the SAMPLES positions. */
static double together(bool full)
{
    return full ? (BIN - 1.0) / (SAMPLES - 1.0) : (WINDOW - 1.0) / (BLOCKS - 1.0);
}

/* full: as if all samples were one window. */
static struct chi measure(positions_of *positions, const struct stk_order *order, bool full)
{
    static uint32_t single[PAIRS][BINS], turns[PAIRS][BINS * BINS], both[PAIRS][BINS * BINS];
    static uint32_t mates[PAIRS][2];
    static uint16_t now[SAMPLES], before[SAMPLES];
    double want_single[BINS], want_turns[BINS * BINS], want_both[BINS * BINS], want_mates[2];
    double same = together(full), mate = same * (BATCH - 1.0) / (BIN - 1.0);
    struct chi chi = {0};

    memset(single, 0, sizeof single);
    memset(turns, 0, sizeof turns);
    memset(both, 0, sizeof both);
    memset(mates, 0, sizeof mates);
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        memcpy(before, now, sizeof now);
        positions(order, epoch, now);
        for (int pair = 0; pair < PAIRS; pair++) {
            uint32_t a = one_of(pair, 0), b = one_of(pair, 1);

            single[pair][now[a] / BIN]++;
            both[pair][now[a] / BIN * BINS + now[b] / BIN]++;
            mates[pair][now[a] / BATCH == now[b] / BATCH]++;
            if (epoch % 2) { /* pairs of epochs that do not overlap */
                turns[pair][before[a] / BIN * BINS + now[a] / BIN]++;
            }
        }
    }
    for (uint32_t i = 0; i < BINS * BINS; i++) {
        want_single[i / BINS] = (double)EPOCHS / BINS;
        want_turns[i] = EPOCHS / 2.0 / (BINS * BINS);
        want_both[i] = i / BINS == i % BINS ? EPOCHS * same / BINS
                                            : EPOCHS * (1 - same) / (BINS * (BINS - 1.0));
    }
    want_mates[0] = EPOCHS * (1 - mate);
    want_mates[1] = EPOCHS * mate;
    for (int pair = 0; pair < PAIRS; pair++) {
        chi.positions += chi_of(single[pair], BINS, want_single);
        chi.epochs += chi_of(turns[pair], BINS * BINS, want_turns);
        chi.pairs += chi_of(both[pair], BINS * BINS, want_both);
        chi.mates += chi_of(mates[pair], 2, want_mates);
        chi.mates_share += (double)mates[pair][1] / EPOCHS / PAIRS;
    }
    return chi;
}

static void open_order(struct stk_order *order, uint32_t groups, uint32_t shuffle)
{
    struct stk_order_options options = {
        .sample_count = SAMPLES,
        .block_samples = BLOCK,
        .window_blocks = WINDOW,
        .group_count = groups,
        .shuffle = shuffle,
        .seed = seed,
    };

    T_EQ("options", stk_order_init(order, &options, NULL), 0);
}

static void print(const char *name, const struct chi *chi)
{
    printf("%-22s position %10.0f of %d, next epoch %10.0f of %d, pairs %10.0f of %d, "
           "mates %8.0f of %d (share %.4f)\n",
           name, chi->positions, PAIRS * ((int)BINS - 1), chi->epochs,
           PAIRS * ((int)(BINS * BINS) - 1), chi->pairs, PAIRS * ((int)(BINS * BINS) - 1),
           chi->mates, PAIRS, chi->mates_share);
}

static void test_fair(const char *name, uint32_t groups, uint32_t shuffle)
{
    struct stk_order order;
    struct chi chi;
    double cells = BINS * BINS - 1.0;

    open_order(&order, groups, shuffle);
    chi = measure(by_order, &order, shuffle == STOKER_SHUFFLE_FULL);
    print(name, &chi);
    T_TRUE(name, t_is_fair("positions", chi.positions, PAIRS * (BINS - 1.0)));
    T_TRUE(name, t_is_fair("next epoch", chi.epochs, PAIRS * cells));
    if (groups == 1) { /* with several, windows are not bins, and homes never change */
        T_TRUE(name, t_is_fair("pairs", chi.pairs, PAIRS * cells));
        T_TRUE(name, t_is_fair("mates", chi.mates, PAIRS));
    }
    T_TRUE("batch mates as under a full permutation, or nearly",
           chi.mates_share > 0.8 * (BATCH - 1) / (SAMPLES - 1) &&
               chi.mates_share < 1.25 * (BATCH - 1) / (SAMPLES - 1));
}

static void test_buffer(void)
{
    struct chi chi = measure(by_buffer, NULL, true);

    print("buffer of a window", &chi);
    T_TRUE("a buffer is not fair: positions", chi.positions > 1000 * PAIRS * (BINS - 1.0));
    T_TRUE("next epoch", chi.epochs > 100 * PAIRS * (BINS * BINS - 1.0));
    T_TRUE("pairs", chi.pairs > 100 * PAIRS * (BINS * BINS - 1.0));
}

/* Samples of one block: always in one window, there in any two places. */
static void test_block_mates(void)
{
    struct stk_order order;
    uint32_t seen[2] = {0};
    double mate = (BATCH - 1.0) / (BIN - 1.0), want[2] = {EPOCHS * (1 - mate), EPOCHS * mate};
    bool together_always = true;

    open_order(&order, 1, STOKER_SHUFFLE_BLOCK);
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        struct stk_order_epoch keys;
        uint64_t a, b;

        stk_order_epoch_begin(&keys, &order, epoch);
        a = stk_order_position(&keys, 200);
        b = stk_order_position(&keys, 207);
        together_always &= a / BIN == b / BIN;
        seen[a / BATCH == b / BATCH]++;
    }
    T_TRUE("one window", together_always);
    T_TRUE("any places of it", t_is_fair("block mates", chi_of(seen, 2, want), 1));
}

int main(int count, char **arguments)
{
    seed = count > 1 ? strtoull(arguments[1], NULL, 10) : seed;
    printf("seed %llu; chi-square of degrees of freedom\n", (unsigned long long)seed);
    test_fair("block shuffle", 1, STOKER_SHUFFLE_BLOCK);
    test_fair("block shuffle, groups", 4, STOKER_SHUFFLE_BLOCK);
    test_fair("full permutation", 1, STOKER_SHUFFLE_FULL);
    test_buffer();
    test_block_mates();
    return t_finish();
}
