/* The life of a connection. Every pump moves what it can and says whether it moved anything; step
 * turns until nothing moves. */
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
#define LINGER_MS 1000u /* for the client to take what was sent */
#define TURNS_MAX 64u   /* of one step, so that no link starves the others */

static bool turn(struct stk_link *link, uint64_t now_ns, int64_t wall_seconds);
static bool read_head(struct stk_link *link, uint64_t now_ns);
static void choose(struct stk_link *link, const struct stk_fault_head *head, uint64_t now_ns);
static bool begin(struct stk_link *link, uint64_t now_ns, int64_t wall_seconds);
static bool send_out(struct stk_link *link, uint64_t now_ns);
static bool end_reached(struct stk_link *link, uint64_t now_ns);
static bool leave(struct stk_link *link, uint64_t now_ns);
static void finish(struct stk_link *link, uint64_t now_ns, const char *end);

static void forget(struct stk_link_exchange *exchange)
{
    stk_fault_answer_deinit(&exchange->answer);
    if (exchange->file.file >= 0) {
        close(exchange->file.file);
    }
    *exchange = (struct stk_link_exchange){.file = {.file = -1}};
}

int stk_link_open(struct stk_link **link_out, struct stk_link_world *world, int client,
                  uint64_t number, uint64_t now_ns)
{
    struct stk_link *link = stk_alloc(1, sizeof *link);
    uint8_t *memory = link ? stk_alloc(4, STK_LINK_BUFFER_BYTES) : NULL;
    struct stk_tls_end *tls = memory && world->tls ? stk_tls_accept(world->tls, client) : NULL;
    int on = 1;

    if (!memory || (world->tls && !tls)) {
        stk_free(memory);
        stk_free(link);
        close(client);
        return -ENOMEM;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *link = (struct stk_link){
        .world = world, .client = client, .upstream = -1, .tls = tls, .number = number};
    link->in.data = memory;
    link->up.data = memory + STK_LINK_BUFFER_BYTES;
    link->got.data = memory + 2 * STK_LINK_BUFFER_BYTES;
    link->out.data = memory + 3 * STK_LINK_BUFFER_BYTES;
    link->now.file.file = -1;
    link->deadline_ns = now_ns + world->idle_ms * MS;
    *link_out = link;
    return 0;
}

void stk_link_close(struct stk_link *link)
{
    if (!link) {
        return;
    }
    finish(link, link->last_ns, "broken off");
    forget(&link->now);
    stk_pump_close(link);
    stk_tls_end_free(link->tls);
    if (link->client >= 0) {
        close(link->client);
    }
    stk_free(link->in.data);
    stk_free(link);
}

void stk_link_events(const struct stk_link *link, short *client_out, short *upstream_out)
{
    bool forwards = link->phase == STK_LINK_FORWARD;
    bool reads = link->in.end - link->in.at < STK_LINK_BUFFER_BYTES && !link->client_done;
    bool writes = link->out.at < link->out.end && link->now.sent < link->now.limit &&
                  (forwards || link->phase == STK_LINK_ANSWER) && link->wake_ns == 0;

    *client_out = (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
    if (link->tls) {
        *client_out |= stk_tls_events(link->tls, reads, writes);
    }
    *upstream_out = 0;
    if (link->upstream >= 0) {
        bool takes = link->got.end - link->got.at < STK_LINK_BUFFER_BYTES && !link->upstream_done;
        *upstream_out = (short)((takes ? POLLIN : 0) |
                                (link->connecting || link->up.at < link->up.end ? POLLOUT : 0));
    }
}

void stk_link_step(struct stk_link *link, uint64_t now_ns, int64_t wall_seconds)
{
    bool moved = true, ever = false;

    link->wake_ns = 0;
    link->last_ns = now_ns;
    for (unsigned i = 0; moved && i < TURNS_MAX && link->phase != STK_LINK_GONE; i++) {
        moved = turn(link, now_ns, wall_seconds);
        ever = ever || moved;
    }
    if (moved && link->phase != STK_LINK_GONE) {
        link->wake_ns = now_ns; /* more can be done: at once, but after the others */
    }
    if (ever) {
        link->deadline_ns = now_ns + link->world->idle_ms * MS;
    } else if (now_ns >= link->deadline_ns && link->phase != STK_LINK_GONE) {
        finish(link, now_ns, "idle too long");
        link->phase = STK_LINK_GONE;
    }
}

/* ---- one turn ---- */

/* A client that does not trust us, or speaks no TLS, asks for nothing: one line tells why. */
static void tell_handshake(struct stk_link *link)
{
    const char *reason = stk_tls_reason(link->tls);
    json_t *line = json_pack("{s:I, s:s, s:s}", "connection", (json_int_t)link->number, "end",
                             "no TLS", "reason", reason[0] ? reason : "the client left");

    if (line) {
        link->world->log(link->world->owner, line);
    }
}

/* What the client sends is read in every phase: so it is seen when it leaves. */
static bool read_client(struct stk_link *link)
{
    int64_t got = link->client_done ? -1 : stk_pump_receive(link->client, link->tls, &link->in);

    if (got == 0) {
        link->client_done = true;
        if (link->tls && !stk_tls_is_open(link->tls)) {
            tell_handshake(link);
        }
    }
    return got >= 0;
}

static bool turn(struct stk_link *link, uint64_t now_ns, int64_t wall_seconds)
{
    bool moved = read_client(link);

    switch ((enum stk_link_phase)link->phase) {
    case STK_LINK_HEAD:
        return read_head(link, now_ns) || moved;
    case STK_LINK_WAIT:
        return begin(link, now_ns, wall_seconds) || moved;
    case STK_LINK_DRAIN:
    case STK_LINK_ANSWER:
        moved = stk_pump_answer(link) || moved;
        return send_out(link, now_ns) || end_reached(link, now_ns) || moved;
    case STK_LINK_FORWARD:
        moved = stk_pump_forward(link, wall_seconds) || moved;
        return send_out(link, now_ns) || end_reached(link, now_ns) || moved;
    case STK_LINK_STALL:
    case STK_LINK_RESET:
    case STK_LINK_LINGER:
        return leave(link, now_ns) || moved;
    case STK_LINK_GONE:
        break;
    }
    return false;
}

static bool read_head(struct stk_link *link, uint64_t now_ns)
{
    struct stk_fault_head head;
    int status;

    if (link->upstream >= 0 && stk_pump_receive(link->upstream, NULL, &link->got) >= 0) {
        stk_pump_close(link); /* it ended, or spoke unasked */
    }
    status = stk_fault_head_parse(&head, stk_pump_waiting(&link->in), true, NULL);
    if (status == 1) {
        status = stk_fault_body_of(&link->now.request_body, &head, true, false, NULL);
        status = status < 0 ? status : 1;
    }
    if (status == 1) {
        choose(link, &head, now_ns);
        return true;
    }
    if (status < 0) {
        link->now.number = ++link->world->requests;
        link->now.start_ns = now_ns;
        link->now.close = true;
        stk_pump_refuse(link, 400, "BadRequest", "This is no HTTP/1.1 request");
        return true;
    }
    if (link->client_done) {
        link->phase = STK_LINK_GONE;
    }
    return false;
}

/* The text of a view that stands in a line of the log: printable ASCII, cut. */
static void shown(char *out, size_t out_bytes, struct stk_view text)
{
    size_t used = 0;

    for (size_t i = 0; i < text.bytes && used + 4 < out_bytes; i++) {
        bool plain = text.data[i] > ' ' && text.data[i] < 127;
        used +=
            (size_t)snprintf(out + used, out_bytes - used, plain ? "%c" : "%%%02X", text.data[i]);
    }
    out[used] = 0;
}

static void choose(struct stk_link *link, const struct stk_fault_head *head, uint64_t now_ns)
{
    struct stk_link_exchange *now = &link->now;
    const uint8_t *mark = memchr(head->target.data, '?', head->target.bytes);
    size_t path_bytes = mark ? (size_t)(mark - head->target.data) : head->target.bytes;
    struct stk_view range = stk_fault_header(head, "range");
    char query[4096];
    struct stk_fault_request request = {.method = now->method,
                                        .path = now->path,
                                        .query = query,
                                        .range = range.bytes > 0,
                                        .now_ms = (now_ns - link->world->start_ns) / MS};

    shown(now->method, sizeof now->method, head->method);
    shown(query, sizeof query,
          (struct stk_view){head->target.data + path_bytes + (mark != NULL),
                            head->target.bytes - path_bytes - (mark != NULL)});
    shown(now->path, sizeof now->path, (struct stk_view){head->target.data, path_bytes});
    shown(now->range, sizeof now->range, range);
    now->to_head = strcmp(now->method, "HEAD") == 0;
    now->expects = stk_fault_header(head, "expect").bytes > 0;
    now->close = head->minor == 0 || stk_view_is(stk_fault_header(head, "connection"), "close");
    now->number = ++link->world->requests;
    now->start_ns = now_ns;
    now->limit = UINT64_MAX;
    now->rule = stk_fault_script_choose(&link->world->script, &request);
    link->phase = STK_LINK_WAIT;
}

/* ---- what becomes of the request ---- */

/* The request goes on: its head now, its body as it comes. */
static void go_on(struct stk_link *link, const struct stk_fault_head *head)
{
    struct stk_link_exchange *now = &link->now;
    struct stk_fault_text text = {0};

    stk_fault_edit_request(&text, head, now->rule);
    if (text.failed || text.bytes > STK_LINK_BUFFER_BYTES) {
        now->close = true;
        stk_pump_refuse(link, 500, "InternalError", "The proxy has no room for this head");
    } else if (link->upstream < 0 && stk_pump_connect(link) < 0) {
        stk_pump_close(link);
        now->close = true;
        stk_pump_refuse(link, 502, "BadGateway", "The server does not answer");
    } else {
        memcpy(link->up.data, text.data, text.bytes);
        link->up.at = 0;
        link->up.end = now->up_bytes = text.bytes;
        now->fresh = !link->upstream_kept;
        link->phase = STK_LINK_FORWARD;
    }
    stk_fault_text_deinit(&text);
}

static int answer_here(struct stk_link *link, const struct stk_fault_head *head,
                       const struct stk_fault_request *request, int64_t wall_seconds)
{
    struct stk_link_exchange *now = &link->now;

    if (now->rule && stk_fault_is_answer(now->rule->fault)) {
        return stk_fault_answer_make(&now->answer, now->rule, request, now->to_head, wall_seconds);
    }
    if (link->world->folder >= 0) {
        /* The folder hears what a server would have: without a range, or of another path. */
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

                if ((no_range && stk_view_is(header->name, "range")) ||
                    (swap && stk_fault_is_condition(header->name))) {
                    header->value.bytes = 0;
                }
            }
            status = stk_folder_answer(&now->answer, &now->file, link->world->folder, copy, &other);
        }
        stk_free(copy);
        return status;
    }
    return stk_fault_answer_error(&now->answer, 404, "NoSuchKey", "No rule, and no server behind",
                                  now->to_head);
}

/* A folder's head passes the same edits as a server's. */
static void edit_own(struct stk_link *link, int64_t wall_seconds)
{
    struct stk_link_exchange *now = &link->now;
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

static void begin_answer(struct stk_link *link, const struct stk_fault_head *head,
                         const char *query, int64_t wall_seconds)
{
    struct stk_link_exchange *now = &link->now;
    struct stk_fault_request request = {
        .method = now->method, .path = now->path, .query = query, .range = now->range[0] != 0};
    bool edits = link->world->folder >= 0 && !(now->rule && stk_fault_is_answer(now->rule->fault));

    if (answer_here(link, head, &request, wall_seconds) < 0) {
        link->phase = STK_LINK_GONE;
        return;
    }
    if (edits && now->rule) {
        edit_own(link, wall_seconds);
    }
    now->status = now->answer.status;
    now->close = now->close || now->answer.close;
    link->phase = STK_LINK_DRAIN;
    if (now->expects && !now->request_body.done) {
        now->close = now->request_body.done = true; /* it waits for our word before its body */
    }
}

/* The delay is over: who answers? */
static bool begin(struct stk_link *link, uint64_t now_ns, int64_t wall_seconds)
{
    struct stk_link_exchange *now = &link->now;
    uint32_t fault = now->rule ? now->rule->fault : STK_FAULT_PASS;
    bool ends = fault == STK_FAULT_RESET || fault == STK_FAULT_STALL || fault == STK_FAULT_TRUNCATE;
    uint64_t due_ns = now->start_ns + (now->rule ? now->rule->delay_ms * MS : 0);
    struct stk_fault_head head;
    char query[4096] = "";
    const uint8_t *mark;

    if (now_ns < due_ns) {
        link->wake_ns = due_ns;
        return false;
    }
    stk_fault_head_parse(&head, stk_pump_waiting(&link->in), true, NULL); /* as it did before */
    now->begun_ns = now_ns;
    if (ends && now->rule->at == STK_FAULT_BEFORE) {
        now->limit = 0;
        end_reached(link, now_ns);
        return true;
    }
    mark = memchr(head.target.data, '?', head.target.bytes);
    if (link->world->to_bytes && !stk_fault_is_answer(fault)) {
        go_on(link, &head);
    } else {
        if (mark) {
            shown(query, sizeof query,
                  (struct stk_view){mark + 1,
                                    head.target.bytes - (size_t)(mark + 1 - head.target.data)});
        }
        begin_answer(link, &head, query, wall_seconds);
    }
    link->in.at += head.bytes;
    return true;
}

/* ---- to the client, as far as the fault lets it ---- */

static bool send_out(struct stk_link *link, uint64_t now_ns)
{
    struct stk_link_exchange *now = &link->now;
    struct stk_view bytes = stk_pump_waiting(&link->out);
    const struct stk_fault_rule *rule = now->rule;
    ssize_t sent;

    if (rule && now->has_head && rule->at != STK_FAULT_BEFORE && now->limit == UINT64_MAX &&
        (rule->fault == STK_FAULT_RESET || rule->fault == STK_FAULT_STALL ||
         rule->fault == STK_FAULT_TRUNCATE)) {
        now->limit = rule->at < 0 ? now->sent : now->head_sent + (uint64_t)rule->at;
    }
    bytes.bytes = stk_min(bytes.bytes, now->limit - now->sent);
    if (rule && rule->rate && rule->fault != STK_FAULT_SLOW_READ) {
        uint64_t allowed = stk_pump_allowed(link, now_ns);
        if (rule->fault == STK_FAULT_SLOW && rule->at >= 0 && now->has_head) {
            allowed += now->head_sent + (uint64_t)rule->at;
        }
        bytes.bytes = stk_min(bytes.bytes, allowed > now->sent ? allowed - now->sent : 0);
        if (bytes.bytes == 0 && link->out.at < link->out.end && now->sent < now->limit) {
            link->wake_ns = now_ns + STK_PUMP_AGAIN_MS * MS;
        }
    }
    if (bytes.bytes == 0) {
        return false;
    }
    sent = link->tls ? stk_tls_send(link->tls, bytes.data, bytes.bytes)
                     : send(link->client, bytes.data, bytes.bytes, MSG_NOSIGNAL);
    if (sent > 0) {
        link->out.at += (size_t)sent;
        now->sent += (uint64_t)sent;
    } else if (errno != EAGAIN && errno != EINTR) {
        finish(link, now_ns, "client left");
        link->phase = STK_LINK_GONE;
    }
    return sent > 0;
}

/* The limit of the fault, or the end of the answer. */
static bool end_reached(struct stk_link *link, uint64_t now_ns)
{
    struct stk_link_exchange *now = &link->now;
    uint32_t fault = now->rule ? now->rule->fault : STK_FAULT_PASS;
    bool close_now;

    if (link->phase == STK_LINK_GONE) {
        return false;
    }
    if (now->sent >= now->limit) {
        link->left_ns = now_ns;
        link->phase = fault == STK_FAULT_STALL   ? STK_LINK_STALL
                      : fault == STK_FAULT_RESET ? STK_LINK_RESET
                                                 : STK_LINK_LINGER;
        if (fault == STK_FAULT_TRUNCATE) {
            finish(link, now_ns, "truncated");
            shutdown(link->client, SHUT_WR);
        }
        return true;
    }
    if (!now->has_head || !now->answer_body.done || link->out.at < link->out.end ||
        (link->phase == STK_LINK_FORWARD && !now->request_body.done && !now->close)) {
        return false;
    }
    close_now = now->close || fault == STK_FAULT_CLOSE || link->client_done;
    link->upstream_kept = link->upstream >= 0 && !now->close;
    if (!link->upstream_kept) {
        stk_pump_close(link);
    }
    finish(link, now_ns, "done");
    link->phase = close_now ? STK_LINK_LINGER : STK_LINK_HEAD;
    link->left_ns = now_ns;
    if (close_now) {
        if (link->tls) {
            stk_tls_finish(link->tls);
        }
        shutdown(link->client, SHUT_WR);
    }
    return true;
}

/* Nothing comes, until the client leaves or the rule's time is over. */
static bool stall(struct stk_link *link, uint64_t now_ns)
{
    struct stk_link_exchange *now = &link->now;
    uint64_t end_ns = now->rule->ms ? link->left_ns + now->rule->ms * MS : UINT64_MAX;

    if (now_ns >= end_ns && now->rule->at != STK_FAULT_BEFORE) {
        now->limit = UINT64_MAX - 1; /* none, and not the mark that one is to be set */
        link->phase = now->answer.text.bytes ? STK_LINK_ANSWER : STK_LINK_FORWARD;
        return true;
    }
    if (link->client_done || now_ns >= end_ns) { /* nobody was asked for an answer */
        finish(link, now_ns, link->client_done ? "stalled until the client left" : "stalled");
        link->phase = STK_LINK_GONE;
    }
    link->wake_ns = now->rule && end_ns != UINT64_MAX ? end_ns : 0;
    return false;
}

/* The phases behind which the connection ends. */
static bool leave(struct stk_link *link, uint64_t now_ns)
{
    uint64_t end_ns = link->left_ns + LINGER_MS * MS;
    struct linger hard = {.l_onoff = 1};
    int unsent = 0;

    link->in.at = link->in.end; /* read and thrown away: closing before would reset */
    if (link->phase == STK_LINK_STALL) {
        return stall(link, now_ns);
    }
    link->wake_ns = end_ns;
    if (link->phase == STK_LINK_RESET) {
        if (ioctl(link->client, SIOCOUTQ, &unsent) == 0 && unsent > 0 && now_ns < end_ns) {
            link->wake_ns = now_ns + STK_PUMP_AGAIN_MS * MS;
            return false;
        }
        setsockopt(link->client, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        finish(link, now_ns, "reset");
        link->phase = STK_LINK_GONE;
    } else if (link->client_done || now_ns >= end_ns) {
        link->phase = STK_LINK_GONE;
    }
    return false;
}

/* Tells what became of the exchange, and forgets it. */
static void finish(struct stk_link *link, uint64_t now_ns, const char *end)
{
    struct stk_link_exchange *now = &link->now;
    uint64_t body = now->sent > now->head_sent ? now->sent - now->head_sent : 0;
    json_t *line;

    if (now->start_ns == 0) {
        return; /* there was none */
    }
    line = json_pack("{s:I, s:I, s:f, s:s, s:s, s:s*, s:s*, s:s*, s:i, s:I, s:s}", "request",
                     (json_int_t)now->number, "connection", (json_int_t)link->number, "ms",
                     (double)(now_ns - now->start_ns) / MS, "method", now->method, "path",
                     now->path, "range", now->range[0] ? now->range : NULL, "fault",
                     now->rule ? stk_fault_name(now->rule->fault, NULL) : NULL, "rule",
                     now->rule ? now->rule->name : NULL, "status", (int)now->status, "body_bytes",
                     (json_int_t)body, "end", end);
    if (line) {
        link->world->log(link->world->owner, line);
    }
    forget(now);
}
