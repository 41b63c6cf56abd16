/* storage/credentials/aws_sts.h: Amazon's services that exchange one identity for another: STS and
 * SSO.
 *
 *   keys, or the token of a web identity --stk_sts_assume_role--> keys of a role, for an hour
 *   SSO's cached token                   --stk_sts_sso----------> keys of a role; refreshes the
 * token
 *
 * Owner: the search. Threads: one. Memory: a request. Bound: as the requests of a search. */
#ifndef STORAGE_CREDENTIALS_AWS_STS_H
#define STORAGE_CREDENTIALS_AWS_STS_H

#include "storage/credentials/credential_chain.h"

#define STK_STS_CHAIN_MAX 8u /* roles that are assumed one after the other */

struct stk_sts_role {
    const char *arn;
    const char *session;     /* NULL: a name is generated */
    const char *external_id; /* NULL: none */
    const char *duration;    /* in seconds; NULL, or no number: the service's default */
    const char *token_file;  /* of a web identity; NULL: the request is signed with *found */
    char host[128];          /* result: the host of the service */
};

struct stk_sts_sso {
    const char *account, *role, *start_url, *region;
    const char *session; /* NULL: the legacy kind, cached by start_url */
};

/* Replaces the keys of the source in *found by those of the role. Returns 1 or an error. */
int stk_sts_assume_role(struct stk_credential_chain *search, struct stk_sts_role *role,
                        struct stk_credentials *found, struct stoker_error *error);
/* The URL of a service of SSO ("oidc", "portal.sso"): as configured, or by its region. Returns 0
 * on success, STOKER_ERROR_ARGUMENT if no token may be sent there, errors of
 * stk_s3_settings_endpoint. */
int stk_sts_sso_url(struct stk_credential_chain *search, const char *service, const char *region,
                    char *out, size_t out_bytes, struct stoker_error *error);
/* Reads the keys of a role or a session out of the response. Returns 0 or STOKER_ERROR_FORMAT. */
int stk_sts_read_role(const struct stk_auth_request *auth, const char *from,
                      struct stk_credentials *found, struct stoker_error *error);
/* The time of a server whose clock is skew_s ahead of ours, in seconds since 1970. */
uint64_t stk_sts_server_time_s(int64_t skew_s);
int stk_sts_sso(struct stk_credential_chain *search, const struct stk_sts_sso *sso,
                struct stk_credentials *found, struct stoker_error *error);

#endif
