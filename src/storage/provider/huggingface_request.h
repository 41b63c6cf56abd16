/* storage/provider/huggingface_request.h: names and listings of Hugging Face's hub. Pure.
 *
 *   "datasets/org/name@revision/path" --stk_hf_split--> repository and path
 *   a page of JSON --stk_hf_tree_parse--> what lies in a folder
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
    char revision[STK_HF_NAME_BYTES]; /* "main" where none is path_args */
};

/* How many bytes of the text name the repository, its revision included: a '/' or the end follows.
 * 0: it names none. "refs/pr/1" and "refs/convert/parquet" are revisions too. */
size_t stk_hf_split(const char *text);
/* Of such a text, NUL-ended. False: it names none, or does not fit. */
bool stk_hf_repository_parse(const char *text, struct stk_hf_repository *repository_out);

struct stk_hf_entry {
    const char *path; /* from the repository's root; lent for the call */
    bool folder;
    uint64_t bytes;
    const char *hash; /* hex, of the file's bytes: 64 digits are SHA-256, 40 are the SHA-1 of a git
                         blob, "blob N", NUL, the bytes; NULL: none is told */
};
/* Calls found for each entry; below 0 ends it. FORMAT: it is no such page. */
int stk_hf_tree_parse(struct stk_view page,
                      int (*found)(void *owner, const struct stk_hf_entry *entry), void *owner);
/* 1: the URL of a header 'Link: <URL>; rel="next"'; 0: there is none; CORRUPT: it cannot be
 * followed, and what lies behind it would be missed. */
int stk_hf_next_page(struct stk_view link, char *url, size_t url_bytes);

#endif
