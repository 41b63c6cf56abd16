/* programs/fault_proxy/fault_answer.h: responses that the proxy generates, and edits of forwarded
 * heads.
 *
 *   rule + request --stk_fault_answer_make--> head, body, bytes to repeat forever
 *   head + rule    --stk_fault_edit_*-------> a head as text
 *
 * Owner: the connection. Threads: one. Memory: the text, freed by deinit. Bound:
 * STK_FAULT_TEXT_MAX. */
#ifndef PROGRAMS_FAULT_PROXY_FAULT_ANSWER_H
#define PROGRAMS_FAULT_PROXY_FAULT_ANSWER_H

#include "programs/fault_proxy/fault_script.h"

#define STK_FAULT_TEXT_MAX (8u << 20)

struct stk_fault_text { /* zeroed: empty */
    char *data;
    size_t bytes, capacity;
    bool failed; /* out of memory, or too long: further appends are ignored */
};

struct stk_fault_answer {       /* zeroed: none */
    struct stk_fault_text text; /* head and body */
    size_t head_bytes;
    struct stk_view repeat; /* sent forever after the text; static */
    uint32_t status;
    bool close; /* the connection ends after it */
};

void stk_fault_text_add(struct stk_fault_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void stk_fault_text_bytes(struct stk_fault_text *text, const void *data, size_t bytes);
void stk_fault_text_deinit(struct stk_fault_text *text);

/* Generates the response of a rule. wall_seconds: the current time. Returns 0 on success, or
 * -ENOMEM. */
int stk_fault_answer_make(struct stk_fault_answer *answer, const struct stk_fault_rule *rule,
                          const struct stk_fault_request *request, bool to_head,
                          int64_t wall_seconds);
/* Generates a response with an S3 error body. Returns 0 on success, or -ENOMEM. */
int stk_fault_answer_error(struct stk_fault_answer *answer, uint32_t status, const char *code,
                           const char *message, bool to_head);
void stk_fault_answer_deinit(struct stk_fault_answer *answer);

/* Appends the head of a request as it is forwarded. rule may be NULL. */
void stk_fault_edit_request(struct stk_fault_text *text, const struct stk_fault_head *head,
                            const struct stk_fault_rule *rule);
/* Appends the head of a response as it is forwarded, and sets *status_out. */
void stk_fault_edit_answer(struct stk_fault_text *text, const struct stk_fault_head *head,
                           const struct stk_fault_rule *rule, int64_t wall_seconds,
                           uint32_t *status_out);
/* Returns true if a header is a condition on a version; swapped responses ignore it. */
bool stk_fault_is_condition(struct stk_view name);
/* Returns true if the request's signature covers a header, or the path. */
bool stk_fault_is_signed(const struct stk_fault_head *head, const char *header);

#endif
