/* Coalescing of fetches. */
#include "loader/fetch/coalesce.h"

typedef bool is_before(const struct stk_fetch *a, const struct stk_fetch *b);

/* ---- sorting ---- */

static bool is_before_by_shard(const struct stk_fetch *a, const struct stk_fetch *b)
{
    const struct stk_sample_span *one = &a->members.span, *two = &b->members.span;

    return one->shard != two->shard ? one->shard < two->shard : one->offset < two->offset;
}

/* Fetches of any data set: those of one file become neighbours. */
static bool is_before_by_file(const struct stk_fetch *a, const struct stk_fetch *b)
{
    return a->file != b->file ? (uintptr_t)a->file < (uintptr_t)b->file
                              : a->members.span.offset < b->members.span.offset;
}

static bool is_before_by_push(const struct stk_fetch *a, const struct stk_fetch *b)
{
    return a->run_push_number < b->run_push_number;
}

static struct stk_fetch *merge(struct stk_fetch *a, struct stk_fetch *b, is_before *before)
{
    struct stk_fetch *list = NULL, **tail = &list;

    while (a && b) {
        struct stk_fetch **least = before(b, a) ? &b : &a;
        *tail = *least;
        *least = (*least)->next;
        tail = &(*tail)->next;
    }
    *tail = a ? a : b;
    return list;
}

/* Bottom-up merge sort: slot i of `runs` holds a sorted run of 2^i. */
static struct stk_fetch *sort(struct stk_fetch *list, is_before *before)
{
    struct stk_fetch *runs[32] = {NULL}, *next, *sorted = NULL;

    for (; list; list = next) {
        uint32_t i = 0;
        next = list->next;
        list->next = NULL;
        for (sorted = list; i < 31 && runs[i]; i++) {
            sorted = merge(runs[i], sorted, before);
            runs[i] = NULL;
        }
        runs[i] = merge(runs[i], sorted, before);
    }
    sorted = NULL;
    for (uint32_t i = 0; i < 32; i++) {
        sorted = merge(runs[i], sorted, before);
    }
    return sorted;
}

struct stk_fetch *stk_coalesce_sort(struct stk_fetch *list)
{
    return sort(list, is_before_by_shard);
}

/* ---- joining ---- */

static struct stk_coalesced_read begin_read(const struct stk_fetch *first)
{
    const struct stk_sample_span *span = &first->members.span;

    return (struct stk_coalesced_read){span->offset, span->offset + span->bytes, 0};
}

/* Whether the read that began with `first` takes in another fetch; if so the read grows. */
static bool join(const struct stk_fetch *first, struct stk_coalesced_read *read,
                 const struct stk_fetch *fetch, stk_coalesce_needs_read *needs_read)
{
    return needs_read(fetch) && fetch->file == first->file &&
           stk_read_size_coalesce(&first->reads, read, fetch->members.span.offset,
                                  fetch->members.span.bytes);
}

/* Cuts the list into runs, one for each read. Returns the list of their first fetches, each of
 * which has the rest of its run. */
static struct stk_fetch *cut_runs(struct stk_fetch *list, stk_coalesce_needs_read *needs_read)
{
    struct stk_fetch *runs = NULL, **tail = &runs;

    while (list) {
        struct stk_fetch *first = list, *last = list;
        struct stk_coalesced_read read = begin_read(first);

        first->run_push_number = first->push_number;
        while (last->next && needs_read(first) && join(first, &read, last->next, needs_read)) {
            last = last->next;
            first->run_push_number = stk_min(first->run_push_number, last->push_number);
        }
        list = last->next;
        last->next = NULL;
        first->run_rest = first->next;
        first->run_last = last;
        *tail = first;
        tail = &first->next;
    }
    *tail = NULL;
    return runs;
}

struct stk_fetch **stk_coalesce_list(struct stk_fetch **list, stk_coalesce_needs_read *needs_read)
{
    struct stk_fetch *run = cut_runs(sort(*list, is_before_by_file), needs_read), *next;
    struct stk_fetch **tail = list;

    *list = NULL;
    for (run = sort(run, is_before_by_push); run; run = next) {
        next = run->next;
        *tail = run;
        run->next = run->run_rest;
        tail = &run->run_last->next;
    }
    return tail;
}

uint64_t stk_coalesce_end(const struct stk_fetch *first, stk_coalesce_needs_read *needs_read,
                          bool *is_alone_out)
{
    const struct stk_fetch *fetch = first->next;
    struct stk_coalesced_read read = begin_read(first);

    while (fetch && join(first, &read, fetch, needs_read)) {
        fetch = fetch->next;
    }
    *is_alone_out = fetch == first->next;
    return read.end;
}
