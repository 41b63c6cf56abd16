/* programs/fault_proxy/fault_wire.h: parses HTTP/1.1 messages: heads, and the end of bodies. Pure.
 *
 *   bytes --stk_fault_head_parse--> head --stk_fault_body_init--> body --stk_fault_body_consume-->
 * its end
 *
 * Refuses messages whose end is ambiguous (RFC 9112): a length together with chunks, different
 * lengths, blanks before a colon, and folded lines.
 * Owner: values. Threads: any. Memory: none; heads point into the bytes that were parsed.
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

/* State of a body that is being forwarded. */
struct stk_fault_body {
    uint32_t framing;   /* enum stk_fault_framing */
    uint32_t state;     /* of chunks: internal */
    uint64_t remaining; /* of the length, or of the chunk */
    uint32_t digits;    /* of the chunk's size; bytes of the trailer */
    bool done;
};

/* Returns 1 and fills *head_out; 0 if more bytes are needed; a negative status if it is no
 * HTTP/1.1. */
int stk_fault_head_parse(struct stk_fault_head *head_out, struct stk_view bytes, bool request,
                         struct stoker_error *error);
/* Returns the value of a header (case-insensitive name); {NULL, 0} if there is none. */
struct stk_view stk_fault_header(const struct stk_fault_head *head, const char *name);
bool stk_fault_view_equals(struct stk_view view, const char *text); /* case-insensitive */
/* Parses a decimal integer. Returns false if the text is not an integer or the value is too
 * large. */
bool stk_fault_number(struct stk_view text, uint64_t *value_out);
/* Determines how the body after a head ends. to_head: the head responds to HEAD. Returns 0 on
 * success, or a negative status. */
int stk_fault_body_init(struct stk_fault_body *body_out, const struct stk_fault_head *head,
                        bool request, bool to_head, struct stoker_error *error);
/* Returns how many of the bytes belong to the body, and sets body->done at its end; a negative
 * status if chunks are invalid. */
int64_t stk_fault_body_consume(struct stk_fault_body *body, struct stk_view bytes,
                               struct stoker_error *error);

#endif
