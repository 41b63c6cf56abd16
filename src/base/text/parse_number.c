/* Numbers in text. strtoll and strtod report overflow by errno, and strtod reads the decimal point
 * of the locale: a program that sets LC_NUMERIC to de_DE would read 0,5 only. */
#include "base/text/parse_number.h"

#include <locale.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The locale "C" is static in the C library: it is not allocated, and all calls return the same. */
static locale_t c_locale(void)
{
    static _Atomic(locale_t) made;
    locale_t found = atomic_load_explicit(&made, memory_order_relaxed);

    if (!found) {
        found = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        atomic_store_explicit(&made, found, memory_order_relaxed);
    }
    return found;
}

static const char *skip_space(const char *text)
{
    return text + strspn(text, " \t\n\v\f\r");
}

/* Parses digits after white space and a sign: a number up to `most`, one more if it is negative. */
static bool parse_digits(const char *text, const char **end_out, uint64_t most, bool *negative_out,
                         uint64_t *number_out)
{
    const char *at = skip_space(text);
    bool any = false, fits = true;
    uint64_t number = 0;

    *negative_out = *at == '-';
    most += *negative_out && most == INT64_MAX;
    at += *at == '-' || *at == '+';
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');

        any = true;
        fits = fits && number <= (most - digit) / 10;
        number = fits ? 10 * number + digit : number;
    }
    *end_out = any ? at : text;
    *number_out = number;
    return any && fits;
}

bool stk_parse_int64(const char *text, const char **end_out, int64_t *number_out)
{
    uint64_t number;
    bool negative, fits = parse_digits(text, end_out, INT64_MAX, &negative, &number);

    *number_out = negative ? (int64_t)(0 - number) : (int64_t)number;
    return fits;
}

bool stk_parse_uint64(const char *text, const char **end_out, uint64_t *number_out)
{
    bool negative, fits = parse_digits(text, end_out, UINT64_MAX, &negative, number_out);

    return fits && (!negative || *number_out == 0);
}

bool stk_parse_double(const char *text, const char **end_out, double *number_out)
{
    char *end;

    *number_out = strtod_l(text, &end, c_locale());
    *end_out = end;
    /* Infinity in words is what the writer meant; from digits it is an overflow. */
    return end != text &&
           !(isinf(*number_out) && strcspn(text, "0123456789") < (size_t)(end - text));
}

void stk_format_double(char *text, size_t text_bytes, int digits, double number)
{
    locale_t before = uselocale(c_locale());

    STK_ASSERT(text_bytes >= 32 && digits <= 17);
    snprintf(text, text_bytes, "%.*g", digits, number);
    uselocale(before);
}

bool stk_parse_is_end(const char *at, const char *end)
{
    return at + strspn(at, " \t\r\n") == end;
}

bool stk_parse_size(const char *text, bool with_unit, uint64_t *size_out)
{
    static const char units[] = "KkMmGgTt";
    uint64_t value = 0;
    unsigned shift = 0;

    if (*text < '0' || *text > '9') {
        return false;
    }
    for (; *text >= '0' && *text <= '9'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');

        if (value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    if (with_unit && *text) {
        const char *unit = strchr(units, *text);

        if (!unit) {
            return false;
        }
        shift = 10 * ((unsigned)(unit - units) / 2 + 1);
        text++;
        text += strcmp(text, "B") == 0 ? 1 : strcmp(text, "iB") == 0 ? 2 : 0;
    }
    if (*text || value > UINT64_MAX >> shift) {
        return false;
    }
    *size_out = value << shift;
    return true;
}
