/* Parses line by line into one text: each name and value ends with a NUL, lines of a value are
 * joined. */
#include "storage/config/ini.h"

#include "base/mem.h"
#include "base/xxh3.h"

#include <errno.h>
#include <string.h>

struct reader {
    struct stk_ini *ini;
    size_t used;          /* of ini->text */
    const char *section;  /* NULL: none yet */
    bool has_option;      /* in this section, so the next line may continue the value */
    size_t indent, empty; /* of the option's line; empty lines after it */
    uint32_t line;
};

static int read_line(struct reader *reader, struct stk_view line, struct stoker_error *error);
static int begin_section(struct reader *reader, struct stk_view line, struct stoker_error *error);
static int begin_option(struct reader *reader, struct stk_view line, struct stoker_error *error);
static void continue_value(struct reader *reader, struct stk_view line);
static int add_entry(struct reader *reader, const char *name, const char *value);
static int grow(struct stk_ini *ini);
static const char *copy_text(struct reader *reader, struct stk_view text, bool lower);
static struct stk_view strip(struct stk_view text);
static int fail_line(const struct reader *reader, struct stoker_error *error, const char *what);

int stk_ini_parse(struct stk_ini *ini, struct stk_view text, struct stoker_error *error)
{
    struct reader reader = {.ini = ini};
    int status = 0;

    *ini = (struct stk_ini){0};
    if (text.bytes > STK_INI_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a configuration file is too long",
                        "check the file: the limit is 1 MiB", "%zu bytes", text.bytes);
    }
    ini->text_bytes = 3 * text.bytes + 16; /* "[a" and "a=" grow by an end each */
    ini->text = stk_alloc(ini->text_bytes, 1);
    if (!ini->text) {
        return stk_fail_errno(error, ENOMEM, "cannot keep a configuration file", "free memory",
                              "%zu bytes", text.bytes);
    }
    while (text.bytes > 0 && status == 0) {
        const uint8_t *end = memchr(text.data, '\n', text.bytes);
        size_t bytes = end ? (size_t)(end - text.data) + 1 : text.bytes;
        reader.line++;
        status = read_line(&reader, (struct stk_view){text.data, bytes - (end != NULL)}, error);
        text.data += bytes;
        text.bytes -= bytes;
    }
    if (status < 0) {
        stk_ini_deinit(ini);
    }
    return status;
}

void stk_ini_deinit(struct stk_ini *ini)
{
    if (ini->text) {
        explicit_bzero(ini->text, ini->text_bytes);
    }
    stk_free(ini->text);
    stk_free(ini->entries);
    stk_free(ini->slots);
    *ini = (struct stk_ini){0};
}

/* Returns the slot of the entry, or the slot where it would be inserted. A hash table is used
 * because a linear search would take minutes for a file that contains only names. */
static uint32_t *slot_of(const struct stk_ini *ini, const char *section, const char *name)
{
    uint64_t hash = stk_xxh3_64(section, strlen(section));
    size_t at = (hash ^ (name ? stk_xxh3_64(name, strlen(name)) * 3 : 0)) & (ini->slot_count - 1);

    while (ini->slots[at]) {
        const struct stk_ini_entry *entry = &ini->entries[ini->slots[at] - 1];

        if (!entry->name == !name && strcmp(entry->section, section) == 0 &&
            (!name || strcmp(entry->name, name) == 0)) {
            break;
        }
        at = (at + 1) & (ini->slot_count - 1);
    }
    return &ini->slots[at];
}

const struct stk_ini_entry *stk_ini_find(const struct stk_ini *ini, const char *section,
                                         const char *name)
{
    uint32_t *slot = ini->slot_count > 0 ? slot_of(ini, section, name) : NULL;

    return slot && *slot ? &ini->entries[*slot - 1] : NULL;
}

bool stk_ini_has(const struct stk_ini *ini, const char *section)
{
    return stk_ini_find(ini, section, NULL) != NULL;
}

const char *stk_ini_get(const struct stk_ini *ini, const char *section, const char *name)
{
    const struct stk_ini_entry *entry = stk_ini_find(ini, section, name);

    return entry ? entry->value : NULL;
}

int stk_ini_get_nested(const char *value, const char *name, char *out, size_t out_bytes)
{
    int found = 0;

    while (value[0] == '\n') {
        size_t bytes = strcspn(++value, "\n");
        struct stk_view line = {(const uint8_t *)value, bytes};
        const uint8_t *equal = memchr(line.data, '=', bytes);
        value += bytes;
        if (equal) {
            struct stk_view key = strip((struct stk_view){line.data, (size_t)(equal - line.data)});
            struct stk_view text =
                strip((struct stk_view){equal + 1, bytes - (size_t)(equal - line.data) - 1});
            if (key.bytes == strlen(name) && memcmp(key.data, name, key.bytes) == 0) {
                found = text.bytes < out_bytes ? 1 : STOKER_ERROR_LIMIT;
                if (found == 1) {
                    memcpy(out, text.data, text.bytes);
                    out[text.bytes] = 0;
                }
            }
        }
    }
    return found;
}

static int read_line(struct reader *reader, struct stk_view line, struct stoker_error *error)
{
    struct stk_view text = strip(line);
    size_t indent = (size_t)(text.data - line.data);
    const uint8_t *end;

    if (memchr(line.data, 0, line.bytes)) {
        return fail_line(reader, error, "a configuration file has a zero byte");
    }
    if (text.bytes == 0) {
        reader->empty += reader->has_option;
        return 0;
    }
    if (text.data[0] == '#' || text.data[0] == ';') {
        return 0;
    }
    if (reader->has_option && indent > reader->indent) {
        continue_value(reader, text);
        return 0;
    }
    reader->indent = indent;
    reader->empty = 0;
    end = memrchr(text.data + 1, ']', text.bytes - 1);
    return text.data[0] == '[' && end > text.data + 1 ? begin_section(reader, text, error)
                                                      : begin_option(reader, text, error);
}

static int begin_section(struct reader *reader, struct stk_view line, struct stoker_error *error)
{
    const uint8_t *end = memrchr(line.data, ']', line.bytes);
    const char *name =
        copy_text(reader, (struct stk_view){line.data + 1, (size_t)(end - line.data) - 1}, false);

    if (stk_ini_has(reader->ini, name)) {
        return fail_line(reader, error, "a configuration file has a section twice");
    }
    reader->section = name;
    reader->has_option = false;
    return add_entry(reader, NULL, NULL) < 0
               ? fail_line(reader, error, "a configuration file has too many entries")
               : 0;
}

static int begin_option(struct reader *reader, struct stk_view line, struct stoker_error *error)
{
    size_t at = 0;
    struct stk_view name, value;

    while (at < line.bytes && line.data[at] != '=' && line.data[at] != ':') {
        at++;
    }
    if (!reader->section) {
        return fail_line(reader, error, "a configuration file begins without a [section]");
    }
    name = strip((struct stk_view){line.data, at});
    if (at == line.bytes || name.bytes == 0) {
        return fail_line(reader, error, "a line of a configuration file is no 'name = value'");
    }
    value = strip((struct stk_view){line.data + at + 1, line.bytes - at - 1});
    const char *name_text = copy_text(reader, name, true);
    if (stk_ini_get(reader->ini, reader->section, name_text)) {
        return fail_line(reader, error, "a section of a configuration file has a name twice");
    }
    reader->has_option = true;
    return add_entry(reader, name_text, copy_text(reader, value, false)) < 0
               ? fail_line(reader, error, "a configuration file has too many entries")
               : 0;
}

/* The last value is at the end of the text, so it grows in place. */
static void continue_value(struct reader *reader, struct stk_view line)
{
    char *text = reader->ini->text;

    reader->used--; /* the NUL */
    for (; reader->empty > 0; reader->empty--) {
        text[reader->used++] = '\n';
    }
    text[reader->used++] = '\n';
    copy_text(reader, line, false);
}

static int add_entry(struct reader *reader, const char *name, const char *value)
{
    struct stk_ini *ini = reader->ini;
    struct stk_ini_entry entry = {reader->section, name, value, reader->line};

    if (ini->count == ini->capacity && grow(ini) < 0) {
        return -1;
    }
    *slot_of(ini, entry.section, entry.name) = (uint32_t)ini->count + 1;
    ini->entries[ini->count++] = entry;
    return 0;
}

/* Doubles the capacity, with four slots for each entry, so that collisions are rare. */
static int grow(struct stk_ini *ini)
{
    size_t capacity = ini->capacity ? 2 * ini->capacity : 32;
    struct stk_ini_entry *entries;
    uint32_t *slots;

    if (capacity > STK_INI_ENTRIES_MAX) {
        return -1;
    }
    slots = stk_alloc(4 * capacity, sizeof *slots);
    entries = slots ? stk_realloc(ini->entries, ini->count, capacity, sizeof *entries) : NULL;
    if (!entries) {
        stk_free(slots);
        return -1;
    }
    stk_free(ini->slots);
    ini->entries = entries;
    ini->slots = slots;
    ini->capacity = capacity;
    ini->slot_count = 4 * capacity;
    for (size_t i = 0; i < ini->count; i++) {
        *slot_of(ini, entries[i].section, entries[i].name) = (uint32_t)i + 1;
    }
    return 0;
}

/* Copies into the text, which has enough capacity. */
static const char *copy_text(struct reader *reader, struct stk_view text, bool lower)
{
    char *at = reader->ini->text + reader->used;

    STK_ASSERT(reader->used + text.bytes < reader->ini->text_bytes);
    for (size_t i = 0; i < text.bytes; i++) {
        uint8_t c = text.data[i];
        at[i] = (char)(lower && c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    at[text.bytes] = 0;
    reader->used += text.bytes + 1;
    return at;
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static struct stk_view strip(struct stk_view text)
{
    while (text.bytes > 0 && is_blank(text.data[0])) {
        text.data++;
        text.bytes--;
    }
    while (text.bytes > 0 && is_blank(text.data[text.bytes - 1])) {
        text.bytes--;
    }
    return text;
}

static int fail_line(const struct reader *reader, struct stoker_error *error, const char *what)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, what, "correct the line", "line %u", reader->line);
}
