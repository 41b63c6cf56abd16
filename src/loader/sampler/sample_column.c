/* Columns: named values of a sample that need no decoding. */
#include "loader/sampler/sampler.h"

#include "base/mem.h"
#include "base/memory_budget.h"
#include "base/text/parse_number.h"

#include <errno.h>
#include <string.h>

#define MEMBER_BYTES_MAX (64u << 20) /* largest member that is read for a column */
#define MEMORY_WAIT_MS 1000u
#define PARSE_BYTES_MAX (256u << 20) /* memory bound of its parsed value */
#define NUMBER_BYTES_MAX 64u         /* a text this short may be a number */

static const char *const built_in[] = {"label", "class", "size", "key", "shard", "sample"};

/* Returns the begin of the path in a name: after the first part that is a structured format. */
static size_t split(const char *name)
{
    static const char *const formats[] = {"json", "mp", "msg", "msgpack", "npz"};
    size_t first = 0;

    for (size_t at = 0; name[at]; at++) {
        for (size_t i = 0; name[at] == '.' && i < STK_COUNT(formats); i++) {
            if (strlen(formats[i]) == at - first &&
                memcmp(formats[i], name + first, at - first) == 0) {
                return at;
            }
        }
        first = name[at] == '.' ? at + 1 : first;
    }
    return strlen(name);
}

int stk_sample_column_open(struct stk_sample_column *column, const struct stoker_dataset *dataset,
                           const char *name, struct stoker_error *error)
{
    size_t bytes = split(name);

    *column = (struct stk_sample_column){.kind = STK_SAMPLE_COLUMN_MEMBER};
    for (uint32_t i = 0; i < STK_COUNT(built_in); i++) {
        if (strcmp(name, built_in[i]) == 0) {
            column->kind = i;
            return 0;
        }
    }
    column->extension = stk_strdup(name);
    column->path = stk_strdup(name[bytes] ? name + bytes + 1 : "");
    if (!column->extension || !column->path) {
        stk_sample_column_close(column);
        return stk_fail(error, -ENOMEM, "cannot name a column", "free memory", "'%s'", name);
    }
    column->extension[bytes] = '\0';
    if (stk_index_extension_id(dataset->index, column->extension) < 0) {
        stk_sample_column_close(column);
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the data set has no such column",
                        "columns are label, class, size, key, shard, sample, a member (cls) and "
                        "places inside one (json.width)",
                        "'%.200s'", name);
    }
    return 0;
}

void stk_sample_column_close(struct stk_sample_column *column)
{
    stk_free(column->extension);
    stk_free(column->path);
    *column = (struct stk_sample_column){0};
}

/* ---- rows ---- */

static void drop_value(struct stk_sample_row *row, uint32_t slot)
{
    if (row->values[slot].value.encoding) {
        stk_value_close(&row->values[slot].value);
        row->values[slot].value.encoding = 0;
    }
    stk_budget_release(&row->dataset->engine->budget, row->values[slot].reserved_bytes);
    row->values[slot].reserved_bytes = 0;
}

static void drop_values(struct stk_sample_row *row)
{
    for (uint32_t i = 0; i < STK_SAMPLE_ROW_VALUES; i++) {
        drop_value(row, i);
    }
}

/* Makes the slot's buffer large enough for a member. */
static int reserve_slot(struct stk_sample_row *row, uint32_t slot, size_t capacity,
                        struct stoker_error *error)
{
    struct stoker_engine *engine = row->dataset->engine;
    int status = 0;

    stk_free(row->values[slot].bytes);
    stk_budget_release(&engine->budget, row->values[slot].capacity);
    row->values[slot].bytes = NULL;
    row->values[slot].capacity = 0;
    if (capacity > 0) {
        status = stk_engine_reserve(engine, capacity, MEMORY_WAIT_MS, "members of a scan", error);
    }
    if (status < 0 || capacity == 0) {
        return status;
    }
    row->values[slot].bytes = stk_alloc(capacity, 1);
    if (!row->values[slot].bytes) {
        stk_budget_release(&engine->budget, capacity);
        return stk_fail(error, -ENOMEM, "cannot read a member", "free memory", "%zu bytes",
                        capacity);
    }
    row->values[slot].capacity = capacity;
    return 0;
}

int stk_sample_row_set(struct stk_sample_row *row, uint64_t number, struct stoker_error *error)
{
    drop_values(row);
    row->number = number;
    return stk_index_sample(row->dataset->index, number, &row->sample, error);
}

void stk_sample_row_close(struct stk_sample_row *row)
{
    drop_values(row);
    for (uint32_t i = 0; i < STK_SAMPLE_ROW_VALUES; i++) {
        reserve_slot(row, i, 0, NULL);
    }
    *row = (struct stk_sample_row){0};
}

static struct stk_predicate_value integer(int64_t number)
{
    return (struct stk_predicate_value){.kind = STK_PREDICATE_INT, .integer = number};
}

static struct stk_predicate_value text(const void *data, size_t bytes)
{
    return (struct stk_predicate_value){.kind = STK_PREDICATE_TEXT, .text = {data, bytes}};
}

/* Reads an entire member. Returns 1; 0 if the sample has none; or an error. */
static int read_member(struct stk_sample_row *row, const char *extension, uint32_t slot,
                       struct stk_view *bytes_out, struct stoker_error *error)
{
    struct stoker_error why = {0};
    size_t got = 0;
    int status = stoker_dataset_read(row->dataset, row->number, extension, row->values[slot].bytes,
                                     row->values[slot].capacity, &got, &why);

    if (status == STOKER_ERROR_LIMIT && got > row->values[slot].capacity &&
        got <= MEMBER_BYTES_MAX) {
        size_t capacity = got + got / 2 + 64;

        why = (struct stoker_error){0};
        status = reserve_slot(row, slot, capacity, &why);
        status = status < 0 ? status
                            : stoker_dataset_read(row->dataset, row->number, extension,
                                                  row->values[slot].bytes, capacity, &got, &why);
    }
    if (status == STOKER_ERROR_MISSING) {
        return 0;
    }
    if (status < 0) {
        if (error) {
            *error = why;
        }
        return status;
    }
    *bytes_out = (struct stk_view){row->values[slot].bytes, got};
    return 1;
}

/* Returns the value at a path of a member. Lists, maps and null are NONE. */
struct inside {
    struct stk_view bytes; /* of the member */
    uint32_t encoding;
    const char *path;
};

/* Parses the member in this process. */
static int open_in_process(struct stk_sample_row *row, uint32_t slot, const struct inside *inside,
                           struct stoker_error *error)
{
    uint64_t reserved_bytes = 0;
    int status = stk_value_memory_bytes(inside->encoding, inside->bytes, inside->path,
                                        &reserved_bytes, error);
    if (status == 0 && reserved_bytes > 0) {
        status = stk_engine_reserve(row->dataset->engine, reserved_bytes, MEMORY_WAIT_MS,
                                    "parsing members of a scan", error);
        row->values[slot].reserved_bytes = status == 0 ? reserved_bytes : 0;
    }
    return status < 0 ? status
                      : stk_value_open(&row->values[slot].value, inside->encoding, inside->bytes,
                                       inside->path, PARSE_BYTES_MAX, error);
}

/* Parses the member in the worker's sandbox: it returns an entire document, or one array of an npz.
 */
static int open_sandboxed(struct stk_sample_row *row, uint32_t slot, const struct inside *inside,
                          struct stoker_error *error)
{
    static const _Atomic bool never = false;
    struct stk_value *value = &row->values[slot].value;
    struct stk_parse_job job = {
        .encoding = inside->encoding,
        .bytes = inside->bytes,
        .path = inside->path,
        .small_bytes = row->dataset->engine->keep_bytes / STK_SAMPLE_ROW_VALUES,
        .memory_bytes_max = PARSE_BYTES_MAX,
        .wait_ms = MEMORY_WAIT_MS,
        .cancelled = &never,
    };
    int status = stk_worker_parse(row->worker, &job, value, error);

    row->values[slot].reserved_bytes = job.reserved_bytes;
    return status == 0 && value->tree ? stk_value_find(value, inside->path, value, error) : status;
}

static int nested_value(struct stk_sample_row *row, uint32_t slot, const struct inside *inside,
                        struct stk_predicate_value *value_out, struct stoker_error *error)
{
    struct stk_value *value = &row->values[slot].value;
    bool jailed = row->worker && row->worker->sandbox && inside->encoding != STK_VALUE_UNKNOWN &&
                  inside->encoding != STK_VALUE_NPY;
    struct stk_view view;
    int status;

    drop_value(row, slot); /* of an earlier attempt */
    status = jailed ? open_sandboxed(row, slot, inside, error)
                    : open_in_process(row, slot, inside, error);
    if (status < 0) {
        drop_value(row, slot);
    }
    if (status == STOKER_ERROR_MISSING) {
        return 0;
    }
    if (status < 0) {
        stk_dataset_error_add_location(row->dataset, error, row->sample.shard, STOKER_NO_OFFSET,
                                       NULL);
        return status;
    }
    if (stk_value_int(value, &value_out->integer, NULL) == 0) {
        value_out->kind = STK_PREDICATE_INT;
    } else if (stk_value_uint(value, &value_out->natural, NULL) == 0) {
        value_out->kind = STK_PREDICATE_NATURAL;
    } else if (stk_value_float(value, &value_out->real, NULL) == 0) {
        value_out->kind =
            value_out->real == value_out->real ? STK_PREDICATE_REAL : STK_PREDICATE_NONE;
    } else if (stk_value_text(value, &view, NULL) == 0) {
        *value_out = text(view.data, view.bytes);
    }
    return 0;
}

/* Parses a text that is a decimal number and nothing else, as Int and Float read it. Words (inf,
 * nan) and hexadecimal numbers are text. */
static bool parse_number(struct stk_view bytes, struct stk_predicate_value *value_out)
{
    char text[NUMBER_BYTES_MAX + 1];
    const char *end, *text_end = text + bytes.bytes;
    int64_t integer_found;
    uint64_t natural;

    if (bytes.bytes == 0 || bytes.bytes > NUMBER_BYTES_MAX) {
        return false;
    }
    for (size_t i = 0; i < bytes.bytes; i++) {
        text[i] = (char)bytes.data[i];
        if (!memchr("0123456789+-.eE", bytes.data[i], 15)) {
            return false;
        }
    }
    text[bytes.bytes] = '\0';
    *value_out = (struct stk_predicate_value){.written = bytes};
    if (stk_parse_int64(text, &end, &integer_found) && end == text_end) {
        value_out->kind = STK_PREDICATE_INT;
        value_out->integer = integer_found;
    } else if (stk_parse_uint64(text, &end, &natural) && end == text_end) {
        value_out->kind = STK_PREDICATE_NATURAL;
        value_out->natural = natural;
    } else if (stk_parse_double(text, &end, &value_out->real) && end == text_end) {
        value_out->kind = STK_PREDICATE_REAL;
    } else {
        return false;
    }
    return true;
}

/* A text member, without white space around it. */
static struct stk_predicate_value value_of_text(struct stk_view bytes)
{
    struct stk_predicate_value value;

    while (bytes.bytes > 0 && bytes.data[0] <= ' ') {
        bytes.data++;
        bytes.bytes--;
    }
    while (bytes.bytes > 0 && bytes.data[bytes.bytes - 1] <= ' ') {
        bytes.bytes--;
    }
    return parse_number(bytes, &value) ? value : text(bytes.data, bytes.bytes);
}

static int member_value(struct stk_sample_row *row, const struct stk_sample_column *column,
                        uint32_t slot, struct stk_predicate_value *value_out,
                        struct stoker_error *error)
{
    struct inside inside = {.path = column->path};
    int status = read_member(row, column->extension, slot, &inside.bytes, error);

    if (status <= 0) {
        return status;
    }
    inside.encoding = stk_value_encoding_of(column->extension, inside.bytes);
    if (inside.encoding == STK_VALUE_UNKNOWN) {
        *value_out = value_of_text(inside.bytes);
        return 0;
    }
    return nested_value(row, slot, &inside, value_out, error);
}

/* The class of a folder; for tars the label of the index, or the number of the .cls member. */
static int label(struct stk_sample_row *row, uint32_t slot, struct stk_predicate_value *value_out,
                 struct stoker_error *error)
{
    static const struct stk_sample_column member = {.extension = (char *)(uintptr_t)"cls",
                                                    .path = (char *)(uintptr_t)""};
    const struct stk_index *index = row->dataset->index;
    bool is_given =
        stk_index_is_folder(index) || stk_index_shard_has_labels(index, row->sample.shard);
    int status = 0;

    if (row->sample.label >= 0 && is_given) {
        *value_out = integer(row->sample.label);
    } else if (!stk_index_is_folder(index)) { /* the index has only labels that are numbers */
        status = member_value(row, &member, slot, value_out, error);
        value_out->written = (struct stk_view){NULL, 0}; /* as a label of the index */
    }
    return status;
}

/* The sum of all members; for a file of a folder its size in the file system. */
static int size(struct stk_sample_row *row, struct stk_predicate_value *value_out,
                struct stoker_error *error)
{
    const struct stk_index *index = row->dataset->index;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < row->sample.member_count; i++) {
        struct stk_member member;
        struct stk_stat about = {0};
        int status = stk_index_member(index, &row->sample, i, &member, error);

        about.bytes = status == 0 ? member.bytes : 0;
        if (status == 0 && member.bytes == STK_ENTIRE_OBJECT) {
            status = stk_index_path(index, member.shard, row->path, error);
            status = status < 0
                         ? status
                         : stk_io_stat_path(row->dataset->engine->io, row->path, &about, error);
        }
        if (status < 0) {
            return status;
        }
        sum += about.bytes;
    }
    *value_out = integer((int64_t)sum);
    return 0;
}

int stk_sample_row_value(struct stk_sample_row *row, const struct stk_sample_column *column,
                         uint32_t slot, struct stk_predicate_value *value_out,
                         struct stoker_error *error)
{
    const struct stk_index *index = row->dataset->index;
    const char *slash, *name;
    int status = 0;

    *value_out = (struct stk_predicate_value){.kind = STK_PREDICATE_NONE};
    switch ((enum stk_sample_column_kind)column->kind) {
    case STK_SAMPLE_COLUMN_LABEL:
        return label(row, slot, value_out, error);
    case STK_SAMPLE_COLUMN_CLASS:
        status = label(row, slot, value_out, error);
        if (status == 0 && value_out->kind == STK_PREDICATE_INT && value_out->integer >= 0 &&
            (uint64_t)value_out->integer < stk_index_classes(index)) {
            name = stk_index_class(index, (uint64_t)value_out->integer);
            *value_out = text(name, strlen(name));
        } else {
            value_out->kind = STK_PREDICATE_NONE;
        }
        return status;
    case STK_SAMPLE_COLUMN_SIZE:
        return size(row, value_out, error);
    case STK_SAMPLE_COLUMN_KEY:
        *value_out = text(row->sample.key.data, row->sample.key.bytes);
        return 0;
    case STK_SAMPLE_COLUMN_SHARD:
        status = stk_index_path(index, row->sample.shard, row->path, error);
        slash = status == 0 ? strrchr(row->path, '/') : NULL;
        name = slash ? slash + 1 : row->path;
        *value_out = text(name, status == 0 ? strlen(name) : 0);
        return status;
    case STK_SAMPLE_COLUMN_SAMPLE:
        *value_out = integer((int64_t)row->number);
        return 0;
    case STK_SAMPLE_COLUMN_MEMBER:
        break;
    }
    return member_value(row, column, slot, value_out, error);
}
