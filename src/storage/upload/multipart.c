/* Multipart uploads of S3: begin, parts, completion. */
#include "storage/upload/multipart.h"

#include "base/crc.h"
#include "base/crypto/digest.h"
#include "base/mem.h"
#include "io/clock.h"
#include "storage/upload/write_request.h"
#include "storage/upload/xml_response.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int fail_answer(const struct stk_upload *upload, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, "the server's answer cannot be read",
                    "check the server and the proxies in between", "'%.400s'", upload->place.url);
}

static int fail_lost(struct stk_upload *upload, struct stoker_error *error)
{
    atomic_store_explicit(&upload->lost, true, memory_order_relaxed);
    return stk_fail(
        error, STOKER_ERROR_CHANGED, "the store no longer has this upload",
        "check what ends or removes uploads there (a rule of the bucket, another copy of "
        "the same), and start it again",
        "'%.400s'", upload->place.url);
}

int stk_multipart_create(struct stk_upload *upload, struct stoker_error *error)
{
    struct stk_write_request *write_request =
        stk_write_request_open(&upload->place, STK_HTTP_POST, true, error);
    struct stk_xml_response *response = stk_alloc(1, sizeof *response);
    const char *name = stk_body_checksum_name(upload->check);
    struct stk_view date;
    int status = write_request && response ? 0 : -ENOMEM;

    if (status < 0) {
        stk_fail(error, status, "cannot write an object", "free memory", "'%.400s'",
                 upload->place.url);
        goto done;
    }
    stk_write_request_add_query(write_request, "uploads", NULL);
    stk_write_request_set_options(write_request, &upload->options, NULL);
    if (name) {
        stk_write_request_add_header(write_request, "x-amz-checksum-algorithm", name);
        stk_write_request_add_header(write_request, "x-amz-checksum-type",
                                     upload->check == STK_UPLOAD_CHECKSUM_SHA256 ? "COMPOSITE"
                                                                                 : "FULL_OBJECT");
    }
    upload->requested_ns = stk_clock_ns();
    status = stk_write_request_run(write_request, upload->store, error);
    upload->tries = write_request->operation.sends;
    if (status == 0) {
        *response = (struct stk_xml_response){.root = "InitiateMultipartUploadResult",
                                              .names = {"UploadId"}};
        status = stk_xml_response_parse(response, stk_write_request_document(write_request));
        if (status < 0 || !response->texts[0][0] ||
            strlen(response->texts[0]) >= STK_UPLOAD_ID_BYTES) {
            status = fail_answer(upload, error);
        } else {
            memcpy(upload->id, response->texts[0], strlen(response->texts[0]) + 1);
            stk_multipart_record(upload);
        }
        if (status == 0 && stk_write_request_may_repeat(write_request) &&
            stk_http_header(&write_request->answer, "Date", &date)) {
            upload->begun_ns = stk_store_parse_time((const char *)date.data, date.bytes);
            upload->uncertain_ns = upload->begun_ns > 0 ? stk_clock_ns() - upload->requested_ns : 0;
        }
    }
    if (status == STOKER_ERROR_CORRUPT ||
        (status < 0 && stk_write_request_may_have_succeeded(write_request))) {
        upload->uncertain_ns = 1; /* an upload that may have begun is searched for and removed */
        if (error) {
            snprintf(
                error->advice, sizeof error->advice,
                "check the server and the proxies in between; it may have begun an upload all the "
                "same: 'stoker rm --unfinished-uploads' removes such");
        }
    }
done:
    stk_free(response);
    stk_write_request_close(write_request);
    return status;
}

static bool is_md5(const char *etag)
{
    return strlen(etag) == 32 && strspn(etag, "0123456789abcdefABCDEF") == 32;
}

/* Returns whether a part of an earlier run equals this part. */
static bool is_same(const char *etag, struct stk_view body)
{
    uint8_t digest[16];
    char text[33];

    if (!is_md5(etag)) {
        return false;
    }
    stk_md5(body.data, body.bytes, digest);
    stk_hex(digest, sizeof digest, text);
    return strcasecmp(text, etag) == 0;
}

int stk_multipart_send_part(struct stk_upload *upload, uint32_t index, struct stk_view body,
                            struct stoker_error *error)
{
    struct stk_upload_part *part = &upload->parts[index];
    struct stk_body_checksum checksum;
    struct stk_write_request *write_request;
    char number[12];
    int status;

    stk_body_checksum_init(&checksum, upload->store, upload->check, body);
    memcpy(part->sum, checksum.text, sizeof part->sum);
    part->crc = stk_body_checksum_to_number(&checksum);
    if (part->left[0] && is_same(part->left, body)) {
        memcpy(part->etag, part->left, sizeof part->etag);
        return 1;
    }
    write_request = stk_write_request_open(&upload->place, STK_HTTP_PUT, false, error);
    if (!write_request) {
        return -ENOMEM;
    }
    snprintf(number, sizeof number, "%u", index + 1);
    stk_write_request_add_query(write_request, "partNumber", number);
    stk_write_request_add_query(write_request, "uploadId", upload->id);
    stk_body_checksum_add_headers(&checksum, write_request);
    write_request->operation.request.body = body;
    status = stk_write_request_run(write_request, upload->store, error);
    part->again = stk_write_request_may_repeat(write_request);
    if (status < 0 && stk_write_request_needs_checksum(write_request, &checksum)) {
        stk_write_request_close(write_request);
        stk_store_require_checksums(upload->store); /* so now it has one */
        return stk_multipart_send_part(upload, index, body, error);
    }
    if (status < 0 && stk_write_request_has_error_code(write_request, "NoSuchUpload")) {
        status = fail_lost(upload, error);
    }
    if (status == 0) {
        stk_write_request_copy_etag(write_request, part->etag, sizeof part->etag);
        status = part->etag[0] ? stk_write_request_check_reply(write_request, &checksum, error)
                               : fail_answer(upload, error);
    }
    stk_write_request_close(write_request);
    return status;
}

int stk_upload_copy_part(struct stk_upload *upload, uint32_t index,
                         const struct stk_object_url *from, const struct stk_object_info *info,
                         struct stoker_error *error)
{
    struct stk_upload_part *part = &upload->parts[index];
    struct stk_write_request *write_request =
        stk_write_request_open(&upload->place, STK_HTTP_PUT, true, error);
    struct stk_xml_response *response = stk_alloc(1, sizeof *response);
    uint64_t begin = index * upload->part_bytes;
    char number[12], range[64], source[4096];
    int status = write_request && response ? 0 : -ENOMEM;

    if (status < 0 || !stk_write_request_copy_source(from, source, sizeof source)) {
        status = stk_fail(error, status < 0 ? status : STOKER_ERROR_LIMIT, "cannot copy an object",
                          "free memory, or shorten the key", "'%.400s'", from->url);
        goto done;
    }
    snprintf(number, sizeof number, "%u", index + 1);
    snprintf(range, sizeof range, "bytes=%llu-%llu", (unsigned long long)begin,
             (unsigned long long)(begin + stk_upload_part_bytes_at(upload, index) - 1));
    stk_write_request_add_query(write_request, "partNumber", number);
    stk_write_request_add_query(write_request, "uploadId", upload->id);
    write_request->operation.source = from;
    stk_write_request_add_header(write_request, "x-amz-copy-source", source);
    stk_write_request_add_header(write_request, "x-amz-copy-source-range", range);
    if (info->etag[0]) {
        stk_write_request_add_header(write_request, "x-amz-copy-source-if-match", info->etag);
    }
    write_request->operation.timeout_factor = STK_UPLOAD_COMMIT_TIMEOUT_FACTOR;
    status = stk_write_request_run(write_request, upload->store, error);
    part->again = stk_write_request_may_repeat(write_request);
    if (status < 0 && stk_write_request_has_error_code(write_request, "NoSuchUpload")) {
        status = fail_lost(upload, error);
    }
    if (status == 0) {
        *response = (struct stk_xml_response){.root = "CopyPartResult", .names = {"ETag"}};
        status = stk_xml_response_parse(response, stk_write_request_document(write_request));
        stk_xml_response_copy_etag(response->texts[0], part->etag, sizeof part->etag);
        if (status < 0 || !part->etag[0]) {
            status = fail_answer(upload, error);
        }
    }
done:
    stk_free(response);
    stk_write_request_close(write_request);
    return status;
}

/* Writes "<CompleteMultipartUpload>...". Returns NULL if there is no memory. */
static char *write_parts(const struct stk_upload *upload)
{
    const char *element = stk_body_checksum_element(upload->check);
    size_t each = STK_UPLOAD_ETAG_BYTES * 6 + STK_BASE64_BYTES + 160;
    size_t bytes = 64 + upload->part_count * each, used;
    char *xml = stk_alloc(1, bytes);

    if (!xml) {
        return NULL;
    }
    used = (size_t)snprintf(xml, bytes, "<CompleteMultipartUpload>");
    for (uint32_t i = 0; i < upload->part_count; i++) {
        const struct stk_upload_part *part = &upload->parts[i];
        bool fits;

        STK_ASSERT(part->etag[0]);
        used += (size_t)snprintf(xml + used, bytes - used, "<Part><ETag>&quot;");
        fits = stk_xml_escape(part->etag, xml, bytes, &used);
        STK_ASSERT(fits);
        used += (size_t)snprintf(xml + used, bytes - used, "&quot;</ETag>");
        if (element && part->sum[0]) {
            used += (size_t)snprintf(xml + used, bytes - used, "<%s>%s</%s>", element, part->sum,
                                     element);
        }
        used +=
            (size_t)snprintf(xml + used, bytes - used, "<PartNumber>%u</PartNumber></Part>", i + 1);
    }
    snprintf(xml + used, bytes - used, "</CompleteMultipartUpload>");
    return xml;
}

bool stk_upload_combine_checksums(const struct stk_upload *upload,
                                  struct stk_body_checksum *checksum)
{
    uint64_t crc = 0;

    if ((upload->check != STK_UPLOAD_CHECKSUM_CRC64NVME &&
         upload->check != STK_UPLOAD_CHECKSUM_CRC32C && upload->check != STK_UPLOAD_CHECKSUM_GCS) ||
        !upload->parts[0].sum[0]) {
        return false;
    }
    *checksum = (struct stk_body_checksum){
        .check = upload->check,
        .sum_bytes = upload->check == STK_UPLOAD_CHECKSUM_CRC64NVME ? 8 : 4};
    for (uint32_t i = 0; i < upload->part_count; i++) {
        crc =
            checksum->sum_bytes == 8
                ? stk_crc64_combine(crc, upload->parts[i].crc, stk_upload_part_bytes_at(upload, i))
                : stk_crc32c_combine((uint32_t)crc, (uint32_t)upload->parts[i].crc,
                                     stk_upload_part_bytes_at(upload, i));
    }
    for (uint32_t i = 0; i < checksum->sum_bytes; i++) {
        checksum->sum[i] = (uint8_t)(crc >> (8 * (checksum->sum_bytes - 1 - i)));
    }
    stk_body_checksum_set_text(checksum);
    return true;
}

/* Computes the MD5 of the parts' MD5s and their number: the ETag that servers set for an object
 * of parts. */
static void expect_etag(const struct stk_upload *upload, char *etag, size_t etag_bytes)
{
    uint8_t *digests = stk_alloc(upload->part_count, 16), digest[16];
    char text[33];

    etag[0] = '\0';
    for (uint32_t i = 0; digests && i < upload->part_count; i++) {
        for (uint32_t j = 0; j < 16; j++) {
            char two[3] = {upload->parts[i].etag[2 * j], upload->parts[i].etag[2 * j + 1], 0};

            digests[16 * i + j] = (uint8_t)strtoul(two, NULL, 16);
        }
        if (!is_md5(upload->parts[i].etag)) {
            stk_free(digests);
            return;
        }
    }
    if (digests) {
        stk_md5(digests, 16 * (size_t)upload->part_count, digest);
        stk_hex(digest, sizeof digest, text);
        snprintf(etag, etag_bytes, "%s-%u", text, upload->part_count);
    }
    stk_free(digests);
}

int stk_upload_matches_object(const struct stk_upload *upload, const struct stk_object_url *object,
                              struct stoker_error *error)
{
    bool google = object->kind == STK_OBJECT_URL_GCS;
    struct stk_body_checksum combined;
    struct stk_response_checksums seals;
    struct stk_write_request *write_request;
    int status;

    if (!stk_upload_combine_checksums(upload, &combined)) {
        return 0;
    }
    write_request = stk_write_request_open(object, STK_HTTP_HEAD, false, error);
    if (!write_request) {
        return -ENOMEM;
    }
    write_request->operation.wants_checksum = !google; /* which reports it by default */
    status = stk_write_request_run(write_request, upload->store, error);
    if (status == 0) {
        stk_checksum_read_headers(&seals, &write_request->answer,
                                  google ? STK_CHECKSUM_FROM_GOOGLE : STK_CHECKSUM_FROM_AWS, true,
                                  false);
        status = write_request->answer.content_bytes == upload->bytes &&
                 seals.object.kind == stk_body_checksum_kind(combined.check) &&
                 memcmp(seals.object.sum, combined.sum, combined.sum_bytes) == 0;
    }
    stk_write_request_close(write_request);
    return status;
}

/* Returns whether the object equals the sent bytes, by the checksum of the complete object that
 * the store reports, or by an ETag that is made of the parts' MD5s. */
static bool is_there(const struct stk_upload *upload)
{
    char etag[64];

    expect_etag(upload, etag, sizeof etag);
    return (etag[0] &&
            stk_write_request_matches_object(upload->store, &upload->place, upload->bytes, etag)) ||
           stk_upload_matches_object(upload, &upload->place, NULL) == 1;
}

int stk_multipart_complete(struct stk_upload *upload, struct stk_write_request **request_out,
                           struct stoker_error *error)
{
    struct stk_write_request *write_request =
        stk_write_request_open(&upload->place, STK_HTTP_POST, true, error);
    char *xml = write_parts(upload);
    struct stk_body_checksum checksum, combined;
    bool google = upload->place.kind == STK_OBJECT_URL_GCS;
    int status;

    *request_out = write_request;
    if (!write_request || !xml) {
        stk_free(xml);
        return stk_fail(error, -ENOMEM, "cannot write an object", "free memory", "'%.400s'",
                        upload->place.url);
    }
    write_request->operation.request.body = (struct stk_view){(const uint8_t *)xml, strlen(xml)};
    write_request->operation.timeout_factor = STK_UPLOAD_COMMIT_TIMEOUT_FACTOR;
    stk_write_request_add_query(write_request, "uploadId", upload->id);
    stk_body_checksum_init(&checksum, upload->store, STK_UPLOAD_CHECKSUM_AUTO,
                           write_request->operation.request.body);
    if (checksum.payload[0]) {
        write_request->operation.payload = checksum.payload;
    }
    stk_write_request_add_header(write_request, "Content-Type", "application/xml");
    if (!google && stk_upload_combine_checksums(upload, &combined)) {
        stk_write_request_add_header(write_request, stk_body_checksum_header(combined.check),
                                     combined.text);
        stk_write_request_add_header(write_request, "x-amz-checksum-type", "FULL_OBJECT");
    }
    if (upload->options.if_absent && !google) {
        stk_write_request_if_absent(write_request);
    }
    status = stk_write_request_run(write_request, upload->store, error);
    stk_free(xml);
    return status;
}

static int commit(struct stk_upload *upload, struct stoker_error *error)
{
    struct stk_write_request *write_request;
    int status = stk_multipart_complete(upload, &write_request, error);
    bool gone, exists, ours;

    if (status == -ENOMEM) {
        goto done;
    }
    if (status == 0 &&
        !stk_write_request_has_root(write_request, "CompleteMultipartUploadResult")) {
        status = fail_answer(upload, error);
    }
    /* A server that has begun its response with 200 reports these errors in the body. */
    gone = write_request->operation.code == 404 ||
           stk_write_request_has_error_code(write_request, "NoSuchUpload");
    exists = write_request->operation.code == 412 ||
             stk_write_request_has_error_code(write_request, "PreconditionFailed");
    /* An earlier try whose response was lost may have completed it, or without a condition another
     * run of the same copy. */
    ours = status == STOKER_ERROR_CORRUPT || write_request->operation.uncertain ||
           (gone && !upload->options.if_absent);
    if (status == STOKER_ERROR_CORRUPT || (status < 0 && (gone || exists))) {
        if (ours && is_there(upload)) {
            status = 0;
        } else if (exists) {
            status = stk_write_request_fail_exists(&upload->place, error);
        } else if (stk_write_request_has_error_code(write_request, "NoSuchUpload")) {
            status = fail_lost(upload, error);
        }
    } else if (status < 0 && stk_write_request_has_error_code(write_request, "InvalidPart")) {
        status = fail_lost(upload, error); /* a part has changed: start again */
    }
done:
    if (status == 0) {
        upload->id[0] = '\0'; /* nothing is left to abort */
    }
    stk_write_request_close(write_request);
    return status;
}

static int begin(struct stk_upload *upload, struct stoker_error *error)
{
    int status = upload->options.resume ? stk_multipart_find(upload, error) : 0;

    return status < 0 || upload->id[0] ? status : stk_multipart_create(upload, error);
}

const struct stk_upload_operations stk_multipart_operations = {begin, stk_multipart_send_part,
                                                               commit};
