/* What all services share: the buffer, and the check that no secret is sent in plain text. */
#include "storage/provider/provider.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int stk_provider_request_build(struct stk_provider_request *wish, struct stoker_error *error)
{
    bool secret =
        wish->credentials->kind == STK_CREDS_BEARER || wish->credentials->kind == STK_CREDS_SAS;
    const char *endpoint = wish->site->endpoint;
    int status;

    wish->buffer_used = wish->headers_out_count = 0;
    wish->url = NULL;
    if (secret && !stk_credentials_url_is_private(endpoint)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a secret would go out in plain text",
                        "use an endpoint of https; or ask for unsigned requests", "%s: %s",
                        wish->site->endpoint_source, endpoint);
    }
    status = wish->service == STK_CREDS_GOOGLE ? stk_provider_request_google(wish, error)
             : wish->service == STK_CREDS_HF   ? stk_provider_request_huggingface(wish, error)
                                               : stk_provider_request_azure(wish, error);
    if (status == 0 && !wish->url) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a request is too long to be sent",
                          "shorten the key; look at the size of the token", "'%.200s'", wish->key);
    }
    return status;
}

char *stk_provider_request_print(struct stk_provider_request *wish, const char *format, ...)
{
    size_t left = wish->buffer_bytes - wish->buffer_used;
    char *text = wish->buffer + wish->buffer_used;
    va_list list;
    int bytes;

    va_start(list, format);
    bytes = vsnprintf(text, left, format, list);
    va_end(list);
    if (bytes < 0 || (size_t)bytes >= left) {
        return NULL;
    }
    wish->buffer_used += (size_t)bytes + 1;
    return text;
}

static void add(struct stk_provider_request *wish, char *line)
{
    STK_ASSERT(wish->headers_out_count < STK_PROVIDER_HEADERS_MAX);
    if (line) {
        wish->headers_out[wish->headers_out_count++] = line;
    } else {
        wish->buffer_bytes = wish->buffer_used; /* nothing fits from here on: no URL will */
    }
}

void stk_provider_request_add_header(struct stk_provider_request *wish, const char *name,
                                     const char *value)
{
    add(wish, stk_provider_request_print(wish, "%s: %s", name, value));
}

void stk_provider_request_add_bearer(struct stk_provider_request *wish)
{
    add(wish,
        stk_provider_request_print(wish, "Authorization: Bearer %s", wish->credentials->token));
}
