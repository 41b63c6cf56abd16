/* The file of a sampler's table: STEM.HEX.table. STEM is the path of the data set's index (or the
 * path that it would have), HEX the begin of the digest of the options. */
#include "loader/sampler/sampler.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/text/text_match.h"
#include "dataset/index_locate.h"
#include "io/atomic_file.h"
#include "io/clock.h"
#include "io/ipc/file_users.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACES 3
#define HEX_DIGITS 16u

struct places {
    char paths[PLACES][sizeof((struct stoker_sampler *)0)->path]; /* empty: no path */
};

static void name(struct places *places, int i, const struct stoker_sampler *sampler,
                 const char *stem)
{
    size_t bytes = strlen(stem);

    if (bytes > 0 && bytes < STK_PATH_BYTES_MAX - 32) {
        char hex[17];

        stk_hex(sampler->choice_digest, 8, hex);
        /* It fits: see the condition. */
        snprintf(places->paths[i], sizeof places->paths[i], "%s.%s.table", stem, hex);
    }
}

/* Possible paths: beside the index that was used, beside its default path, and in the cache. */
static int list_paths(const struct stoker_sampler *sampler, struct places *places,
                      struct stoker_error *error)
{
    struct stoker_dataset *dataset = sampler->dataset;
    struct stk_index_location *location = NULL;
    int status = stk_index_location_open(&location, dataset, error);

    memset(places, 0, sizeof *places);
    if (status == 0) {
        name(places, 0, sampler, dataset->index_path ? dataset->index_path : "");
        name(places, 1, sampler, location->next_to_data);
        name(places, 2, sampler, location->cache);
        if (strcmp(places->paths[0], places->paths[1]) == 0) {
            places->paths[1][0] = '\0';
        }
        stk_index_location_close(location);
    }
    return status;
}

__attribute__((format(printf, 2, 3))) static void note(struct stoker_sampler *sampler,
                                                       const char *format, ...)
{
    __builtin_va_list list;

    if (!sampler->note[0]) { /* the note has the first reason */
        __builtin_va_start(list, format);
        vsnprintf(sampler->note, sizeof sampler->note, format, list);
        __builtin_va_end(list);
    }
}

/* Values of members may have changed though the index is the same. Not if the index was copied:
 * then the times of its files say nothing; nor may those of a table that was copied to a store. */
static bool is_older_than_data(const struct stoker_sampler *sampler, const char *path,
                               const struct stk_sampling_table *table)
{
    const struct stoker_dataset *dataset = sampler->dataset;
    uint64_t stamp = stk_dataset_stamp(dataset);
    struct stk_stat about;

    if (table->data_stamp && stamp &&
        (stk_dataset_is_in_store(dataset) ? !stk_io_is_url(path) : !dataset->index_is_unstamped)) {
        return table->data_stamp != stamp;
    }
    return !dataset->index_is_unstamped &&
           stk_io_stat_path(sampler->engine->io, path, &about, NULL) == 0 && about.mtime_ns > 0 &&
           about.mtime_ns < stk_dataset_newest_ns(dataset);
}

/* Returns 1 if the table was mapped. */
static int try_path(struct stoker_sampler *sampler, const char *path, struct stoker_error *error)
{
    struct stk_io *io = sampler->engine->io;
    struct stoker_error why = {0};
    struct stk_sampling_table *table = NULL;
    struct stk_view image = {0};
    struct stk_file *file = NULL;
    bool is_ours;
    int status = stk_io_open_file(io, path, &file, &why);

    if (status == -ENOENT || status == -ENOTDIR) {
        return 0;
    }
    status = status < 0 ? status : stk_io_map(io, file, &image, &why);
    if (file) {
        stk_io_close_file(file);
    }
    if (status == 0) {
        status = stk_sampling_table_open(&table, image, path, &why);
        if (status < 0) {
            stk_io_unmap(io, image);
        }
    }
    if (status == -ENOMEM) {
        return stk_fail(error, status, "cannot map a table", "free memory", "'%.600s'", path);
    }
    if (status < 0) {
        note(sampler, "%.160s: %.300s", why.what, why.where);
        return 0;
    }
    is_ours = memcmp(table->foot.identity, stk_index_identity(sampler->dataset->index), 32) == 0 &&
              memcmp(table->foot.rule_digest, sampler->choice_digest, 32) == 0 &&
              table->foot.sample_count == sampler->chooser.sample_count;
    if (!is_ours) {
        stk_sampling_table_close(table);
        stk_io_unmap(io, image);
        note(sampler, "the data set changed since the table was made: '%.400s'", path);
        return 0;
    }
    if (is_older_than_data(sampler, path, table)) {
        stk_sampling_table_close(table);
        stk_io_unmap(io, image);
        note(sampler, "a shard was written since the table was made: '%.400s'", path);
        return 0;
    }
    sampler->table = table;
    sampler->image = image;
    sampler->is_mapped = true;
    /* It fits: paths of tables have this size. */
    snprintf(sampler->path, sizeof sampler->path, "%s", path);
    return 1;
}

/* Notes the use in the access time, for remove_oldest: also where the file system does not. */
static void mark_used(const char *path)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};

    (void)utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
}

int stk_sampler_table_find(struct stoker_sampler *sampler, struct stoker_error *error)
{
    struct places *places;
    int status;

    if (!sampler->writes_file) {
        return 0;
    }
    places = stk_alloc(1, sizeof *places);
    status = places ? list_paths(sampler, places, error)
                    : stk_fail(error, -ENOMEM, "cannot find a table", "free memory", "table");
    for (int i = 0; i < PLACES && status == 0; i++) {
        status = places->paths[i][0] ? try_path(sampler, places->paths[i], error) : 0;
        if (status == 1 && !stk_io_is_url(places->paths[i])) {
            mark_used(places->paths[i]);
        }
    }
    stk_free(places);
    if (status == 0 && sampler->table_use == STOKER_INDEX_REQUIRE) {
        return stk_fail(error, STOKER_ERROR_CHANGED, "there is no fresh table of these samples",
                        "create it with 'stoker sample', or set tables = auto", "%s",
                        sampler->note[0] ? sampler->note : "none was found");
    }
    return status;
}

static int make_folders(struct stk_io *io, const char *path)
{
    char folder[STK_PATH_BYTES_MAX];
    int status = 0;

    for (size_t i = 1; status == 0 && path[i] && i < sizeof folder; i++) {
        struct stk_stat about;

        if (path[i] == '/') {
            memcpy(folder, path, i);
            folder[i] = '\0';
            if (stk_io_stat_path(io, folder, &about, NULL) < 0) {
                status = stk_io_make_directory(io, folder, false, NULL);
            }
        }
    }
    return status;
}

/* The stem of a path or name of a table, with its '.'; 0: it is none. */
static size_t stem_bytes_of(const char *name)
{
    static const char ending[] = ".table";
    size_t bytes = strlen(name), rest = HEX_DIGITS + sizeof ending - 1;

    return bytes > rest && name[bytes - rest - 1] == '.' &&
                   strspn(name + bytes - rest, "0123456789abcdef") == HEX_DIGITS &&
                   stk_text_ends_with(name, ending)
               ? bytes - rest
               : 0;
}

static bool is_table(const char *name)
{
    return stem_bytes_of(name) > 0;
}

static int64_t last_use_ns(const struct stat *about)
{
    const struct timespec *used = &about->st_mtim;

    if (about->st_atim.tv_sec > used->tv_sec ||
        (about->st_atim.tv_sec == used->tv_sec && about->st_atim.tv_nsec > used->tv_nsec)) {
        used = &about->st_atim;
    }
    return (int64_t)used->tv_sec * 1000000000 + used->tv_nsec;
}

/* Counts the tables of the index whose table has the name `own`. Sets *name_out to that which was
 * not used for the longest time, or "" if none may be removed: only one of this user, which no
 * process of this machine has open. */
static size_t find_oldest(DIR *listing, const char *own, const struct stk_file_users *users,
                          char name_out[NAME_MAX + 1])
{
    size_t stem = stem_bytes_of(own), count = 0;
    int64_t oldest_ns = INT64_MAX;
    struct dirent *entry;
    struct stat about;

    name_out[0] = '\0';
    rewinddir(listing);
    while ((entry = readdir(listing))) {
        if (stem_bytes_of(entry->d_name) != stem || strncmp(entry->d_name, own, stem) != 0 ||
            fstatat(dirfd(listing), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(about.st_mode)) {
            continue;
        }
        count++;
        if (strcmp(entry->d_name, own) != 0 && about.st_uid == geteuid() &&
            last_use_ns(&about) < oldest_ns && !stk_file_users_has(users, about.st_ino)) {
            oldest_ns = last_use_ns(&about);
            /* It fits: a name has at most NAME_MAX bytes. */
            snprintf(name_out, NAME_MAX + 1, "%s", entry->d_name);
        }
    }
    return count;
}

/* Bounds the number of tables of an index. Another process that opens a table at this moment makes
 * it again, if need be. In a simulated file system nothing is removed: the path does not exist. */
static void remove_oldest(const char *path)
{
    char folder[STK_PATH_BYTES_MAX], name[NAME_MAX + 1];
    const char *slash = strrchr(path, '/'), *own = slash ? slash + 1 : path;
    struct stk_file_users users = {0};
    DIR *listing;

    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(own - path) : 1, slash ? path : ".");
    listing = access(path, F_OK) == 0 ? opendir(folder) : NULL;
    if (listing && find_oldest(listing, own, &users, name) > STK_SAMPLER_TABLES_MAX &&
        stk_file_users_list(&users, is_table) == 0) {
        while (find_oldest(listing, own, &users, name) > STK_SAMPLER_TABLES_MAX && name[0] &&
               unlinkat(dirfd(listing), name, 0) == 0) {
        }
    }
    stk_file_users_deinit(&users);
    if (listing) {
        closedir(listing);
    }
}

/* The clock of a server may be ahead of that of this machine: the table is not older than a shard.
 */
static int store(struct stoker_sampler *sampler, const char *path, struct stoker_error *error)
{
    struct stk_io *io = sampler->engine->io;
    uint64_t time_ns = stk_max(stk_clock_wall_ns(), stk_dataset_newest_ns(sampler->dataset));
    struct stk_atomic_file file = {0};
    int status = stk_atomic_file_open(&file, io, path, ".new", error);

    status = status < 0
                 ? status
                 : stk_atomic_file_write(&file, sampler->image.data, sampler->image.bytes, error);
    status = status < 0 ? status : stk_io_set_attributes(io, file.output, 0, &time_ns, error);
    status =
        status < 0 ? status : stk_atomic_file_commit(&file, STK_ATOMIC_FILE_SYNC_DIRECTORY, error);
    stk_atomic_file_close(&file);
    return status;
}

static int write_at(struct stoker_sampler *sampler, const char *path, struct stoker_error *error)
{
    struct stk_io *io = sampler->engine->io;
    char lock_path[sizeof sampler->path + 8];
    struct stk_file_lock *lock = NULL;
    int status;

    /* It fits: the buffer has 8 bytes more than a path. */
    snprintf(lock_path, sizeof lock_path, "%s.lock", path);
    status = stk_io_lock(io, lock_path, &lock, error);
    if (status < 0) {
        return status;
    }
    status = store(sampler, path, error);
    stk_io_unlock(io, lock);
    if (status == 0) {
        remove_oldest(path);
    }
    return status;
}

/* A path that cannot be written is no error, nor is one that another process writes now. */
static bool is_write_denied(int status)
{
    return status == -EACCES || status == -EPERM || status == -EROFS || status == -EBUSY ||
           status == -ENOENT || status == -ENOTDIR;
}

int stk_sampler_table_write(struct stoker_sampler *sampler, struct stoker_error *error)
{
    struct stk_view made = sampler->image;
    struct stoker_error why = {0};
    struct places *places = NULL;
    int status = 0;

    if (sampler->writes_file) {
        places = stk_alloc(1, sizeof *places);
        status = places ? list_paths(sampler, places, error)
                        : stk_fail(error, -ENOMEM, "cannot keep a table", "free memory", "table");
    }
    for (int i = 0; places && i < PLACES && status == 0 && !sampler->is_mapped; i++) {
        if (!places->paths[i][0] ||
            stk_io_is_url(places->paths[i])) { /* tables are not written to stores */
            continue;
        }
        if (i == PLACES - 1) {
            make_folders(sampler->engine->io, places->paths[i]);
        }
        status = write_at(sampler, places->paths[i], &why);
        if (status == 0) {
            status = try_path(sampler, places->paths[i], error);
            status = status < 0 ? status : 0;
        } else if (is_write_denied(status)) {
            note(sampler, "the table is not stored: %.160s: %.300s", why.what, why.where);
            status = 0;
        } else if (error) {
            *error = why;
        }
    }
    stk_free(places);
    if (sampler->is_mapped) {
        stk_free((void *)(uintptr_t)made.data);
        return 0;
    }
    return status < 0
               ? status
               : stk_sampling_table_open(&sampler->table, sampler->image, "table in memory", error);
}
