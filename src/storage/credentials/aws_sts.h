/* storage/credentials/aws_sts.h: Amazon's services that give one identity for another: STS, SSO's
 * portal, and buckets of S3 Express (stk_credential_chain_s3_express).
 *
 *   keys, or a web identity's token --stk_sts_assume_role--> keys of a role, for an hour
 *   SSO's token in its cache        --stk_sts_sso-----> likewise; the token is refreshed if need be
 *   keys                            --CreateSession---> keys of a bucket, for five minutes
 *
 * Owner: the search. Threads: one. Memory: a request. Bound: as a search's requests. */
#ifndef STORAGE_CREDENTIALS_AWS_STS_H
#define STORAGE_CREDENTIALS_AWS_STS_H

#include "storage/credentials/credential_chain.h"

#define STK_STS_CHAIN_MAX 8u /* roles that lead to each other */

struct stk_sts_role {
    const char *arn;
    const char *session;     /* NULL: a name is made */
    const char *external_id; /* NULL: none */
    const char *duration;    /* of seconds; NULL, or no number: the service's */
    const char *token_file;  /* a web identity's; NULL: signed by *found */
    char host[128];          /* told: the service's host */
};

struct stk_sts_sso {
    const char *account, *role, *start_url, *region;
    const char *session; /* NULL: the old kind, cached by its start_url */
};

/* *found: the source's keys in, the role's out. 1, or an error. */
int stk_sts_assume_role(struct stk_credential_chain *search, struct stk_sts_role *role,
                        struct stk_credentials *found, struct stoker_error *error);
/* Where a service of SSO ("oidc", "portal.sso") is asked: what the profile says, or its region.
 * ARGUMENT: that is no place for tokens; errors of stk_s3_settings_endpoint. */
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
