/* format/tokens/tokens.h: token files, and samples as ranges of their tokens.
 *
 *   file --raw, npy, llmc--> array of tokens                --windows--> sample i = tokens a .. b
 *   .bin + .idx --megatron--> array, sequences, documents   --documents--> sample i = tokens a .. b
 *
 * Opening a file reads its header only, so that it takes the same time for 10^3 and 10^12 tokens;
 * of an .idx also the entries of all sequences, which are compared with the size of the .bin. They
 * are validated again when they are used. Pure. Owner: values, which borrow the bytes of the files.
 * Threads: any. Memory: windows: 16 bytes per file. Bound: STK_TOKEN_FILES_MAX. */
#ifndef FORMAT_TOKENS_TOKENS_H
#define FORMAT_TOKENS_TOKENS_H

#include "base/base.h"

#define STK_TOKEN_FILES_MAX 1048576u

enum stk_token_format {
    STK_TOKENS_UNKNOWN,
    STK_TOKENS_RAW,  /* tokens without a header */
    STK_TOKENS_NPY,  /* numpy.save: an array of integers, read as one sequence */
    STK_TOKENS_LLMC, /* a header of 1,024 bytes, then tokens (llm.c, modded-nanogpt) */
};

/* Consecutive tokens. */
struct stk_token_array {
    const uint8_t *data; /* need not be aligned */
    uint64_t count;
    uint32_t dtype; /* enum stoker_dtype: an integer of 1, 2, 4 or 8 bytes */
};

/* Returns the format by the magic number of npy or llm.c. A raw file has none: UNKNOWN. */
enum stk_token_format stk_token_format_of(struct stk_view bytes);

/* The size of a token; 0 if tokens cannot have this dtype. */
uint32_t stk_token_bytes(uint32_t dtype);

/* Returns the name of the format whose header a raw file of this dtype has, for an error, and sets
 * *advice_out; NULL: none is known. Bytes (text) may be anything but compressed files and archives.
 */
const char *stk_token_foreign_format(struct stk_view bytes, uint32_t dtype,
                                     const char **advice_out);

/* Open a complete file. The caller knows the dtype of a raw file; other formats state it. Return 0,
 * STOKER_ERROR_FORMAT, _CORRUPT, _TRUNCATED, or _UNSUPPORTED (numbers that are no integers). */
int stk_tokens_open_raw(struct stk_token_array *run_out, struct stk_view bytes, uint32_t dtype,
                        struct stoker_error *error);
int stk_tokens_open_npy(struct stk_token_array *run_out, struct stk_view bytes,
                        struct stoker_error *error);
int stk_tokens_open_llmc(struct stk_token_array *run_out, struct stk_view bytes,
                         struct stoker_error *error);

/* Opens a file by its head: its first STK_TOKEN_HEAD_BYTES, or all of it. dtype: of a raw file; 0:
 * raw files are an error. The array has no data; *data_at_out is where they begin in the file. */
#define STK_TOKEN_HEAD_BYTES 65548u
int stk_tokens_open_head(struct stk_token_array *run_out, uint64_t *data_at_out,
                         struct stk_view head, uint64_t file_bytes, uint32_t dtype,
                         struct stoker_error *error);
/* Opens a complete file of any of these formats. */
int stk_tokens_open_any(struct stk_token_array *run_out, struct stk_view bytes, uint32_t dtype,
                        struct stoker_error *error);

/* ---- megatron.c: .bin and .idx ---- */

struct stk_megatron {
    struct stk_token_array run; /* the .bin */
    uint64_t sequence_count, document_count;
    const uint8_t *lengths;   /* i32 [sequence_count]; tokens */
    const uint8_t *pointers;  /* i64 [sequence_count]; bytes in the .bin */
    const uint8_t *documents; /* i64 [document_count + 1]; sequences */
    const uint8_t *modes;     /* i8 [sequence_count] of multimodal sets; or NULL */
};

struct stk_token_span {
    uint64_t first, count; /* tokens of the array */
};

/* Returns 0, or an error unless the header and the three or four arrays fill the .idx exactly, and
 * the sequences fill the .bin: STOKER_ERROR_TRUNCATED if it is shorter. */
int stk_megatron_open(struct stk_megatron *out, struct stk_view idx, struct stk_view bin,
                      struct stoker_error *error);
/* sequence < sequence_count, document < document_count. Return 0, or STOKER_ERROR_CORRUPT if the
 * entry refers to bytes outside of the .bin or the .idx, or the sequences of a document are not
 * consecutive. */
int stk_megatron_sequence(const struct stk_megatron *megatron, uint64_t sequence,
                          struct stk_token_span *span_out, struct stoker_error *error);
int stk_megatron_document(const struct stk_megatron *megatron, uint64_t document,
                          struct stk_token_span *span_out, struct stoker_error *error);

/* ---- token_window.c: fixed windows ---- */

/* Windows of `length` tokens, one every `stride` tokens. No window crosses the end of a file; the
 * tokens of a file after its last complete window are not used. */
struct stk_token_windows {
    uint64_t length, stride;
    uint32_t file_count;
    uint64_t *ends; /* [file_count]: number of windows up to and including this file; owned */
};

struct stk_token_window {
    uint32_t file;
    uint64_t first; /* token of that file */
};

/* counts: tokens of each file. length and stride > 0. Returns 0, -ENOMEM, STOKER_ERROR_ARGUMENT, or
 * STOKER_ERROR_EMPTY if no file has a window. */
int stk_token_windows_open(struct stk_token_windows *windows, uint64_t length, uint64_t stride,
                           const uint64_t *counts, uint32_t file_count, struct stoker_error *error);
void stk_token_windows_close(struct stk_token_windows *windows);
uint64_t stk_token_windows_count(const struct stk_token_windows *windows);
struct stk_token_window stk_token_windows_get(const struct stk_token_windows *windows,
                                              uint64_t sample);

/* ---- token_widen.c ---- */

/* Writes tokens first .. first + count - 1 of the array as int32 or int64 (STOKER_INT32,
 * STOKER_INT64), and no byte after out[count - 1]. Returns false if a token is too large for
 * int32; out is undefined then. */
bool stk_token_widen(const struct stk_token_array *run, uint64_t first, uint64_t count,
                     uint32_t dtype, void *out);
/* The same without vector code. */
bool stk_token_widen_scalar(const struct stk_token_array *run, uint64_t first, uint64_t count,
                            uint32_t dtype, void *out);

#endif
