/* checkpoint/layout/safetensors.h: the header of a safetensors file: parses any, and lays out ours.
 *
 *   8 bytes: N | N bytes: JSON, padded with spaces | buffer: the tensors, without gaps
 *
 * Our files hash themselves. The JSON begins with
 *
 *   {"__metadata__":{"stoker.root":"<64 digits>","stoker.leaf_bytes":"1048576",
 *                    "stoker.leaves":"<64 digits for each leaf>",
 *                    "stoker.counts":"<NaN,Inf,pages of zeros of a tensor, or nothing>;...",
 *                    "stoker.tree":"..."}, ...
 *
 * A leaf is leaf_bytes of the buffer (the last one may be shorter), and its digits are its SHA-256.
 * The root is the SHA-256 of all bytes of the header after the digits of the root, so it depends
 * on every byte of the file but the first 8 and the text before these digits, which are constant or
 * checked. The buffer begins at a multiple of 4,096 bytes; in files of more than one block, of
 * leaf_bytes. Tensors with a size that is a multiple of 4,096 bytes come first, largest first; then
 * the others by the size of their elements, so that all are aligned.
 * Owner: the caller. Threads: one, and any once it is parsed. Memory: about 200 bytes a tensor, and
 * 32 a leaf.
 * Bound: STK_SAFETENSORS_HEADER_BYTES_MAX. */
#ifndef CHECKPOINT_LAYOUT_SAFETENSORS_H
#define CHECKPOINT_LAYOUT_SAFETENSORS_H

#include "base/base.h"
#include "checkpoint/layout/count.h"
#include "checkpoint/layout/json_text.h"

#define STK_SAFETENSORS_HEADER_BYTES_MAX 100000000u /* as the reference implementation */
#define STK_SAFETENSORS_LENGTH_BYTES 8u
#define STK_SAFETENSORS_PAGE_BYTES 4096u
#define STK_SAFETENSORS_LEAF_BYTES (1u << 20)
#define STK_SAFETENSORS_BLOCK_BYTES (16u << 20) /* is hashed and written at once */
#define STK_SAFETENSORS_NAME_BYTES_MAX 4096u

struct stk_safetensor {
    const char *name;
    const char *dtype; /* valid forever */
    const uint64_t *shape;
    uint32_t dimension_count;
    uint32_t source; /* index of the tensor that the caller laid out */
    uint64_t offset; /* in the buffer */
    uint64_t bytes;
};

struct stk_safetensors {
    struct stk_safetensor *tensors; /* owned; by offset */
    uint64_t count;
    uint64_t header_bytes; /* of the length and the JSON: where the buffer begins */
    uint64_t buffer_bytes;
    char *tree; /* owned; NULL: none */
    /* leaf_bytes 0: the file has no hashes, and no leaves. */
    uint32_t leaf_bytes;
    uint64_t leaf_count;
    uint8_t *leaves;                  /* owned: 32 bytes each */
    struct stk_tensor_counts *counts; /* owned; of each tensor; NULL: the file has none */
    uint8_t root[32];
    void *memory; /* owned: shapes */
    char *names;  /* owned */
};

/* Parses the JSON of a file (without its first 8 bytes), and verifies its root if it has one.
 * Untrusted input. Returns 0, STOKER_ERROR_FORMAT, STOKER_ERROR_UNSUPPORTED (dtype), or
 * STOKER_ERROR_CORRUPT if it does not match its root. */
int stk_safetensors_parse(struct stk_safetensors *file, struct stk_view json, uint64_t file_bytes,
                          struct stoker_error *error);
/* Checks the first 8 bytes. Returns 0 and sets *json_bytes_out, or STOKER_ERROR_FORMAT. */
int stk_safetensors_length(const uint8_t first[STK_SAFETENSORS_LENGTH_BYTES], uint64_t file_bytes,
                           uint64_t *json_bytes_out, struct stoker_error *error);
void stk_safetensors_deinit(struct stk_safetensors *file); /* zeroed is allowed */

/* Lays out a file: sets all fields but leaves, counts and root. Returns 0, STOKER_ERROR_ARGUMENT
 * with the name of the tensor, or STOKER_ERROR_LIMIT. */
int stk_safetensors_layout(struct stk_safetensors *file,
                           const struct stoker_checkpoint_tensor *tensors, size_t count,
                           const char *tree, struct stoker_error *error);
/* Writes the header (header_bytes) of a layout whose leaves and counts are set, and sets its root.
 * Returns 0 or -ENOMEM. header_out: free with stk_free. */
int stk_safetensors_header(struct stk_safetensors *file, uint8_t **header_out,
                           struct stoker_error *error);

#endif
