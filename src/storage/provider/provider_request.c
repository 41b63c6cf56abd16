/* The buffer of a request: text and header lines that all services add. */
#include "storage/provider/provider.h"

#include <stdarg.h>
#include <stdio.h>

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
