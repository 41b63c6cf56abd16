/* Lines of JSON: each is parsed for its name, and stored by it. */
#include "format/manifest/metadata_jsonl.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

static int add_line(struct stk_metadata_jsonl *metadata, struct stk_view line, size_t at,
                    uint64_t number, struct stoker_error *error);
static int add(struct stk_metadata_jsonl *metadata, const char *name, size_t at, size_t bytes);
static int compare(const void *left, const void *right, void *names);
static int fail_line(uint64_t number, const char *what, const char *detail,
                     struct stoker_error *error);

int stk_metadata_jsonl_parse(struct stk_metadata_jsonl *metadata, struct stk_view text,
                             struct stoker_error *error)
{
    static const uint8_t mark[] = {0xef, 0xbb, 0xbf}; /* of UTF-8, which some programs write */
    uint64_t number = 1;
    size_t at = text.bytes >= sizeof mark && memcmp(text.data, mark, sizeof mark) == 0 ? 3 : 0;
    int status = 0;

    *metadata = (struct stk_metadata_jsonl){0};
    for (; status == 0 && at < text.bytes; number++) {
        const uint8_t *end = memchr(text.data + at, '\n', text.bytes - at);
        size_t bytes = end ? (size_t)(end - text.data) - at : text.bytes - at;
        struct stk_view line = {text.data + at, bytes};

        while (line.bytes > 0 && memchr(" \t\r", line.data[line.bytes - 1], 3)) {
            line.bytes--;
        }
        while (line.bytes > 0 && memchr(" \t\r", line.data[0], 3)) {
            line.data++;
            line.bytes--;
        }
        if (line.bytes > 0) {
            status = add_line(metadata, line, (size_t)(line.data - text.data), number, error);
        }
        at += bytes + (end != NULL);
    }
    if (status == 0 && metadata->count > 0) {
        qsort_r(metadata->lines, metadata->count, sizeof *metadata->lines, compare,
                metadata->names);
    }
    for (uint64_t i = 1; status == 0 && i < metadata->count; i++) {
        if (compare(&metadata->lines[i - 1], &metadata->lines[i], metadata->names) == 0) {
            status = stk_fail(error, STOKER_ERROR_FORMAT, "two lines are about one image",
                              "remove one of them", "image '%.400s'",
                              metadata->names + metadata->lines[i].name_at);
        }
    }
    if (status < 0) {
        stk_metadata_jsonl_deinit(metadata);
    }
    return status;
}

void stk_metadata_jsonl_deinit(struct stk_metadata_jsonl *metadata)
{
    stk_free(metadata->lines);
    stk_free(metadata->names);
    *metadata = (struct stk_metadata_jsonl){0};
}

const struct stk_metadata_jsonl_line *
stk_metadata_jsonl_find(const struct stk_metadata_jsonl *metadata, struct stk_view name)
{
    uint64_t low = 0, high = metadata->count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const struct stk_metadata_jsonl_line *line = &metadata->lines[middle];
        int order = memcmp(metadata->names + line->name_at, name.data,
                           stk_min(line->name_bytes, name.bytes));

        order = order ? order : (line->name_bytes > name.bytes) - (line->name_bytes < name.bytes);
        if (order == 0) {
            return line;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

static int add_line(struct stk_metadata_jsonl *metadata, struct stk_view line, size_t at,
                    uint64_t number, struct stoker_error *error)
{
    json_error_t why;
    /* JSON_DECODE_INT_AS_REAL: an integer of more than 63 bits is no error. The text of the line
     * is used anyway. */
    json_t *object = json_loadb((const char *)line.data, line.bytes,
                                JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &why);
    const char *name = json_string_value(json_object_get(object, "file_name"));
    int status = 0;

    if (!object) {
        status = fail_line(number, "a line of the metadata is not JSON", why.text, error);
    } else if (!name || !name[0]) {
        status = fail_line(number, "a line of the metadata does not name an image",
                           "it has no text \"file_name\"", error);
    } else if (add(metadata, name, at, line.bytes) < 0) {
        status = stk_fail(error, -ENOMEM, "no memory for metadata", "free memory", "line %llu",
                          (unsigned long long)number);
    }
    json_decref(object);
    return status;
}

static int add(struct stk_metadata_jsonl *metadata, const char *name, size_t at, size_t bytes)
{
    size_t name_bytes = strlen(name);

    if (metadata->count == metadata->capacity) {
        uint64_t capacity = stk_max(64, metadata->capacity * 2);
        void *grown =
            stk_realloc(metadata->lines, metadata->capacity, capacity, sizeof *metadata->lines);

        if (!grown) {
            return -ENOMEM;
        }
        metadata->lines = grown;
        metadata->capacity = capacity;
    }
    if (metadata->names_capacity - metadata->names_bytes < name_bytes + 1) {
        size_t capacity =
            stk_max(metadata->names_capacity * 2, metadata->names_bytes + name_bytes + 1);
        void *grown = stk_realloc(metadata->names, metadata->names_capacity, capacity, 1);

        if (!grown) {
            return -ENOMEM;
        }
        metadata->names = grown;
        metadata->names_capacity = capacity;
    }
    memcpy(metadata->names + metadata->names_bytes, name, name_bytes + 1);
    metadata->lines[metadata->count++] = (struct stk_metadata_jsonl_line){
        .name_at = metadata->names_bytes, .name_bytes = name_bytes, .at = at, .bytes = bytes};
    metadata->names_bytes += name_bytes + 1;
    return 0;
}

static int compare(const void *left, const void *right, void *names)
{
    const struct stk_metadata_jsonl_line *a = left, *b = right;
    const char *text = names;

    return strcmp(text + a->name_at, text + b->name_at); /* jansson lets no NUL into a string */
}

static int fail_line(uint64_t number, const char *what, const char *detail,
                     struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, what,
                    "write one object of JSON a line: {\"file_name\": \"1.jpg\", ...}",
                    "line %llu: %.200s", (unsigned long long)number, detail);
}
