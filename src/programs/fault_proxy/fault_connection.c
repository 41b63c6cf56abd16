/* State machine of a connection. Each function of a phase moves bytes and returns whether it moved
 * any; step repeats until nothing moves. */
#include "programs/fault_proxy/fault_connection.h"

#include "base/mem.h"
#include "programs/fault_proxy/fault_transfer.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS 1000000u     /* of nanoseconds */
#define LINGER_MS 1000u /* time for the client to read sent bytes */
#define TURNS_MAX 64u   /* of one step, so that no connection starves the others */

static bool run_turn(struct stk_fault_connection *connection, uint64_t now_ns,
                     int64_t wall_seconds);
static bool read_head(struct stk_fault_connection *connection, uint64_t now_ns);
static void choose(struct stk_fault_connection *connection, const struct stk_fault_head *head,
                   uint64_t now_ns);
static bool begin(struct stk_fault_connection *connection, uint64_t now_ns, int64_t wall_seconds);
static bool flush_out(struct stk_fault_connection *connection, uint64_t now_ns);
static bool end_reached(struct stk_fault_connection *connection, uint64_t now_ns);
static bool begin_close(struct stk_fault_connection *connection, uint64_t now_ns);
static void finish(struct stk_fault_connection *connection, uint64_t now_ns, const char *end);

static void reset_exchange(struct stk_fault_exchange *exchange)
{
    stk_fault_answer_deinit(&exchange->answer);
    if (exchange->file.file >= 0) {
        close(exchange->file.file);
    }
    *exchange = (struct stk_fault_exchange){.file = {.file = -1}};
}

int stk_fault_connection_open(struct stk_fault_connection **connection_out,
                              struct stk_fault_config *config, int client, uint64_t number,
                              uint64_t now_ns)
{
    struct stk_fault_connection *connection = stk_alloc(1, sizeof *connection);
    uint8_t *memory = connection ? stk_alloc(4, STK_FAULT_BUFFER_BYTES) : NULL;
    struct stk_tls_connection *tls =
        memory && config->tls ? stk_tls_server_accept(config->tls, client) : NULL;
    int on = 1;

    if (!memory || (config->tls && !tls)) {
        stk_free(memory);
        stk_free(connection);
        close(client);
        return -ENOMEM;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *connection = (struct stk_fault_connection){
        .config = config, .client = client, .upstream = -1, .tls = tls, .number = number};
    connection->from_client.data = memory;
    connection->to_upstream.data = memory + STK_FAULT_BUFFER_BYTES;
    connection->from_upstream.data = memory + 2 * STK_FAULT_BUFFER_BYTES;
    connection->to_client.data = memory + 3 * STK_FAULT_BUFFER_BYTES;
    connection->exchange.file.file = -1;
    connection->deadline_ns = now_ns + config->idle_ms * MS;
    *connection_out = connection;
    return 0;
}

void stk_fault_connection_close(struct stk_fault_connection *connection)
{
    if (!connection) {
        return;
    }
    finish(connection, connection->last_ns, "broken off");
    reset_exchange(&connection->exchange);
    stk_fault_transfer_close(connection);
    stk_tls_connection_free(connection->tls);
    if (connection->client >= 0) {
        close(connection->client);
    }
    stk_free(connection->from_client.data);
    stk_free(connection);
}

void stk_fault_connection_events(const struct stk_fault_connection *connection, short *client_out,
                                 short *upstream_out)
{
    bool forwards = connection->phase == STK_FAULT_CONNECTION_FORWARD;
    bool reads =
        connection->from_client.end - connection->from_client.at < STK_FAULT_BUFFER_BYTES &&
        !connection->client_done;
    bool writes = connection->to_client.at < connection->to_client.end &&
                  connection->exchange.sent < connection->exchange.limit &&
                  (forwards || connection->phase == STK_FAULT_CONNECTION_ANSWER) &&
                  connection->wake_ns == 0;

    *client_out = (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
    if (connection->tls) {
        *client_out |= stk_tls_connection_events(connection->tls, reads, writes);
    }
    *upstream_out = 0;
    if (connection->upstream >= 0) {
        bool takes =
            connection->from_upstream.end - connection->from_upstream.at < STK_FAULT_BUFFER_BYTES &&
            !connection->upstream_done;
        *upstream_out = (short)((takes ? POLLIN : 0) |
                                (connection->connecting ||
                                         connection->to_upstream.at < connection->to_upstream.end
                                     ? POLLOUT
                                     : 0));
    }
}

void stk_fault_connection_step(struct stk_fault_connection *connection, uint64_t now_ns,
                               int64_t wall_seconds)
{
    bool moved = true, ever = false;

    connection->wake_ns = 0;
    connection->last_ns = now_ns;
    for (unsigned i = 0; moved && i < TURNS_MAX && connection->phase != STK_FAULT_CONNECTION_CLOSED;
         i++) {
        moved = run_turn(connection, now_ns, wall_seconds);
        ever = ever || moved;
    }
    if (moved && connection->phase != STK_FAULT_CONNECTION_CLOSED) {
        connection->wake_ns = now_ns; /* continue at once, after the other connections */
    }
    if (ever) {
        connection->deadline_ns = now_ns + connection->config->idle_ms * MS;
    } else if (now_ns >= connection->deadline_ns &&
               connection->phase != STK_FAULT_CONNECTION_CLOSED) {
        finish(connection, now_ns, "idle too long");
        connection->phase = STK_FAULT_CONNECTION_CLOSED;
    }
}

/* ---- one turn ---- */

/* A client that does not trust the certificate, or uses no TLS, sends no request: log the reason.
 */
static void log_handshake(struct stk_fault_connection *connection)
{
    const char *reason = stk_tls_connection_error(connection->tls);
    json_t *line = json_pack("{s:I, s:s, s:s}", "connection", (json_int_t)connection->number, "end",
                             "no TLS", "reason", reason[0] ? reason : "the client left");

    if (line) {
        connection->config->log(connection->config->owner, line);
    }
}

/* Reads from the client in every phase, to notice when it closes. */
static bool read_client(struct stk_fault_connection *connection)
{
    int64_t got = connection->client_done
                      ? -1
                      : stk_fault_transfer_receive(connection->client, connection->tls,
                                                   &connection->from_client);

    if (got == 0) {
        connection->client_done = true;
        if (connection->tls && !stk_tls_connection_is_open(connection->tls)) {
            log_handshake(connection);
        }
    }
    return got >= 0;
}

static bool run_turn(struct stk_fault_connection *connection, uint64_t now_ns, int64_t wall_seconds)
{
    bool moved = read_client(connection);

    switch ((enum stk_fault_connection_phase)connection->phase) {
    case STK_FAULT_CONNECTION_HEAD:
        return read_head(connection, now_ns) || moved;
    case STK_FAULT_CONNECTION_WAIT:
        return begin(connection, now_ns, wall_seconds) || moved;
    case STK_FAULT_CONNECTION_DRAIN:
    case STK_FAULT_CONNECTION_ANSWER:
        moved = stk_fault_transfer_answer(connection) || moved;
        return flush_out(connection, now_ns) || end_reached(connection, now_ns) || moved;
    case STK_FAULT_CONNECTION_FORWARD:
        moved = stk_fault_transfer_forward(connection, wall_seconds) || moved;
        return flush_out(connection, now_ns) || end_reached(connection, now_ns) || moved;
    case STK_FAULT_CONNECTION_STALL:
    case STK_FAULT_CONNECTION_RESET:
    case STK_FAULT_CONNECTION_LINGER:
        return begin_close(connection, now_ns) || moved;
    case STK_FAULT_CONNECTION_CLOSED:
        break;
    }
    return false;
}

static bool read_head(struct stk_fault_connection *connection, uint64_t now_ns)
{
    struct stk_fault_head head;
    int status;

    if (connection->upstream >= 0 &&
        stk_fault_transfer_receive(connection->upstream, NULL, &connection->from_upstream) >= 0) {
        stk_fault_transfer_close(connection); /* it closed, or sent unrequested bytes */
    }
    status = stk_fault_head_parse(&head, stk_fault_transfer_pending(&connection->from_client), true,
                                  NULL);
    if (status == 1) {
        status = stk_fault_body_init(&connection->exchange.request_body, &head, true, false, NULL);
        status = status < 0 ? status : 1;
    }
    if (status == 1) {
        choose(connection, &head, now_ns);
        return true;
    }
    if (status < 0) {
        connection->exchange.number = ++connection->config->requests;
        connection->exchange.start_ns = now_ns;
        connection->exchange.close = true;
        stk_fault_transfer_refuse(connection, 400, "BadRequest", "This is no HTTP/1.1 request");
        return true;
    }
    if (connection->client_done) {
        connection->phase = STK_FAULT_CONNECTION_CLOSED;
    }
    return false;
}

/* Copies a view for the log: printable ASCII, cut. */
static void printable(char *out, size_t out_bytes, struct stk_view text)
{
    size_t used = 0;

    for (size_t i = 0; i < text.bytes && used + 4 < out_bytes; i++) {
        bool plain = text.data[i] > ' ' && text.data[i] < 127;
        used +=
            (size_t)snprintf(out + used, out_bytes - used, plain ? "%c" : "%%%02X", text.data[i]);
    }
    out[used] = 0;
}

static void choose(struct stk_fault_connection *connection, const struct stk_fault_head *head,
                   uint64_t now_ns)
{
    struct stk_fault_exchange *now = &connection->exchange;
    const uint8_t *mark = memchr(head->target.data, '?', head->target.bytes);
    size_t path_bytes = mark ? (size_t)(mark - head->target.data) : head->target.bytes;
    struct stk_view range = stk_fault_header(head, "range");
    char query[4096];
    struct stk_fault_request request = {.method = now->method,
                                        .path = now->path,
                                        .query = query,
                                        .range = range.bytes > 0,
                                        .now_ms = (now_ns - connection->config->start_ns) / MS};

    printable(now->method, sizeof now->method, head->method);
    printable(query, sizeof query,
              (struct stk_view){head->target.data + path_bytes + (mark != NULL),
                                head->target.bytes - path_bytes - (mark != NULL)});
    printable(now->path, sizeof now->path, (struct stk_view){head->target.data, path_bytes});
    printable(now->range, sizeof now->range, range);
    now->to_head = strcmp(now->method, "HEAD") == 0;
    now->expects = stk_fault_header(head, "expect").bytes > 0;
    now->close =
        head->minor == 0 || stk_fault_view_equals(stk_fault_header(head, "connection"), "close");
    now->number = ++connection->config->requests;
    now->start_ns = now_ns;
    now->limit = UINT64_MAX;
    now->rule = stk_fault_script_choose(&connection->config->script, &request);
    connection->phase = STK_FAULT_CONNECTION_WAIT;
}

/* ---- handling of a request ---- */

/* Forwards the request: the head now, the body as it arrives. */
static void next_exchange(struct stk_fault_connection *connection,
                          const struct stk_fault_head *head)
{
    struct stk_fault_exchange *now = &connection->exchange;
    struct stk_fault_text text = {0};

    stk_fault_edit_request(&text, head, now->rule);
    if (text.failed || text.bytes > STK_FAULT_BUFFER_BYTES) {
        now->close = true;
        stk_fault_transfer_refuse(connection, 500, "InternalError",
                                  "The proxy has no room for this head");
    } else if (connection->upstream < 0 && stk_fault_transfer_connect(connection) < 0) {
        stk_fault_transfer_close(connection);
        now->close = true;
        stk_fault_transfer_refuse(connection, 502, "BadGateway", "The server does not answer");
    } else {
        memcpy(connection->to_upstream.data, text.data, text.bytes);
        connection->to_upstream.at = 0;
        connection->to_upstream.end = now->up_bytes = text.bytes;
        now->fresh = !connection->upstream_reusable;
        connection->phase = STK_FAULT_CONNECTION_FORWARD;
    }
    stk_fault_text_deinit(&text);
}

static int answer_here(struct stk_fault_connection *connection, const struct stk_fault_head *head,
                       const struct stk_fault_request *request, int64_t wall_seconds)
{
    struct stk_fault_exchange *now = &connection->exchange;

    if (now->rule && stk_fault_is_answer(now->rule->fault)) {
        return stk_fault_answer_make(&now->answer, now->rule, request, now->to_head, wall_seconds);
    }
    if (connection->config->folder >= 0) {
        /* The folder gets the request that a server would get: without a range, or of another path.
         */
        bool no_range = now->rule && now->rule->fault == STK_FAULT_NO_RANGE;
        bool swap = now->rule && now->rule->fault == STK_FAULT_SWAP && now->rule->with;
        struct stk_fault_request other = *request;
        struct stk_fault_head *copy = stk_alloc(1, sizeof *copy);
        int status = -ENOMEM;

        other.path = swap ? now->rule->with : request->path;
        if (copy) {
            *copy = *head;
            for (size_t i = 0; i < copy->header_count; i++) {
                struct stk_fault_header *header = &copy->headers[i];

                if ((no_range && stk_fault_view_equals(header->name, "range")) ||
                    (swap && stk_fault_is_condition(header->name))) {
                    header->value.bytes = 0;
                }
            }
            status = stk_fault_folder_answer(&now->answer, &now->file, connection->config->folder,
                                             copy, &other);
        }
        stk_free(copy);
        return status;
    }
    return stk_fault_answer_error(&now->answer, 404, "NoSuchKey", "No rule, and no server behind",
                                  now->to_head);
}

/* Edits the head of a folder's response like a server's. */
static void edit_own(struct stk_fault_connection *connection, int64_t wall_seconds)
{
    struct stk_fault_exchange *now = &connection->exchange;
    struct stk_fault_answer *answer = &now->answer;
    struct stk_fault_text text = {0};
    struct stk_fault_head *head = stk_alloc(1, sizeof *head);

    if (head && stk_fault_head_parse(
                    head, (struct stk_view){(uint8_t *)answer->text.data, answer->head_bytes},
                    false, NULL) == 1) {
        stk_fault_edit_answer(&text, head, now->rule, wall_seconds, &answer->status);
        size_t head_bytes = text.bytes;
        stk_fault_text_bytes(&text, answer->text.data + answer->head_bytes,
                             answer->text.bytes - answer->head_bytes);
        if (!text.failed) {
            stk_fault_text_deinit(&answer->text);
            answer->text = text;
            answer->head_bytes = head_bytes;
            text = (struct stk_fault_text){0};
        }
    }
    stk_fault_text_deinit(&text);
    stk_free(head);
}

static void begin_answer(struct stk_fault_connection *connection, const struct stk_fault_head *head,
                         const char *query, int64_t wall_seconds)
{
    struct stk_fault_exchange *now = &connection->exchange;
    struct stk_fault_request request = {
        .method = now->method, .path = now->path, .query = query, .range = now->range[0] != 0};
    bool edits =
        connection->config->folder >= 0 && !(now->rule && stk_fault_is_answer(now->rule->fault));

    if (answer_here(connection, head, &request, wall_seconds) < 0) {
        connection->phase = STK_FAULT_CONNECTION_CLOSED;
        return;
    }
    if (edits && now->rule) {
        edit_own(connection, wall_seconds);
    }
    now->status = now->answer.status;
    now->close = now->close || now->answer.close;
    connection->phase = STK_FAULT_CONNECTION_DRAIN;
    if (now->expects && !now->request_body.done) {
        now->close = now->request_body.done =
            true; /* the client waits for 100 Continue before its body */
    }
}

/* After the delay: forwards, or generates the response. */
static bool begin(struct stk_fault_connection *connection, uint64_t now_ns, int64_t wall_seconds)
{
    struct stk_fault_exchange *now = &connection->exchange;
    uint32_t fault = now->rule ? now->rule->fault : STK_FAULT_PASS;
    bool ends = fault == STK_FAULT_RESET || fault == STK_FAULT_STALL || fault == STK_FAULT_TRUNCATE;
    uint64_t due_ns = now->start_ns + (now->rule ? now->rule->delay_ms * MS : 0);
    struct stk_fault_head head;
    char query[4096] = "";
    const uint8_t *mark;

    if (now_ns < due_ns) {
        connection->wake_ns = due_ns;
        return false;
    }
    stk_fault_head_parse(&head, stk_fault_transfer_pending(&connection->from_client), true,
                         NULL); /* as it did before */
    now->begun_ns = now_ns;
    if (ends && now->rule->at == STK_FAULT_BEFORE) {
        now->limit = 0;
        end_reached(connection, now_ns);
        return true;
    }
    mark = memchr(head.target.data, '?', head.target.bytes);
    if (connection->config->to_bytes && !stk_fault_is_answer(fault)) {
        next_exchange(connection, &head);
    } else {
        if (mark) {
            printable(query, sizeof query,
                      (struct stk_view){mark + 1,
                                        head.target.bytes - (size_t)(mark + 1 - head.target.data)});
        }
        begin_answer(connection, &head, query, wall_seconds);
    }
    connection->from_client.at += head.bytes;
    return true;
}

/* ---- to the client, limited by the fault ---- */

static bool flush_out(struct stk_fault_connection *connection, uint64_t now_ns)
{
    struct stk_fault_exchange *now = &connection->exchange;
    struct stk_view bytes = stk_fault_transfer_pending(&connection->to_client);
    const struct stk_fault_rule *rule = now->rule;
    ssize_t sent;

    if (rule && now->has_head && rule->at != STK_FAULT_BEFORE && now->limit == UINT64_MAX &&
        (rule->fault == STK_FAULT_RESET || rule->fault == STK_FAULT_STALL ||
         rule->fault == STK_FAULT_TRUNCATE)) {
        now->limit = rule->at < 0 ? now->sent : now->head_sent + (uint64_t)rule->at;
    }
    bytes.bytes = stk_min(bytes.bytes, now->limit - now->sent);
    if (rule && rule->rate && rule->fault != STK_FAULT_SLOW_READ) {
        uint64_t allowed = stk_fault_transfer_allowed(connection, now_ns);
        if (rule->fault == STK_FAULT_SLOW && rule->at >= 0 && now->has_head) {
            allowed += now->head_sent + (uint64_t)rule->at;
        }
        bytes.bytes = stk_min(bytes.bytes, allowed > now->sent ? allowed - now->sent : 0);
        if (bytes.bytes == 0 && connection->to_client.at < connection->to_client.end &&
            now->sent < now->limit) {
            connection->wake_ns = now_ns + STK_FAULT_TRANSFER_RETRY_MS * MS;
        }
    }
    if (bytes.bytes == 0) {
        return false;
    }
    sent = connection->tls ? stk_tls_connection_send(connection->tls, bytes.data, bytes.bytes)
                           : send(connection->client, bytes.data, bytes.bytes, MSG_NOSIGNAL);
    if (sent > 0) {
        connection->to_client.at += (size_t)sent;
        now->sent += (uint64_t)sent;
    } else if (errno != EAGAIN && errno != EINTR) {
        finish(connection, now_ns, "client left");
        connection->phase = STK_FAULT_CONNECTION_CLOSED;
    }
    return sent > 0;
}

/* The limit of the fault, or the end of the answer. */
static bool end_reached(struct stk_fault_connection *connection, uint64_t now_ns)
{
    struct stk_fault_exchange *now = &connection->exchange;
    uint32_t fault = now->rule ? now->rule->fault : STK_FAULT_PASS;
    bool close_now;

    if (connection->phase == STK_FAULT_CONNECTION_CLOSED) {
        return false;
    }
    if (now->sent >= now->limit) {
        connection->closing_ns = now_ns;
        connection->phase = fault == STK_FAULT_STALL   ? STK_FAULT_CONNECTION_STALL
                            : fault == STK_FAULT_RESET ? STK_FAULT_CONNECTION_RESET
                                                       : STK_FAULT_CONNECTION_LINGER;
        if (fault == STK_FAULT_TRUNCATE) {
            finish(connection, now_ns, "truncated");
            shutdown(connection->client, SHUT_WR);
        }
        return true;
    }
    if (!now->has_head || !now->answer_body.done ||
        connection->to_client.at < connection->to_client.end ||
        (connection->phase == STK_FAULT_CONNECTION_FORWARD && !now->request_body.done &&
         !now->close)) {
        return false;
    }
    close_now = now->close || fault == STK_FAULT_CLOSE || connection->client_done;
    connection->upstream_reusable = connection->upstream >= 0 && !now->close;
    if (!connection->upstream_reusable) {
        stk_fault_transfer_close(connection);
    }
    finish(connection, now_ns, "done");
    connection->phase = close_now ? STK_FAULT_CONNECTION_LINGER : STK_FAULT_CONNECTION_HEAD;
    connection->closing_ns = now_ns;
    if (close_now) {
        if (connection->tls) {
            stk_tls_connection_shutdown(connection->tls);
        }
        shutdown(connection->client, SHUT_WR);
    }
    return true;
}

/* Sends nothing until the client closes or the rule's time is over. */
static bool stall(struct stk_fault_connection *connection, uint64_t now_ns)
{
    struct stk_fault_exchange *now = &connection->exchange;
    uint64_t end_ns = now->rule->ms ? connection->closing_ns + now->rule->ms * MS : UINT64_MAX;

    if (now_ns >= end_ns && now->rule->at != STK_FAULT_BEFORE) {
        now->limit = UINT64_MAX - 1; /* none, and not the mark that one is to be set */
        connection->phase =
            now->answer.text.bytes ? STK_FAULT_CONNECTION_ANSWER : STK_FAULT_CONNECTION_FORWARD;
        return true;
    }
    if (connection->client_done || now_ns >= end_ns) { /* there was no request to a server */
        finish(connection, now_ns,
               connection->client_done ? "stalled until the client left" : "stalled");
        connection->phase = STK_FAULT_CONNECTION_CLOSED;
    }
    connection->wake_ns = now->rule && end_ns != UINT64_MAX ? end_ns : 0;
    return false;
}

/* Phases before the connection ends. */
static bool begin_close(struct stk_fault_connection *connection, uint64_t now_ns)
{
    uint64_t end_ns = connection->closing_ns + LINGER_MS * MS;
    struct linger hard = {.l_onoff = 1};
    int unsent = 0;

    connection->from_client.at =
        connection->from_client.end; /* read and discarded: closing earlier would reset */
    if (connection->phase == STK_FAULT_CONNECTION_STALL) {
        return stall(connection, now_ns);
    }
    connection->wake_ns = end_ns;
    if (connection->phase == STK_FAULT_CONNECTION_RESET) {
        if (ioctl(connection->client, SIOCOUTQ, &unsent) == 0 && unsent > 0 && now_ns < end_ns) {
            connection->wake_ns = now_ns + STK_FAULT_TRANSFER_RETRY_MS * MS;
            return false;
        }
        setsockopt(connection->client, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        finish(connection, now_ns, "reset");
        connection->phase = STK_FAULT_CONNECTION_CLOSED;
    } else if (connection->client_done || now_ns >= end_ns) {
        connection->phase = STK_FAULT_CONNECTION_CLOSED;
    }
    return false;
}

/* Logs the exchange, and resets it. */
static void finish(struct stk_fault_connection *connection, uint64_t now_ns, const char *end)
{
    struct stk_fault_exchange *now = &connection->exchange;
    uint64_t body = now->sent > now->head_sent ? now->sent - now->head_sent : 0;
    json_t *line;

    if (now->start_ns == 0) {
        return; /* there was none */
    }
    line = json_pack("{s:I, s:I, s:f, s:s, s:s, s:s*, s:s*, s:s*, s:i, s:I, s:s}", "request",
                     (json_int_t)now->number, "connection", (json_int_t)connection->number, "ms",
                     (double)(now_ns - now->start_ns) / MS, "method", now->method, "path",
                     now->path, "range", now->range[0] ? now->range : NULL, "fault",
                     now->rule ? stk_fault_name(now->rule->fault, NULL) : NULL, "rule",
                     now->rule ? now->rule->name : NULL, "status", (int)now->status, "body_bytes",
                     (json_int_t)body, "end", end);
    if (line) {
        connection->config->log(connection->config->owner, line);
    }
    reset_exchange(now);
}
