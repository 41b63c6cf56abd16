/* format/tokens/tokens.h: token files, and samples cut out of them. Pure: bytes in, numbers out.
 *
 *   file --raw, npy, llmc--> run of tokens                --windows--> sample i = tokens a .. b
 *   .bin + .idx --megatron--> run, sequences, documents   --documents--> sample i = tokens a .. b
 *
 * Only headers are looked at when a file is opened, so that opening costs the same for a thousand
 * tokens and for 10^12; entries of an .idx are checked when they are used.
 * Owner: values; they lend the files' bytes. Threads: any. Memory: of windows 16 bytes a file.
 * Bound: STK_TOKEN_FILES_MAX. */
#ifndef FORMAT_TOKENS_TOKENS_H
#define FORMAT_TOKENS_TOKENS_H

#include "base/base.h"

#define STK_TOKEN_FILES_MAX 1048576u

enum stk_token_format {
    STK_TOKENS_UNKNOWN,
    STK_TOKENS_RAW,  /* nothing but tokens */
    STK_TOKENS_NPY,  /* numpy.save: an array of integers, read as one row */
    STK_TOKENS_LLMC, /* a header of 1,024 bytes, then tokens (llm.c, modded-nanogpt) */
};

/* Tokens in a row. */
struct stk_token_array {
    const uint8_t *data; /* need not be aligned */
    uint64_t count;
    uint32_t dtype; /* enum stoker_dtype: an integer of 1, 2, 4 or 8 bytes */
};

/* By what npy and llm.c begin with; a raw file has no mark: UNKNOWN. */
enum stk_token_format stk_token_format_of(struct stk_view bytes);

/* Bytes of a token; 0 when dtype is none that tokens are stored as. */
uint32_t stk_token_bytes(uint32_t dtype);

/* A whole file. raw: dtype is the caller's; the others say theirs. FORMAT, CORRUPT, TRUNCATED,
 * UNSUPPORTED (numbers that are no integers). */
int stk_tokens_open_raw(struct stk_token_array *run_out, struct stk_view bytes, uint32_t dtype,
                        struct stoker_error *error);
int stk_tokens_open_npy(struct stk_token_array *run_out, struct stk_view bytes,
                        struct stoker_error *error);
int stk_tokens_open_llmc(struct stk_token_array *run_out, struct stk_view bytes,
                         struct stoker_error *error);

/* The same for a file of which only the head is at hand: its first STK_TOKEN_HEAD_BYTES, or all.
 * What it is shows in them; dtype: of a raw file, 0: it may not be one. The run has no data;
 * *data_at_out: where in the file it begins. */
#define STK_TOKEN_HEAD_BYTES 65548u
int stk_tokens_open_head(struct stk_token_array *run_out, uint64_t *data_at_out,
                         struct stk_view head, uint64_t file_bytes, uint32_t dtype,
                         struct stoker_error *error);
/* A whole file of any of these kinds. */
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
    uint64_t first, count; /* tokens of the run */
};

/* Checks that the header and the three or four arrays fill the .idx exactly. */
int stk_megatron_open(struct stk_megatron *out, struct stk_view idx, struct stk_view bin,
                      struct stoker_error *error);
/* sequence < sequence_count, document < document_count. CORRUPT: the entry points outside of the
 * .bin or of the .idx, or a document's sequences do not lie one behind the other. */
int stk_megatron_sequence(const struct stk_megatron *megatron, uint64_t sequence,
                          struct stk_token_span *span_out, struct stoker_error *error);
int stk_megatron_document(const struct stk_megatron *megatron, uint64_t document,
                          struct stk_token_span *span_out, struct stoker_error *error);

/* ---- token_window.c: fixed windows ---- */

/* Windows of `length` tokens, one every `stride`, of each file for itself: no window crosses the
 * end of a file, and what is left of a file behind its last whole window is not used. */
struct stk_token_windows {
    uint64_t length, stride;
    uint32_t file_count;
    uint64_t *ends; /* [file_count]: windows of the files up to and with this one; owned */
};

struct stk_token_window {
    uint32_t file;
    uint64_t first; /* token of that file */
};

/* counts: tokens of each file. length and stride > 0. ARGUMENT; EMPTY: no file holds a window;
 * -ENOMEM. */
int stk_token_windows_open(struct stk_token_windows *windows, uint64_t length, uint64_t stride,
                           const uint64_t *counts, uint32_t file_count, struct stoker_error *error);
void stk_token_windows_close(struct stk_token_windows *windows);
uint64_t stk_token_windows_count(const struct stk_token_windows *windows);
struct stk_token_window stk_token_windows_get(const struct stk_token_windows *windows,
                                              uint64_t sample);

/* ---- token_widen.c ---- */

/* Tokens first .. first + count - 1 as int32 or int64 (STOKER_INT32, STOKER_INT64); they lie in the
 * run. Writes no byte past out[count - 1]. false: one is too large for int32 (out holds
 * rubbish). */
bool stk_token_widen(const struct stk_token_array *run, uint64_t first, uint64_t count,
                     uint32_t dtype, void *out);
/* The same without vector code. */
bool stk_token_widen_scalar(const struct stk_token_array *run, uint64_t first, uint64_t count,
                            uint32_t dtype, void *out);

#endif
