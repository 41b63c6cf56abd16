/* Rank and select on a bitmap. Ranks lie as in rank9 (Vigna, "Broadword implementation of
 * rank/select queries", 2008): for each block of 8 words, the number of ones before it, and a
 * second number with the ones before each of its words 1 to 7, 9 bits each. A select looks up the
 * block of the nearest 4096th one, and continues by binary search. */
#include "order/sampling/subset.h"

#include "base/mem.h"

#define BLOCK_WORDS 8u
#define BLOCK_BITS (BLOCK_WORDS * 64)
#define SELECT_STRIDE 4096u

static uint64_t blocks_of(uint64_t sample_count)
{
    return sample_count / BLOCK_BITS + 1; /* so that rank(sample_count) has a block */
}

uint64_t stk_subset_words(uint64_t sample_count)
{
    return blocks_of(sample_count) * BLOCK_WORDS;
}

uint64_t stk_subset_ranks(uint64_t sample_count)
{
    return blocks_of(sample_count) * 2;
}

/* One for each mark below count, and one where a search ends. */
uint64_t stk_subset_selects(uint64_t count)
{
    return (count + SELECT_STRIDE - 1) / SELECT_STRIDE + 1;
}

int stk_subset_init(struct stk_subset *subset, uint64_t sample_count, struct stoker_error *error)
{
    uint64_t blocks = blocks_of(sample_count);

    *subset = (struct stk_subset){.sample_count = sample_count};
    if (sample_count > STK_ORDER_SAMPLES_MAX) {
        *subset = (struct stk_subset){0};
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many samples for one subset",
                        "split the data set", "%llu samples, at most 2^56",
                        (unsigned long long)sample_count);
    }
    subset->words = stk_alloc(blocks * BLOCK_WORDS, sizeof *subset->words);
    subset->ranks = stk_alloc(blocks * 2, sizeof *subset->ranks);
    subset->selects = stk_alloc(sample_count / SELECT_STRIDE + 2, sizeof *subset->selects);
    if (!subset->words || !subset->ranks || !subset->selects) {
        stk_subset_deinit(subset);
        return stk_fail_memory(error, "subset, %llu samples", (unsigned long long)sample_count);
    }
    return 0;
}

void stk_subset_deinit(struct stk_subset *subset)
{
    stk_free(subset->words);
    stk_free(subset->ranks);
    stk_free(subset->selects);
    *subset = (struct stk_subset){0};
}

void stk_subset_add(struct stk_subset *subset, uint64_t sample)
{
    STK_ASSERT(sample < subset->sample_count);
    subset->words[sample / 64] |= UINT64_C(1) << sample % 64;
}

void stk_subset_invert(struct stk_subset *subset)
{
    uint64_t word_count = subset->sample_count / 64;

    for (uint64_t i = 0; i < word_count; i++) {
        subset->words[i] = ~subset->words[i];
    }
    subset->words[word_count] ^= (UINT64_C(1) << subset->sample_count % 64) - 1;
}

void stk_subset_freeze(struct stk_subset *subset)
{
    uint64_t blocks = blocks_of(subset->sample_count), count = 0, marks = 0;

    for (uint64_t block = 0; block < blocks; block++) {
        uint64_t inner = 0, packed = 0;

        for (uint32_t word = 0; word < BLOCK_WORDS; word++) {
            packed |= word ? inner << 9 * (word - 1) : 0;
            inner += (uint64_t)__builtin_popcountll(subset->words[block * BLOCK_WORDS + word]);
        }
        subset->ranks[2 * block] = count;
        subset->ranks[2 * block + 1] = packed;
        count += inner;
        while (marks * SELECT_STRIDE < count) {
            subset->selects[marks++] = block;
        }
    }
    subset->selects[marks] = blocks - 1; /* a search ends here */
    subset->count = count;
}

bool stk_subset_has(const struct stk_subset *subset, uint64_t sample)
{
    STK_ASSERT(sample < subset->sample_count);
    return subset->words[sample / 64] >> sample % 64 & 1;
}

/* Ones of a block before its word. */
static inline uint64_t rank_before_word(const struct stk_subset *subset, uint64_t block,
                                        uint32_t word)
{
    return word ? subset->ranks[2 * block + 1] >> 9 * (word - 1) & 511 : 0;
}

/* Checks whether the data of a block may be read. */
static inline bool is_valid(const struct stk_subset *subset, uint64_t block)
{
    return stk_mapped_table_check(&subset->mapped, subset->ranks + 2 * block, 16);
}

uint64_t stk_subset_rank(const struct stk_subset *subset, uint64_t sample)
{
    uint64_t block = sample / BLOCK_BITS, rank;
    uint64_t below = (UINT64_C(1) << sample % 64) - 1;

    STK_ASSERT(sample <= subset->sample_count);
    if (!is_valid(subset, block) ||
        !stk_mapped_table_check(&subset->mapped, subset->words + sample / 64, 8)) {
        return STK_MAPPED_TABLE_DAMAGED;
    }
    rank = subset->ranks[2 * block] +
           rank_before_word(subset, block, (uint32_t)(sample / 64 % BLOCK_WORDS)) +
           (uint64_t)__builtin_popcountll(subset->words[sample / 64] & below);
    return rank <= subset->count ? rank : STK_MAPPED_TABLE_DAMAGED;
}

/* Returns the place of the k-th one bit of a word that has k or more: each step counts the ones in
 * the lower half of the remaining bits. */
static uint32_t select_in_word(uint64_t word, uint32_t k)
{
    uint32_t place = 0;

    for (uint32_t half = 32; half > 0; half /= 2) {
        uint64_t low = word & ((UINT64_C(1) << half) - 1);
        uint32_t ones = (uint32_t)__builtin_popcountll(low);
        bool is_above = k >= ones;

        k -= is_above ? ones : 0;
        place += is_above ? half : 0;
        word = is_above ? word >> half : low;
    }
    return place;
}

/* The last block that begins at the k-th one or before; damaged: a block that does not exist. */
static uint64_t block_of(const struct stk_subset *subset, uint64_t k)
{
    uint64_t blocks = blocks_of(subset->sample_count), block, last;

    if (!stk_mapped_table_check(&subset->mapped, subset->selects + k / SELECT_STRIDE, 16)) {
        return blocks;
    }
    block = stk_mapped_table_u64(subset->selects + k / SELECT_STRIDE);
    last = stk_mapped_table_u64(subset->selects + k / SELECT_STRIDE + 1);
    if (last >= blocks) {
        return blocks;
    }
    while (block < last) {
        uint64_t middle = block + (last - block + 1) / 2;

        if (!is_valid(subset, middle)) {
            return blocks;
        }
        if (subset->ranks[2 * middle] <= k) {
            block = middle;
        } else {
            last = middle - 1;
        }
    }
    return block;
}

uint64_t stk_subset_select(const struct stk_subset *subset, uint64_t k)
{
    uint64_t block = block_of(subset, k), sample;
    const uint64_t *words = subset->words;
    uint32_t word = 0;

    STK_ASSERT(k < subset->count);
    if (block >= blocks_of(subset->sample_count) || !is_valid(subset, block) ||
        !stk_mapped_table_check(&subset->mapped, words + block * BLOCK_WORDS, BLOCK_WORDS * 8)) {
        return STK_MAPPED_TABLE_DAMAGED;
    }
    k -= subset->ranks[2 * block];
    for (uint32_t i = 1; i < BLOCK_WORDS; i++) {
        word += rank_before_word(subset, block, i) <= k;
    }
    k -= rank_before_word(subset, block, word);
    sample = block * BLOCK_BITS + word * 64 +
             select_in_word(words[block * BLOCK_WORDS + word], (uint32_t)k);
    /* Always true for a table that this process created. */
    return sample < subset->sample_count && words[sample / 64] >> sample % 64 & 1
               ? sample
               : STK_MAPPED_TABLE_DAMAGED;
}
