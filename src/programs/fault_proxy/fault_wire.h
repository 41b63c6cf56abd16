/* programs/fault_proxy/fault_wire.h: HTTP/1.1 as it stands on the wire: heads, and where a body
 * ends. Pure.
 *
 *   bytes --stk_fault_head_parse--> head --stk_fault_body_init--> body --stk_fault_body_consume-->
 * its end
 *
 * Strict where two readers could disagree about where a message ends (RFC 9112): a length and
 * chunks at once, lengths that differ, blanks before a colon, and folded lines are refused.
 * Owner: values. Threads: any. Memory: none; heads lend the bytes they were parsed from.
 * Bound: STK_FAULT_HEAD_BYTES_MAX, STK_FAULT_HEADERS_MAX. */
#ifndef PROGRAMS_FAULT_PROXY_FAULT_WIRE_H
#define PROGRAMS_FAULT_PROXY_FAULT_WIRE_H

#include "base/base.h"

#define STK_FAULT_HEAD_BYTES_MAX 65536u
#define STK_FAULT_HEADERS_MAX 128u

struct stk_fault_header {
    struct stk_view name, value; /* the value without blanks around it */
};

struct stk_fault_head {
    struct stk_view method, target; /* of a request */
    uint32_t status;                /* of an answer */
    uint32_t minor;                 /* HTTP/1.minor */
    struct stk_fault_header headers[STK_FAULT_HEADERS_MAX];
    size_t header_count;
    size_t bytes; /* of all of it, with the empty line */
};

enum stk_fault_framing {
    STK_FAULT_EMPTY,
    STK_FAULT_LENGTH,
    STK_FAULT_CHUNKED,
    STK_FAULT_UNTIL_CLOSE
};

/* A body as it passes by. */
struct stk_fault_body {
    uint32_t framing;   /* enum stk_fault_framing */
    uint32_t state;     /* of chunks: internal */
    uint64_t remaining; /* of the length, or of the chunk */
    uint32_t digits;    /* of the chunk's size; bytes of the trailer */
    bool done;
};

/* 1: *head_out is filled. 0: more bytes are needed. Negative: it is no HTTP/1.1. */
int stk_fault_head_parse(struct stk_fault_head *head_out, struct stk_view bytes, bool request,
                         struct stoker_error *error);
/* The value of a header, by its name in any case; {NULL, 0}: it is not there. */
struct stk_view stk_fault_header(const struct stk_fault_head *head, const char *name);
bool stk_fault_view_equals(struct stk_view view, const char *text); /* in any case */
/* A whole number; false: it is none, or too large. */
bool stk_fault_number(struct stk_view text, uint64_t *value_out);
/* How the body behind a head ends. to_head: the head answers a HEAD request. */
int stk_fault_body_init(struct stk_fault_body *body_out, const struct stk_fault_head *head,
                        bool request, bool to_head, struct stoker_error *error);
/* How many of these bytes are the body's; body->done where it ends there. Negative: bad chunks. */
int64_t stk_fault_body_consume(struct stk_fault_body *body, struct stk_view bytes,
                               struct stoker_error *error);

#endif
