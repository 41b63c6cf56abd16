/* What the dialects share: room, and that no secret goes out in plain text. */
#include "storage/provider/provider.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int stk_dialect_make(struct stk_wish *wish, struct stoker_error *error)
{
    bool secret = wish->who->kind == STK_CREDS_BEARER || wish->who->kind == STK_CREDS_SAS;
    const char *endpoint = wish->site->endpoint;
    int status;

    wish->used = wish->line_count = 0;
    wish->url = NULL;
    if (secret && !stk_creds_is_private(endpoint)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a secret would go out in plain text",
                        "use an endpoint of https; or ask for unsigned requests", "%s: %s",
                        wish->site->endpoint_from, endpoint);
    }
    status = wish->service == STK_CREDS_GOOGLE ? stk_dialect_google(wish, error)
             : wish->service == STK_CREDS_HUB  ? stk_dialect_hub(wish, error)
                                               : stk_dialect_azure(wish, error);
    if (status == 0 && !wish->url) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a request is too long to be sent",
                          "shorten the key; look at the size of the token", "'%.200s'", wish->key);
    }
    return status;
}

char *stk_wish_print(struct stk_wish *wish, const char *format, ...)
{
    size_t left = wish->room_bytes - wish->used;
    char *text = wish->room + wish->used;
    va_list list;
    int bytes;

    va_start(list, format);
    bytes = vsnprintf(text, left, format, list);
    va_end(list);
    if (bytes < 0 || (size_t)bytes >= left) {
        return NULL;
    }
    wish->used += (size_t)bytes + 1;
    return text;
}

static void add(struct stk_wish *wish, char *line)
{
    STK_ASSERT(wish->line_count < STK_DIALECT_LINES_MAX);
    if (line) {
        wish->lines[wish->line_count++] = line;
    } else {
        wish->room_bytes = wish->used; /* nothing fits from here on: no URL will */
    }
}

void stk_wish_line(struct stk_wish *wish, const char *name, const char *value)
{
    add(wish, stk_wish_print(wish, "%s: %s", name, value));
}

void stk_wish_bearer(struct stk_wish *wish)
{
    add(wish, stk_wish_print(wish, "Authorization: Bearer %s", wish->who->token));
}
