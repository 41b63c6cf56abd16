/* loader/tokens/token_set.h: struct stoker_tokens: a set of token files on disk, behind URLs, or in
 * memory.
 *
 *   paths --map, parse--> files --read--> tokens --token_samples.h--> rows --order--> batch
 *        zstd: cached frames, decompressed -^                     by the caller of next
 *        URLs: cached ranges, requested ----'
 *
 * The thread that asks for a batch makes it: widening warm tokens is faster than handing them over.
 * Owner: the user and the loaders on it (one reference each). Threads: any.
 * Memory: local files are mapped, not read. From the engine's budget: ranges of files behind URLs,
 * frames of compressed files, and complete Megatron indexes and compressed files behind URLs.
 * Bound: STK_TOKEN_FILES_MAX files; the budget. */
#ifndef LOADER_TOKENS_TOKEN_SET_H
#define LOADER_TOKENS_TOKEN_SET_H

#include "engine/engine.h"
#include "engine/frame_cache.h"
#include "engine/range_cache.h"
#include "format/tokens/tokens.h"
#include "io/map_watch.h"

#define STK_TOKEN_SET_PATH_BYTES_MAX 4096
#define STK_TOKEN_SET_VIRTUAL_MAX (UINT64_C(1) << 56)
/* Default size of a block of the order, in bytes of tokens. */
#define STK_TOKEN_BLOCK_BYTES (8u << 20)
#define STK_TOKEN_BLOCK_BYTES_MAX (UINT64_C(1) << 40)

struct stk_token_set_file {
    char *path;           /* owned: as it was given, for errors */
    char *data_path;      /* owned: of the file of the tokens; a set is given without ending */
    struct stk_view view; /* the file; mapped; empty: see remote */
    struct stk_range_file remote; /* the file, if it is read by ranges; its file is owned */
    struct stk_view idx;          /* Megatron's; mapped; else empty */
    struct stk_token_array run;   /* view; of a compressed or remote file without data */
    struct stk_megatron set;      /* view of idx; zeroed: no Megatron set */
    const uint64_t *ends; /* [end_count]: of documents in memory, in tokens; borrowed; else NULL */
    uint64_t end_count;
    bool compressed;                /* by zstd; then: */
    struct stk_zstd_file zstd_file; /* view of the file */
    uint64_t data_at; /* of a compressed or remote file: (decompressed) bytes before the tokens */
};

struct stoker_tokens { /* constant after open, but for references and maps */
    struct stoker_engine *engine;
    _Atomic uint32_t references;
    uint32_t file_count;
    struct stk_token_set_file *files;
    struct stk_frame_cache *frame_cache; /* NULL: no file is compressed */
    struct stk_range_cache *range_cache; /* NULL: no file is read by ranges */
    uint64_t range_bytes_max;            /* of range_cache */
    uint64_t reserved;                   /* of the budget, for remote files in memory */
    bool is_virtual;                     /* one file of which only the count is known */
    uint64_t tokens, documents, bytes, frames;
    uint64_t vocab_size; /* 0: no bound */
    uint8_t identity[32];
    struct stk_map_watch maps;
};

void stk_token_set_retain(struct stoker_tokens *tokens);
void stk_token_set_release(struct stoker_tokens *tokens);

/* Makes a set of tokens in memory: the file's run and ends are borrowed, no file is opened. */
int stk_token_set_borrow(struct stoker_tokens **tokens_out, struct stoker_engine *engine,
                         const struct stk_token_set_file *file, struct stoker_error *error);

/* Checks whether the files are what they were at open, if that is due: after tokens were read and
 * before they are handed on. Returns 0, STOKER_ERROR_CHANGED, or -EIO. */
int stk_token_set_check(struct stoker_tokens *tokens, struct stoker_error *error);
/* Ends a read with this status: returns it, or that of a change, which may be its cause. */
int stk_token_set_end_read(struct stoker_tokens *tokens, int status, struct stoker_error *error);
/* Whether tokens are read in place. Else they are copied, through a cache. */
static inline bool stk_token_set_is_mapped(const struct stk_token_set_file *file)
{
    return !file->compressed && !file->remote.file;
}
/* Has bytes of a file's tokens decompressed, or requested, ahead of their use. Returns false if
 * there is no space for all of them now. The file is not mapped. */
bool stk_token_set_prefetch(const struct stoker_tokens *tokens, uint32_t file,
                            const struct stk_range_wish *wish);
/* Reads stored bytes of a file's tokens; the range is in the file. Returns 0 on success;
 * STOKER_ERROR_CORRUPT or STOKER_ERROR_BUDGET for compressed files; for remote ones
 * STOKER_ERROR_BUDGET, STOKER_ERROR_CHANGED, or the error of the store. */
int stk_token_set_read_stored(const struct stoker_tokens *tokens, uint32_t file, uint64_t offset,
                              uint64_t bytes, uint8_t *out, struct stoker_error *error);
/* Tokens of a file that were copied. */
struct stk_token_copy {
    uint64_t first, count; /* in the file */
    uint32_t dtype;        /* int32 or int64 */
    const void *tokens;
};
/* Checks copied tokens. Returns 0, or STOKER_ERROR_FORMAT if one is not below vocab_size. */
int stk_token_set_check_ids(const struct stoker_tokens *set, uint32_t file,
                            const struct stk_token_copy *copy, struct stoker_error *error);
/* Reads tokens first .. first + count - 1, which are in the file, as int64. Returns 0 on success,
 * STOKER_ERROR_FORMAT if a token has more than 63 bits or is not below vocab_size, or an error of
 * stk_token_set_read_stored. */
int stk_token_set_read(const struct stoker_tokens *tokens, uint32_t file, uint64_t first,
                       uint64_t count, int64_t *out, struct stoker_error *error);
/* The same without a comparison with vocab_size. */
int stk_token_set_read_any(const struct stoker_tokens *tokens, uint32_t file, uint64_t first,
                           uint64_t count, int64_t *out, struct stoker_error *error);

#endif
