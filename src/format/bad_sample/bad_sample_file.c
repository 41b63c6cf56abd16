/* Lists of damaged samples, in memory and in files. */
#include "format/bad_sample/bad_sample_file.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "io/atomic_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ENDING ".tmp"
#define FILE_BYTES_MAX (UINT64_C(1) << 36)

struct stk_bad_sample_file {
    struct stk_atomic_file file;
    enum stk_bad_sample_file_format form;
    struct stk_xxh3 *sum; /* owned; RECORDS: of what was written */
    size_t used;          /* of the buffer: whole lines that are not written yet */
    char buffer[8 * STK_BAD_SAMPLE_LINE_BYTES];
};

static const char magic[8] = "stkleft1";

/* The begin of a record; three texts follow, each with its NUL. */
struct head {
    uint64_t sample, offset;
    int64_t status;
};
_Static_assert(sizeof(struct head) == 24, "no padding: its bytes are written");

int stk_bad_sample_list_add(struct stk_bad_sample_list *list, struct stk_bad_sample *bad_sample)
{
    if (list->count == list->capacity) {
        uint64_t capacity = stk_max(2 * list->capacity, 16);
        void *grown = stk_realloc(list->items, list->capacity, capacity, sizeof *list->items);

        if (!grown) {
            return -ENOMEM;
        }
        list->items = grown;
        list->capacity = capacity;
    }
    list->items[list->count++] = bad_sample;
    return 0;
}

void stk_bad_sample_list_deinit(struct stk_bad_sample_list *list)
{
    for (uint64_t i = 0; i < list->count; i++) {
        stk_free(list->items[i]);
    }
    stk_free(list->items);
    *list = (struct stk_bad_sample_list){0};
}

/* ---- records ---- */

static size_t put_text(uint8_t *at, const char *text, size_t bytes_max)
{
    size_t bytes = strnlen(text, bytes_max - 1);

    memcpy(at, text, bytes);
    at[bytes] = 0;
    return bytes + 1;
}

size_t stk_bad_sample_write_record(const struct stk_bad_sample *bad_sample,
                                   uint8_t record[STK_BAD_SAMPLE_RECORD_BYTES])
{
    struct head head = {bad_sample->sample, bad_sample->offset, bad_sample->status};
    size_t bytes = sizeof head;

    memcpy(record, &head, sizeof head);
    bytes += put_text(record + bytes, bad_sample->shard, sizeof((struct stoker_error *)0)->shard);
    bytes += put_text(record + bytes, bad_sample->key, sizeof((struct stoker_error *)0)->key);
    bytes += put_text(record + bytes, bad_sample->what, sizeof((struct stoker_error *)0)->what);
    return bytes;
}

static bool read_text(struct stk_view *bytes, char *text, size_t capacity)
{
    const uint8_t *end = bytes->bytes > 0 ? memchr(bytes->data, 0, bytes->bytes) : NULL;
    size_t length = end ? (size_t)(end - bytes->data) + 1 : 0;

    if (length == 0 || length > capacity) {
        return false;
    }
    memcpy(text, bytes->data, length);
    bytes->data += length;
    bytes->bytes -= length;
    return true;
}

int stk_bad_sample_read_record(struct stk_view *bytes, struct stk_bad_sample **bad_sample_out)
{
    struct stoker_error error = {0};
    struct stk_view rest = *bytes;
    struct head head;

    if (rest.bytes < sizeof head) {
        return 0;
    }
    memcpy(&head, rest.data, sizeof head);
    rest.data += sizeof head;
    rest.bytes -= sizeof head;
    if (!read_text(&rest, error.shard, sizeof error.shard) ||
        !read_text(&rest, error.key, sizeof error.key) ||
        !read_text(&rest, error.what, sizeof error.what)) {
        return 0;
    }
    error.status = (int)head.status;
    error.offset = head.offset;
    *bad_sample_out = stk_bad_sample_new(head.sample, &error);
    if (!*bad_sample_out) {
        return -ENOMEM;
    }
    *bytes = rest;
    return 1;
}

/* ---- files ---- */

static int flush(struct stk_bad_sample_file *out, struct stoker_error *error)
{
    size_t bytes = out->used;

    out->used = 0;
    if (out->sum) {
        stk_xxh3_add(out->sum, out->buffer, bytes);
    }
    return bytes > 0 ? stk_atomic_file_write(&out->file, out->buffer, bytes, error) : 0;
}

int stk_bad_sample_file_open(struct stk_bad_sample_file **out_out, struct stk_io *io,
                             const char *path, enum stk_bad_sample_file_format form,
                             struct stoker_error *error)
{
    struct stk_bad_sample_file *out = stk_alloc(1, sizeof *out);
    int status = 0;

    *out_out = NULL;
    if (!out) {
        return stk_fail_memory(error, "'%.400s'", path);
    }
    out->form = form;
    out->sum = form == STK_BAD_SAMPLE_FILE_RECORDS ? stk_xxh3_open() : NULL;
    if (form == STK_BAD_SAMPLE_FILE_RECORDS && !out->sum) {
        status = stk_fail_memory(error, "'%.400s'", path);
    }
    status = status < 0 ? status : stk_atomic_file_open(&out->file, io, path, ENDING, error);
    if (status < 0) {
        stk_bad_sample_file_close(out);
        return status;
    }
    if (form == STK_BAD_SAMPLE_FILE_RECORDS) {
        memcpy(out->buffer, magic, sizeof magic);
        out->used = sizeof magic;
    }
    *out_out = out;
    return 0;
}

int stk_bad_sample_file_add(struct stk_bad_sample_file *out,
                            const struct stk_bad_sample *bad_sample, struct stoker_error *error)
{
    int status = sizeof out->buffer - out->used < STK_BAD_SAMPLE_LINE_BYTES ? flush(out, error) : 0;

    if (status < 0) {
        return status;
    }
    out->used += out->form == STK_BAD_SAMPLE_FILE_LINES
                     ? stk_bad_sample_line(bad_sample, out->buffer + out->used)
                     : stk_bad_sample_write_record(bad_sample, (uint8_t *)out->buffer + out->used);
    return 0;
}

int stk_bad_sample_file_commit(struct stk_bad_sample_file *out, struct stoker_error *error)
{
    int status = flush(out, error);

    if (status == 0 && out->form == STK_BAD_SAMPLE_FILE_RECORDS) {
        uint64_t sum = stk_xxh3_done(out->sum);

        status = stk_atomic_file_write(&out->file, &sum, sizeof sum, error);
    }
    return status < 0 ? status
                      : stk_atomic_file_commit(&out->file, STK_ATOMIC_FILE_SYNC_DIRECTORY, error);
}

/* 1: *data_out has the file; 0: it is not there. */
static int read_file(struct stk_io *io, const char *path, uint8_t **data_out, size_t *bytes_out,
                     struct stoker_error *error)
{
    struct stoker_error local = {0};
    struct stk_file *file = NULL;
    struct stk_stat about = {0};
    int64_t got = 0;
    int status = stk_io_open_file(io, path, &file, &local);

    if (status == -ENOENT) {
        return 0;
    }
    status = status < 0 ? status : stk_io_stat_file(file, &about, &local);
    if (status == 0 && about.bytes > FILE_BYTES_MAX) {
        status = stk_fail(&local, STOKER_ERROR_LIMIT, "the file is too long", "look what it is",
                          "'%.400s'", path);
    }
    if (status == 0) {
        *data_out = stk_alloc(stk_max(about.bytes, 1), 1);
        status = *data_out ? 0 : stk_fail_memory(&local, "'%.400s'", path);
    }
    if (status == 0) {
        got = stk_io_read_wait(file, 0, *data_out, about.bytes);
        *bytes_out = got > 0 ? (size_t)got : 0;
    }
    if (got < 0) {
        status = stk_fail(&local, (int)got, "cannot read the file", "check the disk",
                          "'%.400s': %s", path, stoker_status_text((int)got));
    }
    stk_io_close_file(file);
    if (status < 0 && error) {
        *error = local;
    }
    return status < 0 ? status : 1;
}

int stk_bad_sample_file_read(struct stk_io *io, const char *path,
                             int (*each)(void *context, struct stk_bad_sample *bad_sample,
                                         struct stoker_error *error),
                             void *context, struct stoker_error *error)
{
    uint8_t *data = NULL;
    struct stk_view rest = {NULL, 0};
    uint64_t sum = 0;
    size_t bytes = 0;
    int status = read_file(io, path, &data, &bytes, error);

    if (status == 1 && bytes >= sizeof magic + sizeof sum) {
        memcpy(&sum, data + bytes - sizeof sum, sizeof sum);
        rest = (struct stk_view){data + sizeof magic, bytes - sizeof magic - sizeof sum};
    }
    if (status == 1 && (!rest.data || memcmp(data, magic, sizeof magic) != 0 ||
                        sum != stk_xxh3_64(data, bytes - sizeof sum))) {
        status = 0;
    }
    while (status == 1 && rest.bytes > 0) {
        struct stk_bad_sample *bad_sample;

        status = stk_bad_sample_read_record(&rest, &bad_sample);
        if (status == 1) {
            status = each(context, bad_sample, error);
            status = status < 0 ? status : 1;
        } else if (status < 0) {
            status = stk_fail_memory(error, "'%.400s'", path);
        }
    }
    stk_free(data);
    return status;
}

void stk_bad_sample_file_close(struct stk_bad_sample_file *out)
{
    if (!out) {
        return;
    }
    stk_atomic_file_close(&out->file);
    stk_xxh3_close(out->sum);
    stk_free(out);
}
