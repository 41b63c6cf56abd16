/* programs/fault_proxy/fault_transfer.h: moves bytes between the descriptors and the buffers of a
 * connection.
 *
 *   client -> from_client -> to_upstream -> server -> from_upstream -> to_client -> client
 *                                     generated response ---------------/
 *
 * Owner: the connection. Threads: one. Memory: its buffers. Bound: STK_FAULT_BUFFER_BYTES each. */
#ifndef PROGRAMS_FAULT_PROXY_FAULT_TRANSFER_H
#define PROGRAMS_FAULT_PROXY_FAULT_TRANSFER_H

#include "programs/fault_proxy/fault_connection.h"

#define STK_FAULT_TRANSFER_RETRY_MS 5u /* if no descriptor signals progress */

/* Returns the pending bytes of a buffer, valid until it changes. */
struct stk_view stk_fault_transfer_pending(const struct stk_fault_buffer *buffer);
/* Returns the free space of a buffer. */
size_t stk_fault_transfer_space(struct stk_fault_buffer *buffer);
/* Returns the number of bytes received; 0 if the other end has closed; negative if there are none
 * now. tls: of that descriptor; NULL: none. */
int64_t stk_fault_transfer_receive(int descriptor, struct stk_tls_connection *tls,
                                   struct stk_fault_buffer *buffer);

/* Returns the number of bytes that the rule's rate allows until now. */
uint64_t stk_fault_transfer_allowed(const struct stk_fault_connection *connection, uint64_t now_ns);
/* Starts to connect. Returns 0 on success, or a negative errno. */
int stk_fault_transfer_connect(struct stk_fault_connection *connection);
void stk_fault_transfer_close(
    struct stk_fault_connection *connection); /* closes the connection to the server */
/* Continues the exchange with a generated error response. */
void stk_fault_transfer_refuse(struct stk_fault_connection *connection, uint32_t status,
                               const char *code, const char *message);

/* Moves bytes without waiting. Returns true if any were moved. */
bool stk_fault_transfer_forward(struct stk_fault_connection *connection, int64_t wall_seconds);
bool stk_fault_transfer_answer(
    struct stk_fault_connection *connection); /* the generated response, after the request's body */

#endif
