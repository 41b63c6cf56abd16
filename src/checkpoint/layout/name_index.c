/* The names of all tensors of a step, sorted. */
#include "checkpoint/layout/name_index.h"

#include "base/byte_order.h"
#include "base/mem.h"
#include "checkpoint/layout/json_text.h"
#include "checkpoint/layout/safetensors.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC "stkidx1\n"
#define HEAD_BYTES 32u
#define NUMBER_BYTES 10u
#define DAMAGED "the step is complete without it: 'stoker ckpt repair' writes it again"

static void add_number(struct stk_json_text *text, uint64_t value)
{
    char bytes[NUMBER_BYTES];
    size_t count = 0;

    do {
        bytes[count++] = (char)((value & 127) | (value > 127 ? 128 : 0));
        value >>= 7;
    } while (value > 0);
    stk_json_text_add(text, bytes, count);
}

int stk_named_tensor_compare(const void *a, const void *b)
{
    const struct stk_named_tensor *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order != 0 ? order : x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

static void add_entry(struct stk_json_text *table, const struct stk_named_tensor *names, uint64_t i)
{
    const char *name = names[i].name;
    size_t shared = 0, bytes = strlen(name);

    if (i % STK_NAME_INDEX_GROUP > 0) {
        while (name[shared] != '\0' && name[shared] == names[i - 1].name[shared]) {
            shared++;
        }
    }
    add_number(table, shared);
    add_number(table, bytes - shared);
    stk_json_text_add(table, name + shared, bytes - shared);
    add_number(table, names[i].tensor);
}

int stk_name_index_make(const struct stk_name_index_input *input, uint8_t **data_out,
                        uint64_t *bytes_out, struct stoker_error *error)
{
    struct stk_json_text table = {0}, file = {0};
    int status = 0;

    if (input->name_count > 0) {
        qsort(input->names, input->name_count, sizeof *input->names, stk_named_tensor_compare);
    }
    stk_json_text_add(&file, MAGIC, sizeof MAGIC - 1);
    stk_json_text_little(&file, input->file_count, 8);
    stk_json_text_little(&file, input->name_count, 8);
    stk_json_text_little(&file, 0, 8);
    for (uint64_t i = 0; i < input->file_count; i++) {
        stk_json_text_little(&file, input->counts[i], 8);
    }
    for (uint64_t i = 0; i < input->name_count; i++) {
        if (i % STK_NAME_INDEX_GROUP == 0) {
            stk_json_text_little(&file, table.bytes, 8);
        }
        add_entry(&table, input->names, i);
    }
    if (table.bytes > 0) {
        stk_json_text_add(&file, table.text, table.bytes);
    }
    if (table.failed || file.failed) {
        status = stk_fail_memory(error, "index of names");
    } else if (file.bytes > STK_NAME_INDEX_BYTES_MAX) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "the index of names is too large",
                          "use shorter names", "%llu names", (unsigned long long)input->name_count);
    }
    if (status == 0) {
        for (size_t i = 0; i < 8; i++) {
            file.text[24 + i] = (char)((uint64_t)table.bytes >> (8 * i));
        }
        *data_out = (uint8_t *)file.text;
        *bytes_out = file.bytes;
        file.text = NULL;
    }
    stk_json_text_deinit(&table);
    stk_json_text_deinit(&file);
    return status;
}

int stk_name_index_parse(struct stk_name_index *index, uint8_t *data, uint64_t bytes,
                         struct stoker_error *error)
{
    uint64_t groups, left;

    *index = (struct stk_name_index){.data = data};
    if (bytes >= HEAD_BYTES && bytes <= STK_NAME_INDEX_BYTES_MAX &&
        memcmp(data, MAGIC, sizeof MAGIC - 1) == 0) {
        index->file_count = stk_little(data + 8, 8);
        index->name_count = stk_little(data + 16, 8);
        index->table_bytes = stk_little(data + 24, 8);
        left = bytes - HEAD_BYTES;
        groups = index->name_count / STK_NAME_INDEX_GROUP +
                 (index->name_count % STK_NAME_INDEX_GROUP > 0);
        if (index->file_count <= left / 8 && groups <= (left - 8 * index->file_count) / 8 &&
            left - 8 * index->file_count - 8 * groups == index->table_bytes) {
            index->counts = data + HEAD_BYTES;
            index->groups = index->counts + 8 * index->file_count;
            index->table = index->groups + 8 * groups;
            return 0;
        }
    }
    stk_name_index_deinit(index);
    return stk_fail(error, STOKER_ERROR_FORMAT, "the file is no index of names", DAMAGED,
                    "%llu bytes", (unsigned long long)bytes);
}

void stk_name_index_deinit(struct stk_name_index *index)
{
    stk_free(index->data);
    *index = (struct stk_name_index){0};
}

uint64_t stk_name_index_tensors(const struct stk_name_index *index, uint64_t file)
{
    return stk_little(index->counts + 8 * file, 8);
}

/* A place in the table, and the name of the entry that was read last. */
struct cursor {
    const uint8_t *at, *end;
    char name[STK_SAFETENSORS_NAME_BYTES_MAX + 1];
    size_t bytes;
    uint64_t tensor;
};

static bool take_number(struct cursor *cursor, uint64_t *value_out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && cursor->at < cursor->end; shift += 7) {
        uint8_t byte = *cursor->at++;

        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *value_out = value;
            return true;
        }
    }
    return false;
}

/* Reads an entry. Returns false if it is not valid. */
static bool take_entry(struct cursor *cursor)
{
    uint64_t shared, bytes;

    if (!take_number(cursor, &shared) || !take_number(cursor, &bytes) || shared > cursor->bytes ||
        bytes > STK_SAFETENSORS_NAME_BYTES_MAX - shared ||
        bytes > (uint64_t)(cursor->end - cursor->at)) {
        return false;
    }
    memcpy(cursor->name + shared, cursor->at, bytes);
    cursor->at += bytes;
    cursor->bytes = shared + bytes;
    cursor->name[cursor->bytes] = '\0';
    return take_number(cursor, &cursor->tensor);
}

/* Reads the first entry of a group. */
static bool take_first(const struct stk_name_index *index, uint64_t group, struct cursor *cursor)
{
    uint64_t offset = stk_little(index->groups + 8 * group, 8);

    if (offset > index->table_bytes) {
        return false;
    }
    cursor->at = index->table + offset;
    cursor->end = index->table + index->table_bytes;
    cursor->bytes = 0;
    return take_entry(cursor);
}

bool stk_name_index_find(const struct stk_name_index *index, const char *name, uint64_t *tensor_out)
{
    uint64_t groups =
        index->name_count / STK_NAME_INDEX_GROUP + (index->name_count % STK_NAME_INDEX_GROUP > 0);
    uint64_t low = 0, high = groups;
    struct cursor cursor;

    while (low < high) { /* the first group that begins with this name, or behind it */
        uint64_t middle = low + (high - low) / 2;

        if (!take_first(index, middle, &cursor)) {
            return false;
        }
        if (strcmp(cursor.name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    /* The name may begin in the group before, and be the first one of the found group. */
    for (uint64_t group = low > 0 ? low - 1 : 0; group < groups && group <= low; group++) {
        uint64_t first = group * STK_NAME_INDEX_GROUP;
        uint64_t count = stk_min(index->name_count - first, STK_NAME_INDEX_GROUP);

        if (!take_first(index, group, &cursor)) {
            return false;
        }
        for (uint64_t i = 0; i < count; i++) {
            int order;

            if (i > 0 && !take_entry(&cursor)) {
                return false;
            }
            order = strcmp(cursor.name, name);
            if (order >= 0) {
                *tensor_out = cursor.tensor;
                return order == 0;
            }
        }
    }
    return false;
}
