/* checkpoint/layout/json_text.h: a growing text, to which JSON is appended.
 * Owner: the caller; free with stk_json_text_deinit. Threads: one. Memory: the text, by base/mem.h.
 * Bound: the caller's. */
#ifndef CHECKPOINT_LAYOUT_JSON_TEXT_H
#define CHECKPOINT_LAYOUT_JSON_TEXT_H

#include "base/base.h"

struct stk_json_text {
    char *text; /* ends with NUL, unless nothing was added */
    size_t bytes, capacity;
    bool failed; /* no memory: everything added later is ignored */
};

/* Appends bytes as they are. */
void stk_json_text_add(struct stk_json_text *json, const char *text, size_t bytes);
void stk_json_text_print(struct stk_json_text *json, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends a JSON string. The text is UTF-8. */
void stk_json_text_string(struct stk_json_text *json, const char *text);
/* Appends the same character many times. */
void stk_json_text_fill(struct stk_json_text *json, char character, size_t count);
/* Appends a number of at most 8 bytes in little endian. */
void stk_json_text_little(struct stk_json_text *json, uint64_t number, uint32_t bytes);
void stk_json_text_deinit(struct stk_json_text *json); /* zeroed is allowed */

#endif
