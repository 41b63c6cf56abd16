/* One question for the loader, whatever answers it: which sample stands here? */
#include "mix/schedule.h"

#include "base/hash.h"
#include "base/mem.h"

#define STRIDE 256u
#define IDENTITY_KEY UINT64_C(0x6d69782d69642031) /* "mix-id 1" */
#define STAGES_KEY UINT64_C(0x7374616765732031)   /* "stages 1" */

static int init_stages(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                       struct stoker_error *error);
static int init_sources(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                        struct stoker_error *error);
static uint64_t identity_of(const struct stk_schedule_options *options);
static void turn_to(struct stk_schedule_reader *reader, uint64_t epoch);

int stk_schedule_init(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                      struct stoker_error *error)
{
    int status;

    *schedule = (struct stk_schedule){0};
    if (options->stages) {
        return init_stages(schedule, options, error);
    }
    status = stk_order_init(&schedule->order, &options->order, error);
    schedule->epoch_samples = options->order.sample_count;
    if (status < 0 || !options->mix) {
        return status;
    }
    status = stk_mix_init(&schedule->mix, options->mix, error);
    status = status < 0 ? status : init_sources(schedule, options, error);
    if (status < 0) {
        stk_schedule_deinit(schedule);
        return status;
    }
    schedule->is_endless = options->mix->end == STK_MIX_REPEAT;
    if (!schedule->is_endless) {
        schedule->epoch_samples = schedule->mix.end;
    } else if (options->epoch_samples) {
        schedule->epoch_samples = options->epoch_samples;
    }
    schedule->identity = identity_of(options);
    return 0;
}

void stk_schedule_deinit(struct stk_schedule *schedule)
{
    stk_mix_deinit(&schedule->mix);
    stk_stages_deinit(&schedule->stages);
    stk_free(schedule->orders);
    stk_free(schedule->firsts);
    stk_free(schedule->gone);
    *schedule = (struct stk_schedule){0};
}

uint64_t stk_schedule_samples(const struct stk_schedule *schedule)
{
    return schedule->epoch_samples;
}

/* Half of what the positions last for: a step may go on into the epochs behind. */
uint64_t stk_schedule_epochs(const struct stk_schedule *schedule)
{
    return schedule->orders || schedule->stages.items
               ? STK_MIX_POSITIONS_MAX / 2 / schedule->epoch_samples
               : UINT64_MAX;
}

/* The order of the whole is only to tell what it was made of. */
static int init_stages(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                       struct stoker_error *error)
{
    struct stk_stages_options stages = *options->stages;
    struct stk_order_options whole = options->order;
    uint64_t subsets = STAGES_KEY, draws = STAGES_KEY;
    bool is_chosen = stages.stage_count > 1, is_drawn = false;
    int status;

    whole.shuffle = STOKER_SHUFFLE_NONE;
    stages.order = options->order;
    if (options->mix) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "stages beside a mix",
                        "choose samples without a mix, or mix whole sources", "schedule");
    }
    status = stk_order_init(&schedule->order, &whole, error);
    status = status < 0 ? status : stk_stages_init(&schedule->stages, &stages, error);
    if (status < 0) {
        stk_schedule_deinit(schedule);
        return status;
    }
    for (uint32_t i = 0; i < stages.stage_count; i++) {
        const struct stk_stage *stage = &stages.stages[i];

        subsets = stk_key(stk_key(subsets, stage->first), stage->choice.subset_identity);
        draws = stk_key(stk_key(draws, stage->first), stage->choice.draws_identity);
        is_chosen = is_chosen || stage->choice.subset_identity != 0;
        is_drawn = is_drawn || stage->choice.draws_identity != 0;
    }
    schedule->is_endless = true;
    schedule->epoch_samples = schedule->stages.epoch_samples;
    schedule->subset_identity = is_chosen ? subsets : 0;
    schedule->draws_identity = is_drawn ? draws : 0;
    return 0;
}

static int init_sources(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                        struct stoker_error *error)
{
    uint32_t source_count = options->mix->source_count;
    uint64_t first = 0;

    schedule->orders = stk_alloc(source_count, sizeof *schedule->orders);
    schedule->firsts = stk_alloc(source_count, sizeof *schedule->firsts);
    schedule->gone = stk_alloc(source_count, sizeof *schedule->gone);
    if (!schedule->orders || !schedule->firsts || !schedule->gone) {
        return stk_fail_errno(error, 12, "no memory for a mix", "free some memory", "%u sources",
                              source_count);
    }
    for (uint32_t i = 0; i < source_count; i++) {
        const struct stk_mix_source *source = &options->mix->sources[i];
        struct stk_order_options order = options->order;
        int status;

        if (options->ends[i] > options->order.sample_count || options->ends[i] < first ||
            options->ends[i] - first != source->sample_count) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "the sources of a mix are out of place",
                            "give where each source's samples end, in rising sequence",
                            "source %u ends at %llu", i, (unsigned long long)options->ends[i]);
        }
        order.sample_count = source->sample_count;
        order.seed = stk_key(options->order.seed, i + 1); /* no two walk alike */
        status = stk_order_init(&schedule->orders[i], &order, error);
        if (status < 0) {
            return status;
        }
        schedule->firsts[i] = first;
        schedule->gone[i] = stk_mix_given(&schedule->mix, i);
        first = options->ends[i];
    }
    return 0;
}

static uint64_t identity_of(const struct stk_schedule_options *options)
{
    const struct stk_mix_options *mix = options->mix;
    uint64_t key = stk_key(IDENTITY_KEY, STK_MIX_VERSION);

    key = stk_key(stk_key(key, mix->source_count), mix->end);
    key = stk_key(stk_key(key, mix->unit_samples), options->epoch_samples);
    key = stk_key(key, mix->seed);
    for (uint32_t i = 0; i < mix->source_count; i++) {
        key = stk_key(stk_key(key, mix->sources[i].sample_count), mix->sources[i].sample_limit);
        key = stk_key(key, mix->weights[i]);
    }
    for (uint32_t k = 0; k < mix->change_count; k++) {
        key = stk_key(key, mix->changes[k].position);
        for (uint32_t i = 0; i < mix->source_count; i++) {
            key = stk_key(key, mix->changes[k].weights[i]);
        }
    }
    return key;
}

int stk_schedule_reader_init(struct stk_schedule_reader *reader,
                             const struct stk_schedule *schedule, struct stoker_error *error)
{
    *reader = (struct stk_schedule_reader){.schedule = schedule, .mix = schedule->mix};
    if (schedule->stages.items) {
        return stk_stages_reader_init(&reader->stages, &schedule->stages, error);
    }
    return schedule->orders
               ? stk_mix_reader_init(&reader->reader, &reader->mix, schedule->orders, error)
               : 0;
}

void stk_schedule_reader_deinit(struct stk_schedule_reader *reader)
{
    stk_mix_reader_deinit(&reader->reader);
    stk_stages_reader_deinit(&reader->stages);
    *reader = (struct stk_schedule_reader){0};
}

int stk_schedule_reader_take(struct stk_schedule_reader *reader, struct stoker_error *error)
{
    return stk_stages_reader_take(&reader->stages, error);
}

/* Another epoch of a mix that ends: other frames. What is kept is of the one before. */
static void turn_to(struct stk_schedule_reader *reader, uint64_t epoch)
{
    const struct stk_schedule *schedule = reader->schedule;

    if (!schedule->is_endless && reader->mix.turn != epoch) {
        reader->mix.key = epoch ? stk_key(schedule->mix.key, epoch) : schedule->mix.key;
        reader->mix.turn = epoch;
        reader->mix.gone = schedule->gone;
        reader->reader.frame_first = UINT64_MAX;
    }
}

static void read_mix(struct stk_schedule_reader *reader, uint64_t epoch, uint64_t first,
                     uint64_t count, uint64_t *samples_out)
{
    const struct stk_schedule *schedule = reader->schedule;
    struct stk_mix_item items[STRIDE];

    turn_to(reader, epoch);
    first += schedule->is_endless ? epoch * schedule->epoch_samples : 0;
    while (count > 0) {
        uint64_t piece = stk_min(count, STRIDE);

        stk_mix_read(&reader->reader, first, piece, items);
        for (uint64_t i = 0; i < piece; i++) {
            *samples_out++ = schedule->firsts[items[i].draw.source] + items[i].sample;
        }
        first += piece;
        count -= piece;
    }
}

void stk_schedule_read(struct stk_schedule_reader *reader, uint64_t epoch, uint64_t first,
                       uint64_t count, uint64_t *samples_out)
{
    const struct stk_schedule *schedule = reader->schedule;
    struct stk_order_epoch *keys = &reader->keys[epoch & 1];

    STK_ASSERT(first <= schedule->epoch_samples && count <= schedule->epoch_samples - first);
    if (schedule->stages.items) {
        stk_stages_read(&reader->stages, epoch * schedule->epoch_samples + first, count,
                        samples_out);
        return;
    }
    if (schedule->orders) {
        read_mix(reader, epoch, first, count, samples_out);
        return;
    }
    if (!keys->order || keys->epoch != epoch) {
        stk_order_begin(keys, &schedule->order, epoch);
    }
    stk_order_samples(keys, first, count, samples_out);
}

uint64_t stk_schedule_fingerprint(struct stk_schedule_reader *reader, uint64_t epoch,
                                  uint64_t first, uint64_t count)
{
    uint64_t samples[STRIDE], sum = 0;

    while (count > 0) {
        uint64_t piece = stk_min(count, STRIDE);

        stk_schedule_read(reader, epoch, first, piece, samples);
        sum += stk_order_fingerprint_of(epoch, first, piece, samples);
        first += piece;
        count -= piece;
    }
    return sum;
}

uint64_t stk_schedule_border(const struct stk_schedule *schedule, uint64_t epoch, uint64_t position)
{
    uint64_t before = schedule->is_endless ? epoch * schedule->epoch_samples : 0;

    return schedule->orders ? stk_mix_border(&schedule->mix, before + position) : before + position;
}

uint64_t stk_schedule_step(struct stk_schedule_reader *reader,
                           const struct stk_partition *partition, uint64_t epoch, uint64_t position)
{
    uint64_t left = (uint64_t)partition->batch_size * partition->world_size, sum = 0;

    while (left > 0) {
        uint64_t count = stk_min(left, partition->sample_count - position);

        sum += stk_schedule_fingerprint(reader, epoch, position, count);
        left = partition->tail == STOKER_TAIL_WRAP ? left - count : 0; /* what pads is a repeat */
        position = 0;
        epoch++;
    }
    return sum;
}

void stk_schedule_peers(const struct stk_schedule *schedule, uint64_t sample, uint64_t *first_out,
                        uint64_t *count_out)
{
    uint32_t source = 0, count = schedule->mix.source_count;

    *first_out = 0;
    *count_out = schedule->order.options.sample_count;
    if (!schedule->orders) {
        return;
    }
    while (count > 1) { /* the last source that begins at the sample or before */
        uint32_t half = count / 2;

        source += schedule->firsts[source + half] <= sample ? half : 0;
        count -= half;
    }
    *first_out = schedule->firsts[source];
    *count_out = schedule->orders[source].options.sample_count;
}

uint64_t stk_schedule_other(const struct stk_schedule *schedule, uint64_t epoch, uint64_t position,
                            uint64_t sample, uint64_t random)
{
    uint64_t first, count, other;

    if (schedule->stages.items) {
        other =
            stk_stages_other(&schedule->stages, epoch * schedule->epoch_samples + position, random);
        return other == STK_DAMAGED ? sample : other;
    }
    stk_schedule_peers(schedule, sample, &first, &count);
    return first + random % count;
}
