/* stoker sample: selects samples as a loader does, and builds the tables for it in advance. */
#include "programs/cli/sampling_args.h"

#include "programs/cli/command.h"
#include "programs/cli/main.h"
#include "programs/cli/terminal.h"

static int run(struct args *args);
static void report(const struct args *args, const struct stoker_sampler_info *info);

const struct command command_sample = {
    .name = "sample",
    .bit = COMMAND_SAMPLE,
    .usage = "[options] PATH...",
    .summary = "Select samples by a predicate, weights or classes, and build the tables",
    .more = "The same as subset=, weights= and balance= of a Loader, which then uses the table\n"
            "and does not scan. Columns: label, class, size, key, shard, sample, a member\n"
            "(cls), a value inside of a member (json.width). Example: stoker sample --subset\n"
            "'label in (3, 7) and size > 10_000' DATA\n",
    .run = run,
};

static int run(struct args *args)
{
    struct stoker_sampler_options options = {.struct_size = sizeof options,
                                             .where = args->subset,
                                             .weight = args->weights,
                                             .balance = args->balance};
    struct stoker_sampler_info info = {.struct_size = sizeof info};
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset = NULL;
    struct stoker_sampler *sampler = NULL;
    struct stoker_error error = {0};
    int status, exit_status;

    if (args->path_count == 0) {
        return command_no_path(&command_sample);
    }
    if (!args->subset && !args->weights && !args->balance) {
        return term_usage("sample", "no selection given", NULL,
                          "use --subset, --weights or --balance");
    }
    exit_status = command_open_dataset(args, &engine, &dataset);
    if (exit_status != EXIT_FINE) {
        return exit_status;
    }
    main_defer_signals(true);
    status = stoker_sampler_open(&sampler, dataset, &options, &error);
    status = status < 0 ? status : sampling_args_scan(sampler, &error);
    if (status == 0) {
        stoker_sampler_info(sampler, &info);
        report(args, &info);
    }
    exit_status = command_result(status, &error);
    exit_status = status == STOKER_ERROR_EMPTY ? EXIT_FINDINGS : exit_status;
    stoker_sampler_close(sampler);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
    return exit_status;
}

static void report(const struct args *args, const struct stoker_sampler_info *info)
{
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES], c[TERM_NUMBER_BYTES];

    if (args->json) {
        json_open(NULL, '{');
        json_u64("samples", info->sample_count);
        json_u64("chosen", info->count);
        json_u64("classes", info->class_count);
        json_u64("scanned", info->scanned);
        json_double("seconds", (double)info->scan_ns / 1e9);
        json_str("table", info->table_path ? info->table_path : "");
        json_u64("table_bytes", info->table_bytes);
        json_str("note", info->table_note);
        json_close('}');
        return;
    }
    printf("%s of %s samples", term_count(a, info->count), term_count(b, info->sample_count));
    if (info->class_count > 0) {
        printf(", %s classes", term_count(c, info->class_count));
    }
    printf("\n  table: %s, %.2f bits a sample, ", term_bytes(a, info->table_bytes),
           (double)info->table_bytes * 8 / (double)(info->sample_count ? info->sample_count : 1));
    if (info->scanned > 0) {
        printf("built in %s\n  ", term_time(b, (double)info->scan_ns / 1e9));
    } else {
        fputs("reused\n  ", stdout);
    }
    term_text(info->table_path ? info->table_path : "in memory only");
    putchar('\n');
    if (info->table_note[0]) {
        fputs("  ", stdout);
        term_text(info->table_note);
        putchar('\n');
    }
}
