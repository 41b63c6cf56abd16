/* sequence/sequence.h: token files on disk, and the stream of batches of token windows.
 *
 *   paths --map, parse--> files --order, windows, widen--> batch     by the caller of next
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
#include "tokens/tokens.h"

#define STK_TOKEN_PATH_BYTES_MAX 4096
/* Windows of a block of the order: about so many bytes of tokens lie together. */
#define STK_TOKEN_BLOCK_BYTES (8u << 20)

struct stk_token_file {
    char *path;               /* owned */
    struct stk_view view;     /* of the tokens; mapped */
    struct stk_view idx;      /* Megatron's; mapped; else empty */
    struct stk_token_run run; /* lent by view */
    uint64_t documents;       /* Megatron's; else 0 */
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

#endif
