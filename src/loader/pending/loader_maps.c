/* Checks of the mapped files of a loader. */
#include "loader/pending/loader_maps.h"

static int check(const void *owner, struct stoker_error *error)
{
    const struct stoker_loader *loader = owner;
    int status = stk_dataset_check_maps(loader->dataset, error);

    return status < 0 ? status : stk_run_sampling_check_maps(&loader->sampling, error);
}

void stk_loader_maps_init(struct stoker_loader *loader)
{
    loader->has_maps = loader->dataset->jpeg_index || loader->dataset->index_path ||
                       loader->sampling.options.stage_count > 0 ||
                       loader->sampling.sampler_count > 0;
}

int stk_loader_maps_check(struct stoker_loader *loader, struct stoker_error *error)
{
    return loader->has_maps
               ? stk_map_watch_check(&loader->maps, loader->engine->io, check, loader, error)
               : 0;
}

int stk_loader_maps_check_now(const struct stoker_loader *loader, struct stoker_error *error)
{
    return loader->has_maps ? check(loader, error) : 0;
}
