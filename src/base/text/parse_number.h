/* base/text/parse_number.h: numbers in text, whatever the locale of the process is, and without
 * errno.
 *
 *   text --parse--> number, and the first byte that is no part of it
 *   number --format--> text
 *
 * Pure. Owner: none. Threads: any. Memory: none. Bound: none. */
#ifndef BASE_TEXT_PARSE_NUMBER_H
#define BASE_TEXT_PARSE_NUMBER_H

#include "base/base.h"

/* Parse the number at the start of a NUL-ended text, after white space, and set *end_out to the
 * byte after it. Return false if there is no number, or it does not fit: an integer of more than
 * 63 bits, a real number beyond the largest double. Real numbers are those of C's strtod (also
 * "inf", "nan" and hexadecimal ones), with a point; tiny ones are rounded to nearest, also to
 * subnormal numbers and 0. */
bool stk_parse_int64(const char *text, const char **end_out, int64_t *number_out);
/* The same for 64 bits without a sign; "-1" does not fit. */
bool stk_parse_uint64(const char *text, const char **end_out, uint64_t *number_out);
bool stk_parse_double(const char *text, const char **end_out, double *number_out);

/* Writes a number as "%.*g", with a point. text_bytes: at least 32. */
void stk_format_double(char *text, size_t text_bytes, int digits, double number);

/* Parse a text that is an integer of 64 bits without a sign and nothing else; with_unit: perhaps
 * with a unit of 1,024 (K, KB, KiB, ... T; any case of the first letter). Return false if it is
 * not, or does not fit. */
bool stk_parse_size(const char *text, bool with_unit, uint64_t *size_out);

/* Returns true if only white space (space, tab, line feed, carriage return) is left up to `end`,
 * where the text ends. */
bool stk_parse_is_end(const char *at, const char *end);

#endif
