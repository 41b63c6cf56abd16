/* Percent-encoding of paths and queries. */
#include "storage/sign/sigv4.h"

#include "base/crypto/digest.h"
#include "storage/sign/sigv4_canonical.h"

#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES 64u /* of SHA-256 */
#define DAY_S 86400u

static const char digits[] = "0123456789ABCDEF";

bool stk_url_is_unreserved(uint8_t byte)
{
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
           (byte >= '0' && byte <= '9') || byte == '-' || byte == '.' || byte == '_' || byte == '~';
}

bool stk_url_encode(const char *raw, bool slash, char *text, size_t text_bytes, size_t *used)
{
    for (; *raw; raw++) {
        uint8_t byte = (uint8_t)*raw;
        bool plain = stk_url_is_unreserved(byte) || (slash && byte == '/');

        if (text_bytes - *used < (plain ? 2u : 4u)) {
            return false;
        }
        if (plain) {
            text[(*used)++] = (char)byte;
        } else {
            text[(*used)++] = '%';
            text[(*used)++] = digits[byte >> 4];
            text[(*used)++] = digits[byte & 15];
        }
        text[*used] = '\0';
    }
    return true;
}

static bool add(char byte, char *text, size_t text_bytes, size_t *used)
{
    if (text_bytes - *used < 2) {
        return false;
    }
    text[(*used)++] = byte;
    text[*used] = '\0';
    return true;
}

int stk_url_encode_target(const char *path, const struct stk_sigv4_pair *query,
                          uint32_t query_count, char *text, size_t text_bytes)
{
    size_t used = 0;
    bool fits = stk_url_encode(path, true, text, text_bytes, &used);

    for (uint32_t i = 0; fits && i < query_count; i++) {
        fits = add(i == 0 ? '?' : '&', text, text_bytes, &used) &&
               stk_url_encode(query[i].name, false, text, text_bytes, &used) &&
               add('=', text, text_bytes, &used) &&
               stk_url_encode(query[i].value ? query[i].value : "", false, text, text_bytes, &used);
    }
    return fits ? 0 : STOKER_ERROR_LIMIT;
}

bool stk_url_decode(char *text)
{
    char *to = text;
    bool complete = true;

    for (const char *at = text; *at; at++) {
        if (at[0] == '%' && stk_hex_digit(at[1]) >= 0 && stk_hex_digit(at[2]) >= 0) {
            *to++ = (char)(stk_hex_digit(at[1]) * 16 + stk_hex_digit(at[2]));
            complete = complete && to[-1] != '\0';
            at += 2;
        } else {
            *to++ = *at == '+' ? ' ' : *at;
        }
    }
    *to = '\0';
    return complete;
}

void stk_sigv4_hash(struct stk_view data, char text_out[65])
{
    struct stk_sha256 sha;
    uint8_t digest[32];

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, data.data, data.bytes);
    stk_sha256_done(&sha, digest);
    stk_hex(digest, sizeof digest, text_out);
}

void stk_sigv4_hmac(struct stk_view key, struct stk_view data, uint8_t mac_out[32])
{
    uint8_t pad[BLOCK_BYTES] = {0}, digest[32];
    struct stk_sha256 sha;

    if (key.bytes > sizeof pad) {
        stk_sha256_init(&sha);
        stk_sha256_add(&sha, key.data, key.bytes);
        stk_sha256_done(&sha, pad);
    } else if (key.bytes > 0) {
        memcpy(pad, key.data, key.bytes);
    }
    for (size_t i = 0; i < sizeof pad; i++) {
        pad[i] ^= 0x36;
    }
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, pad, sizeof pad);
    stk_sha256_add(&sha, data.data, data.bytes);
    stk_sha256_done(&sha, digest);
    for (size_t i = 0; i < sizeof pad; i++) {
        pad[i] ^= 0x36 ^ 0x5c;
    }
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, pad, sizeof pad);
    stk_sha256_add(&sha, digest, sizeof digest);
    stk_sha256_done(&sha, mac_out);
    explicit_bzero(pad, sizeof pad);
    explicit_bzero(&sha, sizeof sha);
}

/* Computes the date from a count of days, by eras of 400 years that begin in March (Hinnant,
 * "chrono-Compatible Low-Level Date Algorithms", civil_from_days). */
void stk_sigv4_date(uint64_t time_s, char text_out[STK_SIGV4_DATE_BYTES])
{
    const uint64_t last_s = 253402300799u; /* of the year 9999 */
    uint64_t time = stk_min(time_s, last_s), days = time / DAY_S + 719468;
    uint32_t second = (uint32_t)(time % DAY_S), era = (uint32_t)(days / 146097);
    uint32_t day_of_era = (uint32_t)(days % 146097);
    uint32_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    uint32_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    uint32_t month_from_march = (5 * day_of_year + 2) / 153;
    uint32_t day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    uint32_t month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
    uint32_t year = era * 400 + year_of_era + (month <= 2);

    snprintf(text_out, STK_SIGV4_DATE_BYTES, "%04u%02u%02uT%02u%02u%02uZ", year % 10000,
             month % 100, day % 100, second / 3600 % 100, second / 60 % 60, second % 60);
}
