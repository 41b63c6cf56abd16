/* Selected samples of the command line: one stage, or the stages of --curriculum. */
#include "programs/cli/sampling_args.h"

#include "programs/cli/command.h"
#include "programs/cli/main.h"
#include "programs/cli/terminal.h"

#include <string.h>

static int next(void *sampler, struct stoker_error *error)
{
    return stoker_sampler_next(sampler, COMMAND_TICK_MS, error);
}

static void draw(const void *sampler)
{
    struct stoker_sampler_info info = {.struct_size = sizeof info};
    char line[256], a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES];

    stoker_sampler_info(sampler, &info);
    snprintf(line, sizeof line, "%s of %s samples", term_count(a, info.scanned),
             term_count(b, info.sample_count));
    term_live((double)info.scanned / (double)info.sample_count, line);
}

int sampling_args_scan(struct stoker_sampler *sampler, struct stoker_error *error)
{
    return command_wait(&(struct command_job){next, draw, sampler, NULL}, error);
}

/* Adds a stage of the samples that match a predicate; "": all. */
static int add_stage(struct sampling_args *sampling, const struct args *args,
                     struct stoker_dataset *dataset, const char *where)
{
    size_t number = sampling->options.stage_count;
    struct stoker_sampler_options options = {.struct_size = sizeof options,
                                             .where = where && *where ? where : NULL,
                                             .weight = args->weights,
                                             .balance = args->balance,
                                             .replacement = args->replacement};
    struct stoker_error error = {0};
    int status = 0;

    if (options.where || options.weight || options.balance || options.replacement) {
        main_defer_signals(true);
        status = stoker_sampler_open(&sampling->samplers[number], dataset, &options, &error);
        status = status < 0 ? status : sampling_args_scan(sampling->samplers[number], &error);
        main_defer_signals(false);
    }
    if (status < 0) {
        return command_result(status, &error);
    }
    snprintf(sampling->names[number], sizeof sampling->names[number], "%s",
             options.where ? options.where : "all samples");
    sampling->stages[number].sampler = sampling->samplers[number];
    sampling->options.stage_count = number + 1;
    return command_result(status, &error);
}

/* "0:size < 9_000;300000:": from each position on the samples that match its predicate. */
static int add_stages(struct sampling_args *sampling, const struct args *args,
                      struct stoker_dataset *dataset)
{
    char text[SAMPLING_ARGS_TEXT_MAX], *at = text, *next;
    int status = EXIT_FINE;

    if (strlen(args->curriculum) >= sizeof text) {
        return term_usage("order", "the curriculum is too long", NULL,
                          "use at most 4,095 characters");
    }
    snprintf(text, sizeof text, "%s", args->curriculum);
    for (; at && status == EXIT_FINE; at = next) {
        char *colon = strchr(at, ':');
        uint64_t position;

        next = strchr(at, ';');
        next = next ? (*next = '\0', next + 1) : NULL;
        if (colon) {
            *colon = '\0';
        }
        if (!colon || (next && colon > next) || !args_number(at, &position) ||
            sampling->options.stage_count == SAMPLING_ARGS_STAGES_MAX) {
            return term_usage(
                "order", "not a curriculum", args->curriculum,
                "--curriculum takes up to 32 stages POSITION:PREDICATE;POSITION:PREDICATE, like "
                "'0:size < 9_000;300000:'");
        }
        sampling->stages[sampling->options.stage_count].position = position;
        status = add_stage(sampling, args, dataset, colon + 1 + strspn(colon + 1, " "));
    }
    return status;
}

int sampling_args_open(struct sampling_args *sampling, const struct args *args,
                       struct stoker_dataset *dataset)
{
    bool selects = args->subset || args->weights || args->balance || args->curriculum;
    int status;

    *sampling = (struct sampling_args){0};
    sampling->is_drawn = args->weights || args->balance || args->replacement;
    sampling->is_there = selects || args->replacement || args->repeats || args->repeat_distance ||
                         args->epoch_samples;
    if (!sampling->is_there) {
        return EXIT_FINE;
    }
    if (args->mix || (args->repeat_distance && !args->repeats) ||
        (args->subset && args->curriculum) || (!dataset && (selects || args->replacement))) {
        return term_usage("order", "options exclude each other", NULL,
                          args->mix          ? "a mix uses all samples of its sources"
                          : !dataset         ? "a PATH is needed to select samples"
                          : args->curriculum ? "add the subset to each stage of the curriculum"
                                             : "--repeat-distance goes with --repeats");
    }
    if ((args->weights != NULL) + (args->balance != NULL) + args->replacement > 1) {
        return term_usage("order", "two ways to draw samples", NULL,
                          "use one of --weights, --balance and --replacement");
    }
    sampling->options = (struct stoker_sampling_options){
        .struct_size = sizeof sampling->options,
        .stages = sampling->stages,
        .repeats = (uint32_t)args->repeats,
        .repeat_distance = (uint32_t)args->repeat_distance,
        .epoch_samples = args->epoch_samples,
    };
    status = args->curriculum ? add_stages(sampling, args, dataset)
                              : add_stage(sampling, args, dataset, args->subset);
    if (status != EXIT_FINE) {
        sampling_args_close(sampling);
    }
    return status;
}

void sampling_args_close(struct sampling_args *sampling)
{
    for (size_t i = 0; i < SAMPLING_ARGS_STAGES_MAX; i++) {
        stoker_sampler_close(sampling->samplers[i]);
    }
    *sampling = (struct sampling_args){0};
}
