/* storage/credentials/credentials.h: who we are to a store: keys and tokens, where they came from,
 * how long they live.
 *
 *   open -> none -get (may wait: one asks, the others wait)-> live -refreshed ahead-> live ...
 *                                         expired, refused -get-> live, or an error that says why
 *
 * peek never waits: it is for the thread that signs, which begins a refresh by it.
 * Looked for in the order of each service's own libraries (botocore; google-auth; azure-identity;
 * huggingface_hub).
 * A refresh begins when a quarter of their life is left, 15 minutes at most; while it fails, they
 * are used as long as they live; those of an instance's metadata beyond that, as botocore does.
 * Whoever was somebody never becomes anonymous: a refresh that finds nobody failed. Where a service
 * that may know did not answer at all, nobody is who we are for a minute only.
 * Owner: the store that signs. Threads: any; a refresh that nobody waits for has one of its own.
 * Memory: pages that no core dump has; secrets are wiped when they are replaced and at close.
 * Bound: STK_CREDS_TOKEN_BYTES_MAX a token; one refresh at a time. */
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
    STK_CREDS_S3_EXPRESS, /* of a bucket of S3 Express */
};

enum stk_credentials_kind {
    STK_CREDS_ANONYMOUS = 1, /* requests go out unsigned */
    STK_CREDS_KEYS,          /* key, secret, maybe a session token: SigV4, shared key */
    STK_CREDS_BEARER,        /* Authorization: Bearer token */
    STK_CREDS_SAS,           /* token is a query that is added to URLs */
};

/* A value; whoever copies one wipes it (stk_credentials_wipe). */
struct stk_credentials {
    uint32_t kind;            /* enum stk_credentials_kind */
    uint64_t expires_ns;      /* since 1970; STK_CREDS_NEVER */
    uint64_t generation;      /* differs from that of the credentials before */
    bool usable_after_expiry; /* an instance's: good beyond their end while nobody gives others */
    char access_key[STK_CREDS_KEY_BYTES_MAX];
    char secret[STK_CREDS_KEY_BYTES_MAX];
    char token[STK_CREDS_TOKEN_BYTES_MAX]; /* empty: none */
    char project[128];                     /* Google: whose quota it is; empty: nobody says */
    char universe[128]; /* Google: whose cloud, where it is another's ("x.example"); else empty */
    char source[512];   /* "environment variables AWS_ACCESS_KEY_ID ...": no secrets; for people */
};

/* Where a bucket of S3 Express hands out sessions. */
struct stk_credential_session {
    struct stk_credential_provider *base; /* who asks; borrowed while it is open */
    char scheme[8], host[320], path[320]; /* "https", host with port, "/": raw */
    char region[64];
    const char *ca_file;     /* whose certificates are believed there; NULL: the usual; borrowed */
    _Atomic int64_t *skew_s; /* of the server's clock to ours; borrowed */
};

struct stk_credential_options {
    uint32_t service;      /* enum stk_credentials_service */
    const char *profile;   /* NULL: as the environment says */
    bool anonymous;        /* do not look for any */
    struct stk_http *http; /* borrowed while it is open; NULL: only what needs no network */
    const struct stk_credential_session *session;       /* of STK_CREDS_S3_EXPRESS; copied */
    const struct stk_credential_source *session_source; /* stk_s3_express_provider_open sets it */
    uint32_t backoff_ms; /* before a service is asked once more; doubled each time; 0: 200 */
};

/* What was found in one place of the chain. */
enum stk_credential_result {
    STK_CREDS_SKIPPED = 1, /* it is not set up */
    STK_CREDS_USED,
    STK_CREDS_FAILED,    /* it is set up and does not work: the chain ends there */
    STK_CREDS_NOT_TRIED, /* an earlier one is used */
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
    struct stk_credential_provider *provider); /* takes; NULL is fine */

/* Credentials that live now. May wait for a service, with a deadline; of many callers one asks. */
int stk_credential_provider_get(struct stk_credential_provider *provider,
                                struct stk_credentials *credentials_out,
                                struct stoker_error *error);
/* The same without waiting: -EAGAIN when they must be fetched first, which begins. *error only for
 * another failure. */
int stk_credential_provider_try_get(struct stk_credential_provider *provider,
                                    struct stk_credentials *credentials_out,
                                    struct stoker_error *error);
/* The server refused these as expired or unknown: fetched again, unless that has happened since. */
void stk_credential_provider_invalidate(struct stk_credential_provider *provider,
                                        uint64_t generation);
/* The server did not let in who came as nobody. True: that was a guess, since a service that may
 * know did not answer: it is asked again, and so may be the server. */
bool stk_credential_provider_retry_anonymous(struct stk_credential_provider *provider,
                                             uint64_t generation);
void stk_credentials_wipe(struct stk_credentials *credentials);

/* Whether the environment asks for unsigned requests, by the names that GDAL reads:
 * AWS_NO_SIGN_REQUEST, GS_..., AZURE_... */
bool stk_credentials_is_unsigned(uint32_t service);

/* One walk along the chain: what get would give, and why. *trace_out is filled also on failure.
 * Waits for services as get does. */
int stk_credential_provider_explain(const struct stk_credential_options *options,
                                    struct stk_credential_trace *trace_out,
                                    struct stk_credentials *credentials_out,
                                    struct stoker_error *error);

/* Whether a secret may go to a URL: by TLS, or to this machine. */
bool stk_credentials_url_is_private(const char *url);

#endif
