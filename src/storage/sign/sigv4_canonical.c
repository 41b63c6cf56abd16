/* The canonical request. Client and server hash it, so it must be the same to the byte. */
#include "storage/sign/sigv4_canonical.h"

#include "base/crypto/digest.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int compare_query(const void *left, const void *right);
static int compare_headers(const void *left, const void *right);
static int compare_encoded(const char *a, const char *b);
static void hash_text(struct stk_sha256 *sha, const char *text);
static void hash_encoded(struct stk_sha256 *sha, const char *raw, bool slash);
static void hash_lower(struct stk_sha256 *sha, const char *text);
static void hash_folded(struct stk_sha256 *sha, const char *value);

void stk_sigv4_sort_query(struct stk_sigv4_sorted *query)
{
    qsort(query->pairs, query->count, sizeof query->pairs[0], compare_query);
}

int stk_sigv4_sort_headers(struct stk_sigv4_sorted *headers)
{
    qsort(headers->pairs, headers->count, sizeof headers->pairs[0], compare_headers);
    for (uint32_t i = 1; i < headers->count; i++) {
        if (strcasecmp(headers->pairs[i - 1].name, headers->pairs[i].name) == 0) {
            return STOKER_ERROR_ARGUMENT;
        }
    }
    return 0;
}

int stk_sigv4_signed_headers(const struct stk_sigv4_sorted *headers, char *text, size_t text_bytes)
{
    size_t used = 0;

    for (uint32_t i = 0; i < headers->count; i++) {
        size_t bytes = strlen(headers->pairs[i].name);

        if (bytes + 2 > text_bytes - used) {
            return STOKER_ERROR_LIMIT;
        }
        if (i > 0) {
            text[used++] = ';';
        }
        for (size_t k = 0; k < bytes; k++) {
            text[used++] = (char)tolower((unsigned char)headers->pairs[i].name[k]);
        }
    }
    text[used] = '\0';
    return 0;
}

void stk_sigv4_canonical_hash(const struct stk_sigv4_request *request,
                              const struct stk_sigv4_sorted *query,
                              const struct stk_sigv4_sorted *headers, const char *names,
                              char hash_out[65])
{
    struct stk_sha256 sha;
    uint8_t digest[32];

    stk_sha256_init(&sha);
    hash_text(&sha, request->method);
    hash_text(&sha, "\n");
    hash_encoded(&sha, request->path, true);
    hash_text(&sha, "\n");
    for (uint32_t i = 0; i < query->count; i++) {
        hash_text(&sha, i ? "&" : "");
        hash_encoded(&sha, query->pairs[i].name, false);
        hash_text(&sha, "=");
        hash_encoded(&sha, query->pairs[i].value ? query->pairs[i].value : "", false);
    }
    hash_text(&sha, "\n");
    for (uint32_t i = 0; i < headers->count; i++) {
        hash_lower(&sha, headers->pairs[i].name);
        hash_text(&sha, ":");
        hash_folded(&sha, headers->pairs[i].value ? headers->pairs[i].value : "");
        hash_text(&sha, "\n");
    }
    hash_text(&sha, "\n");
    hash_text(&sha, names);
    hash_text(&sha, "\n");
    hash_text(&sha, request->payload);
    stk_sha256_done(&sha, digest);
    stk_hex(digest, sizeof digest, hash_out);
}

static int compare_query(const void *left, const void *right)
{
    const struct stk_sigv4_pair *a = left, *b = right;
    int order = compare_encoded(a->name, b->name);

    return order ? order : compare_encoded(a->value ? a->value : "", b->value ? b->value : "");
}

static int compare_headers(const void *left, const void *right)
{
    const struct stk_sigv4_pair *a = left, *b = right;

    return strcasecmp(a->name, b->name);
}

/* Compares like strcmp of the encodings: '%' is less than every byte that is not encoded, and
 * the digits of encoded bytes have the order of the bytes. */
static int compare_encoded(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    if (*a && *b && stk_url_is_unreserved((uint8_t)*a) != stk_url_is_unreserved((uint8_t)*b)) {
        return stk_url_is_unreserved((uint8_t)*a) ? 1 : -1;
    }
    return (int)(uint8_t)*a - (int)(uint8_t)*b;
}

static void hash_text(struct stk_sha256 *sha, const char *text)
{
    stk_sha256_add(sha, text, strlen(text));
}

static void hash_encoded(struct stk_sha256 *sha, const char *raw, bool slash)
{
    char piece[256], one[2] = {0};
    size_t used = 0;

    for (; *raw; raw++) {
        if (sizeof piece - used < 4) {
            stk_sha256_add(sha, piece, used);
            used = 0;
        }
        one[0] = *raw;
        stk_url_encode(one, slash, piece, sizeof piece, &used);
    }
    stk_sha256_add(sha, piece, used);
}

static void hash_lower(struct stk_sha256 *sha, const char *text)
{
    for (; *text; text++) {
        char lower = (char)tolower((unsigned char)*text);

        stk_sha256_add(sha, &lower, 1);
    }
}

/* Hashes the text without blanks at both ends, and with each run of blanks as one. */
static void hash_folded(struct stk_sha256 *sha, const char *value)
{
    static const char blanks[] = " \t\r\n\v\f";

    for (value += strspn(value, blanks); *value;) {
        size_t word = strcspn(value, blanks);

        stk_sha256_add(sha, value, word);
        value += word;
        value += strspn(value, blanks);
        if (*value) {
            stk_sha256_add(sha, " ", 1);
        }
    }
}
