/* Goal: adjacent fetches become one read, and no fetch is lost or returned twice; the read with the
 * oldest push is first; fetches that need no read are not joined.
 * Method: rows of spans with the resulting reads; random lists with the properties checked.
 * `coalesce_test SEED` runs one seed. */
#include "loader/fetch/coalesce.h"

#include "base/random.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define FETCHES_MAX 64u
#define PAGE 4096u

static char files[4]; /* identities of files */

static bool needs_read(const struct stk_fetch *fetch)
{
    return fetch->members.span.bytes > 0;
}

static struct stk_file *file_of(uint32_t number)
{
    return (struct stk_file *)(void *)&files[number];
}

struct span {
    uint32_t file, push;
    uint64_t offset, bytes;
};

/* Sets the fetches, and links them in their order. */
static struct stk_fetch *link_all(struct stk_fetch *fetches, const struct span *spans,
                                  uint32_t count, const struct stk_read_sizes *sizes)
{
    for (uint32_t i = 0; i < count; i++) {
        fetches[i] = (struct stk_fetch){.slot = i,
                                        .file = file_of(spans[i].file),
                                        .push_number = spans[i].push,
                                        .reads = *sizes,
                                        .next = i + 1 < count ? &fetches[i + 1] : NULL};
        fetches[i].members.span = (struct stk_sample_span){
            .shard = spans[i].file, .offset = spans[i].offset, .bytes = spans[i].bytes};
    }
    return count > 0 ? fetches : NULL;
}

static const struct row {
    const char *name;
    struct span spans[5];
    uint32_t count;
    const char *want; /* numbers of the spans, '|' before each read */
} rows[] = {
    {"neighbours", {{0, 1, 0, 10}, {0, 1, 10, 10}}, 2, "|01"},
    {"backwards", {{0, 1, 10, 10}, {0, 1, 0, 10}}, 2, "|10"},
    {"a small gap", {{0, 1, 0, 10}, {0, 1, 90, 10}}, 2, "|01"},
    {"a large gap", {{0, 1, 0, 10}, {0, 1, 5 * PAGE, 10}}, 2, "|0|1"},
    {"two files", {{0, 1, 0, 10}, {1, 1, 10, 10}, {0, 1, 10, 10}}, 3, "|02|1"},
    {"larger than a read", {{0, 1, 0, 3 * PAGE}, {0, 1, 3 * PAGE, 3 * PAGE}}, 2, "|0|1"},
    {"the oldest push first", {{0, 2, 0, 10}, {1, 1, 0, 10}}, 2, "|1|0"},
    {"a run is as old as its oldest", {{0, 3, 0, 9}, {1, 2, 0, 9}, {0, 1, 9, 9}}, 3, "|02|1"},
    {"nothing to read", {{0, 1, 0, 10}, {0, 1, 10, 0}, {0, 1, 10, 5}}, 3, "|0|1|2"},
    {"overlapping", {{0, 1, 0, 50}, {0, 1, 20, 10}, {0, 1, 40, 30}}, 3, "|012"},
};

/* The numbers of the fetches, with a '|' where a read begins. */
static void write_reads(const struct stk_fetch *list, char *text)
{
    while (list) {
        const struct stk_fetch *first = list;
        bool is_alone;
        uint64_t end = needs_read(first) ? stk_coalesce_end(first, needs_read, &is_alone) : 0;

        *text++ = '|';
        do {
            *text++ = (char)('0' + list->slot);
            list = list->next;
        } while (list && needs_read(list) && list->file == first->file &&
                 list->members.span.offset >= first->members.span.offset &&
                 list->members.span.offset + list->members.span.bytes <= end);
    }
    *text = 0;
}

static void test_rows(void)
{
    static struct stk_fetch fetches[5];
    const struct stk_read_sizes sizes = {
        .free_gap_bytes = 100, .gap_bytes = 100, .bytes_max = 4 * PAGE, .align = 1};

    T_EACH(row, row, rows)
    {
        struct stk_fetch *list = link_all(fetches, row->spans, row->count, &sizes);
        struct stk_fetch **tail = stk_coalesce_list(&list, needs_read);
        char text[16];

        T_TRUE(row->name, *tail == NULL);
        write_reads(list, text);
        T_STR(row->name, text, row->want);
    }
}

static void test_is_alone(void)
{
    static struct stk_fetch fetches[2];
    static const struct span spans[2] = {{0, 1, 0, 10}, {0, 1, 10, 10}};
    const struct stk_read_sizes sizes = {.gap_bytes = 0, .bytes_max = PAGE, .align = 1};
    struct stk_fetch *list = link_all(fetches, spans, 2, &sizes);
    bool is_alone = true;

    T_EQ("end of both", stk_coalesce_end(list, needs_read, &is_alone), 20);
    T_TRUE("not alone", !is_alone);
    T_EQ("end of the last", stk_coalesce_end(list->next, needs_read, &is_alone), 20);
    T_TRUE("the last is alone", is_alone);
    fetches[1].members.span.offset = 0;
    T_EQ("end of two with the same bytes", stk_coalesce_end(list, needs_read, &is_alone), 10);
    T_TRUE("the same bytes: not alone", !is_alone);
    fetches[1].members.span.bytes = 0;
    T_EQ("the second needs no read", stk_coalesce_end(list, needs_read, &is_alone), 10);
    T_TRUE("alone", is_alone);
}

static void check_list(const struct stk_fetch *list, uint32_t count)
{
    bool seen[FETCHES_MAX] = {false};
    uint64_t oldest = 0;
    uint32_t found = 0;

    while (list) {
        const struct stk_fetch *first = list;
        bool is_alone;
        uint64_t end = stk_coalesce_end(first, needs_read, &is_alone), push = UINT64_MAX;

        do {
            T_TRUE("once", list->slot < count && !seen[list->slot]);
            T_TRUE("file", list->file == first->file);
            seen[list->slot] = true;
            found++;
            push = stk_min(push, list->push_number);
            list = list->next;
        } while (list && list->file == first->file &&
                 list->members.span.offset >= first->members.span.offset &&
                 list->members.span.offset + list->members.span.bytes <= end);
        T_TRUE("bound", end - first->members.span.offset <=
                            stk_max(first->reads.bytes_max, first->members.span.bytes));
        T_TRUE("oldest first", push >= oldest);
        oldest = push;
    }
    T_EQ("all", found, count);
}

static void test_random(uint64_t seed)
{
    static struct stk_fetch fetches[FETCHES_MAX];
    struct span spans[FETCHES_MAX];
    uint32_t count = (uint32_t)(1 + stk_random_key(seed, 0) % FETCHES_MAX);
    const struct stk_read_sizes sizes = {
        .free_gap_bytes = 64, .gap_bytes = 1024, .bytes_max = 4 * PAGE, .align = 1};
    struct stk_fetch *list;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = stk_random_key(seed, i + 1);

        /* A sample has one place only: spans are disjoint or equal. */
        spans[i] = (struct span){.file = (uint32_t)(key % 4),
                                 .push = (uint32_t)(key >> 8) % 3,
                                 .offset = (key >> 16) % 64 * 600,
                                 .bytes = 1 + (key >> 32) % 600};
    }
    list = stk_coalesce_sort(link_all(fetches, spans, count, &sizes));
    for (const struct stk_fetch *it = list; it && it->next; it = it->next) {
        const struct stk_sample_span *a = &it->members.span, *b = &it->next->members.span;

        T_TRUE("sorted", a->shard < b->shard || (a->shard == b->shard && a->offset <= b->offset));
    }
    stk_coalesce_list(&list, needs_read);
    check_list(list, count);
}

int main(int argc, char **argv)
{
    test_rows();
    test_is_alone();
    if (argc > 1) {
        test_random(strtoull(argv[1], NULL, 10));
        return t_finish();
    }
    for (uint64_t seed = 0; seed < 2000; seed++) {
        test_random(seed);
    }
    return t_finish();
}
