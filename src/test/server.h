/* test/server.h: a server on loopback whose answers the test defines. Owner: the test. Threads: the
 * server's, one for each connection, and one that accepts them. Memory: none. Bound: as many
 * connections as the test makes. */
#ifndef TEST_SERVER_H
#define TEST_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct t_server {
    int listener, port;
    pthread_t thread;
    void (*serve)(int fd);
};

/* A socket that listens on a free port of 127.0.0.1; without one the test is skipped. */
int t_listen(int backlog, int *port_out);
/* serve: called with each connection, on a thread of its own; it is closed when that returns. */
void t_server_start(struct t_server *server, void (*serve)(int fd));
/* Takes no more connections. Those that are served end when their clients close them. */
void t_server_stop(struct t_server *server);
/* The port refuses connections until the server resumes, but stays its own. */
void t_server_pause(struct t_server *server);
void t_server_go_on(struct t_server *server);
/* Reads a request with its body, of Content-Length bytes, and appends a 0. Returns its bytes; 0:
 * the connection has ended, or the buffer is full. No second request may follow before the
 * answer. */
size_t t_read_request(int fd, char *buffer, size_t bytes, size_t *head_bytes_out);
bool t_send(int fd, const void *data, size_t bytes);

#endif
