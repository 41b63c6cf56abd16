/* storage/provider/provider.h: how Google's and Azure's stores, and Hugging Face's hub, are asked:
 * URL and headers of one request. Pure but for the site, which endpoint.h finds.
 *
 *   what is wanted, by whom, from where --stk_provider_request_build--> URL, further headers
 *
 * Google: the XML interface, by bearer token or by Signature Version 4 with HMAC keys.
 * https://cloud.google.com/storage/docs/xml-api/overview
 * Azure: Blob Storage, by Shared Key, a SAS or a bearer token.
 * https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
 * Hugging Face: files by their revision, which lead to signed URLs; see huggingface_request.h.
 * A bearer token or a SAS goes by TLS, or to this machine; never else.
 * Owner: the caller. Threads: any (a cache: one). Memory: the caller's room. Bound: the room. */
#ifndef STORAGE_PROVIDER_PROVIDER_H
#define STORAGE_PROVIDER_PROVIDER_H

#include "storage/credentials/credentials.h"
#include "storage/provider/endpoint.h"
#include "storage/sign/sigv4.h"

#define STK_PROVIDER_HEADERS_MAX 6u
#define STK_PROVIDER_AZURE_VERSION "2023-11-03"

struct stk_provider_request {
    /* Given. */
    uint32_t service;   /* enum stk_credentials_service */
    const char *method; /* "GET" */
    const struct stk_endpoint *site;
    const struct stk_credentials *credentials;
    const char *bucket, *key;           /* raw; Azure: the container; key "": the bucket itself */
    const struct stk_sigv4_pair *query; /* raw */
    uint32_t query_count;
    const struct stk_sigv4_pair *headers; /* that are sent anyway: Range, If-Match ... */
    uint32_t header_count;
    bool tree, deep;  /* the hub: a page of the listing of the folder `key`, or of all below it */
    const char *link; /* the hub: a further page, as the one before told it; NULL: the first */
    struct stk_view body;
    uint64_t time_s; /* since 1970, as the server sees it */
    struct stk_sigv4_key_cache *cache;
    char *buffer;
    size_t buffer_bytes;
    /* Made; in room. */
    size_t buffer_used;
    const char *url;
    const char
        *headers_out[STK_PROVIDER_HEADERS_MAX]; /* "Name: value", beside those that were given */
    uint32_t headers_out_count;
};

/* LIMIT: there is no room; ARGUMENT: a secret would go out in plain text, or no account is
 * path_args; FORMAT: a key that is none. */
int stk_provider_request_build(struct stk_provider_request *wish, struct stoker_error *error);

/* The parts of the room, made of the same things. */
int stk_provider_request_google(struct stk_provider_request *wish, struct stoker_error *error);
int stk_provider_request_huggingface(struct stk_provider_request *wish, struct stoker_error *error);
int stk_provider_request_azure(struct stk_provider_request *wish, struct stoker_error *error);
/* Text into the room; NULL: it is full. */
char *stk_provider_request_print(struct stk_provider_request *wish, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A line "Name: value". */
void stk_provider_request_add_header(struct stk_provider_request *wish, const char *name,
                                     const char *value);
void stk_provider_request_add_bearer(
    struct stk_provider_request *wish); /* "Authorization: Bearer ..." */

#endif
