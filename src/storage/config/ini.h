/* storage/config/ini.h: ~/.aws/config and credentials as botocore reads them (Python's
 * configparser). Pure.
 *
 *   text --stk_ini_parse--> entries, in their order --stk_ini_get--> a value
 *
 * Sections and options may come once only; names of options in lower case; full lines of comment
 * by '#' or ';'; a line that is indented deeper than its option goes on with the value.
 * Owner: the caller. Threads: any, to read. Memory: one copy of the text, wiped in deinit, for it
 * holds secrets. Bound: STK_INI_BYTES_MAX, STK_INI_ENTRIES_MAX. */
#ifndef STORAGE_CONFIG_INI_H
#define STORAGE_CONFIG_INI_H

#include "base/base.h"

#define STK_INI_BYTES_MAX (1u << 20)
#define STK_INI_ENTRIES_MAX 65536u

struct stk_ini_entry {
    const char *section, *name; /* name NULL: the section itself */
    const char *value;          /* continued lines behind '\n' */
    uint32_t line;              /* from 1 */
};

struct stk_ini { /* zeroed: empty */
    char *text;  /* owned */
    size_t text_bytes;
    struct stk_ini_entry *entries;
    size_t count, capacity;
    uint32_t *slots; /* owned: places of entries and 1, by hash; 0: free */
    size_t slot_count;
};

/* FORMAT with the line where it is none, never with its text; -ENOMEM; LIMIT. */
int stk_ini_parse(struct stk_ini *ini, struct stk_view text, struct stoker_error *error);
void stk_ini_deinit(struct stk_ini *ini);
bool stk_ini_has(const struct stk_ini *ini, const char *section);
/* NULL: it is not there; name NULL: the section itself. Lent until deinit. */
const struct stk_ini_entry *stk_ini_find(const struct stk_ini *ini, const char *section,
                                         const char *name);
/* NULL: it is not there. Lent until deinit. */
const char *stk_ini_get(const struct stk_ini *ini, const char *section, const char *name);
/* Of a value that is itself "name = value" lines: the value of a name, of the last such line. 1: it
 * is there; 0: it is not; LIMIT: it does not fit. */
int stk_ini_get_nested(const char *value, const char *name, char *out, size_t out_bytes);

#endif
