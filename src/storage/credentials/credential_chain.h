/* storage/credentials/credential_chain.h: one walk along the chain of places where credentials may
 * be.
 *
 *   search --place--> found, or "not here, because ..." --next place--> ... --> found, or none
 *
 * A place that is not set up is passed over; one that is and fails ends the search with its error:
 * another identity than the one that was meant would be worse.
 * Owner: the caller, for one walk. Threads: one. Memory: the profiles; secrets are wiped.
 * Bound: STK_CREDS_STEPS_MAX places; STK_CREDENTIAL_CHAIN_REQUEST_MS a request, of which there are
 * STK_CREDENTIAL_CHAIN_TRIES where no answer comes and STK_CREDENTIAL_CHAIN_BUSY_TRIES where one
 * says "not now"; STK_CREDENTIAL_CHAIN_TOTAL_MS all requests of a walk; and what a
 * credential_process takes (70 s). */
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
    struct stk_aws_profile profiles;    /* of Amazon's files */
    struct stk_credential_trace *trace; /* lent; NULL: nobody asks why */
    uint64_t until_ns;                  /* monotonic: no request behind it */
    const char
        *unreachable; /* who may know and did not answer: "the metadata service"; static; NULL */
};

/* Looks in one place: 1: found. 0: not here. Negative: here, and it failed. */
typedef int stk_credential_lookup(struct stk_credential_chain *search,
                                  struct stk_credentials *found, struct stoker_error *error);

struct stk_credential_source {
    const char *name; /* as botocore and Google's and Azure's libraries call it */
    stk_credential_lookup *find;
};

/* The chains, in their order. */
extern const struct stk_credential_source stk_credential_chain_aws[], stk_credential_chain_google[],
    stk_credential_chain_azure[];
extern const struct stk_credential_source stk_credential_chain_huggingface[];
extern const size_t stk_credential_chain_aws_count, stk_credential_chain_google_count,
    stk_credential_chain_azure_count;
extern const size_t stk_credential_chain_huggingface_count;

/* Why the place in hand is passed over, or what it is; to be told by
 * stk_credential_provider_explain. */
void stk_credential_chain_log(struct stk_credential_chain *search, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- asking services ---- */

/* A small request; its texts are wiped with it. */
struct stk_auth_request {
    uint32_t method; /* enum stk_http_method */
    char url[STK_AUTH_REQUEST_URL_BYTES];
    char header_text[STK_AUTH_REQUEST_HEADERS_MAX][STK_CREDS_TOKEN_BYTES_MAX + 64];
    const char *headers[STK_AUTH_REQUEST_HEADERS_MAX];
    uint32_t header_count;
    char body[STK_AUTH_REQUEST_BODY_BYTES];
    size_t body_bytes;
    uint32_t connect_ms, total_ms, tries; /* 0: as above; tries without any answer */
    bool direct;                          /* by no proxy: metadata services */
    bool retry_not_found;                 /* 404 says "not yet": Azure's metadata */
    /* The answer. */
    uint32_t code;
    bool google;      /* by "Metadata-Flavor: Google" */
    uint64_t date_ns; /* the server's clock, in seconds; 0: not told */
    size_t text_bytes;
    char text[STK_AUTH_RESPONSE_BYTES_MAX + 1];
};

/* Zeroed, on the heap; NULL: no memory. */
struct stk_auth_request *stk_auth_request_open(uint32_t method);
void stk_auth_request_close(struct stk_auth_request *auth); /* wipes; NULL is fine */
void stk_auth_request_add_header(struct stk_auth_request *auth, const char *name,
                                 const char *value);
/* Adds "name=value" to a form, encoded; false: it is full. */
bool stk_auth_request_add_field(struct stk_auth_request *auth, const char *name, const char *value);
/* 0 with whatever code came, tried again where that may help (429, 5xx, codes of throttling);
 * negative: no answer came. what: "the metadata service", for the error. Without a
 * search->options->http: UNSUPPORTED. */
int stk_auth_request_send(struct stk_credential_chain *search, struct stk_auth_request *auth,
                          const char *what, struct stoker_error *error);
/* Whether the answer says that the service cannot say now. */
bool stk_auth_request_is_busy(const struct stk_auth_request *auth);
/* Seconds from our clock to that of the server that answered; 0 where it did not tell, or they go
 * together (30 s). */
int64_t stk_auth_request_skew_s(const struct stk_auth_request *auth);
/* A time that the server path_args, by our clock. */
uint64_t stk_auth_request_local_time(const struct stk_auth_request *auth, uint64_t theirs_s);
/* When keys of an instance end, for us: botocore's rule. AWS has them live on when its metadata
 * service cannot give new ones; so where less than 12 to 20 minutes are left (who knows how long it
 * takes) they are used for so long from now on, and then asked for again. */
uint64_t stk_credential_chain_extend_expiry(uint64_t expires_ns);
/* The error of an answer that is no 2xx: names the code of the service, and no more of its text. */
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

/* Runs a program and takes what it writes, by no shell: words as shlex splits them. */
int stk_credential_process_run(const char *command, char *out, size_t out_bytes, size_t *used_out,
                               struct stoker_error *error);
/* Splits like Python's shlex (POSIX): quotes and backslashes. Count, or -1: a quote does not end,
 * too many words. Words lie in `text`, of the command's length + 1. */
int stk_credential_process_split(const char *command, char *text, char **words, int words_max);

/* A small file of a secret, without the line end at its end. 0; MISSING; LIMIT. */
int stk_credential_chain_read_file(const char *path, char *out, size_t out_bytes, const char *what,
                                   struct stoker_error *error);
/* Whether a URL is plain HTTP to this machine: a loopback address, or localhost. */
bool stk_credential_chain_is_loopback_url(const char *url);
/* ARGUMENT: no secret may go there (stk_credentials_url_is_private); what: who names the URL. */
int stk_credential_chain_require_private(const char *url, const char *what,
                                         struct stoker_error *error);
/* Copies text that came from a variable or a file; LIMIT where it does not fit. */
int stk_credential_chain_copy_text(const char *text, char *out, size_t out_bytes, const char *what,
                                   struct stoker_error *error);

#endif
