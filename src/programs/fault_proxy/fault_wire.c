/* Parses heads line by line, without copies. */
#include "programs/fault_proxy/fault_wire.h"

#include <string.h>
#include <strings.h>

#define CHUNK_DIGITS_MAX 15u      /* of hexadecimal: less than 2^60 bytes */
#define CHUNK_LINE_BYTES_MAX 256u /* with its extensions, which are rare */
#define TRAILER_BYTES_MAX 16384u

enum chunk_state {
    CHUNK_SIZE,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    TRAILER_START, /* of a line */
    TRAILER_LINE,
    TRAILER_END_LF
};

static size_t head_bytes(struct stk_view bytes);
static int parse_start(struct stk_fault_head *head, struct stk_view line, bool request,
                       struct stoker_error *error);
static int parse_header(struct stk_fault_head *head, struct stk_view line,
                        struct stoker_error *error);
static bool is_token(struct stk_view text);
static struct stk_view line_of(struct stk_view *rest);
static int chunk_step(struct stk_fault_body *body, uint8_t byte);
static int fail_format(struct stoker_error *error, const char *what, const char *where);

int stk_fault_head_parse(struct stk_fault_head *head_out, struct stk_view bytes, bool request,
                         struct stoker_error *error)
{
    size_t head_size = head_bytes(bytes);
    struct stk_view rest = {bytes.data, head_size};
    int status;

    if (head_size == 0) {
        if (bytes.bytes >= STK_FAULT_HEAD_BYTES_MAX) {
            return fail_format(error, "the head of a message is too long", "64 KiB without an end");
        }
        return 0;
    }
    *head_out = (struct stk_fault_head){.bytes = head_size};
    status = parse_start(head_out, line_of(&rest), request, error);
    while (status == 0) {
        struct stk_view line = line_of(&rest);
        if (line.bytes == 0) {
            return 1;
        }
        status = parse_header(head_out, line, error);
    }
    return status;
}

struct stk_view stk_fault_header(const struct stk_fault_head *head, const char *name)
{
    for (size_t i = 0; i < head->header_count; i++) {
        if (stk_fault_view_equals(head->headers[i].name, name)) {
            return head->headers[i].value;
        }
    }
    return (struct stk_view){0};
}

bool stk_fault_view_equals(struct stk_view view, const char *text)
{
    return view.bytes == strlen(text) &&
           strncasecmp((const char *)view.data, text, view.bytes) == 0;
}

bool stk_fault_number(struct stk_view text, uint64_t *value_out)
{
    uint64_t value = 0;

    for (size_t i = 0; i < text.bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || !stk_multiply(value, 10, &value) ||
            !stk_add(value, text.data[i] - '0', &value)) {
            return false;
        }
    }
    *value_out = value;
    return text.bytes > 0;
}

int stk_fault_body_init(struct stk_fault_body *body_out, const struct stk_fault_head *head,
                        bool request, bool to_head, struct stoker_error *error)
{
    bool chunked = false, length = false;
    uint64_t bytes = 0;

    for (size_t i = 0; i < head->header_count; i++) {
        const struct stk_fault_header *header = &head->headers[i];
        if (stk_fault_view_equals(header->name, "transfer-encoding")) {
            if (chunked || !stk_fault_view_equals(header->value, "chunked")) {
                return fail_format(error, "unknown transfer encoding", "only chunked is supported");
            }
            chunked = true;
        } else if (stk_fault_view_equals(header->name, "content-length")) {
            uint64_t value;
            if (!stk_fault_number(header->value, &value) || (length && value != bytes)) {
                return fail_format(error, "a content length is no number, or there are two",
                                   "a head");
            }
            bytes = value;
            length = true;
        }
    }
    if (chunked && length) {
        return fail_format(error, "a message has a length and chunks", "a head");
    }
    *body_out = (struct stk_fault_body){.remaining = bytes};
    if (!request && (to_head || head->status < 200 || head->status == 204 || head->status == 304)) {
        body_out->framing = STK_FAULT_EMPTY;
    } else if (chunked) {
        body_out->framing = STK_FAULT_CHUNKED;
    } else if (length || request) {
        body_out->framing = bytes > 0 ? STK_FAULT_LENGTH : STK_FAULT_EMPTY;
    } else {
        body_out->framing = STK_FAULT_UNTIL_CLOSE;
    }
    body_out->done = body_out->framing == STK_FAULT_EMPTY;
    return 0;
}

int64_t stk_fault_body_consume(struct stk_fault_body *body, struct stk_view bytes,
                               struct stoker_error *error)
{
    size_t at = 0;

    if (body->done || body->framing == STK_FAULT_UNTIL_CLOSE) {
        return body->done ? 0 : (int64_t)bytes.bytes;
    }
    if (body->framing == STK_FAULT_LENGTH) {
        at = stk_min(body->remaining, bytes.bytes);
        body->remaining -= at;
        body->done = body->remaining == 0;
        return (int64_t)at;
    }
    while (at < bytes.bytes && !body->done) {
        if (body->state == CHUNK_DATA) {
            size_t some = stk_min(body->remaining, bytes.bytes - at);
            body->remaining -= some;
            body->state = body->remaining == 0 ? CHUNK_DATA_CR : CHUNK_DATA;
            at += some;
        } else if (chunk_step(body, bytes.data[at++]) < 0) {
            return fail_format(error, "invalid chunks of a body", "a chunk");
        }
    }
    return (int64_t)at;
}

static int hexadecimal(uint8_t byte)
{
    if (byte >= '0' && byte <= '9') {
        return byte - '0';
    }
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* Processes one byte of the line before a chunk. */
static int chunk_size_step(struct stk_fault_body *body, uint8_t byte)
{
    int digit = hexadecimal(byte);

    if (body->state == CHUNK_SIZE && digit >= 0) {
        body->remaining = body->remaining * 16 + (uint64_t)digit;
        return ++body->digits <= CHUNK_DIGITS_MAX ? 0 : -1;
    }
    if (body->digits == 0) {
        return -1;
    }
    if (byte == '\r') {
        body->state = CHUNK_SIZE_LF;
        return 0;
    }
    body->state = CHUNK_EXTENSION;
    return byte != '\n' && ++body->digits <= CHUNK_LINE_BYTES_MAX ? 0 : -1;
}

/* One byte of the last lines. */
static int trailer_step(struct stk_fault_body *body, uint8_t byte)
{
    if (body->state == TRAILER_END_LF) {
        body->done = byte == '\n';
        return body->done ? 0 : -1;
    }
    if (++body->digits > TRAILER_BYTES_MAX) {
        return -1;
    }
    if (body->state == TRAILER_START && byte == '\r') {
        body->state = TRAILER_END_LF;
    } else {
        body->state = byte == '\n' ? TRAILER_START : TRAILER_LINE;
    }
    return 0;
}

static int chunk_step(struct stk_fault_body *body, uint8_t byte)
{
    switch ((enum chunk_state)body->state) {
    case CHUNK_SIZE:
    case CHUNK_EXTENSION:
        return chunk_size_step(body, byte);
    case CHUNK_SIZE_LF:
        body->state = body->remaining > 0 ? CHUNK_DATA : TRAILER_START;
        body->digits = 0;
        return byte == '\n' ? 0 : -1;
    case CHUNK_DATA_CR:
        body->state = CHUNK_DATA_LF;
        return byte == '\r' ? 0 : -1;
    case CHUNK_DATA_LF:
        body->state = CHUNK_SIZE;
        body->digits = 0;
        return byte == '\n' ? 0 : -1;
    case TRAILER_START:
    case TRAILER_LINE:
    case TRAILER_END_LF:
        return trailer_step(body, byte);
    case CHUNK_DATA:
        break;
    }
    return -1;
}

/* Returns the bytes up to and including the first empty line, or 0 if it has not arrived. */
static size_t head_bytes(struct stk_view bytes)
{
    size_t limit = stk_min(bytes.bytes, STK_FAULT_HEAD_BYTES_MAX);
    const uint8_t *end = memmem(bytes.data, limit, "\r\n\r\n", 4);

    return end ? (size_t)(end - bytes.data) + 4 : 0;
}

/* Returns the bytes up to the next line end, which exists. */
static struct stk_view line_of(struct stk_view *rest)
{
    const uint8_t *end = memmem(rest->data, rest->bytes, "\r\n", 2);
    struct stk_view line = {rest->data, end ? (size_t)(end - rest->data) : rest->bytes};
    size_t taken = stk_min(line.bytes + 2, rest->bytes);

    rest->data += taken;
    rest->bytes -= taken;
    return line;
}

static int parse_status(struct stk_fault_head *head, struct stk_view line,
                        struct stoker_error *error)
{
    uint64_t code;

    if (line.bytes < 12 || memcmp(line.data, "HTTP/1.", 7) != 0 ||
        (line.data[7] != '0' && line.data[7] != '1') || line.data[8] != ' ' ||
        !stk_fault_number((struct stk_view){line.data + 9, 3}, &code) || code < 100 ||
        (line.bytes > 12 && line.data[12] != ' ')) {
        return fail_format(error, "a response does not begin as HTTP/1.1 does", "the first line");
    }
    head->minor = line.data[7] - '0';
    head->status = (uint32_t)code;
    return 0;
}

static int parse_start(struct stk_fault_head *head, struct stk_view line, bool request,
                       struct stoker_error *error)
{
    const uint8_t *space, *last;
    struct stk_view version;

    if (!request) {
        return parse_status(head, line, error);
    }
    space = memchr(line.data, ' ', line.bytes);
    last = memrchr(line.data, ' ', line.bytes);
    if (!space || last == space) {
        return fail_format(error, "a request does not begin as HTTP/1.1 does", "the first line");
    }
    head->method = (struct stk_view){line.data, (size_t)(space - line.data)};
    head->target = (struct stk_view){space + 1, (size_t)(last - space) - 1};
    version = (struct stk_view){last + 1, line.bytes - (size_t)(last - line.data) - 1};
    if (!is_token(head->method) || head->target.data[0] != '/' ||
        (!stk_fault_view_equals(version, "HTTP/1.1") &&
         !stk_fault_view_equals(version, "HTTP/1.0"))) {
        return fail_format(error, "a request does not begin as HTTP/1.1 does", "the first line");
    }
    for (size_t i = 0; i < head->target.bytes; i++) {
        if (head->target.data[i] <= ' ' || head->target.data[i] == 127) {
            return fail_format(error, "a request's path has a blank or a control",
                               "the first line");
        }
    }
    head->minor = version.data[7] - '0';
    return 0;
}

static int parse_header(struct stk_fault_head *head, struct stk_view line,
                        struct stoker_error *error)
{
    const uint8_t *colon = memchr(line.data, ':', line.bytes);
    struct stk_fault_header *header = &head->headers[head->header_count];

    if (head->header_count == STK_FAULT_HEADERS_MAX) {
        return fail_format(error, "a message has too many headers", "at most 128");
    }
    if (!colon) {
        return fail_format(error, "a header has no colon", "a head");
    }
    header->name = (struct stk_view){line.data, (size_t)(colon - line.data)};
    header->value = (struct stk_view){colon + 1, line.bytes - header->name.bytes - 1};
    while (header->value.bytes && strchr(" \t", header->value.data[0])) {
        header->value.data++;
        header->value.bytes--;
    }
    while (header->value.bytes && strchr(" \t", header->value.data[header->value.bytes - 1])) {
        header->value.bytes--;
    }
    if (!is_token(header->name) || memchr(line.data, '\n', line.bytes) ||
        memchr(line.data, '\r', line.bytes) || memchr(line.data, 0, line.bytes)) {
        return fail_format(error, "an invalid header", "a head");
    }
    head->header_count++;
    return 0;
}

static bool is_token(struct stk_view text)
{
    for (size_t i = 0; i < text.bytes; i++) {
        uint8_t c = text.data[i];
        if (c <= ' ' || c >= 127 || strchr("\"(),/:;<=>?@[\\]{}", c)) {
            return false;
        }
    }
    return text.bytes > 0;
}

static int fail_format(struct stoker_error *error, const char *what, const char *where)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, what, "check the program at the other end", "%s",
                    where);
}
