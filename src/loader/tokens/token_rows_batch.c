/* stoker_token_rows_batch: rows of documents in memory, by the rules of a token loader. */
#include "loader/tokens/token_loader.h"

#include "base/options.h"
#include "loader/tokens/token_options.h"

#define STK_TOKEN_ROWS_MAX (1u << 24)

/* Tokens of a window, with the label after it; 0: rows are no windows. */
static uint64_t window_tokens(const struct stoker_token_loader_options *options)
{
    return options->rows == STOKER_ROWS_WINDOWS
               ? options->context + (options->labels == STOKER_LABELS_SHIFTED)
               : 0;
}

static int check_documents(const struct stoker_token_documents *documents,
                           const struct stoker_token_loader_options *options,
                           struct stoker_error *error)
{
    const char *refused = NULL;
    uint64_t window = window_tokens(options), before = 0;

    if (documents->count == 0 || documents->count > STK_SEQUENCE_PACKING_DOCUMENTS_MAX) {
        refused = "give 1 to 1,048,576 documents";
    } else if (documents->rows > STK_TOKEN_ROWS_MAX ||
               documents->rows * stk_max(options->context, 1) > INT32_MAX) {
        refused = "a batch has 16,777,216 rows and 2,147,483,647 tokens at most";
    } else if (options->dtype == STOKER_UINT8) {
        refused = "give rows of int32 or int64";
    }
    for (uint64_t i = 0; !refused && i < documents->count; before = documents->ends[i++]) {
        refused = documents->ends[i] < before ? "ends must not decrease" : NULL;
        if (!refused && window > 0 && documents->ends[i] - before != window) {
            refused = "use windows as long as context, and one more token for labels";
        }
    }
    return refused ? stk_fail(error, STOKER_ERROR_ARGUMENT, "documents cannot form rows", refused,
                              "row documents")
                   : 0;
}

int stoker_token_rows_batch(struct stoker_batch **batch_out, struct stoker_engine *engine,
                            const struct stoker_token_documents *user_documents,
                            const struct stoker_token_loader_options *given,
                            struct stoker_error *error)
{
    struct stoker_token_loader_options options = {0};
    struct stoker_token_documents documents;
    struct stoker_token_loader *loader = NULL;
    struct stoker_tokens *tokens = NULL;
    int status = stk_engine_check(engine, error);

    *batch_out = NULL;
    status = status < 0 ? status : stk_token_options_resolve(&options, given, error);
    status = status < 0
                 ? status
                 : stk_options_read(&documents, sizeof documents, sizeof documents.struct_size,
                                    user_documents, "row documents", error);
    status = status < 0 ? status : check_documents(&documents, &options, error);
    if (status < 0) {
        return status;
    }
    struct stk_token_set_file file = {
        .run = {.data = (const uint8_t *)documents.tokens,
                .count = documents.ends[documents.count - 1],
                .dtype = STOKER_INT32},
        .ends = documents.ends,
        .end_count = documents.count,
    };

    options.mix = NULL;
    options.rows_of = NULL;
    options.shuffle = STOKER_SHUFFLE_NONE;
    options.tail = STOKER_TAIL_KEEP;
    options.batch_size = (uint32_t)documents.rows;
    options.rank = 0;
    options.world_size = options.group_count = 1;
    options.chunk_documents = (uint32_t)documents.count;
    options.stride = stk_max(window_tokens(&options), 1);
    status = stk_token_set_borrow(&tokens, engine, &file, error);
    status = status < 0 ? status
                        : stk_token_loader_open(&loader, tokens, &options, documents.ids, error);
    status = status < 0 ? status : stoker_token_loader_set_epoch(loader, documents.epoch, error);
    status = status < 0 ? status : stoker_token_loader_next(loader, batch_out, error);
    stoker_token_loader_close(loader);
    stoker_tokens_close(tokens);
    return status < 0 ? status : 0;
}
