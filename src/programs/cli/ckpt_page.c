/* The page of stoker ckpt inspect --html: a table of the tensors, with their histograms as SVG. */
#include "programs/cli/ckpt.h"
#include "programs/cli/terminal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BAR_WIDTH 5u
#define BAR_HEIGHT 24u

static void print_escaped(FILE *file, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '&':
            fputs("&amp;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        default:
            fputc(*text, file);
        }
    }
}

static int fail(const char *path)
{
    return term_fail_name("cannot write the page", errno, path,
                          "check the folder and its free space, or choose another file for --html");
}

int ckpt_page_open(const char *path, const struct stoker_checkpoint_info *info, FILE **file_out)
{
    char bytes[TERM_NUMBER_BYTES];
    FILE *file = fopen(path, "w");

    if (!file) {
        return fail(path);
    }
    fputs("<!doctype html><meta charset=utf-8><title>", file);
    print_escaped(file, info->path);
    fputs("</title><style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
          "td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}"
          "td:first-child,th:first-child{text-align:left;font-family:monospace}"
          ".bad{color:#c00}rect{fill:#0072b2}</style><h1>",
          file);
    print_escaped(file, info->path);
    fprintf(file, "</h1><p>%s, %s, %llu tensors in %llu files of %u ranks</p><p><code>", info->kind,
            term_bytes(bytes, info->bytes), (unsigned long long)info->tensors,
            (unsigned long long)info->files, info->ranks);
    print_escaped(file, info->values);
    fputs("</code></p><table><tr><th>tensor<th>dtype<th>shape<th>bytes<th>min<th>max<th>mean<th>NaN"
          "<th>Inf<th>histogram</tr>\n",
          file);
    *file_out = file;
    return EXIT_FINE;
}

static void print_histogram(FILE *file, const struct ckpt_stats *stats)
{
    uint64_t most = 1;

    for (size_t i = 0; i < CKPT_BINS; i++) {
        most = stats->bins[i] > most ? stats->bins[i] : most;
    }
    fprintf(file, "<svg width=%u height=%u><title>%g to %g</title>", BAR_WIDTH * CKPT_BINS,
            BAR_HEIGHT, stats->low, stats->high);
    for (size_t i = 0; i < CKPT_BINS; i++) {
        double height = (double)BAR_HEIGHT * (double)stats->bins[i] / (double)most;

        fprintf(file, "<rect x=%zu y=%.2f width=%u height=%.2f />", i * BAR_WIDTH,
                (double)BAR_HEIGHT - height, BAR_WIDTH - 1, height);
    }
    fputs("</svg>", file);
}

void ckpt_page_add(FILE *file, const struct stoker_checkpoint_tensor_info *tensor,
                   const struct ckpt_stats *stats)
{
    char shape[64], bytes[TERM_NUMBER_BYTES];

    fputs("<tr><td>", file);
    print_escaped(file, tensor->name);
    fprintf(file, "<td>%s<td>%s<td>%s", tensor->dtype, ckpt_shape(tensor, shape),
            term_bytes(bytes, tensor->bytes));
    if (stats->count > 0) {
        fprintf(file, "<td>%.5g<td>%.5g<td>%.5g", stats->min, stats->max,
                stats->sum / (double)stats->count);
    } else {
        fputs("<td><td><td>", file);
    }
    fprintf(file, "<td%s>%llu<td%s>%llu<td>", stats->nan ? " class=bad" : "",
            (unsigned long long)stats->nan, stats->inf ? " class=bad" : "",
            (unsigned long long)stats->inf);
    if (stats->count > 0) {
        print_histogram(file, stats);
    }
    fputs("</tr>\n", file);
}

int ckpt_page_close(FILE *file, const char *path)
{
    bool failed;

    fputs("</table>\n", file);
    failed = ferror(file) != 0;
    return fclose(file) != 0 || failed ? fail(path) : EXIT_FINE;
}
