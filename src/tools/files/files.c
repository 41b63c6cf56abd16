/* Files and objects by name: metadata, listings, reads, and reads of many ranges in parallel, where
 * adjacent ranges of an object are joined into one request. */
#include "tools/files/file_handle.h"

#include "base/mem.h"
#include "base/memory_budget.h"
#include "base/options.h"
#include "engine/engine.h"
#include "io/io.h"
#include "storage/object/store.h"
#include "storage/source/source.h"
#include "storage/url/url_alias.h"
#include "storage/url/url_split.h"
#include "storage/vfs/vfs.h"
#include "storage/walk/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GAP_DEFAULT (256u << 10) /* takes some ms, less than the start of a request */
#define RUN_BYTES (8u << 20)     /* limit of the bytes of several ranges in one read */
#define JOINED_BYTES (64u << 20) /* of joined runs in flight, from the engine's budget */
#define IN_FLIGHT_MAX 1024u
#define TICK_MS 1000u
#define PRESIGN_S 3600u

struct stoker_walk {
    struct stoker_engine *engine; /* held */
    struct stk_walk *walk;
    char *path; /* owned: the alias */
    bool seen;  /* there was an entry */
};

static int check_info(const struct stoker_file_info *info, struct stoker_error *error)
{
    return stk_options_check_output(info, sizeof *info, offsetof(struct stoker_file_info, etag),
                                    "file info", error);
}

static void copy_text(char *to, size_t to_bytes, const char *text)
{
    size_t bytes = strlen(text);

    memcpy(to, bytes < to_bytes ? text : "", bytes < to_bytes ? bytes + 1 : 1);
}

static int copy_name(const char *path, char **name_out, struct stoker_error *error)
{
    return stk_url_alias(path, name_out) < 0
               ? stk_fail(error, -ENOMEM, "cannot get information about a file", "free memory",
                          "files")
               : 0;
}

static int stat_path(struct stoker_engine *engine, const char *path, struct stoker_file_info *info,
                     struct stoker_error *error)
{
    struct stoker_file_info full = {0};
    struct stk_object_info about;
    struct stk_stat stat;
    int status = stk_vfs_stat_object(engine->io, path, &stat, &about, error);

    if (status < 0) {
        return status;
    }
    full.kind = stat.kind;
    full.bytes = stat.kind == STK_ENTRY_FILE ? stat.bytes : 0;
    full.mtime_ns = stat.mtime_ns;
    copy_text(full.etag, sizeof full.etag, about.etag);
    copy_text(full.storage_class, sizeof full.storage_class, about.storage);
    full.archive = about.archive;
    full.restored_until_ns = about.restored_until_ns;
    return stk_options_write_output(info, &full, sizeof full, "file info", error);
}

static int expand_paths(struct stoker_engine *engine, const char *path, bool no_links,
                        char **names_out, size_t *count_out, struct stoker_error *error)
{
    char *named = NULL;
    int status = stk_engine_check(engine, error);

    *names_out = NULL;
    *count_out = 0;
    status = status < 0 ? status : copy_name(path, &named, error);
    status = status < 0
                 ? status
                 : stk_source_expand(engine->io, named, no_links, names_out, count_out, error);
    stk_free(named);
    return status;
}

int stoker_paths_expand(struct stoker_engine *engine, const char *path, char **names_out,
                        size_t *count_out, struct stoker_error *error)
{
    return expand_paths(engine, path, false, names_out, count_out, error);
}

int stoker_paths_expand_no_links(struct stoker_engine *engine, const char *path, char **names_out,
                                 size_t *count_out, struct stoker_error *error)
{
    return expand_paths(engine, path, true, names_out, count_out, error);
}

void stoker_paths_free(char *names)
{
    stk_free(names);
}

int stoker_buckets_list(struct stoker_engine *engine, const char *url, char **names_out,
                        size_t *count_out, struct stoker_error *error)
{
    struct stk_store *store;
    int status = stk_engine_check(engine, error);

    if (status == 0 && (stk_url_scheme_of(url) != STK_URL_S3 || strlen(url) != strlen("s3://"))) {
        status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "buckets of this store cannot be listed",
                          "pass s3://; other stores need a project or an account: use their own "
                          "commands",
                          "'%.200s'", url);
    }
    status = status < 0 ? status : stk_vfs_get_store(engine->io, &store, error);
    return status < 0 ? status : stk_store_list_buckets(store, names_out, count_out, error);
}

int stoker_presign(struct stoker_engine *engine, const char *url,
                   const struct stoker_presign_options *user_options, char **url_out,
                   uint64_t *until_ns_out, struct stoker_error *error)
{
    struct stoker_presign_options options = {.method = STOKER_PRESIGN_GET};
    struct stk_object_url *object = NULL;
    struct stk_store *store;
    struct stk_presign presign;
    char *named = NULL;
    int status = stk_engine_check(engine, error);

    if (status == 0 && user_options) {
        status = stk_options_read(&options, sizeof options,
                                  offsetof(struct stoker_presign_options, expires_s), user_options,
                                  "presign options", error);
    }
    if (status == 0 && options.method > STOKER_PRESIGN_PUT) {
        status = stk_fail(error, STOKER_ERROR_ARGUMENT, "a method is out of its range",
                          "use a value of the enum", "presign options");
    }
    status = status < 0 ? status : copy_name(url, &named, error);
    status = status < 0 ? status : stk_object_url_parse(named, &object, error);
    status = status < 0 ? status : stk_vfs_get_store(engine->io, &store, error);
    presign.method = options.method == STOKER_PRESIGN_PUT ? STK_HTTP_PUT : STK_HTTP_GET;
    presign.expires_s = options.expires_s ? options.expires_s : PRESIGN_S;
    status = status < 0 ? status : stk_store_presign(store, object, &presign, error);
    if (status == 0) {
        *url_out = presign.url;
        if (until_ns_out) {
            *until_ns_out = presign.until_ns;
        }
    }
    stk_object_url_free(object);
    stk_free(named);
    return status;
}

int stoker_stat(struct stoker_engine *engine, const char *path, struct stoker_file_info *info,
                struct stoker_error *error)
{
    char *named = NULL;
    int status = stk_engine_check(engine, error);

    status = status < 0 ? status : check_info(info, error);
    status = status < 0 ? status : copy_name(path, &named, error);
    status = status < 0 ? status : stat_path(engine, named, info, error);
    stk_free(named);
    return status;
}

int stoker_walk_open(struct stoker_walk **walk_out, struct stoker_engine *engine, const char *path,
                     uint32_t recursive, struct stoker_error *error)
{
    struct stk_walk_options options = {
        .io = engine->io, .deep = recursive != 0, .special_files = recursive > 1};
    struct stoker_walk *walk;
    char *named = NULL;
    int status = stk_engine_check(engine, error);

    *walk_out = NULL;
    status = status < 0 ? status : copy_name(path, &named, error);
    if (status < 0) {
        return status;
    }
    walk = stk_alloc(1, sizeof *walk);
    options.path = named;
    options.folder = named[0] && named[strlen(named) - 1] == '/';
    status = walk ? stk_walk_open(&walk->walk, &options, error)
                  : stk_fail(error, -ENOMEM, "cannot list", "free memory", "'%.400s'", named);
    if (status < 0) {
        stk_free(named);
        stk_free(walk);
        return status;
    }
    walk->path = named;
    walk->engine = engine;
    stk_engine_retain(engine);
    *walk_out = walk;
    return 0;
}

int stoker_walk_next(struct stoker_walk *walk, uint32_t timeout_ms, struct stoker_file_info *info,
                     struct stoker_error *error)
{
    struct stk_walk_entry *item = NULL;
    int status = stk_engine_check(walk->engine, error);

    status = status < 0 ? status : check_info(info, error);
    status = status < 0 ? status : stk_walk_next(walk->walk, timeout_ms, &item, error);
    if (status == 1) {
        struct stoker_file_info full = {
            .kind = item->kind, .bytes = item->bytes, .mtime_ns = item->mtime_ns};

        copy_text(full.etag, sizeof full.etag, item->etag);
        copy_text(full.name, sizeof full.name, item->name);
        stk_options_write_output(info, &full, sizeof full, "file info", NULL);
        stk_free(item);
        walk->seen = true;
    }
    return status == 0 && !walk->seen ? stk_walk_check_prefix(walk->engine->io, walk->path, error)
                                      : status;
}

void stoker_walk_close(struct stoker_walk *walk)
{
    if (walk && stk_engine_check(walk->engine, NULL) == 0) {
        stk_walk_close(walk->walk);
        stk_engine_release(walk->engine);
        stk_free(walk->path);
        stk_free(walk);
    }
}

static int open_named(struct stoker_file **file_out, struct stoker_engine *engine, const char *path,
                      struct stoker_file_info *info, struct stoker_error *error)
{
    struct stoker_file_info full = {.kind = STOKER_FILE};
    struct stk_object_info about = {0};
    struct stoker_file *file;
    struct stk_stat stat;
    int status;

    file = stk_alloc(1, sizeof *file + strlen(path) + 1);
    if (!file) {
        return stk_fail(error, -ENOMEM, "cannot open a file", "free memory", "'%.400s'", path);
    }
    memcpy(file->path, path, strlen(path) + 1);
    status = stk_io_open_file(engine->io, path, &file->file, error);
    if (status == 0 && (status = stk_io_stat_file(file->file, &stat, error)) < 0) {
        stk_io_close_file(file->file);
    }
    if (status < 0) {
        stk_free(file);
        return status;
    }
    if (info) {
        stk_vfs_object_info(file->file, &about);
        full.kind = stat.kind;
        full.bytes = stat.bytes;
        full.mtime_ns = stat.mtime_ns;
        copy_text(full.etag, sizeof full.etag, about.etag);
        stk_options_write_output(info, &full, sizeof full, "file info", NULL);
    }
    file->bytes = stat.bytes;
    file->remote = stk_io_is_url(path);
    file->engine = engine;
    stk_engine_retain(engine);
    *file_out = file;
    return 0;
}

int stoker_file_open(struct stoker_file **file_out, struct stoker_engine *engine, const char *path,
                     struct stoker_file_info *info, struct stoker_error *error)
{
    char *named = NULL;
    int status = stk_engine_check(engine, error);

    *file_out = NULL;
    status = status < 0 || !info ? status : check_info(info, error);
    status = status < 0 ? status : copy_name(path, &named, error);
    status = status < 0 ? status : open_named(file_out, engine, named, info, error);
    stk_free(named);
    return status;
}

/* Stores the names of paths one after the other. Returns NULL if there is not enough memory. */
static char *join_names(const char *const *paths, size_t count)
{
    char **names = stk_alloc(count, sizeof *names), *joined = NULL, *at;
    size_t made = 0, bytes = 0;

    while (names && made < count && stk_url_alias(paths[made], &names[made]) == 0) {
        bytes += strlen(names[made++]) + 1;
    }
    at = joined = names && made == count ? stk_alloc(1, bytes) : NULL;
    for (size_t i = 0; i < made; i++) {
        at = joined ? stpcpy(at, names[i]) + 1 : NULL;
        stk_free(names[i]);
    }
    stk_free(names);
    return joined;
}

void stoker_files_prefetch_metadata(struct stoker_engine *engine, const char *const *paths,
                                    size_t count)
{
    char *names =
        stk_engine_check(engine, NULL) == 0 && count > 1 ? join_names(paths, count) : NULL;

    if (names) {
        stk_vfs_prefetch_metadata(engine->io, names, count);
    }
    stk_free(names);
}

void stoker_files_forget_metadata(struct stoker_engine *engine)
{
    if (stk_engine_check(engine, NULL) == 0) {
        stk_vfs_forget_metadata(engine->io);
    }
}

int stk_file_fail(struct stoker_file *file, int64_t status, uint64_t offset,
                  struct stoker_error *error)
{
    struct stk_io *io = file->engine->io;

    if (status == STOKER_ERROR_CHANGED || status == -ENOENT) {
        stk_vfs_set_metadata(io, file->path, NULL); /* the next open requests it again */
    }
    if (error && !stk_io_last_read_error(file->file, (int)status, error)) {
        stk_fail(error, (int)status, "cannot read the file", "check the disk, or the server",
                 "'%.400s' offset %llu", file->path, (unsigned long long)offset);
    }
    return (int)status;
}

int64_t stoker_file_read(struct stoker_file *file, uint64_t offset, void *buffer, size_t bytes,
                         struct stoker_error *error)
{
    int status = stk_engine_check(file->engine, error);
    size_t done = 0;

    while (status == 0 && done < bytes) {
        int64_t got =
            stk_io_read_wait(file->file, offset + done, (uint8_t *)buffer + done, bytes - done);

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
        stk_io_close_file(file->file);
        stk_engine_release(file->engine);
        stk_free(file);
    }
}

/* ---- many ranges ---- */

/* Ranges that one read covers. */
struct run {
    struct stk_read read; /* first */
    size_t first, count;  /* of `order` */
    uint64_t begin, bytes;
    bool direct; /* into the range's own buffer, from `skipped` bytes on */
};

struct reading {
    struct stoker_engine *engine;
    struct stk_io *io;
    struct stk_queue *queue;
    struct stoker_range *ranges;
    struct stoker_range **order; /* of remote ones: by file and offset */
    struct run *runs;
    size_t count, run_count, next;
    bool apart;
    uint64_t gap, joined; /* bytes of joined runs in flight */
    uint32_t flying, flying_max;
    int status;
    struct stoker_error *error;
};

static int compare(const void *a, const void *b)
{
    const struct stoker_range *x = *(struct stoker_range *const *)a;
    const struct stoker_range *y = *(struct stoker_range *const *)b;

    if (x->file != y->file) {
        return (uintptr_t)x->file < (uintptr_t)y->file ? -1 : 1;
    }
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void fail(struct reading *reading, struct stoker_range *range, int64_t status)
{
    struct stoker_error *error = reading->status == 0 ? reading->error : NULL;

    range->result = status;
    if (status < 0 && reading->status == 0) {
        reading->status = (int)status;
        stk_file_fail(range->file, status, range->offset, error);
    }
}

/* One range of more than a read may bring, or of this machine: read here, waiting. */
static void read_local(struct reading *reading, struct stoker_range *range)
{
    struct stoker_error *error = reading->status == 0 ? reading->error : NULL;

    range->result =
        stoker_file_read(range->file, range->offset, range->buffer, range->bytes, error);
    if (range->result < 0 && reading->status == 0) {
        reading->status = (int)range->result;
    }
}

/* Returns the number of bytes of a range that are inside its file. */
static uint64_t range_is_inside(const struct stoker_range *range)
{
    uint64_t size = range->file->bytes;

    return range->offset >= size ? 0 : stk_min(range->bytes, size - range->offset);
}

/* Returns the run that begins with order[first]. */
static struct run plan(const struct reading *reading, size_t first)
{
    const struct stoker_range *range = reading->order[first];
    struct run run = {.first = first, .count = 1, .begin = range->offset, .direct = true};
    uint64_t end = range->offset + range_is_inside(range);

    for (size_t i = first + 1; i < reading->count && !reading->apart; i++) {
        const struct stoker_range *next = reading->order[i];
        uint64_t next_end = next->offset + range_is_inside(next);

        if (next->file != range->file || next->offset > end + reading->gap ||
            stk_max(end, next_end) - run.begin > RUN_BYTES) {
            break;
        }
        end = stk_max(end, next_end);
        run.count++;
        run.direct = false;
    }
    run.bytes = end - run.begin;
    return run;
}

static int plan_all(struct reading *reading)
{
    size_t held = 0;

    for (size_t i = 0; i < reading->count; i++) {
        struct stoker_range *range = &reading->ranges[i];

        range->result = 0;
        range->first_byte_ns = range->complete_ns = 0;
        if (!range->file->remote || range->bytes > UINT32_MAX / 2) {
            continue;
        }
        if (range_is_inside(range) > 0) {
            reading->order[held++] = range;
        }
    }
    reading->count = held;
    if (!reading->apart) { /* else they are requested in the caller's order */
        qsort(reading->order, held, sizeof *reading->order, compare);
    }
    for (size_t i = 0; i < held; i += reading->runs[reading->run_count++].count) {
        reading->runs[reading->run_count] = plan(reading, i);
    }
    return 0;
}

/* Starts runs while there is space. */
static void start(struct reading *reading)
{
    while (reading->next < reading->run_count && reading->flying < reading->flying_max) {
        struct run *run = &reading->runs[reading->next];
        struct stoker_range *range = reading->order[run->first];
        uint8_t *buffer = range->buffer;

        if (!run->direct) {
            if (reading->flying > 0 && reading->joined + run->bytes > JOINED_BYTES) {
                return;
            }
            buffer =
                stk_engine_reserve(reading->engine, run->bytes, 0, "ranges to be joined", NULL) == 0
                    ? stk_alloc(1, run->bytes)
                    : NULL;
            if (!buffer) { /* one by one they need no memory */
                for (size_t i = 0; i < run->count; i++) {
                    read_local(reading, reading->order[run->first + i]);
                }
                reading->next++;
                continue;
            }
            reading->joined += run->bytes;
        }
        run->read = (struct stk_read){.file = range->file->file,
                                      .offset = run->begin,
                                      .buffer = buffer,
                                      .bytes = (uint32_t)run->bytes,
                                      .capacity = (uint32_t)run->bytes};
        if (stk_io_submit(reading->io, reading->queue, &run->read) == 0) {
            if (!run->direct) {
                stk_free(buffer);
                stk_budget_release(&reading->engine->budget, run->bytes);
                reading->joined -= run->bytes;
            }
            return; /* the queue is full */
        }
        reading->flying++;
        reading->next++;
    }
}

static void end(struct reading *reading, struct run *run)
{
    for (size_t i = 0; i < run->count; i++) {
        struct stoker_range *range = reading->order[run->first + i];
        uint64_t bytes = range_is_inside(range);

        if (run->read.result < (int64_t)run->bytes) {
            fail(reading, range, run->read.result < 0 ? run->read.result : STOKER_ERROR_TRUNCATED);
            continue;
        }
        if (!run->direct) {
            memcpy(range->buffer, run->read.buffer + (range->offset - run->begin), bytes);
        }
        if (run->direct && run->read.first_ns > run->read.sent_ns && run->read.sent_ns > 0) {
            range->first_byte_ns = run->read.first_ns - run->read.sent_ns;
            range->complete_ns = run->read.done_ns - run->read.sent_ns;
        }
        range->result = (int64_t)bytes;
    }
    if (!run->direct) {
        stk_free(run->read.buffer);
        stk_budget_release(&reading->engine->budget, run->bytes);
        reading->joined -= run->bytes;
    }
    reading->flying--;
}

static int read_remote(struct reading *reading)
{
    int status = stk_io_queue_open(reading->io, &reading->queue, reading->error);

    if (status < 0) {
        return status;
    }
    start(reading);
    while (reading->flying > 0) { /* each ends by its deadline */
        struct stk_read *done = stk_io_reap(reading->io, reading->queue, TICK_MS), *next;

        for (; done; done = next) {
            next = done->next;
            end(reading, (struct run *)(void *)done);
        }
        start(reading);
    }
    stk_io_queue_close(reading->io, reading->queue);
    return reading->status;
}

int stoker_file_read_ranges(struct stoker_range *ranges, size_t count,
                            const struct stoker_ranges_options *options, struct stoker_error *error)
{
    struct reading reading = {.ranges = ranges, .count = count, .error = error};
    struct stoker_ranges_options full = {0};
    int status;

    if (count == 0) {
        return 0;
    }
    status = options ? stk_options_read(&full, sizeof full, sizeof full.struct_size, options,
                                        "ranges options", error)
                     : 0;
    if (status < 0) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        if (!ranges[i].file || ranges[i].file->engine != ranges[0].file->engine) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT,
                            "ranges belong to files of different engines",
                            "use files of one engine", "range %zu", i);
        }
    }
    reading.engine = ranges[0].file->engine;
    reading.io = reading.engine->io;
    reading.gap = full.gap_bytes == 0 ? GAP_DEFAULT : full.gap_bytes - 1;
    reading.apart = full.no_coalescing != 0;
    reading.flying_max = full.in_flight_max ? full.in_flight_max : IN_FLIGHT_MAX;
    status = stk_engine_check(reading.engine, error);
    if (status < 0) {
        return status;
    }
    reading.order = stk_alloc(count, sizeof *reading.order);
    reading.runs = stk_alloc(count, sizeof *reading.runs);
    if (!reading.order || !reading.runs) {
        status = stk_fail(error, -ENOMEM, "cannot read ranges", "request fewer at once",
                          "%zu ranges", count);
    } else {
        plan_all(&reading);
        status = reading.run_count > 0 ? read_remote(&reading) : 0;
        reading.status = status;
        for (size_t i = 0; i < count; i++) {
            if (!ranges[i].file->remote || ranges[i].bytes > UINT32_MAX / 2) {
                read_local(&reading, &ranges[i]);
            }
        }
        status = reading.status;
    }
    stk_free(reading.order);
    stk_free(reading.runs);
    return status;
}
