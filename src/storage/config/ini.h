/* storage/config/ini.h: parses ~/.aws/config and ~/.aws/credentials as botocore does (with Python's
 * configparser). Pure.
 *
 *   text --stk_ini_parse--> entries, in their order --stk_ini_get--> a value
 *
 * A section or option may be there only once; names of options are case-insensitive; a line that
 * begins with '#' or ';' is a comment; a line that is indented more than its option continues the
 * value.
 * Owner: the caller. Threads: any, to read. Memory: one copy of the text, wiped in deinit, as it
 * holds secrets. Bound: STK_INI_BYTES_MAX, STK_INI_ENTRIES_MAX. */
#ifndef STORAGE_CONFIG_INI_H
#define STORAGE_CONFIG_INI_H

#include "base/base.h"

#define STK_INI_BYTES_MAX (1u << 20)
#define STK_INI_ENTRIES_MAX 65536u

struct stk_ini_entry {
    const char *section, *name; /* name NULL: the section itself */
    const char *value;          /* continuation lines follow a '\n' */
    uint32_t line;              /* from 1 */
};

struct stk_ini { /* zeroed: empty */
    char *text;  /* owned */
    size_t text_bytes;
    struct stk_ini_entry *entries;
    size_t count, capacity;
    uint32_t *slots; /* owned: hash table of indexes of entries, plus 1; 0: free */
    size_t slot_count;
};

/* Returns 0 on success, STOKER_ERROR_FORMAT with the number of the bad line (never its text),
 * -ENOMEM, or STOKER_ERROR_LIMIT. */
int stk_ini_parse(struct stk_ini *ini, struct stk_view text, struct stoker_error *error);
void stk_ini_deinit(struct stk_ini *ini);
bool stk_ini_has(const struct stk_ini *ini, const char *section);
/* NULL: there is none; name NULL: the section itself. Valid until deinit. */
const struct stk_ini_entry *stk_ini_find(const struct stk_ini *ini, const char *section,
                                         const char *name);
/* NULL: there is none. Valid until deinit. */
const char *stk_ini_get(const struct stk_ini *ini, const char *section, const char *name);
/* Finds a name in a value that consists of "name = value" lines; the last such line counts. Returns
 * 1, 0 if there is none, STOKER_ERROR_LIMIT if it does not fit. */
int stk_ini_get_nested(const char *value, const char *name, char *out, size_t out_bytes);

#endif
