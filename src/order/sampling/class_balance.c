/* Class balance: samples sorted by class (a counting sort, once); a frame of one position a class,
 * in a keyed permutation; the f-th frame takes the f-th sample of each class's own endless order.
 */
#include "order/sampling/sampling.h"

#include "base/mem.h"
#include "base/random.h"

static int sort(struct stk_class_balance *classes, const uint32_t *labels, uint64_t sample_count,
                uint32_t label_count, struct stoker_error *error);

int stk_class_balance_init(struct stk_class_balance *classes, const uint32_t *labels,
                           uint64_t sample_count, uint32_t label_count, struct stoker_error *error)
{
    int status;

    *classes = (struct stk_class_balance){.sample_count = sample_count};
    if (sample_count == 0 || sample_count > UINT32_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many or too few samples to balance",
                        "balance up to 2^32 - 1 samples", "%llu samples",
                        (unsigned long long)sample_count);
    }
    classes->starts = stk_alloc((size_t)label_count + 2, sizeof *classes->starts);
    classes->samples = stk_alloc(sample_count, sizeof *classes->samples);
    if (!classes->starts || !classes->samples) {
        status =
            stk_fail_memory(error, "class balance, %llu samples", (unsigned long long)sample_count);
    } else {
        status = sort(classes, labels, sample_count, label_count, error);
    }
    if (status < 0) {
        stk_class_balance_deinit(classes);
    }
    return status;
}

void stk_class_balance_deinit(struct stk_class_balance *classes)
{
    stk_free(classes->starts);
    stk_free(classes->samples);
    *classes = (struct stk_class_balance){0};
}

uint64_t stk_class_balance_draw(const struct stk_class_balance *classes, uint64_t key,
                                uint64_t position)
{
    uint64_t frame = position / classes->class_count;
    uint64_t which = stk_permute(stk_random_key(key, frame), position % classes->class_count,
                                 classes->class_count);
    const uint64_t *starts = classes->starts + which;
    const uint32_t *sample;
    uint64_t first, end, count, drawn;

    if (!stk_mapped_table_check(&classes->mapped, starts, 16)) {
        return STK_MAPPED_TABLE_DAMAGED;
    }
    first = stk_mapped_table_u64(starts);
    end = stk_mapped_table_u64(starts + 1);
    if (end > classes->sample_count || first >= end) {
        return STK_MAPPED_TABLE_DAMAGED;
    }
    count = end - first;
    key = stk_random_key(stk_random_key(~key, which), frame / count);
    sample = classes->samples + first + stk_permute(key, frame % count, count);
    if (!stk_mapped_table_check(&classes->mapped, sample, 4)) {
        return STK_MAPPED_TABLE_DAMAGED;
    }
    drawn = stk_mapped_table_u32(sample);
    return drawn < classes->sample_count ? drawn : STK_MAPPED_TABLE_DAMAGED;
}

/* While samples are placed, starts[label + 1] is the place of the label's next sample; afterwards
 * it is the end of the label. Then labels without samples are removed. */
static int sort(struct stk_class_balance *classes, const uint32_t *labels, uint64_t sample_count,
                uint32_t label_count, struct stoker_error *error)
{
    uint64_t *starts = classes->starts;

    for (uint64_t i = 0; i < sample_count; i++) {
        if (labels[i] >= label_count) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "a label is out of bounds",
                            "number the classes from 0", "sample %llu, label %u of %u",
                            (unsigned long long)i, labels[i], label_count);
        }
        starts[labels[i] + 2]++;
    }
    for (uint32_t label = 0; label < label_count; label++) {
        starts[label + 2] += starts[label + 1];
    }
    for (uint64_t i = 0; i < sample_count; i++) {
        classes->samples[starts[labels[i] + 1]++] = (uint32_t)i;
    }
    for (uint32_t label = 0; label < label_count; label++) {
        if (starts[label + 1] > starts[classes->class_count]) {
            starts[++classes->class_count] = starts[label + 1];
        }
    }
    return 0;
}
