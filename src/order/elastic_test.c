/* Goal: a run whose world and batch size change at any step, and which dies and continues from the
 * state of any rank, has each sample exactly once an epoch; a step is the same sequence of samples
 * in every world that divides it; all ranks have the same state, and the fingerprint of a run
 * without interruptions.
 * Method: random histories over the pure functions, each rank with a stream of its own. Every step
 * is compared, slot by slot, with that of a world of one; samples count if their step is before the
 * state from which the run continues. `elastic_test SEED` begins at another seed; STOKER_TEST_LONG:
 * 10,000 histories instead of 300. */
#include "order/order.h"

#include "base/random.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES_MAX 600
#define EPOCHS 3
#define WORLD_MAX 12u
#define SLOTS_MAX ((uint64_t)WORLD_MAX * 40)
/* A wrapped step goes on past the end. */
#define COUNTS_MAX (EPOCHS * SAMPLES_MAX + 2 * SLOTS_MAX)

/* What a rank saves: the variable part of struct stoker_state. */
struct saved {
    uint64_t epoch, position, fingerprint;
};

struct history {
    uint64_t key, drawn; /* random numbers */
    struct stk_order order;
    struct stk_partition cut; /* now in force */
    struct saved at;          /* the run stands here */
    uint64_t ends[EPOCHS];    /* positions from here on were dropped */
    uint64_t resizes, kills;
    uint8_t counts[COUNTS_MAX]; /* of a sample in an epoch: [epoch * samples + sample] */
    bool same_steps, same_states;
};

static uint64_t draw(struct history *history, uint64_t below)
{
    return stk_random_key(history->key, history->drawn++) % below;
}

static void begin(struct history *history, uint64_t key)
{
    struct stk_order_options options = {.seed = key};
    uint64_t blocks;

    memset(history, 0, sizeof *history);
    history->key = key;
    options.sample_count = 1 + draw(history, SAMPLES_MAX);
    options.block_samples = 1 + draw(history, 20);
    options.window_blocks = (uint32_t)(1 + draw(history, 8));
    options.shuffle = (uint32_t)(STOKER_SHUFFLE_BLOCK + draw(history, 3));
    blocks = options.sample_count / options.block_samples;
    options.group_count = (uint32_t)(1 + draw(history, stk_max(blocks / 4, 1)));
    history->cut = (struct stk_partition){
        .sample_count = options.sample_count,
        .tail = (uint32_t)(STOKER_TAIL_DROP + draw(history, 4)),
        .group_count = options.group_count,
    };
    history->same_steps = history->same_states = true;
    T_EQ("options", stk_order_init(&history->order, &options, NULL), 0);
}

/* Samples and places of the slots of one rank, or of all. */
static uint64_t slots_of(const struct history *history, const struct stk_partition *partition,
                         const struct saved *at, struct stk_order_place *places, uint64_t *samples)
{
    uint32_t slots = stk_partition_batch_slots(partition, at->epoch, at->position);

    for (uint32_t slot = 0; slot < slots; slot++) {
        struct stk_order_epoch keys;

        stk_partition_place(partition, at->epoch, at->position, slot, &places[slot]);
        stk_order_epoch_begin(&keys, &history->order, places[slot].epoch);
        samples[slot] = stk_order_sample(&keys, places[slot].position);
    }
    return slots;
}

/* One step of all ranks. Each hands on its state; they must be alike. */
static struct saved step(struct history *history, const struct saved *at, bool counted)
{
    static struct stk_order_place places[SLOTS_MAX], alone_places[SLOTS_MAX];
    static uint64_t samples[SLOTS_MAX], alone_samples[SLOTS_MAX];
    struct stk_partition partition = history->cut, alone = history->cut;
    uint64_t count = 0, alone_count;
    struct saved next = {0};

    for (partition.rank = 0; partition.rank < partition.world_size; partition.rank++) {
        struct saved own = *at;

        count += slots_of(history, &partition, at, places + count, samples + count);
        own.position += stk_partition_stride(&partition);
        own.fingerprint +=
            stk_partition_fingerprint(&partition, &history->order, at->epoch, at->position);
        history->same_states &= partition.rank == 0 || memcmp(&own, &next, sizeof own) == 0;
        next = own;
    }
    alone.batch_size *= alone.world_size;
    alone.world_size = 1;
    alone_count = slots_of(history, &alone, at, alone_places, alone_samples);
    history->same_steps &= count == alone_count;
    for (uint64_t i = 0; i < count && i < alone_count; i++) {
        history->same_steps &= samples[i] == alone_samples[i] &&
                               places[i].epoch == alone_places[i].epoch &&
                               places[i].position == alone_places[i].position &&
                               places[i].real == alone_places[i].real;
        if (counted && places[i].real) {
            history->counts[places[i].epoch * partition.sample_count + samples[i]]++;
        }
    }
    return next;
}

/* Some steps in one world; then the run continues from a state that a rank saved: after the last
 * step (a resize), or after an earlier one (it was killed, and the later steps are repeated). */
static void stretch(struct history *history, uint64_t steps)
{
    uint64_t ran = 1 + draw(history, steps);
    uint64_t steps_done = draw(history, 3) ? ran : draw(history, ran + 1);
    struct saved at = history->at;

    history->resizes += steps_done == ran;
    history->kills += steps_done < ran;
    for (uint64_t i = 0; i < ran; i++) {
        at = step(history, &at, i < steps_done);
        if (i + 1 == steps_done) {
            history->at = at;
        }
    }
}

static void run(struct history *history)
{
    struct stk_partition *cut = &history->cut;

    while (history->at.epoch < EPOCHS) {
        uint64_t steps;

        cut->world_size = (uint32_t)(1 + draw(history, WORLD_MAX));
        cut->batch_size = (uint32_t)(1 + draw(history, draw(history, 4) ? 8 : 40));
        T_EQ("partition", stk_partition_check(cut, NULL), 0);
        steps = stk_partition_steps_from(cut, history->at.epoch, history->at.position);
        if (steps > 0) {
            stretch(history, steps);
            continue;
        }
        history->ends[history->at.epoch] =
            cut->tail == STOKER_TAIL_DROP ? history->at.position : cut->sample_count;
        history->at.position =
            stk_partition_next_epoch_start(cut, history->at.epoch, history->at.position);
        history->at.epoch++;
    }
}

/* A run that nothing stopped has each position up to the ends once. */
static void check(const struct history *history, uint64_t number)
{
    uint64_t samples = history->cut.sample_count, print = 0;
    bool once = true;

    for (uint64_t epoch = 0; (epoch + 1) * samples <= COUNTS_MAX; epoch++) {
        struct stk_order_epoch keys;

        stk_order_epoch_begin(&keys, &history->order, epoch);
        for (uint64_t position = 0; position < samples; position++) {
            uint64_t sample = stk_order_sample(&keys, position);
            uint8_t count = history->counts[epoch * samples + sample];

            once &= epoch < EPOCHS ? count == (position < history->ends[epoch]) : count <= 1;
            print += count ? stk_order_fingerprint_term(&keys, position, sample) : 0;
        }
    }
    once &= history->cut.tail != STOKER_TAIL_DROP ||
            history->ends[EPOCHS - 1] + WORLD_MAX * 40 > samples;
    if (!(T_TRUE("each sample exactly once", once) &
          T_TRUE("a step is the same in every world", history->same_steps) &
          T_TRUE("every rank has the same state", history->same_states) &
          T_EQ("the fingerprint of what came", history->at.fingerprint, (long long)print))) {
        printf("history %llu: %llu samples, tail %u, key %llu\n", (unsigned long long)number,
               (unsigned long long)samples, history->cut.tail, (unsigned long long)history->key);
    }
}

int main(int count, char **arguments)
{
    static struct history history;
    const char *is_long = getenv("STOKER_TEST_LONG");
    uint64_t seed = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    uint64_t histories = is_long && *is_long ? 10000 : T_HISTORIES(300), resizes = 0, kills = 0;

    for (uint64_t i = 0; i < histories; i++) {
        begin(&history, stk_random_key(seed, i));
        run(&history);
        check(&history, i);
        resizes += history.resizes;
        kills += history.kills;
    }
    T_TRUE("a state is small", sizeof(struct stoker_state) <= 1024);
    T_TRUE("there were resizes and kills", resizes > histories && kills > histories);
    printf("seed %llu: %llu histories, %llu resizes, %llu kills\n", (unsigned long long)seed,
           (unsigned long long)histories, (unsigned long long)resizes, (unsigned long long)kills);
    return t_finish();
}
