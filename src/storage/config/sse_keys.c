/* Parses customer-provided keys from lines of text. */
#include "storage/config/sse_keys.h"

#include "base/crypto/digest.h"
#include "base/crypto/secret_memory.h"
#include "io/small_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KEY_BYTES 32u

static int add_line(struct stk_sse_keys *sse_keys, struct stk_view line, const char *where,
                    struct stoker_error *error);
static bool read_key(struct stk_view text, uint8_t key[KEY_BYTES]);
static int add_file(struct stk_sse_keys *sse_keys, const char *path, struct stoker_error *error);

int stk_sse_keys_open(struct stk_sse_keys *sse_keys, struct stoker_error *error)
{
    const char *path = getenv("STOKER_SSE_C_KEY_FILE"), *text = getenv("STOKER_SSE_C_KEY");
    int status = path && path[0] ? add_file(sse_keys, path, error) : 0;

    if (status == 0 && text && text[0]) {
        status = stk_sse_keys_add(sse_keys, (struct stk_view){(const uint8_t *)text, strlen(text)},
                                  "STOKER_SSE_C_KEY", error);
    }
    return status;
}

static int add_file(struct stk_sse_keys *sse_keys, const char *path, struct stoker_error *error)
{
    uint8_t *text = stk_secret_alloc(STK_SSE_KEYS_FILE_BYTES_MAX);
    int64_t got;
    int status;

    if (!text) {
        return stk_fail(error, -ENOMEM, "cannot read keys", "free memory", "'%.400s'", path);
    }
    got = stk_small_file_read(path, text, STK_SSE_KEYS_FILE_BYTES_MAX);
    status = got < 0 ? stk_fail_errno(error, (int)-got, "cannot read the file of customers' keys",
                                      "check STOKER_SSE_C_KEY_FILE", "'%.400s'", path)
             : got == STK_SSE_KEYS_FILE_BYTES_MAX
                 ? stk_fail(error, STOKER_ERROR_LIMIT, "a file of customers' keys is too large",
                            "check STOKER_SSE_C_KEY_FILE", "'%.400s'", path)
                 : stk_sse_keys_add(sse_keys, (struct stk_view){text, (size_t)got}, path, error);
    stk_secret_free(text);
    return status;
}

static int fail_line(const char *what, const char *where, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, what,
                    "write KEY, or s3://bucket/prefix KEY: 32 bytes in base64 or in hex", "%s",
                    where);
}

static int add(struct stk_sse_keys *sse_keys, struct stk_view prefix, const uint8_t key[KEY_BYTES],
               const char *where, struct stoker_error *error)
{
    struct stk_sse_key *added = &sse_keys->keys[sse_keys->count];
    char text[STK_BASE64_BYTES];
    uint8_t digest[16];

    if (sse_keys->count == STK_SSE_KEYS_MAX || prefix.bytes >= sizeof added->prefix) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "there are too many customer-provided keys",
                        "use at most 16, and shorter prefixes", "%s", where);
    }
    memcpy(added->prefix, prefix.bytes ? prefix.data : (const uint8_t *)"", prefix.bytes);
    added->prefix[prefix.bytes] = '\0';
    for (uint32_t i = 0; i < sse_keys->count; i++) {
        if (strcmp(sse_keys->keys[i].prefix, added->prefix) == 0) {
            return fail_line("two customers' keys are for the same objects", where, error);
        }
    }
    stk_base64(key, KEY_BYTES, text);
    memcpy(added->key, text, sizeof added->key);
    stk_md5(key, KEY_BYTES, digest);
    explicit_bzero(text, sizeof text);
    stk_base64(digest, sizeof digest, text);
    memcpy(added->md5, text, sizeof added->md5);
    sse_keys->count++;
    return 0;
}

static bool is_blank(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

int stk_sse_keys_add(struct stk_sse_keys *sse_keys, struct stk_view text, const char *from,
                     struct stoker_error *error)
{
    const uint8_t *end = text.data + text.bytes, *next = text.data;
    char where[512];
    int status = 0;

    if (text.bytes == KEY_BYTES) { /* no line with a key is so short */
        return add(sse_keys, (struct stk_view){0}, text.data, from, error);
    }
    for (uint32_t number = 1; next < end && status == 0; number++) {
        const uint8_t *at = next, *last = memchr(at, '\n', (size_t)(end - at));

        last = last ? last : end;
        next = last + (last < end);
        while (at < last && is_blank(*at)) {
            at++;
        }
        while (last > at && is_blank(last[-1])) {
            last--;
        }
        if (at < last && *at != '#') {
            snprintf(where, sizeof where, "'%.400s' line %u", from, number);
            status = add_line(sse_keys, (struct stk_view){at, (size_t)(last - at)}, where, error);
        }
    }
    return status;
}

/* The key follows the last blank: a prefix may contain blanks. */
static int add_line(struct stk_sse_keys *sse_keys, struct stk_view line, const char *where,
                    struct stoker_error *error)
{
    static const char scheme[] = "s3://";
    struct stk_view prefix = line, key = line;
    uint8_t raw[KEY_BYTES];
    int status;

    while (key.bytes > 0 && !is_blank(key.data[key.bytes - 1])) {
        key.bytes--;
    }
    prefix.bytes = key.bytes; /* with the blank */
    key = (struct stk_view){line.data + prefix.bytes, line.bytes - prefix.bytes};
    while (prefix.bytes > 0 && is_blank(prefix.data[prefix.bytes - 1])) {
        prefix.bytes--;
    }
    if (prefix.bytes > 0) {
        if (prefix.bytes < sizeof scheme ||
            strncasecmp((const char *)prefix.data, scheme, sizeof scheme - 1) != 0 ||
            prefix.data[sizeof scheme - 1] == '/' || memchr(prefix.data, '\0', prefix.bytes)) {
            return fail_line("a customer's key is for no URL of S3", where, error);
        }
        prefix.data += sizeof scheme - 1;
        prefix.bytes -= sizeof scheme - 1;
        if (memchr(prefix.data, '/', prefix.bytes) == prefix.data + prefix.bytes - 1) {
            prefix.bytes--; /* "s3://bucket/" is all that "s3://bucket" is */
        }
    }
    if (!read_key(key, raw)) {
        return fail_line("a customer's key is not of 32 bytes", where, error);
    }
    status = add(sse_keys, prefix, raw, where, error);
    explicit_bzero(raw, sizeof raw);
    return status;
}

/* Accepts 64 hexadecimal digits, or base64 of 32 bytes. */
static bool read_key(struct stk_view text, uint8_t key[KEY_BYTES])
{
    if (text.bytes != 2 * KEY_BYTES) {
        return stk_base64_decode(text, key, KEY_BYTES);
    }
    for (size_t i = 0; i < KEY_BYTES; i++) {
        int high = stk_hex_digit((char)text.data[2 * i]);
        int low = stk_hex_digit((char)text.data[2 * i + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        key[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

const struct stk_sse_key *stk_sse_keys_find(const struct stk_sse_keys *sse_keys, const char *bucket,
                                            const char *key)
{
    const struct stk_sse_key *best = NULL;
    size_t bucket_bytes = strlen(bucket), best_bytes = 0;

    for (uint32_t i = 0; i < sse_keys->count; i++) {
        const char *prefix = sse_keys->keys[i].prefix, *rest = prefix + bucket_bytes;
        size_t bytes = strlen(prefix);
        /* An ARN in place of a bucket may contain a '/'. */
        bool fits = bytes == 0 ||
                    (strncmp(prefix, bucket, bucket_bytes) == 0 &&
                     (!*rest || (*rest == '/' && strncmp(key, rest + 1, strlen(rest + 1)) == 0)));

        if (fits && (!best || bytes > best_bytes)) {
            best = &sse_keys->keys[i];
            best_bytes = bytes;
        }
    }
    return best;
}
