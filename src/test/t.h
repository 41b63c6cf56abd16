/* test/t.h: the harness: a test is a program; rows in tables; exit 0, 1, or 77 for skip.
 * Owner: the test. Threads: one. Memory: none. Bound: none. */
#ifndef TEST_T_H
#define TEST_T_H

#include <stdbool.h>
#include <stdio.h>
#include <stoker/stoker.h>

/* Of some thousands of calls so many fail in turn; with fewer runs, every n-th. A lack of memory
 * does not depend on threads, and ThreadSanitizer takes ten times as long. */
#ifdef __SANITIZE_THREAD__
#    define T_STRIDE 8
#else
#    define T_STRIDE 1
#endif
#define T_SPREAD(count) ((count) / T_STRIDE)

/* The number of random histories to run: sanitizers take three to twenty times as long, so they run
 * fewer. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define T_HISTORIES(count) ((count) / 4)
#else
#    define T_HISTORIES(count) (count)
#endif

#define T_EACH(type, row, rows)                                                                    \
    for (const struct type *row = (rows); row < (rows) + sizeof(rows) / sizeof(rows)[0]; row++)

#define T_EQ(name, got, want)                                                                      \
    t_equal(__FILE__, __LINE__, name, #got, (long long)(got), (long long)(want))
#define T_TRUE(name, condition) t_true(__FILE__, __LINE__, name, #condition, condition)
#define T_STR(name, got, want) t_string(__FILE__, __LINE__, name, #got, got, want)
#define T_HAS(name, text, part) t_has(__FILE__, __LINE__, name, #text, text, part)
/* A filled error: negative status, and what, where, advice not empty. */
#define T_ERROR(name, error) t_error(__FILE__, __LINE__, name, error)

bool t_equal(const char *file, int line, const char *name, const char *expression, long long got,
             long long want);
bool t_true(const char *file, int line, const char *name, const char *expression, bool condition);
bool t_string(const char *file, int line, const char *name, const char *expression, const char *got,
              const char *want);
bool t_has(const char *file, int line, const char *name, const char *expression, const char *text,
           const char *part);
bool t_error(const char *file, int line, const char *name, const struct stoker_error *error);
/* True if a chi-square of so many degrees of freedom may come from fair draws: hardly any seed
 * fails with those. Prints the numbers if not. */
bool t_is_fair(const char *name, double chi, double freedom);
/* Prints one line with the counts; returns the exit status. */
int t_finish(void);
/* Prints why and exits with 77. */
_Noreturn void t_skip(const char *reason);

#endif
