/* programs/fault_proxy/fault_connection.h: one client's connection, the exchanges on it, and what
 * is done to them.
 *
 *   HEAD -a request's head came-> WAIT (delay_ms) -> DRAIN (its body, where we answer) -> ANSWER
 *     ^                                `-> FORWARD (both ways, as the answer comes)        |
 *     `--------------------------- kept alive ---------------------------------------------'
 *                                    else -> STALL, RESET (what was sent arrives first), LINGER
 *                                            (the end is told, what still comes is read), GONE
 *
 * stk_fault_connection_step does what can be done without waiting, and leaves in the link what to
 * wait for. Owner: the proxy. Threads: one. Memory: four buffers of STK_FAULT_BUFFER_BYTES, taken
 * in open, and an answer's text. Bound: a deadline of idle_ms for every wait. */
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

/* Bytes on their way: [at, end) of data. */
struct stk_fault_buffer {
    uint8_t *data; /* owned */
    size_t at, end;
};

/* What all links share. */
struct stk_fault_config {
    struct stk_fault_script script;
    struct sockaddr_storage to; /* where requests go on to; family 0: nowhere */
    socklen_t to_bytes;
    int folder;                 /* or this one is served; -1: none */
    struct stk_tls_server *tls; /* what clients speak; NULL: plain HTTP */
    uint64_t idle_ms, start_ns, requests;
    /* One line about an exchange that is over. */
    void (*log)(void *owner, json_t *line); /* takes the line */
    void *owner;
};

/* What is known of the exchange in hand. */
struct stk_fault_exchange {
    struct stk_fault_rule *rule; /* lent by the script; NULL: none */
    struct stk_fault_body request_body, answer_body;
    struct stk_fault_answer answer;
    struct stk_fault_folder_body file;
    char method[16], path[4096], range[64];
    uint64_t number, start_ns, begun_ns; /* begun: the answer's first byte may go */
    uint64_t head_sent;                  /* bytes of the answer's head */
    uint64_t made, sent;                 /* bytes of the answer: into `out`, to the client */
    uint64_t limit;                      /* no byte from here on is sent */
    uint64_t up_bytes;                   /* of the request's head, as it went on */
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
    bool connecting, client_done, upstream_done, upstream_kept;
    uint64_t deadline_ns, wake_ns; /* wake: 0: nothing to do by the clock alone */
    uint64_t last_ns, closing_ns;  /* the last step; when the end began */
    struct stk_fault_buffer from_client, to_upstream; /* from the client; to upstream */
    struct stk_fault_buffer from_upstream, to_client; /* from upstream; to the client */
    struct stk_fault_exchange exchange;
};

/* Takes the client's descriptor, also on failure. */
int stk_fault_connection_open(struct stk_fault_connection **link_out,
                              struct stk_fault_config *world, int client, uint64_t number,
                              uint64_t now_ns);
void stk_fault_connection_close(struct stk_fault_connection *connection); /* takes; NULL is fine */
/* What can be done now is done. */
void stk_fault_connection_step(struct stk_fault_connection *connection, uint64_t now_ns,
                               int64_t wall_seconds);
/* Which of POLLIN and POLLOUT each descriptor waits for. */
void stk_fault_connection_events(const struct stk_fault_connection *connection, short *client_out,
                                 short *upstream_out);

#endif
