/* Copies the options of a mix into one block: changes, then numbers, then samplers. */
#include "order/schedule/mix_copy.h"

#include "base/mem.h"
#include "base/options.h"

#include <string.h>

static uint64_t *copy_numbers(uint64_t **next, const uint64_t *numbers, size_t count)
{
    uint64_t *copy = *next;

    if (!numbers) {
        return NULL;
    }
    memcpy(copy, numbers, count * sizeof *numbers);
    *next += count;
    return copy;
}

int stk_mix_copy_open(struct stk_mix_copy *copy, const struct stoker_mix_options *given,
                      struct stoker_error *error)
{
    struct stoker_mix_options *own = &copy->options;
    struct stoker_mix_change *changes;
    size_t sources, change_bytes, numbers;
    uint64_t *next;
    int status;

    *copy = (struct stk_mix_copy){0};
    if (!given) {
        return 0;
    }
    status = stk_options_read(own, sizeof *own, offsetof(struct stoker_mix_options, unit_samples),
                              given, "mix options", error);
    if (status < 0) {
        return status;
    }
    sources = own->source_count;
    change_bytes = own->change_count * sizeof *changes;
    numbers = sources * (3 + own->change_count);
    copy->memory =
        stk_alloc(1, change_bytes + numbers * sizeof *next + sources * sizeof *own->samplers);
    if (!copy->memory) {
        return stk_fail_memory(error, "mix, %u sources", own->source_count);
    }
    changes = copy->memory;
    next = (uint64_t *)((uint8_t *)copy->memory + change_bytes);
    own->ends = copy_numbers(&next, own->ends, sources);
    own->weights = copy_numbers(&next, own->weights, sources);
    own->limits = copy_numbers(&next, own->limits, sources);
    for (size_t i = 0; i < own->change_count; i++) {
        changes[i].position = own->changes[i].position;
        changes[i].weights = copy_numbers(&next, own->changes[i].weights, sources);
    }
    own->changes = own->change_count > 0 ? changes : NULL;
    if (own->samplers) {
        memcpy(next, own->samplers, sources * sizeof *own->samplers);
        own->samplers = (const struct stoker_sampler *const *)next;
    }
    return 0;
}

void stk_mix_copy_close(struct stk_mix_copy *copy)
{
    stk_free(copy->memory);
    *copy = (struct stk_mix_copy){0};
}
