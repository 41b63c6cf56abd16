/* Files of a remote destination: one listing instead of a request for each file. */
#include "base/mem.h"
#include "tools/copy/copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 100u

static int add_file(struct stoker_copy *copy, const struct stk_walk_entry *entry)
{
    if (copy->destination_count == copy->destination_capacity) {
        uint64_t more = stk_max(copy->destination_capacity * 2, 1024);
        struct stk_destination_file *destination_files =
            stk_realloc(copy->destination_files, copy->destination_capacity, more,
                        sizeof *copy->destination_files);

        if (!destination_files) {
            return -ENOMEM;
        }
        copy->destination_files = destination_files;
        copy->destination_capacity = more;
    }
    copy->destination_files[copy->destination_count] = (struct stk_destination_file){
        .name = stk_strdup(entry->name), .bytes = entry->bytes, .mtime_ns = entry->mtime_ns};
    if (!copy->destination_files[copy->destination_count].name) {
        return -ENOMEM;
    }
    return ++copy->destination_count < STK_COPY_DESTINATION_FILES_MAX ? 0 : STOKER_ERROR_LIMIT;
}

bool stk_copy_has_objects(struct stoker_copy *copy, const char *url)
{
    struct stk_walk_options options = {
        .io = copy->io, .path = url, .folder = true, .folder_markers = true};
    struct stk_walk *walk = NULL;
    struct stk_walk_entry *entry = NULL;
    int status = stk_walk_open(&walk, &options, NULL);

    while (status == 0 &&
           (status = stk_walk_next(walk, TICK_MS, &entry, NULL)) == STOKER_ERROR_AGAIN) {
        status = stk_background_job_is_stopping(&copy->job) ? STOKER_ERROR_CLOSED : 0;
    }
    if (status == 1) {
        stk_free(entry);
    }
    stk_walk_close(walk);
    return status == 1;
}

int stk_copy_choose_folder(struct stoker_copy *copy, const char *path, bool *folder,
                           struct stoker_error *error)
{
    size_t bytes = strlen(path);
    struct stk_stat stat;

    *folder = copy->options.recursive && bytes > 0 && path[bytes - 1] == '/';
    if (*folder || !copy->options.recursive || !stk_io_is_url(path) ||
        stk_vfs_is_external_url(path) || !stk_copy_can_list(path) ||
        stk_io_stat_path(copy->io, path, &stat, NULL) < 0 || stat.kind != STK_ENTRY_FILE ||
        !stk_copy_has_objects(copy, path)) {
        return 0; /* a failure is reported by the walk */
    }
    *folder = copy->options.kind == STOKER_SYNC;
    return *folder ? 0
                   : stk_fail(error, STOKER_ERROR_ARGUMENT,
                              "this is an object, and also the prefix of others",
                              "end the source in '/' for the others; leave out --recursive for the "
                              "object",
                              "'%.400s'", path);
}

static struct stk_view inode_key(const uint64_t *inode)
{
    return (struct stk_view){(const uint8_t *)inode, sizeof *inode};
}

int stk_copy_add_inode(struct stoker_copy *copy, uint64_t inode)
{
    int added;

    pthread_mutex_lock(&copy->folders_lock);
    added = stk_key_set_add(&copy->inodes, inode_key(&inode));
    pthread_mutex_unlock(&copy->folders_lock);
    return added;
}

bool stk_copy_has_inode(struct stoker_copy *copy, uint64_t inode)
{
    bool has;

    pthread_mutex_lock(&copy->folders_lock);
    has = stk_key_set_has(&copy->inodes, inode_key(&inode));
    pthread_mutex_unlock(&copy->folders_lock);
    return has;
}

int stk_copy_fail_folded(int added, const char *to, struct stoker_error *error)
{
    return added < 0 ? stk_fail_memory(error, "copy")
                     : stk_fail(error, STOKER_ERROR_ARGUMENT,
                                "two names of the source are one file at the destination",
                                "its file system ignores case, or Unicode forms: copy to another "
                                "one, or rename one of them",
                                "'%.400s'", to);
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct stk_destination_file *)a)->name,
                  ((const struct stk_destination_file *)b)->name);
}

int stk_copy_destination_list(struct stoker_copy *copy, struct stoker_error *error)
{
    struct stk_walk_options options = {
        .io = copy->io, .path = copy->destination, .deep = true, .folder = true};
    struct stk_walk *visit = NULL;
    struct stk_walk_entry *entry;
    int status = stk_walk_open(&visit, &options, error);

    while (status >= 0 || status == STOKER_ERROR_AGAIN) {
        if (stk_background_job_is_stopping(&copy->job)) {
            status = STOKER_ERROR_CLOSED;
            break;
        }
        status = stk_walk_next(visit, TICK_MS, &entry, error);
        if (status == 0) {
            break;
        }
        if (status == 1) {
            int added = add_file(copy, entry);

            stk_free(entry);
            if (added < 0) {
                status = stk_fail(error, added, "the destination has too many files to compare",
                                  "free memory, or sync smaller folders one by one", "'%.400s'",
                                  copy->destination);
            }
        }
    }
    stk_walk_close(visit);
    if (status == 0 && copy->destination_count > 0) {
        qsort(copy->destination_files, copy->destination_count, sizeof *copy->destination_files,
              compare);
    }
    return status;
}

bool stk_copy_destination_find(const struct stoker_copy *copy, const char *name,
                               uint64_t *bytes_out, uint64_t *mtime_ns_out)
{
    struct stk_destination_file wanted = {.name = (char *)(uintptr_t)name};
    const struct stk_destination_file *found =
        copy->destination_count > 0
            ? bsearch(&wanted, copy->destination_files, copy->destination_count,
                      sizeof *copy->destination_files, compare)
            : NULL;

    if (found) {
        *bytes_out = found->bytes;
        *mtime_ns_out = found->mtime_ns;
    }
    return found != NULL;
}
