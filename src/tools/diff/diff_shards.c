/* Finds shards that both sides have, by SHA-256: their samples need not be compared. */
#include "base/mem.h"
#include "tools/diff/diff.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct hashed {
    const uint8_t *digest; /* borrowed from the index */
    uint32_t shard;
};

static int compare(const void *left, const void *right)
{
    const struct hashed *a = left, *b = right;
    int order = memcmp(a->digest, b->digest, 32);

    return order != 0 ? order : (a->shard > b->shard) - (a->shard < b->shard);
}

/* The shards of a side that have a SHA-256, by it. */
static uint64_t list_hashed(const struct stk_index *index, struct hashed *list)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < stk_index_shards(index); i++) {
        const uint8_t *digest = stk_index_shard_digest(index, (uint32_t)i);

        if (digest) {
            list[count++] = (struct hashed){digest, (uint32_t)i};
        }
    }
    qsort(list, count, sizeof *list, compare);
    return count;
}

/* Pairs them one to one, so that a shard that a side has twice counts twice. */
static void pair(struct stoker_diff *diff, const struct hashed *a, uint64_t a_count,
                 const struct hashed *b, uint64_t b_count)
{
    const struct stk_index *indexes[2] = {diff->sides[0].dataset->index,
                                          diff->sides[1].dataset->index};

    for (uint64_t i = 0, j = 0; i < a_count && j < b_count;) {
        int order = memcmp(a[i].digest, b[j].digest, 32);

        /* One of them may be grouped otherwise. */
        if (order == 0 && stk_index_shard_samples(indexes[0], a[i].shard) ==
                              stk_index_shard_samples(indexes[1], b[j].shard)) {
            diff->sides[0].shared_shards[a[i].shard] = diff->sides[1].shared_shards[b[j].shard] =
                true;
        }
        i += order <= 0;
        j += order >= 0;
    }
}

int stk_diff_pair_shards(struct stoker_diff *diff, struct stoker_error *error)
{
    struct hashed *lists[2] = {NULL, NULL};
    uint64_t counts[2] = {0, 0};
    int status = 0;

    if (diff->reread || diff->mixed || stk_index_is_folder(diff->sides[0].dataset->index) ||
        stk_index_member_gap_max(diff->sides[0].dataset->index) !=
            stk_index_member_gap_max(diff->sides[1].dataset->index)) {
        return 0;
    }
    for (int s = 0; s < 2 && status == 0; s++) {
        const struct stk_index *index = diff->sides[s].dataset->index;

        diff->sides[s].shared_shards =
            stk_alloc(stk_index_shards(index), sizeof *diff->sides[s].shared_shards);
        lists[s] = stk_alloc(stk_index_shards(index), sizeof *lists[s]);
        status = diff->sides[s].shared_shards && lists[s]
                     ? 0
                     : stk_fail(error, -ENOMEM, "cannot compare data sets", "free memory",
                                "%llu shards", (unsigned long long)stk_index_shards(index));
        counts[s] = status == 0 ? list_hashed(index, lists[s]) : 0;
    }
    if (status == 0) {
        pair(diff, lists[0], counts[0], lists[1], counts[1]);
    }
    stk_free(lists[0]);
    stk_free(lists[1]);
    return status;
}
