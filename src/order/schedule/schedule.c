/* One interface for the loader: the sample at a position, for orders, mixes and stages. */
#include "order/schedule/schedule.h"

#include "base/mem.h"
#include "base/options.h"
#include "base/random.h"

#include <string.h>

#define STRIDE 256u
#define IDENTITY_KEY UINT64_C(0x6d69782d69642031) /* "mix-id 1" */
#define STAGES_KEY UINT64_C(0x7374616765732031)   /* "stages 1" */

static int init_stages(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                       struct stoker_error *error);
static int init_sources(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                        struct stoker_error *error);
static int init_rules(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                      struct stoker_error *error);
static uint64_t identity_of(const struct stk_schedule *schedule,
                            const struct stk_schedule_options *options);
static void begin_epoch(struct stk_schedule_reader *reader, uint64_t epoch);

/* The caller's mix as the room has it. */
struct request {
    struct stoker_mix_options given;
    struct stk_mix_options mix;
    struct stk_mix_source sources[STK_MIX_SOURCES_MAX];
    struct stk_mix_change changes[STK_MIX_CHANGES_MAX];
    struct stk_sampling_rule choices[STK_MIX_SOURCES_MAX];
    bool has_choices;
};

/* The samples that the caller's sampler of a source selects out of `count` samples. */
static int resolve_rule(struct request *request, uint32_t source, uint64_t count,
                        struct stoker_error *error)
{
    const struct stk_sampling_source *chooser = (const void *)request->given.samplers[source];
    struct stk_sampling_rule *rule = &request->choices[source];

    if (!chooser) {
        return 0;
    }
    if (!chooser->is_made || chooser->sample_count != count) {
        return stk_fail(
            error, STOKER_ERROR_ARGUMENT, "the sampler of a source belongs to other samples",
            "open it on a data set of that source alone, and complete it with stoker_sampler_next",
            "source %u of %llu samples, sampler of %llu", source, (unsigned long long)count,
            (unsigned long long)chooser->sample_count);
    }
    *rule = chooser->rule;
    request->has_choices = true;
    request->sources[source].sample_count = rule->subset ? rule->subset->count : count;
    return 0;
}

static int resolve(struct request *request, const struct stoker_mix_options *given, uint64_t seed,
                   struct stoker_error *error)
{
    struct stoker_mix_options *own = &request->given;
    bool is_sound = true;
    int status =
        stk_options_read(own, sizeof *own, offsetof(struct stoker_mix_options, unit_samples), given,
                         "mix options", error);

    if (status < 0) {
        return status;
    }
    is_sound = own->ends && own->weights && own->source_count > 0 &&
               own->source_count <= STK_MIX_SOURCES_MAX &&
               own->change_count <= STK_MIX_CHANGES_MAX &&
               (own->change_count == 0 || own->changes) && own->end <= STOKER_MIX_RENORMALISE;
    for (size_t i = 0; is_sound && i < own->change_count; i++) {
        request->changes[i] =
            (struct stk_mix_change){own->changes[i].position, own->changes[i].weights};
        is_sound = own->changes[i].weights != NULL;
    }
    if (!is_sound) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a mix is not usable",
                        "give 1 to 256 sources their ends and weights, and at most 4096 changes",
                        "mix of %u sources", own->source_count);
    }
    for (uint32_t i = 0; i < own->source_count; i++) {
        uint64_t first = i ? own->ends[i - 1] : 0;
        uint64_t count = own->ends[i] > first ? own->ends[i] - first : 0;

        request->sources[i].sample_count = count;
        status = own->samplers ? resolve_rule(request, i, count, error) : 0;
        if (status < 0) {
            return status;
        }
        request->sources[i].sample_limit =
            own->limits ? own->limits[i] : request->sources[i].sample_count;
    }
    request->mix = (struct stk_mix_options){.seed = seed,
                                            .sources = request->sources,
                                            .weights = own->weights,
                                            .changes = request->changes,
                                            .source_count = own->source_count,
                                            .change_count = (uint32_t)own->change_count,
                                            .end = own->end ? own->end - STOKER_MIX_REPEAT : 0,
                                            .unit_samples = own->unit_samples};
    return 0;
}

static int open_mix(struct stk_schedule *schedule, const struct stk_order_options *order,
                    const struct stoker_mix_options *mix, struct stoker_error *error)
{
    struct stk_schedule_options options = {.order = *order};
    struct request *request = stk_alloc(1, sizeof *request);
    int status;

    if (!request) {
        return stk_fail_memory(error, "mix, %u sources", mix->source_count);
    }
    status = resolve(request, mix, order->seed, error);
    if (status == 0) {
        options.mix = &request->mix;
        options.ends = request->given.ends;
        options.epoch_samples = request->given.epoch_samples;
        options.rules = request->has_choices ? request->choices : NULL;
        status = stk_schedule_init(schedule, &options, error);
    }
    stk_free(request);
    return status;
}

static int open_stages(struct stk_schedule *schedule, const struct stk_order_options *order,
                       const struct stk_schedule_request *request, struct stoker_error *error)
{
    struct stk_curriculum_stage *stages = stk_alloc(STK_CURRICULUM_STAGES_MAX, sizeof *stages);
    struct stk_curriculum_options draw_sample;
    struct stk_schedule_options options = {.order = *order, .stages = &draw_sample};
    int status;

    if (!stages || request->shard_count > UINT32_MAX) {
        stk_free(stages);
        return stk_fail_memory(error, "stages of a run, %llu shards",
                               (unsigned long long)request->shard_count);
    }
    status =
        stk_curriculum_resolve(&draw_sample, stages, request->sampling, order->sample_count, error);
    if (status == 0) {
        draw_sample.ends = request->shard_ends;
        draw_sample.shard_count = (uint32_t)request->shard_count;
        status = stk_schedule_init(schedule, &options, error);
    }
    stk_free(stages);
    return status;
}

int stk_schedule_open(struct stk_schedule *schedule, const struct stk_order_options *order,
                      const struct stk_schedule_request *request, struct stoker_error *error)
{
    *schedule = (struct stk_schedule){0};
    if (request->mix && (request->sampling || order->shuffle == STOKER_SHUFFLE_TWO_LEVEL)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT,
                        "a mix cannot be combined with sampling or a two-level shuffle",
                        "remove the mix, or the sampling and the two-level shuffle", "sampling");
    }
    if (request->mix) {
        return open_mix(schedule, order, request->mix, error);
    }
    return request->sampling || order->shuffle == STOKER_SHUFFLE_TWO_LEVEL
               ? open_stages(schedule, order, request, error)
               : stk_schedule_init(schedule, &(struct stk_schedule_options){.order = *order},
                                   error);
}

void stk_schedule_write_state(const struct stk_schedule *schedule, uint64_t given,
                              struct stoker_state *state_out)
{
    state_out->mix = schedule->identity;
    state_out->subset = schedule->subset_identity;
    state_out->draws = schedule->draws_identity;
    state_out->epoch_samples = given;
    state_out->repeats = schedule->stages.times;
    state_out->repeat_distance = schedule->stages.spacing;
}

bool stk_schedule_is_plain(const struct stk_schedule *schedule)
{
    return !schedule->orders && !schedule->stages.items;
}

int stk_schedule_init(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                      struct stoker_error *error)
{
    struct stk_mix_options mix;
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
    mix = *options->mix;
    mix.group_count =
        options->order.shuffle == STOKER_SHUFFLE_BLOCK ? options->order.group_count : 1;
    mix.version = schedule->order.options.version; /* which is set: 1 or 2 */
    schedule->is_endless = mix.end == STK_MIX_REPEAT;
    if (schedule->is_endless) {
        schedule->epoch_samples = stk_mix_epoch_samples(
            options->epoch_samples ? options->epoch_samples : schedule->epoch_samples,
            mix.unit_samples, mix.group_count);
        mix.epoch_samples = schedule->epoch_samples;
    }
    mix.in_sequence = options->order.shuffle == STOKER_SHUFFLE_NONE;
    status = stk_mix_init(&schedule->mix, &mix, error);
    status = status < 0 ? status : init_sources(schedule, options, error);
    if (status == 0 && options->rules) {
        status = init_rules(schedule, options, error);
    }
    if (status < 0) {
        stk_schedule_deinit(schedule);
        return status;
    }
    schedule->epoch_samples = schedule->is_endless ? schedule->epoch_samples : schedule->mix.end;
    schedule->identity = identity_of(schedule, options);
    return 0;
}

void stk_schedule_deinit(struct stk_schedule *schedule)
{
    stk_mix_deinit(&schedule->mix);
    stk_curriculum_deinit(&schedule->stages);
    stk_free(schedule->orders);
    stk_free(schedule->firsts);
    stk_free(schedule->cycle_samples);
    stk_free(schedule->rules);
    stk_free(schedule->draw_keys);
    *schedule = (struct stk_schedule){0};
}

uint64_t stk_schedule_epoch_samples(const struct stk_schedule *schedule)
{
    return schedule->epoch_samples;
}

/* Half of the available positions: a step may continue into the next epochs. */
uint64_t stk_schedule_epoch_max(const struct stk_schedule *schedule)
{
    return schedule->orders || schedule->stages.items
               ? STK_MIX_POSITIONS_MAX / 2 / schedule->epoch_samples
               : STK_SCHEDULE_EPOCH_MAX;
}

/* The complete order is only used to report its settings. */
static int init_stages(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                       struct stoker_error *error)
{
    struct stk_curriculum_options stages = *options->stages;
    struct stk_order_options unshuffled = options->order;
    uint64_t subsets = STAGES_KEY, draws = STAGES_KEY;
    bool has_rule = stages.stage_count > 1, is_drawn = false;
    int status;

    unshuffled.shuffle = STOKER_SHUFFLE_NONE;
    stages.order = options->order;
    if (options->mix) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "stages cannot be combined with a mix",
                        "remove the mix or the stages", "schedule");
    }
    status = stk_order_init(&schedule->order, &unshuffled, error);
    status = status < 0 ? status : stk_curriculum_init(&schedule->stages, &stages, error);
    if (status < 0) {
        stk_schedule_deinit(schedule);
        return status;
    }
    for (uint32_t i = 0; i < stages.stage_count; i++) {
        const struct stk_curriculum_stage *stage = &stages.stages[i];

        subsets =
            stk_random_key(stk_random_key(subsets, stage->first), stage->rule.subset_identity);
        draws = stk_random_key(stk_random_key(draws, stage->first), stage->rule.draws_identity);
        has_rule = has_rule || stage->rule.subset_identity != 0;
        is_drawn = is_drawn || stage->rule.draws_identity != 0;
    }
    schedule->is_endless = true;
    schedule->epoch_samples = schedule->stages.epoch_samples;
    schedule->subset_identity = has_rule ? subsets : 0;
    schedule->draws_identity = is_drawn ? draws : 0;
    return 0;
}

/* All groups share a source that is too small for groups of its own. */
static uint32_t groups_of(const struct stk_order_options *order)
{
    uint64_t least = (uint64_t)order->group_count * STK_ORDER_GROUP_BLOCKS_MIN;

    return order->shuffle == STOKER_SHUFFLE_BLOCK &&
                   order->sample_count / stk_max(order->block_samples, 1) < least
               ? 1
               : order->group_count;
}

/* Returns the samples from which a source selects. */
static uint64_t samples_of(const struct stk_schedule_options *options, uint32_t source)
{
    const struct stk_subset *subset = options->rules ? options->rules[source].subset : NULL;

    return subset ? subset->sample_count : options->mix->sources[source].sample_count;
}

/* Sets the samples that are selected of each source, and their part of the state's identity. */
static int init_rules(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                      struct stoker_error *error)
{
    uint32_t source_count = options->mix->source_count;
    uint64_t subsets = STAGES_KEY, draws = STAGES_KEY;
    bool has_rule = false, is_drawn = false;

    schedule->rules = stk_alloc(source_count, sizeof *schedule->rules);
    schedule->draw_keys = stk_alloc(source_count, sizeof *schedule->draw_keys);
    if (!schedule->rules || !schedule->draw_keys) {
        return stk_fail_memory(error, "mix, %u sources", source_count);
    }
    for (uint32_t i = 0; i < source_count; i++) {
        const struct stk_sampling_rule *rule = &options->rules[i];

        schedule->rules[i] = *rule;
        schedule->draw_keys[i] = stk_sampling_rule_key(rule, schedule->orders[i].options.seed);
        if (rule->subset_identity) { /* a new source of all samples does not change the identity */
            subsets = stk_random_key(stk_random_key(subsets, i), rule->subset_identity);
            has_rule = true;
        }
        if (rule->draws_identity) {
            draws = stk_random_key(stk_random_key(draws, i), rule->draws_identity);
            is_drawn = true;
        }
    }
    schedule->subset_identity = has_rule ? subsets : 0;
    schedule->draws_identity = is_drawn ? draws : 0;
    return 0;
}

static int init_sources(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                        struct stoker_error *error)
{
    uint32_t source_count = options->mix->source_count, grouped = 0;
    uint64_t first = 0;

    schedule->orders = stk_alloc(source_count, sizeof *schedule->orders);
    schedule->firsts = stk_alloc(source_count, sizeof *schedule->firsts);
    schedule->cycle_samples = stk_alloc(source_count, sizeof *schedule->cycle_samples);
    if (!schedule->orders || !schedule->firsts || !schedule->cycle_samples) {
        return stk_fail_memory(error, "mix, %u sources", source_count);
    }
    for (uint32_t i = 0; i < source_count; i++) {
        const struct stk_mix_source *source = &options->mix->sources[i];
        struct stk_order_options order = options->order;
        int status;

        if (options->ends[i] > options->order.sample_count || options->ends[i] < first ||
            options->ends[i] - first != samples_of(options, i)) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT,
                            "the ends of the sources are not in ascending order",
                            "give the end of each source's samples in ascending order",
                            "source %u ends at %llu", i, (unsigned long long)options->ends[i]);
        }
        order.sample_count = source->sample_count;
        order.seed = stk_random_key(options->order.seed, i + 1); /* orders differ */
        order.group_count = groups_of(&order);
        grouped += order.group_count > 1;
        status = stk_order_init(&schedule->orders[i], &order, error);
        if (status < 0) {
            return status;
        }
        schedule->firsts[i] = first;
        schedule->cycle_samples[i] = stk_mix_delivered(&schedule->mix, i);
        first = options->ends[i];
    }
    if (grouped == 0 && schedule->mix.groups.number > 1) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many groups for the sources of a mix",
                        "use fewer groups, or smaller blocks",
                        "group_count %u, and no source has so many times %u blocks",
                        options->order.group_count, STK_ORDER_GROUP_BLOCKS_MIN);
    }
    return 0;
}

static uint64_t identity_of(const struct stk_schedule *schedule,
                            const struct stk_schedule_options *options)
{
    const struct stk_mix_options *mix = options->mix;
    uint64_t key = stk_random_key(IDENTITY_KEY, 1); /* of all versions: a state has its version */

    key = stk_random_key(stk_random_key(key, mix->source_count), mix->end);
    key = stk_random_key(stk_random_key(key, schedule->mix.unit.number), schedule->epoch_samples);
    key = stk_random_key(key, mix->seed);
    for (uint32_t i = 0; i < mix->source_count; i++) {
        key = stk_random_key(stk_random_key(key, mix->sources[i].sample_count),
                             mix->sources[i].sample_limit);
        key = stk_random_key(key, mix->weights[i]);
    }
    for (uint32_t k = 0; k < mix->change_count; k++) {
        key = stk_random_key(key, mix->changes[k].position);
        for (uint32_t i = 0; i < mix->source_count; i++) {
            key = stk_random_key(key, mix->changes[k].weights[i]);
        }
    }
    return key;
}

int stk_schedule_reader_init(struct stk_schedule_reader *reader,
                             const struct stk_schedule *schedule, struct stoker_error *error)
{
    *reader = (struct stk_schedule_reader){.schedule = schedule, .mix = schedule->mix};
    if (schedule->stages.items) {
        return stk_curriculum_reader_init(&reader->stages, &schedule->stages, error);
    }
    return schedule->orders
               ? stk_mix_reader_init(&reader->reader, &reader->mix, schedule->orders, error)
               : 0;
}

void stk_schedule_reader_deinit(struct stk_schedule_reader *reader)
{
    stk_mix_reader_deinit(&reader->reader);
    stk_curriculum_reader_deinit(&reader->stages);
    *reader = (struct stk_schedule_reader){0};
}

int stk_schedule_exchange(struct stk_schedule *schedule, struct stk_schedule_reader *reader,
                          struct stk_schedule *other, struct stoker_error *error)
{
    struct stk_schedule_reader reader_before = *reader;
    struct stk_schedule before = *schedule;
    int status;

    *schedule = *other;
    status = stk_schedule_reader_init(reader, schedule, error);
    if (status < 0) {
        *schedule = before;
        *reader = reader_before;
        return status;
    }
    stk_schedule_reader_deinit(&reader_before);
    *other = before;
    return 0;
}

int stk_schedule_reader_error(struct stk_schedule_reader *reader, struct stoker_error *error)
{
    return stk_curriculum_reader_error(&reader->stages, error);
}

static uint64_t cycle_key(const struct stk_schedule *schedule, uint64_t cycle)
{
    return cycle ? stk_random_key(schedule->mix.key, cycle) : schedule->mix.key;
}

/* Begins another epoch of a mix that ends: it has other frames. The cached data belongs to the
 * epoch before. */
static void begin_epoch(struct stk_schedule_reader *reader, uint64_t epoch)
{
    const struct stk_schedule *schedule = reader->schedule;

    if (!schedule->is_endless && reader->mix.cycle != epoch) {
        reader->mix.key = cycle_key(schedule, epoch);
        reader->mix.cycle = epoch;
        reader->mix.cycle_samples = schedule->cycle_samples;
        reader->reader.frame_first = UINT64_MAX;
    }
}

const struct stk_sampling_rule *stk_schedule_rule(const struct stk_schedule *schedule,
                                                  uint32_t source)
{
    return schedule->rules ? &schedule->rules[source] : NULL;
}

/* Returns the sample of the source for an item: a selected sample, or a draw. If the table is
 * damaged, returns sample 0, and the reader records the error. */
static uint64_t draw_sample(struct stk_schedule_reader *reader, const struct stk_mix_item *item)
{
    const struct stk_schedule *schedule = reader->schedule;
    uint32_t source = item->draw.source;
    const struct stk_sampling_rule *rule = &schedule->rules[source];
    uint64_t count = schedule->orders[source].options.sample_count, sample = item->sample;
    const struct stk_mapped_table *table = rule->subset ? &rule->subset->mapped : NULL;

    if (stk_sampling_rule_is_random(rule)) {
        sample = stk_sampling_rule_draw(rule, count, schedule->draw_keys[source],
                                        item->draw.epoch * count + item->draw.position);
        table = sample == STK_MAPPED_TABLE_DAMAGED ? stk_sampling_rule_table(rule) : table;
    }
    if (rule->subset && sample != STK_MAPPED_TABLE_DAMAGED) {
        sample = stk_subset_select(rule->subset, sample);
    }
    if (sample == STK_MAPPED_TABLE_DAMAGED) {
        reader->stages.status = STOKER_ERROR_CORRUPT;
        reader->stages.faulty = table;
        return 0;
    }
    return sample;
}

static void read_mix(struct stk_schedule_reader *reader, uint64_t epoch, uint64_t first,
                     uint64_t count, uint64_t *samples_out)
{
    const struct stk_schedule *schedule = reader->schedule;
    struct stk_mix_item items[STRIDE];

    begin_epoch(reader, epoch);
    first += schedule->is_endless ? epoch * schedule->epoch_samples : 0;
    while (count > 0) {
        uint64_t piece = stk_min(count, STRIDE);

        stk_mix_read(&reader->reader, first, piece, items);
        for (uint64_t i = 0; i < piece; i++) {
            *samples_out++ = schedule->firsts[items[i].draw.source] +
                             (schedule->rules ? draw_sample(reader, &items[i]) : items[i].sample);
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
        stk_curriculum_read(&reader->stages, epoch * schedule->epoch_samples + first, count,
                            samples_out);
        return;
    }
    if (schedule->orders) {
        read_mix(reader, epoch, first, count, samples_out);
        return;
    }
    if (!keys->order || keys->epoch != epoch) {
        stk_order_epoch_begin(keys, &schedule->order, epoch);
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

uint64_t stk_schedule_change_position(const struct stk_schedule *schedule, uint64_t epoch,
                                      uint64_t position, uint64_t least)
{
    uint64_t given = position + (schedule->is_endless ? epoch * schedule->epoch_samples : 0);

    given = stk_max(given, least);
    return schedule->orders ? stk_mix_change_position(&schedule->mix, given) : given;
}

uint64_t stk_schedule_step_fingerprint(struct stk_schedule_reader *reader,
                                       const struct stk_partition *partition, uint64_t epoch,
                                       uint64_t position)
{
    uint64_t left = (uint64_t)partition->batch_size * partition->world_size, sum = 0;

    while (left > 0) {
        uint64_t count = stk_min(left, partition->sample_count - position);

        sum += stk_schedule_fingerprint(reader, epoch, position, count);
        left = partition->tail == STOKER_TAIL_WRAP ? left - count : 0; /* padding repeats samples */
        position = 0;
        epoch++;
    }
    return sum;
}

/* Returns the source of a sample. */
static uint32_t source_of(const struct stk_schedule *schedule, uint64_t sample)
{
    uint32_t source = 0, count = schedule->mix.source_count;

    while (count > 1) { /* search the last source that begins at or before the sample */
        uint32_t half = count / 2;

        source += schedule->firsts[source + half] <= sample ? half : 0;
        count -= half;
    }
    return source;
}

void stk_schedule_substitute_range(const struct stk_schedule *schedule, uint64_t sample,
                                   uint64_t *first_out, uint64_t *count_out)
{
    uint32_t source;

    *first_out = 0;
    *count_out = schedule->order.options.sample_count;
    if (schedule->orders) {
        source = source_of(schedule, sample);
        *first_out = schedule->firsts[source];
        *count_out = schedule->rules && schedule->rules[source].subset
                         ? schedule->rules[source].subset->sample_count
                         : schedule->orders[source].options.sample_count;
    }
}

/* A sample in the run of its source: it is read there once in each epoch of the source. */
struct copies {
    const struct stk_schedule *schedule;
    uint64_t sample; /* of the source */
    uint32_t source;
};

/* Returns the copy's index among all samples that the source delivers, in the source's epoch. */
static uint64_t index_of(const struct copies *copies, uint64_t epoch)
{
    const struct stk_order *order = &copies->schedule->orders[copies->source];
    struct stk_order_epoch keys;

    stk_order_epoch_begin(&keys, order, epoch);
    return epoch * order->options.sample_count + stk_order_position(&keys, copies->sample);
}

static bool position_of(const struct copies *copies, uint64_t epoch, uint64_t *position_out)
{
    return stk_mix_find(&copies->schedule->mix, copies->source, index_of(copies, epoch),
                        position_out);
}

/* The first epoch of the source whose copy is in a frame that ends after `first`. Frames are in the
 * sequence of the epochs, unless copies in a frame are not. */
static uint64_t first_copy(const struct copies *copies, uint64_t first)
{
    const struct stk_schedule *schedule = copies->schedule;
    uint64_t low = 0, at;
    uint64_t high =
        STK_MIX_POSITIONS_MAX / schedule->orders[copies->source].options.sample_count / 2;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (position_of(copies, middle, &at) &&
            stk_mix_change_position(&schedule->mix, at + 1) <= first) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Epochs are cuts of the run. */
static bool find_in_run(const struct copies *copies, uint64_t first, uint64_t end, uint64_t skip,
                        uint64_t *position_out)
{
    uint64_t border = stk_mix_change_position(&copies->schedule->mix, end), at;

    for (uint64_t epoch = first_copy(copies, first); position_of(copies, epoch, &at); epoch++) {
        if (at >= border) {
            break;
        }
        if (at >= first && at < end && skip-- == 0) {
            *position_out = at - first;
            return true;
        }
    }
    return false;
}

/* Each cycle restarts the mix, and the source continues where it was. */
static bool find_in_cycle(const struct copies *copies, uint64_t cycle, uint64_t skip,
                          uint64_t *position_out)
{
    const struct stk_schedule *schedule = copies->schedule;
    uint64_t count = schedule->orders[copies->source].options.sample_count;
    uint64_t cycle_samples = schedule->cycle_samples[copies->source],
             before = cycle * cycle_samples, index;
    struct stk_mix mix = schedule->mix;

    mix.cycle = cycle;
    mix.cycle_samples = schedule->cycle_samples;
    index = index_of(copies, before / count);
    index = index_of(copies, before / count + (index < before) + skip);
    mix.key = cycle_key(schedule, cycle);
    return index - before < cycle_samples &&
           stk_mix_find(&mix, copies->source, index - before, position_out);
}

/* Draws have no inverse: search the epoch. */
static bool find_by_scan(const struct stk_schedule *schedule, uint64_t epoch, uint64_t sample,
                         uint64_t skip, uint64_t *position_out)
{
    struct stk_schedule_reader reader;
    uint64_t samples[STRIDE], first = 0, end = schedule->epoch_samples;
    bool is_found = false;

    if (epoch > stk_schedule_epoch_max(schedule) ||
        stk_schedule_reader_init(&reader, schedule, NULL) < 0) {
        return false;
    }
    for (; first < end && !is_found; first += STRIDE) {
        uint64_t count = stk_min(STRIDE, end - first);

        stk_schedule_read(&reader, epoch, first, count, samples);
        for (uint64_t i = 0; i < count && !is_found; i++) {
            is_found = samples[i] == sample && skip-- == 0;
            *position_out = first + i;
        }
    }
    return stk_schedule_reader_end(&reader, 0, NULL) == 0 && is_found;
}

bool stk_schedule_find(const struct stk_schedule *schedule, uint64_t epoch, uint64_t sample,
                       uint64_t skip, uint64_t *position_out)
{
    uint64_t first = epoch * schedule->epoch_samples;
    struct copies copies = {schedule, sample, 0};
    const struct stk_sampling_rule *rule;
    struct stk_order_epoch keys;

    if (stk_schedule_is_plain(schedule)) {
        stk_order_epoch_begin(&keys, &schedule->order, epoch);
        *position_out = stk_order_position(&keys, sample);
        return skip == 0;
    }
    if (schedule->stages.items) {
        return find_by_scan(schedule, epoch, sample, skip, position_out);
    }
    copies.source = source_of(schedule, sample);
    copies.sample -= schedule->firsts[copies.source];
    rule = stk_schedule_rule(schedule, copies.source);
    if (rule && stk_sampling_rule_is_random(rule)) {
        return find_by_scan(schedule, epoch, sample, skip, position_out);
    }
    if (rule && rule->subset) {
        if (copies.sample >= rule->subset->sample_count ||
            !stk_subset_has(rule->subset, copies.sample)) {
            return false;
        }
        copies.sample = stk_subset_rank(rule->subset, copies.sample); /* damaged: above all */
    }
    if (copies.sample >= schedule->orders[copies.source].options.sample_count ||
        epoch > stk_schedule_epoch_max(schedule) || skip >= schedule->epoch_samples) {
        return false;
    }
    return schedule->is_endless
               ? find_in_run(&copies, first, first + schedule->epoch_samples, skip, position_out)
               : find_in_cycle(&copies, epoch, skip, position_out);
}

/* Any sample that a source delivers or draws. Returns STK_MAPPED_TABLE_DAMAGED. */
static uint64_t any_of(const struct stk_schedule *schedule, uint32_t source, uint64_t random)
{
    const struct stk_sampling_rule *rule = &schedule->rules[source];
    uint64_t count = schedule->orders[source].options.sample_count, k = random % count;

    if (stk_sampling_rule_is_random(rule)) {
        k = stk_sampling_rule_draw(rule, count, random,
                                   k); /* of classes too: any draw of any frame */
    }
    return k == STK_MAPPED_TABLE_DAMAGED || !rule->subset ? k : stk_subset_select(rule->subset, k);
}

uint64_t stk_schedule_substitute(const struct stk_schedule *schedule, uint64_t epoch,
                                 uint64_t position, uint64_t sample, uint64_t random)
{
    uint64_t first, count, other;

    if (schedule->stages.items) {
        other = stk_curriculum_substitute(&schedule->stages,
                                          epoch * schedule->epoch_samples + position, random);
        return other == STK_MAPPED_TABLE_DAMAGED ? sample : other;
    }
    stk_schedule_substitute_range(schedule, sample, &first, &count);
    if (schedule->rules) {
        other = any_of(schedule, source_of(schedule, sample), random);
        return other == STK_MAPPED_TABLE_DAMAGED ? sample : first + other;
    }
    return first + random % count;
}
