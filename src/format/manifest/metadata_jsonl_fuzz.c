/* Fuzz of metadata_jsonl.c: any text; each accepted line is inside it, begins as an object, and is
 * found under its name. */
#include "format/manifest/metadata_jsonl.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_metadata_jsonl metadata;
    struct stoker_error error = {0};
    int status = stk_metadata_jsonl_parse(&metadata, (struct stk_view){data, bytes}, &error);

    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    for (uint64_t i = 0; i < metadata.count; i++) {
        const struct stk_metadata_jsonl_line *line = &metadata.lines[i];
        struct stk_view name = {(const uint8_t *)metadata.names + line->name_at, line->name_bytes};

        STK_ASSERT(line->bytes <= bytes && line->at <= bytes - line->bytes);
        STK_ASSERT(data[line->at] == '{' && data[line->at + line->bytes - 1] == '}');
        STK_ASSERT(stk_metadata_jsonl_find(&metadata, name) == line);
    }
    stk_metadata_jsonl_deinit(&metadata);
    return 0;
}
