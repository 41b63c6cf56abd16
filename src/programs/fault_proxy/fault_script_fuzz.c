/* Fuzz of fault_script.c: any text; an accepted script chooses a rule, and makes an answer, for a
 * request. Covers fault_answer.c as far as rules reach it. */
#include "programs/fault_proxy/fault_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char passing[] = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/2\r\n"
                                  "ETag: \"a\"\r\nx-amz-checksum-crc32c: AAAAAA==\r\n\r\n";
    struct stk_fault_request request = {"GET", "/bucket/key", "list-type=2", true, 10};
    struct stk_fault_script script;
    struct stoker_error error = {0};
    int status = stk_fault_script_open(&script, (struct stk_view){data, bytes}, &error);

    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        struct stk_fault_rule *rule = stk_fault_script_choose(&script, &request);
        struct stk_fault_answer answer = {0};
        struct stk_fault_text text = {0};
        struct stk_fault_head head;
        uint32_t code;
        if (rule && rule->fault != STK_FAULT_DEEP_XML && stk_fault_is_answer(rule->fault)) {
            stk_fault_answer_make(&answer, rule, &request, i == 1, 0);
            stk_fault_answer_deinit(&answer);
        }
        stk_fault_head_parse(&head, (struct stk_view){(const uint8_t *)passing, sizeof passing - 1},
                             false, NULL);
        stk_fault_edit_answer(&text, &head, rule, 0, &code);
        stk_fault_text_deinit(&text);
    }
    stk_fault_script_deinit(&script);
    return 0;
}
