/* Sorts entries, and merges the two sides into differences.
 *
 * Radix sort in place, most significant byte first ("American flag": McIlroy, Bostic, McIlroy
 * 1993): the first byte by one round for each side, then 256 buckets for each, in parallel. */
#include "tools/diff/diff.h"

#include <string.h>

enum { DIGITS = 24, BUCKETS = 256, SMALL = 32 };

struct sort {
    struct stoker_diff *diff;
    unsigned first[2]; /* the digit that the buckets differ in */
    uint64_t starts[2][BUCKETS + 1];
};

static int split(void *context, uint64_t round, struct stoker_error *error);
static int sort_bucket(void *context, uint64_t round, struct stoker_error *error);
static int merge_sides(struct stoker_diff *diff, struct stoker_error *error);

/* Byte `depth` of key, content, sample. */
static unsigned digit_of(const struct stk_diff_entry *entry, unsigned depth)
{
    uint64_t word = depth < 8 ? entry->key : depth < 16 ? entry->content : entry->sample;

    return (unsigned)(word >> (56 - 8 * (depth % 8))) & 0xff;
}

static bool is_before(const struct stk_diff_entry *left, const struct stk_diff_entry *right)
{
    if (left->key != right->key) {
        return left->key < right->key;
    }
    return left->content != right->content ? left->content < right->content
                                           : left->sample < right->sample;
}

/* Puts each entry into the bucket of its digit: starts[b] .. starts[b + 1]. */
static void partition(struct stk_diff_entry *entries, uint64_t count, unsigned depth,
                      uint64_t starts[BUCKETS + 1])
{
    uint64_t next[BUCKETS];

    memset(starts, 0, (BUCKETS + 1) * sizeof *starts);
    for (uint64_t i = 0; i < count; i++) {
        starts[digit_of(&entries[i], depth) + 1]++;
    }
    for (unsigned b = 0; b < BUCKETS; b++) {
        starts[b + 1] += starts[b];
        next[b] = starts[b];
    }
    for (unsigned b = 0; b < BUCKETS; b++) {
        while (next[b] < starts[b + 1]) {
            struct stk_diff_entry entry = entries[next[b]];
            unsigned digit;

            while ((digit = digit_of(&entry, depth)) != b) {
                struct stk_diff_entry other = entries[next[digit]];

                entries[next[digit]++] = entry;
                entry = other;
            }
            entries[next[b]++] = entry;
        }
    }
}

/* All entries are the same before digit `depth`. Recursion: DIGITS deep at most. */
static void sort_from(struct stk_diff_entry *entries, uint64_t count, unsigned depth)
{
    uint64_t starts[BUCKETS + 1];

    if (count <= SMALL || depth == DIGITS) {
        for (uint64_t i = 1; i < count; i++) {
            struct stk_diff_entry entry = entries[i];
            uint64_t at = i;

            for (; at > 0 && is_before(&entry, &entries[at - 1]); at--) {
                entries[at] = entries[at - 1];
            }
            entries[at] = entry;
        }
        return;
    }
    partition(entries, count, depth, starts);
    for (unsigned b = 0; b < BUCKETS; b++) {
        sort_from(entries + starts[b], starts[b + 1] - starts[b], depth + 1);
    }
}

int stk_diff_sort(struct stoker_diff *diff, struct stoker_error *error)
{
    struct sort sort = {.diff = diff};
    int status;

    for (int s = 0; s < 2; s++) {
        uint64_t all = 0;

        for (uint64_t i = 0; i < diff->sides[s].count; i++) {
            all |= diff->sides[s].entries[i].key;
        }
        while (sort.first[s] < 7 && all >> (56 - 8 * sort.first[s]) == 0) {
            sort.first[s]++;
        }
    }
    status = stk_engine_parallel(diff->engine, 2, split, &sort, error);
    return status < 0 ? status
                      : stk_engine_parallel(diff->engine, 2 * (uint64_t)BUCKETS, sort_bucket, &sort,
                                            error);
}

static int split(void *context, uint64_t round, struct stoker_error *error)
{
    struct sort *sort = context;
    struct stk_diff_side *side = &sort->diff->sides[round];

    (void)error;
    partition(side->entries, side->count, sort->first[round], sort->starts[round]);
    return 0;
}

static int sort_bucket(void *context, uint64_t round, struct stoker_error *error)
{
    struct sort *sort = context;
    uint64_t s = round / BUCKETS, b = round % BUCKETS, first = sort->starts[s][b];

    (void)error;
    if (!stk_background_job_is_stopping(&sort->diff->job)) {
        sort_from(sort->diff->sides[s].entries + first, sort->starts[s][b + 1] - first,
                  sort->first[s] + 1);
    }
    return 0;
}

/* ---- the merge -------------------------------------------------------------------------- */

int stk_diff_merge(struct stoker_diff *diff, struct stoker_error *error)
{
    int status = merge_sides(diff, error);

    return status < 0 ? status : stk_diff_sort(diff, error);
}

/* The first entry from `from` on that has another key. */
static uint64_t end_of_key(const struct stk_diff_side *side, uint64_t from)
{
    uint64_t end = from;

    while (end < side->count && side->entries[end].key == side->entries[from].key) {
        end++;
    }
    return end;
}

/* Entries of one key, those on the other side with the same content taken away, each with one of
 * them; the rest moves to `to`. Both are sorted by content. */
static void cancel(struct stk_diff_entry *const from[2], const uint64_t counts[2],
                   struct stk_diff_entry *const to[2], uint64_t left_out[2], uint64_t *same)
{
    uint64_t a = 0, b = 0;

    left_out[0] = left_out[1] = 0;
    while (a < counts[0] || b < counts[1]) {
        if (b == counts[1] || (a < counts[0] && from[0][a].content < from[1][b].content)) {
            to[0][left_out[0]++] = from[0][a++];
        } else if (a == counts[0] || from[1][b].content < from[0][a].content) {
            to[1][left_out[1]++] = from[1][b++];
        } else {
            ++*same;
            a++;
            b++;
        }
    }
}

/* Checks whether two samples have the same key, not only the same hash of it. */
static int is_same_key(const struct stoker_diff *diff, uint64_t a, uint64_t b,
                       struct stoker_error *error)
{
    uint64_t samples[2] = {a, b};
    struct stk_view keys[2];

    for (int s = 0; s < 2; s++) {
        const struct stk_diff_side *side = &diff->sides[s];
        struct stk_sample found;
        int status = stk_index_sample(side->dataset->index, samples[s], &found, error);

        if (status < 0) {
            return status;
        }
        keys[s] = stk_diff_key(diff, side, &found);
    }
    return keys[0].bytes == keys[1].bytes && memcmp(keys[0].data, keys[1].data, keys[0].bytes) == 0;
}

/* Makes differences of the remaining entries of a key: pairs are changed, the others were removed
 * or added. left: the number of remaining entries at the end of each side's output. */
static int pair(struct stoker_diff *diff, uint64_t kept[2], const uint64_t left[2],
                struct stoker_error *error)
{
    struct stk_diff_entry *a = diff->sides[0].entries + kept[0];
    struct stk_diff_entry *b = diff->sides[1].entries + kept[1];
    uint64_t added = 0;

    for (uint64_t i = 0; i < stk_max(left[0], left[1]); i++) {
        uint64_t one = i < left[0] ? a[i].sample : STOKER_NO_SAMPLE;
        uint64_t other = i < left[1] ? b[i].sample : STOKER_NO_SAMPLE;
        int same = 0;

        if (i < left[0] && i < left[1]) {
            same = is_same_key(diff, one, other, error);
        }
        if (same < 0) {
            return same;
        }
        if (i < left[0]) {
            a[i] = (struct stk_diff_entry){.key = one, .content = same ? other : STOKER_NO_SAMPLE};
            atomic_fetch_add_explicit(&diff->count.changed, (uint64_t)same, memory_order_relaxed);
        }
        if (i < left[1] && !same) {
            b[added++] = (struct stk_diff_entry){.key = other, .content = STOKER_NO_SAMPLE};
        }
    }
    kept[0] += left[0];
    kept[1] += added;
    return 0;
}

/* In place: the write position never passes the read position. */
static int merge_sides(struct stoker_diff *diff, struct stoker_error *error)
{
    struct stk_diff_side *a = &diff->sides[0], *b = &diff->sides[1];
    uint64_t at[2] = {0, 0}, kept[2] = {0, 0}, same = 0;
    int status = 0;

    while ((at[0] < a->count || at[1] < b->count) && status == 0 &&
           !stk_background_job_is_stopping(&diff->job)) {
        uint64_t ends[2] = {at[0], at[1]}, left[2];
        bool has_a = at[0] < a->count, has_b = at[1] < b->count;
        uint64_t key_a = has_a ? a->entries[at[0]].key : 0,
                 key_b = has_b ? b->entries[at[1]].key : 0;

        if (has_a && (!has_b || key_a <= key_b)) {
            ends[0] = end_of_key(a, at[0]);
        }
        if (has_b && (!has_a || key_b <= key_a)) {
            ends[1] = end_of_key(b, at[1]);
        }
        cancel((struct stk_diff_entry *const[2]){a->entries + at[0], b->entries + at[1]},
               (uint64_t[2]){ends[0] - at[0], ends[1] - at[1]},
               (struct stk_diff_entry *const[2]){a->entries + kept[0], b->entries + kept[1]}, left,
               &same);
        status = pair(diff, kept, left, error);
        at[0] = ends[0];
        at[1] = ends[1];
    }
    a->count = kept[0];
    b->count = kept[1];
    atomic_store_explicit(&diff->count.same, same, memory_order_relaxed);
    return status;
}
