/* stoker/credentials.h: aliases of URLs that contain credentials, and where credentials come from.
 */
#ifndef STOKER_CREDENTIALS_H
#define STOKER_CREDENTIALS_H

#include <stoker/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The alias of a URL: the URL without fragment, user, password and signature (docs/stores.md), as
 * it is displayed, listed, hashed and written; text that is no http:// or https:// URL is its own
 * alias. Writes it to `name` with a NUL, cut to name_bytes. From now on this process accepts the
 * alias in place of the URL in all functions of this library. Returns the length of the full alias,
 * or -ENOMEM. Any thread. */
STOKER_API int64_t stoker_url_alias(const char *url, char *name, size_t name_bytes);
/* The same text for display only: the process does not remember what the alias stands for. */
STOKER_API int64_t stoker_url_redact(const char *url, char *name, size_t name_bytes);

/* Result of one place where credentials may be. */
enum stoker_creds_verdict {
    STOKER_CREDS_SKIPPED = 1, /* not configured */
    STOKER_CREDS_USED,
    STOKER_CREDS_FAILED,    /* configured, but does not work: later places are not tried */
    STOKER_CREDS_NOT_TRIED, /* an earlier place is used, or failed */
};

struct stoker_creds_step {
    const char *source; /* "shared-credentials-file", as in the service's own libraries; valid
                          forever */
    uint32_t verdict;   /* enum stoker_creds_verdict */
    char reason[640];   /* "AWS_ACCESS_KEY_ID is not set" */
};

/* Credentials of requests for a URL, and their source. Contains no secrets. */
struct stoker_creds {
    size_t struct_size;
    const char *service; /* "S3"; "": this kind of URL needs no credentials; valid forever */
    const char *kind;    /* "keys", "bearer token", "SAS", "anonymous"; valid forever */
    char from[512];      /* "profile 'a', /home/me/.aws/credentials:3" */
    char key[16];        /* end of the key id, as Amazon's command prints it; or empty */
    uint64_t expires_ns; /* since 1970; UINT64_MAX: never */
    char endpoint[512],
        endpoint_from[640];            /* target of requests, and the setting that defines it */
    char region[64], region_from[640]; /* S3 */
    uint32_t step_count;
    struct stoker_creds_step steps[16]; /* in the order in which they are tried */
};

/* Tries all places as opening a store does, and stores nothing. Waits for credential services, each
 * with a timeout: some seconds if none responds. struct_size must be set; *creds is filled as far
 * as possible also on failure. Returns 0 on success; STOKER_ERROR_ARGUMENT if the URL is not of a
 * store; the error of a place that is configured and does not work. Any thread. */
STOKER_API int stoker_creds_explain(const char *url, struct stoker_creds *creds,
                                    struct stoker_error *error);

#ifdef __cplusplus
}
#endif
#endif
