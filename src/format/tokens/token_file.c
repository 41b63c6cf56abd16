/* Files of tokens in a row: nothing else (nanoGPT's train.bin), npy, and llm.c's shards, whose
 * header is 256 int32: magic, version, count of tokens, zeros (karpathy/llm.c, dev/data). */
#include "format/tokens/tokens.h"

#include "format/tokens/token_bytes.h"
#include "format/value/value.h"

#include <string.h>

#define LLMC_HEADER_BYTES 1024u

static const struct llmc_kind {
    uint32_t magic, version, dtype;
} llmc_kinds[] = {
    {20240520, 1, STOKER_UINT16}, /* GPT-2's tokens */
    {20240801, 7, STOKER_UINT32}, /* Llama 3's */
};

uint32_t stk_token_bytes(uint32_t dtype)
{
    switch (dtype) {
    case STOKER_UINT8:
    case STOKER_INT8:
        return 1;
    case STOKER_UINT16:
    case STOKER_INT16:
        return 2;
    case STOKER_UINT32:
    case STOKER_INT32:
        return 4;
    case STOKER_INT64:
    case STOKER_UINT64:
        return 8;
    default:
        return 0;
    }
}

static const struct llmc_kind *llmc_kind_of(struct stk_view bytes)
{
    for (size_t i = 0; bytes.bytes >= 4 && i < STK_COUNT(llmc_kinds); i++) {
        if (stk_u32_at(bytes.data, 0) == llmc_kinds[i].magic) {
            return &llmc_kinds[i];
        }
    }
    return NULL;
}

enum stk_token_format stk_token_format_of(struct stk_view bytes)
{
    if (bytes.bytes >= 6 && memcmp(bytes.data, "\x93NUMPY", 6) == 0) {
        return STK_TOKENS_NPY;
    }
    /* Two tokens of a raw file could be the magic: so the version must be there as well. */
    const struct llmc_kind *kind = bytes.bytes >= LLMC_HEADER_BYTES ? llmc_kind_of(bytes) : NULL;

    return kind && stk_u32_at(bytes.data, 1) == kind->version ? STK_TOKENS_LLMC
                                                              : STK_TOKENS_UNKNOWN;
}

int stk_tokens_open_raw(struct stk_token_array *run_out, struct stk_view bytes, uint32_t dtype,
                        struct stoker_error *error)
{
    uint32_t token_bytes = stk_token_bytes(dtype);

    memset(run_out, 0, sizeof *run_out);
    if (token_bytes == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "tokens are stored as integers",
                        "say the integer dtype that the file was written with", "dtype %u", dtype);
    }
    if (bytes.bytes % token_bytes != 0) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "a token file ends inside a token",
                        "look whether dtype is what the file was written with, or copy it again",
                        "%zu bytes, %u a token", bytes.bytes, token_bytes);
    }
    *run_out = (struct stk_token_array){bytes.data, bytes.bytes / token_bytes, dtype};
    return 0;
}

/* The dtype whose numbers have the same layout in memory; 0: they are not tokens. */
static uint32_t dtype_of(const struct stk_number_type *type)
{
    for (uint32_t dtype = STOKER_UINT8; dtype <= STOKER_UINT64; dtype++) {
        if (stk_token_bytes(dtype) > 0 && stk_number_matches(type, dtype)) {
            return dtype;
        }
    }
    return 0;
}

int stk_tokens_open_npy(struct stk_token_array *run_out, struct stk_view bytes,
                        struct stoker_error *error)
{
    struct stk_value value;
    uint32_t dtype;
    int status = stk_value_open(&value, STK_VALUE_NPY, bytes, NULL, 0, error);

    memset(run_out, 0, sizeof *run_out);
    if (status < 0) {
        return status;
    }
    dtype = dtype_of(&value.array.type);
    if (dtype == 0 || (value.array.fortran && value.array.shape.rank > 1)) {
        status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "this npy array does not hold tokens",
                          "save little-endian integers in C order", "dtype '%s%c%u'%s",
                          value.array.type.swapped ? ">" : "", value.array.type.kind,
                          value.array.type.bytes, value.array.fortran ? ", Fortran order" : "");
    } else {
        *run_out = (struct stk_token_array){value.array.data, value.array.shape.count, dtype};
    }
    stk_value_close(&value);
    return status;
}

int stk_tokens_open_llmc(struct stk_token_array *run_out, struct stk_view bytes,
                         struct stoker_error *error)
{
    const struct llmc_kind *kind = llmc_kind_of(bytes);
    uint64_t count, have;

    memset(run_out, 0, sizeof *run_out);
    if (!kind) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "this is no token file of llm.c",
                        "read it as raw tokens, with their dtype", "%zu bytes", bytes.bytes);
    }
    if (bytes.bytes < LLMC_HEADER_BYTES) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "a token file's header ends too early",
                        "copy the file again", "%u bytes wanted, %zu there", LLMC_HEADER_BYTES,
                        bytes.bytes);
    }
    if (stk_u32_at(bytes.data, 1) != kind->version) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "an unknown version of llm.c's tokens",
                        "write the file again with llm.c's dev/data, or as raw tokens",
                        "version %u", stk_u32_at(bytes.data, 1));
    }
    count = stk_u32_at(bytes.data, 2); /* below 2^32: the product cannot wrap */
    have = bytes.bytes - LLMC_HEADER_BYTES;
    if (count * stk_token_bytes(kind->dtype) != have) {
        bool truncated = count * stk_token_bytes(kind->dtype) > have;

        return stk_fail(error, truncated ? STOKER_ERROR_TRUNCATED : STOKER_ERROR_CORRUPT,
                        truncated ? "a token file ends too early"
                                  : "there is something behind the tokens",
                        "copy the file again", "%llu tokens by its header, %llu bytes there",
                        (unsigned long long)count, (unsigned long long)have);
    }
    *run_out = (struct stk_token_array){bytes.data + LLMC_HEADER_BYTES, count, kind->dtype};
    return 0;
}

/* A file without a header that is known; head: its first bytes, or all. */
static int open_without_magic(struct stk_token_array *run_out, struct stk_view bytes,
                              struct stk_view head, uint32_t dtype, struct stoker_error *error)
{
    const char *advice = NULL, *foreign = stk_token_foreign_format(head, dtype, &advice);

    if (foreign) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "this is no file of raw tokens", advice,
                        "the first bytes are those of %s", foreign);
    }
    return dtype ? stk_tokens_open_raw(run_out, bytes, dtype, error)
                 : stk_fail(
                       error, STOKER_ERROR_ARGUMENT, "a raw token file does not say its dtype",
                       "give the dtype that it was written with, like uint16 (command: --stored)",
                       "dtype");
}

/* Opens a file of which only `head` may be read. */
static int open_any(struct stk_token_array *run_out, struct stk_view bytes, struct stk_view head,
                    uint32_t dtype, struct stoker_error *error)
{
    switch (stk_token_format_of(bytes)) {
    case STK_TOKENS_NPY:
        return stk_tokens_open_npy(run_out, bytes, error);
    case STK_TOKENS_LLMC:
        return stk_tokens_open_llmc(run_out, bytes, error);
    case STK_TOKENS_RAW:
    case STK_TOKENS_UNKNOWN:
        break;
    }
    memset(run_out, 0, sizeof *run_out);
    return open_without_magic(run_out, bytes, head, dtype, error);
}

int stk_tokens_open_any(struct stk_token_array *run_out, struct stk_view bytes, uint32_t dtype,
                        struct stoker_error *error)
{
    return open_any(run_out, bytes, bytes, dtype, error);
}

/* Bytes of an npy file before its array: a header that claims to be longer must not make the parser
 * read past the head. */
static uint64_t npy_header_bytes(struct stk_view head)
{
    if (head.bytes < 12) {
        return head.bytes;
    }
    return head.data[6] == 1 ? 10 + (uint64_t)(head.data[8] | head.data[9] << 8)
                             : 12 + (uint64_t)stk_u32_at(head.data, 2);
}

int stk_tokens_open_head(struct stk_token_array *run_out, uint64_t *data_at_out,
                         struct stk_view head, uint64_t file_bytes, uint32_t dtype,
                         struct stoker_error *error)
{
    /* The parsers look at no byte after the header, and at the file's size. */
    struct stk_view file = {head.data, file_bytes};
    int status;

    *data_at_out = 0;
    memset(run_out, 0, sizeof *run_out);
    if (stk_token_format_of(head) == STK_TOKENS_NPY && head.bytes < file_bytes &&
        npy_header_bytes(head) > head.bytes) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "an npy header is too long",
                        "save the array alone, without named fields", "%llu bytes",
                        (unsigned long long)npy_header_bytes(head));
    }
    status = open_any(run_out, file, head, dtype, error);
    if (status == 0) {
        *data_at_out = (uint64_t)(run_out->data - head.data);
        run_out->data = NULL;
    }
    return status;
}
