/* Moves bytes, and changes them as the fault defines. */
#include "programs/fault_proxy/fault_transfer.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS 1000000u      /* of nanoseconds */
#define OTHER_BYTES 0x5a /* XORed with a swapped body */

struct stk_view stk_fault_transfer_pending(const struct stk_fault_buffer *buffer)
{
    return (struct stk_view){buffer->data + buffer->at, buffer->end - buffer->at};
}

size_t stk_fault_transfer_space(struct stk_fault_buffer *buffer)
{
    if (buffer->at == buffer->end) {
        buffer->at = buffer->end = 0;
    } else if (buffer->at > 0 && buffer->end == STK_FAULT_BUFFER_BYTES) {
        memmove(buffer->data, buffer->data + buffer->at, buffer->end - buffer->at);
        buffer->end -= buffer->at;
        buffer->at = 0;
    }
    return STK_FAULT_BUFFER_BYTES - buffer->end;
}

int64_t stk_fault_transfer_receive(int descriptor, struct stk_tls_connection *tls,
                                   struct stk_fault_buffer *buffer)
{
    size_t space = stk_fault_transfer_space(buffer);
    uint8_t *data = buffer->data + buffer->end;
    ssize_t got;

    if (space == 0) {
        return -1;
    }
    got = tls ? stk_tls_connection_receive(tls, data, space) : recv(descriptor, data, space, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return -1;
    }
    if (got <= 0) {
        return 0;
    }
    buffer->end += (size_t)got;
    return got;
}

void stk_fault_transfer_close(struct stk_fault_connection *connection)
{
    if (connection->upstream >= 0) {
        close(connection->upstream);
    }
    connection->upstream = -1;
    connection->connecting = connection->upstream_done = connection->upstream_reusable = false;
    connection->from_upstream.at = connection->from_upstream.end = connection->to_upstream.at =
        connection->to_upstream.end = 0;
}

int stk_fault_transfer_connect(struct stk_fault_connection *connection)
{
    const struct stk_fault_config *config = connection->config;
    int on = 1;

    connection->upstream =
        socket(config->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection->upstream < 0) {
        return -errno;
    }
    setsockopt(connection->upstream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(connection->upstream, (const struct sockaddr *)&config->to, config->to_bytes) < 0 &&
        errno != EINPROGRESS) {
        return -errno;
    }
    connection->connecting = true;
    return 0;
}

void stk_fault_transfer_refuse(struct stk_fault_connection *connection, uint32_t status,
                               const char *code, const char *message)
{
    struct stk_fault_exchange *now = &connection->exchange;

    now->status = status;
    now->limit = UINT64_MAX;
    now->request_body.done = true; /* do not wait for the rest of it */
    connection->phase =
        stk_fault_answer_error(&now->answer, status, code, message, now->to_head) < 0
            ? STK_FAULT_CONNECTION_CLOSED
            : STK_FAULT_CONNECTION_ANSWER;
}

uint64_t stk_fault_transfer_allowed(const struct stk_fault_connection *connection, uint64_t now_ns)
{
    uint64_t rate = connection->exchange.rule->rate,
             passed_ms = (now_ns - connection->exchange.begun_ns) / MS;

    return rate * (passed_ms / 1000) + rate * (passed_ms % 1000) / 1000;
}

/* ---- both directions between client and server ---- */

/* Returns the number of body bytes that a slow reader accepts now. */
static size_t may_read(struct stk_fault_connection *connection)
{
    struct stk_fault_exchange *now = &connection->exchange;
    uint64_t allowed;

    if (!now->rule || now->rule->fault != STK_FAULT_SLOW_READ) {
        return SIZE_MAX;
    }
    allowed = stk_fault_transfer_allowed(connection, connection->last_ns);
    if (!now->request_body.done) {
        connection->wake_ns = connection->last_ns + STK_FAULT_TRANSFER_RETRY_MS * MS;
    }
    return allowed > now->request_bytes ? allowed - now->request_bytes : 0;
}

/* Forwards the body of the request, or drops it if the response is generated. */
static bool pump_request(struct stk_fault_connection *connection, bool away)
{
    struct stk_fault_exchange *now = &connection->exchange;
    struct stk_fault_body *body = &now->request_body;
    size_t space = stk_min(away ? SIZE_MAX : stk_fault_transfer_space(&connection->to_upstream),
                           may_read(connection));
    struct stk_view bytes = stk_fault_transfer_pending(&connection->from_client);
    int64_t taken;

    bytes.bytes = stk_min(bytes.bytes, space);
    if (body->done || bytes.bytes == 0) {
        if (!body->done && connection->client_done) {
            connection->phase = STK_FAULT_CONNECTION_CLOSED; /* it left in the middle */
        }
        return false;
    }
    taken = stk_fault_body_consume(body, bytes, NULL);
    if (taken < 0) {
        connection->phase = STK_FAULT_CONNECTION_CLOSED;
        return true;
    }
    if (!away) {
        memcpy(connection->to_upstream.data + connection->to_upstream.end, bytes.data,
               (size_t)taken);
        connection->to_upstream.end += (size_t)taken;
    }
    connection->from_client.at += (size_t)taken;
    now->request_bytes += (uint64_t)taken;
    return taken > 0;
}

static bool send_up(struct stk_fault_connection *connection)
{
    struct stk_view bytes = stk_fault_transfer_pending(&connection->to_upstream);
    ssize_t sent =
        bytes.bytes ? send(connection->upstream, bytes.data, bytes.bytes, MSG_NOSIGNAL) : 0;

    if (sent > 0) {
        connection->to_upstream.at += (size_t)sent;
        connection->connecting = false;
    } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        connection->to_upstream.at =
            connection->to_upstream.end; /* an answer may have arrived all the same */
        connection->upstream_done = connection->upstream_done || connection->connecting;
    }
    return sent > 0;
}

/* Forwards the head of the response once it is complete. */
static bool read_answer_head(struct stk_fault_connection *connection, int64_t wall_seconds)
{
    struct stk_fault_exchange *now = &connection->exchange;
    struct stk_fault_head head;
    struct stk_fault_text text = {0};
    int status = stk_fault_head_parse(&head, stk_fault_transfer_pending(&connection->from_upstream),
                                      false, NULL);
    bool interim = status == 1 && head.status < 200;

    if (status == 1) {
        status = stk_fault_body_init(&now->answer_body, &head, false, now->to_head, NULL);
        status = status < 0 ? status : 1;
    }
    if (status <= 0) {
        connection->upstream_done = connection->upstream_done || status < 0;
        return false;
    }
    stk_fault_edit_answer(&text, &head, interim ? NULL : now->rule, wall_seconds, &now->status);
    if (text.failed || text.bytes > stk_fault_transfer_space(&connection->to_client)) {
        connection->upstream_done = true;
    } else {
        memcpy(connection->to_client.data + connection->to_client.end, text.data, text.bytes);
        connection->to_client.end += text.bytes;
        now->made += text.bytes;
        now->head_sent = now->made;
        now->has_head = !interim;
        now->close = now->close || now->answer_body.framing == STK_FAULT_UNTIL_CLOSE ||
                     stk_fault_view_equals(stk_fault_header(&head, "connection"), "close");
        connection->from_upstream.at += head.bytes;
    }
    stk_fault_text_deinit(&text);
    return true;
}

/* Changes bytes of a body as the fault defines. */
static void change_body(struct stk_fault_exchange *now, uint8_t *bytes, size_t count)
{
    uint64_t begin = now->made - now->head_sent; /* of the body */
    uint64_t flip = now->rule && now->rule->at > 0 ? (uint64_t)now->rule->at : 0;

    if (!now->rule) {
        return;
    }
    if (now->rule->fault == STK_FAULT_FLIP && flip >= begin && flip - begin < count) {
        bytes[flip - begin] ^= 1;
    }
    if (now->rule->fault == STK_FAULT_SWAP && !now->rule->with) {
        for (size_t i = 0; i < count; i++) {
            bytes[i] ^= OTHER_BYTES;
        }
    }
}

static bool pump_answer(struct stk_fault_connection *connection)
{
    struct stk_fault_exchange *now = &connection->exchange;
    struct stk_view bytes = stk_fault_transfer_pending(&connection->from_upstream);
    int64_t taken;

    bytes.bytes = stk_min(bytes.bytes, stk_fault_transfer_space(&connection->to_client));
    if (now->answer_body.done || bytes.bytes == 0) {
        return false;
    }
    taken = stk_fault_body_consume(&now->answer_body, bytes, NULL);
    if (taken < 0) {
        connection->upstream_done = true;
        connection->from_upstream.at = connection->from_upstream.end;
        return true;
    }
    memcpy(connection->to_client.data + connection->to_client.end, bytes.data, (size_t)taken);
    change_body(now, connection->to_client.data + connection->to_client.end, (size_t)taken);
    connection->to_client.end += (size_t)taken;
    now->made += (uint64_t)taken;
    connection->from_upstream.at += (size_t)taken;
    return taken > 0;
}

/* Sends the request again if the server closed a reused connection before it read the
 * request. */
static bool retry_upstream(struct stk_fault_connection *connection)
{
    struct stk_fault_exchange *now = &connection->exchange;

    if (now->fresh || now->retried || now->made > 0 ||
        now->request_body.framing != STK_FAULT_EMPTY) {
        return false;
    }
    now->retried = now->fresh = true;
    stk_fault_transfer_close(connection);
    connection->to_upstream.end =
        now->up_bytes; /* the head is still in the buffer: a body would have overwritten it */
    return stk_fault_transfer_connect(connection) == 0;
}

static void upstream_ended(struct stk_fault_connection *connection)
{
    struct stk_fault_exchange *now = &connection->exchange;

    if (now->has_head && now->answer_body.framing == STK_FAULT_UNTIL_CLOSE) {
        now->answer_body.done = true;
    } else if (!retry_upstream(connection)) {
        stk_fault_transfer_close(connection);
        now->close = true;
        if (now->made == 0) {
            stk_fault_transfer_refuse(connection, 502, "BadGateway", "The server did not answer");
        } else {
            now->has_head = now->answer_body.done = true; /* short, as it was */
        }
    }
}

bool stk_fault_transfer_forward(struct stk_fault_connection *connection, int64_t wall_seconds)
{
    struct stk_fault_exchange *now = &connection->exchange;
    bool moved = pump_request(connection, false);
    int64_t got;

    if (connection->phase != STK_FAULT_CONNECTION_FORWARD || connection->upstream < 0) {
        return moved;
    }
    moved = send_up(connection) || moved;
    got = connection->upstream_done
              ? -1
              : stk_fault_transfer_receive(connection->upstream, NULL, &connection->from_upstream);
    connection->upstream_done = connection->upstream_done || got == 0;
    connection->connecting = connection->connecting && got < 0;
    moved = got > 0 || moved;
    if (!now->has_head) {
        moved = read_answer_head(connection, wall_seconds) || moved;
    }
    if (now->has_head) {
        moved = pump_answer(connection) || moved;
    }
    if (connection->upstream_done && !(now->has_head && now->answer_body.done) &&
        (!now->has_head || connection->from_upstream.at == connection->from_upstream.end)) {
        upstream_ended(connection);
        return true;
    }
    return moved;
}

/* Copies the generated response to to_client: text, then file, then repeated bytes. */
bool stk_fault_transfer_answer(struct stk_fault_connection *connection)
{
    struct stk_fault_exchange *now = &connection->exchange;
    struct stk_view text = {(const uint8_t *)now->answer.text.data, now->answer.text.bytes};
    size_t space, some;
    ssize_t got = 0;

    if (connection->phase == STK_FAULT_CONNECTION_DRAIN) {
        bool moved = pump_request(connection, true);
        if (now->request_body.done && connection->phase == STK_FAULT_CONNECTION_DRAIN) {
            connection->phase = STK_FAULT_CONNECTION_ANSWER;
            return true;
        }
        return moved;
    }
    now->has_head = true;
    now->head_sent = now->answer.head_bytes;
    space = stk_fault_transfer_space(&connection->to_client);
    if (space == 0) {
        return false;
    }
    if (now->made < text.bytes) {
        size_t end = now->made < now->head_sent ? now->head_sent : text.bytes;
        some = stk_min(space, end - now->made);
        memcpy(connection->to_client.data + connection->to_client.end, text.data + now->made, some);
        if (now->made >= now->head_sent) {
            change_body(now, connection->to_client.data + connection->to_client.end, some);
        }
    } else if (now->file.bytes > 0 && now->file.file >= 0) {
        some = stk_min(space, now->file.bytes);
        got = pread(now->file.file, connection->to_client.data + connection->to_client.end, some,
                    (off_t)now->file.offset);
        some = got > 0 ? (size_t)got : 0;
        change_body(now, connection->to_client.data + connection->to_client.end, some);
        now->file.offset += some;
        now->file.bytes = got > 0 ? now->file.bytes - some : 0; /* it was cut: so is the answer */
        now->close = now->close || got <= 0;
    } else if (now->answer.repeat.bytes > 0 && space >= now->answer.repeat.bytes) {
        some = now->answer.repeat.bytes;
        memcpy(connection->to_client.data + connection->to_client.end, now->answer.repeat.data,
               some);
    } else {
        now->answer_body.done = now->answer.repeat.bytes == 0;
        return false;
    }
    connection->to_client.end += some;
    now->made += some;
    return some > 0;
}
