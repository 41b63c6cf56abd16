/* programs/fault_proxy/fault_answer.h: answers made here, and heads that are changed as they pass.
 *
 *   rule + request --stk_fault_answer_make--> head, body, what is repeated for ever
 *   head + rule    --stk_fault_edit_*-------> a head as text
 *
 * Owner: the link. Threads: one. Memory: the text, to be given back. Bound: STK_FAULT_TEXT_MAX. */
#ifndef PROGRAMS_FAULT_PROXY_FAULT_ANSWER_H
#define PROGRAMS_FAULT_PROXY_FAULT_ANSWER_H

#include "programs/fault_proxy/fault_script.h"

#define STK_FAULT_TEXT_MAX (8u << 20)

struct stk_fault_text { /* zeroed: empty */
    char *data;
    size_t bytes, capacity;
    bool failed; /* no memory, or too long: nothing is appended any more */
};

struct stk_fault_answer {       /* zeroed: none */
    struct stk_fault_text text; /* head and body */
    size_t head_bytes;
    struct stk_view repeat; /* behind the text, for ever; static */
    uint32_t status;
    bool close; /* the connection ends behind it */
};

void stk_fault_text_add(struct stk_fault_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void stk_fault_text_bytes(struct stk_fault_text *text, const void *data, size_t bytes);
void stk_fault_text_deinit(struct stk_fault_text *text);

/* wall_seconds: the true time. 0, or -ENOMEM. */
int stk_fault_answer_make(struct stk_fault_answer *answer, const struct stk_fault_rule *rule,
                          const struct stk_fault_request *request, bool to_head,
                          int64_t wall_seconds);
/* An answer of one status with S3's error text. */
int stk_fault_answer_error(struct stk_fault_answer *answer, uint32_t status, const char *code,
                           const char *message, bool to_head);
void stk_fault_answer_deinit(struct stk_fault_answer *answer);

/* The request's head as it goes on. rule may be NULL. */
void stk_fault_edit_request(struct stk_fault_text *text, const struct stk_fault_head *head,
                            const struct stk_fault_rule *rule);
/* The answer's head as it goes on; *status_out: what it says. */
void stk_fault_edit_answer(struct stk_fault_text *text, const struct stk_fault_head *head,
                           const struct stk_fault_rule *rule, int64_t wall_seconds,
                           uint32_t *status_out);
/* Whether a header wants a certain version: who swaps answers has not heard it. */
bool stk_fault_is_condition(struct stk_view name);
/* Whether the request's signature says that a header, or the path, may not be changed. */
bool stk_fault_is_signed(const struct stk_fault_head *head, const char *header);

#endif
