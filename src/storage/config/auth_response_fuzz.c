/* Fuzz of auth_response.c: any answer, as JSON of keys and of tokens, as XML, as a refusal, as a
 * time and as a date. */
#include "storage/config/auth_response.h"

#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Quoted text is read back unchanged. */
static void quote(const char *text)
{
    char object[300] = "{\"a\":", read[128] = "";
    const struct stk_auth_field field = {"a", STK_AUTH_FIELD_OPTIONAL_TEXT, read, sizeof read};
    size_t used = strlen(object);

    if (stk_auth_json_add_string(text, object, sizeof object - 1, &used)) {
        STK_ASSERT(used < sizeof object - 1 && object[used] == 0);
        object[used] = '}';
        if (stk_auth_response_json((struct stk_view){(uint8_t *)object, used + 1}, &field, 1, "it",
                                   NULL) == 0) {
            STK_ASSERT(strcmp(read, text) == 0);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_view text = {data, bytes};
    char key[32], secret[64], token[128], list[64] = "", code[STK_AUTH_RESPONSE_CODE_BYTES];
    uint64_t time = 0, ms = 0, seconds = 0, one = 0;
    const struct stk_auth_field fields[] = {
        {"AccessKeyId", STK_AUTH_FIELD_TEXT, key, sizeof key},
        {"roleCredentials.secretAccessKey", STK_AUTH_FIELD_OPTIONAL_TEXT, secret, sizeof secret},
        {"access_token", STK_AUTH_FIELD_OPTIONAL_TEXT, token, sizeof token},
        {"Expiration", STK_AUTH_FIELD_TIME, &time, 0},
        {"expires_in", STK_AUTH_FIELD_SECONDS, &seconds, 0},
        {"Version", STK_AUTH_FIELD_ONE, &one, 0},
        {"expiration", STK_AUTH_FIELD_MS, &ms, 0},
        {"delegates", STK_AUTH_FIELD_LIST, list, sizeof list},
    };
    struct stoker_error error = {0};

    if (stk_auth_response_json(text, fields, STK_COUNT(fields), "it", &error) < 0) {
        STK_ASSERT(error.status < 0 && error.what[0] && error.where[0] && error.advice[0]);
    } else {
        STK_ASSERT(key[0] && strlen(key) < sizeof key && !strpbrk(key, "\r\n"));
    }
    if (stk_auth_response_xml(text, "SecretAccessKey", secret, sizeof secret)) {
        STK_ASSERT(secret[0] && strlen(secret) < sizeof secret && !strpbrk(secret, "\r\n"));
    }
    stk_auth_response_code(text, code);
    STK_ASSERT(strlen(code) < sizeof code);
    snprintf(token, sizeof token, "%.*s", (int)stk_min(bytes, sizeof token - 1), data);
    stk_auth_response_time(token, &time);
    stk_auth_response_date(text, &time);
    quote(token);
    return 0;
}
