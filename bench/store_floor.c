/* What reading from a server costs without stoker: bytes to memory, or to a file, and no more, by
 * one thread.
 *
 * usage: store_floor recv|curl CONNECTIONS [CA_FILE] < LIST
 *        store_floor save CONNECTIONS FILE < LIST
 *
 *   LIST   a line each: URL, and maybe a range like 0-8388607
 *   recv   the system's calls alone (plain HTTP): requests by send, bodies by recv into their place
 *   save   recv, and pwrite of each piece while it is warm, to its range's place in FILE
 *   curl   libcurl's multi interface, bodies copied from its buffer to their place, as stoker does
 *
 * Each connection has one buffer of 8 MiB, touched before and used again: no fresh memory.
 * Prints JSON as bench/run_store.py wants it. */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define ROOM (8u << 20)
#define PIECE (256u << 10) /* that save receives and writes at once */
#define LINES_MAX 100000u

struct line {
    char *url, *range; /* range: NULL for all of it */
};

struct connection {
    uint8_t *buffer;
    uint64_t got, want; /* of the body; want UINT64_MAX: its head has not come */
    uint64_t at;        /* in the file: the range's first byte */
    CURL *easy;
    char head[4096];
    size_t head_bytes;
    int fd;
};

static struct line lines[LINES_MAX];
static size_t line_count, next_line, ended;
static uint64_t bytes;
static int out = -1; /* the file of save */

static void fail(const char *what)
{
    fprintf(stderr, "store_floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void read_lines(void)
{
    char *text = NULL;
    size_t room = 0;

    while (getline(&text, &room, stdin) > 0 && line_count < LINES_MAX) {
        char *space;

        text[strcspn(text, "\n")] = '\0';
        space = strchr(text, ' ');
        if (space) {
            *space++ = '\0';
        }
        lines[line_count++] = (struct line){strdup(text), space ? strdup(space) : NULL};
    }
    free(text);
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double cpu_seconds(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

/* ---- recv ---- */

static void send_next(struct connection *connection)
{
    const struct line *line = &lines[next_line++];
    const char *host = strstr(line->url, "://") + 3, *path = strchr(host, '/');
    char text[4096];
    int length = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %.*s\r\n%s%s%s\r\n", path,
                          (int)(path - host), host, line->range ? "Range: bytes=" : "",
                          line->range ? line->range : "", line->range ? "\r\n" : "");

    connection->head_bytes = connection->got = 0;
    connection->at = line->range ? strtoull(line->range, NULL, 10) : 0;
    connection->want = UINT64_MAX;
    if (send(connection->fd, text, (size_t)length, MSG_NOSIGNAL) != length) {
        fail("send");
    }
}

static void connect_one(struct connection *connection, int epoll)
{
    const char *host = strstr(lines[0].url, "://") + 3;
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    char name[64];
    int length = (int)strcspn(host, ":/");

    snprintf(name, sizeof name, "%.*s", length, host);
    address.sin_port =
        htons((uint16_t)(host[length] == ':' ? strtol(host + length + 1, NULL, 10) : 80));
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (inet_pton(AF_INET, name, &address.sin_addr) != 1 ||
        connect(connection->fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        fcntl(connection->fd, F_SETFL, O_NONBLOCK) < 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, connection->fd, &event) < 0) {
        fail("connect");
    }
}

/* save: writes the received bytes to the file. */
static void put(struct connection *connection, const uint8_t *data, size_t count)
{
    uint64_t at = connection->at + connection->got;

    if (out >= 0 && pwrite(out, data, count, (off_t)at) != (ssize_t)count) {
        fail("the file");
    }
}

/* Receives the head; moves the part of the body that arrived with it to its place. */
static void take_head(struct connection *connection)
{
    ssize_t got = recv(connection->fd, connection->head + connection->head_bytes,
                       sizeof connection->head - 1 - connection->head_bytes, 0);
    char *end, *length;

    if (got <= 0) {
        fail("an answer's head");
    }
    connection->head_bytes += (size_t)got;
    connection->head[connection->head_bytes] = '\0';
    end = strstr(connection->head, "\r\n\r\n");
    length = strcasestr(connection->head, "\ncontent-length:");
    if (!end || !length) {
        return;
    }
    connection->want = strtoull(length + 16, NULL, 10);
    connection->got = 0;
    if (strncmp(connection->head, "HTTP/1.1 20", 11) != 0 || connection->want > ROOM) {
        fail("a response without a request");
    }
    length = connection->head + connection->head_bytes;
    memcpy(connection->buffer, end + 4, (size_t)(length - end - 4));
    put(connection, connection->buffer, (size_t)(length - end - 4));
    connection->got = (uint64_t)(length - end - 4);
}

static void take(struct connection *connection)
{
    if (connection->want == UINT64_MAX) {
        take_head(connection);
    }
    while (connection->want != UINT64_MAX && connection->got < connection->want) {
        size_t left = connection->want - connection->got;
        uint8_t *place = connection->buffer + (out >= 0 ? 0 : connection->got);
        ssize_t got = recv(connection->fd, place, out >= 0 && left > PIECE ? PIECE : left, 0);

        if (got < 0 && errno == EAGAIN) {
            return;
        }
        if (got <= 0) {
            fail("a body");
        }
        put(connection, place, (size_t)got);
        connection->got += (uint64_t)got;
    }
    if (connection->got < connection->want) {
        return;
    }
    bytes += connection->got;
    ended++;
    if (next_line < line_count) {
        send_next(connection);
    }
}

static void run_recv(struct connection *connections, size_t count)
{
    int epoll = epoll_create1(0);
    struct epoll_event events[64];

    for (size_t i = 0; i < count && next_line < line_count; i++) {
        connect_one(&connections[i], epoll);
        send_next(&connections[i]);
    }
    while (ended < line_count) {
        int got = epoll_wait(epoll, events, 64, 10000);

        if (got <= 0) {
            fail("nothing comes");
        }
        for (int i = 0; i < got; i++) {
            take(events[i].data.ptr);
        }
    }
}

/* ---- libcurl ---- */

static size_t take_body(char *data, size_t size, size_t count, void *user)
{
    struct connection *connection = user;

    if (size * count > ROOM - connection->got) {
        return 0;
    }
    memcpy(connection->buffer + connection->got, data, size * count);
    connection->got += size * count;
    return size * count;
}

static void start(CURLM *multi, struct connection *connection, const char *ca_file)
{
    const struct line *line = &lines[next_line++];

    connection->got = 0;
    curl_easy_reset(connection->easy);
    curl_easy_setopt(connection->easy, CURLOPT_URL, line->url);
    curl_easy_setopt(connection->easy, CURLOPT_RANGE, line->range);
    curl_easy_setopt(connection->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(connection->easy, CURLOPT_BUFFERSIZE, line->range ? 256l << 10 : 97l << 10);
    curl_easy_setopt(connection->easy, CURLOPT_FAILONERROR, 1l);
    curl_easy_setopt(connection->easy, CURLOPT_NOSIGNAL, 1l);
    curl_easy_setopt(connection->easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(connection->easy, CURLOPT_WRITEDATA, connection);
    curl_easy_setopt(connection->easy, CURLOPT_PRIVATE, connection);
    if (ca_file) {
        curl_easy_setopt(connection->easy, CURLOPT_CAINFO, ca_file);
    }
    curl_multi_add_handle(multi, connection->easy);
}

static void run_curl(struct connection *connections, size_t count, const char *ca_file)
{
    CURLM *multi = curl_multi_init();
    int running, left;

    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)count);
    for (size_t i = 0; i < count && next_line < line_count; i++) {
        connections[i].easy = curl_easy_init();
        start(multi, &connections[i], ca_file);
    }
    while (ended < line_count) {
        CURLMsg *message;

        curl_multi_perform(multi, &running);
        while ((message = curl_multi_info_read(multi, &left))) {
            struct connection *connection = NULL;

            if (message->data.result != CURLE_OK) {
                fail(curl_easy_strerror(message->data.result));
            }
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)(void *)&connection);
            curl_multi_remove_handle(multi, connection->easy);
            bytes += connection->got;
            ended++;
            if (next_line < line_count) {
                start(multi, connection, ca_file);
            }
        }
        if (ended < line_count) {
            curl_multi_poll(multi, NULL, 0, 100, NULL);
        }
    }
}

int main(int count, char **words)
{
    size_t connection_count = count > 2 ? strtoul(words[2], NULL, 10) : 0;
    struct connection *connections = calloc(connection_count, sizeof *connections);
    double wall, cpu;

    if (connection_count == 0 || !connections) {
        fprintf(stderr, "usage: store_floor recv|curl CONNECTIONS [CA_FILE] < LIST\n"
                        "       store_floor save CONNECTIONS FILE < LIST\n");
        return 2;
    }
    if (strcmp(words[1], "save") == 0) {
        out = count > 3 ? open(words[3], O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
        if (out < 0) {
            fail("the file");
        }
    }
    read_lines();
    for (size_t i = 0; i < connection_count; i++) {
        connections[i].buffer = malloc(ROOM);
        if (!connections[i].buffer) {
            fail("buffers");
        }
        memset(connections[i].buffer, 1, ROOM);
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    wall = seconds();
    cpu = cpu_seconds();
    if (strcmp(words[1], "curl") != 0) {
        run_recv(connections, connection_count);
    } else {
        run_curl(connections, connection_count, count > 3 ? words[3] : NULL);
    }
    printf("{\"wall\": %.6f, \"samples\": %zu, \"bytes\": %llu, \"first\": null, \"cpu\": %.6f}\n",
           seconds() - wall, lines[0].range ? (size_t)0 : line_count, (unsigned long long)bytes,
           cpu_seconds() - cpu);
    return 0;
}
