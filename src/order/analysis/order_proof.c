/* Proof by enumeration: reads every slot of every rank and counts each sample. For mixes and
 * selected samples, this proves that the ranks have the samples of the schedule. A second count
 * proves that the schedule has each sample once per pass of its source or stage. */
#include "order/analysis/order_parts.h"

#include "base/mem.h"
#include "base/options.h"
#include "base/random.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define EPOCHS_DEFAULT 2u
#define EPOCHS_MAX 64u
#define CHUNK 1024u

struct proof {
    const struct stoker_order *order;
    struct stoker_order_verify_options options;
    struct stoker_order_proof result;
    struct stk_schedule_reader reader;
    uint64_t samples;          /* of the data set */
    uint16_t *seen;            /* [epochs x samples]: occurrences of a sample; saturates */
    uint16_t *want;            /* [samples]: expected number of occurrences in an epoch */
    uint64_t ends[EPOCHS_MAX]; /* positions from here on were dropped */
    uint64_t key, drawn;       /* random numbers of a history */
};

/* Number of occurrences of the samples of a source or stage in each pass. */
struct passes {
    struct stk_order_part part;
    uint64_t first, count; /* its first one in the list of all; passes that were begun */
    uint32_t times;        /* occurrences of each sample in a pass; 0: samples are drawn */
};

/* A segment of a run between two changes: state in, state out. */
struct run_position {
    uint64_t epoch, position;
};

static void fail(struct proof *proof, const char *what, uint32_t world,
                 const struct run_position *at)
{
    if (proof->result.failures++ == 0) {
        snprintf(proof->result.failure, sizeof proof->result.failure,
                 "%s: world size %u, epoch %llu, position %llu", what, world,
                 (unsigned long long)at->epoch, (unsigned long long)at->position);
    }
}

static uint64_t draw(struct proof *proof, uint64_t below)
{
    return stk_random_key(proof->key, proof->drawn++) % below;
}

static void count_up(uint16_t *count)
{
    *count = (uint16_t)stk_min(*count + 1u, UINT16_MAX);
}

/* All slots of a step. counted: the run records them. */
static void enumerate(struct proof *proof, const struct stk_partition *cut,
                      const struct run_position *at, bool counted)
{
    struct stk_partition partition = *cut;
    uint64_t sum = 0;

    for (partition.rank = 0; partition.rank < partition.world_size; partition.rank++) {
        uint32_t slots = stk_partition_batch_slots(&partition, at->epoch, at->position);

        for (uint32_t slot = 0; slot < slots; slot++) {
            struct stk_order_place place;
            uint64_t sample;

            stk_partition_place(&partition, at->epoch, at->position, slot, &place);
            if (!place.real) {
                continue;
            }
            stk_schedule_read(&proof->reader, place.epoch, place.position, 1, &sample);
            sum += stk_order_fingerprint_of(place.epoch, place.position, 1, &sample);
            if (sample >= proof->samples) {
                fail(proof, "a step holds a sample that is not there", cut->world_size, at);
            } else if (counted && place.epoch < proof->options.epochs) {
                count_up(&proof->seen[place.epoch * proof->samples + sample]);
            }
        }
        proof->result.slots += slots;
    }
    proof->result.steps++;
    /* The slots of a single rank: the same set of (position, sample) in every world. */
    if (sum != stk_schedule_step_fingerprint(&proof->reader, cut, at->epoch, at->position)) {
        fail(proof, "a step holds other samples", cut->world_size, at);
    }
}

/* No more steps in this epoch: the stand turns to the next one. */
static void next_epoch(struct proof *proof, const struct stk_partition *cut,
                       struct run_position *at)
{
    proof->ends[at->epoch] = cut->tail == STOKER_TAIL_DROP
                                 ? stk_min(at->position, cut->sample_count)
                                 : cut->sample_count;
    at->position = stk_partition_next_epoch_start(cut, at->epoch, at->position);
    at->epoch++;
}

/* Computes the expected occurrences of each sample in an epoch from its positions. */
static void count_expected(struct proof *proof, uint64_t epoch)
{
    uint64_t stretch[CHUNK];

    memset(proof->want, 0, proof->samples * sizeof *proof->want);
    for (uint64_t first = 0, count; first < proof->ends[epoch]; first += count) {
        count = stk_min(CHUNK, proof->ends[epoch] - first);
        stk_schedule_read(&proof->reader, epoch, first, count, stretch);
        for (uint64_t i = 0; i < count; i++) {
            if (stretch[i] < proof->samples) {
                count_up(&proof->want[stretch[i]]);
            }
        }
    }
}

/* Checks that each sample occurs once in each epoch, except for dropped ones; in a mix, as often
 * as the mix specifies. */
static void check_epoch(struct proof *proof, uint64_t epoch, uint32_t world)
{
    const uint16_t *seen = &proof->seen[epoch * proof->samples];
    uint64_t positions = proof->order->partition.sample_count, stretch[CHUNK], others = 0;
    bool is_mix = !stk_schedule_is_plain(&proof->order->schedule);

    count_expected(proof, epoch);
    for (uint64_t first = 0, count; first < positions; first += count) {
        count = stk_min(CHUNK, positions - first);
        stk_schedule_read(&proof->reader, epoch, first, count, stretch);
        for (uint64_t i = 0; i < count; i++) {
            uint16_t got = 0, want = first + i < proof->ends[epoch];

            if (stretch[i] < proof->samples) {
                got = seen[stretch[i]];
                want = is_mix ? proof->want[stretch[i]] : want;
            }
            if (got != want) {
                fail(proof, got > want ? "a sample occurs too often" : "a sample is missing", world,
                     &(struct run_position){epoch, first + i});
            }
        }
    }
    for (uint64_t sample = 0; sample < proof->samples; sample++) {
        others += seen[sample] > 0 && proof->want[sample] == 0;
    }
    if (others > 0) {
        fail(proof, "a sample occurs that has no position", world,
             &(struct run_position){epoch, 0});
    }
}

static void check(struct proof *proof, uint32_t world)
{
    for (uint64_t epoch = 0; epoch < proof->options.epochs; epoch++) {
        check_epoch(proof, epoch, world);
    }
    memset(proof->seen, 0, proof->options.epochs * proof->samples * sizeof *proof->seen);
}

static void check_world(struct proof *proof, uint32_t world)
{
    struct stk_partition cut = proof->order->partition;
    struct run_position at = {0};

    cut.batch_size = (uint32_t)((uint64_t)cut.batch_size * cut.world_size / world);
    cut.world_size = world;
    at.position = stk_partition_first(&cut, 0);
    while (at.epoch < proof->options.epochs) {
        if (stk_partition_steps_from(&cut, at.epoch, at.position) == 0) {
            next_epoch(proof, &cut, &at);
        } else {
            enumerate(proof, &cut, &at, true);
            at.position += stk_partition_stride(&cut);
        }
    }
    check(proof, world);
}

/* Counts a resize if a segment has another world size or batch size than the one before it. */
static void count_resize(struct proof *proof, struct stk_partition *before,
                         const struct stk_partition *cut)
{
    proof->result.resizes += before->world_size > 0 && (before->world_size != cut->world_size ||
                                                        before->batch_size != cut->batch_size);
    *before = *cut;
}

/* Stretches of random worlds and batch sizes. Each runs some steps and ends by a resize, with the
 * state of its last step, or by a kill: then steps after the last saved state are lost, and run
 * again in another world. */
static void check_history(struct proof *proof, uint64_t number)
{
    const struct stoker_order_verify_options *options = &proof->options;
    uint64_t size =
        (uint64_t)proof->order->partition.batch_size * proof->order->partition.world_size;
    struct stk_partition cut = proof->order->partition, before = {0};
    struct run_position at = {0};

    proof->key = stk_random_key(options->seed, number);
    proof->drawn = 0;
    while (at.epoch < options->epochs) {
        uint64_t steps, ran, kept;

        cut.world_size = options->world_sizes[draw(proof, options->world_size_count)];
        cut.batch_size =
            (uint32_t)(1 + draw(proof, stk_min(stk_max(2 * size / cut.world_size, 1), UINT32_MAX)));
        steps = stk_partition_steps_from(&cut, at.epoch, at.position);
        if (steps == 0) {
            next_epoch(proof, &cut, &at);
            continue;
        }
        ran = 1 + draw(proof, steps);
        kept = draw(proof, 2) ? ran : draw(proof, ran + 1);
        proof->result.kills += kept < ran;
        count_resize(proof, &before, &cut);
        for (uint64_t step = 0; step < ran; step++) {
            struct run_position here = {at.epoch, at.position + step * stk_partition_stride(&cut)};
            enumerate(proof, &cut, &here, step < kept);
        }
        at.position += kept * stk_partition_stride(&cut);
    }
    proof->result.histories++;
    check(proof, cut.world_size);
}

static int fail_short_run(const struct proof *proof, size_t segment, uint64_t steps, uint64_t ran,
                          struct stoker_error *error)
{
    const struct stoker_order_verify_options *options = &proof->options;
    char needed[64] = "goes on to the end of the run, but is not the last";

    if (steps < UINT64_MAX) {
        snprintf(needed, sizeof needed, "needs %llu steps", (unsigned long long)steps);
    }
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "the run does not fit into the verified epochs",
                    "verify more epochs (at most 64), or use fewer steps",
                    "segment %zu of %zu %s; %u epochs end after %llu of its steps", segment + 1,
                    options->segment_count, needed, options->epochs, (unsigned long long)ran);
}

/* Runs the history that the caller specifies: each segment ends after a number of steps, and the
 * next one begins where a state was saved, `lost` steps before. Returns 0 or, if the epochs end
 * before a segment is complete, STOKER_ERROR_ARGUMENT. */
static int check_run(struct proof *proof, struct stoker_error *error)
{
    const struct stoker_order_verify_options *options = &proof->options;
    struct stk_partition cut = proof->order->partition, before = {0};
    struct run_position at = {0};

    for (size_t i = 0; i < options->segment_count; i++) {
        const struct stoker_order_segment *stretch = &options->segments[i];
        bool last = i + 1 == options->segment_count;
        uint64_t steps = last || stretch->steps == 0 ? UINT64_MAX : stretch->steps;
        uint64_t kept = last ? steps : steps - stretch->lost;
        uint64_t step = 0;
        struct run_position saved = at;

        cut.world_size = stretch->world_size;
        cut.batch_size = stretch->batch_size;
        while (step < steps && at.epoch < options->epochs) {
            if (stk_partition_steps_from(&cut, at.epoch, at.position) == 0) {
                next_epoch(proof, &cut, &at);
                continue;
            }
            enumerate(proof, &cut, &at, step < kept);
            at.position += stk_partition_stride(&cut);
            step++;
            saved = step == kept ? at : saved;
        }
        if (step < steps && (!last || (step == 0 && i > 0))) {
            return fail_short_run(proof, i, last ? 1 : steps, step, error);
        }
        at = kept < steps ? saved : at;
        proof->result.kills += kept < steps;
        count_resize(proof, &before, &cut);
    }
    check(proof, cut.world_size);
    return 0;
}

/* ---- schedules of mixes and of chosen samples ---- */

/* Reads the epochs, and for a mix without end the rest of its last frame: there every source has
 * returned its first samples, all of them. came: NULL to count passes only. */
static int count_passes(struct proof *proof, struct passes *passes, uint16_t *counts,
                        struct stoker_error *error)
{
    const struct stk_schedule *schedule = &proof->order->schedule;
    uint64_t size = schedule->epoch_samples, epochs = proof->options.epochs, count;
    uint64_t end =
        schedule->is_endless ? stk_schedule_change_position(schedule, epochs, 0, 0) : epochs * size;
    struct stk_order_part_sample visits[STK_ORDER_PARTS_CHUNK];
    struct stk_order_parts_reader reader;
    int status = stk_order_parts_reader_init(&reader, proof->order);

    for (uint64_t at = 0; status == 0 && at < end; at += count) {
        count = stk_min(stk_min(STK_ORDER_PARTS_CHUNK, end - at), size - at % size);
        stk_order_parts_read(&reader, at / size, at % size, count, visits);
        for (uint64_t i = 0; i < count; i++) {
            struct passes *of = &passes[visits[i].part];

            if (of->times > 0 && counts && visits[i].number < of->part.samples) {
                count_up(&counts[of->first + visits[i].pass * of->part.samples + visits[i].number]);
            }
            of->count = stk_max(of->count, visits[i].pass + 1);
        }
    }
    status = status < 0 ? status : stk_schedule_reader_error(&reader.reader, error);
    stk_order_parts_reader_deinit(&reader);
    return status;
}

/* All passes except the last are complete; in the last pass no sample may occur too often. */
static void check_passes(struct proof *proof, const struct passes *of, uint32_t number,
                         const uint16_t *counts)
{
    for (uint64_t i = 0; of->times > 0 && i < of->count * of->part.samples; i++) {
        uint64_t pass = i / of->part.samples;
        bool is_short = counts[of->first + i] < of->times && pass + 1 < of->count;

        if ((counts[of->first + i] > of->times || is_short) && proof->result.failures++ == 0) {
            snprintf(proof->result.failure, sizeof proof->result.failure,
                     "%s in a pass: source or stage %u, pass %llu, sample %llu of it, %u times",
                     is_short ? "a sample is missing" : "a sample occurs too often", number,
                     (unsigned long long)pass, (unsigned long long)(i % of->part.samples),
                     counts[of->first + i]);
        }
    }
}

static int check_pass_counts(struct proof *proof, struct stoker_error *error)
{
    const struct stk_schedule *schedule = &proof->order->schedule;
    uint32_t part_count = stk_order_parts_count(proof->order);
    struct passes *passes = stk_alloc(part_count, sizeof *passes);
    uint16_t *counts = NULL;
    uint64_t size = 0;
    int status = passes ? 0 : -ENOMEM;

    for (uint32_t i = 0; status == 0 && i < part_count; i++) {
        const struct stk_sampling_rule *choice =
            schedule->orders ? stk_schedule_rule(schedule, i) : &schedule->stages.items[i].rule;

        stk_order_parts_get(proof->order, i, 1, 0, &passes[i].part);
        passes[i].times = choice && stk_sampling_rule_is_random(choice) ? 0
                          : schedule->orders                            ? 1
                                                                        : schedule->stages.times;
    }
    status = status < 0 ? status : count_passes(proof, passes, NULL, error);
    for (uint32_t i = 0; status == 0 && i < part_count; i++) {
        passes[i].first = size;
        size += passes[i].times > 0 ? passes[i].count * passes[i].part.samples : 0;
    }
    if (status == 0) {
        counts = stk_alloc(stk_max(size, 1), sizeof *counts);
        status = counts ? count_passes(proof, passes, counts, error) : -ENOMEM;
    }
    for (uint32_t i = 0; status == 0 && i < part_count; i++) {
        check_passes(proof, &passes[i], i, counts);
    }
    stk_free(counts);
    stk_free(passes);
    return status;
}

/* ---- requests ---- */

static int check_stretches(const struct stoker_order *order,
                           const struct stoker_order_verify_options *options,
                           struct stoker_error *error)
{
    struct stk_partition cut = order->partition;
    int status = 0;

    for (size_t i = 0; i < options->segment_count && status == 0; i++) {
        const struct stoker_order_segment *stretch = &options->segments[i];

        cut.world_size = stretch->world_size;
        cut.batch_size = stretch->batch_size;
        status = stk_partition_check(&cut, error);
        if (status == 0 && stretch->lost > stretch->steps) {
            status =
                stk_fail(error, STOKER_ERROR_ARGUMENT, "a segment loses more steps than it has",
                         "give at most as many lost steps as steps",
                         "segment %zu of %zu: %llu steps, %llu lost", i + 1, options->segment_count,
                         (unsigned long long)stretch->steps, (unsigned long long)stretch->lost);
        }
    }
    return status;
}

static int check_options(const struct stoker_order *order,
                         struct stoker_order_verify_options *options, struct stoker_error *error)
{
    uint64_t size = (uint64_t)order->partition.batch_size * order->partition.world_size;

    options->epochs = options->epochs ? options->epochs : EPOCHS_DEFAULT;
    for (size_t i = 0; i < options->world_size_count; i++) {
        uint32_t world = options->world_sizes[i];

        if (world == 0 || size % world != 0 || size / world > UINT32_MAX) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT,
                            "a world size does not divide the global batch",
                            "give world sizes that divide batch_size * world_size",
                            "world size %u, %llu samples a step", world, (unsigned long long)size);
        }
    }
    if (options->epochs > EPOCHS_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a verification has too many epochs",
                        "verify at most 64 epochs", "%u epochs", options->epochs);
    }
    if (options->histories > 0 && options->world_size_count == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "random runs need world sizes",
                        "give world sizes for the random runs", "%u random runs",
                        options->histories);
    }
    return check_stretches(order, options, error);
}

static int check_all(struct proof *proof, struct stoker_error *error)
{
    const struct stoker_order_verify_options *options = &proof->options;
    int status = 0;

    for (size_t i = 0; i < options->world_size_count && !options->histories_only; i++) {
        check_world(proof, options->world_sizes[i]);
    }
    for (uint64_t i = 0; i < options->histories; i++) {
        check_history(proof, options->first_history + i);
    }
    if (options->segment_count > 0) {
        status = check_run(proof, error);
    }
    status = status < 0 ? status
                        : stk_schedule_reader_error(&proof->reader, error); /* a damaged table */
    return status < 0 || options->histories_only || stk_schedule_is_plain(&proof->order->schedule)
               ? status
               : check_pass_counts(proof, error);
}

int stoker_order_verify(const struct stoker_order *order,
                        const struct stoker_order_verify_options *given,
                        struct stoker_order_proof *proof_out, struct stoker_error *error)
{
    struct proof proof = {.order = order};
    int status = stk_options_read(&proof.options, sizeof proof.options,
                                  sizeof proof.options.struct_size, given, "verify options", error);

    status = status < 0 ? status : check_options(order, &proof.options, error);
    status = status < 0
                 ? status
                 : stk_options_check_output(proof_out, sizeof proof.result,
                                            sizeof proof.result.struct_size, "order proof", error);
    if (status < 0) {
        return status;
    }
    proof.samples = stk_schedule_is_plain(&order->schedule)
                        ? order->partition.sample_count
                        : order->schedule.order.options.sample_count;
    proof.seen = stk_alloc(stk_max(proof.samples, 1) * proof.options.epochs, sizeof *proof.seen);
    proof.want = stk_alloc(stk_max(proof.samples, 1), sizeof *proof.want);
    status = proof.seen && proof.want
                 ? stk_schedule_reader_init(&proof.reader, &order->schedule, NULL)
                 : -ENOMEM;
    if (status == 0 && proof.samples > 0) {
        status = check_all(&proof, error);
    }
    if (status == -ENOMEM) {
        stk_fail(error, status, "cannot verify an order", "free memory, or verify fewer epochs",
                 "%llu samples in %u epochs", (unsigned long long)proof.samples,
                 proof.options.epochs);
    }
    if (status == 0) {
        status = stk_options_write_output(proof_out, &proof.result, sizeof proof.result,
                                          "order proof", error);
    }
    stk_schedule_reader_deinit(&proof.reader);
    stk_free(proof.seen);
    stk_free(proof.want);
    return status;
}
