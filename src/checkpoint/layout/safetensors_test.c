/* Goal: a layout is aligned, and its header is read back unchanged; every damaged or malicious
 * header is refused with a reason. The same tensors give the same bytes.
 * Method: a state of tensors of many sizes is laid out and parsed; each bit of the header is
 * flipped; rows of wrong headers. Covers safetensors.c, safetensors_layout.c, dtype.c,
 * json_text.c. */
#include "base/crypto/digest.h"
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "checkpoint/layout/dtype.h"
#include "checkpoint/layout/safetensors.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t shapes[][2] = {{1024, 1024}, {3, 5}, {4096, 1}, {0, 7}, {1, 1}, {33, 1}};
static const char data[] = "";

static const struct stoker_checkpoint_tensor state[] = {
    {"layers.0.weight", "BF16", shapes[0], 2, data},
    {"odd \"name\" \\ \xc3\xa9\n", "F32", shapes[1], 2, data},
    {"page", "U8", shapes[2], 1, data},
    {"empty", "I64", shapes[3], 2, NULL},
    {"scalar", "F64", NULL, 0, data},
    {"bytes", "BOOL", shapes[5], 1, data},
    {"half", "F16", shapes[5], 1, data},
    {"large", "F32", shapes[0], 2, data},
};
#define COUNT STK_COUNT(state)

static uint8_t *make(struct stk_safetensors *file, const char *tree)
{
    uint8_t *header = NULL;

    T_EQ("layout", stk_safetensors_layout(file, state, COUNT, tree, NULL), 0);
    file->leaves = stk_alloc(file->leaf_count + 1, 32);
    memset(file->leaves, 0xa5, file->leaf_count * 32);
    file->counts = stk_alloc(file->count + 1, sizeof *file->counts);
    file->counts[0].nan = file->tensors[0].bytes; /* as many digits as there may be */
    file->counts[0].inf = file->tensors[0].bytes;
    file->counts[0].zero_pages = 9;
    T_EQ("header", stk_safetensors_header(file, &header, NULL), 0);
    return header;
}

static void test_round_trip(void)
{
    struct stk_safetensors file = {0}, parsed = {0};
    uint8_t *header = make(&file, "{\"a\": [1, \"\\u0001\"]}");
    uint64_t json_bytes = 0, end = 0;

    T_EQ("pages", file.header_bytes % 4096, 0);
    T_EQ("length",
         stk_safetensors_length(header, file.header_bytes + file.buffer_bytes, &json_bytes, NULL),
         0);
    T_EQ("all of it", json_bytes + 8, file.header_bytes);
    T_EQ("parse",
         stk_safetensors_parse(&parsed, (struct stk_view){header + 8, json_bytes},
                               file.header_bytes + file.buffer_bytes, NULL),
         0);
    T_EQ("count", parsed.count, COUNT);
    T_STR("tree", parsed.tree, "{\"a\": [1, \"\\u0001\"]}");
    T_EQ("leaves", parsed.leaf_count, file.leaf_count);
    T_TRUE("hashes", memcmp(parsed.leaves, file.leaves, file.leaf_count * 32) == 0);
    T_TRUE("root", memcmp(parsed.root, file.root, 32) == 0);
    for (size_t i = 0; i < parsed.count; i++) {
        const struct stk_safetensor *tensor = &parsed.tensors[i];
        uint32_t bits = stk_checkpoint_dtype_bits(tensor->dtype, NULL);
        size_t source = 0;

        T_EQ("no gap", tensor->offset, end);
        T_EQ("aligned", tensor->offset % (bits / 8), 0);
        T_TRUE("pages", tensor->bytes % 4096 != 0 || tensor->offset % 4096 == 0);
        while (strcmp(state[source].name, tensor->name) != 0) {
            source++;
        }
        T_STR("dtype", tensor->dtype, state[source].dtype);
        T_EQ("dimensions", tensor->dimension_count, state[source].dimension_count);
        T_TRUE("shape", tensor->dimension_count == 0 || memcmp(tensor->shape, state[source].shape,
                                                               8 * tensor->dimension_count) == 0);
        end += tensor->bytes;
    }
    T_STR("large ones first", parsed.tensors[0].name, "large");
    T_TRUE("counts", parsed.counts && parsed.counts[0].nan == parsed.tensors[0].bytes &&
                         parsed.counts[0].zero_pages == 9 && parsed.counts[1].inf == 0);
    stk_safetensors_deinit(&parsed);
    stk_safetensors_deinit(&file);
    stk_free(header);
}

/* Texts of counts that match a file with one tensor of 4 bytes, or do not. */
static void test_counts(void)
{
    static const struct counts_row {
        const char *name, *text;
        int want;
    } rows[] = {
        {"none", ";", 0},
        {"counts", "1,2,0;", 0},
        {"more than bytes", "5,0,0;", STOKER_ERROR_FORMAT},
        {"too long", "99999999999999999999999,0,0;", STOKER_ERROR_FORMAT},
        {"negative", "-1,0,0;", STOKER_ERROR_FORMAT},
        {"two numbers", "1,2;", STOKER_ERROR_FORMAT},
        {"no end", "1,2,0", STOKER_ERROR_FORMAT},
        {"two tensors", ";;", STOKER_ERROR_FORMAT},
        {"empty", "", STOKER_ERROR_FORMAT},
    };

    T_EACH(counts_row, row, rows)
    {
        struct stk_safetensors parsed = {0};
        struct stoker_error error = {0};
        char rest[600], json[800], digits[65];
        uint8_t root[32];
        int bytes;

        memset(digits, 'a', 64);
        digits[64] = '\0';
        snprintf(rest, sizeof rest,
                 "\",\"stoker.leaf_bytes\":\"1048576\",\"stoker.leaves\":\"%s\","
                 "\"stoker.counts\":\"%s\"},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
                 "\"data_offsets\":[0,4]}}",
                 digits, row->text);
        stk_sha256_one(rest, strlen(rest), root);
        stk_hex(root, 32, digits);
        bytes =
            snprintf(json, sizeof json, "{\"__metadata__\":{\"stoker.root\":\"%s%s", digits, rest);
        T_EQ(row->name,
             stk_safetensors_parse(&parsed, (struct stk_view){(uint8_t *)json, (size_t)bytes},
                                   (uint64_t)bytes + 8 + 4, &error),
             row->want);
        if (row->want == 0) {
            T_EQ(row->name, parsed.counts[0].inf, row->text[0] == ';' ? 0 : 2);
            stk_safetensors_deinit(&parsed);
        } else {
            T_ERROR(row->name, &error);
        }
    }
}

static void test_flips(void)
{
    struct stk_safetensors file = {0}, parsed;
    uint8_t *header = make(&file, "[]");
    uint64_t all = file.header_bytes + file.buffer_bytes, refused = 0, bits = 0;
    uint8_t *full_file = calloc(all, 1);

    memcpy(full_file, header, file.header_bytes);
    stk_free(header);
    header = full_file;

    for (uint64_t bit = 0; bit < file.header_bytes * 8; bit++) {
        struct stoker_error error = {0};
        uint64_t json_bytes;
        int status;

        header[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        status = stk_safetensors_length(header, all, &json_bytes, &error);
        if (status == 0) {
            status = stk_safetensors_parse(&parsed, (struct stk_view){header + 8, json_bytes}, all,
                                           &error);
            if (status == 0) {
                stk_safetensors_deinit(&parsed);
            }
        }
        refused += status < 0 && error.what[0] && error.advice[0];
        bits++;
        header[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    T_EQ("every bit", refused, bits);
    stk_safetensors_deinit(&file);
    free(full_file);
}

static void test_hostile(void)
{
    static const struct wrong_row {
        const char *name, *json;
        uint64_t buffer_bytes;
        int want;
    } rows[] = {
        {"plain", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, 0},
        {"padded", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}   ", 2, 0},
        {"no tensors", "{}", 0, 0},
        {"metadata", "{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0},
        {"text after", "{} x", 0, STOKER_ERROR_FORMAT},
        {"space before", " {}", 0, STOKER_ERROR_FORMAT},
        {"a list", "[]", 0, STOKER_ERROR_FORMAT},
        {"twice",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         0, STOKER_ERROR_FORMAT},
        {"gap", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3,
         STOKER_ERROR_FORMAT},
        {"overlap",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3, STOKER_ERROR_FORMAT},
        {"rest", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 3,
         STOKER_ERROR_FORMAT},
        {"cut off", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 1,
         STOKER_ERROR_TRUNCATED},
        {"backwards", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,0]}}", 2,
         STOKER_ERROR_FORMAT},
        {"shape", "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2,
         STOKER_ERROR_FORMAT},
        {"overflow",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
         STOKER_ERROR_FORMAT},
        {"negative", "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,0]}}", 0,
         STOKER_ERROR_FORMAT},
        {"fraction", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,0]}}", 0,
         STOKER_ERROR_FORMAT},
        {"dtype", "{\"a\":{\"dtype\":\"U9\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
         STOKER_ERROR_UNSUPPORTED},
        {"half a byte", "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1,
         STOKER_ERROR_FORMAT},
        {"more keys", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2],\"x\":1}}", 2,
         STOKER_ERROR_FORMAT},
        {"number in metadata", "{\"__metadata__\":{\"format\":1}}", 0, STOKER_ERROR_FORMAT},
        {"hashes without a root", "{\"__metadata__\":{\"stoker.leaves\":\"\"}}", 0,
         STOKER_ERROR_CORRUPT},
    };

    T_EACH(wrong_row, row, rows)
    {
        struct stk_safetensors file;
        struct stoker_error error = {0};
        size_t bytes = strlen(row->json);

        T_EQ(row->name,
             stk_safetensors_parse(&file, (struct stk_view){(const uint8_t *)row->json, bytes},
                                   bytes + 8 + row->buffer_bytes, &error),
             row->want);
        if (row->want == 0) {
            stk_safetensors_deinit(&file);
        } else {
            T_ERROR(row->name, &error);
        }
    }
}

static void test_arguments(void)
{
    static const uint64_t huge[] = {1ull << 40, 1ull << 40};
    static const struct argument_row {
        const char *name;
        struct stoker_checkpoint_tensor tensors[2];
        const char *tree;
    } rows[] = {
        {"same name", {{"a", "U8", NULL, 0, data}, {"a", "U8", NULL, 0, data}}, NULL},
        {"dtype", {{"a", "U8", NULL, 0, data}, {"b", "float", NULL, 0, data}}, NULL},
        {"name", {{"a", "U8", NULL, 0, data}, {"\xff", "U8", NULL, 0, data}}, NULL},
        {"reserved", {{"a", "U8", NULL, 0, data}, {"__metadata__", "U8", NULL, 0, data}}, NULL},
        {"huge", {{"a", "U8", NULL, 0, data}, {"b", "U8", huge, 2, data}}, NULL},
        {"tree", {{"a", "U8", NULL, 0, data}, {"b", "U8", NULL, 0, data}}, "\xc0"},
    };

    T_EACH(argument_row, row, rows)
    {
        struct stk_safetensors file;
        struct stoker_error error = {0};

        T_EQ(row->name, stk_safetensors_layout(&file, row->tensors, 2, row->tree, &error),
             STOKER_ERROR_ARGUMENT);
        T_ERROR(row->name, &error);
    }
}

int main(void)
{
    int64_t alive = stk_mem_alive();

    test_round_trip();
    test_counts();
    test_flips();
    test_hostile();
    test_arguments();
    T_EQ("memory", stk_mem_alive(), alive);
    return t_finish();
}
