/* loader/rows/sequence_packing.h: packs documents of any length into sequences of one length. Pure.
 *
 *   documents of a chunk --cut--> pieces of at most a sequence --longest first, best fit-->
 * sequences
 *
 * Best-fit decreasing cuts a document only if it is longer than a sequence (Ding et al. 2024,
 * "Fewer Truncations Improve Language Modeling"). A plan is a function of its chunk alone, so any
 * chunk can be packed without the others, with the same result on every rank.
 * Owner: the caller. Threads: any. Memory: 28 bytes a piece and 4 a token of the length while a
 * plan is made; 16 a piece and 4 a sequence afterwards. Bound: STK_SEQUENCE_PACKING_DOCUMENTS_MAX,
 * _LENGTH_MAX, _PIECES_MAX. */
#ifndef LOADER_ROWS_SEQUENCE_PACKING_H
#define LOADER_ROWS_SEQUENCE_PACKING_H

#include "format/tokens/tokens.h"

#define STK_SEQUENCE_PACKING_DOCUMENTS_MAX (1u << 20)
#define STK_SEQUENCE_PACKING_LENGTH_MAX (1u << 24)
#define STK_SEQUENCE_PACKING_PIECES_MAX (1u << 24)

struct stk_sequence_piece {
    uint64_t first; /* token of the document */
    uint32_t document, count;
};

struct stk_sequence_packing {
    uint32_t length;  /* tokens of a sequence */
    uint32_t reserve; /* tokens that stay free for each piece */
    uint32_t piece_count, sequence_count;
    struct stk_sequence_piece *pieces; /* sequence by sequence; owned */
    uint32_t *ends; /* [sequence_count]: pieces up to the end of this sequence; owned */
};

/* Packs documents. counts: tokens of each document; an empty one has no piece. reserve: tokens
 * added to each piece, below length. Among sequences that fit equally well, the newest takes the
 * piece. Returns 0 on success, STOKER_ERROR_ARGUMENT, STOKER_ERROR_LIMIT or -ENOMEM. */
int stk_sequence_packing_open(struct stk_sequence_packing *packing, const uint64_t *counts,
                              uint32_t document_count, uint32_t length, uint32_t reserve,
                              struct stoker_error *error);
void stk_sequence_packing_close(struct stk_sequence_packing *packing); /* may be zeroed */

/* Returns the first piece of a sequence; the others follow, up to ends[sequence]. */
static inline uint32_t stk_sequence_packing_first(const struct stk_sequence_packing *packing,
                                                  uint32_t sequence)
{
    return sequence > 0 ? packing->ends[sequence - 1] : 0;
}

#endif
