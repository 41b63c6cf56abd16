/* From what users write to where it is. */
#include "storage/object/store.h"

#include "base/crypto/secret_memory.h"
#include "base/mem.h"
#include "storage/provider/endpoint.h"
#include "storage/provider/huggingface_request.h"
#include "storage/url/url_alias.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define BUCKET_BYTES_MAX 255u

static uint32_t kind_of(const char *url);
static int parse_keyed(struct stk_place *place, char *text, struct stoker_error *error);
static const char *zone_of(char *bucket, size_t bytes);
static int parse_arn(struct stk_place *place, char *text, struct stoker_error *error);
static int parse_hub(struct stk_place *place, char *text, struct stoker_error *error);
static int parse_http(struct stk_place *place, struct stoker_error *error);

static int fail_memory(struct stoker_error *error)
{
    return stk_fail(error, -ENOMEM, "cannot read a URL", "free memory", "url");
}

/* By its name, of which it has the parts: encoded they are up to three times as long. */
static int parse_name(const char *url, struct stk_place **place_out, struct stoker_error *error)
{
    size_t bytes = strlen(url);
    bool arn = kind_of(url) == STK_PLACE_S3 && stk_s3_is_arn(url + 5);
    struct stk_place *place =
        stk_alloc(1, sizeof *place + sizeof *place->landing + (arn ? sizeof *place->arn : 0) +
                         bytes + 1 + 3 * bytes + 2);
    char *text;

    if (!place) {
        return fail_memory(error);
    }
    *place_out = place;
    place->landing = (struct stk_landing *)(place + 1);
    text = (char *)(place->landing + 1);
    if (arn) {
        place->arn = (struct stk_s3_arn *)text;
        text += sizeof *place->arn;
    }
    memcpy(text, url, bytes + 1);
    place->url = text;
    text += bytes + 1;
    place->kind = kind_of(url);
    if (stk_place_is_keyed(place)) {
        return parse_keyed(place, text, error);
    }
    if (strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0) {
        return parse_http(place, error);
    }
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "no store is known for this URL",
                    "use s3, gs, az, hf, http or https; sftp, ftp, smb and others by Python: "
                    "stoker.cp('sftp://...', '...'), stoker.Loader('sftp://...')",
                    "'%.200s'", url);
}

int stk_place_parse(const char *url, struct stk_place **place_out, struct stoker_error *error)
{
    struct stk_place *place = NULL;
    char *name = NULL;
    int status;

    *place_out = NULL;
    if (strlen(url) >= STK_STORE_URL_BYTES_MAX) { /* nothing of it is kept */
        char shown[256];

        return stk_fail(error, STOKER_ERROR_LIMIT, "a URL is too long",
                        "shorten it to less than 4096 bytes", "'%.200s'",
                        stk_http_url_text(url, shown, sizeof shown));
    }
    if (stk_vault_name(url, &name) < 0) {
        return fail_memory(error);
    }
    status = parse_name(name, &place, error);
    stk_free(name);
    if (status < 0) {
        stk_place_free(place);
        return status;
    }
    *place_out = place;
    return 0;
}

void stk_place_free(struct stk_place *place)
{
    if (place) {
        stk_hidden_free(place->landing->url); /* it is signed */
        stk_hidden_free(place->target);
    }
    stk_free(place);
}

static uint32_t kind_of(const char *url)
{
    static const struct {
        const char *scheme;
        uint32_t kind;
    } schemes[] = {{"s3://", STK_PLACE_S3},
                   {"gs://", STK_PLACE_GOOGLE},
                   {"az://", STK_PLACE_AZURE},
                   {"hf://", STK_PLACE_HUB}};

    for (size_t i = 0; i < STK_COUNT(schemes); i++) {
        if (strncasecmp(url, schemes[i].scheme, 5) == 0) {
            return schemes[i].kind;
        }
    }
    return STK_PLACE_HTTP;
}

/* The key is taken as it is written: these stores know no encoding in it. */
static int parse_keyed(struct stk_place *place, char *text, struct stoker_error *error)
{
    const char *bucket = place->url + 5, *slash = strchr(bucket, '/');
    size_t bytes = slash ? (size_t)(slash - bucket) : strlen(bucket);

    if (place->kind == STK_PLACE_HUB) {
        return parse_hub(place, text, error);
    }
    if (place->arn) {
        return parse_arn(place, text, error);
    }
    if (place->kind == STK_PLACE_AZURE && memchr(bucket, '@', bytes)) { /* see url_alias.h */
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a URL of az:// has a SAS or a login in it",
                        "set AZURE_STORAGE_SAS_TOKEN to what is behind the '?'; or name "
                        "https://ACCOUNT.blob.core.windows.net/CONTAINER/BLOB?SAS",
                        "'%.200s'", place->url);
    }
    if (bytes == 0 || bytes > BUCKET_BYTES_MAX || strcspn(bucket, "@?#% \\:") < bytes) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the URL names no bucket",
                        place->kind == STK_PLACE_S3
                            ? "write s3://bucket/key; a server of your own is named by "
                              "AWS_ENDPOINT_URL"
                            : "write gs://bucket/key, or az://container/blob",
                        "'%.200s'", place->url);
    }
    memcpy(text, bucket, bytes);
    text[bytes] = '\0';
    place->bucket = text;
    place->key = slash ? slash + 1 : "";
    if (place->kind == STK_PLACE_S3) {
        place->zone = zone_of(text, bytes);
    }
    return 0;
}

/* Its '/' and ':' are of the ARN up to the name of the access point. */
static int parse_arn(struct stk_place *place, char *text, struct stoker_error *error)
{
    const char *name = place->url + 5;
    size_t bytes = stk_s3_arn_parse(name, (struct stk_s3_arn *)(uintptr_t)place->arn);

    if (bytes == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the URL names no access point",
                        "write s3://arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME/key, or "
                        "arn:aws:s3-outposts:REGION:ACCOUNT:outpost/ID/accesspoint/NAME",
                        "'%.200s'", place->url);
    }
    memcpy(text, name, bytes);
    text[bytes] = '\0';
    place->bucket = text;
    place->key = name + bytes + (name[bytes] == '/');
    return 0;
}

/* "name--usw2-az1--x-s3", of an access point "--xa-s3": the zone, copied behind the bucket; NULL: a
 * usual bucket. */
static const char *zone_of(char *bucket, size_t bytes)
{
    char *copy = bucket + bytes + 1;
    size_t zone_bytes;
    const char *zone = stk_site_bucket_zone(bucket, bytes, &zone_bytes);

    if (!zone) {
        return NULL;
    }
    memcpy(copy, zone, zone_bytes);
    copy[zone_bytes] = '\0';
    return copy;
}

static int parse_hub(struct stk_place *place, char *text, struct stoker_error *error)
{
    const char *name = place->url + 5;
    struct stk_hub_repository repository;
    size_t bytes = stk_hub_split(name);

    memcpy(text, name, bytes);
    text[bytes] = '\0';
    if (!stk_hub_repository(text, &repository)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a URL of Hugging Face names no repository",
                        "write hf://datasets/org/name@revision/path, or hf://org/name/path",
                        "'%.200s'", place->url);
    }
    place->bucket = text;
    place->key = name + bytes + (name[bytes] == '/');
    return 0;
}

/* Percent signs are taken as encodings; what may not stand in a URL at all is encoded. */
static char *encode(const char *whole)
{
    static const char digits[] = "0123456789ABCDEF";
    char *text = stk_hidden_alloc(3 * strlen(whole) + 1);
    size_t used = 0;

    for (const char *at = whole; text && *at && *at != '#'; at++) {
        uint8_t byte = (uint8_t)*at;

        if (byte <= ' ' || byte >= 0x7f || strchr("\"<>\\^`{|}", byte)) {
            text[used++] = '%';
            text[used++] = digits[byte >> 4];
            text[used++] = digits[byte & 15];
        } else {
            text[used++] = (char)byte;
        }
    }
    return text;
}

static int parse_http(struct stk_place *place, struct stoker_error *error)
{
    struct stk_url_parts parts;
    char *whole = NULL;

    stk_url_split(place->url, &parts);
    if (parts.broken) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the user or password of a URL is unclear",
                        "write '/', '?', '#' and '@' in it as %2F, %3F, %23 and %40", "'%.200s'",
                        place->url);
    }
    if (parts.rest.bytes == 0 || parts.rest.data[0] == '/') {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the URL names no host",
                        "write http://host/path", "'%.200s'", place->url);
    }
    place->tls = strncasecmp(place->url, "https", 5) == 0;
    if (stk_vault_whole(place->url, &whole) == 0) {
        place->target = encode(whole);
    }
    stk_hidden_free(whole);
    return place->target ? 0 : fail_memory(error);
}
