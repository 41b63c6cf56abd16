/* Goal: a state identifies its stream and is independent of the rank that saved it; the state of
 * another stream is refused, and every difference is named in the user's terms.
 * Method: a state, changed in each of its parts; several at once; all at once, which must fit. */
#include "order/order.h"

#include "test/t.h"

#include <string.h>

static const uint8_t identity[32] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

static const struct stk_state_labels words = {
    .samples = "number of samples",
    .block_samples = "samples a block",
    .identity = "identity of the data set",
    .advice = "open the right one",
    .positions = 1000,
    .slack = 64,
    .epoch_max = UINT64_MAX,
};
static const struct stk_state_labels short_words = {.samples = "number of samples",
                                                    .block_samples = "samples a block",
                                                    .identity = "identity",
                                                    .advice = "open the right one",
                                                    .positions = 1000,
                                                    .slack = 64,
                                                    .epoch_max = 3};

static struct stoker_state state_in_world(uint32_t batch_size, uint32_t rank, uint32_t world_size)
{
    struct stk_order_options options = {
        .sample_count = 1000,
        .block_samples = 10,
        .window_blocks = 8,
        .group_count = 4,
        .shuffle = STOKER_SHUFFLE_BLOCK,
        .seed = 9,
    };
    struct stk_partition partition = {
        .sample_count = 1000,
        .batch_size = batch_size,
        .rank = rank,
        .world_size = world_size,
        .tail = STOKER_TAIL_WRAP,
        .group_count = 4,
    };
    struct stk_order order;
    struct stoker_state state;

    memset(&state, 0xff, sizeof state);
    T_EQ("order", stk_order_init(&order, &options, NULL), 0);
    stk_state_make(&state, &order, &partition, identity);
    return state;
}

static void change(struct stoker_state *state, char part)
{
    switch (part) {
    case 'v':
        state->order_version = 7;
        break;
    case 's':
        state->shuffle = STOKER_SHUFFLE_FULL;
        break;
    case 'u':
        state->shuffle = 77;
        break;
    case 't':
        state->tail = STOKER_TAIL_DROP;
        break;
    case 'w':
        state->window_blocks = UINT32_MAX;
        break;
    case 'g':
        state->group_count = 1;
        break;
    case 'e':
        state->seed = UINT64_MAX;
        break;
    case 'n':
        state->sample_count = UINT64_MAX;
        break;
    case 'b':
        state->block_samples = 11;
        break;
    case 'i':
        state->identity[0] = 0xff;
        break;
    case 'l':
        state->identity[31] = 0xff;
        break;
    case 'c':
        state->subset = UINT64_C(0x1234567800000000);
        break;
    case 'd':
        state->draws = UINT64_MAX;
        break;
    case 'r':
        state->repeats = 3;
        break;
    case 'a':
        state->repeat_distance = 8;
        break;
    case 'E':
        state->epoch_samples = 77;
        break;
    case 'm':
        state->mix = UINT64_C(0x00000001ffffffff);
        break;
    case 'P':
        state->epoch = 4;
        break;
    default:
        state->position = UINT64_MAX;
        break;
    }
}

static const struct state_row {
    const char *changes, *where;
} state_rows[] = {
    {"v", "order version: 7 in the state, 2 here"},
    {"s", "shuffle: full in the state, block here"},
    {"u", "shuffle: unknown in the state, block here"},
    {"t", "tail: drop in the state, wrap here"},
    {"w", "window: 4294967295 in the state, 8 here"},
    {"g", "groups: 1 in the state, 4 here"},
    {"e", "seed: 18446744073709551615 in the state, 9 here"},
    {"n", "number of samples: 18446744073709551615 in the state, 1000 here"},
    {"b", "samples a block: 11 in the state, 10 here"},
    {"i", "identity of the data set: ff020304... in the state, 01020304... here"},
    {"l", "identity of the data set: 000000ff... in the state, 00000000... here"},
    {"c", "subset or curriculum: 12345678... in the state, none here"},
    {"d", "weights, balance or replacement: ffffffff... in the state, none here"},
    {"r", "repeats: 3 in the state, 0 here"},
    {"a", "distance of repeats: 8 in the state, 0 here"},
    {"E", "samples of an epoch: 77 in the state, 0 here"},
    {"m", "mix: 00000001... in the state, none here"},
    {"p", "position past the end: 18446744073709551615 in the state, 1000 here"},
    {"eg", "groups: 1 in the state, 4 here; seed: 18446744073709551615 in the state, 9 here"},
};

static void test_differences(void)
{
    struct stoker_state own = state_in_world(8, 0, 1), state;
    struct stoker_error error;

    T_EACH(state_row, row, state_rows)
    {
        memset(&error, 0, sizeof error);
        state = own;
        for (const char *part = row->changes; *part; part++) {
            change(&state, *part);
        }
        T_EQ(row->changes, stk_state_validate(&state, &own, &words, &error), STOKER_ERROR_STATE);
        T_STR(row->changes, error.where, row->where);
        T_STR(row->changes, error.advice, "open the right one");
        T_EQ(row->changes, stk_state_validate(&state, &own, &words, NULL), STOKER_ERROR_STATE);
    }
    state = own;
    change(&state, 'P');
    T_EQ("an epoch that may be", stk_state_validate(&state, &own, &words, &error), 0);
    T_EQ("none", stk_state_validate(&state, &own, &short_words, &error), STOKER_ERROR_STATE);
    T_STR("none", error.where, "epoch past the end: 4 in the state, 3 here");
    state = own;
    for (const char *part = "vutwgenbip"; *part; part++) {
        change(&state, *part);
    }
    T_EQ("all", stk_state_validate(&state, &own, &words, &error), STOKER_ERROR_STATE);
    T_HAS("the first", error.where, "order version: 7 in the state");
    T_HAS("and the last", error.where, "position past the end: 18446744073709551615 in the state");
}

/* Position, epoch and fingerprint may have any value: they are the content of a state. */
static void test_same(void)
{
    struct stoker_state own = state_in_world(8, 0, 1), other = state_in_world(3, 6, 7);

    T_TRUE("batch size, rank and world are not in it", memcmp(&own, &other, sizeof own) == 0);
    T_TRUE("<= 1 kB", sizeof own <= 1024);
    T_TRUE("it begins at the beginning",
           own.epoch == 0 && own.position == 0 && own.fingerprint == 0);
    T_EQ("version", own.order_version, STOKER_ORDER_VERSION);
    other.epoch = UINT64_MAX;
    other.fingerprint = UINT64_MAX;
    other.position = 1000 + 64; /* a wrapped epoch ends after its last sample */
    T_EQ("another place", stk_state_validate(&other, &own, &words, NULL), 0);
    other.position++;
    T_EQ("past the end", stk_state_validate(&other, &own, &words, NULL), STOKER_ERROR_STATE);
}

/* An identity of parts: those that differ are named, each with its own bytes. */
static void test_parts(void)
{
    static const struct stk_identity_part parts[] = {
        {"tokens", 0, 16}, {"rows", 16, 4}, {"rules", 20, 12}};
    struct stk_state_labels named = words;
    struct stoker_state own = state_in_world(4, 0, 1), state = own;
    struct stoker_error error = {0};

    named.identity = NULL;
    named.parts = parts;
    named.part_count = STK_COUNT(parts);
    T_EQ("same", stk_state_validate(&state, &own, &named, &error), 0);
    state.identity[15] = state.identity[31] = 0xff;
    T_EQ("two", stk_state_validate(&state, &own, &named, &error), STOKER_ERROR_STATE);
    T_STR("two", error.where,
          "tokens: 000000ff... in the state, 00000000... here; "
          "rules: 000000ff... in the state, 00000000... here");
    state = own;
    state.identity[19] = 1;
    T_EQ("one", stk_state_validate(&state, &own, &named, &error), STOKER_ERROR_STATE);
    T_STR("one", error.where, "rows: 00000001... in the state, 00000000... here");
}

int main(void)
{
    test_differences();
    test_same();
    test_parts();
    return t_finish();
}
