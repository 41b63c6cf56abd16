/* storage/sign/sigv4_canonical.h: the canonical form of a request, hashed while it is made. Private
 * to storage/sign.
 *
 *   sorted query, sorted headers --> SHA-256 of the canonical request
 *
 * Owner: the call. Threads: one. Memory: the stack. Bound: those of storage/sign/sigv4.h. */
#ifndef STORAGE_SIGN_SIGV4_CANONICAL_H
#define STORAGE_SIGN_SIGV4_CANONICAL_H

#include "storage/sign/sigv4.h"

bool stk_url_is_unreserved(uint8_t byte); /* not encoded in a URL */

/* Sorted headers or parameters. The texts belong to the request. */
struct stk_sigv4_sorted {
    struct stk_sigv4_pair pairs[STK_SIGV4_QUERY_MAX + STK_SIGV4_HEADERS_MAX];
    uint32_t count;
};

/* Sorts parameters as their encodings sort: by name, then value. */
void stk_sigv4_sort_query(struct stk_sigv4_sorted *query);
/* Sorts headers by name, case-insensitively. Returns 0 on success, STOKER_ERROR_ARGUMENT if two
 * have one name. */
int stk_sigv4_sort_headers(struct stk_sigv4_sorted *headers);
/* "host;range;x-amz-date" */
int stk_sigv4_signed_headers(const struct stk_sigv4_sorted *headers, char *text, size_t text_bytes);
/* The canonical request's hash in hex. */
void stk_sigv4_canonical_hash(const struct stk_sigv4_request *request,
                              const struct stk_sigv4_sorted *query,
                              const struct stk_sigv4_sorted *headers, const char *names,
                              char hash_out[65]);

#endif
