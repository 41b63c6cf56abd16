/* Selected samples: finds the stage, the pass, the position in it, and the sample. */
#include "order/sampling/curriculum.h"

#include "base/mem.h"
#include "base/options.h"
#include "base/random.h"

#include <errno.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

static int init_stage(struct stk_curriculum *stages, const struct stk_curriculum_options *options,
                      uint32_t number, struct stoker_error *error);

static int copy_ends(struct stk_curriculum *stages, const struct stk_curriculum_options *options,
                     struct stoker_error *error)
{
    uint64_t end = 0;
    bool is_rising = true;

    for (uint32_t i = 0; i < options->shard_count; i++) {
        is_rising = is_rising && options->ends[i] >= end;
        stages->ends[i] = end = options->ends[i];
    }
    if (!is_rising || end != options->order.sample_count) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a two-level shuffle needs shards",
                        "give the end of the samples of each shard in ascending order",
                        "%u shards of %llu samples", options->shard_count,
                        (unsigned long long)options->order.sample_count);
    }
    return 0;
}

int stk_curriculum_init(struct stk_curriculum *stages, const struct stk_curriculum_options *options,
                        struct stoker_error *error)
{
    uint64_t largest = 0;
    int status = 0;

    *stages = (struct stk_curriculum){.seed = options->order.seed,
                                      .stage_count = options->stage_count,
                                      .times = options->times ? options->times : 1,
                                      .spacing = options->spacing ? options->spacing : 1};
    if (options->stage_count == 0 || options->stage_count > STK_CURRICULUM_STAGES_MAX ||
        stages->times > 1u << 16 || stages->spacing > 1u << 24) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "stages or repeats are out of bounds",
                        "give 1 to 256 stages, and at most 65,536 repeats, 2^24 apart",
                        "%u stages, %u repeats %u apart", options->stage_count, stages->times,
                        stages->spacing);
    }
    stages->items = stk_alloc(options->stage_count, sizeof *stages->items);
    status = stages->items ? 0 : stk_fail_memory(error, "stages of a run");
    if (status == 0 && options->order.shuffle == STOKER_SHUFFLE_TWO_LEVEL) {
        stages->ends = stk_alloc(stk_max(options->shard_count, 1), sizeof *stages->ends);
        status = stages->ends ? 0 : stk_fail_memory(error, "stages of a run");
        stages->shard_count = options->shard_count;
        status = status < 0 ? status : copy_ends(stages, options, error);
    }
    for (uint32_t i = 0; status == 0 && i < options->stage_count; i++) {
        status = init_stage(stages, options, i, error);
        largest = status == 0 ? stk_max(largest, stages->items[i].count) : 0;
    }
    if (status < 0) {
        stk_curriculum_deinit(stages);
        return status;
    }
    stages->epoch_samples =
        options->epoch_samples ? options->epoch_samples : largest * stages->times;
    return 0;
}

void stk_curriculum_deinit(struct stk_curriculum *stages)
{
    stk_free(stages->items);
    stk_free(stages->ends);
    *stages = (struct stk_curriculum){0};
}

int stk_curriculum_resolve(struct stk_curriculum_options *options_out,
                           struct stk_curriculum_stage *stages_out,
                           const struct stoker_sampling_options *given, uint64_t sample_count,
                           struct stoker_error *error)
{
    struct stoker_sampling_options own;
    int status;

    *options_out = (struct stk_curriculum_options){.stages = stages_out, .stage_count = 1};
    stages_out[0] = (struct stk_curriculum_stage){0};
    if (!given) {
        return 0;
    }
    status = stk_options_read(&own, sizeof own, sizeof own.struct_size, given, "sampling options",
                              error);
    if (status < 0) {
        return status;
    }
    if (own.stage_count > STK_CURRICULUM_STAGES_MAX || (own.stage_count > 0 && !own.stages)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many stages", "give at most 256",
                        "%zu stages", own.stage_count);
    }
    for (size_t i = 0; i < own.stage_count; i++) {
        const struct stk_sampling_source *chooser = (const void *)own.stages[i].sampler;

        stages_out[i] = (struct stk_curriculum_stage){.first = own.stages[i].position};
        if (chooser && (!chooser->is_made || chooser->sample_count != sample_count)) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "a sampler is not usable here",
                            "make it with stoker_sampler_next, of the same data set", "stage %zu",
                            i);
        }
        stages_out[i].rule = chooser ? chooser->rule : stages_out[i].rule;
    }
    options_out->stage_count = own.stage_count ? (uint32_t)own.stage_count : 1;
    options_out->times = own.repeats;
    options_out->spacing = own.repeat_distance;
    options_out->epoch_samples = own.epoch_samples;
    return 0;
}

bool stk_sampling_rule_is_random(const struct stk_sampling_rule *rule)
{
    return rule->alias || rule->classes || rule->replacement;
}

uint64_t stk_sampling_rule_key(const struct stk_sampling_rule *rule, uint64_t seed)
{
    return stk_draw_key(seed, rule->alias     ? STK_DRAW_USE_ALIAS
                              : rule->classes ? STK_DRAW_USE_CLASSES
                                              : STK_DRAW_USE_UNIFORM);
}

uint64_t stk_sampling_rule_draw(const struct stk_sampling_rule *rule, uint64_t count, uint64_t key,
                                uint64_t number)
{
    if (rule->alias) {
        return stk_alias_table_draw(rule->alias, key, number);
    }
    if (rule->classes) {
        return stk_class_balance_draw(rule->classes, key, number);
    }
    return (uint64_t)((wide)stk_random_key(key, number) * count >> 64);
}

const struct stk_mapped_table *stk_sampling_rule_table(const struct stk_sampling_rule *rule)
{
    return rule->alias ? &rule->alias->mapped : &rule->classes->mapped;
}

static int init_stage(struct stk_curriculum *stages, const struct stk_curriculum_options *options,
                      uint32_t number, struct stoker_error *error)
{
    const struct stk_curriculum_stage *stage = &options->stages[number];
    struct stk_curriculum_item *item = &stages->items[number];
    struct stk_order_options order = options->order;
    uint64_t before = number ? options->stages[number - 1].first : 0;

    if ((number == 0) != (stage->first == 0) || (number && stage->first <= before) ||
        stage->first > STK_CURRICULUM_POSITIONS_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the stages of a run are out of sequence",
                        "begin the first at 0, and each at a position behind the one before it",
                        "stage %u at %llu", number, (unsigned long long)stage->first);
    }
    *item = (struct stk_curriculum_item){.first = stage->first, .rule = stage->rule};
    item->count = stage->rule.subset ? stage->rule.subset->count : order.sample_count;
    if (item->count == 0) {
        return stk_fail(error, STOKER_ERROR_EMPTY, "no sample is chosen",
                        "change the subset: 'stoker sample' counts the samples", "stage %u",
                        number);
    }
    if (item->count > STK_CURRICULUM_POSITIONS_MAX / stages->times) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many samples for so many repeats",
                        "repeat them less often", "stage %u, %u times", number, stages->times);
    }
    /* The first stage uses the order of a run without stages. All stages have different orders. */
    order.seed = number ? stk_random_key(order.seed, ~(uint64_t)number) : order.seed;
    order.sample_count = item->count;
    item->key = stk_sampling_rule_key(&stage->rule, order.seed);
    if (stk_sampling_rule_is_random(&stage->rule) || order.shuffle == STOKER_SHUFFLE_TWO_LEVEL) {
        item->order.options.seed = order.seed;
        return 0;
    }
    return stk_order_init(&item->order, &order, error);
}

/* ---- draws ---- */

static uint64_t draw(const struct stk_curriculum_item *item, uint64_t key, uint64_t number)
{
    return stk_sampling_rule_draw(&item->rule, item->count, key, number);
}

/* Returns the stage that is active at a run position. */
static const struct stk_curriculum_item *item_at(const struct stk_curriculum *stages,
                                                 uint64_t position)
{
    uint32_t low = 0, count = stages->stage_count;

    while (count > 1) { /* search the last one that begins at or before the position */
        uint32_t half = count / 2;

        low += stages->items[low + half].first <= position ? half : 0;
        count -= half;
    }
    return &stages->items[low];
}

uint64_t stk_curriculum_substitute(const struct stk_curriculum *stages, uint64_t position,
                                   uint64_t random)
{
    const struct stk_curriculum_item *item = item_at(stages, position);
    /* Of classes too: any draw of any frame. */
    uint64_t k = draw(item, random, random % item->count);

    return k == STK_MAPPED_TABLE_DAMAGED || !item->rule.subset
               ? k
               : stk_subset_select(item->rule.subset, k);
}

/* ---- reading ---- */

int stk_curriculum_reader_init(struct stk_curriculum_reader *reader,
                               const struct stk_curriculum *stages, struct stoker_error *error)
{
    *reader = (struct stk_curriculum_reader){.stages = stages};
    if (stages->ends) {
        reader->counts = stk_alloc(stk_max(stages->shard_count, 1), sizeof *reader->counts);
        return reader->counts ? 0 : stk_fail_memory(error, "stages of a run");
    }
    return 0;
}

void stk_curriculum_reader_deinit(struct stk_curriculum_reader *reader)
{
    stk_two_level_deinit(&reader->passes[0].shards);
    stk_two_level_deinit(&reader->passes[1].shards);
    stk_free(reader->counts);
    *reader = (struct stk_curriculum_reader){0};
}

int stk_curriculum_reader_error(struct stk_curriculum_reader *reader, struct stoker_error *error)
{
    int status = reader->status;

    if (status == -ENOMEM) {
        stk_fail_memory(error, "stages of a run");
    } else if (status < 0) {
        status = reader->faulty->fail(reader->faulty->context, error);
    }
    reader->status = 0;
    reader->faulty = NULL;
    return status;
}

static void fault(struct stk_curriculum_reader *reader, const struct stk_mapped_table *mapped)
{
    reader->status = STOKER_ERROR_CORRUPT;
    reader->faulty = mapped;
}

/* Counts the selected samples of each shard: the difference of the ranks of its two ends. */
static bool count_shards(struct stk_curriculum_reader *reader,
                         const struct stk_curriculum_item *item)
{
    const struct stk_curriculum *stages = reader->stages;
    const struct stk_subset *subset = item->rule.subset;
    uint64_t before = 0;

    for (uint32_t i = 0; i < stages->shard_count; i++) {
        uint64_t rank = subset ? stk_subset_rank(subset, stages->ends[i]) : stages->ends[i];

        if (rank == STK_MAPPED_TABLE_DAMAGED || rank < before) {
            fault(reader, &subset->mapped);
            return false;
        }
        reader->counts[i] = rank - before;
        before = rank;
    }
    if (before != item->count) {
        fault(reader, &subset->mapped);
    }
    return before == item->count;
}

static bool begin_shards(struct stk_curriculum_reader *reader, struct stk_curriculum_pass *pass,
                         const struct stk_curriculum_item *item, uint64_t number)
{
    if (pass->item != item) {
        stk_two_level_deinit(&pass->shards);
        pass->item = NULL;
        if (!count_shards(reader, item)) {
            return false;
        }
        if (stk_two_level_init(&pass->shards, reader->counts, reader->stages->shard_count,
                               item->order.options.seed, NULL) < 0) {
            reader->status = -ENOMEM;
            return false;
        }
    }
    stk_two_level_begin(&pass->shards, number);
    return true;
}

/* Begins the pass of a stage. Returns NULL on failure. */
static const struct stk_curriculum_pass *pass_of(struct stk_curriculum_reader *reader,
                                                 const struct stk_curriculum_item *item,
                                                 uint64_t number)
{
    struct stk_curriculum_pass *pass = &reader->passes[number & 1];

    if (pass->item == item && pass->number == number) {
        return pass;
    }
    if (!reader->stages->ends) {
        stk_order_epoch_begin(&pass->keys, &item->order, number);
    } else if (!begin_shards(reader, pass, item, number)) {
        return NULL;
    }
    pass->item = item;
    pass->number = number;
    return pass;
}

static uint64_t order_at(const struct stk_curriculum *stages,
                         const struct stk_curriculum_pass *pass, uint64_t position)
{
    return stages->ends ? stk_two_level_sample(&pass->shards, position)
                        : stk_order_sample(&pass->keys, position);
}

/* Up to `count` numbers of the choice from a place in the stage on, within a pass; how many.
 */
static uint64_t read_pass(struct stk_curriculum_reader *reader,
                          const struct stk_curriculum_item *item, uint64_t place, uint64_t count,
                          uint64_t *out)
{
    const struct stk_curriculum *stages = reader->stages;
    struct stk_repeats repeats = {item->count, stages->times, stages->spacing};
    uint64_t size = item->count * stages->times, at = place % size;
    const struct stk_curriculum_pass *pass = pass_of(reader, item, place / size);

    count = stk_min(count, size - at);
    if (pass && stages->times == 1 && !stages->ends) {
        stk_order_samples(&pass->keys, at, count, out);
        return count;
    }
    for (uint64_t i = 0; i < count; i++) {
        out[i] = pass ? order_at(stages, pass, stk_repeats_position(&repeats, at + i)) : 0;
    }
    return count;
}

/* Draws have no passes: they repeat without end. */
static uint64_t read_draws(struct stk_curriculum_reader *reader,
                           const struct stk_curriculum_item *item, uint64_t place, uint64_t count,
                           uint64_t *out)
{
    const struct stk_curriculum *stages = reader->stages;
    struct stk_repeats repeats = {STK_CURRICULUM_POSITIONS_MAX, stages->times, stages->spacing};

    for (uint64_t i = 0; i < count; i++) {
        out[i] = draw(item, item->key, stk_repeats_position(&repeats, place + i));
        if (out[i] == STK_MAPPED_TABLE_DAMAGED) {
            out[i] = 0;
            fault(reader, stk_sampling_rule_table(&item->rule));
        }
    }
    return count;
}

void stk_curriculum_read(struct stk_curriculum_reader *reader, uint64_t first, uint64_t count,
                         uint64_t *samples_out)
{
    const struct stk_curriculum *stages = reader->stages;

    while (count > 0) {
        const struct stk_curriculum_item *item = item_at(stages, first);
        const struct stk_curriculum_item *end = stages->items + stages->stage_count;
        uint64_t place = first - item->first;
        uint64_t got = item + 1 < end ? stk_min(count, item[1].first - first) : count;

        got = stk_sampling_rule_is_random(&item->rule)
                  ? read_draws(reader, item, place, got, samples_out)
                  : read_pass(reader, item, place, got, samples_out);
        for (uint64_t i = 0; item->rule.subset && i < got; i++) {
            samples_out[i] = stk_subset_select(item->rule.subset, samples_out[i]);
            if (samples_out[i] == STK_MAPPED_TABLE_DAMAGED) {
                samples_out[i] = 0;
                fault(reader, &item->rule.subset->mapped);
            }
        }
        samples_out += got;
        first += got;
        count -= got;
    }
}
