/* Goal: a written manifest is read back exactly, with the same text; a text that is no manifest, or
 * whose sums differ, is refused with its place. pack_test.c and left_out_test.c test its values.
 * Method: one manifest that is built here, and rows of texts. Covers manifest.c. */
#include "format/manifest/manifest.h"

#include "base/mem.h"
#include "test/t.h"

#include <string.h>

static char *build(uint64_t left, size_t *bytes_out)
{
    struct stk_manifest manifest = {0};
    struct stk_manifest_shard shard = {.name = "a.tar", .bytes = 2048, .samples = 3};
    json_t *settings = json_pack("{s:s}", "by", "test");
    struct stoker_error error = {0};
    char *text = NULL;

    memset(shard.sha256, 0xab, sizeof shard.sha256);
    T_EQ("begin", stk_manifest_begin(&manifest, settings, &error), 0);
    T_EQ("shard", stk_manifest_add(&manifest, &shard, &error), 0);
    shard.name = "b.tar";
    shard.samples = 4;
    T_EQ("shard", stk_manifest_add(&manifest, &shard, &error), 0);
    T_EQ("class", stk_manifest_add_class(&manifest, "cat", &error), 0);
    shard.name = "stoker.index";
    T_EQ("index", stk_manifest_set_index(&manifest, &shard, &error), 0);
    T_EQ("left", stk_manifest_set_left_out(&manifest, left, &error), 0);
    T_EQ("text", stk_manifest_text(&manifest, &text, bytes_out, &error), 0);
    stk_manifest_deinit(&manifest);
    json_decref(settings);
    return text;
}

static void test_back(void)
{
    static const uint64_t lefts[] = {0, 5};

    for (size_t i = 0; i < STK_COUNT(lefts); i++) {
        struct stk_manifest manifest = {0};
        struct stoker_error error = {0};
        size_t bytes, again_bytes;
        char *text = build(lefts[i], &bytes), *again = NULL;

        T_EQ("parse",
             stk_manifest_parse(&manifest, (struct stk_view){(const uint8_t *)text, bytes}, &error),
             0);
        T_EQ("shards", manifest.shard_count, 2);
        T_EQ("samples", manifest.samples, 7);
        T_STR("name", manifest.shards[1].name, "b.tar");
        T_EQ("hash", manifest.shards[1].sha256[31], 0xab);
        T_STR("class", stk_manifest_class(&manifest, 0), "cat");
        T_STR("index", manifest.index.name, "stoker.index");
        T_EQ("left out", stk_manifest_left_out(&manifest), lefts[i]);
        T_TRUE("only where there are some", (strstr(text, "left_out") != NULL) == (lefts[i] > 0));
        T_EQ("again", stk_manifest_text(&manifest, &again, &again_bytes, &error), 0);
        T_TRUE("the same text", bytes == again_bytes && memcmp(text, again, bytes) == 0);
        stk_manifest_deinit(&manifest);
        stk_free(again);
        stk_free(text);
    }
}

static void test_refusals(void)
{
    static const struct row {
        const char *name, *text;
        int want;
    } rows[] = {
        {"nothing", "", STOKER_ERROR_FORMAT},
        {"a list", "[]", STOKER_ERROR_FORMAT},
        {"another kind", "{\"kind\": \"x\", \"version\": 1}", STOKER_ERROR_FORMAT},
        {"of tomorrow", "{\"kind\": \"stoker-manifest\", \"version\": 2}",
         STOKER_ERROR_UNSUPPORTED},
        {"a path for a name",
         "{\"kind\": \"stoker-manifest\", \"version\": 1, \"samples\": 0, \"classes\": [], "
         "\"pack\": {}, \"shards\": [{\"name\": \"../a.tar\", \"bytes\": 1, \"samples\": 0, "
         "\"sha256\": \"00\"}]}",
         STOKER_ERROR_CORRUPT},
    };

    T_EACH(row, row, rows)
    {
        struct stk_manifest manifest = {0};
        struct stoker_error error = {0};
        struct stk_view text = {(const uint8_t *)row->text, strlen(row->text)};

        T_EQ(row->name, stk_manifest_parse(&manifest, text, &error), row->want);
        T_ERROR(row->name, &error);
        stk_manifest_deinit(&manifest);
    }
}

int main(void)
{
    test_back();
    test_refusals();
    T_EQ("leaks", stk_mem_alive(), 0);
    return t_finish();
}
