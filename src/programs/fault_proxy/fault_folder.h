/* programs/fault_proxy/fault_folder.h: serves a folder as a small object store: GET, HEAD, ranges,
 * If-Match, S3's list.
 *
 *   request --stk_fault_folder_answer--> head, and the range of a file that is the body
 *
 * The first part of a path is the bucket and a sub-folder, as in path-style S3; no path leaves the
 * folder (openat2, RESOLVE_BENEATH), links included.
 * Owner: the connection. Threads: one. Memory: the text of the response. Bound:
 * STK_FAULT_FOLDER_KEYS_MAX keys a page. */
#ifndef PROGRAMS_FAULT_PROXY_FAULT_FOLDER_H
#define PROGRAMS_FAULT_PROXY_FAULT_FOLDER_H

#include "programs/fault_proxy/fault_answer.h"

#define STK_FAULT_FOLDER_KEYS_MAX 1000u

struct stk_fault_folder_body {
    int file; /* owned; -1: the response is only text */
    uint64_t offset, bytes;
};

/* Generates the response, which may be an error. folder: its descriptor. Returns 0 on success,
 * or -ENOMEM. */
int stk_fault_folder_answer(struct stk_fault_answer *answer, struct stk_fault_folder_body *body_out,
                            int folder, const struct stk_fault_head *head,
                            const struct stk_fault_request *request);

#endif
