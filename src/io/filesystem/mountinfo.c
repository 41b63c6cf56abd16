/* Rows and options of the mount table. They may be malformed: the program that mounts a file system
 * chooses type and source. */
#include "io/filesystem/mountinfo.h"

#include "base/mem.h"
#include "base/text/text_match.h"
#include "io/small_file.h"

#include <stdio.h>
#include <string.h>

#define NUMBER_DIGITS_MAX 18
#define FIRST_BYTES (STK_MOUNTINFO_BYTES_MAX / 64)

char *stk_mountinfo_read(const char *prefix)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/proc/self/mountinfo", prefix);
    /* stk_alloc() clears the memory, so a table of usual length gets a small one. */
    for (size_t bytes = FIRST_BYTES;; bytes *= 8) {
        char *text = stk_alloc(1, bytes);

        if (text && !stk_small_file_read_text(path, text, bytes)) {
            stk_free(text);
            text = NULL;
        }
        if (!text || strlen(text) < bytes - 1 || bytes >= STK_MOUNTINFO_BYTES_MAX) {
            return text;
        }
        stk_free(text);
    }
}

/* The next field, up to a blank. */
static struct stk_view take_field(struct stk_view *line)
{
    const uint8_t *end = line->bytes ? memchr(line->data, ' ', line->bytes) : NULL;
    struct stk_view field = {line->data, end ? (size_t)(end - line->data) : line->bytes};
    size_t used = field.bytes + (end != NULL);

    *line = (struct stk_view){line->data + used, line->bytes - used};
    return field;
}

static bool take_number(const uint8_t **at, const uint8_t *end, uint64_t *number_out)
{
    uint64_t number = 0;
    int digits = 0;

    while (*at < end && **at >= '0' && **at <= '9' && digits < NUMBER_DIGITS_MAX) {
        number = 10 * number + (uint64_t)(**at - '0');
        ++*at;
        digits++;
    }
    *number_out = number;
    return digits > 0;
}

static bool parse_digits(struct stk_view field, uint64_t *number_out)
{
    const uint8_t *at = field.data, *end = field.data + field.bytes;

    return field.bytes > 0 && take_number(&at, end, number_out) && at == end;
}

static bool device_numbers(struct stk_view field, struct stk_mount_row *row)
{
    const uint8_t *at = field.data, *end = field.data + field.bytes;

    if (field.bytes == 0 || !take_number(&at, end, &row->major) || at == end || *at++ != ':') {
        return false;
    }
    return take_number(&at, end, &row->minor) && at == end;
}

static bool parse_row(struct stk_view line, struct stk_mount_row *row)
{
    struct stk_view field;

    if (!parse_digits(take_field(&line), &row->id) ||
        !parse_digits(take_field(&line), &row->parent) || !device_numbers(take_field(&line), row)) {
        return false;
    }
    (void)take_field(&line); /* the root of the mount within its file system */
    row->point = take_field(&line);
    row->options = take_field(&line);
    do { /* optional fields, ended by a dash */
        if (line.bytes == 0) {
            return false;
        }
        field = take_field(&line);
    } while (!stk_view_is(field, "-"));
    row->type = take_field(&line);
    row->source = take_field(&line);
    row->super = take_field(&line);
    return row->point.bytes > 0 && row->point.data[0] == '/' && row->type.bytes > 0;
}

bool stk_mount_next(struct stk_view *text, struct stk_mount_row *row_out)
{
    while (text->bytes > 0) {
        const uint8_t *end = memchr(text->data, '\n', text->bytes);
        struct stk_view line = {text->data, end ? (size_t)(end - text->data) : text->bytes};
        size_t used = line.bytes + (end != NULL);

        *text = (struct stk_view){text->data + used, text->bytes - used};
        *row_out = (struct stk_mount_row){0};
        if (parse_row(line, row_out)) {
            return true;
        }
    }
    return false;
}

/* Decodes one byte of a field. Returns how many bytes of the field it took. */
static size_t unescape(struct stk_view field, size_t at, char *out)
{
    const uint8_t *from = field.data + at;
    size_t left = field.bytes - at;

    if (from[0] == '\\' && left >= 4 && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
        from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
        *out = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
        return 4;
    }
    *out = (char)from[0];
    return 1;
}

void stk_mount_unescape(struct stk_view field, char *out, size_t out_bytes)
{
    size_t used = 0;

    for (size_t at = 0; at < field.bytes && used + 1 < out_bytes; used++) {
        at += unescape(field, at, &out[used]);
    }
    out[used] = '\0';
}

/* The length of the mount point if the path begins with it (1 for the root), else 0. */
static size_t begins(struct stk_view point, const char *path)
{
    size_t used = 0;

    for (size_t at = 0; at < point.bytes; used++) {
        char byte;

        at += unescape(point, at, &byte);
        if (path[used] != byte || byte == '\0') {
            return 0;
        }
    }
    return used == 1 || path[used] == '/' || path[used] == '\0' ? used : 0;
}

bool stk_mount_of_path(struct stk_view text, const char *path, struct stk_mount_row *row_out)
{
    struct stk_mount_row row;
    size_t longest = 0;

    while (stk_mount_next(&text, &row)) {
        size_t bytes = begins(row.point, path);

        if (bytes > 0 && bytes >= longest) {
            longest = bytes;
            *row_out = row;
        }
    }
    return longest > 0;
}

bool stk_mount_of_id(struct stk_view text, uint64_t id, struct stk_mount_row *row_out)
{
    while (stk_mount_next(&text, row_out)) {
        if (row_out->id == id) {
            return true;
        }
    }
    return false;
}

static bool find_option(struct stk_view list, const char *name, struct stk_view *value_out)
{
    size_t name_bytes = strlen(name);
    bool found = false;

    while (list.bytes > 0) {
        const uint8_t *end = memchr(list.data, ',', list.bytes);
        size_t bytes = end ? (size_t)(end - list.data) : list.bytes;

        if (bytes >= name_bytes && memcmp(list.data, name, name_bytes) == 0 &&
            (bytes == name_bytes || list.data[name_bytes] == '=')) {
            size_t skip = name_bytes + (bytes > name_bytes);

            *value_out = (struct stk_view){list.data + skip, bytes - skip};
            found = true;
        }
        bytes += end != NULL;
        list = (struct stk_view){list.data + bytes, list.bytes - bytes};
    }
    return found;
}

bool stk_mount_option(const struct stk_mount_row *row, const char *name, struct stk_view *value_out)
{
    return find_option(row->super, name, value_out) || find_option(row->options, name, value_out);
}

uint64_t stk_mount_number(const struct stk_mount_row *row, const char *name, uint64_t otherwise)
{
    struct stk_view value;
    uint64_t number;

    return stk_mount_option(row, name, &value) && parse_digits(value, &number) ? number : otherwise;
}

void stk_mount_server(const struct stk_mount_row *row, char *out, size_t out_bytes)
{
    struct stk_view source = row->source;
    size_t bytes = 0;

    if (source.bytes > 2 && memcmp(source.data, "//", 2) == 0) {
        source = (struct stk_view){source.data + 2, source.bytes - 2};
        while (bytes < source.bytes && source.data[bytes] != '/') {
            bytes++;
        }
    } else {
        while (bytes + 1 < source.bytes &&
               !(source.data[bytes] == ':' && source.data[bytes + 1] == '/')) {
            bytes++;
        }
        if (bytes + 1 >= source.bytes) {
            bytes = 0; /* a device, a name, none */
        }
    }
    stk_mount_unescape((struct stk_view){source.data, bytes}, out, out_bytes);
}
