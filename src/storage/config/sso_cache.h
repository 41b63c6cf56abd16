/* storage/config/sso_cache.h: the SSO token that `aws sso login` writes, with what is needed to
 * refresh it.
 *
 *   ~/.aws/sso/cache/SHA1.json --load--> token --the caller refreshes it--> --save--> the same file
 *
 * Reads and writes the file as the AWS CLI and botocore do, so that they share tokens.
 * Owner: the caller, who wipes it. Threads: any; if several processes save, the last one wins.
 * Memory: pages that core dumps do not include. Bound: the arrays; STK_AUTH_RESPONSE_BYTES_MAX a
 * file. */
#ifndef STORAGE_CONFIG_SSO_CACHE_H
#define STORAGE_CONFIG_SSO_CACHE_H

#include "base/base.h"

#define STK_SSO_TOKEN_BYTES 12288u

struct stk_sso_token {
    char access[STK_SSO_TOKEN_BYTES];
    uint64_t expires_s; /* since 1970 */
    /* Empty or 0: the token cannot be refreshed. */
    char refresh[STK_SSO_TOKEN_BYTES];
    char client_id[1024], client_secret[STK_SSO_TOKEN_BYTES];
    uint64_t registration_expires_s;
    char start_url[1024], region[64]; /* as in the file, to be written back */
    char path[4096];                  /* of the file */
    char shown[128];                  /* the path for messages */
};

/* Zeroed, on the heap; NULL: no memory. */
struct stk_sso_token *stk_sso_token_open(void);
void stk_sso_token_close(struct stk_sso_token *token); /* wipes; NULL is allowed */
/* name: the session, or a start URL. Returns 0 on success, STOKER_ERROR_MISSING if there is no
 * token, or STOKER_ERROR_FORMAT. */
int stk_sso_token_load(const char *name, struct stk_sso_token *token, struct stoker_error *error);
/* Replaces the file atomically, readable by its owner alone. Returns 0 or -errno. */
int stk_sso_token_save(const struct stk_sso_token *token);

#endif
