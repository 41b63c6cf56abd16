/* The samplers of a run, and the schedule made from them. */
#include "loader/sampler/sampler.h"

#include "base/mem.h"
#include "base/options.h"

#include <errno.h>
#include <string.h>

static int retain_stages(struct stk_run_sampling *sampling, const struct stoker_dataset *dataset,
                         const struct stoker_sampling_options *given, struct stoker_error *error)
{
    struct stoker_sampling_options *own = &sampling->options;

    int status = stk_options_read(own, sizeof *own, sizeof own->struct_size, given,
                                  "sampling options", error);

    if (status < 0) {
        return status;
    }
    sampling->stages = stk_alloc(own->stage_count + 1, sizeof *sampling->stages);
    if (!sampling->stages) {
        own->stage_count = 0;
        return stk_fail(error, -ENOMEM, "cannot keep the stages of a run", "free memory",
                        "sampling");
    }
    for (size_t i = 0; i < own->stage_count; i++) {
        /* Loaders see it as const, but each has a reference. */
        struct stoker_sampler *sampler = (struct stoker_sampler *)(uintptr_t)own->stages[i].sampler;

        if (sampler && memcmp(stk_index_identity(sampler->dataset->index),
                              stk_index_identity(dataset->index), 32) != 0) {
            own->stage_count = i; /* number of references */
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "a sampler belongs to another data set",
                            "open it on the data set of the loader", "stage %zu", i);
        }
        if (sampler) {
            stk_sampler_retain(sampler);
        }
        sampling->stages[i] = own->stages[i];
    }
    own->stages = sampling->stages;
    return 0;
}

/* The schedule has checked them. Each belongs to a data set of its source alone. */
static int retain_sources(struct stk_run_sampling *sampling, const struct stoker_mix_options *mix,
                          struct stoker_error *error)
{
    bool has_samplers =
        mix->struct_size > offsetof(struct stoker_mix_options, samplers) && mix->samplers;

    if (!has_samplers) {
        return 0;
    }
    sampling->samplers = stk_alloc(mix->source_count, sizeof *sampling->samplers);
    if (!sampling->samplers) {
        return stk_fail(error, -ENOMEM, "cannot keep the samplers of a mix", "free memory", "mix");
    }
    for (uint32_t i = 0; i < mix->source_count; i++) {
        /* Loaders see it as const, but each has a reference. */
        struct stoker_sampler *sampler = (struct stoker_sampler *)(uintptr_t)mix->samplers[i];

        if (sampler) {
            stk_sampler_retain(sampler);
            sampling->samplers[sampling->sampler_count++] = sampler;
        }
    }
    return 0;
}

/* Returns the end of each shard's samples; the caller frees it. */
static int list_shards(const struct stoker_dataset *dataset, struct stk_schedule_request *request,
                       struct stoker_error *error)
{
    uint64_t count = stk_index_shards(dataset->index);
    uint64_t *ends;

    ends = stk_alloc(count + 1, sizeof *ends);
    if (!ends) {
        return stk_fail(error, -ENOMEM, "cannot list the shards", "free memory", "two-level");
    }
    if (stoker_dataset_shard_ends(dataset, 0, count, ends) < 0) {
        stk_free(ends);
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a folder has no shards to shuffle",
                        "shuffle by block or full, or pack it as tars", "two-level");
    }
    request->shard_ends = ends;
    request->shard_count = count;
    return 0;
}

/* The schedule of the request; shards are listed if the order needs them. */
static int open_schedule(struct stk_schedule *schedule, struct stoker_dataset *dataset,
                         const struct stk_order_options *order,
                         const struct stk_schedule_request *given, struct stoker_error *error)
{
    struct stk_schedule_request request = *given;
    bool is_two_level = order->shuffle == STOKER_SHUFFLE_TWO_LEVEL;
    int status = is_two_level ? list_shards(dataset, &request, error) : 0;

    status = status < 0 ? status : stk_schedule_open(schedule, order, &request, error);
    stk_free((void *)(uintptr_t)(is_two_level ? request.shard_ends : NULL));
    return status;
}

int stk_run_sampling_open(struct stk_run_sampling *sampling, struct stk_schedule *schedule,
                          struct stoker_dataset *dataset, const struct stk_order_options *order,
                          const struct stk_schedule_request *given, struct stoker_error *error)
{
    int status;

    if (given->sampling && stk_index_is_sequential(dataset->index)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                        "compressed shards without seek points cannot be sampled",
                        "add seek points with 'stoker index --seek-points', or decompress them",
                        "sampling");
    }
    status = open_schedule(schedule, dataset, order, given, error);
    if (status == 0 && given->sampling) {
        status = retain_stages(sampling, dataset, given->sampling, error);
    } else if (status == 0 && given->mix) {
        status = retain_sources(sampling, given->mix, error);
        status = status < 0 ? status : stk_mix_copy_open(&sampling->mix, given->mix, error);
    }
    return status;
}

int stk_run_sampling_reopen(const struct stk_run_sampling *sampling, struct stk_schedule *schedule,
                            struct stoker_dataset *dataset, const struct stk_order_options *order,
                            struct stoker_error *error)
{
    const struct stk_schedule_request request = {
        .mix = stk_mix_copy_get(&sampling->mix),
        .sampling = sampling->stages ? &sampling->options : NULL,
    };

    return open_schedule(schedule, dataset, order, &request, error);
}

void stk_run_sampling_close(struct stk_run_sampling *sampling)
{
    for (size_t i = 0; i < sampling->options.stage_count; i++) {
        if (sampling->stages[i].sampler) {
            stk_sampler_release((struct stoker_sampler *)(uintptr_t)sampling->stages[i].sampler);
        }
    }
    for (uint32_t i = 0; i < sampling->sampler_count; i++) {
        stk_sampler_release(sampling->samplers[i]);
    }
    stk_mix_copy_close(&sampling->mix);
    stk_free(sampling->samplers);
    stk_free(sampling->stages);
    *sampling = (struct stk_run_sampling){0};
}

static int check_table(const struct stoker_sampler *sampler, struct stoker_error *error)
{
    int status = sampler && sampler->is_mapped
                     ? stk_io_map_check(sampler->engine->io, sampler->image, error)
                     : 0;

    return status < 0 && stk_paged_file_is_unchanged(&sampler->table->file) ? 0 : status;
}

int stk_run_sampling_check_maps(const struct stk_run_sampling *sampling, struct stoker_error *error)
{
    int status = 0;

    for (size_t i = 0; status == 0 && i < sampling->options.stage_count; i++) {
        status = check_table(sampling->stages[i].sampler, error);
    }
    for (uint32_t i = 0; status == 0 && i < sampling->sampler_count; i++) {
        status = check_table(sampling->samplers[i], error);
    }
    return status;
}
