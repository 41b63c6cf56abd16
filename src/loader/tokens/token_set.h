/* loader/tokens/token_set.h: token files on disk, and the stream of batches cut or packed out of
 * them.
 *
 *   paths --map, parse--> files --read--> tokens --token_samples.h--> rows --order--> batch
 *          zstd: unpacked frames, kept -^                      by the caller of next
 *
 * A batch is made by the thread that asks for it: warm tokens are widened faster than they could
 * be handed over. No state but a position: nothing is read ahead, nothing has to be given up.
 * Owner: tokens: the user and the loaders on it (one reference each); a loader: the user.
 * Threads: any; a loader's calls take turns by its lock, below which only those of kept frames and
 * of the pool are taken.
 * Memory: files are mapped, not read; frames of packed files and batches, from the engine's budget.
 * Bound: STK_TOKEN_FILES_MAX files; budget. */
#ifndef LOADER_TOKENS_TOKEN_SET_H
#define LOADER_TOKENS_TOKEN_SET_H

#include "engine/engine.h"
#include "engine/frame_cache.h"
#include "format/tokens/tokens.h"

#define STK_TOKEN_SET_PATH_BYTES_MAX 4096
#define STK_TOKEN_SET_VIRTUAL_MAX (UINT64_C(1) << 56)
/* Samples of a block of the order: about so many bytes of tokens lie together, by default. */
#define STK_TOKEN_BLOCK_BYTES (8u << 20)
#define STK_TOKEN_BLOCK_BYTES_MAX (UINT64_C(1) << 40)

struct stk_token_set_file {
    char *path;                 /* owned */
    struct stk_view view;       /* the file; mapped */
    struct stk_view idx;        /* Megatron's; mapped; else empty */
    struct stk_token_array run; /* lent by view; of a packed file without data */
    struct stk_megatron set;    /* lent by idx; zeroed: it is none */
    const uint64_t *ends; /* [end_count]: of documents in memory, in tokens; lent; else NULL */
    uint64_t end_count;
    bool compressed;                /* by zstd; then there are: */
    struct stk_zstd_file zstd_file; /* lent by view */
    uint64_t data_at;               /* unpacked bytes before the tokens */
};

struct stoker_tokens { /* const after open */
    struct stoker_engine *engine;
    _Atomic uint32_t references;
    uint32_t file_count;
    struct stk_token_set_file *files;
    struct stk_frame_cache *frame_cache; /* NULL: no file is packed */
    bool is_virtual;                     /* there is one file, and only its count is known */
    uint64_t tokens, documents, bytes, frames;
    uint8_t identity[32];
};

void stk_token_set_retain(struct stoker_tokens *tokens);
void stk_token_set_release(struct stoker_tokens *tokens);

/* Tokens in memory, lent by the file's run and ends: nothing is opened. */
int stk_token_set_borrow(struct stoker_tokens **tokens_out, struct stoker_engine *engine,
                         const struct stk_token_set_file *file, struct stoker_error *error);

/* Bytes of a file's tokens as they are stored, from a place that they have. CORRUPT, BUDGET. */
int stk_token_set_read_stored(const struct stoker_tokens *tokens, uint32_t file, uint64_t offset,
                              uint64_t bytes, uint8_t *out, struct stoker_error *error);
/* Tokens first .. first + count - 1 of a file, in which they lie, as int64. FORMAT: one has more
 * than 63 bits; CORRUPT, BUDGET: of packed files. */
int stk_token_set_read(const struct stoker_tokens *tokens, uint32_t file, uint64_t first,
                       uint64_t count, int64_t *out, struct stoker_error *error);

#endif
