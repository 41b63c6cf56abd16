/* The state of a stream: its settings and its position. The position does not depend on the
 * division of steps among ranks. So the state of any rank restores all ranks, for any world
 * size. */
#include "order/order.h"

#include <stdio.h>
#include <string.h>

#define IDENTITY_SHOWN 4 /* bytes; enough to distinguish two data sets of a user */

_Static_assert(sizeof(struct stoker_state) <= 1024, "a state is small");

/* Lists all differences in one line; truncates the text if it is too long. */
struct differences {
    char text[sizeof((struct stoker_error *)0)->where];
    size_t bytes;
};

static void differ(struct differences *found, const char *name, const char *has,
                   const char *expected)
{
    size_t room = sizeof found->text - found->bytes;
    int wrote = snprintf(found->text + found->bytes, room, "%s%s: %s in the state, %s here",
                         found->bytes ? "; " : "", name, has, expected);

    if (wrote > 0) {
        found->bytes += stk_min((uint64_t)wrote, room - 1);
    }
}

static void compare(struct differences *found, const char *name, uint64_t has, uint64_t expected)
{
    char texts[2][24];

    if (has != expected) {
        snprintf(texts[0], sizeof texts[0], "%llu", (unsigned long long)has);
        snprintf(texts[1], sizeof texts[1], "%llu", (unsigned long long)expected);
        differ(found, name, texts[0], texts[1]);
    }
}

/* A value that is only compared with that of other settings; 0: none. */
static void compare_keys(struct differences *found, const char *name, uint64_t has,
                         uint64_t expected)
{
    char texts[2][24] = {"none", "none"};

    if (has != expected) {
        for (int i = 0; i < 2; i++) {
            uint64_t key = i ? expected : has;
            if (key) {
                snprintf(texts[i], sizeof texts[i], "%08llx...", (unsigned long long)(key >> 32));
            }
        }
        differ(found, name, texts[0], texts[1]);
    }
}

static void compare_fields(struct differences *found, const char *name, uint32_t has,
                           uint32_t expected, const char *const words[5])
{
    if (has != expected) {
        differ(found, name, words[has < 5 ? has : 0], words[expected < 5 ? expected : 0]);
    }
}

static void compare_identity(struct differences *found, const struct stk_identity_part *part,
                             const uint8_t has[32], const uint8_t expected[32])
{
    const uint8_t *const both[2] = {has, expected};
    char texts[2][2 * IDENTITY_SHOWN + 4];
    size_t first = part->first, end = part->first + part->bytes;

    if (memcmp(has + first, expected + first, part->bytes) == 0) {
        return;
    }
    while (first < end - IDENTITY_SHOWN && has[first] == expected[first]) {
        first++;
    }
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < IDENTITY_SHOWN; k++) {
            snprintf(texts[i] + 2 * k, 6, "%02x...", both[i][first + k]);
        }
    }
    differ(found, part->name, texts[0], texts[1]);
}

void stk_state_make(struct stoker_state *state_out, const struct stk_order *order,
                    const struct stk_partition *partition, const uint8_t identity[32])
{
    *state_out = (struct stoker_state){
        .order_version = order->options.version,
        .shuffle = order->options.shuffle,
        .tail = partition->tail,
        .window_blocks = order->options.window_blocks,
        .group_count = order->options.group_count,
        .seed = order->options.seed,
        .sample_count = order->options.sample_count,
        .block_samples = order->options.block_samples,
    };
    memcpy(state_out->identity, identity, sizeof state_out->identity);
}

int stk_state_validate(const struct stoker_state *state, const struct stoker_state *own,
                       const struct stk_state_labels *words, struct stoker_error *error)
{
    static const char *const shuffles[5] = {"unknown", "block", "full", "none", "two-level"};
    static const char *const tails[5] = {"unknown", "drop", "pad", "wrap", "keep"};
    const struct stk_identity_part own_part = {words->identity, 0, sizeof own->identity};
    struct differences found = {.bytes = 0};

    compare(&found, "order version", state->order_version, own->order_version);
    compare_fields(&found, "shuffle", state->shuffle, own->shuffle, shuffles);
    compare_fields(&found, "tail", state->tail, own->tail, tails);
    compare(&found, "window", state->window_blocks, own->window_blocks);
    compare(&found, "groups", state->group_count, own->group_count);
    compare(&found, "seed", state->seed, own->seed);
    compare(&found, words->samples, state->sample_count, own->sample_count);
    compare(&found, words->block_samples, state->block_samples, own->block_samples);
    for (uint32_t i = 0; i < (words->identity ? 1 : words->part_count); i++) {
        compare_identity(&found, words->identity ? &own_part : &words->parts[i], state->identity,
                         own->identity);
    }
    compare_keys(&found, "mix", state->mix, own->mix);
    compare_keys(&found, "subset or curriculum", state->subset, own->subset);
    compare_keys(&found, "weights, balance or replacement", state->draws, own->draws);
    compare(&found, "repeats", state->repeats, own->repeats);
    compare(&found, "distance of repeats", state->repeat_distance, own->repeat_distance);
    compare(&found, "samples of an epoch", state->epoch_samples, own->epoch_samples);
    if (state->position > words->positions + words->slack) {
        compare(&found, "position past the end", state->position, words->positions);
    }
    if (state->epoch > words->epoch_max) {
        compare(&found, "epoch past the end", state->epoch, words->epoch_max);
    }
    if (found.bytes == 0) {
        return 0;
    }
    return stk_fail(error, STOKER_ERROR_STATE, "the state belongs to another stream", words->advice,
                    "%s", found.text);
}
