/* What all services share: the buffer, and the check that no secret is sent in plain text. */
#include "storage/provider/provider.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int stk_provider_request_build(struct stk_provider_request *request, struct stoker_error *error)
{
    bool secret = request->credentials->kind == STK_CREDS_BEARER ||
                  request->credentials->kind == STK_CREDS_SAS;
    const char *endpoint = request->site->endpoint;
    int status;

    request->buffer_used = request->headers_out_count = 0;
    request->url = NULL;
    if (secret && !stk_credentials_url_is_private(endpoint)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a secret would go out in plain text",
                        "use an endpoint of https; or ask for unsigned requests", "%s: %s",
                        request->site->endpoint_source, endpoint);
    }
    status = request->service == STK_CREDS_GOOGLE ? stk_provider_request_google(request, error)
             : request->service == STK_CREDS_HF   ? stk_provider_request_huggingface(request, error)
                                                  : stk_provider_request_azure(request, error);
    if (status == 0 && !request->url) {
        status =
            stk_fail(error, STOKER_ERROR_LIMIT, "a request is too long to be sent",
                     "shorten the key; look at the size of the token", "'%.200s'", request->key);
    }
    return status;
}

char *stk_provider_request_print(struct stk_provider_request *request, const char *format, ...)
{
    size_t left = request->buffer_bytes - request->buffer_used;
    char *text = request->buffer + request->buffer_used;
    va_list list;
    int bytes;

    va_start(list, format);
    bytes = vsnprintf(text, left, format, list);
    va_end(list);
    if (bytes < 0 || (size_t)bytes >= left) {
        return NULL;
    }
    request->buffer_used += (size_t)bytes + 1;
    return text;
}

static void add(struct stk_provider_request *request, char *line)
{
    STK_ASSERT(request->headers_out_count < STK_PROVIDER_HEADERS_MAX);
    if (line) {
        request->headers_out[request->headers_out_count++] = line;
    } else {
        request->buffer_bytes = request->buffer_used; /* nothing fits from here on: no URL will */
    }
}

void stk_provider_request_add_header(struct stk_provider_request *request, const char *name,
                                     const char *value)
{
    add(request, stk_provider_request_print(request, "%s: %s", name, value));
}

void stk_provider_request_add_bearer(struct stk_provider_request *request)
{
    add(request, stk_provider_request_print(request, "Authorization: Bearer %s",
                                            request->credentials->token));
}
