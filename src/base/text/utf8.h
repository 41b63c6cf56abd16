/* base/text/utf8.h: the check for UTF-8 (RFC 3629: the shortest form, no surrogates, at most
 * U+10FFFF), as strict as Python's decoder. Owner: the caller; text is borrowed. Threads: any.
 * Memory: none. Bound: none. */
#ifndef BASE_TEXT_UTF8_H
#define BASE_TEXT_UTF8_H

#include "base/base.h"

/* Returns the size of the character at data in bytes (1 to 4), 0 if there is none. bytes: how many
 * may be read, at least 1; for text that ends with NUL, 4 will do. */
uint32_t stk_utf8_character(const uint8_t *data, size_t bytes);
/* Returns true if the text is UTF-8. Else sets *offset_out (may be NULL) to the first bad byte. */
bool stk_utf8_check(struct stk_view text, uint64_t *offset_out);

#endif
