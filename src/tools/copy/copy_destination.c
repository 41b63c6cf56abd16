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
