/* stoker/tokens.h: files of tokens, and batches of windows, packed rows or documents of them. */
#ifndef STOKER_TOKENS_H
#define STOKER_TOKENS_H

#include <stoker/batch.h>
#include <stoker/engine.h>
#include <stoker/mix.h>
#include <stoker/quarantine.h>
#include <stoker/state.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Files of tokens, and a stream of batches of them (windows of fixed length, packed documents, or
 * documents). Order, ranks, tails and states are those of a loader. Any thread, all functions of
 * this header. */
struct stoker_tokens;
struct stoker_token_loader;

struct stoker_tokens_options {
    size_t struct_size;
    const char *const *paths; /* borrowed; each a file, or a Megatron set: prefix, .bin or .idx.
                                 npy, shards of llm.c and Megatron sets contain their type. All
                                 files but an .idx may be compressed by zstd in frames, of which
                                 those in use are decompressed */
    size_t path_count;
    uint32_t dtype;       /* of raw files: an integer type; default 0: no raw files */
    uint64_t cache_bytes; /* of decompressed frames, and of ranges of files behind URLs. Default:
                             for frames 512 MiB, or a quarter of the memory budget if that is
                             less; for ranges half of the budget. One of each is always allowed */
    /* Without paths: number of tokens that the caller has elsewhere (text that is tokenised on
     * demand, of which only the counts are known), and an identity that tells them from others.
     * Batches of windows of them have no field: the ids say which windows are due. */
    uint64_t virtual_tokens;
    uint8_t identity[32];
    /* Number of token ids of the model: a token that is negative or not below it is an error of the
     * batch. Default 0: any token that fits the dtype. */
    uint64_t vocab_size;
};

/* Opens files of tokens. Files are mapped, not read: the cost does not depend on their size. A file
 * may be replaced by a rename, but must not be truncated. Returns 0 and sets *tokens_out; -errno if
 * a file cannot be opened; STOKER_ERROR_FORMAT if its format is unknown, or a raw file has the
 * header of another format; STOKER_ERROR_TRUNCATED or STOKER_ERROR_CORRUPT if the entries of a
 * Megatron index do not fit its .bin. */
STOKER_API int stoker_tokens_open(struct stoker_tokens **tokens_out, struct stoker_engine *engine,
                                  const struct stoker_tokens_options *options,
                                  struct stoker_error *error);
/* Takes ownership; NULL is allowed. Loaders of the tokens keep them alive. */
STOKER_API void stoker_tokens_close(struct stoker_tokens *tokens);

struct stoker_tokens_info {
    size_t struct_size;
    uint64_t file_count, tokens, bytes;
    uint64_t documents; /* of Megatron sets */
    uint64_t frames;    /* of compressed files */
    uint8_t
        identity[32]; /* hash of types, counts, and 4 KiB at both ends of each file, decompressed */
};
/* Returns 0 and fills *info_out; STOKER_ERROR_ARGUMENT if struct_size is wrong. */
STOKER_API int stoker_tokens_info(const struct stoker_tokens *tokens,
                                  struct stoker_tokens_info *info_out);

enum stoker_token_rows {
    STOKER_ROWS_WINDOWS = 1, /* `context` tokens (plus one: see labels) of a file, every `stride` */
    STOKER_ROWS_PACKED,    /* documents, packed by best fit: only a document longer than context is
                              split; the rest of it is packed like another document */
    STOKER_ROWS_DOCUMENTS, /* one document, its first `context` tokens; 0: all. Ragged fields */
    STOKER_ROWS_PADDED,    /* one document, its first `context` tokens, and padding */
};

enum stoker_token_labels {
    STOKER_LABELS_SHIFTED = 1, /* field 1: the next token at each position; -100 if there is none. A
                                  window takes one more token for it */
    STOKER_LABELS_NONE,
    STOKER_LABELS_UNSHIFTED, /* field 1: the tokens themselves, for models that shift labels
                                (Hugging Face's); -100 in padding and, with masked boundaries, at
                                the first token of each document */
};

enum stoker_token_positions {
    STOKER_POSITIONS_NONE = 1,
    STOKER_POSITIONS_RESET, /* from 0 in each document, and in padding */
    STOKER_POSITIONS_ROW,   /* from 0 to context - 1 */
};

/* Label of the last token of a document. */
enum stoker_boundary_labels {
    STOKER_BOUNDARY_MASKED = 1, /* -100 */
    STOKER_BOUNDARY_NEXT,       /* the first token of the next document */
};

/* Fields of a batch, in this order: tokens; labels, if shifted; positions, if any; and, of packed
 * rows and with reset positions, starts: ragged int32, the start of each document (and of padding)
 * counted through the batch as one row, and the end of the batch after those of the last row. All
 * its numbers together are the cu_seqlens of attention kernels. */
struct stoker_token_loader_options {
    size_t struct_size;
    uint64_t context; /* tokens of a row of a field */
    uint64_t stride; /* windows: distance of two windows in tokens; default context: each token is a
                        label once. A window is within one file; the rest of the file is unused */
    uint32_t batch_size;
    uint32_t
        shuffle; /* this and the next six as in stoker_loader_options; default full for files on
                    local disks that are not compressed (packed rows: of up to 2^31 tokens) */
    uint32_t tail;
    uint32_t window_blocks; /* default 64, or as the default of shuffle says; size of a block:
                               block_bytes */
    uint32_t group_count;
    uint32_t rank, world_size;
    uint64_t seed;
    uint32_t labels; /* enum stoker_token_labels; default shifted */
    uint32_t dtype;  /* of the fields: int64 (default) or int32; uint8, too, for documents of uint8
                        without labels (lines of text) */
    uint32_t rows;   /* enum stoker_token_rows; default windows */
    uint32_t chunk_documents; /* documents that are packed with each other; default 4,096 */
    int32_t pad;              /* the padding token; default 0 */
    /* Ends of documents. A Megatron set contains them; in other files, and within windows, a
     * document ends after each token `eod`. */
    uint8_t has_eod; /* 1: eod is set */
    uint8_t
        append_eod; /* 1: append eod to each document of Megatron sets (packed rows, documents) */
    int32_t eod;
    uint32_t boundary_labels; /* enum stoker_boundary_labels; default masked, of windows next */
    uint32_t positions;       /* enum stoker_token_positions; default none, of packed rows reset */
    /* Fill in the middle (Bavarian et al. 2022): this share of documents (of windows: of the parts
     * of documents within) becomes prefix, suffix, middle, each after its sentinel; fim_spm_rate of
     * them with the suffix first. Drawn from (seed, epoch, sample). Packed rows and documents
     * reserve space for the sentinels; windows lose as many tokens at their end. An eod stays last.
     */
    double fim_rate, fim_spm_rate; /* 0 to 1; default 0 */
    int32_t fim_prefix, fim_suffix, fim_middle;
    uint64_t block_bytes; /* approximate size of a block of the order, in stored tokens; default
                             8 MiB */
    /* More of fill in the middle, as in Megatron's GPTFIMDataset (on tokens instead of text). A
     * document with tokens fim_split is changed, at fim_rate, fragment by fragment: the fragments
     * between two of them at fim_fragment_rate, at most fim_fragments_max (default 4), for which
     * rows reserve space. Text that starts with fim_no_prefix (borrowed by open; at most 64 tokens)
     * is not changed. fim_whole: nor are documents that a row would cut (Code Llama's rule). */
    double fim_fragment_rate;
    uint8_t has_fim_split, fim_whole;
    int32_t fim_split;
    uint32_t fim_fragments_max;
    const int32_t *fim_no_prefix;
    uint32_t fim_no_prefix_count;
    /* Several sources in one order, each a range of files: `ends` of the mix count samples, see
     * stoker_token_loader_file_end. Fill in the middle is then drawn from the position, so that a
     * repeated row differs. Borrowed by open, as rows_of; NULL: one order. */
    const struct stoker_mix_options *mix;
    uint64_t block_samples; /* of the order; default: from block_bytes */
    /* A loader of the same tokens and rows, whose scan of documents and packing this one reuses. */
    const struct stoker_token_loader *rows_of;
    uint32_t order_version; /* 1 or 2; default: the newest, STOKER_ORDER_VERSION */
    /* enum stoker_on_error. Raise (default), or skip: a row that cannot be read (a damaged frame of
     * a compressed file or entry of an index, a token that is not below vocab_size) becomes padding
     * without labels (a document: no tokens), its mask is 0, and it is listed and counted. No
     * document ends in tokens that cannot be read. Errors of a disk or a store, files that changed,
     * and compressed files whose number of tokens is unknown are raised. Not for tokens in memory.
     */
    uint32_t on_error;
    uint64_t bad_samples_max; /* with skip: rows that may be bad, then STOKER_ERROR_LIMIT; 0: no
                                 limit */
};

/* Opens a token loader. Packed rows scan all documents once, and documents that end with eod all
 * tokens, on all threads. Returns 0 and sets *loader_out; STOKER_ERROR_EMPTY if no file has a
 * complete window or a document, or tail drop leaves no batch; STOKER_ERROR_ARGUMENT if an option
 * is invalid. */
STOKER_API int stoker_token_loader_open(struct stoker_token_loader **loader_out,
                                        struct stoker_tokens *tokens,
                                        const struct stoker_token_loader_options *options,
                                        struct stoker_error *error);
/* Takes ownership; NULL is allowed. No other call may be running. Batches that the caller holds
 * stay valid. */
STOKER_API void stoker_token_loader_close(struct stoker_token_loader *loader);
/* Returns 1 and sets *batch_out, which the caller owns; 0 at the end of the epoch (the next call
 * starts the next epoch); STOKER_ERROR_BUDGET if the caller must close batches before it calls
 * again; STOKER_ERROR_FORMAT if a token does not fit the dtype, or is not below vocab_size. After
 * an error the loader stays before that batch. */
STOKER_API int stoker_token_loader_next(struct stoker_token_loader *loader,
                                        struct stoker_batch **batch_out,
                                        struct stoker_error *error);
/* Returns the number of rows that on_error=skip replaced, each time that one was. */
STOKER_API uint64_t stoker_token_loader_bad_samples(struct stoker_token_loader *loader);
/* The i-th bad row of the list, which has at most 1,000 different ones. The texts of *entry_out are
 * valid until close. Returns 0 and fills *entry_out up to its struct_size; STOKER_ERROR_ARGUMENT
 * after the end of the list. */
STOKER_API int stoker_token_loader_quarantine(struct stoker_token_loader *loader, uint64_t i,
                                              struct stoker_quarantine_entry *entry_out);
/* Returns the number of batches of an epoch for this rank. */
STOKER_API uint64_t stoker_token_loader_batches(const struct stoker_token_loader *loader,
                                                uint64_t epoch);
/* Returns the number of rows of an epoch over all ranks. */
STOKER_API uint64_t stoker_token_loader_samples(const struct stoker_token_loader *loader);
/* Number of samples of files 0 .. file, in the order in which they were opened: no row spans two
 * files. Returns 0 and sets *samples_out; STOKER_ERROR_ARGUMENT if there is no such file. */
STOKER_API int stoker_token_loader_file_end(const struct stoker_token_loader *loader, uint64_t file,
                                            uint64_t *samples_out);
/* The first token of a sample, counted in its file; of packed rows the first one of the documents
 * that are packed together. Returns 0 and sets *token_out; STOKER_ERROR_ARGUMENT if there is no
 * such sample; STOKER_ERROR_CORRUPT if the entry of an index is damaged. */
STOKER_API int stoker_token_loader_first_token(const struct stoker_token_loader *loader,
                                               uint64_t sample, uint64_t *token_out);
/* As stoker_loader_mix_change_position. */
STOKER_API int stoker_token_loader_mix_change_position(struct stoker_token_loader *loader,
                                                       uint64_t least, uint64_t *position_out);
/* Moves to the first batch of an epoch. Returns 0 on success. */
STOKER_API int stoker_token_loader_set_epoch(struct stoker_token_loader *loader, uint64_t epoch,
                                             struct stoker_error *error);
/* As stoker_loader_state, on the caller's thread. */
STOKER_API int stoker_token_loader_state(struct stoker_token_loader *loader,
                                         struct stoker_state *state_out);
/* As stoker_loader_state_at: the state at an earlier position, a few steps ago. Returns 0 and fills
 * *state_out; STOKER_ERROR_ARGUMENT if the stream was not at this position or was more than 4,096
 * steps ago. */
STOKER_API int stoker_token_loader_state_at(struct stoker_token_loader *loader, uint64_t epoch,
                                            uint64_t position, struct stoker_state *state_out);
/* Epoch and position of the state, without the cost of the fingerprint. Returns 0. */
STOKER_API int stoker_token_loader_position(struct stoker_token_loader *loader, uint64_t *epoch_out,
                                            uint64_t *position_out);
/* Moves to the position of a state, and adopts its order as stoker_loader_set_state does
 * (block_samples unless block_bytes is set, too). Returns 0 on success; STOKER_ERROR_STATE, with
 * the difference in *error, if the state belongs to other data or settings. */
STOKER_API int stoker_token_loader_set_state(struct stoker_token_loader *loader,
                                             const struct stoker_state *state,
                                             struct stoker_error *error);

/* Documents in memory, for example tokenised on demand. */
struct stoker_token_documents {
    size_t struct_size;
    const int32_t *tokens; /* borrowed, as the next two: of all documents */
    const uint64_t *ends;  /* [count]: end of each document, in tokens */
    const uint64_t *ids;   /* [count]: with epoch, the seed of fill in the middle */
    uint64_t count, epoch;
    uint64_t rows; /* exactly so many rows; those that are not needed are padding. Default 0: as
                      many as are needed */
};

/* Builds one batch of all rows of the documents, as a token loader does. Windows: each document is
 * one window and has exactly its tokens (see labels). options: only those of rows are used, not
 * those of order and batches. Returns 0 and sets *batch_out, which the caller owns;
 * STOKER_ERROR_ARGUMENT if an option or a document is invalid; STOKER_ERROR_LIMIT if more than
 * `rows` rows are needed. Any thread. */
STOKER_API int stoker_token_rows_batch(struct stoker_batch **batch_out,
                                       struct stoker_engine *engine,
                                       const struct stoker_token_documents *documents,
                                       const struct stoker_token_loader_options *options,
                                       struct stoker_error *error);

#ifdef __cplusplus
}
#endif
#endif
