/* Writes, copies and removes objects, each in one request. */
#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/text/utf8.h"
#include "storage/upload/write_request.h"
#include "storage/upload/xml_response.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SOURCE_BYTES_MAX 4096u /* of x-amz-copy-source: a bucket and a key, encoded */

static int fail_answer(const struct stk_object_url *place, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, "the server's answer cannot be read",
                    "check the server and the proxies in between", "'%.400s'", place->url);
}

/* Whether the object that made a create-only request fail was written by an earlier try of this
 * request. Equal bytes alone do not show that: another writer may have written the same. */
static bool is_ours(const struct stk_write_request *write_request, struct stk_store *store,
                    const struct stk_object_url *place, struct stk_view body)
{
    uint8_t digest[16];
    char etag[80];

    if (!write_request->operation.uncertain) {
        return false;
    }
    stk_md5(body.data, body.bytes, digest);
    stk_hex(digest, sizeof digest, etag);
    return (place->kind == STK_OBJECT_URL_S3 &&
            stk_write_request_matches_object(store, place, body.bytes, etag)) ||
           stk_write_request_matches_body(store, place, body); /* encrypted: the ETag is no MD5 */
}

int stk_upload_put(struct stk_store *store, const struct stk_object_url *place,
                   struct stk_view body, const struct stk_upload_options *options,
                   struct stoker_error *error)
{
    struct stk_write_request *write_request =
        stk_write_request_open(place, STK_HTTP_PUT, false, error);
    struct stk_body_checksum checksum;
    char etag[80];
    int status = write_request ? stk_write_request_check_options(place, options, error) : -ENOMEM;

    if (status < 0) {
        stk_write_request_close(write_request);
        return status;
    }
    stk_body_checksum_init(&checksum, store, stk_body_checksum_for_url(place, options->check),
                           body);
    stk_write_request_set_options(write_request, options, &checksum);
    if (options->if_absent) {
        stk_write_request_if_absent(write_request);
    }
    if (place->kind == STK_OBJECT_URL_AZURE) {
        stk_write_request_add_header(write_request, "x-ms-blob-type", "BlockBlob");
    }
    write_request->operation.request.body = body;
    status = stk_write_request_run(write_request, store, error);
    if (status < 0 && stk_write_request_needs_checksum(write_request, &checksum)) {
        stk_write_request_close(write_request);
        stk_store_require_checksums(store); /* so now it has one */
        return stk_upload_put(store, place, body, options, error);
    }
    if (status == 0) { /* a proxy's "200 OK" has no ETag */
        stk_write_request_copy_etag(write_request, etag, sizeof etag);
        status = etag[0] ? stk_write_request_check_reply(write_request, &checksum, error)
                         : fail_answer(place, error);
    } else if (options->if_absent && stk_write_request_already_exists(write_request)) {
        status = is_ours(write_request, store, place, body)
                     ? 0
                     : stk_write_request_fail_exists(place, error);
    }
    stk_write_request_close(write_request);
    return status;
}

int stk_upload_copy(struct stk_store *store, const struct stk_object_url *from,
                    const struct stk_object_info *info, const struct stk_object_url *place,
                    const struct stk_upload_options *options, struct stoker_error *error)
{
    struct stk_write_request *write_request =
        stk_write_request_open(place, STK_HTTP_PUT, true, error);
    char source[SOURCE_BYTES_MAX];
    struct stk_object_info current;
    int status;

    if (!write_request) {
        return -ENOMEM;
    }
    status = stk_write_request_check_key(place, error);
    if (status == 0 && options->if_absent && stk_store_head(store, place, &current, NULL) == 0) {
        /* Some servers (Ceph 16) ignore the condition of a copy, and would replace the object. */
        status = stk_write_request_fail_exists(place, error);
    }
    if (status < 0) {
        goto done;
    }
    if (!stk_write_request_copy_source(from, source, sizeof source)) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a key is too long", "shorten it", "'%.400s'",
                          from->url);
        goto done;
    }
    write_request->operation.source = from;
    stk_write_request_add_header(write_request, "x-amz-copy-source", source);
    if (info->etag[0]) {
        stk_write_request_add_header(write_request, "x-amz-copy-source-if-match", info->etag);
    }
    stk_write_request_set_options(write_request, options, NULL);
    if (options->if_absent) {
        stk_write_request_if_absent(write_request);
    }
    write_request->operation.timeout_factor = 10; /* the server reads and writes it all */
    status = stk_write_request_run(write_request, store, error);
    if (status < 0 && write_request->operation.code == 412 && options->if_absent) {
        /* An earlier try whose response was lost may have written the object. If there is none, it
         * is the source that is another. */
        if (write_request->operation.uncertain &&
            stk_write_request_matches_copy(store, place, from, info)) {
            status = 0;
        } else if (stk_store_head(store, place, &current, NULL) == 0) {
            status = stk_write_request_fail_exists(place, error);
        }
    } else if (status == 0 && !stk_write_request_has_root(write_request, "CopyObjectResult")) {
        status = fail_answer(place, error);
    }
done:
    stk_write_request_close(write_request);
    return status;
}

int stk_upload_remove(struct stk_store *store, const struct stk_object_url *place,
                      struct stoker_error *error)
{
    struct stk_write_request *write_request =
        stk_write_request_open(place, STK_HTTP_DELETE, false, error);
    int status = write_request ? stk_write_request_check_key(place, error) : -ENOMEM;

    status = status < 0 ? status : stk_write_request_run(write_request, store, error);
    if (write_request && status < 0 && write_request->operation.code == 404 &&
        (stk_write_request_has_error_code(write_request, "NoSuchKey") ||
         stk_write_request_has_error_code(write_request, "BlobNotFound"))) {
        status = 0;
    }
    stk_write_request_close(write_request);
    return status;
}

/* An object that could not be removed. */
struct key_errors {
    struct stoker_error *error;
    const struct stk_object_url *place;
};

static int on_key_error(void *owner, const struct stk_xml_response *response)
{
    struct key_errors *key_errors = owner;

    if (strcmp(response->texts[1], "NoSuchKey") == 0) {
        return 0;
    }
    return stk_fail(key_errors->error,
                    strcmp(response->texts[1], "AccessDenied") == 0 ? -EACCES : -EIO,
                    "an object cannot be removed", "check the permissions and locks of the bucket",
                    "'s3://%.80s/%.300s': %.60s %.160s", key_errors->place->bucket,
                    response->texts[0], response->texts[1], response->texts[2]);
}

/* XML cannot represent control characters, U+FFFE and U+FFFF, and is UTF-8. */
static bool is_plain(const char *key)
{
    struct stk_view text = {(const uint8_t *)key, strlen(key)};

    while (*key && (uint8_t)*key >= ' ' && strncmp(key, "\xef\xbf\xbe", 3) != 0 &&
           strncmp(key, "\xef\xbf\xbf", 3) != 0) {
        key++;
    }
    return *key == '\0' && stk_utf8_check(text, NULL);
}

static int remove_one(struct stk_store *store, const struct stk_object_url *place, const char *key,
                      struct stoker_error *error)
{
    struct stk_object_url one = *place;

    one.key = key;
    return stk_upload_remove(store, &one, error);
}

/* A document that names objects. */
struct naming {
    struct stk_store *store;
    const struct stk_object_url *place;
    char *xml;
    size_t used, bytes;
};

static void add_text(struct naming *naming, const char *text)
{
    size_t bytes = strlen(text);

    STK_ASSERT(bytes < naming->bytes - naming->used);
    memcpy(naming->xml + naming->used, text, bytes + 1);
    naming->used += bytes;
}

/* Those that XML cannot name are removed at once. 1: there are others; 0: none; or the error. */
static int write_keys(struct naming *naming, const char *keys, uint32_t count,
                      struct stoker_error *error)
{
    int status = 0, removed = 0;

    add_text(naming, "<Delete><Quiet>true</Quiet>");
    for (uint32_t i = 0; i < count && removed == 0; i++, keys += strlen(keys) + 1) {
        if (is_plain(keys)) {
            bool fits;

            add_text(naming, "<Object><Key>");
            fits = stk_xml_escape(keys, naming->xml, naming->bytes, &naming->used);
            STK_ASSERT(fits);
            add_text(naming, "</Key></Object>");
            status = 1;
        } else {
            removed = remove_one(naming->store, naming->place, keys, error);
        }
    }
    add_text(naming, "</Delete>");
    return removed < 0 ? removed : status;
}

static int remove_each(struct stk_store *store, const struct stk_object_url *place,
                       const char *keys, uint32_t count, struct stoker_error *error)
{
    int status = 0;

    for (uint32_t i = 0; i < count && status == 0; i++, keys += strlen(keys) + 1) {
        status = remove_one(store, place, keys, error);
    }
    return status;
}

int stk_upload_remove_many(struct stk_store *store, const struct stk_object_url *place,
                           const char *keys, uint32_t count, struct stoker_error *error)
{
    size_t xml_bytes = 128, at = 0;
    struct stk_xml_response *response = stk_alloc(1, sizeof *response);
    struct stk_write_request *write_request =
        stk_write_request_open(place, STK_HTTP_POST, true, error);
    struct key_errors key_errors = {error, place};
    struct naming naming;
    struct stk_body_checksum checksum;
    char *xml;
    int status;

    STK_ASSERT(count > 0 && count <= STK_UPLOAD_REMOVE_MAX);
    if (place->kind != STK_OBJECT_URL_S3) {
        status = remove_each(store, place, keys, count, error);
        stk_free(response);
        stk_write_request_close(write_request);
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes = strlen(keys + at);

        xml_bytes += 6 * bytes + 64;
        at += bytes + 1;
    }
    xml = stk_alloc(1, xml_bytes);
    if (!xml || !write_request || !response) {
        status = stk_fail(error, -ENOMEM, "cannot remove objects", "free memory", "'%.200s'",
                          place->url);
        goto done;
    }
    naming = (struct naming){store, place, xml, 0, xml_bytes};
    status = write_keys(&naming, keys, count, error);
    if (status <= 0) { /* none is left */
        goto done;
    }
    write_request->operation.keyed = false;
    write_request->operation.request.body = (struct stk_view){(const uint8_t *)xml, strlen(xml)};
    stk_write_request_add_query(write_request, "delete", NULL);
    /* The request must have a checksum; S3 Express does not support MD5. */
    stk_body_checksum_init(&checksum, store,
                           place->zone ? STK_UPLOAD_CHECKSUM_CRC32C : STK_UPLOAD_CHECKSUM_MD5,
                           write_request->operation.request.body);
    stk_body_checksum_add_headers(&checksum, write_request);
    stk_write_request_add_header(write_request, "Content-Type", "application/xml");
    status = stk_write_request_run(write_request, store, error);
    if (status < 0 && write_request->operation.code == 400) { /* for one of the keys, maybe */
        status = remove_each(store, place, keys, count, error);
        goto done;
    }
    *response = (struct stk_xml_response){.root = "DeleteResult",
                                          .item = "Error",
                                          .names = {"Key", "Code", "Message"},
                                          .on_item = on_key_error,
                                          .owner = &key_errors};
    if (status == 0) {
        status = stk_xml_response_parse(response, stk_write_request_document(write_request));
        status = status == STOKER_ERROR_CORRUPT ? fail_answer(place, error) : status;
    }
done:
    stk_free(xml);
    stk_free(response);
    stk_write_request_close(write_request);
    return status;
}
