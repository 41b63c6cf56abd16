/* Error responses of S3, endless lists, and edited heads. */
#include "programs/fault_proxy/fault_answer.h"

#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define DATE_BYTES 40
#define DEEP 100000 /* elements in each other */
#define BOMB_ENTITIES 10

static void make_text(struct stk_fault_answer *answer, const struct stk_fault_rule *rule,
                      const struct stk_fault_request *request, bool to_head, const char *date);
static void end_answer(struct stk_fault_answer *answer, const struct stk_fault_rule *rule,
                       struct stk_fault_text *body, const char *date, bool to_head);
static void add_list(struct stk_fault_text *body, const struct stk_fault_rule *rule,
                     const struct stk_fault_request *request);
static void add_error(struct stk_fault_text *body, const char *code, const char *message);
static void add_headers(struct stk_fault_text *text, const struct stk_fault_rule *rule);
static bool is_replaced(const struct stk_fault_rule *rule, struct stk_view name);
static void edit_header(struct stk_fault_text *text, const struct stk_fault_header *header,
                        const struct stk_fault_rule *rule, const char *date);
static const char *reason(uint32_t status);
static const char *default_code(uint32_t status);
static void date_text(char out[DATE_BYTES], int64_t wall_seconds);

void stk_fault_text_bytes(struct stk_fault_text *text, const void *data, size_t bytes)
{
    if (text->failed || bytes > STK_FAULT_TEXT_MAX - text->bytes) {
        text->failed = true;
        return;
    }
    if (text->bytes + bytes > text->capacity) {
        size_t capacity = 2 * (text->bytes + bytes) + 512;
        char *grown = stk_realloc(text->data, text->bytes, capacity, 1);
        if (!grown) {
            text->failed = true;
            return;
        }
        text->data = grown;
        text->capacity = capacity;
    }
    memcpy(text->data + text->bytes, data, bytes);
    text->bytes += bytes;
}

void stk_fault_text_add(struct stk_fault_text *text, const char *format, ...)
{
    char line[4096];
    va_list arguments;

    va_start(arguments, format);
    int bytes = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (bytes < 0 || (size_t)bytes >= sizeof line) {
        text->failed = true;
        return;
    }
    stk_fault_text_bytes(text, line, (size_t)bytes);
}

void stk_fault_text_deinit(struct stk_fault_text *text)
{
    stk_free(text->data);
    *text = (struct stk_fault_text){0};
}

int stk_fault_answer_make(struct stk_fault_answer *answer, const struct stk_fault_rule *rule,
                          const struct stk_fault_request *request, bool to_head,
                          int64_t wall_seconds)
{
    static const char garbage[] = "\x16\x03\x01this is no answer\r\n\x00\x01\x02\r\n";
    static const char header[] = "X-Without-End: for ever and ever\r\n";
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    static const char chunk[] = "10\r\n0123456789abcdef\r\n";
    char date[DATE_BYTES];

    *answer = (struct stk_fault_answer){.status = rule->status ? (uint32_t)rule->status : 200};
    date_text(date, wall_seconds + rule->seconds);
    if (rule->fault == STK_FAULT_GARBAGE) {
        stk_fault_text_bytes(&answer->text, garbage, sizeof garbage - 1);
        answer->close = true;
        answer->status = 0;
    } else if (rule->fault == STK_FAULT_ENDLESS_HEAD) {
        stk_fault_text_add(&answer->text, "HTTP/1.1 200 OK\r\n");
        answer->repeat = (struct stk_view){(const uint8_t *)header, sizeof header - 1};
    } else if (rule->fault == STK_FAULT_ENDLESS_INTERIM) {
        answer->status = 100;
        answer->repeat = (struct stk_view){(const uint8_t *)interim, sizeof interim - 1};
    } else if (rule->fault == STK_FAULT_RAW) {
        stk_fault_text_bytes(&answer->text, rule->body ? rule->body : "",
                             rule->body ? strlen(rule->body) : 0);
        answer->close = true;
        answer->status = 0;
    } else if (rule->fault == STK_FAULT_ENDLESS_BODY) {
        stk_fault_text_add(&answer->text, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        answer->head_bytes = answer->text.bytes;
        answer->repeat = (struct stk_view){(const uint8_t *)chunk, sizeof chunk - 1};
    } else {
        make_text(answer, rule, request, to_head, date);
    }
    if (answer->text.failed) {
        stk_fault_answer_deinit(answer);
        return -ENOMEM;
    }
    return 0;
}

int stk_fault_answer_error(struct stk_fault_answer *answer, uint32_t status, const char *code,
                           const char *message, bool to_head)
{
    struct stk_fault_rule rule = {.status = status};
    struct stk_fault_text body = {0};

    *answer = (struct stk_fault_answer){.status = status};
    add_error(&body, code, message);
    end_answer(answer, &rule, &body, NULL, to_head);
    if (answer->text.failed) {
        stk_fault_answer_deinit(answer);
        return -ENOMEM;
    }
    return 0;
}

void stk_fault_answer_deinit(struct stk_fault_answer *answer)
{
    stk_fault_text_deinit(&answer->text);
    *answer = (struct stk_fault_answer){0};
}

bool stk_fault_is_signed(const struct stk_fault_head *head, const char *header)
{
    struct stk_view value = stk_fault_header(head, "authorization");
    const char *at = value.bytes ? memmem(value.data, value.bytes, "SignedHeaders=", 14) : NULL;
    size_t bytes = strlen(header), left;

    if (!at || bytes == 0) {
        return at != NULL;
    }
    at += 14;
    left = value.bytes - (size_t)(at - (const char *)value.data);
    while (left >= bytes) {
        const char *end = memchr(at, ';', left), *comma = memchr(at, ',', left);
        size_t word = end && (!comma || end < comma) ? (size_t)(end - at)
                      : comma                        ? (size_t)(comma - at)
                                                     : left;
        if (word == bytes && memcmp(at, header, bytes) == 0) {
            return true;
        }
        if (word == left || at[word] != ';') {
            return false;
        }
        at += word + 1;
        left -= word + 1;
    }
    return false;
}

void stk_fault_edit_request(struct stk_fault_text *text, const struct stk_fault_head *head,
                            const struct stk_fault_rule *rule)
{
    uint32_t fault = rule ? rule->fault : STK_FAULT_PASS;
    bool drop_range = fault == STK_FAULT_NO_RANGE && !stk_fault_is_signed(head, "range");
    bool swap = fault == STK_FAULT_SWAP && rule->with;

    stk_fault_text_bytes(text, head->method.data, head->method.bytes);
    if (swap) {
        stk_fault_text_add(text, " %s", rule->with);
    } else {
        stk_fault_text_bytes(text, " ", 1);
        stk_fault_text_bytes(text, head->target.data, head->target.bytes);
    }
    stk_fault_text_add(text, " HTTP/1.%u\r\n", head->minor);
    for (size_t i = 0; i < head->header_count; i++) {
        const struct stk_fault_header *header = &head->headers[i];
        if (drop_range && (stk_fault_view_equals(header->name, "range") ||
                           stk_fault_view_equals(header->name, "if-range"))) {
            continue;
        }
        if (swap && stk_fault_is_condition(header->name)) {
            continue;
        }
        stk_fault_text_bytes(text, header->name.data, header->name.bytes);
        stk_fault_text_bytes(text, ": ", 2);
        stk_fault_text_bytes(text, header->value.data, header->value.bytes);
        stk_fault_text_bytes(text, "\r\n", 2);
    }
    stk_fault_text_bytes(text, "\r\n", 2);
}

bool stk_fault_is_condition(struct stk_view name)
{
    return stk_fault_view_equals(name, "if-match") ||
           stk_fault_view_equals(name, "if-unmodified-since");
}

void stk_fault_edit_answer(struct stk_fault_text *text, const struct stk_fault_head *head,
                           const struct stk_fault_rule *rule, int64_t wall_seconds,
                           uint32_t *status_out)
{
    uint32_t fault = rule ? rule->fault : STK_FAULT_PASS;
    bool found = false;
    char date[DATE_BYTES];

    date_text(date, wall_seconds + (rule ? rule->seconds : 0));
    *status_out = fault == STK_FAULT_NO_RANGE && head->status == 206 ? 200 : head->status;
    stk_fault_text_add(text, "HTTP/1.%u %u %s\r\n", head->minor, *status_out, reason(*status_out));
    for (size_t i = 0; i < head->header_count; i++) {
        const struct stk_fault_header *header = &head->headers[i];
        if (!rule || !is_replaced(rule, header->name)) {
            edit_header(text, header, rule, date);
        }
        found = found || memmem(header->name.data, header->name.bytes, "checksum", 8);
    }
    if (fault == STK_FAULT_CHECKSUM && !found) {
        stk_fault_text_add(text, "x-amz-checksum-crc32c: AAAAAA==\r\n");
    }
    if (rule) {
        add_headers(text, rule);
    }
    stk_fault_text_bytes(text, "\r\n", 2);
}

static void add_bomb(struct stk_fault_text *body)
{
    stk_fault_text_add(body, "<?xml version=\"1.0\"?><!DOCTYPE b [<!ENTITY e0 \"lol\">");
    for (int i = 1; i < BOMB_ENTITIES; i++) {
        stk_fault_text_add(body, "<!ENTITY e%d \"", i);
        for (int j = 0; j < 10; j++) {
            stk_fault_text_add(body, "&e%d;", i - 1);
        }
        stk_fault_text_add(body, "\">");
    }
    stk_fault_text_add(body, "]><ListBucketResult><Name>&e%d;</Name></ListBucketResult>",
                       BOMB_ENTITIES - 1);
}

static void make_text(struct stk_fault_answer *answer, const struct stk_fault_rule *rule,
                      const struct stk_fault_request *request, bool to_head, const char *date)
{
    struct stk_fault_text body = {0};
    uint32_t fault = rule->fault;

    if (fault == STK_FAULT_ENDLESS_LIST || fault == STK_FAULT_STUCK_LIST) {
        add_list(&body, rule, request);
    } else if (fault == STK_FAULT_XML_BOMB) {
        add_bomb(&body);
    } else if (fault == STK_FAULT_DEEP_XML) {
        for (int i = 0; i < DEEP; i++) {
            stk_fault_text_bytes(&body, "<a>", 3);
        }
    } else if (rule->body) {
        stk_fault_text_bytes(&body, rule->body, strlen(rule->body));
    } else if (fault != STK_FAULT_REDIRECT && fault != STK_FAULT_ANSWER) {
        add_error(&body, rule->code ? rule->code : default_code(answer->status),
                  "A fault that was requested");
    }
    end_answer(answer, rule, &body, date, to_head);
}

/* Joins head and body; takes ownership of the body. */
static void end_answer(struct stk_fault_answer *answer, const struct stk_fault_rule *rule,
                       struct stk_fault_text *body, const char *date, bool to_head)
{
    struct stk_fault_text *text = &answer->text;

    stk_fault_text_add(text, "HTTP/1.1 %u %s\r\nServer: stoker-fault\r\n", answer->status,
                       reason(answer->status));
    if (date) {
        stk_fault_text_add(text, "Date: %s\r\n", date);
    }
    if (rule->retry_after) {
        stk_fault_text_add(text, "Retry-After: %llu\r\n", (unsigned long long)rule->retry_after);
    }
    if (rule->fault == STK_FAULT_REDIRECT) {
        stk_fault_text_add(text, "Location: %s\r\n", rule->value);
    }
    if (!rule->headers || !json_object_get(rule->headers, "Content-Type")) {
        stk_fault_text_add(text, "Content-Type: application/xml\r\n");
    }
    add_headers(text, rule);
    stk_fault_text_add(text, "Content-Length: %zu\r\n\r\n", body->bytes);
    answer->head_bytes = text->bytes;
    if (!to_head) {
        stk_fault_text_bytes(text, body->data ? body->data : "", body->bytes);
    }
    text->failed = text->failed || body->failed;
    stk_fault_text_deinit(body);
}

/* Appends a page of two keys. The page reports that more keys follow. */
static void add_list(struct stk_fault_text *body, const struct stk_fault_rule *rule,
                     const struct stk_fault_request *request)
{
    unsigned long long page = rule->fault == STK_FAULT_STUCK_LIST ? 1 : rule->fired;
    const char *slash = strchr(request->path + 1, '/');
    int bucket = slash ? (int)(slash - request->path - 1) : (int)strlen(request->path + 1);

    stk_fault_text_add(body,
                       "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
                       "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>%.*s</Name>"
                       "<KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys>"
                       "<IsTruncated>true</IsTruncated><NextContinuationToken>%llu"
                       "</NextContinuationToken>",
                       bucket > 64 ? 64 : bucket, request->path + 1, page);
    for (unsigned i = 0; i < 2; i++) {
        stk_fault_text_add(body,
                           "<Contents><Key>endless/%020llu-%u</Key><LastModified>"
                           "2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;0&quot;</ETag>"
                           "<Size>1</Size><StorageClass>STANDARD</StorageClass></Contents>",
                           page, i);
    }
    stk_fault_text_add(body, "</ListBucketResult>");
}

static void add_error(struct stk_fault_text *body, const char *code, const char *message)
{
    stk_fault_text_add(body,
                       "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%.128s</Code>"
                       "<Message>%s</Message><RequestId>stoker-fault</RequestId></Error>",
                       code, message);
}

static void add_headers(struct stk_fault_text *text, const struct stk_fault_rule *rule)
{
    const char *name;
    json_t *value;

    json_object_foreach(rule->headers, name, value)
    {
        stk_fault_text_bytes(text, name, strlen(name));
        stk_fault_text_bytes(text, ": ", 2);
        stk_fault_text_bytes(text, json_string_value(value), json_string_length(value));
        stk_fault_text_bytes(text, "\r\n", 2);
    }
}

static bool is_replaced(const struct stk_fault_rule *rule, struct stk_view name)
{
    const char *key;
    json_t *value;

    json_object_foreach(rule->headers, key, value)
    {
        if (stk_fault_view_equals(name, key)) {
            return true;
        }
    }
    return false;
}

/* "bytes 100-199/1000" -> "bytes 101-200/1000". */
static void add_wrong_range(struct stk_fault_text *text, struct stk_view value)
{
    char copy[96];
    unsigned long long first, last;
    int slash = 0;

    snprintf(copy, sizeof copy, "%.*s", (int)stk_min(value.bytes, sizeof copy - 1), value.data);
    if (sscanf(copy, "bytes %19llu-%19llu%n", &first, &last, &slash) == 2) {
        stk_fault_text_add(text, "bytes %llu-%llu%s", first + 1, last + 1, copy + slash);
    } else {
        stk_fault_text_add(text, "bytes 1-1/2");
    }
}

static bool is_checksum(struct stk_view name)
{
    bool amazon = name.bytes > 15 && memmem(name.data, name.bytes, "checksum-", 9) != NULL;

    return (amazon && !stk_fault_view_equals(name, "x-amz-checksum-type")) ||
           stk_fault_view_equals(name, "content-md5") ||
           stk_fault_view_equals(name, "x-goog-hash") ||
           stk_fault_view_equals(name, "x-ms-content-crc64");
}

static void edit_header(struct stk_fault_text *text, const struct stk_fault_header *header,
                        const struct stk_fault_rule *rule, const char *date)
{
    uint32_t fault = rule ? rule->fault : STK_FAULT_PASS;
    bool is_range = stk_fault_view_equals(header->name, "content-range");

    if (fault == STK_FAULT_NO_RANGE && is_range) {
        return;
    }
    stk_fault_text_bytes(text, header->name.data, header->name.bytes);
    stk_fault_text_bytes(text, ": ", 2);
    if (fault == STK_FAULT_WRONG_RANGE && is_range) {
        if (rule->value) {
            stk_fault_text_bytes(text, rule->value, strlen(rule->value));
        } else {
            add_wrong_range(text, header->value);
        }
    } else if (fault == STK_FAULT_ETAG && stk_fault_view_equals(header->name, "etag")) {
        stk_fault_text_bytes(text, rule->value, strlen(rule->value));
    } else if (fault == STK_FAULT_SKEW && stk_fault_view_equals(header->name, "date")) {
        stk_fault_text_add(text, "%s", date);
    } else if (fault == STK_FAULT_CHECKSUM && is_checksum(header->name) && header->value.bytes) {
        size_t at =
            stk_fault_view_equals(header->name, "x-goog-hash") && header->value.bytes > 7 ? 7 : 0;
        stk_fault_text_bytes(text, header->value.data, at); /* "crc32c=" */
        stk_fault_text_bytes(text, header->value.data[at] == 'A' ? "B" : "A", 1);
        stk_fault_text_bytes(text, header->value.data + at + 1, header->value.bytes - at - 1);
    } else {
        stk_fault_text_bytes(text, header->value.data, header->value.bytes);
    }
    stk_fault_text_bytes(text, "\r\n", 2);
}

static const char *reason(uint32_t status)
{
    static const struct {
        uint32_t status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {412, "Precondition Failed"},
        {416, "Range Not Satisfiable"},
        {429, "Too Many Requests"},
        {500, "Internal Server Error"},
        {502, "Bad Gateway"},
        {503, "Slow Down"},
        {504, "Gateway Timeout"},
    };

    for (size_t i = 0; i < STK_COUNT(reasons); i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    return "Status";
}

static const char *default_code(uint32_t status)
{
    switch (status) {
    case 429:
        return "TooManyRequests";
    case 500:
        return "InternalError";
    case 403:
        return "AccessDenied";
    case 404:
        return "NoSuchKey";
    case 408:
        return "RequestTimeout";
    case 412:
        return "PreconditionFailed";
    default:
        return status == 503 ? "SlowDown" : "BadRequest";
    }
}

/* RFC 9110, 5.6.7. The names are English in every locale. */
static void date_text(char out[DATE_BYTES], int64_t wall_seconds)
{
    static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t seconds = (time_t)wall_seconds;
    struct tm utc = {0};

    gmtime_r(&seconds, &utc);
    snprintf(out, DATE_BYTES, "%s, %02d %s %d %02d:%02d:%02d GMT", days[utc.tm_wday], utc.tm_mday,
             months[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}
