/* storage/provider/huggingface_request.h: names of repositories and listings of Hugging Face's hub.
 * Pure.
 *
 *   "datasets/org/name@revision/path" --stk_hf_split--> repository and path
 *   a page of JSON --stk_hf_tree_parse--> the entries of a folder
 *
 * https://huggingface.co/docs/hub/api
 * Owner: values. Threads: any. Memory: Jansson's while it parses. Bound: the caller's page;
 * STK_HF_NAME_BYTES. */
#ifndef STORAGE_PROVIDER_HUGGINGFACE_REQUEST_H
#define STORAGE_PROVIDER_HUGGINGFACE_REQUEST_H

#include "base/base.h"

#define STK_HF_NAME_BYTES 256u

struct stk_hf_repository {
    const char *kind;                 /* "datasets", "models", "spaces"; static */
    char name[STK_HF_NAME_BYTES];     /* "org/name" */
    char revision[STK_HF_NAME_BYTES]; /* "main" if not set */
};

/* Returns the bytes of the repository and its revision at the start of the text, before a '/' or
 * the end; 0: it names none. "refs/pr/1" and "refs/convert/parquet" are revisions too. */
size_t stk_hf_split(const char *text);
/* Parses these bytes, NUL-terminated. False: they name no repository, or do not fit. */
bool stk_hf_repository_parse(const char *text, struct stk_hf_repository *repository_out);

struct stk_hf_entry {
    const char *path; /* from the root of the repository; valid during the call */
    bool folder;
    uint64_t bytes;
    const char
        *hash; /* hex: 64 digits are the SHA-256 of the file, 40 its git blob hash; NULL: unknown */
};
/* Calls found for each entry; a value below 0 stops. Returns 0, that value, or STOKER_ERROR_FORMAT
 * if this is no such page. */
int stk_hf_tree_parse(struct stk_view page,
                      int (*found)(void *owner, const struct stk_hf_entry *entry), void *owner);
/* Reads the URL of the next page from a header 'Link: <URL>; rel="next"'. Returns 1, 0 if there is
 * none, STOKER_ERROR_CORRUPT if it cannot be parsed, as entries would be missed. */
int stk_hf_next_page(struct stk_view link, char *url, size_t url_bytes);

#endif
