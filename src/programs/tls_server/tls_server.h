/* programs/tls_server/tls_server.h: the server side of TLS on non-blocking sockets, with a
 * certificate.
 *
 *   stk_tls_server_open_self_signed, stk_tls_server_open_files -> server
 * --stk_tls_server_accept--> connection
 *
 * The first receive does the handshake. A connection does not close its socket; the program must
 * ignore SIGPIPE.
 * Owner: the caller; connections must be freed before their server. Threads: one. Memory: libssl's.
 * Bound: STK_TLS_SERVER_NAMES_MAX names; no call blocks. */
#ifndef PROGRAMS_TLS_SERVER_TLS_SERVER_H
#define PROGRAMS_TLS_SERVER_TLS_SERVER_H

#include "base/base.h"

#include <sys/types.h>

#define STK_TLS_SERVER_NAMES_MAX 16u

struct stk_tls_server;
struct stk_tls_connection;

/* Names in a self-signed certificate. */
struct stk_tls_server_names {
    const char *of[STK_TLS_SERVER_NAMES_MAX]; /* hosts or addresses; borrowed */
    size_t count;                             /* at least 1 */
};

/* Opens a server with a new key and a new self-signed certificate, valid for a day, starting an
 * hour ago. pem_path: file for the certificate, for clients to trust; NULL: none. Returns 0, or a
 * negative status. */
int stk_tls_server_open_self_signed(struct stk_tls_server **tls_out,
                                    const struct stk_tls_server_names *names, const char *pem_path,
                                    struct stoker_error *error);
/* Opens a server with two PEM files: the certificate chain, and its key without a passphrase.
 * Returns 0, or a negative status. */
int stk_tls_server_open_files(struct stk_tls_server **tls_out, const char *certificate_path,
                              const char *key_path, struct stoker_error *error);
void stk_tls_server_close(struct stk_tls_server *server); /* takes ownership; NULL is allowed */

/* Returns a connection on a non-blocking socket, which is borrowed; NULL if memory is exhausted. */
struct stk_tls_connection *stk_tls_server_accept(struct stk_tls_server *server, int descriptor);
void stk_tls_connection_free(
    struct stk_tls_connection *connection); /* takes ownership; sends nothing; NULL is allowed */

/* As recv and send: return the number of bytes; 0 (receive) if the client has closed; -1 and errno,
 * EAGAIN if the call would block. After EAGAIN, send the same bytes again, as many or more. */
ssize_t stk_tls_connection_receive(struct stk_tls_connection *connection, void *data, size_t bytes);
ssize_t stk_tls_connection_send(struct stk_tls_connection *connection, const void *data,
                                size_t bytes);
/* Returns the events (POLLIN, POLLOUT) to wait for before the next receive or send. */
short stk_tls_connection_events(const struct stk_tls_connection *connection, bool receives,
                                bool sends);
/* Returns true after the handshake. */
bool stk_tls_connection_is_open(const struct stk_tls_connection *connection);
/* Returns a description of the last error; "" if unknown. */
const char *stk_tls_connection_error(const struct stk_tls_connection *connection);
/* Sends close_notify, if the socket accepts it now: else the client sees a truncation. */
void stk_tls_connection_shutdown(struct stk_tls_connection *connection);

#endif
