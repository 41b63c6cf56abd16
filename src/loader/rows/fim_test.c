/* Goal: documents with split tokens are changed fragment by fragment, at the given rates and for
 * the given number; a document that begins with no_prefix, or was cut, stays unchanged; without the
 * options nothing changes.
 * Method: numbered tokens, restored by their sentinels (fim.c; token_row.c calls it); rates and the
 * choices among fragments by chi-squares and shares of many keys. token_row_test.c tests the result
 * for one document. */
#include "loader/rows/fim.h"

#include "base/mem.h"
#include "loader/rows/token_row.h"
#include "test/t.h"

#include <string.h>

enum { PREFIX = 1001, SUFFIX, MIDDLE, SPLIT = 1004, EOD = 1005 };
#define TOKENS_MAX 256u

static const struct stk_fim always = {.rate = 1,
                                      .fragment_rate = 1,
                                      .sentinels = {PREFIX, SUFFIX, MIDDLE},
                                      .has_split = true,
                                      .split = SPLIT,
                                      .fragments_max = 100};

/* Fragments of so many tokens 1, 2, 3 ..., with split tokens between them. */
static uint64_t make(int64_t *tokens, const uint32_t *lengths, uint32_t count)
{
    uint64_t at = 0;
    int64_t next = 1;

    for (uint32_t i = 0; i < count; i++) {
        if (i > 0) {
            tokens[at++] = SPLIT;
        }
        for (uint32_t k = 0; k < lengths[i]; k++) {
            tokens[at++] = next++;
        }
    }
    return at;
}

/* Restores a changed fragment: PREFIX p SUFFIX s MIDDLE m, or PREFIX SUFFIX s MIDDLE p m. With
 * numbered tokens the first number tells which. Returns false if it is neither. */
static bool put_back(int64_t *tokens, uint64_t count)
{
    int64_t document[TOKENS_MAX];
    uint64_t suffix = 0, middle = 0, at = 0;

    for (uint64_t i = 0; i < count; i++) {
        suffix = tokens[i] == SUFFIX ? i : suffix;
        middle = tokens[i] == MIDDLE ? i : middle;
    }
    if (count < 3 || tokens[0] != PREFIX || suffix == 0 || middle < suffix) {
        return false;
    }
    for (uint64_t i = 1; i < suffix; i++) {
        document[at++] = tokens[i];
    }
    for (uint64_t i = middle + 1; i < count; i++) {
        document[at++] = tokens[i];
    }
    for (uint64_t i = suffix + 1; i < middle; i++) {
        document[at++] = tokens[i];
    }
    memcpy(tokens, document, at * sizeof *tokens);
    return at + 3 == count;
}

/* Puts changed fragments back, in place: how many they were; *count_io: tokens. */
static uint32_t undo(int64_t *tokens, uint64_t *count_io, bool *changed, uint32_t fragments)
{
    uint64_t to = 0, number = 0;
    uint32_t found = 0;

    for (uint64_t at = 0, end; at < *count_io; at = end + 1, number++) {
        uint64_t length;
        bool is_one;

        for (end = at; end < *count_io && tokens[end] != SPLIT; end++) {
        }
        length = end - at;
        is_one = put_back(tokens + at, length);
        if (number < fragments) {
            changed[number] = is_one;
        }
        found += is_one;
        length -= is_one ? 3 : 0;
        memmove(tokens + to, tokens + at, length * sizeof *tokens);
        to += length;
        if (end < *count_io) {
            tokens[to++] = SPLIT;
        }
    }
    *count_io = to;
    return found;
}

static const struct fragments {
    const char *name;
    uint32_t count, lengths[8], changed;
} fragment_rows[] = {
    {"three", 3, {5, 4, 1}, 3},
    {"empty ones", 5, {0, 4, 0, 2, 0}, 2},
    {"splits alone", 4, {0, 0, 0, 0}, 0},
    {"one", 1, {9}, 1},
};

static void test_fragments(void)
{
    T_EACH(fragments, row, fragment_rows)
    {
        for (uint64_t key = 0; key < 200; key++) {
            int64_t tokens[TOKENS_MAX], got[TOKENS_MAX];
            struct stk_fim_output out = {got, TOKENS_MAX, 0};
            uint64_t count = make(tokens, row->lengths, row->count);
            bool changed[8], is_changed = stk_fim_apply(&always, tokens, count, key, &out);

            T_EQ(row->name, is_changed, row->changed > 0);
            if (is_changed) {
                T_EQ(row->name, out.count, count + 3 * row->changed);
                T_EQ(row->name, undo(got, &out.count, changed, 8), row->changed);
                T_TRUE(row->name,
                       out.count == count && memcmp(got, tokens, count * sizeof *tokens) == 0);
            }
        }
    }
}

/* At most three of ten fragments: any three in a row. */
static void test_most(void)
{
    static const uint32_t lengths[10] = {3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
    struct stk_fim fim = always;
    uint64_t firsts[8] = {0};
    double chi = 0;

    fim.fragments_max = 3;
    T_EQ("added", stk_fim_added_max(&fim), 9);
    for (uint64_t key = 0; key < 8000; key++) {
        int64_t tokens[TOKENS_MAX], got[TOKENS_MAX];
        struct stk_fim_output out = {got, TOKENS_MAX, 0};
        uint64_t count = make(tokens, lengths, 10);
        uint32_t first = 0;
        bool changed[10];

        T_TRUE("changed", stk_fim_apply(&fim, tokens, count, key, &out));
        T_EQ("most", undo(got, &out.count, changed, 10), 3);
        while (first < 8 && !changed[first]) {
            first++;
        }
        if (T_TRUE("in a row", first < 8 && changed[first + 1] && changed[first + 2])) {
            firsts[first]++;
        }
    }
    for (uint32_t i = 0; i < 8; i++) {
        chi += ((double)firsts[i] - 1000) * ((double)firsts[i] - 1000) / 1000;
    }
    T_TRUE("any of them", t_is_fair("firsts", chi, 7));
}

/* Documents by rate, then fragments by theirs; one without a split token by rate alone, and as if
 * there were no such token. */
static void test_rates(void)
{
    static const uint32_t lengths[4] = {4, 4, 4, 4};
    struct stk_fim fim = always, plain;
    uint64_t documents = 0, fragments = 0, alone = 0;

    fim.rate = 0.5;
    fim.fragment_rate = 0.75;
    plain = fim;
    plain.has_split = false;
    T_EQ("added", stk_fim_added_max(&plain), 3);
    for (uint64_t key = 0; key < 20000; key++) {
        int64_t tokens[TOKENS_MAX], got[TOKENS_MAX], other[TOKENS_MAX];
        struct stk_fim_output out = {got, TOKENS_MAX, 0}, same = {other, TOKENS_MAX, 0};
        uint64_t count = make(tokens, lengths, 4);
        bool changed[4], is_alone;

        if (stk_fim_apply(&fim, tokens, count, key, &out)) {
            T_TRUE("due", stk_fim_may_change(&fim, key));
            documents++;
            fragments += undo(got, &out.count, changed, 4);
        }
        out.count = 0;
        is_alone = stk_fim_apply(&fim, tokens, 4, key, &out);
        alone += is_alone;
        T_EQ("no split", stk_fim_apply(&plain, tokens, 4, key, &same), is_alone);
        T_TRUE("no split",
               same.count == out.count && memcmp(got, other, out.count * sizeof *got) == 0);
    }
    /* 1 document in 256 that is due has no fragment that is. */
    T_TRUE("documents", documents > 9700 && documents < 10250);
    T_TRUE("fragments", fragments > 29300 && fragments < 30700);
    T_TRUE("alone", alone > 9750 && alone < 10250);
}

static const struct prefix {
    const char *name;
    uint32_t count;
    int64_t tokens[3];
    bool changes; /* the document 1, 2, 3, SPLIT, 4, 5 */
    uint32_t changed;
} prefixes[] = {
    {"none", 0, {0}, true, 2},
    {"a token", 1, {1}, true, 1},
    {"two", 2, {1, 2}, true, 1},
    {"another", 2, {1, 3}, true, 2},
    {"the second's", 2, {4, 5}, true, 1},
    {"longer than it", 3, {4, 5, 6}, true, 2},
};

static void test_prefixes(void)
{
    static const uint32_t lengths[2] = {3, 2};

    T_EACH(prefix, row, prefixes)
    {
        struct stk_fim fim = always;
        int64_t tokens[TOKENS_MAX], got[TOKENS_MAX];
        struct stk_fim_output out = {got, TOKENS_MAX, 0};
        uint64_t count = make(tokens, lengths, 2);
        bool changed[2];

        fim.no_prefix_count = row->count;
        memcpy(fim.no_prefix, row->tokens, sizeof row->tokens);
        T_EQ(row->name, stk_fim_apply(&fim, tokens, count, 1, &out), row->changes);
        T_EQ(row->name, undo(got, &out.count, changed, 2), row->changed);
        out.count = 0; /* the first alone, without a split token */
        T_EQ(row->name, stk_fim_apply(&fim, tokens, 3, 1, &out),
             row->changed == 2 || row->tokens[0] == 4);
    }
}

/* Rows: a document that was cut stays unchanged, as may the first and last document of a window. */
static void test_uncut(void)
{
    static const int64_t window[] = {1, 2, EOD, 3, 4, 5, EOD, 6, 7};
    static const int64_t after = 9;
    struct stk_token_row_rules rules = {.has_eod = true, .eod = EOD, .fim = always};
    struct stk_token_row row = {0};

    rules.fim.has_split = false;
    T_EQ("open", stk_token_row_open(&row, 64, NULL), 0);
    for (uint32_t kind = 0; kind < 16; kind++) {
        bool begins = kind & 1, ends = kind & 2, is_whole = begins && ends;

        rules.fim.uncut_only = kind & 4;
        stk_token_row_clear(&row);
        for (int64_t i = 0; i < 5; i++) {
            row.tokens[i] = i + 1;
        }
        stk_token_row_add(&row, &rules, 5, begins, ends ? NULL : &after, 3);
        T_EQ("a piece", row.count, !rules.fim.uncut_only || is_whole ? 8 : 5);
    }
    for (uint32_t document = 0; document < 2; document++) {
        rules.fim.uncut_only = document;
        stk_token_row_clear(&row);
        memcpy(row.tokens, window, sizeof window);
        stk_token_row_add_window(&row, &rules, STK_COUNT(window), 3);
        T_EQ("a window", row.count, STK_COUNT(window) + (document ? 3 : 9));
        T_TRUE("a window", !document || (row.tokens[0] == 1 && row.tokens[3] == PREFIX &&
                                         row.tokens[row.count - 1] == 7));
    }
    stk_token_row_close(&row);
}

int main(void)
{
    test_fragments();
    test_most();
    test_rates();
    test_prefixes();
    test_uncut();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
