/* storage/config/sso_cache.h: the token of SSO that `aws sso login` left, and what it is refreshed
 * by.
 *
 *   ~/.aws/sso/cache/SHA1.json --load--> token --its owner refreshes it--> --save--> the same file
 *
 * Read and written as the AWS CLI and botocore do, so that each finds what the other fetched.
 * Owner: the caller, who wipes it. Threads: any; of processes the last that saves stays.
 * Memory: a value of pages that no core dump has. Bound: the arrays; STK_AUTH_RESPONSE_BYTES_MAX a
 * file. */
#ifndef STORAGE_CONFIG_SSO_CACHE_H
#define STORAGE_CONFIG_SSO_CACHE_H

#include "base/base.h"

#define STK_SSO_TOKEN_BYTES 12288u

struct stk_sso_token {
    char access[STK_SSO_TOKEN_BYTES];
    uint64_t expires_s; /* since 1970 */
    /* Empty, 0: it cannot be refreshed. */
    char refresh[STK_SSO_TOKEN_BYTES];
    char client_id[1024], client_secret[STK_SSO_TOKEN_BYTES];
    uint64_t registration_expires_s;
    char start_url[1024], region[64]; /* as the file says; to be written back */
    char path[4096];                  /* of the file, and as people write it */
    char shown[128];
};

/* Zeroed, on the heap; NULL: no memory. */
struct stk_sso_token *stk_sso_token_open(void);
void stk_sso_token_close(struct stk_sso_token *token); /* wipes; NULL is fine */
/* name: of the session, or a start URL. MISSING: nobody logged in; FORMAT: the file is none. */
int stk_sso_token_load(const char *name, struct stk_sso_token *token, struct stoker_error *error);
/* Whole or not at all, for its owner alone. 0 or -errno. */
int stk_sso_token_save(const struct stk_sso_token *token);

#endif
