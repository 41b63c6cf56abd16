/* Token files and text: counts, a line for each file, and the speed of a token loader. */
#include "programs/cli/token_report.h"

#include "base/text/text_match.h"
#include "programs/cli/command.h"
#include "programs/cli/main.h"
#include "programs/cli/terminal.h"

#include <string.h>

#define CONTEXT 1024u /* tokens of a window that bench reads */
#define WINDOWS 32u
#define LINES 256u
#define SECONDS 10.0

struct report {
    struct args *args;
    struct stoker_engine *engine;
    struct stoker_tokens *tokens;
    struct stoker_token_loader *lines; /* of text */
    struct stoker_tokens_info info;
    bool is_text;
};

/* An ending alone names no file. */
static bool is_named(struct stk_view name, const char *ending)
{
    return name.bytes > strlen(ending) && stk_view_ends_with(name, ending);
}

/* 1: a token file; 2: text; 0: another path. */
static int kind_of(const char *path)
{
    static const char *const tokens[] = {".npy", ".bin", ".idx"};
    static const char *const texts[] = {".jsonl", ".ndjson", ".jl", ".txt"};
    struct stk_view name = stk_view_of_text(path);

    name.bytes -= stk_view_ends_with(name, ".zst") ? 4 : 0;
    name.bytes -= stk_view_ends_with(name, ".gz") ? 3 : 0; /* the library says how to read it */
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        if (is_named(name, tokens[i])) {
            return 1;
        }
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (is_named(name, texts[i])) {
            return 2;
        }
    }
    return 0;
}

bool token_report_matches(const struct args *args)
{
    for (size_t i = 0; i < args->path_count; i++) {
        if (kind_of(args->paths[i]) == 0 || kind_of(args->paths[i]) != kind_of(args->paths[0])) {
            return false;
        }
    }
    return args->path_count > 0;
}

static void report_close(struct report *report)
{
    stoker_token_loader_close(report->lines);
    stoker_tokens_close(report->tokens);
    report->lines = NULL;
    report->tokens = NULL;
}

/* Opens `count` paths. Lines of text are counted: this reads all of it. */
static int report_open(struct report *report, const char *const *paths, size_t count)
{
    struct stoker_tokens_options files = {
        .struct_size = sizeof files,
        .paths = paths,
        .path_count = count,
        .dtype = report->is_text ? STOKER_UINT8 : (uint32_t)report->args->stored,
    };
    struct stoker_token_loader_options lines = {
        .struct_size = sizeof lines,
        .rows = STOKER_ROWS_DOCUMENTS,
        .labels = STOKER_LABELS_NONE,
        .dtype = STOKER_UINT8,
        .batch_size = (uint32_t)(report->args->batch ? report->args->batch : LINES),
        .has_eod = 1,
        .eod = '\n',
        .shuffle = (uint32_t)report->args->shuffle,
        .tail = STOKER_TAIL_KEEP,
    };
    struct stoker_error error = {0};
    int status = stoker_tokens_open(&report->tokens, report->engine, &files, &error);

    if (status == 0) {
        report->info.struct_size = sizeof report->info;
        status = stoker_tokens_info(report->tokens, &report->info);
    }
    if (status == 0 && report->is_text && report->info.tokens > 0) {
        status = stoker_token_loader_open(&report->lines, report->tokens, &lines, &error);
    }
    if (status < 0) {
        report_close(report);
        return term_error(status, &error);
    }
    return EXIT_FINE;
}

static uint64_t line_count(const struct report *report)
{
    return report->lines ? stoker_token_loader_samples(report->lines) : 0;
}

static int start(struct report *report, struct args *args)
{
    *report = (struct report){.args = args, .is_text = kind_of(args->paths[0]) == 2};
    return command_open_files(args, &report->engine);
}

/* ---- info ---- */

static void info_print(const struct report *report)
{
    const struct stoker_tokens_info *info = &report->info;
    char number[TERM_NUMBER_BYTES];

    printf("data\n  kind        %s\n", report->is_text ? "text" : "tokens");
    printf("  files       %s\n", term_count(number, info->file_count));
    if (report->is_text) {
        printf("  lines       %s\n", term_count(number, line_count(report)));
    } else {
        printf("  tokens      %s\n", term_count(number, info->tokens));
    }
    if (info->documents > 0) {
        printf("  documents   %s\n", term_count(number, info->documents));
    }
    printf("  bytes       %s\n", term_bytes(number, info->bytes));
    if (info->frames > 0) {
        printf("  frames      %s of zstd\n", term_count(number, info->frames));
    }
    if (!report->is_text) {
        printf("  windows     %s of %u tokens and a label\n",
               term_count(number, info->tokens / CONTEXT), CONTEXT);
    }
}

static void info_print_json(const struct report *report)
{
    json_open(NULL, '{');
    json_str("kind", report->is_text ? "text" : "tokens");
    json_u64("files", report->info.file_count);
    json_u64("bytes", report->info.bytes);
    if (report->is_text) {
        json_u64("lines", line_count(report));
    } else {
        json_u64("tokens", report->info.tokens);
        json_u64("documents", report->info.documents);
    }
    json_u64("frames", report->info.frames);
    json_close('}');
}

int token_report_info(struct args *args)
{
    struct report report;
    int status = start(&report, args);

    status = status != EXIT_FINE ? status : report_open(&report, args->paths, args->path_count);
    if (status == EXIT_FINE) {
        if (args->json) {
            info_print_json(&report);
        } else {
            info_print(&report);
        }
        report_close(&report);
    }
    stoker_engine_close(report.engine);
    return status;
}

/* ---- ls ---- */

static void file_print(const struct report *report, const char *path)
{
    char number[TERM_NUMBER_BYTES], bytes[TERM_NUMBER_BYTES];
    uint64_t count = report->is_text ? line_count(report) : report->info.tokens;

    if (report->args->json) {
        json_open(NULL, '{');
        json_str("path", path);
        json_u64(report->is_text ? "lines" : "tokens", count);
        json_u64("bytes", report->info.bytes);
        json_close('}');
        return;
    }
    term_text(path);
    printf("  %s %s  %s\n", term_count(number, count), report->is_text ? "lines" : "tokens",
           term_bytes(bytes, report->info.bytes));
}

int token_report_ls(struct args *args)
{
    struct report report;
    int status = start(&report, args);

    for (size_t i = 0; i < args->path_count && status == EXIT_FINE && !term_closed(); i++) {
        status = report_open(&report, &args->paths[i], 1);
        if (status == EXIT_FINE) {
            file_print(&report, args->paths[i]);
            report_close(&report);
        }
    }
    stoker_engine_close(report.engine);
    return status;
}

/* ---- bench ---- */

struct speed {
    uint64_t batches, samples, bytes, epochs;
    double seconds;
};

static int measure(const struct args *args, struct stoker_token_loader *loader, struct speed *speed)
{
    double most = args->seconds > 0 ? args->seconds : args->epochs ? 0 : SECONDS;
    uint64_t begin = term_clock_ns();
    struct stoker_error error = {0};
    int status = 0;

    while (status >= 0 && (most == 0 || term_seconds_since(begin) < most) &&
           (args->epochs == 0 || speed->epochs < args->epochs) && !main_signal()) {
        struct stoker_batch *batch = NULL;
        struct stoker_array array = {0};

        status = stoker_token_loader_next(loader, &batch, &error);
        speed->epochs += status == 0;
        if (status == 1) {
            speed->batches++;
            speed->samples += stoker_batch_samples(batch);
            if (stoker_batch_array(batch, 0, &array) == 0 && array.offsets) {
                speed->bytes += (uint64_t)array.offsets[array.shape[0]];
            }
            stoker_batch_close(batch);
        }
    }
    speed->seconds = term_seconds_since(begin);
    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}

static void speed_print(const struct report *report, const struct speed *speed)
{
    double tokens = (double)(speed->samples * CONTEXT), seconds = speed->seconds;
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES], c[TERM_NUMBER_BYTES];

    if (report->args->json) {
        json_open(NULL, '{');
        json_u64("batches", speed->batches);
        json_u64(report->is_text ? "lines" : "windows", speed->samples);
        json_double("seconds", seconds);
        if (report->is_text) {
            json_double("bytes_per_second", (double)speed->bytes / seconds);
        } else {
            json_double("tokens_per_second", tokens / seconds);
        }
        json_close('}');
        return;
    }
    printf("%s batches of %s in %s: ", term_count(a, speed->batches),
           report->is_text ? "lines" : "windows of 1,024 tokens", term_time(b, seconds));
    if (report->is_text) {
        printf("%s lines/s, %s/s\n", term_count(a, (uint64_t)((double)speed->samples / seconds)),
               term_bytes(c, (uint64_t)((double)speed->bytes / seconds)));
        printf("lines are read in order of a loader, and not tokenised\n");
    } else {
        printf("%s tokens/s\n", term_count(a, (uint64_t)(tokens / seconds)));
    }
}

/* The windows that bench reads; text is read by its lines. */
static int windows_open(const struct report *report, struct stoker_token_loader **loader_out)
{
    const struct args *args = report->args;
    struct stoker_token_loader_options options = {
        .struct_size = sizeof options,
        .context = CONTEXT,
        .batch_size = (uint32_t)(args->batch ? args->batch : WINDOWS),
        .shuffle = (uint32_t)args->shuffle,
        .window_blocks = (uint32_t)args->window_blocks,
        .group_count = (uint32_t)args->home_groups,
        .seed = args->seed,
        .tail = STOKER_TAIL_KEEP,
    };
    struct stoker_error error = {0};
    int status = stoker_token_loader_open(loader_out, report->tokens, &options, &error);

    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}

int token_report_bench(struct args *args)
{
    struct report report;
    struct stoker_token_loader *windows = NULL;
    struct speed speed = {0};
    int status = start(&report, args);

    status = status != EXIT_FINE ? status : report_open(&report, args->paths, args->path_count);
    if (status == EXIT_FINE && !report.lines) {
        status = windows_open(&report, &windows);
    }
    if (status == EXIT_FINE) {
        status = measure(args, report.lines ? report.lines : windows, &speed);
    }
    if (status == EXIT_FINE) {
        speed_print(&report, &speed);
    }
    stoker_token_loader_close(windows);
    report_close(&report);
    stoker_engine_close(report.engine);
    return status;
}
