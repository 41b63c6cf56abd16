/* programs/fault_proxy/fault_transfer.h: what moves the bytes of a link: between its descriptors
 * and its buffers.
 *
 *   client -in-> up -> upstream            upstream -got-> out -> client
 *                                   our own answer -------/
 *
 * Owner: the link. Threads: one. Memory: the link's buffers. Bound: STK_FAULT_BUFFER_BYTES each. */
#ifndef PROGRAMS_FAULT_PROXY_FAULT_TRANSFER_H
#define PROGRAMS_FAULT_PROXY_FAULT_TRANSFER_H

#include "programs/fault_proxy/fault_connection.h"

#define STK_FAULT_TRANSFER_RETRY_MS 5u /* where only the clock tells */

/* What waits in a buffer; lent until it is changed. */
struct stk_view stk_fault_transfer_pending(const struct stk_fault_buffer *buffer);
/* How much more it takes. */
size_t stk_fault_transfer_space(struct stk_fault_buffer *buffer);
/* Below 0: nothing is there now, 0: the other end is done (or gone). tls: on that descriptor; NULL:
 * none. */
int64_t stk_fault_transfer_receive(int descriptor, struct stk_tls_connection *tls,
                                   struct stk_fault_buffer *buffer);

/* How many bytes the rule's rate has let pass by now. */
uint64_t stk_fault_transfer_allowed(const struct stk_fault_connection *connection, uint64_t now_ns);
/* Begins to connect: 0, or a negative errno. */
int stk_fault_transfer_connect(struct stk_fault_connection *connection);
void stk_fault_transfer_close(
    struct stk_fault_connection *connection); /* the connection to the server */
/* The exchange goes on with an answer of ours. */
void stk_fault_transfer_refuse(struct stk_fault_connection *connection, uint32_t status,
                               const char *code, const char *message);

/* Moves what can be moved; whether anything was. */
bool stk_fault_transfer_forward(struct stk_fault_connection *connection, int64_t wall_seconds);
bool stk_fault_transfer_answer(
    struct stk_fault_connection *connection); /* our own, behind the request's body */

#endif
