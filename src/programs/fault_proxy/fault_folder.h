/* programs/fault_proxy/fault_folder.h: a folder as a small object store: GET, HEAD, ranges,
 * If-Match, S3's list.
 *
 *   request --stk_fault_folder_answer--> a head, and a file with the part of it that is the body
 *
 * The first part of a path is the bucket and a sub-folder, as in path-style S3; no path leaves the
 * folder (openat2, RESOLVE_BENEATH), links included.
 * Owner: the link. Threads: one. Memory: the answer's text. Bound: STK_FAULT_FOLDER_KEYS_MAX a
 * list. */
#ifndef PROGRAMS_FAULT_PROXY_FAULT_FOLDER_H
#define PROGRAMS_FAULT_PROXY_FAULT_FOLDER_H

#include "programs/fault_proxy/fault_answer.h"

#define STK_FAULT_FOLDER_KEYS_MAX 1000u

struct stk_fault_folder_body {
    int file; /* owned; -1: the answer is all text */
    uint64_t offset, bytes;
};

/* folder: a descriptor of it. Fills the answer, also where it is a refusal; 0 or -ENOMEM. */
int stk_fault_folder_answer(struct stk_fault_answer *answer, struct stk_fault_folder_body *body_out,
                            int folder, const struct stk_fault_head *head,
                            const struct stk_fault_request *request);

#endif
