/* Goal: a run of a mix has exactly the ids of its schedule, each position once, through any
 * changes: other worlds and batches, other weights, sources that join, deaths, in any mixture, at
 * any step; every rank has the same fingerprint, that of a run without interruptions. If a source
 * is sampled, only its chosen samples come.
 * Method: random histories over the pure functions. A state contains the history of weights; a run
 * that dies continues from an older state, with that state's history. At the end all counted
 * samples are compared with one walk through the schedule of the last history.
 * `schedule_elastic_test SEED` begins at another seed; STOKER_TEST_LONG: 10,000 histories instead
 * of 300, or 75 with a sanitizer. */
#include "order/schedule/schedule.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define SOURCES 5u
#define CHANGES 7u
#define EPOCHS 3
#define SIZE_MAX_OF_SOURCE 1040u
#define EPOCH_SAMPLES 3000u                      /* at most, of a mix that repeats */
#define POSITIONS (SOURCES * SIZE_MAX_OF_SOURCE) /* of any epoch: the others end with sources */
#define WORLD_MAX 12u
#define SLOTS_MAX ((uint64_t)WORLD_MAX * 40)

/* What a rank saves: the variable part of struct stoker_state, and the weights. */
struct saved {
    uint64_t epoch, position, fingerprint;
    uint32_t source_count, change_count;
    uint64_t places[CHANGES], weights[CHANGES][SOURCES]; /* the first from 0 on */
};

struct history {
    uint64_t key, drawn; /* random numbers */
    uint64_t sizes[SOURCES], ends[SOURCES], epoch_samples, unit;
    uint32_t source_count, end, groups;
    struct stk_schedule schedule;
    struct stk_schedule_reader reader;
    struct stk_partition cut;
    struct stk_subset subsets[SOURCES];    /* zeroed: all samples of the source */
    struct stk_alias_table alias[SOURCES]; /* zeroed: not drawn by weight */
    struct stk_sampling_source choosers[SOURCES];
    const struct stoker_sampler *samplers[SOURCES];
    struct saved at;        /* the run stands here */
    uint64_t tails[EPOCHS]; /* positions from here on were dropped */
    uint64_t resizes, kills, changes, joins;
    uint8_t counts[EPOCHS][POSITIONS];
    uint64_t samples[EPOCHS][POSITIONS];
    bool same_states, same_ids;
};

static uint64_t draw(struct history *history, uint64_t below)
{
    return stk_random_key(history->key, history->drawn++) % below;
}

static void close_schedule(struct history *history)
{
    stk_schedule_reader_deinit(&history->reader);
    stk_schedule_deinit(&history->schedule);
}

/* The schedule of a state's history. */
static void open_schedule(struct history *history, const struct saved *saved)
{
    struct stoker_mix_change changes[CHANGES];
    struct stoker_mix_options mix = {
        .struct_size = sizeof mix,
        .ends = history->ends,
        .weights = saved->weights[0],
        .changes = changes,
        .change_count = saved->change_count - 1,
        .source_count = saved->source_count,
        .end = history->end,
        .unit_samples = history->unit,
        .epoch_samples = history->epoch_samples,
        .samplers = history->samplers,
    };
    struct stk_order_options order = {
        .sample_count = history->ends[saved->source_count - 1],
        .block_samples = 7,
        .window_blocks = 3,
        .group_count = history->groups,
        .shuffle = STOKER_SHUFFLE_BLOCK,
        .seed = history->key,
    };
    struct stk_schedule_request request = {.mix = &mix};
    struct stoker_error error = {0};

    for (uint32_t i = 1; i < saved->change_count; i++) {
        changes[i - 1] = (struct stoker_mix_change){saved->places[i], saved->weights[i]};
    }
    close_schedule(history);
    if (!T_EQ("schedule", stk_schedule_open(&history->schedule, &order, &request, &error), 0)) {
        printf("%s: %s\n", error.what, error.where);
        exit(t_finish());
    }
    T_EQ("reader", stk_schedule_reader_init(&history->reader, &history->schedule, NULL), 0);
    history->cut.sample_count = stk_schedule_epoch_samples(&history->schedule);
    if (!T_TRUE("an epoch fits", history->cut.sample_count <= POSITIONS)) {
        exit(t_finish());
    }
}

static void draw_weights(struct history *history, uint64_t *weights, uint32_t count)
{
    uint64_t scale = draw(history, 2) ? 5 : 1000;

    for (uint32_t i = 0; i < count; i++) {
        weights[i] = draw(history, 4) ? 1 + draw(history, scale) : 0;
    }
    weights[draw(history, count)] += 1;
}

static void close_choices(struct history *history)
{
    for (uint32_t i = 0; i < SOURCES; i++) {
        stk_subset_deinit(&history->subsets[i]);
        stk_alias_table_deinit(&history->alias[i]);
    }
}

/* Some of a source's samples, or all; each once, or drawn. */
static void choose(struct history *history, uint32_t source)
{
    struct stk_sampling_source *chooser = &history->choosers[source];
    uint64_t size = history->sizes[source], count = size;
    uint64_t what = draw(history, 8);
    uint32_t weights[SIZE_MAX_OF_SOURCE];

    *chooser = (struct stk_sampling_source){.sample_count = size, .is_made = true};
    if (what < 4) {
        return; /* most have no sampler */
    }
    history->samplers[source] = (const struct stoker_sampler *)(const void *)chooser;
    if (what != 7) {
        T_EQ("subset", stk_subset_init(&history->subsets[source], size, NULL), 0);
        for (uint64_t i = 0; i < size; i++) {
            if (i % 40 == 7 || draw(history, 3) > 0) {
                stk_subset_add(&history->subsets[source], i);
            }
        }
        stk_subset_freeze(&history->subsets[source]);
        count = history->subsets[source].count;
        chooser->rule.subset = &history->subsets[source];
        chooser->rule.subset_identity = 7;
    }
    if (what > 5) {
        for (uint64_t i = 0; i < count; i++) {
            weights[i] = 1 + (uint32_t)draw(history, 9);
        }
        T_EQ("alias", stk_alias_table_init(&history->alias[source], weights, count, NULL), 0);
        chooser->rule.alias = &history->alias[source];
        chooser->rule.draws_identity = 9;
    }
}

static void begin(struct history *history, uint64_t key)
{
    uint64_t end = 0;

    close_schedule(history);
    close_choices(history);
    memset(history, 0, sizeof *history);
    history->key = key;
    history->source_count = (uint32_t)(1 + draw(history, SOURCES));
    for (uint32_t i = 0; i < history->source_count; i++) {
        history->sizes[i] = 40 + draw(history, draw(history, 3) ? 200 : SIZE_MAX_OF_SOURCE - 40);
        end += history->sizes[i];
        history->ends[i] = end;
        choose(history, i);
    }
    history->end = (uint32_t)(draw(history, 3) ? STOKER_MIX_REPEAT : 1 + draw(history, 3));
    history->unit = draw(history, 4) ? 1 : 12;
    history->epoch_samples = 12 * (1 + draw(history, EPOCH_SAMPLES / 12 - 1));
    history->at.source_count = (uint32_t)(1 + draw(history, history->source_count));
    if (history->end != STOKER_MIX_REPEAT) { /* an epoch that shrinks under the run is no epoch */
        history->at.source_count = history->source_count;
    }
    history->at.change_count = 1;
    draw_weights(history, history->at.weights[0], history->at.source_count);
    history->cut.tail = (uint32_t)(STOKER_TAIL_DROP + draw(history, 4));
    /* As many groups as the first source has blocks for: others are met by all groups. */
    history->groups = (uint32_t)(1 + draw(history, stk_min(4, history->sizes[0] / 28)));
    if (history->subsets[0].count > 0) {
        history->groups = 1;
    }
    history->cut.group_count = history->groups;
    history->same_states = history->same_ids = true;
    open_schedule(history, &history->at);
}

/* Steps of a mix whose batches are of one source stay as long as they are. */
static void draw_world(struct history *history)
{
    static const uint32_t divisors[6] = {1, 2, 3, 4, 6, 12};
    struct stk_partition *cut = &history->cut;

    cut->world_size =
        history->unit > 1 ? divisors[draw(history, 6)] : (uint32_t)(1 + draw(history, WORLD_MAX));
    cut->batch_size = history->unit > 1 ? 12 / cut->world_size : (uint32_t)(1 + draw(history, 40));
    T_EQ("partition", stk_partition_check(cut, NULL), 0);
}

/* One step of all ranks. */
static void step(struct history *history, struct saved *at, bool counted)
{
    struct stk_partition partition = history->cut;
    uint64_t real = 0, sum = stk_schedule_step_fingerprint(&history->reader, &partition, at->epoch,
                                                           at->position);
    uint64_t slots_sum = 0, sources = 0;

    for (partition.rank = 0; partition.rank < partition.world_size; partition.rank++) {
        uint32_t slots = stk_partition_batch_slots(&partition, at->epoch, at->position);

        for (uint32_t slot = 0; slot < slots; slot++) {
            struct stk_order_place place;
            uint64_t sample, first, count;

            stk_partition_place(&partition, at->epoch, at->position, slot, &place);
            stk_schedule_read(&history->reader, place.epoch, place.position, 1, &sample);
            if (!place.real) {
                continue;
            }
            real++;
            slots_sum += stk_order_fingerprint_of(place.epoch, place.position, 1, &sample);
            stk_schedule_substitute_range(&history->schedule, sample, &first, &count);
            sources |= UINT64_C(1) << (first / 8 % 64);
            if (counted && place.epoch < EPOCHS) {
                history->counts[place.epoch][place.position]++;
                history->samples[place.epoch][place.position] = sample;
            }
        }
    }
    history->same_states &= sum == slots_sum;
    history->same_ids &= history->unit == 1 || real == 0 || (sources & (sources - 1)) == 0;
    at->position += stk_partition_stride(&partition);
    at->fingerprint += sum;
}

/* New weights, at the border or later, and sometimes for sources that were not there. */
static void change(struct history *history, struct saved *at)
{
    uint64_t least = draw(history, 3) ? 0 : draw(history, 3 * EPOCH_SAMPLES), border;
    uint32_t count = at->source_count, change_at = 0;

    if (at->change_count == CHANGES || (history->end != STOKER_MIX_REPEAT && at->epoch > 0)) {
        return;
    }
    if (history->end == STOKER_MIX_REPEAT && draw(history, 2)) {
        at->source_count += (uint32_t)draw(history, history->source_count - count + 1);
    }
    border = stk_schedule_change_position(&history->schedule, at->epoch, at->position, least);
    while (change_at < at->change_count && at->places[change_at] < border) {
        change_at++;
    }
    at->places[change_at] = border;
    draw_weights(history, at->weights[change_at], at->source_count);
    at->change_count = change_at + 1;
    history->changes++;
    history->joins += at->source_count > count;
    open_schedule(history, at);
}

/* Some steps in one world, with or without a change of weights among them; then the run continues
 * from a state that a rank saved: after the last step, or before (it was killed, the later steps
 * are repeated, and a later change is lost). */
static void stretch(struct history *history, uint64_t steps)
{
    uint64_t ran = 1 + draw(history, steps);
    uint64_t change_at = draw(history, 3) ? ran : draw(history, ran + 1);
    uint64_t changed = draw(history, 2) ? draw(history, ran) : UINT64_MAX;
    struct saved at = history->at;

    history->resizes += change_at == ran;
    history->kills += change_at < ran;
    for (uint64_t i = 0; i < ran; i++) {
        if (i == changed) {
            change(history, &at);
        }
        if (stk_partition_steps_from(&history->cut, at.epoch, at.position) == 0) {
            break; /* other weights made the epoch shorter */
        }
        step(history, &at, i < change_at);
        if (i < change_at) {
            history->at = at;
        }
    }
    open_schedule(history, &history->at);
}

static void run(struct history *history)
{
    struct stk_partition *cut = &history->cut;

    while (history->at.epoch < EPOCHS) {
        uint64_t steps;

        draw_world(history);
        steps = stk_partition_steps_from(cut, history->at.epoch, history->at.position);
        if (steps > 0) {
            stretch(history, steps);
            continue;
        }
        history->tails[history->at.epoch] =
            cut->tail == STOKER_TAIL_DROP ? history->at.position : cut->sample_count;
        history->at.position =
            stk_partition_next_epoch_start(cut, history->at.epoch, history->at.position);
        history->at.epoch++;
    }
}

/* A source delivers its chosen samples, and the schedule finds their positions. */
static bool is_known(struct history *history, uint64_t epoch, uint64_t position, uint64_t sample)
{
    uint64_t first = 0, at = 0;
    uint32_t source = 0;

    while (history->ends[source] <= sample) {
        first = history->ends[source++];
    }
    if (history->subsets[source].count > 0 &&
        !stk_subset_has(&history->subsets[source], sample - first)) {
        return false;
    }
    if (position % 197 > 0) {
        return true;
    }
    for (uint64_t skip = 0; stk_schedule_find(&history->schedule, epoch, sample, skip, &at);
         skip++) {
        if (at == position) {
            return true;
        }
    }
    return false;
}

/* One walk through the schedule of the last history. */
static void check(struct history *history, uint64_t number)
{
    static uint64_t samples[POSITIONS];
    uint64_t count = stk_schedule_epoch_samples(&history->schedule), print = 0;
    bool once = true, same = true, known = true;

    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        stk_schedule_read(&history->reader, epoch, 0, count, samples);
        for (uint64_t i = 0; i < count; i++) {
            once &= history->counts[epoch][i] == (i < history->tails[epoch]);
            same &= !history->counts[epoch][i] || history->samples[epoch][i] == samples[i];
            known &= is_known(history, epoch, i, samples[i]);
        }
        for (uint64_t i = count; i < POSITIONS; i++) {
            once &= history->counts[epoch][i] == 0;
        }
        print += stk_schedule_fingerprint(&history->reader, epoch, 0,
                                          stk_min(history->tails[epoch], count));
    }
    if (history->cut.tail == STOKER_TAIL_WRAP) { /* the last step went on after the epochs */
        for (uint64_t left = history->at.position, epoch = EPOCHS; left > 0; epoch++) {
            uint64_t piece = stk_min(left, count);

            print += stk_schedule_fingerprint(&history->reader, epoch, 0, piece);
            left -= piece;
        }
    }
    if (!(T_TRUE("each position exactly once", once) & T_TRUE("with its sample", same) &
          T_TRUE("which is chosen, and is found", known) &
          T_TRUE("every rank has the same fingerprint", history->same_states) &
          T_TRUE("batches of one source", history->same_ids) &
          T_EQ("the fingerprint of what came", history->at.fingerprint, (long long)print))) {
        printf("history %llu: %u sources, end %u, unit %llu, tail %u, %u groups, %llu an epoch\n",
               (unsigned long long)number, history->source_count, history->end,
               (unsigned long long)history->unit, history->cut.tail, history->groups,
               (unsigned long long)count);
    }
}

int main(int count, char **arguments)
{
    static struct history history;
    const char *is_long = getenv("STOKER_TEST_LONG");
    uint64_t seed = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    uint64_t histories = is_long && *is_long ? 10000 : T_HISTORIES(300);
    uint64_t resizes = 0, kills = 0, changes = 0, joins = 0;

    for (uint64_t i = 0; i < histories; i++) {
        begin(&history, stk_random_key(seed, i));
        run(&history);
        check(&history, i);
        resizes += history.resizes;
        kills += history.kills;
        changes += history.changes;
        joins += history.joins;
    }
    close_schedule(&history);
    close_choices(&history);
    T_TRUE("there were resizes and kills", resizes > histories && kills > histories);
    T_TRUE("there were changes, and sources joined", changes > histories && joins > histories / 10);
    T_EQ("no leak", stk_mem_alive(), 0);
    printf("seed %llu: %llu histories, %llu resizes, %llu kills, %llu changes, %llu joins\n",
           (unsigned long long)seed, (unsigned long long)histories, (unsigned long long)resizes,
           (unsigned long long)kills, (unsigned long long)changes, (unsigned long long)joins);
    return t_finish();
}
