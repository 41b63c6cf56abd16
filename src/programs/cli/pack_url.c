/* stoker pack to a URL: the local staging folder, and the upload. */
#include "programs/cli/pack_url.h"

#include "programs/cli/command.h"
#include "programs/cli/main.h"
#include "programs/cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST "stoker.manifest.json"
#define INDEX "stoker.index"
#define FILES_MAX 1000000u
#define COMPARE_BYTES (1u << 20)

static int fail(int number, const char *what, const char *where, const char *advice)
{
    struct stoker_error error = {.status = -number};

    snprintf(error.what, sizeof error.what, "%s", what);
    snprintf(error.where, sizeof error.where, "'%.700s'", where);
    snprintf(error.advice, sizeof error.advice, "%s", advice);
    return term_error(-number, &error);
}

/* FNV-1a, for the name of a folder. */
static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3ull;
    }
    return hash;
}

static uint64_t mix_text(uint64_t hash, const char *text)
{
    return text ? mix(hash, text, strlen(text) + 1) : mix(hash, "\1", 1);
}

/* Hash of everything that determines the packed bytes and their URL. */
static uint64_t name_of(const struct args *args, const struct stoker_dataset *dataset,
                        const char *url)
{
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    const uint64_t numbers[] = {args->shard_bytes, args->short_side, args->quality, args->on_error,
                                args->jpeg_index_mcus};
    uint64_t hash = mix_text(0xcbf29ce484222325ull, url);

    stoker_dataset_info(dataset, &info);
    hash = mix(hash, info.identity, sizeof info.identity);
    hash = mix(hash, numbers, sizeof numbers);
    hash = mix_text(hash, args->pattern);
    hash = mix_text(hash, args->keep_order ? "keep-order" : args->shuffle_seed);
    for (size_t i = 0; i < args->path_count; i++) {
        hash = mix_text(hash, args->paths[i]);
    }
    return hash;
}

/* --staging-dir, or a folder of the cache. */
static bool stage_folder(const struct args *args, char *folder, size_t folder_bytes)
{
    const char *cache = getenv("STOKER_CACHE"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");

    if (args->staging_dir) {
        return (size_t)snprintf(folder, folder_bytes, "%s", args->staging_dir) < folder_bytes;
    }
    if (cache && cache[0]) {
        return (size_t)snprintf(folder, folder_bytes, "%s", cache) < folder_bytes;
    }
    if (xdg && xdg[0]) {
        return (size_t)snprintf(folder, folder_bytes, "%s/stoker", xdg) < folder_bytes;
    }
    return home && home[0] &&
           (size_t)snprintf(folder, folder_bytes, "%s/.cache/stoker", home) < folder_bytes;
}

static int make_folders(const char *path)
{
    char part[PACK_URL_BYTES];

    snprintf(part, sizeof part, "%s", path);
    for (char *at = part + 1; *at; at++) {
        if (*at == '/') {
            *at = 0;
            if (mkdir(part, 0777) != 0 && errno != EEXIST) {
                return errno;
            }
            *at = '/';
        }
    }
    return mkdir(part, 0700) != 0 && errno != EEXIST ? errno : 0;
}

/* Finds an entry below a URL. Returns 1 and fills *info; 0 if there is none; or an error:
 * STOKER_ERROR_AGAIN after a signal. */
static int find_first(struct pack_url *self, const char *url, struct stoker_file_info *info,
                      struct stoker_error *error)
{
    struct stoker_walk *walk = NULL;
    int status = stoker_walk_open(&walk, self->engine, url, 0, error);

    if (status == 0) {
        do {
            info->struct_size = sizeof *info;
            status = stoker_walk_next(walk, COMMAND_TICK_MS, info, error);
        } while (status == STOKER_ERROR_AGAIN && !main_signal());
    }
    stoker_walk_close(walk);
    return status;
}

/* Fails if there is no such bucket: a prefix without objects and a bucket that does not exist are
 * the same for a listing of the prefix. A bucket that may not be listed is taken to exist. */
static int check_bucket(struct pack_url *self, struct stoker_file_info *info)
{
    char root[PACK_URL_BYTES];
    struct stoker_error error = {0};
    const char *bucket = strstr(self->url, "://") + 3;
    int status;

    snprintf(root, sizeof root, "%.*s/",
             (int)(bucket - self->url + (ptrdiff_t)strcspn(bucket, "/")), self->url);
    status = find_first(self, root, info, &error);
    return status == -ENOENT ? term_error(status, &error) : EXIT_FINE;
}

/* Fails if there are objects below the URL. */
static int check_empty(struct pack_url *self)
{
    struct stoker_file_info *info = calloc(1, sizeof *info);
    struct stoker_error error = {0};
    char below[PACK_URL_BYTES + 2];
    int status;

    if (!info) {
        return fail(ENOMEM, "no memory", self->url, "free memory");
    }
    snprintf(below, sizeof below, "%s/", self->url);
    status = find_first(self, below, info, &error);
    if (status == 1) {
        snprintf(below, sizeof below, "%s/%s", self->url, info->name);
        status = fail(EEXIST, "the prefix has objects already", below,
                      "use another prefix, remove it (stoker rm -r), or repeat the settings of the "
                      "unfinished run to continue it");
    } else if (status == -ENOENT) {
        status = check_bucket(self, info);
    } else {
        status =
            status < 0 && status != STOKER_ERROR_AGAIN ? term_error(status, &error) : EXIT_FINE;
    }
    free(info);
    return status;
}

int pack_url_prepare(struct pack_url *self, const struct args *args, struct stoker_engine *engine,
                     const struct stoker_dataset *dataset, const char *url)
{
    static char text[PACK_URL_BYTES - 100], folder[PACK_URL_BYTES - 100];
    size_t bytes = strlen(url);
    int number, status;

    if (strncmp(url, "http", 4) == 0 || strncmp(url, "hf:", 3) == 0) {
        return term_usage("pack", "this URL is read-only", url, "pack to s3:// or to a folder");
    }
    while (bytes > 0 && url[bytes - 1] == '/') {
        bytes--;
    }
    if (bytes == 0 || url[bytes - 1] == ':') {
        return term_usage("pack", "the URL names no bucket", url,
                          "write it like s3://bucket/prefix");
    }
    if (bytes >= sizeof text || !stage_folder(args, folder, sizeof folder)) {
        return fail(EINVAL, "no folder to pack in before the upload", url,
                    "set a folder with --staging-dir");
    }
    memcpy(text, url, bytes);
    self->url = text;
    self->engine = engine;
    snprintf(self->stage, sizeof self->stage, "%s/pack-%016llx", folder,
             (unsigned long long)name_of(args, dataset, text));
    snprintf(self->data, sizeof self->data, "%s/data", self->stage);
    snprintf(self->sending, sizeof self->sending, "%s/sending", self->stage);
    number = make_folders(self->stage);
    if (number != 0) {
        return fail(number, "cannot create the staging folder", self->stage,
                    "set another folder with --staging-dir");
    }
    status = access(self->sending, F_OK) == 0 ? EXIT_FINE : check_empty(self);
    if (status != EXIT_FINE) {
        (void)rmdir(self->stage); /* if it is empty */
    }
    self->is_packed =
        access(self->data, F_OK) == 0; /* the rename that completes packing has happened */
    return status;
}

/* Records that the upload has started: from here on, objects at the URL are ours. */
static int begin_sending(struct pack_url *self)
{
    int file = open(self->sending, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int number = file < 0 || fsync(file) != 0 ? errno : 0;

    if (file >= 0) {
        close(file);
    }
    return number == 0 ? EXIT_FINE
                       : fail(number, "cannot record the start of the upload", self->sending,
                              "set another folder with --staging-dir");
}

/* A running upload, for command_wait. */
struct upload {
    struct stoker_copy *copy;
    struct stoker_copy_progress progress;
};

static int next(void *self, struct stoker_error *error)
{
    struct upload *upload = self;

    return stoker_copy_next(upload->copy, COMMAND_TICK_MS, &upload->progress, error);
}

static void draw(const void *self)
{
    const struct stoker_copy_progress *progress = &((const struct upload *)self)->progress;
    char line[120], done[TERM_NUMBER_BYTES], all[TERM_NUMBER_BYTES];

    if (progress->bytes > 0) {
        snprintf(line, sizeof line, "uploading, %s of %s", term_bytes(done, progress->bytes_done),
                 term_bytes(all, progress->bytes));
        term_live((double)progress->bytes_done / (double)progress->bytes, line);
    }
}

static void stop(void *self)
{
    stoker_copy_stop(((const struct upload *)self)->copy);
}

static int copy_to_end(struct pack_url *self, const struct stoker_copy_options *options)
{
    struct upload upload = {.progress.struct_size = sizeof upload.progress};
    struct stoker_error error = {0};
    int status = stoker_copy_open(&upload.copy, self->engine, options, &error);

    if (status >= 0) {
        status = command_wait(&(struct command_job){next, draw, &upload, stop}, &error);
    }
    stoker_copy_close(upload.copy);
    return status == 1 ? command_interrupted("objects that were sent stay", NULL)
                       : command_result(status, &error);
}

/* Removes the staging folder. Also after a signal: the data set is complete. */
static int remove_stage(struct pack_url *self)
{
    const char *stage = self->stage;
    struct stoker_copy_options options = {.struct_size = sizeof options,
                                          .kind = STOKER_REMOVE,
                                          .sources = &stage,
                                          .source_count = 1,
                                          .recursive = 1};
    struct stoker_copy *copy = NULL;
    struct stoker_error error = {0};
    int status = stoker_copy_open(&copy, self->engine, &options, &error);

    while (status >= 0 && (status = stoker_copy_next(copy, COMMAND_TICK_MS, NULL, &error)) == 1) {
        continue; /* a second signal ends the process */
    }
    stoker_copy_close(copy);
    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}

/* Adds a path of the staging folder. Returns false if memory is exhausted. */
static bool add_path(const struct pack_url *self, const char *name, char ***paths, size_t *count)
{
    char **more = realloc(*paths, (*count + 1) * sizeof *more);
    size_t bytes = strlen(self->data) + strlen(name) + 2;

    if (!more) {
        return false;
    }
    *paths = more;
    more[*count] = malloc(bytes);
    if (!more[*count]) {
        return false;
    }
    snprintf(more[(*count)++], bytes, "%s/%s", self->data, name);
    return true;
}

/* Lists all packed files except index and manifest. */
static int list_shards(struct pack_url *self, char ***paths, size_t *count)
{
    struct stoker_file_info *info = calloc(1, sizeof *info);
    struct stoker_walk *walk = NULL;
    struct stoker_error error = {0};
    int status = info ? stoker_walk_open(&walk, self->engine, self->data, 0, &error) : -ENOMEM;
    bool has_memory = true;

    while ((status >= 0 || status == STOKER_ERROR_AGAIN) && has_memory && *count < FILES_MAX) {
        info->struct_size = sizeof *info;
        status = stoker_walk_next(walk, COMMAND_TICK_MS, info, &error);
        if (status == 0) {
            break;
        }
        if (status == 1 && strcmp(info->name, MANIFEST) != 0 && strcmp(info->name, INDEX) != 0) {
            has_memory = add_path(self, info->name, paths, count);
        }
    }
    stoker_walk_close(walk);
    free(info);
    return !has_memory  ? fail(ENOMEM, "no memory", self->data, "free memory")
           : status < 0 ? term_error(status, &error)
                        : EXIT_FINE;
}

/* Returns true if the object has the bytes of a file: an earlier run, which this one continues, has
 * sent it. After a difference or a failure the copy decides, which replaces nothing. */
static bool is_sent(struct pack_url *self, const char *path, const char *name)
{
    struct stoker_file_info ours = {.struct_size = sizeof ours}, theirs = ours;
    struct stoker_file *here = NULL, *there = NULL;
    uint8_t *buffers = malloc(2 * COMPARE_BYTES);
    char url[PACK_URL_BYTES + 64];
    bool same;

    snprintf(url, sizeof url, "%s/%s", self->url, name);
    same = buffers && stoker_file_open(&here, self->engine, path, &ours, NULL) == 0 &&
           stoker_file_open(&there, self->engine, url, &theirs, NULL) == 0 &&
           ours.bytes == theirs.bytes;
    for (uint64_t at = 0; same && at < ours.bytes; at += COMPARE_BYTES) {
        int64_t got = stoker_file_read(here, at, buffers, COMPARE_BYTES, NULL);

        same = got > 0 &&
               stoker_file_read(there, at, buffers + COMPARE_BYTES, COMPARE_BYTES, NULL) == got &&
               memcmp(buffers, buffers + COMPARE_BYTES, (size_t)got) == 0;
    }
    stoker_file_close(here);
    stoker_file_close(there);
    free(buffers);
    return same;
}

int pack_url_send(struct pack_url *self)
{
    struct stoker_copy_options options = {
        .struct_size = sizeof options, .kind = STOKER_COPY, .update = 1, .no_clobber = 1};
    char below[PACK_URL_BYTES + 2], path[PACK_URL_BYTES + 64];
    const char *one = path;
    char **paths = NULL;
    size_t count = 0;
    int status = begin_sending(self);

    snprintf(below, sizeof below, "%s/", self->url);
    options.destination = below;
    status = status != EXIT_FINE ? status : list_shards(self, &paths, &count);
    if (status == EXIT_FINE && count > 0) {
        options.sources = (const char *const *)paths;
        options.source_count = count;
        status = copy_to_end(self, &options);
    }
    options.sources = &one;
    options.source_count = 1;
    options.update = 0; /* these are compared by their bytes */
    for (int i = 0; i < 2 && status == EXIT_FINE; i++) {
        const char *name = i == 0 ? INDEX : MANIFEST;

        snprintf(path, sizeof path, "%s/%s", self->data, name);
        status = is_sent(self, path, name) ? EXIT_FINE : copy_to_end(self, &options);
    }
    status = status == EXIT_FINE ? remove_stage(self) : status;
    for (size_t i = 0; i < count; i++) {
        free(paths[i]);
    }
    free(paths);
    return status;
}
