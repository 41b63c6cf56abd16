/* Goal: --files-from reads names that end in newlines or in NUL bytes, with spaces and without
 * empty ones. Method: small files. The reports of copy_report.c are tested by
 * python/tests/test_copy_daily.py. */
#include "programs/cli/copy_report.h"

#include "test/t.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(const char *what, const char *text, size_t bytes, const char *want)
{
    char path[] = "/tmp/copy_report_test.XXXXXX", got[128] = "";
    const char *const *names = NULL;
    size_t count = 0;
    int fd = mkstemp(path);

    T_EQ(what, write(fd, text, bytes), bytes);
    close(fd);
    T_EQ(what, copy_names_read(path, &names, &count), EXIT_FINE);
    for (size_t i = 0; i < count; i++) {
        snprintf(got + strlen(got), sizeof got - strlen(got), "<%s>", names[i]);
    }
    T_STR(what, got, want);
    free((void *)(uintptr_t)names);
    unlink(path);
}

int main(void)
{
    const char *const *names;
    size_t count;

    check("lines", "a\nb c\n\n d", 9, "<a><b c>< d>");
    check("NUL bytes", "a\nb\0c\0", 6, "<a\nb><c>");
    check("one", "x", 1, "<x>");
    T_EQ("none", copy_names_read("/nowhere/list", &names, &count), EXIT_ENVIRONMENT);
    T_EQ("empty", copy_names_read("/dev/null", &names, &count), EXIT_ENVIRONMENT);
    return t_finish();
}
