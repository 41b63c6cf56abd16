/* Walker's alias method: as many columns of equal height as samples; each column belongs to one
 * sample below its threshold and to another above it. A random number selects a column, and its
 * remaining bits the height.
 *
 * Filled by one sweep over the light samples and one over the heavy ones, which needs no memory of
 * its own (Huebschle-Schneider and Sanders, "Parallel weighted random sampling", 2019). In whole
 * numbers: weight * count against the sum of the weights, so the table is the same everywhere. */
#include "order/sampling/sampling.h"

#include "base/mem.h"
#include "base/random.h"

#define SAMPLING_KEY UINT64_C(0x73616d706c696e67) /* "sampling" */

__extension__ typedef unsigned __int128 wide;

static void fill(struct stk_alias_table *alias, const uint32_t *weights, uint64_t sum);

uint64_t stk_draw_key(uint64_t seed, uint64_t use)
{
    return stk_random_key(stk_random_key(seed, SAMPLING_KEY), use);
}

int stk_alias_table_init(struct stk_alias_table *alias, const uint32_t *weights, uint64_t count,
                         struct stoker_error *error)
{
    uint64_t sum = 0;

    *alias = (struct stk_alias_table){.count = count};
    for (uint64_t i = 0; i < stk_min(count, UINT32_MAX); i++) {
        sum += weights[i];
    }
    if (sum == 0 || count > UINT32_MAX) {
        *alias = (struct stk_alias_table){0};
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no weights to draw by, or too many",
                        "give up to 2^32 - 1 samples weights, at least one above 0", "%llu weights",
                        (unsigned long long)count);
    }
    alias->thresholds = stk_alloc(count, sizeof *alias->thresholds);
    alias->aliases = stk_alloc(count, sizeof *alias->aliases);
    if (!alias->thresholds || !alias->aliases) {
        stk_alias_table_deinit(alias);
        return stk_fail_memory(error, "alias table, %llu weights", (unsigned long long)count);
    }
    fill(alias, weights, sum);
    return 0;
}

void stk_alias_table_deinit(struct stk_alias_table *alias)
{
    stk_free(alias->thresholds);
    stk_free(alias->aliases);
    *alias = (struct stk_alias_table){0};
}

uint64_t stk_alias_table_draw(const struct stk_alias_table *alias, uint64_t key, uint64_t position)
{
    wide product = (wide)stk_random_key(key, position) * alias->count;
    uint64_t column = (uint64_t)(product >> 64);
    uint32_t height = (uint32_t)((uint64_t)product >> 32), other;

    if (!stk_mapped_table_check(&alias->mapped, alias->thresholds + column, 4) ||
        !stk_mapped_table_check(&alias->mapped, alias->aliases + column, 4)) {
        return STK_MAPPED_TABLE_DAMAGED;
    }
    other = stk_mapped_table_u32(alias->aliases + column);
    if (other >= alias->count) {
        return STK_MAPPED_TABLE_DAMAGED;
    }
    return height < stk_mapped_table_u32(alias->thresholds + column) ? column : other;
}

/* Returns the next light, or heavy, sample from `at` on. */
static uint64_t next_of(const uint32_t *weights, uint64_t count, uint64_t sum, uint64_t at,
                        bool is_heavy)
{
    while (at < count && (weights[at] * count >= sum) != is_heavy) {
        at++;
    }
    return at;
}

/* A full column is its own alias: its threshold does not matter. */
static void set(struct stk_alias_table *alias, uint64_t column, uint64_t part, uint64_t sum,
                uint64_t other)
{
    alias->thresholds[column] = part < sum ? (uint32_t)(((wide)part << 32) / sum) : UINT32_MAX;
    alias->aliases[column] = (uint32_t)(part < sum ? other : column);
}

/* `left` is the remaining weight of the heavy sample. It fills light columns while it exceeds the
 * height of its own column. Then the sample is light, and the next heavy sample fills its column.
 * The total fills all columns exactly, so both sweeps end at the same time. */
static void fill(struct stk_alias_table *alias, const uint32_t *weights, uint64_t sum)
{
    uint64_t count = alias->count;
    uint64_t light = next_of(weights, count, sum, 0, false);
    uint64_t heavy = next_of(weights, count, sum, 0, true);
    uint64_t left = weights[heavy] * count;

    while (heavy < count) {
        if (left > sum) {
            uint64_t part = weights[light] * count;

            set(alias, light, part, sum, heavy);
            left -= sum - part;
            light = next_of(weights, count, sum, light + 1, false);
        } else {
            uint64_t next = next_of(weights, count, sum, heavy + 1, true);

            STK_ASSERT(next < count || (left == sum && light == count));
            set(alias, heavy, left, sum, next);
            left = next < count ? weights[next] * count - (sum - left) : 0;
            heavy = next;
        }
    }
}
