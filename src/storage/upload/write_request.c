/* Requests that write, and checksums of their bodies. */
#include "storage/upload/write_request.h"

#include "base/crc.h"
#include "base/mem.h"
#include "base/text/utf8.h"
#include "storage/upload/object_attributes.h"
#include "storage/upload/xml_response.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct stk_write_request *stk_write_request_open(const struct stk_object_url *object,
                                                 uint32_t method, bool document,
                                                 struct stoker_error *error)
{
    struct stk_write_request *write_request = stk_alloc(1, sizeof *write_request);

    if (write_request && document) {
        write_request->document = stk_alloc(1, STK_WRITE_REQUEST_DOCUMENT_BYTES + 1);
    }
    if (!write_request || (document && !write_request->document)) {
        stk_free(write_request);
        stk_fail(error, -ENOMEM, "cannot send a request", "free memory", "'%.200s'", object->url);
        return NULL;
    }
    write_request->operation.object = object;
    write_request->operation.method = method;
    write_request->operation.keyed = true;
    if (document) {
        write_request->operation.document = true;
        write_request->operation.buffer = write_request->document;
        write_request->operation.buffer_bytes = STK_WRITE_REQUEST_DOCUMENT_BYTES;
    }
    return write_request;
}

void stk_write_request_add_header(struct stk_write_request *write_request, const char *name,
                                  const char *value)
{
    STK_ASSERT(write_request->extra_header_count < STK_COUNT(write_request->extra_headers));
    write_request->extra_headers[write_request->extra_header_count++] =
        (struct stk_sigv4_pair){name, value};
}

void stk_write_request_add_query(struct stk_write_request *write_request, const char *name,
                                 const char *value)
{
    STK_ASSERT(write_request->query_count < STK_COUNT(write_request->query));
    write_request->query[write_request->query_count++] = (struct stk_sigv4_pair){name, value};
}

int stk_write_request_run(struct stk_write_request *write_request, struct stk_store *store,
                          struct stoker_error *error)
{
    write_request->operation.extra_headers = write_request->extra_headers;
    write_request->operation.extra_header_count = write_request->extra_header_count;
    write_request->operation.query = write_request->query;
    write_request->operation.query_count = write_request->query_count;
    return stk_operation_run(store, &write_request->operation, &write_request->answer, error);
}

bool stk_write_request_may_repeat(const struct stk_write_request *write_request)
{
    return write_request->operation.attempts > 1 || write_request->operation.request.sends > 1 ||
           write_request->operation.code == 0;
}

bool stk_write_request_has_error_code(const struct stk_write_request *write_request,
                                      const char *word)
{
    return strcmp(write_request->operation.error_code, word) == 0;
}

bool stk_write_request_may_have_succeeded(const struct stk_write_request *write_request)
{
    switch (write_request->operation.request.failure) {
    case STK_HTTP_RESET:
    case STK_HTTP_BROKEN:
    case STK_HTTP_FIRST_BYTE:
    case STK_HTTP_STALL:
    case STK_HTTP_TOTAL:
    case STK_HTTP_LIMIT:
    case STK_HTTP_OTHER:
        return true;
    default:
        return write_request->operation.code != 0 && write_request->operation.attempts > 1;
    }
}

struct stk_view stk_write_request_document(const struct stk_write_request *write_request)
{
    return (struct stk_view){write_request->document, write_request->operation.request.bytes};
}

bool stk_write_request_has_root(const struct stk_write_request *write_request, const char *root)
{
    struct stk_xml_response *answer = stk_alloc(1, sizeof *answer);
    struct stk_view document = stk_write_request_document(write_request);
    bool says = false;

    if (answer) {
        answer->root = root;
        answer->names[0] = "Key";
        says = stk_xml_response_parse(answer, document) == 0 &&
               (!answer->texts[0][0] ||
                strcmp(answer->texts[0], write_request->operation.object->key) == 0);
    }
    stk_free(answer);
    return says;
}

void stk_write_request_copy_etag(const struct stk_write_request *write_request, char *etag,
                                 size_t etag_bytes)
{
    struct stk_view value;

    etag[0] = '\0';
    if (stk_http_header(&write_request->answer, "ETag", &value)) {
        bool quoted =
            value.bytes >= 2 && value.data[0] == '"' && value.data[value.bytes - 1] == '"';

        value.data += quoted;
        value.bytes -= quoted ? 2 : 0;
        if (value.bytes < etag_bytes) {
            memcpy(etag, value.data, value.bytes);
            etag[value.bytes] = '\0';
        }
    }
}

void stk_write_request_close(struct stk_write_request *write_request)
{
    if (write_request) {
        stk_free(write_request->document);
        stk_free(write_request);
    }
}

bool stk_write_request_needs_checksum(const struct stk_write_request *write_request,
                                      const struct stk_body_checksum *checksum)
{
    return write_request->operation.object->kind == STK_OBJECT_URL_S3 && checksum->sum_bytes == 0 &&
           write_request->operation.code == 400 &&
           (stk_write_request_has_error_code(write_request, "InvalidRequest") ||
            stk_write_request_has_error_code(write_request, "MissingContentMD5"));
}

uint32_t stk_body_checksum_kind(uint32_t check)
{
    return check == STK_UPLOAD_CHECKSUM_CRC64NVME || check == STK_UPLOAD_CHECKSUM_AZURE
               ? STK_CHECKSUM_CRC64
           : check == STK_UPLOAD_CHECKSUM_CRC32C || check == STK_UPLOAD_CHECKSUM_GCS
               ? STK_CHECKSUM_CRC32C
               : STK_CHECKSUM_NONE;
}

uint64_t stk_body_checksum_to_number(const struct stk_body_checksum *checksum)
{
    uint64_t number = 0;

    for (uint32_t i = 0; i < checksum->sum_bytes && checksum->sum_bytes <= 8; i++) {
        number = number << 8 | checksum->sum[i];
    }
    return number;
}

int stk_write_request_check_reply(const struct stk_write_request *write_request,
                                  const struct stk_body_checksum *checksum,
                                  struct stoker_error *error)
{
    const struct stk_object_url *object = write_request->operation.object;
    char expected[STK_CHECKSUM_TEXT_BYTES], actual[STK_CHECKSUM_TEXT_BYTES];
    struct stk_response_checksums reported;
    struct stk_checksum ours;

    stk_checksum_read_headers(&reported, &write_request->answer, stk_object_url_provider(object),
                              true, false);
    if (!stk_checksum_is_combinable(&reported.body) ||
        reported.unreliable) { /* a SHA takes long to compute, and is rarely configured */
        return 0;
    }
    if (reported.body.kind == stk_body_checksum_kind(checksum->check)) {
        ours = (struct stk_checksum){.kind = reported.body.kind};
        memcpy(ours.sum, checksum->sum, checksum->sum_bytes);
    } else {
        ours =
            stk_checksum_compute(reported.body.kind, false, write_request->operation.request.body);
    }
    if (stk_checksum_equal(&ours, &reported.body)) {
        return 0;
    }
    stk_checksum_text(&ours, expected);
    stk_checksum_text(&reported.body, actual);
    return stk_fail(error, STOKER_ERROR_CORRUPT,
                    "the server's answer is for other bytes than were sent",
                    "check the server and proxies between: answers may be mixed up",
                    "'%.300s': sent %s, reported %s", object->url, expected, actual);
}

uint32_t stk_body_checksum_for_url(const struct stk_object_url *object, uint32_t check)
{
    return object->kind == STK_OBJECT_URL_GCS     ? STK_UPLOAD_CHECKSUM_GCS
           : object->kind == STK_OBJECT_URL_AZURE ? STK_UPLOAD_CHECKSUM_AZURE
                                                  : check;
}

uint32_t stk_body_checksum_default(const struct stk_store *store, uint32_t check)
{
    bool own, tls;

    if (check != STK_UPLOAD_CHECKSUM_AUTO) {
        return check;
    }
    if (stk_store_requires_checksums(store)) {
        return STK_UPLOAD_CHECKSUM_MD5; /* which all stores support */
    }
    stk_store_s3_kind(store, &own, &tls);
    return own || stk_store_settings(store)->checksums_when_required == STK_FLAG_YES
               ? STK_UPLOAD_CHECKSUM_AUTO
               : STK_UPLOAD_CHECKSUM_CRC64NVME;
}

static bool add_version(const char *version, char *source, size_t source_bytes, size_t used)
{
    static const char word[] = "?versionId=";

    if (source_bytes - used < sizeof word) {
        return false;
    }
    memcpy(source + used, word, sizeof word);
    used += sizeof word - 1;
    return stk_url_encode(version, false, source, source_bytes, &used);
}

bool stk_write_request_copy_source(const struct stk_object_url *from, char *source,
                                   size_t source_bytes)
{
    size_t used = 0;

    return stk_url_encode(from->bucket, true, source, source_bytes, &used) &&
           stk_url_encode(from->arn ? "/object/" : "/", true, source, source_bytes, &used) &&
           stk_url_encode(from->key, true, source, source_bytes, &used) &&
           (!from->version || add_version(from->version, source, source_bytes, used));
}

static void set_number(struct stk_body_checksum *checksum, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        checksum->sum[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
    }
    checksum->sum_bytes = bytes;
}

void stk_body_checksum_init(struct stk_body_checksum *checksum, const struct stk_store *store,
                            uint32_t check, struct stk_view body)
{
    uint32_t sign = stk_store_settings(store)->sign_payload;
    bool own, tls;

    *checksum = (struct stk_body_checksum){.check = stk_body_checksum_default(store, check)};
    stk_store_s3_kind(store, &own, &tls);
    if (check < STK_UPLOAD_CHECKSUM_GCS &&
        (sign == STK_FLAG_YES ||
         (sign == STK_FLAG_UNSET && (!tls || checksum->check == STK_UPLOAD_CHECKSUM_AUTO)) ||
         checksum->check == STK_UPLOAD_CHECKSUM_SHA256)) {
        stk_sigv4_hash(body, checksum->payload); /* and signed: a change of the body is detected */
    }
    switch (checksum->check) {
    case STK_UPLOAD_CHECKSUM_CRC64NVME:
    case STK_UPLOAD_CHECKSUM_AZURE:
        set_number(checksum, stk_crc64(0, body.data, body.bytes), 8);
        break;
    case STK_UPLOAD_CHECKSUM_CRC32C:
    case STK_UPLOAD_CHECKSUM_GCS:
        set_number(checksum, stk_crc32c(0, body.data, body.bytes), 4);
        break;
    case STK_UPLOAD_CHECKSUM_SHA256: {
        struct stk_sha256 sha;

        stk_sha256_init(&sha);
        stk_sha256_add(&sha, body.data, body.bytes);
        stk_sha256_done(&sha, checksum->sum);
        checksum->sum_bytes = 32;
        break;
    }
    case STK_UPLOAD_CHECKSUM_MD5:
        stk_md5(body.data, body.bytes, checksum->sum);
        checksum->sum_bytes = 16;
        break;
    default:
        break;
    }
    stk_body_checksum_set_text(checksum);
}

void stk_body_checksum_set_text(struct stk_body_checksum *checksum)
{
    char sum[STK_BASE64_BYTES];
    uint8_t turned[8];

    if (checksum->check == STK_UPLOAD_CHECKSUM_AZURE) { /* its lowest byte first */
        for (uint32_t i = 0; i < 8; i++) {
            turned[i] = checksum->sum[7 - i];
        }
        stk_base64(turned, 8, checksum->text);
    } else if (checksum->check == STK_UPLOAD_CHECKSUM_GCS) {
        stk_base64(checksum->sum, 4, sum);
        snprintf(checksum->text, sizeof checksum->text, "crc32c=%.16s", sum);
    } else if (checksum->sum_bytes > 0) {
        stk_base64(checksum->sum, checksum->sum_bytes, checksum->text);
    }
}

void stk_body_checksum_add_headers(const struct stk_body_checksum *checksum,
                                   struct stk_write_request *write_request)
{
    if (checksum->payload[0]) {
        write_request->operation.payload = checksum->payload;
    }
    if (checksum->check == STK_UPLOAD_CHECKSUM_MD5) {
        stk_write_request_add_header(write_request, "Content-MD5", checksum->text);
    } else if (checksum->sum_bytes > 0) {
        stk_write_request_add_header(write_request, stk_body_checksum_header(checksum->check),
                                     checksum->text);
    }
}

const char *stk_body_checksum_header(uint32_t check)
{
    return check == STK_UPLOAD_CHECKSUM_CRC64NVME ? "x-amz-checksum-crc64nvme"
           : check == STK_UPLOAD_CHECKSUM_CRC32C  ? "x-amz-checksum-crc32c"
           : check == STK_UPLOAD_CHECKSUM_SHA256  ? "x-amz-checksum-sha256"
           : check == STK_UPLOAD_CHECKSUM_GCS     ? "x-goog-hash"
           : check == STK_UPLOAD_CHECKSUM_AZURE   ? "x-ms-content-crc64"
                                                  : NULL;
}

const char *stk_body_checksum_name(uint32_t check)
{
    return check == STK_UPLOAD_CHECKSUM_CRC64NVME ? "CRC64NVME"
           : check == STK_UPLOAD_CHECKSUM_CRC32C  ? "CRC32C"
           : check == STK_UPLOAD_CHECKSUM_SHA256  ? "SHA256"
                                                  : NULL;
}

const char *stk_body_checksum_element(uint32_t check)
{
    return check == STK_UPLOAD_CHECKSUM_CRC64NVME ? "ChecksumCRC64NVME"
           : check == STK_UPLOAD_CHECKSUM_CRC32C  ? "ChecksumCRC32C"
           : check == STK_UPLOAD_CHECKSUM_SHA256  ? "ChecksumSHA256"
                                                  : NULL;
}

/* The time of a local file: seconds for S3, as all tools write it there; else RFC 3339. */
static void add_mtime(struct stk_write_request *write_request, uint64_t mtime_ns)
{
    uint32_t kind = write_request->operation.object->kind;
    long long seconds = (long long)(mtime_ns / 1000000000u);
    unsigned rest = (unsigned)(mtime_ns % 1000000000u);
    char *text = write_request->mtime;
    time_t time = (time_t)seconds;
    struct tm parts;

    if (kind == STK_OBJECT_URL_S3) {
        snprintf(text, sizeof write_request->mtime, "%lld.%09u", seconds, rest);
    } else if (gmtime_r(&time, &parts)) {
        size_t bytes = strftime(text, sizeof write_request->mtime, "%Y-%m-%dT%H:%M:%S", &parts);

        snprintf(text + bytes, sizeof write_request->mtime - bytes, ".%09uZ", rest);
    }
    stk_write_request_add_header(write_request,
                                 kind == STK_OBJECT_URL_S3    ? "x-amz-meta-mtime"
                                 : kind == STK_OBJECT_URL_GCS ? "x-goog-meta-mtime"
                                                              : "x-ms-meta-mtime",
                                 text);
}

static void add_attributes(struct stk_write_request *write_request,
                           const struct stk_upload_options *options)
{
    const struct stk_object_attributes *attributes = options->attributes;

    for (uint32_t i = 0; attributes && i < attributes->count; i++) {
        stk_write_request_add_header(write_request, attributes->headers[i].name,
                                     attributes->headers[i].value);
    }
    if (!attributes || !attributes->has_type) {
        stk_write_request_add_header(write_request, "Content-Type", "application/octet-stream");
    }
    if (!attributes && options->mtime_ns > 0) {
        add_mtime(write_request, options->mtime_ns);
    }
}

void stk_write_request_set_options(struct stk_write_request *write_request,
                                   const struct stk_upload_options *options,
                                   const struct stk_body_checksum *checksum)
{
    uint32_t kind = write_request->operation.object->kind;

    if (checksum) {
        stk_body_checksum_add_headers(checksum, write_request);
    }
    add_attributes(write_request, options);
    if (options->storage_class) {
        stk_write_request_add_header(write_request,
                                     kind == STK_OBJECT_URL_GCS     ? "x-goog-storage-class"
                                     : kind == STK_OBJECT_URL_AZURE ? "x-ms-access-tier"
                                                                    : "x-amz-storage-class",
                                     options->storage_class);
    }
    if (options->encryption) {
        stk_write_request_add_header(write_request, "x-amz-server-side-encryption",
                                     options->encryption);
    }
    if (options->encryption_key) {
        stk_write_request_add_header(write_request, "x-amz-server-side-encryption-aws-kms-key-id",
                                     options->encryption_key);
    }
    if (options->encryption_context) {
        stk_write_request_add_header(write_request, "x-amz-server-side-encryption-context",
                                     options->encryption_context);
    }
}

int stk_write_request_check_key(const struct stk_object_url *object, struct stoker_error *error)
{
    if (object->version) {
        return stk_fail(
            error, STOKER_ERROR_UNSUPPORTED, "a version of an object cannot be written or removed",
            "leave out '?versionId=', or use the store's own tool", "'%.400s'", object->url);
    }
    if (object->key &&
        !stk_utf8_check((struct stk_view){(const uint8_t *)object->key, strlen(object->key)},
                        NULL)) { /* some servers make one key of several such names */
        return stk_fail(error, STOKER_ERROR_ARGUMENT,
                        "a store cannot have this name: it is not UTF-8", "rename the file",
                        "'%.400s'", object->url);
    }
    return object->key && object->key[0]
               ? 0
               : stk_fail(error, STOKER_ERROR_ARGUMENT, "a bucket is not an object",
                          "name a key in it", "'%.400s'", object->url);
}

int stk_write_request_check_options(const struct stk_object_url *object,
                                    const struct stk_upload_options *options,
                                    struct stoker_error *error)
{
    int status = stk_write_request_check_key(object, error);

    if (status < 0) {
        return status;
    }
    if (object->kind != STK_OBJECT_URL_S3 &&
        (options->encryption || options->encryption_key || options->encryption_context)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "this store encrypts by its own rules",
                        "leave the encryption out, and set it at the bucket", "'%.400s'",
                        object->url);
    }
    return 0;
}

static bool is_context(const char *json)
{
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, NULL), *value;
    bool is = json_is_object(root);
    const char *name;

    json_object_foreach(root, name, value)
    {
        is = is && json_is_string(value);
    }
    json_decref(root);
    return is;
}

int stk_upload_encryption_context(const char *json, char **text_out, struct stoker_error *error)
{
    size_t bytes = strlen(json), used = 0;
    char some[STK_BASE64_BYTES], *text;

    if (bytes > STK_UPLOAD_CONTEXT_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "an encryption context is too long",
                        "use at most 4096 bytes", "%zu bytes", bytes);
    }
    if (!is_context(json)) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "an encryption context cannot be read",
                        "write an object of JSON with texts: {\"project\": \"a\"}", "%zu bytes",
                        bytes);
    }
    text = stk_alloc(1, (bytes + 2) / 3 * 4 + 1);
    if (!text) {
        return stk_fail(error, -ENOMEM, "cannot write objects", "free memory", "context");
    }
    for (size_t at = 0; at < bytes; at += 48) { /* complete groups, except the last */
        stk_base64((const uint8_t *)json + at, stk_min(bytes - at, 48), some);
        used += (size_t)snprintf(text + used, sizeof some, "%s", some);
    }
    *text_out = text;
    return 0;
}

void stk_write_request_if_absent(struct stk_write_request *write_request)
{
    if (write_request->operation.object->kind == STK_OBJECT_URL_GCS) {
        stk_write_request_add_header(write_request, "x-goog-if-generation-match", "0");
    } else {
        stk_write_request_add_header(write_request, "If-None-Match", "*");
    }
}

bool stk_write_request_already_exists(const struct stk_write_request *write_request)
{
    return write_request->operation.code == 412 ||
           stk_write_request_has_error_code(write_request, "PreconditionFailed") ||
           stk_write_request_has_error_code(write_request, "BlobAlreadyExists");
}

bool stk_write_request_matches_body(struct stk_store *store, const struct stk_object_url *object,
                                    struct stk_view body)
{
    struct stk_operation operation = {.status = 0};
    struct stk_object_info info;
    uint8_t *current;
    bool is;

    if (stk_store_head(store, object, &info, NULL) < 0 || info.bytes != body.bytes) {
        return false;
    }
    current = body.bytes > 0 ? stk_alloc(1, body.bytes) : NULL;
    is = body.bytes == 0;
    if (current) {
        stk_store_init_read(&operation, object, &info, 0, body.bytes, current);
        is = stk_operation_run(store, &operation, NULL, NULL) == 0 &&
             memcmp(current, body.data, body.bytes) == 0;
    }
    stk_free(current);
    return is;
}

static bool read_range(struct stk_store *store, const struct stk_object_url *object,
                       const struct stk_object_info *info, uint64_t offset, struct stk_view range)
{
    struct stk_operation *operation = stk_alloc(1, sizeof *operation);
    bool actual = false;

    if (operation) {
        stk_store_init_read(operation, object, info, offset, range.bytes,
                            (uint8_t *)(uintptr_t)range.data);
        actual = stk_operation_run(store, operation, NULL, NULL) == 0;
    }
    stk_free(operation);
    return actual;
}

bool stk_write_request_matches_copy(struct stk_store *store, const struct stk_object_url *object,
                                    const struct stk_object_url *from,
                                    const struct stk_object_info *info)
{
    uint64_t most = stk_min(info->bytes, STK_STORE_RANGE_BYTES);
    struct stk_object_info current;
    uint8_t *buffers;
    bool same;

    if (stk_store_head(store, object, &current, NULL) < 0 || current.bytes != info->bytes) {
        return false;
    }
    if (info->bytes == 0 || (info->etag[0] && strcmp(info->etag, current.etag) == 0)) {
        return true;
    }
    buffers = stk_alloc(2, most);
    same = buffers != NULL;
    for (uint64_t at = 0; same && at < info->bytes; at += most) {
        struct stk_view ours = {buffers, stk_min(info->bytes - at, most)};
        struct stk_view theirs = {buffers + most, ours.bytes};

        same = read_range(store, from, info, at, ours) &&
               read_range(store, object, &current, at, theirs) &&
               memcmp(ours.data, theirs.data, ours.bytes) == 0;
    }
    stk_free(buffers);
    return same;
}

bool stk_write_request_matches_object(struct stk_store *store, const struct stk_object_url *object,
                                      uint64_t bytes, const char *etag)
{
    struct stk_object_info info;
    size_t etag_bytes = strlen(etag);

    return stk_store_head(store, object, &info, NULL) == 0 && info.bytes == bytes &&
           strlen(info.etag) == etag_bytes + 2 && strncasecmp(info.etag + 1, etag, etag_bytes) == 0;
}

int stk_write_request_fail_exists(const struct stk_object_url *object, struct stoker_error *error)
{
    return stk_fail(error, -EEXIST, "an object of this name exists already",
                    "choose another name, or allow replacing it", "'%.400s'", object->url);
}
