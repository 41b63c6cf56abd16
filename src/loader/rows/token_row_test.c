/* Goal: a row consists of its documents, each changed as the paper on fill in the middle describes
 * and at the given rate, with the labels, positions and starts that a walk over it finds.
 * Method: tables of small rows written out by hand (token_row.c), in both dtypes; random documents
 * whose changed form is restored by its sentinels; rates and cuts against chi-square. */
#include "loader/rows/token_row.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>

#define LENGTH 8u
#define X STK_TOKEN_ROW_LABEL_IGNORED

/* ---- rows written out by hand ---- */

static const struct rows_row {
    const char *name;
    struct stk_token_row_rules rules;
    bool window;
    struct {
        uint32_t count;
        int64_t after; /* 0: it ends */
        int64_t tokens[9];
    } parts[3];
    uint32_t part_count;
    int64_t tokens[LENGTH], labels[LENGTH], positions[LENGTH];
    uint32_t starts[LENGTH + 1], start_count;
} rows_rows[] = {
    {"nothing",
     {.pad = 7},
     false,
     {{0}},
     0,
     {7, 7, 7, 7, 7, 7, 7, 7},
     {X, X, X, X, X, X, X, X},
     {0, 1, 2, 3, 4, 5, 6, 7},
     {0},
     1},
    {"two documents",
     {.pad = 7, .mask_ends = true},
     false,
     {{3, 0, {11, 12, 13}}, {2, 0, {21, 22}}},
     2,
     {11, 12, 13, 21, 22, 7, 7, 7},
     {12, 13, X, 22, X, X, X, X},
     {0, 1, 2, 0, 1, 0, 1, 2},
     {0, 3, 5},
     3},
    {"labels across documents, positions of the row",
     {.pad = 7, .row_positions = true},
     false,
     {{3, 0, {11, 12, 13}}, {2, 0, {21, 22}}},
     2,
     {11, 12, 13, 21, 22, 7, 7, 7},
     {12, 13, 21, 22, X, X, X, X},
     {0, 1, 2, 3, 4, 5, 6, 7},
     {0, 3, 5},
     3},
    {"an EOD is appended",
     {.pad = 7, .mask_ends = true, .has_eod = true, .eod = 9, .append_eod = true},
     false,
     {{3, 0, {11, 12, 13}}, {0, 0, {0}}, {1, 0, {21}}},
     3,
     {11, 12, 13, 9, 9, 21, 9, 7},
     {12, 13, 9, X, X, 9, X, X},
     {0, 1, 2, 3, 0, 0, 1, 0},
     {0, 4, 5, 7},
     4},
    {"a document goes on",
     {.mask_ends = true, .has_eod = true, .eod = 9, .append_eod = true},
     false,
     {{8, 99, {1, 2, 3, 4, 5, 6, 7, 8}}},
     1,
     {1, 2, 3, 4, 5, 6, 7, 8},
     {2, 3, 4, 5, 6, 7, 8, 99},
     {0, 1, 2, 3, 4, 5, 6, 7},
     {0},
     1},
    {"a window, its documents masked",
     {.mask_ends = true, .has_eod = true, .eod = 9},
     true,
     {{9, 0, {1, 2, 9, 9, 3, 4, 5, 9, 6}}},
     1,
     {1, 2, 9, 9, 3, 4, 5, 9},
     {2, 9, X, X, 4, 5, 9, X},
     {0, 1, 2, 0, 0, 1, 2, 3},
     {0, 3, 4},
     3},
    {"a window, its documents joined",
     {.has_eod = true, .eod = 9, .row_positions = true},
     true,
     {{9, 0, {1, 2, 9, 9, 3, 4, 5, 9, 6}}},
     1,
     {1, 2, 9, 9, 3, 4, 5, 9},
     {2, 9, 9, 3, 4, 5, 9, 6},
     {0, 1, 2, 3, 4, 5, 6, 7},
     {0, 3, 4},
     3},
    {"a window without EOD",
     {.mask_ends = true},
     true,
     {{9, 0, {1, 2, 9, 9, 3, 4, 5, 9, 6}}},
     1,
     {1, 2, 9, 9, 3, 4, 5, 9},
     {2, 9, 9, 3, 4, 5, 9, 6},
     {0, 1, 2, 3, 4, 5, 6, 7},
     {0},
     1},
    {"an empty document is changed to nothing",
     {.fim = {.rate = 1, .sentinels = {81, 82, 83}}, .has_eod = true, .eod = 9, .mask_ends = true},
     false,
     {{1, 0, {9}}},
     1,
     {9, 0, 0, 0, 0, 0, 0, 0},
     {X, X, X, X, X, X, X, X},
     {0, 0, 1, 2, 3, 4, 5, 6},
     {0, 1},
     2},
};

static int64_t number_at(const void *out, uint32_t dtype, uint64_t i)
{
    return dtype == STOKER_INT32 ? ((const int32_t *)out)[i] : ((const int64_t *)out)[i];
}

static void make(struct stk_token_row *row, const struct rows_row *from)
{
    stk_token_row_clear(row);
    for (uint32_t i = 0; i < from->part_count; i++) {
        uint32_t count = from->parts[i].count;

        memcpy(row->tokens + row->count, from->parts[i].tokens, count * sizeof(int64_t));
        if (from->window) {
            stk_token_row_add_window(row, &from->rules, count, 1);
        } else {
            stk_token_row_add(row, &from->rules, count, true,
                              from->parts[i].after ? &from->parts[i].after : NULL, 1);
        }
    }
}

static void test_rows(uint32_t dtype)
{
    struct stk_token_row row = {0};

    T_EQ("open", stk_token_row_open(&row, LENGTH + 1, NULL), 0);
    T_EACH(rows_row, each, rows_rows)
    {
        int64_t out[3][LENGTH];
        struct stk_token_row_output to = {LENGTH, dtype, out[0], out[1], out[2]};
        uint32_t starts[LENGTH + 1];

        make(&row, each);
        memset(out, 0x55, sizeof out);
        T_TRUE(each->name, stk_token_row_write(&row, &each->rules, &to));
        for (uint64_t i = 0; i < LENGTH; i++) {
            T_EQ(each->name, number_at(out[0], dtype, i), each->tokens[i]);
            T_EQ(each->name, number_at(out[1], dtype, i), each->labels[i]);
            T_EQ(each->name, number_at(out[2], dtype, i), each->positions[i]);
        }
        T_EQ(each->name, stk_token_row_starts(&row, LENGTH, starts), each->start_count);
        T_TRUE(each->name, memcmp(starts, each->starts, 4 * each->start_count) == 0);
    }
    stk_token_row_close(&row);
}

/* ---- fill in the middle ---- */

#define PREFIX 1001
#define SUFFIX 1002
#define MIDDLE 1003

static int64_t *find(int64_t *from, int64_t *end, int64_t token)
{
    while (from < end && *from != token) {
        from++;
    }
    return from;
}

/* Restores a changed document of count + 3 tokens; returns the place of its first cut, or
 * -1: the tokens are not first, first + 1, ... in another order. */
static int64_t put_back(int64_t *tokens, uint64_t count, int64_t first, bool *spm_out)
{
    int64_t *end = tokens + count + 3, *suffix = find(tokens, end, SUFFIX);
    int64_t *middle = find(tokens, end, MIDDLE), document[64], *to = document;
    uint64_t low = 0;

    if (tokens[0] != PREFIX || suffix == end || middle == end || middle < suffix) {
        return -1;
    }
    *spm_out = suffix == tokens + 1 && middle > suffix + 1 && suffix[1] != first;
    if (*spm_out) { /* the rest after MIDDLE is prefix and middle, joined */
        memcpy(to, middle + 1, (size_t)(end - middle - 1) * sizeof *to);
        to += end - middle - 1;
    } else {
        low = (uint64_t)(suffix - tokens - 1);
        memcpy(to, tokens + 1, low * sizeof *to);
        to += low;
        memcpy(to, middle + 1, (size_t)(end - middle - 1) * sizeof *to);
        to += end - middle - 1;
    }
    memcpy(to, suffix + 1, (size_t)(middle - suffix - 1) * sizeof *to);
    for (uint64_t i = 0; i < count; i++) {
        if (document[i] != first + (int64_t)i) {
            return -1;
        }
    }
    return (int64_t)low;
}

/* Documents of 30 tokens: how many are changed, how many of those have the prefix first, and where
 * they are cut. The smaller of two fair draws of 0 .. 30 is c with weight 2 (30 - c) + 1. */
static void test_fim(void)
{
    enum { COUNT = 30, DRAWS = 40000 };
    struct stk_token_row_rules rules = {
        .fim = {.rate = 0.5, .spm_rate = 0.25, .sentinels = {PREFIX, SUFFIX, MIDDLE}},
        .mask_ends = true};
    uint64_t changed = 0, psm_count = 0, cuts[COUNT + 1] = {0};
    double chi = 0;
    struct stk_token_row row = {0};

    T_EQ("open", stk_token_row_open(&row, COUNT + 3, NULL), 0);
    for (uint64_t n = 0; n < DRAWS; n++) {
        int64_t low;
        bool spm = false;

        stk_token_row_clear(&row);
        for (uint64_t i = 0; i < COUNT; i++) {
            row.tokens[i] = (int64_t)i;
        }
        stk_token_row_add(&row, &rules, COUNT, true, NULL, stk_random_key(5, n));
        if (row.count == COUNT) {
            T_TRUE("as it was", row.tokens[0] == 0 && row.tokens[COUNT - 1] == COUNT - 1);
            continue;
        }
        changed++;
        T_EQ("sentinels", row.count, COUNT + 3);
        low = put_back(row.tokens, COUNT, 0, &spm);
        if (!T_TRUE("parts", low >= 0)) {
            break;
        }
        psm_count += !spm && low > 0;
        cuts[low] += !spm;
    }
    T_TRUE("rate", changed > DRAWS * 0.48 && changed < DRAWS * 0.52);
    /* A PSM with an empty prefix (61 of 961) is the same as some SPM: it is not counted. */
    T_TRUE("PSM", psm_count > 0.69 * (double)changed && psm_count < 0.715 * (double)changed);
    for (uint64_t c = 1; c <= COUNT; c++) { /* of c = 0 see above */
        double want =
            0.75 * (double)changed * (2 * (COUNT - (double)c) + 1) / ((COUNT + 1) * (COUNT + 1));

        chi += ((double)cuts[c] - want) * ((double)cuts[c] - want) / want;
    }
    T_TRUE("cuts", t_is_fair("cuts", chi, COUNT));
    stk_token_row_close(&row);
}

/* The label of the last token of a cut document is the token after the cut; not if the document
 * was changed: then its middle is the last part. */
static void test_fim_after_cut(void)
{
    static const int64_t part[] = {1, 2, 3, 4};
    const int64_t next_token = 5;

    for (int rate = 0; rate <= 1; rate++) {
        struct stk_token_row_rules rules = {
            .fim = {.rate = rate, .sentinels = {PREFIX, SUFFIX, MIDDLE}}, .mask_ends = true};
        struct stk_token_row row = {0};
        int64_t tokens[8], labels[8];
        struct stk_token_row_output out = {
            .length = 8, .dtype = STOKER_INT64, .tokens = tokens, .labels = labels};

        T_EQ("open", stk_token_row_open(&row, 8, NULL), 0);
        memcpy(row.tokens, part, sizeof part);
        stk_token_row_add(&row, &rules, STK_COUNT(part), true, &next_token, 1);
        T_EQ("count", row.count, rate ? 7 : 4);
        T_TRUE("write", stk_token_row_write(&row, &rules, &out));
        T_EQ("the last label", labels[row.count - 1], rate ? X : 5);
        stk_token_row_close(&row);
    }
}

/* In a window each document is changed by itself, its EOD stays last, and tokens that do not fit
 * are lost at the end. */
static void test_fim_window(void)
{
    static const int64_t window[] = {1, 2, 3, 9, 4, 5, 9, 9, 6, 7, 8};
    struct stk_token_row_rules rules = {.fim = {.rate = 1, .sentinels = {PREFIX, SUFFIX, MIDDLE}},
                                        .has_eod = true,
                                        .eod = 9,
                                        .mask_ends = true};
    struct stk_token_row row = {0}, other = {0};
    uint32_t starts[32];
    bool spm;

    T_EQ("open", stk_token_row_open(&row, STK_COUNT(window) + 9, NULL), 0);
    memcpy(row.tokens, window, sizeof window);
    stk_token_row_add_window(&row, &rules, STK_COUNT(window), 3);
    T_EQ("all", row.count, STK_COUNT(window) + 9);
    T_EQ("starts", stk_token_row_starts(&row, row.count, starts), 4);
    T_EQ("starts", starts[1], 7);
    T_EQ("starts", starts[2], 13);
    T_EQ("starts", starts[3], 14);
    T_TRUE("first", put_back(row.tokens, 3, 1, &spm) >= 0 && row.tokens[6] == 9);
    T_TRUE("second", put_back(row.tokens + 7, 2, 4, &spm) >= 0 && row.tokens[12] == 9);
    T_EQ("an EOD alone", row.tokens[13], 9);
    T_TRUE("last", put_back(row.tokens + 14, 3, 6, &spm) >= 0);

    T_EQ("open", stk_token_row_open(&other, STK_COUNT(window), NULL), 0);
    memcpy(other.tokens, window, sizeof window);
    stk_token_row_add_window(&other, &rules, STK_COUNT(window), 3);
    T_EQ("cut", other.count, STK_COUNT(window));
    T_TRUE("cut", memcmp(other.tokens, row.tokens, sizeof window) == 0);
    T_EQ("cut", stk_token_row_starts(&other, other.count, starts), 2);
    stk_token_row_close(&row);
    stk_token_row_close(&other);
}

/* ---- errors ---- */

static void test_refused(void)
{
    struct stk_token_row row = {0};
    struct stoker_error error = {0};
    int64_t after = INT64_C(1) << 31, out[2][2];
    struct stk_token_row_output to = {2, STOKER_INT32, out[0], out[1], NULL};
    struct stk_token_row_rules rules = {0};
    int status = -ENOMEM;

    T_EQ("too long", stk_token_row_open(&row, STK_TOKEN_ROW_TOKENS_MAX + 1, &error),
         STOKER_ERROR_LIMIT);
    T_ERROR("too long", &error);
    for (uint64_t n = 1; status == -ENOMEM; n++) {
        stk_mem_fail_nth(n);
        status = stk_token_row_open(&row, 2, &error);
        stk_mem_fail_nth(0);
        T_EQ("no leak", stk_mem_alive(), status == 0 ? 3 : 0);
        T_TRUE("allocations", status == -ENOMEM || n == 4);
    }
    row.tokens[0] = row.tokens[1] = 1;
    stk_token_row_add(&row, &rules, 2, true, &after, 0);
    T_TRUE("a label that does not fit", !stk_token_row_write(&row, &rules, &to));
    to.labels = NULL;
    T_TRUE("tokens that do", stk_token_row_write(&row, &rules, &to));
    row.tokens[1] = INT64_MIN;
    T_TRUE("a token that does not fit", !stk_token_row_write(&row, &rules, &to));
    to.dtype = STOKER_INT64;
    T_TRUE("but as int64", stk_token_row_write(&row, &rules, &to));
    stk_token_row_close(&row);
    stk_token_row_close(&row);
}

int main(void)
{
    test_rows(STOKER_INT64);
    test_rows(STOKER_INT32);
    test_fim();
    test_fim_after_cut();
    test_fim_window();
    test_refused();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
