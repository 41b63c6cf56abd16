/* index/foreign/dali_index.h: parses the index that DALI's wds2idx makes of a tar: a text with its
 * members.
 *
 *   "v1.2 SAMPLES\n", then one line per sample: "EXTENSION OFFSET SIZE NAME" of each member
 *   open --the first line--> next -> member ... -> end
 *
 * Names are between spaces without quotes, and GNU tar, whose output wds2idx uses, writes unusual
 * bytes as \ooo. Ambiguous names are refused, and so are names of more than 100 bytes, since
 * wds2idx writes wrong offsets for those members. Versions before 1.2 have no names.
 * Source: NVIDIA DALI, tools/wds2idx.py (2021 to 2025), and its output.
 * Pure. Owner: values. Threads: any.
 * Memory: none.
 * Bound: STK_DALI_INDEX_BYTES_MAX of text. */
#ifndef INDEX_FOREIGN_DALI_INDEX_H
#define INDEX_FOREIGN_DALI_INDEX_H

#include "base/base.h"

#define STK_DALI_INDEX_BYTES_MAX (1ull << 30)

struct stk_dali_index {
    struct stk_view rest; /* of the text, which is borrowed */
    uint64_t text_bytes, samples, lines;
    uint64_t end;     /* of the members so far, in complete blocks */
    bool line_begins; /* the next member begins a line */
};

struct stk_dali_index_member {
    struct stk_view name; /* of the text */
    uint64_t offset, bytes;
    uint64_t previous_end; /* the end of the member before it, in complete blocks: the headers
                              are between */
};

/* Returns 0, STOKER_ERROR_FORMAT if the text is no such index, or STOKER_ERROR_UNSUPPORTED for an
 * old version. error->offset is in the text. */
int stk_dali_index_open(struct stk_dali_index *dali, struct stk_view text,
                        struct stoker_error *error);
/* Returns 1 and sets *member_out, in the order of the tar; 0 at the end; or STOKER_ERROR_CORRUPT or
 * _UNSUPPORTED. */
int stk_dali_index_next(struct stk_dali_index *dali, struct stk_dali_index_member *member_out,
                        struct stoker_error *error);

#endif
