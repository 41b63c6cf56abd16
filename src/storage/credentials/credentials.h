/* storage/credentials/credentials.h: credentials for a store: keys or tokens, where they are from,
 * and how long they are valid.
 *
 *   open -> none -get (may wait; one thread searches, others wait)-> valid -refreshed early-> valid
 * ... expired, rejected -get-> valid, or an error with the reason
 *
 * try_get never waits: it is for the thread that signs requests, and starts a refresh.
 * Sources are searched in the order of each service's own libraries (botocore; google-auth;
 * azure-identity; huggingface_hub).
 * A refresh begins when a quarter of the lifetime is left, at most 15 minutes before its end. While
 * it fails, the old credentials are used until they expire; those of an instance's metadata service
 * also after that, as in botocore. Once credentials were found, the provider never falls back to
 * anonymous requests: a refresh that finds none is an error. If a metadata service did not respond,
 * "anonymous" is cached for one minute only. Owner: the store that signs. Threads: any; a refresh
 * that no caller waits for has its own thread. Memory: pages that core dumps do not include;
 * secrets are wiped when they are replaced and at close. Bound: STK_CREDS_TOKEN_BYTES_MAX a token;
 * one refresh at a time. */
#ifndef STORAGE_CREDENTIALS_CREDENTIALS_H
#define STORAGE_CREDENTIALS_CREDENTIALS_H

#include "base/base.h"

struct stk_http;
struct stk_credential_provider;
struct stk_credential_source;

#define STK_CREDS_KEY_BYTES_MAX 512u
#define STK_CREDS_TOKEN_BYTES_MAX 12288u
#define STK_CREDS_NEVER UINT64_MAX

enum stk_credentials_service {
    STK_CREDS_AWS = 1,
    STK_CREDS_GOOGLE,
    STK_CREDS_AZURE,
    STK_CREDS_HF,
    STK_CREDS_S3_EXPRESS, /* a session for a bucket of S3 Express */
};

enum stk_credentials_kind {
    STK_CREDS_ANONYMOUS = 1, /* requests go out unsigned */
    STK_CREDS_KEYS,          /* key, secret, maybe a session token: SigV4, shared key */
    STK_CREDS_BEARER,        /* Authorization: Bearer token */
    STK_CREDS_SAS,           /* token is a query that is appended to URLs */
};

/* A value; every copy must be wiped (stk_credentials_wipe). */
struct stk_credentials {
    uint32_t kind;            /* enum stk_credentials_kind */
    uint64_t expires_ns;      /* since 1970; STK_CREDS_NEVER */
    uint64_t generation;      /* changes with each refresh */
    bool usable_after_expiry; /* an instance's: used after expiry while a refresh fails */
    char access_key[STK_CREDS_KEY_BYTES_MAX];
    char secret[STK_CREDS_KEY_BYTES_MAX];
    char token[STK_CREDS_TOKEN_BYTES_MAX]; /* empty: none */
    char project[128];  /* Google: the project whose quota is used; empty: not set */
    char universe[128]; /* Google: the domain of another universe ("x.example"); else empty */
    char source[512];   /* "environment variables AWS_ACCESS_KEY_ID ...": no secrets; for people */
};

/* How to create sessions for a bucket of S3 Express. */
struct stk_credential_session {
    struct stk_credential_provider
        *base; /* whose keys sign the request; borrowed while it is open */
    char scheme[8], host[320], path[320]; /* "https", host with port, "/": raw */
    char region[64];
    const char *ca_file;     /* trusted certificates; NULL: the default; borrowed */
    _Atomic int64_t *skew_s; /* server clock minus local clock; borrowed */
};

struct stk_credential_options {
    uint32_t service;      /* enum stk_credentials_service */
    const char *profile;   /* NULL: selected by the environment */
    bool anonymous;        /* do not search */
    struct stk_http *http; /* borrowed while it is open; NULL: only sources that need no network */
    const struct stk_credential_session *session;       /* of STK_CREDS_S3_EXPRESS; copied */
    const struct stk_credential_source *session_source; /* stk_s3_express_provider_open sets it */
    uint32_t backoff_ms; /* before the first retry; doubled each time; 0: 200 */
};

/* The result of one source of the chain. */
enum stk_credential_result {
    STK_CREDS_SKIPPED = 1, /* it is not configured */
    STK_CREDS_USED,
    STK_CREDS_FAILED,    /* it is configured and failed: the search ends */
    STK_CREDS_NOT_TRIED, /* an earlier source is used */
};

#define STK_CREDS_STEPS_MAX 16u
#define STK_CREDS_REASON_BYTES 640u

struct stk_credential_step {
    const char *source;                  /* "shared-credentials-file"; static */
    uint32_t result;                     /* enum stk_credential_result */
    char reason[STK_CREDS_REASON_BYTES]; /* no secrets */
};

struct stk_credential_trace {
    struct stk_credential_step steps[STK_CREDS_STEPS_MAX];
    size_t count;
};

int stk_credential_provider_open(struct stk_credential_provider **provider_out,
                                 const struct stk_credential_options *options,
                                 struct stoker_error *error);
/* The provider of a session of S3 Express; options have the session. */
int stk_s3_express_provider_open(struct stk_credential_provider **provider_out,
                                 const struct stk_credential_options *options,
                                 struct stoker_error *error);
void stk_credential_provider_close(
    struct stk_credential_provider *provider); /* takes ownership; NULL is allowed */

/* Sets *credentials_out to valid credentials. May wait for a service, up to a deadline; if several
 * threads call, one searches. */
int stk_credential_provider_get(struct stk_credential_provider *provider,
                                struct stk_credentials *credentials_out,
                                struct stoker_error *error);
/* The same without waiting. Returns -EAGAIN if they must be fetched first, and starts a refresh;
 * *error is filled for other failures only. */
int stk_credential_provider_try_get(struct stk_credential_provider *provider,
                                    struct stk_credentials *credentials_out,
                                    struct stoker_error *error);
/* The server rejected the credentials of this generation as expired or unknown: they are fetched
 * again, unless that happened already. */
void stk_credential_provider_invalidate(struct stk_credential_provider *provider,
                                        uint64_t generation);
/* Called when the server denied an anonymous request. Returns true if the provider was anonymous
 * only because a metadata service had not responded: the provider queries the service again, so the
 * caller should retry the request. */
bool stk_credential_provider_retry_anonymous(struct stk_credential_provider *provider,
                                             uint64_t generation);
void stk_credentials_wipe(struct stk_credentials *credentials);

/* Whether the environment demands unsigned requests, with GDAL's names: AWS_NO_SIGN_REQUEST,
 * GS_..., AZURE_... */
bool stk_credentials_is_unsigned(uint32_t service);

/* Searches the chain once: the credentials that get would return, and the result of each source.
 * *trace_out is filled also on failure. Waits for services as get does. */
int stk_credential_provider_explain(const struct stk_credential_options *options,
                                    struct stk_credential_trace *trace_out,
                                    struct stk_credentials *credentials_out,
                                    struct stoker_error *error);

/* Whether a secret may be sent to a URL: over TLS, or to this machine. */
bool stk_credentials_url_is_private(const char *url);

#endif
