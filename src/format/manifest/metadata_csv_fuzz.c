/* Fuzz target: any bytes as metadata.csv; the result is read as lines of JSON, or refused. Covers
 * metadata_csv.c. */
#include "base/mem.h"
#include "format/manifest/metadata_csv.h"
#include "format/manifest/metadata_jsonl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_metadata_jsonl lines;
    struct stoker_error error = {0};
    uint8_t *text;
    size_t text_bytes;

    if (stk_metadata_csv_convert((struct stk_view){data, bytes}, &text, &text_bytes, &error) < 0) {
        STK_ASSERT(error.status < 0 && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    if (stk_metadata_jsonl_parse(&lines, (struct stk_view){text, text_bytes}, &error) == 0) {
        stk_metadata_jsonl_deinit(&lines);
    }
    stk_free(text);
    return 0;
}
