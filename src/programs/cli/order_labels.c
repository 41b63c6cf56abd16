/* Labels of samples, and the rows that say how an order mixes them. */
#include "programs/cli/order_labels.h"

#include "base/text/parse_number.h"
#include "base/text/text_match.h"
#include "programs/cli/terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 4096

/* A number for each text: the number itself, or a hash. */
static int64_t label_of_line(const char *line)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    const char *end;
    int64_t number;

    if (stk_parse_int64(line, &end, &number) && *end == 0) {
        return number;
    }
    for (; *line; line++) {
        hash = (hash ^ (uint8_t)*line) * UINT64_C(1099511628211);
    }
    return (int64_t)(hash >> 1);
}

/* Reads lines of at most LINE_BYTES - 2 bytes, at most one more than count. Returns their number,
 * or UINT64_MAX if a line is longer. */
static uint64_t read_lines(FILE *file, uint64_t count, int64_t *labels)
{
    char line[LINE_BYTES];
    uint64_t lines = 0;

    while (lines <= count && fgets(line, sizeof line, file)) {
        if (strlen(line) + 1 == sizeof line || (!strchr(line, '\n') && !feof(file))) {
            return UINT64_MAX;
        }
        size_t mark_bytes = lines == 0 ? stk_view_mark_bytes(stk_view_of_text(line)) : 0;

        for (size_t bytes = strlen(line); bytes > 0 && strchr(" \t\r\n", line[bytes - 1]);) {
            line[--bytes] = 0;
        }
        if (lines < count) {
            labels[lines] = label_of_line(line + mark_bytes);
        }
        lines++;
    }
    return lines;
}

static int fail_unreadable(const char *path, int number)
{
    return term_fail_name("order: cannot read the labels", number, path,
                          "--labels takes a file with one label a line");
}

/* Reads a label for each sample, one a line. */
static int read_file(const char *path, uint64_t count, int64_t **labels_out)
{
    FILE *file = fopen(path, "r");
    char advice[160];
    uint64_t lines;
    int failed;

    if (!file) {
        return fail_unreadable(path, errno);
    }
    *labels_out =
        count <= ORDER_LABELS_MAX ? malloc((count > 0 ? count : 1) * sizeof **labels_out) : NULL;
    if (!*labels_out) {
        fclose(file);
        return term_usage("order", "the data set has too many samples for --labels", path,
                          "leave it out, or take a part of the data set");
    }
    lines = read_lines(file, count, *labels_out);
    failed = ferror(file) ? errno : 0;
    fclose(file);
    if (failed == 0 && lines == count) {
        return EXIT_FINE;
    }
    free(*labels_out);
    *labels_out = NULL;
    if (failed != 0) {
        return fail_unreadable(path, failed);
    }
    snprintf(advice, sizeof advice,
             lines == UINT64_MAX ? "a line has more than %llu bytes, or a byte 0"
             : lines > count     ? "write one label a line: there are %llu samples, and more lines"
                                 : "write one label a line: there are %llu samples, and %llu lines",
             (unsigned long long)(lines == UINT64_MAX ? LINE_BYTES - 2 : count),
             (unsigned long long)lines);
    return term_usage("order", "not a label for each sample", path, advice);
}

int order_labels_measure(const struct args *args, struct stoker_dataset *dataset,
                         const struct stoker_dataset_info *info,
                         const struct stoker_order_options *options,
                         struct stoker_mixing *mixing_out)
{
    struct stoker_mixing_options how = {
        .struct_size = sizeof how, .dataset = dataset, .order = options};
    bool is_cheap = dataset && (info->class_count > 0 || info->random_reads_free);
    struct stoker_error error = {0};
    int64_t *labels = NULL;
    int status = EXIT_FINE, failed;

    *mixing_out = (struct stoker_mixing){.struct_size = sizeof *mixing_out};
    if (args->labels_path) {
        status = read_file(args->labels_path, options->sample_count, &labels);
    } else if (!is_cheap || info->sequential) {
        return EXIT_FINE;
    }
    if (status != EXIT_FINE) {
        return status;
    }
    how.labels = labels;
    failed = stoker_mixing_measure(&how, mixing_out, &error);
    free(labels);
    if (failed == STOKER_ERROR_MISSING && !args->labels_path) { /* samples without labels */
        *mixing_out = (struct stoker_mixing){.struct_size = sizeof *mixing_out};
        return EXIT_FINE;
    }
    return failed < 0 ? term_error(failed, &error) : EXIT_FINE;
}

static void row(const char *label, double own, double full, int digits)
{
    printf("%-34s  %20.*f  %20s  %20.*f\n", label, digits, own, "", digits, full);
}

void order_labels_print(const struct stoker_mixing *mixing)
{
    char number[TERM_NUMBER_BYTES];

    if (!mixing->note[0]) {
        return;
    }
    if (mixing->steps == 0) {
        printf("\nmixing of labels: %s\n", mixing->note);
        return;
    }
    printf("\n%-34s  %20s  %20s  %20s\n", "mixing of labels", "this order", "", "full permutation");
    row("classes of a batch, mean", mixing->batch_classes, mixing->full_batch_classes, 1);
    row("  fewest", (double)mixing->batch_classes_min, (double)mixing->full_batch_classes_min, 0);
    row("largest share of one class, %", 100 * mixing->batch_share_max,
        100 * mixing->full_batch_share_max, 1);
    row("longest run of one class", (double)mixing->run_max, (double)mixing->full_run_max, 0);
    row("fewest classes of 20 steps", (double)mixing->stretch_classes_min,
        (double)mixing->full_stretch_classes_min, 0);
    row("chi-square by position", mixing->chi_square, mixing->full_chi_square, 2);
    printf("of %s classes: %s\n", term_count(number, mixing->classes), mixing->note);
}

void order_labels_print_json(const struct stoker_mixing *mixing)
{
    if (!mixing->note[0]) {
        return;
    }
    json_open("mixing", '{');
    json_u64("classes", mixing->classes);
    json_u64("steps", mixing->steps);
    json_double("batch_classes", mixing->batch_classes);
    json_double("full_batch_classes", mixing->full_batch_classes);
    json_u64("batch_classes_min", mixing->batch_classes_min);
    json_u64("full_batch_classes_min", mixing->full_batch_classes_min);
    json_double("batch_share_max", mixing->batch_share_max);
    json_double("full_batch_share_max", mixing->full_batch_share_max);
    json_u64("run_max", mixing->run_max);
    json_u64("full_run_max", mixing->full_run_max);
    json_u64("classes_of_20_steps_min", mixing->stretch_classes_min);
    json_u64("full_classes_of_20_steps_min", mixing->full_stretch_classes_min);
    json_double("chi_square", mixing->chi_square);
    json_double("full_chi_square", mixing->full_chi_square);
    json_u64("better_window_blocks", mixing->better_window);
    json_double("better_batch_classes", mixing->better_batch_classes);
    json_u64("better_bytes", mixing->better_bytes);
    json_str("note", mixing->note);
    json_close('}');
}
