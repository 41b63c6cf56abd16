/* Goal: a manifest is read back as it was written, with the same bytes for the same step; each
 * flipped bit of it is found, and hostile texts are refused.
 * Method: flips of every bit, truncation at every byte, rows of wrong texts with a right hash.
 * Covers step_manifest.c. */
#include "base/crypto/digest.h"
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "checkpoint/layout/step_manifest.h"
#include "test/t.h"

#include <string.h>

static struct stoker_checkpoint_part files[] = {
    {.name = "shard-00000.safetensors", .bytes = 4096, .root = {1, 2, 3}},
    {.name = "shard-00001.safetensors", .bytes = 8192, .root = {4, 5, 6}}};

static char *make(const char *values, size_t *bytes_out)
{
    struct stk_step_manifest manifest = {.step = 1000,
                                         .ranks = 2,
                                         .counted = true,
                                         .nan = 3,
                                         .inf = UINT32_MAX,
                                         .files = files,
                                         .file_count = 2};
    char *text = NULL, *copy = values ? stk_strdup(values) : NULL;

    manifest.values = copy;
    T_EQ("text", stk_step_manifest_text(&manifest, &text, bytes_out, NULL), 0);
    stk_free(copy);
    return text;
}

static void test_round_trip(void)
{
    struct stk_step_manifest manifest;
    size_t bytes = 0, other_bytes = 0;
    char *text = make("{\"loss\": 1.5, \"a\": [1, {\"z\": 1, \"b\": null}]}", &bytes);
    char *other = make("{ \"a\":[1,{\"b\":null,\"z\":1}], \"loss\":1.5 }", &other_bytes);
    double loss = 0;

    T_STR("same bytes", text, other);
    T_EQ("parse",
         stk_step_manifest_parse(&manifest, (struct stk_view){(uint8_t *)text, bytes}, NULL), 0);
    T_EQ("step", manifest.step, 1000);
    T_EQ("ranks", manifest.ranks, 2);
    T_EQ("files", manifest.file_count, 2);
    T_TRUE("counted", manifest.counted);
    T_EQ("NaN", manifest.nan, 3);
    T_EQ("Inf", manifest.inf, UINT32_MAX);
    T_TRUE("file", memcmp(&manifest.files[1], &files[1], sizeof files[1]) == 0);
    T_TRUE("number", stk_step_manifest_number(manifest.values, "loss", &loss) && loss == 1.5);
    T_TRUE("no number", !stk_step_manifest_number(manifest.values, "a", &loss));
    stk_step_manifest_deinit(&manifest);
    stk_free(text);
    stk_free(other);
}

static void test_damage(void)
{
    struct stk_step_manifest manifest;
    size_t bytes = 0, refused = 0;
    char *text = make("{\"loss\":1.5}", &bytes);

    for (size_t bit = 0; bit < bytes * 8; bit++) {
        struct stoker_error error = {0};

        text[bit / 8] ^= (char)(1u << (bit % 8));
        refused += stk_step_manifest_parse(&manifest, (struct stk_view){(uint8_t *)text, bytes},
                                           &error) < 0 &&
                   error.what[0] != '\0' && error.advice[0] != '\0';
        text[bit / 8] ^= (char)(1u << (bit % 8));
    }
    T_EQ("every bit", refused, bytes * 8);
    refused = 0;
    for (size_t cut = 0; cut < bytes; cut++) {
        refused +=
            stk_step_manifest_parse(&manifest, (struct stk_view){(uint8_t *)text, cut}, NULL) < 0;
    }
    T_EQ("every length", refused, bytes);
    stk_free(text);
}

/* A text with the right hash. */
static int parse_rest(const char *rest, struct stk_step_manifest *manifest,
                      struct stoker_error *error)
{
    char text[1024], digits[65];
    uint8_t root[32];

    stk_sha256_one(rest, strlen(rest), root);
    stk_hex(root, 32, digits);
    snprintf(text, sizeof text, "{\"root\":\"%s\",%s", digits, rest);
    return stk_step_manifest_parse(manifest, (struct stk_view){(uint8_t *)text, strlen(text)},
                                   error);
}

#define END "\"format\":\"stoker-checkpoint\",\"ranks\":1,\"step\":1,\"values\":{},\"version\":1}"
#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_hostile(void)
{
    static const struct wrong_row {
        const char *name, *rest;
        int want;
    } rows[] = {
        {"right", "\"files\":[{\"bytes\":1,\"name\":\"a\",\"root\":\"" HASH "\"}]," END, 0},
        {"counts",
         "\"counts\":{\"inf\":0,\"nan\":7},\"files\":[{\"bytes\":1,\"name\":\"a\",\"root\":\"" HASH
         "\"}]," END,
         0},
        {"half of the counts",
         "\"counts\":{\"inf\":0},\"files\":[{\"bytes\":1,\"name\":\"a\",\"root\":\"" HASH
         "\"}]," END,
         STOKER_ERROR_CORRUPT},
        {"negative count",
         "\"counts\":{\"inf\":0,\"nan\":-1},\"files\":[{\"bytes\":1,\"name\":\"a\",\"root\":\"" HASH
         "\"}]," END,
         STOKER_ERROR_CORRUPT},
        {"path", "\"files\":[{\"bytes\":1,\"name\":\"../a\",\"root\":\"" HASH "\"}]," END,
         STOKER_ERROR_CORRUPT},
        {"folder", "\"files\":[{\"bytes\":1,\"name\":\"..\",\"root\":\"" HASH "\"}]," END,
         STOKER_ERROR_CORRUPT},
        {"empty", "\"files\":[{\"bytes\":1,\"name\":\"\",\"root\":\"" HASH "\"}]," END,
         STOKER_ERROR_CORRUPT},
        {"negative", "\"files\":[{\"bytes\":-1,\"name\":\"a\",\"root\":\"" HASH "\"}]," END,
         STOKER_ERROR_CORRUPT},
        {"short hash", "\"files\":[{\"bytes\":1,\"name\":\"a\",\"root\":\"12\"}]," END,
         STOKER_ERROR_CORRUPT},
        {"no files", "\"files\":[]," END, STOKER_ERROR_CORRUPT},
        {"later version",
         "\"files\":[],\"format\":\"stoker-checkpoint\",\"ranks\":1,\"step\":1,\"values\":{},"
         "\"version\":2}",
         STOKER_ERROR_UNSUPPORTED},
        {"other format", "\"format\":\"x\",\"version\":1}", STOKER_ERROR_FORMAT},
        {"twice", "\"version\":1," END, STOKER_ERROR_FORMAT},
        {"no JSON", "x", STOKER_ERROR_FORMAT},
    };

    T_EACH(wrong_row, row, rows)
    {
        struct stk_step_manifest manifest;
        struct stoker_error error = {0};

        T_EQ(row->name, parse_rest(row->rest, &manifest, &error), row->want);
        if (row->want == 0) { /* manifests of earlier versions have no counts */
            T_EQ(row->name, manifest.counted, strcmp(row->name, "counts") == 0);
            stk_step_manifest_deinit(&manifest);
        } else {
            T_ERROR(row->name, &error);
        }
    }
}

static void test_arguments(void)
{
    static const char *const values[] = {"[]", "{", "{\"a\":1,\"a\":2}", "1"};

    for (size_t i = 0; i < STK_COUNT(values); i++) {
        struct stk_step_manifest manifest = {.ranks = 1, .files = files, .file_count = 1};
        struct stoker_error error = {0};
        char *text = NULL;
        size_t bytes;

        manifest.values = stk_strdup(values[i]);
        T_EQ(values[i], stk_step_manifest_text(&manifest, &text, &bytes, &error),
             STOKER_ERROR_ARGUMENT);
        T_ERROR(values[i], &error);
        stk_free(manifest.values);
    }
}

/* Ranks with shared files have two each. */
static void test_limit(void)
{
    struct stk_step_manifest manifest = {
        .ranks = 500001, .files = files, .file_count = STK_STEP_MANIFEST_FILES_MAX + 1};
    struct stoker_error error = {0};
    char *text = NULL;
    size_t bytes;

    T_EQ("too many files", stk_step_manifest_text(&manifest, &text, &bytes, &error),
         STOKER_ERROR_LIMIT);
    T_ERROR("too many files", &error);
    T_HAS("says how many", error.where, "1000001 files of 500001 ranks");
}

int main(void)
{
    int64_t alive = stk_mem_alive();

    test_round_trip();
    test_damage();
    test_hostile();
    test_arguments();
    test_limit();
    T_EQ("memory", stk_mem_alive(), alive);
    return t_finish();
}
