/* Options of a token loader: defaults, checks, identity. */
#include "loader/tokens/token_options.h"

#include "base/crypto/digest.h"
#include "base/options.h"
#include "io/filesystem/filesystem.h"
#include "loader/rows/sequence_packing.h"
#include "loader/rows/token_row.h"

#include <string.h>

#define CHUNK_DOCUMENTS 4096u
#define FIM_FRAGMENTS 4u
#define FILES_INSPECTED 4u /* of many: the first one, the last ones, and some between */
/* About 1,000 chunks of 4,096 documents. */
#define PACKED_FREE_MAX (UINT64_C(1) << 31)

/* Sets the defaults. */
static void set_defaults(struct stoker_token_loader_options *options)
{
    bool windows;

    options->rows = options->rows ? options->rows : STOKER_ROWS_WINDOWS;
    windows = options->rows == STOKER_ROWS_WINDOWS;
    options->stride = options->stride ? options->stride : options->context;
    options->tail = options->tail ? options->tail : STOKER_TAIL_DROP;
    options->group_count = options->group_count ? options->group_count : 1;
    options->world_size = options->world_size ? options->world_size : 1;
    options->labels = options->labels ? options->labels : STOKER_LABELS_SHIFTED;
    options->dtype = options->dtype ? options->dtype : STOKER_INT64;
    options->fim_fragments_max =
        options->fim_fragments_max ? options->fim_fragments_max : FIM_FRAGMENTS;
    options->chunk_documents =
        options->chunk_documents ? options->chunk_documents : CHUNK_DOCUMENTS;
    options->boundary_labels = options->boundary_labels ? options->boundary_labels
                               : windows                ? STOKER_BOUNDARY_NEXT
                                                        : STOKER_BOUNDARY_MASKED;
    options->positions = options->positions                    ? options->positions
                         : options->rows == STOKER_ROWS_PACKED ? STOKER_POSITIONS_RESET
                                                               : STOKER_POSITIONS_NONE;
}

static bool is_share(double value)
{
    return value >= 0 && value <= 1; /* also false for NaN */
}

static const char *refuse_rows(const struct stoker_token_loader_options *options)
{
    bool documents = options->rows == STOKER_ROWS_DOCUMENTS;
    struct stk_fim fim = stk_token_options_fim(options);
    uint64_t added = stk_fim_added_max(&fim) + options->append_eod;

    if (options->rows > STOKER_ROWS_PADDED || options->boundary_labels > STOKER_BOUNDARY_NEXT ||
        options->positions > STOKER_POSITIONS_ROW || options->labels > STOKER_LABELS_UNSHIFTED) {
        return "rows, ends, positions or labels is out of its range";
    }
    if (options->context > UINT32_MAX || (options->context == 0 && !documents)) {
        return "context must be 1 to 4,294,967,295 tokens";
    }
    if (options->rows == STOKER_ROWS_PACKED &&
        (options->context > STK_SEQUENCE_PACKING_LENGTH_MAX ||
         options->context * options->batch_size > INT32_MAX)) {
        return "packed rows have 16,777,216 tokens at most, and a batch 2,147,483,647";
    }
    if (options->positions == STOKER_POSITIONS_RESET &&
        options->context * options->batch_size > INT32_MAX) {
        return "where documents begin is counted in 31 bits: take smaller batches";
    }
    if (options->context > 0 && added > 0 && options->context <= added) {
        return "context must have space for sentinels, EOD and one token";
    }
    if (documents && options->positions != STOKER_POSITIONS_NONE) {
        return "positions of documents count from 0: there is no field of them";
    }
    if (options->block_bytes > STK_TOKEN_BLOCK_BYTES_MAX) { /* 0: default */
        return "a block has 1 TiB at most";
    }
    if (options->chunk_documents > STK_SEQUENCE_PACKING_DOCUMENTS_MAX) {
        return "a chunk has 1,048,576 documents at most";
    }
    return NULL;
}

static const char *refuse_rules(const struct stoker_token_loader_options *options)
{
    bool windows = options->rows == STOKER_ROWS_WINDOWS;

    if (options->mix && options->mix->struct_size > offsetof(struct stoker_mix_options, samplers) &&
        options->mix->samplers) {
        return "samplers choose samples of data sets: mix whole sources of tokens";
    }
    if (options->append_eod && (!options->has_eod || windows)) {
        return "append_eod needs eod, and packed rows or documents";
    }
    if (windows && !options->has_eod &&
        (options->boundary_labels == STOKER_BOUNDARY_MASKED ||
         options->positions == STOKER_POSITIONS_RESET)) {
        return "windows need eod to find the ends of documents: set it";
    }
    if (!is_share(options->fim_rate) || !is_share(options->fim_spm_rate) ||
        !is_share(options->fim_fragment_rate)) {
        return "rates of fill in the middle are numbers from 0 to 1";
    }
    if (options->fim_fragments_max > STK_SEQUENCE_PACKING_LENGTH_MAX) {
        return "fragments that are changed are 16,777,216 at most";
    }
    if (options->fim_no_prefix_count > STK_FIM_NO_PREFIX_MAX) {
        return "fill in the middle looks at 64 tokens of no_prefix at most";
    }
    return NULL;
}

struct stk_fim stk_token_options_fim(const struct stoker_token_loader_options *options)
{
    struct stk_fim fim = {
        .rate = options->fim_rate,
        .spm_rate = options->fim_spm_rate,
        .fragment_rate = options->fim_fragment_rate,
        .sentinels = {[STK_FIM_PREFIX] = options->fim_prefix,
                      [STK_FIM_SUFFIX] = options->fim_suffix,
                      [STK_FIM_MIDDLE] = options->fim_middle},
        .has_split = options->has_fim_split,
        .split = options->fim_split,
        .fragments_max = options->fim_fragments_max,
        .uncut_only = options->fim_whole,
        .no_prefix_count = (uint32_t)stk_min(options->fim_no_prefix_count, STK_FIM_NO_PREFIX_MAX),
    };

    for (uint32_t i = 0; i < fim.no_prefix_count; i++) {
        fim.no_prefix[i] = options->fim_no_prefix[i];
    }
    return fim;
}

/* Checks the options of rows of bytes, which are documents as they are stored. */
static bool is_bytes(const struct stoker_token_loader_options *options)
{
    return options->dtype == STOKER_UINT8 && options->rows == STOKER_ROWS_DOCUMENTS &&
           options->labels == STOKER_LABELS_NONE && !options->append_eod && options->fim_rate == 0;
}

/* Whether rows can be read in any order at the cost of reads in sequence. A packed row needs the
 * plan of its chunk of documents, and the plans of many chunks do not fit in memory. */
static bool reads_are_free(const struct stoker_tokens *tokens, uint32_t rows)
{
    uint32_t step = stk_max(tokens->file_count / (FILES_INSPECTED - 1), 1);
    uint64_t free_device = 0;

    if (tokens->is_virtual || (rows == STOKER_ROWS_PACKED && tokens->tokens > PACKED_FREE_MAX)) {
        return false;
    }
    for (uint32_t i = 0; i < tokens->file_count; i += step) {
        const struct stk_token_set_file *file = &tokens->files[i];

        if (file->compressed ||
            (file->data_path &&
             !stk_filesystem_has_free_reads(tokens->engine->io, file->data_path, &free_device))) {
            return false;
        }
    }
    return true;
}

/* A text that is tokenised on demand keeps the documents of a window in memory: its caller sets how
 * many. */
struct stk_order_defaults
stk_token_options_choose_order(struct stoker_token_loader_options *options,
                               const struct stoker_tokens *tokens)
{
    bool has_blocks = options->window_blocks > 0 || options->group_count > 1;
    struct stk_order_defaults defaults = {
        .shuffle = !options->shuffle && !has_blocks,
        .window = !options->window_blocks,
        .block = !options->block_samples && !options->block_bytes,
        .version = !options->order_version,
    };

    options->block_bytes = options->block_bytes ? options->block_bytes : STK_TOKEN_BLOCK_BYTES;
    if (defaults.shuffle && reads_are_free(tokens, options->rows)) {
        options->shuffle = STOKER_SHUFFLE_FULL;
    } else if (defaults.shuffle && !tokens->is_virtual) {
        /* The cache of ranges has this window, as much of the next one, and the requests. */
        options->window_blocks =
            stk_order_window_within(tokens->range_cache ? tokens->range_bytes_max / 5 * 4
                                                        : tokens->engine->budget.bytes_max,
                                    options->block_bytes);
    }
    options->shuffle = options->shuffle ? options->shuffle : STOKER_SHUFFLE_BLOCK;
    options->window_blocks =
        options->window_blocks ? options->window_blocks : STK_ORDER_WINDOW_DEFAULT;
    return defaults;
}

int stk_token_options_resolve(struct stoker_token_loader_options *options,
                              const struct stoker_token_loader_options *given,
                              struct stoker_error *error)
{
    const char *refused;
    int status = stk_options_read(options, sizeof *options,
                                  offsetof(struct stoker_token_loader_options, shuffle), given,
                                  "token loader options", error);

    if (status < 0) {
        return status;
    }
    set_defaults(options);
    refused = refuse_rows(options);
    refused = refused ? refused : refuse_rules(options);
    if (options->batch_size == 0 || options->batch_size > 1u << 24) {
        refused = "batch_size must be 1 to 16,777,216";
    } else if (options->rank >= options->world_size) {
        refused = "rank must be below world_size";
    } else if (options->shuffle > STOKER_SHUFFLE_NONE || options->tail > STOKER_TAIL_KEEP) {
        refused = "shuffle or tail is out of its range";
    } else if (options->on_error > STOKER_ON_ERROR_SKIP) {
        refused = "on_error must be raise or skip";
    } else if (options->order_version > STOKER_ORDER_VERSION) {
        refused = "order_version must be 1 or 2";
    } else if (options->dtype != STOKER_INT32 && options->dtype != STOKER_INT64 &&
               !is_bytes(options)) {
        refused = "dtype must be int32 or int64, or uint8 for documents without labels";
    }
    return refused ? stk_fail(error, STOKER_ERROR_ARGUMENT, "a token loader option is not valid",
                              refused, "token loader options")
                   : 0;
}

/* ---- identity ---- */

/* A digest of some settings, as a part of the identity, so that an error can name the part that
 * differs. */
static void identify_part(uint8_t *part, size_t part_bytes, const void *settings, size_t bytes)
{
    struct stk_sha256 sha;
    uint8_t digest[32];

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, settings, bytes);
    stk_sha256_done(&sha, digest);
    memcpy(part, digest, part_bytes);
}

const struct stk_identity_part stk_token_identity_parts[STK_TOKEN_IDENTITY_PARTS] = {
    {"identity of tokens", 0, 16},
    {"rows (windows, packed or documents; context, stride, labels)", 16, 4},
    {"packing (chunk, pad)", 20, 4},
    {"rules for ends of documents (eod, append_eod, ends, positions)", 24, 4},
    {"fill in the middle (rates, sentinels)", 28, 4},
};

/* Settings that were added later: the identity of states without them does not change. */
#define FIM_MORE_BYTES_MAX (48u + 8u * STK_FIM_NO_PREFIX_MAX)
static size_t add_more(const struct stk_fim *fim, uint8_t *out)
{
    bool split = fim->has_split;
    int64_t numbers[5] = {split, split ? fim->split : 0, split ? fim->fragments_max : 0,
                          fim->uncut_only, fim->no_prefix_count};
    double rate = split ? fim->fragment_rate : 0;
    size_t prefix_bytes = fim->no_prefix_count * sizeof *fim->no_prefix;

    memcpy(out, numbers, sizeof numbers);
    memcpy(out + sizeof numbers, &rate, sizeof rate);
    memcpy(out + sizeof numbers + sizeof rate, fim->no_prefix, prefix_bytes);
    return sizeof numbers + sizeof rate + prefix_bytes;
}

void stk_token_options_identity(const struct stoker_tokens *tokens,
                                const struct stoker_token_loader_options *options,
                                uint8_t identity[32])
{
    bool packed = options->rows == STOKER_ROWS_PACKED, fim = options->fim_rate > 0;
    bool pads = packed || options->rows == STOKER_ROWS_PADDED;
    uint64_t rows[4] = {options->rows, options->context,
                        options->rows == STOKER_ROWS_WINDOWS ? options->stride : 0,
                        options->labels};
    int64_t packing[2] = {packed ? options->chunk_documents : 0, pads ? options->pad : 0};
    int64_t ends[5] = {options->has_eod, options->has_eod ? options->eod : 0, options->append_eod,
                       options->boundary_labels, options->positions};
    int64_t middle[4] = {fim, fim ? options->fim_prefix : 0, fim ? options->fim_suffix : 0,
                         fim ? options->fim_middle : 0};
    double rates[2] = {options->fim_rate, fim ? options->fim_spm_rate : 0};
    struct stk_fim more = stk_token_options_fim(options);
    uint8_t both[sizeof middle + sizeof rates + FIM_MORE_BYTES_MAX];
    size_t both_bytes = sizeof middle + sizeof rates;

    memcpy(both, middle, sizeof middle);
    memcpy(both + sizeof middle, rates, sizeof rates);
    if (fim && (more.has_split || more.uncut_only || more.no_prefix_count > 0)) {
        both_bytes += add_more(&more, both + both_bytes);
    }
    memcpy(identity, tokens->identity, 16);
    identify_part(identity + 16, 4, rows, sizeof rows);
    identify_part(identity + 20, 4, packing, sizeof packing);
    identify_part(identity + 24, 4, ends, sizeof ends);
    identify_part(identity + 28, 4, both, both_bytes);
}
