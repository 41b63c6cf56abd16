/* The harness of the C tests. */
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

static int checks, failures;

static bool report(bool good, const char *file, int line, const char *name, const char *expression)
{
    checks++;
    if (!good) {
        failures++;
        printf("%s:%d: [%s] %s", file, line, name, expression);
    }
    return good;
}

bool t_equal(const char *file, int line, const char *name, const char *expression, long long got,
             long long want)
{
    if (!report(got == want, file, line, name, expression)) {
        printf(": got %lld, want %lld\n", got, want);
        return false;
    }
    return true;
}

bool t_true(const char *file, int line, const char *name, const char *expression, bool condition)
{
    if (!report(condition, file, line, name, expression)) {
        printf(" is false\n");
        return false;
    }
    return true;
}

bool t_string(const char *file, int line, const char *name, const char *expression, const char *got,
              const char *want)
{
    if (!report(got && want && strcmp(got, want) == 0, file, line, name, expression)) {
        printf(": got \"%s\", want \"%s\"\n", got ? got : "(null)", want ? want : "(null)");
        return false;
    }
    return true;
}

bool t_has(const char *file, int line, const char *name, const char *expression, const char *text,
           const char *part)
{
    if (!report(strstr(text, part) != NULL, file, line, name, expression)) {
        printf(": \"%s\" has no \"%s\"\n", text, part);
        return false;
    }
    return true;
}

bool t_error(const char *file, int line, const char *name, const struct stoker_error *error)
{
    bool good = error->status < 0 && error->what[0] && error->where[0] && error->advice[0];

    if (!report(good, file, line, name, "the error is filled")) {
        printf(": status %d what \"%s\" where \"%s\" advice \"%s\"\n", error->status, error->what,
               error->where, error->advice);
    }
    return good;
}

/* Laurent and Massart 2000, lemma 1: chi-square of `freedom` degrees passes its mean by
 * 2 sqrt(freedom x) + 2 x with a chance of at most e^-x. */
bool t_is_fair(const char *name, double chi, double freedom)
{
    const double unlikely = 16; /* below e^-16: one in nine million */
    double above = chi - freedom - 2 * unlikely;
    bool fair = above <= 0 || above * above < 4 * freedom * unlikely;

    if (!fair) {
        printf("%s: chi-square %.1f with %.0f degrees of freedom\n", name, chi, freedom);
    }
    return fair;
}

int t_finish(void)
{
    printf("%d checks, %d failures\n", checks, failures);
    return failures > 0 || checks == 0;
}

_Noreturn void t_skip(const char *reason)
{
    printf("skip: %s\n", reason);
    exit(77);
}
