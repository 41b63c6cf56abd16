/* Names of tar members: webdataset's rules for keys, and names that cannot be keys. */
#include "format/tar/wds_name.h"

#include <string.h>

static bool is_meta(struct stk_view name);
static size_t find_first(struct stk_view name, size_t from, uint8_t byte);
static size_t find_last(struct stk_view name, size_t end, uint8_t byte);

#define NOWHERE SIZE_MAX

/* webdataset matches ^((?:.*\/|)[^.]+)[.]([^/]*)$ from the left. Read as a rule:
 *
 *   - the dot is the first one of the base name, so the key is all before it;
 *   - some directory part, that is nothing or `.*` up to a slash, must leave at least one byte
 *     before that dot and no other dot between. The longest one that leaves a byte is as good
 *     as any: a shorter one only has more dots after it. So for `a/.x` the slash itself goes
 *     to the key (`a/`), while `./.x` and `a.b/.x` match nothing;
 *   - `.` matches no newline, so the directory part ends before the first one. */
bool stk_wds_name_split(struct stk_view name, struct stk_view *key_out,
                        struct stk_view *extension_out)
{
    size_t slash = find_last(name, name.bytes, '/');
    size_t base = slash == NOWHERE ? 0 : slash + 1;
    size_t dot = find_first(name, base, '.');
    size_t newline = find_first(name, 0, '\n');
    size_t folder, end;

    if (dot == NOWHERE || is_meta(name)) {
        return false;
    }
    end = dot == base && base > 0 ? slash : base; /* the folder's slash precedes it */
    if (newline < end) {
        end = newline;
    }
    slash = find_last(name, end, '/');
    folder = slash == NOWHERE ? 0 : slash + 1;
    if (folder == dot || find_first(name, folder, '.') != dot) {
        return false;
    }
    *key_out = (struct stk_view){name.data, dot};
    *extension_out = (struct stk_view){name.data + dot + 1, name.bytes - dot - 1};
    return true;
}

/* webdataset's skip_meta, __[^/]*__($|/): a first part that begins and ends with two underscores.
 * Its $ matches before a last newline too. */
static bool is_meta(struct stk_view name)
{
    size_t end = find_first(name, 0, '/');

    if (end == NOWHERE) {
        end = name.bytes;
        if (end > 0 && name.data[end - 1] == '\n') {
            end--;
        }
    }
    return end >= 4 && memcmp(name.data, "__", 2) == 0 && memcmp(name.data + end - 2, "__", 2) == 0;
}

const char *stk_wds_name_error(struct stk_view name)
{
    size_t start = 0;

    if (find_first(name, 0, '\0') != NOWHERE) {
        return "the name has a NUL byte";
    }
    if (name.bytes > 0 && name.data[0] == '/') {
        return "the name is an absolute path";
    }
    while (start < name.bytes) {
        size_t slash = find_first(name, start, '/');
        size_t end = slash == NOWHERE ? name.bytes : slash;

        if (end - start == 2 && name.data[start] == '.' && name.data[start + 1] == '.') {
            return "the name climbs with '..'";
        }
        start = end + 1;
    }
    return NULL;
}

void stk_wds_name_text(struct stk_view name, char *text, size_t capacity)
{
    size_t bytes = name.bytes < capacity ? name.bytes : capacity - 1;

    /* A byte 10xxxxxx continues the character before it. */
    while (bytes < name.bytes && bytes > 0 && (name.data[bytes] & 0xc0) == 0x80) {
        bytes--;
    }
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = name.data[i];
        text[i] = byte < 0x20 || byte == 0x7f ? '?' : (char)byte;
    }
    text[bytes] = '\0';
}

static size_t find_first(struct stk_view name, size_t from, uint8_t byte)
{
    const uint8_t *found =
        from < name.bytes ? memchr(name.data + from, byte, name.bytes - from) : NULL;

    return found ? (size_t)(found - name.data) : NOWHERE;
}

/* In the bytes before `end`. */
static size_t find_last(struct stk_view name, size_t end, uint8_t byte)
{
    const uint8_t *found = end > 0 ? memrchr(name.data, byte, end) : NULL;

    return found ? (size_t)(found - name.data) : NOWHERE;
}
