/* Token files: detects their kind, maps or opens them, and reads them. */
#include "base/mem.h"
#include "base/text/text_match.h"
#include "loader/tokens/token_set.h"

#include "base/crypto/digest.h"
#include "base/options.h"
#include "storage/url/url_alias.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Bytes at both ends of a file that are part of the identity, which must not need a pass over the
 * data. */
#define IDENTITY_BYTES 4096u
#define FRAME_CACHE_BYTES_MAX (512ull << 20)
/* The ranges of remote files take this part of the budget: they are the window of the order. */
#define RANGE_CACHE_PART 2u
#define HEAD_UNIT_BYTES 131072u /* requested at open: STK_TOKEN_HEAD_BYTES, rounded up */
#define ZSTD_MAGIC_BYTES 4u

/* Adds the path to an error. Returns status. */
static int located(struct stoker_error *error, const char *path, int status)
{
    stk_error_set_location(error, path, STOKER_NO_OFFSET, NULL);
    return status;
}

static int fail_folder(const char *path, int status, struct stoker_error *error)
{
    if (status != -EISDIR) {
        return status;
    }
    stk_fail(error, status, "a folder is no token file",
             "name its files, or a glob, like 'FOLDER/*.bin'", "tokens");
    return located(error, path, status);
}

/* Maps an entire file. Open reads both ends: they are prefetched, since each page fault would read
 * megabytes around it. A map of a remote file is memory of the budget. */
static int map_open_file(struct stoker_tokens *tokens, struct stk_file *file, const char *path,
                         struct stk_view *view_out, struct stoker_error *error)
{
    struct stk_io *io = tokens->engine->io;
    struct stk_stat about = {0};
    uint64_t end;
    int status = 0;

    if (stk_io_is_url(path)) {
        status = stk_io_stat_file(file, &about, error);
        status = status < 0 ? status
                            : stk_engine_reserve(tokens->engine, about.bytes, 0,
                                                 "a remote file that is read completely", error);
        tokens->reserved += status == 0 ? about.bytes : 0;
    }
    status = status < 0 ? status : stk_io_map(io, file, view_out, error);
    if (status == 0) {
        end = stk_min(view_out->bytes, IDENTITY_BYTES);
        stk_io_map_prefetch(io, (struct stk_view){view_out->data, end});
        stk_io_map_prefetch(io, (struct stk_view){view_out->data + view_out->bytes - end, end});
    }
    return status;
}

static int map(struct stoker_tokens *tokens, const char *path, struct stk_view *view_out,
               struct stoker_error *error)
{
    struct stk_file *file = NULL;
    int status = stk_io_open_file(tokens->engine->io, path, &file, error);

    if (status == 0) {
        status = map_open_file(tokens, file, path, view_out, error);
        stk_io_close_file(file);
    }
    return fail_folder(path, status, error);
}

static bool is_file(struct stk_io *io, const char *path)
{
    struct stk_stat stat;

    return stk_io_stat_path(io, path, &stat, NULL) == 0 && stat.kind == STK_ENTRY_FILE;
}

/* Finds the set of x.bin and x.idx for a path x.bin, x.bin.zst, x.idx, or x (Megatron names a set
 * by its prefix). Sets both names. Returns false if x.idx does not exist: no set. */
static bool find_megatron(struct stk_io *io, const char *path,
                          char idx[STK_TOKEN_SET_PATH_BYTES_MAX],
                          char bin[STK_TOKEN_SET_PATH_BYTES_MAX])
{
    size_t bytes = strlen(path);
    bool is_idx = stk_text_ends_with(path, ".idx"), packed = stk_text_ends_with(path, ".bin.zst");
    bool has_ending = is_idx || packed || stk_text_ends_with(path, ".bin");

    bytes -= packed ? 8 : has_ending ? 4 : 0;
    if (bytes + sizeof ".bin.zst" > STK_TOKEN_SET_PATH_BYTES_MAX) {
        return false;
    }
    snprintf(idx, STK_TOKEN_SET_PATH_BYTES_MAX, "%.*s.idx", (int)bytes, path);
    /* It fits: see the condition. */
    snprintf(bin, STK_TOKEN_SET_PATH_BYTES_MAX, "%.*s.bin%s", (int)bytes, path,
             packed ? ".zst" : "");
    if (!is_idx && !((has_ending || !is_file(io, path)) && is_file(io, idx))) {
        return false;
    }
    if (!packed && !is_file(io, bin)) {
        snprintf(bin, STK_TOKEN_SET_PATH_BYTES_MAX, "%.*s.bin.zst", (int)bytes, path);
        if (!is_file(io, bin)) { /* then the usual one is reported as missing */
            snprintf(bin, STK_TOKEN_SET_PATH_BYTES_MAX, "%.*s.bin", (int)bytes, path);
        }
    }
    return true;
}

static int open_range_cache(struct stoker_tokens *tokens, struct stoker_error *error)
{
    return tokens->range_cache ? 0
                               : stk_range_cache_open(&tokens->range_cache, tokens->engine,
                                                      tokens->range_bytes_max, error);
}

/* Reads the first bytes of a remote file, which has them. */
static int read_start(struct stoker_tokens *tokens, const struct stk_token_set_file *file,
                      uint8_t *out, size_t bytes, struct stoker_error *error)
{
    struct stk_range_wish wish = {.bytes = bytes, .unit = HEAD_UNIT_BYTES};

    return stk_range_cache_read(tokens->range_cache, &file->remote, &wish, out, error);
}

/* Opens a file of tokens behind a URL, which is read by ranges; a compressed one is mapped. */
static int open_remote(struct stoker_tokens *tokens, struct stk_token_set_file *file,
                       const char *path, struct stoker_error *error)
{
    uint8_t magic[ZSTD_MAGIC_BYTES];
    struct stk_view head = {magic, 0};
    struct stk_stat about = {0};
    struct stk_file *opened = NULL;
    int status = open_range_cache(tokens, error);

    status = status < 0 ? status : stk_io_open_file(tokens->engine->io, path, &opened, error);
    if (status < 0) {
        return fail_folder(path, status, error);
    }
    file->remote = (struct stk_range_file){
        .file = opened, .path = file->path, .number = (uint32_t)(file - tokens->files)};
    status = stk_io_stat_file(opened, &about, error);
    file->remote.bytes = about.bytes;
    head.bytes = stk_min(about.bytes, sizeof magic);
    if (status == 0) { /* the range of the head, which is read next if it is not compressed */
        status = read_start(tokens, file, magic, head.bytes, error);
    }
    if (status == 0 && stk_zstd_frames_detect(head)) {
        status = map_open_file(tokens, opened, path, &file->view, error);
        file->remote.file = NULL;
        stk_io_close_file(opened);
    }
    return status;
}

/* Maps the file of the tokens, or opens a remote one, and finds the frames of a compressed one. */
static int map_tokens(struct stoker_tokens *tokens, struct stk_token_set_file *file,
                      const char *path, struct stoker_error *error)
{
    int status = stk_io_is_url(path) ? open_remote(tokens, file, path, error)
                                     : map(tokens, path, &file->view, error);

    if (status == 0 && !file->remote.file && stk_zstd_frames_detect(file->view)) {
        file->compressed = true;
        file->zstd_file.view = file->view;
        file->zstd_file.first_frame = tokens->frames;
        status = stk_zstd_frames_open(&file->zstd_file.frames, file->view, error);
        tokens->frames += file->zstd_file.frames.count;
    }
    return status;
}

static int open_megatron(struct stoker_tokens *tokens, struct stk_token_set_file *file,
                         const char *idx, const char *bin, struct stoker_error *error)
{
    int status = map(tokens, idx, &file->idx, error);

    status = status < 0 ? status : map_tokens(tokens, file, bin, error);
    if (status < 0) {
        return located(error, file->idx.data ? bin : idx, status);
    }
    struct stk_view data = file->view;

    if (!stk_token_set_is_mapped(file)) {
        data = (struct stk_view){NULL, file->compressed ? file->zstd_file.frames.out_bytes
                                                        : file->remote.bytes};
    }
    status = stk_megatron_open(&file->set, file->idx, data, error);
    file->run = file->set.run;
    return status < 0 ? located(error, idx, status) : 0;
}

/* Reads the first bytes of a file that is not mapped. Sets *got_out, which is less than `bytes` at
 * the end of the file. */
static int read_head(struct stoker_tokens *tokens, const struct stk_token_set_file *file,
                     uint8_t *head, size_t bytes, size_t *got_out, struct stoker_error *error)
{
    if (file->compressed) {
        return stk_zstd_frames_read_head(file->view, head, bytes, got_out, error);
    }
    *got_out = stk_min(bytes, file->remote.bytes);
    return read_start(tokens, file, head, *got_out, error);
}

/* Detects the kind of a compressed or remote file by its first bytes. */
static int open_by_head(struct stoker_tokens *tokens, struct stk_token_set_file *file,
                        uint32_t dtype, struct stoker_error *error)
{
    uint64_t file_bytes = file->compressed ? file->zstd_file.frames.out_bytes : file->remote.bytes;
    uint8_t *head = stk_alloc(STK_TOKEN_HEAD_BYTES, 1);
    size_t got;
    int status;

    if (!head) {
        return stk_fail(error, -ENOMEM, "cannot open token files", "free memory", "the head");
    }
    status = read_head(tokens, file, head, STK_TOKEN_HEAD_BYTES, &got, error);
    if (status == 0) {
        status = stk_tokens_open_head(&file->run, &file->data_at, (struct stk_view){head, got},
                                      file_bytes, dtype, error);
    }
    stk_free(head);
    return status;
}

static int open_run(struct stoker_tokens *tokens, struct stk_token_set_file *file, uint32_t dtype,
                    struct stoker_error *error)
{
    int status = map_tokens(tokens, file, file->path, error);

    if (status == 0) {
        status = stk_token_set_is_mapped(file)
                     ? stk_tokens_open_any(&file->run, file->view, dtype, error)
                     : open_by_head(tokens, file, dtype, error);
    }
    return status < 0 ? located(error, file->path, status) : 0;
}

static int open_file(struct stoker_tokens *tokens, struct stk_token_set_file *file,
                     const char *path, uint32_t dtype, struct stoker_error *error)
{
    char idx[STK_TOKEN_SET_PATH_BYTES_MAX], bin[STK_TOKEN_SET_PATH_BYTES_MAX];
    bool is_set;
    int status;

    if (stk_url_alias(path, &file->path) < 0) {
        return stk_fail(error, -ENOMEM, "cannot open token files", "free memory", "token files");
    }
    is_set = find_megatron(tokens->engine->io, file->path, idx, bin);
    file->data_path = stk_strdup(is_set ? bin : file->path);
    if (!file->data_path) {
        return stk_fail_memory(error, "token files");
    }
    status = is_set ? open_megatron(tokens, file, idx, bin, error)
                    : open_run(tokens, file, dtype, error);
    if (status == 0) {
        tokens->tokens += file->run.count; /* all files are mapped: the sum cannot wrap */
        tokens->documents += file->set.document_count;
        tokens->bytes += file->remote.file ? file->remote.bytes : file->view.bytes;
    }
    return status;
}

/* ---- reading ---- */

bool stk_token_set_prefetch(const struct stoker_tokens *tokens, uint32_t number,
                            const struct stk_range_wish *given)
{
    const struct stk_token_set_file *file = &tokens->files[number];
    struct stk_range_wish wish = *given;

    if (file->compressed) {
        return stk_frame_cache_prefetch(tokens->frame_cache, &file->zstd_file,
                                        file->data_at + wish.offset, wish.bytes);
    }
    wish.offset += file->data_at;
    wish.begin += file->data_at;
    wish.end += file->data_at;
    return stk_range_cache_prefetch(tokens->range_cache, &file->remote, &wish);
}

int stk_token_set_read_stored(const struct stoker_tokens *tokens, uint32_t number, uint64_t offset,
                              uint64_t bytes, uint8_t *out, struct stoker_error *error)
{
    const struct stk_token_set_file *file = &tokens->files[number];
    struct stk_range_wish wish = {.offset = file->data_at + offset, .bytes = bytes};
    int status;

    if (bytes == 0) {
        return 0;
    }
    if (stk_token_set_is_mapped(file)) {
        memcpy(out, file->run.data + offset, bytes);
        return 0;
    }
    status = file->compressed
                 ? stk_frame_cache_read(tokens->frame_cache, &file->zstd_file, wish.offset, bytes,
                                        out, error)
                 : stk_range_cache_read(tokens->range_cache, &file->remote, &wish, out, error);
    return status < 0 ? located(error, file->path, status) : 0;
}

/* The index of the first token that is negative or not below vocab_size; count: there is none. */
static uint64_t find_foreign_id(const struct stk_token_copy *copy, uint64_t vocab)
{
    const int32_t *narrow = copy->tokens;
    const int64_t *wide = copy->tokens;
    bool is_narrow = copy->dtype == STOKER_INT32, found = false;
    uint64_t at = 0;

    /* These loops have no exit, so that the compiler vectorizes them. */
    for (uint64_t i = 0; i < copy->count && is_narrow; i++) {
        found |= (uint64_t)(int64_t)narrow[i] >= vocab;
    }
    for (uint64_t i = 0; i < copy->count && !is_narrow; i++) {
        found |= (uint64_t)wide[i] >= vocab;
    }
    while (found && (uint64_t)(is_narrow ? narrow[at] : wide[at]) < vocab) {
        at++;
    }
    return found ? at : copy->count;
}

int stk_token_set_check_ids(const struct stoker_tokens *set, uint32_t file,
                            const struct stk_token_copy *copy, struct stoker_error *error)
{
    uint64_t at = set->vocab_size > 0 ? find_foreign_id(copy, set->vocab_size) : copy->count;
    long long id;

    if (at == copy->count) {
        return 0;
    }
    id = copy->dtype == STOKER_INT32 ? ((const int32_t *)copy->tokens)[at]
                                     : ((const int64_t *)copy->tokens)[at];
    stk_fail(error, STOKER_ERROR_FORMAT, "a token is not an id of the vocabulary",
             "check that the file has the dtype that it was written with (stored=), and that vocab "
             "is the number of ids of its tokenizer",
             "token %llu is %lld, vocab is %llu", (unsigned long long)(copy->first + at), id,
             (unsigned long long)set->vocab_size);
    return located(error, set->files[file].path, STOKER_ERROR_FORMAT);
}

int stk_token_set_read(const struct stoker_tokens *tokens, uint32_t number, uint64_t first,
                       uint64_t count, int64_t *out, struct stoker_error *error)
{
    int status = stk_token_set_read_any(tokens, number, first, count, out, error);

    return status < 0
               ? status
               : stk_token_set_check_ids(tokens, number,
                                         &(struct stk_token_copy){first, count, STOKER_INT64, out},
                                         error);
}

int stk_token_set_read_any(const struct stoker_tokens *tokens, uint32_t number, uint64_t first,
                           uint64_t count, int64_t *out, struct stoker_error *error)
{
    const struct stk_token_set_file *file = &tokens->files[number];
    struct stk_token_array run = file->run;
    bool fits;

    STK_ASSERT(first <= run.count && count <= run.count - first);
    if (count == 0) {
        return 0;
    }
    if (!stk_token_set_is_mapped(file)) {
        /* Stored tokens are at the end of the buffer, so that widening does not overwrite tokens
         * not read yet. */
        uint64_t bytes = count * stk_token_bytes(run.dtype);
        uint8_t *stored = (uint8_t *)out + count * sizeof *out - bytes;
        int status = stk_token_set_read_stored(tokens, number, first * stk_token_bytes(run.dtype),
                                               bytes, stored, error);

        if (status < 0) {
            return status;
        }
        run = (struct stk_token_array){stored, count, run.dtype};
        first = 0;
    }
    fits = stk_token_widen(&run, first, count, STOKER_INT64, out);
    if (!fits) {
        stk_fail(error, STOKER_ERROR_FORMAT, "a token does not fit its dtype",
                 "check the dtype of the file", "a batch of int64");
        return located(error, file->path, STOKER_ERROR_FORMAT);
    }
    return 0;
}

/* ---- changes ---- */

static int check_files(const void *owner, struct stoker_error *error)
{
    const struct stoker_tokens *tokens = owner;
    struct stk_io *io = tokens->engine->io;
    int status = 0;

    for (uint32_t i = 0; status == 0 && i < tokens->file_count; i++) {
        status = stk_io_map_check(io, tokens->files[i].view, error);
        status = status < 0 ? status : stk_io_map_check(io, tokens->files[i].idx, error);
    }
    return status;
}

int stk_token_set_check(struct stoker_tokens *tokens, struct stoker_error *error)
{
    return stk_map_watch_check(&tokens->maps, tokens->engine->io, check_files, tokens, error);
}

int stk_token_set_end_read(struct stoker_tokens *tokens, int status, struct stoker_error *error)
{
    struct stoker_error changed;
    int found = status < 0 ? check_files(tokens, &changed) : stk_token_set_check(tokens, &changed);

    if (found < 0 && error) {
        *error = changed;
    }
    return found < 0 ? found : status;
}

/* ---- open and close ---- */

/* SHA-256 of each file's dtype, count, and both ends of its tokens: the files may be moved or
 * compressed, but not change. */
static int identify(struct stoker_tokens *tokens, struct stoker_error *error)
{
    uint8_t digest[32], ends[2 * IDENTITY_BYTES];
    struct stk_sha256 sha;
    int status = 0;

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, "stoker tokens 1", 15);
    for (uint32_t i = 0; status == 0 && i < tokens->file_count; i++) {
        const struct stk_token_set_file *file = &tokens->files[i];
        uint64_t bytes = file->run.count * stk_token_bytes(file->run.dtype);
        uint64_t end = stk_min(bytes, IDENTITY_BYTES);
        uint64_t head[2] = {file->run.dtype, file->run.count};

        status = stk_token_set_read_stored(tokens, i, 0, end, ends, error);
        if (status == 0) {
            status = stk_token_set_read_stored(tokens, i, bytes - end, end, ends + end, error);
        }
        stk_sha256_add(&sha, head, sizeof head);
        stk_sha256_add(&sha, ends, 2 * end);
    }
    stk_sha256_done(&sha, digest);
    memcpy(tokens->identity, digest, sizeof tokens->identity);
    return status;
}

/* Opens the frame cache with the option's size, else a quarter of the budget, at most 512 MiB. */
static int open_frame_cache(struct stoker_tokens *tokens, uint64_t bytes_max,
                            struct stoker_error *error)
{
    uint64_t usual = stk_min(tokens->engine->budget.bytes_max / 4, FRAME_CACHE_BYTES_MAX);

    return tokens->frames == 0
               ? 0
               : stk_frame_cache_open(&tokens->frame_cache, tokens->engine, tokens->frames,
                                      bytes_max ? bytes_max : usual, error);
}

/* Allocates a set with space for the files; none is open yet. */
static int tokens_new(struct stoker_tokens **tokens_out, struct stoker_engine *engine,
                      size_t file_count, struct stoker_error *error)
{
    struct stoker_tokens *tokens = stk_alloc(1, sizeof *tokens);

    if (tokens) {
        tokens->files = stk_alloc(file_count, sizeof *tokens->files);
    }
    if (!tokens || !tokens->files) {
        stk_free(tokens);
        return stk_fail(error, -ENOMEM, "cannot open token files", "free memory", "%zu files",
                        file_count);
    }
    tokens->engine = engine;
    stk_engine_retain(engine);
    atomic_store_explicit(&tokens->references, 1, memory_order_relaxed);
    *tokens_out = tokens;
    return 0;
}

/* A set without files: only the number and the dtype of its tokens are known. */
static int open_virtual(struct stoker_tokens **tokens_out, struct stoker_engine *engine,
                        const struct stoker_tokens_options *options, struct stoker_error *error)
{
    uint64_t count = options->virtual_tokens;
    int status = tokens_new(tokens_out, engine, 1, error);

    if (status == 0) {
        struct stoker_tokens *tokens = *tokens_out;
        struct stk_sha256 sha;

        tokens->files[0].run = (struct stk_token_array){NULL, count, STOKER_INT32};
        tokens->file_count = 1;
        tokens->tokens = count;
        tokens->is_virtual = true;
        stk_sha256_init(&sha);
        stk_sha256_add(&sha, "stoker tokens elsewhere 1", 25);
        stk_sha256_add(&sha, &count, sizeof count);
        stk_sha256_add(&sha, options->identity, sizeof options->identity);
        stk_sha256_done(&sha, tokens->identity);
    }
    return status;
}

int stoker_tokens_open(struct stoker_tokens **tokens_out, struct stoker_engine *engine,
                       const struct stoker_tokens_options *given, struct stoker_error *error)
{
    struct stoker_tokens_options options;
    struct stoker_tokens *tokens = NULL;
    int status = stk_engine_check(engine, error);

    *tokens_out = NULL;
    status = status < 0 ? status
                        : stk_options_read(&options, sizeof options, sizeof options.struct_size,
                                           given, "tokens options", error);
    if (status < 0) {
        return status;
    }
    if ((options.path_count == 0) == (options.virtual_tokens == 0) ||
        options.path_count > STK_TOKEN_FILES_MAX ||
        options.virtual_tokens > STK_TOKEN_SET_VIRTUAL_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "token files cannot be opened like this",
                        "name 1 to 1,048,576 files, or the number of virtual tokens",
                        "tokens options");
    }
    if (options.virtual_tokens > 0) {
        return open_virtual(tokens_out, engine, &options, error);
    }
    status = tokens_new(&tokens, engine, options.path_count, error);
    if (status < 0) {
        return status;
    }
    tokens->vocab_size = options.vocab_size;
    tokens->range_bytes_max =
        options.cache_bytes ? options.cache_bytes : engine->budget.bytes_max / RANGE_CACHE_PART;
    while (status == 0 && tokens->file_count < options.path_count) {
        uint32_t i = tokens->file_count++;

        status = open_file(tokens, &tokens->files[i], options.paths[i], options.dtype, error);
    }
    status = status < 0 ? status : open_frame_cache(tokens, options.cache_bytes, error);
    status = status < 0 ? status : identify(tokens, error);
    status = stk_token_set_end_read(tokens, status, error);
    if (status < 0) {
        stk_token_set_release(tokens);
        return status;
    }
    *tokens_out = tokens;
    return 0;
}

int stk_token_set_borrow(struct stoker_tokens **tokens_out, struct stoker_engine *engine,
                         const struct stk_token_set_file *file, struct stoker_error *error)
{
    int status = tokens_new(tokens_out, engine, 1, error);

    if (status == 0) {
        (*tokens_out)->files[0] = *file;
        (*tokens_out)->file_count = 1;
        (*tokens_out)->tokens = file->run.count;
    }
    return status;
}

void stk_token_set_retain(struct stoker_tokens *tokens)
{
    /* Relaxed: the caller's reference keeps it alive. */
    atomic_fetch_add_explicit(&tokens->references, 1, memory_order_relaxed);
}

void stk_token_set_release(struct stoker_tokens *tokens)
{
    struct stoker_engine *engine = tokens->engine;

    /* Acquire-release: the last one sees all writes of the others. */
    if (atomic_fetch_sub_explicit(&tokens->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    stk_frame_cache_close(tokens->frame_cache);
    stk_range_cache_close(tokens->range_cache);
    for (uint32_t i = 0; i < tokens->file_count; i++) {
        stk_zstd_frames_close(&tokens->files[i].zstd_file.frames);
        stk_io_unmap(engine->io, tokens->files[i].view);
        stk_io_unmap(engine->io, tokens->files[i].idx);
        if (tokens->files[i].remote.file) {
            stk_io_close_file(tokens->files[i].remote.file);
        }
        stk_free(tokens->files[i].path);
        stk_free(tokens->files[i].data_path);
    }
    stk_budget_release(&engine->budget, tokens->reserved);
    stk_free(tokens->files);
    stk_free(tokens);
    stk_engine_release(engine);
}

void stoker_tokens_close(struct stoker_tokens *tokens)
{
    if (tokens && stk_engine_check(tokens->engine, NULL) == 0) {
        stk_token_set_release(tokens);
    }
}

int stoker_tokens_info(const struct stoker_tokens *tokens, struct stoker_tokens_info *info_out)
{
    struct stoker_tokens_info full = {
        .file_count = tokens->file_count,
        .tokens = tokens->tokens,
        .documents = tokens->documents,
        .bytes = tokens->bytes,
        .frames = tokens->frames,
    };

    memcpy(full.identity, tokens->identity, sizeof full.identity);
    return stk_options_write_output(info_out, &full, sizeof full, "tokens info", NULL);
}
