/* programs/fault_proxy/fault_connection.h: the connection of a client, its exchanges and their
 * faults.
 *
 *   HEAD -head of a request-> WAIT (delay_ms) -> DRAIN (its body, if the proxy answers) -> ANSWER
 *     ^                                `-> FORWARD (in both directions)                     |
 *     `--------------------------- kept alive ---------------------------------------------'
 *                                    else -> STALL, RESET (after sent bytes arrived), LINGER (after
 *                                            the end, reads until the client closes), CLOSED
 *
 * stk_fault_connection_step does all that needs no waiting, and stores in the connection what to
 * wait for. Owner: the proxy. Threads: one. Memory: four buffers of STK_FAULT_BUFFER_BYTES,
 * allocated by open, and the text of a response. Bound: a deadline of idle_ms for every wait. */
#ifndef PROGRAMS_FAULT_PROXY_FAULT_CONNECTION_H
#define PROGRAMS_FAULT_PROXY_FAULT_CONNECTION_H

#include "programs/fault_proxy/fault_folder.h"
#include "programs/tls_server/tls_server.h"

#include <netinet/in.h>

#define STK_FAULT_BUFFER_BYTES STK_FAULT_HEAD_BYTES_MAX

enum stk_fault_connection_phase {
    STK_FAULT_CONNECTION_HEAD,
    STK_FAULT_CONNECTION_WAIT,
    STK_FAULT_CONNECTION_DRAIN,
    STK_FAULT_CONNECTION_FORWARD,
    STK_FAULT_CONNECTION_ANSWER,
    STK_FAULT_CONNECTION_STALL,
    STK_FAULT_CONNECTION_RESET,
    STK_FAULT_CONNECTION_LINGER,
    STK_FAULT_CONNECTION_CLOSED
};

/* Bytes in transit: [at, end) of data. */
struct stk_fault_buffer {
    uint8_t *data; /* owned */
    size_t at, end;
};

/* Settings and counters that all connections share. */
struct stk_fault_config {
    struct stk_fault_script script;
    struct sockaddr_storage to; /* the server to forward to; family 0: none */
    socklen_t to_bytes;
    int folder;                 /* the folder to serve; -1: none */
    struct stk_tls_server *tls; /* TLS for clients; NULL: plain HTTP */
    uint64_t idle_ms, start_ns, requests;
    /* Logs a finished exchange. */
    void (*log)(void *owner, json_t *line); /* takes ownership of line */
    void *owner;
};

/* The current exchange. */
struct stk_fault_exchange {
    struct stk_fault_rule *rule; /* owned by the script; NULL: none */
    struct stk_fault_body request_body, answer_body;
    struct stk_fault_answer answer;
    struct stk_fault_folder_body file;
    char method[16], path[4096], range[64];
    uint64_t number, start_ns, begun_ns; /* begun: the first byte of the response may be sent */
    uint64_t head_sent;                  /* bytes of the response's head */
    uint64_t made, sent;                 /* bytes of the response: into to_client, to the client */
    uint64_t limit;                      /* no byte from here on is sent */
    uint64_t up_bytes;                   /* of the request's head, as forwarded */
    uint64_t request_bytes;              /* bytes of the request's body */
    uint32_t status;
    bool to_head, has_head, expects, close, fresh, retried;
};

struct stk_fault_connection {
    struct stk_fault_config *config;
    int client, upstream;           /* -1: none */
    struct stk_tls_connection *tls; /* on the client's; NULL: none */
    uint64_t number;
    uint32_t phase; /* enum stk_fault_connection_phase */
    bool connecting, client_done, upstream_done, upstream_reusable;
    uint64_t deadline_ns, wake_ns;                    /* wake_ns 0: no timer */
    uint64_t last_ns, closing_ns;                     /* the last step; when the end began */
    struct stk_fault_buffer from_client, to_upstream; /* from the client; to upstream */
    struct stk_fault_buffer from_upstream, to_client; /* from upstream; to the client */
    struct stk_fault_exchange exchange;
};

/* Takes ownership of the client's descriptor, also on failure. Returns 0 on success, or a
 * negative errno. */
int stk_fault_connection_open(struct stk_fault_connection **connection_out,
                              struct stk_fault_config *config, int client, uint64_t number,
                              uint64_t now_ns);
void stk_fault_connection_close(
    struct stk_fault_connection *connection); /* takes ownership; NULL is allowed */
/* Does all that needs no waiting. */
void stk_fault_connection_step(struct stk_fault_connection *connection, uint64_t now_ns,
                               int64_t wall_seconds);
/* Sets the events (POLLIN, POLLOUT) that each descriptor waits for. */
void stk_fault_connection_events(const struct stk_fault_connection *connection, short *client_out,
                                 short *upstream_out);

#endif
