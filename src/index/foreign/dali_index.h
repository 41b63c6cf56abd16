/* index/foreign/dali_index.h: the index that DALI's wds2idx makes of a tar: its members, as text.
 *
 *   "v1.2 SAMPLES\n", then a line for each sample: "EXTENSION OFFSET SIZE NAME" of each member
 *   open --the first line--> next -> member ... -> end
 *
 * Names stand between spaces without quotes, and GNU tar, which wds2idx asks, writes odd bytes as
 * \ooo: what cannot be told apart is refused, never guessed, and so are names of more than 100
 * bytes, as wds2idx misplaces those members. Versions before 1.2 have no names.
 * Source: NVIDIA DALI, tools/wds2idx.py (2021 to 2025), and what it writes.
 * Pure. Owner: values. Threads: any. Memory: none. Bound: STK_DALI_INDEX_BYTES_MAX of text. */
#ifndef INDEX_FOREIGN_DALI_INDEX_H
#define INDEX_FOREIGN_DALI_INDEX_H

#include "base/base.h"

#define STK_DALI_INDEX_BYTES_MAX (1ull << 30)

struct stk_dali_index {
    struct stk_view rest; /* lent, as is all of the text */
    uint64_t text_bytes, samples, lines;
    uint64_t end;     /* of the members so far, in whole blocks */
    bool line_begins; /* the next member begins a line */
};

struct stk_dali_index_member {
    struct stk_view name; /* lent from the text */
    uint64_t offset, bytes;
    uint64_t previous_end; /* where the member before it ends, in whole blocks: its headers lie
                              between */
};

/* FORMAT: it is none; UNSUPPORTED: an old version; error->offset: in the text. */
int stk_dali_index_open(struct stk_dali_index *dali, struct stk_view text,
                        struct stoker_error *error);
/* 1: a member, behind all before it; 0: the end; CORRUPT, UNSUPPORTED. */
int stk_dali_index_next(struct stk_dali_index *dali, struct stk_dali_index_member *member_out,
                        struct stoker_error *error);

#endif
