/* Metadata of an object, reads of its ranges, and the verification of their checksums. */
#include "storage/object/store_private.h"

#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_header(const struct stk_http_response *answer, const char *name, const char *value)
{
    struct stk_view reported;

    return stk_http_header(answer, name, &reported) && reported.bytes == strlen(value) &&
           strncasecmp((const char *)reported.data, value, reported.bytes) == 0;
}

bool stk_store_class_may_be_archive(const char *storage)
{
    return strcmp(storage, "GLACIER") == 0 || strcmp(storage, "DEEP_ARCHIVE") == 0 ||
           strcmp(storage, "INTELLIGENT_TIERING") == 0 || strcmp(storage, "Archive") == 0;
}

/* ongoing-request="false", expiry-date="Fri, 21 Dec 2012 00:00:00 GMT" */
static void set_restore_state(struct stk_object_info *info, struct stk_view value)
{
    static const char going[] = "ongoing-request=\"true\"", date[] = "expiry-date=\"";
    const char *text = (const char *)value.data, *at;
    size_t left;

    info->archive = memmem(text, value.bytes, going, sizeof going - 1) ? STOKER_ARCHIVE_RESTORING
                                                                       : STOKER_ARCHIVE_RESTORED;
    at = memmem(text, value.bytes, date, sizeof date - 1);
    if (at && info->archive == STOKER_ARCHIVE_RESTORED) {
        at += sizeof date - 1;
        left = value.bytes - (size_t)(at - text);
        text = memchr(at, '"', left);
        info->restored_until_ns = stk_store_parse_time(at, text ? (size_t)(text - at) : left);
    }
}

/* https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html
 * https://learn.microsoft.com/rest/api/storageservices/get-blob-properties
 * Google's ARCHIVE is read as any other class. */
static void set_storage_class(struct stk_object_info *info, const struct stk_http_response *answer)
{
    struct stk_view value;
    bool tier = false;

    if ((stk_http_header(answer, "x-amz-storage-class", &value) ||
         stk_http_header(answer, "x-goog-storage-class", &value) ||
         stk_http_header(answer, "x-ms-access-tier", &value)) &&
        value.bytes < sizeof info->storage) {
        memcpy(info->storage, value.data, value.bytes);
    }
    if (stk_http_header(answer, "x-amz-restore", &value)) {
        set_restore_state(info, value);
    } else if (stk_http_header(answer, "x-ms-archive-status", &value)) {
        info->archive = STOKER_ARCHIVE_RESTORING; /* "rehydrate-pending-to-hot" */
    } else {
        tier = stk_http_header(answer, "x-amz-archive-status", &value);
        info->archive = tier || (stk_store_class_may_be_archive(info->storage) &&
                                 strcmp(info->storage, "INTELLIGENT_TIERING") != 0)
                            ? STOKER_ARCHIVE_ARCHIVED
                            : STOKER_ARCHIVE_NONE;
    }
}

void stk_store_head_reply(const struct stk_operation *operation,
                          const struct stk_http_response *answer, struct stk_object_info *info)
{
    uint64_t first, last, total = UINT64_MAX;
    struct stk_view value;

    *info =
        (struct stk_object_info){.bytes = answer->code == 200 ? answer->content_bytes : UINT64_MAX};
    info->no_ranges = operation->probe && answer->code == 200 && info->bytes > 1;
    info->chunked = info->bytes == UINT64_MAX && answer->code == 200 &&
                    is_header(answer, "Transfer-Encoding", "chunked");
    if (answer->code == 206 && stk_http_header(answer, "Content-Range", &value) &&
        stk_store_parse_content_range(value, &first, &last, &total)) {
        info->bytes = total;
    } else if (answer->code == 416 && is_header(answer, "Content-Range", "bytes */0")) {
        info->bytes = 0;
    }
    if (stk_http_header(answer, "ETag", &value) && value.bytes < sizeof info->etag) {
        memcpy(info->etag, value.data, value.bytes);
    }
    if (stk_http_header(answer, "Last-Modified", &value) && value.bytes < sizeof info->modified) {
        memcpy(info->modified, value.data, value.bytes);
        info->mtime_ns = stk_store_parse_time(info->modified, value.bytes);
    }
    info->file_mtime_ns = stk_store_file_mtime(answer, operation->object->kind);
    info->checksum = operation->hf_checksum;
    if (operation->object->kind == STK_OBJECT_URL_HF && !operation->request.redirect_url &&
        info->checksum.kind == STK_CHECKSUM_NONE) { /* without a redirect to another host */
        info->checksum = stk_checksum_of_hf_etag(answer);
    }
    info->folder = info->bytes == 0 && (is_header(answer, "x-ms-resource-type", "directory") ||
                                        is_header(answer, "x-ms-meta-hdi_isfolder", "true"));
    set_storage_class(info, answer);
    if (operation->method == STK_HTTP_GET && info->archive == STOKER_ARCHIVE_ARCHIVED) {
        info->archive = STOKER_ARCHIVE_NONE; /* whatever its class: a byte was read */
    }
}

void stk_store_init_head(struct stk_operation *operation, const struct stk_object_url *object,
                         uint8_t *byte)
{
    operation->object = object;
    operation->method = STK_HTTP_GET;
    operation->probe = true;
    operation->buffer = byte;
    operation->buffer_bytes = 1;
}

/* A range of an empty blob does not show whether it is a folder. */
static int head_folder(struct stk_store *store, const struct stk_object_url *object,
                       struct stk_object_info *info, struct stk_http_response *answer,
                       struct stoker_error *error)
{
    struct stk_operation operation = {.object = object, .method = STK_HTTP_HEAD};
    struct stk_object_info checksum;
    int status = stk_operation_run(store, &operation, answer, error);

    if (status == 0) {
        stk_store_head_reply(&operation, answer, &checksum);
        info->folder = checksum.folder;
        memcpy(info->etag, checksum.etag, sizeof info->etag);
        info->mtime_ns = checksum.mtime_ns;
        info->file_mtime_ns = checksum.file_mtime_ns;
    }
    return status;
}

/* An archived object cannot be read, but HEAD has its metadata. */
static int head_archived(struct stk_store *store, const struct stk_object_url *object,
                         struct stk_object_info *info, struct stk_http_response *answer)
{
    struct stk_operation operation = {.object = object, .method = STK_HTTP_HEAD};
    int status = stk_operation_run(store, &operation, answer, NULL);

    if (status == 0) {
        stk_store_head_reply(&operation, answer, info);
        status = info->bytes == UINT64_MAX ? STOKER_ERROR_UNSUPPORTED : 0;
    }
    return status;
}

/* The server refused the range of the first byte, and did not say that the object is empty:
 * requests all of the object, and reads no more than the first byte. */
static int head_without_range(struct stk_store *store, const struct stk_object_url *object,
                              struct stk_object_info *info, struct stk_http_response *answer,
                              struct stoker_error *error)
{
    uint8_t byte;
    struct stk_operation operation = {.status = 0};
    int status;

    stk_store_init_head(&operation, object, &byte);
    operation.without_range = true;
    status = stk_operation_run(store, &operation, answer, error);
    if (status == 0) {
        stk_store_head_reply(&operation, answer, info);
    }
    return status;
}

/* Reads one byte instead of HEAD: then an error response has a body with the reason, and URLs that
 * are signed for GET work. */
static int run_head(struct stk_store *store, const struct stk_object_url *object, bool archived,
                    struct stk_object_info *info_out, struct stoker_error *error)
{
    uint8_t byte;
    struct stk_operation operation = {.status = 0};
    struct stk_http_response *answer = stk_alloc(1, sizeof *answer);
    struct stk_object_info of_empty;
    int status;

    if (!answer) {
        return stk_fail(error, -ENOMEM, "cannot request an object", "free memory", "store");
    }
    stk_store_init_head(&operation, object, &byte);
    status = stk_operation_run(store, &operation, answer, error);
    if (status == 0) {
        stk_store_head_reply(&operation, answer, info_out);
        if (answer->code == 416 && info_out->bytes == UINT64_MAX) {
            status = head_without_range(store, object, info_out, answer, error);
        } else if (answer->code == 416 && !info_out->etag[0] &&
                   object->kind != STK_OBJECT_URL_AZURE &&
                   head_without_range(store, object, &of_empty, answer, NULL) == 0) {
            *info_out = of_empty; /* the refusal of a range has no times and no version */
        }
        if (status == 0 && info_out->bytes == UINT64_MAX && !info_out->chunked) {
            status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the server reports no size",
                              "serve the file with Content-Length, or in chunks: else a broken "
                              "connection looks like its end",
                              "'%.400s'", object->url);
        } else if (status == 0 && object->kind == STK_OBJECT_URL_AZURE && info_out->bytes == 0) {
            status = head_folder(store, object, info_out, answer, error);
        }
    } else if (archived && stk_error_response_is_archived(operation.error_code) &&
               head_archived(store, object, info_out, answer) == 0) {
        status = 0;
    }
    stk_free(answer);
    return status;
}

int stk_store_head(struct stk_store *store, const struct stk_object_url *object,
                   struct stk_object_info *info_out, struct stoker_error *error)
{
    return run_head(store, object, false, info_out, error);
}

int stk_store_head_archived(struct stk_store *store, const struct stk_object_url *object,
                            struct stk_object_info *info_out, struct stoker_error *error)
{
    return run_head(store, object, true, info_out, error);
}

/* "<LocationConstraint>US-WEST1</LocationConstraint>" */
static void set_location(const char *document, char region[64])
{
    static const char name[] = "LocationConstraint";
    const char *at = strstr(document, name), *text = at ? strchr(at, '>') : NULL;
    size_t bytes = text ? strcspn(text + 1, "<") : 0;

    for (size_t i = 0; i < bytes && bytes < 64; i++) {
        char letter = text[1 + i];

        region[i] = (char)(letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter);
    }
}

int stk_store_bucket_location(struct stk_store *store, const struct stk_object_url *object,
                              char region[64], struct stoker_error *error)
{
    static const struct stk_sigv4_pair location = {"location", ""};
    struct stk_http_response *answer = stk_alloc(1, sizeof *answer);
    struct stk_object_url bucket = *object;
    uint8_t document[1024] = {0};
    struct stk_operation operation = {.object = &bucket, .method = STK_HTTP_HEAD};
    struct stk_view value;
    int status;

    memset(region, 0, 64);
    if (!answer) {
        return stk_fail(error, -ENOMEM, "cannot query a bucket", "free memory", "store");
    }
    bucket.key = "";
    if (object->kind == STK_OBJECT_URL_GCS) {
        operation.method = STK_HTTP_GET;
        operation.query = &location;
        operation.query_count = 1;
        operation.document = true;
        operation.buffer = document;
        operation.buffer_bytes = sizeof document - 1;
    }
    status = object->kind == STK_OBJECT_URL_GCS || object->kind == STK_OBJECT_URL_S3
                 ? stk_operation_run(store, &operation, answer, error)
                 : 0;
    if (object->kind == STK_OBJECT_URL_GCS && status == 0) {
        set_location((const char *)document, region);
    } else if (object->kind == STK_OBJECT_URL_S3 && answer->code > 0 &&
               stk_http_header(answer, "x-amz-bucket-region", &value) && value.bytes < 64) {
        memcpy(region, value.data, value.bytes);
        status = 0;
    }
    stk_free(answer);
    return status;
}

void stk_store_init_read(struct stk_operation *operation, const struct stk_object_url *object,
                         const struct stk_object_info *info, uint64_t offset, uint64_t bytes,
                         uint8_t *buffer)
{
    STK_ASSERT(bytes > 0 && offset <= info->bytes && bytes <= info->bytes - offset);
    operation->object = object;
    operation->method = STK_HTTP_GET;
    operation->info = info;
    operation->probe = false;
    operation->ranged = true;
    operation->offset = offset;
    operation->bytes = bytes;
    operation->query = NULL;
    operation->query_count = 0;
    operation->coverage = NULL;
    operation->buffer = buffer;
    operation->buffer_bytes = bytes;
    operation->request.body = (struct stk_view){0};
}

void stk_store_init_full(struct stk_operation *operation, const struct stk_object_url *object,
                         const struct stk_object_info *info, uint8_t *buffer, uint64_t buffer_bytes,
                         int (*grow)(struct stk_operation *operation))
{
    if (!grow) {
        stk_store_init_read(operation, object, info, 0, info->bytes, buffer);
        return;
    }
    operation->object = object;
    operation->method = STK_HTTP_GET;
    operation->info = info;
    operation->buffer = buffer;
    operation->buffer_bytes = buffer_bytes;
    operation->grow = grow;
}

uint32_t stk_store_range_bytes(const struct stk_object_url *object)
{
    return object->kind == STK_OBJECT_URL_AZURE ? STK_STORE_AZURE_CHECKSUM_BYTES
                                                : STK_STORE_RANGE_BYTES;
}

uint32_t stk_object_url_provider(const struct stk_object_url *object)
{
    return object->kind == STK_OBJECT_URL_S3      ? STK_CHECKSUM_FROM_AWS
           : object->kind == STK_OBJECT_URL_GCS   ? STK_CHECKSUM_FROM_GOOGLE
           : object->kind == STK_OBJECT_URL_AZURE ? STK_CHECKSUM_FROM_AZURE
                                                  : STK_CHECKSUM_FROM_HTTP;
}

/* A small object of S3 is usually read completely, with its checksum. */
struct stk_range_coverage *stk_store_new_coverage(struct stk_store *store,
                                                  const struct stk_object_url *object,
                                                  const struct stk_object_info *info, bool required,
                                                  bool *ask_out)
{
    bool amazon = object->kind == STK_OBJECT_URL_S3;
    bool lazy = store->config.site.settings.verify_when_required == STK_FLAG_YES;
    bool vain = info->bytes <= STK_STORE_RANGE_BYTES ||
                atomic_load_explicit(&store->without_checksum, memory_order_relaxed) >=
                    STK_STORE_NO_CHECKSUM_MAX;
    struct stk_range_coverage *coverage;

    *ask_out = amazon;
    if (info->bytes == 0 || !info->etag[0] || object->kind == STK_OBJECT_URL_AZURE ||
        object->kind == STK_OBJECT_URL_HF || (amazon && (lazy || (vain && !required)))) {
        return NULL;
    }
    coverage = stk_range_coverage_new(info->bytes); /* NULL: it is not verified */
    if (coverage && amazon) {
        stk_range_coverage_set_tentative(coverage, STK_CHECKSUM_CRC64); /* S3's default */
    }
    return coverage;
}

void stk_store_init_checksum(struct stk_operation *operation, const struct stk_object_url *object,
                             const struct stk_object_info *info)
{
    operation->object = object;
    operation->method = STK_HTTP_HEAD;
    operation->info = info;
    operation->wants_checksum = true;
}

void stk_store_checksum_reply(const struct stk_operation *operation,
                              const struct stk_http_response *answer,
                              struct stk_range_coverage *coverage, struct stk_checksum *checksum)
{
    struct stk_store *store = operation->store;
    struct stk_response_checksums seals;

    *checksum = (struct stk_checksum){.kind = STK_CHECKSUM_NONE};
    if (operation->status < 0) {
        stk_range_coverage_set_expected(coverage,
                                        &(struct stk_checksum){.kind = STK_CHECKSUM_NONE});
        return;
    }
    stk_checksum_read_headers(&seals, answer, stk_object_url_provider(operation->object), true,
                              false);
    if (stk_checksum_is_combinable(&seals.object)) {
        atomic_store_explicit(&store->without_checksum, 0, memory_order_relaxed);
    } else {
        *checksum = seals.object;
        atomic_fetch_add_explicit(&store->without_checksum, 1, memory_order_relaxed);
    }
    switch (stk_range_coverage_set_expected(coverage, &seals.object)) {
    case STK_RANGE_COVERAGE_VERIFIED: /* all ranges were received before this response */
        stk_store_count_verified(store, operation->object, operation->info->bytes);
        break;
    case STK_RANGE_COVERAGE_MISMATCH: /* the next read of the object fails */
        stk_store_count_damaged(store);
        break;
    case STK_RANGE_COVERAGE_INCOMPLETE:
        break;
    }
}

int stk_store_get_checksum(struct stk_store *store, const struct stk_object_url *object,
                           const struct stk_object_info *info, struct stk_checksum *checksum,
                           struct stoker_error *error)
{
    struct stk_http_response *answer = stk_alloc(1, sizeof *answer);
    struct stk_operation operation = {.status = 0};
    struct stk_response_checksums reported = {.object = {.kind = STK_CHECKSUM_NONE}};
    int status;

    if (!answer) {
        return stk_fail_memory(error, "store");
    }
    stk_store_init_checksum(&operation, object, info);
    status = stk_operation_run(store, &operation, answer, error);
    if (status == 0) {
        stk_checksum_read_headers(&reported, answer, stk_object_url_provider(object), true, true);
    }
    *checksum = reported.object.kind != STK_CHECKSUM_NONE ? reported.object : reported.body;
    stk_free(answer);
    return status;
}

/* Reads size, offset and checksum of a part from the response to HEAD. Impossible values count as
 * absent. */
static bool set_part_checksum(struct stk_composite_checksum_part *part,
                              const struct stk_http_response *answer,
                              const struct stk_object_info *info)
{
    uint64_t first, last, total;
    struct stk_response_checksums seals;
    struct stk_view value;

    stk_checksum_read_headers(&seals, answer, STK_CHECKSUM_FROM_AWS, false, false);
    *part = (struct stk_composite_checksum_part){
        .offset = UINT64_MAX, .bytes = answer->content_bytes, .seal = seals.body};
    if (stk_http_header(answer, "Content-Range", &value)) {
        if (!stk_store_parse_content_range(value, &first, &last, &total) ||
            (total != UINT64_MAX && total != info->bytes)) {
            return false;
        }
        part->offset = first;
        part->bytes = part->bytes == UINT64_MAX ? last - first + 1 : part->bytes;
        if (part->bytes != last - first + 1) {
            return false;
        }
    }
    return part->bytes != UINT64_MAX;
}

/* HEAD of a part: https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html */
int stk_store_part_checksum(struct stk_store *store, const struct stk_object_url *object,
                            const struct stk_object_info *info, uint32_t number,
                            struct stk_composite_checksum_part *part, struct stoker_error *error)
{
    struct stk_http_response *answer = stk_alloc(1, sizeof *answer);
    struct stk_operation operation = {.status = 0};
    struct stk_sigv4_pair query = {"partNumber", NULL};
    char text[12];
    int status;

    if (object->kind != STK_OBJECT_URL_S3) {
        stk_free(answer);
        return STOKER_ERROR_UNSUPPORTED;
    }
    if (!answer) {
        return stk_fail(error, -ENOMEM, "cannot request a part", "free memory", "store");
    }
    snprintf(text, sizeof text, "%u", number);
    query.value = text;
    stk_store_init_checksum(&operation, object, info);
    operation.query = &query;
    operation.query_count = 1;
    operation.keyed = true;
    status = stk_operation_run(store, &operation, answer, error);
    if (status == 0 && !set_part_checksum(part, answer, info)) {
        status = STOKER_ERROR_UNSUPPORTED;
    } else if (status < 0 && status != STOKER_ERROR_CHANGED && operation.code != 412 &&
               operation.code != 429 && (operation.code / 100 == 4 || operation.code == 501)) {
        status =
            STOKER_ERROR_UNSUPPORTED; /* the server does not know parts, or does not report them */
    }
    stk_free(answer);
    return status;
}

void stk_store_require_checksums(struct stk_store *store)
{
    atomic_store_explicit(&store->requires_checksums, true, memory_order_relaxed);
}

bool stk_store_requires_checksums(const struct stk_store *store)
{
    return atomic_load_explicit(&store->requires_checksums, memory_order_relaxed);
}

void stk_store_count_verified(struct stk_store *store, const struct stk_object_url *object,
                              uint64_t bytes)
{
    atomic_fetch_add_explicit(&store->verified[stk_object_url_store_kind(object)], bytes,
                              memory_order_relaxed);
}

void stk_store_count_damaged(struct stk_store *store)
{
    atomic_fetch_add_explicit(&store->checksum_failures, 1, memory_order_relaxed);
}

/* The bytes first to last are damaged. checksum: the checksums were computed; else only the CRCs of
 * blocks differ. */
static int fail_checksum(struct stoker_error *error, uint64_t first, uint64_t last, bool checksum,
                         const struct stk_checksum *want, const struct stk_checksum *got)
{
    char expected[STK_CHECKSUM_TEXT_BYTES], actual[STK_CHECKSUM_TEXT_BYTES];

    stk_checksum_text(want, expected);
    stk_checksum_text(got, actual);
    return stk_fail(error, STOKER_ERROR_CORRUPT,
                    checksum ? "an object's bytes are not as its checksum says"
                             : "the bytes are not as the server's checksum says",
                    "look at the server, at proxies and the memory of this machine",
                    "bytes %" PRIu64 "-%" PRIu64 ": the server reports %s, received %s", first,
                    last, expected, actual);
}

static uint32_t fail_damaged(struct stk_operation *operation, const struct stk_checksum *want,
                             const struct stk_checksum *got, bool checksum)
{
    uint64_t first = checksum ? 0 : operation->offset;
    uint64_t last =
        checksum ? operation->info->bytes - 1 : operation->offset + operation->bytes - 1;

    operation->received = 0;
    operation->request.failure = STK_HTTP_BROKEN;
    operation->request.status =
        fail_checksum(&operation->request.error, first, last, checksum, want, got);
    stk_store_count_damaged(operation->store);
    return checksum || operation->checksum_failures >= STK_STORE_CHECKSUM_FAILURES_MAX
               ? STK_RETRY_CLASS_PERMANENT
               : STK_RETRY_CLASS_TRANSIENT;
}

int stk_store_checksum_add(struct stk_store *store, const struct stk_object_url *object,
                           struct stk_range_coverage *coverage, uint64_t offset,
                           struct stk_view bytes, struct stoker_error *error)
{
    uint64_t all = stk_range_coverage_bytes(coverage);
    struct stk_checksum want, got;

    switch (stk_range_coverage_add(coverage, offset, bytes)) {
    case STK_RANGE_COVERAGE_VERIFIED:
        stk_store_count_verified(store, object, all);
        break;
    case STK_RANGE_COVERAGE_MISMATCH:
        stk_range_coverage_get_mismatch(coverage, &want, &got);
        stk_store_count_damaged(store);
        fail_checksum(error, 0, all - 1, true, &want, &got);
        if (error) {
            stk_error_set_location(error, object->url, STOKER_NO_OFFSET, NULL);
        }
        return STOKER_ERROR_CORRUPT;
    case STK_RANGE_COVERAGE_INCOMPLETE:
        break;
    }
    return 0;
}

/* If an unreliable checksum does not match, the bytes are read again: if they are the same, they
 * are taken as correct. */
static uint32_t verify_body(struct stk_operation *operation, bool *verified)
{
    const struct stk_checksum *want = &operation->seals.body;
    struct stk_store *store = operation->store;
    struct stk_checksum got;

    if (want->kind == STK_CHECKSUM_NONE ||
        (operation->seals.unreliable &&
         atomic_load_explicit(&store->checksum_doubts, memory_order_relaxed) >=
             STK_STORE_CHECKSUM_DOUBTS_MAX)) {
        return STK_RETRY_CLASS_SUCCESS;
    }
    got = stk_checksum_compute(want->kind, want->parts == 1,
                               (struct stk_view){operation->buffer, operation->bytes});
    got.hex = want->hex;
    if (stk_checksum_equal(&got, want)) {
        *verified = true;
        return STK_RETRY_CLASS_SUCCESS;
    }
    if (operation->seals.unreliable && operation->checksum_failures > 0 &&
        stk_checksum_equal(&got, &operation->bad_checksum)) {
        atomic_fetch_add_explicit(&store->checksum_doubts, 1, memory_order_relaxed);
        return STK_RETRY_CLASS_SUCCESS;
    }
    operation->bad_checksum = got;
    operation->checksum_failures++;
    return fail_damaged(operation, want, &got, false);
}

uint32_t stk_store_verify_body(struct stk_operation *operation)
{
    struct stk_range_coverage *coverage = operation->coverage;
    struct stk_checksum want, got;
    bool verified = false;
    uint32_t retry_class = verify_body(operation, &verified);

    if (verified) {
        stk_store_count_verified(operation->store, operation->object, operation->bytes);
    }
    if (retry_class != STK_RETRY_CLASS_SUCCESS || verified || !coverage) {
        return retry_class;
    }
    if (stk_checksum_is_combinable(&operation->seals.object)) {
        stk_range_coverage_set_expected(coverage, &operation->seals.object);
    }
    switch (stk_range_coverage_add(coverage, operation->offset,
                                   (struct stk_view){operation->buffer, operation->bytes})) {
    case STK_RANGE_COVERAGE_VERIFIED:
        stk_store_count_verified(operation->store, operation->object, operation->info->bytes);
        break;
    case STK_RANGE_COVERAGE_MISMATCH: /* other ranges were already returned: no retry */
        stk_range_coverage_get_mismatch(coverage, &want, &got);
        return fail_damaged(operation, &want, &got, true);
    case STK_RANGE_COVERAGE_INCOMPLETE:
        break;
    }
    return STK_RETRY_CLASS_SUCCESS;
}
