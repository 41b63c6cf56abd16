/* Megatron's .idx, the index of a .bin (NVIDIA/Megatron-LM,
 * megatron/core/datasets/indexed_dataset.py):
 *
 *   "MMIDIDX\0\0" | u64 version 1 | u8 dtype | u64 sequences | u64 documents + 1     34 bytes
 *   i32 length[sequences] | i64 pointer[sequences] | i64 document[documents + 1] | i8
 * mode[sequences]
 *
 * Lengths count tokens, pointers bytes of the .bin, documents sequences: document d is the
 * sequences document[d] .. document[d + 1] - 1. Only multimodal sets have modes; the size
 * of the file shows it. */
#include "format/tokens/tokens.h"

#include "format/tokens/token_bytes.h"

#include <string.h>

#define MAGIC_BYTES 9u
#define HEADER_BYTES 34u

#define ADVICE_IDX "copy the .idx and the .bin again: they belong together"

static int damaged(struct stoker_error *error, const char *detail, uint64_t index, uint64_t value)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, "a Megatron index is damaged", ADVICE_IDX,
                    "%s: entry %llu holds %lld", detail, (unsigned long long)index,
                    (long long)value);
}

static int dtype_of_code(uint8_t code, uint32_t *dtype_out, struct stoker_error *error)
{
    static const uint32_t dtypes[] = {
        [1] = STOKER_UINT8, [2] = STOKER_INT8,    [3] = STOKER_INT16,   [4] = STOKER_INT32,
        [5] = STOKER_INT64, [6] = STOKER_FLOAT64, [7] = STOKER_FLOAT32, [8] = STOKER_UINT16};

    *dtype_out = code < STK_COUNT(dtypes) ? dtypes[code] : 0;
    if (*dtype_out == 0) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, "a Megatron index is damaged", ADVICE_IDX,
                        "dtype code %u", code);
    }
    if (stk_token_bytes(*dtype_out) == 0) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a Megatron set of floats has no tokens",
                        "read sets of integers", "dtype code %u", code);
    }
    return 0;
}

static int check_header(struct stk_view idx, struct stoker_error *error)
{
    if (idx.bytes < MAGIC_BYTES || memcmp(idx.data, "MMIDIDX\0\0", MAGIC_BYTES) != 0) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "this is no Megatron index",
                        "name the .bin or .idx of a set that Megatron's preprocess_data wrote",
                        "%zu bytes", idx.bytes);
    }
    if (idx.bytes < HEADER_BYTES) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "a Megatron index ends too early",
                        ADVICE_IDX, "%u bytes wanted, %zu there", HEADER_BYTES, idx.bytes);
    }
    if (stk_u64_at(idx.data + MAGIC_BYTES, 0) != 1) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "an unknown version of Megatron's index",
                        "write the set again with a newer Megatron", "version %llu",
                        (unsigned long long)stk_u64_at(idx.data + MAGIC_BYTES, 0));
    }
    return 0;
}

/* Cuts the bytes after the header into arrays. */
static int split_arrays(struct stk_megatron *out, struct stk_view idx, struct stoker_error *error)
{
    uint64_t bytes, boundary_count = stk_u64_at(idx.data + MAGIC_BYTES + 9, 1), of_documents;
    uint64_t sequences = stk_u64_at(idx.data + MAGIC_BYTES + 9, 0);
    uint64_t rest = idx.bytes - HEADER_BYTES;

    if (!stk_multiply(sequences, 12, &bytes) || !stk_multiply(boundary_count, 8, &of_documents) ||
        !stk_add(bytes, of_documents, &bytes) || bytes > rest) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "a Megatron index ends too early",
                        ADVICE_IDX, "%llu sequences, %llu document ends, %zu bytes",
                        (unsigned long long)sequences, (unsigned long long)boundary_count,
                        idx.bytes);
    }
    if (rest != bytes && rest - bytes != sequences) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, "there is something behind a Megatron index",
                        ADVICE_IDX, "%llu bytes too many", (unsigned long long)(rest - bytes));
    }
    out->sequence_count = sequences;
    out->document_count = boundary_count > 0 ? boundary_count - 1 : 0;
    out->lengths = idx.data + HEADER_BYTES;
    out->pointers = out->lengths + 4 * sequences;
    out->documents = out->pointers + 8 * sequences;
    out->modes = rest == bytes ? NULL : out->documents + 8 * boundary_count;
    return 0;
}

/* Sets *used_out to the end of the last sequence in the .bin. Returns false if an entry lies
 * outside of the .bin. One pass over 12 bytes a sequence. */
static bool fits_bin(const struct stk_megatron *megatron, uint64_t bin_bytes, uint64_t *used_out)
{
    uint32_t token_bytes = stk_token_bytes(megatron->run.dtype); /* a power of 2 */
    uint64_t used = 0, bad = 0;

    for (uint64_t i = 0; i < megatron->sequence_count; i++) {
        uint64_t length = stk_u32_at(megatron->lengths, i);
        uint64_t pointer = stk_u64_at(megatron->pointers, i), bytes = length * token_bytes;

        bad |= (length > INT32_MAX) | (pointer & (token_bytes - 1)) | (pointer > bin_bytes) |
               (bytes > bin_bytes - pointer);
        used = stk_max(used, pointer + bytes);
    }
    *used_out = used;
    return bad == 0;
}

/* The bytes of consecutive sequences; 0: they are not consecutive. */
static uint64_t consecutive_bytes(const struct stk_megatron *megatron)
{
    uint32_t token_bytes = stk_token_bytes(megatron->run.dtype);
    uint64_t end = 0;

    for (uint64_t i = 0; i < megatron->sequence_count; i++) {
        uint32_t length = stk_u32_at(megatron->lengths, i);

        if (length > INT32_MAX || stk_u64_at(megatron->pointers, i) != end ||
            !stk_add(end, (uint64_t)length * token_bytes, &end)) {
            return 0;
        }
    }
    return end;
}

/* Compares all pointers and lengths with the size of the .bin: windows use no entry later. */
static int check_sequences(const struct stk_megatron *megatron, uint64_t bin_bytes,
                           struct stoker_error *error)
{
    struct stk_token_span span;
    uint64_t used, wanted;
    int status = 0;

    if (fits_bin(megatron, bin_bytes, &used)) {
        return used == bin_bytes
                   ? 0
                   : stk_fail(error, STOKER_ERROR_CORRUPT,
                              "a .bin has tokens that its Megatron index does not list", ADVICE_IDX,
                              "%llu bytes in the .bin, %llu by the index",
                              (unsigned long long)bin_bytes, (unsigned long long)used);
    }
    wanted = consecutive_bytes(megatron);
    if (wanted > bin_bytes) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "a .bin is shorter than its Megatron index",
                        ADVICE_IDX, "%llu bytes in the .bin, %llu by the index",
                        (unsigned long long)bin_bytes, (unsigned long long)wanted);
    }
    for (uint64_t i = 0; status == 0 && i < megatron->sequence_count; i++) {
        status = stk_megatron_sequence(megatron, i, &span, error);
    }
    /* The index changed between the two passes. */
    return status < 0
               ? status
               : stk_fail(error, STOKER_ERROR_CHANGED, "a Megatron index changes", ADVICE_IDX,
                          "%llu sequences", (unsigned long long)megatron->sequence_count);
}

int stk_megatron_open(struct stk_megatron *out, struct stk_view idx, struct stk_view bin,
                      struct stoker_error *error)
{
    uint32_t dtype = 0;
    int status = check_header(idx, error);

    memset(out, 0, sizeof *out);
    status = status < 0 ? status : dtype_of_code(idx.data[MAGIC_BYTES + 8], &dtype, error);
    status = status < 0 ? status : stk_tokens_open_raw(&out->run, bin, dtype, error);
    status = status < 0 ? status : split_arrays(out, idx, error);
    status = status < 0 ? status : check_sequences(out, bin.bytes, error);
    if (status < 0) {
        memset(out, 0, sizeof *out);
    }
    return status;
}

int stk_megatron_sequence(const struct stk_megatron *megatron, uint64_t sequence,
                          struct stk_token_span *span_out, struct stoker_error *error)
{
    uint32_t token_bytes = stk_token_bytes(megatron->run.dtype);
    uint32_t length = stk_u32_at(megatron->lengths, sequence);
    uint64_t pointer = stk_u64_at(megatron->pointers, sequence);

    *span_out = (struct stk_token_span){0};
    if (length > INT32_MAX) {
        return damaged(error, "sequence lengths", sequence, (uint64_t)(int32_t)length);
    }
    /* A pointer of no tokens may stand at the end, not after it. */
    if (pointer % token_bytes != 0 || pointer / token_bytes > megatron->run.count) {
        return damaged(error, "sequence pointers", sequence, pointer);
    }
    if (length > megatron->run.count - pointer / token_bytes) {
        return damaged(error, "sequence lengths", sequence, length);
    }
    *span_out = (struct stk_token_span){pointer / token_bytes, length};
    return 0;
}

int stk_megatron_document(const struct stk_megatron *megatron, uint64_t document,
                          struct stk_token_span *span_out, struct stoker_error *error)
{
    uint64_t first = stk_u64_at(megatron->documents, document);
    uint64_t end = stk_u64_at(megatron->documents, document + 1);
    struct stk_token_span joined = {0}, span;

    *span_out = joined;
    if (first > end || end > megatron->sequence_count) {
        return damaged(error, "documents", first > end ? document : document + 1,
                       first > end ? first : end);
    }
    for (uint64_t i = first; i < end; i++) {
        int status = stk_megatron_sequence(megatron, i, &span, error);

        if (status < 0) {
            return status;
        }
        if (i > first && span.first != joined.first + joined.count) {
            return damaged(error, "sequence pointers", i, span.first);
        }
        joined.first = i == first ? span.first : joined.first;
        joined.count += span.count; /* both are inside the run: the sum cannot wrap */
    }
    *span_out = joined;
    return 0;
}
