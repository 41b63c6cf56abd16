/* One transfer of libcurl: its options and its callbacks. */
#include "storage/http/reactor.h"

#include "io/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A large receive buffer saves calls. For bodies of few receives, a buffer that stays in the
 * processor's cache saves more, and libcurl allocates one for each transfer. It is 16 KiB to 512
 * KiB. */
#define RECEIVE_BYTES_MAX (256l << 10)
#define RECEIVE_BYTES_FEW (64l << 10)
#define RECEIVE_BYTES_MIN (32l << 10)
#define FEW_RECEIVES 8
#define BUFFER_OVERHEAD 64l /* of libcurl and secret memory, for each buffer */
/* Limits the cache to the addresses that resolver.c distributes. Addresses that libcurl resolved
 * itself are not cached: all connections would use the first one. */
#define DNS_CACHE_S 60l
#define IDLE_S 50l /* connections that were unused for this time are replaced */

static void set_addresses(struct stk_http_slot *slot);
static void set_headers(struct stk_http_slot *slot);
static void set_method(struct stk_http_slot *slot);
static size_t on_header(char *data, size_t size, size_t count, void *user);
static size_t on_body(char *data, size_t size, size_t count, void *user);
static int on_connected(void *user, char *ip, char *local_ip, int port, int local_port);
static int on_progress(void *user, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                       curl_off_t up);
static void read_code(struct stk_http_response *answer, const char *line, size_t bytes);
static uint64_t read_length(const char *text, size_t bytes);

void stk_http_clear_response(struct stk_http_response *answer)
{
    explicit_bzero(answer->headers, answer->headers_bytes);
    answer->headers_bytes = 0;
    answer->content_bytes = UINT64_MAX;
}

void stk_http_clear_slot(struct stk_http_slot *slot)
{
    stk_http_clear_response(&slot->answer);
    slot->answer.code = slot->answer.text_bytes = 0;
    slot->answer.text[0] = slot->problem[0] = '\0';
    slot->sent = slot->began = slot->cut = false;
    slot->failure = STK_HTTP_NO_FAILURE;
    slot->skipped = slot->uploaded = slot->unsent = slot->moved = slot->window_ns = 0;
}

void stk_http_prepare_slot(struct stk_http_slot *slot)
{
    const struct stk_http_request *request = slot->request;
    const struct stk_http_options *options = &slot->http->options;
    bool few = request->buffer_bytes <= (uint64_t)FEW_RECEIVES * RECEIVE_BYTES_FEW;
    uint64_t wanted = stk_min(request->buffer_bytes, few ? RECEIVE_BYTES_FEW : RECEIVE_BYTES_MAX);
    CURL *easy = slot->easy;

    curl_easy_reset(easy);
    slot->started_ns = slot->progress_ns = stk_clock_ns();
    set_headers(slot);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, slot);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, slot->problem);
    curl_easy_setopt(easy, CURLOPT_URL, slot->url ? slot->url : request->url);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1l);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "stoker/" STOKER_VERSION);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1l);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1l); /* a lookup that hangs is abandoned */
    set_addresses(slot);
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, IDLE_S);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1l);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE,
                     (long)stk_max(wanted, RECEIVE_BYTES_MIN) - BUFFER_OVERHEAD);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)(request->connect_ms ? request->connect_ms : STK_HTTP_CONNECT_MS));
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, slot);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, slot);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_connected);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, slot);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, stk_http_open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, slot->http);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, stk_http_close_socket);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, slot->http);
    if (request->ca_file || options->ca_file) {
        curl_easy_setopt(easy, CURLOPT_CAINFO,
                         request->ca_file ? request->ca_file : options->ca_file);
    }
    if (request->no_proxy) {
        curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    }
    set_method(slot);
}

uint32_t stk_http_classify(const struct stk_http_slot *slot, CURLcode result)
{
    if (slot->failure != STK_HTTP_NO_FAILURE) {
        return slot->failure;
    }
    if (slot->cut) {
        return STK_HTTP_NO_FAILURE;
    }
    switch ((int)result) { /* libcurl has a hundred of them */
    case CURLE_OK:
        return slot->answer.code ? STK_HTTP_NO_FAILURE : STK_HTTP_OTHER;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return STK_HTTP_RESOLVE;
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT: /* the other deadlines are ours */
    case CURLE_SSL_CONNECT_ERROR:  /* ended in the handshake, as a proxy that is overrun does */
        return STK_HTTP_CONNECT;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CRL_BADFILE:
    case CURLE_SSL_INVALIDCERTSTATUS:
        return STK_HTTP_TLS;
    case CURLE_GOT_NOTHING:
        return STK_HTTP_RESET;
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
        return slot->answer.code ? STK_HTTP_BROKEN : STK_HTTP_RESET;
    case CURLE_PARTIAL_FILE:
        return STK_HTTP_BROKEN;
    default:
        return STK_HTTP_OTHER;
    }
}

bool stk_http_begin(struct stk_http_slot *slot)
{
    struct stk_http_request *request = slot->request;
    int status = 0;

    if (slot->began || slot->answer.code / 100 != 2) {
        return true;
    }
    slot->began = true;
    if (request->begin) {
        status = request->begin(request, &slot->answer);
    }
    if (status < 0) {
        slot->failure = STK_HTTP_REJECTED;
        request->status = status;
    }
    return status >= 0;
}

/* Spreads connections over the addresses of a name, in turn or at random. */
static void set_addresses(struct stk_http_slot *slot)
{
    bool dealt = slot->resolve[0] != '\0';

    slot->resolve_line = (struct curl_slist){.data = slot->resolve};
    curl_easy_setopt(slot->easy, CURLOPT_RESOLVE, dealt ? &slot->resolve_line : NULL);
    curl_easy_setopt(slot->easy, CURLOPT_DNS_CACHE_TIMEOUT, dealt ? DNS_CACHE_S : 0l);
    curl_easy_setopt(slot->easy, CURLOPT_DNS_SHUFFLE_ADDRESSES, dealt ? 0l : 1l);
}

/* libcurl only reads the list; its own functions would copy the texts. */
static void add_line(struct stk_http_slot *slot, uint32_t *count, const char *text)
{
    STK_ASSERT(*count < STK_HTTP_HEADER_LINES_MAX);
    slot->lines[*count] = (struct curl_slist){.data = (char *)(uintptr_t)text};
    if (*count > 0) {
        slot->lines[*count - 1].next = &slot->lines[*count];
    }
    ++*count;
}

static void set_headers(struct stk_http_slot *slot)
{
    const struct stk_http_request *request = slot->request;
    uint32_t count = 0;

    for (uint32_t i = 0; i < request->header_count; i++) {
        if (!slot->cross_origin || stk_http_header_is_public(request->headers[i])) {
            add_line(slot, &count, request->headers[i]);
        }
    }
    if (request->method == STK_HTTP_PUT || request->method == STK_HTTP_POST) {
        add_line(slot, &count, "Expect:"); /* a round trip before each body */
        /* If no type is set, libcurl sends that of a form, and some servers parse the body as
         * one. */
        add_line(slot, &count, "Content-Type:");
    }
    curl_easy_setopt(slot->easy, CURLOPT_HTTPHEADER, count > 0 ? slot->lines : NULL);
}

static void set_method(struct stk_http_slot *slot)
{
    const struct stk_http_request *request = slot->request;

    switch (request->method) {
    case STK_HTTP_HEAD:
        curl_easy_setopt(slot->easy, CURLOPT_NOBODY, 1l);
        break;
    case STK_HTTP_PUT:
    case STK_HTTP_POST:
        curl_easy_setopt(slot->easy, CURLOPT_POST, 1l);
        curl_easy_setopt(slot->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.bytes);
        curl_easy_setopt(slot->easy, CURLOPT_POSTFIELDS,
                         request->body.bytes ? (const char *)request->body.data : "");
        if (request->method == STK_HTTP_PUT) {
            curl_easy_setopt(slot->easy, CURLOPT_CUSTOMREQUEST, "PUT");
        }
        if (request->body.bytes > STK_HTTP_LONG_BODY_BYTES) {
            curl_easy_setopt(slot->easy, CURLOPT_UPLOAD_BUFFERSIZE, RECEIVE_BYTES_MAX);
            curl_easy_setopt(slot->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
            curl_easy_setopt(slot->easy, CURLOPT_XFERINFODATA, slot);
            curl_easy_setopt(slot->easy, CURLOPT_NOPROGRESS, 0l);
        }
        break;
    case STK_HTTP_DELETE:
        curl_easy_setopt(slot->easy, CURLOPT_CUSTOMREQUEST, "DELETE");
        break;
    default:
        break;
    }
}

/* Parses a line of the response's head. A new status line starts the head again: after 100
 * Continue, and if libcurl sent the request again on a new connection. */
static size_t on_header(char *data, size_t size, size_t count, void *user)
{
    struct stk_http_slot *slot = user;
    struct stk_http_response *answer = &slot->answer;
    size_t given = size * count, bytes = given;

    stk_http_record_progress(slot, 0);
    if (slot->request->first_byte_ns == 0) {
        slot->request->first_byte_ns = slot->progress_ns;
    }
    while (bytes > 0 && (data[bytes - 1] == '\n' || data[bytes - 1] == '\r')) {
        bytes--;
    }
    if (bytes >= 5 && memcmp(data, "HTTP/", 5) == 0) {
        stk_http_clear_response(answer);
        read_code(answer, data, bytes);
        stk_http_poll_response_began(slot);
        return given;
    }
    if (bytes == 0) {
        return given;
    }
    if (bytes + 1 > sizeof answer->headers - answer->headers_bytes) {
        slot->failure = STK_HTTP_LIMIT;
        return 0;
    }
    memcpy(answer->headers + answer->headers_bytes, data, bytes);
    answer->headers[answer->headers_bytes + bytes] = '\n';
    answer->headers_bytes += (uint32_t)bytes + 1;
    if (bytes > 15 && strncasecmp(data, "content-length:", 15) == 0) {
        answer->content_bytes = read_length(data + 15, bytes - 15);
    }
    return given;
}

static size_t store_text(struct stk_http_response *answer, const char *data, size_t bytes)
{
    size_t room = STK_HTTP_TEXT_BYTES_MAX - answer->text_bytes;
    size_t stored = (size_t)stk_min(bytes, room);

    memcpy(answer->text + answer->text_bytes, data, stored);
    answer->text_bytes += (uint32_t)stored;
    answer->text[answer->text_bytes] = '\0';
    return stored;
}

/* Returns false, with the failure set, if there is no more room. */
static bool grow_buffer(struct stk_http_slot *slot)
{
    struct stk_http_request *request = slot->request;
    int status = request->grow(request);

    if (status < 0) {
        slot->failure = STK_HTTP_REJECTED;
        request->status = status;
    }
    return status >= 0;
}

/* Receives bytes of the body. A smaller return value than the size ends the transfer and the
 * connection. */
static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    struct stk_http_slot *slot = user;
    struct stk_http_request *request = slot->request;
    size_t given = size * count, bytes = given, room;

    stk_http_record_progress(slot, bytes);
    if (slot->answer.code / 100 != 2) {
        slot->cut = store_text(&slot->answer, data, bytes) < bytes;
        return slot->cut ? 0 : given;
    }
    if (!slot->began && !request->secret) {
        stk_http_set_wipe_response(slot->easy, false); /* TLS would take a tenth longer for it */
    }
    if (!stk_http_begin(slot)) {
        return 0;
    }
    if (slot->skipped < request->skip) {
        size_t passed = (size_t)stk_min(request->skip - slot->skipped, bytes);

        slot->skipped += passed;
        data += passed;
        bytes -= passed;
    }
    do {
        room = (size_t)stk_min(request->buffer_bytes - request->bytes, bytes);
        if (room > 0) {
            memcpy(request->buffer + request->bytes, data, room);
            request->bytes += room;
            data += room;
            bytes -= room;
        }
    } while (bytes > 0 && request->grow && grow_buffer(slot));
    if (bytes == 0) {
        return given;
    }
    if (slot->failure != STK_HTTP_NO_FAILURE) {
        return 0;
    }
    slot->cut = request->truncate;
    slot->failure = request->truncate ? STK_HTTP_NO_FAILURE : STK_HTTP_LIMIT;
    return 0;
}

/* Called when a connection is established, possibly to the target of a redirect. */
static int on_connected(void *user, char *ip, char *local_ip, int port, int local_port)
{
    struct stk_http_slot *slot = user;

    (void)local_ip;
    stk_http_socket_attach(slot, ip, port, local_port);
    if (slot->redirects == 0) {
        bool here = stk_http_is_loopback(ip);
        slot->first_loopback =
            slot->request->url_from_server ? slot->request->server_is_local : here;
        slot->request->is_local = slot->first_loopback;
    }
    if ((slot->redirects > 0 || slot->request->url_from_server) &&
        (stk_http_is_link_local(ip) || (stk_http_is_loopback(ip) && !slot->first_loopback))) {
        slot->failure = STK_HTTP_REDIRECT;
        snprintf(slot->problem, sizeof slot->problem, "a redirect to %s", ip);
        return CURL_PREREQFUNC_ABORT;
    }
    stk_http_set_wipe_response(slot->easy, true);
    slot->sent = true;
    slot->request->sends += slot->redirects == 0;
    slot->progress_ns = stk_clock_ns();
    slot->request->sent_ns = slot->progress_ns;
    return CURL_PREREQFUNC_OK;
}

static int on_progress(void *user, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                       curl_off_t up)
{
    struct stk_http_slot *slot = user;

    (void)down_total;
    (void)down;
    (void)up_total;
    if ((uint64_t)up != slot->uploaded) {
        stk_http_record_progress(slot, (uint64_t)up - stk_min((uint64_t)up, slot->uploaded));
        slot->uploaded = (uint64_t)up;
    }
    return 0;
}

/* "HTTP/1.1 206 Partial Content" */
static void read_code(struct stk_http_response *answer, const char *line, size_t bytes)
{
    const char *space = memchr(line, ' ', bytes);
    uint32_t code = 0;

    for (int i = 1; space && i <= 3 && space + i < line + bytes; i++) {
        code = space[i] >= '0' && space[i] <= '9' ? code * 10 + (uint32_t)(space[i] - '0') : 0;
    }
    answer->code = code >= 100 ? code : 0;
}

/* Returns UINT64_MAX if the text is not a number; libcurl refuses a response with such a
 * length. */
static uint64_t read_length(const char *text, size_t bytes)
{
    uint64_t length = 0;
    size_t at = 0;

    while (at < bytes && (text[at] == ' ' || text[at] == '\t')) {
        at++;
    }
    if (at == bytes) {
        return UINT64_MAX;
    }
    for (; at < bytes && text[at] != ' ' && text[at] != '\t'; at++) {
        if (text[at] < '0' || text[at] > '9' || !stk_multiply(length, 10, &length) ||
            !stk_add(length, (uint64_t)(text[at] - '0'), &length)) {
            return UINT64_MAX;
        }
    }
    return length;
}
