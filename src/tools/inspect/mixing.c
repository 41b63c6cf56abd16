/* Measures an order, a full permutation and larger windows with the labels of a data set. */
#include "base/mem.h"
#include "base/options.h"
#include "dataset/dataset.h"
#include "order/analysis/order_object.h"
#include "order/schedule/order_default.h"

#include <stdio.h>
#include <string.h>

#define STEPS_DEFAULT 200u
#define STEPS_READ 40u                 /* if each label is read from a shard */
#define CACHED_MAX (UINT64_C(1) << 26) /* labels that are read once */
#define UNUSABLE INT64_MIN             /* no label: hashes are not negative */
#define GOOD_SHARE 0.95                /* of the classes of a full permutation */

struct labels {
    struct stoker_dataset *dataset;
    const int64_t *given;
    int64_t *cached; /* owned; NULL: each label is read when it is needed */
    uint8_t *known;  /* owned: of each cached one */
    uint64_t count;
    uint64_t unusable; /* samples whose label is too long; more if labels are read again */
    struct stoker_error error;
};

static int label_of(void *context, uint64_t sample, int64_t *label_out)
{
    struct labels *labels = context;
    int status;

    if (labels->given) {
        *label_out = labels->given[sample];
        return 0;
    }
    if (labels->cached && labels->known[sample]) {
        *label_out = labels->cached[sample];
        return 0;
    }
    status = stoker_dataset_label(labels->dataset, sample, label_out, &labels->error);
    if (status == STOKER_ERROR_LIMIT) { /* all of them count as one class */
        labels->unusable++;
        *label_out = UNUSABLE;
        status = 0;
    }
    if (status == 0 && labels->cached) {
        labels->cached[sample] = *label_out;
        labels->known[sample] = 1;
    }
    return status;
}

static int measure(struct labels *labels, const struct stoker_order_options *options,
                   uint64_t steps_max, struct stoker_order_mixing *result,
                   struct stoker_error *error)
{
    struct stoker_order_mixing_options how = {
        .struct_size = sizeof how, .label_of = label_of, .context = labels, .steps_max = steps_max};
    struct stoker_order *order = NULL;
    int status = stoker_order_open(&order, options, error);

    *result = (struct stoker_order_mixing){.struct_size = sizeof *result};
    status = status < 0 ? status : stoker_order_mixing(order, &how, result, error);
    if (status < 0 && labels->error.status < 0 && error) {
        *error = labels->error; /* says more */
    }
    stoker_order_close(order);
    return status;
}

/* Bytes of so many blocks; 0: unknown. */
static uint64_t bytes_of(const struct labels *labels, uint64_t samples)
{
    const struct stk_index *index = labels->dataset ? labels->dataset->index : NULL;
    uint64_t count = index ? stk_index_samples(index) : 0;

    return count == 0 || stk_index_is_folder(index)
               ? 0
               : (uint64_t)((double)stk_index_bytes(index) / (double)count * (double)samples);
}

/* Looks for a window that mixes well. */
static int find_window(struct labels *labels, const struct stoker_order_options *given,
                       uint64_t steps_max, struct stoker_mixing *mixing, struct stoker_error *error)
{
    struct stoker_order_options options = *given;
    uint64_t blocks = given->sample_count / stk_max(given->block_samples, 1);
    double good = GOOD_SHARE * mixing->full_batch_classes;
    struct stoker_order_mixing found;
    int status = 0;

    for (uint64_t window = 2 * (uint64_t)given->window_blocks;
         mixing->better_window == 0 && status == 0 && window < 2 * blocks && window <= UINT32_MAX;
         window *= 2) {
        options.window_blocks = (uint32_t)stk_min(window, stk_max(blocks, 1));
        status = measure(labels, &options, steps_max, &found, error);
        if (status == 0 && found.batch_classes >= good) {
            mixing->better_window = options.window_blocks;
            mixing->better_batch_classes = found.batch_classes;
            mixing->better_bytes =
                bytes_of(labels, options.window_blocks * stk_max(given->block_samples, 1));
        }
    }
    return status;
}

/* Samples whose label was not read. */
static void note_unusable(const struct labels *labels, struct stoker_mixing *mixing)
{
    size_t used = strlen(mixing->note);

    if (labels->unusable > 0 && labels->cached) {
        snprintf(mixing->note + used, sizeof mixing->note - used,
                 "; %llu %s no usable label (cls too long), counted as one class",
                 (unsigned long long)labels->unusable,
                 labels->unusable == 1 ? "sample has" : "samples have");
    } else if (labels->unusable > 0) {
        snprintf(mixing->note + used, sizeof mixing->note - used,
                 "; some samples have no usable label (cls too long), counted as one class");
    }
}

static void write_note(struct stoker_mixing *mixing)
{
    int wrote = snprintf(mixing->note, sizeof mixing->note,
                         "%.0f classes per batch; a full shuffle gives %.0f", mixing->batch_classes,
                         mixing->full_batch_classes);
    size_t used = wrote < 0 ? 0 : stk_min((uint64_t)wrote, sizeof mixing->note - 1);

    if (mixing->better_window == 0) {
        return;
    }
    wrote = snprintf(mixing->note + used, sizeof mixing->note - used, "; window=%u gives %.0f",
                     mixing->better_window, mixing->better_batch_classes);
    used += wrote < 0 ? 0 : stk_min((uint64_t)wrote, sizeof mixing->note - used - 1);
    if (mixing->better_bytes > 0) {
        bool is_large = mixing->better_bytes >= 1000000000u;

        snprintf(mixing->note + used, sizeof mixing->note - used, " for %.2g %s",
                 (double)mixing->better_bytes / (is_large ? 1e9 : 1e6), is_large ? "GB" : "MB");
    }
}

static int measure_all(struct labels *labels, const struct stoker_order_options *order,
                       uint64_t steps_max, struct stoker_mixing *mixing, struct stoker_error *error)
{
    struct stoker_order_options full_options = *order;
    struct stoker_order_mixing own, full;
    bool is_block = order->shuffle == STOKER_SHUFFLE_BLOCK;
    int status = measure(labels, order, steps_max, &own, error);

    full_options.shuffle = STOKER_SHUFFLE_FULL;
    full_options.group_count = 1;
    if (order->shuffle == STOKER_SHUFFLE_FULL) {
        full_options.seed++; /* else it would be the same order */
    }
    status = status < 0 ? status : measure(labels, &full_options, steps_max, &full, error);
    if (status < 0) {
        return status;
    }
    *mixing = (struct stoker_mixing){
        .steps = own.steps,
        .samples = own.samples,
        .classes = stk_max(own.classes, full.classes),
        .batch_classes = own.batch_classes,
        .full_batch_classes = full.batch_classes,
        .batch_classes_min = own.batch_classes_min,
        .full_batch_classes_min = full.batch_classes_min,
        .batch_share_max = own.batch_share_max,
        .full_batch_share_max = full.batch_share_max,
        .run_max = own.run_max,
        .full_run_max = full.run_max,
        .stretch_classes_min = own.stretch_classes_min,
        .full_stretch_classes_min = full.stretch_classes_min,
        .chi_square = own.chi_square,
        .full_chi_square = full.chi_square,
    };
    if (is_block && own.batch_classes < GOOD_SHARE * full.batch_classes) {
        status = find_window(labels, order, steps_max, mixing, error);
    }
    write_note(mixing);
    note_unusable(labels, mixing);
    if (status == 0 && labels->unusable > 0 && mixing->classes <= 1) {
        return stk_fail(error, STOKER_ERROR_MISSING, "the samples have no usable labels",
                        "pass labels, or write shorter members cls", "mixing of %llu samples",
                        (unsigned long long)mixing->samples);
    }
    return status;
}

/* The settings that the caller left out. */
static int complete(struct stoker_order_options *order, const struct stoker_mixing_options *options,
                    struct stoker_error *error)
{
    int status = stk_options_read(order, sizeof *order, sizeof order->struct_size, options->order,
                                  "order options", error);

    if (status < 0) {
        return status;
    }
    order->struct_size = sizeof *order;
    order->shuffle = order->shuffle ? order->shuffle : STOKER_SHUFFLE_BLOCK;
    order->window_blocks = order->window_blocks ? order->window_blocks : STK_ORDER_WINDOW_DEFAULT;
    if (!options->labels &&
        (!options->dataset || stk_index_samples(options->dataset->index) != order->sample_count)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the order has no labels",
                        "set labels, or the data set of all samples of the order",
                        "%llu samples of the order", (unsigned long long)order->sample_count);
    }
    return 0;
}

/* Writes a note if an epoch has samples, but no full step, and its tail drops them. */
static int note_no_step(const struct stoker_order_options *options, struct stoker_mixing *mixing,
                        struct stoker_error *error)
{
    uint64_t size = (uint64_t)options->batch_size * stk_max(options->world_size, 1);
    struct stoker_order *order = NULL;
    int status = stoker_order_open(&order, options, error);

    if (status == 0 && stoker_order_samples(order) > 0 && stoker_order_steps(order, 0) == 0) {
        snprintf(mixing->note, sizeof mixing->note,
                 "an epoch has 0 full steps of %llu samples: use a smaller batch, or the tail keep",
                 (unsigned long long)size);
    }
    stoker_order_close(order);
    return status;
}

int stoker_mixing_measure(const struct stoker_mixing_options *given,
                          struct stoker_mixing *mixing_out, struct stoker_error *error)
{
    struct stoker_mixing_options options;
    struct stoker_order_options order;
    struct stoker_mixing mixing = {0};
    struct labels labels = {0};
    int status =
        stk_options_read(&options, sizeof options, offsetof(struct stoker_mixing_options, labels),
                         given, "mixing options", error);

    status = status < 0 ? status
                        : stk_options_check_output(mixing_out, sizeof mixing,
                                                   sizeof mixing.struct_size, "mixing", error);
    status = status < 0 ? status : complete(&order, &options, error);
    if (status < 0) {
        return status;
    }
    status = note_no_step(&order, &mixing, error);
    if (status < 0) {
        return status;
    }
    if (mixing.note[0]) {
        return stk_options_write_output(mixing_out, &mixing, sizeof mixing, "mixing", error);
    }
    labels.dataset = options.dataset;
    labels.given = options.labels;
    labels.count = order.sample_count;
    if (!labels.given && labels.count <= CACHED_MAX) { /* without memory, labels are read again */
        labels.cached = stk_alloc(labels.count, sizeof *labels.cached);
        labels.known = stk_alloc(labels.count, sizeof *labels.known);
        if (!labels.known) {
            stk_free(labels.cached);
            labels.cached = NULL;
        }
    }
    if (!options.steps_max) {
        bool is_read = !labels.given && !stk_index_is_folder(labels.dataset->index);

        options.steps_max = is_read ? STEPS_READ : STEPS_DEFAULT;
    }
    status = measure_all(&labels, &order, options.steps_max, &mixing, error);
    stk_free(labels.cached);
    stk_free(labels.known);
    return status < 0
               ? status
               : stk_options_write_output(mixing_out, &mixing, sizeof mixing, "mixing", error);
}
