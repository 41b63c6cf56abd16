/* Token files: found out what they are, mapped and held. */
#include "sequence/sequence.h"

#include "base/hash.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Bytes at either end of a file that enter the identity: it must not cost a pass over the data. */
#define IDENTITY_BYTES 4096u

static bool ends_with(const char *text, size_t bytes, const char *ending)
{
    return bytes >= strlen(ending) &&
           memcmp(text + bytes - strlen(ending), ending, strlen(ending)) == 0;
}

/* Maps a whole file. */
static int map(struct stk_io *io, const char *path, struct stk_view *view_out,
               struct stoker_error *error)
{
    struct stk_file *file = NULL;
    int status = stk_io_open_file(io, path, &file, error);

    if (status == 0) {
        status = stk_io_map(io, file, view_out, error);
        stk_io_close_file(io, file);
    }
    return status;
}

static bool is_file(struct stk_io *io, const char *path)
{
    struct stk_stat stat;

    return stk_io_stat_path(io, path, &stat, NULL) == 0 && stat.kind == STK_ENTRY_FILE;
}

/* x.bin, x.idx, or x alone where there is no such file: the set x.bin and x.idx, where x.idx is
 * there (Megatron names a set by its prefix). Fills in both names; false: it is no set. */
static bool find_megatron(struct stk_io *io, const char *path, char idx[STK_TOKEN_PATH_BYTES_MAX],
                          char bin[STK_TOKEN_PATH_BYTES_MAX])
{
    size_t bytes = strlen(path);
    bool is_idx = ends_with(path, bytes, ".idx");
    bool has_ending = is_idx || ends_with(path, bytes, ".bin");

    bytes -= has_ending ? 4 : 0;
    if (bytes + sizeof ".idx" > STK_TOKEN_PATH_BYTES_MAX) {
        return false;
    }
    snprintf(idx, STK_TOKEN_PATH_BYTES_MAX, "%.*s.idx", (int)bytes, path);
    snprintf(bin, STK_TOKEN_PATH_BYTES_MAX, "%.*s.bin", (int)bytes, path);
    return is_idx || ((has_ending || !is_file(io, path)) && is_file(io, idx));
}

static int open_megatron(struct stk_io *io, struct stk_token_file *file, const char *idx,
                         const char *bin, struct stoker_error *error)
{
    int status = map(io, idx, &file->idx, error);

    status = status < 0 ? status : map(io, bin, &file->view, error);
    if (status < 0) {
        return status;
    }
    status = stk_megatron_open(&file->set, file->idx, file->view, error);
    file->run = file->set.run;
    return status < 0 ? stk_error_place(error, idx, STOKER_NO_OFFSET, NULL) : 0;
}

static int open_run(struct stk_io *io, struct stk_token_file *file, uint32_t dtype,
                    struct stoker_error *error)
{
    int status = map(io, file->path, &file->view, error);

    if (status < 0) {
        return status;
    }
    switch (stk_token_format_of(file->view)) {
    case STK_TOKENS_NPY:
        status = stk_tokens_npy(&file->run, file->view, error);
        break;
    case STK_TOKENS_LLMC:
        status = stk_tokens_llmc(&file->run, file->view, error);
        break;
    case STK_TOKENS_RAW:
    case STK_TOKENS_UNKNOWN:
        status = dtype ? stk_tokens_raw(&file->run, file->view, dtype, error)
                       : stk_fail(error, STOKER_ERROR_ARGUMENT,
                                  "a raw token file does not say its dtype",
                                  "give the dtype that it was written with, like uint16", "dtype");
        break;
    }
    return status < 0 ? stk_error_place(error, file->path, STOKER_NO_OFFSET, NULL) : 0;
}

static int open_file(struct stoker_tokens *tokens, struct stk_token_file *file, const char *path,
                     uint32_t dtype, struct stoker_error *error)
{
    struct stk_io *io = tokens->engine->io;
    char idx[STK_TOKEN_PATH_BYTES_MAX], bin[STK_TOKEN_PATH_BYTES_MAX];
    int status;

    file->path = stk_strdup(path);
    if (!file->path) {
        return stk_fail(error, -ENOMEM, "cannot open token files", "free memory", "'%.400s'", path);
    }
    status = find_megatron(io, path, idx, bin) ? open_megatron(io, file, idx, bin, error)
                                               : open_run(io, file, dtype, error);
    if (status == 0) {
        tokens->tokens += file->run.count; /* all of it is mapped: no sum can wrap */
        tokens->documents += file->set.document_count;
        tokens->bytes += file->view.bytes;
    }
    return status;
}

/* SHA-256 over each file's dtype, count, and both ends: the files may move, not change. */
static void identify(struct stoker_tokens *tokens)
{
    struct stk_sha256 sha;

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, "stoker tokens 1", 15);
    for (uint32_t i = 0; i < tokens->file_count; i++) {
        const struct stk_token_run *run = &tokens->files[i].run;
        uint64_t bytes = run->count * stk_token_bytes(run->dtype);
        uint64_t end = stk_min(bytes, IDENTITY_BYTES);
        uint64_t head[2] = {run->dtype, run->count};

        stk_sha256_add(&sha, head, sizeof head);
        stk_sha256_add(&sha, run->data, end);
        stk_sha256_add(&sha, run->data + bytes - end, end);
    }
    stk_sha256_done(&sha, tokens->identity);
}

int stoker_tokens_open(struct stoker_tokens **tokens_out, struct stoker_engine *engine,
                       const struct stoker_tokens_options *options, struct stoker_error *error)
{
    struct stoker_tokens *tokens = NULL;
    int status = stk_engine_check(engine, error);

    *tokens_out = NULL;
    if (status < 0) {
        return status;
    }
    if (!options || options->struct_size != sizeof *options || options->path_count == 0 ||
        options->path_count > STK_TOKEN_FILES_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "token files cannot be opened like this",
                        "set struct_size, and name 1 to 1,048,576 files", "tokens options");
    }
    tokens = stk_alloc(1, sizeof *tokens);
    if (tokens) {
        tokens->files = stk_alloc(options->path_count, sizeof *tokens->files);
    }
    if (!tokens || !tokens->files) {
        stk_free(tokens);
        return stk_fail(error, -ENOMEM, "cannot open token files", "free memory", "%zu files",
                        options->path_count);
    }
    tokens->engine = engine;
    stk_engine_hold(engine);
    atomic_store_explicit(&tokens->references, 1, memory_order_relaxed);
    while (status == 0 && tokens->file_count < options->path_count) {
        uint32_t i = tokens->file_count++;

        status = open_file(tokens, &tokens->files[i], options->paths[i], options->dtype, error);
    }
    if (status < 0) {
        stk_tokens_release(tokens);
        return status;
    }
    identify(tokens);
    *tokens_out = tokens;
    return 0;
}

void stk_tokens_hold(struct stoker_tokens *tokens)
{
    /* Relaxed: whoever holds already keeps it alive. */
    atomic_fetch_add_explicit(&tokens->references, 1, memory_order_relaxed);
}

void stk_tokens_release(struct stoker_tokens *tokens)
{
    struct stoker_engine *engine = tokens->engine;

    /* Acquire-release: the last one sees what all others did. */
    if (atomic_fetch_sub_explicit(&tokens->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (uint32_t i = 0; i < tokens->file_count; i++) {
        stk_io_unmap(engine->io, tokens->files[i].view);
        stk_io_unmap(engine->io, tokens->files[i].idx);
        stk_free(tokens->files[i].path);
    }
    stk_free(tokens->files);
    stk_free(tokens);
    stk_engine_release(engine);
}

void stoker_tokens_close(struct stoker_tokens *tokens)
{
    if (tokens && stk_engine_check(tokens->engine, NULL) == 0) {
        stk_tokens_release(tokens);
    }
}

int stoker_tokens_info(const struct stoker_tokens *tokens, struct stoker_tokens_info *info_out)
{
    if (info_out->struct_size != sizeof *info_out) {
        return STOKER_ERROR_ARGUMENT;
    }
    info_out->file_count = tokens->file_count;
    info_out->tokens = tokens->tokens;
    info_out->documents = tokens->documents;
    info_out->bytes = tokens->bytes;
    memcpy(info_out->identity, tokens->identity, sizeof info_out->identity);
    return 0;
}
