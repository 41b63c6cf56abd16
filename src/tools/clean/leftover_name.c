/* Names are matched completely: a file of the user with a similar name is none of ours. */
#include "tools/clean/leftover_name.h"

#include <stdio.h>
#include <string.h>

/* '#' stands for hexadecimal digits, as many as `digits` (0: one or more); '*' at the begin for any
 * text before it. */
static const struct pattern {
    unsigned places; /* enum stk_clean_place */
    uint32_t kind;
    uint32_t digits;
    const char *text;
} patterns[] = {
    {STK_CLEAN_DATA | STK_CLEAN_CACHE, STOKER_LEFTOVER_TABLE, 16, "*.index.#.table"},
    {STK_CLEAN_DATA | STK_CLEAN_CACHE, STOKER_LEFTOVER_LOCK, 16, "*.index.#.table.lock"},
    {STK_CLEAN_DATA | STK_CLEAN_CACHE, STOKER_LEFTOVER_PART, 16, "*.index.#.table.new"},
    {STK_CLEAN_DATA, STOKER_LEFTOVER_LOCK, 0, "stoker.index.lock"},
    {STK_CLEAN_CACHE, STOKER_LEFTOVER_LOCK, 0, "#.index.lock"},
    {STK_CLEAN_CACHE, STOKER_LEFTOVER_LOCK, 0, "scan-#.lock"},
    {STK_CLEAN_CACHE, STOKER_LEFTOVER_TEXT, 32, "text-#.txt"},
    {STK_CLEAN_CACHE, STOKER_LEFTOVER_PART, 32, "text-#.txt.part"},
    {STK_CLEAN_CACHE, STOKER_LEFTOVER_PART, 0, "text-#.txt.#.part"},
    {STK_CLEAN_CACHE, STOKER_LEFTOVER_COUNTS, 32, "counts-#.bin"},
    {STK_CLEAN_CACHE, STOKER_LEFTOVER_PART, 32, "counts-#.bin.part"},
    {STK_CLEAN_CACHE, STOKER_LEFTOVER_PART, 0, "counts-#.bin.#.part"},
    {STK_CLEAN_FLIGHT, STOKER_LEFTOVER_LOCK, 0, "#.lock"},
    {STK_CLEAN_FLIGHT, STOKER_LEFTOVER_LOCK, 0, "#.wait"},
    {STK_CLEAN_FLIGHT, STOKER_LEFTOVER_PART, 0, "#.part"},
    {STK_CLEAN_FLIGHT, STOKER_LEFTOVER_SHARED, 0, "#.result"},
};

static bool matches(const char *text, uint32_t digits, const char *name)
{
    for (; *text; text++) {
        if (*text == '#') {
            size_t count = strspn(name, "0123456789abcdef");

            if (digits ? count != digits : count == 0) {
                return false;
            }
            name += count;
        } else if (*name++ != *text) {
            return false;
        }
    }
    return *name == '\0';
}

/* The fixed part of a pattern with '*' is at the end of the name. */
static bool matches_end(const char *text, uint32_t digits, const char *name)
{
    for (const char *at = name + (*name != '\0'); *at; at++) {
        if (matches(text, digits, at)) {
            return true;
        }
    }
    return false;
}

uint32_t stk_leftover_kind(enum stk_clean_place place, const char *name, unsigned user)
{
    if (place == STK_CLEAN_NODE) { /* "stoker-LAYOUT-USER" */
        char ending[16];
        size_t layout = strncmp(name, "stoker-", 7) == 0 ? strspn(name + 7, "0123456789") : 0;

        snprintf(ending, sizeof ending, "-%u", user);
        return layout > 0 && strcmp(name + 7 + layout, ending) == 0 ? STOKER_LEFTOVER_SHARED : 0;
    }
    for (size_t i = 0; i < STK_COUNT(patterns); i++) {
        const struct pattern *pattern = &patterns[i];

        if ((pattern->places & (unsigned)place) != 0 &&
            (pattern->text[0] == '*' ? matches_end(pattern->text + 1, pattern->digits, name)
                                     : matches(pattern->text, pattern->digits, name))) {
            return pattern->kind;
        }
    }
    return 0;
}
