/* loader/rows/fim.h: fill in the middle (Bavarian et al. 2022, "Efficient Training of Language
 * Models to Fill in the Middle"): a document becomes its prefix, suffix and middle, behind a
 * sentinel each. Pure.
 *
 *   document --no split token--> cut at two places, by `rate` ------------------------> PSM or SPM
 *            --split tokens--> by `rate`: fragments, each by `fragment_rate` cut at two --^
 *
 * Which ones, and where, is a function of a key, so of whatever made the key.
 * Owner: values. Threads: any. Memory: none. Bound: out's room. */
#ifndef LOADER_ROWS_FIM_H
#define LOADER_ROWS_FIM_H

#include "base/base.h"

#define STK_FIM_SENTINELS 3u
#define STK_FIM_NO_PREFIX_MAX 64u

enum stk_fim_token { STK_FIM_PREFIX, STK_FIM_SUFFIX, STK_FIM_MIDDLE };

/* The options of Megatron's GPTFIMDataset, by their names, of tokens where those are of text; and
 * two more. */
struct stk_fim {
    double rate;          /* of documents that are changed, or whose fragments may be */
    double spm_rate;      /* of what is changed, that whose suffix comes before the prefix */
    double fragment_rate; /* of fragments, in documents with a split token */
    int64_t sentinels[STK_FIM_SENTINELS];
    bool has_split;
    int64_t split;            /* what lies between two of them is a fragment */
    uint32_t fragments_max;   /* of a document that are changed: for more there is no room */
    bool uncut_only;          /* only what is no part of a document that was cut */
    uint32_t no_prefix_count; /* 0: none */
    int64_t no_prefix[STK_FIM_NO_PREFIX_MAX]; /* what begins with these stays as it is */
};

/* Where it goes: what finds no room is lost. */
struct stk_fim_output {
    int64_t *tokens;
    uint64_t capacity, count;
};

/* Tokens that are put to `count` others at most. */
uint64_t stk_fim_added_max(const struct stk_fim *fim);
/* Whether something may be changed by this key. */
bool stk_fim_may_change(const struct stk_fim *fim, uint64_t key);
/* Puts a document, or a part of one; tokens are none of out's. false: it was not changed, and not
 * put. */
bool stk_fim_apply(const struct stk_fim *fim, const int64_t *tokens, uint64_t count, uint64_t key,
                   struct stk_fim_output *out);

#endif
