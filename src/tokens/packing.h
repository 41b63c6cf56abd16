/* tokens/packing.h: documents of any length, packed into sequences of one length. Pure.
 *
 *   documents of a chunk --cut--> pieces of at most a sequence --longest first, best fit-->
 * sequences
 *
 * Best-fit decreasing cuts a document only where it is longer than a sequence (Ding et al. 2024,
 * "Fewer Truncations Improve Language Modeling"). A plan is a function of its chunk alone: so any
 * chunk can be packed without those before it, and the same on every rank.
 * Owner: whoever made the plan. Threads: any. Memory: 28 bytes a piece and 4 a token of the
 * length while it is made; 16 a piece and 4 a sequence afterwards.
 * Bound: STK_PACKING_DOCUMENTS_MAX, _LENGTH_MAX, _PIECES_MAX. */
#ifndef TOKENS_PACKING_H
#define TOKENS_PACKING_H

#include "tokens/tokens.h"

#define STK_PACKING_DOCUMENTS_MAX (1u << 20)
#define STK_PACKING_LENGTH_MAX (1u << 24)
#define STK_PACKING_PIECES_MAX (1u << 24)

/* The label that losses leave out (torch.nn.CrossEntropyLoss's ignore_index). */
#define STK_LABEL_IGNORED (-100)

struct stk_piece {
    uint64_t first; /* token of the document */
    uint32_t document, count;
};

struct stk_packing {
    uint32_t length; /* tokens of a sequence */
    uint32_t piece_count, sequence_count;
    struct stk_piece *pieces; /* sequence by sequence; owned */
    uint32_t *ends;           /* [sequence_count]: pieces of the sequences up to and with this one;
                                 owned */
};

/* counts: tokens of each document; an empty one has no piece. Of equally good sequences the newest
 * takes a piece. ARGUMENT, LIMIT, -ENOMEM. */
int stk_packing_plan(struct stk_packing *packing, const uint64_t *counts, uint32_t document_count,
                     uint32_t length, struct stoker_error *error);
void stk_packing_close(struct stk_packing *packing); /* zeroed is fine */

/* Where the rows of one sequence go: `length` numbers each, int32 or int64; NULL: not wanted. */
struct stk_packed_row {
    uint32_t dtype;
    void *tokens; /* padding: pad */
    void *labels; /* what comes next in its document; STK_LABEL_IGNORED at its end, and padding */
    void *positions; /* from 0 in each piece, and in the padding */
    int32_t pad;
};

/* Fills the rows of one sequence. documents: where each document of the chunk lies in the run.
 * false: a token does not fit (rows hold rubbish). */
bool stk_packing_fill(const struct stk_packing *packing, uint32_t sequence,
                      const struct stk_token_run *run, const struct stk_token_span *documents,
                      const struct stk_packed_row *row);

/* Where pieces begin in the sequence, then where the padding does, if any: `cu_seqlens` of kernels
 * for attention, less its last number, the length. starts_out: pieces + 1; how many. */
uint32_t stk_packing_starts(const struct stk_packing *packing, uint32_t sequence,
                            uint32_t *starts_out);

#endif
