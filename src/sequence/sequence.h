/* sequence/sequence.h: token files on disk, and the stream of batches cut or packed out of them.
 *
 *   paths --map, parse--> files --order, windows, widen--> batch     by the caller of next
 *                               `order, packed documents-^
 *
 * A batch is made by the thread that asks for it: warm tokens are widened faster than they could
 * be handed over. No state but a position: nothing is read ahead, nothing has to be given up.
 * Owner: tokens: the user and the loaders on it (one reference each); a loader: the user.
 * Threads: any; a loader's calls take turns by its lock, below which only the pool's is taken.
 * Memory: the files are mapped, not read; a loader: its batches, from the engine's budget.
 * Bound: STK_TOKEN_FILES_MAX files; budget. */
#ifndef SEQUENCE_SEQUENCE_H
#define SEQUENCE_SEQUENCE_H

#include "batch/batch.h"
#include "engine/engine.h"
#include "order/order.h"
#include "tokens/packing.h"
#include "tokens/tokens.h"

#define STK_TOKEN_PATH_BYTES_MAX 4096
/* Windows of a block of the order: about so many bytes of tokens lie together. */
#define STK_TOKEN_BLOCK_BYTES (8u << 20)

struct stk_token_file {
    char *path;               /* owned */
    struct stk_view view;     /* of the tokens; mapped */
    struct stk_view idx;      /* Megatron's; mapped; else empty */
    struct stk_token_run run; /* lent by view */
    struct stk_megatron set;  /* lent by idx and view; zeroed: it is none */
};

struct stoker_tokens { /* const after open */
    struct stoker_engine *engine;
    _Atomic uint32_t references;
    uint32_t file_count;
    struct stk_token_file *files;
    uint64_t tokens, documents, bytes;
    uint8_t identity[32];
};

void stk_tokens_hold(struct stoker_tokens *tokens);
void stk_tokens_release(struct stoker_tokens *tokens);

/* ---- packed.c: documents as sequences of one length ---- */

/* Documents are taken in chunks of as many, each chunk packed for itself; its sequences are
 * samples, numbered chunk by chunk. Which ones there are is counted once, at open, by all threads;
 * the plans of chunks in use are kept.
 * Threads: one at a time. Memory: 8 bytes a chunk; plans, from the engine's budget. */
struct stk_packed;

/* One chunk with its plan. */
struct stk_packed_chunk {
    uint64_t number;                  /* STK_NO_CHUNK: empty */
    const struct stk_token_run *run;  /* the file's */
    struct stk_token_span *documents; /* in the run; owned */
    struct stk_packing packing;       /* owned */
    uint64_t bytes;                   /* reserved */
};
#define STK_NO_CHUNK UINT64_MAX

/* ARGUMENT: a file does not say where its documents are; EMPTY; what reading an .idx gives. */
int stk_packed_open(struct stk_packed **packed_out, const struct stoker_tokens *tokens,
                    uint32_t length, uint32_t chunk_documents, struct stoker_error *error);
void stk_packed_close(struct stk_packed *packed); /* NULL is fine */
uint64_t stk_packed_samples(const struct stk_packed *packed);
/* The chunk of a sample, and the number of its sequence there. Lends until the next call. BUDGET.
 */
int stk_packed_at(struct stk_packed *packed, uint64_t sample,
                  const struct stk_packed_chunk **chunk_out, uint32_t *sequence_out,
                  struct stoker_error *error);

#endif
