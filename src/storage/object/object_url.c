/* Parses URLs of objects: store, bucket and key. */
#include "storage/object/store.h"

#include "base/crypto/secret_memory.h"
#include "base/mem.h"
#include "storage/provider/endpoint.h"
#include "storage/provider/huggingface_request.h"
#include "storage/url/url_alias.h"
#include "storage/url/url_redact.h"
#include "storage/url/url_split.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define BUCKET_BYTES_MAX 255u

static int parse_keyed(struct stk_object_url *object, char *text, struct stoker_error *error);
static const char *zone_of(char *bucket, size_t bytes);
static int parse_arn(struct stk_object_url *object, char *text, struct stoker_error *error);
static int parse_hub(struct stk_object_url *object, char *text, struct stoker_error *error);
static void cut_version(struct stk_object_url *object, char *text);
static int parse_http(struct stk_object_url *object, struct stoker_error *error);

/* Parses an alias. The block ends with the texts of its parts; URL-encoded they are up to three
 * times as long as in the alias. */
static int parse_alias(const char *url, struct stk_object_url **object_out,
                       struct stoker_error *error)
{
    size_t bytes = strlen(url);
    uint32_t scheme = stk_url_scheme_of(url);
    bool arn = scheme == STK_URL_S3 && stk_s3_is_arn(url + 5);
    struct stk_object_url *object =
        stk_alloc(1, sizeof *object + sizeof *object->landing + (arn ? sizeof *object->arn : 0) +
                         bytes + 1 + 3 * bytes + 2);
    char *text;

    if (!object) {
        return stk_fail_memory(error, "URL");
    }
    *object_out = object;
    object->landing = (struct stk_signed_url *)(object + 1);
    text = (char *)(object->landing + 1);
    if (arn) {
        object->arn = (struct stk_s3_arn *)text;
        text += sizeof *object->arn;
    }
    memcpy(text, url, bytes + 1);
    object->url = text;
    text += bytes + 1;
    object->kind = scheme;
    if (scheme == STK_URL_HTTP) {
        return parse_http(object, error);
    }
    if (scheme != STK_URL_OTHER) {
        return parse_keyed(object, text, error);
    }
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "no store is known for this URL",
                    "use s3, gs, az, hf, http or https; sftp, ftp, smb and others by Python: "
                    "stoker.cp('sftp://...', '...'), stoker.Loader('sftp://...')",
                    "'%.200s'", url);
}

int stk_object_url_parse(const char *url, struct stk_object_url **object_out,
                         struct stoker_error *error)
{
    struct stk_object_url *object = NULL;
    char *name = NULL;
    int status;

    *object_out = NULL;
    if (strlen(url) >= STK_STORE_URL_BYTES_MAX) {
        char shown[256];

        return stk_fail(error, STOKER_ERROR_LIMIT, "a URL is too long",
                        "shorten it to less than 4096 bytes", "'%.200s'",
                        stk_url_redact_short(url, shown, sizeof shown));
    }
    if (stk_url_alias(url, &name) < 0) {
        return stk_fail_memory(error, "URL");
    }
    status = parse_alias(name, &object, error);
    stk_free(name);
    if (status < 0) {
        stk_object_url_free(object);
        return status;
    }
    *object_out = object;
    return 0;
}

void stk_object_url_free(struct stk_object_url *object)
{
    if (object) {
        stk_secret_free(object->landing->url); /* it is signed */
        stk_secret_free(object->target);
    }
    stk_free(object);
}

/* The key is taken as it is written: these stores know no encoding in it. */
static int parse_keyed(struct stk_object_url *object, char *text, struct stoker_error *error)
{
    const char *bucket = object->url + 5, *slash = strchr(bucket, '/');
    size_t bytes = slash ? (size_t)(slash - bucket) : strlen(bucket);

    if (object->kind == STK_OBJECT_URL_HF) {
        return parse_hub(object, text, error);
    }
    if (object->arn) {
        return parse_arn(object, text, error);
    }
    if (object->kind == STK_OBJECT_URL_AZURE && memchr(bucket, '@', bytes)) { /* see url_alias.h */
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a URL of az:// has a SAS or a login in it",
                        "set AZURE_STORAGE_SAS_TOKEN to what is behind the '?'; or name "
                        "https://ACCOUNT.blob.core.windows.net/CONTAINER/BLOB?SAS",
                        "'%.200s'", object->url);
    }
    if (bytes == 0 || bytes > BUCKET_BYTES_MAX || strcspn(bucket, "@?#% \\:") < bytes) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the URL names no bucket",
                        object->kind == STK_OBJECT_URL_S3
                            ? "write s3://bucket/key; a server of your own is named by "
                              "AWS_ENDPOINT_URL"
                            : "write gs://bucket/key, or az://container/blob",
                        "'%.200s'", object->url);
    }
    memcpy(text, bucket, bytes);
    text[bytes] = '\0';
    object->bucket = text;
    object->key = slash ? slash + 1 : "";
    if (object->kind == STK_OBJECT_URL_S3) {
        object->zone = zone_of(text, bytes);
        cut_version(object, text + bytes + 1 + (object->zone ? strlen(object->zone) + 1 : 0));
    }
    return 0;
}

/* text: room for the key without the version. */
static void cut_version(struct stk_object_url *object, char *text)
{
    const char *mark = stk_url_find_version(object->url);

    if (mark && object->key < mark) {
        size_t bytes = (size_t)(mark - object->key);

        memcpy(text, object->key, bytes);
        text[bytes] = '\0';
        object->key = text;
        object->version = strchr(mark, '=') + 1;
    }
}

/* Its '/' and ':' are of the ARN up to the name of the access point. */
static int parse_arn(struct stk_object_url *object, char *text, struct stoker_error *error)
{
    const char *name = object->url + 5;
    size_t bytes = stk_s3_arn_parse(name, (struct stk_s3_arn *)(uintptr_t)object->arn);

    if (bytes == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the URL names no access point",
                        "write s3://arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME/key, or "
                        "arn:aws:s3-outposts:REGION:ACCOUNT:outpost/ID/accesspoint/NAME",
                        "'%.200s'", object->url);
    }
    memcpy(text, name, bytes);
    text[bytes] = '\0';
    object->bucket = text;
    object->key = name + bytes + (name[bytes] == '/');
    cut_version(object, text + bytes + 1);
    return 0;
}

/* "name--usw2-az1--x-s3", of an access point "--xa-s3": the zone, copied after the bucket; NULL: a
 * usual bucket. */
static const char *zone_of(char *bucket, size_t bytes)
{
    char *copy = bucket + bytes + 1;
    size_t zone_bytes;
    const char *zone = stk_endpoint_bucket_zone(bucket, bytes, &zone_bytes);

    if (!zone) {
        return NULL;
    }
    memcpy(copy, zone, zone_bytes);
    copy[zone_bytes] = '\0';
    return copy;
}

static int parse_hub(struct stk_object_url *object, char *text, struct stoker_error *error)
{
    const char *name = object->url + 5;
    struct stk_hf_repository repository;
    size_t bytes = stk_hf_split(name);

    memcpy(text, name, bytes);
    text[bytes] = '\0';
    if (!stk_hf_repository_parse(text, &repository)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a URL of Hugging Face names no repository",
                        "write hf://datasets/org/name@revision/path, or hf://org/name/path",
                        "'%.200s'", object->url);
    }
    object->bucket = text;
    object->key = name + bytes + (name[bytes] == '/');
    return 0;
}

/* Percent signs are taken as encodings; what may not stand in a URL at all is encoded. */
static char *encode(const char *resolved)
{
    static const char digits[] = "0123456789ABCDEF";
    char *text = stk_secret_alloc(3 * strlen(resolved) + 1);
    size_t used = 0;

    for (const char *at = resolved; text && *at && *at != '#'; at++) {
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

static int parse_http(struct stk_object_url *object, struct stoker_error *error)
{
    struct stk_url_parts parts;
    char *resolved = NULL;

    stk_url_split(object->url, &parts);
    if (parts.broken) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the user or password of a URL is unclear",
                        "write '/', '?', '#' and '@' in it as %2F, %3F, %23 and %40", "'%.200s'",
                        object->url);
    }
    if (parts.rest.bytes == 0 || strchr("/:", parts.rest.data[0])) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the URL names no host",
                        "write http://host/path", "'%.200s'", object->url);
    }
    object->tls = strncasecmp(object->url, "https", 5) == 0;
    if (stk_url_resolve(object->url, &resolved) == 0) {
        object->target = encode(resolved);
    }
    stk_secret_free(resolved);
    return object->target ? 0 : stk_fail_memory(error, "URL");
}
