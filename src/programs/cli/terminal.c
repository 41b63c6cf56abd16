/* Output streams, colours, live line, numbers for people, JSON. */
#include "programs/cli/terminal.h"

#include "base/text/utf8.h"
#include "programs/cli/args.h"

#include <errno.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 512
#define BAR_CELLS 24

static struct {
    bool color;    /* of stderr */
    bool live;     /* stderr is a terminal with carriage return */
    bool utf8;     /* of the locale */
    bool drawn;    /* a live line is displayed */
    bool closed;   /* stdout failed */
    int failure;   /* errno of it */
    bool comma[8]; /* JSON: there is an item before, by depth */
    int depth;
} term;

static pthread_mutex_t stderr_lock = PTHREAD_MUTEX_INITIALIZER;

static void live_end_locked(void);
static void check_stdout(void);
static void bar_put(FILE *out, double share, unsigned width);
static void json_text(const char *text);
static void json_key(const char *key);
static void put_text(FILE *out, const char *text, unsigned cells_max, bool exact);

void term_init(void)
{
    const char *type = getenv("TERM");
    const char *no_color = getenv("NO_COLOR");

    setlocale(LC_CTYPE, ""); /* LC_NUMERIC stays "C" */
    term.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    term.live = isatty(STDERR_FILENO) && type && strcmp(type, "dumb") != 0;
    term.color = term.live && !(no_color && no_color[0]);
}

static const char *write_advice(int number)
{
    return number == ENOSPC || number == EDQUOT ? "free space where stdout goes"
           : number == EBADF ? "stdout is closed or cannot be written: redirect it to a file or a "
                               "pipe"
           : number == EFBIG ? "raise the limit of file sizes ('ulimit -f')"
                             : "check where stdout goes";
}

int term_finish(int status)
{
    term_live_end();
    if (fflush(stdout) != 0) {
        check_stdout();
    }
    if (term.closed && term.failure == EPIPE) {
        return status > EXIT_SIGNAL ? status : EXIT_FINE;
    }
    if (term.closed) {
        term_fail("cannot write the result", strerror(term.failure), write_advice(term.failure));
        return EXIT_ENVIRONMENT;
    }
    return status;
}

bool term_closed(void)
{
    if (ferror(stdout)) {
        check_stdout();
    }
    return term.closed;
}

void term_fail(const char *what, const char *where, const char *advice)
{
    pthread_mutex_lock(&stderr_lock);
    live_end_locked();
    fprintf(stderr, "%sstoker:%s ", term.color ? "\033[1;31m" : "", term.color ? "\033[0m" : "");
    put_text(stderr, what, UINT_MAX, false);
    if (where && where[0]) {
        fputs(": ", stderr);
        put_text(stderr, where, UINT_MAX, false);
    }
    if (advice && advice[0]) {
        fputs("\n  ", stderr);
        put_text(stderr, advice, UINT_MAX, false);
    }
    fputc('\n', stderr);
    pthread_mutex_unlock(&stderr_lock);
}

int term_fail_name(const char *what, int number, const char *name, const char *advice)
{
    char line[160], place[LINE_MAX_BYTES];

    snprintf(line, sizeof line, "%s%s%s", what, number ? ": " : "", number ? strerror(number) : "");
    snprintf(place, sizeof place, "'%s'", name);
    term_fail(line, place, advice);
    return EXIT_ENVIRONMENT;
}

void term_notice(const char *text)
{
    pthread_mutex_lock(&stderr_lock);
    live_end_locked();
    fputs("stoker: ", stderr);
    put_text(stderr, text, UINT_MAX, false);
    fputc('\n', stderr);
    fflush(stderr);
    pthread_mutex_unlock(&stderr_lock);
}

int term_usage(const char *command, const char *what, const char *where, const char *advice)
{
    char line[160], place[LINE_MAX_BYTES];

    snprintf(line, sizeof line, "%s%s%s", command ? command : "", command ? ": " : "", what);
    snprintf(place, sizeof place, "'%s'", where ? where : "");
    term_fail(line, where ? place : NULL, advice);
    return EXIT_USAGE;
}

int term_error(int status, const struct stoker_error *error)
{
    if (error->what[0]) {
        term_fail(error->what, error->where, error->advice);
    } else {
        term_fail(stoker_status_text(status), stoker_status_name(status), NULL);
    }
    return term_exit_status(status);
}

int term_exit_status(int status)
{
    switch (status) {
    case STOKER_ERROR_ARGUMENT:
        return EXIT_USAGE;
    case STOKER_ERROR_BUDGET:
    case STOKER_ERROR_TIMEOUT:
        return EXIT_ENVIRONMENT;
    default:
        return status <= -5001 ? EXIT_FINDINGS : EXIT_ENVIRONMENT;
    }
}

bool term_is_live(void)
{
    return term.live;
}

void term_live(double share, const char *text)
{
    struct winsize size = {0};
    unsigned width = 80;
    unsigned used = 0;

    if (!term.live) {
        return;
    }
    pthread_mutex_lock(&stderr_lock);
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        width = size.ws_col;
    }
    fputs("\r\033[K", stderr);
    if (share >= 0 && width > 2 * BAR_CELLS) {
        bar_put(stderr, share, BAR_CELLS);
        fputc(' ', stderr);
        used = BAR_CELLS + 1;
    }
    put_text(stderr, text, width > used + 1 ? width - used - 1 : 0, false);
    fflush(stderr);
    term.drawn = true;
    pthread_mutex_unlock(&stderr_lock);
}

void term_live_end(void)
{
    pthread_mutex_lock(&stderr_lock);
    live_end_locked();
    pthread_mutex_unlock(&stderr_lock);
}

static void live_end_locked(void)
{
    if (term.drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        term.drawn = false;
    }
}

void term_interrupted_in_signal(void)
{
    static const char clear[] = "\r\033[K", text[] = "stoker: interrupted\n";
    ssize_t ignored = term.drawn ? write(STDERR_FILENO, clear, sizeof clear - 1) : 0;

    ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
}

void term_bar(double share, unsigned width)
{
    bar_put(stdout, share, width);
}

void term_text(const char *text)
{
    put_text(stdout, text, UINT_MAX, true);
}

const char *term_count(char out[TERM_NUMBER_BYTES], uint64_t count)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)count);
    size_t used = 0;

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            out[used++] = ',';
        }
        out[used++] = digits[i];
    }
    out[used] = 0;
    return out;
}

const char *term_bytes(char out[TERM_NUMBER_BYTES], uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 999.95 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1000;
        unit++;
    }
    snprintf(out, TERM_NUMBER_BYTES, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return out;
}

const char *term_time(char out[TERM_NUMBER_BYTES], double seconds)
{
    if (seconds < 0.001) {
        snprintf(out, TERM_NUMBER_BYTES, "%.0f us", seconds * 1e6);
    } else if (seconds < 1) {
        snprintf(out, TERM_NUMBER_BYTES, "%.1f ms", seconds * 1e3);
    } else {
        snprintf(out, TERM_NUMBER_BYTES, "%.2f s", seconds);
    }
    return out;
}

uint64_t term_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double term_seconds_since(uint64_t start_ns)
{
    return (double)(term_clock_ns() - start_ns) / 1e9;
}

void json_open(const char *key, char bracket)
{
    json_key(key);
    fputc(bracket, stdout);
    term.depth++;
    term.comma[term.depth % 8] = false;
}

void json_close(char bracket)
{
    fputc(bracket, stdout);
    term.depth--;
    if (term.depth == 0) {
        fputc('\n', stdout);
        term.comma[0] = false;
    }
}

void json_str(const char *key, const char *text)
{
    json_key(key);
    json_text(text);
}

void json_u64(const char *key, uint64_t value)
{
    json_key(key);
    printf("%llu", (unsigned long long)value);
}

void json_double(const char *key, double value)
{
    json_key(key);
    if (isfinite(value)) {
        printf("%.9g", value);
    } else {
        fputs("null", stdout);
    }
}

void json_bool(const char *key, bool value)
{
    json_key(key);
    fputs(value ? "true" : "false", stdout);
}

void json_none(const char *key)
{
    json_key(key);
    fputs("null", stdout);
}

static void check_stdout(void)
{
    if (!term.closed) {
        term.closed = true;
        term.failure = errno;
    }
}

/* C0, DEL, and C1 in UTF-8. */
static bool is_control(const unsigned char *text)
{
    return text[0] < 0x20 || text[0] == 0x7f || (text[0] == 0xc2 && text[1] < 0xa0);
}

static void bar_put(FILE *out, double share, unsigned width)
{
    unsigned full = 0;

    if (share > 0) {
        full = (unsigned)((share < 1 ? share : 1) * width + 0.5);
    }
    for (unsigned i = 0; i < width; i++) {
        fputs(i < full ? (term.utf8 ? "█" : "#") : (term.utf8 ? "·" : "."), out);
    }
}

static void json_text(const char *text)
{
    const unsigned char *byte = (const unsigned char *)text;

    fputc('"', stdout);
    while (*byte) {
        unsigned bytes = stk_utf8_character(byte, 4);
        if (bytes == 0) {
            printf("\\udc%02x", *byte++);
        } else if (*byte == '"' || *byte == '\\') {
            printf("\\%c", *byte++);
        } else if (is_control(byte)) {
            printf("\\u%04x", byte[bytes - 1]); /* of C1 the second byte is the number */
            byte += bytes;
        } else {
            fwrite(byte, 1, bytes, stdout);
            byte += bytes;
        }
    }
    fputc('"', stdout);
}

/* Prints text. Control characters and bytes that are not UTF-8 become \xNN. Stops after cells_max
 * cells; each character counts as one. exact: doubles backslashes, so that the output is reversible
 * (errors are escaped already). */
static void put_text(FILE *out, const char *text, unsigned cells_max, bool exact)
{
    const unsigned char *byte = (const unsigned char *)text;

    for (unsigned cells = 0; *byte;) {
        unsigned bytes = stk_utf8_character(byte, 4);
        bool raw = bytes > 0 && !is_control(byte);

        cells += raw ? 1 : 4;
        if (cells > cells_max) {
            break;
        }
        if (exact && *byte == '\\') {
            fputc('\\', out);
        }
        if (raw) {
            fwrite(byte, 1, bytes, out);
            byte += bytes;
        } else {
            fprintf(out, "\\x%02x", *byte++);
        }
    }
}

/* The comma before an item, and its key. */
static void json_key(const char *key)
{
    if (term.comma[term.depth % 8]) {
        fputs(term.depth ? ", " : "", stdout);
    }
    term.comma[term.depth % 8] = true;
    if (key) {
        json_text(key);
        fputs(": ", stdout);
    }
}
