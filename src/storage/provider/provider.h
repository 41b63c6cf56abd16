/* storage/provider/provider.h: builds URL and headers of a request to Google's and Azure's stores,
 * and to Hugging Face's hub. Pure; endpoint.h finds the endpoint.
 *
 *   object, credentials, endpoint --stk_provider_request_build--> URL, further headers
 *
 * Google: the XML API, with a bearer token, or Signature Version 4 with HMAC keys.
 * https://cloud.google.com/storage/docs/xml-api/overview
 * Azure: Blob Storage, with Shared Key, a SAS or a bearer token.
 * https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
 * Hugging Face: files of a revision, which redirect to signed URLs; see huggingface_request.h.
 * A bearer token or a SAS is sent only over TLS, or to this machine.
 * Owner: the caller. Threads: any (a key cache: one). Memory: the caller's buffer. Bound: the
 * buffer. */
#ifndef STORAGE_PROVIDER_PROVIDER_H
#define STORAGE_PROVIDER_PROVIDER_H

#include "storage/credentials/credentials.h"
#include "storage/provider/endpoint.h"
#include "storage/sign/sigv4.h"

#define STK_PROVIDER_HEADERS_MAX 6u
#define STK_PROVIDER_AZURE_VERSION "2023-11-03"

struct stk_provider_request {
    /* Set by the caller. */
    uint32_t service;   /* enum stk_credentials_service */
    const char *method; /* "GET" */
    const struct stk_endpoint *site;
    const struct stk_credentials *credentials;
    const char *bucket, *key;           /* raw; Azure: the container; key "": the bucket itself */
    const struct stk_sigv4_pair *query; /* raw */
    uint32_t query_count;
    const struct stk_sigv4_pair *headers; /* sent by the caller: Range, If-Match ... */
    uint32_t header_count;
    bool tree, deep;  /* the hub: a page of the listing of the folder `key`, or of all below it */
    const char *link; /* the hub: the URL of the page from the page before; NULL: the first */
    struct stk_view body;
    uint64_t time_s; /* since 1970, by the server's clock */
    struct stk_sigv4_key_cache *cache;
    char *buffer;
    size_t buffer_bytes;
    /* Set by the build; texts are in buffer. */
    size_t buffer_used;
    const char *url;
    const char *headers_out[STK_PROVIDER_HEADERS_MAX]; /* "Name: value", in addition to headers */
    uint32_t headers_out_count;
};

/* Returns 0 on success, STOKER_ERROR_LIMIT if the buffer is full, STOKER_ERROR_ARGUMENT if a
 * secret would be sent in plain text or no account is set, STOKER_ERROR_FORMAT if a key is
 * malformed. */
int stk_provider_request_build(struct stk_provider_request *request, struct stoker_error *error);

/* Private to storage/provider: the builder of each service. */
int stk_provider_request_google(struct stk_provider_request *request, struct stoker_error *error);
int stk_provider_request_huggingface(struct stk_provider_request *request,
                                     struct stoker_error *error);
int stk_provider_request_azure(struct stk_provider_request *request, struct stoker_error *error);
/* Writes text into the buffer; NULL: it is full. */
char *stk_provider_request_print(struct stk_provider_request *request, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds a header to headers_out. */
void stk_provider_request_add_header(struct stk_provider_request *request, const char *name,
                                     const char *value);
void stk_provider_request_add_bearer(
    struct stk_provider_request *request); /* "Authorization: Bearer ..." */

#endif
