/* Progress of requests, and the timeouts that end them. On a slow link all requests are slow; one
 * that stands still, or is slow while others are not, is ended. */
#include "storage/http/reactor.h"

#include "io/clock.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#define MS 1000000ull
#define CHECK_MS 200u /* if no progress was seen for this time, the socket is queried */

static bool is_sending(struct stk_http_slot *slot, uint64_t now_ns);
static uint32_t check_speed(struct stk_http_slot *slot, uint32_t stall_ms, uint64_t now_ns);

static bool is_set(const _Atomic bool *flag)
{
    return flag && atomic_load_explicit(flag, memory_order_relaxed);
}

bool stk_http_is_cancelled(const struct stk_http_request *request)
{
    return is_set(&request->cancelled) || is_set(request->stop) || is_set(request->stop_also);
}

static uint64_t total_ns(const struct stk_http_request *request)
{
    return (request->total_ms ? request->total_ms : STK_HTTP_TOTAL_MS) * MS;
}

void stk_http_record_progress(struct stk_http_slot *slot, uint64_t body_bytes)
{
    slot->progress_ns = slot->http->moved_ns = stk_clock_ns();
    slot->moved += body_bytes;
    stk_http_host_of(slot)->moved += body_bytes;
}

uint32_t stk_http_check_wait_timeout(const struct stk_http *http,
                                     const struct stk_http_request *request, uint64_t now_ns)
{
    if (stk_http_is_cancelled(request)) {
        return STK_HTTP_CANCELLED;
    }
    if (now_ns < request->deadline_ns ||
        (request->by_progress && now_ns < http->moved_ns + total_ns(request))) {
        return STK_HTTP_NO_FAILURE;
    }
    return STK_HTTP_TOTAL;
}

uint32_t stk_http_check_timeout(struct stk_http_slot *slot, uint64_t now_ns)
{
    const struct stk_http_request *request = slot->request;
    uint32_t first_ms = request->first_byte_ms ? request->first_byte_ms : STK_HTTP_FIRST_BYTE_MS;
    uint32_t stall_ms = request->stall_ms ? request->stall_ms : STK_HTTP_STALL_MS;
    uint32_t connect_ms = request->connect_ms ? request->connect_ms : STK_HTTP_CONNECT_MS;
    uint64_t end_ns = request->by_progress ? UINT64_MAX : request->deadline_ns;
    bool moving;

    if (stk_http_is_cancelled(request)) {
        return STK_HTTP_CANCELLED;
    }
    if (!slot->sent) { /* libcurl ends a connect that takes too long */
        end_ns = stk_min(end_ns, slot->started_ns + total_ns(request));
    }
    if (now_ns >= end_ns) {
        return STK_HTTP_TOTAL;
    }
    if (!slot->sent) {
        return slot->waits_for_dns && now_ns >= slot->started_ns + connect_ms * MS
                   ? STK_HTTP_RESOLVE
                   : STK_HTTP_NO_FAILURE;
    }
    /* Until all of the request is sent, and during the response, bytes must move. */
    moving = slot->answer.code != 0 || is_sending(slot, now_ns);
    if (moving && now_ns >= slot->progress_ns + stall_ms * MS) {
        return STK_HTTP_STALL;
    }
    if (now_ns >= slot->progress_ns + first_ms * MS) {
        return STK_HTTP_FIRST_BYTE;
    }
    return moving && request->by_progress ? check_speed(slot, stall_ms, now_ns)
                                          : STK_HTTP_NO_FAILURE;
}

/* Computes how many of the bytes written to the socket are not acknowledged. */
static void check_unsent(struct stk_http_slot *slot, uint64_t now_ns)
{
    int unsent = 0;

    if (slot->request->body.bytes > STK_HTTP_LONG_BODY_BYTES && slot->socket &&
        ioctl(slot->socket->fd, SIOCOUTQ, &unsent) == 0 && unsent >= 0) {
        if ((uint64_t)unsent < slot->unsent) {
            slot->progress_ns = slot->http->moved_ns = now_ns;
        }
        slot->unsent = (uint64_t)unsent;
    }
}

/* The kernel accepts megabytes of a long body before the link sends them. The upload has ended
 * or stalled when the peer acknowledges no further bytes. */
static bool is_sending(struct stk_http_slot *slot, uint64_t now_ns)
{
    if (slot->request->body.bytes <= STK_HTTP_LONG_BODY_BYTES || slot->answer.code != 0) {
        return false;
    }
    if (now_ns >= slot->progress_ns + CHECK_MS * MS) {
        check_unsent(slot, now_ns);
    }
    return slot->uploaded < slot->request->body.bytes || slot->unsent > 0;
}

/* Returns the bytes that were received, or that have left this machine. */
static uint64_t bytes_moved(const struct stk_http_slot *slot)
{
    return slot->moved - stk_min(slot->moved, slot->unsent);
}

static void begin_window(struct stk_http_slot *slot, uint64_t now_ns)
{
    const struct stk_http_host *host = stk_http_host_of(slot);

    slot->window_ns = now_ns;
    slot->window_went = bytes_moved(slot);
    slot->window_others = host->moved - slot->moved;
    slot->window_active = host->active;
}

/* True if the transfer crawled since the window began, and the others did not: divided by the
 * largest number of them at either end of the window, they received that many times more than a
 * crawl. */
static bool is_slower_than_others(const struct stk_http_slot *slot, uint64_t least)
{
    const struct stk_http_host *host = stk_http_host_of(slot);
    uint64_t own = bytes_moved(slot) - stk_min(bytes_moved(slot), slot->window_went);
    uint64_t others = host->moved - slot->moved - slot->window_others;
    uint64_t count = stk_max(stk_max(slot->window_active, host->active), 2) - 1;

    return slot->request->group != 0 && own < least &&
           others / count >= STK_HTTP_SLOW_RATIO * least;
}

/* Checks the progress of the body: in windows of stall_ms compared with other transfers, and of
 * total_ms alone. */
static uint32_t check_speed(struct stk_http_slot *slot, uint32_t stall_ms, uint64_t now_ns)
{
    bool answers = slot->answer.code != 0;
    uint64_t long_ns = total_ns(slot->request);

    if (slot->window_ns == 0 || slot->window_answers != answers) {
        check_unsent(slot, now_ns);
        slot->window_answers = answers;
        slot->long_ns = now_ns;
        slot->long_went = bytes_moved(slot);
        begin_window(slot, now_ns);
        return STK_HTTP_NO_FAILURE;
    }
    if (now_ns >= slot->window_ns + stall_ms * MS) {
        check_unsent(slot, now_ns);
        if (is_slower_than_others(slot, (uint64_t)STK_HTTP_SLOW_BYTES_S * stall_ms / 1000)) {
            return STK_HTTP_SLOW;
        }
        begin_window(slot, now_ns);
    }
    if (now_ns >= slot->long_ns + long_ns) {
        if (bytes_moved(slot) < slot->long_went + STK_HTTP_SLOW_BYTES_S * (long_ns / MS) / 1000) {
            return STK_HTTP_TOTAL;
        }
        slot->long_ns = now_ns;
        slot->long_went = bytes_moved(slot);
    }
    return STK_HTTP_NO_FAILURE;
}
