/* Headers of a tar: ustar where it can say it, PAX before it where it can not. */
#include "format/tar/tar_write.h"

#include "base/text/utf8.h"

#include <string.h>

enum {
    NAME_BYTES = 100,
    PREFIX_BYTES = 155,
    RECORD_EXTRA_MAX = 64, /* of a PAX record without the name: length, keyword, '=', newline */
};
#define USTAR_SIZE_END (UINT64_C(1) << 33) /* eleven octal digits */

/* Offsets of the fields of a header (ustar). */
enum {
    AT_NAME = 0,
    AT_MODE = 100,
    AT_OWNER = 108,
    AT_GROUP = 116,
    AT_SIZE = 124,
    AT_TIME = 136,
    AT_CHECKSUM = 148,
    AT_TYPE = 156,
    AT_MAGIC = 257,
    AT_PREFIX = 345,
};

static bool split(struct stk_view name, struct stk_view *prefix_out, struct stk_view *rest_out);
static size_t pax_records(struct stk_view name, uint64_t bytes, uint8_t *out);
static void block_write(uint8_t *out, struct stk_view name, uint64_t bytes, uint8_t type);

size_t stk_tar_header_bytes(struct stk_view name, uint64_t bytes)
{
    uint8_t records[STK_TAR_NAME_MAX + 3 * RECORD_EXTRA_MAX];
    size_t extended = pax_records(name, bytes, records);

    return extended == 0 ? STK_TAR_BLOCK
                         : 2 * STK_TAR_BLOCK + (size_t)stk_round_up(extended, STK_TAR_BLOCK);
}

size_t stk_tar_header_write(struct stk_view name, uint64_t bytes, uint8_t *out)
{
    static const char pax_name[] = "././@PaxHeader"; /* as Python's tarfile calls it */
    uint8_t records[STK_TAR_NAME_MAX + 3 * RECORD_EXTRA_MAX];
    size_t extended = pax_records(name, bytes, records), at = 0;

    if (extended > 0) {
        struct stk_view pax = {(const uint8_t *)pax_name, sizeof pax_name - 1};

        block_write(out, pax, extended, 'x');
        memcpy(out + STK_TAR_BLOCK, records, extended);
        memset(out + STK_TAR_BLOCK + extended, 0, stk_tar_padding(extended));
        at = STK_TAR_BLOCK + (size_t)stk_round_up(extended, STK_TAR_BLOCK);
    }
    block_write(out + at, name, bytes, '0');
    return at + STK_TAR_BLOCK;
}

/* Name and prefix fields for a name: cut at a slash so that both parts fit. */
static bool split(struct stk_view name, struct stk_view *prefix_out, struct stk_view *rest_out)
{
    *prefix_out = (struct stk_view){name.data, 0};
    *rest_out = name;
    if (name.bytes <= NAME_BYTES) {
        return true;
    }
    /* The first slash that leaves a short enough name: the prefix is then as short as can be. */
    for (size_t i = name.bytes - NAME_BYTES - 1; i <= PREFIX_BYTES && i + 1 < name.bytes; i++) {
        if (name.data[i] == '/' && i > 0) {
            *prefix_out = (struct stk_view){name.data, i};
            *rest_out = (struct stk_view){name.data + i + 1, name.bytes - i - 1};
            return true;
        }
    }
    return false;
}

static size_t decimal(uint64_t value, char digits[20])
{
    char reversed[20];
    size_t count = 0;

    do {
        reversed[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    for (size_t i = 0; i < count; i++) {
        digits[i] = reversed[count - 1 - i];
    }
    return count;
}

/* "LENGTH KEYWORD=VALUE\n", where LENGTH counts itself. */
static size_t record(uint8_t *out, const char *keyword, struct stk_view value)
{
    size_t keyword_bytes = strlen(keyword);
    size_t rest = 1 + keyword_bytes + 1 + value.bytes + 1, length = rest + 1, at;
    char digits[20];

    while (rest + decimal(length, digits) != length) {
        length = rest + decimal(length, digits);
    }
    at = decimal(length, digits);
    memcpy(out, digits, at);
    out[at++] = ' ';
    memcpy(out + at, keyword, keyword_bytes);
    at += keyword_bytes;
    out[at++] = '=';
    memcpy(out + at, value.data, value.bytes);
    at += value.bytes;
    out[at++] = '\n';
    return at;
}

/* The PAX records that a member needs; 0: none. */
static size_t pax_records(struct stk_view name, uint64_t bytes, uint8_t *out)
{
    static const char binary[] = "BINARY";
    struct stk_view prefix, rest;
    size_t at = 0;

    STK_ASSERT(name.bytes > 0 && name.bytes <= STK_TAR_NAME_MAX);
    if (!split(name, &prefix, &rest)) {
        if (!stk_utf8_check(name, NULL)) {
            at += record(out + at, "hdrcharset",
                         (struct stk_view){(const uint8_t *)binary, sizeof binary - 1});
        }
        at += record(out + at, "path", name);
    }
    if (bytes >= USTAR_SIZE_END) {
        char digits[20];
        size_t count = decimal(bytes, digits);

        at += record(out + at, "size", (struct stk_view){(const uint8_t *)digits, count});
    }
    return at;
}

/* A number in octal with leading zeros, and a NUL after it. */
static void octal(uint8_t *field, size_t field_bytes, uint64_t value)
{
    for (size_t i = field_bytes - 1; i-- > 0; value >>= 3) {
        field[i] = (uint8_t)('0' + (value & 7));
    }
    field[field_bytes - 1] = 0;
}

static void block_write(uint8_t *out, struct stk_view name, uint64_t bytes, uint8_t type)
{
    struct stk_view prefix, rest;
    uint64_t sum = 0;

    if (!split(name, &prefix,
               &rest)) { /* the PAX header has the complete name; other readers use a part of it */
        rest = (struct stk_view){name.data, NAME_BYTES};
    }
    memset(out, 0, STK_TAR_BLOCK);
    memcpy(out + AT_NAME, rest.data, rest.bytes);
    memcpy(out + AT_PREFIX, prefix.data, prefix.bytes);
    octal(out + AT_MODE, 8, 0644);
    octal(out + AT_OWNER, 8, 0);
    octal(out + AT_GROUP, 8, 0);
    octal(out + AT_SIZE, 12, bytes < USTAR_SIZE_END ? bytes : 0);
    octal(out + AT_TIME, 12, 0);
    out[AT_TYPE] = type;
    memcpy(out + AT_MAGIC, "ustar\00000", 8);
    memset(out + AT_CHECKSUM, ' ', 8);
    for (size_t i = 0; i < STK_TAR_BLOCK; i++) {
        sum += out[i];
    }
    octal(out + AT_CHECKSUM, 7, sum); /* six digits, NUL, blank */
}
