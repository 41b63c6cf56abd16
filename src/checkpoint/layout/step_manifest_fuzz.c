/* Fuzz of step_manifest.c: the input follows a head with its right hash. An accepted manifest has
 * plain names, and is written again as a manifest that is accepted. */
#include "base/crypto/digest.h"
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "checkpoint/layout/json_text.h"
#include "checkpoint/layout/step_manifest.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_step_manifest first = {0}, second = {0};
    struct stoker_error error = {0};
    struct stk_json_text json = {0};
    uint8_t root[32];
    char digits[65], *text = NULL;
    size_t text_bytes = 0;
    int status;

    stk_sha256_one(data, bytes, root);
    stk_hex(root, 32, digits);
    stk_json_text_print(&json, "{\"root\":\"%s\",", digits);
    stk_json_text_add(&json, (const char *)data, bytes);
    status = stk_step_manifest_parse(&first, (struct stk_view){(uint8_t *)json.text, json.bytes},
                                     &error);
    stk_json_text_deinit(&json);
    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    for (uint64_t i = 0; i < first.file_count; i++) {
        STK_ASSERT(stk_step_manifest_is_file_name(first.files[i].name));
    }
    STK_ASSERT(stk_step_manifest_text(&first, &text, &text_bytes, NULL) == 0);
    STK_ASSERT(stk_step_manifest_parse(&second, (struct stk_view){(uint8_t *)text, text_bytes},
                                       NULL) == 0);
    STK_ASSERT(second.file_count == first.file_count && second.step == first.step);
    stk_free(text);
    stk_step_manifest_deinit(&first);
    stk_step_manifest_deinit(&second);
    return 0;
}
