/* Runs the JPEG indexer with a live line. */
#include "programs/cli/jpeg_index_run.h"

#include "programs/cli/command.h"
#include "programs/cli/terminal.h"

#include <stdio.h>

/* A running indexer, for command_wait. */
struct run {
    struct stoker_jpeg_indexer *indexer;
    struct jpeg_index_report *report;
    uint64_t start_ns;
};

static void draw(const void *self)
{
    const struct jpeg_index_report *report = ((const struct run *)self)->report;
    const struct stoker_jpeg_indexer_progress *progress = &report->progress;
    double seconds = report->seconds;
    char line[200], done[TERM_NUMBER_BYTES], left[TERM_NUMBER_BYTES];
    double share =
        progress->samples ? (double)progress->samples_done / (double)progress->samples : 1;

    snprintf(line, sizeof line, "%s images  %.0f a second  %s left",
             term_count(done, progress->pictures),
             (double)progress->pictures / (seconds > 0 ? seconds : 1e-9),
             share > 0 ? term_time(left, seconds * (1 - share) / share) : "?");
    term_live(share, line);
}

static int next(void *self, struct stoker_error *error)
{
    struct run *run = self;
    int status = stoker_jpeg_indexer_next(run->indexer, &run->report->progress, error);

    run->report->seconds = term_seconds_since(run->start_ns);
    return status;
}

static int run_to_end(struct stoker_jpeg_indexer *indexer, const struct jpeg_index_job *job,
                      struct jpeg_index_report *report)
{
    struct run run = {indexer, report, term_clock_ns()};
    struct stoker_error error = {0};
    int status;

    report->progress.struct_size = sizeof report->progress;
    status = command_wait(&(struct command_job){next, draw, &run, NULL}, &error);
    if (status >= 0) {
        snprintf(report->path, sizeof report->path, "%s", report->progress.path);
        report->progress.path = NULL;
    }
    return status == 1 ? command_interrupted(job->interrupted, job->advice)
                       : command_result(status, &error);
}

int jpeg_index_run(const struct jpeg_index_job *job, struct jpeg_index_report *report_out)
{
    struct stoker_dataset_options options = {.struct_size = sizeof options,
                                             .urls = job->urls,
                                             .url_count = job->url_count,
                                             .index_path = job->index_path};
    struct stoker_jpeg_indexer_options jpegs = {.struct_size = sizeof jpegs,
                                                .mcus = job->mcus > 1 ? (uint32_t)job->mcus : 0,
                                                .check = job->check};
    struct stoker_dataset *dataset = NULL;
    struct stoker_jpeg_indexer *indexer = NULL;
    struct stoker_error error = {0};
    int status, exit_status = EXIT_FINE;

    *report_out = (struct jpeg_index_report){0};
    status = stoker_dataset_open(&dataset, job->engine, &options, &error);
    status = status < 0 ? status : stoker_jpeg_indexer_open(&indexer, dataset, &jpegs, &error);
    if (status == 0) {
        exit_status = run_to_end(indexer, job, report_out);
    } else if (!job->check ||
               (status != STOKER_ERROR_MISSING && status != STOKER_ERROR_UNSUPPORTED)) {
        exit_status = term_error(status, &error);
    }
    stoker_jpeg_indexer_close(indexer);
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
    printf(": %s of %s JPEGs have entry points, %s", term_count(a, progress->indexed),
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
