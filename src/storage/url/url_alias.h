/* storage/url/url_alias.h: replaces URLs that contain credentials by aliases without them.
 *
 *   URL --stk_url_alias-----> alias, to be shown, listed, hashed and written
 *   alias --stk_url_resolve-> URL, to send a request
 *
 * The alias of a URL is its redacted text (storage/url/url_redact.h), so the alias of an alias is
 * itself. The process keeps the query and the login of the last URL with this alias in secret
 * memory. A login belongs to a host: an alias without a login of its own below the same host and
 * user resolves with it.
 * Owner: the process. Threads: any; fork in any thread is safe. Memory:
 * base/crypto/secret_memory.h; never freed.
 * Bound: two generations of STK_URL_ALIAS_COUNT_MAX aliases and STK_URL_ALIAS_BYTES_MAX of queries
 * each: when one is full, aliases that were not used in it are forgotten. The
 * STK_URL_ALIAS_LOGINS_MAX hosts that were used last keep their logins. */
#ifndef STORAGE_URL_URL_ALIAS_H
#define STORAGE_URL_URL_ALIAS_H

#include "base/base.h"

#define STK_URL_ALIAS_COUNT_MAX (2u << 20)
#define STK_URL_ALIAS_BYTES_MAX (512u << 20) /* 260 thousand URLs signed with a token of STS */
#define STK_URL_ALIAS_LOGINS_MAX 256u

/* Sets *name_out (free with stk_free) to the alias and remembers the URL's login and query; for
 * "file:///a%20b" to the path "/a b"; other texts are copied as they are. Returns 0, or -ENOMEM
 * without a filled error. */
int stk_url_alias(const char *url, char **name_out);
/* Sets *url_out (free with stk_secret_free) to the URL of an alias, else to a copy of the text. A
 * text with credentials of its own is remembered first. Returns 0 or -ENOMEM. */
int stk_url_resolve(const char *name, char **url_out);

/* For tests: replaces STK_URL_ALIAS_BYTES_MAX; returns the value before. */
uint64_t stk_url_alias_set_bytes_max(uint64_t bytes_max);

#endif
