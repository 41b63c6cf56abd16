/* The marker with a live line, for index, pack and verify. */
#include "programs/cli/jpeg_index_run.h"

#include "programs/cli/main.h"
#include "programs/cli/terminal.h"

#include <stdio.h>

static void draw(const struct stoker_jpeg_indexer_progress *progress, double seconds)
{
    char line[200], done[TERM_NUMBER_BYTES], left[TERM_NUMBER_BYTES];
    double share =
        progress->samples ? (double)progress->samples_done / (double)progress->samples : 1;

    snprintf(line, sizeof line, "%s pictures  %.0f a second  %s left",
             term_count(done, progress->pictures),
             (double)progress->pictures / (seconds > 0 ? seconds : 1e-9),
             share > 0 ? term_time(left, seconds * (1 - share) / share) : "?");
    term_live(share, line);
}

static int run_to_end(struct stoker_jpeg_indexer *marker, struct jpeg_index_report *report)
{
    struct stoker_error error = {0};
    uint64_t start_ns = term_clock_ns();
    int status;

    report->progress.struct_size = sizeof report->progress;
    do {
        status = stoker_jpeg_indexer_next(marker, &report->progress, &error);
        report->seconds = term_seconds_since(start_ns);
        if (status == 1 && term_is_live()) {
            draw(&report->progress, report->seconds);
        }
    } while (status == 1 && !main_signal());
    term_live_end();
    if (status < 0) {
        return term_error(status, &error);
    }
    snprintf(report->path, sizeof report->path, "%s", report->progress.path);
    report->progress.path = NULL;
    return status == 1 ? EXIT_SIGNAL + main_signal() : EXIT_FINE;
}

int jpeg_index_run(const struct jpeg_index_job *job, struct jpeg_index_report *report_out)
{
    struct stoker_dataset_options options = {.struct_size = sizeof options,
                                             .urls = job->urls,
                                             .url_count = job->url_count,
                                             .index_path = job->index_path};
    struct stoker_jpeg_indexer_options marks = {.struct_size = sizeof marks,
                                                .mcus = job->mcus > 1 ? (uint32_t)job->mcus : 0,
                                                .check = job->check};
    struct stoker_dataset *dataset = NULL;
    struct stoker_jpeg_indexer *marker = NULL;
    struct stoker_error error = {0};
    int status, exit_status = EXIT_FINE;

    *report_out = (struct jpeg_index_report){0};
    status = stoker_dataset_open(&dataset, job->engine, &options, &error);
    status = status < 0 ? status : stoker_jpeg_indexer_open(&marker, dataset, &marks, &error);
    if (status == 0) {
        exit_status = run_to_end(marker, report_out);
    } else if (!job->check ||
               (status != STOKER_ERROR_MISSING && status != STOKER_ERROR_UNSUPPORTED)) {
        exit_status = term_error(status, &error);
    }
    stoker_jpeg_indexer_close(marker);
    stoker_dataset_close(dataset);
    return exit_status;
}

void jpeg_index_report_print(const struct jpeg_index_report *report)
{
    const struct stoker_jpeg_indexer_progress *progress = &report->progress;
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES], c[TERM_NUMBER_BYTES];

    if (!report->path[0]) {
        return;
    }
    term_text(report->path);
    printf(": %s of %s JPEGs have marks, %s", term_count(a, progress->indexed),
           term_count(b, progress->pictures), term_bytes(c, progress->file_bytes));
    printf(" (%.2f %%), in %s\n",
           progress->bytes ? 100. * (double)progress->file_bytes / (double)progress->bytes : 0,
           term_time(a, report->seconds));
}

void jpeg_index_report_json(const struct jpeg_index_report *report)
{
    const struct stoker_jpeg_indexer_progress *progress = &report->progress;

    if (report->path[0]) {
        json_open("marks", '{');
        json_str("path", report->path);
        json_u64("jpegs", progress->pictures);
        json_u64("jpeg_bytes", progress->bytes);
        json_u64("marked", progress->indexed);
        json_u64("wrong", progress->mismatches);
        json_u64("bytes", progress->file_bytes);
        json_double("seconds", report->seconds);
        json_close('}');
    }
}
