/* JSON that is valid but has values that jansson refuses: integers of more than 63 bits, real
 * numbers beyond the largest double, and text with half a surrogate pair. Most fields are not read,
 * so such a value must not make the document unreadable. It is written again:
 *
 *   12345678901234567890 -> "<U+FDD0>12345678901234567890": read_node makes it a number again
 *   123456789012345678901 -> 123456789012345678901e0, a real number
 *   1e999                -> "<U+FDD0>r": STK_VALUE_NODE_OVERFLOW
 *   "\ud800"             -> "<U+FDD0>t": STK_VALUE_NODE_SURROGATE; in a name: "\ufffd"
 *
 * A field that reads one of the last two fails, and its error names the kind.
 */
#include "format/value/value_private.h"

#include "base/mem.h"
#include "base/text/parse_number.h"

#include <math.h>
#include <string.h>

struct lenient {
    struct stk_view in;
    size_t at; /* in `in` */
    uint8_t *out;
    size_t bytes;
};

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

/* The four hexadecimal digits of an escape; -1: missing. */
static int code_at(struct stk_view in, size_t at)
{
    int code = 0;

    if (at + 6 > in.bytes || in.data[at] != '\\' || in.data[at + 1] != 'u') {
        return -1;
    }
    for (size_t i = at + 2; i < at + 6; i++) {
        int c = in.data[i] | 0x20, digit = is_digit(in.data[i])   ? in.data[i] - '0'
                                           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                                  : -1;

        if (digit < 0) {
            return -1;
        }
        code = 16 * code + digit;
    }
    return code;
}

static bool is_high(int code)
{
    return code >= 0xd800 && code < 0xdc00;
}

static bool is_low(int code)
{
    return code >= 0xdc00 && code < 0xe000;
}

/* The end of the text that begins at the quote `at`. Counts its lone surrogates. */
static size_t text_end(struct stk_view in, size_t at, uint32_t *lone_out)
{
    *lone_out = 0;
    for (at++; at < in.bytes && in.data[at] != '"'; at++) {
        int code = code_at(in, at);

        if (is_high(code) && is_low(code_at(in, at + 6))) {
            at += 11;
        } else if (is_high(code) || is_low(code)) {
            ++*lone_out;
            at += 5;
        } else if (in.data[at] == '\\') {
            at++;
        }
    }
    return stk_min(at + 1, in.bytes);
}

static void put(struct lenient *copy, const void *data, size_t bytes)
{
    memcpy(copy->out + copy->bytes, data, bytes);
    copy->bytes += bytes;
}

static void put_text(struct lenient *copy, const char *text)
{
    put(copy, "\"", 1);
    put(copy, text, strlen(text));
    put(copy, "\"", 1);
}

static bool is_name(struct stk_view in, size_t at)
{
    while (at < in.bytes && strchr(" \t\r\n", in.data[at])) {
        at++;
    }
    return at < in.bytes && in.data[at] == ':';
}

/* Copies a text; a value with a lone surrogate becomes STK_JSON_SURROGATE. */
static void copy_text(struct lenient *copy)
{
    uint32_t lone;
    size_t at = copy->at, end = text_end(copy->in, at, &lone);

    copy->at = end;
    if (lone > 0 && !is_name(copy->in, end)) {
        put_text(copy, STK_JSON_SURROGATE);
        return;
    }
    while (at < end) {
        int code = code_at(copy->in, at);
        size_t bytes = code < 0 ? (copy->in.data[at] == '\\' ? 2 : 1) : 6;

        if (is_high(code) && is_low(code_at(copy->in, at + 6))) {
            put(copy, copy->in.data + at, 12);
            at += 12;
            continue;
        }
        bytes = stk_min(bytes, end - at);
        put(copy, is_high(code) || is_low(code) ? (const uint8_t *)"\\ufffd" : copy->in.data + at,
            bytes);
        at += bytes;
    }
}

/* Copies a number. */
static void copy_number(struct lenient *copy)
{
    const uint8_t *data = copy->in.data;
    size_t at = copy->at, end = at, digits = 0;
    bool is_real = false, fits_natural = true;
    uint64_t natural = 0;

    for (; end < copy->in.bytes && (is_digit(data[end]) || memchr("+-.eE", data[end], 5)); end++) {
        is_real = is_real || memchr(".eE", data[end], 3);
        if (is_digit(data[end])) {
            digits++;
            fits_natural = fits_natural && stk_multiply(natural, 10, &natural) &&
                           stk_add(natural, (uint64_t)(data[end] - '0'), &natural);
        }
    }
    copy->at = end;
    if (!is_real && fits_natural && natural <= (uint64_t)INT64_MAX + (data[at] == '-')) {
        put(copy, data + at, end - at);
        return;
    }
    if (!is_real && fits_natural && digits == end - at && data[at] != '0') {
        put(copy, "\"" STK_JSON_NATURAL, 1 + strlen(STK_JSON_NATURAL));
        put(copy, data + at, end - at);
        put(copy, "\"", 1);
        return;
    }
    /* There is space for a NUL: the text of the number in the copy is checked there. */
    put(copy, data + at, end - at);
    if (!is_real) {
        put(copy, "e0", 2);
    }
    copy->out[copy->bytes] = 0;

    const char *stop,
        *text = (const char *)copy->out + copy->bytes - (end - at) - (is_real ? 0 : 2);
    double number;
    bool fits = stk_parse_double(text, &stop, &number);

    if (!fits && stop == (const char *)copy->out + copy->bytes) {
        copy->bytes = (size_t)((const uint8_t *)text - copy->out);
        put_text(copy, STK_JSON_OVERFLOW);
    }
}

int stk_json_rewrite(struct stk_view in, struct stk_view *copy_out, struct stoker_error *error)
{
    /* A number of 5 bytes or more, and a byte after it, grow by at most 1 byte; one of 19 digits or
     * more by at most 5. */
    size_t capacity = in.bytes + in.bytes / 4 + 16;
    struct lenient copy = {.in = in, .out = stk_alloc(capacity, 1)};

    *copy_out = (struct stk_view){NULL, 0};
    if (!copy.out) {
        return stk_fail_memory(error, "JSON");
    }
    while (copy.at < in.bytes) {
        uint8_t byte = in.data[copy.at];

        if (byte == '"') {
            copy_text(&copy);
        } else if (is_digit(byte) || byte == '-') {
            copy_number(&copy);
        } else {
            put(&copy, in.data + copy.at++, 1);
        }
        STK_ASSERT(copy.bytes < capacity);
    }
    *copy_out = (struct stk_view){copy.out, copy.bytes};
    return 0;
}
