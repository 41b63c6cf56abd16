/* Goal: stk_permute is a bijection of every length, stk_permutation_invert is its inverse, and both
 * are as uniform as a random permutation.
 * Method: all lengths to 300 and those around powers of two are enumerated; chi-square over many
 * keys for the places of an index (lengths 2 to 16), of a pair of indexes (the same), for complete
 * permutations (2 to 5) and for differences (17 to 600). Takes a seed as its argument; the bounds
 * are so wide that a uniform permutation fails for almost no seed. */
#include "base/mem.h"
#include "base/random.h"
#include "order/order.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_MAX 16
#define LENGTH_MAX ((1u << 16) + 1)
#define KEYS 60000

static uint64_t seed = 1;

static double square(double x)
{
    return x * x;
}

static bool is_bijection(uint64_t key, uint64_t count, uint8_t *seen)
{
    struct stk_permutation permutation;

    memset(seen, 0, count);
    stk_permutation_init(&permutation, key, count);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = stk_permute(key, i, count);
        if (value >= count || seen[value] || stk_permutation_invert(&permutation, value) != i) {
            return false;
        }
        seen[value] = 1;
    }
    return true;
}

static void test_bijection(void)
{
    uint8_t *seen = stk_alloc(LENGTH_MAX, 1);

    for (uint64_t count = 1; seen && count <= 300; count++) {
        for (uint64_t key = 0; key < 20; key++) {
            T_TRUE("every length", is_bijection(seed + key, count, seen));
        }
    }
    for (unsigned power = 9; seen && power <= 16; power++) {
        for (uint64_t count = (1u << power) - 1; count <= (1u << power) + 1; count++) {
            T_TRUE("around a power of two", is_bijection(seed ^ count, count, seen));
        }
    }
    T_TRUE("memory", seen != NULL);
    stk_free(seen);
}

/* Too long to walk through: a stretch of indexes meets no value twice and none outside. */
static void test_long(void)
{
    static const uint64_t counts[] = {(UINT64_C(1) << 32) + 1, STK_ORDER_SAMPLES_MAX - 1,
                                      STK_ORDER_SAMPLES_MAX};
    static uint64_t values[4096];

    for (size_t i = 0; i < STK_COUNT(counts); i++) {
        bool inside = true, once = true, back = true;
        struct stk_permutation permutation;

        stk_permutation_init(&permutation, seed, counts[i]);
        for (size_t k = 0; k < STK_COUNT(values); k++) {
            uint64_t index = k < 2048 ? k : counts[i] - k;
            values[k] = stk_permute(seed, index, counts[i]);
            back &= stk_permutation_invert(&permutation, values[k]) == index;
            inside &= values[k] < counts[i];
            for (size_t j = 0; j < k; j++) {
                once &= values[j] != values[k];
            }
        }
        T_TRUE("inside", inside);
        T_TRUE("no value twice", once);
        T_TRUE("and back", back);
    }
}

static void test_short_fairness(uint64_t count)
{
    static uint32_t single[SHORT_MAX][SHORT_MAX];
    static uint32_t pairs[SHORT_MAX][SHORT_MAX][SHORT_MAX][SHORT_MAX];
    double chi = 0, want = (double)KEYS / (double)count;
    double want_pair = want / (double)(count - 1);
    bool fair = true;

    memset(single, 0, sizeof single);
    memset(pairs, 0, sizeof pairs);
    for (uint64_t k = 0; k < KEYS; k++) {
        uint64_t values[SHORT_MAX];
        for (uint64_t i = 0; i < count; i++) {
            values[i] = stk_permute(stk_random_key(seed, k), i, count);
            single[i][values[i]]++;
            for (uint64_t j = 0; j < i; j++) {
                pairs[i][j][values[i]][values[j]]++;
            }
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        for (uint64_t value = 0; value < count; value++) {
            chi += square(single[i][value] - want) / want;
        }
    }
    /* Rows and columns both have fixed sums: each cell varies less than in a free table, by
     * (count - 1) / count, but there are only (count - 1)^2 free ones. */
    chi *= (double)(count - 1) / (double)count;
    T_TRUE("places", t_is_fair("places", chi, (double)((count - 1) * (count - 1))));
    for (uint64_t i = 0; count > 2 && i < count; i++) {
        for (uint64_t j = 0; j < i; j++) {
            chi = 0;
            for (uint64_t cell = 0; cell < count * count; cell++) {
                uint64_t a = cell / count, b = cell % count;
                chi += a == b ? 0 : square(pairs[i][j][a][b] - want_pair) / want_pair;
            }
            fair &= t_is_fair("pair", chi, (double)(count * (count - 1) - 1));
        }
    }
    T_TRUE("pairs", fair);
}

/* All permutations of a few numbers, identified by their Lehmer code. */
static void test_full_fairness(uint64_t count)
{
    uint32_t seen[120] = {0};
    uint64_t all = 1;
    double chi = 0, want;

    for (uint64_t i = 2; i <= count; i++) {
        all *= i;
    }
    want = (double)KEYS / (double)all;
    for (uint64_t k = 0; k < KEYS; k++) {
        uint64_t values[5], code = 0;
        for (uint64_t i = 0; i < count; i++) {
            values[i] = stk_permute(stk_random_key(seed, k), i, count);
        }
        for (uint64_t i = 0; i < count; i++) {
            uint64_t smaller = 0;
            for (uint64_t j = i + 1; j < count; j++) {
                smaller += values[j] < values[i];
            }
            code = code * (count - i) + smaller;
        }
        seen[code]++;
    }
    for (uint64_t i = 0; i < all; i++) {
        chi += square(seen[i] - want) / want;
    }
    T_TRUE("complete permutations", t_is_fair("complete", chi, (double)(all - 1)));
}

/* A weak round shows in the distance of the results for two indexes that differ in one high bit. */
static void test_differences(uint64_t count, uint64_t apart, uint64_t values_in_all)
{
    static uint32_t seen[601];
    static uint64_t values[601];
    uint64_t keys = values_in_all / count, total = keys * (count - apart);
    double chi = 0, want = (double)total / (double)(count - 1);

    memset(seen, 0, sizeof seen);
    for (uint64_t k = 0; k < keys; k++) {
        struct stk_permutation permutation;

        stk_permutation_init(&permutation, stk_random_key(seed, k), count);
        for (uint64_t i = 0; i < count; i++) {
            values[i] = stk_permutation_apply(&permutation, i);
        }
        for (uint64_t i = 0; i + apart < count; i++) {
            seen[(values[i + apart] + count - values[i]) % count]++;
        }
    }
    for (uint64_t i = 1; i < count; i++) {
        chi += square(seen[i] - want) / want;
    }
    T_TRUE("differences", t_is_fair("differences", chi, (double)(count - 2)));
}

int main(int count, char **arguments)
{
    static const uint64_t lengths[] = {17, 32, 33, 64, 65, 100, 128, 129, 256, 300, 512, 600};

    seed = count > 1 ? strtoull(arguments[1], NULL, 10) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    test_bijection();
    test_long();
    for (uint64_t length = 2; length <= SHORT_MAX; length++) {
        test_short_fairness(length);
    }
    for (uint64_t length = 2; length <= 5; length++) {
        test_full_fairness(length);
    }
    for (size_t i = 0; i < STK_COUNT(lengths); i++) {
        test_differences(lengths[i], 1, 1000000);
        test_differences(lengths[i], lengths[i] / 2, 1000000);
    }
    /* So many show that one round less is not enough: 15 and 25 standard deviations. */
    test_differences(128, 64, 20000000);
    test_differences(256, 128, 20000000);
    return t_finish();
}
