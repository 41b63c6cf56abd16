/* programs/cli/terminal.h: all that the command writes: results on stdout, errors and a live line
 * on stderr, numbers for people, JSON for programs.
 *
 *   term_init -> ... -> term_finish        a live line: term_live ... term_live_end
 *
 * No colour and no live line where stderr is no terminal, or NO_COLOR is set (colour), or TERM is
 * "dumb". What comes out of files is escaped: a key can not drive the terminal.
 * Owner: main. Threads: one. Memory: static. Bound: lines of a live line are cut at the width. */
#ifndef PROGRAMS_CLI_TERMINAL_H
#define PROGRAMS_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stoker/stoker.h>

#define TERM_NUMBER_BYTES 40 /* room for any of the numbers below */

void term_init(void);
/* Flushes stdout. EXIT_FINE also when its reader went away; EXIT_ENVIRONMENT when the disk is
 * full and the like, after saying so; else `status`. */
int term_finish(int status);
/* stdout takes no more: loops end. */
bool term_closed(void);

/* "stoker: what: 'where'" and the advice below. */
void term_fail(const char *what, const char *where, const char *advice);
/* The same for a usage error of a command (NULL: of none); returns EXIT_USAGE. */
int term_usage(const char *command, const char *what, const char *where, const char *advice);
/* The same for an error of the library; returns the exit status that goes with it. */
int term_error(int status, const struct stoker_error *error);

/* Whether a live line is drawn at all. share 0..1: of the bar; negative: no bar. */
bool term_is_live(void);
void term_live(double share, const char *text);
void term_live_end(void);
/* Safe in a signal handler: leaves the terminal as it was. */
void term_restore_in_signal(void);

/* A bar of `share` of `width` cells on stdout. */
void term_bar(double share, unsigned width);
/* Text out of a file, with everything that is not printable UTF-8 as \xNN. */
void term_text(const char *text);

/* 12,345 | 97.4 MB | 1.25 s. The text is `out`. */
const char *term_count(char out[TERM_NUMBER_BYTES], uint64_t count);
const char *term_bytes(char out[TERM_NUMBER_BYTES], uint64_t bytes);
const char *term_time(char out[TERM_NUMBER_BYTES], double seconds);
/* A clock that only goes forward. */
uint64_t term_clock_ns(void);
double term_seconds_since(uint64_t start_ns);

/* JSON on stdout, one line an object. Bytes that are not UTF-8 become \udcNN, as Python's
 * surrogateescape does, so that a name can be found again. Key NULL: an item of a list. */
void json_open(const char *key, char bracket); /* '{' or '[' */
void json_close(char bracket);                 /* '}' or ']'; the outermost ends the line */
void json_str(const char *key, const char *text);
void json_u64(const char *key, uint64_t value);
void json_double(const char *key, double value); /* null if not finite */
void json_bool(const char *key, bool value);

#endif
