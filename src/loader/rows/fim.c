/* Fill in the middle. */
#include "loader/rows/fim.h"

#include "base/random.h"

#include <string.h>

/* Uses of a key. Cuts take two numbers; each fragment has a key of its own. */
enum { USE_RATE, USE_SPM, USE_CUTS, USE_FRAGMENTS = 4, USE_FIRST };

/* Returns a number in [0, 1) of 53 bits. */
static double draw(uint64_t key, uint64_t use)
{
    return (double)(stk_random_key(key, use) >> 11) * 0x1p-53;
}

/* Returns a number in [0, bound); the bias is below bound / 2^64. */
static uint64_t draw_below(uint64_t key, uint64_t use, uint64_t bound)
{
    __extension__ unsigned __int128 product = (unsigned __int128)stk_random_key(key, use) * bound;

    return (uint64_t)(product >> 64);
}

uint64_t stk_fim_added_max(const struct stk_fim *fim)
{
    return fim->rate <= 0 ? 0 : STK_FIM_SENTINELS * (fim->has_split ? fim->fragments_max : 1);
}

/* Appends tokens, as many as fit in the capacity. */
static void append(struct stk_fim_output *out, const int64_t *tokens, uint64_t count)
{
    count = stk_min(count, out->capacity - out->count);
    memcpy(out->tokens + out->count, tokens, count * sizeof *tokens);
    out->count += count;
}

/* Draws two cuts, each from before the first token to after the last one, like Megatron's
 * GPTFIMDataset. The order of the parts is that of the paper: PSM, or SPM in the variant that keeps
 * prefix and middle together. */
static void append_changed(const struct stk_fim *fim, const int64_t *tokens, uint64_t count,
                           uint64_t key, struct stk_fim_output *out)
{
    uint64_t a = draw_below(key, USE_CUTS, count + 1), b = draw_below(key, USE_CUTS + 1, count + 1);
    uint64_t low = stk_min(a, b), high = stk_max(a, b);

    append(out, &fim->sentinels[STK_FIM_PREFIX], 1);
    if (draw(key, USE_SPM) < fim->spm_rate) {
        append(out, &fim->sentinels[STK_FIM_SUFFIX], 1);
        append(out, tokens + high, count - high);
        append(out, &fim->sentinels[STK_FIM_MIDDLE], 1);
        append(out, tokens, low);
    } else {
        append(out, tokens, low);
        append(out, &fim->sentinels[STK_FIM_SUFFIX], 1);
        append(out, tokens + high, count - high);
        append(out, &fim->sentinels[STK_FIM_MIDDLE], 1);
    }
    append(out, tokens + low, high - low);
}

/* True if the document may be changed, and the random number selects it. */
static bool is_drawn(const struct stk_fim *fim, const int64_t *tokens, uint64_t count, double rate,
                     uint64_t key)
{
    uint32_t prefix = fim->no_prefix_count;

    return count > 0 && draw(key, USE_RATE) < rate &&
           !(prefix > 0 && count >= prefix &&
             memcmp(tokens, fim->no_prefix, prefix * sizeof *tokens) == 0);
}

bool stk_fim_may_change(const struct stk_fim *fim, uint64_t key)
{
    return fim->rate > 0 && draw(key, USE_RATE) < fim->rate;
}

/* ---- fragments ---- */

static uint64_t fragment_tokens(const struct stk_fim *fim, const int64_t *tokens, uint64_t count)
{
    uint64_t at = 0;

    while (at < count && tokens[at] != fim->split) {
        at++;
    }
    return at;
}

/* Counts the fragments to change. With an output, appends all fragments, and changes `most` of
 * those to change, beginning with number `first`. */
static uint64_t apply_range(const struct stk_fim *fim, const int64_t *tokens, uint64_t count,
                            uint64_t key, const uint64_t range[2], struct stk_fim_output *out)
{
    uint64_t keys = stk_random_key(key, USE_FRAGMENTS), drawn = 0;

    for (uint64_t at = 0, number = 0; at < count; number++) {
        uint64_t length = fragment_tokens(fim, tokens + at, count - at);
        uint64_t own = stk_random_key(keys, number);
        bool is_one = is_drawn(fim, tokens + at, length, fim->fragment_rate, own);

        if (out && is_one && drawn >= range[0] && drawn - range[0] < range[1]) {
            append_changed(fim, tokens + at, length, own, out);
        } else if (out) {
            append(out, tokens + at, length);
        }
        drawn += is_one;
        at += length;
        if (at < count && out) {
            append(out, tokens + at, 1); /* the split token */
        }
        at += at < count;
    }
    return drawn;
}

bool stk_fim_apply(const struct stk_fim *fim, const int64_t *tokens, uint64_t count, uint64_t key,
                   struct stk_fim_output *out)
{
    uint64_t range[2] = {0, fim->fragments_max}, drawn;

    if (!fim->has_split || fragment_tokens(fim, tokens, count) == count) {
        if (!is_drawn(fim, tokens, count, fim->rate, key)) {
            return false;
        }
        append_changed(fim, tokens, count, key, out);
        return true;
    }
    if (!stk_fim_may_change(fim, key)) {
        return false;
    }
    drawn = apply_range(fim, tokens, count, key, range, NULL);
    if (drawn > range[1]) { /* consecutive ones, from a random one on */
        range[0] = draw_below(key, USE_FIRST, drawn - range[1] + 1);
    }
    if (drawn > 0) {
        apply_range(fim, tokens, count, key, range, out);
    }
    return drawn > 0;
}
