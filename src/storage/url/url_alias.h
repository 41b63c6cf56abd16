/* storage/url/url_alias.h: URLs that hold secrets are known by names without them.
 *
 *   URL --name--> shown, listed, hashed, written         http://user:word@host/a?sig=x&id=1
 *    `--kept--> asked for, where a request is made    -> http://~5f0c...@host/a?id=1
 *
 * Of http:// and https://, alone or behind a chain of fsspec's. A name lacks the fragment, who asks
 * (a hash of the user stays: two users may see two things there; "~" is a user who is a token) and
 * the parameters that sign; of other parameters whose value may be a secret, or is long, a hash
 * stays. So a URL that was signed anew has the same name, and different objects have different
 * ones. A name is its own name. Behind az:// a SAS is taken for a login that nobody asks by.
 * What a name stands for is the process's: whoever path_args the URL last. A name below the host of
 * another one is asked as that one's user.
 * Owner: nobody. Threads: any; fork in any thread is fine. Memory: base/crypto/secret_memory.h;
 * freed never.
 * Bound: STK_URL_ALIAS_COUNT_MAX names and STK_URL_ALIAS_BYTES_MAX of what they stand for, twice;
 * then the ones that were not used for longest are forgotten. STK_URL_ALIAS_LOGINS_MAX hosts,
 * likewise. */
#ifndef STORAGE_URL_URL_ALIAS_H
#define STORAGE_URL_URL_ALIAS_H

#include "base/base.h"

#define STK_URL_ALIAS_COUNT_MAX (2u << 20)
#define STK_URL_ALIAS_BYTES_MAX                                                                    \
    (512u << 20) /* 260 thousand that are signed with a token of STS                               \
                  */
#define STK_URL_ALIAS_LOGINS_MAX 256u

/* Gives *name_out, to be freed by stk_free: the URL's name, which stands for it from now on; of all
 * else what was given. 0 or -ENOMEM, without an error filled. */
int stk_url_alias(const char *url, char **name_out);
/* The same, only to be shown: it stands for nothing more than it did. */
int stk_url_redact(const char *url, char **name_out);
/* Gives *url_out, to be freed by stk_secret_free: what a name stands for, or else what was given,
 * path_args before if it has secrets itself. */
int stk_url_resolve(const char *name, char **url_out);

/* For tests: instead of STK_URL_ALIAS_BYTES_MAX; returns what it was. */
uint64_t stk_url_alias_set_bytes_max(uint64_t bytes_max);

/* url_redact.c: where the parts of a URL are. Pure. */
struct stk_url_parts {
    struct stk_view head;  /* what stands before the host: "https://", or "a::https://" */
    struct stk_view login; /* without its '@'; data NULL: none */
    struct stk_view rest;  /* host and path */
    struct stk_view query; /* without its '?'; data NULL: none */
    struct stk_view tail;  /* of a chain: "!/a/b", what is meant within an archive */
    bool broken;           /* its login is not kept: nobody is asked by it */
};
/* False: it is no such URL. */
bool stk_url_split(const char *url, struct stk_url_parts *parts_out);
/* The name, if there is room for it; told whether login and query are other ones in the URL. How
 * many bytes it takes with its end; room NULL with none: tells only that. */
size_t stk_url_redact_parts(const struct stk_url_parts *parts, char *room, size_t room_bytes,
                            bool *login_out, bool *query_out);

#endif
