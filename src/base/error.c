/* Errors as values: what failed, where, and the next step. Names in `where` may come from untrusted
 * files, and the text is shown in terminals and logs: control characters in it are escaped. `shard`
 * and `key` keep every byte, for programs. */
#include "base/base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void place_text(struct stoker_error *error, const char *text);
static void escape(char *text, size_t capacity);
static void keep_detail(const struct stoker_error *error, char *detail);
static size_t prefix_text(const struct stoker_error *error, char *text, size_t capacity);

static void reset(struct stoker_error *error, int status, const char *what, const char *advice)
{
    memset(error, 0, sizeof *error);
    error->status = status;
    error->offset = STOKER_NO_OFFSET;
    snprintf(error->what, sizeof error->what, "%s", what);
    snprintf(error->advice, sizeof error->advice, "%s", advice);
}

int stk_fail(struct stoker_error *error, int status, const char *what, const char *advice,
             const char *where_format, ...)
{
    if (error) {
        va_list list;
        reset(error, status, what, advice);
        va_start(list, where_format);
        vsnprintf(error->where, sizeof error->where, where_format, list);
        va_end(list);
        escape(error->where, sizeof error->where);
    }
    return status;
}

int stk_fail_errno(struct stoker_error *error, int number, const char *what, const char *advice,
                   const char *where_format, ...)
{
    if (error) {
        char reason[96];
        va_list list;
        reset(error, -number, what, advice);
        snprintf(error->what, sizeof error->what, "%.100s: %s", what,
                 strerror_r(number, reason, sizeof reason));
        va_start(list, where_format);
        vsnprintf(error->where, sizeof error->where, where_format, list);
        va_end(list);
        escape(error->where, sizeof error->where);
    }
    return -number;
}

int stk_fail_memory(struct stoker_error *error, const char *where_format, ...)
{
    if (error) {
        va_list list;
        reset(error, -ENOMEM, "not enough memory", "free memory, or give the job more");
        va_start(list, where_format);
        vsnprintf(error->where, sizeof error->where, where_format, list);
        va_end(list);
        escape(error->where, sizeof error->where);
    }
    return -ENOMEM;
}

void stk_error_set_location(struct stoker_error *error, const char *shard, uint64_t offset,
                            const char *key)
{
    char detail[sizeof error->where];

    if (!error) {
        return;
    }
    keep_detail(error, detail);
    if (shard && !error->shard[0]) {
        /* Long ones are cut; `where` has more of them. */
        snprintf(error->shard, sizeof error->shard, "%s", shard);
    }
    if (key && !error->key[0]) {
        /* A long key is cut, as a long shard is. */
        snprintf(error->key, sizeof error->key, "%s", key);
    }
    if (offset != STOKER_NO_OFFSET && error->offset == STOKER_NO_OFFSET) {
        error->offset = offset;
    }
    if (error->shard[0]) {
        place_text(error, detail);
    }
}

/* Writes "'shard' offset 512 key 'a/b'", known parts only. Returns the number of bytes. */
static size_t prefix_text(const struct stoker_error *error, char *text, size_t capacity)
{
    char offset[32] = "";
    char key[sizeof error->key + 8] = "";

    if (error->offset != STOKER_NO_OFFSET) {
        snprintf(offset, sizeof offset, " offset %llu", (unsigned long long)error->offset);
    }
    if (error->key[0]) {
        /* It fits: the buffer has the size of error->key and more. */
        snprintf(key, sizeof key, " key '%s'", error->key);
    }
    /* A place for people: it may be cut. */
    snprintf(text, capacity, "'%.400s'%s%s", error->shard, offset, key);
    escape(text, capacity);
    return strlen(text);
}

/* Copies the part of `where` after the place: the caller writes the place again. */
static void keep_detail(const struct stoker_error *error, char *detail)
{
    char prefix[sizeof error->where];
    size_t bytes = error->shard[0] ? prefix_text(error, prefix, sizeof prefix) : 0;
    const char *rest = error->where;

    if (bytes > 0 && strncmp(rest, prefix, bytes) == 0) {
        rest += bytes;
        rest += strncmp(rest, ": ", 2) == 0 ? 2 : 0;
    }
    snprintf(detail, sizeof error->where, "%s", rest);
}

/* "'shard' offset 512 key 'a/b': detail". */
static void place_text(struct stoker_error *error, const char *detail)
{
    size_t used = prefix_text(error, error->where, sizeof error->where);

    if (detail[0] && !strstr(error->where, detail) && detail[0] != '\'') {
        snprintf(error->where + used, sizeof error->where - used, ": %.*s",
                 (int)(sizeof error->where - used - 3), detail);
    }
    escape(error->where, sizeof error->where);
}

/* Returns the size of the control character at `text` (C0, DEL, C1 in UTF-8), 0 if it is none. */
static size_t control_bytes(const char *text)
{
    const unsigned char *byte = (const unsigned char *)text;

    if ((byte[0] > 0 && byte[0] < 0x20) || byte[0] == 0x7f) {
        return 1;
    }
    return byte[0] == 0xc2 && byte[1] >= 0x80 && byte[1] < 0xa0 ? 2 : 0;
}

/* Writes control characters as \xNN; the end of a text that becomes too long is cut off. */
static void escape(char *text, size_t capacity)
{
    char escaped[sizeof((struct stoker_error *)0)->where];
    size_t used = 0;

    STK_ASSERT(capacity <= sizeof escaped);
    for (const char *from = text; *from && used + 1 < capacity;) {
        size_t control = control_bytes(from);

        if (control * 4 >= capacity - used) {
            break;
        }
        for (size_t i = 0; i < control; i++) {
            used += (size_t)snprintf(escaped + used, capacity - used, "\\x%02x",
                                     (unsigned char)from[i]);
        }
        if (control == 0) {
            escaped[used++] = *from;
        }
        from += control ? control : 1;
    }
    escaped[used] = '\0';
    memcpy(text, escaped, used + 1);
}

const char *stoker_status_name(int status)
{
    const char *name;

    switch (status) {
    case STOKER_OK:
        return "STOKER_OK";
#define X(number, name, sentence)                                                                  \
    case STOKER_ERROR_##name:                                                                      \
        return "STOKER_ERROR_" #name;
        STOKER_ERRORS(X)
#undef X
    default:
        name = strerrorname_np(-status);
        return name ? name : "unknown";
    }
}

const char *stoker_status_text(int status)
{
    const char *text;

    switch (status) {
    case STOKER_OK:
        return "success";
#define X(number, name, sentence)                                                                  \
    case STOKER_ERROR_##name:                                                                      \
        return sentence;
        STOKER_ERRORS(X)
#undef X
    default:
        text = strerrordesc_np(-status);
        return text ? text : "unknown status";
    }
}

const char *stoker_version(void)
{
    return STOKER_VERSION;
}

/* The only place that ends the process: a programming error was detected. The library prints
 * nothing: the message is in the core file, and visible in a debugger. */
static char assert_message[512];

_Noreturn void stk_assert_failed(const char *condition, const char *file, int line)
{
    /* For people: it may be cut. */
    snprintf(assert_message, sizeof assert_message, "stoker: '%s' is false at %s:%d", condition,
             file, line);
    abort();
}
