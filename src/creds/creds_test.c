/* Goal: what the environment says is what is used, half of it is an error, and no error shows a
 * secret. Method: rows of variables. */
#include "creds/creds.h"

#include "base/mem.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CANARY "canary0secret0value"

struct row {
    const char *name;
    const char *key, *secret, *token;
    bool anonymous;
    int status;
    uint32_t kind;
};

static void set(const char *name, const char *value)
{
    if (value) {
        setenv(name, value, 1);
    } else {
        unsetenv(name);
    }
}

static void check(const struct row *row)
{
    struct stk_creds_options options = {.service = STK_CREDS_AWS, .anonymous = row->anonymous};
    struct stk_credentials got = {0}, again = {0};
    struct stoker_error error = {0};
    struct stk_creds *creds = NULL;

    set("AWS_ACCESS_KEY_ID", row->key);
    set("AWS_SECRET_ACCESS_KEY", row->secret);
    set("AWS_SESSION_TOKEN", row->token);
    T_EQ(row->name, stk_creds_open(&creds, &options, &error), 0);
    T_EQ(row->name, stk_creds_get(creds, &got, &error), row->status);
    if (row->status < 0) {
        T_ERROR(row->name, &error);
        T_TRUE(row->name, !memmem(&error, sizeof error, CANARY, strlen(CANARY)));
    } else {
        T_EQ(row->name, got.kind, row->kind);
        T_EQ(row->name, got.expires_ns == STK_CREDS_NEVER, true);
        T_TRUE(row->name, got.from[0] != '\0');
        T_TRUE(row->name, !strstr(got.from, CANARY));
        T_STR(row->name, got.secret, row->kind == STK_CREDS_KEYS ? row->secret : "");
        T_STR(row->name, got.token, row->kind == STK_CREDS_KEYS && row->token ? row->token : "");
        stk_creds_refused(creds, got.generation);
        T_EQ(row->name, stk_creds_peek(creds, &again, &error), 0);
        T_TRUE(row->name, again.generation != got.generation);
        stk_creds_refused(creds, got.generation); /* an old one: these stay */
        T_EQ(row->name, stk_creds_peek(creds, &got, &error), 0);
        T_EQ(row->name, got.generation, again.generation);
    }
    stk_creds_close(creds);
    stk_creds_wipe(&got);
    T_STR(row->name, got.secret, "");
}

int main(void)
{
    static char huge[STK_CREDS_TOKEN_BYTES_MAX + 1];
    const struct row rows[] = {
        {"none", NULL, NULL, NULL, false, 0, STK_CREDS_ANONYMOUS},
        {"empty is none", "", "", "", false, 0, STK_CREDS_ANONYMOUS},
        {"keys", "AKID", CANARY, NULL, false, 0, STK_CREDS_KEYS},
        {"with a token", "AKID", CANARY, "a" CANARY, false, 0, STK_CREDS_KEYS},
        {"anonymous by wish", "AKID", CANARY, NULL, true, 0, STK_CREDS_ANONYMOUS},
        {"no secret", "AKID", NULL, NULL, false, STOKER_ERROR_MISSING, 0},
        {"no key", NULL, CANARY, NULL, false, STOKER_ERROR_MISSING, 0},
        {"a token too long", "AKID", CANARY, huge, false, -E2BIG, 0},
    };

    memset(huge, 'x', sizeof huge - 1);
    memcpy(huge, CANARY, strlen(CANARY));
    T_EACH(row, row, rows)
    {
        check(row);
    }
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
