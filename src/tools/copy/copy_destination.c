/* What a far destination has already: one listing instead of a question for each file. */
#include "base/mem.h"
#include "tools/copy/copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 100u

static int add(struct stoker_copy *copy, const struct stk_item *item)
{
    if (copy->there_count == copy->there_capacity) {
        uint64_t more = stk_max(copy->there_capacity * 2, 1024);
        struct stk_there *there =
            stk_realloc(copy->there, copy->there_capacity, more, sizeof *copy->there);

        if (!there) {
            return -ENOMEM;
        }
        copy->there = there;
        copy->there_capacity = more;
    }
    copy->there[copy->there_count] = (struct stk_there){
        .name = stk_strdup(item->name), .bytes = item->bytes, .mtime_ns = item->mtime_ns};
    if (!copy->there[copy->there_count].name) {
        return -ENOMEM;
    }
    return ++copy->there_count < STK_COPY_THERE_MAX ? 0 : STOKER_ERROR_LIMIT;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct stk_there *)a)->name, ((const struct stk_there *)b)->name);
}

int stk_copy_there_list(struct stoker_copy *copy, struct stoker_error *error)
{
    struct stk_visit_options options = {
        .io = copy->io, .path = copy->destination, .deep = true, .folder = true};
    struct stk_visit *visit = NULL;
    struct stk_item *item;
    int status = stk_visit_open(&visit, &options, error);

    while (status >= 0 || status == STOKER_ERROR_AGAIN) {
        if (atomic_load_explicit(&copy->stop, memory_order_relaxed)) {
            status = STOKER_ERROR_CLOSED;
            break;
        }
        status = stk_visit_next(visit, TICK_MS, &item, error);
        if (status == 0) {
            break;
        }
        if (status == 1) {
            int added = add(copy, item);

            stk_free(item);
            if (added < 0) {
                status = stk_fail(error, added, "the destination has too much to be compared with",
                                  "free memory; synchronise smaller folders one by one", "'%.400s'",
                                  copy->destination);
            }
        }
    }
    stk_visit_close(visit);
    if (status == 0 && copy->there_count > 0) {
        qsort(copy->there, copy->there_count, sizeof *copy->there, compare);
    }
    return status;
}

bool stk_copy_there_find(const struct stoker_copy *copy, const char *name, uint64_t *bytes_out,
                         uint64_t *mtime_ns_out)
{
    struct stk_there wanted = {.name = (char *)(uintptr_t)name};
    const struct stk_there *found =
        copy->there_count > 0
            ? bsearch(&wanted, copy->there, copy->there_count, sizeof *copy->there, compare)
            : NULL;

    if (found) {
        *bytes_out = found->bytes;
        *mtime_ns_out = found->mtime_ns;
    }
    return found != NULL;
}
