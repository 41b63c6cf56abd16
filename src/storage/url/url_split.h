/* storage/url/url_split.h: splits a URL into its parts. Pure.
 *
 *   "zip::https://user:word@host/a.zip?sig=1!/b"
 *    head ------- login --- rest ----- query tail
 *
 * Understands URLs of http and https, alone or at the end of a chain of fsspec
 * ("zip::https://..."), of object stores (s3, gs, az, hf), and of others that fsspec opens (ftp,
 * sftp, smb, ...). Owner: parts are views into the URL. Threads: any. Memory: none. Bound: none;
 * one pass. */
#ifndef STORAGE_URL_URL_SPLIT_H
#define STORAGE_URL_URL_SPLIT_H

#include "base/base.h"

#include <string.h>

#define STK_URL_INVALID_LOGIN "..." /* replaces a login whose end is ambiguous */

enum stk_url_scheme {
    STK_URL_OTHER = 0, /* a path, or a URL that the library has no client for */
    STK_URL_HTTP,      /* also https */
    STK_URL_S3,
    STK_URL_GCS,
    STK_URL_AZURE,
    STK_URL_HF,
    STK_URL_SCHEMES_END,
};

struct stk_url_parts {
    struct stk_view head;  /* what comes before the login and the host: "https://" */
    struct stk_view login; /* without its '@'; data NULL: none */
    struct stk_view rest;  /* host and path; bucket and key */
    struct stk_view query; /* without its '?'; data NULL: none */
    struct stk_view tail;  /* of a chain: the path inside an archive, "!/a/b" */
    bool broken;           /* the library sends no request with this login: it is not kept */
};

/* Returns enum stk_url_scheme by the first bytes of a URL, in upper or lower case. */
uint32_t stk_url_scheme_of(const char *url);
/* Always fills *parts_out; a fragment is in none of the parts. Returns true if the URL is one of
 * http or https, or has a login or an Azure SAS: only then a part can be secret. */
bool stk_url_split(const char *url, struct stk_url_parts *parts_out);

/* Returns the '?' of "s3://bucket/key?versionId=ID", which names a version of an object; NULL for
 * every other text. A key that ends like this is named by its version only. */
const char *stk_url_find_version(const char *url);

/* Decodes %41 to 'A', in place and once; a '%' without two digits stays, as does %00. */
void stk_url_decode_percent(char *text);

/* Writes the host of a URL as libcurl sends it in the header Host, which signatures cover:
 * 127.0.0.1 for "127.1" and "0x7f000001", and no port if it is the scheme's default. A URL that
 * would not fit stays. */
void stk_url_normalize_host(char *url, size_t url_bytes);

/* The index of the first of `bytes` that is one of the characters in any; bytes if there is none.
 */
static inline size_t stk_url_find_any(const char *text, size_t bytes, const char *any)
{
    size_t at = 0;

    while (at < bytes && !strchr(any, text[at])) {
        at++;
    }
    return at;
}

#endif
