/* storage/credentials/credential_chain.h: one search along the chain of sources of credentials.
 * Private to storage/credentials and tools/inspect.
 *
 *   chain --source--> found, or "skipped, because ..." --next source--> ... --> found, or none
 *
 * A source that is not configured is skipped. One that is configured and fails ends the search with
 * its error: another identity than the intended one would be worse.
 * Owner: the caller, for one search. Threads: one. Memory: the profiles; secrets are wiped.
 * Bound: STK_CREDS_STEPS_MAX sources; STK_CREDENTIAL_CHAIN_REQUEST_MS a request, with
 * STK_CREDENTIAL_CHAIN_TRIES tries without a response and STK_CREDENTIAL_CHAIN_BUSY_TRIES with a
 * response that says "not now"; STK_CREDENTIAL_CHAIN_TOTAL_MS for all requests of a search; and the
 * time of a credential_process (70 s). */
#ifndef STORAGE_CREDENTIALS_CREDENTIAL_CHAIN_H
#define STORAGE_CREDENTIALS_CREDENTIAL_CHAIN_H

#include "storage/config/auth_response.h"
#include "storage/config/aws_profile.h"
#include "storage/credentials/credentials.h"
#include "storage/http/http.h"

#define STK_CREDENTIAL_CHAIN_REQUEST_MS 5000u
#define STK_CREDENTIAL_CHAIN_TRIES 3u
#define STK_CREDENTIAL_CHAIN_BUSY_TRIES 6u
#define STK_CREDENTIAL_CHAIN_BACKOFF_MS 200u
#define STK_CREDENTIAL_CHAIN_TOTAL_MS 120000u
#define STK_AUTH_REQUEST_URL_BYTES 2048u
#define STK_AUTH_REQUEST_BODY_BYTES 32768u
#define STK_AUTH_REQUEST_HEADERS_MAX 8u

struct stk_credential_chain {
    const struct stk_credential_options *options;
    struct stk_aws_profile profiles;    /* AWS only */
    struct stk_credential_trace *trace; /* borrowed; NULL: not recorded */
    uint64_t until_ns;                  /* monotonic: no request after that */
    const char *unreachable; /* the service that did not respond, "the metadata service"; static;
                                NULL: none */
};

/* Searches one source. Returns 1 if it has credentials, 0 if it is not configured, an error if it
 * failed. */
typedef int stk_credential_lookup(struct stk_credential_chain *search,
                                  struct stk_credentials *found, struct stoker_error *error);

struct stk_credential_source {
    const char *name; /* the name in the service's own libraries */
    stk_credential_lookup *find;
};

/* The sources of each service, in order. */
extern const struct stk_credential_source stk_credential_chain_aws[], stk_credential_chain_google[],
    stk_credential_chain_azure[];
extern const struct stk_credential_source stk_credential_chain_huggingface[];
extern const size_t stk_credential_chain_aws_count, stk_credential_chain_google_count,
    stk_credential_chain_azure_count;
extern const size_t stk_credential_chain_huggingface_count;

/* Records why the current source is skipped, or what it found, for stk_credential_provider_explain.
 */
void stk_credential_chain_log(struct stk_credential_chain *search, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- requests to services (auth_request.c) ---- */

/* A small request; its texts are wiped in close. */
struct stk_auth_request {
    uint32_t method; /* enum stk_http_method */
    char url[STK_AUTH_REQUEST_URL_BYTES];
    char header_text[STK_AUTH_REQUEST_HEADERS_MAX][STK_CREDS_TOKEN_BYTES_MAX + 64];
    const char *headers[STK_AUTH_REQUEST_HEADERS_MAX];
    uint32_t header_count;
    char body[STK_AUTH_REQUEST_BODY_BYTES];
    size_t body_bytes;
    uint32_t connect_ms, total_ms, tries; /* 0: the defaults above; tries without a response */
    bool direct;                          /* use no proxy: metadata services */
    bool retry_not_found;                 /* 404 means "not yet": Azure's metadata */
    bool is_cut; /* the URL or a header did not fit: the request is not sent */
    /* The response. */
    uint32_t code;
    bool google;      /* has "Metadata-Flavor: Google" */
    uint64_t date_ns; /* the Date header; 0: none */
    size_t text_bytes;
    char text[STK_AUTH_RESPONSE_BYTES_MAX + 1];
};

/* Zeroed, on the heap; NULL: no memory. */
struct stk_auth_request *stk_auth_request_open(uint32_t method);
void stk_auth_request_close(struct stk_auth_request *auth); /* wipes; NULL is allowed */
/* Sets the URL. A URL or header that does not fit fails the send. */
__attribute__((format(printf, 2, 3))) void stk_auth_request_set_url(struct stk_auth_request *auth,
                                                                    const char *format, ...);
void stk_auth_request_add_header(struct stk_auth_request *auth, const char *name,
                                 const char *value);
/* Appends "name=value" to a form, encoded; false: it is full. */
bool stk_auth_request_add_field(struct stk_auth_request *auth, const char *name, const char *value);
/* Sends the request, with retries if they may help (429, 5xx, error codes of throttling).
 * Returns 0 on success, with any status code, STOKER_ERROR_LIMIT if the URL or a header did not
 * fit, STOKER_ERROR_UNSUPPORTED if search->options->http is not set, or an error if there was no
 * response. what: "the metadata service", for the error. */
int stk_auth_request_send(struct stk_credential_chain *search, struct stk_auth_request *auth,
                          const char *what, struct stoker_error *error);
/* Returns whether the response requests a later retry. */
bool stk_auth_request_is_busy(const struct stk_auth_request *auth);
/* Server clock minus local clock in seconds; 0 if it is unknown or less than 30 s. */
int64_t stk_auth_request_skew_s(const struct stk_auth_request *auth);
/* Converts a time of the server to the local clock. */
uint64_t stk_auth_request_local_time(const struct stk_auth_request *auth, uint64_t theirs_s);
/* The expiry to use for keys of an instance, by botocore's rule: AWS keeps them valid while its
 * metadata service cannot issue new ones. So keys with less than 12 to 20 minutes left are used for
 * that long from now on, and then fetched again. */
uint64_t stk_credential_chain_extend_expiry(uint64_t expires_ns);
/* Fills the error for a response that is not 2xx, with the error code of the service but no other
 * text of the response. */
int stk_auth_request_fail(const struct stk_auth_request *auth, const char *what, const char *advice,
                          struct stoker_error *error);

/* The metadata service of an EC2 instance (aws_chain.c), as variables and the profile configure it.
 */
struct stk_ec2_metadata {
    const char *base;
    uint32_t timeout_ms, tries;
};
/* Returns 1; 0 if it is switched off; STOKER_ERROR_FORMAT if a setting is no number. */
int stk_ec2_metadata_find(struct stk_credential_chain *search, struct stk_ec2_metadata *service,
                          struct stoker_error *error);
/* A request for the token of a session (token NULL, PUT), or with that token. NULL: no memory. */
struct stk_auth_request *stk_ec2_metadata_request(uint32_t method,
                                                  const struct stk_ec2_metadata *service,
                                                  const char *path, const char *token);

/* Runs a program without a shell and reads its output; words are split as shlex does. */
int stk_credential_process_run(const char *command, char *out, size_t out_bytes, size_t *used_out,
                               struct stoker_error *error);
/* Splits as Python's shlex (POSIX) does. Returns the number of words, or -1 if a quote is not
 * closed or there are too many. Words are in text, which has the length of the command and 1. */
int stk_credential_process_split(const char *command, char *text, char **words, int words_max);

/* Reads a small file with a secret, without white space at its end. Returns 0 on success,
 * STOKER_ERROR_MISSING or STOKER_ERROR_LIMIT. */
int stk_credential_chain_read_file(const char *path, char *out, size_t out_bytes, const char *what,
                                   struct stoker_error *error);
/* Whether a URL of plain HTTP is on this machine: a loopback address, or localhost. */
bool stk_credential_chain_is_loopback_url(const char *url);
/* Returns 0 on success, STOKER_ERROR_ARGUMENT if stk_credentials_url_is_private is false. what:
 * the place where the URL is set. */
int stk_credential_chain_require_private(const char *url, const char *what,
                                         struct stoker_error *error);
/* Copies a credential of one line. Returns 0 on success, STOKER_ERROR_LIMIT if it does not fit.
 * what: the place where it is set. */
int stk_credential_chain_copy_text(const char *text, char *out, size_t out_bytes, const char *what,
                                   struct stoker_error *error);

#endif
