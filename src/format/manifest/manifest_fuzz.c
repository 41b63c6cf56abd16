/* Fuzz target of manifest.c: any text. An accepted manifest has plain names and is written again as
 * the same manifest. */
#include "base/mem.h"
#include "format/manifest/manifest.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_manifest first = {0}, second = {0};
    struct stoker_error error = {0};
    size_t text_bytes = 0;
    char *text = NULL;
    int status = stk_manifest_parse(&first, (struct stk_view){data, bytes}, &error);

    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    for (uint64_t i = 0; i < first.shard_count; i++) {
        STK_ASSERT(first.shards[i].name[0] && !strchr(first.shards[i].name, '/'));
    }
    for (uint64_t i = 0; i < first.class_count; i++) {
        STK_ASSERT(stk_manifest_class(&first, i) != NULL);
    }
    STK_ASSERT(stk_manifest_text(&first, &text, &text_bytes, NULL) == 0);
    STK_ASSERT(stk_manifest_parse(&second, (struct stk_view){(uint8_t *)text, text_bytes}, NULL) ==
               0);
    STK_ASSERT(second.shard_count == first.shard_count && second.samples == first.samples);
    stk_free(text);
    stk_manifest_deinit(&first);
    stk_manifest_deinit(&second);
    return 0;
}
