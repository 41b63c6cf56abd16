/* Files by their names: what they are, what lies below them, their bytes. */
#include "base/mem.h"
#include "copy/copy.h"
#include "copy/look.h"

#include <errno.h>
#include <string.h>

struct stoker_walk {
    struct stoker_engine *engine; /* held */
    struct stk_visit *walk;
};

static void tell(struct stoker_file_info *info, const struct stoker_file_info *full)
{
    struct stoker_file_info copy = *full;

    copy.struct_size = info->struct_size;
    memcpy(info, &copy, stk_min(info->struct_size, sizeof copy));
}

static int check_info(const struct stoker_file_info *info, struct stoker_error *error)
{
    return info->struct_size >= offsetof(struct stoker_file_info, etag)
               ? 0
               : stk_fail(error, STOKER_ERROR_ARGUMENT, "struct_size is not set",
                          "set it to sizeof the struct", "file info");
}

static void put_text(char *to, size_t to_bytes, const char *text)
{
    size_t bytes = strlen(text);

    memcpy(to, bytes < to_bytes ? text : "", bytes < to_bytes ? bytes + 1 : 1);
}

int stoker_stat(struct stoker_engine *engine, const char *path, struct stoker_file_info *info,
                struct stoker_error *error)
{
    struct stoker_file_info full = {0};
    struct stk_about about;
    struct stk_file *file;
    struct stk_stat stat;
    int status = stk_engine_check(engine, error);

    status = status < 0 ? status : check_info(info, error);
    status = status < 0 ? status : stk_io_stat_path(engine->io, path, &stat, error);
    if (status < 0) {
        return status;
    }
    full.kind = stat.kind;
    full.bytes = stat.kind == STK_ENTRY_FILE ? stat.bytes : 0;
    full.mtime_ns = stat.mtime_ns;
    if (stat.kind == STK_ENTRY_FILE && stk_io_is_url(path) &&
        stk_io_open_file(engine->io, path, &file, NULL) == 0) { /* known by now: nothing is sent */
        stk_route_about(file, &about);
        put_text(full.etag, sizeof full.etag, about.etag);
        stk_io_close_file(engine->io, file);
    }
    tell(info, &full);
    return 0;
}

int stoker_walk_open(struct stoker_walk **walk_out, struct stoker_engine *engine, const char *path,
                     uint32_t recursive, struct stoker_error *error)
{
    struct stk_visit_options options = {.io = engine->io, .path = path, .deep = recursive != 0};
    struct stoker_walk *walk;
    int status = stk_engine_check(engine, error);

    *walk_out = NULL;
    if (status < 0) {
        return status;
    }
    walk = stk_alloc(1, sizeof *walk);
    if (!walk) {
        return stk_fail(error, -ENOMEM, "cannot list", "free memory", "'%.400s'", path);
    }
    options.folder = path[0] && path[strlen(path) - 1] == '/';
    status = stk_visit_open(&walk->walk, &options, error);
    if (status < 0) {
        stk_free(walk);
        return status;
    }
    walk->engine = engine;
    stk_engine_hold(engine);
    *walk_out = walk;
    return 0;
}

int stoker_walk_next(struct stoker_walk *walk, uint32_t timeout_ms, struct stoker_file_info *info,
                     struct stoker_error *error)
{
    struct stk_item *item = NULL;
    int status = stk_engine_check(walk->engine, error);

    status = status < 0 ? status : check_info(info, error);
    status = status < 0 ? status : stk_visit_next(walk->walk, timeout_ms, &item, error);
    if (status == 1) {
        struct stoker_file_info full = {
            .kind = item->kind, .bytes = item->bytes, .mtime_ns = item->mtime_ns};

        put_text(full.etag, sizeof full.etag, item->etag);
        put_text(full.name, sizeof full.name, item->name);
        tell(info, &full);
        stk_free(item);
    }
    return status;
}

void stoker_walk_close(struct stoker_walk *walk)
{
    if (walk && stk_engine_check(walk->engine, NULL) == 0) {
        stk_visit_close(walk->walk);
        stk_engine_release(walk->engine);
        stk_free(walk);
    }
}

int stoker_file_open(struct stoker_file **file_out, struct stoker_engine *engine, const char *path,
                     struct stoker_file_info *info, struct stoker_error *error)
{
    struct stoker_file_info full = {.kind = STOKER_FILE};
    struct stk_about about = {0};
    struct stoker_file *file;
    struct stk_stat stat;
    int status = stk_engine_check(engine, error);

    *file_out = NULL;
    status = status < 0 || !info ? status : check_info(info, error);
    if (status < 0) {
        return status;
    }
    file = stk_alloc(1, sizeof *file + strlen(path) + 1);
    if (!file) {
        return stk_fail(error, -ENOMEM, "cannot open a file", "free memory", "'%.400s'", path);
    }
    memcpy(file->path, path, strlen(path) + 1);
    status = stk_io_open_file(engine->io, path, &file->file, error);
    if (status == 0 && (status = stk_io_stat_file(engine->io, file->file, &stat, error)) < 0) {
        stk_io_close_file(engine->io, file->file);
    }
    if (status < 0) {
        stk_free(file);
        return status;
    }
    if (info) {
        stk_route_about(file->file, &about);
        full.kind = stat.kind;
        full.bytes = stat.bytes;
        full.mtime_ns = stat.mtime_ns;
        put_text(full.etag, sizeof full.etag, about.etag);
        tell(info, &full);
    }
    file->bytes = stat.bytes;
    file->remote = stk_io_is_url(path);
    file->engine = engine;
    stk_engine_hold(engine);
    *file_out = file;
    return 0;
}

void stoker_files_expect(struct stoker_engine *engine, const char *const *paths, size_t count)
{
    size_t bytes = 0, used = 0;
    char *names;

    for (size_t i = 0; i < count; i++) {
        bytes += strlen(paths[i]) + 1;
    }
    names = stk_engine_check(engine, NULL) == 0 && count > 1 ? stk_alloc(1, bytes) : NULL;
    for (size_t i = 0; names && i < count; i++) {
        memcpy(names + used, paths[i], strlen(paths[i]) + 1);
        used += strlen(paths[i]) + 1;
    }
    if (names) {
        stk_io_expect(engine->io, names, count);
    }
    stk_free(names);
}

int stk_file_fail(struct stoker_file *file, int64_t status, uint64_t offset,
                  struct stoker_error *error)
{
    struct stk_io *io = file->engine->io;

    if (status == STOKER_ERROR_CHANGED || status == -ENOENT) {
        stk_route_know(io, file->path, NULL); /* who opens it again asks */
    }
    if (error && !stk_io_explain(io, file->file, (int)status, error)) {
        stk_fail(error, (int)status, "cannot read the file", "check the disk, or the server",
                 "'%.400s' offset %llu", file->path, (unsigned long long)offset);
    }
    return (int)status;
}

int64_t stoker_file_read(struct stoker_file *file, uint64_t offset, void *buffer, size_t bytes,
                         struct stoker_error *error)
{
    struct stk_io *io = file->engine->io;
    int status = stk_engine_check(file->engine, error);
    size_t done = 0;

    while (status == 0 && done < bytes) {
        int64_t got =
            stk_io_read_wait(io, file->file, offset + done, (uint8_t *)buffer + done, bytes - done);

        if (got == 0) {
            break;
        }
        if (got < 0) {
            status = stk_file_fail(file, got, offset, error);
        } else {
            done += (size_t)got;
        }
    }
    return status < 0 ? status : (int64_t)done;
}

void stoker_file_close(struct stoker_file *file)
{
    if (file && stk_engine_check(file->engine, NULL) == 0) {
        stk_io_close_file(file->engine->io, file->file);
        stk_engine_release(file->engine);
        stk_free(file);
    }
}
