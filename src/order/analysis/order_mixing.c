/* Measures how well an order mixes samples that have labels: classes of a batch, runs of one class,
 * and classes by position. */
#include "order/analysis/order_object.h"

#include "base/mem.h"
#include "base/options.h"
#include "base/random.h"

#include <errno.h>
#include <string.h>

#define STRETCH_STEPS 20u /* consecutive steps that are measured together */
#define PARTS 8u          /* of the epoch, for the chi-square */
#define CLASSES_MAX (UINT32_C(1) << 22)
#define SIZE_MAX_MEASURED (UINT64_C(1) << 26) /* samples of a step */
#define FIRST_CAPACITY 1024u

/* Numbers labels in the order of their first use. */
struct label_table {
    int64_t *labels;   /* owned, as the rest: [capacity] by hash */
    uint32_t *numbers; /* [capacity]: number + 1; 0: no label here */
    uint32_t capacity, count;
};

struct meter {
    const struct stoker_order *order;
    struct stoker_order_mixing_options options;
    struct stk_schedule_reader reader;
    struct label_table table;
    uint64_t *samples; /* [size]: of a step, by position; owned, as the rest */
    uint32_t *classes; /* [size] */
    /* By class, one entry for each class of the table; `seen`: the last batch or run with the
     * class. */
    uint64_t *batch_counts, *batch_seen, *stretch_seen, *part_counts;
    uint64_t size, batch, stretch;
    uint64_t stretch_classes, run, run_class, classes_sum, batches, part_samples[PARTS];
    struct stoker_order_mixing result;
};

static uint32_t slot_of(const struct label_table *table, int64_t label)
{
    uint32_t slot = (uint32_t)stk_mix64((uint64_t)label) & (table->capacity - 1);

    while (table->numbers[slot] && table->labels[slot] != label) {
        slot = (slot + 1) & (table->capacity - 1);
    }
    return slot;
}

/* Doubles the table and the arrays by class. On failure all stay valid. */
static int grow(struct meter *meter)
{
    struct label_table *table = &meter->table, before = *table;
    uint64_t **arrays[4] = {&meter->batch_counts, &meter->batch_seen, &meter->stretch_seen,
                            &meter->part_counts};

    table->capacity = before.capacity ? 2 * before.capacity : FIRST_CAPACITY;
    for (uint32_t i = 0; i < 4; i++) {
        size_t width = sizeof(uint64_t) * (i == 3 ? PARTS : 1);
        uint64_t *array = stk_realloc(*arrays[i], before.capacity, table->capacity, width);

        if (!array) {
            table->capacity = before.capacity;
            return -ENOMEM;
        }
        *arrays[i] = array;
    }
    table->labels = stk_alloc(table->capacity, sizeof *table->labels);
    table->numbers = stk_alloc(table->capacity, sizeof *table->numbers);
    if (!table->labels || !table->numbers) {
        stk_free(table->labels);
        stk_free(table->numbers);
        *table = before;
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < before.capacity; i++) {
        if (before.numbers[i]) {
            uint32_t slot = slot_of(table, before.labels[i]);

            table->labels[slot] = before.labels[i];
            table->numbers[slot] = before.numbers[i];
        }
    }
    stk_free(before.labels);
    stk_free(before.numbers);
    return 0;
}

static int class_of(struct meter *meter, uint64_t sample, uint32_t *class_out)
{
    struct label_table *table = &meter->table;
    int64_t label = 0;
    uint32_t slot;
    int status = meter->options.label_of(meter->options.context, sample, &label);

    if (status == 0 && 2 * table->count >= table->capacity) {
        status = table->count < CLASSES_MAX ? grow(meter) : STOKER_ERROR_LIMIT;
    }
    if (status < 0) {
        return status;
    }
    slot = slot_of(table, label);
    if (!table->numbers[slot]) {
        table->labels[slot] = label;
        table->numbers[slot] = ++table->count;
    }
    *class_out = table->numbers[slot] - 1;
    return 0;
}

/* The batch of one rank in a step that begins at `position`. */
static void measure_batch(struct meter *meter, uint32_t rank, uint64_t position)
{
    struct stk_partition partition = meter->order->partition;
    struct stoker_order_mixing *result = &meter->result;
    uint64_t classes = 0, most = 0, real = 0;
    uint32_t slots;

    partition.rank = rank;
    slots = stk_partition_batch_slots(&partition, meter->options.epoch, position);
    meter->batch++;
    for (uint32_t i = 0; i < slots; i++) {
        struct stk_order_place place;
        uint32_t of;

        stk_partition_place(&partition, meter->options.epoch, position, i, &place);
        if (!place.real || place.epoch != meter->options.epoch || place.position < position ||
            place.position - position >= meter->size) {
            continue; /* padding */
        }
        of = meter->classes[place.position - position];
        real++;
        if (meter->batch_seen[of] != meter->batch) {
            meter->batch_seen[of] = meter->batch;
            meter->batch_counts[of] = 0;
            classes++;
        }
        most = stk_max(most, ++meter->batch_counts[of]);
    }
    if (real > 0) {
        result->batch_classes_min =
            meter->batches ? stk_min(result->batch_classes_min, classes) : classes;
        result->batch_share_max = result->batch_share_max * (double)real > (double)most
                                      ? result->batch_share_max
                                      : (double)most / (double)real;
        meter->classes_sum += classes;
        meter->batches++;
    }
}

/* One step of all ranks, entirely within the epoch. */
static int measure_step(struct meter *meter, uint64_t position)
{
    uint64_t epoch_samples = meter->order->partition.sample_count;
    struct stoker_order_mixing *result = &meter->result;

    stk_schedule_read(&meter->reader, meter->options.epoch, position, meter->size, meter->samples);
    for (uint64_t i = 0; i < meter->size; i++) {
        uint32_t part = (uint32_t)((double)(position + i) * PARTS / (double)epoch_samples), of;
        int status = class_of(meter, meter->samples[i], &of);

        if (status < 0) {
            return status;
        }
        meter->classes[i] = of;
        meter->run = meter->run && meter->run_class == of ? meter->run + 1 : 1;
        meter->run_class = of;
        result->run_max = stk_max(result->run_max, meter->run);
        if (meter->stretch_seen[of] != meter->stretch) {
            meter->stretch_seen[of] = meter->stretch;
            meter->stretch_classes++;
        }
        meter->part_counts[of * PARTS + stk_min(part, PARTS - 1)]++;
        meter->part_samples[stk_min(part, PARTS - 1)]++;
    }
    for (uint32_t rank = 0; rank < meter->order->partition.world_size; rank++) {
        measure_batch(meter, rank, position);
    }
    result->samples += meter->size;
    result->steps++;
    return stk_schedule_reader_error(&meter->reader, NULL);
}

/* Consecutive steps. */
static int measure_stretch(struct meter *meter, uint64_t first, uint64_t count)
{
    struct stoker_order_mixing *result = &meter->result;
    uint64_t least = result->stretch_classes_min;
    int status = 0;

    meter->stretch++;
    meter->stretch_classes = 0;
    for (uint64_t i = 0; i < count && status == 0; i++) {
        status = measure_step(meter, (first + i) * meter->size);
    }
    if (count == STRETCH_STEPS || meter->stretch == 1) {
        result->stretch_classes_min =
            meter->stretch == 1 ? meter->stretch_classes : stk_min(least, meter->stretch_classes);
    }
    return status;
}

static int measure_epoch(struct meter *meter)
{
    uint64_t steps = meter->order->partition.sample_count / meter->size;
    uint64_t most = meter->options.steps_max ? meter->options.steps_max : steps;
    uint64_t stretches = (steps - 1) / STRETCH_STEPS + 1;
    uint64_t measured = stk_min(stretches, stk_max(most / STRETCH_STEPS, 1));
    int status = 0;

    for (uint64_t i = 0; i < measured && status == 0; i++) {
        uint64_t first = i * stretches / measured * STRETCH_STEPS;

        meter->run = measured < stretches ? 0 : meter->run; /* a stretch may not continue another */
        status = measure_stretch(meter, first, stk_min(STRETCH_STEPS, steps - first));
    }
    return status;
}

/* Chi-square of classes by part of the epoch, divided by its degrees of freedom. */
static void finish(struct meter *meter)
{
    struct stoker_order_mixing *result = &meter->result;
    uint32_t parts = 0;

    for (uint32_t k = 0; k < PARTS; k++) {
        parts += meter->part_samples[k] > 0;
    }
    for (uint32_t i = 0; i < meter->table.count; i++) {
        uint64_t of_class = 0;

        for (uint32_t k = 0; k < PARTS; k++) {
            of_class += meter->part_counts[i * PARTS + k];
        }
        for (uint32_t k = 0; k < PARTS; k++) {
            double expected =
                (double)of_class * (double)meter->part_samples[k] / (double)result->samples;
            double off = (double)meter->part_counts[i * PARTS + k] - expected;

            result->chi_square += expected > 0 ? off * off / expected : 0;
        }
    }
    result->classes = meter->table.count;
    result->chi_square /=
        (double)stk_max((result->classes - (result->classes > 0)) * (parts - (parts > 0)), 1);
    result->batch_classes = (double)meter->classes_sum / (double)stk_max(meter->batches, 1);
}

static int measure(struct meter *meter, struct stoker_error *error)
{
    int status = stk_schedule_reader_init(&meter->reader, &meter->order->schedule, error);

    if (status < 0) {
        return status;
    }
    meter->samples = stk_alloc(meter->size, sizeof *meter->samples);
    meter->classes = stk_alloc(meter->size, sizeof *meter->classes);
    status = meter->samples && meter->classes ? measure_epoch(meter) : -ENOMEM;
    if (status == 0) {
        finish(meter);
    }
    stk_schedule_reader_deinit(&meter->reader);
    stk_free(meter->samples);
    stk_free(meter->classes);
    stk_free(meter->batch_counts);
    stk_free(meter->batch_seen);
    stk_free(meter->stretch_seen);
    stk_free(meter->part_counts);
    stk_free(meter->table.labels);
    stk_free(meter->table.numbers);
    return status < 0 ? stk_fail(error, status, "the mixing of labels cannot be measured",
                                 "check the labels, or use fewer than 4,194,304 different ones",
                                 "%llu steps measured", (unsigned long long)meter->result.steps)
                      : 0;
}

int stoker_order_mixing(const struct stoker_order *order,
                        const struct stoker_order_mixing_options *given,
                        struct stoker_order_mixing *mixing_out, struct stoker_error *error)
{
    struct meter meter = {.order = order};
    int status = stk_options_read(&meter.options, sizeof meter.options,
                                  offsetof(struct stoker_order_mixing_options, epoch), given,
                                  "mixing options", error);

    status = status < 0
                 ? status
                 : stk_options_check_output(mixing_out, sizeof meter.result,
                                            sizeof meter.result.struct_size, "mixing", error);
    if (status < 0) {
        return status;
    }
    meter.size = stk_min((uint64_t)order->partition.batch_size * order->partition.world_size,
                         order->partition.sample_count);
    if (!meter.options.label_of || meter.size == 0 || meter.size > SIZE_MAX_MEASURED ||
        meter.options.epoch > stk_schedule_epoch_max(&order->schedule)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "mixing options are not valid",
                        "set label_of; a step has 1 to 67,108,864 samples",
                        "%llu samples of a step, epoch %llu", (unsigned long long)meter.size,
                        (unsigned long long)meter.options.epoch);
    }
    status = measure(&meter, error);
    return status < 0 ? status
                      : stk_options_write_output(mixing_out, &meter.result, sizeof meter.result,
                                                 "mixing", error);
}
