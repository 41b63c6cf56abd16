/* programs/cli/terminal.h: output of the command: results on stdout, errors and a live line on
 * stderr, numbers for people, JSON for programs.
 *
 *   term_init -> ... -> term_finish        a live line: term_live ... term_live_end
 *
 * There is no colour and no live line if stderr is no terminal or TERM is "dumb"; no colour if
 * NO_COLOR is set. Text from files is escaped, so that a key cannot control the terminal.
 * Owner: main. Threads: one, but for term_notice. Memory: static. Bound: lines of a live line are
 * cut at the width. */
#ifndef PROGRAMS_CLI_TERMINAL_H
#define PROGRAMS_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stoker/stoker.h>

#define TERM_NUMBER_BYTES 40 /* enough for all numbers below */

void term_init(void);
/* Flushes stdout. Returns EXIT_FINE if the reader of stdout is gone; prints an error and returns
 * EXIT_ENVIRONMENT if writing failed (disk full); else `status`. */
int term_finish(int status);
/* Returns true if stdout is closed: the caller ends its loop. */
bool term_closed(void);

/* "stoker: what: 'where'" and the advice below. */
void term_fail(const char *what, const char *where, const char *advice);
/* The same for a name, without its quotes, and an errno: "stoker: what: reason: 'name'". number 0:
 * no reason. Returns EXIT_ENVIRONMENT. */
int term_fail_name(const char *what, int number, const char *name, const char *advice);
/* The same for a usage error of a command (NULL: none). Returns EXIT_USAGE. */
int term_usage(const char *command, const char *what, const char *where, const char *advice);
/* The same for an error of the library. Returns the exit status for it. */
int term_error(int status, const struct stoker_error *error);
/* The exit status of an error of the library. */
int term_exit_status(int status);

/* Returns true if the live line is enabled. share: 0 to 1, of the bar; negative: no bar. */
bool term_is_live(void);
void term_live(double share, const char *text);
void term_live_end(void);
/* A line on stderr, beside whatever the main thread prints. Any thread. */
void term_notice(const char *text);
/* Removes the live line and prints that the command was interrupted; async-signal-safe. */
void term_interrupted_in_signal(void);

/* Prints a bar of `width` cells to stdout. */
void term_bar(double share, unsigned width);
/* Prints text from a file; bytes that are not printable UTF-8 become \xNN. */
void term_text(const char *text);

/* 12,345 | 97.4 MB | 1.25 s. Return `out`. */
const char *term_count(char out[TERM_NUMBER_BYTES], uint64_t count);
const char *term_bytes(char out[TERM_NUMBER_BYTES], uint64_t bytes);
const char *term_time(char out[TERM_NUMBER_BYTES], double seconds);
/* Monotonic clock. */
uint64_t term_clock_ns(void);
double term_seconds_since(uint64_t start_ns);

/* JSON on stdout, one line an object. Bytes that are not UTF-8 become \udcNN, as Python's
 * surrogateescape does, so that names survive a round trip. Key NULL: an item of a list. */
void json_open(const char *key, char bracket); /* '{' or '[' */
void json_close(char bracket);                 /* '}' or ']'; the outermost ends the line */
void json_str(const char *key, const char *text);
void json_u64(const char *key, uint64_t value);
void json_double(const char *key, double value); /* null if not finite */
void json_bool(const char *key, bool value);
void json_none(const char *key); /* null; jansson has a json_null() */

#endif
