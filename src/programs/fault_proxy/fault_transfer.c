/* Bytes on their way, changed as the fault wants them. */
#include "programs/fault_proxy/fault_transfer.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS 1000000u      /* of nanoseconds */
#define OTHER_BYTES 0x5a /* what a swapped body is mixed with */

struct stk_view stk_pump_waiting(const struct stk_link_buffer *buffer)
{
    return (struct stk_view){buffer->data + buffer->at, buffer->end - buffer->at};
}

size_t stk_pump_room(struct stk_link_buffer *buffer)
{
    if (buffer->at == buffer->end) {
        buffer->at = buffer->end = 0;
    } else if (buffer->at > 0 && buffer->end == STK_LINK_BUFFER_BYTES) {
        memmove(buffer->data, buffer->data + buffer->at, buffer->end - buffer->at);
        buffer->end -= buffer->at;
        buffer->at = 0;
    }
    return STK_LINK_BUFFER_BYTES - buffer->end;
}

int64_t stk_pump_receive(int descriptor, struct stk_tls_end *tls, struct stk_link_buffer *buffer)
{
    size_t space = stk_pump_room(buffer);
    uint8_t *data = buffer->data + buffer->end;
    ssize_t got;

    if (space == 0) {
        return -1;
    }
    got = tls ? stk_tls_receive(tls, data, space) : recv(descriptor, data, space, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return -1;
    }
    if (got <= 0) {
        return 0;
    }
    buffer->end += (size_t)got;
    return got;
}

void stk_pump_close(struct stk_link *link)
{
    if (link->upstream >= 0) {
        close(link->upstream);
    }
    link->upstream = -1;
    link->connecting = link->upstream_done = link->upstream_kept = false;
    link->got.at = link->got.end = link->up.at = link->up.end = 0;
}

int stk_pump_connect(struct stk_link *link)
{
    const struct stk_link_world *world = link->world;
    int on = 1;

    link->upstream = socket(world->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->upstream < 0) {
        return -errno;
    }
    setsockopt(link->upstream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(link->upstream, (const struct sockaddr *)&world->to, world->to_bytes) < 0 &&
        errno != EINPROGRESS) {
        return -errno;
    }
    link->connecting = true;
    return 0;
}

void stk_pump_refuse(struct stk_link *link, uint32_t status, const char *code, const char *message)
{
    struct stk_link_exchange *now = &link->now;

    now->status = status;
    now->limit = UINT64_MAX;
    now->request_body.done = true; /* what is left of it is not waited for */
    link->phase = stk_fault_answer_error(&now->answer, status, code, message, now->to_head) < 0
                      ? STK_LINK_GONE
                      : STK_LINK_ANSWER;
}

uint64_t stk_pump_allowed(const struct stk_link *link, uint64_t now_ns)
{
    uint64_t rate = link->now.rule->rate, passed_ms = (now_ns - link->now.begun_ns) / MS;

    return rate * (passed_ms / 1000) + rate * (passed_ms % 1000) / 1000;
}

/* ---- both ways between client and server ---- */

/* How many bytes of the request's body a reader that crawls takes now. */
static size_t reads(struct stk_link *link)
{
    struct stk_link_exchange *now = &link->now;
    uint64_t allowed;

    if (!now->rule || now->rule->fault != STK_FAULT_SLOW_READ) {
        return SIZE_MAX;
    }
    allowed = stk_pump_allowed(link, link->last_ns);
    if (!now->request_body.done) {
        link->wake_ns = link->last_ns + STK_PUMP_AGAIN_MS * MS;
    }
    return allowed > now->eaten ? allowed - now->eaten : 0;
}

/* Body bytes of the request: on, or (where we answer) away. */
static bool pump_request(struct stk_link *link, bool away)
{
    struct stk_link_exchange *now = &link->now;
    struct stk_fault_body *body = &now->request_body;
    size_t space = stk_min(away ? SIZE_MAX : stk_pump_room(&link->up), reads(link));
    struct stk_view bytes = stk_pump_waiting(&link->in);
    int64_t taken;

    bytes.bytes = stk_min(bytes.bytes, space);
    if (body->done || bytes.bytes == 0) {
        if (!body->done && link->client_done) {
            link->phase = STK_LINK_GONE; /* it left in the middle */
        }
        return false;
    }
    taken = stk_fault_body_eat(body, bytes, NULL);
    if (taken < 0) {
        link->phase = STK_LINK_GONE;
        return true;
    }
    if (!away) {
        memcpy(link->up.data + link->up.end, bytes.data, (size_t)taken);
        link->up.end += (size_t)taken;
    }
    link->in.at += (size_t)taken;
    now->eaten += (uint64_t)taken;
    return taken > 0;
}

static bool send_up(struct stk_link *link)
{
    struct stk_view bytes = stk_pump_waiting(&link->up);
    ssize_t sent = bytes.bytes ? send(link->upstream, bytes.data, bytes.bytes, MSG_NOSIGNAL) : 0;

    if (sent > 0) {
        link->up.at += (size_t)sent;
        link->connecting = false;
    } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        link->up.at = link->up.end; /* an answer may lie there all the same */
        link->upstream_done = link->upstream_done || link->connecting;
    }
    return sent > 0;
}

/* The answer's head as it goes on, once it is there. */
static bool take_head(struct stk_link *link, int64_t wall_seconds)
{
    struct stk_link_exchange *now = &link->now;
    struct stk_fault_head head;
    struct stk_fault_text text = {0};
    int status = stk_fault_head_parse(&head, stk_pump_waiting(&link->got), false, NULL);
    bool interim = status == 1 && head.status < 200;

    if (status == 1) {
        status = stk_fault_body_of(&now->answer_body, &head, false, now->to_head, NULL);
        status = status < 0 ? status : 1;
    }
    if (status <= 0) {
        link->upstream_done = link->upstream_done || status < 0;
        return false;
    }
    stk_fault_edit_answer(&text, &head, interim ? NULL : now->rule, wall_seconds, &now->status);
    if (text.failed || text.bytes > stk_pump_room(&link->out)) {
        link->upstream_done = true;
    } else {
        memcpy(link->out.data + link->out.end, text.data, text.bytes);
        link->out.end += text.bytes;
        now->made += text.bytes;
        now->head_sent = now->made;
        now->has_head = !interim;
        now->close = now->close || now->answer_body.framing == STK_FAULT_UNTIL_CLOSE ||
                     stk_view_is(stk_fault_header(&head, "connection"), "close");
        link->got.at += head.bytes;
    }
    stk_fault_text_deinit(&text);
    return true;
}

/* The bytes of a body as the fault wants them. */
static void change(struct stk_link_exchange *now, uint8_t *bytes, size_t count)
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

static bool pump_answer(struct stk_link *link)
{
    struct stk_link_exchange *now = &link->now;
    struct stk_view bytes = stk_pump_waiting(&link->got);
    int64_t taken;

    bytes.bytes = stk_min(bytes.bytes, stk_pump_room(&link->out));
    if (now->answer_body.done || bytes.bytes == 0) {
        return false;
    }
    taken = stk_fault_body_eat(&now->answer_body, bytes, NULL);
    if (taken < 0) {
        link->upstream_done = true;
        link->got.at = link->got.end;
        return true;
    }
    memcpy(link->out.data + link->out.end, bytes.data, (size_t)taken);
    change(now, link->out.data + link->out.end, (size_t)taken);
    link->out.end += (size_t)taken;
    now->made += (uint64_t)taken;
    link->got.at += (size_t)taken;
    return taken > 0;
}

/* The server closed a connection that was kept alive, before it saw the request: once more. */
static bool ask_again(struct stk_link *link)
{
    struct stk_link_exchange *now = &link->now;

    if (now->fresh || now->retried || now->made > 0 ||
        now->request_body.framing != STK_FAULT_EMPTY) {
        return false;
    }
    now->retried = now->fresh = true;
    stk_pump_close(link);
    link->up.end = now->up_bytes; /* the head still lies there: a body would have overwritten it */
    return stk_pump_connect(link) == 0;
}

static void upstream_ended(struct stk_link *link)
{
    struct stk_link_exchange *now = &link->now;

    if (now->has_head && now->answer_body.framing == STK_FAULT_UNTIL_CLOSE) {
        now->answer_body.done = true;
    } else if (!ask_again(link)) {
        stk_pump_close(link);
        now->close = true;
        if (now->made == 0) {
            stk_pump_refuse(link, 502, "BadGateway", "The server did not answer");
        } else {
            now->has_head = now->answer_body.done = true; /* short, as it was */
        }
    }
}

bool stk_pump_forward(struct stk_link *link, int64_t wall_seconds)
{
    struct stk_link_exchange *now = &link->now;
    bool moved = pump_request(link, false);
    int64_t got;

    if (link->phase != STK_LINK_FORWARD || link->upstream < 0) {
        return moved;
    }
    moved = send_up(link) || moved;
    got = link->upstream_done ? -1 : stk_pump_receive(link->upstream, NULL, &link->got);
    link->upstream_done = link->upstream_done || got == 0;
    link->connecting = link->connecting && got < 0;
    moved = got > 0 || moved;
    if (!now->has_head) {
        moved = take_head(link, wall_seconds) || moved;
    }
    if (now->has_head) {
        moved = pump_answer(link) || moved;
    }
    if (link->upstream_done && !(now->has_head && now->answer_body.done) &&
        (!now->has_head || link->got.at == link->got.end)) {
        upstream_ended(link);
        return true;
    }
    return moved;
}

/* Our own answer into `out`: its text, then its file, then what is repeated. */
bool stk_pump_answer(struct stk_link *link)
{
    struct stk_link_exchange *now = &link->now;
    struct stk_view text = {(const uint8_t *)now->answer.text.data, now->answer.text.bytes};
    size_t space, some;
    ssize_t got = 0;

    if (link->phase == STK_LINK_DRAIN) {
        bool moved = pump_request(link, true);
        if (now->request_body.done && link->phase == STK_LINK_DRAIN) {
            link->phase = STK_LINK_ANSWER;
            return true;
        }
        return moved;
    }
    now->has_head = true;
    now->head_sent = now->answer.head_bytes;
    space = stk_pump_room(&link->out);
    if (space == 0) {
        return false;
    }
    if (now->made < text.bytes) {
        size_t end = now->made < now->head_sent ? now->head_sent : text.bytes;
        some = stk_min(space, end - now->made);
        memcpy(link->out.data + link->out.end, text.data + now->made, some);
        if (now->made >= now->head_sent) {
            change(now, link->out.data + link->out.end, some);
        }
    } else if (now->file.bytes > 0 && now->file.file >= 0) {
        some = stk_min(space, now->file.bytes);
        got = pread(now->file.file, link->out.data + link->out.end, some, (off_t)now->file.offset);
        some = got > 0 ? (size_t)got : 0;
        change(now, link->out.data + link->out.end, some);
        now->file.offset += some;
        now->file.bytes = got > 0 ? now->file.bytes - some : 0; /* it was cut: so is the answer */
        now->close = now->close || got <= 0;
    } else if (now->answer.repeat.bytes > 0 && space >= now->answer.repeat.bytes) {
        some = now->answer.repeat.bytes;
        memcpy(link->out.data + link->out.end, now->answer.repeat.data, some);
    } else {
        now->answer_body.done = now->answer.repeat.bytes == 0;
        return false;
    }
    link->out.end += some;
    now->made += some;
    return some > 0;
}
