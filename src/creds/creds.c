/* The chain of places where credentials are looked for. */
#include "creds/creds.h"

#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stk_creds {
    uint32_t service;
    bool anonymous;
    struct stk_http *http;
    pthread_mutex_t lock; /* of all below */
    struct stk_credentials now;
    uint64_t generation;
};

static int from_environment(struct stk_credentials *credentials, struct stoker_error *error);

int stk_creds_open(struct stk_creds **creds_out, const struct stk_creds_options *options,
                   struct stoker_error *error)
{
    struct stk_creds *creds = stk_alloc(1, sizeof *creds);

    if (!creds) {
        return stk_fail(error, -ENOMEM, "cannot look for credentials", "free memory", "creds");
    }
    creds->service = options->service;
    creds->anonymous = options->anonymous;
    creds->http = options->http;
    pthread_mutex_init(&creds->lock, NULL);
    *creds_out = creds;
    return 0;
}

void stk_creds_close(struct stk_creds *creds)
{
    if (creds) {
        stk_creds_wipe(&creds->now);
        pthread_mutex_destroy(&creds->lock);
        stk_free(creds);
    }
}

int stk_creds_get(struct stk_creds *creds, struct stk_credentials *credentials_out,
                  struct stoker_error *error)
{
    int status = 0;

    pthread_mutex_lock(&creds->lock);
    if (creds->now.kind == 0) {
        creds->now = (struct stk_credentials){.kind = STK_CREDS_ANONYMOUS,
                                              .expires_ns = STK_CREDS_NEVER,
                                              .from = "no credentials: unsigned requests"};
        status = creds->anonymous || creds->service != STK_CREDS_AWS
                     ? 0
                     : from_environment(&creds->now, error);
        creds->now.generation = ++creds->generation;
    }
    if (status < 0) {
        stk_creds_wipe(&creds->now);
    } else {
        *credentials_out = creds->now;
    }
    pthread_mutex_unlock(&creds->lock);
    return status;
}

int stk_creds_peek(struct stk_creds *creds, struct stk_credentials *credentials_out,
                   struct stoker_error *error)
{
    return stk_creds_get(creds, credentials_out, error); /* the environment needs no waiting for */
}

void stk_creds_refused(struct stk_creds *creds, uint64_t generation)
{
    pthread_mutex_lock(&creds->lock);
    if (creds->now.generation == generation) {
        stk_creds_wipe(&creds->now);
    }
    pthread_mutex_unlock(&creds->lock);
}

void stk_creds_wipe(struct stk_credentials *credentials)
{
    explicit_bzero(credentials, sizeof *credentials);
}

/* Copies a variable; false: it is not set, or empty. Too long: -E2BIG by *status. */
static bool take(const char *name, char *text, size_t text_bytes, int *status)
{
    const char *value = getenv(name);

    if (!value || !value[0]) {
        return false;
    }
    if (strlen(value) >= text_bytes) {
        *status = -E2BIG;
        return false;
    }
    memcpy(text, value, strlen(value) + 1);
    return true;
}

static int from_environment(struct stk_credentials *credentials, struct stoker_error *error)
{
    int status = 0;
    bool key =
        take("AWS_ACCESS_KEY_ID", credentials->access_key, sizeof credentials->access_key, &status);
    bool secret =
        take("AWS_SECRET_ACCESS_KEY", credentials->secret, sizeof credentials->secret, &status);
    bool token = take("AWS_SESSION_TOKEN", credentials->token, sizeof credentials->token, &status);

    if (status < 0) {
        return stk_fail_errno(error, -status, "credentials in the environment are too long",
                              "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN",
                              "the environment");
    }
    if (key != secret) {
        return stk_fail(error, STOKER_ERROR_MISSING, "half of the credentials is not set",
                        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither",
                        "the environment has no %s",
                        key ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
    }
    if (key) {
        credentials->kind = STK_CREDS_KEYS;
        snprintf(credentials->from, sizeof credentials->from,
                 "environment variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY%s",
                 token ? ", AWS_SESSION_TOKEN" : "");
    }
    return 0;
}
