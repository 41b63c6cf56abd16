#include "test/server.h"

#include "test/t.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 256

struct connection {
    void (*serve)(int fd);
    int fd;
};

/* *port: 0 any; set to the port. */
static int take_port(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)*port)};
    struct sockaddr *any = (struct sockaddr *)(void *)&address;
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) < 0 ||
        bind(fd, any, sizeof address) < 0 || getsockname(fd, any, &bytes) < 0) {
        t_skip("no socket on loopback can be had");
    }
    *port = ntohs(address.sin_port);
    return fd;
}

int t_listen(int backlog, int *port_out)
{
    int listener;

    *port_out = 0;
    listener = take_port(port_out);
    if (listen(listener, backlog) < 0) {
        t_skip("no socket on loopback can be had");
    }
    return listener;
}

static void *serve_one(void *context)
{
    struct connection connection = *(struct connection *)context;

    free(context);
    connection.serve(connection.fd);
    close(connection.fd);
    return NULL;
}

static void *take(void *context)
{
    const struct t_server *server = context;
    int fd;

    while ((fd = accept(server->listener, NULL, NULL)) >= 0) {
        struct connection *connection = malloc(sizeof *connection);
        pthread_t thread;

        *connection = (struct connection){server->serve, fd};
        if (pthread_create(&thread, NULL, serve_one, connection) == 0) {
            pthread_detach(thread);
        } else {
            close(fd);
            free(connection);
        }
    }
    return NULL;
}

void t_server_start(struct t_server *server, void (*serve)(int fd))
{
    server->serve = serve;
    server->listener = t_listen(BACKLOG, &server->port);
    pthread_create(&server->thread, NULL, take, server);
}

void t_server_stop(struct t_server *server)
{
    shutdown(server->listener, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->listener);
}

void t_server_pause(struct t_server *server)
{
    int port_socket = take_port(&server->port);

    t_server_stop(server);
    server->listener = port_socket;
}

void t_server_go_on(struct t_server *server)
{
    T_EQ("listen", listen(server->listener, BACKLOG), 0);
    pthread_create(&server->thread, NULL, take, server);
}

size_t t_read_request(int fd, char *buffer, size_t bytes, size_t *head_bytes_out)
{
    size_t used = 0;
    ssize_t got;

    while (used < bytes - 1 && (got = recv(fd, buffer + used, bytes - 1 - used, 0)) > 0) {
        const char *end, *length;
        size_t head_bytes;

        used += (size_t)got;
        buffer[used] = '\0';
        end = memmem(buffer, used, "\r\n\r\n", 4);
        if (!end) {
            continue;
        }
        head_bytes = (size_t)(end - buffer) + 4;
        length = strcasestr(buffer, "\nContent-Length: ");
        if (used < head_bytes + (length && length < end ? strtoul(length + 17, NULL, 10) : 0)) {
            continue;
        }
        if (head_bytes_out) {
            *head_bytes_out = head_bytes;
        }
        return used;
    }
    return 0;
}

bool t_send(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);

        if (sent <= 0) {
            return false;
        }
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}
