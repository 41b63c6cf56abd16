/* Lays out a safetensors file, and writes its header. */
#include "base/compare.h"
#include "base/crypto/digest.h"
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "base/text/utf8.h"
#include "checkpoint/layout/dtype.h"
#include "checkpoint/layout/safetensors.h"
#include "checkpoint/layout/safetensors_keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_paged(const struct stk_safetensor *tensor)
{
    return tensor->bytes % STK_SAFETENSORS_PAGE_BYTES == 0;
}

static int by_place(const void *a, const void *b)
{
    const struct stk_safetensor *x = a, *y = b;
    uint32_t x_bits = stk_checkpoint_dtype_bits(x->dtype, NULL);
    uint32_t y_bits = stk_checkpoint_dtype_bits(y->dtype, NULL);

    if (is_paged(x) != is_paged(y)) {
        return is_paged(x) ? -1 : 1;
    }
    if (!is_paged(x) && x_bits != y_bits) {
        return x_bits > y_bits ? -1 : 1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static int fail_tensor(struct stoker_error *error, const char *what, const char *advice,
                       const char *name)
{
    return stk_fail(error, STOKER_ERROR_ARGUMENT, what, advice, "tensor '%.300s'", name);
}

static int check_tensor(struct stk_safetensor *tensor, const struct stoker_checkpoint_tensor *given,
                        struct stoker_error *error)
{
    uint32_t bits;

    if (!given->name || !given->dtype || (given->dimension_count > 0 && !given->shape)) {
        return fail_tensor(error, "a name, dtype or shape is NULL", "set all of them",
                           given->name ? given->name : "");
    }
    if (!stk_utf8_check((struct stk_view){(const uint8_t *)given->name, strlen(given->name)},
                        NULL) ||
        strlen(given->name) >= STK_SAFETENSORS_NAME_BYTES_MAX ||
        strcmp(given->name, "__metadata__") == 0) {
        return fail_tensor(error, "the name is not valid",
                           "use UTF-8, fewer than 4096 bytes, and not __metadata__", given->name);
    }
    bits = stk_checkpoint_dtype_bits(given->dtype, &tensor->dtype);
    if (bits == 0) {
        return fail_tensor(error, "the dtype is unknown", "use a name of safetensors, like F32",
                           given->name);
    }
    if (given->dimension_count > STOKER_CHECKPOINT_DIMENSIONS_MAX ||
        !stk_checkpoint_tensor_bytes(bits, given->shape, given->dimension_count, &tensor->bytes) ||
        tensor->bytes > INT64_MAX / 2) {
        return fail_tensor(error, "the shape is too large", "use at most 32 dimensions",
                           given->name);
    }
    tensor->name = given->name;
    tensor->shape = given->shape;
    tensor->dimension_count = given->dimension_count;
    return 0;
}

static int check_names(const struct stk_safetensors *file, struct stoker_error *error)
{
    const char **names = stk_alloc(file->count + 1, sizeof *names);
    int status = 0;

    if (!names) {
        return stk_fail_memory(error, "names of tensors");
    }
    for (uint64_t i = 0; i < file->count; i++) {
        names[i] = file->tensors[i].name;
    }
    qsort(names, file->count, sizeof *names, stk_compare_texts);
    for (uint64_t i = 1; status == 0 && i < file->count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            status = fail_tensor(error, "two tensors have the same name", "rename one", names[i]);
        }
    }
    stk_free(names);
    return status;
}

static uint32_t digits_of(uint64_t number)
{
    uint32_t digits = 1;

    while (number >= 10) {
        number /= 10;
        digits++;
    }
    return digits;
}

/* The counts of all tensors; before the file is written, as many characters as they may need. */
static void print_counts(const struct stk_safetensors *file, struct stk_json_text *json)
{
    if (file->leaves && !file->counts) {
        return;
    }
    stk_json_text_print(json, "\",\"" STK_KEY_COUNTS "\":\"");
    for (uint64_t i = 0; i < file->count; i++) {
        const struct stk_tensor_counts *counts = file->counts ? &file->counts[i] : NULL;
        uint64_t bytes = file->tensors[i].bytes;

        if (!counts && bytes > 0) {
            stk_json_text_fill(json, '0',
                               2 * digits_of(bytes) + 2 + digits_of(bytes / STK_COUNT_PAGE_BYTES));
        } else if (counts && counts->nan + counts->inf + counts->zero_pages > 0) {
            stk_json_text_print(json, "%llu,%llu,%llu", (unsigned long long)counts->nan,
                                (unsigned long long)counts->inf,
                                (unsigned long long)counts->zero_pages);
        }
        stk_json_text_add(json, ";", 1);
    }
}

/* The JSON with zeros for the root, and the hashes in `leaves` (NULL: zeros). */
static void print_header(const struct stk_safetensors *file, struct stk_json_text *json)
{
    char digits[65];

    stk_json_text_add(json, STK_HEADER_HEAD, sizeof STK_HEADER_HEAD - 1);
    stk_json_text_fill(json, '0', 64);
    stk_json_text_print(json, "\",\"" STK_KEY_LEAF_BYTES "\":\"%u\",\"" STK_KEY_LEAVES "\":\"",
                        file->leaf_bytes);
    for (uint64_t i = 0; file->leaves && i < file->leaf_count; i++) {
        stk_hex(file->leaves + i * 32, 32, digits);
        stk_json_text_add(json, digits, 64);
    }
    if (!file->leaves) {
        stk_json_text_fill(json, '0', file->leaf_count * 64);
    }
    print_counts(file, json);
    stk_json_text_add(json, "\"", 1);
    if (file->tree) {
        stk_json_text_print(json, ",\"" STK_KEY_TREE "\":");
        stk_json_text_string(json, file->tree);
    }
    stk_json_text_add(json, "}", 1);
    for (uint64_t i = 0; i < file->count; i++) {
        const struct stk_safetensor *tensor = &file->tensors[i];

        stk_json_text_add(json, ",", 1);
        stk_json_text_string(json, tensor->name);
        stk_json_text_print(json, ":{\"dtype\":\"%s\",\"shape\":[", tensor->dtype);
        for (uint32_t j = 0; j < tensor->dimension_count; j++) {
            stk_json_text_print(json, "%s%llu", j ? "," : "", (unsigned long long)tensor->shape[j]);
        }
        stk_json_text_print(json, "],\"data_offsets\":[%llu,%llu]}",
                            (unsigned long long)tensor->offset,
                            (unsigned long long)(tensor->offset + tensor->bytes));
    }
    stk_json_text_add(json, "}", 1);
}

/* Sets header_bytes: from where the buffer begins. */
static int measure_header(struct stk_safetensors *file, struct stoker_error *error)
{
    struct stk_json_text json = {0};
    uint64_t bytes;

    print_header(file, &json);
    bytes = json.bytes + STK_SAFETENSORS_LENGTH_BYTES;
    if (json.failed) {
        stk_json_text_deinit(&json);
        return stk_fail_memory(error, "header");
    }
    stk_json_text_deinit(&json);
    file->header_bytes = stk_round_up(bytes, STK_SAFETENSORS_PAGE_BYTES);
    if (file->header_bytes + file->buffer_bytes > STK_SAFETENSORS_BLOCK_BYTES) {
        file->header_bytes = stk_round_up(bytes, STK_SAFETENSORS_LEAF_BYTES);
    }
    return file->header_bytes <= STK_SAFETENSORS_HEADER_BYTES_MAX
               ? 0
               : stk_fail(error, STOKER_ERROR_LIMIT, "the header has more than 100 MB",
                          "save on several ranks, or store large texts as tensors",
                          "%llu tensors of %llu bytes", (unsigned long long)file->count,
                          (unsigned long long)file->buffer_bytes);
}

/* Copies names and shapes: the caller may free its own before the header is written. */
static int own_names(struct stk_safetensors *file, struct stoker_error *error)
{
    uint64_t text_bytes = 1, numbers = 1, *number;
    char *text;

    for (uint64_t i = 0; i < file->count; i++) {
        text_bytes += strlen(file->tensors[i].name) + 1;
        numbers += file->tensors[i].dimension_count;
    }
    file->names = text = stk_alloc(text_bytes, 1);
    file->memory = number = stk_alloc(numbers, sizeof *number);
    if (!text || !number) {
        return stk_fail_memory(error, "names of tensors");
    }
    for (uint64_t i = 0; i < file->count; i++) {
        struct stk_safetensor *tensor = &file->tensors[i];
        size_t bytes = strlen(tensor->name) + 1;

        tensor->name = memcpy(text, tensor->name, bytes);
        text += bytes;
        if (tensor->dimension_count > 0) {
            memcpy(number, tensor->shape, tensor->dimension_count * sizeof *number);
        }
        tensor->shape = number;
        number += tensor->dimension_count;
    }
    return 0;
}

int stk_safetensors_layout(struct stk_safetensors *file,
                           const struct stoker_checkpoint_tensor *tensors, size_t count,
                           const char *tree, struct stoker_error *error)
{
    int status = 0;

    *file = (struct stk_safetensors){.leaf_bytes = STK_SAFETENSORS_LEAF_BYTES, .count = count};
    file->tensors = stk_alloc(count + 1, sizeof *file->tensors);
    file->tree = tree ? stk_strdup(tree) : NULL;
    if (!file->tensors || (tree && !file->tree) || count > UINT32_MAX) {
        status = stk_fail_memory(error, "layout of a checkpoint");
    } else if (tree &&
               !stk_utf8_check((struct stk_view){(const uint8_t *)tree, strlen(tree)}, NULL)) {
        status = stk_fail(error, STOKER_ERROR_ARGUMENT, "the tree is not UTF-8", "encode it",
                          "checkpoint");
    }
    for (size_t i = 0; status == 0 && i < count; i++) {
        file->tensors[i].source = (uint32_t)i;
        status = check_tensor(&file->tensors[i], &tensors[i], error);
    }
    status = status < 0 ? status : check_names(file, error);
    status = status < 0 ? status : own_names(file, error);
    if (status == 0) {
        qsort(file->tensors, count, sizeof *file->tensors, by_place);
        for (size_t i = 0; status == 0 && i < count; i++) {
            file->tensors[i].offset = file->buffer_bytes;
            if (!stk_add(file->buffer_bytes, file->tensors[i].bytes, &file->buffer_bytes) ||
                file->buffer_bytes > INT64_MAX / 2) {
                status = fail_tensor(error, "the tensors are too large", "save fewer of them",
                                     file->tensors[i].name);
            }
        }
        file->leaf_count = (file->buffer_bytes + file->leaf_bytes - 1) / file->leaf_bytes;
    }
    status = status < 0 ? status : measure_header(file, error);
    if (status < 0) {
        stk_safetensors_deinit(file);
    }
    return status;
}

int stk_safetensors_header(struct stk_safetensors *file, uint8_t **header_out,
                           struct stoker_error *error)
{
    size_t after = STK_SAFETENSORS_LENGTH_BYTES + sizeof STK_HEADER_HEAD - 1;
    uint64_t json_bytes = file->header_bytes - STK_SAFETENSORS_LENGTH_BYTES;
    struct stk_json_text json = {0};
    char digits[65];

    stk_json_text_little(&json, json_bytes, STK_SAFETENSORS_LENGTH_BYTES);
    print_header(file, &json);
    if (!json.failed) {
        stk_json_text_fill(&json, ' ', file->header_bytes - json.bytes);
    }
    if (json.failed) {
        stk_json_text_deinit(&json);
        return stk_fail_memory(error, "header");
    }
    stk_sha256_one(json.text + after + 64, json.bytes - after - 64, file->root);
    stk_hex(file->root, 32, digits);
    memcpy(json.text + after, digits, 64);
    *header_out = (uint8_t *)json.text;
    return 0;
}
