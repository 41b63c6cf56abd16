/* Parses the checksums that servers report. A malformed one counts as absent. */
#include "storage/checksum/checksum.h"

#include "base/crc.h"
#include "base/crypto/digest.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct kind {
    const char *name; /* as it is shown */
    uint32_t bytes;
} kinds[STK_CHECKSUM_KINDS] = {
    [STK_CHECKSUM_CRC64] = {"crc64nvme", 8}, [STK_CHECKSUM_CRC32C] = {"crc32c", 4},
    [STK_CHECKSUM_CRC32] = {"crc32", 4},     [STK_CHECKSUM_SHA256] = {"sha256", 32},
    [STK_CHECKSUM_SHA1] = {"sha1", 20},      [STK_CHECKSUM_GIT_BLOB] = {"git-sha1", 20},
    [STK_CHECKSUM_MD5] = {"md5", 16},
};

static bool is(struct stk_view name, const char *text)
{
    return name.bytes == strlen(text) &&
           strncasecmp((const char *)name.data, text, name.bytes) == 0;
}

/* Replaces the checksum if the new one is better. */
static void add_checksum(struct stk_checksum *checksum, uint32_t kind, struct stk_view text,
                         uint32_t parts)
{
    struct stk_checksum found = {.kind = kind, .parts = parts};

    if (stk_base64_decode(text, found.sum, kinds[kind].bytes) &&
        (checksum->kind == STK_CHECKSUM_NONE || kind < checksum->kind)) {
        *checksum = found;
    }
}

static uint32_t kind_of(struct stk_view name)
{
    for (uint32_t kind = 1; kind < STK_CHECKSUM_KINDS; kind++) {
        if (kind != STK_CHECKSUM_GIT_BLOB && is(name, kinds[kind].name)) { /* in no list */
            return kind;
        }
    }
    return is(name, "sha-256") ? STK_CHECKSUM_SHA256
           : is(name, "sha")   ? STK_CHECKSUM_SHA1
                               : STK_CHECKSUM_NONE;
}

/* "crc32c=AAAAAA==,md5=..", "sha-256=:...:": a list of names and base64. */
static void read_list(struct stk_checksum *checksum, struct stk_view list)
{
    const uint8_t *at = list.data, *end = at + list.bytes;

    while (at < end) {
        const uint8_t *next = memchr(at, ',', (size_t)(end - at)), *equals, *last;

        next = next ? next : end;
        while (at < next && (*at == ' ' || *at == '\t')) {
            at++;
        }
        equals = at < next ? memchr(at, '=', (size_t)(next - at)) : NULL;
        for (last = next; last > at && (last[-1] == ' ' || last[-1] == '\t'); last--) {
        }
        if (equals) {
            uint32_t kind = kind_of((struct stk_view){at, (size_t)(equals - at)});

            equals++;
            if (last - equals >= 2 && *equals == ':' && last[-1] == ':') {
                equals++;
                last--;
            }
            if (kind != STK_CHECKSUM_NONE && last > equals) {
                add_checksum(checksum, kind, (struct stk_view){equals, (size_t)(last - equals)}, 0);
            }
        }
        at = next + (next < end);
    }
}

/* ---- dialects ---- */

/* The values that are found while the headers are parsed. */
struct parsed_headers {
    struct stk_response_checksums *seals;
    bool all, tag;
    bool composite;             /* the type that S3 reports */
    struct stk_checksum joined; /* a checksum of part checksums: not of the body as it is sent */
    bool stored_gzip, gzip;     /* Google: as the object is stored, and as it is sent */
    bool sealed_otherwise;      /* encrypted: then an ETag is no MD5 */
    struct stk_view etag;
};

/* Parses "c29tZQ==-12": cuts off the number of parts, 0 if there is none. Returns false if the
 * number is invalid. */
static bool read_parts(struct stk_view *value, uint32_t *parts)
{
    const uint8_t *dash = value->bytes ? memchr(value->data, '-', value->bytes) : NULL;
    const uint8_t *end = value->data + value->bytes;

    *parts = 0;
    if (!dash) {
        return true;
    }
    value->bytes = (size_t)(dash - value->data);
    if (end - dash < 2 || end - dash > 10) {
        return false;
    }
    for (const uint8_t *at = dash + 1; at < end; at++) {
        if (*at < '0' || *at > '9') {
            return false;
        }
        *parts = *parts * 10 + (uint32_t)(*at - '0');
    }
    return *parts > 0;
}

static void read_amazon(struct parsed_headers *parsed_headers, struct stk_view name,
                        struct stk_view value)
{
    static const char prefix[] = "x-amz-checksum-";
    size_t bytes = sizeof prefix - 1;
    uint32_t kind, parts;

    if (is(name, "ETag")) {
        parsed_headers->etag = value;
    } else if (is(name, "x-amz-server-side-encryption")) {
        parsed_headers->sealed_otherwise = parsed_headers->sealed_otherwise || !is(value, "AES256");
    } else if (is(name, "x-amz-server-side-encryption-customer-algorithm")) {
        parsed_headers->sealed_otherwise = true;
    } else if (name.bytes > bytes && strncasecmp((const char *)name.data, prefix, bytes) == 0) {
        name.data += bytes;
        name.bytes -= bytes;
        parsed_headers->composite =
            parsed_headers->composite || (is(name, "type") && is(value, "COMPOSITE"));
        kind = kind_of(name);
        if (kind != STK_CHECKSUM_NONE && kind != STK_CHECKSUM_MD5 && read_parts(&value, &parts)) {
            add_checksum(parts > 1 ? &parsed_headers->joined : &parsed_headers->seals->body, kind,
                         value, parts);
        }
    }
}

static void read_google(struct parsed_headers *parsed_headers, struct stk_view name,
                        struct stk_view value)
{
    if (is(name, "x-goog-hash")) {
        read_list(&parsed_headers->seals->object, value);
    } else if (is(name, "x-goog-stored-content-encoding")) {
        parsed_headers->stored_gzip = is(value, "gzip");
    } else if (is(name, "Content-Encoding")) {
        parsed_headers->gzip = is(value, "gzip");
    }
}

/* Microsoft writes the bytes of the number in little-endian order. */
static void read_azure(struct parsed_headers *parsed_headers, struct stk_view name,
                       struct stk_view value)
{
    uint8_t turned[8];

    if (is(name, "x-ms-content-crc64") && stk_base64_decode(value, turned, sizeof turned)) {
        parsed_headers->seals->body = (struct stk_checksum){.kind = STK_CHECKSUM_CRC64};
        for (uint32_t i = 0; i < 8; i++) {
            parsed_headers->seals->body.sum[i] = turned[7 - i];
        }
    } else if (is(name, "Content-MD5")) {
        add_checksum(&parsed_headers->seals->body, STK_CHECKSUM_MD5, value, 0);
    }
}

static void read_web(struct parsed_headers *parsed_headers, struct stk_view name,
                     struct stk_view value)
{
    struct stk_response_checksums *seals = parsed_headers->seals;

    if (is(name, "Content-Digest")) {
        read_list(&seals->body, value);
    } else if (is(name, "Repr-Digest") || is(name, "Digest")) {
        read_list(&seals->object, value);
    } else if (is(name, "Content-MD5")) {
        add_checksum(parsed_headers->all ? &seals->object : &seals->body, STK_CHECKSUM_MD5, value,
                     0);
    } else if (is(name, "ETag")) {
        parsed_headers->etag = value;
    }
}

static void choose_checksums(struct parsed_headers *parsed_headers, uint32_t dialect)
{
    struct stk_response_checksums *seals = parsed_headers->seals;

    if (dialect == STK_CHECKSUM_FROM_AWS) {
        /* For a range, S3 reports the checksum of a part only if the range is that part. For an
         * object with a composite checksum, S3 reports the checksum of checksums. Other servers
         * report the checksum of the complete object. */
        seals->unreliable = seals->body.kind && (parsed_headers->composite ? seals->body.parts == 0
                                                                           : !parsed_headers->all);
        seals->object = parsed_headers->all && !seals->unreliable ? seals->body : seals->object;
        if (parsed_headers->all && seals->object.kind == STK_CHECKSUM_NONE) {
            seals->object = parsed_headers->joined;
        }
    } else {
        seals->unreliable =
            seals->body.kind == STK_CHECKSUM_MD5 && !parsed_headers->all; /* or of the object */
        if (parsed_headers->stored_gzip && !parsed_headers->gzip) {
            seals->object =
                (struct stk_checksum){0}; /* unpacked on the way: it is of other bytes */
        }
    }
    if (parsed_headers->all && seals->object.kind && seals->object.parts <= 1 &&
        (!seals->body.kind || seals->unreliable || seals->object.kind < seals->body.kind)) {
        seals->body = seals->object;
        seals->unreliable = false;
    }
}

/* Reads digits in quotes. Stores set an ETag of 32 digits for an object that one request
 * wrote. */
static bool read_tag(struct stk_view etag, uint32_t kind, struct stk_checksum *checksum)
{
    struct stk_checksum found = {.kind = kind};
    uint32_t digits = 2 * kinds[kind].bytes;

    if (etag.bytes != digits + 2 || etag.data[0] != '"' || etag.data[digits + 1] != '"') {
        return false;
    }
    for (uint32_t i = 0; i < digits; i++) {
        uint8_t c = etag.data[1 + i];
        uint32_t value = c >= '0' && c <= '9'   ? (uint32_t)c - '0'
                         : c >= 'a' && c <= 'f' ? c - 'a' + 10u
                                                : 16u;
        if (value > 15) {
            return false;
        }
        found.sum[i / 2] = (uint8_t)(found.sum[i / 2] << 4 | value);
    }
    *checksum = found;
    return true;
}

void stk_checksum_read_headers(struct stk_response_checksums *seals,
                               const struct stk_http_response *answer, uint32_t dialect, bool all,
                               bool tag)
{
    const char *at = answer->headers, *end = at + answer->headers_bytes, *line_end;
    struct parsed_headers parsed_headers = {.seals = seals, .all = all, .tag = tag};

    *seals = (struct stk_response_checksums){.unreliable = false};
    for (; at < end; at = line_end + 1) {
        const char *colon;
        struct stk_view name, value;

        line_end = memchr(at, '\n', (size_t)(end - at));
        line_end = line_end ? line_end : end;
        colon = memchr(at, ':', (size_t)(line_end - at));
        if (!colon) {
            continue;
        }
        name = (struct stk_view){(const uint8_t *)at, (size_t)(colon - at)};
        for (colon++; colon < line_end && (*colon == ' ' || *colon == '\t'); colon++) {
        }
        value = (struct stk_view){(const uint8_t *)colon, (size_t)(line_end - colon)};
        while (value.bytes > 0 &&
               (value.data[value.bytes - 1] == ' ' || value.data[value.bytes - 1] == '\t')) {
            value.bytes--;
        }
        (dialect == STK_CHECKSUM_FROM_AWS      ? read_amazon
         : dialect == STK_CHECKSUM_FROM_GOOGLE ? read_google
         : dialect == STK_CHECKSUM_FROM_AZURE  ? read_azure
                                               : read_web)(&parsed_headers, name, value);
    }
    choose_checksums(&parsed_headers, dialect);
    if (tag && all && !seals->body.kind && !parsed_headers.sealed_otherwise &&
        read_tag(parsed_headers.etag, STK_CHECKSUM_MD5, &seals->body)) {
        seals->unreliable = true; /* it may be anything that looks like one */
    }
}

struct stk_checksum stk_checksum_of_hf_etag(const struct stk_http_response *answer)
{
    struct stk_checksum found = {.kind = STK_CHECKSUM_NONE};
    struct stk_view tag, commit;

    if (!stk_http_header(answer, "X-Linked-ETag", &tag)) {
        return found;
    }
    if (tag.bytes > 2 && memcmp(tag.data, "W/", 2) == 0) {
        tag.data += 2;
        tag.bytes -= 2;
    }
    if ((!read_tag(tag, STK_CHECKSUM_SHA256, &found) &&
         !read_tag(tag, STK_CHECKSUM_GIT_BLOB, &found))) {
        return found;
    }
    /* Mirrors such as Pulp report the commit if they have no better value. */
    if (stk_http_header(answer, "X-Repo-Commit", &commit) && commit.bytes == tag.bytes - 2 &&
        memcmp(commit.data, tag.data + 1, commit.bytes) == 0) {
        return (struct stk_checksum){.kind = STK_CHECKSUM_NONE};
    }
    found.hex = true;
    return found;
}

/* ---- checksums of bytes ---- */

static void put(struct stk_checksum *checksum, uint64_t value)
{
    uint32_t bytes = kinds[checksum->kind].bytes;

    for (uint32_t i = 0; i < bytes; i++) {
        checksum->sum[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
    }
}

uint32_t stk_checksum_bytes(uint32_t kind)
{
    return kinds[kind].bytes;
}

void stk_checksum_begin(struct stk_checksum_state *sum, uint32_t kind, uint64_t bytes)
{
    char head[32];

    sum->kind = kind;
    switch (kind) {
    case STK_CHECKSUM_SHA256:
        stk_sha256_init(&sum->running.sha256);
        break;
    case STK_CHECKSUM_SHA1:
        stk_sha1_init(&sum->running.sha1);
        break;
    case STK_CHECKSUM_GIT_BLOB:
        snprintf(head, sizeof head, "blob %llu", (unsigned long long)bytes);
        stk_sha1_init(&sum->running.sha1);
        stk_sha1_add(&sum->running.sha1, head, strlen(head) + 1);
        break;
    case STK_CHECKSUM_MD5:
        stk_md5_init(&sum->running.md5);
        break;
    default:
        sum->running.crc = 0;
        break;
    }
}

void stk_checksum_add(struct stk_checksum_state *sum, struct stk_view bytes)
{
    uint64_t *crc = &sum->running.crc;

    switch (sum->kind) {
    case STK_CHECKSUM_CRC64:
        *crc = stk_crc64(*crc, bytes.data, bytes.bytes);
        break;
    case STK_CHECKSUM_CRC32C:
        *crc = stk_crc32c((uint32_t)*crc, bytes.data, bytes.bytes);
        break;
    case STK_CHECKSUM_CRC32:
        *crc = stk_crc32((uint32_t)*crc, bytes.data, bytes.bytes);
        break;
    case STK_CHECKSUM_SHA256:
        stk_sha256_add(&sum->running.sha256, bytes.data, bytes.bytes);
        break;
    case STK_CHECKSUM_SHA1:
    case STK_CHECKSUM_GIT_BLOB:
        stk_sha1_add(&sum->running.sha1, bytes.data, bytes.bytes);
        break;
    default:
        stk_md5_add(&sum->running.md5, bytes.data, bytes.bytes);
        break;
    }
}

struct stk_checksum stk_checksum_end(struct stk_checksum_state *sum)
{
    struct stk_checksum checksum = {.kind = sum->kind};

    switch (sum->kind) {
    case STK_CHECKSUM_SHA256:
        stk_sha256_done(&sum->running.sha256, checksum.sum);
        break;
    case STK_CHECKSUM_SHA1:
    case STK_CHECKSUM_GIT_BLOB:
        stk_sha1_done(&sum->running.sha1, checksum.sum);
        break;
    case STK_CHECKSUM_MD5:
        stk_md5_done(&sum->running.md5, checksum.sum);
        break;
    default:
        put(&checksum, sum->running.crc);
        break;
    }
    return checksum;
}

struct stk_checksum stk_checksum_compute(uint32_t kind, bool twice, struct stk_view bytes)
{
    struct stk_checksum_state sum;
    struct stk_checksum checksum;

    stk_checksum_begin(&sum, kind, bytes.bytes);
    stk_checksum_add(&sum, bytes);
    checksum = stk_checksum_end(&sum);
    if (twice) {
        stk_checksum_begin(&sum, kind, kinds[kind].bytes);
        stk_checksum_add(&sum, (struct stk_view){checksum.sum, kinds[kind].bytes});
        checksum = stk_checksum_end(&sum);
        checksum.parts = 1;
    }
    return checksum;
}

bool stk_checksum_equal(const struct stk_checksum *a, const struct stk_checksum *b)
{
    return a->kind == b->kind && a->parts == b->parts && memcmp(a->sum, b->sum, sizeof a->sum) == 0;
}

void stk_checksum_text(const struct stk_checksum *checksum, char text[STK_CHECKSUM_TEXT_BYTES])
{
    char sum[STK_BASE64_BYTES] = "", parts[12] = "";

    if (checksum->kind == STK_CHECKSUM_NONE || checksum->kind >= STK_CHECKSUM_KINDS) {
        snprintf(text, STK_CHECKSUM_TEXT_BYTES, "none");
        return;
    }
    if (checksum->hex) {
        stk_hex(checksum->sum, kinds[checksum->kind].bytes, sum);
    } else {
        stk_base64(checksum->sum, kinds[checksum->kind].bytes, sum);
    }
    if (checksum->parts > 0) {
        snprintf(parts, sizeof parts, "-%u", checksum->parts);
    }
    snprintf(text, STK_CHECKSUM_TEXT_BYTES, "%s %.64s%s", kinds[checksum->kind].name, sum, parts);
}
