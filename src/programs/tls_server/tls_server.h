/* programs/tls_server/tls_server.h: a server's side of TLS on sockets that do not wait, and a
 * certificate for it.
 *
 *   stk_tls_server_open_self_signed, stk_tls_server_open_files -> a server
 * --stk_tls_server_accept--> an end for each connection
 *
 * The handshake is done by whoever receives first. An end neither closes its socket nor resets it;
 * SIGPIPE is ignored by whoever has one.
 * Owner: whoever opened it; an end goes before its server. Threads: one. Memory: libssl's.
 * Bound: STK_TLS_SERVER_NAMES_MAX names; no call waits. */
#ifndef PROGRAMS_TLS_SERVER_TLS_SERVER_H
#define PROGRAMS_TLS_SERVER_TLS_SERVER_H

#include "base/base.h"

#include <sys/types.h>

#define STK_TLS_SERVER_NAMES_MAX 16u

struct stk_tls_server;
struct stk_tls_connection;

/* What a certificate of our own is for. */
struct stk_tls_server_names {
    const char *of[STK_TLS_SERVER_NAMES_MAX]; /* hosts or addresses; lent */
    size_t count;                             /* 1 at least */
};

/* With a key and a certificate made now, signed by itself, for a day from an hour ago. pem_path:
 * the file that the certificate is written to, for clients to trust; NULL: none. */
int stk_tls_server_open_self_signed(struct stk_tls_server **tls_out,
                                    const struct stk_tls_server_names *names, const char *pem_path,
                                    struct stoker_error *error);
/* With those of two PEM files: the certificate and those that lead to its authority, and its key,
 * without a passphrase. */
int stk_tls_server_open_files(struct stk_tls_server **tls_out, const char *certificate_path,
                              const char *key_path, struct stoker_error *error);
void stk_tls_server_close(struct stk_tls_server *server); /* takes; NULL is fine */

/* The socket does not wait; lent. NULL: no memory. */
struct stk_tls_connection *stk_tls_server_accept(struct stk_tls_server *server, int descriptor);
void stk_tls_connection_free(
    struct stk_tls_connection *connection); /* takes; tells the client nothing; NULL is fine */

/* As recv and send: bytes moved, 0 (receive): the client is done, -1 with errno: EAGAIN where it
 * is to be waited for. Bytes that got EAGAIN come again, as many or more, from any address. */
ssize_t stk_tls_connection_receive(struct stk_tls_connection *connection, void *data, size_t bytes);
ssize_t stk_tls_connection_send(struct stk_tls_connection *connection, const void *data,
                                size_t bytes);
/* Which of POLLIN and POLLOUT an end waits for whose last receive, or send, got EAGAIN and who
 * would do that again. */
short stk_tls_connection_events(const struct stk_tls_connection *connection, bool receives,
                                bool sends);
/* The handshake is over. */
bool stk_tls_connection_is_open(const struct stk_tls_connection *connection);
/* Why a call last failed, for people; "" if it is not known. */
const char *stk_tls_connection_error(const struct stk_tls_connection *connection);
/* Says that no more comes, if the socket takes that now: without it an end is one by violence. */
void stk_tls_connection_shutdown(struct stk_tls_connection *connection);

#endif
