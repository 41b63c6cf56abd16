/* Documents of token files, numbered file by file. */
#include "base/mem.h"
#include "base/retry.h"
#include "loader/tokens/token_samples.h"

#include <errno.h>
#include <string.h>

/* Tokens of one round of the search, and of one read. */
#define ROUND_TOKENS (4u << 20)
#define READ_TOKENS 4096u
/* Bytes that the search requests of a remote file where they were not prefetched. */
#define SEARCH_UNIT_BYTES 131072u

uint64_t stk_token_ends_find(const uint64_t *ends, uint64_t count, uint64_t value)
{
    uint64_t low = 0, high = count - 1;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (ends[middle] > value) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* ---- the search for EOD ---- */

/* The first pass counts the ends that each round finds, the second pass writes them. The file may
 * change between the passes: the second one must find as many. */
struct search {
    const struct stoker_tokens *tokens;
    uint32_t file;
    int64_t eod;
    bool skips;     /* a damaged frame has no ends: its documents cannot be read */
    uint64_t *sums; /* [rounds + 1]: ends before each round; in the first pass [i + 1] is the count
                     * of round i */
    uint64_t *cuts; /* NULL in the first pass */
};

static int fail_changed(const struct search *search, struct stoker_error *error)
{
    stk_fail(error, STOKER_ERROR_CHANGED, "a token file changed while its documents were searched",
             "wait until the file is written, then open it again", "ends of documents");
    stk_error_set_location(error, search->tokens->files[search->file].path, STOKER_NO_OFFSET, NULL);
    return STOKER_ERROR_CHANGED;
}

/* Returns the tokens from `at` to the end of their frame, at most count. */
static uint64_t frame_rest(const struct stk_token_set_file *file, uint64_t at, uint64_t count)
{
    const struct stk_zstd_frames *frames = &file->zstd_file.frames;
    uint64_t width = stk_token_bytes(file->run.dtype), begin = file->data_at + at * width;
    uint32_t frame = stk_zstd_frames_find(frames, begin);

    return stk_min(count, (frames->frames[frame + 1].out - begin + width - 1) / width);
}

/* Reads the next tokens: *part_out of the `count` at `at`. Returns 1; or 0: they cannot be read,
 * and are skipped. */
static int read_part(const struct search *search, uint64_t at, uint64_t count, uint64_t *part_out,
                     int64_t tokens[READ_TOKENS], struct stoker_error *error)
{
    const struct stk_token_set_file *file = &search->tokens->files[search->file];
    uint64_t rest = search->skips && file->compressed ? frame_rest(file, at, count) : count;
    int status;

    *part_out = stk_min(rest, READ_TOKENS);
    if (!search->skips) {
        status = stk_token_set_read(search->tokens, search->file, at, *part_out, tokens, error);
        return status < 0 ? status : 1;
    }
    status = stk_token_set_read_any(search->tokens, search->file, at, *part_out, tokens, error);
    if (!stk_error_is_data(status)) {
        return status < 0 ? status : 1;
    }
    *part_out = file->compressed ? rest : *part_out;
    return 0;
}

static void prefetch_round(const struct search *search, uint64_t at, uint64_t end)
{
    const struct stk_token_set_file *file = &search->tokens->files[search->file];
    uint64_t width = stk_token_bytes(file->run.dtype);

    if (file->remote.file) {
        (void)stk_token_set_prefetch(search->tokens, search->file,
                                     &(struct stk_range_wish){.offset = at * width,
                                                              .bytes = (end - at) * width,
                                                              .end = file->run.count * width});
    }
}

static int search_round(void *context, uint64_t round, struct stoker_error *error)
{
    const struct search *search = context;
    uint64_t count = search->tokens->files[search->file].run.count, found = 0;
    uint64_t at = round * ROUND_TOKENS, end = stk_min(at + ROUND_TOKENS, count);
    uint64_t *cuts = search->cuts ? search->cuts + search->sums[round] : NULL;
    uint64_t found_max = cuts ? search->sums[round + 1] - search->sums[round] : UINT64_MAX;
    int64_t tokens[READ_TOKENS];

    prefetch_round(search, at, end);
    for (uint64_t part; at < end; at += part) {
        int status = read_part(search, at, end - at, &part, tokens, error);

        if (status < 0) {
            return status;
        }
        for (uint64_t i = 0; status > 0 && i < part; i++) {
            if (tokens[i] != search->eod) {
                continue;
            }
            if (found == found_max) {
                return fail_changed(search, error);
            }
            if (cuts) {
                cuts[found] = at + i + 1;
            }
            found++;
        }
    }
    if (!cuts) {
        search->sums[round + 1] = found;
    }
    return cuts && found != found_max ? fail_changed(search, error) : 0;
}

/* Finds the ends of the documents of one file. */
static int search_file(struct stk_token_documents *documents, uint32_t file, int64_t eod,
                       uint64_t *count_out, struct stoker_error *error)
{
    struct stoker_engine *engine = documents->tokens->engine;
    uint64_t tokens = documents->tokens->files[file].run.count, found, bytes;
    uint64_t rounds = (tokens + ROUND_TOKENS - 1) / ROUND_TOKENS;
    struct search search = {
        .tokens = documents->tokens, .file = file, .eod = eod, .skips = documents->skips};
    int status = -ENOMEM;

    search.sums = stk_alloc(rounds + 1, sizeof *search.sums);
    if (!search.sums) {
        return stk_fail(error, status, "cannot find the documents", "free memory", "%llu rounds",
                        (unsigned long long)rounds);
    }
    status = stk_engine_parallel(engine, rounds, search_round, &search, error);
    for (uint64_t i = 0; i < rounds; i++) {
        search.sums[i + 1] += search.sums[i];
    }
    found = search.sums[rounds];
    bytes = (found + 1) * sizeof *search.cuts;
    if (status == 0) {
        status = stk_engine_reserve(engine, bytes, 0, "where documents end", error);
    }
    if (status == 0) {
        documents->bytes += bytes;
        documents->document_ends[file] = search.cuts = stk_alloc(found + 1, sizeof *search.cuts);
        status = search.cuts ? stk_engine_parallel(engine, rounds, search_round, &search, error)
                             : stk_fail(error, -ENOMEM, "cannot find the documents", "free memory",
                                        "%llu documents", (unsigned long long)found);
    }
    if (status == 0 && (found > 0 ? search.cuts[found - 1] : 0) < tokens) {
        search.cuts[found++] = tokens; /* the last document may end without EOD */
    }
    stk_free(search.sums);
    *count_out = found;
    return status;
}

/* ---- open and close ---- */

static int open_file(struct stk_token_documents *documents, uint32_t i, bool has_eod, int64_t eod,
                     struct stoker_error *error)
{
    const struct stk_token_set_file *file = &documents->tokens->files[i];
    uint64_t count = file->ends ? file->end_count : file->set.document_count;
    bool has_index = file->ends || file->set.documents;
    int status = 0;

    if (!has_index && !has_eod) {
        status =
            stk_fail(error, STOKER_ERROR_ARGUMENT, "this file has no index of its documents",
                     "set eod, the token that ends a document, or use Megatron sets", "documents");
        stk_error_set_location(error, file->path, STOKER_NO_OFFSET, NULL);
        return status;
    }
    if (!has_index) {
        struct stk_range_cache *cache = documents->tokens->range_cache;

        stk_range_cache_set_unit_min(cache, SEARCH_UNIT_BYTES);
        status = search_file(documents, i, eod, &count, error);
        stk_range_cache_set_unit_min(cache, 0);
    }
    documents->count += count;
    documents->ends[i] = documents->count;
    return status;
}

int stk_token_documents_open(struct stk_token_documents *documents,
                             const struct stk_token_documents_options *options,
                             struct stoker_error *error)
{
    const struct stoker_tokens *tokens = options->tokens;
    int status = 0;

    *documents = (struct stk_token_documents){
        .tokens = tokens,
        .skips = options->skips,
        .ends = stk_alloc(tokens->file_count, sizeof *documents->ends),
        .document_ends = stk_alloc(tokens->file_count, sizeof *documents->document_ends),
    };
    if (!documents->ends || !documents->document_ends) {
        status = stk_fail(error, -ENOMEM, "cannot open documents", "free memory", "%u files",
                          tokens->file_count);
    }
    for (uint32_t i = 0; status == 0 && i < tokens->file_count; i++) {
        status = open_file(documents, i, options->has_eod, options->eod, error);
    }
    if (status < 0) {
        stk_token_documents_close(documents);
    }
    return status;
}

void stk_token_documents_close(struct stk_token_documents *documents)
{
    for (uint32_t i = 0; documents->document_ends && i < documents->tokens->file_count; i++) {
        stk_free(documents->document_ends[i]);
    }
    if (documents->tokens) {
        stk_budget_release(&documents->tokens->engine->budget, documents->bytes);
    }
    stk_free(documents->document_ends);
    stk_free(documents->ends);
    *documents = (struct stk_token_documents){0};
}

bool stk_token_documents_end_with_eod(const struct stk_token_documents *documents)
{
    bool cut = false;

    for (uint32_t i = 0; i < documents->tokens->file_count; i++) {
        cut = cut || documents->document_ends[i];
    }
    return cut;
}

/* ---- use ---- */

int stk_token_documents_get(const struct stk_token_documents *documents, uint64_t number,
                            struct stk_token_document *document_out, struct stoker_error *error)
{
    STK_ASSERT(number < documents->count);
    uint32_t i =
        (uint32_t)stk_token_ends_find(documents->ends, documents->tokens->file_count, number);
    const struct stk_token_set_file *file = &documents->tokens->files[i];
    const uint64_t *cuts = file->ends ? file->ends : documents->document_ends[i];

    number -= i > 0 ? documents->ends[i - 1] : 0;
    document_out->file = i;
    if (cuts) {
        uint64_t first = number > 0 ? cuts[number - 1] : 0;

        document_out->span = (struct stk_token_span){first, cuts[number] - first};
        return 0;
    }
    int status = stk_megatron_document(&file->set, number, &document_out->span, error);

    if (status < 0) {
        stk_error_set_location(error, file->path, STOKER_NO_OFFSET, NULL);
    }
    return status;
}
