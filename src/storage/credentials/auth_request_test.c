/* Goal: a request for credentials whose URL or header does not fit is an error: it is never sent
 * with a shorter URL or token. Method: URLs and headers around the limits; without a reactor a
 * request that fits is UNSUPPORTED, one that does not is LIMIT. Covers the limits in
 * auth_request.c. */
#include "base/mem.h"
#include "storage/credentials/credential_chain.h"
#include "test/t.h"

#include <string.h>

static const struct row {
    const char *name;
    size_t url_bytes, token_bytes;
    int status;
} rows[] = {
    {"short", 30, 10, STOKER_ERROR_UNSUPPORTED},
    {"the longest URL", STK_AUTH_REQUEST_URL_BYTES - 1, 10, STOKER_ERROR_UNSUPPORTED},
    {"a URL that is too long", STK_AUTH_REQUEST_URL_BYTES, 10, STOKER_ERROR_LIMIT},
    {"the longest header", 30, STK_CREDS_TOKEN_BYTES_MAX + 64 - 16, STOKER_ERROR_UNSUPPORTED},
    {"a header that is too long", 30, STK_CREDS_TOKEN_BYTES_MAX + 64 - 15, STOKER_ERROR_LIMIT},
};

static char *text_of(size_t bytes)
{
    char *text = stk_alloc(bytes + 1, 1);

    memset(text, 'x', bytes);
    return text;
}

static void test_row(const struct row *row)
{
    struct stk_credential_options options = {.http = NULL};
    struct stk_credential_chain search = {.options = &options};
    struct stk_auth_request *auth = stk_auth_request_open(STK_HTTP_GET);
    char *url = text_of(row->url_bytes - 4), *token = text_of(row->token_bytes);
    struct stoker_error error = {0};

    stk_auth_request_set_url(auth, "%s%s", "http", url);
    stk_auth_request_add_header(auth, "Authorization", token);
    T_EQ(row->name, stk_auth_request_send(&search, auth, "a service", &error), row->status);
    T_EQ(row->name, error.status, row->status);
    T_TRUE(row->name, error.what[0] && error.where[0] && error.advice[0]);
    stk_auth_request_close(auth);
    stk_free(url);
    stk_free(token);
}

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        test_row(&rows[i]);
    }
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
