/* The page of stoker bench store: charts as SVG, and the table, in one file of HTML; or the charts
 * alone, as SVG or PNG. */
#include "programs/cli/bench_store.h"

#include "base/text/text_match.h"
#include "programs/cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#define WIDTH 640.0
#define HEIGHT 320.0
#define LEFT 64.0
#define RIGHT 16.0
#define TOP 16.0
#define BOTTOM 40.0
#define PATH_BYTES 4096

static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#000000", "#999999"};
#define COLOURS (sizeof colours / sizeof colours[0])

static char rsvg[] = "rsvg-convert"; /* argv is not const */

/* Runs a program without its output. Returns its exit status; -1 if it cannot run. */
static int run_quietly(char *const words[])
{
    posix_spawn_file_actions_t actions;
    int status = -1;
    pid_t child;

    posix_spawn_file_actions_init(&actions);
    for (int fd = 0; fd < 3; fd++) {
        posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", fd ? O_WRONLY : O_RDONLY, 0);
    }
    if (posix_spawnp(&child, words[0], &actions, NULL, words, environ) != 0) {
        child = -1;
    }
    posix_spawn_file_actions_destroy(&actions);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* One chart: a line for each size. */
struct chart {
    const char *title, *unit;
    double (*value)(const struct bench_cell *cell);
    double top; /* the highest value */
};

static double rate_of(const struct bench_cell *cell)
{
    return cell->seconds > 0 ? (double)cell->bytes / 1e6 / cell->seconds : 0;
}

static double p50_of(const struct bench_cell *cell)
{
    return cell->first[0] * 1e3;
}

static double p99_of(const struct bench_cell *cell)
{
    return cell->first[2] * 1e3;
}

static double cpu_of(const struct bench_cell *cell)
{
    return cell->bytes > 0 ? cell->cpu_seconds / ((double)cell->bytes / 1e9) : 0;
}

static void write_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc((unsigned char)*text < 32 ? '?' : *text, out);
        }
    }
}

static double x_of(const struct bench_sweep *sweep, uint64_t at_once)
{
    uint32_t place = 0;

    while (place + 1 < sweep->at_once_count && sweep->at_once[place] != at_once) {
        place++;
    }
    return LEFT + (place + 0.5) / sweep->at_once_count * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct chart *chart, double value)
{
    return HEIGHT - BOTTOM - value / chart->top * (HEIGHT - TOP - BOTTOM);
}

/* Returns 1, 2 or 5 times a power of ten, at least `value` / 4. */
static double step_of(double value)
{
    double ten = 1e-6, part;

    while (ten * 10 <= value / 4) {
        ten *= 10;
    }
    part = value / 4 / ten;
    return ten * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static void draw_axes(FILE *out, const struct bench_sweep *sweep, const struct chart *chart)
{
    for (double tick = 0, step = step_of(chart->top); tick <= chart->top; tick += step) {
        double y = y_of(chart, tick);

        fprintf(out,
                "<line x1='%.0f' x2='%.0f' y1='%.1f' y2='%.1f' stroke='#ddd'/>"
                "<text x='%.0f' y='%.1f' text-anchor='end'>%g</text>\n",
                LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, tick);
    }
    for (uint32_t i = 0; i < sweep->at_once_count; i++) {
        fprintf(out, "<text x='%.1f' y='%.0f' text-anchor='middle'>%llu</text>\n",
                x_of(sweep, sweep->at_once[i]), HEIGHT - BOTTOM + 18,
                (unsigned long long)sweep->at_once[i]);
    }
    fprintf(out, "<text x='%.0f' y='%.0f' text-anchor='middle'>at once</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4);
}

static void draw_line(FILE *out, const struct bench_sweep *sweep, const struct chart *chart,
                      uint32_t size)
{
    const char *colour = colours[size % COLOURS];
    char name[TERM_NUMBER_BYTES];
    double last = 0;

    fprintf(out, "<polyline fill='none' stroke='%s' stroke-width='2' points='", colour);
    for (uint32_t i = 0; i < sweep->cell_count; i++) {
        const struct bench_cell *cell = &sweep->cells[i];

        if (cell->size == sweep->sizes[size] && cell->requests > 0) {
            last = y_of(chart, chart->value(cell));
            fprintf(out, "%.1f,%.1f ", x_of(sweep, cell->at_once), last);
        }
    }
    fprintf(out, "'/>\n");
    if (last > 0) {
        fprintf(out, "<text x='%.0f' y='%.1f' text-anchor='end' fill='%s'>%s</text>\n",
                WIDTH - RIGHT, last - 5, colour, term_bytes(name, sweep->sizes[size]));
    }
}

/* Returns false if the value is unknown. */
static bool find_top(const struct bench_sweep *sweep, struct chart *chart)
{
    for (uint32_t i = 0; i < sweep->cell_count; i++) {
        double value = chart->value(&sweep->cells[i]) * 1.05;

        chart->top = value > chart->top ? value : chart->top;
    }
    return chart->top > 0;
}

static void draw(FILE *out, const struct bench_sweep *sweep, const struct chart *chart)
{
    draw_axes(out, sweep, chart);
    for (uint32_t i = 0; i < sweep->size_count; i++) {
        draw_line(out, sweep, chart, i);
    }
}

static const struct chart charts[] = {
    {.title = "Throughput", .unit = "MB/s", .value = rate_of},
    {.title = "First byte, median", .unit = "ms", .value = p50_of},
    {.title = "First byte, 99th percentile", .unit = "ms", .value = p99_of},
    {.title = "CPU", .unit = "s a GB", .value = cpu_of},
};
#define CHARTS (sizeof charts / sizeof charts[0])

static void write_rows(FILE *out, const struct bench_sweep *sweep)
{
    char size[TERM_NUMBER_BYTES];

    fprintf(out, "<table><tr><th>size<th>at once<th>requests<th>failed<th>MB/s<th>requests/s"
                 "<th>first byte p50 ms<th>p90<th>p99<th>last byte p50 ms<th>p90<th>p99"
                 "<th>CPU s a GB</tr>\n");
    for (uint32_t i = 0; i < sweep->cell_count; i++) {
        const struct bench_cell *cell = &sweep->cells[i];

        if (cell->requests == 0) {
            continue;
        }
        fprintf(out,
                "<tr><td>%s<td>%llu<td>%llu<td>%llu<td>%.1f<td>%.0f<td>%.2f<td>%.2f<td>%.2f"
                "<td>%.2f<td>%.2f<td>%.2f<td>%.2f</tr>\n",
                term_bytes(size, cell->size), (unsigned long long)cell->at_once,
                (unsigned long long)cell->requests, (unsigned long long)cell->failed, rate_of(cell),
                cell->seconds > 0 ? (double)cell->requests / cell->seconds : 0,
                cell->first[0] * 1e3, cell->first[1] * 1e3, cell->first[2] * 1e3,
                cell->all[0] * 1e3, cell->all[1] * 1e3, cell->all[2] * 1e3, cpu_of(cell));
    }
    fprintf(out, "</table>\n");
}

static void write_page(FILE *out, const struct bench_sweep *sweep)
{
    fprintf(out, "<!doctype html><meta charset='utf-8'><title>stoker bench store</title>\n"
                 "<style>body{font:14px sans-serif;margin:2em;max-width:1400px}"
                 "figure{display:inline-block;width:640px;margin:0 1em 1em 0}"
                 "svg text{font-size:12px}table{border-collapse:collapse}"
                 "td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #ddd}</style>\n"
                 "<h1>stoker bench store</h1>\n<p>");
    write_text(out, sweep->url);
    fprintf(out, ": %llu objects, %.1f MB; %.1f s%s; %llu requests were sent again.</p>\n",
            (unsigned long long)sweep->objects, (double)sweep->object_bytes / 1e6, sweep->seconds,
            sweep->interrupted ? ", interrupted" : "", (unsigned long long)sweep->retries);
    for (uint32_t i = 0; i < sweep->put_count; i++) {
        const struct bench_put *put = &sweep->puts[i];

        fprintf(out, "<p>Written: %llu of %.1f kB in %.2f s, %.1f MB/s.</p>\n",
                (unsigned long long)put->objects, (double)put->size / 1e3, put->seconds,
                (double)(put->objects * put->size) / 1e6 / put->seconds);
    }
    for (size_t i = 0; i < CHARTS; i++) {
        struct chart chart = charts[i];

        if (find_top(sweep, &chart)) {
            fprintf(out, "<figure><figcaption>%s (%s)</figcaption><svg viewBox='0 0 %.0f %.0f'>\n",
                    chart.title, chart.unit, WIDTH, HEIGHT);
            draw(out, sweep, &chart);
            fprintf(out, "</svg></figure>\n");
        }
    }
    write_rows(out, sweep);
}

/* Writes the charts as one drawing, two by two. */
static void write_drawing(FILE *out, const struct bench_sweep *sweep)
{
    double row = HEIGHT + 36;

    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' "
            "font-family='DejaVu Sans,sans-serif' font-size='12'>\n"
            "<rect width='100%%' height='100%%' fill='white'/><text x='12' y='24' font-size='14'>",
            2 * WIDTH + 16, 2 * row + 36);
    write_text(out, sweep->url);
    fprintf(out, "</text>\n");
    for (size_t i = 0; i < CHARTS; i++) {
        struct chart chart = charts[i];

        if (find_top(sweep, &chart)) {
            fprintf(out,
                    "<g transform='translate(%.0f %.0f)'><text x='%.0f' y='20'>%s (%s)</text>"
                    "<g transform='translate(0 28)'>\n",
                    (double)(i % 2) * (WIDTH + 16), 36 + (double)(i / 2) * row, LEFT, chart.title,
                    chart.unit);
            draw(out, sweep, &chart);
            fprintf(out, "</g></g>\n");
        }
    }
    fprintf(out, "</svg>\n");
}

bool bench_is_drawing(const char *path)
{
    return stk_text_ends_with_nocase(path, ".html") || stk_text_ends_with_nocase(path, ".svg") ||
           stk_text_ends_with_nocase(path, ".png");
}

bool bench_can_draw(const char *path)
{
    static char version[] = "--version";
    char *const words[] = {rsvg, version, NULL};

    return !stk_text_ends_with_nocase(path, ".png") || run_quietly(words) == 0;
}

static int write_file(const struct bench_sweep *sweep, const char *path, bool drawing)
{
    FILE *out = fopen(path, "w");
    int number;

    if (!out) {
        return errno;
    }
    (drawing ? write_drawing : write_page)(out, sweep);
    number = fflush(out) != 0 || ferror(out) ? EIO : 0;
    return fclose(out) != 0 && number == 0 ? errno : number;
}

/* Converts the drawing by librsvg's program. */
static int make_png(const struct bench_sweep *sweep, char *part)
{
    static char to[] = "--output", end[] = "--"; /* its default format is PNG */
    char drawing[PATH_BYTES + 8];
    char *const words[] = {rsvg, to, part, end, drawing, NULL};
    int number;

    snprintf(drawing, sizeof drawing, "%s.svg", part);
    number = write_file(sweep, drawing, true);
    number = number == 0 && run_quietly(words) != 0 ? EIO : number;
    unlink(drawing);
    return number;
}

int bench_page(const struct bench_sweep *sweep, const char *path)
{
    char part[PATH_BYTES];
    int number = 0;

    if ((size_t)snprintf(part, sizeof part, "%s.part", path) >= sizeof part) {
        return ENAMETOOLONG;
    }
    number = stk_text_ends_with_nocase(path, ".png")
                 ? make_png(sweep, part)
                 : write_file(sweep, part, stk_text_ends_with_nocase(path, ".svg"));
    if (number == 0 && rename(part, path) != 0) {
        number = errno;
    }
    if (number != 0) {
        unlink(part);
    }
    return number;
}
