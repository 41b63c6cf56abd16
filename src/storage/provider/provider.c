/* Builds the request of a service, and refuses to send a secret in plain text. */
#include "storage/provider/provider.h"

#include <errno.h>
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
                        "use an endpoint of https, or unsigned requests", "%s: %s",
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
