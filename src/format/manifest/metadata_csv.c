/* CSV to lines of JSON. */
#include "format/manifest/metadata_csv.h"

#include "base/mem.h"
#include "base/text/text_match.h"
#include "format/manifest/metadata_jsonl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define COLUMNS_MAX 4096u

struct cell {
    size_t at, bytes; /* in the input, without the quotes */
    bool quoted;      /* two quotes in it are one */
};

struct converter {
    struct stk_view in;
    size_t at;
    uint64_t line; /* from 1 */
    struct cell names[COLUMNS_MAX];
    uint32_t name_count;
    uint8_t *out;
    size_t bytes, capacity;
    int put_status; /* -ENOMEM or STOKER_ERROR_LIMIT: the rest of the text is dropped */
    struct stoker_error *error;
};

static int fail(struct converter *csv, const char *what)
{
    return stk_fail(csv->error, STOKER_ERROR_FORMAT, "a metadata.csv cannot be read",
                    "write it as CSV with a first line of names, of which one is file_name",
                    "line %llu: %s", (unsigned long long)csv->line, what);
}

static void put(struct converter *csv, const void *data, size_t bytes)
{
    if (csv->put_status == 0 && csv->capacity - csv->bytes < bytes) {
        size_t wanted = stk_max(2 * csv->capacity, csv->bytes + bytes + 4096);
        size_t capacity = stk_min(wanted, STK_METADATA_JSONL_BYTES_MAX);
        bool fits = capacity - csv->bytes >= bytes;
        uint8_t *grown = fits ? stk_realloc(csv->out, csv->capacity, capacity, 1) : NULL;

        csv->put_status = grown ? 0 : fits ? -ENOMEM : STOKER_ERROR_LIMIT;
        csv->out = grown ? grown : csv->out;
        csv->capacity = grown ? capacity : csv->capacity;
    }
    if (csv->put_status == 0) {
        memcpy(csv->out + csv->bytes, data, bytes);
        csv->bytes += bytes;
    }
}

static void put_byte(struct converter *csv, uint8_t byte)
{
    char text[8];

    if (byte == '"' || byte == '\\') {
        text[0] = '\\';
        text[1] = (char)byte;
        put(csv, text, 2);
    } else if (byte < ' ') {
        put(csv, text, (size_t)snprintf(text, sizeof text, "\\u%04x", byte));
    } else {
        put(csv, &byte, 1);
    }
}

static void put_text(struct converter *csv, const struct cell *cell)
{
    put(csv, "\"", 1);
    for (size_t i = 0; i < cell->bytes; i++) {
        uint8_t byte = csv->in.data[cell->at + i];

        i += cell->quoted && byte == '"'; /* the second of two */
        put_byte(csv, byte);
    }
    put(csv, "\"", 1);
}

static size_t digits(const uint8_t *data, size_t at, size_t end)
{
    while (at < end && data[at] >= '0' && data[at] <= '9') {
        at++;
    }
    return at;
}

/* JSON's grammar: no sign but '-', no leading zero. */
static bool is_number(const uint8_t *data, size_t bytes)
{
    size_t at = bytes > 0 && data[0] == '-', end = digits(data, at, bytes), more;

    if (end == at || (data[at] == '0' && end > at + 1)) {
        return false;
    }
    if (end < bytes && data[end] == '.') {
        more = digits(data, end + 1, bytes);
        if (more == end + 1) {
            return false;
        }
        end = more;
    }
    if (end < bytes && (data[end] | 0x20) == 'e') {
        at = end + 1;
        at += at < bytes && (data[at] == '+' || data[at] == '-');
        end = digits(data, at, bytes);
        return end == bytes && end > at;
    }
    return end == bytes;
}

static void put_value(struct converter *csv, const struct cell *cell)
{
    if (cell->bytes == 0) {
        put(csv, "null", 4);
    } else if (!cell->quoted && is_number(csv->in.data + cell->at, cell->bytes)) {
        put(csv, csv->in.data + cell->at, cell->bytes);
    } else {
        put_text(csv, cell);
    }
}

/* Reads a cell, and the comma or the end of the record after it. Sets *last_out. */
static int read_cell(struct converter *csv, struct cell *cell, bool *last_out)
{
    const uint8_t *data = csv->in.data;
    size_t end = csv->in.bytes;

    *cell = (struct cell){.at = csv->at, .quoted = csv->at < end && data[csv->at] == '"'};
    if (cell->quoted) {
        cell->at = ++csv->at;
        for (; csv->at < end; csv->at++) {
            if (data[csv->at] == '"' && csv->at + 1 < end && data[csv->at + 1] == '"') {
                csv->at++; /* the second of two */
            } else if (data[csv->at] == '"') {
                break;
            }
            csv->line += data[csv->at] == '\n';
        }
        if (csv->at == end) {
            return fail(csv, "a quote is not closed");
        }
        cell->bytes = csv->at++ - cell->at;
    } else {
        while (csv->at < end && !memchr(",\r\n", data[csv->at], 3)) {
            csv->at++;
        }
        cell->bytes = csv->at - cell->at;
    }
    csv->at += csv->at + 1 < end && data[csv->at] == '\r' && data[csv->at + 1] == '\n';
    *last_out = csv->at == end || data[csv->at] == '\n';
    if (!*last_out && data[csv->at] != ',') {
        return fail(csv, "there is text behind a closing quote, or a carriage return alone");
    }
    csv->at += csv->at < end;
    return 0;
}

static int read_names(struct converter *csv)
{
    bool last = false, has_name = false;
    int status = 0;

    while (status == 0 && !last) {
        struct cell *cell = &csv->names[csv->name_count];

        if (++csv->name_count == COLUMNS_MAX) {
            return fail(csv, "it has more than 4,095 columns");
        }
        status = read_cell(csv, cell, &last);
        has_name =
            has_name || (cell->bytes == 9 && memcmp(csv->in.data + cell->at, "file_name", 9) == 0);
    }
    return status < 0 ? status : has_name ? 0 : fail(csv, "it has no column file_name");
}

static int read_record(struct converter *csv)
{
    bool last = false;
    uint32_t count = 0;
    int status = 0;

    while (status == 0 && !last) {
        struct cell cell;

        status = read_cell(csv, &cell, &last);
        if (status == 0 && count == csv->name_count) {
            return fail(csv, "it has more cells than the first line");
        }
        put(csv, count == 0 ? "{" : ", ", count == 0 ? 1 : 2);
        put_text(csv, &csv->names[count++]);
        put(csv, ": ", 2);
        put_value(csv, &cell);
    }
    if (status == 0 && count < csv->name_count) {
        return fail(csv, "it has fewer cells than the first line");
    }
    put(csv, "}\n", 2);
    return status;
}

int stk_metadata_csv_convert(struct stk_view in, uint8_t **text_out, size_t *bytes_out,
                             struct stoker_error *error)
{
    struct converter *csv = stk_alloc(1, sizeof *csv);
    int status;

    *text_out = NULL;
    *bytes_out = 0;
    if (!csv) {
        return stk_fail_memory(error, "metadata");
    }
    csv->in = in;
    csv->at = stk_view_mark_bytes(in);
    csv->line = 1;
    csv->error = error;
    status = read_names(csv);
    while (status == 0 && csv->put_status == 0 && csv->at < in.bytes) {
        if (memchr("\r\n", in.data[csv->at], 2)) { /* an empty line */
            csv->line += in.data[csv->at++] == '\n';
            continue;
        }
        csv->line++;
        status = read_record(csv);
    }
    if (status == 0 && csv->put_status == -ENOMEM) {
        status = stk_fail_memory(error, "metadata");
    } else if (status == 0 && csv->put_status < 0) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a metadata.csv is too large",
                          "write it in parts: one in each class folder, or use metadata.jsonl",
                          "%zu bytes give more than %u bytes of JSON", in.bytes,
                          STK_METADATA_JSONL_BYTES_MAX);
    }
    if (status == 0) {
        *text_out = csv->out;
        *bytes_out = csv->bytes;
    } else {
        stk_free(csv->out);
    }
    stk_free(csv);
    return status;
}
