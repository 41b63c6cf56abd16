/* stoker order --mix: each path is a source with a weight, which may change at given positions. */
#include "programs/cli/order_mix.h"

#include "programs/cli/command.h"
#include "programs/cli/terminal.h"

#include <string.h>
#include <sys/stat.h>

/* Parses "3,2,1", a weight for each path, and moves *text past it. Returns false if it is invalid.
 */
static bool take_weights(const char **text, size_t count, uint64_t *weights)
{
    for (size_t i = 0; i < count; i++) {
        if (!order_take_number(text, i + 1 < count ? "," : "/", &weights[i])) {
            return false;
        }
        *text += i + 1 < count && **text == ',';
    }
    return true;
}

/* Parses "3,2,1/1020:0,1,1/5000:1,1,1": weights, and their changes at positions. */
static bool parse(struct order_mix *mix, const char *text, size_t count)
{
    bool is_valid = take_weights(&text, count, mix->weights[0]);

    while (is_valid && *text == '/' && mix->change_count < ORDER_CHANGES_MAX) {
        struct stoker_mix_change *change = &mix->changes[mix->change_count++];

        text++;
        is_valid = order_take_number(&text, ":", &change->position) && *text == ':' &&
                   (text++, take_weights(&text, count, mix->weights[mix->change_count]));
        change->weights = mix->weights[mix->change_count];
    }
    return is_valid && *text == '\0';
}

static bool is_folder(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* Opens each path as a data set; sets *has_classes if one is a class folder. Returns 0 or the
 * library's status. */
static int open_parts(const struct args *args, struct stoker_engine *engine,
                      struct stoker_dataset **parts, bool *has_classes, struct stoker_error *error)
{
    int status = 0;

    for (size_t i = 0; status == 0 && i < args->path_count; i++) {
        struct stoker_dataset_info info = {.struct_size = sizeof info};
        struct stoker_dataset_options options = {.struct_size = sizeof options,
                                                 .urls = &args->paths[i],
                                                 .url_count = 1,
                                                 .index = (uint32_t)args->index,
                                                 .foreign_index = (uint32_t)args->foreign_index};

        status = stoker_dataset_open(&parts[i], engine, &options, error);
        if (status == 0) {
            stoker_dataset_info(parts[i], &info);
            *has_classes = *has_classes || strcmp(info.kind, "imagefolder") == 0;
        }
    }
    return status;
}

int order_open_sources(const struct args *args, struct stoker_engine **engine_out,
                       struct stoker_dataset **dataset_out)
{
    struct stoker_dataset *parts[ORDER_SOURCES_MAX] = {0};
    struct stoker_error error = {0};
    bool has_folder = false, has_classes = false;
    int status;

    for (size_t i = 0; args->mix && i < args->path_count; i++) {
        has_folder = has_folder || is_folder(args->paths[i]);
    }
    if (!has_folder || args->path_count > ORDER_SOURCES_MAX) {
        return command_open_dataset(args, engine_out, dataset_out);
    }
    status = command_open_engine(args, engine_out);
    if (status != EXIT_FINE) {
        return status;
    }
    status = open_parts(args, *engine_out, parts, &has_classes, &error);
    if (status == 0 && has_classes) {
        status = stoker_dataset_join(parts, args->path_count, dataset_out, &error);
    }
    for (size_t i = 0; i < args->path_count; i++) {
        stoker_dataset_close(parts[i]);
    }
    if (status == 0 && has_classes) {
        return EXIT_FINE;
    }
    stoker_engine_close(*engine_out);
    *engine_out = NULL;
    return status < 0 ? term_error(status, &error)
                      : command_open_dataset(args, engine_out, dataset_out);
}

int order_mix_open(struct order_setup *setup, const struct args *args)
{
    struct order_mix *mix = &setup->mix;
    size_t count = args->path_count;
    char advice[160];

    *mix = (struct order_mix){0};
    setup->has_mix = false;
    if (!args->mix) {
        return args->mix_end || args->mix_epoch || args->single_source_steps
                   ? term_usage("order",
                                "--mix-end, --mix-epoch and --single-source-steps need --mix", NULL,
                                "add --mix with a weight for each PATH, like --mix 3,2,1")
                   : EXIT_FINE;
    }
    if (count == 0 || count > ORDER_SOURCES_MAX || !parse(mix, args->mix, count)) {
        snprintf(advice, sizeof advice,
                 "use a whole number for each of the %zu PATHs (1 to %d), like 3,2,1 or "
                 "3,2,1/1000000:0,1,1; quote globs",
                 count, ORDER_SOURCES_MAX);
        return term_usage("order", "not weights of a mix", args->mix, advice);
    }
    for (size_t i = 0; i < count; i++) {
        int status = stoker_dataset_url_end(setup->dataset, i, &mix->ends[i]);

        if (status < 0) {
            return term_usage("order", "the samples of a source are not listed", args->paths[i],
                              "use tars or folders");
        }
    }
    mix->options = (struct stoker_mix_options){
        .struct_size = sizeof mix->options,
        .ends = mix->ends,
        .weights = mix->weights[0],
        .changes = mix->changes,
        .change_count = mix->change_count,
        .source_count = (uint32_t)count,
        .end = (uint32_t)args->mix_end,
        .unit_samples = args->single_source_steps
                            ? order_settings(setup, args).batch_size *
                                  (uint64_t)order_settings(setup, args).world_size
                            : 1,
        .epoch_samples = args->mix_epoch,
    };
    setup->has_mix = true;
    return EXIT_FINE;
}
