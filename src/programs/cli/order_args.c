/* Settings of `stoker order`: defaults, and what the data set determines. */
#include "programs/cli/order_args.h"

#include "programs/cli/terminal.h"

#include <string.h>

#define BATCH_DEFAULT 256
#define WINDOW_DEFAULT 64 /* blocks, as in stoker/loader.h */

struct stoker_order_options order_settings(const struct order_setup *setup, const struct args *args)
{
    struct stoker_order_options options = {
        .struct_size = sizeof options,
        .sample_count = setup->dataset ? setup->info.sample_count : args->samples,
        .block_samples = args->block_samples ? args->block_samples : setup->info.block_samples,
        .seed = args->seed,
        .shuffle = (uint32_t)args->shuffle,
        .order_version = (uint32_t)args->order_version,
        .tail = (uint32_t)args->tail,
        .window_blocks = (uint32_t)args->window_blocks,
        .group_count = (uint32_t)(args->home_groups ? args->home_groups : 1),
        .batch_size = (uint32_t)(args->batch ? args->batch : BATCH_DEFAULT),
        .world_size = (uint32_t)(args->world_size ? args->world_size : 1),
    };

    if (!args->shuffle && !args->window_blocks && options.group_count == 1 && setup->dataset) {
        options.shuffle = setup->info.default_shuffle; /* as a loader */
        options.window_blocks = setup->info.default_window_blocks;
    }
    options.shuffle = options.shuffle ? options.shuffle : STOKER_SHUFFLE_BLOCK;
    options.window_blocks = options.window_blocks ? options.window_blocks : WINDOW_DEFAULT;
    if (setup->has_mix) {
        options.mix = &setup->mix.options;
    }
    if (setup->choice.is_there) {
        options.sampling = &setup->choice.options;
    }
    if (setup->shard_ends) {
        options.shard_ends = setup->shard_ends;
        options.shard_count = setup->info.shard_count;
    }
    if (setup->info.sequential && !args->shuffle) {
        options.shuffle = STOKER_SHUFFLE_NONE; /* as a loader; order_check refuses other ones */
    }
    return options;
}

int order_open(const struct order_setup *setup, const struct args *args,
               struct stoker_order **order_out)
{
    struct stoker_order_options options = order_settings(setup, args);
    struct stoker_error error = {0};
    int status = stoker_order_open(order_out, &options, &error);

    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}

int order_check(const struct command *command, const struct args *args,
                const struct stoker_dataset *dataset, const struct stoker_dataset_info *info)
{
    bool has_blocks = args->window_blocks > 0 || args->home_groups > 1;
    uint64_t end;

    if (info->sample_count == 0) {
        term_fail_name("the data set has no samples", 0, args->paths[0],
                       "'stoker info' describes the path; name a path with samples");
        return EXIT_FINDINGS;
    }
    if (info->sequential && args->mix) {
        term_fail_name(
            "compressed shards without seek points cannot be mixed", 0, args->paths[0],
            "add seek points with 'stoker index --seek-points', or pack them with 'stoker pack'");
        return EXIT_FINDINGS;
    }
    if (info->sequential && args->shuffle != STOKER_SHUFFLE_NONE && (args->shuffle || has_blocks)) {
        term_fail_name(
            "compressed shards without seek points cannot be shuffled", 0, args->paths[0],
            "add seek points with 'stoker index --seek-points', pack them with 'stoker pack', "
            "or use --shuffle none");
        return EXIT_FINDINGS;
    }
    if (args->shuffle == STOKER_SHUFFLE_TWO_LEVEL &&
        stoker_dataset_shard_ends(dataset, 0, 1, &end) < 0) {
        return term_usage(command->name, "a folder of files has no shards for --shuffle two-level",
                          args->paths[0],
                          "use --shuffle full or block, or pack the folder with 'stoker pack'");
    }
    return EXIT_FINE;
}

bool order_take_number(const char **text, const char *ends, uint64_t *value_out)
{
    char word[24];
    size_t bytes = strspn(*text, "0123456789");

    if (bytes == 0 || bytes >= sizeof word || ((*text)[bytes] && !strchr(ends, (*text)[bytes]))) {
        return false;
    }
    snprintf(word, sizeof word, "%.*s", (int)bytes, *text);
    *text += bytes;
    return args_number(word, value_out);
}
