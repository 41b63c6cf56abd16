/* Fuzz of the token formats: any bytes as a token file. The first byte selects the kind; a Megatron
 * index gets a .bin of the size in the second and third. No crash, and every accepted span is
 * inside its tokens. */
#include "base/mem.h"
#include "format/tokens/tokens.h"
#include "test/overwrite.h"

#include <string.h>

#define BIN_BYTES_MAX 65535u
#define HEAD_BYTES 1100u /* llm.c's has 1,024 */
/* Entries that are read: indexes here are as small as the input, so that is all of them. */
#define ENTRIES_MAX 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static uint8_t bin[BIN_BYTES_MAX];

static void check_span(const struct stk_token_array *run, const struct stk_token_span *span)
{
    int64_t out[64];

    STK_ASSERT(span->first <= run->count && span->count <= run->count - span->first);
    stk_token_widen(run, span->first, stk_min(span->count, STK_COUNT(out)), STOKER_INT64, out);
}

static void check_entries(const struct stk_megatron *megatron)
{
    struct stk_token_span span;
    struct stoker_error error;

    for (uint64_t i = 0; i < stk_min(megatron->sequence_count, ENTRIES_MAX); i++) {
        if (stk_megatron_sequence(megatron, i, &span, &error) == 0) {
            check_span(&megatron->run, &span);
        }
    }
    for (uint64_t i = 0; i < stk_min(megatron->document_count, ENTRIES_MAX); i++) {
        if (stk_megatron_document(megatron, i, &span, &error) == 0) {
            check_span(&megatron->run, &span);
        }
    }
}

/* Reads all entries, and again after the index was overwritten while it is open. */
static void try_megatron(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = stk_alloc(bytes, 1);
    struct stk_view idx = {copy, bytes - 2}, tokens = {bin, data[0] | data[1] << 8};
    struct stk_megatron megatron;
    struct stoker_error error = {0};

    if (!copy) {
        return;
    }
    memcpy(copy, data + 2, bytes - 2);
    if (stk_megatron_open(&megatron, idx, tokens, &error) < 0) {
        STK_ASSERT(error.status < 0 && error.what[0] && error.where[0] && error.advice[0]);
        stk_free(copy);
        return;
    }
    check_entries(&megatron);
    for (uint32_t round = 0; round < T_OVERWRITE_ROUNDS; round++) {
        t_overwrite(copy, bytes - 2, round);
        check_entries(&megatron);
    }
    stk_free(copy);
}

/* The head alone gives the same result as the complete file, and nothing past the head is read. */
static void try_head(struct stk_view file, uint32_t dtype)
{
    size_t bytes = stk_min(file.bytes, HEAD_BYTES);
    uint8_t *head = stk_alloc(bytes, 1);
    struct stk_token_array run, full_run;
    struct stoker_error error = {0};
    uint64_t data_at;
    int status;

    if (!head) {
        return;
    }
    memcpy(head, file.data, bytes);
    status = stk_tokens_open_head(&run, &data_at, (struct stk_view){head, bytes}, file.bytes, dtype,
                                  &error);
    stk_free(head);
    if (status == STOKER_ERROR_LIMIT) {
        return;
    }
    STK_ASSERT(stk_tokens_open_any(&full_run, file, dtype, &error) == status);
    STK_ASSERT(status < 0 || (run.count == full_run.count && run.dtype == full_run.dtype &&
                              data_at == (uint64_t)(full_run.data - file.data)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_view file = {data + 1, bytes - 1};
    struct stk_token_array run = {0};
    struct stoker_error error = {0};
    int status = -1;

    if (bytes < 3) {
        return 0;
    }
    try_head(file, STOKER_UINT8 + data[0] / 4 % STOKER_UINT64);
    switch (data[0] % 4) {
    case 0:
        try_megatron(data + 1, bytes - 1);
        return 0;
    case 1:
        status = stk_tokens_open_npy(&run, file, &error);
        break;
    case 2:
        status = stk_tokens_open_llmc(&run, file, &error);
        break;
    default:
        status =
            stk_tokens_open_raw(&run, file, STOKER_UINT8 + data[0] / 4 % STOKER_UINT64, &error);
        break;
    }
    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    STK_ASSERT(run.count * stk_token_bytes(run.dtype) <= bytes - 1);
    check_span(&run, &(struct stk_token_span){0, run.count});
    return 0;
}
