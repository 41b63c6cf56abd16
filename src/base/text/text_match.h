/* base/text/text_match.h: compares a text with another one, or its end with a suffix.
 *
 *   "a/b.tar", ".tar" -> true;  "a/b.tar", ".tar" -> a stem of 3 bytes
 *
 * Pure. Owner: none; texts are borrowed. Threads: any. Memory: none. Bound: none. */
#ifndef BASE_TEXT_TEXT_MATCH_H
#define BASE_TEXT_TEXT_MATCH_H

#include "base/base.h"

#include <string.h>

static inline struct stk_view stk_view_of_text(const char *text)
{
    return (struct stk_view){(const uint8_t *)text, strlen(text)};
}

/* Returns true if the bytes of the view are the bytes of the text. */
bool stk_view_is(struct stk_view view, const char *text);

/* Return true if the text ends with the suffix. A text that is equal to the suffix does. */
bool stk_view_ends_with(struct stk_view view, const char *suffix);
bool stk_text_ends_with(const char *text, const char *suffix);
/* The same, where A to Z are equal to a to z. */
bool stk_view_ends_with_nocase(struct stk_view view, const char *suffix);
bool stk_text_ends_with_nocase(const char *text, const char *suffix);

/* Returns the number of bytes before the suffix. 0: the text does not end with the suffix, or has
 * nothing before it. */
size_t stk_text_stem_bytes(const char *text, const char *suffix);

/* Returns the bytes of a byte order mark (UTF-8) at the beginning of a text: 3 or 0. */
size_t stk_view_mark_bytes(struct stk_view text);

/* Returns the path in a URL of this machine, "file:///path" or "file://localhost/path" (RFC 8089;
 * upper or lower case). Other texts are returned as they are. */
const char *stk_text_skip_file_scheme(const char *text);

#endif
