/* storage/url/url_redact.h: texts of a URL without its secrets, for messages and as a name. Pure.
 *
 *   http://user:word@host/a?sig=x&id=1 --stk_url_redact-------> http://~5f0c...@host/a?id=1
 *                                      `-stk_url_redact_short-> http://host/a?...
 *
 * Removed: the fragment, the password, the parameters that sign. Replaced by "~" and a hash: the
 * user (URLs of two users may mean two objects), and values of other parameters that may be secret
 * or are long. So a URL that is signed again has the same text, URLs of different objects have
 * different ones, and the text of a redacted URL is itself.
 * Owner: the caller frees names. Threads: any. Memory: base/mem.h. Bound: the URL, and 16 bytes for
 * each parameter. */
#ifndef STORAGE_URL_URL_REDACT_H
#define STORAGE_URL_URL_REDACT_H

#include "storage/url/url_split.h"

/* Sets *name_out (free with stk_free) to the redacted URL; other texts are copied as they are.
 * Returns 0, or -ENOMEM without a filled error. */
int stk_url_redact(const char *url, char **name_out);
/* Writes at most text_bytes of scheme, host and path, with "?..." instead of a query: for messages,
 * also where memory is short. Returns text. */
const char *stk_url_redact_short(const char *url, char *text, size_t text_bytes);
/* Writes the redacted URL if it fits into buffer_bytes. Sets *login_out and *query_out if the login
 * or the query of the URL is not in it. Returns the bytes that it needs with its NUL; buffer may be
 * NULL if buffer_bytes is 0. */
size_t stk_url_redact_parts(const struct stk_url_parts *parts, char *buffer, size_t buffer_bytes,
                            bool *login_out, bool *query_out);

#endif
