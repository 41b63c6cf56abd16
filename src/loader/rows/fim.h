/* loader/rows/fim.h: fill in the middle (Bavarian et al. 2022, "Efficient Training of Language
 * Models to Fill in the Middle"): reorders a document into prefix, suffix and middle, each after a
 * sentinel. Pure.
 *
 *   document --no split token--> cut at two positions, by `rate` ----------------------> PSM or SPM
 *            --split tokens--> by `rate`: fragments, each by `fragment_rate` cut at two --^
 *
 * The choice of documents and positions is a function of a key alone.
 * Owner: values. Threads: any. Memory: none. Bound: capacity of the output. */
#ifndef LOADER_ROWS_FIM_H
#define LOADER_ROWS_FIM_H

#include "base/base.h"

#define STK_FIM_SENTINELS 3u
#define STK_FIM_NO_PREFIX_MAX 64u

enum stk_fim_token { STK_FIM_PREFIX, STK_FIM_SUFFIX, STK_FIM_MIDDLE };

/* The options of Megatron's GPTFIMDataset under their names, with tokens in place of text; and two
 * more. */
struct stk_fim {
    double rate;          /* share of documents that are changed, or whose fragments may be */
    double spm_rate;      /* share of changes with the suffix before the prefix */
    double fragment_rate; /* share of fragments changed, in documents with a split token */
    int64_t sentinels[STK_FIM_SENTINELS];
    bool has_split;
    int64_t split;            /* separates two fragments */
    uint32_t fragments_max;   /* changed in a document: the row has space for so many */
    bool uncut_only;          /* change entire documents only, not parts of one */
    uint32_t no_prefix_count; /* 0: none */
    int64_t no_prefix[STK_FIM_NO_PREFIX_MAX]; /* a document that begins with these is not changed */
};

/* The output; tokens beyond its capacity are dropped. */
struct stk_fim_output {
    int64_t *tokens;
    uint64_t capacity, count;
};

/* Returns the largest number of tokens that a change adds. */
uint64_t stk_fim_added_max(const struct stk_fim *fim);
/* Whether this key may change a document. */
bool stk_fim_may_change(const struct stk_fim *fim, uint64_t key);
/* Appends a changed document, or part of one, to the output; `tokens` must not overlap it. Returns
 * false if the document is not changed: then nothing is appended. */
bool stk_fim_apply(const struct stk_fim *fim, const int64_t *tokens, uint64_t count, uint64_t key,
                   struct stk_fim_output *out);

#endif
