/* Parses headers of safetensors files. */
#include "checkpoint/layout/safetensors.h"

#include "base/byte_order.h"
#include "base/crypto/digest.h"
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "base/text/parse_number.h"
#include "checkpoint/layout/dtype.h"
#include "checkpoint/layout/safetensors_keys.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define DAMAGED "copy the file again, or use another checkpoint"

static int fail(struct stoker_error *error, const char *what, const char *name)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, what, DAMAGED, "tensor '%.300s'", name);
}

static int fail_header(struct stoker_error *error, const char *what)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, what, DAMAGED, "header");
}

int stk_safetensors_length(const uint8_t first[STK_SAFETENSORS_LENGTH_BYTES], uint64_t file_bytes,
                           uint64_t *json_bytes_out, struct stoker_error *error)
{
    uint64_t bytes = stk_little(first, STK_SAFETENSORS_LENGTH_BYTES);

    if (bytes < 2 || bytes > STK_SAFETENSORS_HEADER_BYTES_MAX ||
        file_bytes < STK_SAFETENSORS_LENGTH_BYTES ||
        bytes > file_bytes - STK_SAFETENSORS_LENGTH_BYTES) {
        return stk_fail(error, STOKER_ERROR_FORMAT,
                        "this is no safetensors file, or its header is damaged or cut off", DAMAGED,
                        "a header of %llu bytes in %llu", (unsigned long long)bytes,
                        (unsigned long long)file_bytes);
    }
    *json_bytes_out = bytes;
    return 0;
}

static bool number_of(const json_t *value, uint64_t *number_out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return false;
    }
    *number_out = (uint64_t)json_integer_value(value);
    return true;
}

/* Room for all names and shapes: they need no more bytes than the JSON has. */
struct arena {
    uint64_t *numbers;
    char *text;
};

static int parse_shape(struct stk_safetensor *tensor, const json_t *shape, struct arena *arena,
                       struct stoker_error *error)
{
    size_t count = json_array_size(shape);

    if (!json_is_array(shape) || count > STOKER_CHECKPOINT_DIMENSIONS_MAX) {
        return fail(error, "the shape is no list of at most 32 numbers", tensor->name);
    }
    tensor->shape = arena->numbers;
    tensor->dimension_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        if (!number_of(json_array_get(shape, i), arena->numbers++)) {
            return fail(error, "the shape has an entry that is no number", tensor->name);
        }
    }
    return 0;
}

static int parse_tensor(struct stk_safetensor *tensor, const json_t *entry, struct arena *arena,
                        struct stoker_error *error)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    uint64_t begin, end, bytes;
    uint32_t bits;
    int status;

    if (!json_is_object(entry) || json_object_size(entry) != 3 || !dtype ||
        json_array_size(offsets) != 2 || !number_of(json_array_get(offsets, 0), &begin) ||
        !number_of(json_array_get(offsets, 1), &end) || begin > end) {
        return fail(error, "the entry is not dtype, shape and data_offsets", tensor->name);
    }
    bits = stk_checkpoint_dtype_bits(dtype, &tensor->dtype);
    if (bits == 0) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the dtype is unknown",
                        "use a later version of stoker", "tensor '%.300s' dtype '%.60s'",
                        tensor->name, dtype);
    }
    status = parse_shape(tensor, json_object_get(entry, "shape"), arena, error);
    if (status < 0) {
        return status;
    }
    if (!stk_checkpoint_tensor_bytes(bits, tensor->shape, tensor->dimension_count, &bytes) ||
        bytes != end - begin) {
        return fail(error, "shape and data_offsets differ", tensor->name);
    }
    tensor->offset = begin;
    tensor->bytes = bytes;
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct stk_safetensor *x = a, *y = b;

    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

/* The tensors must fill the buffer without gaps. */
static int check_offsets(struct stk_safetensors *file, struct stoker_error *error)
{
    uint64_t end = 0;

    qsort(file->tensors, file->count, sizeof *file->tensors, by_offset);
    for (uint64_t i = 0; i < file->count; i++) {
        if (file->tensors[i].offset != end) {
            return fail(error, "there is a gap or an overlap before a tensor",
                        file->tensors[i].name);
        }
        end += file->tensors[i].bytes; /* cannot overflow: it was a data_offset */
    }
    return end == file->buffer_bytes
               ? 0
               : stk_fail(error,
                          end > file->buffer_bytes ? STOKER_ERROR_TRUNCATED : STOKER_ERROR_FORMAT,
                          "the file has not the length that its header says", DAMAGED,
                          "%llu bytes of tensors, %llu in the file", (unsigned long long)end,
                          (unsigned long long)file->buffer_bytes);
}

static int parse_tensors(struct stk_safetensors *file, json_t *root, size_t json_bytes,
                         struct stoker_error *error)
{
    size_t count = json_object_size(root);
    struct arena arena;
    const char *name;
    json_t *entry;
    int status = 0;

    file->tensors = stk_alloc(count + 1, sizeof *file->tensors);
    /* A number of a shape has at least two characters in the JSON, a name its own ones. */
    file->memory = stk_alloc(json_bytes / 2 + 1, sizeof(uint64_t));
    arena.text = stk_alloc(json_bytes + 1, 1);
    arena.numbers = file->memory;
    file->names = arena.text;
    if (!file->tensors || !file->memory || !arena.text) {
        return stk_fail_memory(error, "header");
    }
    json_object_foreach(root, name, entry)
    {
        struct stk_safetensor *tensor = &file->tensors[file->count];
        size_t name_bytes = strlen(name) + 1;

        if (strcmp(name, "__metadata__") == 0) {
            continue;
        }
        if (name_bytes > STK_SAFETENSORS_NAME_BYTES_MAX) {
            return fail(error, "the name of a tensor is too long", name);
        }
        tensor->name = memcpy(arena.text, name, name_bytes);
        arena.text += name_bytes;
        status = parse_tensor(tensor, entry, &arena, error);
        if (status < 0) {
            return status;
        }
        file->count++;
    }
    return check_offsets(file, error);
}

static int parse_leaves(struct stk_safetensors *file, const json_t *metadata,
                        struct stoker_error *error)
{
    const char *leaf = json_string_value(json_object_get(metadata, STK_KEY_LEAF_BYTES));
    const char *leaves = json_string_value(json_object_get(metadata, STK_KEY_LEAVES));
    char want[24];

    /* Only one size is written today; another one is a later version of the format. */
    snprintf(want, sizeof want, "%u", STK_SAFETENSORS_LEAF_BYTES);
    if (!leaf || strcmp(leaf, want) != 0 || !leaves) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the hashes are of a later version",
                        "use a later version of stoker", "header");
    }
    file->leaf_bytes = STK_SAFETENSORS_LEAF_BYTES;
    file->leaf_count = (file->buffer_bytes + file->leaf_bytes - 1) / file->leaf_bytes;
    if (strlen(leaves) / 64 != file->leaf_count || strlen(leaves) % 64 != 0) {
        return fail_header(error, "the number of hashes does not match the length of the file");
    }
    file->leaves = stk_alloc(file->leaf_count + 1, 32);
    if (!file->leaves) {
        return stk_fail_memory(error, "hashes");
    }
    return stk_hex_decode(leaves, file->leaves, file->leaf_count * 32)
               ? 0
               : fail_header(error, "a hash has other characters than 0-9 and a-f");
}

/* "NaN,Inf,pages;" of each tensor, or ";" if all are 0. */
static bool read_counts(struct stk_safetensors *file, const char *text)
{
    for (uint64_t i = 0; i < file->count; i++) {
        uint64_t numbers[3] = {0, 0, 0};

        for (int j = 0; j < 3 && *text != ';'; j++) {
            const char *end;

            if (*text < '0' || *text > '9' || !stk_parse_uint64(text, &end, &numbers[j]) ||
                numbers[j] > file->tensors[i].bytes || *end != (j < 2 ? ',' : ';')) {
                return false;
            }
            text = j < 2 ? end + 1 : end;
        }
        if (*text++ != ';') {
            return false;
        }
        file->counts[i].nan = numbers[0];
        file->counts[i].inf = numbers[1];
        file->counts[i].zero_pages = numbers[2];
    }
    return *text == '\0';
}

static int parse_counts(struct stk_safetensors *file, const json_t *metadata,
                        struct stoker_error *error)
{
    const char *text = json_string_value(json_object_get(metadata, STK_KEY_COUNTS));

    if (!text) { /* of a version of stoker that did not count */
        return 0;
    }
    file->counts = stk_alloc(file->count + 1, sizeof *file->counts);
    if (!file->counts) {
        return stk_fail_memory(error, "counts");
    }
    return read_counts(file, text)
               ? 0
               : fail_header(error, "the counts of NaN and Inf do not match the tensors");
}

static int parse_metadata(struct stk_safetensors *file, json_t *metadata, bool hashed,
                          struct stoker_error *error)
{
    const char *key, *tree;
    json_t *value;
    int status;

    if (!metadata) {
        return 0;
    }
    if (!json_is_object(metadata)) {
        return fail_header(error, "__metadata__ is no object");
    }
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value)) {
            return fail_header(error, "__metadata__ has a value that is no text");
        }
    }
    tree = json_string_value(json_object_get(metadata, STK_KEY_TREE));
    if (tree) {
        file->tree = stk_strdup(tree);
        if (!file->tree) {
            return stk_fail_memory(error, "header");
        }
    }
    if (!hashed && json_object_get(metadata, STK_KEY_LEAVES)) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, "the hash of the header is missing", DAMAGED,
                        "header");
    }
    if (!hashed) {
        return 0;
    }
    status = parse_leaves(file, metadata, error);
    return status < 0 ? status : parse_counts(file, metadata, error);
}

/* Our headers have their root at a fixed place. */
static int check_root(struct stk_safetensors *file, struct stk_view json, bool *hashed_out,
                      struct stoker_error *error)
{
    size_t head = sizeof STK_HEADER_HEAD - 1;
    uint8_t want[32];
    char digits[65];

    *hashed_out = json.bytes >= head + 64 && memcmp(json.data, STK_HEADER_HEAD, head) == 0;
    if (!*hashed_out) {
        return 0;
    }
    memcpy(digits, json.data + head, 64);
    digits[64] = '\0';
    if (!stk_hex_decode(digits, want, 32)) {
        return fail_header(error, "the hash of the header has other characters than 0-9 and a-f");
    }
    stk_sha256_one(json.data + head + 64, json.bytes - head - 64, file->root);
    return memcmp(want, file->root, 32) == 0
               ? 0
               : stk_fail(error, STOKER_ERROR_CORRUPT, "the header does not match its hash",
                          DAMAGED, "header");
}

int stk_safetensors_parse(struct stk_safetensors *file, struct stk_view json, uint64_t file_bytes,
                          struct stoker_error *error)
{
    json_error_t at = {0};
    json_t *root;
    bool hashed;
    int status;

    *file = (struct stk_safetensors){.header_bytes = STK_SAFETENSORS_LENGTH_BYTES + json.bytes};
    if (json.bytes > STK_SAFETENSORS_HEADER_BYTES_MAX || file_bytes < file->header_bytes) {
        return fail_header(error, "the header is longer than the file");
    }
    file->buffer_bytes = file_bytes - file->header_bytes;
    status = check_root(file, json, &hashed, error);
    if (status < 0) {
        return status;
    }
    root = json.bytes > 0 && json.data[0] == '{'
               ? json_loadb((const char *)json.data, json.bytes, JSON_REJECT_DUPLICATES, &at)
               : NULL;
    if (!json_is_object(root)) {
        json_decref(root);
        return stk_fail(error, STOKER_ERROR_FORMAT, "the header is no JSON object", DAMAGED,
                        "line %d: %s", at.line, at.text);
    }
    status = parse_tensors(file, root, json.bytes, error);
    status = status < 0
                 ? status
                 : parse_metadata(file, json_object_get(root, "__metadata__"), hashed, error);
    json_decref(root);
    if (status < 0) {
        stk_safetensors_deinit(file);
    }
    return status;
}

void stk_safetensors_deinit(struct stk_safetensors *file)
{
    stk_free(file->tensors);
    stk_free(file->memory);
    stk_free(file->names);
    stk_free(file->leaves);
    stk_free(file->counts);
    stk_free(file->tree);
    *file = (struct stk_safetensors){0};
}
